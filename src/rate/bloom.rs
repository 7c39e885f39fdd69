//! The Bloom filter that remembers unique events, over borrowed bytes.
//!
//! It has 16 bits per unit of limit and 8 probes, as in Exim. The probes come
//! from one keyed 128-bit hash of the event, so that without the key nobody can
//! choose events that collide.
//!
//! After `n` events in a filter for limit `m`, the probability that a new event
//! appears as seen before is `(1 - e^(-n/2m))^8`: 1 in 1741 at the limit, 1 in
//! 39 at twice the limit.

use siphasher::sip128::Hash128;

/// Bits set for one event.
pub const PROBES: u32 = 8;
/// The smallest filter, in bytes.
pub const MIN_BYTES: usize = 40;
/// The largest filter, in bytes: that of a limit of one million.
pub const MAX_BYTES: usize = 2_000_000;

/// The keyed 128-bit hash of one event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event(pub u128);

impl From<Hash128> for Event {
    fn from(Hash128 { h1, h2 }: Hash128) -> Self {
        Self(u128::from(h1) | u128::from(h2) << 64)
    }
}

/// The size in bytes of a new filter for `limit`: 16 bits per whole unit of
/// limit, between [`MIN_BYTES`] and [`MAX_BYTES`].
#[must_use]
pub fn bytes_for(limit: f64) -> usize {
    // `as` saturates, and a limit may be infinite.
    (limit as usize).saturating_mul(2).clamp(MIN_BYTES, MAX_BYTES)
}

/// Whether a filter started in second `epoch` is older than `period`.
#[must_use]
pub fn expired(epoch: i64, now: crate::rate::Timestamp, period: f64) -> bool {
    now.seconds as f64 > epoch as f64 + period
}

/// The factor of the hash's second half for each probe: the powers of an odd
/// number (2^64 divided by the golden ratio).
///
/// Plain double hashing uses the factors 0, 1, 2 … 7. Then one event in as many
/// as the filter has bits gets a step so small that all its probes fall on one
/// or two bits, and it appears as seen before as soon as those are set.
/// Measured, that doubles the false positives of a filter of 40 bytes at its
/// limit. Factors far from each other cannot all give products close to 0.
const MULTIPLES: [u64; PROBES as usize] = {
    let mut multiples = [1_u64; PROBES as usize];
    let mut i = 1;
    while i < multiples.len() {
        multiples[i] = multiples[i - 1].wrapping_mul(0x9e37_79b9_7f4a_7c15);
        i += 1;
    }
    multiples
};

impl Event {
    /// The hash of each probe: the place of its bit is this fraction of 2^64 of the filter's
    /// bits.
    #[inline]
    pub(crate) fn hashes(self) -> impl Iterator<Item = u64> {
        let (low, high) = (self.0 as u64, (self.0 >> 64) as u64);
        MULTIPLES.into_iter().map(move |multiple| low.wrapping_add(multiple.wrapping_mul(high)))
    }

    /// The bits for this event in a filter of `bytes` bytes, as (byte, mask)
    /// pairs: probe `i` is at the fraction `(low + MULTIPLES[i]·high mod 2^64)
    /// / 2^64` of the bits.
    #[inline]
    fn probes(self, bytes: usize) -> impl Iterator<Item = (usize, u8)> {
        let bits = bytes as u64 * 8;
        self.hashes().map(move |hash| {
            let bit = ((u128::from(hash) * u128::from(bits)) >> 64) as usize;
            (bit / 8, 1 << (bit % 8))
        })
    }
}

/// Whether `event` may have been inserted into the filter `bits`.
///
/// Always true for an inserted event; an empty slice contains nothing.
#[must_use]
#[inline]
pub fn contains(bits: &[u8], event: Event) -> bool {
    event.probes(bits.len()).all(|(byte, mask)| bits.get(byte).is_some_and(|b| b & mask != 0))
}

/// Inserts `event` into the filter `bits`.
#[inline]
pub fn insert(bits: &mut [u8], event: Event) {
    for (byte, mask) in event.probes(bits.len()) {
        if let Some(b) = bits.get_mut(byte) {
            *b |= mask;
        }
    }
}

/// The number of set bits.
#[must_use]
pub fn ones(bits: &[u8]) -> u64 {
    let (words, rest) = bits.as_chunks::<8>();
    let words: u64 = words.iter().map(|w| u64::from(u64::from_ne_bytes(*w).count_ones())).sum();
    words + rest.iter().map(|b| u64::from(b.count_ones())).sum::<u64>()
}

/// The share of set bits, 0 to 1; 0 for an empty slice.
#[must_use]
pub fn fill(bits: &[u8]) -> f64 {
    if bits.is_empty() { 0.0 } else { ones(bits) as f64 / (bits.len() as f64 * 8.0) }
}

/// Estimates the number of distinct events in a filter of `bytes` bytes with
/// this `fill`: `-(bits/8)·ln(1-fill)`, the inverse of the expected fill `1 -
/// e^(-8n/bits)`. Infinite if every bit is set.
#[must_use]
pub fn events(fill: f64, bytes: usize) -> f64 {
    // A byte has as many bits as an event has probes.
    let events = -(bytes as f64) * (8.0 / f64::from(PROBES)) * (-fill).ln_1p();
    events.max(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rate::Timestamp;
    use kit::quickcheck;
    use std::hash::Hasher;

    /// The probability that a new event appears as seen before in a filter with
    /// this `fill`.
    fn false_positive(fill: f64) -> f64 {
        fill.powi(PROBES as i32)
    }

    /// A hash as in real stores: keyed SipHash of 128 bits.
    fn event(number: u64) -> Event {
        use siphasher::sip128::{Hasher128, SipHasher24};
        let mut hasher = SipHasher24::new_with_keys(1, 2);
        hasher.write_u64(number);
        Event(hasher.finish128().as_u128())
    }

    #[test]
    fn sizes() {
        for (limit, bytes) in [
            (0.0, 40),
            (20.9, 40),
            (21.0, 42),
            (21.9, 42),
            (1e6, 2_000_000),
            (1e9, 2_000_000),
            (f64::INFINITY, 2_000_000),
            (f64::NAN, 40),
        ] {
            assert_eq!(bytes_for(limit), bytes, "{limit}");
        }
    }

    #[test]
    fn expiry_is_after_a_whole_period() {
        let at = |seconds| Timestamp { seconds, micros: 999_999 };
        assert!(!expired(1000, at(1060), 60.0));
        assert!(expired(1000, at(1061), 60.0));
        assert!(!expired(1000, at(0), 60.0), "a clock gone back");
    }

    #[test]
    fn one_event_sets_different_bits() {
        // The probability that two of 8 of 320 bits are equal is 0.084, and
        // that three or more are, 1e-5: that does not occur here.
        let (mut fewer, mut fewest) = (0, PROBES);
        for number in 0..20_000 {
            let mut bits = [0; MIN_BYTES];
            insert(&mut bits, event(number));
            let set = ones(&bits) as u32;
            fewer += u32::from(set < PROBES);
            fewest = fewest.min(set);
        }
        assert!((1400..2000).contains(&fewer), "{fewer} of 20000");
        assert!(fewest >= 5, "{fewest} bits for one event");
    }

    #[test]
    fn false_positives_are_as_many_as_the_fill_says() {
        // The smallest filter at its limit, where bad double hashing has the
        // largest effect.
        let (mut expected, mut found) = (0.0, 0);
        for filter in 0..400_u64 {
            let mut bits = [0; MIN_BYTES];
            (0..20).for_each(|n| insert(&mut bits, event(filter * 100 + n)));
            expected += 1000.0 * false_positive(fill(&bits));
            let tried = (0..1000).map(|n| event(1_000_000 + filter * 1000 + n));
            found += tried.filter(|&e| contains(&bits, e)).count();
        }
        let ratio = found as f64 / expected;
        assert!((0.8..1.2).contains(&ratio), "{found} found, {expected} expected");
    }

    #[test]
    fn the_number_of_events_is_estimated() {
        let mut bits = vec![0; bytes_for(1000.0)];
        assert_eq!((fill(&bits), events(fill(&bits), bits.len())), (0.0, 0.0));
        for number in 0..1000 {
            insert(&mut bits, event(number));
        }
        let (fill, events) = (fill(&bits), events(fill(&bits), bits.len()));
        assert!((fill - 0.3935).abs() < 0.02, "{fill}");
        assert!((events - 1000.0).abs() < 40.0, "{events}");
        assert_eq!(super::events(1.0, 40), f64::INFINITY);
        assert_eq!((super::fill(&[]), super::ones(&[0xff; 11])), (0.0, 88));
    }

    #[test]
    fn an_empty_slice_contains_nothing() {
        insert(&mut [], Event(7));
        assert!(!contains(&[], Event(7)));
    }

    quickcheck! {
        fn inserted_events_are_contained(bytes: u16, hashes: Vec<u128>) -> bool {
            let mut bits = vec![0; usize::from(bytes) + 1];
            hashes.iter().for_each(|&h| insert(&mut bits, Event(h)));
            let all = hashes.iter().all(|&h| contains(&bits, Event(h)));
            let most = hashes.len() as u64 * u64::from(PROBES);
            all && ones(&bits) <= most
                && ones(&bits) == bits.iter().map(|b| u64::from(b.count_ones())).sum::<u64>()
        }

        fn insertion_is_monotone(bits: Vec<u8>, hash: u128) -> bool {
            let mut after = bits.clone();
            insert(&mut after, Event(hash));
            bits.iter().zip(&after).all(|(before, after)| before & !after == 0)
        }
    }
}
