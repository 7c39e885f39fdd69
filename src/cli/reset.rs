//! `exirate reset`: forgets keys, and so unblocks them.

use std::ffi::OsString;
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt as _;

use clap::Args;
use serde::Serialize;

use super::changes_log::ChangesLog;
use super::confirm;
use super::database::{Common, now, tell_incidents};
use super::key_text;
use super::keys::{self, Narrow, Selection};
use super::record::{Facts, Record};
use super::screen::{Screen, note};
use super::{Failure, Outcome, text};
use crate::spool::Spool;

/// So many records are logged one by one; of more, only the arguments are, for
/// they would push everything else out of the log.
const LOGGED: usize = 100;

/// Forgets keys: who was blocked is free again
#[derive(Debug, Args)]
#[command(after_help = help())]
pub(super) struct Reset {
    /// Keys or globs
    #[arg(value_name = "KEY", required_unless_present = "over")]
    keys: Vec<OsString>,

    #[command(flatten)]
    narrow: Narrow,

    /// Only keys of which one more event would be refused
    #[arg(long)]
    over: bool,

    /// Does not ask whether a glob was meant
    #[arg(long, short)]
    yes: bool,

    /// Changes nothing: shows what would be forgotten
    #[arg(long)]
    dry_run: bool,

    #[command(flatten)]
    common: Common,
}

/// What the help says besides the options.
fn help() -> String {
    format!(
        "Examples:
  Let alice send again:
    exirate reset alice@example.org
  Only what she has sent in the last hour, not her limit of the day:
    exirate reset alice@example.org --period 1h
  Whom would I let go?
    exirate reset '*@example.org' --dry-run
  Everybody who is blocked right now:
    exirate reset --over --yes

{}

The next check of a key that was forgotten gets what one gets that was never
seen: its rate and the unique events it has had are gone, its limit comes from
Exim's configuration as ever. Exim may run meanwhile: a check comes either before
or after. Where more may be meant than was written, by a glob or in another case
of letters, it asks first; without a terminal it needs --yes. What is forgotten is
logged to changes.log beside the database, and to syslog (facility mail): a line for
each record, or one for all of more than 100.

Exit status: 0 forgotten; 1 a KEY is not remembered, or nothing was forgotten; 2 an
error.

JSON: an object; `reset` is an array of what was remembered, as `exirate list`
has it.",
        keys::HELP
    )
}

/// What was done, as JSON has it.
#[derive(Serialize)]
struct Answer {
    dry_run: bool,
    reset: Vec<Facts>,
}

/// What has been forgotten so far, or would be.
#[derive(Default)]
struct Done {
    count: usize,
    /// For JSON.
    facts: Vec<Facts>,
}

impl Reset {
    pub(super) fn run(&self, screen: &mut Screen<'_>) -> Result<Outcome, Failure> {
        let mut spool =
            if self.dry_run { self.common.open()? } else { self.common.open_to_change()? };
        let mut selection = Selection::new(&self.keys, &self.narrow)?;
        let (keys, unread) = selection.keys(&mut spool)?;
        let missing = selection.report_missing(&mut spool)?;
        let keys = if self.over { over(&mut spool, keys)? } else { keys };
        if selection.is_loose() && !self.dry_run && !keys.is_empty() {
            let things: Vec<String> = keys.iter().map(|key| key_text::stored(key)).collect();
            if !confirm::ask("forget", &things, self.yes)? {
                note("nothing was forgotten");
                return Ok(Outcome::Found);
            }
        }
        let mut done = Done::default();
        let forgotten = self.forget(&mut spool, &keys, screen, &mut done);
        if !self.dry_run && keys.len() > LOGGED && done.count > 0 {
            let what = self.arguments();
            ChangesLog::new()
                .add(&mut spool, format_args!("reset records={} of={what}", done.count));
        }
        tell_incidents(&mut spool);
        if self.common.json {
            screen.json(&Answer { dry_run: self.dry_run, reset: done.facts })?;
        } else if self.over && keys.is_empty() && unread == 0 {
            writeln!(screen, "nobody is over a limit")?;
        }
        match forgotten {
            Err(Failure::Said(what)) if !self.dry_run && keys.len() > 1 => {
                screen.flush()?;
                Err(Failure::new(format!(
                    "{what}; {} of {} record(s) have been forgotten, and the same command goes on",
                    done.count,
                    keys.len()
                )))
            }
            Err(failure) => Err(failure),
            Ok(()) if unread > 0 => {
                screen.flush()?;
                Err(Failure::new(format!(
                    "{} of the 256 shards could not be read: what is in them has not been \
                     forgotten",
                    unread
                )))
            }
            Ok(()) => Ok(Outcome::found_if(missing || keys.is_empty())),
        }
    }

    /// Forgets these keys, and tells and logs each; stops where that fails.
    fn forget(
        &self,
        spool: &mut Spool,
        keys: &[Vec<u8>],
        screen: &mut Screen<'_>,
        done: &mut Done,
    ) -> Result<(), Failure> {
        let mut log = ChangesLog::new();
        for key in keys {
            let entry = if self.dry_run { spool.get(key)? } else { spool.forget(key)? };
            // It may have gone meanwhile.
            let Some(record) = entry.map(Record::from) else { continue };
            done.count += 1;
            if !self.dry_run && keys.len() <= LOGGED {
                log.add(
                    spool,
                    format_args!(
                        "reset rate={} limit={} key={}",
                        record.average.rate,
                        record.limit,
                        key_text::stored(key)
                    ),
                );
            }
            if self.common.json {
                done.facts.push(record.facts(now()));
            } else {
                self.tell(screen, &record)?;
            }
        }
        Ok(())
    }

    /// What was asked for, for the log.
    fn arguments(&self) -> String {
        let over = self.over.then(|| "--over".to_owned());
        let keys = self.keys.iter().map(|key| text::printable(key.as_bytes()));
        over.into_iter().chain(self.narrow.arguments()).chain(keys).collect::<Vec<_>>().join(" ")
    }

    fn tell(&self, screen: &mut Screen<'_>, record: &Record) -> std::io::Result<()> {
        let verb = if self.dry_run { "would forget" } else { "forgot" };
        let now = now();
        let state = if record.is_over(now) { "over the limit" } else { "under the limit" };
        writeln!(
            screen,
            "{verb} {}: {state}, rate {:.1}, limit {}",
            name(record),
            record.rate(now),
            text::number(record.limit)
        )
    }
}

/// The keys, of these, of which one more event would be refused.
fn over(spool: &mut Spool, keys: Vec<Vec<u8>>) -> Result<Vec<Vec<u8>>, Failure> {
    let mut over = Vec::new();
    for key in keys {
        if spool.get(&key)?.is_some_and(|entry| Record::from(entry).is_over(now())) {
            over.push(key);
        }
    }
    Ok(over)
}

/// A record for people: `alice@example.org (per_rcpt, 1h)`.
pub(super) fn name(record: &Record) -> String {
    let key = key_text::title(record.key());
    match record.mode().zip(record.period_text()) {
        Some((mode, period)) => format!("{key} ({mode}, {period})"),
        None => key,
    }
}
