//! Finds the mail server of this machine.

use std::path::PathBuf;

use super::{MailServer, SetupError, exim, postfix, sendmail};
use crate::mta::command::{is_only_roots, is_program};
use crate::mta::exim::installed;

/// Which mail server, and how it is to ask exirate.
#[derive(Clone, Debug, Default)]
pub(crate) struct Options {
    /// This one, where there are several.
    pub(crate) server: Option<Kind>,
    /// By the socket, also where Exim could load the library.
    pub(crate) socket: bool,
}

/// The mail servers that setup knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Kind {
    /// Exim
    Exim,
    /// Postfix
    Postfix,
    /// Sendmail
    Sendmail,
}

impl Kind {
    /// Its name, as people write it.
    fn name(self) -> &'static str {
        match self {
            Self::Exim => "Exim",
            Self::Postfix => "Postfix",
            Self::Sendmail => "Sendmail",
        }
    }

    /// Its program, if it is installed. What else is left of it, such as its configuration,
    /// does not matter.
    fn program(self) -> Option<PathBuf> {
        let first = |paths: &[&str]| {
            let mut paths = paths.iter().map(PathBuf::from);
            paths.find(|path| is_program(path))
        };
        match self {
            Self::Exim => {
                let path = std::env::var_os("PATH").unwrap_or_default();
                installed(&path).into_iter().find(|program| is_only_roots(program))
            }
            Self::Postfix => first(&["/usr/sbin/postfix", "/usr/local/sbin/postfix"]),
            Self::Sendmail => first(&[
                "/usr/libexec/sendmail/sendmail",
                "/usr/lib/sm.bin/sendmail",
                "/usr/sbin/sendmail-mta",
                "/usr/sbin/sendmail.sendmail",
            ]),
        }
    }
}

/// Finds the mail server of this machine.
///
/// # Errors
/// There is none, or there are several.
pub(crate) fn find(options: &Options) -> Result<Box<dyn MailServer>, SetupError> {
    let all = [Kind::Exim, Kind::Postfix, Kind::Sendmail];
    let wanted = all.into_iter().filter(|kind| options.server.is_none_or(|one| one == *kind));
    let found: Vec<(Kind, PathBuf)> =
        wanted.filter_map(|kind| Some((kind, kind.program()?))).collect();
    match &found[..] {
        [] => Err(SetupError::Unfit(match options.server {
            Some(kind) => format!("{} is not installed on this machine", kind.name()),
            None => "there is no mail server on this machine: neither Exim nor Postfix nor \
                     Sendmail; install one, then run `exirate setup` again"
                .to_owned(),
        })),
        [(Kind::Exim, program)] => exim::find(program, options.socket),
        [(Kind::Postfix, _)] => postfix::find(),
        [(Kind::Sendmail, program)] => sendmail::find(program),
        several => {
            let names: Vec<String> = several
                .iter()
                .map(|(kind, program)| format!("{} ({})", kind.name(), program.display()))
                .collect();
            Err(SetupError::Unfit(format!(
                "several mail servers are installed: {}; name the one that receives mail: \
                 --server {}",
                names.join(", "),
                several.first().map_or("exim", |(kind, _)| kind.name()).to_lowercase()
            )))
        }
    }
}
