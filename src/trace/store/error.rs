//! What can go wrong with the trace store.

use std::fmt;
use std::path::PathBuf;

use crate::sys::secure_dir::DirError;

use super::super::TooShort;

/// Something wrong with a file of the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The file.
    pub path: PathBuf,
    /// What is wrong with it, in a sentence.
    pub what: String,
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let path = self.path.display().to_string();
        // Errors name it themselves.
        if self.what.contains(&path) {
            return f.write_str(&self.what);
        }
        write!(f, "{path}: {}", self.what)
    }
}

/// Why the trace store could not be used.
///
/// Each text says what could not be done, where, and what would be right.
#[derive(Debug)]
#[non_exhaustive]
pub enum TraceError {
    /// There is no store, and this use of it may not create one.
    Absent {
        /// Where it would be.
        path: PathBuf,
    },
    /// There is a store already where one is to be created.
    Exists {
        /// Its directory.
        path: PathBuf,
    },
    /// Its directory, or a file in it, could not be used.
    Directory(DirError),
    /// The key is gone, and this use of the store may not choose a new one.
    NoKey {
        /// Where it would be.
        path: PathBuf,
    },
    /// A file without which nothing can be done is damaged.
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is damaged, and what to do about it.
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
    /// The store was opened for reading only.
    ReadOnly {
        /// Its directory.
        path: PathBuf,
    },
    /// A message takes more than one record can hold.
    TooLarge {
        /// What it takes, in bytes.
        bytes: u64,
        /// The most that one record can hold, in bytes.
        limit: u64,
    },
    /// There is no memory to decode a message.
    Memory {
        /// How long it is, in bytes.
        bytes: usize,
        /// What it may take, in bytes.
        wanted: usize,
    },
    /// A message is older than messages are kept.
    TooOld {
        /// How many seconds ago it passed.
        seconds: u64,
        /// For how many seconds messages are kept.
        keep: u64,
    },
    /// A part of a question is so short that no digest could answer.
    TooShort(TooShort),
    /// The operating system has no random numbers.
    Random {
        /// What it said.
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

impl fmt::Display for TraceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Absent { path } => write!(
                f,
                "no trace store at {}: it is made when the first message is recorded",
                path.display()
            ),
            Self::Exists { path } => write!(
                f,
                "{} is not empty: a copy needs a directory without a trace store",
                path.display()
            ),
            Self::Directory(error) => error.fmt(f),
            Self::NoKey { path } => write!(
                f,
                "{} is gone: without it, nothing that was recorded can be answered; put it back, \
                 or record another message, for which a new key is chosen",
                path.display()
            ),
            Self::Damaged { path, what } => write!(f, "cannot read {}: {what}", path.display()),
            Self::Version { path, found, known } => write!(
                f,
                "{} was written by a later exirate: its format is version {found}, this exirate \
                 knows version {known}",
                path.display()
            ),
            Self::ReadOnly { path } => {
                write!(f, "{} was opened for reading only", path.display())
            }
            Self::TooLarge { bytes, limit } => write!(
                f,
                "message is too large to record: envelope and digest take {bytes} bytes, at most \
                 {limit} can be stored"
            ),
            Self::Memory { bytes, wanted } => write!(
                f,
                "no memory to decode a message of {bytes} bytes, which may take {wanted} bytes \
                 (see ulimit -v)"
            ),
            Self::TooOld { seconds, keep } => write!(
                f,
                "message passed {:.1} days ago, and is not recorded: messages are kept for {:.1} \
                 days",
                *seconds as f64 / 86_400.0,
                *keep as f64 / 86_400.0
            ),
            Self::TooShort(TooShort { part, bytes, needed }) => write!(
                f,
                "part {} of the text to find is too short: it has {bytes} bytes, and needs {needed}",
                part + 1
            ),
            Self::Random { source } => {
                write!(f, "cannot encipher what is to be recorded: no random numbers: {source}")
            }
        }
    }
}

impl std::error::Error for TraceError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            // Its text is the whole of this one's.
            Self::Directory(error) => error.source(),
            Self::Random { source } => Some(source),
            _ => None,
        }
    }
}
