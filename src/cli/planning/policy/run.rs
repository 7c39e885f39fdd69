//! `exirate policy run`: decides a stream of events.

use std::io::Write as _;
use std::path::PathBuf;

use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;

use super::file::compiled;
use crate::cli::shared::lines::Lines;
use crate::cli::shared::screen::{Screen, Tally};
use crate::cli::{Failure, Json, Outcome};
use crate::policy::decided::DecisionsJson;
use crate::policy::replay::{Replay, ReplayEvent};
use crate::policy::source::FILE;
use crate::store::Memory;
use crate::text::iso_exact;

/// With so many records, those that decide nothing any more are dropped.
const FORGET_FROM: usize = 100_000;
/// The most records.
const RECORDS_MAX: usize = 4_000_000;

/// Decide a stream of events by a policy file
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  What would this policy file decide?
    exirate policy run events.jsonl --policy policy.toml
  The same, from standard input:
    exirate policy run --policy policy.toml < events.jsonl > decisions.jsonl
  Which events would be refused?
    exirate policy run events.jsonl --policy policy.toml | jq -c 'select(.verdict == \"defer\")'

Each event is a line of JSON, with its time and what is known of it, and so is each decision. Rates
are in memory and start empty: no database is read or changed.

Exit status: 0 all events were decided, whatever the verdicts; 2 an error, or a line was
invalid.

Each line of the events is a JSON object with the time of an event and what is known of
it; docs/policy.md lists the fields. The events are decided in this order, by the code
that Exim runs, on rates in memory that start empty: no database is read or changed, and
there are no overrides. Each decision is a line of JSON. A time that goes back counts as
no time at all, as in Exim when the clock is set back.

An invalid line is reported with its number and skipped; all others are decided.")]
#[command(add = Json::when::<DecidedLine<'_>>("On each line"))]
pub(super) struct Run {
    /// Read the events from this file; - is standard input
    #[arg(value_name = "EVENTS", default_value = "-", value_hint = clap::ValueHint::FilePath)]
    events: PathBuf,

    /// Decide by this policy file
    #[arg(long, value_name = "FILE", visible_alias = "file", default_value = FILE)]
    policy: PathBuf,

    /// Decide only by this policy of the file; several are separated by commas
    #[arg(long, value_name = "NAME", default_value = "*")]
    only: String,
}

/// A decision, as JSON has it.
#[derive(Serialize, JsonSchema)]
struct DecidedLine<'a> {
    /// The number of the event's line.
    line: u64,
    time: String,
    #[serde(flatten)]
    decisions: DecisionsJson<'a>,
}

impl Run {
    pub(super) fn run(&self, screen: &mut Screen<'_>) -> Result<Outcome, Failure> {
        let (_, image) = compiled(&self.policy)?;
        let mut replay = Replay::new(&image, &self.only).map_err(Failure::new)?;
        let mut store = Memory::new();
        let mut lines = Lines::open(&self.events)?;
        let mut forget_from = FORGET_FROM;
        let mut tally = Tally::of("events decided");
        while lines.skip_blank()?.is_some() {
            let event = match lines.text().and_then(ReplayEvent::from_json) {
                Ok(event) => event,
                Err(what) => {
                    lines.skip(&what);
                    continue;
                }
            };
            let decided = replay.decide(&event, &mut store);
            let decisions = decided.map_err(|error| Failure::new(error.to_string()))?;
            let (line, time) = (lines.number, iso_exact(event.time));
            let decisions = DecisionsJson::of(&decisions);
            screen.json(&DecidedLine { line, time, decisions })?;
            tally.add();
            if store.len() >= forget_from {
                // What is left of a rate is printed, however small.
                store.forget(event.time, 0.0);
                forget_from = FORGET_FROM.max(2 * store.len());
                if store.len() > RECORDS_MAX {
                    return Err(Failure::new(format!(
                        "{}, line {}: more than {RECORDS_MAX} keys within their periods; \
                         decide fewer events at a time, or by fewer policies (--only)",
                        lines.name, lines.number
                    )));
                }
            }
        }
        drop(tally);
        screen.flush()?;
        lines.all_valid("decided")?;
        Ok(Outcome::Fine)
    }
}
