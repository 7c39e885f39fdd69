//! The shared rates, looked at and changed by hand. The program's commands connect by
//! themselves, as the agent does, and not through it: Exim's processes may ask the agent,
//! and must not be able to reset a rate.

use std::collections::{BTreeSet, HashSet};
use std::hash::{BuildHasher as _, RandomState};
use std::io;
use std::mem::replace;

use redis::{Cmd, RedisResult, Value, cmd};
use tokio::runtime::Runtime;
use tokio::task::{JoinHandle, yield_now};

use super::connection::Place;
use super::error::RedisError;
use super::forms::{self, Form};
use super::overrides;
use super::record::{self, PREFIX, Record};
use super::script::{self, Loaded};
use super::settings::Settings;
use super::tool;
use super::{RedisStore, random};
use crate::engine::{AlgorithmKind, Kind, RecordKey};
use crate::rate::bloom;
use crate::rate::usage::Usage;
use crate::store::{
    Edit, Edited, Entry, FilterEntry, Inspect, InspectError, Override, OwnedKey, Restored,
    Statistics, Unread, Visit, Wanted,
};
use crate::text::counted;
use crate::versions::USE_THE_LATER;

/// How many keys are looked at in one step of a SCAN, and read at once.
const KEYS_AT_ONCE: usize = 1000;
/// How often a change is tried again as the record has changed meanwhile.
const TRIES_MAX: usize = 1000;
/// The script that replaces a record.
const REPLACE: &str = concat!(include_str!("record.lua"), include_str!("replace.lua"));

/// The shared rates, as a store that can be inspected.
pub struct SharedRates {
    pub(super) runtime: Runtime,
    pub(super) store: RedisStore,
    /// What messages call the servers.
    name: String,
    /// The name of this server.
    pub(super) own: Option<String>,
    replace: Loaded,
    /// The database of this server, which has the log of changes.
    local: Box<dyn Inspect>,
}

impl std::fmt::Debug for SharedRates {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SharedRates").field("name", &self.name).finish_non_exhaustive()
    }
}

impl SharedRates {
    /// Connects. Changes are logged in `local`.
    ///
    /// # Errors
    /// The servers cannot be reached, or do not allow what the store needs, or no agent has ever
    /// used them.
    pub fn connect(settings: &Settings, local: Box<dyn Inspect>) -> Result<Self, RedisError> {
        Self::connect_with(settings, local, true)
    }

    /// As [`SharedRates::connect`], for a user who may only read.
    ///
    /// # Errors
    /// As of [`SharedRates::connect`].
    pub fn look(settings: &Settings, local: Box<dyn Inspect>) -> Result<Self, RedisError> {
        Self::connect_with(settings, local, false)
    }

    fn connect_with(
        settings: &Settings,
        local: Box<dyn Inspect>,
        may_change: bool,
    ) -> Result<Self, RedisError> {
        let settings = tool::settings(settings);
        let runtime = tool::runtime()?;
        let store = RedisStore::connect_command(&settings, may_change);
        let store = runtime.block_on(tool::within(settings.deadline, store))?;
        let (name, replace) = (settings.to_string(), Loaded::new(&script::with_shares(REPLACE)));
        Ok(Self { runtime, store, name, own: None, replace, local })
    }

    /// Has usage be that of all servers, of which this is one.
    #[must_use]
    pub fn named(self, server: String) -> Self {
        Self { own: Some(server), ..self }
    }

    pub(super) fn send(&self, command: &Cmd) -> Result<Value, RedisError> {
        Ok(self.runtime.block_on(self.store.connection.send(command))?)
    }

    /// The result, whose error says which servers cannot be used.
    fn said<T>(&self, result: Result<T, RedisError>) -> Result<T, InspectError> {
        let name = &self.name;
        result.map_err(|error| match error {
            RedisError::Busy
            | RedisError::Range
            | RedisError::Version(_)
            | RedisError::Overrides(_) => format!("{name}: {error}").into(),
            _ => format!("the shared rates at {name} cannot be used: {error}").into(),
        })
    }

    /// The key of a record.
    fn key(&self, key: &RecordKey<'_>) -> Vec<u8> {
        record::key(key, &self.store.secret.get().tag(key.identity()))
    }

    /// The value of a key, and the record that it is; empty, if there is no key.
    fn read(&self, key: &[u8]) -> Result<(Vec<u8>, Option<Record>), RedisError> {
        match self.send(cmd("GET").arg(key))? {
            Value::Nil => Ok((Vec::new(), None)),
            Value::BulkString(bytes) => {
                record::not_later(&bytes).map_err(RedisError::Version)?;
                let record = Record::read(&bytes);
                Ok((bytes, record))
            }
            _ => Err(RedisError::Reply),
        }
    }

    /// Changes a record in one step. `change` is given the record, and returns its result and
    /// the new record; no new record leaves it as it is. It is called again if the record
    /// changes meanwhile.
    fn change<R>(
        &self,
        key: &RecordKey<'_>,
        mut change: impl FnMut(Option<&Record>) -> Result<(R, Changed), RedisError>,
    ) -> Result<R, RedisError> {
        let stored_key = self.key(key);
        for _ in 0..TRIES_MAX {
            let (old, record) = self.read(&stored_key)?;
            let (result, new) = change(record.as_ref())?;
            let new = match new {
                Changed::Nothing => return Ok(result),
                Changed::Deleted => Vec::new(),
                Changed::To(record) => {
                    let bytes = record.write();
                    // What cannot be read again would be lost.
                    Record::read(&bytes).ok_or(RedisError::Range)?;
                    bytes
                }
            };
            if !new.is_empty() && self.store.forms.see_one(key) {
                self.runtime.block_on(self.store.forms.publish(&self.store.connection))?;
            }
            if self.replace(&stored_key, &old, &new, key.algorithm)? {
                return Ok(result);
            }
        }
        Err(RedisError::Busy)
    }

    /// Replaces the value of a key, if it is still `old`.
    fn replace(
        &self,
        key: &[u8],
        old: &[u8],
        new: &[u8],
        algorithm: AlgorithmKind,
    ) -> Result<bool, RedisError> {
        let bucket = u8::from(algorithm == AlgorithmKind::Bucket);
        let complete = |call: &mut Cmd| {
            call.arg(1).arg(key).arg(Record::header(old)).arg(new).arg(bucket);
        };
        let connection = &self.store.connection;
        let reply = self.runtime.block_on(self.replace.call(connection, complete))?;
        match reply {
            Value::Int(replaced) => Ok(replaced == 1),
            _ => Err(RedisError::Reply),
        }
    }

    /// Calls `visit` with the records on a server, of those that `selects` selects. While some are
    /// visited, the server already looks for the next keys and values: `visit` must be quick.
    async fn for_each_on(
        &self,
        place: &Place,
        selects: &mut dyn FnMut(&RecordKey<'_>) -> bool,
        visit: &mut dyn FnMut(Entry),
        known: &mut SeenKeys,
    ) -> Result<(), RedisError> {
        let mut looks = Some(self.begin(place, vec![scan(b"0")]));
        let mut reads: Option<(Vec<Vec<u8>>, PendingReplies)> = None;
        while looks.is_some() || reads.is_some() {
            let mut keys = Vec::new();
            if let Some(looked) = looks.take() {
                let reply = replies(looked).await?.pop().ok_or(RedisError::Reply)??;
                let (next, found) = scanned(reply)?;
                looks = (next != b"0").then(|| self.begin(place, vec![scan(&next)]));
                keys = found;
                keys.retain(|key| {
                    let is_wanted = match record::read_key(key) {
                        Some((key, _)) => selects(&key),
                        // It is counted as damaged.
                        None => true,
                    };
                    is_wanted && known.is_new(key)
                });
            }
            let asked = (!keys.is_empty()).then(|| self.begin(place, self.reads(&keys)));
            // All that is asked is sent before anything is visited.
            yield_now().await;
            if let Some((keys, read)) = replace(&mut reads, asked.map(|asked| (keys, asked))) {
                for (key, reply) in keys.iter().zip(self.values(place, &keys, read).await?) {
                    self.visit(key, reply, visit, known)?;
                }
            }
        }
        Ok(())
    }

    /// The commands that read these keys on a server: one, unless keys are in slots.
    fn reads(&self, keys: &[Vec<u8>]) -> Vec<Cmd> {
        match self.store.connection.is_cluster() {
            true => gets(keys),
            false => vec![cmd("MGET").arg(keys).take()],
        }
    }

    /// The reply to GET for each of these keys, where a server was asked by [`Self::reads`].
    async fn values(
        &self,
        place: &Place,
        keys: &[Vec<u8>],
        asked: PendingReplies,
    ) -> Result<Vec<RedisResult<Value>>, RedisError> {
        let mut replies = replies(asked).await?;
        if self.store.connection.is_cluster() {
            return Ok(replies);
        }
        let mut values: Vec<_> = match replies.pop() {
            Some(Ok(Value::Array(values))) if values.len() == keys.len() => {
                values.into_iter().map(Ok).collect()
            }
            // 0.1.0 needed no right to it.
            Some(Err(error)) if error.code() == Some("NOPERM") => {
                keys.iter().map(|_| Ok(Value::Nil)).collect()
            }
            Some(Err(error)) => return Err(error.into()),
            _ => return Err(RedisError::Reply),
        };
        // MGET does not tell a value of another type from a key that has expired.
        let (missing, keys): (Vec<_>, Vec<_>) = values
            .iter_mut()
            .zip(keys)
            .filter(|(value, _)| matches!(value, Ok(Value::Nil)))
            .map(|(value, key)| (value, key.clone()))
            .unzip();
        if !keys.is_empty() {
            let replies = self.store.connection.send_all_to(place, gets(&keys)).await?;
            missing.into_iter().zip(replies).for_each(|(value, reply)| *value = reply);
        }
        Ok(values)
    }

    /// Sends several commands to this server; their replies come later.
    fn begin(&self, place: &Place, commands: Vec<Cmd>) -> PendingReplies {
        let (connection, place) = (self.store.connection.clone(), place.clone());
        tokio::spawn(async move { connection.send_all_to(&place, commands).await })
    }

    /// Calls `visit` with the record of a key, if the reply to GET has one.
    fn visit(
        &self,
        key: &[u8],
        reply: RedisResult<Value>,
        visit: &mut dyn FnMut(Entry),
        known: &mut SeenKeys,
    ) -> Result<(), RedisError> {
        match reply {
            // It has expired since.
            Ok(Value::Nil) => {}
            Ok(Value::BulkString(bytes)) => match self.entry(key, &bytes) {
                Some(entry) => entry.into_iter().for_each(visit),
                None if record::not_later(&bytes).is_err() => known.later += 1,
                None => known.damaged += 1,
            },
            Err(error) if error.code() != Some("WRONGTYPE") => return Err(error.into()),
            _ => known.damaged += 1,
        }
        Ok(())
    }

    pub(super) fn send_all(
        &self,
        place: &Place,
        commands: Vec<Cmd>,
    ) -> Result<Vec<RedisResult<Value>>, RedisError> {
        Ok(self.runtime.block_on(self.store.connection.send_all_to(place, commands))?)
    }

    /// Calls `visit` with the records on all servers that `selects` selects.
    fn scan(
        &self,
        selects: &mut dyn FnMut(&RecordKey<'_>) -> bool,
        visit: &mut dyn FnMut(Entry),
    ) -> Result<Unread, InspectError> {
        let mut known = SeenKeys::default();
        let mut unread = Unread::default();
        let places = self.store.connection.primaries();
        for place in &places {
            let on_one = self.for_each_on(place, selects, visit, &mut known);
            match (self.runtime.block_on(on_one), place) {
                (Ok(()), _) => {}
                // The other nodes have keys of their own.
                (Err(error), Some(node)) if error.is_lost() && places.len() > 1 => {
                    let missing =
                        format!("{}: the keys of the node {node} are missing: {error}", self.name);
                    unread.parts.push(missing.into());
                }
                (Err(error), _) => return self.said(Err(error)),
            }
        }
        Ok(self.unread(unread, &known))
    }

    /// With what was left out.
    fn unread(&self, mut unread: Unread, known: &SeenKeys) -> Unread {
        unread.damaged += known.damaged;
        if known.later > 0 {
            let (name, records) = (&self.name, counted(known.later, "record", "records"));
            let later = format!("{name}: {records} of a later format version: {USE_THE_LATER}");
            unread.parts.push(later.into());
        }
        unread
    }

    /// The forms of the names of all records, if they are known.
    fn forms(&self) -> Option<Vec<Form>> {
        let connection = &self.store.connection;
        self.runtime.block_on(forms::all(connection))
    }

    /// Calls `visit` with the records of these identities that `selects` selects, found by their
    /// names, which have one of these forms.
    fn of_identities(
        &self,
        forms: &[Form],
        identities: &HashSet<Vec<u8>>,
        selects: &mut dyn FnMut(&RecordKey<'_>) -> bool,
        visit: &mut dyn FnMut(Entry),
    ) -> Result<Unread, InspectError> {
        let mut keys = BTreeSet::new();
        for identity in identities {
            let tag = self.store.secret.get().tag(identity);
            for form in forms {
                let key = form.of(identity);
                if selects(&key.key()) {
                    keys.insert(record::key(&key.key(), &tag));
                }
            }
        }
        let keys: Vec<Vec<u8>> = keys.into_iter().collect();
        let mut known = SeenKeys::default();
        for some in keys.chunks(KEYS_AT_ONCE) {
            // Each node is asked for its own.
            let replies = self.said(self.send_all(&None, gets(some)))?;
            for (key, reply) in some.iter().zip(replies) {
                self.said(self.visit(key, reply, visit, &mut known))?;
            }
        }
        Ok(self.unread(Unread::default(), &known))
    }

    /// The record of a key and a value, `None` if they are none; it may be one without a
    /// rate.
    fn entry(&self, key: &[u8], value: &[u8]) -> Option<Option<Entry>> {
        let (key, tag) = record::read_key(key)?;
        let record = Record::read(value)?;
        let is_tagged = self.store.secret.get().is_tag(tag, key.identity());
        is_tagged.then(|| Entry::of(&key, record.remembered()))
    }
}

/// What becomes of a record.
enum Changed {
    Nothing,
    Deleted,
    To(Record),
}

/// The keys that have been seen: SCAN may return a key twice. Of each, a hash is remembered.
#[derive(Default)]
struct SeenKeys {
    hashes: HashSet<u64>,
    hasher: RandomState,
    /// How many records are of a later version.
    later: u64,
    /// How many are none.
    damaged: u64,
}

impl SeenKeys {
    fn is_new(&mut self, key: &[u8]) -> bool {
        self.hashes.insert(self.hasher.hash_one(key))
    }
}

/// The commands that read these keys.
fn gets(keys: &[Vec<u8>]) -> Vec<Cmd> {
    keys.iter().map(|key| cmd("GET").arg(key).take()).collect()
}

/// What a server was asked.
type PendingReplies = JoinHandle<RedisResult<Vec<RedisResult<Value>>>>;

/// The replies to it.
async fn replies(asked: PendingReplies) -> Result<Vec<RedisResult<Value>>, RedisError> {
    let ended = asked.await.map_err(|error| redis::RedisError::from(io::Error::other(error)));
    Ok(ended.and_then(|replies| replies)?)
}

/// The command that looks for keys of records, from this cursor on.
fn scan(cursor: &[u8]) -> Cmd {
    let mut scan = cmd("SCAN");
    scan.arg(cursor).arg("MATCH").arg(format!("{PREFIX}*")).arg("COUNT").arg(KEYS_AT_ONCE);
    scan
}

/// The next cursor and the keys that a SCAN has returned.
fn scanned(reply: Value) -> Result<(Vec<u8>, Vec<Vec<u8>>), RedisError> {
    let Value::Array(parts) = reply else { return Err(RedisError::Reply) };
    let Ok([Value::BulkString(cursor), Value::Array(keys)]) = <[Value; 2]>::try_from(parts) else {
        return Err(RedisError::Reply);
    };
    let key = |value| match value {
        Value::BulkString(key) => Ok(key),
        _ => Err(RedisError::Reply),
    };
    Ok((cursor, keys.into_iter().map(key).collect::<Result<_, _>>()?))
}

impl Inspect for SharedRates {
    fn for_each(&mut self, visit: &mut dyn FnMut(Entry)) -> Result<Unread, InspectError> {
        self.scan(&mut |_| true, visit)
    }

    fn for_each_of(
        &mut self,
        identities: &HashSet<Vec<u8>>,
        visit: &mut dyn FnMut(Entry),
    ) -> Result<Unread, InspectError> {
        match self.forms() {
            Some(forms) => self.of_identities(&forms, identities, &mut |_| true, visit),
            None => self.scan(&mut |key| identities.contains(key.identity()), visit),
        }
    }

    fn for_each_wanted(
        &mut self,
        wanted: &mut Wanted<'_>,
        visit: &mut dyn FnMut(Entry),
    ) -> Result<Unread, InspectError> {
        let Wanted { selects, identities } = wanted;
        if let Some((identities, folding)) = identities
            && let Some(forms) = self.forms()
            && forms.iter().all(|form| form.is_as_folded(folding))
        {
            return self.of_identities(&forms, identities, selects, visit);
        }
        self.scan(selects, visit)
    }

    fn for_each_of_keys(
        &mut self,
        keys: &[OwnedKey],
        visit: &mut dyn FnMut(Entry) -> Result<(), InspectError>,
    ) -> Result<(), InspectError> {
        for some in keys.chunks(KEYS_AT_ONCE) {
            let stored: Vec<Vec<u8>> = some.iter().map(|key| self.key(&key.key())).collect();
            let replies = self.said(self.send_all(&None, gets(&stored)))?;
            let (mut entries, mut known) = (Vec::new(), SeenKeys::default());
            for (key, reply) in stored.iter().zip(replies) {
                let read = self.visit(key, reply, &mut |entry| entries.push(entry), &mut known);
                self.said(read)?;
            }
            entries.into_iter().try_for_each(&mut *visit)?;
        }
        Ok(())
    }

    fn survey(&mut self, visit: Visit<'_>) -> Result<Unread, InspectError> {
        let unread = self.for_each(&mut |entry| visit(entry.record_key(), entry.remembered()))?;
        // Habits are those of this server.
        self.local.survey(&mut |key, remembered| {
            if key.kind == Kind::Habits {
                visit(key, remembered);
            }
        })?;
        Ok(unread)
    }

    /// What this server has accepted, and what others have published of theirs.
    fn for_each_usage(
        &mut self,
        at: i64,
        day: i64,
        visit: &mut dyn FnMut(&[u8], &Usage),
    ) -> Result<Unread, InspectError> {
        let mut others = self.said(self.all_usage_elsewhere())?;
        let unread = self.local.for_each_usage(at, day, &mut |identity, usage| {
            let mut sum = usage.clone();
            others.take(identity, at, day).iter().for_each(|more| sum += more);
            visit(identity, &sum);
        })?;
        others.for_each(at, day, visit);
        Ok(unread)
    }

    fn usage(&mut self, identity: &[u8], at: i64, day: i64) -> Result<Option<Usage>, InspectError> {
        let elsewhere = self.said(self.usage_elsewhere(identity, at, day))?;
        let own = self.local.usage(identity, at, day)?;
        Ok(own.into_iter().chain(elsewhere).reduce(|mut sum, one| {
            sum += &one;
            sum
        }))
    }

    fn get(&mut self, key: RecordKey<'_>) -> Result<Option<Entry>, InspectError> {
        let (_, record) = self.said(self.read(&self.key(&key)))?;
        Ok(record.and_then(|record| Entry::of(&key, record.remembered())))
    }

    fn has_event(&mut self, key: RecordKey<'_>, event: &[u8]) -> Result<bool, InspectError> {
        let (_, record) = self.said(self.read(&self.key(&key)))?;
        let filter = record.and_then(|record| record.filter);
        Ok(filter.is_some_and(|filter| {
            bloom::contains(&filter.bits, self.store.secret.get().event(event))
        }))
    }

    fn remove(&mut self, key: RecordKey<'_>) -> Result<Option<Entry>, InspectError> {
        self.said(self.change(&key, |record| {
            let Some(record) = record else { return Ok((None, Changed::Nothing)) };
            Ok((Entry::of(&key, record.remembered()), Changed::Deleted))
        }))
    }

    fn set(&mut self, key: RecordKey<'_>, edit: &Edit<'_>) -> Result<Option<Edited>, InspectError> {
        let event = edit.event.map(|text| self.store.secret.get().event(text));
        self.said(self.change(&key, |record| {
            let Some((edited, change)) = edit.apply(&key, record.map(Record::remembered), event)
            else {
                return Ok((None, Changed::Nothing));
            };
            let filter = record.and_then(|record| record.filter.clone());
            let filter = FilterEntry::changed(filter, &change.filter);
            let events = numbered(record)?;
            let is_calendar =
                matches!(key.algorithm, AlgorithmKind::Calendar | AlgorithmKind::Share);
            let new = Record { is_calendar, state: change.state, filter, events };
            Ok((Some(edited), Changed::To(new)))
        }))
    }

    fn restore(&mut self, entry: &Entry) -> Result<Restored, InspectError> {
        let key = entry.record_key();
        if key.kind == Kind::Habits {
            return Ok(Restored::NotShared);
        }
        self.said(self.change(&key, |record| {
            let known = record.and_then(|record| record.state.average);
            let restored = entry.restored_over(known);
            if restored == Restored::Kept {
                return Ok((restored, Changed::Nothing));
            }
            let filter = entry.filter_to_restore().cloned();
            let is_calendar =
                matches!(key.algorithm, AlgorithmKind::Calendar | AlgorithmKind::Share);
            let events = numbered(record)?;
            let new = Record { is_calendar, state: entry.state(), filter, events };
            Ok((restored, Changed::To(new)))
        }))
    }

    fn statistics(&mut self) -> Result<Statistics, InspectError> {
        let mut statistics = Statistics::default();
        let mut unread = self.for_each(&mut |entry| {
            let filter = entry.filter.map_or(0, |filter| filter.bits.len());
            statistics.records += 1;
            statistics.bytes += (record::HEAD + entry.key.len() + filter) as u64;
        })?;
        unread.parts.pop().map_or(Ok(statistics), Err)
    }

    fn filter_key(&self) -> [u8; 16] {
        self.store.secret.get().bytes()
    }

    fn location(&self) -> String {
        self.name.clone()
    }

    fn log_change(&mut self, line: &str) -> Result<(), InspectError> {
        self.local.log_change(line)
    }

    fn overrides(&mut self) -> Result<Vec<Override>, InspectError> {
        self.said(self.runtime.block_on(overrides::list(&self.store.connection)))
    }

    fn change_overrides(
        &mut self,
        change: &mut dyn FnMut(&mut Vec<Override>),
    ) -> Result<(), InspectError> {
        let connection = &self.store.connection;
        self.said(self.runtime.block_on(overrides::change(connection, change)))
    }

    fn take_incidents(&mut self) -> Vec<String> {
        self.local.take_incidents()
    }
}

/// The numbers of the latest events of a record after one more: every change has one, so
/// that another that is made at the same time notices it.
fn numbered(record: Option<&Record>) -> Result<[[u8; 8]; 4], RedisError> {
    let [a, b, c, _] = record.map_or([[0; 8]; 4], |record| record.events);
    Ok([random()?, a, b, c])
}
