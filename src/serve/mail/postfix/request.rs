//! Requests: lines `name=value`, and an empty line at the end. What is not used is read
//! over.

use std::fmt;

use crate::event::session::SessionFacts;
use crate::event::{AclStage, Circumstances, Event, Origin};
use crate::policy::key::address;
use crate::serve::mail::event::MailEvent;

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
            client: Origin::of_client(address(&self.client_address)),
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
        Some(MailEvent { stage, event: event.complete(&circumstances), facts, recipients })
    }
}

/// Why a request cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestFault {
    /// A line is too long.
    LongLine,
    /// There are too many lines.
    ManyLines,
    /// All lines together are too long.
    Large,
    /// A line has no `=`.
    NoAttribute,
    /// The attribute `request` is missing, or is another one.
    OtherRequest,
}

impl fmt::Display for RequestFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LongLine => write!(f, "a line is longer than {LINE_MAX} bytes"),
            Self::ManyLines => write!(f, "it has more than {LINES_MAX} lines"),
            Self::Large => write!(f, "it is larger than {REQUEST_MAX} bytes"),
            Self::NoAttribute => f.write_str("a line is not name=value"),
            Self::OtherRequest => f.write_str("it has no line request=smtpd_access_policy"),
        }
    }
}

impl std::error::Error for RequestFault {}

/// Reads requests from bytes as they arrive.
#[derive(Debug, Default)]
pub struct RequestParser {
    request: PolicyRequest,
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
    pub fn take(&mut self, bytes: &mut &[u8]) -> Result<Option<PolicyRequest>, RequestFault> {
        while !bytes.is_empty() {
            let end = bytes.iter().position(|&byte| byte == b'\n');
            let (part, rest) = bytes.split_at(end.unwrap_or(bytes.len()));
            if self.line.len() + part.len() > LINE_MAX {
                return Err(RequestFault::LongLine);
            }
            self.bytes += part.len() + usize::from(end.is_some());
            if self.bytes > REQUEST_MAX {
                return Err(RequestFault::Large);
            }
            if end.is_none() {
                self.line.extend_from_slice(part);
                *bytes = rest;
                return Ok(None);
            }
            *bytes = rest.get(1..).unwrap_or_default();
            let is_end = if self.line.is_empty() {
                line(&mut self.request, part)?
            } else {
                let mut whole = std::mem::take(&mut self.line);
                whole.extend_from_slice(part);
                line(&mut self.request, &whole)?
            };
            if is_end {
                let request = std::mem::take(self).request;
                let is_policy = request.request == "smtpd_access_policy";
                return is_policy.then_some(Some(request)).ok_or(RequestFault::OtherRequest);
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

/// Reads a line; whether it is the empty one.
fn line(request: &mut PolicyRequest, line: &[u8]) -> Result<bool, RequestFault> {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    if line.is_empty() {
        return Ok(true);
    }
    let name_end = line.iter().position(|&byte| byte == b'=').ok_or(RequestFault::NoAttribute)?;
    let (name, value) = line.split_at(name_end);
    if let Some(attribute) = request.attribute(name) {
        let value = value.get(1..).unwrap_or_default();
        *attribute = String::from_utf8_lossy(value).into_owned();
    }
    Ok(false)
}

#[cfg(test)]
mod tests;
