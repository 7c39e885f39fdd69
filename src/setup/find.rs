//! Finds the mail server of this machine.

use super::{MailServer, SetupError, exim, postfix, sendmail};
use crate::mta::ServerKind;

/// Which mail server, and how it is to ask exirate.
#[derive(Clone, Debug, Default)]
pub(crate) struct Options {
    /// This one, where there are several.
    pub(crate) server: Option<ServerKind>,
    /// By the socket, also where Exim could load the library.
    pub(crate) socket: bool,
}

/// Finds the mail server of this machine.
///
/// # Errors
/// There is none, or there are several.
pub(crate) fn find(options: &Options) -> Result<Box<dyn MailServer>, SetupError> {
    match ServerKind::of_this_machine(options.server).map_err(SetupError::Unfit)? {
        (ServerKind::Exim, program) => exim::find(&program, options.socket),
        (ServerKind::Postfix, _) => postfix::find(),
        (ServerKind::Sendmail, program) => sendmail::find(&program),
    }
}
