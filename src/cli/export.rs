//! `exirate export`: all that is remembered, as lines of JSON.

use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;

use clap::Args;

use super::database::{self, Common};
use super::keys::{self, Narrow, Selection};
use super::portable::{self, Header};
use super::screen::{Screen, note, progress};
use super::{Failure, Outcome, outfile};
use crate::spool::Spool;

/// Permissions of the file: as secret as the database.
const SECRET: u32 = 0o600;

/// Writes what is remembered as lines of JSON, for `exirate import`
#[derive(Debug, Args)]
#[command(after_help = help())]
pub(super) struct Export {
    /// Keys or globs; without any, all keys
    #[arg(value_name = "KEY")]
    keys: Vec<OsString>,

    #[command(flatten)]
    narrow: Narrow,

    /// Writes to FILE, which only its owner may read; without it, to standard
    /// output
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,

    /// Leaves out the filters of unique events, and the database's key
    #[arg(long)]
    no_filters: bool,

    #[command(flatten)]
    common: Common,
}

/// What the help says besides the options.
fn help() -> String {
    format!(
        "Examples:
  Take everything to another machine:
    exirate export --output exirate.jsonl
  Only one domain, and nothing secret:
    exirate export '*@example.org' --no-filters

{}

Nothing is lost: rates and limits to the last bit, times to the microsecond, filters
of unique events, keys whatever their bytes. The first line holds the database's key,
on which the filters depend; whoever knows it can choose addresses that look seen
before. So the file is as secret as the database, unless --no-filters leaves out
both: then unique events count once more after the import. Lines are in the order of
their keys; Exim may run meanwhile. The form is always JSON.

Exit status: 0 written; 1 a KEY is not remembered; 2 an error, or not everything could
be read.",
        keys::HELP
    )
}

impl Export {
    pub(super) fn run(&self, screen: &mut Screen<'_>) -> Result<Outcome, Failure> {
        let mut spool = self.common.open()?;
        let mut selection = Selection::new(&self.keys, &self.narrow)?;
        let mut keys = Vec::new();
        let unread = database::visit(&mut spool, |entry| {
            if selection.contains(&entry.key) {
                keys.push(entry.key);
            }
        })?;
        keys.sort_unstable();
        let written = match &self.output {
            Some(path) => {
                let mut written = 0;
                outfile::replace(path, SECRET, |out| {
                    written = self.write(&mut spool, &keys, out)?;
                    Ok(())
                })?;
                writeln!(screen, "wrote {written} records to {}", path.display())?;
                written
            }
            None => self.write(&mut spool, &keys, screen)?,
        };
        screen.flush()?;
        let missing = selection.report_missing(&mut spool)?;
        database::incomplete(unread)?;
        if written == 0 && !missing {
            note("there is nothing to write but the first line");
        }
        Ok(Outcome::found_if(missing))
    }

    /// Writes the records of these keys, and gives how many.
    fn write(
        &self,
        spool: &mut Spool,
        keys: &[Vec<u8>],
        out: &mut dyn Write,
    ) -> Result<u64, Failure> {
        let key = (!self.no_filters).then(|| spool.key());
        let header = serde_json::to_string(&Header::new(key)).map_err(std::io::Error::from)?;
        writeln!(out, "{header}")?;
        // The lines would be drawn over on a terminal.
        let bar = self.output.as_ref().map(|_| progress(keys.len() as u64, "records"));
        let mut written = 0;
        for key in keys {
            // It may have gone meanwhile.
            let Some(entry) = spool.get(key)? else { continue };
            let line = portable::write(&entry, !self.no_filters).map_err(std::io::Error::from)?;
            writeln!(out, "{line}")?;
            written += 1;
            if let Some(bar) = &bar {
                bar.inc(1);
            }
        }
        Ok(written)
    }
}
