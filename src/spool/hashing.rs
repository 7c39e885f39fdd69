//! Values derived from the database's random key: the position of a record, the bits of
//! an event, and the start value of checksums.

use siphasher::sip;
use siphasher::sip128::{Hash128, SipHasher24};

use crate::engine::RecordKey;
use crate::rate::bloom::Event;

/// Hashes under the database's key, each use with a key of its own.
#[derive(Clone, Debug)]
pub(super) struct Hashing {
    /// The database's key.
    pub(super) key: [u8; 16],
    /// The start value of checksums and seals, so that data copied from another database
    /// is not valid here.
    pub(super) seed: u32,
    places: SipHasher24,
    events: SipHasher24,
    /// Of 64 bits: a message has a hash for each recipient.
    habits: sip::SipHasher24,
}

/// The position of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct KeySlot {
    /// The shard's number.
    pub(super) shard: u8,
    /// The position in its index, as a fraction of 2^32.
    fraction: u32,
    /// The tag in the index entry.
    pub(super) tag: u32,
    /// The hash of the identity alone.
    identity: u64,
}

/// What the key for unique events is derived with.
const EVENT: &[u8] = b"exirate event";

impl Hashing {
    pub(super) fn new(key: [u8; 16]) -> Self {
        let root = SipHasher24::new_with_key(&key);
        let habits = root.hash(b"exirate habits");
        let derived = |purpose: &[u8]| {
            let Hash128 { h1, h2 } = root.hash(purpose);
            SipHasher24::new_with_keys(h1, h2)
        };
        Self {
            key,
            seed: root.hash(b"exirate checksum").h1 as u32,
            places: derived(b"exirate key"),
            events: derived(EVENT),
            habits: sip::SipHasher24::new_with_keys(habits.h1, habits.h2),
        }
    }

    /// The key of [`Hashing::event`], derived from that of the database.
    pub(super) fn event_key(&self) -> [u8; 16] {
        let Hash128 { h1, h2 } = SipHasher24::new_with_key(&self.key).hash(EVENT);
        (u128::from(h1) | u128::from(h2) << 64).to_le_bytes()
    }

    /// Where the record of `key` is to be looked for.
    ///
    /// Only the identity is hashed under the database's key: it is what a client
    /// may choose. What comes before it in the name is folded in.
    #[inline]
    pub(super) fn place<'k>(&self, key: impl Into<RecordKey<'k>>) -> KeySlot {
        let key = key.into();
        let (prefix, identity) = key.name.split_at_checked(key.identity_start).unwrap_or_default();
        let Hash128 { h1, h2 } = self.places.hash(identity);
        KeySlot::of((h1 >> 56) as u8, h2, prefix)
    }

    /// The hash of a recipient or a network, of which habits have some bits.
    #[inline]
    pub(super) fn habit(&self, text: &[u8]) -> u64 {
        self.habits.hash(text)
    }

    /// The hash of the text of a unique event.
    #[inline]
    pub(super) fn event(&self, text: &[u8]) -> Event {
        self.events.hash(text).into()
    }
}

/// Bytes as a number that has all of its bits from all of theirs, and from those of `start`.
#[inline]
pub(super) fn fold(start: u64, text: &[u8]) -> u64 {
    let (words, rest) = text.as_chunks::<8>();
    let mut last = [0; 8];
    last.iter_mut().zip(rest).for_each(|(to, &from)| *to = from);
    let words = words.iter().chain((!rest.is_empty()).then_some(&last));
    words.fold(start, |sum: u64, word| {
        let mixed = (sum ^ u64::from_le_bytes(*word)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        mixed ^ (mixed >> 32)
    })
}

impl KeySlot {
    #[inline]
    fn of(shard: u8, identity: u64, prefix: &[u8]) -> Self {
        let slot = identity ^ fold(0, prefix);
        Self { shard, fraction: slot as u32, tag: (slot >> 32) as u32, identity }
    }

    /// The position of another record of the same identity, whose name has this before it.
    #[inline]
    pub(super) fn beside(self, prefix: &[u8]) -> Self {
        Self::of(self.shard, self.identity, prefix)
    }

    /// The hash of the record's name.
    pub(super) fn hash(self) -> u64 {
        u64::from(self.tag) << 32 | u64::from(self.fraction)
    }

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
    fn all_records_of_an_identity_are_in_one_shard() {
        let hashing = Hashing::new([3; 16]);
        let alone = hashing.place(b"alice");
        for prefix in ["1h/per_mail/", "1d/per_rcpt/unique/", "x"] {
            let name = format!("{prefix}alice");
            let key = RecordKey { identity_start: prefix.len(), ..(&name).into() };
            let place = hashing.place(key);
            assert_eq!(place.shard, alone.shard);
            assert_ne!((place.fraction, place.tag), (alone.fraction, alone.tag));
            assert_eq!(alone.beside(prefix.as_bytes()), place);
        }
    }

    #[test]
    fn the_records_of_one_identity_have_places_of_their_own() {
        let hashing = Hashing::new([3; 16]);
        let (mut tags, mut starts) = (std::collections::HashSet::new(), [0u32; 16]);
        for period in 1..=1000 {
            for rest in ["s/per_mail/", "h/per_rcpt/", "h/per_rcpt/unique/"] {
                let prefix = format!("{period}{rest}");
                let name = format!("{prefix}alice");
                let key = RecordKey { identity_start: prefix.len(), ..(&name).into() };
                let place = hashing.place(key);
                tags.insert(place.tag);
                starts[place.start(16)] += 1;
            }
        }
        // The birthday paradox allows for one or two of 3,000 to be alike.
        assert!(tags.len() >= 2_998, "{}", tags.len());
        assert!(starts.iter().all(|n| (90..290).contains(n)), "{starts:?}");
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
