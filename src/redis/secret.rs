//! The secret that the agents of all servers share, in the key `exirate:secret`: it chooses the
//! names of the keys and the hashes of unique events, so agents with different secrets would
//! count apart.
//!
//! The first agent creates it; commands only look at it. Each agent looks once a second whether it is still the same: FLUSHALL,
//! or a server that comes back empty, removes it. Then an agent sets the one that it knows, if
//! no other one has done so before, and all take what is there.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use redis::{Cmd, Value, cmd};
use siphasher::sip128::{Hash128, SipHasher24};

use super::connection::Connection;
use super::error::RedisError;
use crate::rate::bloom::Event;

/// The key.
const KEY: &str = "exirate:secret";
const SECRET_BYTES: usize = 16;

/// The secret itself.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct StoreSecret([u8; SECRET_BYTES]);

impl StoreSecret {
    pub(super) fn new(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    pub(super) fn bytes(self) -> [u8; 16] {
        self.0
    }

    /// The hash of the text of a unique event.
    pub(super) fn event(self, text: &[u8]) -> Event {
        SipHasher24::new_with_key(&self.0).hash(text).into()
    }

    /// The part of a key that chooses the slot of a cluster. It depends on the secret, so
    /// that nobody can choose many identities of one slot.
    pub(super) fn tag(self, identity: &[u8]) -> String {
        format!("{:016x}", self.tag_number(identity))
    }

    fn tag_number(self, identity: &[u8]) -> u64 {
        let Hash128 { h1, h2 } = SipHasher24::new_with_key(&self.0).hash(identity);
        h1 ^ h2.rotate_left(1)
    }

    /// Whether this is the tag of an identity.
    pub(super) fn is_tag(self, tag: &str, identity: &[u8]) -> bool {
        let is_digit = |byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        tag.len() == 16
            && tag.bytes().all(is_digit)
            && u64::from_str_radix(tag, 16) == Ok(self.tag_number(identity))
    }

    /// A number that tells secrets apart, and from which none can be found.
    pub(super) fn id(self) -> u32 {
        (SipHasher24::new_with_key(&self.0).hash(b"which secret").h1 >> 32) as u32
    }
}

/// What an agent knows of it.
#[derive(Clone)]
pub(super) struct SharedSecret(Arc<Mutex<Kept>>);

struct Kept {
    secret: StoreSecret,
    /// What the administrator should know.
    incidents: Vec<String>,
}

impl SharedSecret {
    /// Agrees with the others, on `known` if there is none yet. If the node of a cluster that
    /// has it is away, `known` stays in use if it `was_used`.
    pub(super) async fn agree(
        connection: &Connection,
        known: StoreSecret,
        was_used: bool,
    ) -> Result<Self, RedisError> {
        let found = match agree(connection, known).await {
            Err(error) if was_used && connection.is_cluster() && error.is_lost() => {
                FoundSecret { secret: known, was_missing: false }
            }
            found => found?,
        };
        let shared = Self::new(found.secret);
        if was_used {
            shared.take_over(known, &found);
        }
        Ok(shared)
    }

    /// The one that the agents use, which this does not create.
    pub(super) async fn look(connection: &Connection) -> Result<Self, RedisError> {
        let read = read(connection, cmd("GET").arg(KEY)).await?;
        read.map(Self::new).ok_or(RedisError::NeverUsed)
    }

    fn new(secret: StoreSecret) -> Self {
        Self(Arc::new(Mutex::new(Kept { secret, incidents: Vec::new() })))
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The one in use.
    pub(super) fn get(&self) -> StoreSecret {
        self.lock().secret
    }

    /// Looks whether it is still the same: whether all keys were removed. While that cannot be seen,
    /// it stays in use.
    pub(super) async fn check(&self, connection: &Connection) -> Result<bool, RedisError> {
        let known = self.get();
        let found = agree(connection, known).await?;
        self.take_over(known, &found);
        Ok(found.was_missing || found.secret != known)
    }

    fn take_over(&self, known: StoreSecret, found: &FoundSecret) {
        let mut kept = self.lock();
        let what = match (found.secret == known, found.was_missing) {
            (true, false) => return,
            (true, true) => "was lost, and is set again",
            (false, _) => "is another one now",
        };
        kept.secret = found.secret;
        kept.incidents.push(format!(
            "the key {KEY} {what}: somebody has removed all keys, or a server came back empty; the \
             shared rates begin again"
        ));
    }

    /// What the administrator should know, once.
    pub(super) fn take_incidents(&self) -> Vec<String> {
        std::mem::take(&mut self.lock().incidents)
    }
}

/// The secret in the store.
struct FoundSecret {
    secret: StoreSecret,
    was_missing: bool,
}

/// The secret in the store; `known`, if there was none.
async fn agree(connection: &Connection, known: StoreSecret) -> Result<FoundSecret, RedisError> {
    // Each second: another program's value may be large.
    let start = cmd("GETRANGE").arg(KEY).arg(0).arg(SECRET_BYTES).clone();
    if let Some(secret) = read(connection, &start).await? {
        return Ok(FoundSecret { secret, was_missing: false });
    }
    connection.send(cmd("SET").arg(KEY).arg(&known.0[..]).arg("NX")).await?;
    let secret = read(connection, &start).await?.ok_or(RedisError::ForeignKey(KEY))?;
    Ok(FoundSecret { secret, was_missing: true })
}

/// The secret in the store, which `command` reads, if there is one.
async fn read(connection: &Connection, command: &Cmd) -> Result<Option<StoreSecret>, RedisError> {
    match connection.send(command).await? {
        Value::Nil => Ok(None),
        // GETRANGE does not tell a key that is missing from an empty one.
        Value::BulkString(bytes) if bytes.is_empty() => Ok(None),
        Value::BulkString(bytes) => match bytes.try_into() {
            Ok(secret) => Ok(Some(StoreSecret(secret))),
            Err(_) => Err(RedisError::ForeignKey(KEY)),
        },
        _ => Err(RedisError::ForeignKey(KEY)),
    }
}
