//! `exirate list`: the keys and their rates.

use std::ffi::OsString;
use std::io::Write as _;

use anstyle::{AnsiColor, Style};
use clap::Args;

use crate::cli::shared::keys::{self, Narrow, Selection};
use crate::cli::shared::rates::Rates;
use crate::cli::shared::screen::{Screen, Terminal, note, noted};
use crate::cli::shared::table::{Column, Layout, Rows};
use crate::cli::shared::{complete, database};
use crate::cli::{Failure, Json, Outcome};
use crate::rate::Timestamp;
use crate::standing::databases::visit;
use crate::standing::in_force::{InForce, NextEvent};
use crate::standing::key_state::KeyState;
use crate::standing::key_text;
use crate::standing::listed::{First, Listed, Sort};
use crate::text;

/// List keys with their current rates
#[derive(Debug, Args)]
#[command(after_help = help(), add = Json::of::<Vec<Listed>>())]
pub(in crate::cli) struct List {
    /// List these keys or globs; the default is all keys
    #[arg(value_name = "KEY", add = complete::keys())]
    keys: Vec<OsString>,

    #[command(flatten)]
    narrow: Narrow,

    /// List only keys that are blocked: one more event would be refused
    #[arg(long)]
    over: bool,

    /// Sort by this
    #[arg(long, value_name = "BY", default_value = "share")]
    sort: Sort,

    /// List only the first N
    #[arg(long, value_name = "N", visible_alias = "top", allow_negative_numbers = true)]
    limit: Option<usize>,

    #[command(flatten)]
    common: Rates,
}

/// What the help says besides the options.
fn help() -> String {
    format!(
        "Examples:
  List the keys that are blocked, or nearest to it:
    exirate list --over
    exirate list --top 20
  List those of one domain, with an hourly limit:
    exirate list '*@example.org' --period 1h
  List the latest five:
    exirate list --sort seen --top 5
  For scripts:
    exirate list --over --json | jq -r '.[].key'

{key} RATE is the rate now, LIMIT that of the last check, SHARE
how much of it is used. FREE AGAIN is when one more event would pass. What decides instead of the
rate is in parentheses: (allowed), (denied), (exempt), (observed).

Exit status: 0 listed, also if no key is blocked (--over); 1 a KEY, --mode or
--period matches nothing; 2 an error. Where a file is damaged, the others are listed
all the same.

{manual}

RATE is the rate now: it decays while no events come. LIMIT is that of the last check that
counted, SHARE how much of it is used. For a leaky bucket, RATE is the level and LIMIT the burst.
MODE is the mode in the stored key: per_byte is stored as per_mail, and recipients that count once
as per_addr. SEEN is when the last event was counted, \"ahead\" if the clock has been set back
since. OVER SINCE is known for strict checks only: leaky ones do not count events over the limit.
FREE AGAIN is when one more event of size 1 would pass. FILTER is how full a filter of unique
events is, and about how many it holds. Empty columns are left out, and on a narrow terminal the
less important ones. A local user's key has the user's name in parentheses. What decides instead
of the rate is in parentheses as well: (allowed) or (denied) by `exirate allow` or `exirate deny`,
(exempt) or (observed) by the policy in use, or its verdict where that does not refuse what is
over: (log), (delay), (hold). The figures are as measured.",
        key = keys::HELP,
        manual = keys::MANUAL
    )
}

impl List {
    pub(in crate::cli) fn run(&self, screen: &mut Screen<'_>) -> Result<Outcome, Failure> {
        let mut store = self.common.open()?;
        let mut selection = Selection::new(&self.keys, &self.narrow, &self.common.folding()?)?;
        let in_force = noted(InForce::of(&mut *store, &self.common.directory()?));
        let now = in_force.now;
        let mut first = First::new(self.sort, now, self.limit.unwrap_or(usize::MAX));
        let unread = visit(&mut *store, &Terminal, |entry| {
            if selection.contains(&entry.record_key()) {
                let record = KeyState::from(entry);
                if !self.over || in_force.refuses(&record) {
                    first.add(record);
                }
            }
        })?;
        let records = first.take();
        let is_empty = records.len() == 0;
        self.print(screen, records, &in_force)?;
        // Printed in whole before any error.
        screen.flush()?;
        database::incomplete(unread)?;
        let missing = selection.report_missing(&mut *store)?;
        if is_empty && self.over && !missing && !self.common.json {
            note("no key is blocked: the next event of each would pass");
        }
        Ok(Outcome::found_if(missing))
    }

    fn print(
        &self,
        screen: &mut Screen<'_>,
        records: impl ExactSizeIterator<Item = KeyState>,
        in_force: &InForce,
    ) -> Result<(), Failure> {
        if self.common.json {
            let facts = records.map(|record| Listed::of(&record, in_force));
            screen.json_seq(facts)?;
        } else if records.len() > 0 {
            let (mut rows, mut blocked) = (Rows::new(), Vec::with_capacity(records.len()));
            for record in records {
                let next = in_force.next(&record);
                rows.add(&row(&record, &next, in_force.now));
                blocked.push(next.is_refused());
            }
            let layout = Layout::of(screen, COLUMNS, rows.iter());
            layout.head(screen)?;
            let mut rows = rows.iter();
            for alike in blocked.chunk_by(bool::eq) {
                let style = if alike.first() == Some(&true) { OVER } else { Style::new() };
                layout.write(screen, style, rows.by_ref().take(alike.len()), None)?;
            }
        }
        Ok(())
    }
}

/// The style of a key that is blocked.
pub(in crate::cli) const OVER: Style = AnsiColor::Red.on_default();

/// The columns of [`cells`].
pub(in crate::cli) const COLUMNS: [Column; 10] = [
    Column::numbers("RATE"),
    Column::numbers("LIMIT"),
    Column::numbers("SHARE"),
    Column::words("PERIOD").spare(3),
    Column::words("MODE").spare(4),
    Column::words("SEEN").spare(2),
    Column::words("OVER SINCE").spare(5),
    Column::words("FREE AGAIN").spare(1),
    Column::words("FILTER").spare(6),
    Column::words("KEY"),
];

/// A record as a row of the table.
pub(in crate::cli) fn cells(record: &KeyState, in_force: &InForce) -> [String; 10] {
    row(record, &in_force.next(record), in_force.now)
}

/// The row of a record whose next event would be decided so.
fn row(record: &KeyState, next: &NextEvent<'_>, now: Timestamp) -> [String; 10] {
    let or_unknown = |text: Option<String>| text.unwrap_or_else(|| "?".to_owned());
    let filter = match &record.filter {
        None => String::new(),
        Some(_) if record.filter_expired(now) => "expired".to_owned(),
        Some(filter) => format!("{:.1}% ~{:.0}", filter.fill * 100.0, filter.events()),
    };
    let since = record.over_since().filter(|_| next.over);
    let free = next.wait(record, now).filter(|_| next.is_refused()).map(text::short_wait);
    [
        format!("{:.1}", record.rate(now)),
        text::number(record.limit),
        text::percent(record.share(now)),
        or_unknown(record.period_text().or_else(|| record.period().map(text::whole_period))),
        or_unknown(record.mode()),
        text::rough_age(record.average.at, now),
        since.map_or_else(String::new, |since| text::rough_age(since, now)),
        free.unwrap_or_default(),
        filter,
        key_text::shown(record.key()) + &next.mark(),
    ]
}
