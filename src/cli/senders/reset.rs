//! `exirate reset`: deletes the records of keys, which unblocks them.

use std::ffi::OsString;
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt as _;

use clap::Args;
use serde::Serialize;

use crate::cli::shared::audit_log::AuditLog;
use crate::cli::shared::complete;
use crate::cli::shared::confirm;
use crate::cli::shared::database::print_incidents;
use crate::cli::shared::in_force::InForce;
use crate::cli::shared::key_state::{KeyState, KeyStateJson};
use crate::cli::shared::key_text;
use crate::cli::shared::keys::{self, Narrow, Selection};
use crate::cli::shared::rates::Rates;
use crate::cli::shared::screen::{Screen, note};
use crate::cli::shared::text;
use crate::cli::{Failure, Outcome};
use crate::store::{Inspect, OwnedKey};

/// Up to this many records are logged one by one; of more, only the arguments
/// are, or they would push everything else out of the log.
const LOGGED: usize = 100;

/// Reset keys: delete their records, which unblocks them
#[derive(Debug, Args)]
#[command(after_help = help())]
pub(in crate::cli) struct Reset {
    /// Reset these keys or globs
    #[arg(value_name = "KEY", required_unless_present = "over", add = complete::keys())]
    keys: Vec<OsString>,

    #[command(flatten)]
    narrow: Narrow,

    /// Reset only keys that their rates block: one more event would be refused
    #[arg(long)]
    over: bool,

    /// Do not ask for confirmation
    #[arg(long, short)]
    yes: bool,

    /// Change nothing: show what would be reset
    #[arg(long)]
    dry_run: bool,

    #[command(flatten)]
    common: Rates,
}

/// What the help says besides the options.
fn help() -> String {
    format!(
        "Examples:
  Unblock alice:
    exirate reset alice@example.org
  Reset her hourly limit, and keep the daily one:
    exirate reset alice@example.org --period 1h
  Show which keys a glob would reset:
    exirate reset '*@example.org' --dry-run
  Unblock every key that is over its limit now:
    exirate reset --over --yes

{}

The record of a key is deleted: its rate, and the unique events it has counted. The
next check of the key starts from nothing, with the limit in Exim's configuration.
Exim may run meanwhile. Where several keys may match (a glob, --ignore-case or --over),
it asks first; without a terminal, --yes is needed. What is reset is logged to
audit.log in the database's directory, and to syslog (facility mail): one line for
each record, or one for all if they are more than 100.

Exit status: 0 reset; 1 a KEY matches nothing, or nothing was reset; 2 an error.

JSON: an object; `reset` is an array of the deleted records, in the form of
`exirate list`.",
        keys::HELP
    )
}

/// What was done, in JSON.
#[derive(Serialize)]
struct Report {
    dry_run: bool,
    reset: Vec<KeyStateJson>,
}

/// What has been reset so far, or would be.
#[derive(Default)]
struct Done {
    count: usize,
    /// For JSON.
    records: Vec<KeyStateJson>,
}

impl Reset {
    pub(in crate::cli) fn run(&self, screen: &mut Screen<'_>) -> Result<Outcome, Failure> {
        let mut store =
            if self.dry_run { self.common.open()? } else { self.common.open_to_change()? };
        let mut selection = Selection::new(&self.keys, &self.narrow, &self.common.folding()?)?;
        let (keys, unread) = selection.keys(&mut *store)?;
        let missing = selection.report_missing(&mut *store)?;
        let in_force = InForce::or_note(&mut *store, &self.common.directory()?);
        let keys = if self.over { over(&mut *store, keys, &in_force)? } else { keys };
        if selection.is_loose() && !self.dry_run && !keys.is_empty() {
            let things: Vec<String> = keys.iter().map(|key| key_text::stored(&key.name)).collect();
            if !confirm::ask("reset", &things, self.yes)? {
                note("nothing was reset");
                return Ok(Outcome::Found);
            }
        }
        let mut done = Done::default();
        let result = self.reset(&mut *store, &keys, &in_force, screen, &mut done);
        if !self.dry_run && keys.len() > LOGGED && done.count > 0 {
            let what = self.arguments();
            AuditLog::new()
                .add(&mut *store, format_args!("reset records={} of={what}", done.count));
        }
        print_incidents(&mut *store);
        if self.common.json {
            screen.json(&Report { dry_run: self.dry_run, reset: done.records })?;
        } else if self.over && keys.is_empty() && unread == 0 {
            writeln!(screen, "no key is blocked by its rate")?;
        }
        match result {
            Err(Failure::Said(what)) if !self.dry_run && keys.len() > 1 => {
                screen.flush()?;
                Err(Failure::new(format!(
                    "{what}; {} of {} records were reset; run the command again for the rest",
                    done.count,
                    keys.len()
                )))
            }
            Err(failure) => Err(failure),
            Ok(()) if unread > 0 => {
                screen.flush()?;
                Err(Failure::new(format!(
                    "{} of the 256 shards could not be read: their keys were not reset",
                    unread
                )))
            }
            Ok(()) => Ok(Outcome::found_if(missing || keys.is_empty())),
        }
    }

    /// Resets these keys, and prints and logs each; stops at the first error.
    fn reset(
        &self,
        store: &mut dyn Inspect,
        keys: &[OwnedKey],
        in_force: &InForce,
        screen: &mut Screen<'_>,
        done: &mut Done,
    ) -> Result<(), Failure> {
        let mut log = AuditLog::new();
        for key in keys {
            let entry =
                if self.dry_run { store.get(key.key())? } else { store.remove(key.key())? };
            // It may have been dropped since.
            let Some(record) = entry.map(KeyState::from) else { continue };
            done.count += 1;
            if !self.dry_run && keys.len() <= LOGGED {
                log.add(
                    store,
                    format_args!(
                        "reset rate={} limit={} key={}",
                        record.average.rate,
                        record.limit,
                        key_text::stored(&key.name)
                    ),
                );
            }
            if self.common.json {
                done.records.push(in_force.json(&record));
            } else {
                let verb = if self.dry_run { "would reset" } else { "reset" };
                print(screen, verb, &record, in_force)?;
            }
        }
        Ok(())
    }

    /// The arguments, for the log.
    fn arguments(&self) -> String {
        let over = self.over.then(|| "--over".to_owned());
        let keys = self.keys.iter().map(|key| text::printable(key.as_bytes()));
        over.into_iter().chain(self.narrow.arguments()).chain(keys).collect::<Vec<_>>().join(" ")
    }
}

/// Those of these keys that their rates block: to reset others helps nobody.
fn over(
    store: &mut dyn Inspect,
    keys: Vec<OwnedKey>,
    in_force: &InForce,
) -> Result<Vec<OwnedKey>, Failure> {
    let mut over = Vec::new();
    for key in keys {
        let entry = store.get(key.key())?;
        let Some(record) = entry.map(KeyState::from) else { continue };
        let next = in_force.next(&record);
        if next.is_refused() && next.forced().is_none() {
            over.push(key);
        }
    }
    Ok(over)
}

/// A record for people: `alice@example.org (per_rcpt, 1h)`.
pub(in crate::cli) fn name(record: &KeyState) -> String {
    let key = key_text::title(record.key());
    match record.mode().zip(record.period_text()) {
        Some((mode, period)) => format!("{key} ({mode}, {period})"),
        None => key,
    }
}

/// Logs what `word` has deleted: one line for each record, or one for all if they are
/// many; `arguments` are then those of the command.
pub(in crate::cli) fn log(
    log: &mut AuditLog,
    store: &mut dyn Inspect,
    word: &str,
    records: &[KeyState],
    arguments: impl FnOnce() -> String,
) {
    if records.len() > LOGGED {
        log.add(store, format_args!("{word} records={} of={}", records.len(), arguments()));
        return;
    }
    for record in records {
        let (rate, limit) = (record.average.rate, record.limit);
        let key = key_text::stored(&record.stored);
        log.add(store, format_args!("{word} rate={rate} limit={limit} key={key}"));
    }
}

/// Prints what `verb` says of a record, and how it stood.
pub(in crate::cli) fn print(
    screen: &mut Screen<'_>,
    verb: &str,
    record: &KeyState,
    in_force: &InForce,
) -> std::io::Result<()> {
    let next = in_force.next(record);
    let state = if next.over { "over the limit" } else { "under the limit" };
    writeln!(
        screen,
        "{verb} {}: {state}{}, rate {:.1}, limit {}",
        name(record),
        next.mark(),
        record.rate(in_force.now),
        text::number(record.limit)
    )
}
