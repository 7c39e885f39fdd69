//! The servers that share the limits, as commands find and show them.

use std::io::Write as _;
use std::path::Path;

use anstyle::Style;
use serde::Serialize;

use super::screen::Screen;
use super::table::{Column, Layout};
use crate::cli::Failure;
use crate::cluster::ClusterSettings;
use crate::policy::changes::digest;
use crate::policy::image::{ImageError, PolicyFile};
use crate::rate::Timestamp;
use crate::redis::{KnownServer, KnownServers, PolicyState, Register, read_servers, servers_file};
use crate::serve::config::{self, Config};
use crate::sys::clock;
use crate::text;

/// So many digits of a digest are shown.
const DIGITS: usize = 12;

/// The servers that share the limits.
pub(in crate::cli) struct Seen {
    pub(in crate::cli) known: KnownServers,
    /// The name of this one.
    pub(in crate::cli) own: String,
}

/// A server, as JSON has it.
#[derive(Debug, Serialize)]
pub(in crate::cli) struct JsonServer {
    pub(in crate::cli) name: String,
    pub(in crate::cli) this: bool,
    pub(in crate::cli) policy: Option<String>,
    #[serde(flatten)]
    pub(in crate::cli) agent: Option<JsonAgent>,
}

/// Its agent.
#[derive(Debug, Serialize)]
pub(in crate::cli) struct JsonAgent {
    pub(in crate::cli) seen_lately: bool,
    pub(in crate::cli) seen: u64,
    pub(in crate::cli) release: String,
    pub(in crate::cli) started: u64,
    pub(in crate::cli) decisions: u64,
    pub(in crate::cli) clock_offset: f64,
    pub(in crate::cli) servers: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::cli) secret: Option<String>,
    pub(in crate::cli) name_conflict: bool,
}

/// The configuration of the agent.
///
/// # Errors
/// Why it cannot be used, in words.
pub(in crate::cli) fn configuration(file: &Path) -> Result<Config, String> {
    let may_read = match rustix::process::geteuid().is_root() {
        true => "",
        false => "; run exirate as root, or as a user who can read that file and the password",
    };
    let checked = config::read(file).map_err(|why| why + may_read)?;
    let file = text::printable(file.as_os_str().as_encoded_bytes());
    checked.config.ok_or_else(|| {
        format!(
            "{file} has errors, which `exirate serve agent --check --config {file}` \
             shows{may_read}"
        )
    })
}

/// Connects to the shared store as the agent of this server does; the second is the name of
/// this server.
///
/// # Errors
/// Why the store cannot be used, in words.
pub(in crate::cli) fn connect(settings: &ClusterSettings) -> Result<(Register, String), String> {
    let config = configuration(&settings.config)?;
    let register = Register::open(&config.redis)
        .map_err(|error| format!("{} cannot be used: {error}", config.redis.servers))?;
    Ok((register, config.agent.server_name))
}

/// All servers, as the store has them, else as the agent has written them to its file. The
/// policy of this one is that of the spool directory; with `publish`, its digest is published
/// if another one was.
///
/// # Errors
/// Why they are not known, in words.
pub(in crate::cli) fn look(
    settings: &ClusterSettings,
    spool: &Path,
    publish: bool,
) -> Result<Seen, String> {
    let mut store = connect(settings).and_then(|(register, own)| {
        let known = register.servers().map_err(|error| error.to_string())?;
        Ok((register, Seen { known, own }))
    });
    let mut seen = match &mut store {
        Ok((_, seen)) => Seen { known: std::mem::take(&mut seen.known), own: seen.own.clone() },
        Err(why) => shown(settings).map_err(|_| why.clone())?,
    };
    let Seen { known, own } = &mut seen;
    // What is wrong with the image is reported by the commands on policies.
    if let Ok(digest) = digest_in_use(spool) {
        let server = known.servers.get(own);
        let published = server.and_then(|server| server.policy.as_ref());
        if published.map(|policy| &policy.digest) != digest.as_ref() {
            if let (true, Ok((register, _))) = (publish, &mut store) {
                register.set_policy(own, digest.as_deref()).map_err(|error| error.to_string())?;
            }
            let written = known.now;
            let policy = digest.map(|digest| PolicyState { digest, written });
            known.servers.entry(own.clone()).or_default().policy = policy;
        }
    }
    known.servers.retain(|_, server| *server != KnownServer::default());
    Ok(seen)
}

/// The servers that the agent shows in its file.
///
/// # Errors
/// It cannot be used.
pub(in crate::cli) fn shown(settings: &ClusterSettings) -> std::io::Result<Seen> {
    let local = clock::now().0.unsigned_abs();
    let file = servers_file(&settings.socket);
    let (known, own) = read_servers(&file, settings.agent_user, local)?;
    Ok(Seen { known, own })
}

/// The digest of the policies in use in a spool directory, if there are any.
fn digest_in_use(spool: &Path) -> Result<Option<String>, ImageError> {
    let file = PolicyFile::open(spool);
    match file.image() {
        Ok(image) => Ok(Some(digest(&image.policies()?))),
        Err(ImageError::Absent { .. }) => Ok(None),
        // Not needed by the caller.
        Err(_) => Err(ImageError::Absent { path: spool.to_owned() }),
    }
}

/// The servers for JSON.
pub(in crate::cli) fn json(seen: &Seen) -> Vec<JsonServer> {
    let one = |(name, server): (&String, &KnownServer)| JsonServer {
        name: name.clone(),
        this: *name == seen.own,
        policy: server.policy.as_ref().map(|policy| policy.digest.clone()),
        agent: server.agent.as_ref().map(|agent| JsonAgent {
            seen_lately: seen.known.is_seen_lately(server),
            seen: agent.seen,
            release: agent.release.clone(),
            started: agent.started,
            decisions: agent.decisions,
            clock_offset: agent.clock,
            servers: agent.servers,
            secret: agent.secret.map(|secret| format!("{secret:08x}")),
            name_conflict: agent.conflict,
        }),
    };
    seen.known.servers.iter().map(one).collect()
}

/// Prints a table of the servers, and what is wrong with it.
pub(in crate::cli) fn print(screen: &mut Screen<'_>, seen: &Seen) -> Result<(), Failure> {
    let known = &seen.known;
    let columns = [
        Column::words("SERVER"),
        Column::words("RELEASE"),
        Column::words("SEEN"),
        Column::words("RUNS SINCE").spare(2),
        Column::numbers("DECISIONS").spare(1),
        Column::numbers("CLOCK"),
        Column::words("POLICY"),
    ];
    let now = time(known.now);
    let rows = || {
        known.servers.iter().map(|(name, server)| {
            let agent = server.agent.as_ref();
            let of = |text: Option<String>| text.unwrap_or_default();
            [
                text::printable(name.as_bytes()),
                of(agent.map(|agent| text::printable(agent.release.as_bytes()))),
                agent.map_or("never".to_owned(), |one| text::rough_age(time(one.seen), now)),
                of(agent.map(|agent| text::iso(time(agent.started)))),
                of(agent.map(|agent| agent.decisions.to_string())),
                of(agent.map(|agent| offset(agent.clock))),
                server.policy.as_ref().map_or("none".to_owned(), |one| short(&one.digest)),
            ]
        })
    };
    let layout = Layout::of(screen, columns, rows());
    layout.head(screen)?;
    layout.write(screen, Style::new(), rows(), None)?;
    for (name, server) in &known.servers {
        if server.agent.as_ref().is_some_and(|agent| agent.conflict) {
            let name = text::printable(name.as_bytes());
            writeln!(screen, "several servers have the name {name}: see `exirate doctor`")?;
        }
    }
    if known.secrets().len() > 1 {
        let text = "the agents use different secrets, so they do not count together";
        writeln!(screen, "{text}: see `exirate doctor`")?;
    }
    if known.unreadable > 0 {
        writeln!(screen, "{}", unreadable(known.unreadable))?;
    }
    Ok(())
}

/// What is in the hash and cannot be read, in words.
pub(in crate::cli) fn unreadable(count: usize) -> String {
    let fields = crate::text::counted_or_no(count, "field", "fields");
    format!(
        "{fields} of exirate:servers in Redis cannot be read: a later release or another program \
         has written there"
    )
}

/// The digest of a policy, cut.
pub(in crate::cli) fn short(digest: &str) -> String {
    digest.chars().take(DIGITS).collect()
}

/// How a clock differs.
pub(in crate::cli) fn offset(seconds: f64) -> String {
    if seconds.abs() < 1.0 {
        format!("{:+.1} ms", seconds * 1e3)
    } else {
        format!("{seconds:+.1} s")
    }
}

/// A time in seconds since 1970.
fn time(seconds: u64) -> Timestamp {
    Timestamp { seconds: seconds.try_into().unwrap_or(i64::MAX), micros: 0 }
}
