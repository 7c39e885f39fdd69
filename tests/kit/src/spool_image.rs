//! Database files written according to `FORMAT.md`, independently of the code
//! under test: for files that exirate would not write, with correct checksums.
//!
//! The fuzz targets use this file too.

use siphasher::sip128::{Hash128, SipHasher24};

/// The key of all databases here, so that failures are reproducible.
pub const KEY: [u8; 16] = *b"a key for images";
/// An index entry without a record.
pub const EMPTY: u64 = 0xA5A5_A5A5_FFFF_FFFF;
/// The offset of the index.
pub const INDEX: usize = 192;
/// The offsets of a shard's flags, and of the checked words that describe its
/// heap.
pub const FLAGS: usize = 64;
pub const HEAP_END: usize = 72;
pub const LIVE: usize = 80;
pub const DEAD: usize = 88;
/// The time of the last tidying, four counts, and the size of the largest
/// record, also as checked words.
pub const OTHERS: [usize; 6] = [96, 104, 112, 120, 128, 136];
/// The offset of the key in a record, without and with a filter.
pub const PLAIN_KEY: usize = 124;
pub const FILTER_KEY: usize = 136;
/// The offset of the epoch in a record with a filter.
pub const EPOCH: usize = 128;
/// The checksum of a record's head.
const HEAD_CRC: usize = 16;
/// The offsets of a record's states, and the size of a state with and without its checksum.
pub const STATES: [usize; 2] = [20, 72];
pub const STATE: usize = 52;
pub const STATE_CRC: usize = 48;
/// The flags of a superseded shard, and of one that was being written to.
pub const SUPERSEDED: u32 = 1;
pub const BUSY: u32 = 2;

/// The position of a key: shard, fraction of the index, tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    pub shard: u8,
    pub fraction: u32,
    pub tag: u32,
}

impl Position {
    /// The position of `key`.
    pub fn of(key: &[u8]) -> Self {
        let Hash128 { h1, h2 } = SipHasher24::new_with_key(&KEY).hash(b"exirate key");
        let Hash128 { h1, h2 } = SipHasher24::new_with_keys(h1, h2).hash(key);
        // The whole name is the identity: there is no prefix to fold in.
        Self { shard: (h1 >> 56) as u8, fraction: h2 as u32, tag: (h2 >> 32) as u32 }
    }
}

/// Keys of the form `key N` that belong to shard `number`.
pub fn keys_of(number: u8) -> impl Iterator<Item = Vec<u8>> {
    (0_u64..)
        .map(|n| format!("key {n}").into_bytes())
        .filter(move |key| Position::of(key).shard == number)
}

/// The initial value of checksums.
pub fn seed() -> u32 {
    SipHasher24::new_with_key(&KEY).hash(b"exirate checksum").h1 as u32
}

/// The checksum of `bytes`, begun from `seed`.
pub fn checksum(seed: u32, bytes: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new_with_initial(seed);
    hasher.update(bytes);
    hasher.finalize()
}

/// The low 40 bits of `value` as a checked word.
pub fn sealed(value: u64) -> u64 {
    let value = value & 0xFF_FFFF_FFFF;
    let mixed = (value ^ u64::from(seed()) << 8).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    value | (mixed >> 40 | 1) << 40
}

/// The contents of the file `database`.
pub fn database() -> Vec<u8> {
    let mut bytes = [&b"EXIRATED"[..], &2_u32.to_le_bytes(), &256_u32.to_le_bytes(), &KEY].concat();
    bytes.extend((1_u64 << 30).to_le_bytes());
    append_checksum(&mut bytes);
    bytes
}

/// Appends the checksum of a copy of the key.
fn append_checksum(bytes: &mut Vec<u8>) {
    bytes.extend(checksum(0, bytes).to_le_bytes());
}

/// One of the two states of a record.
#[derive(Clone, Copy, Debug)]
pub struct State {
    pub at: i64,
    pub rate: f64,
    pub limit: f64,
    pub period: u32,
    pub over_since: u32,
    pub sequence: u32,
}

impl State {
    /// A state with this rate.
    pub fn of(rate: f64) -> Self {
        Self { at: 1_700_000_000_000_000, rate, limit: 1.0, period: 0, over_since: 0, sequence: 1 }
    }

    fn bytes(&self) -> [u8; STATE_CRC] {
        let mut bytes = [0; STATE_CRC];
        bytes[..8].copy_from_slice(&self.at.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.rate.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.limit.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.period.to_le_bytes());
        bytes[32..36].copy_from_slice(&self.over_since.to_le_bytes());
        bytes[44..].copy_from_slice(&self.sequence.to_le_bytes());
        bytes
    }
}

/// A record of `key` with one state, and a filter with these bits, if any.
pub fn record(key: &[u8], state: State, bits: Option<&[u8]>) -> Vec<u8> {
    let mut bytes = vec![0; PLAIN_KEY];
    bytes[4..6].copy_from_slice(&(key.len() as u16).to_le_bytes());
    // A spec, and the moving average.
    bytes[14..16].copy_from_slice(&[1, 1]);
    bytes[STATES[0]..][..STATE_CRC].copy_from_slice(&state.bytes());
    if let Some(bits) = bits {
        bytes[6] = 1;
        bytes[8..12].copy_from_slice(&(bits.len() as u32).to_le_bytes());
        bytes.resize(EPOCH, 0);
        bytes.extend(sealed(1_700_000_000).to_le_bytes());
    }
    bytes.extend(key);
    bytes.resize(bytes.len().next_multiple_of(8), 0);
    bytes.extend(bits.unwrap_or_default());
    bytes.resize(bytes.len().next_multiple_of(8), 0);
    let length = bytes.len() as u32;
    bytes[..4].copy_from_slice(&length.to_le_bytes());
    fix_record_checksums(&mut bytes, [true, false]);
    bytes
}

/// Corrects the checksum of the head, whatever it contains, and those of the
/// given states, as far as they are within `bytes`.
pub fn fix_record_checksums(bytes: &mut [u8], states: [bool; 2]) {
    let Some(head) = bytes.first_chunk::<HEAD_CRC>() else { return };
    let key_bytes = usize::from(u16::from_le_bytes([head[4], head[5]]));
    let start = if head[6..8] == [1, 0] { FILTER_KEY } else { PLAIN_KEY };
    let key = bytes.get(start..).unwrap_or_default();
    let key = key.get(..key_bytes).unwrap_or(key);
    let crc = checksum(checksum(seed(), head), key);
    if let Some(place) = bytes.get_mut(HEAD_CRC..HEAD_CRC + 4) {
        place.copy_from_slice(&crc.to_le_bytes());
    }
    for at in STATES.into_iter().zip(states).filter_map(|(at, wanted)| wanted.then_some(at)) {
        let Some((covered, sum)) = bytes.get_mut(at..at + STATE).map(|s| s.split_at_mut(STATE_CRC))
        else {
            continue;
        };
        sum.copy_from_slice(&checksum(crc, covered).to_le_bytes());
    }
}

/// The file of a shard.
#[derive(Clone, Debug)]
pub struct Shard {
    pub number: u8,
    pub capacity: usize,
    pub bytes: Vec<u8>,
}

impl Shard {
    /// An empty shard with an index of `capacity` entries.
    pub fn new(number: u8, capacity: usize) -> Self {
        let mut bytes = [&b"EXIRATES"[..], &2_u32.to_le_bytes()].concat();
        bytes.extend(u32::from(number).to_le_bytes());
        bytes.extend(KEY);
        bytes.extend((capacity as u64).to_le_bytes());
        bytes.extend((INDEX as u64 + 8 * capacity as u64).to_le_bytes());
        bytes.extend(1_u64.to_le_bytes());
        bytes.extend([0; 4]);
        append_checksum(&mut bytes);
        bytes.resize(INDEX, 0);
        bytes.extend(EMPTY.to_le_bytes().repeat(capacity));
        let mut shard = Self { number, capacity, bytes };
        shard.set_totals(0);
        shard
    }

    /// Writes numbers of 4 or 8 bytes to the fixed part of the header at `at`,
    /// with a correct checksum.
    pub fn header(&mut self, at: usize, bytes: &[u8]) {
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
        self.fix_header_checksum();
    }

    /// Corrects the checksum of the header.
    pub fn fix_header_checksum(&mut self) {
        if let Some((covered, rest)) = self.bytes.split_at_mut_checked(60)
            && let Some(sum) = rest.first_chunk_mut::<4>()
        {
            *sum = checksum(0, covered).to_le_bytes();
        }
    }

    /// Writes a word at any offset.
    pub fn word(&mut self, at: usize, word: u64) {
        if let Some(place) = self.bytes.get_mut(at..at + 8) {
            place.copy_from_slice(&word.to_le_bytes());
        }
    }

    /// The offset of the heap.
    pub fn heap_start(&self) -> usize {
        INDEX + 8 * self.capacity
    }

    /// Adds `record` at the end, and updates the numbers of records and dead
    /// bytes; returns its offset. No entry points to it.
    pub fn add(&mut self, record: &[u8]) -> usize {
        let offset = self.bytes.len();
        self.bytes.extend(record);
        offset
    }

    /// Points entry `slot` to `offset`.
    pub fn point(&mut self, slot: usize, tag: u32, offset: usize) {
        self.word(INDEX + 8 * slot, (u64::from(tag) << 32 | (offset / 8) as u64) ^ EMPTY);
    }

    /// Points the first free entry for `key` to `offset`; returns its number.
    pub fn index_key(&mut self, key: &[u8], offset: usize) -> usize {
        let place = Position::of(key);
        let start = ((u64::from(place.fraction) * self.capacity as u64) >> 32) as usize;
        let empty = |slot: &usize| {
            let at = INDEX + 8 * slot;
            self.bytes[at..at + 8] == EMPTY.to_le_bytes()
        };
        let slot = (start..self.capacity).chain(0..start).find(empty).unwrap_or(start);
        self.point(slot, place.tag, offset);
        slot
    }

    /// Adds a record of `key` with an entry; returns its offset.
    pub fn insert(&mut self, key: &[u8], rate: f64, bits: Option<&[u8]>) -> usize {
        let offset = self.add(&record(key, State::of(rate), bits));
        self.index_key(key, offset);
        offset
    }

    /// Sets the header to `live` entries, no dead ones, and a heap up to the
    /// end of the file.
    pub fn set_totals(&mut self, live: u64) {
        let end = self.bytes.len() as u64;
        self.word(HEAP_END, sealed(end));
        self.word(LIVE, sealed(live));
        self.word(DEAD, sealed(0));
        for at in OTHERS {
            self.word(at, sealed(0));
        }
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        self.word(OTHERS[0], sealed(now.map_or(0, |now| now.as_secs())));
    }

    /// The name of its file.
    pub fn name(&self) -> String {
        format!("{:02x}.shard", self.number)
    }
}
