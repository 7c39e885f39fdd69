//! The fields of an event, in one table: the type, what is read of JSON and of arguments, what
//! is printed, and the table in the documentation are made of it, or held to it by a test.

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
    local_account: Text<T>, "local-account", "USER", "the local account that hands over the message";
    script: Text<T>, "script", "SCRIPT", "the script of a web host that hands over the message";
    client: Origin, "client", "ADDRESS", "the client's address";
    helo: Text<T>, "helo", "HOST", "the name in HELO";
    sender: Text<T>, "sender", "ADDRESS", "the envelope sender; empty for a bounce";
    recipient: Text<T>, "recipient", "ADDRESS", "the recipient";
    package: Text<T>, "package", "PACKAGE", "the package that the front end hands over";
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
    fn fields_are_named_once_and_described() {
        for (n, field) in FIELDS.iter().enumerate() {
            assert!(FIELDS[..n].iter().all(|other| other.name != field.name), "{field:?}");
            assert!(field.help.starts_with("the ") && !field.help.ends_with('.'), "{field:?}");
            assert_eq!(field.option, field.name.replace('_', "-"), "{field:?}");
            assert_eq!(field.value, field.value.to_uppercase(), "{field:?}");
        }
    }
}
