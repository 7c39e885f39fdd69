//! What can go wrong with the spool database.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::sys::holder::Holder;

/// Why the spool database could not be used.
///
/// Each text says what could not be done, where, and what would be right.
#[derive(Debug)]
#[non_exhaustive]
pub enum SpoolError {
    /// There is no database, and this use of it may not create one.
    Absent {
        /// Where it would be.
        path: PathBuf,
    },
    /// There is a database already where one was to be made.
    Present {
        /// Where it is.
        path: PathBuf,
    },
    /// The operating system refused something.
    Io {
        /// What was to be done: `open`, `grow`, …
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
    /// The database's directory could be changed by strangers.
    Unsafe {
        /// Its path.
        path: PathBuf,
        /// What is wrong with it, and how it should be.
        fault: String,
    },
    /// A file is damaged, and this use of the database may not repair it.
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is damaged.
        what: &'static str,
    },
    /// A later exirate has written this.
    Version {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: u32,
        /// The version this exirate knows.
        known: u32,
    },
    /// The key's text is too long.
    KeyTooLong {
        /// Its length in bytes.
        bytes: usize,
    },
    /// The shard has reached the size its format can address.
    Full {
        /// The shard's file.
        path: PathBuf,
    },
    /// The database was opened for reading only.
    ReadOnly {
        /// Its directory.
        path: PathBuf,
    },
    /// A file changed under our hands each time it was opened.
    Unsettled {
        /// The file.
        path: PathBuf,
    },
    /// The operating system has no random numbers for the key.
    Random {
        /// What it said.
        source: rand::rngs::SysError,
    },
}

impl SpoolError {
    /// For `map_err`: the operating system refused `action` on `path`.
    pub(super) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { action, path: path.to_path_buf(), source }
    }
}

/// Whether this process, or the system, may have no more files open.
pub(super) fn is_out_of_files(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE))
}

impl fmt::Display for SpoolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Absent { path } => {
                write!(
                    f,
                    "no rate database at {}: Exim makes it at the first check",
                    path.display()
                )
            }
            Self::Present { path } => write!(
                f,
                "{} is there already, and not empty: name another directory, or move it away",
                path.display()
            ),
            Self::Io { action, path, source } => {
                write!(f, "cannot {action} {}: {source}", path.display())?;
                match source.kind() {
                    io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                        f.write_str("; free some space on its file system")
                    }
                    io::ErrorKind::PermissionDenied => f.write_str(
                        "; it should belong to Exim's user, who needs read and write permission",
                    ),
                    io::ErrorKind::NotFound => f.write_str("; it has to be there"),
                    io::ErrorKind::ReadOnlyFilesystem => {
                        f.write_str("; the spool directory must be on a writable file system")
                    }
                    io::ErrorKind::FileTooLarge => {
                        f.write_str("; this process may make no larger file: see `ulimit -f`")
                    }
                    _ if is_out_of_files(source) => f.write_str(
                        "; it or the whole system has too many files open: see `ulimit -n`",
                    ),
                    _ => Ok(()),
                }
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
            Self::Damaged { path, what } => write!(
                f,
                "cannot read {}: {what}; Exim puts it right at its next check of a key in it, and \
                 keeps the damaged file under another name",
                path.display()
            ),
            Self::Version { path, found, known } => write!(
                f,
                "{} was written by a later exirate: its format is version {found}, this exirate \
                 knows version {known}",
                path.display()
            ),
            Self::KeyTooLong { bytes } => write!(
                f,
                "key is too long: {bytes} bytes, at most {} can be stored",
                super::format::KEY_BYTES_MAX
            ),
            Self::Full { path } => write!(
                f,
                "{} is full: a shard cannot be larger than 32 GiB; lower the limits of unique \
                 counts",
                path.display()
            ),
            Self::ReadOnly { path } => {
                write!(f, "{} was opened for reading only", path.display())
            }
            Self::Unsettled { path } => write!(
                f,
                "{} was replaced each time it was opened: only exirate may change files there",
                path.display()
            ),
            Self::Random { source } => {
                write!(f, "cannot choose the database's key: no random numbers: {source}")
            }
        }
    }
}

impl std::error::Error for SpoolError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io { source, .. } => Some(source),
            Self::Random { source } => Some(source),
            _ => None,
        }
    }
}
