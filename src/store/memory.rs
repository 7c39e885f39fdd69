//! A store in memory.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::convert::Infallible;
use std::hash::{BuildHasher, BuildHasherDefault, Hash, Hasher};

use siphasher::sip;
use siphasher::sip128::SipHasher24;

use crate::engine::{
    self, AlgorithmKind, Authority, Change, Check, Decision, Filter, Overridden, Pending,
    RecordKey, Remembered, State, quiet_from,
};
use crate::hash::FastHash;
use crate::rate::bloom::{self, Event};
use crate::rate::habits::Habits;
use crate::rate::usage::{self, Usage, WORDS};
use crate::rate::{Algorithm, Timestamp};

use super::{
    Counting, Edit, Edited, Entry, FilterEntry, Inspect, InspectError, Judged, OwnedKey, Restored,
    Sending, Statistics, Store, Unread,
};

/// A [`Store`] in this process's memory: for simulations, and as the reference
/// that other stores are compared with.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    hasher: FastHash,
    records: HashMap<Hashed<OwnedKey>, MemoryRecord, BuildHasherDefault<Computed>>,
    /// By the identity of their keys.
    habits: HashMap<Box<[u8]>, Habits, FastHash>,
    /// Likewise.
    usage: HashMap<Box<[u8]>, Box<[u64; WORDS]>, FastHash>,
    filter_key: FilterKey,
    pending: Vec<Pending>,
    hashes: Vec<u64>,
    changes: Vec<String>,
}

/// A key that a record is found by, and its hash, which a check computes once although it
/// reads the record and changes it.
#[derive(Clone, Debug)]
struct Hashed<K> {
    hash: u64,
    key: K,
}

/// A [`Hashed`] key, whether or not it owns its name.
trait Named {
    fn hashed(&self) -> Hashed<RecordKey<'_>>;
}

impl Named for Hashed<OwnedKey> {
    fn hashed(&self) -> Hashed<RecordKey<'_>> {
        Hashed { hash: self.hash, key: self.key.key() }
    }
}

impl Named for Hashed<RecordKey<'_>> {
    fn hashed(&self) -> Hashed<RecordKey<'_>> {
        Hashed { hash: self.hash, key: self.key }
    }
}

impl Hash for dyn Named + '_ {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hashed().hash);
    }
}

impl PartialEq for dyn Named + '_ {
    fn eq(&self, other: &Self) -> bool {
        self.hashed().key == other.hashed().key
    }
}

impl Eq for dyn Named + '_ {}

impl Hash for Hashed<OwnedKey> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}

impl PartialEq for Hashed<OwnedKey> {
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key
    }
}

impl Eq for Hashed<OwnedKey> {}

impl<'a> Borrow<dyn Named + 'a> for Hashed<OwnedKey> {
    fn borrow(&self) -> &(dyn Named + 'a) {
        self
    }
}

/// Takes over a hash that has been computed.
#[derive(Clone, Copy, Debug, Default)]
struct Computed(u64);

impl Hasher for Computed {
    fn write(&mut self, bytes: &[u8]) {
        self.0 = bytes.iter().fold(self.0, |hash, &byte| hash.rotate_left(8) ^ u64::from(byte));
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// The key for the hashes of unique events. It is known, so that the same events have the same
/// outcome each time: no sender can choose events for a simulation.
#[derive(Clone, Debug)]
struct FilterKey([u8; 16]);

impl Default for FilterKey {
    fn default() -> Self {
        Self(*b"exirate simulate")
    }
}

/// A remembered record.
#[derive(Clone, Debug)]
struct MemoryRecord {
    state: State,
    filter: Option<FilterEntry>,
}

impl MemoryRecord {
    fn remembered(&self) -> Remembered<'_> {
        Remembered {
            state: self.state,
            filter: self.filter.as_ref().map(|f| Filter { epoch: f.epoch, bits: &f.bits }),
        }
    }
}

impl MemoryRecord {
    /// Whether it can be dropped at `now`. The latest over decision must be at least a
    /// period ago, since the next one is then a crossing in any case; a block must have ended.
    fn is_forgettable(&self, algorithm: AlgorithmKind, least: f64, now: Timestamp) -> bool {
        let State { average, limit, period, start, last_over, .. } = self.state;
        let epoch = self.filter.as_ref().map(|filter| filter.epoch);
        let quiet = now.seconds as f64 > quiet_from(last_over, period);
        quiet
            && average.is_none_or(|average| {
                let counted = Algorithm::of_record(algorithm, limit, period, start);
                counted.forgettable(average, epoch, least, now)
            })
    }
}

impl Memory {
    /// An empty store.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty store that hashes unique events with this key, as a store does whose
    /// records are [`put`](Self::put) here.
    #[must_use]
    pub fn with_event_key(key: [u8; 16]) -> Self {
        Self { filter_key: FilterKey(key), ..Self::default() }
    }

    /// Stores a record as another store remembers it.
    pub(crate) fn put(&mut self, key: OwnedKey, remembered: Remembered<'_>) {
        let Remembered { state, filter } = remembered;
        let filter =
            filter.map(|Filter { epoch, bits }| FilterEntry { epoch, bits: bits.to_vec() });
        self.replace(key.key(), MemoryRecord { state, filter });
    }

    /// The habits of an account, of this identity.
    #[must_use]
    pub fn habits(&self, identity: &[u8]) -> Option<&Habits> {
        self.habits.get(identity)
    }

    /// Stores the habits of an account, of this identity, in place of those that it has.
    pub fn put_habits(&mut self, identity: &[u8], habits: Habits) {
        self.habits.insert(identity.into(), habits);
    }

    /// What the account of this identity has sent until the second `at`, which is in this `day`.
    #[must_use]
    pub fn usage(&self, identity: &[u8], at: i64, day: i64) -> Option<Usage> {
        self.usage.get(identity).map(|words| Usage::of(&**words, at, day))
    }

    /// Updates habits as [`Store::learn`], with this override.
    pub(crate) fn learn_overridden(
        &mut self,
        sending: &Sending<'_>,
        overridden: Option<Overridden>,
        now: Timestamp,
    ) -> Judged {
        let identity = sending.key.identity();
        if let Some(habits) = self.habits.get_mut(identity) {
            return sending.judge(habits, now.seconds, overridden).0;
        }
        let mut habits = Habits::default();
        let (judged, is_changed) = sending.judge(&mut habits, now.seconds, overridden);
        if is_changed {
            self.put_habits(identity, habits);
        }
        judged
    }

    /// Drops the records without which no decision at `now` or later would be another, where
    /// an event that is counted costs at least `least`: see [`Algorithm::forgettable`].
    pub fn forget(&mut self, now: Timestamp, least: f64) {
        self.records.retain(|key, record| !record.is_forgettable(key.key.algorithm, least, now));
    }

    /// How many records there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Whether nothing is remembered.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// The lines that [`Inspect::log_change`] was given.
    #[must_use]
    pub fn changes(&self) -> &[String] {
        &self.changes
    }

    /// Decides the checks of one event by this authority; otherwise as [`Store::decide`].
    pub fn decide_as(
        &mut self,
        authority: Authority<'_>,
        checks: &[Check<'_>],
        now: Timestamp,
        decisions: &mut Vec<Decision>,
    ) {
        let mut pending = std::mem::take(&mut self.pending);
        let mut hashes = std::mem::take(&mut self.hashes);
        hashes.clear();
        hashes.extend(checks.iter().map(|check| self.hasher.hash_one(check.key.name)));
        let hashed = |number: usize| {
            let (check, hash) = checks.get(number).zip(hashes.get(number))?;
            Some((check, Hashed { hash: *hash, key: check.record_key() }))
        };
        let read = |number: usize| {
            let Some((check, key)) = hashed(number) else { return (None, None) };
            (self.found(&key).map(MemoryRecord::remembered), self.event(check))
        };
        authority.decide(checks, read, now, &mut pending);
        decisions.clear();
        for (number, one) in pending.iter().enumerate() {
            if let Some(change) = one.change()
                && let Some((_, key)) = hashed(number)
            {
                self.apply(&key, change);
            }
            decisions.push(one.decision());
        }
        (self.pending, self.hashes) = (pending, hashes);
    }

    /// The hash of the unique event of a check that may count it.
    fn event(&self, check: &Check<'_>) -> Option<Event> {
        check.counted_event().map(|text| self.hash(text))
    }

    /// The hash of the text of a unique event.
    fn hash(&self, text: &[u8]) -> Event {
        SipHasher24::new_with_key(&self.filter_key.0).hash(text).into()
    }

    fn hashed<'a>(&self, key: RecordKey<'a>) -> Hashed<RecordKey<'a>> {
        Hashed { hash: self.hasher.hash_one(key.name), key }
    }

    /// The record of a key, if there is one.
    fn found(&self, key: &Hashed<RecordKey<'_>>) -> Option<&MemoryRecord> {
        self.records.get(key as &dyn Named)
    }

    fn replace(&mut self, key: RecordKey<'_>, record: MemoryRecord) {
        let Hashed { hash, key } = self.hashed(key);
        self.records.insert(Hashed { hash, key: key.into() }, record);
    }

    fn apply(&mut self, key: &Hashed<RecordKey<'_>>, change: &Change) {
        match self.records.get_mut(key as &dyn Named) {
            Some(record) => {
                record.state = change.state;
                record.filter = FilterEntry::changed(record.filter.take(), &change.filter);
            }
            None => {
                let filter = FilterEntry::changed(None, &change.filter);
                let key = Hashed { hash: key.hash, key: key.key.into() };
                self.records.insert(key, MemoryRecord { state: change.state, filter });
            }
        }
    }
}

impl Store for Memory {
    type Error = Infallible;

    fn decide(
        &mut self,
        checks: &[Check<'_>],
        clock: impl FnOnce() -> Timestamp,
        decisions: &mut Vec<Decision>,
    ) -> Result<(), Infallible> {
        self.decide_as(Authority::Local, checks, clock(), decisions);
        Ok(())
    }

    fn decide_one(
        &mut self,
        check: &Check<'_>,
        clock: impl FnOnce() -> Timestamp,
    ) -> Result<Decision, Infallible> {
        let key = self.hashed(check.record_key());
        let remembered = self.found(&key).map(MemoryRecord::remembered);
        let one = engine::decide_one(check, remembered, self.event(check), clock());
        if let Some(change) = one.change() {
            self.apply(&key, change);
        }
        Ok(one.decision())
    }

    fn habits_hash(&self, text: &[u8]) -> u64 {
        sip::SipHasher24::new_with_key(&self.filter_key.0).hash(text)
    }

    fn learn(
        &mut self,
        sending: &Sending<'_>,
        clock: impl FnOnce() -> Timestamp,
    ) -> Result<Judged, Infallible> {
        Ok(self.learn_overridden(sending, None, clock()))
    }

    fn count_usage(
        &mut self,
        counting: &Counting<'_>,
        clock: impl FnOnce() -> Timestamp,
    ) -> Result<(), Infallible> {
        let Counting { identity, sent, day } = counting;
        let words = self.usage.entry((*identity).into()).or_insert_with(|| Box::new([0; WORDS]));
        let at = clock().seconds;
        usage::count(&mut **words, at, || day(at), sent);
        Ok(())
    }
}

impl Inspect for Memory {
    fn for_each(&mut self, visit: &mut dyn FnMut(Entry)) -> Result<Unread, InspectError> {
        for (key, record) in &self.records {
            Entry::of(&key.key.key(), record.remembered()).into_iter().for_each(&mut *visit);
        }
        Ok(Unread::default())
    }

    fn get(&mut self, key: RecordKey<'_>) -> Result<Option<Entry>, InspectError> {
        let found = self.found(&self.hashed(key));
        Ok(found.and_then(|record| Entry::of(&key, record.remembered())))
    }

    fn has_event(&mut self, key: RecordKey<'_>, event: &[u8]) -> Result<bool, InspectError> {
        let filter = self.found(&self.hashed(key)).and_then(|record| record.filter.as_ref());
        Ok(filter.is_some_and(|filter| bloom::contains(&filter.bits, self.hash(event))))
    }

    fn remove(&mut self, key: RecordKey<'_>) -> Result<Option<Entry>, InspectError> {
        let record = self.records.remove(&self.hashed(key) as &dyn Named);
        Ok(record.and_then(|record| Entry::of(&key, record.remembered())))
    }

    fn set(&mut self, key: RecordKey<'_>, edit: &Edit<'_>) -> Result<Option<Edited>, InspectError> {
        let event = edit.event.map(|text| self.hash(text));
        let hashed = self.hashed(key);
        let remembered = self.found(&hashed).map(MemoryRecord::remembered);
        let Some((edited, change)) = edit.apply(&key, remembered, event) else { return Ok(None) };
        self.apply(&hashed, &change);
        Ok(Some(edited))
    }

    fn restore(&mut self, entry: &Entry) -> Result<Restored, InspectError> {
        let key = entry.record_key();
        let known = self.found(&self.hashed(key)).and_then(|record| record.state.average);
        let restored = entry.restored_over(known);
        if restored != Restored::Kept {
            let filter = entry.filter_to_restore().cloned();
            self.replace(key, MemoryRecord { state: entry.state(), filter });
        }
        Ok(restored)
    }

    fn statistics(&mut self) -> Result<Statistics, InspectError> {
        let rated = self.records.iter().filter(|(_, record)| record.state.average.is_some());
        let size = |Hashed { key, .. }: &Hashed<OwnedKey>, record: &MemoryRecord| {
            let filter = record.filter.as_ref().map_or(0, |filter| filter.bits.len());
            size_of::<(Hashed<OwnedKey>, MemoryRecord)>() + key.name.len() + filter
        };
        let bytes: usize = self.records.iter().map(|(key, record)| size(key, record)).sum();
        Ok(Statistics { records: rated.count() as u64, bytes: bytes as u64 })
    }

    fn filter_key(&self) -> [u8; 16] {
        self.filter_key.0
    }

    fn location(&self) -> String {
        "memory".to_owned()
    }

    fn log_change(&mut self, line: &str) -> Result<(), InspectError> {
        self.changes.push(line.to_owned());
        Ok(())
    }

    fn take_incidents(&mut self) -> Vec<String> {
        Vec::new()
    }
}
