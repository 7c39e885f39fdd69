//! Chooses which records to evict when the database reaches its size limit.
//!
//! Each shard gets an equal share of the limit. The least important records are
//! evicted first: those whose rates are the smallest parts of their limits. A record
//! that is over its limit is evicted only if every record that is not has gone. Keys
//! that a client can invent cannot push out the keys of other limits: if not all fit,
//! each kind of key (its period and mode) gets an equal part of the room, and what one
//! kind does not need goes to the others. What was counted in a calendar window that is over
//! weighs nothing, even if it was over its limit: the total of last month decides no event. An
//! identity that is blocked is as one that is far over its limit. What accounts send, which decides
//! nothing, has at most half of the share, and is evicted before any limit.

use std::cmp::Ordering;
use std::collections::{HashMap, HashSet};

use crate::engine::Block;
use crate::rate::Timestamp;
use crate::sys::mapping::Mapping;

use super::format::{ENTRY_BYTES, HEADER_BYTES, SHARDS};
use super::record::{Record, record_bytes};
use super::sizes::{CAPACITY_MIN, capacity_for, shard_share};

/// Bytes of index for each record after a rebuild.
const INDEX_BYTES: usize = capacity_for(8 * CAPACITY_MIN) * ENTRY_BYTES / (8 * CAPACITY_MIN);

/// How many records with stored keys of `key_bytes` bytes, and without filters,
/// a database holds before it evicts any, if it may take `max_bytes` and each shard
/// holds as many as the others.
#[must_use]
pub fn capacity(max_bytes: u64, key_bytes: usize) -> u64 {
    let bytes = record_bytes(key_bytes, None);
    let room = shard_share(max_bytes, bytes) / 8 * 7;
    let fits = |n: usize| HEADER_BYTES + capacity_for(n) * ENTRY_BYTES + n * bytes <= room;
    // The first number that does not fit.
    let (mut low, mut high) = (0, room / bytes + 1);
    while low < high {
        let middle = usize::midpoint(low, high);
        if fits(middle) { low = middle + 1 } else { high = middle }
    }
    (low.saturating_sub(1) * SHARDS) as u64
}

/// The size of the largest of `records`.
pub(super) fn largest(records: &[Record]) -> usize {
    records.iter().map(|record| record.bytes).max().unwrap_or(0)
}

/// A record with its weight: how important it is.
#[derive(Clone, Copy, Debug)]
struct Weighed<'a> {
    /// Its position in the list of records.
    index: usize,
    /// Bytes that it uses.
    bytes: usize,
    /// The record's name up to the identity: the kind of key.
    kind: &'a [u8],
    /// Its present rate divided by its limit; of a bucket, its level and burst.
    part: f64,
    /// Its present rate or level.
    rate: f64,
    /// When it was last written, in microseconds.
    at: i64,
}

impl<'a> Weighed<'a> {
    fn new(index: usize, record: &Record, map: &'a Mapping, now: Timestamp) -> Option<Self> {
        let state = record.current?.state;
        let rate = state.rate_at(record.algorithm(), now);
        // If there is no limit, or the first event is already over it, the decision is
        // the same without the record.
        let limit = state.limit(record.algorithm());
        let part = if limit > 0.0 { rate / limit } else { 0.0 };
        let part = Block::in_force(state.last_over, now).map_or(part, |_| f64::INFINITY);
        let bytes = record.bytes + INDEX_BYTES;
        Some(Self { index, bytes, kind: record.prefix(map)?, part, rate, at: state.at })
    }

    /// Whether it is over its limit. A rate that is not a number counts as over.
    fn is_over(&self) -> bool {
        self.part >= 1.0 || self.part.is_nan()
    }

    /// The order from most to least important.
    fn order(&self, other: &Self) -> Ordering {
        // Without their signs, since a NaN may have either.
        (other.part.abs().total_cmp(&self.part.abs()))
            .then(other.rate.abs().total_cmp(&self.rate.abs()))
            .then(other.at.cmp(&self.at))
            .then(self.index.cmp(&other.index))
    }
}

/// Evicts from `records`, which are in `map`, what does not fit into one shard of a
/// database of `max_bytes`. Returns how many were evicted.
///
/// If they use more than 7/8 of the shard's share, they are reduced to 3/4 of it, so
/// that the next eviction is some time away.
pub(super) fn fit(
    records: &mut Vec<Record>,
    map: &Mapping,
    max_bytes: u64,
    now: Timestamp,
) -> usize {
    let share = shard_share(max_bytes, largest(records));
    let before = records.len();
    fit_usage(records, share);
    let heap: usize = records.iter().map(|record| record.bytes).sum();
    let bytes = HEADER_BYTES + capacity_for(records.len()) * ENTRY_BYTES + heap;
    if bytes <= share / 8 * 7 {
        return before - records.len();
    }
    let room = (share / 4 * 3).saturating_sub(HEADER_BYTES + CAPACITY_MIN * ENTRY_BYTES);
    let weighed = records.iter().enumerate().filter(|(_, record)| !record.is_of_usage());
    let weighed = weighed.filter_map(|(index, record)| Weighed::new(index, record, map, now));
    let (mut kept, left) = choose(weighed.collect(), room);
    kept.extend(latest_usage(records, left));
    let mut index = 0..;
    records.retain(|_| index.next().is_some_and(|index| kept.contains(&index)));
    before - records.len()
}

/// Leaves what accounts send in `records` as far as its part of the `share` goes: where it takes
/// more than 1/2, that of the accounts that have sent last, in 3/8.
fn fit_usage(records: &mut Vec<Record>, share: usize) {
    let of_usage = records.iter().filter(|record| record.is_of_usage());
    let bytes: usize = of_usage.map(|record| record.bytes + INDEX_BYTES).sum();
    if bytes <= share / 2 {
        return;
    }
    let kept: HashSet<usize> = latest_usage(records, share / 8 * 3).collect();
    let mut index = 0..;
    records.retain(|record| {
        let is_kept = index.next().is_some_and(|index| kept.contains(&index));
        is_kept || !record.is_of_usage()
    });
}

/// The positions of the records of what accounts send, those of the accounts that have sent last,
/// as far as there is `room`.
fn latest_usage(records: &[Record], mut room: usize) -> impl Iterator<Item = usize> {
    let mut all: Vec<_> = records
        .iter()
        .enumerate()
        .filter(|(_, record)| record.is_of_usage())
        .filter_map(|(index, record)| Some((record.current?.state.at, index, record.bytes)))
        .collect();
    all.sort_unstable_by(|one, other| other.cmp(one));
    let fits = move |(_, index, bytes)| {
        room = room.checked_sub(bytes + INDEX_BYTES)?;
        Some(index)
    };
    all.into_iter().map_while(fits)
}

/// The positions of the records that are kept if there are `room` bytes, and how many are left.
fn choose(weighed: Vec<Weighed<'_>>, room: usize) -> (HashSet<usize>, usize) {
    let mut kept = HashSet::new();
    let (over, under): (Vec<_>, Vec<_>) = weighed.into_iter().partition(Weighed::is_over);
    let left = share_out(over, room, &mut kept);
    let left = share_out(under, left, &mut kept);
    (kept, left)
}

/// Adds the most important records of each kind to `kept`, as far as there is `room`.
/// Returns the room that is left.
fn share_out(weighed: Vec<Weighed<'_>>, mut room: usize, kept: &mut HashSet<usize>) -> usize {
    let mut kinds: HashMap<&[u8], (usize, Vec<Weighed<'_>>)> = HashMap::new();
    for one in weighed {
        let (bytes, of_kind) = kinds.entry(one.kind).or_default();
        *bytes += one.bytes;
        of_kind.push(one);
    }
    let mut kinds: Vec<_> = kinds.into_values().collect();
    // The kinds that need least come first, so that what they leave goes to others.
    kinds.sort_by_key(|&(bytes, _)| bytes);
    let mut waiting = kinds.len();
    for (bytes, mut of_kind) in kinds {
        let mut left = room / waiting;
        waiting -= 1;
        if bytes > left {
            of_kind.sort_unstable_by(Weighed::order);
        }
        for one in of_kind {
            if let Some(rest) = left.checked_sub(one.bytes) {
                left = rest;
                room -= one.bytes;
                kept.insert(one.index);
            }
        }
    }
    room
}

#[cfg(test)]
mod tests {
    use super::super::sizes::MAX_BYTES_DEFAULT;
    use super::*;
    use quickcheck::TestResult;

    const KINDS: [&[u8]; 3] = [b"1h/per_mail/", b"1h/per_rcpt/unique/", b"1d/per_conn/"];

    /// Records of several kinds and sizes, some of them over their limits.
    fn weighed(seeds: &[(u8, u8, u16)]) -> Vec<Weighed<'static>> {
        let one = |(index, &(kind, size, part)): (usize, &(u8, u8, u16))| Weighed {
            index,
            bytes: 100 + usize::from(size),
            kind: KINDS[usize::from(kind) % 3],
            part: f64::from(part) / 40_000.0,
            rate: 1.0,
            at: 0,
        };
        seeds.iter().enumerate().map(one).collect()
    }

    #[test]
    fn the_most_important_records_are_kept() {
        fn holds(seeds: Vec<(u8, u8, u16)>, room: u16) -> TestResult {
            let (all, room) = (weighed(&seeds), usize::from(room) / 4);
            let kept = choose(all.clone(), room).0;
            let used: usize = all.iter().filter(|w| kept.contains(&w.index)).map(|w| w.bytes).sum();
            assert!(used <= room);
            let largest = all.iter().map(|w| w.bytes).max().unwrap_or(0);
            for gone in all.iter().filter(|w| !kept.contains(&w.index)) {
                // A kind loses records only if it has used its part, less the room
                // that was too small for one more record.
                let same = |w: &&Weighed<'_>| {
                    kept.contains(&w.index) && w.kind == gone.kind && w.is_over() == gone.is_over()
                };
                let before: usize = all
                    .iter()
                    .filter(|w| kept.contains(&w.index) && w.is_over() && !gone.is_over())
                    .map(|w| w.bytes)
                    .sum();
                let kinds = KINDS.len();
                let of_kind: usize = all.iter().filter(same).map(|w| w.bytes).sum();
                assert!(of_kind + largest > (room - before) / kinds, "{gone:?} of {room}");
                // And then it loses the least important, unless a smaller one fits.
                let less = all.iter().filter(same).filter(|w| w.part < gone.part);
                assert!(less.map(|w| w.bytes).all(|bytes| bytes < gone.bytes));
            }
            let all_fit = all.iter().map(|w| w.bytes).sum::<usize>() <= room;
            TestResult::from_bool(!all_fit || kept.len() == all.len())
        }
        kit::quick_check().tests(2_000).quickcheck(holds as fn(Vec<(u8, u8, u16)>, u16) -> _);
    }

    #[test]
    fn records_over_their_limits_are_kept() {
        let mut seeds = vec![(0, 0, 1); 1_000];
        seeds.extend([(1, 0, 50_000); 20]);
        seeds.extend([(0, 0, 40_000); 20]);
        let kept = choose(weighed(&seeds), 100 * 100).0;
        assert_eq!(kept.len(), 100);
        assert!((1_000..1_040).all(|index| kept.contains(&index)));
    }

    #[test]
    fn a_flood_of_one_kind_evicts_no_other_kind() {
        let mut seeds = vec![(0, 0, 39_000); 10_000];
        seeds.extend([(1, 0, 1); 40]);
        let kept = choose(weighed(&seeds), 100 * 100).0;
        assert!((10_000..10_040).all(|index| kept.contains(&index)));
        assert_eq!(kept.len(), 100);
    }

    #[test]
    fn rates_that_are_not_numbers_count_as_over() {
        let odd = |index, part| Weighed { index, part, ..weighed(&[(0, 0, 0)])[0] };
        let parts = [f64::NAN, -f64::NAN, f64::INFINITY, 2.0, 1.0, 0.5];
        let all: Vec<_> = parts.into_iter().enumerate().map(|(i, part)| odd(i, part)).collect();
        for (count, index) in (1..=6).zip([1, 1, 2, 3, 4, 5]) {
            let kept = choose(all.clone(), count * 100).0;
            assert!(kept.len() == count && (0..index).all(|i| count <= i || kept.contains(&i)));
        }
    }

    #[test]
    fn the_capacity_is_the_most_that_evicts_nothing() {
        for (max_bytes, key_bytes) in [(0, 3), (MAX_BYTES_DEFAULT, 30), (5 << 30, 900)] {
            let (bytes, count) = (record_bytes(key_bytes, None), capacity(max_bytes, key_bytes));
            let each = usize::try_from(count).unwrap() / SHARDS;
            let takes = |n| HEADER_BYTES + capacity_for(n) * ENTRY_BYTES + n * bytes;
            let room = shard_share(max_bytes, bytes) / 8 * 7;
            assert!(takes(each) <= room && takes(each + 1) > room, "{max_bytes} {key_bytes}");
        }
    }
}
