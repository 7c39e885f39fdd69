//! Why a directory or a file in it could not be used.

use std::fmt;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::sys::lock_holder::LockHolder;

/// Why a directory or a file in it could not be used.
///
/// Each message states what failed, where, and what would be right.
#[derive(Debug)]
#[non_exhaustive]
pub enum DirError {
    /// The directory does not exist, and this use must not create it.
    Absent {
        /// Where it would be.
        path: PathBuf,
    },
    /// A system call failed.
    Io {
        /// What was attempted: `open`, `write`, …
        action: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// Another process held a lock for longer than the timeout.
    Busy {
        /// The locked file.
        path: PathBuf,
        /// How long this process waited.
        waited: Duration,
        /// The process that holds it now, if known.
        holder: Option<LockHolder>,
    },
    /// Something with the name of one of our files is not a regular file.
    WrongKind {
        /// Its path.
        path: PathBuf,
        /// What it is.
        found: &'static str,
        /// What it should be.
        wanted: &'static str,
    },
    /// Unauthorized users could change it.
    Unsafe {
        /// Its path.
        path: PathBuf,
        /// What is wrong with it, and what would be right.
        fault: String,
    },
    /// A file was replaced each time it was opened.
    Unsettled {
        /// The file.
        path: PathBuf,
    },
}

impl DirError {
    /// For `map_err`: `action` on `path` failed.
    pub fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { action, path: path.to_path_buf(), source }
    }

    /// Whether the limit of open files of this process or the system is
    /// reached.
    #[must_use]
    pub fn is_out_of_files(&self) -> bool {
        matches!(self, Self::Io { source, .. } if is_out_of_files(source))
    }
}

/// Whether the limit of open files of this process or the system is reached.
fn is_out_of_files(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE))
}

impl fmt::Display for DirError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Absent { path } => write!(f, "{} does not exist", path.display()),
            Self::Io { action, path, source } => {
                write!(f, "cannot {action} {}: {source}", path.display())?;
                f.write_str(remedy(source))
            }
            Self::Busy { path, waited, holder } => {
                let (path, waited) = (path.display(), waited.as_secs_f64());
                match holder {
                    None => write!(
                        f,
                        "cannot lock {path}: another process has held it for {waited}s (see \
                         `fuser -v {path}`)"
                    ),
                    Some(LockHolder { process, name, stopped: false }) => write!(
                        f,
                        "cannot lock {path}: waited {waited}s for process {process} ({name}); if \
                         it hangs, end it by `kill -KILL {process}`, which damages no data"
                    ),
                    Some(LockHolder { process, name, stopped: true }) => write!(
                        f,
                        "cannot lock {path}: waited {waited}s for process {process} ({name}), \
                         which is stopped: continue it by `kill -CONT {process}`, or end it by \
                         `kill -KILL {process}`, which damages no data"
                    ),
                }
            }
            Self::WrongKind { path, found, wanted } => {
                write!(f, "{} is a {found}: it must be a {wanted}", path.display())
            }
            Self::Unsafe { path, fault } => write!(f, "{} is not safe: {fault}", path.display()),
            Self::Unsettled { path } => write!(
                f,
                "{} was replaced each time it was opened: only exirate may change files there",
                path.display()
            ),
        }
    }
}

/// A remedy for the error, appended to its message.
fn remedy(error: &io::Error) -> &'static str {
    match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => "; free some space on its file system",
        ErrorKind::PermissionDenied => {
            "; it should belong to Exim's user, who needs read and write permission"
        }
        ErrorKind::NotFound => "; it must exist",
        ErrorKind::ReadOnlyFilesystem => "; the spool directory must be on a writable file system",
        ErrorKind::FileTooLarge => {
            "; it exceeds the file size limit of this process: see `ulimit -f`"
        }
        _ if is_out_of_files(error) => {
            "; it or the whole system has too many files open: see `ulimit -n`"
        }
        _ => "",
    }
}

impl std::error::Error for DirError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io { source, .. } => Some(source),
            _ => None,
        }
    }
}
