//! Small files with two copies of their contents, so that one damaged sector
//! loses nothing. They are replaced atomically.

use std::ffi::CStr;

use bincode::{Decode, Encode};

use super::codec::{checksum_fits, decode, encode, set_checksum};
use super::{TraceError, VERSIONS};
use crate::sys::files::{self, Access};
use crate::sys::secure_dir::SecureDir;
use crate::versions::OtherVersion;

/// The offset of the second copy, in its own sector.
pub(super) const SECOND: usize = 512;

/// The contents of such a file: a structure that begins with a magic and a
/// version, and ends with its checksum.
pub(super) trait Mirrored: Encode + Decode<()> {
    /// The magic.
    const MAGIC: [u8; 8];
    /// The size of the structure, including its checksum.
    const BYTES: usize;
}

/// The first bytes of every such file, in all versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub(super) struct Start {
    pub(super) magic: [u8; 8],
    pub(super) version: u32,
}

/// The result of reading a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MirroredCopy<T> {
    /// The file does not exist.
    Nothing,
    /// Neither copy is sound.
    Damaged,
    /// At least one copy is sound; whether both are.
    Sound(T, bool),
}

/// Reads the file `name`.
///
/// # Errors
/// It cannot be read, or was written by a version of exirate with another format.
pub(super) fn read<T: Mirrored>(
    dir: &SecureDir,
    name: &CStr,
) -> Result<MirroredCopy<T>, TraceError> {
    let Some((file, _)) = dir.open_file(Access::Read, name)? else {
        return Ok(MirroredCopy::Nothing);
    };
    let mut bytes = [0; 2 * SECOND];
    files::read_start(&file, &mut bytes).map_err(dir.failed("read", name))?;
    let copies = [0, SECOND].map(|at| bytes.get(at..at + T::BYTES).unwrap_or(&[]));
    let sound = copies.map(|copy| {
        let start: Option<Start> = decode(copy);
        let ours = start.is_some_and(|start| start.magic == T::MAGIC) && checksum_fits(copy);
        start.filter(|_| ours).map(|start| (start.version, decode::<T>(copy)))
    });
    for (version, value) in sound.into_iter().flatten() {
        match (VERSIONS.known().check(version), value) {
            (Ok(()), Some(value)) => {
                return Ok(MirroredCopy::Sound(value, copies[0] == copies[1]));
            }
            // No version of exirate has written this.
            (Ok(()), None) | (Err(OtherVersion { found: 0, .. }), _) => {}
            (Err(version), _) => {
                return Err(TraceError::Version { path: dir.path_of(name), version });
            }
        }
    }
    Ok(MirroredCopy::Damaged)
}

/// Replaces the file `name` atomically, through `new`. The caller has locked
/// the directory.
///
/// # Errors
/// It cannot be written; the old file remains.
pub(super) fn write<T: Mirrored>(
    dir: &SecureDir,
    name: &CStr,
    new: &CStr,
    mode: u32,
    value: &T,
) -> Result<(), TraceError> {
    let file = dir.create_file(new, mode)?;
    let mut bytes = [0; 2 * SECOND];
    let copy: [u8; SECOND] = encode(value);
    for target in bytes.chunks_mut(SECOND) {
        target.copy_from_slice(&copy);
        set_checksum(target.get_mut(..T::BYTES).unwrap_or(&mut []));
    }
    let written = files::write_start(&file, &bytes)
        .and_then(|()| files::sync(&file))
        .and_then(|()| files::rename_at(dir.directory(), new, name));
    Ok(written.map_err(dir.failed("write", name))?)
}
