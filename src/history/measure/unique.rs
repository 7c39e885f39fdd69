//! Which recipients are different, as the limiter tells them apart: those of a key that have
//! not been seen since the key's filter began, and a filter lasts a period.
//!
//! Hashes are compared as long as they are few; of very many, Bloom filters are kept, as the
//! limiter does of all.

use std::collections::HashMap;
use std::hash::Hasher as _;

use siphasher::sip128::{Hasher128 as _, SipHasher13};

use crate::rate::{Timestamp, bloom};

/// So many hashes are compared, about 32 MB.
const EXACT_MAX: usize = 1 << 20;
/// The size of a filter: 1 in 1700 of 16 million different recipients within a period is
/// taken for another.
const FILTER: usize = 32 << 20;

/// What has been seen, of all keys.
pub(super) struct Seen {
    period: f64,
    /// When the filter of each key began, in seconds since 1970.
    epochs: Vec<Option<i64>>,
    /// The epoch of its key's filter in which each was seen last.
    exact: HashMap<u64, i64>,
    exact_max: usize,
    filters: Option<Filters>,
}

/// Two filters: what is older than a period is dropped.
struct Filters {
    recent: Vec<u8>,
    before: Vec<u8>,
    since: i64,
}

impl Seen {
    pub(super) fn new(keys: usize, period: f64) -> Self {
        let epochs = vec![None; keys];
        Self { period, epochs, exact: HashMap::new(), exact_max: EXACT_MAX, filters: None }
    }

    /// Whether a Bloom filter was needed.
    pub(super) fn is_approximate(&self) -> bool {
        self.filters.is_some()
    }

    /// Whether `unique`, a hash of the key and of what it counts, has been seen; it has now.
    pub(super) fn see(&mut self, key: u32, unique: u64, at: Timestamp) -> bool {
        let Some(known) = self.epochs.get_mut(key as usize) else { return false };
        let epoch = match *known {
            Some(epoch) if !bloom::expired(epoch, at, self.period) => epoch,
            _ => *known.insert(at.seconds),
        };
        self.see_since(epoch, unique, at)
    }

    /// As [`Seen::see`], of what was seen since this second, in which a filter began.
    pub(super) fn see_since(&mut self, epoch: i64, unique: u64, at: Timestamp) -> bool {
        if self.filters.is_none() && self.exact.len() >= self.exact_max {
            self.make_room(at);
        }
        match &mut self.filters {
            Some(filters) => filters.see(event(unique, epoch), at, self.period),
            None => self.exact.insert(unique, epoch) == Some(epoch),
        }
    }

    /// Drops what is too old, or begins to use filters.
    fn make_room(&mut self, now: Timestamp) {
        self.exact.retain(|_, epoch| !bloom::expired(*epoch, now, self.period));
        if self.exact.len() > self.exact_max / 2 {
            let mut recent = vec![0; FILTER];
            for (unique, epoch) in self.exact.drain() {
                bloom::insert(&mut recent, event(unique, epoch));
            }
            self.exact = HashMap::new();
            let before = vec![0; FILTER];
            self.filters = Some(Filters { recent, before, since: now.seconds });
        }
    }
}

impl Filters {
    fn see(&mut self, event: bloom::Event, at: Timestamp, period: f64) -> bool {
        if bloom::expired(self.since, at, period) {
            std::mem::swap(&mut self.recent, &mut self.before);
            self.recent.fill(0);
            self.since = at.seconds;
        }
        let seen = bloom::contains(&self.recent, event) || bloom::contains(&self.before, event);
        if !seen {
            bloom::insert(&mut self.recent, event);
        }
        seen
    }
}

/// The hash of an event in this epoch of its key.
fn event(unique: u64, epoch: i64) -> bloom::Event {
    let mut hasher = SipHasher13::new();
    hasher.write_u64(unique);
    hasher.write_i64(epoch);
    hasher.finish128().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp { seconds, micros: 0 }
    }

    #[test]
    fn a_recipient_counts_once_while_its_filter_lasts() {
        let mut seen = Seen::new(2, 60.0);
        let all = [
            (0, 1, 1000, false),
            (0, 1, 1001, true),
            (1, 2, 1001, false),
            (0, 3, 1050, false),
            // The filter of key 0 is as old as the period, and then older.
            (0, 1, 1060, true),
            (0, 3, 1061, false),
            (0, 1, 1061, false),
            (1, 2, 1061, true),
            (0, 1, 1062, true),
            // Of a key that there is not, nothing is known.
            (7, 1, 1062, false),
        ];
        for (key, unique, seconds, expected) in all {
            assert_eq!(seen.see(key, unique, at(seconds)), expected, "{key} {unique} {seconds}");
        }
    }

    #[test]
    fn filters_find_what_exact_comparison_finds() {
        let mut exact = Seen::new(50, 100.0);
        let mut few = Seen { exact_max: 64, ..Seen::new(50, 100.0) };
        let mut random = kit::Random::new(1);
        for n in 0..20_000_i64 {
            let (key, unique) = (random.below(50) as u32, random.bits() >> 50);
            let unique = unique << 8 | u64::from(key);
            let expected = exact.see(key, unique, at(n / 20));
            assert_eq!(few.see(key, unique, at(n / 20)), expected, "{n}");
        }
        assert!(few.is_approximate() && !exact.is_approximate());
        assert!(few.exact.is_empty());
    }

    #[test]
    fn what_is_too_old_makes_room() {
        let mut seen = Seen { exact_max: 64, ..Seen::new(1, 10.0) };
        for n in 0..10_000 {
            assert!(!seen.see(0, n, at(n as i64)));
        }
        assert!(!seen.is_approximate() && seen.exact.len() <= 64);
    }
}
