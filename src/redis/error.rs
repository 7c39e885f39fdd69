//! Why the Redis store could not be used.

use std::fmt;

use redis::{ErrorKind, ServerErrorKind};

use super::record;
use crate::text;
use crate::versions::{OtherVersion, USE_THE_LATER};

/// Why checks are not decided.
#[derive(Debug, thiserror::Error)]
pub enum RedisError {
    /// A server has replied with an error, or the connection is broken.
    #[error(fmt = explain)]
    Server(#[source] redis::RedisError),
    /// The reply has another form than the script gives it.
    #[error("the reply of the script cannot be read")]
    Reply,
    /// The runtime cannot start.
    #[error("cannot start: {0}")]
    Start(#[source] std::io::Error),
    /// There is no random number for the secret of the store.
    #[error("no random number: {0}")]
    Random(#[source] rand::rngs::SysError),
    /// This key is not one of exirate's.
    #[error(
        "the key {0} has another content than exirate gives it; another program uses this database"
    )]
    ForeignKey(&'static str),
    /// There is no secret: no agent has ever used the store.
    #[error(
        "no agent has ever used this Redis, so nothing is shared yet: start the agent \
         (exirate-agent)"
    )]
    NeverUsed,
    /// The shared overrides cannot be read, or have no room for more: why.
    #[error("{0}")]
    Overrides(String),
    /// A record changes so often that it cannot be changed by hand.
    #[error("the record changes all the time; nothing was changed by hand")]
    Busy,
    /// A record has a version that this exirate does not know.
    #[error("a record {0}: {USE_THE_LATER}")]
    Version(OtherVersion),
    /// A record has a number or a time that no shared record can have.
    #[error("a shared record cannot have such a time: expected one from 1685 to 2255")]
    Range,
}

impl RedisError {
    /// The code of an error that a server has replied, such as `NOPERM`.
    #[must_use]
    pub fn code(&self) -> Option<&str> {
        match self {
            Self::Server(error) => error.code(),
            _ => None,
        }
    }

    /// What a server or a connection has failed with, in words.
    pub(super) fn reason(error: &redis::RedisError) -> String {
        Self::Server(error.clone()).to_string()
    }

    /// Whether there was no reply in time, and nothing else is known.
    #[must_use]
    pub fn is_late(&self) -> bool {
        matches!(self, Self::Server(error) if error.is_timeout())
    }

    /// Whether the connection is broken, or cannot be made.
    #[must_use]
    pub fn is_broken(&self) -> bool {
        matches!(self, Self::Server(error) if error.is_io_error() && !error.is_timeout())
    }

    /// Whether a new connection is needed, or the server must change before it can decide
    /// anything; otherwise only this request has failed.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        match self {
            Self::Server(error) => concerns_all(error),
            Self::Reply
            | Self::NeverUsed
            | Self::Busy
            | Self::Range
            | Self::Version(_)
            | Self::Overrides(_) => false,
            Self::Start(_) | Self::Random(_) | Self::ForeignKey(_) => true,
        }
    }
}

/// Whether an error concerns all requests to a server, or only the one that has it.
pub(super) fn concerns_all(error: &redis::RedisError) -> bool {
    match error.kind() {
        // The script has failed.
        ErrorKind::Server(ServerErrorKind::ResponseError) => {
            // "OOM", "MISCONF" and the like.
            lacks_permission(error)
                || lacks_password(error)
                || error.code().is_some_and(|code| code != "ERR")
        }
        ErrorKind::Server(ServerErrorKind::CrossSlot) => false,
        _ => true,
    }
}

/// What a server or a connection has failed with, in words: one line, whatever the server has
/// replied, which logs, terminals and the service manager can take.
fn explain(error: &redis::RedisError, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    f.write_str(&text::printable(words(error).as_bytes()))
}

fn words(error: &redis::RedisError) -> String {
    if error.is_timeout() {
        return "no reply in time".to_owned();
    }
    if error.is_connection_refusal() {
        return "the connection is refused: nothing listens there".to_owned();
    }
    let meaning = match (error.kind(), error.code()) {
        _ if lacks_password(error) => "a password is missing (password_file)",
        (ErrorKind::AuthenticationFailed, _) | (_, Some("WRONGPASS")) => "wrong user or password",
        _ if lacks_permission(error) => "the ACL user lacks a permission (see docs/cluster.md)",
        (_, Some("LOADING")) => "it is loading its data",
        (_, Some("READONLY")) => "it is a replica and refuses writes",
        (_, Some("OOM")) => "its memory is full (maxmemory)",
        (_, Some("MISCONF")) => "it cannot save its data, and refuses writes",
        (_, Some("MASTERDOWN")) => "it is a replica without its primary",
        (_, Some("CLUSTERDOWN")) => "the cluster is down: some slots have no primary",
        (_, Some("TRYAGAIN")) => "slots of the cluster are being moved",
        (_, Some("WRONGTYPE")) => {
            "a key of exirate has another type; another program uses this database"
        }
        (_, Some("NOSCRIPT")) => "it forgets the script at once",
        (_, Some("MOVED" | "ASK")) => {
            "it sends requests in a circle, or is part of a cluster: \
                                       write cluster = [...]"
        }
        (ErrorKind::MasterNameNotFoundBySentinel, _) => "no sentinel knows a primary of this name",
        (ErrorKind::ClusterConnectionNotFound, _) => {
            let detail = error.detail();
            return detail.unwrap_or("no node of the cluster can be reached").to_owned();
        }
        (ErrorKind::Io, _) => "the connection is broken",
        (ErrorKind::Parse, _) => "what it replies cannot be read, or is cut off",
        _ => return error.to_string(),
    };
    format!("{meaning} ({error})")
}

/// Whether a password is missing. A server that does not even read a request with as many parts, or
/// as long a part, without one has no code for that.
fn lacks_password(error: &redis::RedisError) -> bool {
    error.code() == Some("NOAUTH")
        || error.detail().is_some_and(|detail| detail.contains("unauthenticated"))
}

/// Whether the user lacks a permission, for a command or for one that the script calls: for
/// the latter, Redis 7.0 has no code.
fn lacks_permission(error: &redis::RedisError) -> bool {
    let in_script = "The user executing the script can't ";
    error.code() == Some("NOPERM")
        || error.detail().is_some_and(|detail| detail.starts_with(in_script))
}

impl From<redis::RedisError> for RedisError {
    fn from(error: redis::RedisError) -> Self {
        // As decide.lua says it.
        let found =
            error.detail().and_then(|text| text.strip_prefix("record is of format version "));
        let digits = found.map(|text| text.split_once(' ').map_or(text, |(digits, _)| digits));
        match digits.and_then(|digits| digits.parse().ok()).map(record::known) {
            Some(Err(version)) => Self::Version(version),
            _ => Self::Server(error),
        }
    }
}
