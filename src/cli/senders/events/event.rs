//! A logged event, as it is shown and sent.

use serde::Serialize;

use crate::cli::shared::keys;
use crate::engine::AlgorithmKind;
use crate::rate::Timestamp;
use crate::spool::{Enforcement, EventKind, EventWindow, LoggedEvent};
use crate::standing::key_text;
use crate::store::DetailTexts;
use crate::text;

/// The first limit that was over.
pub(in crate::cli) fn decisive(event: &LoggedEvent) -> EventWindow {
    let over = event.windows.iter().find(|window| window.over);
    over.or(event.windows.first()).copied().unwrap_or_default()
}

/// Who was counted.
pub(in crate::cli) fn key(event: &LoggedEvent) -> &[u8] {
    key_text::key_of(&event.record_key())
}

/// The period, as the spec or the policy has it; of the calendar, its word: `daily`.
pub(in crate::cli) fn period(event: &LoggedEvent, window: &EventWindow) -> String {
    let key = event.record_key();
    let is_named = || is_of_calendar(window) || keys::period_of(&key) == Some(window.period);
    match key_text::period(&key) {
        Some(text) if is_named() => text::printable(text),
        _ => text::period(window.period),
    }
}

/// The period after a limit, in a sentence: `in 1d`; of the calendar, `daily`.
pub(in crate::cli) fn in_period(event: &LoggedEvent, window: &EventWindow) -> String {
    let period = period(event, window);
    if is_of_calendar(window) { period } else { format!("in {period}") }
}

fn is_of_calendar(window: &EventWindow) -> bool {
    window.algorithm == AlgorithmKind::Calendar
}

/// What follows the key of an event that is not held against it: ` (exempt)`.
pub(in crate::cli) fn mark(event: &LoggedEvent) -> String {
    match event.enforcement {
        Enforcement::Enforced => String::new(),
        other => format!(" ({})", other.word()),
    }
}

/// An event in JSON.
#[derive(Serialize)]
pub(in crate::cli) struct EventJson {
    event: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    server: Option<String>,
    time: String,
    key: Option<String>,
    key_hex: String,
    stored: String,
    number: Option<u32>,
    update: &'static str,
    enforcement: &'static str,
    limit: f64,
    period: f64,
    rate: f64,
    windows: Vec<WindowJson>,
    #[serde(flatten)]
    texts: DetailTexts<Option<String>>,
}

/// One limit in JSON.
#[derive(Serialize)]
struct WindowJson {
    limit: f64,
    period: f64,
    algorithm: &'static str,
    rate_before: f64,
    rate: f64,
    over: bool,
}

impl EventJson {
    /// An event of this server; empty stands for the own one.
    pub(in crate::cli) fn on(server: &str, event: &LoggedEvent) -> Self {
        Self { server: optional(server.as_bytes()), ..Self::of(event) }
    }

    pub(super) fn of(event: &LoggedEvent) -> Self {
        let window = decisive(event);
        let key = key(event);
        let windows = event.windows.iter().map(|window| WindowJson {
            limit: window.limit,
            period: window.period,
            algorithm: window.algorithm.word(),
            rate_before: window.before,
            rate: window.after,
            over: window.over,
        });
        Self {
            event: match event.kind {
                EventKind::Crossings => "crossing",
                EventKind::Refusals => "refusal",
            },
            server: None,
            time: text::iso(Timestamp { micros: 0, ..event.at }),
            key: std::str::from_utf8(key).ok().map(str::to_owned),
            key_hex: text::hex(key),
            stored: text::hex(&event.stored),
            number: (event.kind == EventKind::Crossings).then_some(event.number),
            update: if event.strict { "strict" } else { "leaky" },
            enforcement: event.enforcement.word(),
            limit: window.limit,
            period: window.period,
            rate: window.after,
            windows: windows.collect(),
            texts: event.texts.map(|text| optional(text)),
        }
    }
}

/// A text; `None` if it is empty.
fn optional(bytes: &[u8]) -> Option<String> {
    let text = || std::str::from_utf8(bytes).map_or_else(|_| text::printable(bytes), str::to_owned);
    (!bytes.is_empty()).then(text)
}
