//! The bound on the database's size, and which records go when it bites.
//!
//! Each shard may take an equal part of it. What goes is what matters least:
//! a record of a sender who is over a limit stays as long as there is another
//! that is not, and among those, the smaller part of its limit a rate is, the
//! sooner it goes. Lines whose keys a stranger may invent cannot push out the
//! keys of other lines: where not all fit, each kind of key (its period and
//! mode) gets an equal part of the room, and what one does not need goes to
//! the others.

use std::collections::HashMap;

use crate::rate::{Average, Timestamp};
use crate::spec::Filed;
use crate::sys::mapping::Mapping;

use super::format::{ENTRY_BYTES, HEADER_BYTES, SHARD_BYTES_MAX, SHARDS};
use super::rebuild::{CAPACITY_MIN, capacity_for};
use super::record::Record;

/// The most bytes that a database takes, unless it is told otherwise: 1 GiB,
/// some eight million keys.
pub const MAX_BYTES_DEFAULT: u64 = 1 << 30;
/// The least that it can be told: 64 KiB a shard.
pub const MAX_BYTES_MIN: u64 = 16 << 20;

/// Bytes of index that a record takes after a rebuild.
const INDEX_BYTES: usize = capacity_for(8 * CAPACITY_MIN) * ENTRY_BYTES / (8 * CAPACITY_MIN);

/// The bytes that one shard may take of `max_bytes` for all, if its largest
/// record takes `largest`.
///
/// It has always room for four of that size: a filter is as large as the
/// administrator's limit asks for, and one that never stayed would limit
/// nobody.
pub(super) fn shard_share(max_bytes: u64, largest: usize) -> usize {
    let share = max_bytes.max(MAX_BYTES_MIN) / SHARDS as u64;
    let share = usize::try_from(share).unwrap_or(SHARD_BYTES_MAX);
    share.max(largest.saturating_mul(4)).min(SHARD_BYTES_MAX)
}

/// The size of the largest of `records`.
pub(super) fn largest(records: &[Record]) -> usize {
    records.iter().map(|record| record.bytes).max().unwrap_or(0)
}

/// A record, and what tells how much it matters.
#[derive(Clone, Copy, Debug)]
struct Weighed<'a> {
    record: Record,
    /// The key up to its own text: what kind of key it is.
    kind: &'a [u8],
    /// Its rate as a part of its limit, now.
    part: f64,
    /// The rate, now.
    rate: f64,
    /// When it was written last, in microseconds.
    at: i64,
}

impl<'a> Weighed<'a> {
    fn new(record: Record, map: &'a Mapping, now: Timestamp) -> Option<Self> {
        let (state, key) = (record.current?.state, record.key(map)?);
        let filed = Filed::parse(key);
        let rate = match filed.and_then(|filed| filed.period_seconds()) {
            Some(period) => decayed(state.average(), period, now),
            None => state.rate,
        };
        // Whoever has no limit, or is over it with the first event already, is
        // told the same without the record.
        let part = if state.limit > 0.0 { rate / state.limit } else { 0.0 };
        Some(Self { record, kind: Filed::prefix_of(key), part, rate, at: state.at })
    }

    /// Bytes that it takes.
    fn bytes(&self) -> usize {
        self.record.bytes + INDEX_BYTES
    }

    /// A rate that is no number is over every limit.
    fn is_over(&self) -> bool {
        self.part >= 1.0 || self.part.is_nan()
    }

    /// Sorts what matters most to the front.
    fn order(&self, other: &Self) -> std::cmp::Ordering {
        (other.part.abs().total_cmp(&self.part.abs()))
            .then(other.rate.abs().total_cmp(&self.rate.abs()))
            .then(other.at.cmp(&self.at))
            .then(self.record.offset.cmp(&other.record.offset))
    }
}

/// What is left of a rate now, as a check that counts nothing would see it.
fn decayed(average: Average, period: f64, now: Timestamp) -> f64 {
    average.next(now, period, 0.0).rate
}

/// Leaves as many of `records`, which are in `map`, as a shard may hold of a
/// database that may take `max_bytes`; how many had to go.
///
/// Where they would take more than 7/8 of the shard's share, what is left takes
/// 3/4: so there is some time until it bites again.
pub(super) fn fit(
    records: &mut Vec<Record>,
    map: &Mapping,
    max_bytes: u64,
    now: Timestamp,
) -> usize {
    let share = shard_share(max_bytes, largest(records));
    let heap: usize = records.iter().map(|record| record.bytes).sum();
    let bytes = HEADER_BYTES + capacity_for(records.len()) * ENTRY_BYTES + heap;
    if bytes <= share / 8 * 7 {
        return 0;
    }
    let room = (share / 4 * 3).saturating_sub(HEADER_BYTES + CAPACITY_MIN * ENTRY_BYTES);
    let before = records.len();
    let weighed = records.iter().filter_map(|&record| Weighed::new(record, map, now));
    let (over, under): (Vec<_>, Vec<_>) = weighed.partition(Weighed::is_over);
    let mut kept = Vec::new();
    let left = choose(over, room, &mut kept);
    choose(under, left, &mut kept);
    kept.sort_unstable_by_key(|record: &Record| record.offset);
    *records = kept;
    before - records.len()
}

/// Adds to `kept` what matters most of each kind, as far as there is `room`;
/// the room that is left.
fn choose(weighed: Vec<Weighed<'_>>, room: usize, kept: &mut Vec<Record>) -> usize {
    let mut kinds: HashMap<&[u8], (usize, Vec<Weighed<'_>>)> = HashMap::new();
    for one in weighed {
        let (bytes, of_kind) = kinds.entry(one.kind).or_default();
        *bytes += one.bytes();
        of_kind.push(one);
    }
    let mut kinds: Vec<_> = kinds.into_values().collect();
    // Those that need least first, so that what they leave goes to the others.
    kinds.sort_by_key(|&(bytes, _)| bytes);
    let (mut room, mut waiting) = (room, kinds.len());
    for (bytes, mut of_kind) in kinds {
        let part = room / waiting;
        waiting -= 1;
        if bytes > part {
            of_kind.sort_unstable_by(Weighed::order);
        }
        let mut left = part;
        for one in of_kind {
            if let Some(rest) = left.checked_sub(one.bytes()) {
                left = rest;
                kept.push(one.record);
            }
        }
        room -= part - left;
    }
    room
}
