//! Changes a record, or adds one.

use std::fs::File;
use std::io::{self, ErrorKind};

use crate::engine::{Change, FilterChange, RecordKey};
use crate::rate::bloom::MAX_BYTES;
use crate::rate::share::{self, Buckets};
use crate::sys::files;
use crate::sys::mapping::Mapping;
use crate::sys::secure_dir::DirError;

use super::SpoolError;
use super::database::{Database, shard_name};
use super::format::{BUSY, DEAD, DROPPED, FLAGS, HEAP_END, LIVE, SHARD_BYTES_MAX};
use super::hashing::KeySlot;
use super::index::Lookup;
use super::record::{Fill, Record, record_bytes};
use super::shard::Body;
use super::sizes::PAGE;

impl Body {
    /// Applies the change to the record that `lookup` has found, or to a new one. The
    /// order of the writes is that of `FORMAT.md`.
    #[inline]
    pub(super) fn apply(
        &mut self,
        file: &File,
        key_slot: KeySlot,
        key: &RecordKey<'_>,
        lookup: &Lookup,
        change: &Change,
    ) -> Result<(), AddFailure> {
        match (lookup.record, change.filter) {
            (Some(record), FilterChange::Renew { bytes, epoch, event })
                if record.filter_bytes == Some(bytes) =>
            {
                let (map, seed) = (&mut self.map, self.seed);
                let mut renew = || {
                    record.void_filter(map)?;
                    record.clear_filter(map)?;
                    record.write_state(map, change, 0)?;
                    record.begin_filter(map, seed, epoch, Fill::Event(event))
                };
                renew().ok_or_else(AddFailure::lost)
            }
            (_, FilterChange::Renew { bytes, epoch, event }) => {
                let bytes = bytes.min(MAX_BYTES);
                let filter = NewFilter { bytes, epoch, fill: Fill::Event(event) };
                self.append(file, key_slot, key, lookup, change, Some(filter))
            }
            (Some(record), FilterChange::Book(booked))
                if record.filter_bytes == Some(share::BYTES) =>
            {
                let (map, seed) = (&mut self.map, self.seed);
                let is_known = record.current.is_some() && record.filter(map, seed).is_some();
                let mut book = || {
                    if is_known {
                        record.write_state(map, change, 0)?;
                        return record.book(map, booked);
                    }
                    record.void_filter(map)?;
                    record.write_state(map, change, 0)?;
                    let all = Buckets(&[]).with(Some(booked));
                    record.begin_filter(map, seed, 0, Fill::Bits(&all))
                };
                book().ok_or_else(AddFailure::lost)
            }
            (_, FilterChange::Book(booked)) => {
                let all = Buckets(&[]).with(Some(booked));
                let filter = NewFilter { bytes: share::BYTES, epoch: 0, fill: Fill::Bits(&all) };
                self.append(file, key_slot, key, lookup, change, Some(filter))
            }
            (None, _) => self.append(file, key_slot, key, lookup, change, None),
            (Some(record), filter) => {
                if record.current.is_none() {
                    // Both states were damaged, so the filter is not trusted.
                    let _ = record.void_filter(&mut self.map);
                    let _ = self.count(DROPPED);
                }
                record.write_state(&mut self.map, change, 0).ok_or_else(AddFailure::lost)?;
                if let FilterChange::Insert(event) = filter {
                    record.insert(&mut self.map, self.seed, event).ok_or_else(AddFailure::lost)?;
                }
                Ok(())
            }
        }
    }

    /// Adds a record, which is complete before the index points at it.
    pub(super) fn append(
        &mut self,
        file: &File,
        key_slot: KeySlot,
        key: &RecordKey<'_>,
        lookup: &Lookup,
        change: &Change,
        filter: Option<NewFilter<'_>>,
    ) -> Result<(), AddFailure> {
        let filter_bytes = filter.map(|filter| filter.bytes);
        let (start, slot) = self.heap_end().zip(lookup.slot).ok_or(AddFailure::Full)?;
        let bytes = record_bytes(key.name.len(), filter_bytes);
        let end = start.checked_add(bytes).ok_or(AddFailure::Full)?;
        if end > SHARD_BYTES_MAX {
            return Err(AddFailure::Full);
        }
        if end > self.map.len() {
            self.grow(file, end).map_err(AddFailure::Io)?;
        }
        let base = lookup.record.as_ref().map_or(0, Record::sequence);
        let (live, dead) = (self.sealed(LIVE).unwrap_or(0), self.sealed(DEAD).unwrap_or(0));
        let mut add = || {
            self.map.set_u32(FLAGS, self.flags() | BUSY)?;
            let record = Record::write_new(&mut self.map, start, self.seed, key, filter_bytes)?;
            record.write_state(&mut self.map, change, base)?;
            if let Some(NewFilter { epoch, fill, .. }) = filter {
                record.begin_filter(&mut self.map, self.seed, epoch, fill)?;
            }
            self.set_sealed(HEAP_END, end as u64)?;
            self.set_entry(slot, key_slot.tag, start)?;
            match lookup.record {
                Some(old) => self.set_sealed(DEAD, dead + old.bytes as u64)?,
                None => self.set_sealed(LIVE, live + 1)?,
            }
            if lookup.slot_damaged {
                // The counts of the damaged record that it replaces are not known.
                self.count(DROPPED)
            } else {
                self.map.set_u32(FLAGS, self.flags() & !BUSY)
            }
        };
        add().ok_or_else(AddFailure::lost)
    }

    /// Makes room for `records` new records of `bytes` bytes together, so that
    /// adding them cannot fail halfway.
    pub(super) fn reserve(
        &mut self,
        file: &File,
        records: usize,
        bytes: usize,
    ) -> Result<(), AddFailure> {
        let live = self.sealed(LIVE).and_then(|live| usize::try_from(live).ok()).unwrap_or(0);
        let end = self.heap_end().and_then(|end| end.checked_add(bytes)).ok_or(AddFailure::Full)?;
        if end > SHARD_BYTES_MAX || live.saturating_add(records) > self.capacity {
            return Err(AddFailure::Full);
        }
        if end > self.map.len() {
            self.grow(file, end).map_err(AddFailure::Io)?;
        }
        Ok(())
    }

    /// The size in bytes of the new record that a change would add, if any.
    pub(super) fn added_by(key: &[u8], lookup: &Lookup, change: &Change) -> Option<usize> {
        let renewed = match change.filter {
            FilterChange::Renew { bytes, .. } => Some(bytes.min(MAX_BYTES)),
            FilterChange::Book(_) => Some(share::BYTES),
            FilterChange::Keep | FilterChange::Insert(_) => None,
        };
        match (lookup.record, renewed) {
            (Some(_), None) => None,
            (Some(record), Some(_)) if record.filter_bytes == renewed => None,
            _ => Some(record_bytes(key.len(), renewed)),
        }
    }

    /// Extends the file to at least `end` bytes, allocates the disk, and maps it again.
    fn grow(&mut self, file: &File, end: usize) -> io::Result<()> {
        // Another process may have extended it already.
        let size = files::info(file)?.size;
        if size < end as u64 {
            let step = (self.map.len() / 8).max(PAGE);
            let ahead = (self.map.len() + step).min(self.share);
            let wanted = end.max(ahead).next_multiple_of(PAGE) as u64;
            let least = end.next_multiple_of(PAGE) as u64;
            match files::reserve(file, size, wanted - size) {
                // The disk, a quota or a limit may allow less.
                Err(_) if least < wanted => {
                    files::reserve(file, size, least - size)?;
                }
                result => result?,
            }
        }
        let map = Mapping::of(file, true)?;
        if map.len() < end {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        self.map = map;
        Ok(())
    }
}

/// The filter of a new record.
#[derive(Clone, Copy, Debug)]
pub(super) struct NewFilter<'a> {
    pub(super) bytes: usize,
    /// The second in which it was started.
    pub(super) epoch: i64,
    pub(super) fill: Fill<'a>,
}

/// Why a record could not be added.
#[derive(Debug)]
pub(super) enum AddFailure {
    Io(io::Error),
    /// No index entry is free, or the shard has its largest size.
    Full,
}

impl AddFailure {
    /// The mapping is shorter than was found before.
    pub(super) fn lost() -> Self {
        Self::Io(ErrorKind::UnexpectedEof.into())
    }

    /// The error, for the shard's file.
    pub(super) fn into_error(self, database: &Database, number: u8) -> SpoolError {
        let path = database.path_of(&shard_name(number));
        match self {
            Self::Io(source) => {
                SpoolError::Directory(DirError::Io { action: "grow", path, source })
            }
            Self::Full => SpoolError::Full { path },
        }
    }
}
