//! Asks before much is changed.

use std::io::{self, IsTerminal as _, Write as _};

use super::Failure;

/// How many of the things that are meant are named in the question.
const NAMED: usize = 20;

/// Asks whether to do what `verb` says to `things`. With `yes`, it does not ask.
///
/// # Errors
/// There is no terminal to ask at.
pub(super) fn ask(verb: &str, things: &[String], yes: bool) -> Result<bool, Failure> {
    if yes {
        return Ok(true);
    }
    if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        return Err(Failure::new(format!(
            "this would {verb} {} record(s), and there is no terminal to ask at: use --yes, or \
             --dry-run to see them",
            things.len()
        )));
    }
    let mut screen = io::stderr().lock();
    for thing in things.iter().take(NAMED) {
        writeln!(screen, "  {thing}")?;
    }
    if things.len() > NAMED {
        writeln!(screen, "  and {} more", things.len() - NAMED)?;
    }
    write!(screen, "{verb} {} record(s)? [y/N] ", things.len())?;
    screen.flush()?;
    let mut answer = String::new();
    io::stdin().read_line(&mut answer)?;
    Ok(["y", "yes"].contains(&answer.trim().to_ascii_lowercase().as_str()))
}
