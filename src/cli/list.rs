//! `exirate list`: every key that is remembered.

use std::io::Write;

use clap::Args;
use serde::Serialize;

use super::check::now;
use super::{Common, Failure, Outcome, complain, json, spool_dir, text};
use crate::rate::{Average, Timestamp, bloom};
use crate::spec::Filed;
use crate::spool::{Entry, Options, Spool, SpoolError};

/// Lists every key: its rate now, and what led to it
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  exirate list
  exirate list --json | jq '.[] | select(.rate >= .limit) | .key'
  exirate list --spool /var/spool/exim4

The busiest first. RATE is what is left of it now: it decays while nothing
comes. LIMIT is that of the check that was last counted. MODE is what the key is
filed under: per_byte under per_mail, recipients that count once under per_addr.
FILTER is how full a filter of unique events is, and how many it holds about.
Keys are escaped so that they cannot drive the terminal. Where a file is damaged,
the others are listed all the same; then the exit status is 2.

JSON: an array of objects. `period`, `rate` and `limit` are numbers, `limit` is
null where it is infinite. `key` is null where it is not UTF-8; `key_hex` has
its bytes in any case. `stored` is the whole stored key in hexadecimal.")]
pub(super) struct List {
    #[command(flatten)]
    common: Common,
}

/// One key, as JSON has it.
#[derive(Debug, Serialize)]
struct Row {
    key: Option<String>,
    key_hex: String,
    stored: String,
    mode: Option<String>,
    unique: bool,
    period: Option<f64>,
    period_text: Option<String>,
    limit: f64,
    rate: f64,
    last_rate: f64,
    last_seen: String,
    over_since: Option<String>,
    filter: Option<Filter>,
    #[serde(skip)]
    human: Human,
}

/// What the table shows otherwise.
#[derive(Debug)]
struct Human {
    key: String,
    age: String,
}

/// A filter of unique events.
#[derive(Debug, Serialize)]
struct Filter {
    bytes: usize,
    fill: f64,
    events: f64,
    since: String,
    expired: bool,
}

impl List {
    pub(super) fn run(&self, out: &mut impl Write) -> Result<Outcome, Failure> {
        let dir = spool_dir::find(self.common.spool.as_deref())?;
        let (rows, unread) = match Spool::open_existing(&dir, Options::default()) {
            Ok(mut spool) => rows(&mut spool)?,
            Err(error @ SpoolError::Absent { .. }) => {
                complain(&format!("note: {error}"));
                (Vec::new(), 0)
            }
            Err(error) => return Err(Failure::new(error.to_string())),
        };
        if self.common.json {
            json(out, &rows)?
        } else {
            table(out, &rows)?
        }
        if unread > 0 {
            // What could be read comes first, and whole.
            out.flush()?;
            return Err(Failure::new(format!(
                "the list is not complete: {unread} of the 256 shards could not be read"
            )));
        }
        Ok(Outcome::Fine)
    }
}

/// Every key, the busiest first, and how many shards could not be read.
fn rows(spool: &mut Spool) -> Result<(Vec<Row>, usize), Failure> {
    let now = now();
    let mut rows = Vec::new();
    let left_out = spool
        .for_each(|entry| rows.push(Row::of(&entry, now)))
        .map_err(|error| Failure::new(error.to_string()))?;
    for error in &left_out.shards {
        complain(&error.to_string());
    }
    if left_out.damaged > 0 {
        complain(&format!("note: {} damaged records are left out", left_out.damaged));
    }
    rows.sort_by(|a, b| b.rate.total_cmp(&a.rate).then_with(|| a.stored.cmp(&b.stored)));
    Ok((rows, left_out.shards.len()))
}

impl Row {
    fn of(entry: &Entry, now: Timestamp) -> Self {
        let filed = Filed::parse(&entry.key);
        let period = filed.and_then(|filed| filed.period_seconds());
        let key = filed.map_or(&*entry.key, |filed| filed.key);
        let Average { at, rate } = entry.average;
        let decayed = period.map_or(rate, |period| entry.average.next(now, period, 0.0).rate);
        Row {
            key: String::from_utf8(key.to_vec()).ok(),
            key_hex: text::hex(key),
            stored: text::hex(&entry.key),
            mode: filed.map(|filed| text::printable(filed.mode)),
            unique: filed.is_some_and(|filed| filed.unique),
            period,
            period_text: filed.map(|filed| text::printable(filed.period)),
            limit: entry.limit,
            rate: decayed,
            last_rate: rate,
            last_seen: text::iso(at),
            over_since: (entry.over_since != 0)
                .then(|| text::iso(Timestamp { seconds: i64::from(entry.over_since), micros: 0 })),
            filter: entry.filter.as_ref().map(|filter| {
                let fill = bloom::fill(&filter.bits);
                Filter {
                    bytes: filter.bits.len(),
                    fill,
                    events: bloom::events(fill, filter.bits.len()),
                    since: text::iso(Timestamp { seconds: filter.epoch, micros: 0 }),
                    expired: period.is_some_and(|p| bloom::expired(filter.epoch, now, p)),
                }
            }),
            human: Human { key: text::printable(key), age: text::age(at, now) },
        }
    }

    fn cells(&self) -> [String; COLUMNS] {
        let or_unknown = |text: &Option<String>| text.clone().unwrap_or_else(|| "?".to_owned());
        let filter = match &self.filter {
            None => String::new(),
            Some(filter) if filter.expired => "expired".to_owned(),
            Some(filter) => format!("{:.1}% ~{:.0}", filter.fill * 100.0, filter.events),
        };
        [
            format!("{:.1}", self.rate),
            text::number(self.limit),
            or_unknown(&self.period_text),
            or_unknown(&self.mode),
            self.human.age.clone(),
            filter,
            self.human.key.clone(),
        ]
    }
}

const COLUMNS: usize = 7;
const HEAD: [&str; COLUMNS] = ["RATE", "LIMIT", "PERIOD", "MODE", "SEEN", "FILTER", "KEY"];
/// Columns of numbers, set flush right.
const RIGHT: [bool; COLUMNS] = [true, true, false, false, false, false, false];

fn table(out: &mut impl Write, rows: &[Row]) -> Result<(), Failure> {
    if rows.is_empty() {
        return Ok(());
    }
    let mut lines = vec![HEAD.map(str::to_owned)];
    lines.extend(rows.iter().map(Row::cells));
    let mut widths = [0; COLUMNS];
    for line in &lines {
        for (width, cell) in widths.iter_mut().zip(line) {
            *width = (*width).max(cell.chars().count());
        }
    }
    for line in &lines {
        let mut text = String::new();
        for ((cell, &width), right) in line.iter().zip(&widths).zip(RIGHT) {
            let pad = " ".repeat(width.saturating_sub(cell.chars().count()));
            let (before, after) = if right { (pad.as_str(), "") } else { ("", pad.as_str()) };
            text.extend([before, cell, after, "  "]);
        }
        writeln!(out, "{}", text.trim_end())?;
    }
    Ok(())
}
