//! What is changed by hand: overrides, and records that are deleted.

use super::key_state::KeyState;
use super::key_text;
use super::override_state;
use crate::engine::Overridden;
use crate::store::{Inspect, InspectError, Override, OwnedKey, Target};
use crate::text;

/// What an override that was set has replaced, and what is stronger.
#[derive(Debug)]
pub(crate) struct Set {
    /// The earlier override of the same key.
    pub(crate) replaced: Option<Override>,
    /// The one that decides instead.
    pub(crate) stronger: Option<Override>,
}

/// Sets an override; those that have ended are removed.
///
/// # Errors
/// The overrides could not be read or written; they are unchanged.
pub(crate) fn set_override(
    store: &mut dyn Inspect,
    set: &Override,
    now: i64,
) -> Result<Set, InspectError> {
    override_state::change(store, |list| {
        list.retain(|one| one.is_active(now));
        let same = list.iter().position(|one| one.has_target_of(set));
        let replaced = same.map(|at| list.remove(at));
        list.push(set.clone());
        Set { replaced, stronger: override_state::stronger(list, set, now).cloned() }
    })
}

/// What the audit log says of an override that was set.
pub(crate) fn line_of_set(set: &Override) -> String {
    let (key, until) = (override_state::key(set), override_state::until(set));
    let why = match &*set.reason {
        "" => String::new(),
        reason => format!(" reason={}", text::printable(reason.as_bytes())),
    };
    format!("{} until={until} key={key}{why}", set.overridden.word())
}

/// Whether an override denies what `target` means.
pub(crate) fn is_denial_of(one: &Override, target: &Target, now: i64) -> bool {
    one.overridden == Overridden::Deny && one.is_active(now) && override_state::covers(target, one)
}

/// Removes the denials that `is_meant`, and returns them.
///
/// # Errors
/// The overrides could not be read or written; they are unchanged.
pub(crate) fn remove_denials(
    store: &mut dyn Inspect,
    is_meant: impl Fn(&Override) -> bool,
) -> Result<Vec<Override>, InspectError> {
    override_state::change(store, |list| list.extract_if(.., |one| is_meant(one)).collect())
}

/// What the audit log says of a denial that was removed.
pub(crate) fn line_of_removed(one: &Override) -> String {
    format!("unblock removed=deny key={}", override_state::key(one))
}

/// Deletes a record; `None` if it has been dropped meanwhile.
///
/// # Errors
/// The store could not be used; the record is unchanged.
pub(crate) fn delete(
    store: &mut dyn Inspect,
    key: &OwnedKey,
) -> Result<Option<KeyState>, InspectError> {
    Ok(store.remove(key.key())?.map(KeyState::from))
}

/// What the audit log says of a record that was deleted.
pub(crate) fn line_of_deleted(record: &KeyState) -> String {
    let (rate, limit) = (record.average.rate, record.limit);
    format!("unblock rate={rate} limit={limit} key={}", key_text::stored(&record.stored))
}
