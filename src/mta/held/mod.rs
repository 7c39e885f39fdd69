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
//! Notes are written by `serve/mail/worker.rs` before the reply to the mail server.

mod exim;
mod postfix;
mod sendmail;
mod spool_file;

use std::path::Path;

use exim::EximQueue;
use postfix::PostfixQueue;
use sendmail::SendmailQueue;

use super::ServerKind;
use super::exim::find;
use crate::spool::HeldNote;
use crate::standing::held::HoldQueue;

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
