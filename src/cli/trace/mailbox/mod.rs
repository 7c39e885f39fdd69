//! Messages in files, mboxes and maildirs.

pub(super) mod from_line;
pub(super) mod maildir;
pub(super) mod mbox;

use std::io::{self, Read};

/// How much of one message is read: more than any server accepts. Of a larger
/// one only so much is recorded.
pub(super) const MESSAGE_MAX: usize = 512 << 20;

/// What a mailbox adds to a message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Hint {
    /// The envelope's sender; empty for a bounce.
    pub(super) sender: Option<String>,
    /// When it was delivered, in seconds since 1970.
    pub(super) time: Option<i64>,
}

/// Reads a whole message; returns whether it was cut at [`MESSAGE_MAX`].
pub(super) fn read(from: impl Read, message: &mut Vec<u8>) -> io::Result<bool> {
    message.clear();
    let most = MESSAGE_MAX as u64 + 1;
    from.take(most).read_to_end(message)?;
    let cut = message.len() > MESSAGE_MAX;
    message.truncate(MESSAGE_MAX);
    Ok(cut)
}
