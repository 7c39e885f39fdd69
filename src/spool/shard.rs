//! One shard: a locked, mapped file with an index and a heap of records.

use std::fs::File;
use std::io::{self, ErrorKind};

use crate::engine::{Check, Update};
use crate::rate::Timestamp;
use crate::sys::clock;
use crate::sys::files;
use crate::sys::mapping::Mapping;

use super::database::{Database, shard_name};
use super::format::{
    ALIGN, BUSY, DEAD, DECIDED, DECIDED_BITS, DROPPED, ENTRY_BYTES, EVICTED, FLAGS, FORGOTTEN,
    HEADER_BYTES, HEADER_CRC, HEAP_END, Header, HeaderFault, LARGEST, LIVE, LOST, SHARD_BYTES_MAX,
    SUPERSEDED, TIDIED, WAITS, seal, unseal,
};
use super::record::RECORD_BYTES_MAX;
use super::sizes::shard_share;

/// How often a shard is searched for records that can be forgotten, in seconds:
/// six hours.
pub(super) const TIDY_EVERY: u64 = 6 * 60 * 60;

/// An open shard. The file and its contents are separate fields, so that the lock on
/// the file can be held while the contents are changed.
#[derive(Debug)]
pub(super) struct Shard {
    pub(super) file: File,
    pub(super) body: Body,
}

/// The contents of a shard's file.
#[derive(Debug)]
pub(super) struct Body {
    pub(super) number: u8,
    /// Which file it is: device and inode.
    identity: (u64, u64),
    /// The coarse second in which the shard's name was last seen to be this file.
    pub(super) checked: i64,
    /// The coarse second in which a rebuild last failed.
    pub(super) rebuild_failed: i64,
    /// It has not been tidied for [`TIDY_EVERY`].
    pub(super) tidy_due: bool,
    /// The most bytes that it should use.
    pub(super) share: usize,
    pub(super) map: Mapping,
    pub(super) seed: u32,
    pub(super) capacity: usize,
    pub(super) heap_start: usize,
    pub(super) generation: u64,
}

/// The counts in a shard's header, which a rebuild copies to the next file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    /// How often this shard has been rebuilt.
    pub(super) rebuilds: u64,
    /// Records removed because no decision depended on them.
    pub(super) forgotten: u64,
    /// Records removed because the size limit was reached.
    pub(super) evicted: u64,
    /// Records that were damaged.
    pub(super) dropped: u64,
    /// Checks that had to wait for the lock.
    pub(super) waits: u64,
    /// Crossings and refusals that could not be written.
    pub(super) lost: u64,
    /// A day and how many decisions there were on it: see [`Body::decided_on`].
    pub(super) decided: u64,
}

/// The most decisions of a day that are counted.
const DECIDED_MAX: u64 = (1 << DECIDED_BITS) - 1;

/// The day of a time, in UTC, as far as it is kept.
fn day(at: Timestamp) -> u64 {
    at.seconds.div_euclid(86_400).cast_unsigned() & 0xFFFF
}

/// The state of a locked shard.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Condition {
    /// It can be used.
    Ready,
    /// Another file has its name.
    Stale,
    /// The heap's size in its header is damaged: the shard must be rebuilt.
    Damaged(&'static str),
}

/// Why a shard's file cannot be used as it is.
#[derive(Debug)]
pub(super) enum OpenFault {
    Io(io::Error),
    Header(HeaderFault),
}

impl Body {
    /// Maps a shard's file and checks its header.
    pub(super) fn open(
        database: &Database,
        number: u8,
        file: &File,
        facts: &files::FileInfo,
    ) -> Result<Self, OpenFault> {
        let map = match Mapping::of(file, database.writable) {
            Ok(map) => map,
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => {
                return Err(OpenFault::Header(HeaderFault::Damaged));
            }
            Err(error) => return Err(OpenFault::Io(error)),
        };
        let damaged = || OpenFault::Header(HeaderFault::Damaged);
        let bytes = map.bytes(0, HEADER_CRC + 4).ok_or_else(damaged)?;
        let header = Header::decode(bytes, database.versions).map_err(OpenFault::Header)?;
        let capacity = usize::try_from(header.capacity).map_err(|_| damaged())?;
        let heap_start = usize::try_from(header.heap_start).map_err(|_| damaged())?;
        let fits = header.shard == u32::from(number)
            && header.key == database.hashing.key
            && capacity > 0
            && capacity.checked_mul(ENTRY_BYTES).and_then(|bytes| bytes.checked_add(HEADER_BYTES))
                == Some(heap_start)
            && heap_start <= map.len();
        if !fits {
            return Err(damaged());
        }
        let seed = database.hashing.seed;
        let generation = header.generation;
        let mut body = Self::new(number, facts.identity, map, seed, capacity, generation);
        body.tidy_due = body.is_untidy();
        let largest = body.sealed(LARGEST).and_then(|bytes| usize::try_from(bytes).ok());
        let largest = largest.unwrap_or(0).min(RECORD_BYTES_MAX);
        body.share = shard_share(database.max_bytes, largest);
        Ok(body)
    }

    /// The contents of a file with an index of `capacity` entries.
    pub(super) fn new(
        number: u8,
        identity: (u64, u64),
        map: Mapping,
        seed: u32,
        capacity: usize,
        generation: u64,
    ) -> Self {
        let checked = clock::coarse_seconds();
        let heap_start = HEADER_BYTES + capacity * ENTRY_BYTES;
        let rebuild_failed = checked - 1;
        let (tidy_due, share) = (false, SHARD_BYTES_MAX);
        Self {
            number,
            identity,
            checked,
            rebuild_failed,
            tidy_due,
            share,
            map,
            seed,
            capacity,
            heap_start,
            generation,
        }
    }

    /// Checks whether the shard, which was just locked for writing, can be used. Maps
    /// a file that has grown again, and completes what a killed process left
    /// unfinished. `second` is that of the coarse clock.
    #[inline]
    pub(super) fn condition(
        &mut self,
        file: &File,
        database: &Database,
        second: i64,
    ) -> io::Result<Condition> {
        if second != self.checked {
            // First, as this also finds a file that was truncated.
            if !self.still_named(database)? {
                return Ok(Condition::Stale);
            }
            self.checked = second;
            self.tidy_due = self.is_untidy();
        }
        if self.flags() & SUPERSEDED != 0 {
            if !self.still_named(database)? {
                return Ok(Condition::Stale);
            }
            // A process was killed while it replaced this file.
            let flags = self.flags() & !SUPERSEDED;
            let _ = self.map.set_u32(FLAGS, flags);
        }
        let Some(end) = self.heap_end() else {
            return Ok(Condition::Damaged("the end of its heap is damaged"));
        };
        if end > self.map.len() {
            self.map = Mapping::of(file, true)?;
            if end > self.map.len() || self.heap_start > self.map.len() {
                return Ok(Condition::Damaged("it is truncated"));
            }
        }
        // Not earlier: the records that are counted must be mapped.
        if self.flags() & BUSY != 0 {
            self.recount();
        }
        Ok(Condition::Ready)
    }

    /// Whether it was last tidied long ago, or in the future, as after a clock was set
    /// back.
    fn is_untidy(&self) -> bool {
        let (now, _) = clock::now();
        let tidied = self.sealed(TIDIED).and_then(|second| i64::try_from(second).ok());
        tidied.is_none_or(|second| now.abs_diff(second) >= TIDY_EVERY)
    }

    /// The counts in the header; a damaged count starts at 0 again.
    pub(super) fn counts(&self) -> Counts {
        let count = |field| self.sealed(field).unwrap_or(0);
        Counts {
            rebuilds: self.generation,
            forgotten: count(FORGOTTEN),
            evicted: count(EVICTED),
            dropped: count(DROPPED),
            waits: count(WAITS),
            lost: count(LOST),
            decided: count(DECIDED),
        }
    }

    /// How many decisions there were on the day of `now`, in UTC.
    pub(super) fn decided_on(&self, now: Timestamp) -> u64 {
        let decided = self.sealed(DECIDED).unwrap_or(0);
        if decided >> DECIDED_BITS == day(now) { decided & DECIDED_MAX } else { 0 }
    }

    /// Counts the decision of these checks, unless they only read rates: a check that counts
    /// nothing writes nothing.
    #[inline]
    pub(super) fn count_decided<'a>(
        &mut self,
        mut checks: impl Iterator<Item = &'a Check<'a>>,
        now: Timestamp,
    ) {
        if checks.all(|check| check.update == Update::ReadOnly) {
            return;
        }
        let count = (self.decided_on(now) + 1).min(DECIDED_MAX);
        let _ = self.set_sealed(DECIDED, day(now) << DECIDED_BITS | count);
    }

    /// Adds one to a count in the header.
    pub(super) fn count(&mut self, field: usize) -> Option<()> {
        self.set_sealed(field, self.sealed(field).unwrap_or(0).saturating_add(1))
    }

    /// Whether the shard's name is still this file, and the file is at least as long
    /// as the mapped part.
    pub(super) fn still_named(&self, database: &Database) -> io::Result<bool> {
        match files::info_at(database.dir.directory(), &shard_name(self.number)) {
            Ok(facts) => Ok(facts.identity == self.identity && facts.size >= self.map.len() as u64),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Allocates disk for the whole used part of the file.
    pub(super) fn reserve_disk(&self, file: &File, facts: &files::FileInfo) -> io::Result<()> {
        // If the heap's end is damaged, nothing more is written to the heap.
        let end = self.heap_end().unwrap_or(HEADER_BYTES);
        let used = facts.size.min(end as u64);
        if facts.disk >= used { Ok(()) } else { files::reserve(file, 0, used) }
    }

    /// The header's flags.
    pub(super) fn flags(&self) -> u32 {
        self.map.u32(FLAGS).unwrap_or(0)
    }

    /// The end of the heap, if that field is sound.
    #[inline]
    pub(super) fn heap_end(&self) -> Option<usize> {
        let end = usize::try_from(self.sealed(HEAP_END)?).ok()?;
        (end >= self.heap_start && end <= SHARD_BYTES_MAX && end.is_multiple_of(ALIGN))
            .then_some(end)
    }

    /// A sealed field of the header.
    pub(super) fn sealed(&self, offset: usize) -> Option<u64> {
        unseal(self.map.u64(offset)?, self.seed)
    }

    /// Writes a sealed field of the header.
    #[must_use = "None means that nothing was written"]
    pub(super) fn set_sealed(&mut self, offset: usize, value: u64) -> Option<()> {
        self.map.set_u64(offset, seal(value, self.seed))
    }

    /// Counts the records again, after a process was killed while it counted.
    pub(super) fn recount(&mut self) {
        let live = self.occupied().count() as u64;
        let used = self.records().flatten().map(|record| record.bytes).sum();
        let heap = self.heap_end().map_or(0, |end| end - self.heap_start);
        let dead = heap.saturating_sub(used);
        // The mapping is writable, and was long enough above.
        let _ = self.set_sealed(LIVE, live);
        let _ = self.set_sealed(DEAD, dead as u64);
        let flags = self.flags() & !BUSY;
        let _ = self.map.set_u32(FLAGS, flags);
    }
}
