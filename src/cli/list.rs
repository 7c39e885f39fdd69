//! `exirate list`: the keys that are remembered.

use std::ffi::OsString;
use std::io::Write as _;

use anstyle::{AnsiColor, Style};
use clap::{Args, ValueEnum};
use serde::Serializer as _;

use super::database::{self, Common, now};
use super::key_text;
use super::keys::{self, Narrow, Selection};
use super::record::{self, Record};
use super::screen::{Screen, note};
use super::table::{Column, Layout};
use super::{Failure, Outcome, text};
use crate::rate::Timestamp;

/// Lists keys: their rates now, and what led to them
#[derive(Debug, Args)]
#[command(after_help = help())]
pub(super) struct List {
    /// Keys or globs; without any, all keys
    #[arg(value_name = "KEY")]
    keys: Vec<OsString>,

    #[command(flatten)]
    narrow: Narrow,

    /// Only keys of which one more event would be refused
    #[arg(long)]
    over: bool,

    /// What comes first
    #[arg(long, value_name = "BY", default_value = "share")]
    sort: Sort,

    /// Only the first N
    #[arg(long, value_name = "N", visible_alias = "top", allow_negative_numbers = true)]
    limit: Option<usize>,

    #[command(flatten)]
    common: Common,
}

/// What the help says besides the options.
fn help() -> String {
    format!(
        "Examples:
  Who is blocked, or nearest to it?
    exirate list --top 20
    exirate list --over
  Whom do I see of one domain, and by the hour?
    exirate list '*@example.org' --period 1h
  Who has sent something last?
    exirate list --sort seen --top 5
  For scripts:
    exirate list --over --json | jq -r '.[].key'

{}

RATE is what is left of it now: it decays while nothing comes. LIMIT is that of
the check that was counted last, SHARE the part of it that is used up. MODE is
what the key is filed under: per_byte under per_mail, recipients that count once
under per_addr. SEEN is when an event was counted last, \"ahead\" where the clock
was set back since. OVER SINCE is told of strict checks only, for leaky ones do
not count what is over. FREE AGAIN is when one more event, of size 1, would pass.
FILTER is how full a filter of unique events is, and how many it holds about.
Columns that say nothing, and on a narrow terminal the less important ones, are
left out. Keys are escaped so that they cannot drive the terminal.

Exit status: 0 listed, also if no key is over its limit (--over); 1 a KEY, --mode
or --period matches nothing; 2 an error. Where a file is damaged, the others are
listed all the same.

JSON: an array of objects. {}",
        keys::HELP,
        record::JSON_HELP
    )
}

/// What comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Sort {
    /// The highest rate
    Rate,
    /// The largest share of its limit
    Share,
    /// The latest
    Seen,
    /// The first in the alphabet
    Key,
}

impl Sort {
    /// What `record` is sorted by at `now`, the highest first; nothing where it
    /// is its key.
    fn rank(self, record: &Record, now: Timestamp) -> f64 {
        match self {
            Self::Rate => record.rate(now),
            Self::Share => record.share(now),
            Self::Seen => record.average.at.as_seconds(),
            Self::Key => 0.0,
        }
    }
}

/// The first records, as `sort` has it, among those that are added.
pub(super) struct First {
    sort: Sort,
    now: Timestamp,
    most: usize,
    /// With their ranks, for to compute one anew for each comparison takes long.
    records: Vec<(f64, Record)>,
}

impl First {
    pub(super) fn new(sort: Sort, now: Timestamp, most: usize) -> Self {
        Self { sort, now, most, records: Vec::new() }
    }

    pub(super) fn add(&mut self, record: Record) {
        self.records.push((self.sort.rank(&record, self.now), record));
        // Rarely, so that it costs little for each.
        if self.records.len() >= self.most.saturating_mul(2).saturating_add(1000) {
            self.cut();
        }
    }

    fn cut(&mut self) {
        let now = self.now;
        self.records.sort_unstable_by(|(rank_a, a), (rank_b, b)| {
            rank_b
                .total_cmp(rank_a)
                .then_with(|| a.key().cmp(b.key()))
                .then_with(|| b.rate(now).total_cmp(&a.rate(now)))
                .then_with(|| a.stored.cmp(&b.stored))
        });
        self.records.truncate(self.most);
    }

    /// The records in order.
    pub(super) fn take(mut self) -> Vec<Record> {
        self.cut();
        self.records.into_iter().map(|(_, record)| record).collect()
    }
}

impl List {
    pub(super) fn run(&self, screen: &mut Screen<'_>) -> Result<Outcome, Failure> {
        let mut spool = self.common.open()?;
        let mut selection = Selection::new(&self.keys, &self.narrow)?;
        let now = now();
        let mut first = First::new(self.sort, now, self.limit.unwrap_or(usize::MAX));
        let unread = database::visit(&mut spool, |entry| {
            if selection.contains(&entry.key) {
                let record = Record::from(entry);
                if !self.over || record.is_over(now) {
                    first.add(record);
                }
            }
        })?;
        let records = first.take();
        self.print(screen, &records, now)?;
        // What could be read comes first, and whole.
        screen.flush()?;
        database::incomplete(unread)?;
        let missing = selection.report_missing(&mut spool)?;
        if records.is_empty() && self.over && !missing && !self.common.json {
            note("no key is over its limit");
        }
        Ok(Outcome::found_if(missing))
    }

    fn print(
        &self,
        screen: &mut Screen<'_>,
        records: &[Record],
        now: Timestamp,
    ) -> Result<(), Failure> {
        if self.common.json {
            let facts = records.iter().map(|record| record.facts(now));
            serde_json::Serializer::new(&mut *screen)
                .collect_seq(facts)
                .map_err(std::io::Error::from)?;
            writeln!(screen)?;
        } else if !records.is_empty() {
            let layout = Layout::of(screen, COLUMNS, records.iter().map(|r| cells(r, now)));
            layout.head(screen)?;
            for alike in records.chunk_by(|a, b| a.is_over(now) == b.is_over(now)) {
                let over = alike.first().is_some_and(|record| record.is_over(now));
                let style = if over { OVER } else { Style::new() };
                layout.write(screen, style, alike.iter().map(|r| cells(r, now)), None)?;
            }
        }
        Ok(())
    }
}

/// How a key is shown that is over its limit.
pub(super) const OVER: Style = AnsiColor::Red.on_default();

/// The columns of [`cells`].
pub(super) const COLUMNS: [Column; 10] = [
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

/// A record as a line of a table.
pub(super) fn cells(record: &Record, now: Timestamp) -> [String; 10] {
    let or_unknown = |text: Option<String>| text.unwrap_or_else(|| "?".to_owned());
    let filter = match &record.filter {
        None => String::new(),
        Some(_) if record.filter_expired(now) => "expired".to_owned(),
        Some(filter) => format!("{:.1}% ~{:.0}", filter.fill * 100.0, filter.events()),
    };
    let over = record.is_over(now);
    let since = record.over_since().filter(|_| over);
    let free = if over { record.wait(now).map(text::rough_wait) } else { None };
    [
        format!("{:.1}", record.rate(now)),
        text::number(record.limit),
        text::percent(record.share(now)),
        or_unknown(record.period_text()),
        or_unknown(record.mode()),
        text::rough_age(record.average.at, now),
        since.map_or_else(String::new, |since| text::rough_age(since, now)),
        free.unwrap_or_default(),
        filter,
        key_text::shown(record.key()),
    ]
}
