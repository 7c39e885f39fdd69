//! What is changed by hand: overrides, and records that are deleted.

use super::changer::Changer;
use super::key_state::KeyState;
use super::key_text;
use super::override_state::{self, record_of};
use crate::engine::Overridden;
use crate::identity::Field;
use crate::identity::fold::split_field;
use crate::store::{Inspect, InspectError, Override, OwnedKey, Target, deciding};
use crate::text;
use crate::toml_file::Word as _;

/// Up to this many records are logged one by one; of more, only what was asked for is, or they
/// would push everything else out of the log.
const LOGGED: usize = 100;

/// What an override that was set has replaced, and what is stronger.
#[derive(Debug)]
pub(crate) struct Set {
    /// The earlier override of the same key.
    pub(crate) replaced: Option<Override>,
    /// The one that decides instead.
    pub(crate) stronger: Option<Override>,
}

impl Set {
    /// `before: alice@example.org is denied until …`
    pub(crate) fn before(&self) -> Option<String> {
        self.replaced.as_ref().map(|one| format!("before: {}", override_state::sentence(one)))
    }
}

/// `no effect, as a stronger override applies to it: …`
pub(crate) fn no_effect(stronger: &Override) -> String {
    let sentence = override_state::sentence(stronger);
    format!("no effect, as a stronger override applies to it: {sentence}")
}

/// Why an override was not set.
#[derive(Debug)]
pub(crate) enum NotSet {
    /// This one stays: see [`in_the_way`].
    Stays(Box<Override>),
    /// The overrides could not be read or written; they are unchanged.
    Failed(InspectError),
}

/// Sets an override, and logs that; those that have ended are removed.
///
/// # Errors
/// It was not set.
pub(crate) fn set_override(
    store: &mut dyn Inspect,
    set: &Override,
    now: i64,
    by: &mut Changer,
) -> Result<Set, NotSet> {
    let changed = override_state::change(store, |list| {
        list.retain(|one| one.is_active(now));
        if let Some(stays) = in_the_way(list, &set.target, Some(set.overridden), now, by) {
            return Err(NotSet::Stays(Box::new(stays.clone())));
        }
        let same = list.iter().position(|one| one.has_target_of(set));
        let replaced = same.map(|at| list.remove(at));
        list.push(set.clone());
        Ok(Set { replaced, stronger: override_state::stronger(list, set, now).cloned() })
    });
    let changed = changed.map_err(NotSet::Failed)??;
    by.log(store, line_of_set(set));
    Ok(changed)
}

/// What came of ending an override.
#[derive(Debug)]
pub(crate) enum Ended {
    /// This one was ended.
    This(Override),
    /// None was; this one is there.
    Not(Option<Override>),
}

/// Ends the permission, or the denial, of `target`, and logs and returns it; else the override of
/// `target` that is there, if one is.
///
/// # Errors
/// The overrides could not be read or written; they are unchanged.
pub(crate) fn end_override(
    store: &mut dyn Inspect,
    target: &Target,
    denials: bool,
    now: i64,
    by: &mut Changer,
) -> Result<Ended, InspectError> {
    let ended = override_state::change(store, |list| {
        list.retain(|one| one.is_active(now));
        let is_meant = |one: &Override| {
            one.overridden.is_denial() == denials && !(denials && by.must_leave(one))
        };
        let same = list.iter().position(|one| one.target == *target);
        // A login is written with its domain and without.
        let at = same.or_else(|| {
            list.iter().position(|one| is_meant(one) && is_same_name(&one.target, target))
        });
        match at {
            Some(at) if list.get(at).is_some_and(is_meant) => Ended::This(list.remove(at)),
            at => Ended::Not(at.and_then(|at| list.get(at)).cloned()),
        }
    })?;
    if let Ended::This(one) = &ended {
        let (word, key) = (one.overridden.word(), override_state::key(one));
        by.log(store, format_args!("{word} --end key={key}"));
    }
    Ok(ended)
}

/// Whether both are of one name, which may be a local account's as well for one of them.
fn is_same_name(one: &Target, other: &Target) -> bool {
    match (one, other) {
        (
            Target::Exact { key, folding: Some(_), .. },
            Target::Exact { key: name, folding: Some(_), .. },
        ) => key == name,
        _ => false,
    }
}

/// The denial that somebody must leave alone, and that this override of `target`, or without one
/// an unblocking, would end, replace or outdo.
pub(crate) fn in_the_way<'a>(
    list: &'a [Override],
    target: &Target,
    overridden: Option<Overridden>,
    now: i64,
    by: &Changer,
) -> Option<&'a Override> {
    let left = |one: &&Override| one.is_active(now) && by.must_leave(one);
    if overridden.is_some_and(Overridden::is_denial) {
        return list.iter().filter(left).find(|one| one.target == *target);
    }
    let decides = || {
        let all = identities(target);
        all.iter().find_map(|name| deciding(list, &record_of(name), now).filter(left))
    };
    list.iter().filter(left).find(|one| override_state::covers(target, one)).or_else(decides)
}

/// What a target of one identity may be counted as: `alice`, and `auth:alice` and so on.
fn identities(target: &Target) -> Vec<Vec<u8>> {
    let Target::Exact { key, counted_as, .. } = target else { return Vec::new() };
    let mut all = Vec::new();
    for name in std::iter::once(key).chain(counted_as) {
        if split_field(name).is_none() {
            let fields = Field::ALL.iter().filter(|field| field.has_bare_names());
            all.extend(fields.map(|field| [field.word().as_bytes(), b":", name].concat()));
        }
        all.push(name.clone());
    }
    all
}

/// What the audit log says of an override that was set.
fn line_of_set(set: &Override) -> String {
    // A login may be written so: the reason is what follows the key.
    let key = override_state::key(set).replace(" reason=", "\\x20reason=");
    let until = override_state::until(set);
    let why = match &*set.reason {
        "" => String::new(),
        reason => format!(" reason={}", text::printable(reason.as_bytes())),
    };
    let reply = override_state::reply(set.overridden);
    let reply = reply.map_or_else(String::new, |reply| format!(" reply={}", reply.word()));
    format!("{} until={until}{reply} key={key}{why}", set.overridden.word())
}

/// Whether an override denies what `target` means.
pub(crate) fn is_denial_of(one: &Override, target: &Target, now: i64) -> bool {
    one.overridden.is_denial() && one.is_active(now) && override_state::covers(target, one)
}

/// Removes the denials that are meant, but for those that somebody must leave alone; logs and
/// returns them.
///
/// # Errors
/// The overrides could not be read or written; they are unchanged.
pub(crate) fn remove_denials(
    store: &mut dyn Inspect,
    is_meant: impl Fn(&Override) -> bool,
    by: &mut Changer,
) -> Result<Vec<Override>, InspectError> {
    let removed: Vec<Override> = override_state::change(store, |list| {
        list.extract_if(.., |one| is_meant(one) && !by.must_leave(one)).collect()
    })?;
    for one in &removed {
        by.log(store, format_args!("unblock removed=deny key={}", override_state::key(one)));
    }
    Ok(removed)
}

/// Deletes the records of these keys, and calls `visit` with each that was there. Logs each, or
/// how many they were of `what` was asked for.
///
/// # Errors
/// The store could not be used, or `visit` has failed: the rest is as before.
pub(crate) fn delete<E: From<InspectError>>(
    store: &mut dyn Inspect,
    keys: &[OwnedKey],
    what: &str,
    by: &mut Changer,
    mut visit: impl FnMut(KeyState) -> Result<(), E>,
) -> Result<(), E> {
    let mut count = 0;
    let mut delete = || {
        for key in keys {
            // It may have been dropped since.
            let Some(record) = store.remove(key.key())?.map(KeyState::from) else { continue };
            count += 1;
            if keys.len() <= LOGGED {
                let (rate, limit) = (record.average.rate, record.limit);
                let stored = key_text::stored(&record.stored);
                by.log(store, format_args!("unblock rate={rate} limit={limit} key={stored}"));
            }
            visit(record)?;
        }
        Ok(())
    };
    let result = delete();
    if keys.len() > LOGGED && count > 0 {
        by.log(store, format_args!("unblock records={count} of={what}"));
    }
    result
}
