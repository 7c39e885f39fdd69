//! The latest check of a spec, as `ratelimit_info` and the socket's replies show it.

use super::explain;
use super::info::Field;
use crate::engine::{Decision, Update};
use crate::rate::{Timestamp, Wait};
use crate::spec::Mode;

/// All fields of `ratelimit_info`.
pub const CHECK_FIELDS: &str = "rate, limit, period, key, mode, over, crossed, override, count, remaining, \
                      retry_after, explain";

/// A check of a spec, and its decision.
#[derive(Clone, Debug, PartialEq)]
pub struct CheckInfo {
    /// The decision.
    pub decision: Decision,
    /// What is counted.
    pub mode: Mode,
    /// When it is counted.
    pub update: Update,
    /// The key as the administrator wrote it, or the default key.
    pub key: Vec<u8>,
    /// The limit as written.
    pub limit_text: Vec<u8>,
    /// The period as written.
    pub period_text: Vec<u8>,
}

impl CheckInfo {
    /// The field `name` as of `now`; `None` if there is none of that name.
    #[must_use]
    pub fn field(&self, name: &[u8], now: Timestamp) -> Option<Field<'_>> {
        let decision = &self.decision;
        Some(match name {
            b"rate" => Field::Rate(decision.rate),
            b"limit" => Field::Checked(&self.limit_text),
            b"period" => Field::Checked(&self.period_text),
            b"key" => Field::Unchecked(&self.key),
            b"mode" => Field::Checked(self.mode.word().as_bytes()),
            b"over" => Field::Checked(if decision.over { b"yes" } else { b"no" }),
            b"crossed" => Field::Checked(if decision.crossed { b"yes" } else { b"no" }),
            b"override" => {
                Field::Checked(decision.overridden.map_or(b"", |one| one.word().as_bytes()))
            }
            b"count" => Field::Size(decision.count),
            b"explain" => Field::Made(self.explanation(now)),
            b"remaining" if decision.remaining(now).is_infinite() => Field::Checked(b"unlimited"),
            b"remaining" => Field::Whole(decision.remaining(now)),
            b"retry_after" => match decision.retry_after(now) {
                Wait::Seconds(seconds) => Field::Whole(seconds.ceil()),
                Wait::Never => Field::Checked(b"never"),
            },
            _ => return None,
        })
    }

    /// The decision in a line.
    #[cold]
    fn explanation(&self, now: Timestamp) -> String {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let window = format!("{}/{}", text(&self.limit_text), text(&self.period_text));
        let what = format!("{} of {}", self.mode.word(), text(&self.key).escape_debug());
        explain::decided(&self.decision, &window, &what, now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{Details, Overridden};
    use crate::rate::Average;

    const NOW: Timestamp = Timestamp { seconds: 1_000_000, micros: 0 };

    /// Three events of one, just now, against a limit of five an hour.
    fn latest() -> CheckInfo {
        let at = NOW;
        let decision = Decision {
            rate: 3.0,
            over: false,
            algorithm: crate::engine::AlgorithmKind::MovingAverage,
            leak: 0.0,
            limit: 5.0,
            period: 3600.0,
            start: 0,
            restarts: 0,
            share: crate::rate::share::Counted::default(),
            count: 1.0,
            next_count: 1.0,
            at,
            kept: Some(Average { at, rate: 3.0 }),
            crossed: false,
            overridden: None,
            blocked: None,
            crossings: 0,
            details: Details::default(),
        };
        CheckInfo {
            decision,
            mode: Mode::PerRcpt,
            update: Update::Strict,
            key: b"alice@example.org".to_vec(),
            limit_text: b"5".to_vec(),
            period_text: b"1h".to_vec(),
        }
    }

    #[test]
    fn every_field_has_its_value() {
        let latest = latest();
        for (name, value) in [
            ("rate", Field::Rate(3.0)),
            ("limit", Field::Checked(b"5")),
            ("period", Field::Checked(b"1h")),
            ("key", Field::Unchecked(b"alice@example.org")),
            ("mode", Field::Checked(b"per_rcpt")),
            ("over", Field::Checked(b"no")),
            ("override", Field::Checked(b"")),
            ("crossed", Field::Checked(b"no")),
            ("count", Field::Size(1.0)),
            ("remaining", Field::Whole(2.0)),
            (" retry_after ", Field::Whole(0.0)),
        ] {
            assert_eq!(latest.field(name.trim().as_bytes(), NOW).unwrap(), value);
            assert!(CHECK_FIELDS.split(", ").any(|f| f == name.trim()));
        }
    }

    #[test]
    fn a_crossing_is_shown() {
        let mut latest = latest();
        latest.decision.crossed = true;
        assert_eq!(latest.field(b"crossed", NOW).unwrap(), Field::Checked(b"yes"));
    }

    #[test]
    fn an_override_is_shown() {
        let mut latest = latest();
        for (overridden, word) in [(Overridden::Allow, &b"allow"[..]), (Overridden::Deny, b"deny")]
        {
            latest.decision.overridden = Some(overridden);
            assert_eq!(latest.field(b"override", NOW).unwrap(), Field::Checked(word));
        }
    }

    #[test]
    fn an_event_as_large_as_the_limit_never_passes() {
        let mut latest = latest();
        latest.decision.next_count = 5.0;
        assert_eq!(latest.field(b"retry_after", NOW).unwrap(), Field::Checked(b"never"));
        assert_eq!(latest.field(b"remaining", NOW).unwrap(), Field::Whole(0.0));
        latest.decision.next_count = 0.0;
        assert_eq!(latest.field(b"remaining", NOW).unwrap(), Field::Checked(b"unlimited"));
    }

    #[test]
    fn there_is_no_other_field() {
        assert_eq!(latest().field(b"rates", NOW), None);
        for name in CHECK_FIELDS.split(", ") {
            assert!(latest().field(name.as_bytes(), NOW).is_some(), "{name}");
        }
    }

    #[test]
    fn waits_and_remaining_events_are_as_of_now() {
        let mut latest = latest();
        latest.decision.kept = Some(Average { at: NOW, rate: 7.0 });
        let foreseen = |seconds, name: &str| {
            let now = Timestamp { seconds: NOW.seconds + seconds, micros: 0 };
            latest.field(name.as_bytes(), now).unwrap()
        };
        let Field::Whole(wait) = foreseen(0, "retry_after") else { panic!("no number") };
        assert!(wait > 1000.0);
        assert_eq!(foreseen(1000, "retry_after"), Field::Whole(wait - 1000.0));
        assert_eq!(foreseen(0, "remaining"), Field::Whole(0.0));
        assert_eq!(foreseen(7200, "remaining"), Field::Whole(4.0));
    }
}
