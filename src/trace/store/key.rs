//! The key of the store: 32 random bytes, chosen once, and what follows from
//! them.

use std::ffi::CStr;

use bincode::{Decode, Encode};

use crate::sys::files;
use crate::sys::secure_dir::SecureDir;

use super::super::DigestKey;
use super::cipher::{Nonce, Stream, random};
use super::mirrored::{self, Found, Mirrored};
use super::{LOCK_TIMEOUT, TraceError, VERSION};

/// The file that holds the key.
pub(super) const KEY: &CStr = c"key";
/// That file while it is being written.
pub(super) const KEY_NEW: &CStr = c"key.new";
/// Permissions of that file: it opens all others.
pub(super) const KEY_MODE: u32 = 0o600;

/// What the keystream of the key is asked for, by its nonce.
const DIGEST: &Nonce = b"exirate trace digest key";
/// As above.
const CIPHER: &Nonce = b"exirate trace cipher key";
/// As above.
const NUMBER: &Nonce = b"exirate trace key number";

/// The file's content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub(super) struct KeyFile {
    pub(super) magic: [u8; 8],
    pub(super) version: u32,
    pub(super) reserved: u32,
    pub(super) key: [u8; 32],
}

impl Mirrored for KeyFile {
    const MAGIC: [u8; 8] = *b"EXIRATEK";
    const BYTES: usize = 52;
}

/// What follows from the key.
#[derive(Clone)]
pub(super) struct Key {
    /// What digests are keyed with.
    pub(super) digest: DigestKey,
    /// What files are enciphered with.
    cipher: [u8; 32],
    /// Tells this key from others, and tells nothing else of it.
    pub(super) number: u64,
}

/// Which file the key is in: device and inode; `None` where there is none.
pub(super) fn identity(dir: &SecureDir) -> Option<(u64, u64)> {
    files::info_at(dir.directory(), KEY).ok().map(|facts| facts.identity)
}

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Key {{ number: {:016x}, .. }}", self.number)
    }
}

impl Key {
    fn of(key: &[u8; 32]) -> Self {
        let derive = |nonce| {
            let mut bytes = [0; 32];
            Stream::new(key, nonce).apply(0, &mut bytes);
            bytes
        };
        let number = derive(NUMBER).first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        Self { digest: derive(DIGEST), cipher: derive(CIPHER), number }
    }

    /// The keystream that goes with a nonce.
    pub(super) fn stream(&self, nonce: &Nonce) -> Stream {
        Stream::new(&self.cipher, nonce)
    }

    /// Reads the key; chooses one where there is none and `make`.
    pub(super) fn open(dir: &SecureDir, make: bool) -> Result<Self, TraceError> {
        if let Some(key) = Self::read(dir)? {
            return Ok(key);
        }
        if !make {
            return Err(TraceError::NoKey { path: dir.path_of(KEY) });
        }
        let _guard = dir.lock_directory(LOCK_TIMEOUT)?;
        Self::open_locked(dir)
    }

    /// The same, and one is chosen where there is none. The directory is locked.
    pub(super) fn open_locked(dir: &SecureDir) -> Result<Self, TraceError> {
        if let Some(key) = Self::read(dir)? {
            return Ok(key);
        }
        let key = random()?;
        let file = KeyFile { magic: KeyFile::MAGIC, version: VERSION, reserved: 0, key };
        mirrored::write(dir, KEY, KEY_NEW, KEY_MODE, &file)?;
        Ok(Self::of(&key))
    }

    /// Reads the key; `None` where there is none.
    fn read(dir: &SecureDir) -> Result<Option<Self>, TraceError> {
        match mirrored::read::<KeyFile>(dir, KEY)? {
            Found::Nothing => Ok(None),
            Found::Sound(file, _) => Ok(Some(Self::of(&file.key))),
            Found::Damaged => Err(TraceError::Damaged {
                path: dir.path_of(KEY),
                what: "it is damaged, and without it nothing can be recorded or answered: put a \
                       copy in its place, or remove it, and a new key is chosen for the messages \
                       to come",
            }),
        }
    }
}
