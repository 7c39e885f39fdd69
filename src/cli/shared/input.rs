//! Files that commands read, or standard input.

use std::fs::File;
use std::io::{self, BufRead, BufReader, IsTerminal as _};
use std::path::Path;

use super::screen::note;
use crate::cli::Failure;

/// Opens `path`, or standard input for `-`; gives its name for messages as well.
///
/// # Errors
/// It cannot be opened.
pub(in crate::cli) fn open(path: &Path) -> Result<(Box<dyn BufRead>, String), Failure> {
    if path.as_os_str() == "-" {
        let name = "standard input".to_owned();
        if io::stdin().is_terminal() {
            note("reading what is typed; Ctrl-D ends it");
        }
        return Ok((Box::new(io::stdin().lock()), name));
    }
    let name = path.display().to_string();
    match File::open(path) {
        Ok(file) => Ok((Box::new(BufReader::new(file)), name)),
        Err(error) => Err(failed(&name, &error)),
    }
}

/// The failure to read `name`.
pub(in crate::cli) fn failed(name: &str, error: &io::Error) -> Failure {
    Failure::new(format!("cannot read {name}: {error}"))
}
