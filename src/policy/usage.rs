//! What accounts send, in policies: whose a step is.

use super::key::Key;
use super::model::Identity;
use super::word::Field;
use crate::event::{Event, Origin};

/// The login or the local account that sends by this event, as it is written there: never what
/// strangers choose. `None` for the mail server's own mail, and for what a router asks again when
/// a delivery is retried.
#[inline]
pub(super) fn account<'e>(event: &Event<&'e str>) -> Option<(Field, &'e str)> {
    match event.client {
        _ if event.system || event.once_a_message => None,
        _ if event.auth.is_some() => event.auth.map(|login| (Field::Auth, login)),
        Origin::Program => event.local_account.map(|account| (Field::LocalAccount, account)),
        _ => None,
    }
}

/// Whether a login or a local account sends it, and not the mail server itself.
#[inline]
pub(super) fn has_account(event: &Event<&str>) -> bool {
    !event.system && (event.auth.is_some() || event.client == Origin::Program)
}

/// The key of `field`, of which the event has a value; empty, if nothing is left of that when it is
/// folded.
#[cold]
pub(super) fn key(identity: &Identity, field: Field, event: &Event<&str>) -> String {
    Key::of(identity, &[field], event).map(|key| key.text).unwrap_or_default()
}

/// Whether a key of one field is of this one.
#[inline]
pub(super) fn is_of(field: Field, key: &str) -> bool {
    key.strip_prefix(field.word()).is_some_and(|rest| rest.starts_with(':'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whose_a_step_is() {
        let empty = Event { sender: Some(""), ..Event::default() };
        let local = Event { client: Origin::Program, local_account: Some("www"), ..empty };
        let client = Origin::Client([192, 0, 2, 1].into());
        let login = Event { client, auth: Some("alice"), ..empty };
        // What it sends with an empty sender it sends as well.
        assert_eq!(account(&local), Some((Field::LocalAccount, "www")));
        assert_eq!(account(&login), Some((Field::Auth, "alice")));
        let others = [
            Event { system: true, ..local },
            Event { once_a_message: true, ..login },
            Event { client, ..empty },
        ];
        assert!(others.iter().all(|event| account(event).is_none()));
        let counts = [local, login, others[0], others[1], others[2]];
        assert_eq!(counts.each_ref().map(has_account), [true, true, false, true, false]);
    }
}
