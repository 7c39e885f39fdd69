//! Why a setup did not succeed.

use std::error::Error;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use crate::mta::exim::RulesError;

/// Why a setup did not succeed, and what has become of it.
#[derive(Debug)]
pub(crate) enum SetupError {
    /// It cannot be done here: what is wrong, and what to do.
    Unfit(String),
    /// A file or directory could not be used.
    File {
        /// `read`, `write`, ...
        verb: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    /// It failed, and what had been changed is as it was before.
    PutBack { why: Box<SetupError> },
    /// It failed, and so did putting everything back.
    Stuck { why: Box<SetupError>, also: Box<SetupError> },
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

impl fmt::Display for SetupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unfit(text) => f.write_str(text),
            Self::File { verb, path, source } => {
                write!(f, "cannot {verb} {}: {source}", path.display())
            }
            Self::PutBack { why } => write!(f, "{why}; everything is as it was before"),
            Self::Stuck { why, also } => write!(
                f,
                "{why}; and not everything could be put back: {also}; run `exirate setup --undo` \
                 when that is repaired"
            ),
        }
    }
}

impl From<RulesError> for SetupError {
    fn from(error: RulesError) -> Self {
        match error {
            RulesError::Hidden(text) | RulesError::Failed(text) => Self::Unfit(text),
        }
    }
}

impl Error for SetupError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Unfit(_) => None,
            Self::File { source, .. } => Some(source),
            Self::PutBack { why } | Self::Stuck { why, .. } => Some(why),
        }
    }
}
