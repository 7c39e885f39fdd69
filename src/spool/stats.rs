//! The size of the database, and counts of what has happened to it.

use crate::rate::Timestamp;

use super::shard::Body;
use super::{Spool, SpoolError};

/// The result of [`Spool::stats`], for all shards together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Shards that exist.
    pub shards: usize,
    /// Keys in the database, habits not included.
    pub records: u64,
    /// Bytes of disk.
    pub disk: u64,
    /// Entries of the indexes, occupied and free.
    pub index_entries: u64,
    /// Bytes of heap, used and unused.
    pub heap: u64,
    /// Unused bytes of heap; growth or [`Spool::compact`] frees them.
    pub dead: u64,
    /// Bytes of Bloom filters.
    pub filters: u64,
    /// The size limit in bytes.
    pub max_bytes: u64,
    /// How many files the shards have had, the first ones included.
    pub rebuilds: u64,
    /// Records that went because they could change no answer any more.
    pub forgotten: u64,
    /// Records evicted because of the size limit.
    pub evicted: u64,
    /// Damaged records that were dropped.
    pub dropped: u64,
    /// Checks that had to wait for a lock.
    pub waits: u64,
    /// Crossings and refusals that could not be written to their files.
    pub lost: u64,
}

impl Spool {
    /// The size of the database, and counts since it was created. The counts of a shard
    /// whose header was damaged have started again at 0.
    ///
    /// # Errors
    /// A shard could not be read.
    pub fn stats(&mut self) -> Result<Stats, SpoolError> {
        self.sum_up(Err)
    }

    /// As [`Spool::stats`], for the shards that can be read.
    ///
    /// # Errors
    /// The database's directory cannot be used.
    pub fn stats_of_readable(&mut self) -> Result<Stats, SpoolError> {
        self.after_fork()?;
        self.sum_up(|_| Ok(()))
    }

    /// How many decisions there were on the day of `now`, in UTC: at most 2^24 a shard. Checks of
    /// one event that are decided together are one. Those that only read rates are none, and nor
    /// are those of commands, as `exirate check`. Shards that cannot be read count none.
    ///
    /// # Errors
    /// The database's directory cannot be used.
    pub fn decided_on(&mut self, now: Timestamp) -> Result<u64, SpoolError> {
        let mut all = 0;
        self.each_shard(|body| body.decided_on(now), |of_shard| all += of_shard)?;
        Ok(all)
    }

    /// The sum over all shards; `failed` handles an error.
    fn sum_up(
        &mut self,
        failed: impl Fn(SpoolError) -> Result<(), SpoolError>,
    ) -> Result<Stats, SpoolError> {
        let mut stats = Stats { max_bytes: self.database.max_bytes, ..Stats::default() };
        for number in 0..=u8::MAX {
            match self.read_shard(number, |body| body.map(Stats::of)) {
                Ok(Some(shard)) => stats.add(&Stats { disk: self.disk(number), ..shard }),
                Ok(None) => {}
                Err(error) => failed(error)?,
            }
        }
        Ok(stats)
    }
}

impl Stats {
    /// The statistics of one shard, without its disk.
    fn of(body: &Body) -> Self {
        let end = body.heap_end().unwrap_or(body.heap_start);
        let (mut records, mut used, mut filters) = (0, 0, 0);
        for record in body.records().flatten() {
            let remembers = record.current.is_some_and(|current| current.state.has_rate());
            if remembers {
                records += u64::from(!record.is_of_habits() && !record.is_of_usage());
                used += record.bytes as u64;
                if !record.is_of_usage() {
                    filters += record.filter_bytes.unwrap_or(0) as u64;
                }
            }
        }
        let heap = (end - body.heap_start) as u64;
        let counts = body.counts();
        Self {
            shards: 1,
            records,
            disk: 0,
            index_entries: body.capacity as u64,
            heap,
            dead: heap.saturating_sub(used),
            filters,
            max_bytes: 0,
            rebuilds: counts.rebuilds,
            forgotten: counts.forgotten,
            evicted: counts.evicted,
            dropped: counts.dropped,
            waits: counts.waits,
            lost: counts.lost,
        }
    }

    fn add(&mut self, other: &Self) {
        self.shards += other.shards;
        for (sum, more) in [
            (&mut self.records, other.records),
            (&mut self.disk, other.disk),
            (&mut self.index_entries, other.index_entries),
            (&mut self.heap, other.heap),
            (&mut self.dead, other.dead),
            (&mut self.filters, other.filters),
            (&mut self.rebuilds, other.rebuilds),
            (&mut self.forgotten, other.forgotten),
            (&mut self.evicted, other.evicted),
            (&mut self.dropped, other.dropped),
            (&mut self.waits, other.waits),
            (&mut self.lost, other.lost),
        ] {
            *sum = sum.saturating_add(more);
        }
    }
}
