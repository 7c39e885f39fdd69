//! The key of the store: 32 random bytes, created once, and the keys derived
//! from it.

use std::ffi::CStr;

use bincode::{Decode, Encode};

use crate::sys::files;
use crate::sys::secure_dir::SecureDir;

use super::super::DigestKey;
use super::cipher::{Nonce, Stream, Tagger, random};
use super::mirrored::{self, Mirrored, MirroredCopy};
use super::{LOCK_TIMEOUT, TraceError, VERSIONS};

/// The file that holds the key.
pub(super) const KEY: &CStr = c"key";
/// The file while it is being written.
pub(super) const KEY_NEW: &CStr = c"key.new";
/// The mode of the file: it decrypts all others.
pub(super) const KEY_MODE: u32 = 0o600;

/// The nonces for the key's own keystream, one for each purpose.
const DIGEST: &Nonce = b"exirate trace digest key";
/// As above.
const CIPHER: &Nonce = b"exirate trace cipher key";
/// As above.
const TAGGER: &Nonce = b"exirate trace tagger key";
/// As above.
const NUMBER: &Nonce = b"exirate trace key number";

/// The contents of the file.
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

/// The keys derived from it.
#[derive(Clone)]
pub(super) struct DerivedKeys {
    /// The key for digests.
    pub(super) digest: DigestKey,
    /// The key that encrypts files.
    cipher: [u8; 32],
    /// The key of tags.
    tagger: [u8; 16],
    /// Identifies this key, and reveals nothing else about it.
    pub(super) number: u64,
    /// The version of the store, in which new files are written.
    pub(super) version: u32,
}

/// Device and inode of the key file; `None` if it does not exist.
pub(super) fn identity(dir: &SecureDir) -> Option<(u64, u64)> {
    files::info_at(dir.directory(), KEY).ok().map(|info| info.identity)
}

impl std::fmt::Debug for DerivedKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Key {{ number: {:016x}, .. }}", self.number)
    }
}

impl DerivedKeys {
    fn of(key: &[u8; 32], version: u32) -> Self {
        let derive = |nonce| {
            let mut bytes = [0; 32];
            Stream::new(key, nonce).apply(0, &mut bytes);
            bytes
        };
        let number = derive(NUMBER).first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        let tagger = derive(TAGGER).first_chunk().copied().unwrap_or_default();
        Self { digest: derive(DIGEST), cipher: derive(CIPHER), tagger, number, version }
    }

    /// The keystream for a nonce.
    pub(super) fn stream(&self, nonce: &Nonce) -> Stream {
        Stream::new(&self.cipher, nonce)
    }

    /// The tags of the file with a nonce.
    pub(super) fn tagger(&self, nonce: &Nonce) -> Tagger {
        Tagger::new(&self.tagger, nonce)
    }

    /// Reads the key; creates one if there is none and `make`.
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

    /// Reads the key, or creates one. The directory is locked.
    pub(super) fn open_locked(dir: &SecureDir) -> Result<Self, TraceError> {
        if let Some(key) = Self::read(dir)? {
            return Ok(key);
        }
        let key = random()?;
        let version = VERSIONS.known().newest;
        let file = KeyFile { magic: KeyFile::MAGIC, version, reserved: 0, key };
        mirrored::write(dir, KEY, KEY_NEW, KEY_MODE, &file)?;
        Ok(Self::of(&key, version))
    }

    /// Reads the key; `None` if there is none.
    fn read(dir: &SecureDir) -> Result<Option<Self>, TraceError> {
        match mirrored::read::<KeyFile>(dir, KEY)? {
            MirroredCopy::Nothing => Ok(None),
            MirroredCopy::Sound(file, _) => Ok(Some(Self::of(&file.key, file.version))),
            MirroredCopy::Damaged => Err(TraceError::Damaged {
                path: dir.path_of(KEY),
                what: "it is damaged, and without it no message can be recorded or queried: \
                       restore a copy of it, or remove it to have a new key created for future \
                       messages",
            }),
        }
    }
}
