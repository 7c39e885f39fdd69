//! What accounts send, in policies: whose a step is.

use super::habits::is_bounce;
use super::key::Key;
use super::model::Identity;
use super::word::Field;
use crate::event::{Event, Origin};
use crate::store::usage_key;

/// The login or the local account that sends by this event, as it is written there: never what
/// strangers choose. `None` for the mail server's own mail, and for what a router asks again when
/// a delivery is retried.
#[inline]
pub(super) fn account<'e>(event: &Event<&'e str>) -> Option<(Field, &'e str)> {
    match event.client {
        _ if event.system || event.once_a_message => None,
        _ if event.auth.is_some() => event.auth.map(|login| (Field::Auth, login)),
        Origin::Program if !is_bounce(event) => {
            event.local_account.map(|account| (Field::LocalAccount, account))
        }
        _ => None,
    }
}

/// Writes the name of the record of `field`, of which the event has a value; nothing, if nothing
/// is left of that when it is folded.
#[cold]
pub(super) fn write_name(
    identity: &Identity,
    field: Field,
    event: &Event<&str>,
    name: &mut Vec<u8>,
) {
    if let Some(key) = Key::of(identity, &[field], event) {
        usage_key(key.text.as_bytes(), name);
    }
}
