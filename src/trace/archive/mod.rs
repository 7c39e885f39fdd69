//! Archived messages: in files, mboxes and maildirs, and what their headers say of the envelope.

pub(crate) mod from_line;
pub(crate) mod headers;
pub(crate) mod maildir;
pub(crate) mod mbox;
pub(crate) mod recording;

use std::io::{self, Read};

/// How much of one message is read: more than any server accepts. Of a larger
/// one only so much is recorded.
pub(crate) const MESSAGE_MAX: usize = 512 << 20;

/// What a mailbox adds to a message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Hint {
    /// The envelope's sender; empty for a bounce.
    pub(crate) sender: Option<String>,
    /// When it was delivered, in seconds since 1970.
    pub(crate) time: Option<i64>,
}

/// Reads a whole message; returns whether it was cut at [`MESSAGE_MAX`].
pub(crate) fn read(from: impl Read, message: &mut Vec<u8>) -> io::Result<bool> {
    message.clear();
    let most = MESSAGE_MAX as u64 + 1;
    from.take(most).read_to_end(message)?;
    let cut = message.len() > MESSAGE_MAX;
    message.truncate(MESSAGE_MAX);
    Ok(cut)
}
