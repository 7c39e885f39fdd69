//! What clients attempted, step by step, as a log shows it.

use std::net::IpAddr;
use std::rc::Rc;

use crate::policy::event::{Event, Local, is_system_account};
use crate::rate::Timestamp;

/// What the steps of a message have in common. What is `None` is not known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Envelope {
    /// The login.
    pub auth: Option<String>,
    /// The local account that hands over the message.
    pub local_account: Option<String>,
    /// The client's address.
    pub client: Option<IpAddr>,
    /// The name in HELO.
    pub helo: Option<String>,
    /// The envelope sender; `Some("")` is that of a bounce.
    pub sender: Option<String>,
    /// The id of the message, if it was received.
    pub message_id: Option<String>,
    /// Whether it is local.
    pub local: Local,
}

/// A step of an SMTP session, or a message handed over without one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// When.
    pub at: Timestamp,
    /// The session; those of the log have different numbers.
    pub session: u64,
    /// The message that it belongs to, or what is known of the session.
    pub envelope: Rc<Envelope>,
    /// What was attempted.
    pub part: Part,
    /// What came of it on the log's server.
    pub in_log: InLog,
}

/// What was attempted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// The client connects.
    Connect,
    /// AUTH.
    Auth,
    /// MAIL: a message begins.
    Mail,
    /// RCPT.
    Rcpt {
        /// The address.
        recipient: String,
    },
    /// DATA: the message is received. Its recipients are those that were accepted.
    Data {
        /// Its size in bytes, if it is known.
        size: Option<u64>,
    },
    /// A message without SMTP.
    NotSmtp {
        /// Its recipients.
        recipients: Vec<String>,
        /// Its size in bytes, if it is known.
        size: Option<u64>,
    },
    /// The message ends without DATA: RSET, QUIT or the end of the connection.
    Incomplete,
    /// The session ends.
    Close,
}

/// What came of an attempt on the log's server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum InLog {
    /// It was accepted; a login succeeded.
    #[default]
    Accepted,
    /// A policy or a limit of exirate refused it: its retries are in the log.
    Limited,
    /// It was refused for good for another reason, or the login failed.
    Rejected,
    /// It was refused for now for another reason.
    Deferred,
}

impl Envelope {
    /// What policies know of an event with this envelope, whose part is `of`.
    pub(super) fn event<'a>(&'a self, of: &Part, recipient: Option<&'a str>) -> Event<'a> {
        let is_systems = || self.local_account.as_deref().is_some_and(is_system_account);
        Event {
            auth: self.auth.as_deref(),
            local_account: self.local_account.as_deref(),
            script: None,
            client: self.client,
            helo: self.helo.as_deref(),
            sender: self.sender.as_deref(),
            recipient,
            package: None,
            message_id: self.message_id.as_deref(),
            local: self.local,
            system: matches!(of, Part::NotSmtp { .. }) && self.client.is_none() && is_systems(),
            once_a_message: false,
        }
    }

    /// Whether it is from another mail server, as far as is known: one that tries again
    /// later. Users and local programs do not.
    pub(super) fn is_of_a_server(&self) -> bool {
        self.auth.is_none()
            && self.local_account.is_none()
            && self.client.is_some()
            && !self.local.is()
    }
}
