//! Overrides as commands show them.

use serde::Serialize;

use super::key_state::KeyState;
use super::screen::note;
use super::text;
use crate::engine::{AlgorithmKind, Forced, Kind, RecordKey};
use crate::rate::Timestamp;
use crate::store::{FOREVER, Inspect, InspectError, Override, Target, deciding};

/// An override, in JSON.
#[derive(Serialize)]
pub(super) struct OverrideJson {
    #[serde(rename = "override")]
    forced: &'static str,
    key: String,
    glob: bool,
    ignore_case: bool,
    until: Option<String>,
    since: String,
    reason: String,
    who: String,
}

impl OverrideJson {
    pub(super) fn of(one: &Override) -> Self {
        let until = (one.until != FOREVER).then(|| text::iso(second(one.until)));
        Self {
            forced: one.forced.word(),
            key: one.argument.clone(),
            glob: matches!(one.target, Target::Glob { .. }),
            ignore_case: ignores_case(one),
            until,
            since: text::iso(second(one.since)),
            reason: one.reason.clone(),
            who: one.who.clone(),
        }
    }
}

fn ignores_case(one: &Override) -> bool {
    let (Target::Exact { ignore_case, .. } | Target::Glob { ignore_case, .. }) = &one.target;
    *ignore_case
}

fn second(second: i64) -> Timestamp {
    Timestamp { seconds: second, micros: 0 }
}

/// KEY and how it was given.
pub(super) fn key(one: &Override) -> String {
    let case = if ignores_case(one) { " --ignore-case" } else { "" };
    format!("{}{case}", one.argument)
}

/// When it ends: a time, for logs.
pub(super) fn until(one: &Override) -> String {
    if one.until == FOREVER { "forever".to_owned() } else { text::iso(second(one.until)) }
}

/// When it ends, for people.
pub(super) fn local_until(one: &Override) -> String {
    if one.until == FOREVER { "forever".to_owned() } else { text::local(second(one.until)) }
}

/// The overrides of a store that are in force, for showing them beside keys.
#[derive(Default)]
pub(super) struct Active {
    list: Vec<Override>,
    now: i64,
}

impl Active {
    /// # Errors
    /// They cannot be read.
    pub(super) fn of(store: &mut dyn Inspect, now: Timestamp) -> Result<Self, InspectError> {
        Ok(Self { list: store.overrides()?, now: now.seconds })
    }

    /// As [`Active::of`]; if they cannot be read, reports why and shows none.
    pub(super) fn or_note(store: &mut dyn Inspect, now: Timestamp) -> Self {
        Self::of(store, now).unwrap_or_else(|error| {
            note(error);
            Self::default()
        })
    }

    /// The override that decides for the key of a record.
    pub(super) fn deciding(&self, record: &KeyState) -> Option<&Override> {
        deciding(&self.list, &record.record_key(), self.now)
    }
}

/// Changes the overrides of a store in one step. Returns what `change` does; it may be called
/// again with the list as it is then, if others change it at the same time.
///
/// # Errors
/// They could not be read or written; they are unchanged.
pub(super) fn change<T>(
    store: &mut dyn Inspect,
    mut change: impl FnMut(&mut Vec<Override>) -> T,
) -> Result<T, InspectError> {
    let mut result = None;
    store.change_overrides(&mut |list| result = Some(change(list)))?;
    result.ok_or_else(|| "the overrides were not changed".into())
}

/// `allowed` or `denied`.
pub(super) fn participle(forced: Forced) -> &'static str {
    match forced {
        Forced::Allow => "allowed",
        Forced::Deny => "denied",
    }
}

/// `alice@example.org is allowed until 2026-12-31 18:00:00 +01:00 (year-end letter)`.
pub(super) fn sentence(one: &Override) -> String {
    format!("{} is {}", key(one), end(one))
}

/// The override that decides in this second for the key of `set`, if it is another and
/// decides otherwise. Of what a glob matches, some may have one and others not.
pub(super) fn stronger<'a>(
    list: &'a [Override],
    set: &Override,
    second: i64,
) -> Option<&'a Override> {
    let Target::Exact { key, .. } = &set.target else { return None };
    let (kind, algorithm) = (Kind::Spec, AlgorithmKind::default());
    let key = RecordKey { name: key, identity_start: 0, kind, algorithm };
    deciding(list, &key, second).filter(|one| one.forced != set.forced)
}

/// `allowed until 2026-12-31 18:00:00 +01:00 (year-end letter)`.
pub(super) fn end(one: &Override) -> String {
    let until = match one.until {
        FOREVER => "forever".to_owned(),
        _ => format!("until {}", local_until(one)),
    };
    let why = match &*one.reason {
        "" => String::new(),
        reason => format!(" ({})", text::printable(reason.as_bytes())),
    };
    format!("{} {until}{why}", participle(one.forced))
}
