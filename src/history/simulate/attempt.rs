//! What clients attempted, step by step, as a log shows it.

use std::rc::Rc;

use crate::event::Event;
use crate::logs::failure::Failure;
use crate::logs::item::Text;
use crate::rate::Timestamp;

/// A step of an SMTP session, or a message handed over without one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// When.
    pub at: Timestamp,
    /// The session; those of the log have different numbers.
    pub session: u64,
    /// What is known of the message that it belongs to, or of the session; the recipient is in
    /// `part`.
    pub event: Rc<Event<Text>>,
    /// What was attempted.
    pub part: AttemptPart,
    /// What came of it on the log's server.
    pub in_log: InLog,
}

/// What was attempted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AttemptPart {
    /// The client connects.
    Connect,
    /// AUTH.
    Auth,
    /// MAIL: a message begins.
    Mail,
    /// RCPT.
    Rcpt {
        /// The address.
        recipient: Text,
    },
    /// DATA: the message is received. Its recipients are those that were accepted.
    Data {
        /// Its size in bytes, if it is known.
        size: Option<u64>,
    },
    /// A message without SMTP.
    NotSmtp {
        /// Its recipients.
        recipients: Vec<Text>,
        /// Its size in bytes, if it is known.
        size: Option<u64>,
    },
    /// A recipient of a message that was received could not be delivered to, for good.
    Failed {
        /// The address.
        recipient: Text,
        /// Why.
        failure: Failure,
        /// How long after the message was received, in seconds.
        age: u64,
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
