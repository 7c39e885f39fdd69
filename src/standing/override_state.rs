//! Overrides as commands show them.

use schemars::JsonSchema;
use serde::Serialize;

use super::key_state::second;
use super::pattern;
use crate::engine::{AlgorithmKind, Kind, Overridden, RecordKey};
use crate::identity::Field;
use crate::identity::fold::{Folding, address, split_field};
use crate::identity::network::Cidr;
pub(crate) use crate::policy::word::DenialReply;
use crate::policy::word::Word as _;
use crate::store::{FOREVER, Inspect, InspectError, Override, Target, deciding};
use crate::text;

/// An override of limits.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct OverrideJson {
    /// allow or deny.
    r#override: &'static str,
    /// The key, as it was given.
    key: String,
    /// Of a denial: defer (the client may try again) or reject; null of a permission.
    reply: Option<&'static str>,
    /// Whether that is a glob.
    glob: bool,
    /// Whether it is for one name, byte for byte.
    exact: bool,
    /// When it ends; null if never.
    until: Option<String>,
    /// When it was set.
    since: String,
    /// Why.
    reason: String,
    /// Who did it.
    who: String,
}

impl OverrideJson {
    pub(crate) fn of(one: &Override) -> Self {
        let until = (one.until != FOREVER).then(|| text::iso_second(one.until));
        Self {
            r#override: one.overridden.word(),
            key: one.argument.clone(),
            reply: reply(one.overridden).map(|reply| reply.word()),
            glob: matches!(one.target, Target::Glob { .. }),
            exact: is_exact(one),
            until,
            since: text::iso_second(one.since),
            reason: one.reason.clone(),
            who: one.who.clone(),
        }
    }
}

impl DenialReply {
    /// That of a denial of `target` until then, which names none: a login without an end is
    /// rejected, as the program of who has stolen it would try for days. What ends, and what may be
    /// the mail of others (a client relays it), is to come again.
    pub(crate) fn by_default(target: &Target, until: i64) -> Self {
        let is_login = match target {
            Target::Glob { .. } => false,
            Target::Exact { key, .. } => match split_field(key) {
                Some((field, _)) => Field::of(field) == Some(Field::Auth),
                None => {
                    let text = String::from_utf8_lossy(key);
                    address(&text).is_none() && Cidr::parse(&text).is_err()
                }
            },
        };
        if is_login && until == FOREVER { Self::Reject } else { Self::Defer }
    }

    /// What it means, for people.
    pub(crate) fn sentence(self) -> &'static str {
        match self {
            Self::Defer => "its mail is deferred (451): programs try again",
            Self::Reject => "its mail is rejected (550): programs do not try again",
        }
    }
}

/// The reply of a denial.
pub(crate) fn reply(overridden: Overridden) -> Option<DenialReply> {
    match overridden {
        Overridden::Allow => None,
        Overridden::Deny => Some(DenialReply::Defer),
        Overridden::Reject => Some(DenialReply::Reject),
    }
}

/// Whether it is for one name, byte for byte.
fn is_exact(one: &Override) -> bool {
    matches!(one.target, Target::Exact { folding: None, .. })
}

/// KEY and how it was given.
pub(crate) fn key(one: &Override) -> String {
    let exact = if is_exact(one) { " --exact" } else { "" };
    format!("{}{exact}", one.argument)
}

/// When it ends: a time, for logs.
pub(crate) fn until(one: &Override) -> String {
    if one.until == FOREVER { "forever".to_owned() } else { text::iso_second(one.until) }
}

/// When it ends, for people.
pub(crate) fn local_until(one: &Override) -> String {
    if one.until == FOREVER { "forever".to_owned() } else { text::local(second(one.until)) }
}

/// Changes the overrides of a store in one step. Returns what `change` does; it may be called
/// again with the list as it is then, if others change it at the same time.
///
/// # Errors
/// They could not be read or written; they are unchanged.
pub(crate) fn change<T>(
    store: &mut dyn Inspect,
    mut change: impl FnMut(&mut Vec<Override>) -> T,
) -> Result<T, InspectError> {
    let mut result = None;
    store.change_overrides(&mut |list| result = Some(change(list)))?;
    result.ok_or_else(|| "the overrides were not changed".into())
}

/// Folds the names of all overrides so; those set with --exact stay as they are.
///
/// # Errors
/// They could not be read or written; they are unchanged.
pub(crate) fn refold(store: &mut dyn Inspect, folding: &Folding) -> Result<(), InspectError> {
    change(store, |list| {
        for one in list.iter_mut().filter(|one| !is_exact(one)) {
            let argument = one.argument.as_bytes();
            if let Ok((target, _)) = pattern::override_target(argument, false, folding) {
                one.target = target;
            }
        }
    })
}

/// `allowed` or `denied`.
pub(crate) fn participle(overridden: Overridden) -> &'static str {
    match overridden {
        Overridden::Allow => "allowed",
        Overridden::Deny | Overridden::Reject => "denied",
    }
}

/// `alice@example.org is allowed until 2026-12-31 18:00:00 CET (year-end letter)`.
pub(crate) fn sentence(one: &Override) -> String {
    format!("{} is {}", key(one), end(one))
}

/// The override that decides in this second for the key of `set`, if it is another and
/// decides otherwise. Of what a glob matches, some may have one and others not.
pub(crate) fn stronger<'a>(
    list: &'a [Override],
    set: &Override,
    second: i64,
) -> Option<&'a Override> {
    of_target(list, &set.target, second).filter(|one| one.overridden != set.overridden)
}

/// The override that decides in this second for the one identity of `target`.
pub(crate) fn of_target<'a>(
    list: &'a [Override],
    target: &Target,
    second: i64,
) -> Option<&'a Override> {
    let Target::Exact { key, .. } = target else { return None };
    deciding(list, &record_of(key), second)
}

/// Whether `target` means this override: the same identity, or one that it matches.
pub(crate) fn covers(target: &Target, one: &Override) -> bool {
    match &one.target {
        _ if one.target == *target => true,
        Target::Exact { key, .. } => target.applies_to(&record_of(key)),
        Target::Glob { .. } => false,
    }
}

/// The key that a record of the identity `name` has; one of fields is that of a policy.
pub(super) fn record_of(name: &[u8]) -> RecordKey<'_> {
    let is_field = split_field(name).is_some();
    let kind = if is_field { Kind::Policy } else { Kind::Spec };
    RecordKey { name, identity_start: 0, kind, algorithm: AlgorithmKind::default() }
}

/// `allowed until 2026-12-31 18:00:00 CET (year-end letter)`.
pub(crate) fn end(one: &Override) -> String {
    let until = match one.until {
        FOREVER => "forever".to_owned(),
        _ => format!("until {}", local_until(one)),
    };
    let why = match &*one.reason {
        "" => String::new(),
        reason => format!(" ({})", text::printable(reason.as_bytes())),
    };
    format!("{} {until}{why}", participle(one.overridden))
}
