//! What the servers say of themselves, for `exirate doctor`.

use redis::{Value, cmd};

use super::RedisStore;
use super::error::RedisError;
use super::settings::Settings;
use super::tool::{TOOL_MAX, runtime, within};
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
    /// By how many seconds its clock is ahead of that of this machine.
    pub ahead: f64,
}

/// Connects as the agent does, and asks each server for its state.
///
/// # Errors
/// The store cannot be used, or the ACL user may not use `INFO`.
pub fn examine(settings: &Settings) -> Result<Vec<ServerState>, RedisError> {
    let runtime = runtime()?;
    runtime.block_on(within(settings.deadline.max(TOOL_MAX), async {
        let store = RedisStore::connect(settings).await?;
        let mut connection = store.connection.clone();
        let reply = connection.send(&cmd("INFO")).await?;
        let (seconds, micros) = clock::now();
        let now = seconds as f64 + f64::from(micros) / 1e6;
        let mut states = Vec::new();
        read(&reply, now, &mut states);
        Ok::<_, RedisError>(states)
    }))
}

/// Reads the reply of one server, or those of all nodes of a cluster.
fn read(reply: &Value, now: f64, states: &mut Vec<ServerState>) {
    match reply {
        Value::BulkString(text) => states.push(state(&String::from_utf8_lossy(text), now)),
        Value::SimpleString(text) | Value::VerbatimString { text, .. } => {
            states.push(state(text, now));
        }
        Value::Map(nodes) => nodes.iter().for_each(|(_, reply)| read(reply, now, states)),
        Value::Array(nodes) => nodes.iter().for_each(|reply| read(reply, now, states)),
        _ => {}
    }
}

/// Reads the lines `name:value` of a reply.
fn state(text: &str, now: f64) -> ServerState {
    let field = |name: &str| {
        let value = |line: &str| line.strip_prefix(name)?.strip_prefix(':').map(str::to_owned);
        text.lines().find_map(value)
    };
    let micros = field("server_time_usec").and_then(|text| text.parse::<f64>().ok());
    ServerState {
        port: field("tcp_port").unwrap_or_default(),
        version: match field("valkey_version") {
            Some(version) => format!("Valkey {version}"),
            None => format!("Redis {}", field("redis_version").unwrap_or_default()),
        },
        eviction: field("maxmemory_policy").unwrap_or_default(),
        memory_max: field("maxmemory").and_then(|text| text.parse().ok()).unwrap_or(0),
        ahead: micros.map_or(0.0, |micros| micros / 1e6 - now),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of the nodes of a cluster, each has a state.
    #[test]
    fn each_node_of_a_cluster_has_a_state() {
        let node = |port: u16, more: &str| {
            let text = format!(
                "# Server\r\nredis_version:7.2.4\r\n{more}tcp_port:{port}\r\n\
                 server_time_usec:1700000003500000\r\nmaxmemory:1000000\r\n\
                 maxmemory_policy:noeviction\r\n"
            );
            (Value::BulkString(b"node".to_vec()), Value::BulkString(text.into_bytes()))
        };
        let reply = Value::Map(vec![node(7000, ""), node(7001, "valkey_version:8.1.1\r\n")]);
        let mut states = Vec::new();
        read(&reply, 1_700_000_001.0, &mut states);
        let expected = |port: &str, version: &str| ServerState {
            port: port.into(),
            version: version.into(),
            eviction: "noeviction".into(),
            memory_max: 1_000_000,
            ahead: 2.5,
        };
        assert_eq!(states, [expected("7000", "Redis 7.2.4"), expected("7001", "Valkey 8.1.1")]);
        // An old server does not say what time it is.
        states.clear();
        read(&Value::SimpleString("redis_version:6.0.16".into()), 1.0, &mut states);
        assert_eq!((states[0].ahead, &*states[0].eviction), (0.0, ""));
    }
}
