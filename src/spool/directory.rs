//! The database's directory: making it, and what it must be like.

use std::ffi::CStr;
use std::fs::File;
use std::io::ErrorKind;
use std::path::Path;

use crate::sys::files;

use super::SpoolError;
use super::database::ATTEMPTS;

/// The database's directory in the spool directory.
const DIRECTORY: &CStr = c"exirate";
/// The directory while it is being made.
const DIRECTORY_NEW: &CStr = c"exirate.new";
/// Permissions of the directory.
const DIRECTORY_MODE: u32 = 0o750;

/// Refuses a directory whose files strangers could replace; its owner.
pub(super) fn check_directory(
    directory: &File,
    path: &Path,
    spool_owner: u32,
) -> Result<u32, SpoolError> {
    let facts = files::facts(directory).map_err(SpoolError::io("open", path))?;
    let fault = if facts.mode & 0o002 != 0 {
        format!(
            "everyone may write to it (mode {:04o}): it should have mode {DIRECTORY_MODE:04o}",
            facts.mode
        )
    } else if ![0, spool_owner, rustix::process::geteuid().as_raw()].contains(&facts.uid) {
        format!(
            "it belongs to user {}: it should belong to the owner of the spool directory, user \
             {spool_owner}",
            facts.uid
        )
    } else {
        return Ok(facts.uid);
    };
    Err(SpoolError::Unsafe { path: path.to_path_buf(), fault })
}

/// Makes the database's directory, with its owner and mode from the first
/// moment on that it has its name; several processes may do so at once, and
/// any of them may be killed.
pub(super) fn make_directory(
    spool: &Path,
    path: &Path,
    owner: (u32, u32),
) -> Result<File, SpoolError> {
    let failed = |error| SpoolError::io("create", path)(error);
    let parent = files::open_directory(spool).map_err(SpoolError::io("open", spool))?;
    for _ in 0..ATTEMPTS {
        match files::make_directory_at(&parent, DIRECTORY_NEW) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            result => result.map_err(failed)?,
        }
        let adopted = files::open_directory_at(&parent, DIRECTORY_NEW)
            .and_then(|new| files::adopt(&new, owner.0, owner.1, DIRECTORY_MODE));
        let renamed = match adopted {
            Ok(()) => match files::rename_new_at(&parent, DIRECTORY_NEW, DIRECTORY) {
                // Not every file system knows the flag; without it, an empty
                // directory of that name is replaced, which does no harm.
                Err(error) if error.kind() == ErrorKind::InvalidInput => {
                    files::rename_at(&parent, DIRECTORY_NEW, DIRECTORY)
                }
                result => result,
            },
            Err(error) => Err(error),
        };
        match renamed {
            Ok(()) => {}
            // Another process was faster, with the new name or with the old.
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            // Somebody has made it, or has left one behind that only its owner
            // can finish.
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::AlreadyExists
                        | ErrorKind::DirectoryNotEmpty
                        | ErrorKind::PermissionDenied
                ) =>
            {
                files::remove_directory_at(&parent, DIRECTORY_NEW).map_err(failed)?;
            }
            Err(error) => return Err(failed(error)),
        }
        match files::open_directory_at(&parent, DIRECTORY) {
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            result => return result.map_err(failed),
        }
    }
    Err(SpoolError::Unsettled { path: path.to_path_buf() })
}
