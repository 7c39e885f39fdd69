//! The messages that policies hold, in the queue of the mail server: frozen by Exim, on hold in
//! Postfix, quarantined by Sendmail.
//!
//! Each mail server is a [`HoldQueue`]. What somebody else holds is none of these messages: each
//! of them has a mark that only exirate's own lines set.

mod exim;
mod postfix;
mod sendmail;
mod spool_file;

use std::path::Path;

use exim::EximQueue;
use postfix::PostfixQueue;
use sendmail::SendmailQueue;

use super::Kind;
use super::exim::find;
use crate::spool::HeldNote;

/// A message that a policy holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HeldMessage {
    /// Its name in the queue.
    pub(crate) id: String,
    /// Since when it is held, in seconds since 1970.
    pub(crate) at: i64,
    /// The policy that holds it.
    pub(crate) policy: String,
    /// Who was counted, as in `auth:alice@example.org`.
    pub(crate) key: Vec<u8>,
    /// Why it is held.
    pub(crate) why: String,
    /// The envelope's sender.
    pub(crate) sender: String,
    /// How many recipients it has.
    pub(crate) recipients: u64,
    /// Its size in bytes.
    pub(crate) size: u64,
}

/// The held messages of a queue.
#[derive(Debug, Default)]
pub(crate) struct Held {
    pub(crate) messages: Vec<HeldMessage>,
    /// What could not be read, and why.
    pub(crate) unread: Vec<String>,
}

/// What else is known of a message.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Details {
    /// Its recipients, without those that have got it.
    pub(crate) recipients: Vec<String>,
    /// The lines of its headers.
    pub(crate) headers: Vec<String>,
}

/// A queue of a mail server in which policies hold messages.
pub(crate) trait HoldQueue {
    /// The messages that policies hold.
    ///
    /// # Errors
    /// The queue cannot be read.
    fn held(&self) -> Result<Held, String>;

    /// The recipients and headers of a held message.
    ///
    /// # Errors
    /// It cannot be read, or is gone.
    fn details(&self, id: &str) -> Result<Details, String>;

    /// Has these messages delivered, from now on, as others are: the outcome of each, in order.
    fn release(&self, ids: &[&str]) -> Vec<Result<(), String>>;

    /// Removes these messages, so that nobody gets them: the outcome of each, in order.
    fn delete(&self, ids: &[&str]) -> Vec<Result<(), String>>;
}

/// The queue of this machine's mail server: of `server`, where there may be several, and of this
/// Exim with this configuration, if they are given. `notes` reads what `exirate serve mail` has
/// noted.
///
/// # Errors
/// There is none, or it cannot be asked.
pub(crate) fn queue(
    server: Option<Kind>,
    exim: Option<&Path>,
    config: Option<&Path>,
    notes: impl FnOnce() -> Result<Vec<HeldNote>, String>,
) -> Result<Box<dyn HoldQueue>, String> {
    let of_exim = |program: Option<&Path>| -> Result<Box<dyn HoldQueue>, String> {
        Ok(Box::new(EximQueue::new(find(program, config)?.0)?))
    };
    if exim.is_some() || config.is_some() {
        return of_exim(exim);
    }
    Ok(match Kind::of_this_machine(server)? {
        (Kind::Exim, program) => of_exim(Some(&program))?,
        (Kind::Postfix, _) => Box::new(PostfixQueue::new(notes()?)),
        (Kind::Sendmail, program) => Box::new(SendmailQueue::new(program, notes()?)?),
    })
}
