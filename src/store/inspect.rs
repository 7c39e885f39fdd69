//! Looking at a store and changing it by hand: what the program's commands call.

use std::collections::HashSet;
use std::error::Error;

use crate::engine::{
    self, AlgorithmKind, Change, Filter, FilterChange, Kind, RecordKey, Remembered, State,
    UniqueEvent,
};
use crate::identity::fold::Folding;
use crate::rate::bloom::{self, Event};
use crate::rate::share::Buckets;
use crate::rate::usage::Usage;
use crate::rate::{Average, Timestamp};

use super::overrides::Override;

/// Why a store could not be used. It is the store's own error, of any type, so
/// that a command works with whatever store it is given.
pub type InspectError = Box<dyn Error + Send + Sync>;

/// What is called with a record that lies in a store.
pub type Visit<'v> = &'v mut dyn FnMut(RecordKey<'_>, Remembered<'_>);

/// Which records somebody wants to see.
pub struct Wanted<'w> {
    /// Whether it is this one.
    pub selects: &'w mut dyn FnMut(&RecordKey<'_>) -> bool,
    /// The identities that a record must have to be selected, if identities are folded so; `None` if
    /// that is not known.
    pub identities: Option<(&'w HashSet<Vec<u8>>, &'w Folding)>,
}

/// A store that can be inspected, and changed by hand while checks run.
pub trait Inspect {
    /// Calls `visit` with every record of a rate, in no particular order, and returns what
    /// had to be left out.
    ///
    /// # Errors
    /// The store cannot be used; not all records have been visited.
    fn for_each(&mut self, visit: &mut dyn FnMut(Entry)) -> Result<Unread, InspectError>;

    /// Calls `visit` with every record of a rate as it lies in the store, in no particular order,
    /// and where a store keeps habits, with the records of these as well; returns what had to be
    /// left out. Nothing is copied, and checks may have to wait for `visit`, which must be quick.
    ///
    /// # Errors
    /// The store cannot be used; not all records have been visited.
    fn survey(&mut self, visit: Visit<'_>) -> Result<Unread, InspectError> {
        self.for_each(&mut |entry| visit(entry.record_key(), entry.remembered()))
    }

    /// As [`Inspect::for_each`], of these identities alone.
    ///
    /// # Errors
    /// The store cannot be used; not all records have been visited.
    fn for_each_of(
        &mut self,
        identities: &HashSet<Vec<u8>>,
        visit: &mut dyn FnMut(Entry),
    ) -> Result<Unread, InspectError> {
        self.for_each(&mut |entry| {
            if identities.contains(entry.record_key().identity()) {
                visit(entry);
            }
        })
    }

    /// Calls `visit` with the identity of each account and what it has sent until the second `at`,
    /// which is in this `day` since 1970 in the time zone of the policies. Stores without usage
    /// visit nothing.
    ///
    /// # Errors
    /// The store cannot be used; not all have been visited.
    fn for_each_usage(
        &mut self,
        _at: i64,
        _day: i64,
        _visit: &mut dyn FnMut(&[u8], &Usage),
    ) -> Result<Unread, InspectError> {
        Ok(Unread::default())
    }

    /// What the account of this identity has sent, if that is known.
    ///
    /// # Errors
    /// The store cannot be used.
    fn usage(
        &mut self,
        _identity: &[u8],
        _at: i64,
        _day: i64,
    ) -> Result<Option<Usage>, InspectError> {
        Ok(None)
    }

    /// As [`Inspect::for_each`], of the records whose keys `wanted` selects. A store may find them by
    /// the names that `wanted` may select, where no other way is as quick.
    ///
    /// # Errors
    /// The store cannot be used; not all records have been visited.
    fn for_each_wanted(
        &mut self,
        wanted: &mut Wanted<'_>,
        visit: &mut dyn FnMut(Entry),
    ) -> Result<Unread, InspectError> {
        self.survey(&mut |key, remembered| {
            if key.kind != Kind::Habits && (wanted.selects)(&key) {
                Entry::of(&key, remembered).into_iter().for_each(&mut *visit);
            }
        })
    }

    /// Calls `visit` with the records of these keys, in their order, but for those that are not there.
    ///
    /// # Errors
    /// The store could not be used; not all records have been visited.
    fn for_each_of_keys(
        &mut self,
        keys: &[OwnedKey],
        visit: &mut dyn FnMut(Entry) -> Result<(), InspectError>,
    ) -> Result<(), InspectError> {
        for key in keys {
            self.get(key.key())?.map(&mut *visit).transpose()?;
        }
        Ok(())
    }

    /// Calls `visit` with the key of each account's habits, in no particular order; with none
    /// where a store keeps none.
    ///
    /// # Errors
    /// The store cannot be used; not all keys have been visited.
    fn for_each_habits_key(
        &mut self,
        visit: &mut dyn FnMut(OwnedKey),
    ) -> Result<Unread, InspectError> {
        let _ = visit;
        Ok(Unread::default())
    }

    /// The record of `key`; `None` if there is none, or it has no rate.
    ///
    /// # Errors
    /// The store could not be used.
    fn get(&mut self, key: RecordKey<'_>) -> Result<Option<Entry>, InspectError>;

    /// Whether the filter of `key` contains this unique event.
    ///
    /// # Errors
    /// The store could not be used.
    fn has_event(&mut self, key: RecordKey<'_>, event: &[u8]) -> Result<bool, InspectError>;

    /// Deletes the record of `key`, and returns it.
    ///
    /// # Errors
    /// The store could not be used; the record is unchanged.
    fn remove(&mut self, key: RecordKey<'_>) -> Result<Option<Entry>, InspectError>;

    /// Makes this edit in one step. `None` if there is no such record, and the
    /// edit does not create one.
    ///
    /// # Errors
    /// The store could not be used; the record is unchanged.
    fn set(&mut self, key: RecordKey<'_>, edit: &Edit<'_>) -> Result<Option<Edited>, InspectError>;

    /// Stores `entry`, unless the stored record is as new. Its filter is only
    /// valid if it comes from a store with the same [`Inspect::filter_key`].
    ///
    /// # Errors
    /// The store could not be used; the record is unchanged.
    fn restore(&mut self, entry: &Entry) -> Result<Restored, InspectError>;

    /// The size of the store.
    ///
    /// # Errors
    /// The store could not be used.
    fn statistics(&mut self) -> Result<Statistics, InspectError>;

    /// The secret that the bits of all filters depend on.
    fn filter_key(&self) -> [u8; 16];

    /// Where the store is, for messages.
    fn location(&self) -> String;

    /// Adds a line to the log of changes by hand.
    ///
    /// # Errors
    /// It could not be written.
    fn log_change(&mut self, line: &str) -> Result<(), InspectError>;

    /// The overrides, also those that have ended; none where a store has none.
    ///
    /// # Errors
    /// They could not be read, or are damaged.
    fn overrides(&mut self) -> Result<Vec<Override>, InspectError> {
        Ok(Vec::new())
    }

    /// Changes the overrides in one step. `change` may be called again with the list as it is
    /// then, if others change it at the same time.
    ///
    /// # Errors
    /// They could not be read or written, or the store has none; they are unchanged.
    fn change_overrides(
        &mut self,
        change: &mut dyn FnMut(&mut Vec<Override>),
    ) -> Result<(), InspectError> {
        let _ = change;
        Err("this store has no overrides".into())
    }

    /// Takes what the administrator should know: damage that was found, and what
    /// was done about it, in one sentence each.
    fn take_incidents(&mut self) -> Vec<String>;
}

/// The size of a store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Records with a rate.
    pub records: u64,
    /// Bytes of disk or memory, as far as they are known.
    pub bytes: u64,
}

/// The parts of a store that [`Inspect::for_each`] could not read.
#[derive(Debug, Default)]
pub struct Unread {
    /// Damaged records.
    pub damaged: u64,
    /// The reason for each part (of the spool database: shard) that could not be
    /// read.
    pub parts: Vec<InspectError>,
}

/// The result of [`Inspect::restore`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Restored {
    /// The record was created.
    Added,
    /// The stored record was older, and has been replaced.
    Replaced,
    /// The stored record is as old, or newer, and has been kept.
    Kept,
    /// It is of one server only, and the store is shared.
    NotShared,
}

/// A [`RecordKey`] that owns its name.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OwnedKey {
    /// See [`RecordKey::name`].
    pub name: Vec<u8>,
    /// See [`RecordKey::identity_start`].
    pub identity_start: usize,
    /// See [`RecordKey::kind`].
    pub kind: Kind,
    /// See [`RecordKey::algorithm`].
    pub algorithm: AlgorithmKind,
}

impl OwnedKey {
    /// The key.
    #[must_use]
    pub fn key(&self) -> RecordKey<'_> {
        let Self { name, identity_start, kind, algorithm } = self;
        let (identity_start, kind, algorithm) = (*identity_start, *kind, *algorithm);
        RecordKey { name, identity_start, kind, algorithm }
    }
}

impl From<RecordKey<'_>> for OwnedKey {
    fn from(key: RecordKey<'_>) -> Self {
        let RecordKey { name, identity_start, kind, algorithm } = key;
        Self { name: name.to_vec(), identity_start, kind, algorithm }
    }
}

/// A record.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// The record's name; that of a spec is `p/mode/[unique/]key`.
    pub key: Vec<u8>,
    /// Where the identity begins in the name.
    pub identity_start: usize,
    /// What the record belongs to.
    pub kind: Kind,
    /// How it is counted.
    pub algorithm: AlgorithmKind,
    /// The moving average, level or count, as it was written last.
    pub average: Average,
    /// The limit of the check that wrote the record last; of a bucket, the burst.
    pub limit: f64,
    /// See [`State::over_since`].
    pub over_since: u32,
    /// The period of that check in seconds; others: see [`State::period`].
    pub period: f64,
    /// See [`State::start`].
    pub start: i64,
    /// See [`State::last_over`].
    pub last_over: u32,
    /// See [`State::crossings`].
    pub crossings: u32,
    /// See [`State::apart`].
    pub apart: f32,
    /// The record's Bloom filter, if it has one.
    pub filter: Option<FilterEntry>,
}

/// A record's Bloom filter.
#[derive(Clone, Debug, PartialEq)]
pub struct FilterEntry {
    /// The second (since 1970) in which it was started.
    pub epoch: i64,
    /// Its bits. Which of them stand for an event depends on
    /// [`Inspect::filter_key`].
    pub bits: Vec<u8>,
}

impl FilterEntry {
    /// The filter of a record after this change to it; `before` is the one it had.
    #[must_use]
    pub fn changed(before: Option<Self>, change: &FilterChange) -> Option<Self> {
        match *change {
            FilterChange::Keep => before,
            FilterChange::Insert(event) => before.map(|mut filter| {
                bloom::insert(&mut filter.bits, event);
                filter
            }),
            FilterChange::Book(booked) => {
                let bits = before.map_or_else(Vec::new, |filter| filter.bits);
                Some(Self { epoch: 0, bits: Buckets(&bits).with(Some(booked)).to_vec() })
            }
            FilterChange::Renew { bytes, epoch, event } => {
                let mut bits = vec![0; bytes.min(bloom::MAX_BYTES)];
                bloom::insert(&mut bits, event);
                Some(Self { epoch, bits })
            }
        }
    }
}

impl Entry {
    /// The remembered state of `key` as an entry; `None` if it has no rate.
    #[must_use]
    pub fn of(key: &RecordKey<'_>, remembered: Remembered<'_>) -> Option<Self> {
        let Remembered { state, filter } = remembered;
        let filter =
            filter.map(|Filter { epoch, bits }| FilterEntry { epoch, bits: bits.to_vec() });
        Some(Self {
            key: key.name.to_vec(),
            identity_start: key.identity_start,
            kind: key.kind,
            algorithm: key.algorithm,
            average: state.average?,
            limit: state.limit,
            over_since: state.over_since,
            period: state.period,
            start: state.start,
            last_over: state.last_over,
            crossings: state.crossings,
            apart: state.apart,
            filter,
        })
    }

    /// Its contents.
    #[must_use]
    pub fn remembered(&self) -> Remembered<'_> {
        let filter = self.filter.as_ref();
        let filter = filter.map(|filter| Filter { epoch: filter.epoch, bits: &filter.bits });
        Remembered { state: self.state(), filter }
    }

    /// The result of restoring this entry where `known` is stored.
    pub(crate) fn restored_over(&self, known: Option<Average>) -> Restored {
        match known {
            Some(known) if known.at >= self.average.at => Restored::Kept,
            Some(_) => Restored::Replaced,
            None => Restored::Added,
        }
    }

    /// The filter to restore; `None` if there is none, or it is of a size that no
    /// filter has.
    pub(crate) fn filter_to_restore(&self) -> Option<&FilterEntry> {
        let valid = |filter: &&FilterEntry| (1..=bloom::MAX_BYTES).contains(&filter.bits.len());
        self.filter.as_ref().filter(valid)
    }

    /// The record's key.
    #[must_use]
    pub fn record_key(&self) -> RecordKey<'_> {
        let Self { key, identity_start, kind, algorithm, .. } = self;
        let (identity_start, kind, algorithm) = (*identity_start, *kind, *algorithm);
        RecordKey { name: key, identity_start, kind, algorithm }
    }

    /// Everything but the filter.
    #[must_use]
    pub fn state(&self) -> State {
        State {
            start: self.start,
            over_since: self.over_since,
            last_over: self.last_over,
            crossings: self.crossings,
            apart: self.apart,
            ..State::new(self.average, self.limit, self.period)
        }
    }
}

/// A change of a record by hand.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Edit<'a> {
    /// The new rate, or level of a bucket. It is dated now, unless `at` is given.
    pub rate: Option<f64>,
    /// The new time of the rate.
    pub at: Option<Timestamp>,
    /// The new limit; of a bucket, the burst. What leaks out in a second stays.
    pub limit: Option<f64>,
    /// A unique event to mark as counted.
    pub event: Option<&'a [u8]>,
    /// The period of a new record in seconds.
    pub period: f64,
    /// Whether to create the record if there is none.
    pub create: bool,
    /// The time of the edit.
    pub now: Timestamp,
}

/// The result of an [`Edit`].
#[derive(Clone, Debug, PartialEq)]
pub struct Edited {
    /// The record before, without its filter; `None` if it is new.
    pub before: Option<Entry>,
    /// The record after, without its filter.
    pub after: Entry,
    /// Whether the event was counted before, if there is one.
    pub seen: Option<bool>,
}

impl Edit<'_> {
    /// The result, and the change to make to the record of `key`; `event` is the
    /// hash of the event, if there is one. Nothing if there is no record and
    /// none is to be created. This is what a local store runs under its lock.
    #[must_use]
    pub fn apply(
        &self,
        key: &RecordKey<'_>,
        remembered: Option<Remembered<'_>>,
        event: Option<Event>,
    ) -> Option<(Edited, Change)> {
        if remembered.is_none() && !self.create {
            return None;
        }
        let before = remembered.map(|remembered| remembered.state);
        let old = before.and_then(|state| state.average);
        let old = old.unwrap_or(Average { at: self.now, rate: 0.0 });
        let average = Average {
            rate: self.rate.unwrap_or(old.rate),
            at: self.at.unwrap_or(if self.rate.is_some() { self.now } else { old.at }),
        };
        let limit = self.limit.or(before.map(|state| state.limit)).unwrap_or(f64::INFINITY);
        let mut period = before.map_or(self.period, |state| state.period);
        if let (AlgorithmKind::Bucket, Some(before)) = (key.algorithm, before)
            && limit != before.limit
            && before.limit > 0.0
        {
            period = before.period / before.limit * limit;
        }
        let over = key.algorithm.over(average.rate, limit, 0.0);
        let over_since = engine::over_since(over, before, self.now);
        let start = before.filter(|_| key.algorithm == AlgorithmKind::Calendar);
        let start = start.map(|state| state.start);
        let unique = event.map(|event| {
            let filter = remembered.and_then(|remembered| remembered.filter);
            // The filter of a record without a period does not expire.
            let period = if period > 0.0 { period } else { f64::INFINITY };
            UniqueEvent::find(filter, event, limit, period, start, self.now)
        });
        let seen = unique.as_ref().map(|unique| unique.seen);
        let filter = unique.map_or(FilterChange::Keep, |unique| unique.change);
        let kept = before.unwrap_or(State::new(average, limit, period));
        let state = State { average: Some(average), limit, period, over_since, ..kept };
        let plain = |state| Entry::of(key, Remembered { state, filter: None });
        let edited = Edited { before: before.and_then(plain), after: plain(state)?, seen };
        Some((edited, Change { state, filter }))
    }
}
