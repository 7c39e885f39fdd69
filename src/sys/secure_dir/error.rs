//! Why a directory or a file in it could not be used.

use std::fmt;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::sys::lock_holder::LockHolder;

/// Why a directory or a file in it could not be used.
///
/// Each message states what failed, where, and what would be right.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DirError {
    /// The directory does not exist, and this use must not create it.
    #[error("{path} does not exist")]
    Absent {
        /// Where it would be.
        path: PathBuf,
    },
    /// A system call failed.
    #[error("cannot {action} {path}: {source}{}", remedy(.source))]
    Io {
        /// What was attempted: `open`, `write`, …
        action: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// Another process held a lock for longer than the timeout.
    #[error(fmt = busy)]
    Busy {
        /// The locked file.
        path: PathBuf,
        /// How long this process waited.
        waited: Duration,
        /// The process that holds it now, if known.
        holder: Option<LockHolder>,
    },
    /// Something with the name of one of our files is not a regular file.
    #[error("{path} is a {found}: it must be a {wanted}")]
    WrongKind {
        /// Its path.
        path: PathBuf,
        /// What it is.
        found: &'static str,
        /// What it should be.
        wanted: &'static str,
    },
    /// Unauthorized users could change it.
    #[error("{path} is not safe: {fault}")]
    Unsafe {
        /// Its path.
        path: PathBuf,
        /// What is wrong with it, and what would be right.
        fault: String,
    },
    /// A file was replaced each time it was opened.
    #[error("{path} was replaced each time it was opened: only exirate may change files there")]
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

/// Says who holds the lock, and how it can be ended.
fn busy(
    path: &Path,
    waited: &Duration,
    holder: &Option<LockHolder>,
    f: &mut fmt::Formatter<'_>,
) -> fmt::Result {
    let (path, waited) = (path.display(), waited.as_secs_f64());
    let Some(LockHolder { process, name, stopped }) = holder else {
        return write!(
            f,
            "cannot lock {path}: another process has held it for {waited}s (see `fuser -v {path}`)"
        );
    };
    write!(f, "cannot lock {path}: waited {waited}s for process {process} ({name})")?;
    match stopped {
        false => f.write_str("; if it hangs, end it")?,
        true => write!(f, ", which is stopped: continue it by `kill -CONT {process}`, or end it")?,
    }
    write!(f, " by `kill -KILL {process}`, which damages no data")
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
