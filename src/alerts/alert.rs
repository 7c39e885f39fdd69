//! An event as receivers get it: a line, JSON, the arguments of a program, or mail.

use serde::Serialize;

use super::event::EventJson;
use super::known::AlertContext;
use crate::policy::model::{Piece, Template};
use crate::policy::word::Placeholder;
use crate::spool::{Enforcement, LoggedEvent};
use crate::standing::in_force::until;
use crate::standing::logged::{decisive, in_period, key, period};
use crate::text;

/// What every message to a receiver begins with.
#[derive(Clone, Copy, Serialize)]
pub(super) struct Head<'a> {
    pub(super) id: &'a str,
    pub(super) attempt: u32,
    /// Whether it may have been sent before.
    pub(super) redelivered: bool,
    /// It only shows that alerts arrive: nobody is over a limit.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(super) test: bool,
}

impl<'a> Head<'a> {
    pub(super) fn new(id: &'a str, attempt: u32, marked: bool) -> Self {
        Self { id, attempt, redelivered: marked || attempt > 1, test: false }
    }

    /// `redelivered`, as programs and mail have it.
    pub(super) fn redelivered(&self) -> &'static str {
        if self.redelivered { "yes" } else { "no" }
    }

    /// A mail message. Exim adds `From:`, `Date:` and `Message-ID:`.
    pub(super) fn mail(&self, to: &str, subject: &str, body: &str) -> String {
        let subject: String =
            subject.chars().map(|c| if c.is_ascii() { c } else { '?' }).take(200).collect();
        let again = if self.redelivered { "\nThis alert may have been sent before.\n" } else { "" };
        format!(
            "To: {to}\nSubject: exirate: {subject}\n\
             Auto-Submitted: auto-generated\nX-Exirate-Event-Id: {}\nX-Exirate-Attempt: {}\n\
             X-Exirate-Redelivered: {}\nMIME-Version: 1.0\n\
             Content-Type: text/plain; charset=utf-8\n\n{body}{again}",
            self.id,
            self.attempt,
            self.redelivered(),
        )
    }
}

/// An event that is sent.
#[derive(Serialize)]
pub(super) struct Alert<'a> {
    #[serde(flatten)]
    pub(super) head: Head<'a>,
    #[serde(flatten)]
    json: EventJson,
    host: &'a str,
    #[serde(flatten)]
    pub(super) known: &'a AlertContext,
    #[serde(skip)]
    pub(super) event: &'a LoggedEvent,
}

impl<'a> Alert<'a> {
    pub(super) fn new(
        event: &'a LoggedEvent,
        head: Head<'a>,
        host: &'a str,
        known: &'a AlertContext,
    ) -> Self {
        Self { head, json: EventJson::of(event), host, known, event }
    }

    /// What is said of the key.
    fn state(&self) -> &'static str {
        if self.event.is_alarm() {
            return "may be stolen";
        }
        if self.event.is_overdue() {
            return "has mail that has waited too long";
        }
        match self.event.enforcement {
            Enforcement::Enforced if self.event.blocked().is_some() => {
                "is over the limit and blocked"
            }
            Enforcement::Enforced => "is over the limit",
            Enforcement::Observed => "is over the limit, which is only observed",
            Enforcement::Exempt => "is over the limit, and exempt",
            Enforcement::Waits => "is over the limit, and waits",
        }
    }

    /// The texts that are not empty, with their names: that of the id is what it is of.
    fn details(&self) -> impl Iterator<Item = (&'static str, String)> {
        let is_said = |name| name == "evidence" && self.event.blocked().is_some();
        let texts = self.event.texts.values();
        let texts = texts.filter(move |(name, value)| !value.is_empty() && !is_said(*name));
        texts
            .map(|(name, value)| (name.strip_suffix("_id").unwrap_or(name), text::printable(value)))
    }

    /// A line for people and logs.
    pub(super) fn line(&self) -> String {
        let (event, window) = (self.event, decisive(self.event));
        let mut line = format!("{} {} {}", text::local(event.at), self.known.who, self.state());
        if !event.is_alarm() && !event.is_overdue() {
            let limit = text::number(window.limit);
            line += &format!(": {:.1}/{limit} {}", window.after, in_period(event, &window));
        }
        self.details().for_each(|(name, value)| line += &format!(" {name}={value}"));
        line += &format!(" id={}", self.head.id);
        if self.head.redelivered {
            line += " redelivered";
        }
        if self.head.test {
            line += " test";
        }
        line
    }

    /// One object of JSON.
    pub(super) fn json(&self) -> Result<String, String> {
        text::json(self).map_err(|error| error.to_string())
    }

    /// A word of a program's arguments.
    pub(super) fn expand(&self, template: &Template) -> String {
        let piece = |piece: &Piece| match piece {
            Piece::Text(text) => text.clone(),
            Piece::Value(placeholder) => self.value(*placeholder),
        };
        // No argument can contain a zero byte.
        template.0.iter().map(piece).collect::<String>().replace('\0', "\u{fffd}")
    }

    fn value(&self, placeholder: Placeholder) -> String {
        let (event, window) = (self.event, decisive(self.event));
        let texts = event.texts.map(|text| String::from_utf8_lossy(text).into_owned());
        match placeholder {
            Placeholder::Policy => texts.policy,
            Placeholder::Key => String::from_utf8_lossy(key(event)).into_owned(),
            Placeholder::Rule => texts.rule,
            Placeholder::Unit => texts.unit,
            Placeholder::Rate => format!("{:.1}", window.after),
            Placeholder::Limit => text::number(window.limit),
            Placeholder::Period => period(event, &window),
            // Nothing remains, and later events decide how long that lasts.
            Placeholder::Remaining => "0".to_owned(),
            Placeholder::RetryAfter => String::new(),
            Placeholder::Auth => texts.login,
            Placeholder::Client => texts.client,
            Placeholder::Sender => texts.sender,
            Placeholder::Recipient => texts.recipient,
            Placeholder::Script => texts.script,
            Placeholder::MessageId => texts.message_id,
            Placeholder::Time => event.at.seconds.to_string(),
        }
    }

    /// A mail message to whoever has the account, without what a stranger may know.
    pub(super) fn mail_to_owner(&self, to: &str) -> String {
        let (host, who) = (self.host, &self.known.who);
        let what = match self.event.is_alarm() {
            true => "is unlike what it usually sends",
            false if self.event.is_overdue() => "has waited for longer than it may",
            false => "was more than is allowed in a while",
        };
        let then = match self.event.blocked() {
            Some(block) => format!("All of it is refused {}", until(block)),
            None => "Some of it may not have been sent".to_owned(),
        };
        let at = text::local(self.event.at);
        let body = format!(
            "The mail of the account {who} on {host} {what} ({at}). {then}.\n\nIf that was not you, \
             somebody else may know its password: change it, on a computer that you trust, and tell \
             your administrator.\n"
        );
        self.head.mail(to, &format!("your account {who} on {host}"), &body)
    }

    /// A mail message.
    pub(super) fn mail(&self, to: &str) -> String {
        let (host, commands) = (self.host, &self.known.commands);
        let mut body = format!("{}\n\n", self.known.text);
        for (what, command) in commands.each() {
            body += &format!("{what}:\n  {command}\n");
        }
        body += &format!("\nhost: {host}\ntime: {}\n", text::local(self.event.at));
        self.details().for_each(|(name, value)| body += &format!("{name}: {value}\n"));
        let subject = match self.head.test {
            false => format!("{} {} on {host}", self.known.who, self.state()),
            true => format!("test of alerts from {host}"),
        };
        self.head.mail(to, &subject, &body)
    }
}
