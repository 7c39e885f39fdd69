//! The layout of the database's files. `FORMAT.md` explains it, and a test checks that
//! the two agree.

use bincode::config::{Configuration, Fixint, LittleEndian};
use bincode::{Decode, Encode};

use crate::rate::AlgorithmKind;
use crate::versions::Versions;

/// The format version of the databases that this exirate creates.
pub(super) const VERSION: u32 = 2;

/// The versions that this exirate knows.
pub(super) const VERSIONS: Versions = Versions::only(VERSION);
/// The number of shards.
pub(super) const SHARDS: usize = 256;
/// The magic of the file `database`.
pub(super) const DATABASE_MAGIC: [u8; 8] = *b"EXIRATED";
/// The magic of a shard.
pub(super) const SHARD_MAGIC: [u8; 8] = *b"EXIRATES";

/// The size of the part of the file `database` that its checksum covers, and of the
/// checksum.
pub(super) const DATABASE_BYTES: usize = 44;
/// The offset in the file `database` of the word that changes with the overrides. No
/// checksum covers it.
pub(super) const DATABASE_WORD: usize = 48;
/// The offset in the file `database` of the limits of the event logs.
pub(super) const DATABASE_EVENTS: usize = 56;
/// The size of these limits with their checksum, which covers nothing else.
pub(super) const EVENT_LIMITS_BYTES: usize = 36;
/// The size of the file `database`.
pub(super) const DATABASE_FILE_BYTES: usize = 92;
/// The offset of its checksum, which covers all bytes before it.
pub(super) const DATABASE_CRC: usize = 40;

/// The size of a shard's header. The index follows it.
pub(super) const HEADER_BYTES: usize = 192;
/// The offset of the checksum of the header's fixed part, which covers all bytes before
/// it.
pub(super) const HEADER_CRC: usize = 60;
/// The offset of the header's flags.
pub(super) const FLAGS: usize = 64;
/// The offset of the sealed end of the heap.
pub(super) const HEAP_END: usize = 72;
/// The offset of the sealed number of occupied index entries.
pub(super) const LIVE: usize = 80;
/// The offset of the sealed number of unused heap bytes.
pub(super) const DEAD: usize = 88;
/// The offset of the sealed second in which the shard was last tidied.
pub(super) const TIDIED: usize = 96;
/// Where the header's sealed number of records is that went because they could
/// change no answer any more.
pub(super) const FORGOTTEN: usize = 104;
/// The offset of the sealed number of records evicted because of the size limit.
pub(super) const EVICTED: usize = 112;
/// The offset of the sealed number of damaged records that were dropped.
pub(super) const DROPPED: usize = 120;
/// The offset of the sealed number of checks that had to wait for the lock.
pub(super) const WAITS: usize = 128;
/// The offset of the sealed size of the largest record at the last rebuild.
pub(super) const LARGEST: usize = 136;
/// The offset of the sealed number of crossings and refusals that could not be written.
pub(super) const LOST: usize = 144;
/// The offset of the sealed day and how many decisions there were on it.
pub(super) const DECIDED: usize = 152;
/// How many bits of that are the number.
pub(super) const DECIDED_BITS: u32 = 24;

/// Flag: another file has the shard's name, or will have it soon.
pub(super) const SUPERSEDED: u32 = 1;
/// Flag: records are being added. If a process finds it set, it counts them again.
pub(super) const BUSY: u32 = 2;

/// The size of an index entry.
pub(super) const ENTRY_BYTES: usize = 8;
/// An empty index entry. Neither all zeros nor all ones is a valid entry, so that a lost
/// sector does not look like an empty index.
pub(super) const EMPTY: u64 = 0xA5A5_A5A5_FFFF_FFFF;
/// The unit of offsets in the index, and the alignment of records.
pub(super) const ALIGN: usize = 8;
/// The largest shard: what 32 bits address in units of [`ALIGN`].
pub(super) const SHARD_BYTES_MAX: usize = 0xFFFF_FFF0 * ALIGN;

/// The size of a record's head.
pub(super) const HEAD_BYTES: usize = 20;
/// The offset of the checksum in the head, which covers the head before it and the
/// key's text.
pub(super) const HEAD_CRC: usize = 16;
/// RecordHead flag: the record has a filter.
pub(super) const HAS_FILTER: u16 = 1;
/// RecordHead kind: the record of a spec.
pub(super) const KIND_SPEC: u8 = 1;
/// RecordHead kind: the record of a policy.
pub(super) const KIND_POLICY: u8 = 2;
/// RecordHead kind: the habits of an account.
pub(super) const KIND_HABITS: u8 = 3;
/// RecordHead kind: what an account sends.
pub(super) const KIND_USAGE: u8 = 4;
/// RecordHead algorithm: the moving average.
#[cfg(test)]
pub(super) const MOVING_AVERAGE: u8 = AlgorithmKind::MovingAverage.code();
/// The code of the leaky bucket.
pub(super) const BUCKET: u8 = AlgorithmKind::Bucket.code();
/// The code of the calendar window.
pub(super) const CALENDAR: u8 = AlgorithmKind::Calendar.code();
/// The code of the share of what failed.
pub(super) const SHARE: u8 = AlgorithmKind::Share.code();
/// The offsets of a record's two states, from the start of the record.
pub(super) const STATES: [usize; 2] = [20, 72];
/// The size of a state with its checksum.
pub(super) const STATE_BYTES: usize = 52;
/// The offset of the checksum in a state, which covers the bytes before it.
pub(super) const STATE_CRC: usize = 48;
/// The offset of the sealed epoch in a record with a filter.
pub(super) const EPOCH: usize = 128;
/// The offset of the key's text in a record without a filter.
pub(super) const PLAIN_KEY: usize = 124;
/// The offset of the key's text in a record with a filter.
pub(super) const FILTER_KEY: usize = 136;
/// The longest key.
pub(super) const KEY_BYTES_MAX: usize = u16::MAX as usize;

/// The time of a state without a rate: its key was reset, or no event was counted yet.
pub(super) const NEVER: i64 = i64::MIN;

/// Fixed width, little-endian.
const CODEC: Configuration<LittleEndian, Fixint> =
    bincode::config::standard().with_fixed_int_encoding().with_little_endian();

/// The fixed part of a shard's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub(super) struct Header {
    pub(super) magic: [u8; 8],
    pub(super) version: u32,
    pub(super) shard: u32,
    pub(super) key: [u8; 16],
    pub(super) capacity: u64,
    pub(super) heap_start: u64,
    pub(super) generation: u64,
    pub(super) reserved: u32,
}

/// The file `database`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub(super) struct Superblock {
    pub(super) magic: [u8; 8],
    pub(super) version: u32,
    pub(super) shards: u32,
    pub(super) key: [u8; 16],
    /// The size limit of all shards together, in bytes.
    pub(super) max_bytes: u64,
}

/// The limits of the event logs in the file `database`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub(super) struct StoredLimits {
    /// The size limit of `crossings` and `crossings.1` together, in bytes.
    pub(super) crossings_bytes: u64,
    /// How many seconds a crossing is kept; all ones: for ever.
    pub(super) crossings_keep: u64,
    /// As for crossings, of the refusals.
    pub(super) refusals_bytes: u64,
    /// As for crossings, of the refusals.
    pub(super) refusals_keep: u64,
}

/// The head of a record, without its checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub(super) struct RecordHead {
    pub(super) bytes: u32,
    pub(super) key_bytes: u16,
    pub(super) flags: u16,
    pub(super) filter_bytes: u32,
    /// The offset of the identity in the key.
    pub(super) identity_start: u16,
    pub(super) kind: u8,
    pub(super) algorithm: u8,
}

/// A record's state, without its checksum.
#[derive(Clone, Copy, Debug, PartialEq, Encode, Decode)]
pub(super) struct State {
    /// Microseconds since 1970.
    pub(super) at: i64,
    pub(super) rate: f64,
    /// Of a calendar window: see [`crate::rate::calendar::pack`].
    pub(super) limit: f64,
    /// Of a moving average: in whole seconds, rounded up. Of a bucket: the bits of an
    /// `f32`. Of a calendar window: its length in seconds.
    pub(super) period: u32,
    pub(super) apart: f32,
    pub(super) over_since: u32,
    pub(super) last_over: u32,
    pub(super) crossings: u32,
    pub(super) sequence: u32,
}

// The constants agree with the structs.
const _: () = {
    assert!(8 + 4 + 4 + 16 + 8 + 8 + 8 + 4 == HEADER_CRC && HEADER_CRC + 4 <= FLAGS);
    assert!(FLAGS + 8 <= HEAP_END && HEAP_END + 8 == LIVE && LIVE + 8 == DEAD);
    assert!(DEAD + 8 == TIDIED && TIDIED + 8 == FORGOTTEN && FORGOTTEN + 8 == EVICTED);
    assert!(
        EVICTED + 8 == DROPPED
            && DROPPED + 8 == WAITS
            && WAITS + 8 == LARGEST
            && LARGEST + 8 == LOST
            && LOST + 8 <= HEADER_BYTES
    );
    assert!(HEADER_BYTES.is_multiple_of(ALIGN));
    assert!(8 + 4 + 4 + 16 + 8 == DATABASE_CRC && DATABASE_CRC + 4 == DATABASE_BYTES);
    assert!(DATABASE_BYTES <= DATABASE_WORD && DATABASE_WORD + 8 == DATABASE_EVENTS);
    assert!(4 * 8 + 4 == EVENT_LIMITS_BYTES);
    assert!(DATABASE_EVENTS + EVENT_LIMITS_BYTES == DATABASE_FILE_BYTES);
    assert!(4 + 2 + 2 + 4 + 2 + 1 + 1 == HEAD_CRC && HEAD_CRC + 4 == HEAD_BYTES);
    assert!(8 + 8 + 8 + 4 + 4 + 4 + 4 + 4 + 4 == STATE_CRC && STATE_CRC + 4 == STATE_BYTES);
    assert!(STATES[0] == HEAD_BYTES && STATES[1] == STATES[0] + STATE_BYTES);
    assert!(STATES[1] + STATE_BYTES == PLAIN_KEY && EPOCH == PLAIN_KEY + 4);
    assert!(EPOCH + 8 == FILTER_KEY && EPOCH.is_multiple_of(ALIGN));
    assert!(SHARD_BYTES_MAX <= crate::sys::mapping::LENGTH_MAX);
    assert!(SHARDS == 256 && ENTRY_BYTES == size_of::<u64>());
};

/// Why a header cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HeaderFault {
    /// Its magic or its checksum is wrong.
    Damaged,
    /// It is sound, but of this unknown version.
    Version(u32),
}

/// The checksum of `bytes` with this start value.
#[inline]
pub(super) fn checksum(seed: u32, bytes: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new_with_initial(seed);
    hasher.update(bytes);
    hasher.finalize()
}

/// Encodes `value` into `N` bytes; all values here have a fixed size.
#[inline]
pub(super) fn encode<const N: usize>(value: &impl Encode) -> [u8; N] {
    let mut bytes = [0; N];
    // It cannot fail: the sizes are asserted above, and all fields are numbers. Zeros
    // would not be a valid value.
    let _ = bincode::encode_into_slice(value, &mut bytes, CODEC);
    bytes
}

/// Decodes what [`encode`] has written; ignores further bytes.
#[inline]
pub(super) fn decode<T: Decode<()>>(bytes: &[u8]) -> Option<T> {
    bincode::decode_from_slice(bytes, CODEC).ok().map(|(value, _)| value)
}

/// Appends the checksum to the bytes it covers.
fn with_checksum<const N: usize>(mut bytes: [u8; N]) -> [u8; N] {
    if let Some((covered, crc)) = bytes.split_last_chunk_mut::<4>() {
        *crc = checksum(0, covered).to_le_bytes();
    }
    bytes
}

/// Whether the last 4 bytes are the checksum of those before.
fn checksum_fits(bytes: &[u8]) -> bool {
    bytes
        .split_last_chunk::<4>()
        .is_some_and(|(covered, crc)| checksum(0, covered) == u32::from_le_bytes(*crc))
}

impl Header {
    /// The fixed part with its checksum, as on disk.
    pub(super) fn encode(&self) -> [u8; HEADER_CRC + 4] {
        with_checksum(encode(self))
    }

    /// Whether magic and version are known, even if the rest is damaged: exirate has
    /// created the file, and this one may write to it.
    pub(super) fn is_ours(bytes: &[u8], versions: Versions) -> bool {
        decode(bytes).is_some_and(|header: Self| {
            header.magic == SHARD_MAGIC && versions.contain(header.version)
        })
    }

    /// Reads the fixed part; `bytes` is the header's first 64.
    pub(super) fn decode(bytes: &[u8], versions: Versions) -> Result<Self, HeaderFault> {
        let header: Self = decode(bytes).ok_or(HeaderFault::Damaged)?;
        if header.magic != SHARD_MAGIC || !checksum_fits(bytes) {
            return Err(HeaderFault::Damaged);
        }
        check(versions, header.version).map(|()| header)
    }
}

impl Superblock {
    /// The file's content.
    pub(super) fn encode(&self) -> [u8; DATABASE_BYTES] {
        with_checksum(encode(self))
    }

    /// Reads the file's content.
    pub(super) fn decode(bytes: &[u8], versions: Versions) -> Result<Self, HeaderFault> {
        let superblock: Self = decode(bytes).ok_or(HeaderFault::Damaged)?;
        if superblock.magic != DATABASE_MAGIC || !checksum_fits(bytes) {
            return Err(HeaderFault::Damaged);
        }
        check(versions, superblock.version)?;
        if superblock.shards as usize != SHARDS {
            return Err(HeaderFault::Damaged);
        }
        Ok(superblock)
    }
}

impl StoredLimits {
    /// As in the file, with their checksum.
    pub(super) fn encode(&self) -> [u8; EVENT_LIMITS_BYTES] {
        with_checksum(encode(self))
    }

    /// Reads the limits; `None` if they are missing or damaged.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        decode(bytes).filter(|_| bytes.len() == EVENT_LIMITS_BYTES && checksum_fits(bytes))
    }
}

/// Whether a version can be read.
fn check(versions: Versions, version: u32) -> Result<(), HeaderFault> {
    match version {
        // No version of exirate has written this.
        0 => Err(HeaderFault::Damaged),
        _ => versions.check(version).map_err(|other| HeaderFault::Version(other.found)),
    }
}

/// The number of bits of the value in a sealed field.
const SEALED_BITS: u32 = 40;
/// Their mask.
const SEALED_MASK: u64 = (1 << SEALED_BITS) - 1;

/// The upper 24 bits of a sealed field. The last is always 1, so that no sealed field is
/// zero.
#[inline]
fn seal_check(value: u64, seed: u32) -> u64 {
    let mixed = (value ^ (u64::from(seed) << 8)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    ((mixed >> SEALED_BITS) | 1) << SEALED_BITS
}

/// A number of at most 40 bits with a check value, stored atomically.
#[inline]
pub(super) fn seal(value: u64, seed: u32) -> u64 {
    let value = value & SEALED_MASK;
    value | seal_check(value, seed)
}

/// The number in a sealed field, or `None` if the check value is wrong.
#[inline]
pub(super) fn unseal(word: u64, seed: u32) -> Option<u64> {
    let value = word & SEALED_MASK;
    (word == value | seal_check(value, seed)).then_some(value)
}

/// A second as a sealed field: years -15,000 to 19,000.
#[inline]
pub(super) fn seal_epoch(epoch: i64, seed: u32) -> u64 {
    let reach = 1 << (SEALED_BITS - 1);
    seal(epoch.clamp(-reach, reach - 1).cast_unsigned(), seed)
}

/// The second in a sealed field.
#[inline]
pub(super) fn unseal_epoch(word: u64, seed: u32) -> Option<i64> {
    let unused = u64::BITS - SEALED_BITS;
    unseal(word, seed).map(|value| (value << unused).cast_signed() >> unused)
}

#[cfg(test)]
mod tests {
    use super::*;
    use quickcheck::TestResult;

    fn header() -> Header {
        Header {
            magic: SHARD_MAGIC,
            version: VERSION,
            shard: 63,
            key: [7; 16],
            capacity: 496,
            heap_start: 4096,
            generation: 3,
            reserved: 0,
        }
    }

    #[test]
    fn headers_come_back_and_every_flipped_bit_is_noticed() {
        let bytes = header().encode();
        assert_eq!(Header::decode(&bytes, VERSIONS), Ok(header()));
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes;
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Header::decode(&flipped, VERSIONS), Err(HeaderFault::Damaged), "bit {bit}");
        }
        for version in [1, 3, u32::MAX] {
            let other = Header { version, ..header() };
            assert_eq!(
                Header::decode(&other.encode(), VERSIONS),
                Err(HeaderFault::Version(version))
            );
        }
        let never = Header { version: 0, ..header() };
        assert_eq!(Header::decode(&never.encode(), VERSIONS), Err(HeaderFault::Damaged));
        assert_eq!(Header::decode(&bytes[..63], VERSIONS), Err(HeaderFault::Damaged));
        assert_eq!(Header::decode(&[], VERSIONS), Err(HeaderFault::Damaged));
    }

    #[test]
    fn identities_come_back_and_every_flipped_bit_is_noticed() {
        let identity = Superblock {
            magic: DATABASE_MAGIC,
            version: VERSION,
            shards: 256,
            key: [9; 16],
            max_bytes: 1 << 40,
        };
        let bytes = identity.encode();
        assert_eq!(Superblock::decode(&bytes, VERSIONS), Ok(identity));
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes;
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(
                Superblock::decode(&flipped, VERSIONS),
                Err(HeaderFault::Damaged),
                "bit {bit}"
            );
        }
        for version in [1, 3, u32::MAX] {
            let other = Superblock { version, ..identity };
            let found = Superblock::decode(&other.encode(), VERSIONS);
            assert_eq!(found, Err(HeaderFault::Version(version)));
        }
        let other_shards = Superblock { shards: 255, ..identity };
        assert_eq!(Superblock::decode(&other_shards.encode(), VERSIONS), Err(HeaderFault::Damaged));
        let never = Superblock { version: 0, ..identity };
        assert_eq!(Superblock::decode(&never.encode(), VERSIONS), Err(HeaderFault::Damaged));
    }

    #[test]
    fn sealed_words_notice_every_flipped_bit() {
        fn holds(value: u64, seed: u32, bit: u8) -> TestResult {
            let value = value & SEALED_MASK;
            let word = seal(value, seed);
            if word == 0 || unseal(word, seed) != Some(value) {
                return TestResult::failed();
            }
            // The bit that is always 1 is checked as well.
            TestResult::from_bool(unseal(word ^ (1 << (bit % 64)), seed).is_none())
        }
        kit::quick_check().tests(20_000).quickcheck(holds as fn(u64, u32, u8) -> TestResult);
        assert_eq!(unseal(0, 0), None);
        assert_eq!(unseal(u64::MAX, 1), None);
    }

    #[test]
    fn epochs_come_back() {
        for epoch in [0, 1, -1, 1_700_000_000, -(1 << 39), (1 << 39) - 1] {
            assert_eq!(unseal_epoch(seal_epoch(epoch, 5), 5), Some(epoch));
        }
        assert_eq!(unseal_epoch(seal_epoch(i64::MAX, 5), 5), Some((1 << 39) - 1));
        assert_eq!(unseal_epoch(seal_epoch(i64::MIN, 5), 5), Some(-(1 << 39)));
    }

    #[test]
    fn states_come_back_with_their_size() {
        let state = State {
            at: -5,
            rate: 1.5,
            limit: f64::INFINITY,
            period: 3600,
            apart: 0.5,
            over_since: 7,
            last_over: 8,
            crossings: 3,
            sequence: 9,
        };
        let bytes: [u8; STATE_CRC] = encode(&state);
        assert_eq!(decode::<State>(&bytes), Some(state));
        assert_eq!(&bytes[44..], &9u32.to_le_bytes());
        assert_eq!(decode::<State>(&bytes[1..]), None);
    }
}
