//! What the servers say of themselves, for `exirate doctor`.

use redis::{Value, cmd};

use super::connection::Connection;
use super::error::RedisError;
use super::script::Loaded;
use super::settings::Settings;
use super::tool::{TOOL_MAX, runtime, within};
use super::{SCRIPT, probe};
use crate::sys::clock;

/// A server of the store.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ServerState {
    /// Its port, which tells apart those that run on one machine.
    pub port: String,
    /// Its version, of Redis or of Valkey.
    pub version: String,
    /// `maxmemory-policy`: what it removes when its memory is full.
    pub eviction: String,
    /// `maxmemory`, in bytes: what its data may take; 0 is no limit.
    pub memory_max: u64,
    /// How many keys it has removed for want of memory since it was started.
    pub evicted: u64,
    /// The numbers of its databases that have keys.
    pub databases: Vec<i64>,
    /// By how many seconds its clock is ahead of that of this machine.
    pub ahead: f64,
}

/// The servers of the store.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ServerStates {
    /// Those that reply.
    pub states: Vec<ServerState>,
    /// The nodes of a cluster that do not, and why.
    pub away: Vec<(String, String)>,
    /// Why they say nothing of themselves: the ACL user may not use `INFO`.
    pub denied: Option<String>,
    /// What the sentinels say, if there are any.
    pub sentinels: Option<SentinelStates>,
}

/// What the sentinels say.
#[derive(Clone, Debug, PartialEq)]
pub struct SentinelStates {
    /// The primary, if a majority of all of them names it.
    pub primary: Option<String>,
    /// What each says, in words.
    pub said: String,
}

/// Connects as the agent does, and asks each server for its state.
///
/// # Errors
/// The store cannot be used.
pub fn examine(settings: &Settings) -> Result<ServerStates, RedisError> {
    let runtime = runtime()?;
    runtime.block_on(within(settings.deadline.max(TOOL_MAX), async {
        let connection = Connection::open(settings).await?;
        probe(&connection, &Loaded::new(SCRIPT)).await?;
        let mut all = ServerStates::default();
        if let Some((sentinels, _)) = connection.sentinels() {
            let said = sentinels.ask_all().await;
            let primary = said.by_majority().map(ToString::to_string);
            all.sentinels = Some(SentinelStates { primary, said: said.to_string() });
        }
        for place in connection.servers() {
            let reply = connection.send_to(&place, &cmd("INFO")).await.map_err(RedisError::from);
            let (seconds, micros) = clock::now();
            let now = seconds as f64 + f64::from(micros) / 1e6;
            match (reply, place) {
                (Ok(reply), _) => all.states.extend(state(&reply, now)),
                (Err(error), _) if error.code() == Some("NOPERM") => {
                    all.denied = Some(error.to_string());
                }
                (Err(error), Some(node)) => {
                    all.away.push((node.to_string(), error.to_string()));
                }
                (Err(error), _) => return Err(error),
            }
        }
        Ok::<_, RedisError>(all)
    }))
}

/// Reads the lines `name:value` of a reply.
fn state(reply: &Value, now: f64) -> Option<ServerState> {
    let text = match reply {
        Value::BulkString(text) => String::from_utf8_lossy(text),
        Value::SimpleString(text) | Value::VerbatimString { text, .. } => text.into(),
        _ => return None,
    };
    let field = |name: &str| {
        let value = |line: &str| line.strip_prefix(name)?.strip_prefix(':').map(str::to_owned);
        text.lines().find_map(value)
    };
    let micros = field("server_time_usec").and_then(|text| text.parse::<f64>().ok());
    Some(ServerState {
        port: field("tcp_port").unwrap_or_default(),
        version: match field("valkey_version") {
            Some(version) => format!("Valkey {version}"),
            None => format!("Redis {}", field("redis_version").unwrap_or_default()),
        },
        eviction: field("maxmemory_policy").unwrap_or_default(),
        memory_max: field("maxmemory").and_then(|text| text.parse().ok()).unwrap_or(0),
        evicted: field("evicted_keys").and_then(|text| text.parse().ok()).unwrap_or(0),
        databases: text
            .lines()
            .filter_map(|line| line.strip_prefix("db")?.split_once(":keys=")?.0.parse().ok())
            .collect(),
        ahead: micros.map_or(0.0, |micros| micros / 1e6 - now),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_of_a_server_is_read() {
        let read = |more: &str| {
            let text = format!(
                "# Server\r\nredis_version:7.2.4\r\n{more}tcp_port:7000\r\n\
                 server_time_usec:1700000003500000\r\nmaxmemory:1000000\r\n\
                 maxmemory_policy:noeviction\r\nevicted_keys:12\r\n\
                 db0:keys=3,expires=3\r\ndb3:keys=1,expires=0\r\n"
            );
            state(&Value::BulkString(text.into_bytes()), 1_700_000_001.0).unwrap()
        };
        let expected = |version: &str| ServerState {
            port: "7000".into(),
            version: version.into(),
            eviction: "noeviction".into(),
            memory_max: 1_000_000,
            evicted: 12,
            databases: vec![0, 3],
            ahead: 2.5,
        };
        assert_eq!(read(""), expected("Redis 7.2.4"));
        assert_eq!(read("valkey_version:8.1.1\r\n"), expected("Valkey 8.1.1"));
        // An old server does not say what time it is.
        let old = state(&Value::SimpleString("redis_version:6.0.16".into()), 1.0).unwrap();
        assert_eq!((old.ahead, &*old.eviction), (0.0, ""));
        assert_eq!(state(&Value::Nil, 1.0), None);
    }
}
