//! The records that a rebuild keeps.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use crate::rate::Timestamp;
use crate::sys::files;
use crate::sys::mapping::Mapping;

use super::database::{Database, shard_name};
use super::eviction;
use super::forget::{HABITS_KEPT, USAGE_KEPT, forgettable, is_older};
use super::format::{ALIGN, ENTRY_BYTES, HEADER_BYTES};
use super::record::Record;
use super::shard::{Body, Counts};
use super::sizes::capacity_for;

/// How many bytes to scan before looking for the next hole in the file.
const LOOK_EVERY: usize = 1 << 20;

/// The records found in a shard, and the number that was left out.
#[derive(Debug, Default)]
pub(super) struct LiveRecords {
    /// The records to keep, in the order of their offsets.
    pub(super) records: Vec<Record>,
    /// How many went because they could change no answer any more.
    pub(super) forgotten: u64,
    /// How many went because the bound was reached.
    pub(super) evicted: u64,
    /// How many were damaged.
    pub(super) dropped: u64,
}

impl LiveRecords {
    /// The records that the index points at.
    pub(super) fn indexed(body: &Body, now: Timestamp) -> Self {
        let mut gathered = Self::default();
        for record in body.records() {
            match record.and_then(|record| may_go(&record, &body.map, body.seed, now)) {
                Some(true) => gathered.forgotten += 1,
                Some(false) => gathered.records.extend(record),
                None => gathered.dropped += 1,
            }
        }
        gathered
    }

    /// The latest record of each key that is found anywhere from `start` on. Records of
    /// another shard are left out: if its file was given this shard's name, no check
    /// would look for them here.
    pub(super) fn salvaged(map: &Mapping, start: usize, database: &Database, number: u8) -> Self {
        let hashing = &database.hashing;
        let mut latest: HashMap<_, (u32, Record)> = HashMap::new();
        // A file that was extended by much has holes, which hold no records.
        let file = database.open_file(&shard_name(number)).ok().flatten();
        let (mut offset, mut looked) = (start, start);
        while offset < map.len() {
            if let Some((file, _)) = &file
                && offset >= looked
            {
                let data = files::data_from(file, offset as u64).unwrap_or(offset as u64);
                offset = usize::try_from(data).map_or(map.len(), |at| at.next_multiple_of(ALIGN));
                looked = offset.saturating_add(LOOK_EVERY);
            }
            let record = Record::read(map, offset, hashing.seed);
            offset += record.map_or(ALIGN, |record| record.bytes);
            let Some(record) = record else { continue };
            let Some((key, current)) = record.distinct(map).zip(record.current) else { continue };
            if record.slot(map, hashing).is_none_or(|slot| slot.shard != number) {
                continue;
            }
            let sequence = current.state.sequence;
            match latest.entry(key) {
                Entry::Vacant(entry) => {
                    entry.insert((sequence, record));
                }
                Entry::Occupied(mut entry) => {
                    if sequence.wrapping_sub(entry.get().0).cast_signed() > 0 {
                        entry.insert((sequence, record));
                    }
                }
            }
        }
        let mut records: Vec<_> = latest.into_values().map(|(_, record)| record).collect();
        records.sort_unstable_by_key(|record| record.offset);
        Self { records, ..Self::default() }
    }

    /// Evicts what is more than one shard may hold in a database of `max_bytes`.
    pub(super) fn fit(mut self, map: &Mapping, max_bytes: u64, now: Timestamp) -> Self {
        self.evicted += eviction::fit(&mut self.records, map, max_bytes, now) as u64;
        self
    }

    /// The counts of the new header; `before` are those of the old one.
    pub(super) fn counts(&self, before: Counts) -> Counts {
        Counts {
            rebuilds: before.rebuilds.wrapping_add(1),
            forgotten: before.forgotten.saturating_add(self.forgotten),
            evicted: before.evicted.saturating_add(self.evicted),
            dropped: before.dropped.saturating_add(self.dropped),
            waits: before.waits,
            lost: before.lost,
            decided: before.decided,
        }
    }
}

/// Whether a record can be removed without changing any decision; `None` if it has no
/// sound state.
pub(super) fn may_go(record: &Record, map: &Mapping, seed: u32, now: Timestamp) -> Option<bool> {
    let current = record.current?;
    if record.is_of_habits() {
        return Some(is_older(&current.state, HABITS_KEPT, now));
    }
    if record.is_of_usage() {
        return Some(is_older(&current.state, USAGE_KEPT, now));
    }
    let epoch = record.filter(map, seed).map(|filter| filter.epoch);
    Some(forgettable(&current.state, record.algorithm(), epoch, now))
}

/// Whether a rebuild would free a quarter of the shard's bytes, or remove a quarter of
/// its records.
pub(super) fn is_worth_it(body: &Body, now: Timestamp) -> bool {
    let end = body.heap_end().unwrap_or(body.heap_start);
    let (mut records, mut going, mut needed) = (0_usize, 0_usize, 0_usize);
    for record in body.records() {
        records += 1;
        match record.filter(|r| may_go(r, &body.map, body.seed, now) == Some(false)) {
            Some(record) => needed += record.bytes,
            None => going += 1,
        }
    }
    let index = capacity_for(records - going) * ENTRY_BYTES;
    let after = HEADER_BYTES + index + needed;
    going > 0 && going >= records / 4 || after <= end / 4 * 3
}
