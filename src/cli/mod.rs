//! The program: one file a command.
//!
//! A command is a struct of clap's with a `run` that writes to what it is
//! given and says whether it found something. A new one is a
//! file here, a line in `Command` and one in `dispatch`.
//!
//! Exit codes, as those of grep: 0 all is well, 1 something was found, 2 an
//! error, which standard error explains.

mod check;
mod list;
mod spool_dir;
mod text;

use std::io::{self, ErrorKind, Write};
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

/// Rates of mail, as Exim sees them through exirate.so.
#[derive(Debug, Parser)]
#[command(
    name = "exirate",
    version,
    max_term_width = 100,
    after_help = "Exit status: 0 all is well, 1 something was found (check: over the limit), \
                  2 an error.\nEach command has examples: exirate help check"
)]
struct Program {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Check(check::Check),
    List(list::List),
}

/// What every command that reads the database understands.
#[derive(Debug, Args)]
pub(in crate::cli) struct Common {
    /// Exim's spool directory; the database is DIR/exirate
    ///
    /// Without it, Exim is asked (`exim -bP spool_directory`).
    #[arg(long, value_name = "DIR")]
    spool: Option<std::path::PathBuf>,

    /// Prints JSON
    #[arg(long)]
    json: bool,
}

/// What a command found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// All is well.
    Fine,
    /// Something was found.
    Found,
}

/// Why a command could not do its work.
#[derive(Debug)]
enum Failure {
    /// What is wrong, where, and what would be right: one line.
    Said(String),
    /// The output could not be written.
    Output(io::Error),
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Failure::Output(error)
    }
}

impl Failure {
    fn new(what: impl Into<String>) -> Self {
        Failure::Said(what.into())
    }
}

/// Runs the program on the arguments of this process.
///
/// clap prints help, and complaints about arguments (exit code 2), by itself.
#[must_use]
pub fn run() -> ExitCode {
    let program = Program::parse();
    let mut out = io::BufWriter::new(io::stdout().lock());
    let result = dispatch(&program.command, &mut out).and_then(|outcome| {
        out.flush()?;
        Ok(outcome)
    });
    match result {
        Ok(Outcome::Fine) => ExitCode::SUCCESS,
        Ok(Outcome::Found) => ExitCode::from(1),
        // Whoever reads has had enough: nothing went wrong.
        Err(Failure::Output(error)) if error.kind() == ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(failure) => {
            let what = match failure {
                Failure::Said(what) => what,
                Failure::Output(error) => format!("cannot write the output: {error}"),
            };
            complain(&what);
            ExitCode::from(2)
        }
    }
}

fn dispatch(command: &Command, out: &mut impl Write) -> Result<Outcome, Failure> {
    match command {
        Command::Check(check) => check.run(out),
        Command::List(list) => list.run(out),
    }
}

/// Says something on standard error.
fn complain(what: &str) {
    // Where standard error cannot be written, there is nobody left to tell.
    let _ = writeln!(io::stderr(), "exirate: {what}");
}

/// Writes `value` as one line of JSON.
fn json(out: &mut impl Write, value: &impl serde::Serialize) -> Result<(), Failure> {
    serde_json::to_writer(&mut *out, value).map_err(io::Error::from)?;
    Ok(writeln!(out)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_arguments_are_well_formed() {
        use clap::CommandFactory as _;
        Program::command().debug_assert();
    }
}
