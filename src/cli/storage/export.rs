//! `exirate export`: records as lines of JSON.

use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;

use clap::Args;

use crate::cli::shared::keys::{self, Narrow, Selection};
use crate::cli::shared::rates::Rates;
use crate::cli::shared::screen::{Screen, complain, note, progress};
use crate::cli::shared::{complete, database, output_file};
use crate::cli::{Failure, Outcome};
use crate::standing::exchange::export_format::{self, Header};
use crate::store::{Inspect, OwnedKey};
use crate::text::json;

/// Permissions of the file: as secret as the database.
const SECRET: u32 = 0o600;

/// Export records as lines of JSON, for `exirate import`
#[derive(Debug, Args)]
#[command(after_help = help())]
pub(in crate::cli) struct Export {
    /// Export these keys or globs; the default is all keys
    #[arg(value_name = "KEY", add = complete::keys())]
    keys: Vec<OsString>,

    #[command(flatten)]
    narrow: Narrow,

    /// Write to FILE, readable by its owner only; the default is standard output
    #[arg(long, short, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    output: Option<PathBuf>,

    /// Leave out the filters of unique events, and the database's key
    #[arg(long)]
    no_filters: bool,

    #[command(flatten)]
    common: Rates,
}

/// What the help says besides the options.
fn help() -> String {
    format!(
        "Examples:
  Move everything to another machine:
    exirate export --output exirate.jsonl
  Export one domain, without secrets:
    exirate export '*@example.org' --no-filters

{key} Nothing is lost, and the file is as secret as the database,
unless --no-filters is given. Overrides are not exported: `exirate copy` copies them.

Exit status: 0 exported; 1 a KEY, --mode or --period matches nothing; 2 an error, or
not everything could be read.

{manual}

Nothing is lost: rates and limits are exact, times have microseconds, and filters of
unique events and keys of any bytes are kept. The first line holds the database's key,
which the filters depend on; anyone who knows it can forge unique events. So the file is
as secret as the database, unless --no-filters leaves out both: unique events then
count once more after the import, and the habits
of accounts are left out, as they depend on it too. Lines are sorted by key; Exim may run meanwhile. The
format is always JSON.

Where limits are shared, the records are those of all servers. The habits of accounts belong to
one server: --local exports them.

Overrides (`exirate allow`, `exirate deny`) are not exported: `exirate copy` copies them,
and `exirate overrides --json` lists them.",
        key = keys::HELP,
        manual = keys::MANUAL
    )
}

impl Export {
    pub(in crate::cli) fn run(&self, screen: &mut Screen<'_>) -> Result<Outcome, Failure> {
        let mut store = self.common.open()?;
        let mut selection = Selection::new(&self.keys, &self.narrow, &self.common.folding()?)?;
        let (mut keys, mut unread) = selection.keys(&mut *store)?;
        if !self.no_filters {
            let left_out = store.for_each_habits_key(&mut |key| {
                if selection.contains(&key.key()) {
                    keys.push(key);
                }
            })?;
            left_out.parts.iter().for_each(complain);
            unread = unread.max(left_out.parts.len());
            keys.sort_unstable();
        }
        let written = match &self.output {
            Some(path) => {
                let mut written = 0;
                output_file::replace(path, SECRET, |out| {
                    written = self.write(&mut *store, &keys, out)?;
                    Ok(())
                })?;
                writeln!(screen, "wrote {written} records to {}", path.display())?;
                written
            }
            None => self.write(&mut *store, &keys, screen)?,
        };
        screen.flush()?;
        let missing = selection.report_missing(&mut *store)?;
        database::incomplete(unread)?;
        if written == 0 && !missing {
            note("there are no records: only the first line was written");
        }
        Ok(Outcome::found_if(missing))
    }

    /// Writes the records of these keys, and returns how many.
    fn write(
        &self,
        store: &mut dyn Inspect,
        keys: &[OwnedKey],
        out: &mut dyn Write,
    ) -> Result<u64, Failure> {
        let key = (!self.no_filters).then(|| store.filter_key());
        let header = json(&Header::new(key)).map_err(std::io::Error::from)?;
        writeln!(out, "{header}")?;
        // On a terminal the lines would overwrite it.
        let bar = self.output.as_ref().map(|_| progress(keys.len() as u64, "records"));
        let mut written = 0;
        // One may have been dropped since.
        store.for_each_of_keys(keys, &mut |entry| {
            let line = export_format::write(&entry, !self.no_filters)?;
            writeln!(out, "{line}")?;
            written += 1;
            if let Some(bar) = &bar {
                bar.inc(1);
            }
            Ok(())
        })?;
        Ok(written)
    }
}
