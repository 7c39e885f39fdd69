//! Where Exim's spool directory is.

use super::host::Host;
use super::variables::Variables;
use std::fmt;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

/// Why there is no telling.
#[derive(Debug)]
pub(super) enum NoDirectory {
    /// Exim does not say.
    Untold,
    /// Exim says so by a path that means another directory in each directory.
    Relative(Vec<u8>),
}

impl fmt::Display for NoDirectory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Untold => f.write_str("this program does not tell its spool_directory"),
            Self::Relative(path) => write!(
                f,
                "the spool_directory is \"{}\": it should be an absolute path, beginning with a \
                 slash",
                path.escape_ascii()
            ),
        }
    }
}

/// Exim's `spool_directory`, an absolute path.
pub(super) fn spool(host: &Host, variables: &Variables) -> Result<PathBuf, NoDirectory> {
    let path = variables.spool_directory.read(host).ok_or(NoDirectory::Untold)?.into_owned();
    if path.starts_with(b"/") {
        Ok(std::ffi::OsString::from_vec(path).into())
    } else {
        Err(NoDirectory::Relative(path))
    }
}
