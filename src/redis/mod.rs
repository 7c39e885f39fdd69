//! The Redis store: the rates of several servers, in Redis or Valkey. The agent uses it.
//!
//! All checks of an event are decided by one script (`decide.lua`), in one step and one
//! round trip; on a cluster, those of each identity are. The time is that of the Redis server. A record is one key,
//! which lives as long as it can change a decision:
//!
//! `exirate:{TAG}KIND ALGORITHM IDENTITY_START:NAME`, such as
//! `exirate:{5f0c6a3b9d1e2f40}sm0:1h/per_rcpt/alice@example.org`
//!
//! `TAG` is a hash of the identity, so that all records of one identity are in one slot of
//! a cluster. `KIND` is `s` (spec) or `p` (policy), `ALGORITHM` is `m` (moving average),
//! `b` (bucket), `c` (calendar window) or `f` (share of what failed), and the identity begins at byte `IDENTITY_START` of `NAME`.
//!
//! On a cluster, checks of several identities are sent at the same time, and each identity
//! is decided by itself: a leaky check of one does not know whether one of another is over
//! its limit, and counts the event where the other stores do not. Totals are sent when the
//! others are decided: one that is no total may count an event that a total refuses.
//!
//! Unique events and tags are hashed with the secret in the key `exirate:secret`. The hash
//! `exirate:servers` has what the servers publish of themselves, `exirate:forms` how the names of
//! records are made, `exirate:usage` what accounts send: see `usage`.

mod connect;
mod connection;
mod error;
mod events;
mod forms;
mod inspect;
mod line;
mod node;
mod nodes;
mod overrides;
mod record;
mod register;
mod script;
mod secret;
mod sentinel;
mod servers;
mod servers_file;
mod settings;
mod state;
#[cfg(test)]
mod tests;
mod tool;
mod usage;

use std::sync::Arc;
use std::time::Duration;

use rand::TryRng as _;
use rand::rngs::SysRng;
use redis::{Cmd, Value, cmd};
use tokio::sync::Notify;
use tokio::time::timeout;

use crate::cluster::wire::read_decision;
use crate::engine::{Algorithm, Check, Decision, Overridden, Update, refused_by_own};
use crate::rate::Timestamp;
use crate::rate::bloom;
use crate::sys::clock;

use connection::Connection;
pub use error::RedisError;
pub use events::{SharedEvent, SharedEvents};
use forms::UsedForms;
pub use inspect::SharedRates;
use overrides::SharedOverrides;
use record::key;
pub use register::{Announcement, Register};
use script::{Loaded, is_no_script};
use secret::{SharedSecret, StoreSecret};
pub use servers::{
    ANNOUNCED_EVERY, AgentState, KnownServer, KnownServers, PolicyState, SEEN_LATELY,
    is_server_name,
};
pub use servers_file::{read_servers, servers_file, write_servers};
pub use settings::{Secret, Server, Servers, Settings, Transport};
pub use state::{SentinelStates, ServerState, ServerStates, examine};
pub use usage::{PARTS, UsagePart, part_of};

/// A key that the script counts an event in when a connection is made: so a server that
/// cannot decide is found before it is asked. It expires soon. On a cluster, one of its
/// nodes must decide one of so many.
const PROBE: &str = "exirate:probe";
const PROBES: usize = 16;
/// How often what changes without a request is looked at.
const LOOKED_AT_EVERY: Duration = Duration::from_secs(1);
/// So many looks in a row without a reply in time show that a connection is dead.
const SILENT_MAX: u32 = 3;
/// The script.
const SCRIPT: &str = concat!(include_str!("record.lua"), include_str!("decide.lua"));

/// The script for checks of which one is a share. It is loaded when the first comes.
fn share_script() -> String {
    let all = [include_str!("record.lua"), include_str!("share.lua"), include_str!("decide.lua")];
    script::with_shares(&all.concat())
}

/// A store in Redis.
#[derive(Clone)]
pub struct RedisStore {
    connection: Connection,
    secret: SharedSecret,
    servers: Servers,
    script: Arc<Loaded>,
    share_script: Arc<Loaded>,
    overrides: SharedOverrides,
    forms: UsedForms,
    /// The time that tests give it.
    #[cfg(test)]
    time: Option<Arc<std::sync::Mutex<Timestamp>>>,
}

impl std::fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RedisStore").finish_non_exhaustive()
    }
}

impl RedisStore {
    /// Connects, and makes sure that the server decides. The first agent creates the secret on
    /// which the names of the keys depend.
    ///
    /// # Errors
    /// It cannot be reached, or does not allow what the store needs.
    pub async fn connect(settings: &Settings) -> Result<Self, RedisError> {
        Self::connect_again(settings, None).await
    }

    /// As [`RedisStore::connect`], after another connection to the same servers: if the keys were
    /// removed meanwhile, those of before get the same names again.
    ///
    /// # Errors
    /// Those of [`RedisStore::connect`].
    pub async fn connect_again(
        settings: &Settings,
        old: Option<&Self>,
    ) -> Result<Self, RedisError> {
        let connection = Connection::open(settings).await?;
        // What another store has used is no concern of this one.
        let old = old.filter(|old| old.servers == settings.servers);
        let known = match old {
            Some(old) => old.secret.get(),
            None => StoreSecret::new(random()?),
        };
        let secret = SharedSecret::agree(&connection, known, old.is_some()).await?;
        let mut store = Self::with(connection, secret, settings);
        if let Some(old) = old {
            store.forms = old.forms.clone();
            store.forms.again();
        }
        probe(&store.connection, &store.script).await?;
        // A list that cannot be read is reported, and the store is used nevertheless.
        let _ = store.overrides.refresh(&store.connection).await;
        Ok(store)
    }

    /// Connects for a command, which creates no secret: without one, nothing is shared yet. Whoever
    /// changes nothing needs no permission to.
    async fn connect_command(settings: &Settings, may_change: bool) -> Result<Self, RedisError> {
        let connection = Connection::open(settings).await?;
        let secret = SharedSecret::look(&connection).await?;
        let store = Self::with(connection, secret, settings);
        if may_change {
            probe(&store.connection, &store.script).await?;
        }
        Ok(store)
    }

    fn with(connection: Connection, secret: SharedSecret, settings: &Settings) -> Self {
        Self {
            connection,
            secret,
            servers: settings.servers.clone(),
            script: Arc::new(Loaded::new(SCRIPT)),
            share_script: Arc::new(Loaded::new(&share_script())),
            overrides: SharedOverrides::default(),
            forms: UsedForms::default(),
            #[cfg(test)]
            time: None,
        }
    }

    /// Looks, each second, at what changes without a request: the overrides, the secret, and which
    /// server the sentinels name. No request waits for that. Ends when the store has to be connected
    /// to again: with the reason.
    pub async fn watch(&self) -> String {
        let switched = Arc::new(Notify::new());
        let _listening = self.connection.sentinels().map(|(all, _)| all.listen(&switched));
        let mut silent = 0;
        loop {
            let _ = timeout(LOOKED_AT_EVERY, switched.notified()).await;
            let (moved, refreshed) = tokio::join!(self.moved(), self.refresh());
            if let Some(why) = moved {
                return why;
            }
            match refreshed {
                Err(error) if error.is_late() => silent += 1,
                Err(error) if error.is_broken() => return error.to_string(),
                Err(_) | Ok(()) => silent = 0,
            }
            if silent >= SILENT_MAX && !self.has_parts() {
                return "no reply in time".to_owned();
            }
        }
    }

    /// Looks whether the overrides and the secret are still the same. Each of these keys may be on
    /// another node, or be forbidden, or another program's: that keeps nobody from the others.
    ///
    /// # Errors
    /// That cannot be seen. What is known stays in use: on a cluster, other nodes may well decide.
    pub async fn refresh(&self) -> Result<(), RedisError> {
        let looked = self.secret.check(&self.connection).await;
        if matches!(looked, Ok(true)) {
            self.forms.again();
        }
        let read = self.overrides.refresh(&self.connection).await;
        looked.and(self.forms.publish(&self.connection).await).and(read)
    }

    /// Why the store is at another server now, if a majority of the sentinels says so.
    async fn moved(&self) -> Option<String> {
        let (sentinels, server) = self.connection.sentinels()?;
        let said = sentinels.ask().await;
        let primary = said.by_majority().filter(|primary| *primary != server)?;
        Some(format!("the sentinels name another primary, {primary} in place of {server}"))
    }

    /// Whether all servers of the store fail.
    #[must_use]
    pub fn is_away(&self) -> bool {
        self.connection.is_away()
    }

    /// Whether other nodes decide while one does not: it is a cluster.
    #[must_use]
    pub fn has_parts(&self) -> bool {
        self.connection.is_cluster()
    }

    /// The nodes of a cluster that do not reply, and why.
    #[must_use]
    pub fn nodes_away(&self) -> Vec<(String, String)> {
        self.connection.nodes_away()
    }

    /// Returns, once, what the administrator should know, in one sentence each.
    #[must_use]
    pub fn take_incidents(&self) -> Vec<String> {
        let mut incidents = self.secret.take_incidents();
        incidents.extend(self.overrides.take_incident());
        incidents
    }

    /// Decides the checks of the event with this number, by the rules of
    /// [`crate::engine`]. An event that was counted lately is not counted again.
    /// `decisions` is cleared and then filled with one decision for each check.
    ///
    /// A future that is dropped before it is ready leaves the connection in order; the
    /// event may have been counted.
    ///
    /// # Errors
    /// The checks are not decided. On a cluster, the event may have been counted for some
    /// identities.
    pub async fn decide(
        &self,
        event: u128,
        checks: &[Check<'_>],
        decisions: &mut Vec<Decision>,
    ) -> Result<(), RedisError> {
        decisions.clear();
        if self.forms.see(checks) {
            let store = self.clone();
            // Else it is published within a second.
            tokio::spawn(async move { store.forms.publish(&store.connection).await.ok() });
        }
        let overridden;
        let checks = match self.overrides.is_empty() {
            true => checks,
            false => {
                overridden = self.overrides.apply(checks, self.now());
                &overridden
            }
        };
        let mut all: Vec<Option<Decision>> = vec![None; checks.len()];
        match &self.connection {
            Connection::Single(_) if checks.is_empty() => {}
            Connection::Single(_) => {
                let group = (0..checks.len()).collect();
                self.decide_groups(event, checks, &[group], &mut all).await?;
            }
            Connection::Cluster(_) => {
                let (own, totals) = (groups(checks, false), groups(checks, true));
                self.reach(checks, own.iter().chain(&totals)).await?;
                self.decide_groups(event, checks, &own, &mut all).await?;
                let decided = checks.iter().zip(&all);
                let decided = decided.filter_map(|(check, one)| Some((check, one.as_ref()?)));
                let of_refused: Vec<_>;
                let checks = match refused_by_own(decided) {
                    false => checks,
                    true => {
                        of_refused = checks.iter().map(Check::of_refused).collect();
                        &of_refused
                    }
                };
                self.decide_groups(event, checks, &totals, &mut all).await?;
            }
        }
        decisions.extend(all.into_iter().flatten());
        if decisions.len() == checks.len() { Ok(()) } else { Err(RedisError::Reply) }
    }

    /// Makes sure that no node which has one of several groups of checks is known to be away:
    /// else the event would be counted for the others, and once more by the server that asks, as
    /// it decides all of it alone. Of a node that is to be tried again, a key that counts for
    /// nobody is.
    async fn reach(
        &self,
        checks: &[Check<'_>],
        groups: impl Iterator<Item = &Vec<usize>> + Clone,
    ) -> Result<(), RedisError> {
        if groups.clone().count() < 2 {
            return Ok(());
        }
        for group in groups {
            let Some(check) = group.first().and_then(|&number| checks.get(number)) else {
                continue;
            };
            let probed = probe_of(&self.secret.get().tag(check.key.identity()));
            if self.connection.is_key_away(&probed) {
                probe_key(&self.connection, &self.script, probed).await?;
            }
        }
        Ok(())
    }

    /// Decides the checks of each of these groups by one call of the script, all at the
    /// same time.
    async fn decide_groups(
        &self,
        event: u128,
        checks: &[Check<'_>],
        groups: &[Vec<usize>],
        all: &mut [Option<Decision>],
    ) -> Result<(), RedisError> {
        let secret = self.secret.get();
        let call = |group: &Vec<usize>| self.call(event, checks, group, secret);
        let calls: Vec<ScriptCall> = groups.iter().map(call).collect();
        let connection = &self.connection;
        let has_shares = checks.iter().any(|check| check.algorithm.share().is_some());
        let script = if has_shares { &self.share_script } else { &self.script };
        let replies = match &calls[..] {
            [] => return Ok(()),
            [call] => vec![connection.send(&call.by_hash(script)).await],
            several => {
                let commands: Vec<Cmd> = several.iter().map(|call| call.by_hash(script)).collect();
                connection.send_all(&commands).await
            }
        };
        for ((group, call), reply) in groups.iter().zip(&calls).zip(replies) {
            let reply = match reply {
                // A restart, a failover or FLUSH has removed the script; EVAL loads it.
                Err(error) if is_no_script(&error) => connection.send(&call.by_text(script)).await,
                reply => reply,
            };
            let Value::Array(parts) = reply? else { return Err(RedisError::Reply) };
            if parts.len() != group.len() {
                return Err(RedisError::Reply);
            }
            for (&number, part) in group.iter().zip(&parts) {
                let decided = match (part, checks.get(number)) {
                    (Value::BulkString(bytes), Some(check)) => decision(bytes, check),
                    _ => None,
                };
                if let Some(place) = all.get_mut(number) {
                    *place = Some(decided.ok_or(RedisError::Reply)?);
                }
            }
        }
        Ok(())
    }

    /// The time by which overrides end.
    fn now(&self) -> Timestamp {
        #[cfg(test)]
        if let Some(time) = &self.time {
            return *time.lock().unwrap_or_else(|e| e.into_inner());
        }
        clock::now().into()
    }

    /// The call of the script for the checks with these numbers.
    fn call(
        &self,
        event: u128,
        checks: &[Check<'_>],
        group: &[usize],
        secret: StoreSecret,
    ) -> ScriptCall {
        let checks = group.iter().filter_map(|&number| checks.get(number));
        let mut call = ScriptCall { keys: Vec::new(), arguments: Vec::new() };
        // The upper half is the same for all events of a process.
        let event = event as u64 ^ (event >> 64) as u64;
        call.arguments.push(event.to_le_bytes().to_vec());
        for check in checks {
            call.keys.push(key(&check.record_key(), &secret.tag(check.key.identity())));
            call.arguments.push(argument(check, secret));
        }
        #[cfg(test)]
        if let Some(time) = &self.time {
            let Timestamp { seconds, micros } = *time.lock().unwrap_or_else(|e| e.into_inner());
            call.arguments.push(seconds.to_string().into_bytes());
            call.arguments.push(micros.to_string().into_bytes());
        }
        call
    }
}

/// Loads the script, and counts two events, which call all that it uses.
async fn probe(connection: &Connection, script: &Loaded) -> Result<(), RedisError> {
    let first = probe_key(connection, script, PROBE.into()).await;
    if first.is_ok() || !connection.is_cluster() {
        return first;
    }
    for number in 0..PROBES {
        if probe_key(connection, script, probe_of(&number.to_string())).await.is_ok() {
            return Ok(());
        }
    }
    first
}

/// The key that is probed for those with this tag: it is in their slot.
fn probe_of(tag: &str) -> Vec<u8> {
    format!("{PROBE}{{{tag}}}").into_bytes()
}

async fn probe_key(
    connection: &Connection,
    script: &Loaded,
    key: Vec<u8>,
) -> Result<(), RedisError> {
    let check = Check {
        event: Some(b"probe"),
        refuses: None,
        ..Check::new("probe", Algorithm::MovingAverage { limit: 1.0, period: 1.0 })
    };
    for by_text in [true, false] {
        let event: [u8; 8] = random()?;
        // It is compared with no other one.
        let secret = StoreSecret::new(random()?);
        let arguments = vec![event.into(), argument(&check, secret)];
        let call = ScriptCall { keys: vec![key.clone()], arguments };
        let command = if by_text { call.by_text(script) } else { call.by_hash(script) };
        match connection.send(&command).await? {
            Value::Array(parts) => match &parts[..] {
                [Value::BulkString(bytes)] if decision(bytes, &check).is_some() => {}
                _ => return Err(RedisError::Reply),
            },
            _ => return Err(RedisError::Reply),
        }
    }
    Ok(())
}

/// A call of the script.
struct ScriptCall {
    keys: Vec<Vec<u8>>,
    arguments: Vec<Vec<u8>>,
}

impl ScriptCall {
    fn by_hash(&self, script: &Loaded) -> Cmd {
        self.command("EVALSHA", &script.hash)
    }

    fn by_text(&self, script: &Loaded) -> Cmd {
        self.command("EVAL", &script.text)
    }

    fn command(&self, name: &str, script: &str) -> Cmd {
        let mut command = cmd(name);
        command.arg(script).arg(self.keys.len()).arg(&self.keys).arg(&self.arguments);
        command
    }
}

/// The numbers of those checks of each identity that are totals, or are not, in the order
/// of the first of each.
fn groups(checks: &[Check<'_>], total: bool) -> Vec<Vec<usize>> {
    let mut groups: Vec<(&[u8], Vec<usize>)> = Vec::new();
    for (number, check) in checks.iter().enumerate().filter(|(_, check)| check.total == total) {
        let identity = check.key.identity();
        match groups.iter_mut().find(|(known, _)| *known == identity) {
            Some((_, group)) => group.push(number),
            None => groups.push((identity, vec![number])),
        }
    }
    groups.into_iter().map(|(_, group)| group).collect()
}

fn random<const BYTES: usize>() -> Result<[u8; BYTES], RedisError> {
    let mut bytes = [0; BYTES];
    SysRng.try_fill_bytes(&mut bytes).map_err(RedisError::Random)?;
    Ok(bytes)
}

/// A decision, as the script replies it.
fn decision(bytes: &[u8], check: &Check<'_>) -> Option<Decision> {
    read_decision(bytes.try_into().ok()?, check).ok()
}

/// A check, for the script.
fn argument(check: &Check<'_>, secret: StoreSecret) -> Vec<u8> {
    let algorithm = check.algorithm.kind().code();
    let update = match check.update {
        Update::Leaky => 1,
        Update::Strict => 2,
        Update::ReadOnly => 3,
    };
    let overridden = match check.overridden {
        None => 0,
        Some(Overridden::Allow) => 1,
        Some(Overridden::Deny | Overridden::Reject) => 2,
    };
    let mut argument = vec![algorithm, update, check.total.into(), overridden];
    let third = match check.algorithm {
        Algorithm::Calendar { window, .. } => window.start as f64,
        Algorithm::Share { accepted, .. } => accepted.unwrap_or(0) as f64,
        other => other.leak(),
    };
    let numbers = [check.algorithm.limit(), check.algorithm.period(), third];
    // No rate reaches a part that is not a number.
    let refuses = check.refuses.unwrap_or(f64::NAN);
    for number in numbers.into_iter().chain([check.count, refuses]) {
        argument.extend_from_slice(&number.to_le_bytes());
    }
    let event = check.counted_event().map(|text| secret.event(text));
    let bytes = event.map_or(0, |_| bloom::bytes_for(check.algorithm.limit()));
    let bytes = u32::try_from(bytes).unwrap_or(0);
    let bytes = check.algorithm.share().map_or(bytes, |share| share.least);
    argument.extend_from_slice(&bytes.to_le_bytes());
    argument.extend_from_slice(&check.blocks.code().to_le_bytes());
    if let Some(event) = event {
        event.hashes().for_each(|hash| argument.extend_from_slice(&hash.to_le_bytes()));
    }
    argument
}
