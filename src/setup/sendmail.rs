//! Sendmail: the daemon as a milter.
//!
//! The line in `sendmail.mc` is what an administrator would write. `sendmail.cf` is not made
//! from it again, as it may have been edited: what m4 would add is inserted there, and Sendmail
//! reads only that file, which one rename replaces.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

use super::daemon::DaemonNeeds;
use super::files::Steps;
use super::files::Temporary;
use super::files::line_at;
use super::policy_file::{Facts, qualifying};
use super::probe::comes_to_policies;
use super::service::reload;
use super::{Contents, MailServer, Plan, SetupError};
use crate::mta::command;
use crate::mta::sendmail::Sendmail as Settings;
use crate::policy::needs::FrontEnd;
use crate::serve::config::Address;

const MC: &str = "/etc/mail/sendmail.mc";
const CF: &str = "/etc/mail/sendmail.cf";
const DOMAINS: &str = "/etc/mail/local-host-names";
const RELAYS: &str = "/etc/mail/relay-domains";
/// The name of the milter.
const NAME: &str = "exirate";
/// How long Sendmail waits for it.
const TIMES: &str = "T=C:5s;S:10s;R:10s;E:1m";
/// What milters get to know, where no other milter has had m4 write it.
const MACROS: &str = "O Milter.macros.connect=j, _, {daemon_name}, {if_name}, {if_addr}
O Milter.macros.helo={tls_version}, {cipher}, {cipher_bits}, {cert_subject}, {cert_issuer}
O Milter.macros.envfrom=i, {auth_type}, {auth_authen}, {auth_ssf}, {auth_author}, {mail_mailer}, {mail_host}, {mail_addr}
O Milter.macros.envrcpt={rcpt_mailer}, {rcpt_host}, {rcpt_addr}
O Milter.macros.eom={msg_id}
";
/// How long Sendmail may take until it listens again.
const RELOAD: Duration = Duration::from_secs(30);

/// A Sendmail.
struct Sendmail {
    program: PathBuf,
    settings: Settings,
    daemon: DaemonNeeds,
    spool: PathBuf,
}

/// Looks at the Sendmail that `program` is.
pub(super) fn find(program: &Path) -> Result<Box<dyn MailServer>, SetupError> {
    let bytes = fs::read(CF).map_err(SetupError::file("read", Path::new(CF)))?;
    let settings = Settings::new(&String::from_utf8_lossy(&bytes));
    let socket = PathBuf::from("/run/exirate-mail/milter");
    let daemon = DaemonNeeds { asker: "Sendmail", key: "milter", socket, group: None };
    let spool = daemon.spool();
    Ok(Box::new(Sendmail { program: program.to_owned(), settings, daemon, spool }))
}

impl MailServer for Sendmail {
    fn name(&self) -> String {
        "Sendmail, by the milter".to_owned()
    }

    fn spool(&self) -> &Path {
        &self.spool
    }

    fn plan(&self) -> Result<Plan, SetupError> {
        let sound = self.check(&Contents::new());
        sound.map_err(|why| SetupError::unsound("Sendmail", &why))?;
        let mut plan = Plan::default();
        self.daemon.plan(&mut plan, || Ok(self.facts()))?;
        let filter = format!("S={}, {TIMES}", socket(&self.daemon)?);
        self.mc(&mut plan, &filter)?;
        self.cf(&mut plan, &filter)?;
        Ok(plan)
    }

    fn is_running(&self) -> Result<(), SetupError> {
        TcpStream::connect(listener()).map(drop).map_err(|error| {
            SetupError::Unfit(format!(
                "Sendmail does not accept connections on {}: {error}; start it, then run `exirate \
                 setup` again",
                listener()
            ))
        })
    }

    fn check(&self, changed: &Contents) -> Result<(), SetupError> {
        let directory = Temporary::make(0o755)?;
        let has_line = |bytes: &Vec<u8>| has_filter(bytes, &format!("INPUT_MAIL_FILTER(`{NAME}'"));
        if changed.get(Path::new(MC)).and_then(Option::as_ref).is_some_and(has_line) {
            let made = output(
                "/usr/bin/m4",
                &[&directory.copy(Path::new(MC), changed)?.to_string_lossy()],
            )?;
            if !has_milter(&Settings::new(&made)) {
                return Err(SetupError::Unfit(format!(
                    "with the line for exirate, m4 makes of {MC} no configuration that has it: is \
                     confINPUT_MAIL_FILTERS defined there? Then name {NAME} in it"
                )));
            }
        }
        let cf = directory.copy(Path::new(CF), changed)?;
        output(&self.program.to_string_lossy(), &["-C", &cf.to_string_lossy(), "-d0.1", "-bt"])?;
        Ok(())
    }

    fn put_into_force(&self, steps: &Steps) -> Result<(), SetupError> {
        // Debian's script would make another one, if this is older than `sendmail.mc`. Where it
        // cannot be written, nothing was changed.
        if let Ok(file) = fs::File::options().append(true).open(CF) {
            let _ = file.set_modified(SystemTime::now());
        }
        reload("sendmail")?;
        steps.step();
        Ok(())
    }

    fn probe(&self) -> Result<(), SetupError> {
        // Sendmail refuses recipients that it does not know before it asks a milter; from this machine it
        // relays, and there is no such domain.
        let recipients = ["postmaster", "root", "postmaster@exirate-probe.invalid"];
        let recipients = recipients.map(str::to_owned);
        comes_to_policies(&self.spool, listener(), &recipients, false, RELOAD, |reply| {
            Err(SetupError::Unfit(format!(
                "no mail reaches the milter at the end of a message; one is quarantined, \
                 `sendmail -bp -qQ` shows it: {reply}"
            )))
        })
    }
}

impl Sendmail {
    /// Adds the line to `sendmail.mc`, if there is one: before other milters, which may refuse
    /// what is counted then.
    fn mc(&self, plan: &mut Plan, filter: &str) -> Result<(), SetupError> {
        let file = Path::new(MC);
        let Some(bytes) = plan.read(file)? else { return Ok(()) };
        if has_filter(bytes, &format!("INPUT_MAIL_FILTER(`{NAME}'")) {
            return Ok(());
        }
        let starts = ["INPUT_MAIL_FILTER(", "MAIL_FILTER(", "MAILER_DEFINITIONS", "MAILER("];
        let at =
            line_at(bytes, |line| starts.iter().any(|start| line.starts_with(start.as_bytes())));
        plan.insert_line(file, at, format!("INPUT_MAIL_FILTER(`{NAME}', `{filter}')dnl\n"));
        Ok(())
    }

    /// Adds to `sendmail.cf` what m4 would add, each line by itself: so it is also found in one
    /// that m4 has made since.
    fn cf(&self, plan: &mut Plan, filter: &str) -> Result<(), SetupError> {
        let file = Path::new(CF);
        let bytes = plan.read(file)?.unwrap_or_default().to_owned();
        let mut before = line_at(&bytes, |line| line.starts_with(b"X"));
        if !self.settings.used.iter().any(|used| used == NAME) {
            let option = |line: &[u8]| option_value(line, "inputmailfilters");
            let place = line_at(&bytes, |line| option(line).is_some());
            let value = place.and_then(|at| option(rest(&bytes, at)).map(|value| at + value));
            match (value, self.settings.used.is_empty()) {
                (Some(at), false) => plan.insert(file, at, format!("{NAME},")),
                _ => {
                    let at = line_at(&bytes, |line| line.starts_with(b"#O InputMailFilters"));
                    plan.insert_line(file, at, format!("O InputMailFilters={NAME}\n"));
                    if self.settings.macros.is_none() {
                        for line in MACROS.lines().filter(|line| !has_option(&bytes, line)) {
                            plan.insert_line(file, at, format!("{line}\n"));
                        }
                    }
                    before = before.or(at);
                }
            }
        }
        if !self.settings.filters.iter().any(|one| one.name == NAME) {
            plan.insert_line(file, before, format!("X{NAME}, {filter}\n"));
        }
        Ok(())
    }

    /// What the policy file says of this server.
    fn facts(&self) -> Facts {
        let items = |path: &str| -> Vec<String> {
            let text = fs::read_to_string(path).unwrap_or_default();
            let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default().trim());
            lines.filter(|line| !line.is_empty()).map(str::to_owned).collect()
        };
        let said = output(&self.program.to_string_lossy(), &["-d0.1", "-bt"]).unwrap_or_default();
        let name =
            said.lines().find_map(|line| line.trim().strip_prefix("(canonical domain name) $j = "));
        let name = name.unwrap_or("localhost").trim().to_owned();
        let cf = fs::read(CF).unwrap_or_default();
        let cf = String::from_utf8_lossy(&cf).into_owned();
        let smarthost = cf.lines().find_map(|line| line.strip_prefix("DS"));
        let smarthost = smarthost.map(str::trim).filter(|host| !host.is_empty()).map(str::to_owned);
        let facts = Facts::of(name, items(DOMAINS), items(RELAYS), smarthost);
        Facts { front_end: Some(FrontEnd::Milter), qualify: self.qualify(), ..facts }
    }

    /// The domain that Sendmail adds to a sender without one in what it sends: `$j`, or that of
    /// MASQUERADE_AS. A login without a domain reaches the milter as it is.
    fn qualify(&self) -> Option<String> {
        let sender = format!("/tryflags HS\n/try esmtp {NAME}\n");
        let mut line = Command::new(&self.program);
        line.arg("-bt");
        let said = command::run_with(line, sender.into_bytes()).ok()?.stdout;
        let qualified = format!(", addr = {NAME}@");
        qualifying(said.lines().find_map(|line| line.split_once(&qualified))?.1)
    }
}

/// Where Sendmail receives mail, as this machine reaches it.
fn listener() -> SocketAddr {
    SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 25)
}

/// The milter's socket, as Sendmail names it.
fn socket(daemon: &DaemonNeeds) -> Result<String, SetupError> {
    Ok(match daemon.address()? {
        Address::Unix(path) => format!("local:{}", path.display()),
        Address::Inet(address) => {
            let kind = if address.is_ipv6() { "inet6" } else { "inet" };
            format!("{kind}:{}@{}", address.port(), address.ip())
        }
    })
}

fn has_milter(settings: &Settings) -> bool {
    settings.used.iter().any(|used| used == NAME)
        && settings.filters.iter().any(|one| one.name == NAME)
}

/// What a program prints, which succeeds.
fn output(program: &str, arguments: &[&str]) -> Result<String, SetupError> {
    let mut line = Command::new(program);
    line.args(arguments);
    let output = command::run(line).map_err(SetupError::Unfit)?;
    match output.success {
        true => Ok(output.stdout),
        false => Err(SetupError::Unfit(output.complaint())),
    }
}

/// Whether a line of a file begins so.
fn has_filter(bytes: &[u8], start: &str) -> bool {
    line_at(bytes, |line| line.starts_with(start.as_bytes())).is_some()
}

/// Whether a file sets the option that `line` sets.
fn has_option(bytes: &[u8], line: &str) -> bool {
    let name = line.split('=').next().unwrap_or(line).trim_start_matches("O ");
    line_at(bytes, |line| option_value(line, &name.to_ascii_lowercase()).is_some()).is_some()
}

/// Where the value of an option begins in a line that sets it.
fn option_value(line: &[u8], name: &str) -> Option<usize> {
    let line = line.split(|&byte| byte == b'\n').next()?;
    let equals = line.iter().position(|&byte| byte == b'=')?;
    let found = line.get(..equals)?.strip_prefix(b"O ")?.trim_ascii();
    if !found.eq_ignore_ascii_case(name.as_bytes()) {
        return None;
    }
    let blanks = line.get(equals + 1..)?.iter().take_while(|&&byte| byte == b' ').count();
    Some(equals + 1 + blanks)
}

fn rest(bytes: &[u8], at: usize) -> &[u8] {
    bytes.get(at..).unwrap_or_default()
}
