//! Requests: lines `name=value`, and an empty line at the end. What is not used is read
//! over. Those of Exim come by the same socket, and begin with a line of their own.

use crate::event::session::SessionFacts;
use crate::event::{AclStage, Circumstances, Event, Origin};
use crate::identity::written;
use crate::policy::key::address;
use crate::serve::mail::event::MailEvent;
use crate::serve::mail::exim::request::{self as exim, EximFault, EximRequest};

/// The longest line, without its end.
pub const LINE_MAX: usize = 8 << 10;
/// The most lines of a request: Postfix 3.10 sends 32.
pub const LINES_MAX: usize = 200;
/// The largest request.
pub const REQUEST_MAX: usize = 64 << 10;

/// A request, with the attributes that are used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PolicyRequest {
    /// `request`
    pub request: String,
    /// `protocol_state`
    pub protocol_state: String,
    /// `instance`
    pub instance: String,
    /// `client_address`
    pub client_address: String,
    /// `server_address`
    pub server_address: String,
    /// `helo_name`
    pub helo_name: String,
    /// `sender`
    pub sender: String,
    /// `recipient`
    pub recipient: String,
    /// `recipient_count`
    pub recipient_count: String,
    /// `size`
    pub size: String,
    /// `sasl_username`
    pub sasl_username: String,
    /// `queue_id`
    pub queue_id: String,
    /// `protocol_name`
    pub protocol_name: String,
    /// `encryption_protocol`
    pub encryption_protocol: String,
}

impl PolicyRequest {
    /// The attribute of this name, if it is used.
    fn attribute(&mut self, name: &[u8]) -> Option<&mut String> {
        Some(match name {
            b"request" => &mut self.request,
            b"protocol_state" => &mut self.protocol_state,
            b"instance" => &mut self.instance,
            b"client_address" => &mut self.client_address,
            b"server_address" => &mut self.server_address,
            b"helo_name" => &mut self.helo_name,
            b"sender" => &mut self.sender,
            b"recipient" => &mut self.recipient,
            b"recipient_count" => &mut self.recipient_count,
            b"size" => &mut self.size,
            b"sasl_username" => &mut self.sasl_username,
            b"queue_id" => &mut self.queue_id,
            b"protocol_name" => &mut self.protocol_name,
            b"encryption_protocol" => &mut self.encryption_protocol,
            _ => return None,
        })
    }

    /// The ACL stage; `None` where nothing is decided, such as at VRFY.
    #[must_use]
    pub fn stage(&self) -> Option<AclStage> {
        Some(match self.protocol_state.as_str() {
            "CONNECT" => AclStage::Connect,
            "HELO" | "EHLO" => AclStage::Helo,
            "MAIL" => AclStage::Mail,
            "RCPT" => AclStage::Rcpt,
            "DATA" | "BDAT" => AclStage::Predata,
            "END-OF-MESSAGE" => AclStage::Data,
            _ => return None,
        })
    }

    /// The protocol, as Exim calls it: `esmtpsa` is ESMTP by TLS with a login.
    fn protocol(&self) -> Option<String> {
        let mut protocol = self.protocol_name.to_ascii_lowercase();
        protocol.push_str(if self.encryption_protocol.is_empty() { "" } else { "s" });
        protocol.push_str(if self.sasl_username.is_empty() { "" } else { "a" });
        Some(protocol).filter(|_| !self.protocol_name.is_empty())
    }

    /// The step that is to be decided; `None` if there is nothing to decide.
    #[must_use]
    pub fn event(&self) -> Option<MailEvent> {
        let stage = self.stage()?;
        let known = |text: &String| Some(text.clone()).filter(|text| !text.is_empty());
        let has_sender = !matches!(stage, AclStage::Connect | AclStage::Helo);
        let recipient = known(&self.recipient);
        let accepted = self.recipient_count.parse().unwrap_or(0);
        // Postfix names the recipient of a message that has only one.
        let recipients = match &recipient {
            Some(one) if stage.has_all_recipients() && accepted <= 1 => vec![one.clone()],
            _ => Vec::new(),
        };
        let event = Event {
            auth: known(&self.sasl_username),
            client: Origin::of_postfix(&self.client_address),
            helo: known(&self.helo_name),
            protocol: self.protocol(),
            sender: has_sender.then(|| self.sender.clone()),
            recipient: recipient.filter(|_| stage == AclStage::Rcpt),
            message_id: known(&self.queue_id),
            ..Event::default()
        };
        let circumstances = Circumstances {
            // Postfix has no login but that of a client that has used AUTH.
            has_used_auth: event.auth.is_some(),
            server: &|| address(&self.server_address),
            ..Circumstances::default()
        };
        let facts = SessionFacts {
            recipients: accepted.max(u32::from(!recipients.is_empty())),
            message_size: self.size.parse().unwrap_or(0),
            ..SessionFacts::default()
        };
        let event = event.complete(&circumstances);
        Some(MailEvent { stage, event, facts, recipients, exim: None, marked: false, hold: None })
    }
}

/// Why a request cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestFault {
    /// A line is too long.
    #[error("a line is too long (of Postfix, longer than {LINE_MAX} bytes)")]
    LongLine,
    /// There are too many lines.
    #[error("it has more than {LINES_MAX} lines")]
    ManyLines,
    /// All lines together are too long.
    #[error("it is too large (of Postfix, larger than {REQUEST_MAX} bytes)")]
    Large,
    /// A line has no `=`.
    #[error("a line is not name=value")]
    NoAttribute,
    /// The attribute `request` is missing, or is another one.
    #[error("it has no line request=smtpd_access_policy")]
    OtherRequest,
    /// It is not as Exim's ACLs send it.
    #[error("{0}")]
    Exim(EximFault),
}

/// A request of one of the mail servers that use the socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Of Postfix.
    Postfix(Box<PolicyRequest>),
    /// Of Exim.
    Exim(Box<EximRequest>),
}

impl Default for Request {
    fn default() -> Self {
        Self::Postfix(Box::default())
    }
}

/// Reads requests from bytes as they arrive.
#[derive(Debug, Default)]
pub struct RequestParser {
    request: Request,
    /// What has arrived of a line.
    line: Vec<u8>,
    lines: usize,
    bytes: usize,
}

impl RequestParser {
    /// Takes some of `bytes`: to the end of a request, which is returned, or all. `bytes`
    /// is what is left of them.
    ///
    /// # Errors
    /// They are not a request. Nothing that follows can be read.
    pub fn take(&mut self, bytes: &mut &[u8]) -> Result<Option<Request>, RequestFault> {
        while !bytes.is_empty() {
            let end = bytes.iter().position(|&byte| byte == b'\n');
            let (part, rest) = bytes.split_at(end.unwrap_or(bytes.len()));
            let (line_max, request_max) = self.request.sizes();
            if self.line.len() + part.len() > line_max {
                return Err(RequestFault::LongLine);
            }
            self.bytes += part.len() + usize::from(end.is_some());
            if self.bytes > request_max {
                return Err(RequestFault::Large);
            }
            if end.is_none() {
                self.line.extend_from_slice(part);
                *bytes = rest;
                return Ok(None);
            }
            *bytes = rest.get(1..).unwrap_or_default();
            let is_first = self.lines == 0;
            let is_end = if self.line.is_empty() {
                self.request.line(part, is_first)?
            } else {
                let mut whole = std::mem::take(&mut self.line);
                whole.extend_from_slice(part);
                self.request.line(&whole, is_first)?
            };
            if is_end {
                let request = std::mem::take(self).request;
                let is_known = match &request {
                    Request::Postfix(request) => request.request == "smtpd_access_policy",
                    Request::Exim(_) => true,
                };
                return is_known.then_some(Some(request)).ok_or(RequestFault::OtherRequest);
            }
            self.lines += 1;
            if self.lines > LINES_MAX {
                return Err(RequestFault::ManyLines);
            }
        }
        Ok(None)
    }

    /// Whether a request has begun to arrive.
    #[must_use]
    pub fn has_begun(&self) -> bool {
        self.bytes > 0
    }
}

impl Request {
    /// The longest line, and the largest request.
    fn sizes(&self) -> (usize, usize) {
        match self {
            Self::Postfix(_) => (LINE_MAX, REQUEST_MAX),
            Self::Exim(_) => (exim::LINE_MAX, exim::REQUEST_MAX),
        }
    }

    /// Reads a line; whether it is the empty one. The first says whose request it is.
    fn line(&mut self, line: &[u8], is_first: bool) -> Result<bool, RequestFault> {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.is_empty() {
            return Ok(true);
        }
        if is_first && (line == exim::POLICY || line == exim::CHECK) {
            let is_check = line == exim::CHECK;
            *self = Self::Exim(Box::new(EximRequest::new(is_check)));
            return Ok(false);
        }
        let name_end =
            line.iter().position(|&byte| byte == b'=').ok_or(RequestFault::NoAttribute)?;
        let (name, value) = line.split_at(name_end);
        let value = value.get(1..).unwrap_or_default();
        match self {
            Self::Postfix(request) => {
                if let Some(attribute) = request.attribute(name) {
                    *attribute = written(value.into()).into_owned();
                }
            }
            Self::Exim(request) => request.set(name, value).map_err(RequestFault::Exim)?,
        }
        Ok(false)
    }
}

#[cfg(test)]
mod tests;
