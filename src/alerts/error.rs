//! Why alerts cannot be sent.

use std::fmt;

use crate::cluster::SettingsError;
use crate::policy::image::ImageError;
use crate::spool::SpoolError;
use crate::sys::secure_dir::DirError;

/// Why alerts cannot be sent at all: a receiver that fails is no such error.
#[derive(Debug)]
pub(crate) enum AlertError {
    /// The journal, or a file beside it.
    Spool(SpoolError),
    /// The policies in use, which name the receivers.
    Image(ImageError),
    /// Whether limits are shared.
    Settings(SettingsError),
    /// Something else, in words.
    Unfit(String),
}

impl fmt::Display for AlertError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Spool(error) => error.fmt(f),
            Self::Image(error) => error.fmt(f),
            Self::Settings(error) => error.fmt(f),
            Self::Unfit(text) => f.write_str(text),
        }
    }
}

impl std::error::Error for AlertError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Spool(error) => Some(error),
            Self::Image(error) => Some(error),
            Self::Settings(error) => Some(error),
            Self::Unfit(_) => None,
        }
    }
}

impl From<SpoolError> for AlertError {
    fn from(error: SpoolError) -> Self {
        Self::Spool(error)
    }
}

impl From<DirError> for AlertError {
    fn from(error: DirError) -> Self {
        Self::Spool(error.into())
    }
}

impl From<ImageError> for AlertError {
    fn from(error: ImageError) -> Self {
        Self::Image(error)
    }
}

impl From<SettingsError> for AlertError {
    fn from(error: SettingsError) -> Self {
        Self::Settings(error)
    }
}
