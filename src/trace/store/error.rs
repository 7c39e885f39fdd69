//! Errors of the trace store.

use std::path::PathBuf;

use crate::sys::secure_dir::DirError;
use crate::versions::{OtherVersion, USE_THE_LATER};

use super::super::TooShort;

/// A problem with a file of the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The file.
    pub path: PathBuf,
    /// What is wrong with it.
    pub what: String,
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let path = self.path.display().to_string();
        // Errors contain the path already.
        if self.what.contains(&path) {
            return f.write_str(&self.what);
        }
        write!(f, "{path}: {}", self.what)
    }
}

/// Why the trace store could not be used.
///
/// Each message states what failed, where, and what would be right.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TraceError {
    /// There is no store, and this use must not create one.
    #[error("no trace store at {path}: it is created when the first message is recorded")]
    Absent {
        /// Where it would be.
        path: PathBuf,
    },
    /// There is a store already where one is to be created.
    #[error("{path} is not empty: a copy needs a directory without a trace store")]
    Exists {
        /// Its directory.
        path: PathBuf,
    },
    /// The directory, or a file in it, could not be used.
    #[error(transparent)]
    Directory(DirError),
    /// The key is missing, and this use must not create one.
    #[error(
        "{path} is missing: without it, recorded messages cannot be queried; restore it, or record \
         another message, which creates a new key"
    )]
    NoKey {
        /// Where it would be.
        path: PathBuf,
    },
    /// A required file is damaged.
    #[error("cannot read {path}: {what}")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is damaged, and how to repair it.
        what: &'static str,
    },
    /// The file was written by a later version of exirate, or one before the first release.
    #[error("{path} {version}: {}", remedy(.version))]
    Version {
        /// The file.
        path: PathBuf,
        /// Its version.
        version: OtherVersion,
    },
    /// The messages of the file were digested by a later version of exirate.
    #[error("{path} has digests of a later exirate; it {version}: {USE_THE_LATER}")]
    Digests {
        /// The file.
        path: PathBuf,
        /// The version of its digests.
        version: OtherVersion,
    },
    /// The store was opened for reading only.
    #[error("{path} was opened for reading only")]
    ReadOnly {
        /// Its directory.
        path: PathBuf,
    },
    /// The envelope and digest of a message exceed the size of a record.
    #[error(
        "message is too large to record: envelope and digest take {bytes} bytes, at most {limit} \
         can be stored"
    )]
    TooLarge {
        /// Their size in bytes.
        bytes: u64,
        /// The maximum size in bytes.
        limit: u64,
    },
    /// There is not enough memory to decode a message.
    #[error(
        "no memory to decode a message of {bytes} bytes, which may take {wanted} bytes (see ulimit \
         -v)"
    )]
    Memory {
        /// Its length in bytes.
        bytes: usize,
        /// The memory that decoding may need, in bytes.
        wanted: usize,
    },
    /// A message is older than the retention time.
    #[error(
        "message is not recorded: it is {:.1} days old, and messages are kept for {:.1} days",
        *.seconds as f64 / 86_400.0, *.keep as f64 / 86_400.0
    )]
    TooOld {
        /// Its age in seconds.
        seconds: u64,
        /// The retention time in seconds.
        keep: u64,
    },
    /// A part of a query is too short for any digest.
    #[error(
        "part {} of the text to find is too short: it has {} bytes, and needs {}",
        .0.part + 1, .0.bytes, .0.needed
    )]
    TooShort(TooShort),
    /// The operating system has no random numbers.
    #[error("cannot encrypt a record: no random numbers: {source}")]
    Random {
        /// The system's error.
        source: rand::rngs::SysError,
    },
}

impl From<DirError> for TraceError {
    fn from(error: DirError) -> Self {
        match error {
            DirError::Absent { path } => Self::Absent { path },
            error => Self::Directory(error),
        }
    }
}

/// What to do about a file of this version.
fn remedy(version: &OtherVersion) -> &'static str {
    match version.is_later() {
        true => USE_THE_LATER,
        false => "no release has written it; remove the directory, and record the mail again",
    }
}
