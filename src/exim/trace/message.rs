//! The message that Exim is receiving, while the ACL for its data runs.
//!
//! Its headers are in Exim's memory, its body in the spool's data file, which is open
//! and complete when the ACL begins. Headers that earlier ACLs have added or removed
//! are; those of this ACL are added and removed when it ends.

use super::data_file::{self, DataFileError};
use crate::exim::host::callers;
use crate::exim::host::directory::{self, NoDirectory};
use crate::exim::host::exports::Host;
use crate::exim::host::headers::Headers;
use crate::exim::host::recipients::{NoRecipients, Recipients};
use crate::exim::host::variables::{Flag, Text, VariableSource, Variables};
use crate::spec::AclStage;
use crate::sys::clock;
use crate::trace::Envelope;
use std::net::IpAddr;

/// How many bytes of a message are read. Exim's default `message_size_limit` is less,
/// 50M.
pub(in crate::exim) const BYTES_MAX: usize = 64 << 20;

/// A message and its envelope.
#[derive(Debug)]
pub(in crate::exim) struct Received {
    pub(in crate::exim) envelope: Envelope,
    /// Headers, an empty line, and the body; the lines end in LF.
    pub(in crate::exim) message: Vec<u8>,
}

/// Why no message can be read.
#[derive(Debug, thiserror::Error)]
pub(in crate::exim) enum NoMessage {
    /// There is none at this stage.
    #[error(
        "there is no message {} (call record in the ACL of acl_smtp_data or acl_not_smtp)",
        none_at(*.0)
    )]
    Stage(AclStage),
    /// It will not be accepted: `exim -bh`.
    #[error("this session is a test (exim -bh), which accepts no message")]
    Test,
    /// This variable of Exim's was not found.
    #[error("cannot find the {0} of this program")]
    Unknown(&'static str),
    /// Brightmail changes the layout of the list of recipients.
    #[error("this Exim is built with Brightmail, with which recipients cannot be read")]
    Brightmail,
    /// The spool directory is unknown.
    #[error(transparent)]
    Directory(NoDirectory),
    /// The body cannot be read.
    #[error(transparent)]
    Body(DataFileError),
}

/// That this stage has no message.
fn none_at(stage: AclStage) -> String {
    match stage {
        AclStage::Outside => "here, as no ACL for one is running".to_owned(),
        stage => format!("yet in the {} ACL", stage.name()),
    }
}

/// Exim's variables of a message.
pub(in crate::exim) struct Message {
    headers: Headers,
    recipients: Recipients,
    authenticated_id: Text,
    queue_name: Text,
    host_checking: Flag,
}

impl Message {
    /// Finds them in the running program.
    pub(in crate::exim) fn find(source: &VariableSource<'_>) -> Self {
        Self {
            headers: Headers::find(source),
            recipients: Recipients::find(source),
            authenticated_id: source.text(c"authenticated_id", c"$authenticated_id"),
            queue_name: source.text(c"queue_name", c"$queue_name"),
            host_checking: Flag::find(source, c"host_checking"),
        }
    }

    /// Exim's id of the message at `stage`.
    pub(in crate::exim) fn id(
        &self,
        host: &Host,
        variables: &Variables,
        stage: AclStage,
    ) -> Result<Vec<u8>, NoMessage> {
        let has_message = matches!(stage, AclStage::Data | AclStage::Prdr | AclStage::NotSmtp);
        let id = variables.message_id.read(host).filter(|_| has_message);
        let id = id.ok_or(NoMessage::Stage(stage))?;
        if self.host_checking.read() {
            return Err(NoMessage::Test);
        }
        Ok(id.into_owned())
    }

    /// Reads the message `id`, which Exim is receiving.
    pub(in crate::exim) fn read(
        &self,
        host: &Host,
        variables: &Variables,
        id: &[u8],
    ) -> Result<Received, NoMessage> {
        let spool = directory::spool(host, variables).map_err(NoMessage::Directory)?;
        let queue = self.queue_name.read(host).unwrap_or_default();
        let mut envelope = self.envelope(host, variables, id)?;
        let mut message = self.headers()?;
        message.push(b'\n');
        envelope.partial = data_file::append_body(&spool, &queue, id, BYTES_MAX, &mut message)
            .map_err(NoMessage::Body)?;
        Ok(Received { envelope, message })
    }

    fn envelope(
        &self,
        host: &Host,
        variables: &Variables,
        id: &[u8],
    ) -> Result<Envelope, NoMessage> {
        let read = |text: &Text| text.read(host).map_or_else(String::new, |text| lossy(&text));
        let mut client = variables.sender_host_address.read(host).and_then(|text| address(&text));
        let mut authenticated = read(&self.authenticated_id);
        // What an account says of a client of its own is no evidence against that client.
        if client.is_some()
            && let Some(account) = callers::account(host, false)
        {
            client = None;
            if authenticated.is_empty() {
                authenticated = format!("uid {account}");
            }
        }
        Ok(Envelope {
            time: clock::now().0,
            id: lossy(id),
            sender: read(&variables.sender_address),
            recipients: self.recipients(host, variables)?,
            client,
            authenticated,
            partial: false,
        })
    }

    fn recipients(&self, host: &Host, variables: &Variables) -> Result<Vec<String>, NoMessage> {
        let all = self.recipients.read(host, &variables.recipients_count);
        let all = all.map_err(|error| match error {
            NoRecipients::Unknown(name) => NoMessage::Unknown(name),
            NoRecipients::Brightmail => NoMessage::Brightmail,
        })?;
        Ok(all.into_iter().map(lossy).collect())
    }

    /// The current headers, each with its newline.
    fn headers(&self) -> Result<Vec<u8>, NoMessage> {
        if !self.headers.are_known() {
            return Err(NoMessage::Unknown("header_list"));
        }
        let mut text = Vec::new();
        for header in self.headers.each() {
            if text.len() + header.len() <= BYTES_MAX {
                text.extend_from_slice(header);
            }
        }
        Ok(text)
    }
}

/// Text of Exim's, which is UTF-8 where senders follow the standards.
fn lossy(text: &[u8]) -> String {
    String::from_utf8_lossy(text).into_owned()
}

/// An address as Exim writes it: without brackets, perhaps with a zone.
fn address(text: &[u8]) -> Option<IpAddr> {
    let text = std::str::from_utf8(text).ok()?;
    text.split('%').next()?.parse().ok()
}
