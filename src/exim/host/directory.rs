//! Where Exim's spool directory is.

use super::exports::Host;
use super::variables::Variables;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

/// Why the directory is unknown.
#[derive(Debug, thiserror::Error)]
pub(in crate::exim) enum NoDirectory {
    /// This program has no such option.
    #[error("cannot find the spool_directory of this program")]
    Unknown,
    /// The path is relative: it means another directory in each working directory.
    #[error(
        "the spool_directory is \"{}\": it must be an absolute path, which begins with a slash",
        .0.escape_ascii()
    )]
    Relative(Vec<u8>),
}

/// Exim's `spool_directory`, an absolute path.
pub(in crate::exim) fn spool(host: &Host, variables: &Variables) -> Result<PathBuf, NoDirectory> {
    let path = variables.spool_directory.read(host).ok_or(NoDirectory::Unknown)?.into_owned();
    if path.starts_with(b"/") {
        Ok(std::ffi::OsString::from_vec(path).into())
    } else {
        Err(NoDirectory::Relative(path))
    }
}
