//! `[web]`: the web service, and its broker.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use toml::de::DeTable;

use super::address::{Address, parse};
use super::follow::{self, Follow, FollowedLog, user_of};
use super::keys::{self, Key, keys};
use super::kinds;
use super::mail::{self, Mail};
use crate::serve::web::role::{Member, Role, is_name};
use crate::serve::web::token;
use crate::spec;
use crate::sys::users;
use crate::toml_file::reader::Reader;

/// Where the web service listens.
const LISTEN: &str = "unix:/run/exirate-web/web";
/// Where its broker listens.
const BROKER: &str = "/run/exirate-broker/broker";
/// Where the daemon listens that releases held messages.
const HELD: &str = "/run/exirate-held/held";
/// What the brokers remember, each in a directory of its user's name.
const STATE: &str = "/var/lib/exirate-broker";
/// The user of the web service.
const USER: &str = "exirate-web";
/// People and groups.
const MEMBERS: &str = "[\"alice\", \"@desk\"]";
/// The longest time that may be allowed, a year.
const LONGEST_MAX: i64 = 366 * 86_400;

/// What the file says to the web service and to its broker, checked.
#[derive(Clone, Debug, PartialEq)]
pub struct Web {
    /// Where the web service listens.
    pub listen: Address,
    /// The group of that socket, if it is one of the file system.
    pub group: Option<u32>,
    /// The names of hosts, besides those of this machine alone, by which browsers may call it.
    pub hosts: Vec<String>,
    /// The user of the proxy, whose names of people are believed.
    pub proxy: Option<u32>,
    /// Who may look without a token.
    pub view: Vec<Member>,
    /// Who may help without a token.
    pub help: Vec<Member>,
    /// The file of the tokens.
    pub tokens: PathBuf,
    /// The broker's socket.
    pub broker: PathBuf,
    /// The socket of `exirate serve held`, which the broker asks.
    pub held: PathBuf,
    /// The user of the web service, who alone may ask the broker.
    pub user: Option<u32>,
    /// Where the broker remembers who has changed how much today.
    pub state: PathBuf,
    /// The longest time, in seconds, that somebody may be allowed or denied.
    pub longest: i64,
    /// How many changes one token or person may make on a day.
    pub changes_a_day: u32,
    /// How many may be connected at the same time.
    pub max_connections: usize,
    /// How many of these may be streams of events.
    pub max_streams: usize,
    /// The directory of the database and the policies.
    pub spool: PathBuf,
    /// The mail server's log: `follow.log`.
    pub log: FollowedLog,
}

impl Web {
    /// As without a file.
    pub(in crate::serve) fn new() -> Self {
        Self {
            listen: Address::Unix(LISTEN.trim_start_matches("unix:").into()),
            group: None,
            hosts: Vec::new(),
            proxy: None,
            view: Vec::new(),
            help: Vec::new(),
            tokens: token::FILE.into(),
            broker: BROKER.into(),
            held: HELD.into(),
            user: users::id_of(OsStr::new(USER)),
            state: PathBuf::new(),
            longest: 86_400,
            changes_a_day: 200,
            max_connections: 1000,
            max_streams: 250,
            spool: PathBuf::new(),
            log: FollowedLog::usual(),
        }
    }

    /// What somebody may do without a token: `is_user` of this machine, who has connected, or a
    /// person named by the proxy.
    #[must_use]
    pub fn role_of(&self, name: &str, is_user: bool) -> Option<Role> {
        let is_in = |members: &[Member]| {
            members.iter().any(|member| match member {
                Member::Person(person) => person == name,
                Member::Group(group) => {
                    let user = is_user.then(|| users::ids_of(OsStr::new(name))).flatten();
                    user.is_some_and(|(_, groups)| groups.contains(group))
                }
            })
        };
        let roles = [(Role::Help, &self.help), (Role::View, &self.view)];
        roles.into_iter().find_map(|(role, members)| is_in(members).then_some(role))
    }
}

/// Reads the file; what is there for the other daemons is not looked at, but `mail.spool` and
/// `follow.log`.
pub(super) fn read(reader: &mut Reader<'_>, table: &DeTable<'_>) -> Option<Web> {
    let (mut mail, mut follow, mut web) = (Mail::new(), Follow::new(), Web::new());
    keys::sections(reader, table, |reader, name, value| match name {
        "mail" => _ = keys::read(reader, value, "[mail]", mail::KEYS, &mut mail),
        "web" => _ = keys::read(reader, value, "[web]", KEYS, &mut web),
        "follow" => _ = keys::read(reader, value, "[follow]", follow::KEYS, &mut follow),
        _ => {}
    });
    if web.state.as_os_str().is_empty() {
        web.state = Path::new(STATE).join(user_of(&mail.spool));
    }
    Some(Web { spool: mail.spool, log: follow.log, ..web })
}

/// The keys of `[web]`.
pub(super) const KEYS: &[Key<Web>] = keys! {
    /// Where the web service listens: a unix socket, or a port of the loopback address, for tokens
    /// only. Other addresses are refused: use a reverse proxy for TLS and for other networks. Needs
    /// a restart
    listen => listen = "unix:/run/exirate-web/web", kinds::text(LISTEN, local);
    /// Who may connect to the unix socket. Needs a restart
    socket_group => group = ("the service's, or that of the directory if it is setgid"),
        kinds::group("www-data");
    /// The host names, without ports, by which browsers reach it, besides `localhost`, `127.0.0.1`
    /// and `[::1]`
    hosts => hosts = [], kinds::or_none(kinds::texts("\"desk.example.org\"", host));
    /// The user of the reverse proxy. The service trusts an `X-Remote-User` header only from this
    /// user, and only if the request has exactly one
    proxy => proxy = (), kinds::user("www-data");
    /// Who has this role without a token: users of this machine who connect to the socket, and
    /// people named by the proxy; `"@desk"` means the users of this machine in the group `desk`
    view => view = [], kinds::or_none(kinds::texts(MEMBERS, member));
    /// As `view`, for this role
    help => help = [], kinds::or_none(kinds::texts(MEMBERS, member));
    /// The file of the tokens
    tokens => tokens = "/etc/exirate/web.tokens", kinds::path(token::FILE);
    /// The broker's socket. Needs a restart
    broker => broker = "/run/exirate-broker/broker", kinds::socket(BROKER);
    /// The socket of `exirate serve held`. Needs a restart
    held => held = "/run/exirate-held/held", kinds::socket(HELD);
    /// The user of the web service, which alone may ask the broker, besides root. Needs a restart
    user => user = ("`\"exirate-web\"`"), kinds::user(USER);
    /// Where the broker stores the number of changes made today. Needs a restart
    state => state = ("`/var/lib/exirate-broker/USER`, USER being the user of the database"),
        kinds::path(STATE);
    /// The longest time for which the role `help` may allow or deny
    longest => longest = "1d", kinds::text("1d", longest);
    /// How many changes one token or person may make in a day (UTC)
    changes_a_day => changes_a_day = 200, kinds::number(0..=1_000_000);
    /// The Redis user by which the web service reads [shared rates](#how-it-reads), instead of the
    /// user of `[redis]`. Set it in the file that `exirate cluster join` names
    redis_user = (), kinds::text("exirate-web", |_| Ok(()));
    /// The file of that user's password
    redis_password_file = (), kinds::text("/etc/exirate/redis-web.password", |_| Ok(()));
    /// How many connections may be open. A further one replaces the connection that has been
    /// silent for longest, first among those without a role
    max_connections => max_connections = 1000, kinds::number(1..=100_000);
    /// How many of them may be streams of events. One token or person may have a tenth of these,
    /// and at least four
    max_streams => max_streams = 250, kinds::number(0..=10_000);
};

/// Where only this machine connects.
fn local(text: &str) -> Result<Address, String> {
    match parse(text, LISTEN)? {
        Address::Inet(place) if !place.ip().is_loopback() => Err(format!(
            "{place} can be reached from other machines; expected a unix socket such as \
             {LISTEN:?}, for a reverse proxy with TLS, or a port of 127.0.0.1"
        )),
        address => Ok(address),
    }
}

fn longest(text: &str) -> Result<i64, String> {
    let seconds = spec::period(text.as_bytes()).ok().map(|seconds| seconds as i64);
    seconds
        .filter(|seconds| (1..=LONGEST_MAX).contains(seconds))
        .ok_or_else(|| format!("{text:?} is not a time of up to 366 days; expected such as \"1d\""))
}

/// The name of a host, in lower case.
fn host(text: &str) -> Result<String, String> {
    let sign = |b: u8| b.is_ascii_alphanumeric() || b == b'.' || b == b'-';
    if text.is_empty() || text.len() > 253 || !text.bytes().all(sign) {
        return Err(format!(
            "{text:?} is not the name of a host, without port; expected such as \
             \"desk.example.org\""
        ));
    }
    Ok(text.to_ascii_lowercase())
}

/// A person or a group.
fn member(text: &str) -> Result<Member, String> {
    match text.strip_prefix('@') {
        Some(group) => kinds::group_id(group).map(Member::Group),
        None if is_name(text) => Ok(Member::Person(text.to_owned())),
        None => Err(format!(
            "{text:?} is not a name; expected up to 64 letters, digits and ._-@+, such as \"alice\", \
             or a group, such as \"@desk\""
        )),
    }
}
