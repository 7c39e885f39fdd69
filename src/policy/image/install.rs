//! Puts a new image in place of the one in use.

use std::ffi::CStr;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::ImageError;
use super::in_use::IMAGE;
use super::layout::{HEADER_BYTES, HEADER_SUPERSEDED, MAGIC};
use crate::spool;
use crate::sys::files::{self, Access};
use crate::sys::mapping::Mapping;
use crate::sys::secure_dir::{DirError, SecureDir};

/// The image while it is written.
const IMAGE_NEW: &CStr = c"policy.image.new";
/// How long to wait for another process that changes files in the directory.
const LOCK_TIMEOUT: Duration = Duration::from_secs(5);

/// Puts `image` in use in the spool directory `spool`; returns its path. A process that is
/// killed meanwhile leaves the old one or the new one in use.
///
/// # Errors
/// It could not be written; the old one is still in use.
pub fn install(spool: &Path, image: &[u8]) -> Result<PathBuf, ImageError> {
    write(spool, image).map_err(ImageError::Directory)
}

/// Takes the image in the spool directory out of use, if there is one.
///
/// # Errors
/// It could not be removed.
pub fn remove(spool: &Path) -> Result<(), ImageError> {
    let removed = || {
        if !spool.join("exirate").exists() {
            return Ok(());
        }
        let dir = spool::open_directory(spool, false)?;
        let _guard = dir.lock_directory(LOCK_TIMEOUT)?;
        let mut old = superseded_word(&dir)?;
        files::remove_at(dir.directory(), IMAGE).map_err(dir.failed("remove", IMAGE))?;
        // Running processes look again.
        if let Some(map) = &mut old {
            map.set_u64(HEADER_SUPERSEDED, 1)
                .ok_or_else(|| dir.failed("write", IMAGE)(ErrorKind::UnexpectedEof.into()))?;
        }
        Ok(())
    };
    removed().map_err(ImageError::Directory)
}

fn write(spool: &Path, image: &[u8]) -> Result<PathBuf, DirError> {
    let dir = spool::open_directory(spool, true)?;
    let path = dir.path_of(IMAGE);
    let _guard = dir.lock_directory(LOCK_TIMEOUT)?;
    let mut old = superseded_word(&dir)?;
    let file = dir.create_file(IMAGE_NEW, spool::FILE_MODE)?;
    let written =
        files::write_start(&file, image).and_then(|()| files::sync(&file)).and_then(|()| {
            // From here on, running processes look at each message whether there is a new one.
            if let Some(map) = &mut old {
                map.set_u64(HEADER_SUPERSEDED, 1).ok_or(ErrorKind::UnexpectedEof)?;
            }
            files::rename_at(dir.directory(), IMAGE_NEW, IMAGE)
        });
    if let Err(error) = written {
        if let Some(map) = &mut old {
            let _ = map.set_u64(HEADER_SUPERSEDED, 0);
        }
        let _ = files::remove_at(dir.directory(), IMAGE_NEW);
        return Err(dir.failed("write", IMAGE)(error));
    }
    // Else the old one might be in use again after a power failure; it has the name in any
    // case, and is sound.
    let _ = files::sync(dir.directory());
    Ok(path)
}

/// The image in use, mapped for changing its word; `None` if there is none, or it is
/// damaged and no process has it open.
fn superseded_word(dir: &SecureDir) -> Result<Option<Mapping>, DirError> {
    let Some((file, info)) = dir.open_file(Access::Write, IMAGE)? else { return Ok(None) };
    if info.size < HEADER_BYTES as u64 {
        return Ok(None);
    }
    let map = Mapping::of(&file, true).map_err(dir.failed("map", IMAGE))?;
    let is_ours = map.bytes(0, MAGIC.len()).is_some_and(|magic| magic == MAGIC);
    Ok(Some(map).filter(|_| is_ours))
}
