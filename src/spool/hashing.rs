//! What the database's random key decides: where a key's record is, which
//! bits an event has, and where checksums begin.

use siphasher::sip128::{Hash128, SipHasher24};

use crate::rate::bloom::Event;
use crate::spec::StoredKey;

/// Hashes under the database's key, each use with a key of its own.
#[derive(Clone, Debug)]
pub(super) struct Hashing {
    /// The database's key.
    pub(super) key: [u8; 16],
    /// Where checksums and seals begin: what is copied here from another
    /// database does not pass for ours.
    pub(super) seed: u32,
    places: SipHasher24,
    events: SipHasher24,
}

/// Where a key's record is to be looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct KeySlot {
    /// In which shard.
    pub(super) shard: u8,
    /// Where in its index, as a fraction of 2^32.
    fraction: u32,
    /// By what tag.
    pub(super) tag: u32,
}

impl Hashing {
    pub(super) fn new(key: [u8; 16]) -> Self {
        let root = SipHasher24::new_with_key(&key);
        let derived = |purpose: &[u8]| {
            let Hash128 { h1, h2 } = root.hash(purpose);
            SipHasher24::new_with_keys(h1, h2)
        };
        Self {
            key,
            seed: root.hash(b"exirate checksum").h1 as u32,
            places: derived(b"exirate key"),
            events: derived(b"exirate event"),
        }
    }

    /// Where the record of `key` is to be looked for.
    #[inline]
    pub(super) fn place(&self, key: &[u8]) -> KeySlot {
        let identity = StoredKey::parse(key).map_or(key, |stored| stored.key);
        let shard = (self.places.hash(identity).h1 >> 56) as u8;
        let Hash128 { h1, h2 } = self.places.hash(key);
        KeySlot { shard, fraction: h1 as u32, tag: h2 as u32 }
    }

    /// The hash of the text of a unique event.
    #[inline]
    pub(super) fn event(&self, text: &[u8]) -> Event {
        let Hash128 { h1, h2 } = self.events.hash(text);
        Event(u128::from(h1) | u128::from(h2) << 64)
    }
}

impl KeySlot {
    /// The first index entry to look at, of `capacity`.
    #[inline]
    pub(super) fn start(self, capacity: usize) -> usize {
        ((u64::from(self.fraction) * capacity as u64) >> 32) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_of_the_database_gives_other_hashes() {
        let (one, two) = (Hashing::new([1; 16]), Hashing::new([2; 16]));
        assert_ne!(one.place(b"key"), two.place(b"key"));
        assert_ne!(one.event(b"key"), two.event(b"key"));
        assert_ne!(one.seed, two.seed);
        assert_eq!(one.place(b"key"), Hashing::new([1; 16]).place(b"key"));
    }

    #[test]
    fn places_are_spread_evenly() {
        let hashing = Hashing::new([3; 16]);
        let (mut shards, mut starts) = ([0u32; 256], [0u32; 100]);
        for n in 0..256_000u32 {
            let place = hashing.place(&n.to_le_bytes());
            shards[usize::from(place.shard)] += 1;
            starts[place.start(100)] += 1;
        }
        // Six standard deviations around the mean.
        assert!(shards.iter().all(|n| (810..1190).contains(n)), "{shards:?}");
        assert!(starts.iter().all(|n| (2257..2863).contains(n)), "{starts:?}");
    }
}
