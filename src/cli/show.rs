//! `exirate show`: everything that is remembered of a key.

use std::ffi::OsString;
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt as _;

use anstyle::Style;
use clap::Args;
use serde::Serialize;

use super::database::{self, Common, now};
use super::key_text;
use super::keys::{self, Narrow, Selection};
use super::list::OVER;
use super::record::{self, Facts, Record, later};
use super::screen::Screen;
use super::{Failure, Outcome, text};
use crate::rate::{Timestamp, Wait, bloom, remaining};
use crate::spool::Spool;

/// Shows everything of a key, and what the next event would get
#[derive(Debug, Args)]
#[command(after_help = help())]
pub(super) struct Show {
    /// Keys or globs
    #[arg(value_name = "KEY", required = true)]
    keys: Vec<OsString>,

    #[command(flatten)]
    narrow: Narrow,

    /// Asks whether this unique event, such as a recipient, was counted
    #[arg(long, value_name = "ADDRESS", allow_hyphen_values = true)]
    event: Option<OsString>,

    #[command(flatten)]
    common: Common,
}

/// What the help says besides the options.
fn help() -> String {
    format!(
        "Examples:
  Why is alice blocked, and for how long?
    exirate show alice@example.org
  Would bob be one more of the different people whom carol has written to?
    exirate show carol@example.org --mode per_addr --period 1h --event bob@example.net
  A client, as Exim's log shows it:
    exirate show '[192.0.2.7]'

{}

The next event is taken to be one of size 1, such as a message or a recipient
that has not been counted yet. For a key counted per_byte (filed under per_mail)
the next event is as large as the message: ask `exirate check SPEC --count BYTES
--dry-run`. A record is forgotten only when that could change no answer.

Exit status: 0 shown; 1 a KEY is not remembered; 2 an error.

JSON: an array of objects, as those of `exirate list`, and besides: `next` is what
one more event would get; `remaining` is how many more would pass right now;
`forgotten_from` is when the record may be dropped, if no more events come (null:
never); `event_seen` is null without --event or without a filter. {}",
        keys::HELP,
        record::JSON_HELP
    )
}

/// A record and what can be foreseen of it, as JSON has it.
#[derive(Serialize)]
struct Shown {
    #[serde(flatten)]
    facts: Facts,
    next: Next,
    remaining: Option<f64>,
    forgotten_from: Option<String>,
    event_seen: Option<bool>,
}

/// What the next event would get, as JSON has it.
#[derive(Serialize)]
struct Next {
    count: f64,
    rate: f64,
    over: bool,
}

impl Show {
    pub(super) fn run(&self, screen: &mut Screen<'_>) -> Result<Outcome, Failure> {
        let mut spool = self.common.open()?;
        let mut selection = Selection::new(&self.keys, &self.narrow)?;
        let (keys, unread) = selection.keys(&mut spool)?;
        let now = now();
        let mut records = Vec::with_capacity(keys.len());
        for key in &keys {
            // It may have been forgotten since.
            if let Some(entry) = spool.get(key)? {
                let record = Record::from(entry);
                let seen = match &self.event {
                    Some(event) => was_counted(&mut spool, &record, event.as_bytes(), now)?,
                    None => None,
                };
                records.push((record, seen));
            }
        }
        records.sort_by(|(a, _), (b, _)| b.share(now).total_cmp(&a.share(now)));
        if self.common.json {
            let shown: Vec<Shown> =
                records.iter().map(|(record, seen)| shown(record, *seen, now)).collect();
            screen.json(&shown)?;
        } else {
            for (place, (record, seen)) in records.iter().enumerate() {
                if place > 0 {
                    writeln!(screen)?;
                }
                self.tell(screen, record, *seen, now)?;
            }
        }
        screen.flush()?;
        let missing = selection.report_missing(&mut spool)?;
        database::incomplete(unread)?;
        Ok(Outcome::found_if(missing))
    }

    fn tell(
        &self,
        screen: &mut Screen<'_>,
        record: &Record,
        seen: Option<bool>,
        now: Timestamp,
    ) -> Result<(), Failure> {
        let (over, wait) = (record.is_over(now), record.wait(now));
        let style = if over { OVER.bold() } else { Style::new().bold() };
        let key = key_text::title(record.key());
        let verdict = match (over, wait) {
            (true, Some(Wait::Seconds(_))) => "one more event would be refused",
            (true, _) => "every event is refused",
            (false, _) => "under the limit",
        };
        writeln!(screen, "{}", screen.paint(style, format_args!("{key}: {verdict}")))?;
        let mut line = |name: &str, value: String| writeln!(screen, "  {name:<12}  {value}");
        line("rate now", rate(record, now))?;
        let at = record.average.at;
        line("last counted", format!("rate {:.1}, {}", record.average.rate, moment(at, now)))?;
        if let Some(since) = record.over_since() {
            if over {
                line("over since", moment(since, now))?;
            } else {
                line("was over", format!("at its last event, since {}", moment(since, now)))?;
            }
        }
        line("next event", next_event(record, now))?;
        if let (true, Some(wait)) = (over, wait) {
            line("free again", free(wait, now))?;
        }
        line("counts", counts(record))?;
        if let Some(filter) = record.filter {
            let (fill, events) = (filter.fill * 100.0, filter.events());
            line("filter", format!("{fill:.1}% full, holds about {events:.0} unique events"))?;
            line("  begun", moment(filter.since, now))?;
            if let Some(period) = record.period() {
                let end = later(filter.since, period as u64); // whole seconds
                let word = if record.filter_expired(now) { "ended, " } else { "" };
                line("  until", format!("{word}{}", moment(end, now)))?;
            }
        }
        if let Some(event) = &self.event {
            let event = text::printable(event.as_bytes());
            line("event", format!("{event} {}", counted(record, seen, now)))?;
        }
        line("forgotten", forgotten(record, now))?;
        line("stored as", key_text::stored(&record.stored))?;
        Ok(())
    }
}

/// `4.0 of 3 in 1h (133%)`.
fn rate(record: &Record, now: Timestamp) -> String {
    let limit = text::number(record.limit);
    let Some(period) = record.period() else {
        return format!("unknown (its key tells no period), limit {limit}");
    };
    let share = record.share(now);
    let share =
        if share.is_finite() { format!(" ({})", text::percent(share)) } else { String::new() };
    format!("{:.1} of {limit} in {}{share}", record.rate(now), text::duration(period))
}

fn next_event(record: &Record, now: Timestamp) -> String {
    let rate = record.rate_after(now, 1.0);
    let Some(period) = record.period() else { return "unknown".to_owned() };
    if !record.passes(rate) {
        return format!("would get rate {rate:.1}, over the limit");
    }
    let more = match remaining(Some(record.average), now, period, record.limit, 1.0) {
        1.0 => "only this one right now".to_owned(),
        more if more.is_finite() => format!("{more:.0} would pass right now"),
        _ => "any number would".to_owned(),
    };
    // So that nobody reads that 3.0 of 3 passes.
    let rate = match format!("{rate:.1}") {
        text if text.parse().is_ok_and(|rounded: f64| record.passes(rounded)) => text,
        _ => format!("just under {}", text::number(record.limit)),
    };
    format!("would get rate {rate} and pass; {more}")
}

fn free(wait: Wait, now: Timestamp) -> String {
    match text::whole_seconds(wait) {
        None => text::wait(wait),
        Some(seconds) => format!("{}, at {}", text::wait(wait), text::local(later(now, seconds))),
    }
}

/// What is counted, in words.
fn counts(record: &Record) -> String {
    let Some(filed) = record.filed() else { return "unknown".to_owned() };
    let what = match filed.mode {
        b"per_mail" if filed.unique => "messages with different unique= texts",
        b"per_mail" => "messages, or bytes: per_byte is filed under per_mail",
        b"per_addr" => "different recipients",
        b"per_rcpt" => "recipients",
        b"per_conn" => "connections",
        b"per_cmd" => "commands",
        _ => "an unknown mode",
    };
    format!("{what} ({})", text::printable(filed.mode))
}

/// Whether an event was counted, in words.
fn counted(record: &Record, seen: Option<bool>, now: Timestamp) -> &'static str {
    match seen {
        Some(true) => "was counted already, and does not count again in this period",
        Some(false) if record.filter_expired(now) => "would count: the filter's period is over",
        Some(false) => "was not counted in this period",
        None => "is not known: this key has no filter of unique events",
    }
}

fn forgotten(record: &Record, now: Timestamp) -> String {
    match record.forgettable_from() {
        None => "never".to_owned(),
        Some(from) if from <= now => "at the next clearing up".to_owned(),
        Some(from) => format!("{}, if nothing more comes", moment(from, now)),
    }
}

/// `2026-11-20 11:50:37 +01:00 (5 min ago)`.
fn moment(at: Timestamp, now: Timestamp) -> String {
    let age = if at > now {
        let seconds = (at.as_seconds() - now.as_seconds()).ceil();
        format!("in {}", text::duration(seconds))
    } else {
        text::age(at, now)
    };
    format!("{} ({age})", text::local(at))
}

fn shown(record: &Record, event_seen: Option<bool>, now: Timestamp) -> Shown {
    let rate = record.rate_after(now, 1.0);
    let remaining =
        record.period().map(|p| remaining(Some(record.average), now, p, record.limit, 1.0));
    Shown {
        facts: record.facts(now),
        next: Next { count: 1.0, rate, over: record.is_over(now) },
        remaining,
        forgotten_from: record.forgettable_from().map(text::iso),
        event_seen,
    }
}

/// Whether the unique event `text` was counted in the filter's period; `None`
/// where there is no filter. Exim writes the domain of an address in lower
/// case, so that is asked for as well.
fn was_counted(
    spool: &mut Spool,
    record: &Record,
    text: &[u8],
    now: Timestamp,
) -> Result<Option<bool>, Failure> {
    if record.filter.is_none() {
        return Ok(None);
    }
    let mut as_exim_has_it = text.to_vec();
    if let Some(at) = text.iter().rposition(|&b| b == b'@') {
        as_exim_has_it.iter_mut().skip(at).for_each(|b| b.make_ascii_lowercase());
    }
    let mut seen = false;
    for text in [text, &as_exim_has_it] {
        seen |= spool.peek(&record.stored, Some(text), |remembered, event| {
            let filter = remembered.and_then(|remembered| remembered.filter);
            filter.zip(event).is_some_and(|(filter, event)| bloom::contains(filter.bits, event))
        })?;
    }
    Ok(Some(seen && !record.filter_expired(now)))
}
