//! What a policy needs to know of an event, read from Exim's variables. Nothing a
//! client sent is parsed here.

use crate::event::session::SessionFacts;
use crate::event::{AclStage, Circumstances, Event, HandedOver, Origin, is_of_dialogue};
use crate::exim::host::exports::Host;
use crate::exim::host::headers::Headers;
use crate::exim::host::recipients::Recipients;
use crate::exim::host::variables::{Number, Text, VariableSource, Variables};
use crate::identity::written;
use crate::policy::key::address;
use crate::policy::word::{At, OnError, Word as _};
use crate::rate::habits::marks;
use std::borrow::Cow;

/// Exim's variables that only policies read.
pub(in crate::exim) struct PolicyVariables {
    pub(in crate::exim) authenticated_id: Text,
    sender_host_authenticated: Text,
    authentication_failed: Number,
    received_ip_address: Text,
    rcpt_fail_count: Number,
    sender_helo_name: Text,
    sender_ident: Text,
    pub(in crate::exim) recipients: Recipients,
    headers: Headers,
}

impl PolicyVariables {
    /// Finds them in the running program.
    pub(in crate::exim) fn find(source: &VariableSource<'_>) -> Self {
        Self {
            authenticated_id: source.text(c"authenticated_id", c"$authenticated_id"),
            sender_host_authenticated: source
                .text(c"sender_host_authenticated", c"$sender_host_authenticated"),
            authentication_failed: source
                .number(c"authentication_failed", c"$authentication_failed"),
            received_ip_address: source.text(c"interface_address", c"$received_ip_address"),
            rcpt_fail_count: source.number(c"rcpt_fail_count", c"$rcpt_fail_count"),
            sender_helo_name: source.text(c"sender_helo_name", c"$sender_helo_name"),
            sender_ident: source.text(c"sender_ident", c"$sender_ident"),
            recipients: Recipients::find(source),
            headers: Headers::find(source),
        }
    }

    /// Whether a header of the message says that a program wrote it, or that a list sends it.
    pub(in crate::exim) fn is_marked(&self) -> bool {
        self.headers.each().any(|header| {
            let end = header.iter().position(|&byte| byte == b':');
            end.and_then(|end| header.split_at_checked(end)).is_some_and(|(name, value)| {
                marks(name.trim_ascii_end(), value.get(1..).unwrap_or_default())
            })
        })
    }
}

/// The attributes of a call: `{package=gold}`.
#[derive(Debug, Default, PartialEq, Eq)]
pub(in crate::exim) struct Attributes<'a> {
    pub(in crate::exim) package: Option<Cow<'a, str>>,
    pub(in crate::exim) script: Option<Cow<'a, str>>,
    pub(in crate::exim) on_error: Option<OnError>,
    /// The recipient of this RCPT has been refused, which Exim counts after the ACL.
    pub(in crate::exim) refused: Option<bool>,
    /// A router asks about a recipient of a message.
    pub(in crate::exim) at: Option<At>,
    /// How old the message is, in seconds.
    pub(in crate::exim) age: Option<u64>,
}

/// The attributes that a call may have, for the error that lists them.
const NAMES: &str = "package=, script=, on_error=, refused=, at=, age=";

impl<'a> Attributes<'a> {
    /// Reads the arguments after the policy's name. All that follows `=` is the
    /// value, taken literally.
    pub(in crate::exim) fn read(arguments: &[&'a [u8]]) -> Result<Self, String> {
        let mut attributes = Self::default();
        for argument in arguments {
            let name_end = argument.iter().position(|&b| b == b'=').unwrap_or(argument.len());
            let (name, value) = argument.split_at(name_end);
            let name = name.trim_ascii();
            let value = value.strip_prefix(b"=").ok_or_else(|| unknown(argument))?;
            let value = written(value.trim_ascii().into());
            let before = match name {
                b"package" => attributes.package.replace(value).is_some(),
                b"script" => attributes.script.replace(value).is_some(),
                b"on_error" => {
                    let word = OnError::of(&value).ok_or_else(|| {
                        wrong_word("on_error=", &OnError::words().join(" or "), &value)
                    })?;
                    attributes.on_error.replace(word).is_some()
                }
                b"refused" => {
                    let word = match &*value {
                        "yes" => true,
                        "no" => false,
                        _ => return Err(wrong_word("refused=", "yes or no", &value)),
                    };
                    attributes.refused.replace(word).is_some()
                }
                b"at" => {
                    let word = At::of(&value)
                        .ok_or_else(|| wrong_word("at=", &At::words().join(" or "), &value))?;
                    attributes.at.replace(word).is_some()
                }
                b"age" => {
                    let age = value.parse();
                    let age = age.map_err(|_| wrong_word("age=", "a number of seconds", &value))?;
                    attributes.age.replace(age).is_some()
                }
                _ => return Err(unknown(argument)),
            };
            if before {
                return Err(format!("\"{}=\" is given twice", name.escape_ascii()));
            }
        }
        Ok(attributes)
    }

    /// The recipients that have been refused at `stage`, of which Exim has counted so many.
    fn rejected(&self, counted: i64, stage: AclStage) -> u32 {
        let is_refused = self.refused == Some(true) && stage == AclStage::Rcpt;
        u32::try_from(counted).unwrap_or(0).saturating_add(is_refused.into())
    }
}

fn unknown(argument: &[u8]) -> String {
    let argument = argument.trim_ascii();
    let shown = argument.get(..40).unwrap_or(argument).escape_ascii();
    format!("\"{shown}\" is not an attribute (the attributes are: {NAMES})")
}

fn wrong_word(attribute: &str, words: &str, value: &str) -> String {
    let value: String = value.chars().take(40).collect();
    format!("{attribute} is {words}, not \"{}\"", value.escape_debug())
}

/// What one call knows.
pub(in crate::exim) struct PolicyFacts<'v> {
    pub(in crate::exim) event: Event<Cow<'v, str>>,
    pub(in crate::exim) session: SessionFacts,
}

impl<'v> PolicyFacts<'v> {
    /// Reads the current values at `stage`.
    pub(in crate::exim) fn read(
        host: &Host,
        variables: &'v Variables,
        more: &'v PolicyVariables,
        stage: AclStage,
        attributes: &'v Attributes<'_>,
    ) -> Self {
        let text = |text: &'v Text| text.read(host).map(written);
        let number = |number: &Number| number.read(host).unwrap_or(0);
        let attribute = |text: &'v Option<Cow<'_, str>>| text.as_deref().map(Cow::Borrowed);
        // What is written but cannot be read is a client all the same.
        let client = match text(&variables.sender_host_address) {
            None => Origin::Program,
            Some(client) => Origin::of_client(address(&client)),
        };
        let sender = text(&variables.sender_address);
        let message_id = text(&variables.message_id);
        let has_message = message_id.is_some();
        let has_recipient = matches!(stage, AclStage::Rcpt | AclStage::Prdr | AclStage::Outside);
        let event = Event {
            // For local mail it is the account, which has not authenticated.
            auth: text(&more.authenticated_id),
            local_account: text(&more.sender_ident),
            script: attribute(&attributes.script),
            client,
            helo: text(&more.sender_helo_name),
            protocol: text(&variables.received_protocol),
            sender: match sender {
                None if variables.sender_address.is_set() => Some(Cow::Borrowed("")),
                sender => sender,
            },
            recipient: if has_recipient { recipient(host, variables) } else { None },
            package: attribute(&attributes.package),
            message_id,
            ..Event::default()
        };
        let circumstances = Circumstances {
            has_used_auth: more.sender_host_authenticated.is_there(host),
            server: &|| text(&more.received_ip_address).and_then(|text| address(&text)),
            // `exim -be` hands over nothing.
            handed_over: HandedOver::ByProcess(&|| {
                (stage != AclStage::Outside || has_message) && is_systems(host, variables)
            }),
            in_router: stage == AclStage::Outside,
        };
        let session = SessionFacts {
            recipients: u32::try_from(number(&variables.recipients_count)).unwrap_or(0),
            message_size: u64::try_from(number(&variables.message_size)).unwrap_or(0),
            rejected_recipients: attributes.rejected(number(&more.rcpt_fail_count), stage),
            auth_failed: number(&more.authentication_failed) != 0,
            has_message,
            message_age: attributes.age.unwrap_or(0),
        };
        Self { event: event.complete(&circumstances), session }
    }
}

/// Whether mail without a client is from Exim or root. Exim hands over its bounces as its own
/// user, and cron its mail as root: unlike a sender or a header, nobody else can claim that. Behind
/// an SMTP dialogue (`-bs`) may be anybody.
#[cold]
fn is_systems(host: &Host, variables: &Variables) -> bool {
    let is_dialogue = variables.smtp_input.read() && !variables.smtp_batched_input.read();
    let protocol = variables.received_protocol.read(host).unwrap_or_default();
    !is_of_dialogue(is_dialogue, &protocol) && Variables::is_system(host, c"$originator_uid")
}

/// `$local_part@$domain`, of which the local part may be empty: `(comment)@example.org`.
pub(in crate::exim) fn recipient(host: &Host, variables: &Variables) -> Option<Cow<'static, str>> {
    let local_part = variables.local_part.read(host).unwrap_or_default();
    let domain = variables.domain.read(host).unwrap_or_default();
    if local_part.is_empty() && domain.is_empty() {
        return None;
    }
    let mut address = String::with_capacity(local_part.len() + 1 + domain.len());
    address.push_str(&written(local_part));
    address.push('@');
    address.push_str(&written(domain));
    Some(Cow::Owned(address))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_taken_literally() {
        let all = Attributes::read(&[b"package=gold", b"script= /a=b, c "]).unwrap();
        assert_eq!(all.package.as_deref(), Some("gold"));
        assert_eq!(all.script.as_deref(), Some("/a=b, c"));
        assert_eq!(Attributes::read(&[]).unwrap(), Attributes::default());
        assert_eq!(Attributes::read(&[b"package="]).unwrap().package.as_deref(), Some(""));
    }

    #[test]
    fn a_recipient_is_refused_where_there_is_one() {
        for (argument, stage, rejected) in [
            (&b"refused=yes"[..], AclStage::Rcpt, 3),
            (b"refused=no", AclStage::Rcpt, 2),
            (b"refused=yes", AclStage::Data, 2),
            (b"refused=yes", AclStage::Quit, 2),
            (b"package=gold", AclStage::Rcpt, 2),
        ] {
            let attributes = Attributes::read(&[argument]).unwrap();
            assert_eq!(attributes.rejected(2, stage), rejected, "{stage:?}");
        }
    }

    #[test]
    fn wrong_attributes_are_named() {
        for (argument, error) in [
            (
                "gold",
                "\"gold\" is not an attribute (the attributes are: package=, script=, on_error=, refused=, at=, age=)",
            ),
            ("at=rcpt", "at= is acceptance or delivery, not \"rcpt\""),
            ("age=1h", "age= is a number of seconds, not \"1h\""),
            ("on_error=no", "on_error= is fail-open or fail-closed, not \"no\""),
            ("refused=", "refused= is yes or no, not \"\""),
            (
                "package",
                "\"package\" is not an attribute (the attributes are: package=, script=, on_error=, refused=, at=, age=)",
            ),
            (
                "x\n=",
                "\"x\\n=\" is not an attribute (the attributes are: package=, script=, on_error=, refused=, at=, age=)",
            ),
        ] {
            assert_eq!(Attributes::read(&[argument.as_bytes()]).unwrap_err(), error);
        }
        let twice = Attributes::read(&[b"package=a", b"package=b"]).unwrap_err();
        assert_eq!(twice, "\"package=\" is given twice");
    }
}
