//! `[mail]`, and its sockets in `[listen]`: the mail front ends.

use std::path::{Path, PathBuf};
use std::time::Duration;

use toml::de::DeTable;

use super::address::Address;
use super::gateway::gateways;
use super::keys::{self, Key, keys};
use super::kinds;
use crate::identity::network::Cidr;
use crate::place::{self, OWN};
use crate::policy::source::{FILE as POLICY_FILE, network};
use crate::policy::word::OnError;
use crate::serve::socket::Access;
use crate::toml_file::reader::{Reader, Value};
use crate::toml_file::{Location, Word};

/// The longest time that a peer may be silent.
const IDLE_MAX: Duration = Duration::from_hours(24);

/// A stage before the recipients, in which the milter may decide too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EarlyStage {
    /// A client has connected.
    Connect,
    /// HELO
    Helo,
    /// MAIL
    Mail,
}

impl Word for EarlyStage {
    const ALL: &'static [Self] = &[Self::Connect, Self::Helo, Self::Mail];

    fn word(self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::Helo => "helo",
            Self::Mail => "mail",
        }
    }
}

/// What the file says to the mail front ends, checked.
#[derive(Clone, Debug, PartialEq)]
pub struct Mail {
    /// `listen.policy`: Postfix's policy delegation.
    pub policy: Option<Address>,
    /// `listen.milter`: the milter.
    pub milter: Option<Address>,
    /// `listen.allow`: whose peers on other machines may connect.
    pub allow: Vec<Cidr>,
    /// The directory of the database, the policies and the trace store.
    pub spool: PathBuf,
    /// The policy file that is applied at the start and when it changes.
    pub policy_file: Option<PathBuf>,
    /// The policies, in this order; `None` for all of the image.
    pub policies: Option<Vec<String>>,
    /// What to reply when exirate itself cannot decide.
    pub on_error: OnError,
    /// Whether an event over the limit of a policy that only observes adds a header.
    pub prepend: bool,
    /// The milter decides also in these stages.
    pub early_stages: Vec<EarlyStage>,
    /// Whether the milter records messages.
    pub record: bool,
    /// The most bytes of a message that are kept for it.
    pub max_message: usize,
    /// The most bytes of all messages.
    pub max_buffered: usize,
    /// Who may connect to unix sockets.
    pub access: Access,
    /// How many peers may be connected at the same time.
    pub max_connections: usize,
    /// How many decisions may be made, or wait for it, at the same time.
    pub max_in_flight: usize,
    /// How many threads decide.
    pub workers: usize,
    /// How long a peer may be silent.
    pub idle_timeout: Duration,
}

impl Mail {
    pub(super) fn new() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            policy: None,
            milter: None,
            allow: Vec::new(),
            spool: place::unless_configured(),
            policy_file: None,
            policies: None,
            on_error: OnError::FailOpen,
            prepend: false,
            early_stages: Vec::new(),
            record: false,
            max_message: 16 << 20,
            max_buffered: 128 << 20,
            access: Access { mode: 0o660, group: None },
            max_connections: 4000,
            max_in_flight: 1000,
            workers: cores.clamp(2, 8),
            idle_timeout: Duration::from_mins(10),
        }
    }
}

/// The socket that the library asks, in the directory of the database, about what ordinary accounts
/// hand over by an Exim of their own.
pub const CALLERS: &str = "exirate/callers";

/// Reads the file for those accounts: the socket is that of the library, and only Exim's user, who
/// owns the directory, connects.
pub(super) fn of_callers(
    reader: &mut Reader<'_>,
    table: &DeTable<'_>,
    spool: &Path,
) -> Option<Mail> {
    let mail = read_tables(reader, table);
    Some(Mail {
        policy: Some(Address::Unix(spool.join(CALLERS))),
        milter: None,
        policy_file: None,
        spool: spool.to_owned(),
        access: Access { mode: 0o600, group: None },
        ..mail
    })
}

/// Reads the file; what is there for the agent alone is not looked at.
pub(super) fn read(reader: &mut Reader<'_>, table: &DeTable<'_>) -> Option<Mail> {
    let mail = read_tables(reader, table);
    if mail.policy.is_none() && mail.milter.is_none() && !reader.diagnostics.has_errors() {
        let message = "[listen] names no socket for mail servers, such as \
                       policy = \"unix:/var/spool/postfix/exirate/policy\" or \
                       milter = \"unix:/var/spool/postfix/exirate/milter\"";
        reader.diagnostics.error(Location::START, message);
    }
    let listen = table.get("listen").and_then(|listen| listen.get_ref().as_table());
    listen.into_iter().for_each(|listen| over_a_network(reader, listen, &mail));
    Some(mail)
}

/// Diagnoses who can connect from other machines.
fn over_a_network(reader: &mut Reader<'_>, listen: &DeTable<'_>, mail: &Mail) {
    for (name, address) in [("policy", &mail.policy), ("milter", &mail.milter)] {
        if let (Some(Address::Inet(place)), Some(value)) = (address, listen.get(name))
            && !place.ip().is_loopback()
            && !listen.contains_key("allow")
        {
            let message = format!(
                "{place} can be reached from other machines, and who connects counts in the name \
                 of others; allow = [\"172.22.1.0/24\"] names the networks that may connect"
            );
            reader.error(value, message);
        }
    }
    let Some(allow) = listen.get("allow") else { return };
    for gateway in gateways().filter(|&ip| mail.allow.iter().any(|network| network.contains(ip))) {
        let message = format!(
            "{gateway} is in these networks, and is the gateway of this one: what reaches a \
             published port of a container may arrive from there; do not publish this port, or \
             allow a smaller network"
        );
        let at = reader.at(allow);
        reader.diagnostics.warning(at, message);
    }
}

fn read_tables(reader: &mut Reader<'_>, table: &DeTable<'_>) -> Mail {
    let mut mail = Mail::new();
    keys::sections(reader, table, |reader, name, value| match name {
        "listen" => _ = keys::read(reader, value, "[listen]", LISTEN, &mut mail),
        "mail" => _ = keys::read(reader, value, "[mail]", KEYS, &mut mail),
        _ => {}
    });
    mail
}

/// The keys of `[listen]`, without what belongs to the agent.
pub(super) const LISTEN: &[Key<Mail>] = keys! {
    /// The agent's socket
    agent = (), kinds::elsewhere;
    /// Where Postfix, or an Exim without the library, connects: `unix:PATH` or
    /// `inet:ADDRESS:PORT`. Whoever can connect can ask, and count in the name of others: use a
    /// unix socket, to which only the mail server's group can connect. Every local user can
    /// connect to a port of the loopback address, and `--check` warns of it; another address needs
    /// `listen.allow`. A change needs a restart
    policy => policy = (), kinds::listen("unix:/var/spool/postfix/exirate/policy");
    /// Where Postfix or Sendmail connect to the milter, in the same notation. A change needs a
    /// restart
    milter => milter = (), kinds::listen("unix:/var/spool/postfix/exirate/milter");
    /// The networks whose peers may connect to these ports, such as `["172.22.1.0/24"]`:
    /// [over a network](#over-a-network)
    allow => allow = (), kinds::texts("[\"172.22.1.0/24\"]", network);
};

/// The keys of `[mail]`.
pub(super) const KEYS: &[Key<Mail>] = keys! {
    /// The directory of the database, the policies and the trace store, for all daemons and
    /// commands: `exirate where` prints it. Needs a restart
    spool => spool = ("Exim's spool directory if there is one, else `/var/lib/exirate`"),
        kinds::path(OWN);
    /// A policy file, such as `"/etc/exirate/policy.toml"`, that the daemon applies at its start,
    /// on a reload, and when it or a file in its directory changes, as `exirate policy apply`
    /// would: for containers. With errors in it, the policies that were in use stay in use, and
    /// the log has the errors; if there are none, the daemon does not start
    policy_file => policy_file = (), |reader: &mut Reader<'_>, value: Value<'_>| {
        kinds::path(POLICY_FILE)(reader, value).map(Some)
    };
    /// Which policies are evaluated, in this order, until one refuses: `["users", "clients"]`
    policies => policies = "*", policies;
    /// What happens when a step cannot be decided: `"fail-open"` accepts the mail,
    /// `"fail-closed"` defers it. If the policy can be read, its own `on_error` decides instead
    on_error => on_error = "fail-open", on_error;
    /// Add a header `X-Exirate:` to a message that is over the limit of a policy that only
    /// observes or logs
    prepend => prepend = false, Reader::boolean;
    /// Stages before RCPT in which the milter evaluates the policies too: `"connect"`, `"helo"`,
    /// `"mail"`
    early_stages => early_stages = [], kinds::or_none(|reader: &mut Reader<'_>, value: Value<'_>| reader.words(value, "stage"));
    /// The milter records accepted messages in the trace store
    record => record = false, Reader::boolean;
    /// The most that is kept in memory of one message to record. The rest of a larger message is
    /// not recorded
    max_message => max_message = "16M", kinds::size("16M");
    /// The most that is kept in memory of all messages together
    max_buffered => max_buffered = "128M", kinds::size("128M");
    /// Who may connect to a unix socket. A change needs a restart
    socket_mode => access.mode = "0660", kinds::text("0660", kinds::mode);
    /// The group of a unix socket. The daemon can only set a group that it is a member of. A
    /// change needs a restart
    socket_group => access.group =
        ("the daemon's group, or that of the directory if it is setgid"), kinds::group("postfix");
    /// How many connections may be open. A further one replaces the connection that has been
    /// silent for longest
    max_connections => max_connections = 4000, kinds::number(1..=100_000);
    /// How many steps may wait for a decision; for further ones, the reply is that of `on_error`
    max_in_flight => max_in_flight = 1000, kinds::number(1..=100_000);
    /// Threads that decide. Needs a restart
    workers => workers = ("one for each core, 2 to 8"), kinds::number(1..=64);
    /// A connection that is silent for this long is closed. Postfix closes its own after 300 s,
    /// and connects again. A milter connection is closed if nothing arrives this long after it was
    /// opened; once the mail server has begun, it may be silent for two hours, as SMTP clients may
    idle_timeout => idle_timeout = "600s", kinds::duration("600s", IDLE_MAX);
};

/// The names of policies; all of them is `*`.
fn policies(reader: &mut Reader<'_>, value: Value<'_>) -> Option<Option<Vec<String>>> {
    let names = reader.each(value, "\"*\"", |name| Ok(name.to_owned()))?;
    Some(Some(names).filter(|names| *names != ["*"]))
}

/// What to do when a step cannot be decided: the words of a policy; and as they were.
fn on_error(reader: &mut Reader<'_>, value: Value<'_>) -> Option<OnError> {
    let (old, now) = match value.get_ref().as_str() {
        Some("accept") => ("accept", OnError::FailOpen),
        Some("tempfail") => ("tempfail", OnError::FailClosed),
        _ => return reader.word(value, "on_error"),
    };
    let message = format!("{old:?} is now {:?}, as in a policy", now.word());
    let at = reader.at(value);
    reader.diagnostics.warning(at, message);
    Some(now)
}
