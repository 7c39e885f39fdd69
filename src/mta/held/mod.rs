//! The messages that policies hold, in the queue of the mail server: frozen by Exim, on hold in
//! Postfix, quarantined by Sendmail.
//!
//! Each mail server is a [`HoldQueue`]. What somebody else holds is none of these messages: each
//! of them has a mark that only exirate's own lines set.
//!
//! | | it is | the mark | who sets it |
//! |---|---|---|---|
//! | Exim | frozen | `$acl_m_exirate_held`, set just before that | `exim/acl*.conf` |
//! | Postfix | in the queue `hold` | a [`HeldNote`] of its queue id | `serve/mail`: both ways |
//! | Sendmail | a file `hfID` | a reason with `HELD_BY`, and a [`HeldNote`] | `serve/mail/milter` |
//!
//! In Exim's queue, mail also waits for room within a limit at delivery; nobody has to release that.
//! Postfix and Sendmail hold such mail too, and the note says so: `exirate held decide` releases it.
//!
//! Notes are written by `serve/mail/worker.rs` before the reply to the mail server.

mod exim;
mod postfix;
mod sendmail;
mod spool_file;
mod waiting;

use std::path::Path;

use exim::EximQueue;
use postfix::PostfixQueue;
use sendmail::SendmailQueue;

use super::ServerKind;
use super::exim::find;
use crate::spool::{HeldNote, Options, Spool, SpoolError};
use crate::standing::held::{Held, HeldMessage, HoldQueue};

/// The queue of this machine's mail server: of `server`, where there may be several, and of this
/// Exim with this configuration, if they are given. `notes` reads what `exirate serve mail` has
/// noted.
///
/// # Errors
/// There is none, or it cannot be asked.
pub(crate) fn queue(
    server: Option<ServerKind>,
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
    Ok(match ServerKind::of_this_machine(server)? {
        (ServerKind::Exim, program) => of_exim(Some(&program))?,
        (ServerKind::Postfix, _) => Box::new(PostfixQueue::new(notes()?)),
        (ServerKind::Sendmail, program) => Box::new(SendmailQueue::new(program, notes()?)?),
    })
}

/// As [`queue`], with what was noted in the database of this spool directory.
///
/// # Errors
/// As of [`queue`].
pub(crate) fn queue_of(
    spool: &Path,
    server: Option<ServerKind>,
    exim: Option<&Path>,
    config: Option<&Path>,
) -> Result<Box<dyn HoldQueue>, String> {
    queue(server, exim, config, || match Spool::open_existing(spool, Options::default()) {
        Ok(mut spool) => spool.held_notes().map_err(|error| error.to_string()),
        Err(SpoolError::Absent { .. }) => Ok(Vec::new()),
        Err(error) => Err(error.to_string()),
    })
}

/// What policies hold in a queue, and what waits there.
pub(crate) struct HeldMail {
    pub(crate) queue: Box<dyn HoldQueue>,
    pub(crate) messages: Vec<HeldMessage>,
    pub(crate) waiting: Vec<HeldMessage>,
    /// What could not be read.
    pub(crate) unread: Vec<String>,
}

impl HeldMail {
    /// That of this queue.
    ///
    /// # Errors
    /// It cannot be read.
    pub(crate) fn of(queue: Box<dyn HoldQueue>) -> Result<Self, String> {
        let Held { messages, waiting, unread } = queue.held()?;
        Ok(Self { queue, messages, waiting, unread })
    }

    /// That of this machine, where there is one mail server whose queue this user may read.
    pub(crate) fn if_readable(spool: &Path) -> Option<Self> {
        let queue = queue_of(spool, None, None, None);
        queue.and_then(Self::of).ok().filter(|held| held.unread.is_empty())
    }
}
