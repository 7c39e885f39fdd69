//! What a log says, whatever mail server wrote it: messages, refusals, sessions.

use std::net::{IpAddr, Ipv4Addr};
use std::rc::Rc;

use super::failure::Failure;
use crate::event::{Circumstances, Event, HandedOver, Origin};
use crate::rate::Timestamp;

/// Something that a log shows, complete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// The time of its (first) line.
    pub at: Timestamp,
    /// The session that it belongs to, if the log tells sessions apart.
    pub session: Option<SessionKey>,
    /// Where the log shows who has logged in.
    pub login: LoginShown,
    /// The mail server that wrote it.
    pub server: Server,
    /// What is known of it, as the log has it; what follows from that is not filled in. The
    /// local account is also what the host of a client says of its user (`U=`).
    pub event: Event<Text>,
    /// What it is.
    pub what: ItemKind,
}

/// The mail server that wrote a line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Server {
    /// Exim.
    #[default]
    Exim,
    /// Postfix.
    Postfix,
    /// Sendmail.
    Sendmail,
}

impl Server {
    /// The event that a front end of this mail server decides on, where the log has this one.
    /// What the log shows to be the mail server's own stays so: no front end is asked.
    ///
    /// Exim knows the account of a program. The others pass its mail to the milter as that of
    /// 127.0.0.1, and their policy protocol not at all: what their logs say of the account
    /// shows only that it is root's.
    #[must_use]
    pub fn decided(self, mut event: Event<Text>) -> Event<Text> {
        if event.client == Origin::Program {
            let is_uid_0 = self == Self::Postfix && event.local_account.as_deref() == Some("0");
            event.system |= is_uid_0 || event.is_of_a_system_account();
            if self != Self::Exim {
                event.client = Origin::Client(Ipv4Addr::LOCALHOST.into());
                event.local_account = None;
            }
        }
        event
    }
}

/// What tells the sessions of a log apart. A session ends with [`ItemKind::Close`]; after
/// that, or hours later, the same key is another session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SessionKey {
    /// The client's address and port: Exim with `log_selector = +incoming_port`, and postscreen.
    Port {
        /// The host that wrote the line, by its number.
        host: u32,
        /// The client.
        client: IpAddr,
        /// Its port.
        port: u16,
    },
    /// The process that wrote the line: Exim with `log_selector = +pid` or by syslog, and
    /// Postfix's `smtpd`.
    Process {
        /// The program on its host, by its number.
        service: u32,
        /// The process.
        pid: u32,
        /// Which client of this process it is: each has another number.
        run: u64,
    },
}

/// Where a log shows who has logged in, if anybody has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LoginShown {
    /// In the line: the event has the login, or there is none.
    #[default]
    InLine,
    /// In other lines of the session, if they name a login.
    InSession,
    /// Nowhere: it is not known.
    Nowhere,
}

/// A text of a log, which items and what is made of them share.
pub type Text = Rc<str>;

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
    Incomplete {
        /// The recipients that had been accepted.
        recipients: Vec<Text>,
    },
    /// A recipient of a message that was received could not be delivered to, for good, or as yet, where
    /// that counts; the event is of whoever submitted the message.
    Failed(Undelivered),
    /// A client connected.
    Connect,
    /// The session ended. If its login is shown nowhere, somebody has logged in.
    Close,
}

/// A message that was received; its id, its sender and so on are the event's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Message {
    /// Its size in bytes.
    pub size: Option<u64>,
    /// The recipients that were accepted, in the order of the log: as often as the client
    /// named them if the arrival names them, else each once.
    pub recipients: Vec<Text>,
    /// Whether these are all: the log names them at the arrival, or has shown the message
    /// until its end.
    pub recipients_known: bool,
}

/// A command or a message that was refused; the recipient in RCPT is the event's.
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

/// A recipient that could not be delivered to; it is the event's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Undelivered {
    /// Why.
    pub failure: Failure,
    /// When the message was received.
    pub received: Timestamp,
    /// The log does not show who has logged in: the event is of the client.
    pub hides_login: bool,
}

/// A login that failed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FailedLogin {
    /// The user that was tried, where it is known.
    pub user: Option<Text>,
    /// Whether the server could not check the password.
    pub temporary: bool,
}

impl Item {
    /// Of a message: whoever submitted it, as a front end of the mail server decides on it, with
    /// what follows from that.
    #[must_use]
    pub fn submitter(&self) -> Event<Text> {
        let event = self.server.decided(self.event.clone());
        let has_used_auth = event.auth.is_some();
        let handed_over = HandedOver::Said(event.system);
        event.complete(&Circumstances { has_used_auth, handed_over, ..Circumstances::default() })
    }

    /// The length of its texts, in bytes.
    pub(super) fn text_bytes(&self) -> usize {
        // Each recipient may be kept twice, to be compared.
        let all = |list: &[Text]| list.iter().map(|one| 2 * (one.len() + 48)).sum::<usize>();
        let id = self.event.message_id.as_ref().map_or(0, |id| id.len());
        let of_kind = match &self.what {
            ItemKind::Message(Message { recipients, .. }) => id + all(recipients),
            ItemKind::Refusal(one) | ItemKind::Discarded(one) => one.reason.len(),
            ItemKind::FailedLogin(login) => login.user.as_ref().map_or(0, |user| user.len()),
            ItemKind::Incomplete { recipients } => all(recipients),
            ItemKind::Failed(_) => id,
            ItemKind::Connect | ItemKind::Close => 0,
        };
        self.event.text_bytes() + of_kind
    }
}
