//! `exirate status`: whether mail is limited, by what, and who is blocked: on one screen.
//!
//! [`overview`](crate::overview::status) collects it; [`print`] shows it.

mod print;

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use clap::Args;

use crate::cli::shared::ask_daemon::ask;
use crate::cli::shared::database::Common;
use crate::cli::shared::screen::Screen;
use crate::cli::shared::spool_dir;
use crate::cli::{Failure, Json, Outcome};
use crate::overview::status::Status;
use crate::policy::reply::Fields;
use crate::serve::config::{Address, FILE, Mail, read_mail};
use crate::serve::mail::exim::request::{CHECK, POLICY};
use crate::text::printable;

/// Show whether mail is limited, by what, and who is blocked
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  Is everything as it should be?
    exirate status
  Does the daemon of this container decide?
    exirate status --health
  For scripts: who is blocked?
    exirate status --json | jq -r '.blocked_first[].key'

The first line says whether mail is limited, the others by what, who is blocked, and what is
wrong; `exirate doctor` has the details of what is wrong.

Exit status: 0 mail is limited, or observed as its policies say, and the doctor finds no
problem; 1 nothing is limited, or there is a problem; 2 an error.

The first line says whether mail is limited: whether the configuration of the mail server reaches
a line of exirate or asks `exirate serve mail`, the policies that it evaluates are in use and
enforced, and there is no `exirate bypass`. Then follow what decides; the policies and their file,
and whether that differs from what was applied; how many keys there are, how many were counted
today, and when the last event was; who is blocked now, and since when; which accounts `exirate
habits` suspects; how many messages policies hold, if this user may read the mail server's queue; who is allowed, denied or exempt; what accounts sent today and yesterday; the last crossings, and whether their alerts
were sent; what the follower of the mail log does; the servers that share limits; the databases.
The last line says what `exirate doctor` finds, which also verifies each record.

Where limits are shared, the keys are those that this server has seen.

With --health, it asks `exirate serve mail` at the address of its configuration for a decision by the
policies in use and for one by the database, which count nothing: exit status 0 if both are made.")]
#[command(add = Json::of::<Status>())]
pub(in crate::cli) struct StatusCommand {
    /// Show only whether `exirate serve mail` decides, for the health check of a container
    #[arg(long)]
    health: bool,

    /// With --health, the configuration of that daemon
    #[arg(long, value_name = "FILE", default_value = FILE, requires = "health")]
    config: PathBuf,

    #[command(flatten)]
    common: Common,
}

impl StatusCommand {
    pub(in crate::cli) fn run(&self, screen: &mut Screen<'_>) -> Result<Outcome, Failure> {
        if self.health {
            return health(&self.config, screen);
        }
        // It is the first line.
        spool_dir::announced();
        let directory = self.common.directory()?;
        let status = Status::of(&directory, self.common.spool.is_some())?;
        screen.show(self.common.json, &status, print::print)?;
        Ok(Outcome::found_if(!status.is_well()))
    }
}

/// How long to wait for a connection, and for a reply.
const TIMEOUT: Duration = Duration::from_secs(5);
/// A check that counts nothing.
const SPEC: &str = "1 / 1h / per_conn / readonly / exirate-health";

/// Prints whether the front ends with the configuration at `file` decide.
pub(super) fn health(file: &Path, screen: &mut Screen<'_>) -> Result<Outcome, Failure> {
    let checked = read_mail(file).map_err(Failure::new)?;
    let unusable = || Failure::new(format!("{} has errors", file.display()));
    let mail = checked.config.ok_or_else(unusable)?;
    let found = health_of(&mail);
    match &found {
        Ok(address) => writeln!(screen, "exirate serve mail decides at {address}")?,
        Err(why) => writeln!(screen, "no decision: {}", printable(why.as_bytes()))?,
    }
    Ok(Outcome::found_if(found.is_err()))
}

/// Where the front ends decide; or why they do not, in words.
fn health_of(mail: &Mail) -> Result<&Address, String> {
    let Some(policy) = &mail.policy else {
        let message = "it asks at listen.policy, which [listen] does not name; add \
                       policy = \"inet:127.0.0.1:10040\"";
        return Err(message.to_owned());
    };
    let failed = |at: &Address, error: io::Error| format!("{at}: {error}");
    if let Some(milter) = &mail.milter {
        connect(milter).map_err(|error| failed(milter, error))?;
    }
    let command = STANDARD.encode("RCPT TO:<");
    let facts = format!("command={command}\noriginator=0\ncaller=0\nexim=0\nlook=1");
    let spec = format!("spec={}", STANDARD.encode(SPEC));
    // The policies, and the database.
    for (kind, line) in [(POLICY, ""), (CHECK, spec.as_str())] {
        let request = format!("{}\n{facts}\n{line}", String::from_utf8_lossy(kind));
        let reply = connect(policy).and_then(|stream| ask(stream, &request));
        let reply = reply.map_err(|error| failed(policy, error))?;
        undecided(&reply).map_or(Ok(()), |why| Err(format!("{policy}: {why}")))?;
    }
    Ok(policy)
}

/// Why there is no decision in a reply.
fn undecided(reply: &Fields) -> Option<String> {
    let error = reply.get(b"error").filter(|error| !error.is_empty());
    error.map(|error| String::from_utf8_lossy(error).into_owned())
}

/// What a connection is used for.
trait ReadWrite: Read + Write + AsFd {}
impl<T: Read + Write + AsFd> ReadWrite for T {}

/// Connects to where the daemon listens, from the same machine or container.
fn connect(address: &Address) -> io::Result<Box<dyn ReadWrite>> {
    match address {
        Address::Unix(path) => {
            let stream = UnixStream::connect(path)?;
            stream.set_read_timeout(Some(TIMEOUT))?;
            stream.set_write_timeout(Some(TIMEOUT))?;
            Ok(Box::new(stream))
        }
        Address::Inet(place) => {
            let own = match place.ip() {
                ip if !ip.is_unspecified() => ip,
                ip if ip.is_ipv4() => Ipv4Addr::LOCALHOST.into(),
                _ => Ipv6Addr::LOCALHOST.into(),
            };
            let stream = TcpStream::connect_timeout(&SocketAddr::new(own, place.port()), TIMEOUT)?;
            stream.set_read_timeout(Some(TIMEOUT))?;
            stream.set_write_timeout(Some(TIMEOUT))?;
            Ok(Box::new(stream))
        }
    }
}
