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
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SpoolError {
    /// There is no database, and this use of it may not create one.
    #[error(
        "no rate database at {path}: the first check creates it; to have the mail server check, \
         run `exirate setup`"
    )]
    Absent {
        /// Its path, if it existed.
        path: PathBuf,
    },
    /// There is already a database where one was to be created.
    #[error("{path} exists already and is not empty: choose another directory, or move it away")]
    Present {
        /// Its path.
        path: PathBuf,
    },
    /// Its directory, or a file in it, could not be used.
    #[error(transparent)]
    Directory(DirError),
    /// A file is damaged, and this use of the database may not repair it.
    #[error(
        "cannot read {path}: {what}; Exim repairs it at its next check of a key in it, and keeps \
         the damaged file under another name"
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is damaged.
        what: &'static str,
    },
    /// A file has a format version that this exirate does not know.
    #[error(fmt = other_version)]
    Version {
        /// The file.
        path: PathBuf,
        /// Its version.
        version: OtherVersion,
    },
    /// The key's text is too long.
    #[error(
        "key is too long: {bytes} bytes, at most {} can be stored",
        super::format::KEY_BYTES_MAX
    )]
    KeyTooLong {
        /// Its length in bytes.
        bytes: usize,
    },
    /// One call had more checks than [`super::sizes::CHECKS_MAX`].
    #[error(
        "{checks} checks are too many for one event: at most {} can be decided together",
        super::sizes::CHECKS_MAX
    )]
    TooManyChecks {
        /// How many.
        checks: usize,
    },
    /// The shard has reached the size its format can address.
    #[error(
        "{path} is full: a shard cannot be larger than 32 GiB; lower the limits of unique counts"
    )]
    Full {
        /// The shard's file.
        path: PathBuf,
    },
    /// The file `overrides` cannot be used.
    #[error("cannot use the overrides in {path}: {fault}; none is in force{}", overrides_remedy(.fault))]
    Overrides {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        fault: ListFault,
    },
    /// An override, or the list of them, is too large.
    #[error("{what}")]
    OverrideSize {
        /// What is.
        what: String,
    },
    /// The database was opened for reading only.
    #[error("{path} was opened for reading only")]
    ReadOnly {
        /// Its directory.
        path: PathBuf,
    },
    /// The operating system has no random numbers for the key.
    #[error("cannot choose the database's key: no random numbers: {source}")]
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

/// What version a file has, and what to do.
fn other_version(path: &Path, version: &OtherVersion, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    write!(f, "{} {version}: ", path.display())?;
    match version.is_later() {
        true => write!(f, "{USE_THE_LATER}, or run its `exirate export`")?,
        false => f.write_str("run `exirate export` of the exirate that wrote it")?,
    }
    f.write_str(", move the directory away, and run `exirate import` of this one")
}

/// What to do about this list of overrides.
fn overrides_remedy(fault: &ListFault) -> &'static str {
    match fault {
        ListFault::Damaged => " (`exirate repair` quarantines it)",
        ListFault::Version(_) => "",
    }
}
