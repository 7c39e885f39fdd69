//! Reads and writes what the servers that share limits publish of themselves.

use std::time::Instant;

use redis::{Value, cmd};

use super::RedisStore;
use super::connection::Connection;
use super::error::RedisError;
use super::servers::{AgentState, KnownServers, PolicyState, SERVERS, agent_field, policy_field};
use super::settings::Settings;
use super::tool::Tool;
use super::usage;
use crate::sys::clock;

/// The time of the server that has the hash, and a field of the hash. In a cluster, TIME alone
/// would go to any node.
const TIME_AND_FIELD: &str = "local time = redis.call('TIME') \
                              return {time[1], time[2], redis.call('HGET', KEYS[1], ARGV[1])}";
/// The same with all fields.
const TIME_AND_FIELDS: &str = "local time = redis.call('TIME') \
                               return {time[1], time[2], redis.call('HGETALL', KEYS[1])}";

/// What an agent publishes, apart from what only its store knows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Announcement<'a> {
    /// The name of the server.
    pub name: &'a str,
    /// Chosen when the agent starts.
    pub id: u64,
    /// When it started, in seconds since 1970.
    pub started: u64,
    /// How many requests it has decided since then.
    pub decisions: u64,
    /// How many servers share the limits.
    pub servers: u32,
    /// Whether it has published something under this name before.
    pub again: bool,
    /// Tells apart configurations of agents.
    pub config: u32,
}

impl RedisStore {
    /// Publishes the state of the agent of this server. Whether another agent publishes under
    /// the same name.
    ///
    /// # Errors
    /// It is not published. Decisions may be possible nevertheless.
    pub async fn announce(&self, announcement: &Announcement<'_>) -> Result<bool, RedisError> {
        let &Announcement { name, id, started, decisions, servers, again, config } = announcement;
        let connection = &self.connection;
        let field = agent_field(name);
        let (here, begun) = (seconds(clock::now()), Instant::now());
        let mut command = cmd("EVAL");
        command.arg(TIME_AND_FIELD).arg(1).arg(SERVERS).arg(&field);
        let (time, old) = time_and(connection.send(&command).await?)?;
        // Redis has read its clock halfway through the round trip.
        let here = here + begun.elapsed().as_secs_f64() / 2.0;
        let old = match &old {
            Value::BulkString(value) => AgentState::of(value),
            _ => None,
        };
        let conflict = again && old.is_some_and(|old| old.id != id);
        let state = AgentState {
            release: env!("CARGO_PKG_VERSION").to_owned(),
            id,
            started,
            seen: time.0.unsigned_abs(),
            decisions,
            clock: here - seconds(time),
            servers,
            secret: Some(self.secret.get().id()),
            conflict,
            primary: connection.sentinels().map(|(_, server)| server.to_string()),
            config: Some(config),
        };
        connection.send(cmd("HSET").arg(SERVERS).arg(field).arg(state.to_string())).await?;
        Ok(conflict)
    }

    /// The servers that share the limits.
    ///
    /// # Errors
    /// They are not known.
    pub async fn servers(&self) -> Result<KnownServers, RedisError> {
        let connection = &self.connection;
        read(connection).await.map(|(known, _)| known)
    }
}

/// What is published, for tools.
pub struct Register(Tool);

impl std::fmt::Debug for Register {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Register").finish_non_exhaustive()
    }
}

impl Register {
    /// Connects as the agent does.
    ///
    /// # Errors
    /// The store cannot be reached.
    pub fn open(settings: &Settings) -> Result<Self, RedisError> {
        Ok(Self(Tool::open(settings)?))
    }

    /// The servers that share the limits. What those that are gone have published is removed.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn servers(&self) -> Result<KnownServers, RedisError> {
        let (known, gone) = self.0.run(read)?;
        if !gone.is_empty() {
            // They are not shown in any case.
            let _ = self.0.send(cmd("HDEL").arg(SERVERS).arg(gone));
        }
        Ok(known)
    }

    /// Publishes the digest of the policy of the server with this name; `None` if it has none.
    ///
    /// # Errors
    /// It is not published.
    pub fn set_policy(&self, name: &str, digest: Option<&str>) -> Result<(), RedisError> {
        let field = policy_field(name);
        let mut command = cmd("EVAL");
        command.arg(TIME_AND_FIELD).arg(1).arg(SERVERS).arg(&field);
        let ((now, _), _) = time_and(self.0.send(&command)?)?;
        match digest {
            Some(digest) => {
                let digest = digest.to_owned();
                let value = PolicyState { digest, written: now.unsigned_abs() }.to_string();
                self.0.send(cmd("HSET").arg(SERVERS).arg(field).arg(value))?;
            }
            None => {
                self.0.send(cmd("HDEL").arg(SERVERS).arg(field))?;
            }
        }
        Ok(())
    }

    /// Removes what the server with this name has published. Whether there was something.
    ///
    /// # Errors
    /// It is not removed.
    pub fn forget(&self, name: &str) -> Result<bool, RedisError> {
        let fields = [agent_field(name), policy_field(name)];
        let removed = self.0.send(cmd("HDEL").arg(SERVERS).arg(&fields))?;
        let usage = self.0.send(cmd("HDEL").arg(usage::SERVERS).arg(name))?;
        for part in 0..usage::PARTS {
            self.0.send(cmd("DEL").arg(usage::key(name, part)))?;
        }
        Ok(removed != Value::Int(0) || usage != Value::Int(0))
    }
}

/// What is published, and the fields of the servers that are gone.
pub(super) async fn read(
    connection: &Connection,
) -> Result<(KnownServers, Vec<String>), RedisError> {
    let mut command = cmd("EVAL");
    command.arg(TIME_AND_FIELDS).arg(1).arg(SERVERS);
    let ((now, _), value) = time_and(connection.send(&command).await?)?;
    let Value::Array(fields) = value else { return Err(RedisError::Reply) };
    let (pairs, []) = fields.as_chunks::<2>() else { return Err(RedisError::Reply) };
    let pairs = pairs.iter().filter_map(|pair| match pair {
        [Value::BulkString(field), Value::BulkString(value)] => Some((&**field, &**value)),
        _ => None,
    });
    Ok(KnownServers::read(now.unsigned_abs(), pairs))
}

/// The time of Redis, in seconds and microseconds, and what a script has replied with it.
fn time_and(reply: Value) -> Result<((i64, u32), Value), RedisError> {
    let Value::Array(parts) = reply else { return Err(RedisError::Reply) };
    let Ok([Value::BulkString(seconds), Value::BulkString(micros), value]) =
        <[Value; 3]>::try_from(parts)
    else {
        return Err(RedisError::Reply);
    };
    let seconds = std::str::from_utf8(&seconds).ok().and_then(|text| text.parse::<i64>().ok());
    let micros = std::str::from_utf8(&micros).ok().and_then(|text| text.parse::<u32>().ok());
    match (seconds, micros) {
        (Some(seconds @ 0..), Some(micros)) => Ok(((seconds, micros), value)),
        _ => Err(RedisError::Reply),
    }
}

fn seconds((seconds, micros): (i64, u32)) -> f64 {
    seconds as f64 + f64::from(micros) / 1e6
}
