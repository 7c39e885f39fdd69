//! Who is counted: the fields of an event, folded, and the key made of them.

use std::borrow::Cow;

use super::fold::{CUSTOMER, DOMAIN, escaped, lower};
use super::model::Identity;
use super::word::Field;
use crate::event::Event;
use crate::identity::mailbox;
use crate::sys::host_name;

pub use super::fold::{address, shortened};

/// What a policy counts, and whose limits apply.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Key<'e> {
    /// `auth:alice@example.org`; several fields are separated by `,`, and a `,` in a
    /// value is doubled.
    pub text: String,
    /// The value of the first field, which tables and exemptions are searched for.
    pub identity: Cow<'e, str>,
    /// The first field is of an address that mail servers may read differently.
    pub is_ambiguous: bool,
}

/// `text`, which is the value of `field`, a login or an address, folded; `None` if nothing is left.
#[must_use]
pub fn folded<'e>(identity: &Identity, field: Field, text: &'e str) -> Option<Cow<'e, str>> {
    let folding = &identity.folding;
    if folding.is_folded(text) {
        return Some(Cow::Borrowed(text)).filter(|text| !text.is_empty());
    }
    let mut folded = String::new();
    let is_known = folding.field_into(field, text, &mut folded) && !folded.is_empty();
    is_known.then_some(Cow::Owned(folded))
}

/// The value of `field`, folded; `None` if it is not known.
#[must_use]
pub fn value<'e>(
    identity: &Identity,
    event: &Event<&'e str>,
    field: Field,
) -> Option<Cow<'e, str>> {
    let folding = &identity.folding;
    let fold = |text: Option<&'e str>| folded(identity, field, text?);
    let text = match field {
        Field::Auth => fold(event.auth),
        Field::LocalAccount => event.local_account.map(|text| Cow::Owned(text.trim().to_owned())),
        Field::Script => event.script.map(|text| Cow::Borrowed(text.trim())),
        Field::Client => {
            event.client.address().map(|client| Cow::Owned(folding.client(client).to_string()))
        }
        Field::Client56 | Field::Client48 => {
            let network = event.client.address().and_then(|client| field.wider_network(client));
            network.map(|network| Cow::Owned(network.to_string()))
        }
        Field::Sender => fold(event.sender),
        Field::SenderDomain => domain_of(event.sender).map(Cow::Owned),
        Field::Recipient => fold(event.recipient),
        Field::RecipientDomain => domain_of(event.recipient).map(Cow::Owned),
        Field::Destination => domain_of(event.recipient)
            .map(|domain| Cow::Owned(identity.destinations.of(&domain).to_owned())),
        Field::Helo => event.helo.map(name),
        Field::Server => Some(name(host_name())),
    };
    text.filter(|text| !text.is_empty())
}

/// The name of a host, folded.
fn name(text: &str) -> Cow<'_, str> {
    match is_folded_domain(text) {
        true => Cow::Borrowed(text),
        false => Cow::Owned(lower(text)),
    }
}

/// Whether `text` is surely a folded domain.
fn is_folded_domain(text: &str) -> bool {
    let plain = |b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.');
    text.bytes().all(plain) && !text.ends_with('.')
}

/// The domain of an address that is not folded.
#[must_use]
pub fn domain_of(address: Option<&str>) -> Option<String> {
    address.and_then(super::fold::domain_of)
}

impl<'e> Key<'e> {
    /// The key of `event`: `fields`, of which all must be known; without any, the
    /// first of the identity chain that is. `None` where there is none.
    #[must_use]
    pub fn of(identity: &Identity, fields: &[Field], event: &Event<&'e str>) -> Option<Self> {
        let mut key = Self::default();
        if fields.is_empty() {
            let known = |&field: &Field| Some((field, value(identity, event, field)?));
            let (field, value) = identity.chain.iter().find_map(known)?;
            key.add(field, value, event);
        }
        for &field in fields {
            key.add(field, value(identity, event, field)?, event);
        }
        Some(key)
    }

    fn add(&mut self, field: Field, value: Cow<'e, str>, event: &Event<&str>) {
        let is_first = self.text.is_empty();
        self.text.reserve(field.word().len() + value.len() + 2);
        if !is_first {
            self.text.push(',');
        }
        self.text.push_str(field.word());
        self.text.push(':');
        self.text.push_str(&escaped(&shortened(&value)));
        if is_first {
            self.is_ambiguous = is_ambiguous(event, field);
            self.identity = value;
        }
    }
}

/// Whether `field` of `event` is of an address that mail servers may read differently.
#[must_use]
pub fn is_ambiguous(event: &Event<&str>, field: Field) -> bool {
    field.is_of_address() && {
        let address = if field.is_of_recipient() { event.recipient } else { event.sender };
        address.is_some_and(mailbox::is_ambiguous)
    }
}

/// The key that all users of a domain share.
#[must_use]
pub fn of_domain(domain: &str) -> String {
    format!("{DOMAIN}:{}", shortened(domain))
}

/// The key that all users of a customer share.
#[must_use]
pub fn of_customer(name: &str) -> String {
    format!("{CUSTOMER}:{}", escaped(&shortened(name)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Origin;
    use crate::policy::fold::{Folding, LONGEST};
    use kit::quickcheck;

    fn event() -> Event<&'static str> {
        Event {
            auth: Some("Alice+x@Example.ORG"),
            client: Origin::Client("2001:db8::7".parse().unwrap()),
            sender: Some("A@B.Example."),
            recipient: Some("c@d.example"),
            ..Event::default()
        }
    }

    #[test]
    fn the_first_field_that_is_known_is_counted() {
        let identity = Identity::default();
        let of = |event: &Event<&str>| Key::of(&identity, &[], event).map(|key| key.text);
        assert_eq!(of(&event()).as_deref(), Some("auth:alice+x@example.org"));
        for auth in [None, Some(""), Some(" "), Some("@example.org")] {
            let event = Event { auth, ..event() };
            assert_eq!(of(&event).as_deref(), Some("client:2001:db8::/64"), "{auth:?}");
        }
        assert_eq!(of(&Event { auth: None, client: Origin::Unknown, ..event() }), None);
    }

    #[test]
    fn all_fields_of_a_key_must_be_known() {
        let identity = Identity::default();
        let of = |fields: &[Field]| Key::of(&identity, fields, &event());
        let key = of(&[Field::Recipient, Field::Client]).unwrap();
        assert_eq!(key.text, "recipient:c@d.example,client:2001:db8::/64");
        assert_eq!(key.identity, "c@d.example");
        assert_eq!(of(&[Field::SenderDomain]).unwrap().text, "sender_domain:b.example");
        assert_eq!(of(&[Field::Recipient, Field::Helo]), None);
        let bounce = Event { sender: Some(""), ..event() };
        assert_eq!(Key::of(&identity, &[Field::Sender], &bounce), None);
        // Nobody knows who they are.
        for sender in [" @Example.ORG", "\" \"@example.org", "@"] {
            let event = Event { sender: Some(sender), recipient: Some(sender), ..event() };
            let key = Key::of(&identity, &[Field::Sender, Field::Recipient], &event).unwrap();
            let sender = sender.trim().to_lowercase();
            assert_eq!(key.text, format!("sender:{sender},recipient:{sender}"));
        }
    }

    #[test]
    fn an_address_with_two_meanings_is_counted_as_it_is_written() {
        let folding = Folding { plus: true, ..Folding::default() };
        let identity = Identity { folding, ..Identity::default() };
        for (address, text, is_ambiguous) in [
            ("V+x%Victim.example@Own.test", "v+x%victim.example@own.test", true),
            ("<v@victim.example>@own.test", "<v@victim.example>@own.test", true),
            ("\"V+x\"@Own.test", "v@own.test", false),
        ] {
            let event = Event { recipient: Some(address), sender: Some(address), ..event() };
            for field in [Field::Recipient, Field::Sender] {
                let key = Key::of(&identity, &[field], &event).unwrap();
                assert_eq!((&*key.identity, key.is_ambiguous), (text, is_ambiguous), "{address}");
            }
            let key = Key::of(&identity, &[Field::RecipientDomain], &event).unwrap();
            assert_eq!((&*key.identity, key.is_ambiguous), ("own.test", is_ambiguous), "{address}");
        }
        // It is no address: some mail servers have such logins.
        let event = Event { auth: Some("user%own.test@host"), ..event() };
        assert!(!Key::of(&identity, &[], &event).unwrap().is_ambiguous);
    }

    #[test]
    fn no_field_hides_in_another() {
        let identity = Identity::default();
        let fields = [Field::Sender, Field::Recipient];
        let of = |sender, recipient| {
            let event = Event { sender: Some(sender), recipient: Some(recipient), ..event() };
            Key::of(&identity, &fields, &event).unwrap().text
        };
        assert_ne!(of("a,recipient:b", "c"), of("a", "b,recipient:c"));
        assert_ne!(of("a,", "b"), of("a", ",b"));
    }

    quickcheck! {
        fn keys_are_short_and_distinct(one: String, other: String, same: u8) -> bool {
            // Often they differ only where they are cut off.
            let start = "x".repeat(same.into());
            let (one, other) = (start.clone() + &one.repeat(40), start + &other.repeat(40));
            let [a, b] = [&one, &other].map(|text| shortened(text).into_owned());
            a.len() <= LONGEST && b.len() <= LONGEST && (a == b) == (one == other)
        }

        fn what_needs_no_folding_is_folded(text: String, plus: bool, qualify: bool) -> bool {
            let qualify = qualify.then(|| "x.org".to_owned());
            let folding = Folding { plus, qualify, ..Folding::default() };
            let short: String = text.chars().map(|c| char::from(b"aB1.@-+: "[c as usize % 9])).collect();
            [text, short].iter().all(|text| {
                let same = !folding.is_folded(text) || folding.identity(text).as_ref() == Some(text);
                same && (!is_folded_domain(text) || lower(text) == *text)
            })
        }

        fn two_values_are_told_apart(a: (String, String), b: (String, String)) -> bool {
            let identity = Identity::default();
            let key = |(helo, script): &(String, String)| {
                let (helo, script) = (Some(helo.as_str()), Some(script.as_str()));
                let event = Event { helo, script, ..Event::default() };
                let fields = [Field::Helo, Field::Script];
                let values = fields.map(|field| value(&identity, &event, field).map(Cow::into_owned));
                (Key::of(&identity, &fields, &event).map(|key| key.text), values)
            };
            let ((key_a, values_a), (key_b, values_b)) = (key(&a), key(&b));
            key_a.is_none() || (key_a == key_b) == (values_a == values_b)
        }
    }

    #[test]
    fn every_field_has_a_value() {
        let all = Event {
            local_account: Some("www"),
            script: Some("/srv/a.php"),
            helo: Some("Host.Example"),
            ..event()
        };
        for &field in Field::ALL {
            let is_known = value(&Identity::default(), &all, field).is_some();
            assert!(is_known, "{field:?}");
            // An event says nothing of the server.
            let of_nothing = value(&Identity::default(), &Event::default(), field);
            assert_eq!(of_nothing.is_some(), field == Field::Server, "{field:?}");
        }
    }
}
