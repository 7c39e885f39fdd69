//! Errors of the spool database.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use crate::store::ListFault;
use crate::sys::secure_dir::DirError;
use crate::versions::{OtherVersion, USE_THE_LATER};

/// Why the spool database could not be used.
///
/// Each text says what could not be done, where, and what to do.
#[derive(Debug)]
#[non_exhaustive]
pub enum SpoolError {
    /// There is no database, and this use of it may not create one.
    Absent {
        /// Its path, if it existed.
        path: PathBuf,
    },
    /// There is already a database where one was to be created.
    Present {
        /// Its path.
        path: PathBuf,
    },
    /// Its directory, or a file in it, could not be used.
    Directory(DirError),
    /// A file is damaged, and this use of the database may not repair it.
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is damaged.
        what: &'static str,
    },
    /// A file has a format version that this exirate does not know.
    Version {
        /// The file.
        path: PathBuf,
        /// Its version.
        version: OtherVersion,
    },
    /// The key's text is too long.
    KeyTooLong {
        /// Its length in bytes.
        bytes: usize,
    },
    /// One call had more checks than [`super::sizes::CHECKS_MAX`].
    TooManyChecks {
        /// How many.
        checks: usize,
    },
    /// The shard has reached the size its format can address.
    Full {
        /// The shard's file.
        path: PathBuf,
    },
    /// The file `overrides` cannot be used.
    Overrides {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        fault: ListFault,
    },
    /// An override, or the list of them, is too large.
    OverrideSize {
        /// What is.
        what: String,
    },
    /// The database was opened for reading only.
    ReadOnly {
        /// Its directory.
        path: PathBuf,
    },
    /// The operating system has no random numbers for the key.
    Random {
        /// What it said.
        source: rand::rngs::SysError,
    },
}

impl SpoolError {
    /// For `map_err`: the operating system reported an error for `action` on `path`.
    pub(super) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let failed = DirError::io(action, path);
        move |source| Self::Directory(failed(source))
    }
}

impl From<DirError> for SpoolError {
    fn from(error: DirError) -> Self {
        match error {
            DirError::Absent { path } => Self::Absent { path },
            error => Self::Directory(error),
        }
    }
}

impl fmt::Display for SpoolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Absent { path } => {
                write!(
                    f,
                    "no rate database at {}: the first check creates it; to have the mail \
                     server check, run `exirate setup`",
                    path.display()
                )
            }
            Self::Present { path } => write!(
                f,
                "{} exists already and is not empty: choose another directory, or move it away",
                path.display()
            ),
            Self::Directory(error) => error.fmt(f),
            Self::Damaged { path, what } => write!(
                f,
                "cannot read {}: {what}; Exim repairs it at its next check of a key in it, and \
                 keeps the damaged file under another name",
                path.display()
            ),
            Self::Version { path, version } => {
                write!(f, "{} {version}: ", path.display())?;
                if version.is_later() {
                    write!(
                        f,
                        "{USE_THE_LATER}, or run its `exirate export`, move the directory away, \
                         and run `exirate import` of this one"
                    )
                } else {
                    f.write_str(
                        "run `exirate export` of the exirate that wrote it, move the directory \
                         away, and run `exirate import` of this one",
                    )
                }
            }
            Self::KeyTooLong { bytes } => write!(
                f,
                "key is too long: {bytes} bytes, at most {} can be stored",
                super::format::KEY_BYTES_MAX
            ),
            Self::TooManyChecks { checks } => write!(
                f,
                "{checks} checks are too many for one event: at most {} can be decided together",
                super::sizes::CHECKS_MAX
            ),
            Self::Full { path } => write!(
                f,
                "{} is full: a shard cannot be larger than 32 GiB; lower the limits of unique \
                 counts",
                path.display()
            ),
            Self::Overrides { path, fault } => {
                write!(
                    f,
                    "cannot use the overrides in {}: {fault}; none is in force",
                    path.display()
                )?;
                match fault {
                    ListFault::Damaged => f.write_str(" (`exirate repair` quarantines it)"),
                    ListFault::Version(_) => Ok(()),
                }
            }
            Self::OverrideSize { what } => f.write_str(what),
            Self::ReadOnly { path } => {
                write!(f, "{} was opened for reading only", path.display())
            }
            Self::Random { source } => {
                write!(f, "cannot choose the database's key: no random numbers: {source}")
            }
        }
    }
}

impl std::error::Error for SpoolError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            // This error's text is the same.
            Self::Directory(error) => error.source(),
            Self::Random { source } => Some(source),
            _ => None,
        }
    }
}
