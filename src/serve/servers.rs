//! The servers that share the limits, as the shared store and the agent know them.

use std::path::Path;

use schemars::JsonSchema;
use serde::Serialize;

use super::config::{self, Config};
use super::rates::{Purpose, shared};
use crate::cluster::ClusterSettings;
use crate::policy::changes::digest;
use crate::policy::image::{ImageError, PolicyFile};
use crate::redis::{KnownServer, KnownServers, PolicyState, Register, read_servers, servers_file};
use crate::store::Inspect;
use crate::sys::clock;
use crate::text;

/// So many digits of a digest are shown.
const DIGITS: usize = 12;

/// The servers that share the limits.
pub(crate) struct Seen {
    pub(crate) known: KnownServers,
    /// The name of this one.
    pub(crate) own: String,
}

/// A server, as JSON has it.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct JsonServer {
    pub(crate) name: String,
    /// Whether it is this server.
    pub(crate) this: bool,
    /// The digest of its policies.
    pub(crate) policy: Option<String>,
    #[serde(flatten)]
    pub(crate) agent: Option<JsonAgent>,
}

/// Its agent.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct JsonAgent {
    pub(crate) seen_lately: bool,
    /// In seconds since 1970.
    pub(crate) seen: u64,
    pub(crate) release: String,
    /// In seconds since 1970.
    pub(crate) started: u64,
    pub(crate) decisions: u64,
    /// In seconds.
    pub(crate) clock_offset: f64,
    /// How many its agent is configured for.
    pub(crate) servers: u32,
    /// The same for agents that count together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) secret: Option<String>,
    pub(crate) name_conflict: bool,
}

impl Seen {
    /// The servers for JSON.
    pub(crate) fn json(&self) -> Vec<JsonServer> {
        let one = |(name, server): (&String, &KnownServer)| JsonServer {
            name: name.clone(),
            this: *name == self.own,
            policy: server.policy.as_ref().map(|policy| policy.digest.clone()),
            agent: server.agent.as_ref().map(|agent| JsonAgent {
                seen_lately: self.known.is_seen_lately(server),
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
        self.known.servers.iter().map(one).collect()
    }
}

/// The configuration of the agent.
///
/// # Errors
/// Why it cannot be used, in words.
pub(crate) fn configuration(file: &Path) -> Result<Config, String> {
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
pub(crate) fn connect(settings: &ClusterSettings) -> Result<(Register, String), String> {
    let config = configuration(&settings.config)?;
    let register = Register::open(&config.redis)
        .map_err(|error| format!("{} cannot be used: {error}", config.redis.servers))?;
    Ok((register, config.agent.server_name))
}

/// The rates that the servers share, with the configuration of the agent; what is of one server alone
/// is in `local`.
///
/// # Errors
/// Why the store cannot be used, in words.
pub(crate) fn rates(
    settings: &ClusterSettings,
    local: Box<dyn Inspect>,
) -> Result<Box<dyn Inspect>, String> {
    shared(configuration(&settings.config)?, Purpose::Change, local)
}

/// All servers, as the store has them, else as the agent has written them to its file. The
/// policy of this one is that of the spool directory; with `publish`, its digest is published
/// if another one was.
///
/// # Errors
/// Why they are not known, in words.
pub(crate) fn look(
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
pub(crate) fn shown(settings: &ClusterSettings) -> std::io::Result<Seen> {
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

/// What is in the hash and cannot be read, in words.
pub(crate) fn unreadable(count: usize) -> String {
    let fields = text::counted_or_no(count, "field", "fields");
    format!(
        "{fields} of exirate:servers in Redis cannot be read: a later release or another program \
         has written there"
    )
}

/// The digest of a policy, cut.
pub(crate) fn short(digest: &str) -> String {
    digest.chars().take(DIGITS).collect()
}
