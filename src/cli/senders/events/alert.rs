//! An event as receivers get it: a line, JSON, the arguments of a program, or mail.

use serde::Serialize;

use super::event::{EventJson, decisive, key, period};
use crate::cli::shared::key_text;
use crate::policy::model::{Piece, Template};
use crate::policy::word::Placeholder;
use crate::spool::{Enforcement, LoggedEvent};
use crate::text;

/// An event that is sent.
#[derive(Serialize)]
pub(super) struct Alert<'a> {
    pub(super) id: &'a str,
    pub(super) attempt: u32,
    /// Whether it may have been sent before.
    pub(super) redelivered: bool,
    #[serde(flatten)]
    json: EventJson,
    #[serde(skip)]
    pub(super) event: &'a LoggedEvent,
}

impl<'a> Alert<'a> {
    pub(super) fn new(event: &'a LoggedEvent, id: &'a str, attempt: u32, marked: bool) -> Self {
        let redelivered = marked || attempt > 1;
        Self { id, attempt, redelivered, json: EventJson::of(event), event }
    }

    /// `redelivered`, as programs and mail have it.
    pub(super) fn redelivered(&self) -> &'static str {
        if self.redelivered { "yes" } else { "no" }
    }

    /// What is said of the key.
    fn state(&self) -> &'static str {
        match self.event.enforcement {
            Enforcement::Enforced => "is over the limit",
            Enforcement::Observed => "is over the limit, which is only observed",
            Enforcement::Exempt => "is over the limit, and exempt",
        }
    }

    /// What has happened, without details.
    fn summary(&self) -> String {
        let (event, window) = (self.event, decisive(self.event));
        format!(
            "{} {}: {:.1}/{} in {}",
            text::printable(key(event)),
            self.state(),
            window.after,
            text::number(window.limit),
            period(event, &window),
        )
    }

    /// The texts that are not empty, with their names: that of the id is what it is of.
    fn details(&self) -> impl Iterator<Item = (&'static str, String)> {
        let texts = self.event.texts.values().filter(|(_, value)| !value.is_empty());
        texts
            .map(|(name, value)| (name.strip_suffix("_id").unwrap_or(name), text::printable(value)))
    }

    /// A line for people and logs.
    pub(super) fn line(&self) -> String {
        let mut line = format!("{} {}", text::iso(self.event.at), self.summary());
        self.details().for_each(|(name, value)| line += &format!(" {name}={value}"));
        line += &format!(" id={}", self.id);
        if self.redelivered {
            line += " redelivered";
        }
        line
    }

    /// One object of JSON.
    pub(super) fn json(&self) -> Result<String, String> {
        serde_json::to_string(self).map_err(|error| error.to_string())
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
            Placeholder::MessageId => texts.message_id,
            Placeholder::Time => event.at.seconds.to_string(),
        }
    }

    /// A mail message. Exim adds `From:`, `Date:` and `Message-ID:`.
    pub(super) fn mail(&self, to: &str) -> String {
        let key = text::shell(&key_text::key(self::key(self.event)));
        let key = if key.starts_with('-') { format!("-- {key}") } else { key };
        let subject: String = text::printable(self::key(self.event))
            .chars()
            .map(|c| if c.is_ascii() { c } else { '?' })
            .take(120)
            .collect();
        let mut body = format!("{}\n\ntime: {}\n", self.summary(), text::iso(self.event.at));
        self.details().for_each(|(name, value)| body += &format!("{name}: {value}\n"));
        if self.redelivered {
            body += "\nThis alert may have been sent before.\n";
        }
        format!(
            "To: {to}\nSubject: exirate: {subject} {}\n\
             Auto-Submitted: auto-generated\nX-Exirate-Event-Id: {}\nX-Exirate-Attempt: {}\n\
             X-Exirate-Redelivered: {}\nMIME-Version: 1.0\n\
             Content-Type: text/plain; charset=utf-8\n\n{body}\n\
             Show all its limits: `exirate show {key}`\n\
             Show what was refused: `exirate events --refusals {key}`\n\
             Stop it: `exirate deny {key}`\n\
             Let it send again: `exirate unblock {key}`\n",
            self.state(),
            self.id,
            self.attempt,
            self.redelivered(),
        )
    }
}
