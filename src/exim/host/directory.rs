//! Where Exim's spool directory is.

use super::exports::Host;
use super::variables::Variables;
use std::fmt;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

/// Why the directory is unknown.
#[derive(Debug)]
pub(in crate::exim) enum NoDirectory {
    /// This program has no such option.
    Unknown,
    /// The path is relative: it means another directory in each working directory.
    Relative(Vec<u8>),
}

impl fmt::Display for NoDirectory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown => f.write_str("cannot find the spool_directory of this program"),
            Self::Relative(path) => write!(
                f,
                "the spool_directory is \"{}\": it must be an absolute path, which begins with a \
                 slash",
                path.escape_ascii()
            ),
        }
    }
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
