//! The fields of an event, in one table, and what follows from them.
//!
//! The type, what is read of JSON and of options, what is printed, and the table in the
//! documentation are made of the table, or held to it by a test. What follows is the same
//! for all who describe an event: [`Event::complete`].

use super::circumstances::{Circumstances, HandedOver, is_system_account};
use super::origin::{Local, Origin};

/// A field of an event, as people see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventField {
    /// Its name in JSON and tables.
    pub name: &'static str,
    /// The option that sets it on a command line, without `--`.
    pub option: &'static str,
    /// What stands for its value in a help text: `LOGIN`.
    pub value: &'static str,
    /// What it is, after a verb: `the login`.
    pub help: &'static str,
}

/// The value of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldValue<'e, T> {
    /// A text; `None` if it is not known.
    Text(Option<&'e T>),
    /// Where the event comes from.
    Client(Origin),
}

/// The place of a field's value, to be filled.
#[derive(Debug, PartialEq, Eq)]
pub enum FieldPlace<'e, T> {
    /// Of a text.
    Text(&'e mut Option<T>),
    /// Of where the event comes from.
    Client(&'e mut Origin),
}

/// The type of a text.
type Text<T> = Option<T>;

/// A field of this kind, with another type of text.
macro_rules! mapped {
    (Text, $value:expr, $map:expr) => {
        $value.map($map)
    };
    (Origin, $value:expr, $map:expr) => {
        $value
    };
}

/// A field of this kind, with a reference to its text.
macro_rules! borrowed {
    (Text, $value:expr) => {
        $value.as_ref().map(AsRef::as_ref)
    };
    (Origin, $value:expr) => {
        $value
    };
}

macro_rules! value_of {
    (Text, $value:expr) => {
        FieldValue::Text($value.as_ref())
    };
    (Origin, $value:expr) => {
        FieldValue::Client($value)
    };
}

macro_rules! place_of {
    (Text, $value:expr) => {
        FieldPlace::Text(&mut $value)
    };
    (Origin, $value:expr) => {
        FieldPlace::Client(&mut $value)
    };
}

macro_rules! event_fields {
    ($($name:ident: $kind:ident $(<$text:ident>)?, $option:literal, $value:literal, $help:literal;)+) => {
        /// What is known of an event, as the client sent it. What is empty or missing is not
        /// known.
        ///
        /// `T` is the text: `&str` where it is borrowed for a decision, `Cow` what Exim's
        /// variables give, `String` or a shared text where it is kept.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Event<T> {
            $(#[doc = $help] pub $name: $kind $(<$text>)?,)+
            /// Whether it is `local`: see [`Event::complete`].
            pub local: Local,
            /// The mail server's own mail, such as a bounce, or root's: handed over without a
            /// client's address or an SMTP dialogue by a process of the mail server's user or
            /// of root.
            pub system: bool,
            /// Count each message and each of its recipients at most once a period, by the
            /// message id: for routers, which run again when a delivery is retried.
            pub once_a_message: bool,
        }

        /// The fields that whoever describes an event fills, in the order in which they are
        /// listed to people.
        pub const FIELDS: &[EventField] = &[
            $(EventField {
                name: stringify!($name),
                option: $option,
                value: $value,
                help: $help,
            },)+
        ];

        impl<T> Event<T> {
            /// Each of [`FIELDS`], and its value.
            pub fn values(&self) -> impl Iterator<Item = (&'static EventField, FieldValue<'_, T>)> {
                FIELDS.iter().zip([$(value_of!($kind, self.$name),)+])
            }

            /// Each of [`FIELDS`], and where its value is.
            pub fn places(
                &mut self,
            ) -> impl Iterator<Item = (&'static EventField, FieldPlace<'_, T>)> {
                FIELDS.iter().zip([$(place_of!($kind, self.$name),)+])
            }

            /// The same event, with its texts as `map` makes them.
            pub fn map<U>(self, mut map: impl FnMut(T) -> U) -> Event<U> {
                Event {
                    $($name: mapped!($kind, self.$name, &mut map),)+
                    local: self.local,
                    system: self.system,
                    once_a_message: self.once_a_message,
                }
            }
        }

        impl<T: AsRef<str>> Event<T> {
            /// The same event, with references to its texts.
            #[must_use]
            #[inline]
            pub fn view(&self) -> Event<&str> {
                Event {
                    $($name: borrowed!($kind, self.$name),)+
                    local: self.local,
                    system: self.system,
                    once_a_message: self.once_a_message,
                }
            }
        }
    };
}

event_fields! {
    auth: Text<T>, "auth", "LOGIN", "the login";
    local_account: Text<T>, "local-account", "USER", "the local account that submits the message";
    script: Text<T>, "script", "SCRIPT", "the script of a web host that submits the message";
    client: Origin, "client", "ADDRESS", "the client's address";
    helo: Text<T>, "helo", "HOST", "the name in HELO";
    protocol: Text<T>, "protocol", "PROTOCOL", "the protocol that it came by, as Exim calls it: smtp, esmtpsa, local";
    sender: Text<T>, "sender", "ADDRESS", "the envelope sender; empty for a bounce";
    recipient: Text<T>, "recipient", "ADDRESS", "the recipient";
    package: Text<T>, "package", "PACKAGE", "the package that the front end passes";
    message_id: Text<T>, "message-id", "ID", "the message id of the mail server";
}

impl<T: AsRef<str>> Event<T> {
    /// The length of its texts, in bytes.
    #[must_use]
    pub fn text_bytes(&self) -> usize {
        let of = |value: FieldValue<'_, T>| match value {
            FieldValue::Text(text) => text.map_or(0, |text| text.as_ref().len()),
            FieldValue::Client(_) => 0,
        };
        self.values().map(|(_, value)| of(value)).sum()
    }

    /// The event, of which the fields are what is said of it, with what follows from them:
    /// whether it is [`local`](Self::local), [`system`](Self::system) and counted
    /// [once a message](Self::once_a_message). What counts for nothing is taken away: a login
    /// of a client that has not used AUTH, and the account that a client on the network says
    /// is its user's.
    #[must_use]
    #[inline]
    pub fn complete(mut self, circumstances: &Circumstances<'_>) -> Self {
        let Circumstances { has_used_auth, server, handed_over, in_router } = *circumstances;
        let is_program = self.client == Origin::Program;
        self.local = Local::of(has_used_auth, self.client, server);
        if !has_used_auth {
            self.auth = None;
        }
        if !is_program {
            self.local_account = None;
        }
        self.system = match handed_over {
            HandedOver::Said(system) => system,
            HandedOver::Dialogue => false,
            HandedOver::ByProcess(is_systems) => is_program && is_systems(),
            HandedOver::ByAccount => self.is_of_a_system_account(),
        };
        self.once_a_message = in_router && self.message_id.is_some();
        self
    }

    /// Whether the local account is root or one of a mail server.
    #[must_use]
    pub fn is_of_a_system_account(&self) -> bool {
        self.local_account.as_ref().is_some_and(|name| is_system_account(name.as_ref()))
    }

    /// Whether it is from another mail server, as far as is known: one that tries again
    /// later. Users and local programs do not.
    #[must_use]
    pub fn is_of_a_server(&self) -> bool {
        self.auth.is_none()
            && self.local_account.is_none()
            && self.client.address().is_some()
            && !self.local.is()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_field_is_read_and_printed_by_its_name() {
        let mut event = Event::<String>::default();
        for (field, place) in event.places() {
            match place {
                FieldPlace::Text(text) => *text = Some(field.name.to_owned()),
                FieldPlace::Client(client) => *client = Origin::Client([192, 0, 2, 7].into()),
            }
        }
        let (view, mut bytes) = (event.view(), 0);
        for ((field, value), (same, borrowed)) in event.values().zip(view.values()) {
            assert_eq!(field, same);
            match (value, borrowed) {
                (FieldValue::Text(Some(text)), FieldValue::Text(Some(borrowed))) => {
                    assert_eq!((text.as_str(), *borrowed), (field.name, field.name));
                    bytes += text.len();
                }
                (FieldValue::Client(one), FieldValue::Client(other)) => assert_eq!(one, other),
                other => panic!("{field:?}: {other:?}"),
            }
        }
        assert_eq!(event.text_bytes(), bytes);
        assert_eq!(event.view().map(str::to_owned), event);
        assert_eq!(event.values().count(), FIELDS.len());
    }

    #[test]
    fn the_documentation_has_the_table() {
        let documented = include_str!("../../docs/policy.md");
        let rows: Vec<&str> = documented
            .lines()
            .skip_while(|line| !line.starts_with("| field of an event |"))
            .take_while(|line| line.starts_with('|'))
            .collect();
        let first = rows.iter().position(|row| row.starts_with("| `auth` |")).unwrap();
        for (field, row) in FIELDS.iter().zip(&rows[first..]) {
            let start = format!("| `{}` | {}", field.name, field.help);
            assert!(row.starts_with(&start), "docs/policy.md has {row:?}, not {start:?}");
        }
    }

    #[test]
    fn fields_are_named_once_and_described() {
        for (n, field) in FIELDS.iter().enumerate() {
            assert!(FIELDS[..n].iter().all(|other| other.name != field.name), "{field:?}");
            assert!(field.help.starts_with("the ") && !field.help.ends_with('.'), "{field:?}");
            assert_eq!(field.option, field.name.replace('_', "-"), "{field:?}");
            assert_eq!(field.value, field.value.to_uppercase(), "{field:?}");
        }
    }

    fn client(text: &str) -> Origin {
        Origin::Client(text.parse().unwrap())
    }

    #[test]
    fn local_is_what_has_no_client_or_a_client_of_this_machine_without_a_login() {
        let server = || "2001:db8::25".parse().ok();
        for (origin, is_local) in [
            (Origin::Program, true),
            (Origin::Unknown, false),
            (client("127.0.0.1"), true),
            (client("127.8.0.1"), true),
            (client("::ffff:127.0.0.1"), true),
            (client("::1"), true),
            (client("2001:db8::25"), true),
            (client("2001:db8::26"), false),
            (client("192.0.2.1"), false),
        ] {
            assert_eq!(Local::of(false, origin, server).is(), is_local, "{origin:?}");
            assert!(!Local::of(true, origin, server).is(), "{origin:?}");
            for has_used_auth in [false, true] {
                let source =
                    Circumstances { has_used_auth, server: &server, ..Circumstances::default() };
                let event = Event::<&str> { client: origin, ..Event::default() }.complete(&source);
                assert_eq!(event.local.is(), is_local && !has_used_auth, "{origin:?}");
            }
        }
        let mapped = || "::ffff:192.0.2.1".parse().ok();
        assert!(Local::of(false, client("192.0.2.1"), mapped).is());
    }

    #[test]
    fn what_a_client_cannot_know_of_its_user_counts_for_nothing() {
        for (client, has_used_auth, auth, account) in [
            (Origin::Program, false, None, Some("www")),
            (Origin::Program, true, Some("ann"), Some("www")),
            (client("127.0.0.1"), false, None, None),
            (client("192.0.2.1"), true, Some("ann"), None),
            (Origin::Unknown, true, Some("ann"), None),
        ] {
            let said =
                Event { auth: Some("ann"), local_account: Some("www"), client, ..Event::default() };
            let event = said.complete(&Circumstances { has_used_auth, ..Circumstances::default() });
            assert_eq!((event.auth, event.local_account), (auth, account), "{client:?}");
        }
    }

    #[test]
    fn system_is_what_the_mail_server_or_root_hands_over_outside_a_dialogue() {
        let of = |client, account, handed_over| {
            let said = Event { client, local_account: Some(account), ..Event::default() };
            said.complete(&Circumstances { handed_over, ..Circumstances::default() }).system
        };
        let (yes, no) = (|| true, || false);
        for account in ["root", "Debian-exim", "exim", "mail", "mailnull", "exirate-mail"] {
            assert!(of(Origin::Program, account, HandedOver::ByAccount), "{account}");
            assert!(!of(client("127.0.0.1"), account, HandedOver::ByAccount), "{account}");
            assert!(!of(Origin::Unknown, account, HandedOver::ByAccount), "{account}");
            assert!(!of(Origin::Program, account, HandedOver::Dialogue), "{account}");
            assert!(!of(Origin::Program, account, HandedOver::ByProcess(&no)), "{account}");
        }
        assert!(!of(Origin::Program, "www-data", HandedOver::ByAccount));
        assert!(of(Origin::Program, "www-data", HandedOver::ByProcess(&yes)));
        assert!(!of(client("127.0.0.1"), "root", HandedOver::ByProcess(&yes)));
        assert!(of(client("127.0.0.1"), "x", HandedOver::Said(true)));
        assert!(!of(Origin::Program, "root", HandedOver::Said(false)));
    }

    #[test]
    fn a_router_counts_a_message_once_where_it_has_an_id() {
        for (message_id, in_router, once) in
            [(Some("1"), true, true), (None, true, false), (Some("1"), false, false)]
        {
            let said = Event { message_id, ..Event::default() };
            let event = said.complete(&Circumstances { in_router, ..Circumstances::default() });
            assert_eq!(event.once_a_message, once);
        }
    }

    #[test]
    fn servers_try_again_and_users_and_programs_do_not() {
        let server = Event { client: client("192.0.2.1"), ..Event::<&str>::default() };
        let has_login = Circumstances { has_used_auth: true, ..Circumstances::default() };
        assert!(server.complete(&Circumstances::default()).is_of_a_server());
        let user = Event { auth: Some("ann"), ..server };
        assert!(!user.complete(&has_login).is_of_a_server());
        for client in [Origin::Program, Origin::Unknown, client("127.0.0.1")] {
            let event = Event { client, ..server }.complete(&Circumstances::default());
            assert!(!event.is_of_a_server(), "{client:?}");
        }
    }
}
