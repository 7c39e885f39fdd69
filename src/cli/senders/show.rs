//! `exirate show`: all details of a key.

use std::ffi::OsString;
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt as _;

use anstyle::Style;
use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;

use super::list::OVER;
use crate::cli::shared::keys::{self, Narrow, Selection};
use crate::cli::shared::rates::Rates;
use crate::cli::shared::screen::{Screen, note, noted};
use crate::cli::shared::{complete, database, hold_queue};
use crate::cli::{Failure, Json, Outcome};
use crate::engine::AlgorithmKind;
use crate::mta::held::HeldMail;
use crate::rate::{Timestamp, Wait};
use crate::standing::held::HeldMessage;
use crate::standing::in_force::{By, InForce, NextEvent};
use crate::standing::key_state::{KeyState, KeyStateJson, later, passes, second};
use crate::standing::override_state::OverrideJson;
use crate::standing::totals::{self, Totals};
use crate::standing::usage::UsageReader;
use crate::standing::{key_text, words};
use crate::store::{Inspect, OwnedKey};
use crate::text;

/// Show all details of a key, and the decision on its next event
#[derive(Debug, Args)]
#[command(after_help = help(), add = Json::of::<Vec<Shown>>())]
pub(in crate::cli) struct Show {
    /// Show these keys or globs
    #[arg(value_name = "KEY", required = true, add = complete::keys())]
    keys: Vec<OsString>,

    #[command(flatten)]
    narrow: Narrow,

    /// Show whether this unique event, such as a recipient, was counted
    #[arg(long, value_name = "ADDRESS", allow_hyphen_values = true)]
    event: Option<OsString>,

    #[command(flatten)]
    common: Rates,
}

/// What the help says besides the options.
fn help() -> String {
    format!(
        "Examples:
  Why is alice blocked, and for how long?
    exirate show alice@example.org
  Has carol's limit on different recipients counted bob in this hour?
    exirate show carol@example.org --mode per_addr --period 1h --event bob@example.net
  Show a client, in the notation of Exim's log:
    exirate show '[192.0.2.7]'

{key} The next event is assumed to be of size 1, such as a
message, or a recipient that has not been counted yet.

Exit status: 0 shown; 1 a KEY matches nothing, or a record is gone; 2 an error.

{manual}

The next event is assumed to be of size 1, such as a message, or a recipient that has not been
counted yet. For a key counted per_byte (stored as per_mail) the next event is as large as the
message: use `exirate check SPEC --cost BYTES`. A record is dropped only when that cannot change a
decision any more. For a leaky bucket, the level, the burst and the leak are shown in place of
rate, limit and period; for a limit by the calendar, the count and its window. Where an override
(`exirate allow`, `exirate deny`) decides, or the policy in use exempts the key, only observes or
does not refuse, that is shown; all else is what is measured. The totals of its domain and its
customer are shown as well; where one of them refuses, the next event is refused. Messages of KEY
that policies hold are counted, if this user may read the mail server's queue. The last line is what
KEY has sent today and yesterday: `exirate usage`.",
        key = keys::HELP,
        manual = keys::MANUAL
    )
}

/// A record and its prospects, in JSON.
#[derive(Serialize, JsonSchema)]
struct Shown {
    #[serde(flatten)]
    facts: KeyStateJson,
    /// The result of one more event.
    next: Next,
    /// What decides instead of the rate.
    why: Option<String>,
    /// How many more would pass now.
    remaining: Option<f64>,
    /// When the record may be dropped, if no more events come; null: never.
    forgotten_from: Option<String>,
    /// Null without --event or without a filter.
    event_seen: Option<bool>,
    /// The keys of the totals that refuse the event as well, whatever the rate of this key.
    refused_by: Vec<String>,
    /// How many of its messages policies hold; null where this user cannot read the mail server's
    /// queue.
    held: Option<usize>,
    /// How many of its messages wait for room within a limit at delivery; null as with held.
    waiting: Option<usize>,
    #[serde(rename = "override")]
    overridden: Option<OverrideJson>,
}

/// The result of the next event, in JSON.
#[derive(Serialize, JsonSchema)]
struct Next {
    count: f64,
    rate: f64,
    over: bool,
}

impl Show {
    pub(in crate::cli) fn run(&self, screen: &mut Screen<'_>) -> Result<Outcome, Failure> {
        let mut store = self.common.open()?;
        let folding = self.common.folding()?;
        let mut selection = Selection::new(&self.keys, &self.narrow, &folding)?;
        let (mut keys, mut unread) = selection.keys(&mut *store)?;
        let in_force = noted(InForce::of(&mut *store, &self.common.directory()?));
        if !self.common.json {
            let arguments = (&*self.keys, &self.narrow);
            let of = keys::of_missing(&mut *store, &in_force, &mut selection, arguments, &folding)?;
            keys.extend(of);
        }
        if !self.common.json
            && let Some(key) = selection.only_similar(&mut *store)?
        {
            selection = Selection::new(&[key], &self.narrow, &folding)?;
            (keys, unread) = selection.keys(&mut *store)?;
        }
        let now = in_force.now;
        let mut records = Vec::with_capacity(keys.len());
        for key in &keys {
            if let Some(entry) = store.get(key.key())? {
                let record = KeyState::from(entry);
                let seen = match &self.event {
                    Some(event) => was_counted(&mut *store, key, &record, event.as_bytes(), now)?,
                    None => None,
                };
                records.push((record, seen));
            }
        }
        let totals = Totals::of(&mut *store, &in_force, keys.iter().map(OwnedKey::key))?;
        records.sort_by(|(a, _), (b, _)| b.share(now).total_cmp(&a.share(now)));
        let held = HeldMail::if_readable(&self.common.directory()?);
        if self.common.json {
            let shown = records.iter().map(|(record, seen)| {
                let refused_by = totals.refuse(&in_force, record);
                let of_key =
                    |all: &[HeldMessage]| all.iter().filter(|one| one.key == record.key()).count();
                Shown {
                    held: held.as_ref().map(|all| of_key(&all.messages)),
                    waiting: held.as_ref().map(|all| of_key(&all.waiting)),
                    ..shown(record, &in_force, *seen, refused_by)
                }
            });
            let shown: Vec<Shown> = shown.collect();
            screen.json(&shown)?;
        } else {
            for (index, (record, seen)) in records.iter().enumerate() {
                if index > 0 {
                    writeln!(screen)?;
                }
                self.print(screen, record, &in_force, *seen, &totals)?;
            }
            let usage = UsageReader::of(&self.common.directory()?, now);
            for line in usage.lines(&mut *store, keys.iter().map(OwnedKey::key))? {
                writeln!(screen, "{line}")?;
            }
            if let Some(held) = &held {
                let messages =
                    hold_queue::of_keys(held, &self.keys, self.narrow.is_exact(), &folding)?;
                hold_queue::print(screen, &messages, |words, key| {
                    self.common.commands().here(words, key)
                })?;
            }
        }
        screen.flush()?;
        let dropped = keys.len() - records.len();
        if dropped > 0 {
            let records = text::counted(dropped, "record was", "records were");
            note(format_args!("{records} dropped while this ran"));
        }
        let missing = selection.report_missing(&mut *store)?;
        database::incomplete(unread)?;
        Ok(Outcome::found_if(missing || dropped > 0))
    }

    fn print(
        &self,
        screen: &mut Screen<'_>,
        record: &KeyState,
        in_force: &InForce,
        seen: Option<bool>,
        totals: &Totals,
    ) -> Result<(), Failure> {
        let (next, now) = (&in_force.next(record), in_force.now);
        let refused_by = totals.refuse(in_force, record);
        let is_refused = next.is_refused() || !refused_by.is_empty();
        let over = next.over;
        let style = if is_refused { OVER.bold() } else { Style::new().bold() };
        let key = key_text::title(record.key());
        let state = state(record, next, &refused_by, now);
        writeln!(screen, "{}", screen.paint(style, format_args!("{key}: {state}")))?;
        let mut line = |name: &str, value: String| -> std::io::Result<()> {
            writeln!(screen, "  {name:<12}  {value}")
        };
        if let Some(why) = next.why() {
            let name = match &next.by {
                By::Override(_) => "override",
                By::Blocked(_) => "blocked",
                _ => "policy",
            };
            line(name, why)?;
        }
        counted_so_far(record, now, &mut line)?;
        if let Some(since) = record.over_since() {
            if over {
                line("over since", moment(since, now))?;
            } else {
                line("was over", format!("at its last event, since {}", moment(since, now)))?;
            }
        }
        line("next event", what_the_next_meets(record, next, &refused_by, now))?;
        if let (true, Some(wait)) = (next.is_refused(), next.wait(record, now)) {
            line("free again", passes(wait, now))?;
        }
        for total in totals.of_record(in_force, record) {
            line("total", of_total(total, in_force))?;
        }
        line("counts", counts(record))?;
        filter(record, now, &mut line)?;
        if let Some(event) = &self.event {
            let event = text::printable(event.as_bytes());
            line("event", format!("{event} {}", counted(record, seen, now)))?;
        }
        line("forgotten", forgotten(record, now))?;
        line("stored as", key_text::stored(&record.stored))?;
        Ok(())
    }
}

/// `over the limit, and exempt by the policy`
fn state(record: &KeyState, next: &NextEvent<'_>, refused_by: &[String], now: Timestamp) -> String {
    let state = match (next.over, record.wait(now)) {
        (true, Some(Wait::Seconds(_))) => "over the limit",
        (true, _) if next.is_refused() => "every event is refused",
        (true, _) => "every event is over the limit",
        (false, _) => "under the limit",
    };
    let but = match &next.by {
        By::Rate => String::new(),
        By::Override(_) => format!(", and{} by an override", next.mark().replace(['(', ')'], "")),
        By::Blocked(_) => ", and blocked by a crossing".to_owned(),
        By::Exempt(..) => ", and exempt by the policy".to_owned(),
        By::Observed(_) => ", and only observed by the policy".to_owned(),
        By::Accepted(..) => ", which the policy does not refuse".to_owned(),
        By::Removed => ", of a limit that is removed".to_owned(),
    };
    let too = match refused_by {
        [] => String::new(),
        names => format!(", and refused by {}", totals::called(names)),
    };
    format!("{state}{but}{too}")
}

/// Whether the next event is refused, by what, and what would be without that.
fn what_the_next_meets(
    record: &KeyState,
    next: &NextEvent<'_>,
    refused_by: &[String],
    now: Timestamp,
) -> String {
    let by_rate = next_event(record, now);
    if !refused_by.is_empty() && !next.is_refused() {
        let totals = totals::called(refused_by);
        return format!("refused by {totals}; by the rate of the key alone: {by_rate}");
    }
    let is_refused = next.is_refused() || !refused_by.is_empty();
    let what = if is_refused { "refused" } else { "passes" };
    match &next.by {
        By::Rate => by_rate,
        By::Blocked(_) => format!("{what}; without the block: {by_rate}"),
        By::Override(_) => format!("{what}; without the override: {by_rate}"),
        _ => format!("{what}; by the rate alone: {by_rate}"),
    }
}

/// A line of a record: its name and its value.
type WriteLine<'a> = dyn FnMut(&str, String) -> std::io::Result<()> + 'a;

/// What the algorithm of a record has counted.
fn counted_so_far(
    record: &KeyState,
    now: Timestamp,
    line: &mut WriteLine<'_>,
) -> std::io::Result<()> {
    let (at, last) = (record.average.at, record.average.rate);
    let is_bucket = record.algorithm == AlgorithmKind::Bucket;
    line(&format!("{} now", record.algorithm.measure()), words::used(record, now))?;
    if is_bucket {
        line("leak", leak(record))?;
    }
    if let Some(window) = record.window() {
        line("since", text::local(second(window.start)))?;
        line("until", moment(second(window.end), now))?;
    }
    let last = format!("{}, {}", record.algorithm.measured(last), moment(at, now));
    line(if is_bucket { "last checked" } else { "last counted" }, last)
}

/// The filter of a record of unique events.
fn filter(record: &KeyState, now: Timestamp, line: &mut WriteLine<'_>) -> std::io::Result<()> {
    if let Some(filter) = record.filter {
        let (fill, events) = (filter.fill * 100.0, filter.events());
        line("filter", format!("{fill:.1}% full, holds about {events:.0} unique events"))?;
        line("  started", moment(filter.since, now))?;
        if let Some(period) = record.period() {
            let end = record.window().map_or_else(
                || later(filter.since, period as u64), // whole seconds
                |window| second(window.end),
            );
            let word = if record.filter_expired(now) { "ended, " } else { "" };
            line("  until", format!("{word}{}", moment(end, now)))?;
        }
    }
    Ok(())
}

/// `customer:acme (out/messages, daily): over the limit; would pass in about 2h, at …`.
fn of_total(total: &KeyState, in_force: &InForce) -> String {
    let (next, now) = (in_force.next(total), in_force.now);
    let state = match (next.is_refused(), next.wait(total, now)) {
        (true, Some(wait)) => format!("refuses; would pass {}", passes(wait, now)),
        (true, None) => "refuses".to_owned(),
        (false, _) if next.why().is_some() => format!("passes{}", next.mark()),
        (false, _) => next_event(total, now),
    };
    format!("{}: {state}", words::name(total))
}

/// `1 in 10m, all of 5 in 50m`: how fast the bucket leaks.
fn leak(record: &KeyState) -> String {
    match record.bucket() {
        None => "unknown".to_owned(),
        Some(bucket) if bucket.rate <= 0.0 => "none".to_owned(),
        Some(bucket) if bucket.rate > 1.0 => {
            let period = text::whole_period(bucket.period());
            format!("{:.1} a second, a full bucket in {period}", bucket.rate)
        }
        Some(bucket) => {
            let (one, all) = (1.0 / bucket.rate, bucket.period());
            format!(
                "1 in {}, a full bucket in {}",
                text::whole_period(one),
                text::whole_period(all)
            )
        }
    }
}

fn next_event(record: &KeyState, now: Timestamp) -> String {
    let rate = record.rate_after(now, 1.0);
    let Some(more) = record.remaining(now) else { return "unknown".to_owned() };
    let measured = record.algorithm.measured(rate);
    if !record.passes(rate) {
        let over = match record.algorithm {
            AlgorithmKind::MovingAverage => ", at or over the limit",
            AlgorithmKind::Bucket => " would be over the burst",
            AlgorithmKind::Calendar => " would be over the limit",
            AlgorithmKind::Share => " is over the limit",
        };
        return format!("refused: {measured}{over}");
    }
    let more = match more {
        1.0 => "no more now".to_owned(),
        more if more.is_finite() => format!("{more:.0} would pass now"),
        _ => "any number would pass".to_owned(),
    };
    if record.algorithm != AlgorithmKind::MovingAverage {
        return format!("passes: {measured}; {more}");
    }
    // 3.0 of 3 would read as if it did not pass.
    let rate = match format!("{rate:.1}") {
        text if text.parse().is_ok_and(|rounded: f64| record.passes(rounded)) => text,
        _ => format!("just under {}", text::number(record.limit)),
    };
    format!("passes: rate {rate}; {more}")
}

/// What is counted, in words.
fn counts(record: &KeyState) -> String {
    let bucket = record.algorithm == AlgorithmKind::Bucket;
    if let Some(policy) = record.policy() {
        let counted = String::from_utf8_lossy(policy.counted).into_owned();
        let (name, unit) = counted.split_once('/').unwrap_or(("", &counted));
        let (name, unit) = (text::printable(name.as_bytes()), text::printable(unit.as_bytes()));
        let where_to = match record.algorithm {
            AlgorithmKind::MovingAverage | AlgorithmKind::Share => "",
            AlgorithmKind::Bucket => " in a leaky bucket",
            AlgorithmKind::Calendar => " by the calendar",
        };
        return format!("{unit} of policy {name}{where_to}");
    }
    if bucket {
        return "events in a leaky bucket".to_owned();
    }
    let Some(parts) = record.parts() else { return "unknown".to_owned() };
    let what = match parts.mode {
        b"per_mail" if parts.unique => "messages with different unique= texts",
        b"per_mail" => "messages, or bytes: per_byte is stored as per_mail",
        b"per_addr" => "different recipients",
        b"per_rcpt" => "recipients",
        b"per_conn" => "connections",
        b"per_cmd" => "commands",
        _ => "an unknown mode",
    };
    format!("{what} ({})", text::printable(parts.mode))
}

/// Whether an event was counted, in words.
fn counted(record: &KeyState, seen: Option<bool>, now: Timestamp) -> &'static str {
    match seen {
        Some(true) => "was counted: it does not count again in this period",
        Some(false) if record.filter_expired(now) => "would count: the filter's period is over",
        Some(false) => "was not counted in this period",
        None => "is unknown: this key has no filter of unique events",
    }
}

fn forgotten(record: &KeyState, now: Timestamp) -> String {
    match record.forgettable_from() {
        None => "never".to_owned(),
        Some(from) if from <= now => "at the next cleanup".to_owned(),
        Some(from) => format!("{}, if no more events come", moment(from, now)),
    }
}

/// `2026-11-20 11:50:37 CET (5m ago)`.
fn moment(at: Timestamp, now: Timestamp) -> String {
    let age = if at > now {
        let seconds = (at.as_seconds() - now.as_seconds()).ceil();
        format!("in {}", text::duration(seconds))
    } else {
        text::age(at, now)
    };
    format!("{} ({age})", text::local(at))
}

fn shown(
    record: &KeyState,
    in_force: &InForce,
    event_seen: Option<bool>,
    refused_by: Vec<String>,
) -> Shown {
    let (next, now) = (in_force.next(record), in_force.now);
    let rate = record.rate_after(now, 1.0);
    Shown {
        facts: in_force.json(record),
        next: Next { count: 1.0, rate, over: next.is_refused() },
        why: next.why(),
        remaining: next.remaining(record, now),
        forgotten_from: record.forgettable_from().map(text::iso),
        event_seen,
        refused_by,
        held: None,
        waiting: None,
        overridden: next.overridden().map(OverrideJson::of),
    }
}

/// Whether the unique event `text` was counted in the filter's period; `None`
/// where there is no filter. Exim writes the domain of an address in lower
/// case, so that form is tried as well.
fn was_counted(
    store: &mut dyn Inspect,
    key: &OwnedKey,
    record: &KeyState,
    text: &[u8],
    now: Timestamp,
) -> Result<Option<bool>, Failure> {
    if record.filter.is_none() {
        return Ok(None);
    }
    let mut lower_domain = text.to_vec();
    if let Some(at) = text.iter().rposition(|&b| b == b'@') {
        lower_domain.iter_mut().skip(at).for_each(|b| b.make_ascii_lowercase());
    }
    let mut seen = false;
    for text in [text, &lower_domain] {
        seen |= store.has_event(key.key(), text)?;
    }
    Ok(Some(seen && !record.filter_expired(now)))
}
