//! The overrides that servers share: one list, in one key, as a database has it in a file.
//!
//! Each agent keeps a copy, and looks once a second whether it has changed. So a change is known
//! everywhere a second later.

use std::sync::{Arc, Mutex, MutexGuard};

use redis::{Cmd, Value, cmd};

use super::connection::Connection;
use super::error::RedisError;
use super::script::Loaded;
use crate::engine::Check;
use crate::rate::Timestamp;
use crate::store::{LIST_BYTES_MAX, LIST_HEADER_BYTES, ListFault, Override, Overrides};

/// The key of the list.
const KEY: &str = "exirate:overrides";
/// How often a change is tried again as the list has changed meanwhile.
const TRIES_MAX: usize = 100;
/// Replaces the list, if it still has this header; it has a checksum.
const REPLACE: &str = "
if redis.call('GETRANGE', KEYS[1], 0, tonumber(ARGV[3]) - 1) ~= ARGV[1] then return 0 end
if ARGV[2] == '' then redis.call('DEL', KEYS[1]) else redis.call('SET', KEYS[1], ARGV[2]) end
return 1";

/// The copy of an agent.
#[derive(Clone, Default)]
pub(super) struct SharedOverrides(Arc<Mutex<KeptOverrides>>);

#[derive(Default)]
struct KeptOverrides {
    /// The header of the list that was read last; empty if there was none.
    header: Vec<u8>,
    /// What it says, or, if it could not be read, what the one before said.
    list: Option<Arc<Overrides>>,
    /// Why it cannot be read, which is said once; whether it was said.
    fault: Option<(String, bool)>,
}

impl SharedOverrides {
    fn lock(&self) -> MutexGuard<'_, KeptOverrides> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Reads the list if it has another header than the copy. If it cannot be read, the copy stays
    /// as it is.
    pub(super) async fn refresh(&self, connection: &Connection) -> Result<(), RedisError> {
        let header = cmd("GETRANGE").arg(KEY).arg(0).arg(LIST_HEADER_BYTES - 1).clone();
        let known = self.lock().header.clone();
        match connection.send(&header).await? {
            Value::BulkString(header) if header == known => return Ok(()),
            _ => {}
        }
        // Whatever its size is: a longer one is damaged.
        let bytes = read(connection, cmd("GETRANGE").arg(KEY).arg(0).arg(LIST_BYTES_MAX)).await?;
        let mut copy = self.lock();
        copy.header = header_of(&bytes).to_vec();
        match decode(bytes) {
            Ok(list) => {
                copy.list = (!copy.header.is_empty()).then(|| Arc::new(list));
                copy.fault = None;
            }
            Err(error) => {
                let why = error.to_string();
                if copy.fault.as_ref().is_none_or(|(known, _)| *known != why) {
                    copy.fault = Some((why, false));
                }
            }
        }
        Ok(())
    }

    /// The checks as the list decides them at `now`; those that something else has decided
    /// already stay so.
    pub(super) fn apply<'a>(&self, checks: &[Check<'a>], now: Timestamp) -> Vec<Check<'a>> {
        let Some(list) = self.lock().list.clone() else { return checks.to_vec() };
        let mut scratch = String::new();
        let decided = |check: &Check<'a>| {
            let found = |scratch: &mut String| list.find(&check.key, scratch).at(now.seconds);
            let overridden = check.overridden.or_else(|| found(&mut scratch));
            Check { overridden, ..*check }
        };
        checks.iter().map(decided).collect()
    }

    /// Why the list cannot be read, once.
    pub(super) fn take_incident(&self) -> Option<String> {
        let mut copy = self.lock();
        let (why, said) = copy.fault.as_mut()?;
        (!std::mem::replace(said, true)).then(|| format!("overrides stay as they were: {why}"))
    }

    /// Whether there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.lock().list.is_none()
    }
}

/// The list.
pub(super) async fn list(connection: &Connection) -> Result<Vec<Override>, RedisError> {
    Ok(decode(read(connection, cmd("GET").arg(KEY)).await?)?.list())
}

/// Changes the list in one step; `change` is called again if it changes meanwhile.
pub(super) async fn change(
    connection: &Connection,
    change: &mut dyn FnMut(&mut Vec<Override>),
) -> Result<(), RedisError> {
    let script = Loaded::new(REPLACE);
    for _ in 0..TRIES_MAX {
        let old = read(connection, cmd("GET").arg(KEY)).await?;
        let header = header_of(&old).to_vec();
        let before = decode(old)?.list();
        let mut list = before.clone();
        change(&mut list);
        if list == before {
            return Ok(());
        }
        let new = match &list[..] {
            [] => Vec::new(),
            list => Overrides::encode(list).map_err(RedisError::Overrides)?,
        };
        let complete = |call: &mut Cmd| {
            call.arg(1).arg(KEY).arg(&header).arg(&new).arg(LIST_HEADER_BYTES);
        };
        match script.call(connection, complete).await? {
            Value::Int(1) => return Ok(()),
            Value::Int(_) => {}
            _ => return Err(RedisError::Reply),
        }
    }
    Err(RedisError::Busy)
}

/// The list as it is stored, which `command` reads; empty if there is none.
async fn read(connection: &Connection, command: &Cmd) -> Result<Vec<u8>, RedisError> {
    match connection.send(command).await? {
        Value::Nil => Ok(Vec::new()),
        Value::BulkString(bytes) => Ok(bytes),
        _ => Err(RedisError::Reply),
    }
}

fn header_of(bytes: &[u8]) -> &[u8] {
    bytes.get(..LIST_HEADER_BYTES).unwrap_or(bytes)
}

fn decode(bytes: Vec<u8>) -> Result<Overrides, RedisError> {
    if bytes.is_empty() {
        return Ok(Overrides::default());
    }
    Overrides::decode(bytes).map_err(|fault| match fault {
        ListFault::Damaged => RedisError::Overrides(format!(
            "the list of overrides in the key {KEY} is damaged: delete this key in Redis, and set \
             them again; the audit.log of each server has what was set there"
        )),
        fault @ ListFault::Version(_) => RedisError::Overrides(format!("{KEY}: {fault}")),
    })
}
