//! `exirate import`: reads the output of `exirate export` or exim_dumpdb.

use std::collections::BTreeSet;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use clap::Args;
use jiff::tz::TimeZone;
use schemars::JsonSchema;
use serde::Serialize;

use crate::cli::shared::administrator::AuditLog;
use crate::cli::shared::database::print_incidents;
use crate::cli::shared::lines::Lines;
use crate::cli::shared::rates::Rates;
use crate::cli::shared::screen::{Screen, Tally, noted};
use crate::cli::{Failure, Json, Outcome};
use crate::engine::Kind;
use crate::rate::Timestamp;
use crate::spool::{Options, Spool, SpoolError};
use crate::standing::exchange::export_format::{self, Header};
use crate::standing::exchange::{exim_dump, range};
use crate::standing::in_force::InForce;
use crate::standing::key_state::KeyState;
use crate::store::{Entry, Inspect, InspectError, Restored};
use crate::text;

/// How many names of unknown fields are printed.
const UNKNOWN_REPORTED: usize = 20;
/// Import an export, or a dump of Exim's own ratelimit database
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  Continue with the rates of Exim's own `ratelimit`:
    exim_dumpdb /var/spool/exim4 ratelimit | exirate import -
  Import an export:
    exirate import exirate.jsonl
  Import the dump of another machine, made with -z:
    exirate import dump.txt --utc

The format is recognised by the first line. A record that is newer than the stored one replaces it,
so importing twice does no harm. It may run while mail is accepted.

Exit status: 0 all lines were imported, or were not newer; 2 an error, or a line was
invalid.

The format is recognised by the first line. Exim may run meanwhile. A record that is
newer than the stored one replaces it; one that is as new, or older, is skipped, so
importing twice does no harm. Invalid lines are reported with their numbers, and all
others are imported. A line is invalid as well if no check can have written it: a rate or
a limit that is negative or above 1e18, a time before 1970 or more than a year ahead.
Fields that a later exirate has added are left out and reported.

Filters of unique events depend on the database's key. Where there is no database, one is created
with the key of the export, and nothing is lost. Where there is one with another key, rates are
imported but unique events count once more; the same applies to exim_dumpdb, which does not print
filters. Habits of accounts depend on that key as well, and belong to one server: into a database
with another key, and into limits that are shared, none are imported (--local imports them where
limits are shared). A dump has no limits either: they are shown as inf until the next check that
counts. Its times are local unless --utc is given.

Where limits are shared, the records become those of all servers, whose key of unique
events stays as it is: only an export of the shared rates has the same.

Overrides (`exirate allow`, `exirate deny`) are neither imported nor changed.

The import is logged to audit.log in the database's directory, and to syslog (facility
mail).", add = Json::of::<ImportCounts>())]
pub(in crate::cli) struct Import {
    /// Read this file; - is standard input
    #[arg(value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    file: PathBuf,

    /// Read it as output of exim_dumpdb, whatever its first line is
    #[arg(long)]
    exim: bool,

    /// Read the times of exim_dumpdb as UTC: it was run with -z
    #[arg(long)]
    utc: bool,

    #[command(flatten)]
    common: Rates,
}

/// How many records were taken over.
#[derive(Default, Serialize, JsonSchema)]
struct ImportCounts {
    added: u64,
    replaced: u64,
    kept: u64,
    filters_left_out: u64,
    habits_left_out: u64,
    invalid_lines: u64,
    /// How many imported keys are over their limits now.
    over: u64,
    /// Names of fields that were left out, since a later version has added them.
    unknown_fields: BTreeSet<String>,
}

/// The form of the lines.
enum LineForm {
    /// Whether the filters mean something in this database.
    Export {
        filters: bool,
    },
    Exim(TimeZone),
}

impl Import {
    pub(in crate::cli) fn run(&self, screen: &mut Screen<'_>) -> Result<Outcome, Failure> {
        let mut lines = Lines::open(&self.file)?;
        let Some(()) = lines.skip_blank()? else {
            return Err(Failure::new(format!(
                "{} is empty: expected the output of `exirate export` or `exim_dumpdb SPOOL \
                 ratelimit`",
                lines.name
            )));
        };
        let (mut store, form) = if self.exim || exim_dump::looks_like(&lines.line) {
            let zone = if self.utc { TimeZone::UTC } else { TimeZone::system() };
            let open = |dir: &Path| Ok(Spool::open(dir, Options::default())?);
            (self.common.open_or(open)?, LineForm::Exim(zone))
        } else {
            let opened = self.open_for_export(&lines)?;
            lines.next()?;
            opened
        };
        let mut counts = ImportCounts::default();
        let in_force = noted(InForce::of(&mut *store, &self.common.directory()?));
        let done = import(&mut *store, &form, &mut lines, &in_force, &mut counts);
        counts.invalid_lines = lines.invalid;
        print_incidents(&mut *store);
        // Also after an error: the lines before it are imported.
        log(&mut *store, &lines.name, &counts);
        done?;
        screen.show(self.common.json, &counts, |screen, it| print(screen, it, &form))?;
        screen.flush()?;
        lines.all_valid("imported")?;
        Ok(Outcome::Fine)
    }

    /// Opens the rates for an export whose first line has been read; creates
    /// a database with its key where there is none.
    fn open_for_export(&self, lines: &Lines) -> Result<(Box<dyn Inspect>, LineForm), Failure> {
        let first = String::from_utf8_lossy(&lines.line);
        if let Some(complaint) = first.strip_prefix("** ") {
            let complaint = text::printable(complaint.as_bytes());
            return Err(Failure::new(format!("exim_dumpdb says: {complaint}")));
        }
        let wrong =
            |what: String| Failure::new(format!("{}, line {}: {what}", lines.name, lines.number));
        let header = Header::parse(&first).map_err(wrong)?;
        let key = header.key().map_err(wrong)?;
        let store = self.common.open_or(|dir| match (key, Spool::require(dir)) {
            (Some(key), Err(SpoolError::Absent { .. })) => {
                match Spool::create(dir, key, Options::default()) {
                    // Exim has created it since.
                    Err(SpoolError::Present { .. }) => Ok(Spool::open(dir, Options::default())?),
                    result => Ok(result?),
                }
            }
            _ => Ok(Spool::open(dir, Options::default())?),
        })?;
        let filters = key == Some(store.filter_key());
        Ok((store, LineForm::Export { filters }))
    }
}

/// Imports all lines from this one on.
fn import(
    store: &mut dyn Inspect,
    form: &LineForm,
    lines: &mut Lines,
    in_force: &InForce,
    counts: &mut ImportCounts,
) -> Result<(), Failure> {
    let now = in_force.now;
    let mut tally = Tally::of("lines read");
    while !lines.done {
        tally.add();
        if !lines.line.trim_ascii().is_empty() {
            match entry(form, lines, now, &mut counts.unknown_fields) {
                // Nothing is left of habits without their hashes.
                Ok((entry, true)) if entry.kind == Kind::Habits => counts.habits_left_out += 1,
                Ok((entry, lost)) => match store.restore(&entry) {
                    Ok(restored) => {
                        let over = restored != Restored::Kept
                            && entry.kind != Kind::Habits
                            && in_force.refuses(&KeyState::from(entry));
                        counts.over += u64::from(over);
                        match restored {
                            Restored::Added => counts.added += 1,
                            Restored::Replaced => counts.replaced += 1,
                            Restored::Kept => counts.kept += 1,
                            Restored::NotShared => counts.habits_left_out += 1,
                        }
                        counts.filters_left_out += u64::from(lost && restored != Restored::Kept);
                    }
                    Err(error) => match error.downcast_ref() {
                        Some(SpoolError::KeyTooLong { .. }) => {
                            lines.skip(&error.to_string());
                        }
                        _ => return Err(stopped(lines, &error)),
                    },
                },
                Err(what) => lines.skip(&what),
            }
        }
        lines.next()?;
    }
    Ok(())
}

/// The record of the line, and whether it has lost its filter. Adds the names of
/// unknown fields to `unknown`.
fn entry(
    form: &LineForm,
    lines: &Lines,
    now: Timestamp,
    unknown: &mut BTreeSet<String>,
) -> Result<(Entry, bool), String> {
    match form {
        LineForm::Exim(zone) => {
            let dumped = exim_dump::read(lines.bytes()?, zone, now)?;
            range::entry(&dumped.entry, now)?;
            Ok((dumped.entry, dumped.filter))
        }
        LineForm::Export { filters } => {
            let (mut entry, names) = export_format::read(lines.text()?)?;
            range::entry(&entry, now)?;
            let room = UNKNOWN_REPORTED.saturating_sub(unknown.len());
            unknown.extend(names.into_iter().take(room));
            let lost = entry.filter.is_some() && !filters;
            if lost {
                entry.filter = None;
            }
            Ok((entry, lost))
        }
    }
}

/// The error of a database that cannot be written.
fn stopped(lines: &Lines, error: &InspectError) -> Failure {
    Failure::new(format!(
        "{}, line {}: {error}; the lines before it are imported, and importing all of them again \
         does no harm",
        lines.name, lines.number
    ))
}

fn print(screen: &mut Screen<'_>, counts: &ImportCounts, form: &LineForm) -> io::Result<()> {
    writeln!(screen, "imported {} records", counts.added + counts.replaced)?;
    for (count, what) in [
        (counts.replaced, "of them replaced older ones"),
        (counts.kept, "skipped: the stored record is as new, or newer"),
        (counts.over, "of the imported are blocked now: see `exirate list --over`"),
    ] {
        if count > 0 {
            writeln!(screen, "{count} {what}")?;
        }
    }
    let left_out = counts.filters_left_out;
    if left_out > 0 {
        let why = match form {
            LineForm::Exim(_) => "exim_dumpdb does not print them",
            LineForm::Export { .. } => "they depend on the key of another database",
        };
        writeln!(
            screen,
            "{} left out: {why}, so {} events count once more",
            text::counted(left_out, "filter of unique events", "filters of unique events"),
            if left_out == 1 { "its" } else { "their" }
        )?;
    }
    let habits = counts.habits_left_out;
    if habits > 0 {
        writeln!(
            screen,
            "habits of {} left out: they depend on the key of another database, or on one server",
            text::counted(habits, "account", "accounts")
        )?;
    }
    if !counts.unknown_fields.is_empty() {
        let names: Vec<_> =
            counts.unknown_fields.iter().map(|name| text::printable(name.as_bytes())).collect();
        writeln!(
            screen,
            "the export has fields that this version does not know, which were left out: {}",
            names.join(", ")
        )?;
    }
    Ok(())
}

fn log(store: &mut dyn Inspect, name: &str, counts: &ImportCounts) {
    AuditLog::new().add(
        store,
        format_args!(
            "import added={} replaced={} kept={} invalid={} from={}",
            counts.added,
            counts.replaced,
            counts.kept,
            counts.invalid_lines,
            text::printable(name.as_bytes())
        ),
    );
}
