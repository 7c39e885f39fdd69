//! Which logs are read, and what is said of the lines that were not used.

use std::io::{self, IsTerminal as _, Write as _};
use std::path::PathBuf;

use clap::Args;

use crate::cli::shared::output_file;
use crate::cli::shared::screen::{Screen, note};
use crate::cli::{Failure, Outcome};
use crate::logs::files::LogFiles;
use crate::logs::journal::{Journal, writers};
use crate::logs::notes::LineCounts;
use crate::logs::unused::Unused;
use crate::text::{counted_or_no, printable};

/// The file of a cursor is readable by all: it is no secret.
const CURSOR_MODE: u32 = 0o644;

/// The logs to read
#[derive(Debug, Args)]
pub(in crate::cli) struct Logs {
    /// Read these logs, also compressed; of a directory, the main logs; - is standard input
    #[arg(value_name = "LOG", value_hint = clap::ValueHint::FilePath)]
    files: Vec<PathBuf>,

    /// Read the journal of systemd, of this machine or in DIRECTORY
    #[arg(
        long,
        value_name = "DIRECTORY",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "",
        conflicts_with = "files"
    )]
    journal: Option<String>,

    /// Begin after the entry of the journal that FILE names, and write the last one to it
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath, requires = "journal")]
    cursor: Option<PathBuf>,
}

impl Logs {
    /// Whether none are named.
    pub(in crate::cli) fn is_empty(&self) -> bool {
        self.files.is_empty() && self.journal.is_none()
    }

    /// Whether what was read once is not read again.
    pub(in crate::cli) fn has_cursor(&self) -> bool {
        self.cursor.is_some()
    }

    /// The files, standard input if none are named, or the journal.
    pub(in crate::cli) fn open(&self) -> Result<LogFiles, Failure> {
        if let Some(directory) = &self.journal {
            let directory = Some(directory).filter(|text| !text.is_empty()).map(PathBuf::from);
            // Another machine's users are not known.
            let writers = if directory.is_none() { writers() } else { Vec::new() };
            let after = self.read_cursor()?;
            return Ok(LogFiles::journal(Journal { directory, after, since: None, writers }));
        }
        let stdin = [PathBuf::from("-")];
        let files = LogFiles::find(if self.files.is_empty() { &stdin } else { &self.files })?;
        if files.has_standard_input() && io::stdin().is_terminal() {
            note("reading what is typed; Ctrl-D ends it");
        }
        Ok(files)
    }

    fn read_cursor(&self) -> Result<Option<String>, Failure> {
        let Some(path) = &self.cursor else { return Ok(None) };
        match std::fs::read_to_string(path) {
            Ok(text) => Ok(Some(text.trim().to_owned()).filter(|text| !text.is_empty())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(Failure::new(format!("cannot read {}: {error}", path.display()))),
        }
    }

    /// Keeps the cursor of what was read, once it has been shown.
    pub(in crate::cli) fn keep_cursor(&self, read: Option<&str>) -> Result<(), Failure> {
        let (Some(path), Some(cursor)) = (&self.cursor, read) else { return Ok(()) };
        output_file::replace(path, CURSOR_MODE, |output| {
            writeln!(output, "{cursor}").map_err(Failure::from)
        })
    }
}

/// `--unused`: the lines that were not used, by reason, with examples.
pub(in crate::cli) fn print_unused(
    screen: &mut Screen<'_>,
    used: u64,
    unused: &Unused,
    json: bool,
) -> Result<Outcome, Failure> {
    let all = LineCounts::of(unused);
    if json {
        screen.json(&all)?;
        return Ok(Outcome::Fine);
    }
    writeln!(screen, "{} used", counted_or_no(used as usize, "line", "lines"))?;
    for LineCounts { text, count, examples, .. } in all {
        writeln!(screen, "\n{} {text}", counted_or_no(count as usize, "line", "lines"))?;
        for [place, line] in examples {
            writeln!(screen, "  {place}: {}", printable(line.as_bytes()))?;
        }
    }
    Ok(Outcome::Fine)
}
