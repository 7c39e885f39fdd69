//! `[mail]`, and its sockets in `[listen]`: the mail front ends.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use toml::de::DeTable;

use super::address::{Address, parse};
use super::duration::duration;
use super::keys::{self, Key};
use crate::place::{self, OWN};
use crate::policy::word::OnError;
use crate::serve::socket::Access;
use crate::sys::users;
use crate::text::byte_size;
use crate::toml_file::reader::{Reader, Value};
use crate::toml_file::{Location, Word};

/// The longest time that a peer may be silent.
const IDLE_MAX: Duration = Duration::from_hours(24);

/// The least and the most bytes of messages that are kept.
const SIZE_MIN: usize = 64 << 10;
const SIZE_MAX: usize = 64 << 30;

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
    /// The directory of the database, the policies and the trace store.
    pub spool: PathBuf,
    /// Whether the file names it.
    pub names_spool: bool,
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
            spool: place::unless_configured(),
            names_spool: false,
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
    Some(mail)
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
const LISTEN: &[Key<Mail>] = &[
    ("agent", |_, _, _| {}),
    ("policy", |reader, value, mail| {
        mail.policy = address(reader, value, "unix:/var/spool/postfix/exirate/policy");
    }),
    ("milter", |reader, value, mail| {
        mail.milter = address(reader, value, "unix:/var/spool/postfix/exirate/milter");
    }),
];

fn address(reader: &mut Reader<'_>, value: Value<'_>, example: &str) -> Option<Address> {
    let text = reader.string(value, &format!("{example:?}"))?;
    let address = parse(text, example);
    let address = address.map_err(|message| reader.error(value, message)).ok()?;
    if let Address::Inet(place) = &address
        && place.ip().is_loopback()
    {
        let message = format!(
            "every user of this machine can connect to {address}, and count in the name of \
             others; use a unix socket, such as {example:?}"
        );
        let at = reader.at(value);
        reader.diagnostics.warning(at, message);
    }
    Some(address)
}

/// The keys of `[mail]`.
pub(super) const KEYS: &[Key<Mail>] = &[
    ("spool", |reader, value, mail| {
        let Some(text) = reader.string(value, &format!("{OWN:?}")) else { return };
        if !text.starts_with('/') {
            let message =
                format!("{text:?} is not the full path of a directory; expected such as {OWN:?}");
            reader.error(value, message);
        }
        mail.spool = text.into();
        mail.names_spool = true;
    }),
    ("policies", |reader, value, mail| {
        let names = reader.each(value, "\"*\"", |name| Ok(name.to_owned()));
        if names.as_ref().is_some_and(Vec::is_empty) {
            reader.error(value, "no policy is named, so nothing would be limited; \"*\" is all");
        }
        mail.policies = names.filter(|names| *names != ["*"]);
    }),
    ("on_error", |reader, value, mail| {
        mail.on_error = on_error(reader, value).unwrap_or(mail.on_error);
    }),
    ("prepend", |reader, value, mail| {
        mail.prepend = reader.boolean(value).unwrap_or(false);
    }),
    ("early_stages", |reader, value, mail| {
        let stages = (!keys::is_empty(value)).then(|| reader.words(value, "stage"));
        mail.early_stages = stages.flatten().unwrap_or_default();
    }),
    ("record", |reader, value, mail| {
        mail.record = reader.boolean(value).unwrap_or(false);
    }),
    ("max_message", |reader, value, mail| {
        mail.max_message = size(reader, value, "16M").unwrap_or(SIZE_MIN);
    }),
    ("max_buffered", |reader, value, mail| {
        mail.max_buffered = size(reader, value, "128M").unwrap_or(SIZE_MIN);
    }),
    ("socket_mode", |reader, value, mail| {
        mail.access.mode = mode(reader, value).unwrap_or(0);
    }),
    ("socket_group", |reader, value, mail| {
        mail.access.group = group(reader, value, "postfix");
    }),
    ("max_connections", |reader, value, mail| {
        mail.max_connections = reader.integer(value, 1..=100_000).unwrap_or(1);
    }),
    ("max_in_flight", |reader, value, mail| {
        mail.max_in_flight = reader.integer(value, 1..=100_000).unwrap_or(1);
    }),
    ("workers", |reader, value, mail| {
        mail.workers = reader.integer(value, 1..=64).unwrap_or(1);
    }),
    ("idle_timeout", |reader, value, mail| {
        let read = duration(reader, value, "600s", IDLE_MAX);
        mail.idle_timeout = read.unwrap_or(mail.idle_timeout);
    }),
];

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

/// A number of bytes.
fn size(reader: &mut Reader<'_>, value: Value<'_>, example: &str) -> Option<usize> {
    let text = reader.string(value, &format!("{example:?}"))?;
    let bytes = byte_size(text.as_bytes()).and_then(|bytes| usize::try_from(bytes).ok());
    let bytes = bytes.filter(|bytes| (SIZE_MIN..=SIZE_MAX).contains(bytes));
    if bytes.is_none() {
        let message = format!(
            "{text:?} is not a number of bytes from 64k to 64G, with its unit; expected such as \
             {example:?}"
        );
        reader.error(value, message);
    }
    bytes
}

/// The mode of a socket, in octal.
fn mode(reader: &mut Reader<'_>, value: Value<'_>) -> Option<u32> {
    let text = reader.string(value, "\"0660\"")?;
    let mode = u32::from_str_radix(text, 8).ok().filter(|mode| (0o600..=0o777).contains(mode));
    if mode.is_none() {
        let message = format!("{text:?} is not the mode of a socket; expected such as \"0660\"");
        reader.error(value, message);
    }
    mode
}

/// The id of a group.
pub(super) fn group(reader: &mut Reader<'_>, value: Value<'_>, example: &str) -> Option<u32> {
    let name = reader.string(value, &format!("{example:?}"))?;
    let id = users::group_id_of(OsStr::new(name));
    if id.is_none() {
        reader.error(value, format!("there is no group {name:?} on this machine"));
    }
    id
}
