//! A record in words.

use super::in_force::InForce;
use super::key_state::KeyState;
use super::key_text;
use super::logged::window_text;
use crate::engine::AlgorithmKind;
use crate::policy::explain::share_of;
use crate::rate::{Timestamp, Wait};
use crate::text;

/// A record: `alice@example.org (per_rcpt, 1h)`.
pub(crate) fn name(record: &KeyState) -> String {
    let key = key_text::title(record.key());
    match record.mode().zip(record.period_text()) {
        Some((mode, period)) => format!("{key} ({mode}, {period})"),
        None => key,
    }
}

/// How a record stands, or stood: `alice@example.org (per_rcpt, 1h): over the limit, rate 4.0, limit 3`.
pub(crate) fn stood(record: &KeyState, in_force: &InForce) -> String {
    let next = in_force.next(record);
    let state = if next.over { "over the limit" } else { "under the limit" };
    format!(
        "{}: {state}{}, rate {:.1}, limit {}",
        name(record),
        next.mark(),
        record.rate(in_force.now),
        text::number(record.limit)
    )
}

/// What a record that refuses holds against its key: `outbound/recipients: 112.8 of 100 in 1h (113%)`.
pub(crate) fn why(record: &KeyState, now: Timestamp) -> String {
    let used = used(record, now);
    record.mode().map_or_else(|| used.clone(), |mode| format!("{mode}: {used}"))
}

/// Why the next event of a record passes or is refused, in a sentence.
pub(crate) fn reason(record: &KeyState, in_force: &InForce) -> String {
    let (next, now) = (in_force.next(record), in_force.now);
    let used = used(record, now);
    match (next.why(), next.is_refused(), next.wait(record, now)) {
        (Some(why), ..) => format!("{why}; {used}"),
        (None, true, Some(Wait::Never)) => format!("{used}: no event ever passes"),
        (None, true, Some(wait)) => format!("{used}: the next passes {}", text::wait(wait)),
        _ => used,
    }
}

/// How much of its limit is used, whatever the algorithm: `4.0 of 3 in 1h (133%)`.
pub(crate) fn used(record: &KeyState, now: Timestamp) -> String {
    match record.algorithm {
        AlgorithmKind::MovingAverage => rate(record, now),
        AlgorithmKind::Bucket => level(record, now),
        AlgorithmKind::Calendar => count(record, now),
        AlgorithmKind::Share => share_of(record.shared(now), &limit_text(record)),
    }
}

fn limit_text(record: &KeyState) -> String {
    let period = record.period().map_or_else(String::new, text::whole_period);
    window_text(record.limit, &period, record.algorithm)
}

/// `4.0 of 3 in 1h (133%)`.
fn rate(record: &KeyState, now: Timestamp) -> String {
    let limit = text::number(record.limit);
    let Some(period) = record.period() else {
        return format!("unknown (its key names no period), limit {limit}");
    };
    let share = share(record, now);
    format!("{:.1} of {limit} in {}{share}", record.rate(now), text::whole_period(period))
}

/// `400 of 500 daily (80%)`.
fn count(record: &KeyState, now: Timestamp) -> String {
    let (count, limit) = (record.rate(now), text::number(record.limit));
    let word = record.period_text().unwrap_or_default();
    let share = share(record, now);
    format!("{count} of {limit} {word}{share}")
}

/// `4.0 of a burst of 5 (80%)`.
fn level(record: &KeyState, now: Timestamp) -> String {
    let (level, burst) = (record.rate(now), text::number(record.limit));
    let share = share(record, now);
    format!("{level:.1} of a burst of {burst}{share}")
}

/// ` (133%)`; nothing where that is no number.
fn share(record: &KeyState, now: Timestamp) -> String {
    let share = record.share(now);
    if share.is_finite() { format!(" ({})", text::percent(share)) } else { String::new() }
}
