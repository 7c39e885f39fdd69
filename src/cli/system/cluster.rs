//! `exirate cluster`: share the limits of this server with others.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use clap::builder::PossibleValuesParser;

use crate::cli::shared::commands::commands;
use crate::cli::shared::database::Common;
use crate::cli::shared::screen::{Screen, note};
use crate::cli::shared::server_table::print;
use crate::cli::shared::spool_dir;
use crate::cli::{Failure, Json, Outcome};
use crate::cluster::{
    self, Away, CONFIG_DEFAULT, ClusterSettings, DEADLINE_DEFAULT, DEADLINE_MAX, SERVERS_MAX,
    SOCKET_DEFAULT,
};
use crate::overview::cluster::ClusterReport;
use crate::redis::is_server_name;
use crate::serve::agent::USER;
use crate::serve::servers;
use crate::spool::open_directory;
use crate::standing::databases::require_owner;
use crate::sys::secure_dir::SecureDir;
use crate::sys::users;
use crate::text;

/// Share the limits of this server with other servers
#[derive(Debug, Args)]
#[command(
    subcommand_required = true,
    arg_required_else_help = true,
    after_help = "Examples:
  Count once over four servers; exirate-agent.service must run on each of them:
    exirate cluster join --servers 4
  See whether the agent and the shared store reply, and which servers share the limits:
    exirate cluster status

The rates are kept in a Redis or Valkey server, which `exirate serve agent` asks.

Exit status: as the help of each command says.

The rates are then kept in a Redis or Valkey server, which `exirate serve agent` asks.
docs/cluster.md says how to set this up, what happens when it cannot be reached, and how
much is admitted then."
)]
pub(in crate::cli) struct ClusterCommand {
    #[command(subcommand)]
    command: ClusterAction,
}

commands! {
    enum ClusterAction {
        Join(Join),
        Status(ClusterStatus),
        Leave(Leave),
        Forget(Forget),
    }
}

impl ClusterCommand {
    pub(in crate::cli) fn run(&self, screen: &mut Screen<'_>) -> Result<Outcome, Failure> {
        self.command.run(screen)
    }
}

/// Share the limits of this server from now on
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  Share the limits of four servers:
    exirate cluster join --servers 4
  Defer mail while the shared limits cannot be reached, instead of admitting a share:
    exirate cluster join --servers 4 --away closed

While the shared limits cannot be reached, this server admits 1/N of what is left of each limit
(--away local), where N is --servers.

Exit status: 0 the agent replies; 1 it does not reply yet; 2 an error.

The settings are written to DIR/exirate/cluster. Exim's running processes keep their
settings; each new connection follows the new ones. The rates that this server has counted
so far stay in its database, and count again after `exirate cluster leave`.

--servers is the number of servers that share the limits. While the shared limits cannot be
reached, this server admits so large a part of what is left of each limit (--away local).")]
#[command(add = Json::of::<ClusterReport<'_>>())]
struct Join {
    /// The number of servers that share the limits
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(SERVERS_MAX)))]
    servers: u32,

    /// The socket of the agent
    #[arg(long, value_name = "PATH", default_value = SOCKET_DEFAULT)]
    socket: PathBuf,

    /// The user as which the agent runs: a process of another user that listens on the
    /// socket is not asked
    #[arg(long, value_name = "USER", default_value = USER)]
    agent_user: String,

    /// How long a check waits for the agent, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = DEADLINE_DEFAULT.as_millis() as u64,
          value_parser = clap::value_parser!(u64).range(1..=DEADLINE_MAX.as_millis() as u64))]
    deadline: u64,

    /// What happens while the shared limits cannot be reached: local admits a share of
    /// what is left of each limit, open refuses nothing, closed defers all mail that is
    /// checked
    #[arg(long, value_name = "WHAT", default_value = "local",
          value_parser = PossibleValuesParser::new(Away::ALL.map(Away::word)))]
    away: String,

    /// The configuration of the agent: with it, `list`, `unblock` and the other commands connect
    /// to the shared store
    #[arg(long, value_name = "FILE", default_value = CONFIG_DEFAULT)]
    config: PathBuf,

    #[command(flatten)]
    common: Common,
}

impl Join {
    fn run(&self, screen: &mut Screen<'_>) -> Result<Outcome, Failure> {
        for (option, path) in [("--socket", &self.socket), ("--config", &self.config)] {
            if !path.is_absolute() {
                return Err(Failure::new(format!(
                    "{option} {}: it must be an absolute path, as programs run in other \
                     directories",
                    path.display()
                )));
            }
        }
        let agent_user = user(&self.agent_user)?;
        let away = Away::ALL.into_iter().find(|away| away.word() == self.away);
        let settings = ClusterSettings {
            socket: self.socket.clone(),
            agent_user,
            servers: self.servers,
            deadline: Duration::from_millis(self.deadline),
            away: away.unwrap_or_default(),
            config: self.config.clone(),
        };
        let spool = self.common.directory()?;
        require_owner(&spool)?;
        let directory = open_directory(&spool, true)?;
        let before = ClusterSettings::read(&directory).ok().flatten();
        settings.write(&directory)?;
        if before.is_none_or(|before| before.deadline != settings.deadline) {
            cluster::forget_late(&directory);
        }
        report(screen, &self.common, &spool, &directory, &settings)
    }
}

/// The number of a user, given by name or number.
fn user(name: &str) -> Result<u32, Failure> {
    let number = name.parse().ok().or_else(|| users::id_of(name.as_ref()));
    number.ok_or_else(|| {
        Failure::new(format!(
            "there is no user {name}; --agent-user names the user as which `exirate serve agent` \
             runs"
        ))
    })
}

/// Show how the limits are shared, and whether the agent replies
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  See whether the agent and the shared store reply:
    exirate cluster status

SERVER lists the servers that share the limits, with the release, when it was seen last, its decisions
and its clock. POLICIES is the same where the policies are.

Exit status: 0 the agent replies; 1 it does not, or the limits are not shared; 2 an error.

SERVER lists the servers that share the limits, as their agents publish them: the release, when
the agent was last seen, since when it runs, how many decisions it has made since then, how far
its clock is ahead of that of Redis, and the start of the digest of its policies, which is the
same where the policies are the same. Where this user cannot read the agent's configuration, the
list is what the agent saw last. The digest of this server is published again if it has changed.
`exirate cluster forget` removes a server that is gone for good; one that was not seen for 30 days
is not shown.", add = Json::of::<ClusterReport<'_>>())]
struct ClusterStatus {
    #[command(flatten)]
    common: Common,
}

impl ClusterStatus {
    fn run(&self, screen: &mut Screen<'_>) -> Result<Outcome, Failure> {
        let spool = self.common.directory()?;
        let (directory, settings) = ClusterSettings::of(&spool)?;
        match settings {
            Some(settings) => report(screen, &self.common, &spool, &directory, &settings),
            None => {
                writeln!(screen, "{NOT_SHARED}")?;
                Ok(Outcome::Found)
            }
        }
    }
}

const NOT_SHARED: &str =
    "this server shares no limits with others; `exirate cluster join` makes it do so";

/// Stop sharing limits
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  Count alone again:
    exirate cluster leave

This server continues with the last rates that it received. Stop its agent afterwards: systemctl
disable --now exirate-agent

Exit status: 0 done; 1 the limits were not shared; 2 an error.

The rates in the shared store stay there until they expire. This server continues with the
last rates that it has received. `exirate cluster status` of the other servers no longer
shows it once its agent is stopped: systemctl disable --now exirate-agent")]
struct Leave {
    #[command(flatten)]
    common: Common,
}

impl Leave {
    fn run(&self, screen: &mut Screen<'_>) -> Result<Outcome, Failure> {
        let spool = self.common.directory()?;
        require_owner(&spool)?;
        let directory = open_directory(&spool, false)?;
        let settings = ClusterSettings::read(&directory).ok().flatten();
        if !ClusterSettings::remove(&directory)? {
            writeln!(screen, "{NOT_SHARED}")?;
            return Ok(Outcome::Found);
        }
        writeln!(screen, "this server counts alone")?;
        // Without a configuration, its agent has never run.
        if let Some(settings) = settings.filter(|settings| settings.config.exists()) {
            withdraw(&settings);
        }
        Ok(Outcome::Fine)
    }
}

/// Removes what this server has published.
fn withdraw(settings: &ClusterSettings) {
    let removed = servers::connect(settings)
        .and_then(|(register, name)| register.forget(&name).map_err(|e| e.to_string()));
    if let Err(why) = removed {
        note(format_args!("`exirate cluster status` of other servers still shows this one: {why}"));
    } else if cluster::probe(settings).is_ok() {
        note(
            "the agent still runs, so `exirate cluster status` of other servers shows this one \
             again; `systemctl disable --now exirate-agent` stops it",
        );
    }
}

/// Remove a server that is gone for good from the status
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  The server mx4 was switched off, and will not come back:
    exirate cluster forget mx4

No rate is removed. Run `exirate cluster join` with a smaller --servers on the others.

Exit status: 0 removed; 1 nothing is known of this server, or the limits are not shared;
2 an error.

Only what the server has published about itself is removed, and no rate. A server whose agent runs
publishes it again. Run `exirate cluster join` with a smaller --servers on the others.")]
struct Forget {
    /// The name of the server, as `exirate cluster status` shows it
    #[arg(value_name = "NAME")]
    name: String,

    /// Use this spool directory of Exim; the database is DIR/exirate
    ///
    /// The default is what `exim -bP spool_directory` prints.
    #[arg(long, value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    spool: Option<PathBuf>,
}

impl Forget {
    fn run(&self, screen: &mut Screen<'_>) -> Result<Outcome, Failure> {
        let name = crate::text::printable(self.name.as_bytes());
        if !is_server_name(&self.name) {
            return Err(Failure::new(format!("{name:?} is not the name of a server")));
        }
        let (_, settings) = ClusterSettings::of(&spool_dir::find(self.spool.as_deref())?)?;
        let Some(settings) = settings else {
            writeln!(screen, "{NOT_SHARED}")?;
            return Ok(Outcome::Found);
        };
        let (register, _) = servers::connect(&settings).map_err(Failure::new)?;
        let known = register.servers().map_err(|error| Failure::new(error.to_string()))?;
        if !register.forget(&self.name).map_err(|error| Failure::new(error.to_string()))? {
            writeln!(screen, "nothing is known of {name}")?;
            return Ok(Outcome::Found);
        }
        writeln!(screen, "{name} is forgotten")?;
        if known.servers.get(&self.name).is_some_and(|server| known.is_seen_lately(server)) {
            note("it was seen a moment ago: if its agent runs, it is shown again");
        }
        Ok(Outcome::Fine)
    }
}

fn report(
    screen: &mut Screen<'_>,
    common: &Common,
    spool: &Path,
    directory: &SecureDir,
    settings: &ClusterSettings,
) -> Result<Outcome, Failure> {
    let report = ClusterReport::of(spool, directory, settings);
    screen.show(common.json, &report, print_report)?;
    Ok(Outcome::found_if(report.error.is_some()))
}

fn print_report(screen: &mut Screen<'_>, report: &ClusterReport<'_>) -> Result<(), Failure> {
    let ClusterReport { socket, agent_user, servers, deadline_ms, away, config, .. } = report;
    let user = users::name_of(*agent_user)
        .map_or_else(String::new, |name| format!(" ({})", name.to_string_lossy()));
    let meaning = match report.settings.away {
        Away::Local => format!("this server admits 1/{servers} of what is left of each limit"),
        Away::Open => "no limit refuses anything".to_owned(),
        Away::Closed => "all mail that is checked is deferred".to_owned(),
    };
    writeln!(screen, "servers    {servers}")?;
    writeln!(screen, "agent      {socket}")?;
    writeln!(screen, "  user     {agent_user}{user}")?;
    writeln!(screen, "  deadline {deadline_ms} ms")?;
    writeln!(screen, "  config   {config}")?;
    match (&report.error, report.reply_ms) {
        (Some(error), _) => writeln!(screen, "  now      does not decide: {error}")?,
        (None, time) => {
            writeln!(screen, "  now      replies, in {} ms", time.unwrap_or_default())?;
        }
    }
    writeln!(screen, "away       {away}: {meaning}")?;
    if let Some(since) = report.away_since {
        let since = i64::try_from(since).unwrap_or(i64::MAX);
        writeln!(screen, "  since    {}", text::local_second(since))?;
    }
    let ClusterReport { decided_shared, decided_apart, apart_over, late, .. } = report;
    writeln!(screen, "decided    {decided_shared} by the shared store")?;
    writeln!(screen, "  apart    {decided_apart} without it, {apart_over} of them over a limit")?;
    if report.counts.is_often_late() {
        writeln!(
            screen,
            "  late     {late} times no reply within {deadline_ms} ms: see `exirate doctor`"
        )?;
    }
    match &report.seen {
        Ok(seen) => {
            writeln!(screen)?;
            print(screen, seen)?;
        }
        Err(why) => writeln!(screen, "others     are not shown: {why}")?,
    }
    Ok(())
}
