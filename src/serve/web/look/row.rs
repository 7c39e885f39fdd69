//! A key as the API has it.

use crate::serve::web::api::types::Row;
use crate::standing::in_force::InForce;
use crate::standing::key_state::KeyState;
use crate::standing::key_text;
use crate::standing::override_state::{self, OverrideJson};
use crate::standing::words;
use crate::store::Override;

/// A record.
pub(super) fn of_record(record: &KeyState, in_force: &InForce) -> Row {
    let (next, now) = (in_force.next(record), in_force.now);
    Row {
        shown: key_text::shown(record.key()),
        pasted: key_text::key(record.key()),
        reason: words::reason(record, in_force),
        remaining: next.remaining(record, now),
        rule: in_force.rule(record).map(|rule| rule.table),
        r#override: next.overridden().map(OverrideJson::of),
        suspicion: None,
        state: Some(in_force.json(record)),
    }
}

/// An override.
pub(super) fn of_override(one: &Override) -> Row {
    Row {
        shown: override_state::key(one),
        pasted: one.argument.clone(),
        reason: override_state::end(one),
        remaining: None,
        rule: None,
        r#override: Some(OverrideJson::of(one)),
        suspicion: None,
        state: None,
    }
}
