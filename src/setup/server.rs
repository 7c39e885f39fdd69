//! The mail server of this machine.

use std::path::{Path, PathBuf};

use super::error::SetupError;
use super::exim;
use super::plan::{Contents, Plan};
use super::steps::Steps;
use super::{postfix, sendmail};
use crate::mta::command::{is_only_roots, is_program};
use crate::mta::exim::installed;

/// A mail server, as setup deals with it.
pub(crate) trait MailServer {
    /// `Exim 4.98.2, Debian's split configuration, by the library`
    fn name(&self) -> String;

    /// The directory in which rates and policies in use are.
    fn spool(&self) -> &Path;

    /// What is missing.
    ///
    /// # Errors
    /// Setup cannot do it here.
    fn plan(&self) -> Result<Plan, SetupError>;

    /// Whether it receives mail now.
    ///
    /// # Errors
    /// It does not.
    fn is_running(&self) -> Result<(), SetupError>;

    /// Builds its configuration, with these files as they would be, beside the one in use, and
    /// has the mail server itself check it.
    ///
    /// # Errors
    /// What the mail server says.
    fn check(&self, files: &Contents) -> Result<(), SetupError>;

    /// Puts its configuration into force as the files have it now, and has running processes
    /// read it.
    ///
    /// # Errors
    /// What the mail server says.
    fn put_into_force(&self, steps: &Steps) -> Result<(), SetupError>;

    /// Whether mail comes to the lines.
    ///
    /// # Errors
    /// Where it does not, and what the mail server said.
    fn probe(&self) -> Result<(), SetupError>;
}

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

/// A mail server that is gone, or cannot be asked: its files can still be put back.
pub(crate) struct Absent;

impl MailServer for Absent {
    fn name(&self) -> String {
        "no mail server".to_owned()
    }

    fn spool(&self) -> &Path {
        Path::new("/var/lib/exirate")
    }

    fn plan(&self) -> Result<Plan, SetupError> {
        Ok(Plan::default())
    }

    fn is_running(&self) -> Result<(), SetupError> {
        Ok(())
    }

    fn check(&self, _: &Contents) -> Result<(), SetupError> {
        Ok(())
    }

    fn put_into_force(&self, _: &Steps) -> Result<(), SetupError> {
        Ok(())
    }

    fn probe(&self) -> Result<(), SetupError> {
        Ok(())
    }
}
