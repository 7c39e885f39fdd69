//! The Bloom filter that remembers unique events, over borrowed bytes.
//!
//! 16 bits a unit of limit and 8 probes, as in Exim; the probes come from one
//! keyed 128-bit hash of the event, so that nobody who does not know the key
//! can choose events that collide.

/// Bits set for one event.
pub const PROBES: u32 = 8;
/// The smallest filter, in bytes.
pub const MIN_BYTES: usize = 40;
/// The largest filter, in bytes: that of a limit of one million.
pub const MAX_BYTES: usize = 2_000_000;

/// The keyed 128-bit hash of one event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event(pub u128);

/// The size in bytes of a new filter for `limit`: 16 bits a unit of limit.
#[must_use]
pub fn bytes_for(limit: f64) -> usize {
    // `as` saturates, and a limit may be infinite.
    (limit as usize).saturating_mul(2).clamp(MIN_BYTES, MAX_BYTES)
}

/// Whether a filter begun in second `epoch` has outlived its `period`.
#[must_use]
pub fn expired(epoch: i64, now: crate::rate::Timestamp, period: f64) -> bool {
    now.seconds as f64 > epoch as f64 + period
}

impl Event {
    /// The bits of a filter of `bytes` bytes that stand for this event, as
    /// (byte, mask) pairs. Double hashing: `h1 + i·h2`.
    fn probes(self, bytes: usize) -> impl Iterator<Item = (usize, u8)> {
        let (start, step) = (self.0 as u64, (self.0 >> 64) as u64 | 1);
        let bits = bytes as u128 * 8;
        (0..PROBES).map(move |i| {
            let hash = start.wrapping_add(u64::from(i).wrapping_mul(step));
            let bit = ((u128::from(hash) * bits) >> 64) as usize;
            (bit / 8, 1 << (bit % 8))
        })
    }
}

/// Whether `event` may have been inserted into the filter `bits`.
#[must_use]
pub fn contains(bits: &[u8], event: Event) -> bool {
    event.probes(bits.len()).all(|(byte, mask)| bits.get(byte).is_some_and(|b| b & mask != 0))
}

/// Inserts `event` into the filter `bits`.
pub fn insert(bits: &mut [u8], event: Event) {
    for (byte, mask) in event.probes(bits.len()) {
        if let Some(b) = bits.get_mut(byte) {
            *b |= mask;
        }
    }
}
