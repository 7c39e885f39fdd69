//! A crossing or a refusal that was logged, in words.

use super::key_text;
use crate::engine::AlgorithmKind;
use crate::history::explain::past::{PastWindow, longest_wait};
use crate::history::explain::rule;
use crate::policy::explain::Measured;
use crate::rate::Wait;
use crate::spool::{EventWindow, LoggedEvent};
use crate::store::DetailTexts;
use crate::text;

/// The first limit that was over.
pub(crate) fn decisive(event: &LoggedEvent) -> EventWindow {
    let over = event.windows.iter().find(|window| window.over);
    over.or(event.windows.first()).copied().unwrap_or_default()
}

/// Who was counted.
pub(crate) fn key(event: &LoggedEvent) -> &[u8] {
    key_text::key_of(&event.record_key())
}

/// The period, as the spec or the policy has it; of the calendar, its word: `daily`.
pub(crate) fn period(event: &LoggedEvent, window: &EventWindow) -> String {
    let key = event.record_key();
    let is_named =
        || is_of_calendar(window) || key_text::period_seconds(&key) == Some(window.period);
    match key_text::period(&key) {
        Some(text) if is_named() => text::printable(text),
        _ => text::period(window.period),
    }
}

/// The period after a limit, in a sentence: `in 1d`; of the calendar, `daily`.
pub(crate) fn in_period(event: &LoggedEvent, window: &EventWindow) -> String {
    let period = period(event, window);
    if is_of_calendar(window) { period } else { format!("in {period}") }
}

fn is_of_calendar(window: &EventWindow) -> bool {
    window.algorithm == AlgorithmKind::Calendar
}

/// A limit of an event: see [`window_text`].
pub(crate) fn limit_text(event: &LoggedEvent, window: &EventWindow) -> String {
    window_text(window.limit, &period(event, window), window.algorithm)
}

/// `100/1h` or `500 daily`; of a bucket, its burst and in which time it leaks.
pub(crate) fn window_text(limit: f64, period: &str, algorithm: AlgorithmKind) -> String {
    let limit = text::number(limit);
    match algorithm {
        AlgorithmKind::MovingAverage => format!("{limit}/{period}"),
        AlgorithmKind::Bucket => format!("burst {limit}, leaking in {period}"),
        AlgorithmKind::Calendar => format!("{limit} {period}"),
        AlgorithmKind::Share => format!("{limit}%/{period}"),
    }
}

/// `policy outbound, which counts recipients; rule: default`.
pub(crate) fn by(event: &LoggedEvent) -> String {
    let DetailTexts { policy, rule, unit, .. } = event.texts.map(|text| text::printable(text));
    let record = event.record_key();
    if let Some([name, what, ..]) = rule::parts(&record) {
        let policy = if policy.is_empty() { text::printable(name.as_bytes()) } else { policy };
        let unit = if unit.is_empty() { text::printable(what.as_bytes()) } else { unit };
        let rule = if rule.is_empty() { "not known".to_owned() } else { rule };
        return format!("policy {policy}, which counts {}; rule: {rule}", unit.replace('_', " "));
    }
    let update = if event.strict { "strict" } else { "leaky" };
    let mode = key_text::parts(&record).map(|parts| text::printable(parts.mode));
    let window = decisive(event);
    let limit = text::number(window.limit);
    let period = period(event, &window);
    let mode = mode.map(|mode| format!(" / {mode}")).unwrap_or_default();
    format!("a ratelimit line: {limit} / {period}{mode} / {update}")
}

/// What an event did to its limits.
pub(crate) struct LoggedLimits {
    past: Vec<PastWindow>,
    texts: Vec<String>,
}

impl LoggedLimits {
    pub(crate) fn of(event: &LoggedEvent) -> Self {
        let past = PastWindow::all(event);
        let texts = past.iter().map(|past| limit_text(event, &past.logged)).collect();
        Self { past, texts }
    }

    /// Each limit, and the rate before and with the event.
    pub(crate) fn measured(&self) -> impl Iterator<Item = (Measured<'_>, Option<Wait>)> {
        self.past.iter().zip(&self.texts).map(|(past, window)| {
            let measured = Measured {
                window,
                algorithm: past.logged.algorithm,
                before: past.before,
                after: past.logged.after,
                limit: past.logged.limit,
                count: past.count,
                over: past.logged.over,
            };
            (measured, past.wait)
        })
    }

    /// How long after the event one of the same size would have passed all of them.
    pub(crate) fn wait(&self) -> Option<Wait> {
        longest_wait(&self.past)
    }
}
