//! The daemon that decides for Postfix, Sendmail and an Exim that loads no library: its
//! configuration, its sockets, and whether the mail server asks it.

mod postfix;
mod sendmail;

use std::collections::BTreeSet;
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use super::finding::{DAEMON, EXIM, Findings, quoted};
use super::{units, users};
use crate::mta::Account;
use crate::mta::postfix::{Postfix, Sockets};
use crate::mta::sendmail::Sendmail;
use crate::serve::config::{Address, Mail, read_mail};

/// How long the daemon may take to accept a connection.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The mail server of this machine, if it is one that loads no library.
#[derive(Debug)]
pub(super) enum Server {
    Postfix(Postfix),
    Sendmail(Sendmail),
}

impl Server {
    /// That of this machine; `None` if there is none, or another one.
    pub(super) fn of_this_machine() -> Option<Self> {
        let postfix = Postfix::of_this_machine().map(Self::Postfix);
        postfix.or_else(|| Sendmail::of_this_machine().map(Self::Sendmail))
    }

    /// Its name.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Postfix(_) => "Postfix",
            Self::Sendmail(_) => "Sendmail",
        }
    }
}

/// Checks the configuration at `file`, the daemon, and whether `server` asks it. Returns the
/// configuration.
pub(super) fn look(server: &Server, file: &Path, findings: &mut Findings) -> Option<Mail> {
    findings.about(server.name());
    let config = configuration(server.name(), file, findings)?;
    match server {
        Server::Postfix(postfix) => {
            let sockets =
                Sockets { policy: config.policy.as_ref(), milter: config.milter.as_ref() };
            postfix::look(postfix, sockets, findings);
        }
        Server::Sendmail(sendmail) => sendmail::look(sendmail, config.milter.as_ref(), findings),
    }
    listens(&config, file, findings);
    Some(config)
}

/// Checks the daemon with the configuration at `file`, where lines of Exim's that mail comes to
/// ask these sockets. Returns the configuration.
pub(super) fn look_for_exim(
    sockets: &BTreeSet<&str>,
    who: Option<&Account>,
    file: &Path,
    findings: &mut Findings,
) -> Option<Mail> {
    findings.about(DAEMON);
    let config = configuration(EXIM, file, findings)?;
    for asked in sockets {
        let listens =
            matches!(&config.policy, Some(Address::Unix(path)) if path == Path::new(asked));
        if listens {
            continue;
        }
        let at = config.policy.as_ref().map_or("nothing".to_owned(), ToString::to_string);
        findings.problem(format!(
            "Exim asks {asked}, and listen.policy of {} names {at}: nothing is limited; name the \
             same socket in both",
            file.display()
        ));
    }
    listens(&config, file, findings);
    if let (Some(Address::Unix(path)), Some(who)) = (&config.policy, who)
        && let Some((why, fix)) = users::out_of_reach_for(who, path)
    {
        findings.problem(format!("Exim's user {} {why}: nothing is limited", who.user)).fix(fix);
    }
    Some(config)
}

/// Whether the daemon listens where its configuration says.
fn listens(config: &Mail, file: &Path, findings: &mut Findings) {
    findings.about(DAEMON);
    for address in [&config.policy, &config.milter].into_iter().flatten() {
        match connect(address) {
            Ok(()) => findings.ok(format!("it listens on {address}")),
            Err(error) => {
                findings
                    .problem(format!("it does not listen on {address}: {error}"))
                    .fix(format!("exirate serve mail --check --config {}", quoted(file)))
                    .fix(units::start("exirate-mail.service"));
            }
        }
    }
}

/// The configuration of the daemon, if it can be used.
fn configuration(server: &str, file: &Path, findings: &mut Findings) -> Option<Mail> {
    let shown = file.display();
    match read_mail(file) {
        Ok(checked) if checked.config.is_some() => {
            for one in checked.diagnostics.sorted() {
                findings.warning(format!("{shown}: {}", one.message));
            }
            checked.config
        }
        Ok(_) => {
            findings
                .problem(format!("{shown} has errors: the daemon does not start with it"))
                .fix(format!("exirate serve mail --check --config {}", quoted(file)));
            None
        }
        Err(error) => {
            findings.problem(format!(
                "{error}: it says where exirate listens for {server}; `exirate setup` writes it"
            ));
            None
        }
    }
}

fn connect(address: &Address) -> std::io::Result<()> {
    match address {
        Address::Unix(path) => UnixStream::connect(path).map(drop),
        Address::Inet(address) => TcpStream::connect_timeout(address, TIMEOUT).map(drop),
    }
}
