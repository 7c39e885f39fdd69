//! `exirate serve`: the daemon.

use std::io::Write as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use clap::Args;

use crate::alerts::{SENDMAIL, destinations};
use crate::cli::planning::policy;
use crate::cli::shared::commands::commands;
use crate::cli::shared::hold_queue::QueueOptions;
use crate::cli::shared::screen::{Screen, note};
use crate::cli::shared::{diagnostics, spool_dir};
use crate::cli::{Failure, Outcome};
use crate::doctor::holds;
use crate::mta::ServerKind;
use crate::policy::image::PolicyFile;
use crate::policy::model::{Policies, Policy};
use crate::policy::needs::{FrontEnd, unseen};
use crate::redis::RedisStore;
use crate::serve::alerts::run_alerts;
use crate::serve::config::{self, Address, FILE};
use crate::serve::daemon::run_agent;
use crate::serve::follow;
use crate::serve::follow::daemon::run_follow;
use crate::serve::mail::daemon::{Configured, run_mail};
use crate::serve::mail::surroundings::{USER, faults};
use crate::serve::web::broker::daemon::{run_broker, run_held};
use crate::serve::web::daemon::run_web;
use crate::sys::users::name_of;
use crate::toml_file::diagnostic::{Diagnostic, Diagnostics, Severity};
use crate::{place, text};

/// Run a daemon: the mail front ends, alerts, the follower of the log, the web service, the agent
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  Can the agent's configuration be used?
    exirate serve agent --check --config /etc/exirate/exirate.toml
  Run the agent with systemd:
    systemd-sysusers && systemctl enable --now exirate-agent
  Can the configuration for Postfix, Sendmail, or an Exim without the library be used?
    exirate serve mail --check --config /etc/exirate/exirate.toml

The daemon runs in the foreground and logs to standard error. systemd starts each of its units with a
user of its own. Their configuration is /etc/exirate/exirate.toml.

Exit status: as the help of each command says.

The daemon runs in the foreground and logs to standard error; systemd starts each of its units
with a user of its own. Each is configured in /etc/exirate/exirate.toml: docs/cluster.md describes
the part of the agent, docs/serve-mail.md that of the mail front ends, docs/failed-deliveries.md
that of the follower, and docs/desk.md that of the web service and its broker.")]
pub(in crate::cli) struct Serve {
    #[command(subcommand)]
    command: ServeCommand,
}

commands! {
    enum ServeCommand {
        Agent(Agent),
        Mail(Mail),
        Follow(Follow),
        Alerts(Alerts),
        Web(Web),
        Broker(Broker),
        Held(Held),
    }
}

impl Serve {
    pub(in crate::cli) fn run(&self, screen: &mut Screen<'_>) -> Result<Outcome, Failure> {
        self.command.run(screen)
    }
}

/// Run the agent, which decides in a Redis that servers share
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  Can the configuration be used?
    exirate serve agent --check --config /etc/exirate/exirate.toml
  Run the agent with systemd, as a user of its own, and see what it does:
    systemd-sysusers && systemctl enable --now exirate-agent
    systemctl status exirate-agent

It connects to Redis by itself, at the start and whenever the connection is lost. SIGHUP makes it read
its configuration again.

Exit status: 0 it was stopped, or --check found nothing; 1 --check found errors or
warnings; 2 an error.

Exim's processes ask the agent over the unix socket listen.agent. It connects to Redis by
itself, at the start and whenever the connection is lost, and says so in its log.

SIGTERM and SIGINT stop it when it has replied to the requests that have arrived. SIGHUP
makes it read its configuration again; with an error there, the old one stays in use.")]
struct Agent {
    /// The configuration file
    #[arg(long, value_name = "FILE", default_value = FILE)]
    config: PathBuf,

    /// Check the configuration file and the files that it names, and exit
    #[arg(long)]
    check: bool,
}

impl Agent {
    fn run(&self, screen: &mut Screen<'_>) -> Result<Outcome, Failure> {
        if self.check {
            return self.check(screen);
        }
        run_agent::<RedisStore>(&self.config, |config| config.redis.clone())
            .map_err(Failure::new)?;
        Ok(Outcome::Fine)
    }

    fn check(&self, screen: &mut Screen<'_>) -> Result<Outcome, Failure> {
        let checked = config::read(&self.config).map_err(Failure::new)?;
        let list = print_checked(screen, checked.diagnostics)?;
        if let Some(config) = checked.config {
            let file = printable(&self.config);
            let warnings = list.iter().filter(|one| one.severity == Severity::Warning).count();
            let warnings = text::counted_or_no(warnings, "warning", "warnings");
            let (servers, redis) = (config.agent.servers, config.redis.servers);
            writeln!(screen, "{file}: 1 of {servers} servers, {redis}; no error, {warnings}")?;
        }
        Ok(Outcome::found_if(!list.is_empty()))
    }
}

/// Run the daemon for Postfix, Sendmail and Exim without dlfunc
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  Can the configuration be used?
    exirate serve mail --check --config /etc/exirate/exirate.toml
  Run it with systemd, as a user of its own, and see what it does:
    systemd-sysusers && systemctl enable --now exirate-mail
    systemctl status exirate-mail

The policies are those that `exirate policy apply` has put into use. SIGHUP makes it read its
configuration again.

Exit status: 0 it was stopped, or --check found nothing; 1 --check found errors or
warnings; 2 an error.

Postfix's check_policy_service, and an Exim that loads no library, ask over the socket
listen.policy; Postfix and Sendmail use listen.milter as a milter, which can also record messages
for `exirate trace query`. The
policies are those that `exirate policy apply` has put into use. docs/serve-mail.md describes the
configuration, and what happens when the daemon is away. --check also looks at the user, the
directory of the database and those of the sockets, and has a note for each unit of the
policies in use that a front end cannot see.

With --callers, it listens at DIRECTORY/exirate/callers alone, and needs no configuration file:
exirate-mail@Debian-exim.service runs it so beside an Exim with the library. About what an account
hands over by starting Exim itself, the library asks there (docs/exim.md).

SIGTERM and SIGINT stop it when it has replied to the requests that have arrived. SIGHUP
makes it read its configuration again; with an error there, the old one stays in use.")]
struct Mail {
    /// The configuration file
    #[arg(long, value_name = "FILE", default_value = FILE)]
    config: PathBuf,

    /// Check the configuration file and what it needs on this machine, and exit
    #[arg(long)]
    check: bool,

    /// Decide about the accounts of this machine that run Exim themselves, for an Exim with the
    /// library and this spool directory, and for nobody else
    #[arg(long, value_name = "DIRECTORY")]
    callers: Option<PathBuf>,

    /// Listen in the place of a daemon that runs, which ends then: mail that comes meanwhile is limited
    #[arg(long, conflicts_with = "check")]
    take_over: bool,

    /// The user as which the daemon will run, for --check; the default is exirate-mail if you
    /// are root, else you; with --callers, the owner of DIRECTORY
    #[arg(long, value_name = "NAME", requires = "check")]
    user: Option<String>,
}

impl Mail {
    fn run(&self, screen: &mut Screen<'_>) -> Result<Outcome, Failure> {
        if self.check {
            return self.check(screen);
        }
        run_mail(self.configured(), self.take_over, policy::apply_file).map_err(Failure::new)?;
        Ok(Outcome::Fine)
    }

    fn check(&self, screen: &mut Screen<'_>) -> Result<Outcome, Failure> {
        let checked = self.configured().read().map_err(Failure::new)?;
        let list = print_checked(screen, checked.diagnostics)?;
        let Some(config) = checked.config else { return Ok(Outcome::found_if(true)) };
        let (file, spool) = (printable(&self.config), printable(&config.spool));
        let mut faults = faults(&config, &self.user());
        let policies = policies_of(&config).unwrap_or_else(|failure| {
            faults.push(failure.to_string());
            Policies::default()
        });
        let named = |name: &String| config.policies.as_ref().is_none_or(|all| all.contains(name));
        let policies: Vec<_> = policies.policies.iter().filter(|(name, _)| named(name)).collect();
        faults.extend(out_of_reach(&config, &policies));
        for fault in &faults {
            writeln!(screen, "{file}: error: {}", text::printable(fault.as_bytes()))?;
        }
        let sockets = [
            ("policy", FrontEnd::PolicyProtocol, &config.policy),
            ("milter", FrontEnd::Milter, &config.milter),
        ];
        let listen: String = sockets
            .iter()
            .filter_map(|(name, _, address)| Some(format!("{name} {}, ", address.as_ref()?)))
            .collect();
        let errors = text::counted_or_no(faults.len(), "error", "errors");
        let warnings = text::counted_or_no(list.len(), "warning", "warnings");
        writeln!(screen, "{file}: {listen}database in {spool}; {errors}, {warnings}")?;
        let used = |end: &&(_, FrontEnd, &Option<_>)| end.2.is_some();
        let front_ends: Vec<FrontEnd> = sockets.iter().filter(used).map(|end| end.1).collect();
        for what in unseen(policies, &front_ends) {
            note(what);
        }
        Ok(Outcome::found_if(!list.is_empty() || !faults.is_empty()))
    }

    fn configured(&self) -> Configured {
        Configured { path: self.config.clone(), callers: self.callers.clone() }
    }

    /// The user as which the daemon will run.
    fn user(&self) -> String {
        let own = rustix::process::geteuid();
        let owner = || {
            let spool = self.callers.as_ref()?.metadata().ok()?;
            Some(name_of(spool.uid())?.to_string_lossy().into_owned())
        };
        match &self.user {
            Some(user) => user.clone(),
            None if self.callers.is_some() => owner().unwrap_or_default(),
            None if own.is_root() => USER.to_owned(),
            None => name_of(own.as_raw()).unwrap_or_default().to_string_lossy().into_owned(),
        }
    }
}

/// The policies of the file that the daemon will apply, or else those in use, if there are any.
fn policies_of(config: &config::Mail) -> Result<Policies, Failure> {
    if let Some(file) = &config.policy_file {
        return Ok(policy::compiled(file)?.0);
    }
    let in_use = PolicyFile::open(&config.spool);
    Ok(in_use.image().ok().and_then(|image| image.policies().ok()).unwrap_or_default())
}

/// What these policies make of mail, and cannot be undone here, as the mail server is on another
/// machine or in another container.
fn out_of_reach(config: &config::Mail, policies: &[(&String, &Policy)]) -> Vec<String> {
    let is_remote = [&config.policy, &config.milter]
        .into_iter()
        .flatten()
        .any(|address| matches!(address, Address::Inet(place) if !place.ip().is_loopback()));
    let is_here = [ServerKind::Exim, ServerKind::Postfix, ServerKind::Sendmail];
    if !is_remote || is_here.iter().any(|kind| kind.program().is_some()) {
        return Vec::new();
    }
    let holding = policies.iter().filter(|(_, policy)| holds(policy));
    let text = |(name, _): &(&String, _)| {
        format!(
            "policy {name:?} holds messages, and no command here reaches the queue of the mail \
             server to release them: use defer or reject"
        )
    };
    holding.map(text).collect()
}

/// Follow the mail log, and count failed deliveries
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  What would be followed?
    exirate serve follow --check
  Run it by systemd, as the user of the database, and see what it does:
    systemctl enable --now \"exirate-follow@$(exirate where user)\"
    systemctl status 'exirate-follow@*'

It counts failed_recipients and unknown_recipients for the policies in use. SIGHUP makes it read its
configuration again.

Exit status: 0 it was stopped, or --check found nothing; 1 --check found errors or
warnings; 2 an error.

It reads the log of Exim, Postfix or Sendmail as it grows, from a file and its rotated files or
from the journal, and counts each recipient to whom a message could not be delivered against
whoever submitted the message. What was counted is remembered on disk: it may be stopped or killed
at any time, and continues where it was. docs/failed-deliveries.md says what a failure is, and
describes the configuration; the default configuration file may be absent. --check also checks
that the user who runs it can read the log and write in the directories.")]
struct Follow {
    /// The configuration file
    #[arg(long, value_name = "FILE", default_value = FILE)]
    config: PathBuf,

    /// Check the configuration file and what it needs on this machine, show what would be
    /// followed, and exit
    #[arg(long)]
    check: bool,
}

impl Follow {
    fn run(&self, screen: &mut Screen<'_>) -> Result<Outcome, Failure> {
        if !self.check {
            run_follow(&self.config).map_err(Failure::new)?;
            return Ok(Outcome::Fine);
        }
        let checked = config::read_follow(&self.config).map_err(Failure::new)?;
        let list = print_checked(screen, checked.diagnostics)?;
        let Some(config) = checked.config else { return Ok(Outcome::found_if(true)) };
        let log = text::printable(config.log.to_string().as_bytes());
        let [file, spool, state] =
            [&self.config, &config.spool, &config.state].map(|path| printable(path));
        let faults = follow::surroundings::faults(&config);
        for fault in &faults {
            writeln!(screen, "{file}: error: {}", text::printable(fault.as_bytes()))?;
        }
        writeln!(screen, "follows {log}; database in {spool}, what was counted in {state}")?;
        Ok(Outcome::found_if(!list.is_empty() || !faults.is_empty()))
    }
}

/// Send alerts when somebody exceeds a limit
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  Run it with systemd, and see what it does:
    systemctl enable --now exirate-alerts
    systemctl status exirate-alerts
  What would it send, and as which user?
    exirate serve alerts --check

It sends each crossing of a limit to the receivers in [on.crossing] of the policies in use, and tries
again what has failed. Started as root, it goes on as the owner of the database.

Exit status: 0 it was stopped, or --check found receivers; 1 --check found none; 2 an error.

It finds the database as `exirate where` does, so it is the same command on every machine. It sends
as `exirate events deliver` does, five seconds after a crossing is logged, and looks each minute for
what must be sent again; the policies are read each time. The line of `log` goes to standard output.
Where limits are shared, it reads the agent's configuration and its password before it gives up
root's rights, and sends crossings to the shared store as well. docs/alerts.md has the details.")]
struct Alerts {
    /// Use this spool directory
    #[arg(long, value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    spool: Option<PathBuf>,

    /// Send mail with this program, which must accept the options of sendmail
    #[arg(long, value_name = "FILE", default_value = SENDMAIL)]
    sendmail: String,

    /// Show the database, the user and the receivers, and exit
    #[arg(long)]
    check: bool,
}

impl Alerts {
    fn run(&self, screen: &mut Screen<'_>) -> Result<Outcome, Failure> {
        if self.check {
            let spool = spool_dir::find_silently(self.spool.as_deref())?;
            let all = destinations(&spool)?;
            let to: Vec<String> = all.iter().map(|(name, to)| format!("{name}: {to}")).collect();
            let to = if to.is_empty() { "nobody".to_owned() } else { to.join("; ") };
            let user = place::owner_name(&spool);
            writeln!(
                screen,
                "alerts of the database in {}, as {user}, to {to}",
                printable(&spool)
            )?;
            return Ok(Outcome::found_if(all.is_empty()));
        }
        run_alerts(self.spool.as_deref(), &self.sendmail).map_err(Failure::new)?;
        Ok(Outcome::Fine)
    }
}

/// Run the web service, a page and an API for the help desk
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  Can the configuration be used?
    exirate serve web --check
  Run it with systemd, and see what it does:
    systemctl enable --now \"exirate-web@$(exirate where user)\"
    systemctl status 'exirate-web@*'

It only reads: changes are made by `exirate serve broker`. SIGHUP makes it read its configuration again.

Exit status: 0 it was stopped, or --check found nothing; 1 --check found errors or
warnings; 2 an error.

It listens on a unix socket, for a reverse proxy or `ssh -L`, or on a port of this machine.
Whoever may use it has a token (`exirate web token add`), or is named in [web] of the
configuration. docs/desk.md describes it; the default configuration file may be absent.")]
struct Web {
    #[command(flatten)]
    file: WebFile,
}

/// Run the broker, which makes the changes of the web service
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  Can the configuration be used?
    exirate serve broker --check
  Run it by systemd, as the user of the database, and see what it does:
    systemctl enable --now \"exirate-broker@$(exirate where user)\"
    systemctl status 'exirate-broker@*'

It runs as the user of the database. SIGHUP makes it read its configuration again.

Exit status: 0 it was stopped, or --check found nothing; 1 --check found errors or
warnings; 2 an error.

Only the user of the web service may ask it. It looks for itself who asks, by token or by name, what he
may do, and how many changes were made today; each is logged to audit.log in the database's directory,
and to syslog (facility mail). docs/desk.md describes it.")]
struct Broker {
    #[command(flatten)]
    file: WebFile,
}

/// Run the daemon that shows and releases held mail for the desk
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  Can the configuration be used?
    exirate serve held --check
  Run it by systemd, and see what it does:
    systemctl enable --now exirate-held
    systemctl status exirate-held

It runs as root, as only root may change each mail server's queue. SIGHUP makes it read its
configuration again.

Exit status: 0 it was stopped, or --check found nothing; 1 --check found errors or
warnings; 2 an error.

Only root and the owner of the database, as whom the broker runs, may ask it. It shows the messages
that policies hold, and releases or deletes those of them that it is asked for; it touches no other
message. Without it, the web service shows no held mail, and what it accepts stays held. docs/desk.md
describes it.")]
struct Held {
    #[command(flatten)]
    file: WebFile,
}

impl Held {
    fn run(&self, screen: &mut Screen<'_>) -> Result<Outcome, Failure> {
        self.file.run(screen, |path| run_held(path, |spool| QueueOptions::default().queue(spool)))
    }
}

#[derive(Debug, Args)]
struct WebFile {
    /// The configuration file
    #[arg(long, value_name = "FILE", default_value = FILE)]
    config: PathBuf,

    /// Check the configuration file, and exit
    #[arg(long)]
    check: bool,
}

impl Web {
    fn run(&self, screen: &mut Screen<'_>) -> Result<Outcome, Failure> {
        self.file.run(screen, run_web)
    }
}

impl Broker {
    fn run(&self, screen: &mut Screen<'_>) -> Result<Outcome, Failure> {
        self.file.run(screen, run_broker)
    }
}

impl WebFile {
    fn run(
        &self,
        screen: &mut Screen<'_>,
        run: fn(&Path) -> Result<(), String>,
    ) -> Result<Outcome, Failure> {
        if !self.check {
            run(&self.config).map_err(Failure::new)?;
            return Ok(Outcome::Fine);
        }
        let checked = config::read_web(&self.config).map_err(Failure::new)?;
        let list = print_checked(screen, checked.diagnostics)?;
        let Some(config) = checked.config else { return Ok(Outcome::found_if(true)) };
        let [broker, spool] = [&config.broker, &config.spool].map(|path| printable(path));
        let listen = text::printable(config.listen.to_string().as_bytes());
        writeln!(screen, "web {listen}, broker unix:{broker}; database in {spool}")?;
        Ok(Outcome::found_if(!list.is_empty()))
    }
}

/// Prints what is wrong with a configuration file and those that it names, and returns it.
fn print_checked(
    screen: &mut Screen<'_>,
    diagnostics: Diagnostics,
) -> Result<Vec<Diagnostic>, Failure> {
    let files = diagnostics.files.clone();
    let list = diagnostics.sorted();
    diagnostics::print(screen, &files, &list)?;
    Ok(list)
}

fn printable(path: &Path) -> String {
    text::printable(path.display().to_string().as_bytes())
}
