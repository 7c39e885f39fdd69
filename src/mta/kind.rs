//! Which mail servers there are, and where their programs are.

use std::path::PathBuf;

use super::command::{is_only_roots, is_program};
use super::exim::installed;

/// The mail servers that exirate knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum ServerKind {
    /// Exim
    Exim,
    /// Postfix
    Postfix,
    /// Sendmail
    Sendmail,
}

impl ServerKind {
    /// Its name, as people write it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Exim => "Exim",
            Self::Postfix => "Postfix",
            Self::Sendmail => "Sendmail",
        }
    }

    /// Its program, if it is installed. What else is left of it, such as its configuration,
    /// does not matter.
    pub(crate) fn program(self) -> Option<PathBuf> {
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

    /// The one of this machine, and its program: `wanted`, where there may be several.
    ///
    /// # Errors
    /// There is none, or there are several.
    pub(crate) fn of_this_machine(wanted: Option<Self>) -> Result<(Self, PathBuf), String> {
        let all = [Self::Exim, Self::Postfix, Self::Sendmail];
        let wanted_ones = all.into_iter().filter(|kind| wanted.is_none_or(|one| one == *kind));
        let mut found: Vec<(Self, PathBuf)> =
            wanted_ones.filter_map(|kind| Some((kind, kind.program()?))).collect();
        if let [_] = &found[..]
            && let Some(only) = found.pop()
        {
            return Ok(only);
        }
        if let Some((first, _)) = found.first() {
            let names: Vec<String> = found
                .iter()
                .map(|(kind, program)| format!("{} ({})", kind.name(), program.display()))
                .collect();
            return Err(format!(
                "several mail servers are installed: {}; name the one that receives mail: \
                 --server {}",
                names.join(", "),
                first.name().to_lowercase()
            ));
        }
        Err(match wanted {
            Some(kind) => format!("{} is not installed on this machine", kind.name()),
            None => "there is no mail server on this machine: neither Exim nor Postfix nor \
                     Sendmail; install one first"
                .to_owned(),
        })
    }
}
