//! Why alerts cannot be sent.

use crate::cluster::SettingsError;
use crate::policy::image::ImageError;
use crate::spool::SpoolError;
use crate::sys::secure_dir::DirError;

/// Why alerts cannot be sent at all: a receiver that fails is no such error.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AlertError {
    /// The journal, or a file beside it.
    #[error("{0}")]
    Spool(#[from] SpoolError),
    /// The policies in use, which name the receivers.
    #[error("{0}")]
    Image(#[from] ImageError),
    /// Whether limits are shared.
    #[error("{0}")]
    Settings(#[from] SettingsError),
    /// Something else, in words.
    #[error("{0}")]
    Unfit(String),
}

impl From<DirError> for AlertError {
    fn from(error: DirError) -> Self {
        Self::Spool(error.into())
    }
}
