//! `exirate trace tidy`: forgets what may go, and says for how long to keep.

use std::io::Write as _;

use clap::Args;
use serde::Serialize;

use super::super::database::now;
use super::super::screen::{Screen, note};
use super::super::size::{bytes, parse_bytes};
use super::super::{Failure, Outcome, text};
use super::open::{Common, tell_incidents};
use super::span::{self, Keep};
use crate::trace::{KEEP_MIN, Options, TRACE_BYTES_MIN};

/// Remove old messages, and set how long messages are kept
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  Keep messages for a year, in at most ten gigabytes:
    exirate trace tidy --keep 52w --max-size 10G
  Seal full logs, and remove what is too old:
    exirate trace tidy

This runs by itself whenever a log is full. Messages are removed
a file at a time, once the last message of the file is older than --keep. If
the store is larger than --max-size, the oldest files are folded first: they then take
half of the space and have more false results. Then the oldest are removed.

The settings are stored with the store and apply to Exim too. But if a line of Exim's
configuration sets keep= or max_size=, as TRACE_KEEP in exirate.conf does, that applies
again from the next message on: change it there as well.

Exit status: 0 done, also if there was nothing to do; 2 an error.

JSON: an object. `keep` is in seconds (null: for ever).")]
pub(super) struct Tidy {
    /// How long messages are kept: 90d, 52w, or `forever`
    #[arg(long, value_name = "TIME", value_parser = span::keep)]
    keep: Option<Keep>,

    /// The most that the store may take, such as 10G
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    max_size: Option<u64>,

    #[command(flatten)]
    common: Common,
}

/// What was done, as JSON has it.
#[derive(Serialize)]
struct Answer {
    sealed: u64,
    folded: u64,
    forgotten: u64,
    messages_forgotten: u64,
    disk_before: u64,
    disk_after: u64,
    keep: Option<u64>,
    max_bytes: u64,
}

impl Tidy {
    pub(super) fn run(&self, screen: &mut Screen<'_>) -> Result<Outcome, Failure> {
        self.check()?;
        let mut trace = self.common.open_to_change()?;
        let before = *trace.options();
        let options = Options {
            keep: self.keep.map_or(before.keep, |Keep(seconds)| seconds),
            max_bytes: self.max_size.unwrap_or(before.max_bytes),
            ..before
        };
        if options != before {
            trace.set_options(options)?;
            if !self.common.json {
                note(REMINDER);
            }
        }
        let disk = trace.stats()?.bytes;
        let tidied = trace.tidy(now().seconds);
        tell_incidents(&mut trace);
        let tidied = tidied?;
        let answer = Answer {
            sealed: tidied.sealed,
            folded: tidied.folded,
            forgotten: tidied.forgotten,
            messages_forgotten: tidied.messages,
            disk_before: disk,
            disk_after: trace.stats()?.bytes,
            keep: options.keep,
            max_bytes: options.max_bytes,
        };
        if self.common.json {
            screen.json(&answer)?;
        } else {
            answer.tell(screen)?;
        }
        Ok(Outcome::Fine)
    }

    /// What is less than can be is not silently made more.
    fn check(&self) -> Result<(), Failure> {
        check_keep(self.keep)?;
        if let Some(size) = self.max_size
            && size < TRACE_BYTES_MIN
        {
            let least = bytes(TRACE_BYTES_MIN);
            return Err(Failure::new(format!("--max-size cannot be lower than {least}")));
        }
        Ok(())
    }
}

impl Answer {
    fn tell(&self, screen: &mut Screen<'_>) -> std::io::Result<()> {
        writeln!(
            screen,
            "sealed {} log(s), folded {} segment(s), forgot {} message(s) in {} file(s); the store \
             takes {}, it took {}",
            self.sealed,
            self.folded,
            self.messages_forgotten,
            self.forgotten,
            bytes(self.disk_after),
            bytes(self.disk_before)
        )?;
        let most = bytes(self.max_bytes);
        writeln!(screen, "it keeps messages {}, in at most {most}", kept(self.keep))
    }
}

/// Refuses a time that is less than can be.
pub(super) fn check_keep(keep: Option<Keep>) -> Result<(), Failure> {
    match keep {
        Some(Keep(Some(seconds))) if seconds < KEEP_MIN => {
            let least = text::duration(KEEP_MIN as f64);
            Err(Failure::new(format!("--keep cannot be less than {least}")))
        }
        _ => Ok(()),
    }
}

/// What to think of when it is said how long messages are kept.
pub(super) const REMINDER: &str = "if Exim's configuration sets keep= or max_size= (TRACE_KEEP in \
                                   exirate.conf), that applies again from its next message on: \
                                   change it there as well";

/// How long messages are kept, in words.
pub(super) fn kept(keep: Option<u64>) -> String {
    keep.map_or_else(
        || "for ever".to_owned(),
        |seconds| format!("for {}", text::duration(seconds as f64)),
    )
}
