//! A store in memory.

use std::collections::HashMap;
use std::convert::Infallible;
use std::hash::{BuildHasher, RandomState};

use crate::engine::{
    self, Change, Check, Decision, Filter, FilterChange, Kind, Pending, RecordKey, Remembered,
    State, Update,
};
use crate::rate::Timestamp;
use crate::rate::bloom::{self, Event};

use super::Store;

/// A [`Store`] in this process's memory: for simulations, and as the reference
/// that other stores are compared with.
#[derive(Debug, Default)]
pub struct Memory {
    records: HashMap<OwnKey, Record>,
    events: [RandomState; 2],
    pending: Vec<Pending>,
}

/// An owned [`RecordKey`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct OwnKey {
    name: Vec<u8>,
    identity_start: usize,
    kind: Kind,
}

impl OwnKey {
    fn of(key: &RecordKey<'_>) -> Self {
        Self { name: key.name.to_vec(), identity_start: key.identity_start, kind: key.kind }
    }
}

/// A remembered record.
#[derive(Clone, Debug)]
struct Record {
    state: State,
    filter: Option<(i64, Vec<u8>)>,
}

impl Record {
    fn remembered(&self) -> Remembered<'_> {
        Remembered {
            state: self.state,
            filter: self.filter.as_ref().map(|(epoch, bits)| Filter { epoch: *epoch, bits }),
        }
    }
}

impl Memory {
    /// An empty store.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
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

    /// Passes every record to `visit`.
    pub fn for_each(&self, mut visit: impl FnMut(RecordKey<'_>, Remembered<'_>)) {
        for (OwnKey { name, identity_start, kind }, record) in &self.records {
            let key = RecordKey { name, identity_start: *identity_start, kind: *kind };
            visit(key, record.remembered());
        }
    }

    /// The hash of the unique event of a check that may count it.
    fn event(&self, check: &Check<'_>) -> Option<Event> {
        let text = check.event.filter(|_| check.update != Update::ReadOnly)?;
        let [low, high] = &self.events;
        Some(Event(u128::from(low.hash_one(text)) | u128::from(high.hash_one(text)) << 64))
    }

    fn apply(&mut self, key: OwnKey, change: &Change) {
        let kept = self.records.remove(&key).and_then(|record| record.filter);
        let filter = match change.filter {
            FilterChange::Keep => kept,
            FilterChange::Insert(event) => kept.map(|(epoch, mut bits)| {
                bloom::insert(&mut bits, event);
                (epoch, bits)
            }),
            FilterChange::Renew { bytes, epoch, event } => {
                let mut bits = vec![0; bytes.min(bloom::MAX_BYTES)];
                bloom::insert(&mut bits, event);
                Some((epoch, bits))
            }
        };
        self.records.insert(key, Record { state: change.state, filter });
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
        let mut pending = std::mem::take(&mut self.pending);
        let found: Vec<_> =
            checks.iter().map(|check| self.records.get(&OwnKey::of(&check.key))).collect();
        let read = |number: usize| {
            let record = found.get(number).copied().flatten();
            let event = checks.get(number).and_then(|check| self.event(check));
            (record.map(Record::remembered), event)
        };
        engine::decide(checks, read, clock(), &mut pending);
        decisions.clear();
        for (check, one) in checks.iter().zip(&pending) {
            if let Some(change) = one.change() {
                self.apply(OwnKey::of(&check.key), change);
            }
            decisions.push(one.decision());
        }
        self.pending = pending;
        Ok(())
    }

    fn decide_one(
        &mut self,
        check: &Check<'_>,
        clock: impl FnOnce() -> Timestamp,
    ) -> Result<Decision, Infallible> {
        let key = OwnKey::of(&check.key);
        let remembered = self.records.get(&key).map(Record::remembered);
        let one = engine::decide_one(check, remembered, self.event(check), clock());
        if let Some(change) = one.change() {
            self.apply(key, change);
        }
        Ok(one.decision())
    }
}
