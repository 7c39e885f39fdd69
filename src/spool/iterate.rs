//! Reads all records of the database.

use std::collections::{BTreeSet, HashSet};

use crate::engine::{self, RecordKey};
use crate::store::{Entry, OwnedKey, Visit};
use crate::sys::files;
use crate::sys::lock::LockKind;
use crate::sys::mapping::Mapping;

use super::database::{ATTEMPTS, shard_name};
use super::format::SHARDS;
use super::record::{Record, record_bytes};
use super::shard::{Body, Shard};
use super::{Spool, SpoolError};

/// Bytes that the record of an entry takes in the database, the index not
/// included.
#[must_use]
pub fn entry_bytes(entry: &Entry) -> usize {
    record_bytes(entry.key.len(), entry.filter.as_ref().map(|filter| filter.bits.len()))
}

/// What [`Spool::for_each`] could not read.
#[derive(Debug, Default)]
pub struct LeftOut {
    /// Damaged records.
    pub damaged: u64,
    /// For each shard that could not be read, why.
    pub shards: Vec<SpoolError>,
}

impl Spool {
    /// Calls `visit` for every record of a rate, in no particular order; for habits, see
    /// [`Spool::for_each_habits`].
    ///
    /// A shard's records are copied while it is locked, and visited afterwards, so that a
    /// slow `visit` delays no check. Returns what had to be left out: a shard that cannot
    /// be read does not prevent the others from being visited.
    ///
    /// # Errors
    /// The database's directory cannot be used; nothing has been visited.
    pub fn for_each(&mut self, mut visit: impl FnMut(Entry)) -> Result<LeftOut, SpoolError> {
        let mut damaged = 0;
        let shards = self.each_shard(entries, |(entries, count)| {
            entries.into_iter().for_each(&mut visit);
            damaged += count;
        })?;
        self.damaged += damaged;
        Ok(LeftOut { damaged, shards })
    }

    /// As [`Spool::for_each`], of these identities alone: no shards are read but theirs.
    ///
    /// # Errors
    /// The database's directory cannot be used; nothing has been visited.
    pub fn for_each_of(
        &mut self,
        identities: &HashSet<Vec<u8>>,
        mut visit: impl FnMut(Entry),
    ) -> Result<LeftOut, SpoolError> {
        self.after_fork()?;
        let shard = |identity: &Vec<u8>| self.database.hashing.place(identity).shard;
        let shards: BTreeSet<u8> = identities.iter().map(shard).collect();
        let wanted = |identity: &[u8]| identities.contains(identity);
        let mut left_out = LeftOut::default();
        for number in shards {
            match self.read_shard(number, |body| body.map(|body| entries_of(body, wanted))) {
                Ok(found) => found.into_iter().flatten().for_each(&mut visit),
                Err(error) => left_out.shards.push(error),
            }
        }
        Ok(left_out)
    }

    /// Calls `visit` with every record of a rate or of habits as it lies in the database, in no
    /// particular order. Its shard is locked meanwhile: a slow `visit` delays checks.
    ///
    /// # Errors
    /// The database's directory cannot be used; nothing has been visited.
    pub fn survey(&mut self, visit: Visit<'_>) -> Result<LeftOut, SpoolError> {
        self.after_fork()?;
        let mut left_out = LeftOut::default();
        for number in 0..=u8::MAX {
            match self.read_shard(number, |body| body.map_or(0, |body| survey(body, visit))) {
                Ok(damaged) => left_out.damaged += damaged,
                Err(error) => left_out.shards.push(error),
            }
        }
        self.damaged += left_out.damaged;
        Ok(left_out)
    }

    /// The keys of all records whose name `is_wanted`, also of those that have no rate and
    /// only remember a crossing; and why shards could not be read.
    ///
    /// # Errors
    /// The database's directory cannot be used.
    pub fn keys_named(
        &mut self,
        is_wanted: &dyn Fn(&[u8]) -> bool,
    ) -> Result<(Vec<OwnedKey>, Vec<SpoolError>), SpoolError> {
        let mut keys = Vec::new();
        let named = |body: &Body| -> Vec<OwnedKey> {
            let named = body.records().flatten().filter_map(|record| {
                let key = record.record_key(&body.map)?;
                is_wanted(key.name).then(|| OwnedKey::from(key))
            });
            named.collect()
        };
        let unread = self.each_shard(named, |named| keys.extend(named))?;
        Ok((keys, unread))
    }

    /// Everything that is remembered under `key`; `None` where that is no rate.
    ///
    /// # Errors
    /// The database could not be used.
    pub fn get<'k>(&mut self, key: impl Into<RecordKey<'k>>) -> Result<Option<Entry>, SpoolError> {
        let key = key.into();
        self.peek(key, None, |remembered, _| remembered.and_then(|r| Entry::of(&key, r)))
    }

    /// Bytes of disk that all shards take.
    #[must_use]
    pub fn disk_bytes(&self) -> u64 {
        (0..=u8::MAX).map(|number| self.disk(number)).sum()
    }

    /// Bytes of disk that a shard takes; 0 where it is not there.
    pub(super) fn disk(&self, number: u8) -> u64 {
        files::info_at(self.database.dir.directory(), &shard_name(number))
            .map_or(0, |facts| facts.disk)
    }

    /// Calls `read` with each shard that exists, locked for reading, and `take` with what it
    /// returns when the shard is unlocked; returns why shards could not be read.
    pub(super) fn each_shard<T>(
        &mut self,
        read: impl Fn(&Body) -> T,
        mut take: impl FnMut(T),
    ) -> Result<Vec<SpoolError>, SpoolError> {
        self.after_fork()?;
        let mut unread = Vec::new();
        for number in 0..=u8::MAX {
            match self.read_shard(number, |body| body.map(&read)) {
                Ok(found) => found.into_iter().for_each(&mut take),
                Err(error) => unread.push(error),
            }
        }
        Ok(unread)
    }

    /// Runs `read` on a shard, locked for reading; on `None` where it does not
    /// exist.
    pub(super) fn read_shard<T>(
        &mut self,
        number: u8,
        read: impl FnOnce(Option<&Body>) -> T,
    ) -> Result<T, SpoolError> {
        self.after_fork()?;
        let name = shard_name(number);
        for _ in 0..ATTEMPTS {
            if self.shards.get(usize::from(number)).is_none_or(Option::is_none)
                && files::info_at(self.database.dir.directory(), &name)
                    .is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound)
            {
                return Ok(read(None));
            }
            let Some(mut shard) = self.take_shard(number)? else { return Ok(read(None)) };
            let Shard { file, body } = &mut *shard;
            let guard =
                self.database.lock(file, LockKind::Shared, || self.database.path_of(&name))?;
            let failed = |source| self.shard_error("examine", number, source);
            if !body.still_named(&self.database).map_err(failed)? {
                continue;
            }
            if body.heap_end().is_none_or(|end| end > body.map.len()) {
                body.map = Mapping::of(file, self.database.writable).map_err(failed)?;
            }
            let result = read(Some(body));
            drop(guard);
            self.put_shard(shard);
            return Ok(result);
        }
        Err(self.unsettled(number))
    }
}

impl Body {
    /// The offsets in all index entries that are not empty.
    pub(super) fn occupied(&self) -> impl Iterator<Item = usize> {
        (0..self.capacity).filter_map(|slot| self.entry(slot)).map(|(_, offset)| offset)
    }

    /// The records that the index points at, in the order of their offsets;
    /// `None` for each entry that points at none.
    ///
    /// No two of them overlap: of those that do, the first is one, so that all
    /// together are never larger than the file is, whatever an index says.
    pub(super) fn records(&self) -> impl Iterator<Item = Option<Record>> {
        let mut offsets: Vec<_> = self.occupied().collect();
        offsets.sort_unstable();
        let mut end = 0;
        offsets.into_iter().map(move |offset| {
            if offset < end {
                return None;
            }
            let record = Record::read(&self.map, offset, self.seed)?;
            end = offset + record.bytes;
            Some(record)
        })
    }
}

/// Calls `visit` with all records of a shard that remember a rate or habits, and returns how many
/// are damaged.
fn survey(body: &Body, visit: Visit<'_>) -> u64 {
    let mut damaged = 0;
    for record in body.records() {
        let Some(record) = record.filter(|record| record.current.is_some()) else {
            damaged += 1;
            continue;
        };
        if record.is_of_usage() {
            continue;
        }
        let remembered = record.remembered(&body.map, body.seed);
        let remembered = remembered.filter(|remembered| remembered.state.average.is_some());
        if let Some((remembered, key)) = remembered.zip(record.record_key(&body.map)) {
            visit(key, remembered);
        }
    }
    damaged
}

/// The rates of a shard, and how many of its records are damaged.
fn entries(body: &Body) -> (Vec<Entry>, u64) {
    let mut entries = Vec::new();
    let damaged = survey(body, &mut |key, remembered| {
        if key.kind != engine::Kind::Habits {
            entries.extend(Entry::of(&key, remembered));
        }
    });
    (entries, damaged)
}

/// The rates of a shard whose identities are `wanted`. No more is read of other records than their
/// keys.
fn entries_of(body: &Body, wanted: impl Fn(&[u8]) -> bool) -> Vec<Entry> {
    let is_wanted = |offset: &usize| Record::identity_at(&body.map, *offset).is_some_and(&wanted);
    let mut offsets: Vec<usize> = body.occupied().filter(is_wanted).collect();
    offsets.sort_unstable();
    offsets.dedup();
    let records = offsets.into_iter().filter_map(|at| Record::read(&body.map, at, body.seed));
    let records = records.filter(|record| !record.is_of_habits() && !record.is_of_usage());
    let read = records.filter_map(|record| {
        Entry::of(&record.record_key(&body.map)?, record.remembered(&body.map, body.seed)?)
    });
    read.collect()
}

const _: () = assert!(SHARDS == u8::MAX as usize + 1);
