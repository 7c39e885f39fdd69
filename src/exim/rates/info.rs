//! `ratelimit_info{FIELD}`: the latest decision of this process.

use super::session::{CallError, Latest};
use crate::policy::explain;
use crate::rate::{Timestamp, Wait};

/// All fields, for the error that lists them.
const FIELDS: &str = "rate, limit, period, key, mode, over, crossed, override, count, remaining, \
                      retry_after, explain";

/// What a field holds.
#[derive(Debug, PartialEq)]
pub(in crate::exim) enum Field<'a> {
    /// A rate, printed as `$sender_rate` is.
    Rate(f64),
    /// A text that is a number, a time or a word; tainted unless it is plain.
    Checked(&'a [u8]),
    /// Any text: the key.
    Unchecked(&'a [u8]),
    /// A text that is made for the call; tainted.
    Made(String),
    /// Whole events or seconds.
    Whole(f64),
    /// A size, in its shortest form.
    Size(f64),
    /// A score, with three decimals.
    Score(f64),
}

/// The field `name` of the latest decision, as of `now`.
pub(in crate::exim) fn field<'a>(
    latest: Option<&'a Latest>,
    name: &[u8],
    now: Timestamp,
) -> Result<Field<'a>, CallError> {
    let name = name.trim_ascii();
    let Some(latest) = latest else {
        return known(name).and(Err(CallError::Usage(
            "ratelimit_info: no rate has been computed in this process yet (it describes the \
             latest call of ratelimit)"
                .into(),
        )));
    };
    let decision = &latest.decision;
    Ok(match name {
        b"rate" => Field::Rate(decision.rate),
        b"limit" => Field::Checked(&latest.limit_text),
        b"period" => Field::Checked(&latest.period_text),
        b"key" => Field::Unchecked(&latest.key),
        b"mode" => Field::Checked(latest.mode.word().as_bytes()),
        b"over" => Field::Checked(if decision.over { b"yes" } else { b"no" }),
        b"crossed" => Field::Checked(if decision.crossed { b"yes" } else { b"no" }),
        b"override" => Field::Checked(decision.overridden.map_or(b"", |one| one.word().as_bytes())),
        b"count" => Field::Size(decision.count),
        b"explain" => Field::Made(explanation(latest, now)),
        b"remaining" if decision.remaining(now).is_infinite() => Field::Checked(b"unlimited"),
        b"remaining" => Field::Whole(decision.remaining(now)),
        b"retry_after" => match decision.retry_after(now) {
            Wait::Seconds(seconds) => Field::Whole(seconds.ceil()),
            Wait::Never => Field::Checked(b"never"),
        },
        _ => return known(name).and(Err(unknown(name))),
    })
}

/// The decision in a line.
#[cold]
fn explanation(latest: &Latest, now: Timestamp) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let window = format!("{}/{}", text(&latest.limit_text), text(&latest.period_text));
    let what = format!("{} of {}", latest.mode.word(), text(&latest.key).escape_debug());
    explain::decided(&latest.decision, &window, &what, now)
}

fn known(name: &[u8]) -> Result<(), CallError> {
    let known = FIELDS.split(", ").any(|field| field.as_bytes() == name);
    if known { Ok(()) } else { Err(unknown(name)) }
}

fn unknown(name: &[u8]) -> CallError {
    let name = name[..name.len().min(40)].escape_ascii();
    CallError::Usage(format!("ratelimit_info: unknown field \"{name}\" (one of: {FIELDS})").into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{Decision, Details, Overridden, Update};
    use crate::rate::Average;
    use crate::spec::Mode;

    const NOW: Timestamp = Timestamp { seconds: 1_000_000, micros: 0 };

    /// Three events of one, just now, against a limit of five an hour.
    fn latest() -> Latest {
        let at = NOW;
        let decision = Decision {
            rate: 3.0,
            over: false,
            algorithm: crate::engine::AlgorithmKind::MovingAverage,
            leak: 0.0,
            limit: 5.0,
            period: 3600.0,
            count: 1.0,
            next_count: 1.0,
            at,
            kept: Some(Average { at, rate: 3.0 }),
            crossed: false,
            overridden: None,
            crossings: 0,
            details: Details::default(),
        };
        Latest {
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
            assert_eq!(field(Some(&latest), name.as_bytes(), NOW).unwrap(), value);
            assert!(FIELDS.split(", ").any(|f| f == name.trim()));
        }
    }

    #[test]
    fn a_crossing_is_shown() {
        let mut latest = latest();
        latest.decision.crossed = true;
        assert_eq!(field(Some(&latest), b"crossed", NOW).unwrap(), Field::Checked(b"yes"));
    }

    #[test]
    fn an_override_is_shown() {
        let mut latest = latest();
        for (overridden, word) in [(Overridden::Allow, &b"allow"[..]), (Overridden::Deny, b"deny")]
        {
            latest.decision.overridden = Some(overridden);
            assert_eq!(field(Some(&latest), b"override", NOW).unwrap(), Field::Checked(word));
        }
    }

    #[test]
    fn an_event_as_large_as_the_limit_never_passes() {
        let mut latest = latest();
        latest.decision.next_count = 5.0;
        assert_eq!(field(Some(&latest), b"retry_after", NOW).unwrap(), Field::Checked(b"never"));
        assert_eq!(field(Some(&latest), b"remaining", NOW).unwrap(), Field::Whole(0.0));
        latest.decision.next_count = 0.0;
        assert_eq!(field(Some(&latest), b"remaining", NOW).unwrap(), Field::Checked(b"unlimited"));
    }

    #[test]
    fn errors_name_the_fields() {
        let there_is = latest();
        let error = |latest, name: &[u8]| field(latest, name, NOW).unwrap_err().to_string();
        let unknown = error(Some(&there_is), b"ra\nte");
        assert_eq!(
            unknown,
            "ratelimit_info: unknown field \"ra\\nte\" (one of: rate, limit, period, key, mode, \
             over, crossed, override, count, remaining, retry_after, explain)"
        );
        assert!(error(None, b"rates").contains("unknown field \"rates\""));
        assert!(error(None, b"rate").contains("no rate has been computed in this process yet"));
    }

    #[test]
    fn waits_and_remaining_events_are_as_of_now() {
        let mut latest = latest();
        latest.decision.kept = Some(Average { at: NOW, rate: 7.0 });
        let foreseen = |seconds, name: &str| {
            let now = Timestamp { seconds: NOW.seconds + seconds, micros: 0 };
            field(Some(&latest), name.as_bytes(), now).unwrap()
        };
        let Field::Whole(wait) = foreseen(0, "retry_after") else { panic!("no number") };
        assert!(wait > 1000.0);
        assert_eq!(foreseen(1000, "retry_after"), Field::Whole(wait - 1000.0));
        assert_eq!(foreseen(0, "remaining"), Field::Whole(0.0));
        assert_eq!(foreseen(7200, "remaining"), Field::Whole(4.0));
    }
}
