//! The spool directory that a command uses: the one that it is given, else that of this machine.

use std::path::{Path, PathBuf};
use std::sync::Once;

use super::screen::complain;
use crate::cli::Failure;
use crate::place;
use crate::standing::bypass_state::{BypassState, state};

/// The spool directory `given`, or else that of this machine's mail server. Where nothing is
/// refused now, that is shown.
pub(in crate::cli) fn find(given: Option<&Path>) -> Result<PathBuf, Failure> {
    let found = find_silently(given)?;
    announce(&found);
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

static ANNOUNCED: Once = Once::new();

/// Has [`announce`] show nothing: the command says it itself.
pub(in crate::cli) fn announced() {
    ANNOUNCED.call_once(|| {});
}

/// Shows on standard error, once, that nothing is refused now.
pub(in crate::cli) fn announce(spool: &Path) {
    ANNOUNCED.call_once(|| match state(spool) {
        Some(BypassState::Active(what)) => complain(what),
        Some(BypassState::None(why)) => complain(format_args!("note: {why}")),
        // The command says that it has no permission.
        Some(BypassState::Hidden) | None => {}
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_that_is_not_there_is_an_error() {
        assert!(find_silently(Some(Path::new("/nonexistent/spool"))).is_err());
    }
}
