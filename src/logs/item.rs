//! What a log says, whatever mail server wrote it: messages, refusals, sessions.

use std::net::IpAddr;

use crate::rate::Timestamp;

/// Something that a log shows, complete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// The time of its (first) line.
    pub at: Timestamp,
    /// The session that it belongs to, if the log tells sessions apart.
    pub session: Option<SessionKey>,
    /// What it is.
    pub what: ItemKind,
}

/// What tells the sessions of a log apart. A session ends with [`ItemKind::Close`]; after
/// that, or hours later, the same key is another session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SessionKey {
    /// The client's address and port: Exim with `log_selector = +incoming_port`.
    Port(IpAddr, u16),
    /// The process that wrote the line: Exim with `log_selector = +pid` or by syslog, and
    /// Postfix's `smtpd`.
    Process(u32),
}

/// What an item is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ItemKind {
    /// A message that was received.
    Message(Message),
    /// A command or a message that was refused, by SMTP or locally.
    Refusal(Refusal),
    /// A recipient that was accepted and then ignored (Exim's `discard` at RCPT).
    Discarded(Refusal),
    /// A login that failed.
    FailedLogin(FailedLogin),
    /// A message that ended without DATA: by RSET, QUIT or the end of the connection.
    Incomplete(Incomplete),
    /// A client connected.
    Connect {
        /// Its address; `None` for SMTP on standard input.
        client: Option<IpAddr>,
    },
    /// The session ended.
    Close {
        /// The client's address; `None` for SMTP on standard input.
        client: Option<IpAddr>,
    },
}

/// A message that was received.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Message {
    /// Its id in the log.
    pub id: String,
    /// The envelope sender, without brackets; empty for a bounce.
    pub sender: String,
    /// The client's address.
    pub client: Option<IpAddr>,
    /// The name in HELO, where it is known.
    pub helo: Option<String>,
    /// The login.
    pub auth: Option<String>,
    /// The local account, or what the client's host says of itself (`U=`).
    pub user: Option<String>,
    /// Handed over on this machine, not by a client with an address.
    pub local: bool,
    /// Its size in bytes.
    pub size: Option<u64>,
    /// The recipients that were accepted, in the order of the log: as often as the client
    /// named them if the arrival names them, else each once.
    pub recipients: Vec<String>,
    /// Whether these are all: the log names them at the arrival, or has shown the message
    /// until its end.
    pub recipients_known: bool,
}

/// A command or a message that was refused.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Refusal {
    /// At which command.
    pub stage: Stage,
    /// Whether the client may try again.
    pub temporary: bool,
    /// Whether a policy or a limit refused it: exirate's, or native `ratelimit` where its
    /// text says so.
    pub limited: bool,
    /// Why, as the log has it; empty if it does not say.
    pub reason: String,
    /// The recipient in RCPT.
    pub recipient: Option<String>,
    /// The envelope sender, without brackets, if it is known; empty for a bounce.
    pub sender: Option<String>,
    /// The client's address.
    pub client: Option<IpAddr>,
    /// The name in HELO, where it is known.
    pub helo: Option<String>,
    /// The login.
    pub auth: Option<String>,
    /// The local account, or what the client's host says of itself (`U=`).
    pub user: Option<String>,
    /// Handed over on this machine, not by a client with an address.
    pub local: bool,
    /// The id of the message, where it has one already.
    pub message_id: Option<String>,
}

/// At which command something was refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Stage {
    /// The connection.
    Connect,
    /// HELO, EHLO.
    Helo,
    /// AUTH, before the login was tried.
    Auth,
    /// MAIL.
    Mail,
    /// RCPT.
    Rcpt,
    /// DATA and what follows it; a message without SMTP.
    Data,
    /// Another command.
    #[default]
    Other,
}

/// A login that failed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FailedLogin {
    /// The client's address.
    pub client: Option<IpAddr>,
    /// The name in HELO, where it is known.
    pub helo: Option<String>,
    /// The user that was tried, where it is known.
    pub user: Option<String>,
    /// Whether the server could not check the password.
    pub temporary: bool,
}

/// A message that ended without DATA.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Incomplete {
    /// The envelope sender, without brackets; empty for a bounce.
    pub sender: String,
    /// The client's address.
    pub client: Option<IpAddr>,
    /// The name in HELO, where it is known.
    pub helo: Option<String>,
    /// The login, where it is known.
    pub auth: Option<String>,
    /// The local account, or what the client's host says of itself (`U=`).
    pub user: Option<String>,
    /// The recipients that had been accepted.
    pub recipients: Vec<String>,
}

impl Item {
    /// The length of its texts, in bytes.
    pub(super) fn text_bytes(&self) -> usize {
        let some = |text: &Option<String>| text.as_ref().map_or(0, String::len);
        // Each recipient may be kept twice, to be compared.
        let all = |list: &[String]| list.iter().map(|one| 2 * (one.len() + 48)).sum::<usize>();
        match &self.what {
            ItemKind::Message(Message { id, sender, helo, auth, user, recipients, .. }) => {
                2 * id.len() + sender.len() + some(helo) + some(auth) + some(user) + all(recipients)
            }
            ItemKind::Refusal(one) | ItemKind::Discarded(one) => {
                let Refusal { reason, recipient, sender, helo, auth, user, message_id, .. } = one;
                let texts = [recipient, sender, helo, auth, user, message_id];
                reason.len() + texts.into_iter().map(some).sum::<usize>()
            }
            ItemKind::FailedLogin(FailedLogin { helo, user, .. }) => some(helo) + some(user),
            ItemKind::Incomplete(Incomplete { sender, helo, auth, user, recipients, .. }) => {
                sender.len() + some(helo) + some(auth) + some(user) + all(recipients)
            }
            ItemKind::Connect { .. } | ItemKind::Close { .. } => 0,
        }
    }
}
