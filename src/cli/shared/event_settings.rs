//! The settings of the event logs: `crossings.max_size`, `crossings.keep`, and those of the
//! refusals.

use schemars::JsonSchema;
use serde::Serialize;

use crate::cli::Failure;
use crate::spec::typed_period;
use crate::spool::{
    EVENT_BYTES_MAX, EVENT_BYTES_MIN, EVENT_KEEP_MIN, EventKind, EventLimits, EventReader,
    LogLimits, Spool,
};
use crate::text::time::now;
use crate::text::{self, bytes, parse_bytes};

/// The name of a log, as in its settings.
fn log_name(kind: EventKind) -> &'static str {
    match kind {
        EventKind::Crossings => "crossings",
        EventKind::Refusals => "refusals",
    }
}

/// The size limit or the age of an event log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cli) enum EventSetting {
    MaxSize(EventKind, u64),
    Keep(EventKind, Option<u64>),
}

impl EventSetting {
    /// Parses `value` if `name` is one of these settings.
    pub(in crate::cli) fn parse(name: &str, value: &str) -> Option<Result<Self, String>> {
        let of_log = |kind: EventKind| Some((kind, name.strip_prefix(log_name(kind))?));
        let (kind, what) = EventKind::ALL.into_iter().find_map(of_log)?;
        match what {
            ".max_size" => Some(size(name, value).map(|size| Self::MaxSize(kind, size))),
            ".keep" => Some(keep(name, value).map(|keep| Self::Keep(kind, keep))),
            _ => None,
        }
    }

    /// Its name.
    pub(in crate::cli) fn name(self) -> String {
        match self {
            Self::MaxSize(kind, _) => format!("{}.max_size", log_name(kind)),
            Self::Keep(kind, _) => format!("{}.keep", log_name(kind)),
        }
    }

    fn apply(self, limits: &mut EventLimits) {
        let (Self::MaxSize(kind, _) | Self::Keep(kind, _)) = self;
        let of_log = match kind {
            EventKind::Crossings => &mut limits.crossings,
            EventKind::Refusals => &mut limits.refusals,
        };
        match self {
            Self::MaxSize(_, size) => of_log.max_bytes = size,
            Self::Keep(_, keep) => of_log.keep = keep,
        }
    }
}

fn size(name: &str, value: &str) -> Result<u64, String> {
    match parse_bytes(value)? {
        size if (EVENT_BYTES_MIN..=EVENT_BYTES_MAX).contains(&size) => Ok(size),
        _ => {
            let [least, most] = [EVENT_BYTES_MIN, EVENT_BYTES_MAX].map(bytes);
            Err(format!("{name} must be at least {least}, and at most {most}"))
        }
    }
}

/// Parses how long events are kept, in seconds; `None` is for ever.
fn keep(name: &str, value: &str) -> Result<Option<u64>, String> {
    if value == "forever" {
        return Ok(None);
    }
    match typed_period(value) {
        Ok(seconds) if seconds >= EVENT_KEEP_MIN as f64 => Ok(Some(seconds as u64)),
        Ok(_) => Err(format!("{name} must be at least {}", text::duration(EVENT_KEEP_MIN as f64))),
        Err(_) => Err("expected a time, such as 12h or 30d, or `forever`".to_owned()),
    }
}

/// The settings of a log, in JSON.
#[derive(Serialize, JsonSchema)]
pub(in crate::cli) struct LogJson {
    /// In bytes.
    max_size: u64,
    /// In seconds; null: forever.
    keep: Option<u64>,
}

/// Name and value of each setting of a log, for people; and the log for JSON.
pub(in crate::cli) fn rows(limits: LogLimits, kind: EventKind) -> [(String, String); 2] {
    let LogLimits { max_bytes, keep } = limits;
    [
        (EventSetting::MaxSize(kind, 0).name(), bytes(max_bytes)),
        (EventSetting::Keep(kind, None).name(), text::kept(keep)),
    ]
}

impl LogJson {
    pub(in crate::cli) fn of(LogLimits { max_bytes, keep }: LogLimits) -> Self {
        Self { max_size: max_bytes, keep }
    }
}

/// The limits with these settings.
pub(in crate::cli) fn wanted(
    spool: &mut Spool,
    settings: &[EventSetting],
) -> Result<EventLimits, Failure> {
    let mut limits = spool.event_limits()?;
    settings.iter().for_each(|setting| setting.apply(&mut limits));
    Ok(limits)
}

/// The events that these limits would remove, in words.
pub(in crate::cli) fn removed_by(
    spool: &mut Spool,
    limits: &EventLimits,
) -> Result<Option<String>, Failure> {
    let before = spool.event_limits()?;
    let mut losses = Vec::new();
    for kind in EventKind::ALL {
        let (new, old) = (limits.of(kind), before.of(kind));
        if let Some(keep) = new.keep
            && old.keep.is_none_or(|old| keep < old)
        {
            let oldest = now().seconds.saturating_sub_unsigned(keep);
            let events = spool.read_events(&mut EventReader::new(kind), now(), true)?;
            let count = events.iter().filter(|event| event.at.seconds < oldest).count();
            if count > 0 {
                let age = text::kept(Some(keep));
                losses.push(format!("{count} of the {} are older than {age}", log_name(kind)));
            }
        }
        let disk = spool.event_bytes(kind)?;
        if new.max_bytes < old.max_bytes && disk > new.max_bytes {
            losses.push(format!(
                "the {} take {}, and the older ones would be removed",
                log_name(kind),
                bytes(disk)
            ));
        }
    }
    Ok((!losses.is_empty()).then(|| losses.join("; ")))
}

/// Sets the limits, and removes what has no room or is too old.
pub(in crate::cli) fn set(
    spool: &mut Spool,
    limits: EventLimits,
    changes: &mut Vec<String>,
) -> Result<(), Failure> {
    let before = spool.event_limits()?;
    if limits == before {
        return Ok(());
    }
    spool.set_event_limits(limits)?;
    for kind in EventKind::ALL {
        let ((new, old), log) = ((limits.of(kind), before.of(kind)), log_name(kind));
        if new.max_bytes != old.max_bytes {
            changes.push(format!("{log}.max_size={} (was {})", new.max_bytes, old.max_bytes));
        }
        if new.keep != old.keep {
            let [new, old] = [new.keep, old.keep].map(text::kept);
            changes.push(format!("{log}.keep={new} (was {old})"));
        }
    }
    Ok(spool.tidy_events(now())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_parsed_within_their_limits() {
        let parse = |text: &str| {
            let (name, value) = text.split_once('=').unwrap();
            EventSetting::parse(name, value)
        };
        let (crossings, refusals) = (EventKind::Crossings, EventKind::Refusals);
        for (text, expected) in [
            ("crossings.max_size=1M", EventSetting::MaxSize(crossings, 1 << 20)),
            ("refusals.max_size=64M", EventSetting::MaxSize(refusals, 64 << 20)),
            ("crossings.keep=1h", EventSetting::Keep(crossings, Some(3600))),
            ("refusals.keep=30d", EventSetting::Keep(refusals, Some(30 * 86_400))),
            ("refusals.keep=forever", EventSetting::Keep(refusals, None)),
        ] {
            assert_eq!(parse(text), Some(Ok(expected)), "{text}");
            assert_eq!(expected.name(), text.split_once('=').unwrap().0);
        }
        for (text, words) in [
            ("crossings.max_size=1023k", "crossings.max_size must be at least 1 MiB, and at most"),
            (
                "refusals.max_size=65M",
                "refusals.max_size must be at least 1 MiB, and at most 64 MiB",
            ),
            ("refusals.max_size=", "a number and its unit"),
            ("crossings.keep=59m", "crossings.keep must be at least 1h"),
            ("crossings.keep=soon", "expected a time, such as 12h or 30d, or `forever`"),
            ("crossings.keep=2000000w", "expected a time, such as 12h or 30d, or `forever`"),
        ] {
            let error = parse(text).unwrap().unwrap_err();
            assert!(error.contains(words), "{text}: {error}");
        }
        for text in ["crossings=1M", "trace.keep=1d", "refusals.size=1M", "=1M"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
