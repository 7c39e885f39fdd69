//! Postfix or Sendmail, and the daemon that decides for them: its configuration, its
//! sockets, and whether the mail server asks it.

mod postfix;
mod sendmail;

use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use super::finding::{Findings, quoted};
use super::units;
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
    let config = configuration(server, file, findings)?;
    match server {
        Server::Postfix(postfix) => {
            let sockets =
                Sockets { policy: config.policy.as_ref(), milter: config.milter.as_ref() };
            postfix::look(postfix, sockets, findings);
        }
        Server::Sendmail(sendmail) => sendmail::look(sendmail, config.milter.as_ref(), findings),
    }
    findings.about("The daemon");
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
    Some(config)
}

/// The configuration of the daemon, if it can be used.
fn configuration(server: &Server, file: &Path, findings: &mut Findings) -> Option<Mail> {
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
            let name = server.name();
            findings.problem(format!(
                "{error}: it says where exirate listens for {name}; see docs/{}.md",
                name.to_ascii_lowercase()
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
