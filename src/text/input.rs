//! Files that commands read, or standard input.

use std::fs::File;
use std::io::{self, BufRead, BufReader, IsTerminal as _};
use std::path::Path;

use super::Voice;

/// Opens `path`, or standard input for `-`; gives its name for messages as well.
///
/// # Errors
/// It cannot be opened, in words.
pub(crate) fn open(path: &Path, voice: &dyn Voice) -> Result<(Box<dyn BufRead>, String), String> {
    if path.as_os_str() == "-" {
        if io::stdin().is_terminal() {
            voice.note(format_args!("reading what is typed; Ctrl-D ends it"));
        }
        return Ok((Box::new(io::stdin().lock()), "standard input".to_owned()));
    }
    let name = path.display().to_string();
    match File::open(path) {
        Ok(file) => Ok((Box::new(BufReader::new(file)), name)),
        Err(error) => Err(failed(&name, &error)),
    }
}

/// That `name` cannot be read, in words.
pub(crate) fn failed(name: &str, error: &io::Error) -> String {
    format!("cannot read {name}: {error}")
}
