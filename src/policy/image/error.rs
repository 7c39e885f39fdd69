//! Why a policy image cannot be used.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use crate::sys::secure_dir::DirError;

use crate::versions::{OtherVersion, USE_THE_LATER};

/// What to do if there is none that can be used.
const APPLY: &str = "run `exirate policy apply` to write it";

/// Why a policy image cannot be used.
///
/// Each text says what is wrong, where, and what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImageError {
    /// There is no image.
    #[error("no policy image at {path}: {APPLY}")]
    Absent {
        /// Where it would be.
        path: PathBuf,
    },
    /// The file or its directory could not be used.
    #[error(transparent)]
    Directory(DirError),
    /// A part of it is damaged.
    #[error("the policy image {path} is damaged at byte {offset}: {what}; {APPLY} again")]
    Damaged {
        /// The image.
        path: PathBuf,
        /// The offset of the damaged part in bytes.
        offset: u64,
        /// What is damaged.
        what: &'static str,
    },
    /// It has a format version that this exirate does not read.
    #[error(fmt = other_version)]
    Version {
        /// The image.
        path: PathBuf,
        /// Its version.
        version: OtherVersion,
    },
}

impl ImageError {
    /// For `map_err`: the operating system reported an error for `action` on `path`.
    pub(super) fn io(action: &'static str, path: &Path) -> impl Fn(io::Error) -> Self {
        move |source| {
            let path = path.to_path_buf();
            match source.kind() {
                io::ErrorKind::NotFound => Self::Absent { path },
                _ => Self::Directory(DirError::Io { action, path, source }),
            }
        }
    }
}

/// What version an image has, and what to do.
fn other_version(path: &Path, version: &OtherVersion, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    write!(f, "the policy image {} {version}: ", path.display())?;
    match version.is_later() {
        true => write!(f, "{USE_THE_LATER}, or {APPLY} again with this one"),
        false => write!(f, "{APPLY} again"),
    }
}

/// What is wrong with an image, without its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// The part at this offset is damaged.
    Damaged(u64, &'static str),
    /// It is sound, but of this unknown version.
    Version(OtherVersion),
}

impl Fault {
    /// As an error of the image at `path`.
    #[cold]
    pub(super) fn of(self, path: &Path) -> ImageError {
        let path = path.to_path_buf();
        match self {
            Self::Damaged(offset, what) => ImageError::Damaged { path, offset, what },
            Self::Version(version) => ImageError::Version { path, version },
        }
    }
}
