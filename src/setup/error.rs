//! Why a setup did not succeed.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use crate::mta::exim::RulesError;

/// Why a setup did not succeed, and what has become of it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SetupError {
    /// It cannot be done here: what is wrong, and what to do.
    #[error("{0}")]
    Unfit(String),
    /// A file or directory could not be used.
    #[error("cannot {verb} {path}: {source}")]
    File {
        /// `read`, `write`, ...
        verb: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    /// It failed, and what had been changed is as it was before.
    #[error("{why}; everything is as it was before")]
    PutBack {
        #[source]
        why: Box<SetupError>,
    },
    /// It failed, and so did putting everything back.
    #[error(
        "{why}; and not everything could be put back: {also}; run `exirate setup --undo` when that \
         is repaired"
    )]
    Stuck {
        #[source]
        why: Box<SetupError>,
        also: Box<SetupError>,
    },
}

impl SetupError {
    /// A mail server does not accept its configuration as it is.
    pub(super) fn unsound(server: &str, why: &dyn fmt::Display) -> Self {
        Self::Unfit(format!(
            "{server} does not accept its configuration as it is: {why}; correct it, then run \
             `exirate setup` again"
        ))
    }

    /// Makes an error of what the system says of a file.
    pub(super) fn file(verb: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::File { verb, path, source }
    }
}

impl From<RulesError> for SetupError {
    fn from(error: RulesError) -> Self {
        match error {
            RulesError::Hidden(text) | RulesError::Failed(text) => Self::Unfit(text),
        }
    }
}
