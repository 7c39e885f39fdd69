//! A logged event, as it is shown and sent.

use schemars::JsonSchema;
use serde::Serialize;

use crate::rate::Timestamp;
use crate::spool::{Enforcement, EventKind, LoggedEvent};
use crate::standing::logged::{decisive, key};
use crate::store::DetailTexts;
use crate::text;

/// What follows the key of an event that is not held against it: ` (exempt)`.
pub(crate) fn mark(event: &LoggedEvent) -> String {
    match event.enforcement {
        Enforcement::Enforced => String::new(),
        other => format!(" ({})", other.word()),
    }
}

/// An event in JSON.
#[derive(Serialize, JsonSchema)]
pub(crate) struct EventJson {
    /// crossing or refusal.
    event: &'static str,
    /// Of the crossings of all servers.
    #[serde(skip_serializing_if = "Option::is_none")]
    server: Option<String>,
    time: String,
    /// As in `exirate list`.
    key: Option<String>,
    /// The bytes of the key, in hexadecimal.
    key_hex: String,
    /// The whole stored key, in hexadecimal.
    stored: String,
    /// Counts the crossings of the record; null: a refusal.
    number: Option<u32>,
    /// The update mode.
    update: &'static str,
    /// enforced, observed or exempt.
    enforcement: &'static str,
    /// Of the first limit that was over.
    limit: f64,
    /// In seconds.
    period: f64,
    rate: f64,
    /// All limits that were compared.
    windows: Vec<LimitJson>,
    /// When the block ends that the crossing has set, or `lifted`.
    #[serde(skip_serializing_if = "Option::is_none")]
    blocked_until: Option<String>,
    #[serde(flatten)]
    texts: DetailTexts<Option<String>>,
}

/// One limit in JSON.
#[derive(Serialize, JsonSchema)]
struct LimitJson {
    limit: f64,
    period: f64,
    /// average, bucket, calendar or share.
    algorithm: &'static str,
    rate_before: f64,
    rate: f64,
    over: bool,
}

impl EventJson {
    /// An event of this server; empty stands for the own one.
    pub(crate) fn on(server: &str, event: &LoggedEvent) -> Self {
        Self { server: optional(server.as_bytes()), ..Self::of(event) }
    }

    pub(super) fn of(event: &LoggedEvent) -> Self {
        let (window, blocked) = (decisive(event), event.blocked());
        let key = key(event);
        let windows = event.windows.iter().map(|window| LimitJson {
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
            blocked_until: blocked
                .map(|block| block.end().map_or_else(|| "lifted".to_owned(), text::iso_second)),
            texts: DetailTexts {
                // It says the same.
                evidence: optional(&event.texts.evidence).filter(|_| blocked.is_none()),
                ..event.texts.map(|text| optional(text))
            },
        }
    }
}

/// A text; `None` if it is empty.
fn optional(bytes: &[u8]) -> Option<String> {
    let text = || std::str::from_utf8(bytes).map_or_else(|_| text::printable(bytes), str::to_owned);
    (!bytes.is_empty()).then(text)
}
