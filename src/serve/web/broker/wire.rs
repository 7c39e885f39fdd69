//! What is said between the web service and its broker: one request and one reply a connection,
//! each a line of JSON.

use serde::{Deserialize, Serialize};

use crate::standing::held::HeldMessage;
use crate::text;
use crate::toml_file::Word;

/// The longest request, with its end.
pub const LINE_MAX: usize = 4096;
/// The longest reply, with its end.
pub const REPLY_MAX: usize = 1 << 20;

/// What a line can be.
pub trait Line {
    /// The longest, with its end.
    const MAX: usize;
}

impl Line for Request {
    const MAX: usize = LINE_MAX;
}

impl Line for Reply {
    const MAX: usize = REPLY_MAX;
}

/// What somebody asks for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// Who asks.
    pub who: Who,
    /// What is to be done.
    pub verb: Verb,
    /// The key, as `exirate list` prints it; of `held`, empty for all.
    pub key: String,
    /// For how long; of `allow` and `deny`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds: Option<i64>,
    /// Of `deny`: `reject` or `defer`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply: Option<String>,
    /// Why, for the list of overrides and the log.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Of `release`: only the message of this name in the queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Of `stolen`: whether to delete what was held for the alarm; else it stays held.
    #[serde(default, skip_serializing_if = "is_not")]
    pub delete: bool,
}

/// Whether it is `false`, as an earlier version has it.
#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_not(what: &bool) -> bool {
    !what
}

/// Who asks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum Who {
    /// Who has this token. The broker looks it up.
    Token(String),
    /// A user of this machine who has connected, as the web service says.
    User(String),
    /// A person named by the proxy, as the web service says.
    Person(String),
}

/// What the broker can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verb {
    /// Delete the records of a key, and end denials of it.
    Unblock,
    /// Lift its limits for a time.
    Allow,
    /// Refuse it for a time.
    Deny,
    /// End its override.
    End,
    /// It was the owner.
    Accept,
    /// The account is stolen.
    Stolen,
    /// Show the messages that policies hold.
    Held,
    /// Release held messages.
    Release,
}

impl Word for Verb {
    const ALL: &'static [Self] = &[
        Self::Unblock,
        Self::Allow,
        Self::Deny,
        Self::End,
        Self::Accept,
        Self::Stolen,
        Self::Held,
        Self::Release,
    ];

    fn word(self) -> &'static str {
        match self {
            Self::Unblock => "unblock",
            Self::Allow => "allow",
            Self::Deny => "deny",
            Self::End => "end",
            Self::Accept => "accept",
            Self::Stolen => "stolen",
            Self::Held => "held",
            Self::Release => "release",
        }
    }
}

/// What became of a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Reply {
    /// It was done.
    Done(Done),
    /// It was not.
    Refused(Refused),
}

/// What was done.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Done {
    /// In sentences.
    pub said: Vec<String>,
    /// How many records were deleted, or alarms answered.
    pub records: u64,
    /// When the override ends, in seconds since 1970.
    pub until: Option<i64>,
    /// What a thief has sent, where that could be looked up.
    pub sent: Option<MailOfThief>,
    /// The messages that are held: the first of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(in crate::serve) held: Vec<HeldMessage>,
    /// How many there are.
    #[serde(default)]
    pub messages: u64,
}

/// What a thief has sent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MailOfThief {
    /// Since when, in seconds since 1970.
    pub since: i64,
    /// How many messages.
    pub messages: u64,
    /// To how many recipients.
    pub recipients: u64,
    /// Those of them that have room in a reply.
    pub people: Vec<String>,
    /// From where: the most messages first.
    pub clients: Vec<String>,
}

/// Why something was not done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refused {
    /// The kind.
    pub why: Why,
    /// What would be right, in words.
    pub detail: String,
}

/// Kinds of refusals.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Why {
    /// It cannot be read.
    Malformed,
    /// Nobody is known by this token or name.
    Unknown,
    /// The role does not allow it.
    Role,
    /// It is more than one who helps may do.
    Bounds,
    /// There is nothing to change.
    Nothing,
    /// The database could not be changed.
    Database,
    /// The mail server's queue could not be asked for.
    Queue,
}

impl Reply {
    /// A refusal.
    #[must_use]
    pub fn refused(why: Why, detail: impl Into<String>) -> Self {
        Self::Refused(Refused::new(why, detail))
    }
}

impl Refused {
    /// For this reason.
    pub(super) fn new(why: Why, detail: impl Into<String>) -> Self {
        Self { why, detail: detail.into() }
    }

    /// As the database cannot be used.
    pub(super) fn database(error: impl std::fmt::Display) -> Self {
        Self::new(Why::Database, error.to_string())
    }
}

/// What to do where a part of a line is not known: an upgrade may have restarted one of the two.
const TWO_VERSIONS: &str =
    "if the web service and its broker are of different versions of exirate, restart both";

/// Reads a line, with or without its end.
///
/// # Errors
/// What is wrong with it, in words.
pub fn read<'d, T: Line + Deserialize<'d>>(line: &'d [u8]) -> Result<T, String> {
    if line.len() > T::MAX {
        return Err(format!("longer than {} bytes", T::MAX));
    }
    serde_json::from_slice(line).map_err(|error| format!("{error}; {TWO_VERSIONS}"))
}

/// A line, with its end.
///
/// # Errors
/// It would be too long, in words.
pub fn write<T: Line + Serialize>(what: &T) -> Result<Vec<u8>, String> {
    let mut line = text::json(what).map_err(|error| error.to_string())?;
    line.push('\n');
    let is_short = line.len() <= T::MAX;
    is_short.then(|| line.into_bytes()).ok_or_else(|| format!("longer than {} bytes", T::MAX))
}

#[cfg(test)]
mod tests {
    use kit::quickcheck;

    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let request = Request {
            who: Who::Token("exirate_x".into()),
            verb: Verb::Allow,
            key: "a\"\n\\é".into(),
            seconds: Some(60),
            reply: Some("defer".into()),
            reason: String::new(),
            id: None,
            delete: false,
        };
        let line = write(&request).unwrap();
        assert_eq!(line.iter().filter(|b| **b == b'\n').count(), 1);
        assert_eq!(read(&line), Ok(request.clone()));
        let long = Request { key: "x".repeat(LINE_MAX), ..request };
        assert!(write(&long).is_err());
        for word in Verb::ALL {
            assert_eq!(serde_json::to_value(word).unwrap(), word.word());
        }
    }

    #[test]
    fn what_is_no_request_is_refused() {
        for line in [
            "",
            "{}",
            "[]",
            r#"{"who":{"token":"x"},"verb":"reset","key":"a"}"#,
            r#"{"who":{"root":"x"},"verb":"deny","key":"a"}"#,
            r#"{"who":{"token":"x","person":"y"},"verb":"deny","key":"a"}"#,
            r#"{"who":{"token":"x"},"verb":"deny","key":"a","role":"help"}"#,
            r#"{"who":{"token":"x"},"verb":"deny","key":"a","seconds":1e99}"#,
        ] {
            let why = read::<Request>(line.as_bytes()).unwrap_err();
            assert!(why.ends_with(TWO_VERSIONS), "{line}: {why}");
        }
    }

    quickcheck! {
        fn no_bytes_panic(bytes: Vec<u8>) -> bool {
            read::<Request>(&bytes).is_err() && read::<Reply>(&bytes).is_err()
        }
    }
}
