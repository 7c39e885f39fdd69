//! Why the Redis store could not be used.

use std::fmt;

use redis::{ErrorKind, ServerErrorKind};

use super::record;
use crate::versions::{OtherVersion, USE_THE_LATER};

/// Why checks are not decided.
#[derive(Debug)]
pub enum RedisError {
    /// A server has replied with an error, or the connection is broken.
    Server(redis::RedisError),
    /// The reply has another form than the script gives it.
    Reply,
    /// The runtime cannot start.
    Start(std::io::Error),
    /// There is no random number for the secret of the store.
    Random(rand::rngs::SysError),
    /// This key is not one of exirate's.
    ForeignKey(&'static str),
    /// There is no secret: no agent has ever used the store.
    NeverUsed,
    /// The shared overrides cannot be read, or have no room for more: why.
    Overrides(String),
    /// A record changes so often that it cannot be changed by hand.
    Busy,
    /// A record has a version that this exirate does not know.
    Version(OtherVersion),
    /// A record has a number or a time that no shared record can have.
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

impl fmt::Display for RedisError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let error = match self {
            Self::Reply => return f.write_str("the reply of the script cannot be read"),
            Self::Start(error) => return write!(f, "cannot start: {error}"),
            Self::Random(error) => return write!(f, "no random number: {error}"),
            Self::ForeignKey(key) => {
                return write!(
                    f,
                    "the key {key} has another content than exirate gives it; another program \
                     uses this database"
                );
            }
            Self::NeverUsed => {
                return f.write_str(
                    "no agent has ever used this Redis, so nothing is shared yet: start the \
                     agent (exirate-agent)",
                );
            }
            Self::Busy => {
                return f.write_str("the record changes all the time; nothing was changed by hand");
            }
            Self::Range => {
                return f.write_str(
                    "a shared record cannot have such a time: expected one from 1685 to 2255",
                );
            }
            Self::Overrides(why) => return f.write_str(why),
            Self::Version(version) => return write!(f, "a record {version}: {USE_THE_LATER}"),
            Self::Server(error) => error,
        };
        if error.is_timeout() {
            return f.write_str("no reply in time");
        }
        if error.is_connection_refusal() {
            return f.write_str("the connection is refused: nothing listens there");
        }
        let meaning = match (error.kind(), error.code()) {
            _ if lacks_password(error) => "a password is missing (password_file)",
            (ErrorKind::AuthenticationFailed, _) | (_, Some("WRONGPASS")) => {
                "wrong user or password"
            }
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
            (ErrorKind::MasterNameNotFoundBySentinel, _) => {
                "no sentinel knows a primary of this name"
            }
            (ErrorKind::ClusterConnectionNotFound, _) => {
                let detail = error.detail();
                return f.write_str(detail.unwrap_or("no node of the cluster can be reached"));
            }
            (ErrorKind::Io, _) => "the connection is broken",
            (ErrorKind::Parse, _) => "what it replies cannot be read, or is cut off",
            _ => return write!(f, "{error}"),
        };
        write!(f, "{meaning} ({error})")
    }
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

impl std::error::Error for RedisError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Server(error) => Some(error),
            Self::Start(error) => Some(error),
            Self::Random(error) => Some(error),
            Self::Reply
            | Self::ForeignKey(_)
            | Self::NeverUsed
            | Self::Overrides(_)
            | Self::Busy
            | Self::Version(_)
            | Self::Range => None,
        }
    }
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
