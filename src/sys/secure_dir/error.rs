//! Why a directory or a file in it could not be used.

use std::fmt;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::sys::holder::Holder;

/// Why a directory or a file in it could not be used.
///
/// Each text says what could not be done, where, and what would be right.
#[derive(Debug)]
#[non_exhaustive]
pub enum DirError {
    /// The directory is not there, and this use of it may not make it.
    Absent {
        /// Where it would be.
        path: PathBuf,
    },
    /// The operating system refused something.
    Io {
        /// What was to be done: `open`, `write`, …
        action: &'static str,
        /// To which file.
        path: PathBuf,
        /// What it said.
        source: io::Error,
    },
    /// Another process kept a lock for longer than this one may wait.
    Busy {
        /// The locked file.
        path: PathBuf,
        /// How long this process has waited.
        waited: Duration,
        /// Who holds it now, where the kernel tells.
        holder: Option<Holder>,
    },
    /// Something that is no plain file bears the name of one of ours.
    WrongKind {
        /// Its path.
        path: PathBuf,
        /// What it is.
        found: &'static str,
        /// What it should be.
        wanted: &'static str,
    },
    /// It could be changed by strangers.
    Unsafe {
        /// Its path.
        path: PathBuf,
        /// What is wrong with it, and how it should be.
        fault: String,
    },
    /// A file changed under our hands each time it was opened.
    Unsettled {
        /// The file.
        path: PathBuf,
    },
}

impl DirError {
    /// For `map_err`: the operating system refused `action` on `path`.
    pub fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { action, path: path.to_path_buf(), source }
    }

    /// Whether this process, or the system, may have no more files open.
    #[must_use]
    pub fn is_out_of_files(&self) -> bool {
        matches!(self, Self::Io { source, .. } if is_out_of_files(source))
    }
}

/// Whether this process, or the system, may have no more files open.
fn is_out_of_files(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE))
}

impl fmt::Display for DirError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Absent { path } => write!(f, "{} is not there", path.display()),
            Self::Io { action, path, source } => {
                write!(f, "cannot {action} {}: {source}", path.display())?;
                f.write_str(remedy(source))
            }
            Self::Busy { path, waited, holder } => {
                let (path, waited) = (path.display(), waited.as_secs_f64());
                match holder {
                    None => write!(
                        f,
                        "cannot lock {path}: another process has held it for {waited} s (see \
                         `fuser -v {path}`)"
                    ),
                    Some(Holder { process, name, stopped: false }) => write!(
                        f,
                        "cannot lock {path}: waited {waited} s for process {process} ({name}); if \
                         it hangs, end it by `kill -KILL {process}`, which harms no record"
                    ),
                    Some(Holder { process, name, stopped: true }) => write!(
                        f,
                        "cannot lock {path}: waited {waited} s for process {process} ({name}), \
                         which is stopped: continue it by `kill -CONT {process}`, or end it by \
                         `kill -KILL {process}`, which harms no record"
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

/// What would help against an error, to follow its text.
fn remedy(error: &io::Error) -> &'static str {
    match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => "; free some space on its file system",
        ErrorKind::PermissionDenied => {
            "; it should belong to Exim's user, who needs read and write permission"
        }
        ErrorKind::NotFound => "; it has to be there",
        ErrorKind::ReadOnlyFilesystem => "; the spool directory must be on a writable file system",
        ErrorKind::FileTooLarge => "; this process may make no larger file: see `ulimit -f`",
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
