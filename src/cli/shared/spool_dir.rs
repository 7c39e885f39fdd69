//! The spool directory that a command uses: the one that it is given, else that of this machine.

use std::path::{Path, PathBuf};

use super::bypass_notice;
use crate::cli::Failure;
use crate::place;

/// The spool directory `given`, or else that of this machine's mail server. Where nothing is
/// refused now, that is shown.
pub(in crate::cli) fn find(given: Option<&Path>) -> Result<PathBuf, Failure> {
    let found = find_silently(given)?;
    bypass_notice::announce(&found);
    Ok(found)
}

/// As above, for shells that complete a line.
pub(in crate::cli) fn find_silently(given: Option<&Path>) -> Result<PathBuf, Failure> {
    match given {
        Some(dir) if dir.is_dir() => Ok(dir.to_owned()),
        Some(dir) => Err(Failure::new(format!(
            "--spool {}: no such directory; `exirate where spool` prints that of this machine",
            dir.display()
        ))),
        None => match place::find() {
            Some((found, _)) => Ok(found),
            None => Err(Failure::new(place::missing())),
        },
    }
}

/// Another directory than `spool` with a database: what counted there was undone.
pub(in crate::cli) fn elsewhere(spool: &Path) -> Option<PathBuf> {
    let usual = place::EXIM.into_iter().chain([place::OWN]).map(Path::new);
    let mut others = usual.filter(|dir| *dir != spool);
    others.find(|dir| dir.join("exirate").is_dir()).map(Path::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_that_is_not_there_is_an_error() {
        assert!(find_silently(Some(Path::new("/nonexistent/spool"))).is_err());
    }
}
