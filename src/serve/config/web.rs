//! `[web]`: the web service, and its broker.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use toml::de::DeTable;

use super::address::{Address, parse, socket_path};
use super::follow::{self, Follow, FollowedLog, user_of};
use super::keys::{self, Key};
use super::mail::{self, Mail};
use crate::serve::web::role::{Member, Role, is_name};
use crate::serve::web::token;
use crate::spec;
use crate::sys::users;
use crate::toml_file::reader::{Reader, Value};

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
pub(super) const KEYS: &[Key<Web>] = &[
    ("listen", |reader, value, web| {
        let Some(text) = reader.string(value, &format!("{LISTEN:?}")) else { return };
        match parse(text, LISTEN) {
            Ok(Address::Inet(place)) if !place.ip().is_loopback() => {
                let message = format!(
                    "{place} can be reached from other machines; expected a unix socket such as \
                     {LISTEN:?}, for a reverse proxy with TLS, or a port of 127.0.0.1"
                );
                reader.error(value, message);
            }
            Ok(address) => web.listen = address,
            Err(message) => reader.error(value, message),
        }
    }),
    ("socket_group", |reader, value, web| {
        web.group = mail::group(reader, value, "www-data");
    }),
    ("hosts", |reader, value, web| {
        web.hosts = list(reader, value, "\"desk.example.org\"", host);
    }),
    ("proxy", |reader, value, web| web.proxy = user(reader, value, "www-data")),
    ("view", |reader, value, web| web.view = members(reader, value)),
    ("help", |reader, value, web| web.help = members(reader, value)),
    ("tokens", |reader, value, web| {
        if let Some(path) = path(reader, value, token::FILE) {
            web.tokens = path;
        }
    }),
    ("broker", |reader, value, web| web.broker = socket(reader, value, BROKER, &web.broker)),
    ("held", |reader, value, web| web.held = socket(reader, value, HELD, &web.held)),
    ("user", |reader, value, web| web.user = user(reader, value, USER)),
    ("state", |reader, value, web| {
        if let Some(path) = path(reader, value, STATE) {
            web.state = path;
        }
    }),
    ("longest", |reader, value, web| {
        let Some(text) = reader.string(value, "\"1d\"") else { return };
        let seconds = spec::period(text.as_bytes()).ok().map(|seconds| seconds as i64);
        match seconds.filter(|seconds| (1..=LONGEST_MAX).contains(seconds)) {
            Some(seconds) => web.longest = seconds,
            None => reader.error(
                value,
                format!("{text:?} is not a time of up to 366 days; expected such as \"1d\""),
            ),
        }
    }),
    ("changes_a_day", |reader, value, web| {
        web.changes_a_day = reader.integer(value, 0..=1_000_000).unwrap_or(0);
    }),
    // Of where the shared rates are: see `redis`.
    ("redis_user", |reader, value, _| _ = reader.string(value, "\"exirate-web\"")),
    ("redis_password_file", |reader, value, _| {
        let _ = reader.string(value, "\"/etc/exirate/redis-web.password\"");
    }),
    ("max_connections", |reader, value, web| {
        web.max_connections = reader.integer(value, 1..=100_000).unwrap_or(1);
    }),
    ("max_streams", |reader, value, web| {
        web.max_streams = reader.integer(value, 0..=10_000).unwrap_or(0);
    }),
];

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

/// People and groups.
fn members(reader: &mut Reader<'_>, value: Value<'_>) -> Vec<Member> {
    let member = |text: &str| match text.strip_prefix('@') {
        Some(group) => match users::group_id_of(OsStr::new(group)) {
            Some(id) => Ok(Member::Group(id)),
            None => Err(format!("there is no group {group:?} on this machine")),
        },
        None if is_name(text) => Ok(Member::Person(text.to_owned())),
        None => Err(format!(
            "{text:?} is not a name; expected up to 64 letters, digits and ._-@+, such as \"alice\", \
             or a group, such as \"@desk\""
        )),
    };
    list(reader, value, "[\"alice\", \"@desk\"]", member)
}

/// Texts, or none.
fn list<T>(
    reader: &mut Reader<'_>,
    value: Value<'_>,
    example: &str,
    parse: impl Fn(&str) -> Result<T, String>,
) -> Vec<T> {
    let list = (!keys::is_empty(value)).then(|| reader.each(value, example, parse));
    list.flatten().unwrap_or_default()
}

/// The path of a socket; `before`, where it is none.
fn socket(reader: &mut Reader<'_>, value: Value<'_>, example: &str, before: &Path) -> PathBuf {
    let Some(text) = reader.string(value, &format!("{example:?}")) else {
        return before.to_owned();
    };
    if let Err(message) = socket_path(text, example) {
        reader.error(value, message);
    }
    text.into()
}

/// The id of a user.
fn user(reader: &mut Reader<'_>, value: Value<'_>, example: &str) -> Option<u32> {
    let name = reader.string(value, &format!("{example:?}"))?;
    let id = users::id_of(OsStr::new(name));
    if id.is_none() {
        reader.error(value, format!("there is no user {name:?} on this machine"));
    }
    id
}

/// A full path.
fn path(reader: &mut Reader<'_>, value: Value<'_>, example: &str) -> Option<PathBuf> {
    let text = reader.string(value, &format!("{example:?}"))?;
    if !text.starts_with('/') {
        reader.error(value, format!("{text:?} is not a full path; expected such as {example:?}"));
    }
    Some(Path::new(text).to_owned())
}
