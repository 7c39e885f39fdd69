//! Asking before much is changed.

use std::io::{self, IsTerminal as _, Write as _};

use crate::cli::Failure;
use crate::text::counted;

/// How many of the things to be changed are named in the question.
const NAMED: usize = 20;

/// Asks whether to do what `verb` says to `things`. With `yes`, it does not ask.
///
/// # Errors
/// There is no terminal to ask at.
pub(in crate::cli) fn ask(verb: &str, things: &[String], yes: bool) -> Result<bool, Failure> {
    let count = things.len();
    let records = counted(count, "record", "records");
    if !yes && !is_terminal() {
        return Err(Failure::new(format!(
            "this would {verb} {records}; no terminal to confirm: use --yes, or --dry-run to see \
             them",
        )));
    }
    Ok(yes || confirmed(&named(things), &format!("{verb} {records}?"))?)
}

/// Asks whether to do what `verb` says to all keys that a glob matches, now and later; `now` are
/// the records of those that it matches now. With `yes`, it does not ask.
///
/// # Errors
/// There is no terminal to ask at.
pub(in crate::cli) fn glob(
    verb: &str,
    glob: &str,
    now: &[String],
    yes: bool,
) -> Result<bool, Failure> {
    if !yes && !is_terminal() {
        let records = counted(now.len(), "record", "records");
        return Err(Failure::new(format!(
            "this would {verb} every key that {glob} matches, now {records}, and there is no \
             terminal to ask at: use --yes",
        )));
    }
    Ok(yes || confirmed(&named(now), &format!("{verb} every key that {glob} matches?"))?)
}

/// The first of these things, and how many more there are.
fn named(things: &[String]) -> Vec<String> {
    let mut lines: Vec<String> = things.iter().take(NAMED).cloned().collect();
    if things.len() > NAMED {
        lines.push(format!("and {} more", things.len() - NAMED));
    }
    lines
}

/// Asks whether to do what `question` says, to `things` if there are any. With `yes`, it does not
/// ask.
///
/// # Errors
/// There is no terminal to ask at.
pub(in crate::cli) fn plainly(
    things: &[String],
    question: &str,
    yes: bool,
) -> Result<bool, Failure> {
    if !yes && !is_terminal() {
        return Err(Failure::new(format!(
            "nothing was changed: this would {question}; no terminal to confirm: use --yes"
        )));
    }
    Ok(yes || confirmed(&named(things), &format!("{question}?"))?)
}

/// Asks whether to do what `question` says, which nobody has asked for; without a terminal it is
/// not done.
///
/// # Errors
/// The terminal cannot be used.
pub(in crate::cli) fn offer(lines: &[String], question: &str) -> io::Result<bool> {
    Ok(is_terminal() && confirmed(lines, &format!("{question}?"))?)
}

/// Asks a question that has a word for an answer; `None` for an empty one, and without a terminal.
///
/// # Errors
/// The terminal cannot be used.
pub(in crate::cli) fn word(question: &str) -> io::Result<Option<String>> {
    if !is_terminal() {
        return Ok(None);
    }
    let mut screen = io::stderr().lock();
    write!(screen, "{question}: ")?;
    screen.flush()?;
    let mut reply = String::new();
    io::stdin().read_line(&mut reply)?;
    Ok(Some(reply.trim().to_owned()).filter(|reply| !reply.is_empty()))
}

/// Asks whether to go on although something will be lost. With `yes`, it does not
/// ask.
///
/// # Errors
/// There is no terminal to ask at.
pub(in crate::cli) fn losses(losses: &[&str], yes: bool) -> Result<bool, Failure> {
    if !yes && !is_terminal() {
        return Err(Failure::new(format!(
            "{}; nothing was changed: use --yes to change it all the same",
            losses.join("; ")
        )));
    }
    let lines: Vec<String> = losses.iter().map(|&loss| loss.to_owned()).collect();
    Ok(yes || confirmed(&lines, "remove them?")?)
}

fn is_terminal() -> bool {
    io::stdin().is_terminal() && io::stderr().is_terminal()
}

fn confirmed(lines: &[String], question: &str) -> io::Result<bool> {
    let mut screen = io::stderr().lock();
    for line in lines {
        writeln!(screen, "  {line}")?;
    }
    write!(screen, "{question} [y/N] ")?;
    screen.flush()?;
    let mut reply = String::new();
    io::stdin().read_line(&mut reply)?;
    Ok(["y", "yes"].contains(&reply.trim().to_ascii_lowercase().as_str()))
}
