//! The protocol without input and output: pieces of packets go in; replies, events to be
//! decided and messages to be recorded come out.
//!
//! Nothing that the mail server sends is out of place enough to count what did not happen:
//! recipients and messages count between MAIL and the end of the message, and commands
//! elsewhere only get their replies.

use super::content::{Content, Kept};
use super::macros::{Macros, address, text};
use super::marks::Marks;
use super::negotiate::{Agreed, NoAgreement, Wants, step};
use super::packet::{self, PacketFault, Piece};
use super::reply::Reply;
use super::room::{Room, Share};
use crate::event::session::SessionFacts;
use crate::event::{AclStage, Circumstances, Event, Origin};
use crate::policy::word::Verdict;
use crate::serve::mail::event::{Hold, MailEvent, MailVerdict};
use crate::spool::HELD_BY;
use crate::trace::Envelope;

/// How much of the recipients of a message is kept without room of all connections.
const RECIPIENTS_FREE: usize = 4 << 10;
/// What the text of a recipient takes besides its bytes.
const RECIPIENT_BYTES: usize = size_of::<String>();

/// Why the connection is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DialogueFault {
    /// A packet that cannot be read.
    #[error("{0}")]
    Packet(#[source] PacketFault),
    /// There is no agreement on the protocol.
    #[error("{0}")]
    NoAgreement(#[source] NoAgreement),
    /// A command before the negotiation.
    #[error("a command {:?} before the negotiation", char::from(*.0))]
    Early(u8),
    /// A command that does not exist.
    #[error("a command {:?}, which is not known", char::from(*.0))]
    Unknown(u8),
    /// A command without its data.
    #[error("a command {:?} without data", char::from(*.0))]
    Malformed(u8),
}

/// The stage at which a recipient is counted that the mail server has refused: nothing of a
/// message counts there. It is counted at once, as the message may end without another
/// recipient.
const REJECTED: AclStage = AclStage::Quit;

/// What is to be done.
#[derive(Debug, PartialEq)]
pub enum Step {
    /// Nothing: no reply is due.
    Nothing,
    /// Send this.
    Reply(Reply),
    /// Decide this event, and hand the verdict to [`Dialogue::decided`].
    Decide(Box<MailEvent>),
    /// The mail server ends the connection.
    Quit,
}

/// An accepted message to be recorded.
#[derive(Debug)]
pub struct Accepted {
    /// Its envelope; the time is not known.
    pub envelope: Envelope,
    /// Its headers and its body.
    pub content: Kept,
}

/// How much of messages is kept.
#[derive(Clone, Debug)]
pub struct Limits {
    /// The most that is kept of one.
    pub max_message: usize,
    /// The memory that all connections share.
    pub room: Room,
}

/// One connection of a mail server.
#[derive(Debug)]
pub struct Dialogue {
    wants: Wants,
    limits: Limits,
    agreed: Option<Agreed>,
    macros: Macros,
    client: Client,
    message: Option<Message>,
    /// The event that is being decided.
    deciding: Option<AclStage>,
    begun: Begun,
}

/// What has begun since the session of the policies was used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Begun {
    /// Another SMTP connection.
    pub connection: bool,
    /// Another message.
    pub message: bool,
}

/// The client of the SMTP connection.
#[derive(Debug, Default)]
struct Client {
    helo: Option<String>,
    origin: Origin,
    /// Not by SMTP.
    submission: bool,
    /// All of its messages are held for this reason.
    hold: Option<Hold>,
}

/// A message, from MAIL on.
#[derive(Debug)]
struct Message {
    sender: String,
    /// What the client says of its size; 0 if nothing.
    declared_size: u64,
    /// Those that were accepted, as far as there is room for them.
    recipients: Vec<String>,
    recipient_bytes: usize,
    share: Share,
    /// The recipient that is being decided.
    pending: Option<String>,
    accepted: u32,
    rejected: u32,
    hold: Option<Hold>,
    content: Content,
    marks: Marks,
    /// Recipients are not all kept.
    partial: bool,
}

impl Dialogue {
    /// A new connection.
    #[must_use]
    pub fn new(wants: Wants, limits: Limits) -> Self {
        Self {
            wants,
            limits,
            agreed: None,
            macros: Macros::default(),
            client: Client::default(),
            message: None,
            deciding: None,
            begun: Begun::default(),
        }
    }

    /// Takes the next piece. While an event is being decided, there must be none.
    ///
    /// # Errors
    /// The connection must be closed.
    pub fn take(&mut self, piece: Piece<'_>) -> Result<Step, DialogueFault> {
        match piece {
            Piece::Whole(packet::NEGOTIATE, data) => self.negotiate(data),
            Piece::Whole(packet::QUIT, _) => Ok(Step::Quit),
            Piece::Whole(command, data) => {
                let agreed = self.agreed.ok_or(DialogueFault::Early(command))?;
                self.command(agreed, command, data)
            }
            Piece::Part { command, data, last } => {
                let agreed = self.agreed.ok_or(DialogueFault::Early(command))?;
                Ok(self.part(agreed, command, data, last))
            }
        }
    }

    /// Whether the negotiation was successful.
    #[must_use]
    pub fn has_agreed(&self) -> bool {
        self.agreed.is_some()
    }

    /// Whether there is a message that has not ended.
    #[must_use]
    pub fn has_message(&self) -> bool {
        self.message.is_some()
    }

    /// What has begun since the last call.
    pub fn begun(&mut self) -> Begun {
        std::mem::take(&mut self.begun)
    }

    /// Takes the verdict on the event of the last [`Step::Decide`]; returns the reply, and at
    /// the end of an accepted message, the message, if it is to be recorded.
    pub fn decided(&mut self, verdict: &MailVerdict) -> (Reply, Option<Accepted>) {
        let Some(stage) = self.deciding.take() else { return (Reply::Continue, None) };
        let text = verdict.outcome.text.clone();
        let refusal = match verdict.outcome.verdict {
            Verdict::Reject => Some(Reply::Reject(text.clone())),
            Verdict::Defer => Some(Reply::Defer(text.clone())),
            _ => None,
        };
        let hold = verdict.hold();
        match (stage, refusal) {
            (AclStage::Data | AclStage::NotSmtp, Some(refusal)) => {
                self.end_message();
                (refusal, None)
            }
            (AclStage::Data | AclStage::NotSmtp, None) => self.accept(hold),
            (AclStage::Rcpt, refusal) => {
                self.macros.end_recipient();
                let Some(message) = &mut self.message else { return (Reply::Continue, None) };
                message.hold = message.hold.take().or(hold);
                let pending = message.pending.take().unwrap_or_default();
                if refusal.is_none() {
                    message.add(pending);
                }
                (refusal.unwrap_or(Reply::Continue), None)
            }
            (AclStage::Mail, Some(refusal)) => {
                self.end_message();
                (refusal, None)
            }
            (AclStage::Mail, None) => {
                if let Some(message) = &mut self.message {
                    message.hold = hold;
                }
                (Reply::Continue, None)
            }
            // It is refused already.
            (REJECTED, _) => (Reply::Continue, None),
            (_, refusal) => {
                self.client.hold = self.client.hold.take().or(hold);
                (refusal.unwrap_or(Reply::Continue), None)
            }
        }
    }

    fn negotiate(&mut self, data: &[u8]) -> Result<Step, DialogueFault> {
        let agreed = Agreed::to(data, self.wants).map_err(DialogueFault::NoAgreement)?;
        self.end_connection();
        self.agreed = Some(agreed);
        Ok(Step::Reply(Reply::Agreed(agreed.data())))
    }

    fn command(&mut self, agreed: Agreed, command: u8, data: &[u8]) -> Result<Step, DialogueFault> {
        match command {
            packet::MACRO => self.macros.take(data),
            packet::ABORT => self.end_message(),
            packet::NEXT => self.end_connection(),
            packet::CONNECT => return self.connect(agreed, data),
            packet::HELO => {
                // As in SMTP.
                self.end_message();
                let name = packet::texts(data).next().map(text);
                self.client.helo = name.filter(|name| !name.is_empty());
                if self.wants.helo && !self.client.submission {
                    return Ok(self.decide(AclStage::Helo));
                }
                return Ok(due(agreed, step::NR_HELO));
            }
            packet::MAIL => return self.mail(agreed, data),
            packet::RCPT => return self.recipient(agreed, data),
            packet::DATA => return Ok(due(agreed, step::NR_DATA)),
            packet::UNKNOWN => return Ok(due(agreed, step::NR_UNKN)),
            packet::END_OF_HEADERS => {
                if let Some(message) = &mut self.message {
                    message.content.end_headers();
                }
                return Ok(due(agreed, step::NR_EOH));
            }
            _ => return Err(DialogueFault::Unknown(command)),
        }
        Ok(Step::Nothing)
    }

    fn connect(&mut self, agreed: Agreed, data: &[u8]) -> Result<Step, DialogueFault> {
        let malformed = DialogueFault::Malformed(packet::CONNECT);
        // The name of the client, a byte for the family, a port of two bytes, an address.
        let name_end = data.iter().position(|&byte| byte == 0).ok_or(malformed)?;
        let (&family, rest) =
            data.get(name_end + 1..).and_then(|d| d.split_first()).ok_or(malformed)?;
        let (port, rest) = match rest.split_first_chunk() {
            Some((port, rest)) => (u16::from_be_bytes(*port), rest),
            None => (0, rest),
        };
        let inet = matches!(family, b'4' | b'6');
        let address = packet::texts(rest).next().filter(|_| inet).and_then(address);
        self.end_message();
        let loopback = address.is_some_and(|address| address.is_loopback());
        self.client = Client {
            origin: if family == b'U' { Origin::Program } else { Origin::of_client(address) },
            // Sendmail has no address then; Postfix writes that of the local host without a
            // port, which no SMTP client is without.
            submission: family == b'U' || loopback && port == 0,
            ..Client::default()
        };
        self.begun.connection = true;
        if self.wants.connect && !self.client.submission {
            return Ok(self.decide(AclStage::Connect));
        }
        Ok(due(agreed, step::NR_CONN))
    }

    fn mail(&mut self, agreed: Agreed, data: &[u8]) -> Result<Step, DialogueFault> {
        let sender = argument(data).ok_or(DialogueFault::Malformed(packet::MAIL))?;
        let declared_size = declared_size(data).unwrap_or(0);
        let keep = self.wants.record.then_some((&self.limits.room, self.limits.max_message));
        self.message = Some(Message {
            sender,
            declared_size,
            recipients: Vec::new(),
            recipient_bytes: 0,
            share: self.limits.room.share(),
            pending: None,
            accepted: 0,
            rejected: 0,
            hold: None,
            content: Content::new(keep),
            marks: Marks::default(),
            partial: false,
        });
        self.begun.message = true;
        if self.wants.mail && !self.client.submission {
            return Ok(self.decide(AclStage::Mail));
        }
        Ok(due(agreed, step::NR_MAIL))
    }

    fn recipient(&mut self, agreed: Agreed, data: &[u8]) -> Result<Step, DialogueFault> {
        let recipient = argument(data).ok_or(DialogueFault::Malformed(packet::RCPT))?;
        let refused = self.macros.is_refused && agreed.has(step::RCPT_REJ);
        let for_now = self.macros.refused_with.as_ref().is_some_and(|code| code.starts_with('4'));
        let Some(message) = &mut self.message else { return Ok(due(agreed, step::NR_RCPT)) };
        if refused || self.client.submission {
            match (refused, for_now) {
                (false, _) => message.add(recipient),
                (true, false) => {
                    message.rejected = message.rejected.saturating_add(1);
                    self.macros.end_recipient();
                    return Ok(self.decide(REJECTED));
                }
                // As `$rcpt_fail_count` in Exim, which does not count these.
                (true, true) => {}
            }
            self.macros.end_recipient();
            return Ok(due(agreed, step::NR_RCPT));
        }
        message.pending = Some(recipient);
        Ok(self.decide(AclStage::Rcpt))
    }

    /// Data of a header, of the body, or of the end of the message.
    fn part(&mut self, agreed: Agreed, command: u8, data: &[u8], last: bool) -> Step {
        let mut is_full = true;
        if let Some(Message { content, marks, .. }) = &mut self.message {
            match command {
                packet::HEADER => {
                    content.header(data, last, agreed.has(step::HDR_LEADSPC));
                    if self.wants.marks {
                        marks.header(data, last);
                    }
                }
                _ if !data.is_empty() => content.body(data),
                _ => {}
            }
            is_full = content.is_full();
        }
        if !last {
            return Step::Nothing;
        }
        match command {
            packet::HEADER => due(agreed, step::NR_HDR),
            packet::BODY => {
                let needed = self.wants.bytes || !is_full;
                match due(agreed, step::NR_BODY) {
                    Step::Reply(_) if !needed && agreed.has(step::SKIP) => Step::Reply(Reply::Skip),
                    due => due,
                }
            }
            _ => self.end(),
        }
    }

    /// The message is complete.
    fn end(&mut self) -> Step {
        let Some(message) = &mut self.message else { return Step::Reply(Reply::Continue) };
        message.content.end_headers();
        if message.accepted == 0 {
            self.end_message();
            return Step::Reply(Reply::Continue);
        }
        self.decide(if self.client.submission { AclStage::NotSmtp } else { AclStage::Data })
    }

    /// The message was accepted.
    fn accept(&mut self, hold: Option<Hold>) -> (Reply, Option<Accepted>) {
        let queue_id = self.macros.queue_id.take();
        let login = self.macros.login.take();
        let message = self.message.take();
        self.end_message();
        let Some(message) = message else { return (Reply::Continue, None) };
        let hold = self.client.hold.clone().or(message.hold).or(hold);
        let reply = match hold {
            None => Reply::Continue,
            Some(hold) if self.agreed.is_some_and(|agreed| agreed.can_hold()) => {
                Reply::Hold(format!("{HELD_BY}{}: {}", hold.policy, hold.text))
            }
            // To let it pass would be less than the policy wants.
            Some(hold) => return (Reply::Defer(hold.text), None),
        };
        let accepted = message.content.kept().map(|content| Accepted {
            envelope: Envelope {
                time: 0,
                id: queue_id.unwrap_or_default(),
                sender: message.sender,
                recipients: message.recipients,
                client: self.client.origin.address().filter(|_| !self.client.submission),
                authenticated: login.unwrap_or_default(),
                partial: content.partial || message.partial,
            },
            content,
        });
        (reply, accepted)
    }

    /// The event that is known now.
    fn decide(&mut self, stage: AclStage) -> Step {
        self.deciding = Some(stage);
        let Client { origin, helo, .. } = &self.client;
        let Macros { interface, has_used_auth, .. } = self.macros;
        let mut event = Event { client: *origin, helo: helo.clone(), ..Event::default() };
        let (mut facts, mut recipients) = (SessionFacts::default(), Vec::new());
        let (mut marked, mut hold) = (false, None);
        if let Some(message) = &self.message {
            event.auth = self.macros.login.clone();
            event.sender = Some(message.sender.clone());
            event.recipient = message.pending.clone();
            event.message_id = self.macros.queue_id.clone();
            facts.rejected_recipients = message.rejected;
            facts.recipients = message.accepted;
            facts.message_size = message.declared_size;
            if matches!(stage, AclStage::Data | AclStage::NotSmtp) {
                recipients.clone_from(&message.recipients);
                facts.message_size = message.content.size();
                marked = message.marks.found;
                hold = self.client.hold.clone().or_else(|| message.hold.clone());
            }
        }
        // Their own bounces reach no filter.
        let server = || interface;
        let circumstances =
            Circumstances { has_used_auth, server: &server, ..Circumstances::default() };
        let event = event.complete(&circumstances);
        Step::Decide(Box::new(MailEvent {
            stage,
            event,
            facts,
            recipients,
            exim: None,
            marked,
            hold,
        }))
    }

    fn end_message(&mut self) {
        self.message = None;
        self.macros.end_message();
    }

    fn end_connection(&mut self) {
        self.message = None;
        self.macros = Macros::default();
        self.client = Client::default();
        self.begun.connection = true;
    }
}

impl Message {
    /// Adds an accepted recipient.
    fn add(&mut self, recipient: String) {
        self.accepted = self.accepted.saturating_add(1);
        let bytes = self.recipient_bytes + recipient.len() + RECIPIENT_BYTES;
        if bytes > RECIPIENTS_FREE && !self.share.resize(2 * bytes) {
            self.partial = true;
            return;
        }
        self.recipient_bytes = bytes;
        self.recipients.push(recipient);
    }
}

/// Go on, if a reply is due without this step.
fn due(agreed: Agreed, step: u32) -> Step {
    if agreed.has(step) { Step::Nothing } else { Step::Reply(Reply::Continue) }
}

/// The address in the first argument of MAIL or RCPT, without brackets and route.
fn argument(data: &[u8]) -> Option<String> {
    if data.is_empty() {
        return None;
    }
    let written = packet::texts(data).next()?.trim_ascii();
    let inner = written.strip_prefix(b"<").and_then(|path| path.strip_suffix(b">"));
    let path = inner.unwrap_or(written);
    let address = match path.first() {
        Some(b'@') => path.splitn(2, |&byte| byte == b':').nth(1).unwrap_or(path),
        _ => path,
    };
    Some(text(address))
}

/// The size in the arguments of MAIL.
fn declared_size(data: &[u8]) -> Option<u64> {
    let mut parameters = packet::texts(data).skip(1);
    parameters.find_map(|parameter| {
        let (name, value) = parameter.split_at_checked(5)?;
        let value = name.eq_ignore_ascii_case(b"SIZE=").then_some(value)?;
        std::str::from_utf8(value).ok()?.parse().ok()
    })
}

#[cfg(test)]
mod tests;
