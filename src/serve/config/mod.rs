//! The configuration of the daemon, `/etc/exirate/exirate.toml`.

mod address;
mod follow;
mod gateway;
mod keys;
mod kinds;
mod mail;
#[cfg(test)]
mod mail_tests;
mod redis;
mod server;
#[cfg(test)]
mod tests;
mod web;

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use toml::de::DeTable;

pub use address::Address;
pub(super) use follow::STATE;
pub use follow::{Follow, FollowedLog};
use keys::{Key, keys};
pub use mail::{CALLERS, EarlyStage, Mail};
pub use web::Web;

use super::log::{Level, Log};
/// Where the configuration is, if no other file is named.
pub use crate::cluster::CONFIG_DEFAULT as FILE;
use crate::cluster::{SERVERS_MAX, SOCKET_DEFAULT as AGENT_SOCKET};
use crate::place;
use crate::redis::Settings;
use crate::sys::{files, host_name, users};
use crate::toml_file::Location;
use crate::toml_file::diagnostic::{Diagnostics, Severity, place};
use crate::toml_file::reader::{Reader, Value, parse};
use crate::toml_file::text::load;

/// What the file says to the agent, checked.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// `listen.agent`: the agent's socket.
    pub agent_socket: PathBuf,
    /// `[redis]`
    pub redis: Settings,
    /// `[agent]`
    pub agent: Agent,
}

impl Config {
    /// Who cannot connect to the socket that is there, although they may ask, or can although
    /// they may not; in words. `None` also if there is no socket.
    #[must_use]
    pub fn unreachable(&self) -> Option<String> {
        let info = files::info_of(&self.agent_socket).ok()?;
        let socket = self.agent_socket.display();
        if info.mode & 0o002 != 0 {
            return Some(format!(
                "every user of this machine can connect to {socket}, and keep the agent busy"
            ));
        }
        if self.agent.is_reached_by(info.gid) {
            return None;
        }
        let group = users::group_name_of(info.gid).unwrap_or_else(|| info.gid.to_string());
        Some(format!(
            "no process but root's can connect to {socket}: its group is {group}, which no user in \
             [agent] has; set socket_group, or the group of its directory and g+s"
        ))
    }
}

/// `[agent]`
#[derive(Clone, Debug, PartialEq)]
pub struct Agent {
    /// How many requests are decided at the same time; the agent replies to more that it is
    /// busy.
    pub max_in_flight: usize,
    /// How many processes may be connected at the same time.
    pub max_connections: usize,
    /// Who may ask.
    pub peers: Peers,
    /// How many mail servers share the limits.
    pub servers: u32,
    /// The name of this one.
    pub server_name: String,
    /// The group of the socket, if it is configured.
    pub socket_group: Option<u32>,
    /// Tells apart what the agent does by the whole file, but for a password: an agent that was not
    /// reloaded after a change has another one.
    pub digest: u32,
}

impl Agent {
    /// Whether a socket of the group `gid` lets anybody connect who may ask, besides root.
    #[must_use]
    pub fn is_reached_by(&self, gid: u32) -> bool {
        let mut users = self.peers.users.iter().filter(|uid| **uid != 0).peekable();
        let nobody_else = users.peek().is_none() && self.peers.groups.is_empty();
        nobody_else
            || self.peers.groups.contains(&gid)
            || users.any(|uid| users::group_of(*uid) == Some(gid))
    }
}

/// The users and groups whose processes may ask.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Peers {
    /// User ids.
    pub users: BTreeSet<u32>,
    /// Group ids.
    pub groups: BTreeSet<u32>,
}

impl Peers {
    /// Whether a process of this user, with this group, may ask.
    #[must_use]
    pub fn allow(&self, uid: u32, gid: u32) -> bool {
        self.users.contains(&uid) || self.groups.contains(&gid)
    }
}

/// A configuration file that was read.
#[derive(Debug)]
pub struct Checked<T = Config> {
    /// The configuration; `None` if there is an error.
    pub config: Option<T>,
    /// What is wrong.
    pub diagnostics: Diagnostics,
}

impl<T> Checked<T> {
    /// The configuration; what is wrong with the file at `path` is in the log.
    ///
    /// # Errors
    /// It cannot be used, in words.
    pub fn logged(self, path: &Path, log: &Log) -> Result<T, String> {
        let files = self.diagnostics.files.clone();
        for one in self.diagnostics.sorted() {
            let level = match one.severity {
                Severity::Error => Level::Error,
                Severity::Warning => Level::Warning,
            };
            let at = place(&files, one.at);
            log.write(level, format_args!("{at}: {}: {}", one.severity, one.message));
        }
        self.config.ok_or_else(|| format!("{} cannot be used: see above", path.display()))
    }
}

/// Reads the agent's configuration at `path`, and the files that it names.
///
/// # Errors
/// Why the file cannot be read.
pub fn read(path: &Path) -> Result<Checked, String> {
    Ok(check(path, &load(path)?))
}

/// Reads the configuration of the mail front ends at `path`.
///
/// # Errors
/// Why the file cannot be read.
pub fn read_mail(path: &Path) -> Result<Checked<Mail>, String> {
    Ok(check_mail(path, &load(path)?))
}

/// As above, for the accounts that run an Exim with the library themselves, whose spool directory is
/// `spool`: the daemon listens there, on the socket that the library asks, and nowhere else.
/// [`FILE`] need not exist.
///
/// # Errors
/// Why the file cannot be read.
pub fn read_callers(path: &Path, spool: &Path) -> Result<Checked<Mail>, String> {
    let read =
        |reader: &mut Reader<'_>, table: &DeTable<'_>| mail::of_callers(reader, table, spool);
    Ok(checked(path, &load_if_any(path)?, read))
}

/// Reads the configuration of the follower at `path`; [`FILE`] need not exist.
///
/// # Errors
/// Why the file cannot be read.
pub fn read_follow(path: &Path) -> Result<Checked<Follow>, String> {
    Ok(checked(path, &load_if_any(path)?, follow::read))
}

/// Reads the configuration of the web service and its broker at `path`; [`FILE`] need not exist.
///
/// # Errors
/// Why the file cannot be read.
pub fn read_web(path: &Path) -> Result<Checked<Web>, String> {
    Ok(checked(path, &load_if_any(path)?, web::read))
}

/// Reads the file at `path` for the web service, which may connect to Redis as another user than
/// the agent: one that only reads.
///
/// # Errors
/// It cannot be read, in words.
pub(super) fn read_to_look(path: &Path) -> Result<Checked, String> {
    let document =
        |reader: &mut Reader<'_>, table: &DeTable<'_>| document_of(reader, table, path, true);
    Ok(checked(path, &load(path)?, document))
}

/// The text of the file at `path`; empty if it is [`FILE`] and does not exist.
fn load_if_any(path: &Path) -> Result<String, String> {
    let is_optional = path == Path::new(FILE) && !path.exists();
    if is_optional { Ok(String::new()) } else { load(path) }
}

/// Checks `text`, the configuration file at `path`, for the agent.
#[must_use]
pub fn check(path: &Path, text: &str) -> Checked {
    checked(path, text, |reader, table| document_of(reader, table, path, false))
}

/// Checks `text`, the configuration file at `path`, for the mail front ends. What belongs
/// to the agent, such as a password that only its user may read, is left alone.
#[must_use]
pub fn check_mail(path: &Path, text: &str) -> Checked<Mail> {
    checked(path, text, mail::read)
}

fn checked<T>(
    path: &Path,
    text: &str,
    read: impl FnOnce(&mut Reader<'_>, &DeTable<'_>) -> Option<T>,
) -> Checked<T> {
    let mut diagnostics = Diagnostics::of(path);
    let Some(document) = parse(text, &mut diagnostics) else {
        return Checked { config: None, diagnostics };
    };
    let mut reader = Reader::new(text, diagnostics);
    let config = read(&mut reader, document.get_ref());
    let diagnostics = reader.diagnostics;
    Checked { config: config.filter(|_| !diagnostics.has_errors()), diagnostics }
}

/// `is_web`: as the web service connects to Redis.
fn document_of(
    reader: &mut Reader<'_>,
    table: &DeTable<'_>,
    path: &Path,
    is_web: bool,
) -> Option<Config> {
    let web = table.get("web").filter(|_| is_web).and_then(|web| web.get_ref().as_table());
    let mut listen = Listen { agent: AGENT_SOCKET.into() };
    let mut agent = None;
    let mut redis = None;
    keys::sections(reader, table, |reader, name, value| match name {
        "listen" => _ = keys::read(reader, value, "[listen]", LISTEN, &mut listen),
        "redis" => redis = redis::read(reader, value, path, web),
        "agent" => agent = agent_of(reader, value),
        _ => {}
    });
    if !table.contains_key("redis") {
        let message = "[redis] is missing: it names the server, such as \
                       server = \"redis://127.0.0.1:6379\"";
        reader.diagnostics.error(Location::START, message);
    }
    if !table.contains_key("agent") {
        let message = "[agent] is missing: it says how many mail servers share the limits, \
                       such as servers = 4";
        reader.diagnostics.error(Location::START, message);
    }
    let (redis, mut agent) = (redis?, agent?);
    // No password is printed.
    agent.digest = crc32fast::hash(format!("{redis:?} {agent:?}").as_bytes());
    Some(Config { agent_socket: listen.agent, redis, agent })
}

/// What is read of `[listen]` for the agent.
struct Listen {
    agent: PathBuf,
}

/// The keys of `[listen]`, without what belongs to the mail front ends.
const LISTEN: &[Key<Listen>] = keys! {
    /// The socket
    agent => agent = "/run/exirate/agent.sock", kinds::socket(AGENT_SOCKET);
    /// Of the mail front ends
    policy = (), kinds::elsewhere;
    /// Of the mail front ends
    milter = (), kinds::elsewhere;
    /// Of the mail front ends
    allow = (), kinds::elsewhere;
};

/// The keys of `[agent]`.
const KEYS: &[Key<Agent>] = keys! {
    /// How many mail servers share the limits
    servers => servers = (), kinds::number(1..=SERVERS_MAX);
    /// The name of this server in reports
    server_name => server_name = ("the name of the machine"), kinds::text("mx1", server_name);
    /// The users whose processes may ask
    users => peers.users = ("root, the owner of Exim's spool directory, and `exirate-mail`"),
        kinds::texts("[\"root\", \"Debian-exim\"]", kinds::user_id);
    /// The groups whose processes may ask: a group is the one that a process runs with, not a
    /// supplementary one
    groups => peers.groups = [], kinds::or_none(kinds::texts("[\"Debian-exim\"]", kinds::group_id));
    /// The group of the socket. Only root and this group can connect (mode 0660), so that no other
    /// user can keep the agent busy. A change needs a restart
    socket_group => socket_group =
        ("the group of Exim's spool directory if the agent may set it, else that of the directory if it is setgid"),
        kinds::group("Debian-exim");
    /// Requests that are decided at the same time
    max_in_flight => max_in_flight = 1000, kinds::number(1..=100_000);
    /// Processes that are connected at the same time
    max_connections => max_connections = 4000, kinds::number(1..=100_000);
};

fn server_name(name: &str) -> Result<String, String> {
    let fits = (1..=64).contains(&name.len()) && name.bytes().all(|b| b.is_ascii_graphic());
    fits.then(|| name.to_owned()).ok_or_else(|| {
        format!(
            "{name:?} is not a name of a server; expected up to 64 letters, digits and signs \
             without blanks, such as mx1"
        )
    })
}

/// `[agent]`
fn agent_of(reader: &mut Reader<'_>, value: Value<'_>) -> Option<Agent> {
    let mut agent = Agent {
        digest: 0,
        max_in_flight: 1000,
        max_connections: 4000,
        peers: Peers { users: default_users(), groups: BTreeSet::new() },
        servers: 0,
        server_name: host_name().to_owned(),
        socket_group: None,
    };
    let table = keys::read(reader, value, "[agent]", KEYS, &mut agent)?;
    if !table.contains_key("servers") {
        let message = "servers is missing: how many mail servers share the limits, such as \
                       servers = 4";
        reader.error(value, message);
    }
    Some(agent)
}

/// Root, Exim's user (the owner of the spool directory, or the user of Debian's Exim), and
/// that of the mail front ends.
fn default_users() -> BTreeSet<u32> {
    let owner = exim_owner().map(|(uid, _)| uid);
    let named = ["Debian-exim", place::OWN_USER].map(|name| users::id_of(OsStr::new(name)));
    [Some(0), owner].into_iter().chain(named).flatten().collect()
}

/// The user and group of Exim's spool directory: the former may ask the agent, whose socket has the
/// latter.
fn exim_owner() -> Option<(u32, u32)> {
    place::EXIM.iter().find_map(|spool| place::owner(Path::new(spool)).ok())
}

/// The group of Exim's processes: that of the spool directory, or of Debian's Exim.
#[must_use]
pub fn exim_group() -> Option<u32> {
    exim_owner().map(|(_, gid)| gid).or_else(|| users::group_id_of(OsStr::new("Debian-exim")))
}
