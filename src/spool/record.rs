//! A record in a shard's heap: head, two states, key, filter.

use crate::engine::{self, AlgorithmKind, Change, Filter, Kind, RecordKey, Remembered};
use crate::rate::bloom::{self, Event};
use crate::rate::share::Booked;
use crate::rate::{Algorithm, Average, Timestamp, calendar, usage};
use crate::store::USAGE;
use crate::sys::mapping::Mapping;

use super::format::{
    ALIGN, BUCKET, CALENDAR, EPOCH, FILTER_KEY, HAS_FILTER, HEAD_BYTES, HEAD_CRC, KEY_BYTES_MAX,
    KIND_HABITS, KIND_POLICY, KIND_SPEC, KIND_USAGE, NEVER, PLAIN_KEY, RecordHead, SHARE,
    STATE_BYTES, STATE_CRC, STATES, State, checksum, decode, encode, seal_epoch, unseal_epoch,
};

use super::hashing::{Hashing, KeySlot};
use super::slots::SLOTS_BYTES;

/// The size of the words of a record of usage.
pub(super) const USAGE_BYTES: usize = usage::WORDS * 8;
/// Not a valid sealed epoch: the filter is void.
const VOID: u64 = 0;

/// A record with a sound head that lies within the mapping.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Record {
    /// Its offset in the file.
    pub(super) offset: usize,
    /// Its whole size in bytes.
    pub(super) bytes: usize,
    key_bytes: usize,
    identity_start: usize,
    /// What it belongs to and how its rate is computed, as codes of the format. A later
    /// exirate may have more codes.
    codes: (u8, u8),
    /// The size of its filter, if it has one.
    pub(super) filter_bytes: Option<usize>,
    /// The head's checksum. It is the start value of the states' checksums, so that a
    /// state is valid in its own record only.
    crc: u32,
    /// The valid state that was written last at the time of reading.
    pub(super) current: Option<Current>,
}

impl Record {
    /// The sequence number of the current state; 0 if there is none.
    // Not inlined: the compiler would read `current` before it knows that there is a
    // record, which is harmless, but valgrind reports it.
    #[inline(never)]
    pub(super) fn sequence(&self) -> u32 {
        self.current.map_or(0, |current| current.state.sequence)
    }
}

/// A record's current state, and which of the two it is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Current {
    pub(super) state: State,
    which: usize,
}

/// What a new filter holds.
#[derive(Clone, Copy, Debug)]
pub(super) enum Fill<'a> {
    /// Its first event.
    Event(Event),
    /// All bits of an existing filter.
    Bits(&'a [u8]),
}

/// The next multiple of [`ALIGN`].
fn aligned(bytes: usize) -> usize {
    bytes.next_multiple_of(ALIGN)
}

/// The offset of the key in a record, with a filter or without.
fn key_offset(filter: bool) -> usize {
    if filter { FILTER_KEY } else { PLAIN_KEY }
}

/// The size of a record for a key of `key_bytes` and a filter.
pub(super) fn record_bytes(key_bytes: usize, filter_bytes: Option<usize>) -> usize {
    let plain = aligned(key_offset(filter_bytes.is_some()) + key_bytes);
    plain + aligned(filter_bytes.unwrap_or(0))
}

/// The size of the largest record, rounded up.
pub(super) const RECORD_BYTES_MAX: usize =
    FILTER_KEY + KEY_BYTES_MAX + bloom::MAX_BYTES + 2 * ALIGN;

/// The checksum over a head and its key.
fn head_checksum(seed: u32, head: &[u8], key: &[u8]) -> u32 {
    checksum(checksum(seed, head), key)
}

/// The codes in the head of a record of this kind and algorithm.
#[inline]
fn codes(kind: Kind, algorithm: AlgorithmKind) -> (u8, u8) {
    let kind = match kind {
        Kind::Spec => KIND_SPEC,
        Kind::Policy => KIND_POLICY,
        Kind::Habits => KIND_HABITS,
        Kind::Usage => KIND_USAGE,
    };
    (kind, algorithm.code())
}

/// The kind and algorithm with these codes, if this exirate knows them.
fn known(codes: (u8, u8)) -> Option<(Kind, AlgorithmKind)> {
    let kind = match codes.0 {
        KIND_SPEC => Kind::Spec,
        KIND_POLICY => Kind::Policy,
        KIND_HABITS => Kind::Habits,
        KIND_USAGE => Kind::Usage,
        _ => return None,
    };
    Some((kind, AlgorithmKind::of_code(codes.1)?))
}

/// The stored form of a period. Rounded up, as it does no harm to keep a record for too
/// long.
#[inline]
fn stored_period(period: f64, algorithm: u8) -> u32 {
    if algorithm == BUCKET {
        let nearest = period as f32;
        let up = if f64::from(nearest) < period { nearest.next_up() } else { nearest };
        up.to_bits()
    } else {
        // Saturating.
        period.ceil() as u32
    }
}

/// Whether this is a period that a record was counted with.
pub(super) fn period_is_known(period: f64) -> bool {
    period > 0.0
}

impl State {
    fn new(state: &engine::State, algorithm: u8, sequence: u32) -> Self {
        let (at, rate) = match state.average {
            Some(Average { at, rate }) => {
                let seconds = at.seconds.saturating_mul(1_000_000);
                (seconds.saturating_add(i64::from(at.micros)).max(NEVER + 1), rate)
            }
            None => (NEVER, 0.0),
        };
        Self {
            at,
            rate,
            limit: match algorithm {
                CALENDAR | SHARE => calendar::pack(state.limit, state.start),
                _ => state.limit,
            },
            period: stored_period(state.period, algorithm),
            apart: state.apart,
            over_since: state.over_since,
            last_over: state.last_over,
            crossings: state.crossings,
            sequence,
        }
    }

    /// The period in seconds, in a record with this algorithm.
    #[inline]
    pub(super) fn period(&self, algorithm: u8) -> f64 {
        if algorithm == BUCKET { f32::from_bits(self.period).into() } else { self.period.into() }
    }

    /// The limit, in a record with this algorithm.
    #[inline]
    pub(super) fn limit(&self, algorithm: u8) -> f64 {
        match algorithm {
            CALENDAR | SHARE => calendar::unpack(self.limit).0,
            _ => self.limit,
        }
    }

    /// The second in which the window began, or the least of a share, in a record with this algorithm.
    #[inline]
    fn start(&self, algorithm: u8) -> i64 {
        if matches!(algorithm, CALENDAR | SHARE) { calendar::unpack(self.limit).1 } else { 0 }
    }

    /// What remains of the rate, level or count at `now`, in a record with this algorithm; 0 if
    /// it holds none.
    pub(super) fn rate_at(&self, algorithm: u8, now: Timestamp) -> f64 {
        let period = self.period(algorithm);
        if !self.has_rate() {
            0.0
        } else if !period_is_known(period) {
            self.rate
        } else {
            // As a check that counts nothing computes it.
            self.counted(algorithm).after(Some(self.average()), now, 0.0)
        }
    }

    /// How it is counted, in a record with this algorithm, whose period is known.
    pub(super) fn counted(&self, algorithm: u8) -> Algorithm {
        let kind = AlgorithmKind::of_code(algorithm).unwrap_or_default();
        let period = self.period(algorithm);
        Algorithm::of_record(kind, self.limit(algorithm), period, self.start(algorithm))
    }

    /// Its contents for the engine, in a record with this algorithm.
    #[inline]
    pub(super) fn decoded(&self, algorithm: u8) -> engine::State {
        engine::State {
            average: (self.at != NEVER).then(|| self.average()),
            limit: self.limit(algorithm),
            period: self.period(algorithm),
            start: self.start(algorithm),
            over_since: self.over_since,
            last_over: self.last_over,
            crossings: self.crossings,
            apart: self.apart,
        }
    }

    /// Its moving average, or its level.
    pub(super) fn average(&self) -> Average {
        let micros = u32::try_from(self.at.rem_euclid(1_000_000)).unwrap_or(0);
        Average {
            at: Timestamp { seconds: self.at.div_euclid(1_000_000), micros },
            rate: self.rate,
        }
    }

    /// The state of a key that was reset, written after the one with `sequence`.
    pub(super) fn blank(sequence: u32) -> Self {
        Self {
            at: NEVER,
            rate: 0.0,
            limit: 0.0,
            period: 0,
            apart: 0.0,
            over_since: 0,
            last_over: 0,
            crossings: 0,
            sequence,
        }
    }

    /// Whether the key was reset.
    #[inline]
    pub(super) fn is_blank(&self) -> bool {
        self.at == NEVER && self.last_over == 0
    }

    /// Whether it holds a rate, and not only a crossing.
    #[inline]
    pub(super) fn has_rate(&self) -> bool {
        self.at != NEVER
    }

    /// Whether it was written after `other`; the numbers may wrap around.
    pub(super) fn is_after(&self, other: &Self) -> bool {
        self.sequence.wrapping_sub(other.sequence).cast_signed() > 0
    }
}

impl Record {
    /// The record at `offset`, or `None` if its head or key is damaged or it is not
    /// within the mapping.
    pub(super) fn read(map: &Mapping, offset: usize, seed: u32) -> Option<Self> {
        let mut record = Self::outline(map, offset)?;
        if !record.head_is_sound(map, seed)? || !record.has_the_bytes_of_its_kind() {
            return None;
        }
        record.current = record.latest_state(map);
        Some(record)
    }

    /// Whether what follows the key is as large as its kind wants it: only filters differ in size.
    fn has_the_bytes_of_its_kind(&self) -> bool {
        match self.codes.0 {
            KIND_HABITS => self.filter_bytes == Some(SLOTS_BYTES),
            KIND_USAGE => self.filter_bytes == Some(USAGE_BYTES),
            _ => true,
        }
    }

    /// The identity of a record that may be at `offset`: nothing is checked.
    pub(super) fn identity_at(map: &Mapping, offset: usize) -> Option<&[u8]> {
        let record = Self::outline(map, offset)?;
        record.key(map)?.get(record.identity_start..)
    }

    /// Whether the head's checksum is that of the head and the key.
    fn head_is_sound(&self, map: &Mapping, seed: u32) -> Option<bool> {
        let (head, _) = map.bytes(self.offset, HEAD_BYTES)?.split_at_checked(HEAD_CRC)?;
        Some(head_checksum(seed, head, self.key(map)?) == self.crc)
    }

    /// The record at `offset` if it is that of `key`; `None` if it is another one's or
    /// damaged.
    ///
    /// The head's checksum is not computed for a record without a filter that has a valid
    /// state: such a head follows from the key, and a state is valid only together with
    /// the right checksum of the head. It is computed if there is a filter, whose size
    /// only the checksum protects (those of habits and of usage are always the same), and if no state is valid: then the checksum itself may
    /// be damaged, and a state written with it would be valid here and nowhere else.
    #[inline]
    pub(super) fn of_key(
        map: &Mapping,
        offset: usize,
        key: &RecordKey<'_>,
        seed: u32,
    ) -> Option<Self> {
        let mut record = Self::outline(map, offset)?;
        if record.key(map)? != key.name
            || record.identity_start != key.identity_start
            || record.codes != codes(key.kind, key.algorithm)
        {
            return None;
        }
        record.current = record.latest_state(map);
        let is_known = match record.filter_bytes {
            None => true,
            Some(SLOTS_BYTES) => key.kind == Kind::Habits,
            Some(USAGE_BYTES) => key.kind == Kind::Usage,
            Some(_) => false,
        };
        let vouched_for = is_known && record.current.is_some();
        (vouched_for || record.head_is_sound(map, seed)?).then_some(record)
    }

    /// The record of usage of an account, if it is at `offset` and was not forgotten; without its
    /// state.
    #[inline]
    pub(super) fn of_usage(
        map: &Mapping,
        offset: usize,
        seed: u32,
        identity: &[u8],
    ) -> Option<Self> {
        let record = Self::outline(map, offset)?;
        let is_it = record.codes == codes(Kind::Usage, AlgorithmKind::MovingAverage)
            && record.filter_bytes == Some(USAGE_BYTES)
            && record.identity_start == USAGE.len()
            && record.key(map)?.strip_prefix(USAGE) == Some(identity);
        if !is_it {
            return None;
        }
        unseal_epoch(map.u64(record.offset + EPOCH)?, seed)?;
        Some(record)
    }

    /// The fields of a head, if they are possible: its sizes agree, and the whole record
    /// is within the mapping.
    #[inline]
    fn outline(map: &Mapping, offset: usize) -> Option<Self> {
        let (head, crc) = map.bytes(offset, HEAD_BYTES)?.split_at_checked(HEAD_CRC)?;
        let head: RecordHead = decode(head)?;
        let filter_bytes = match head.flags {
            0 if head.filter_bytes == 0 => None,
            HAS_FILTER => Some(head.filter_bytes as usize),
            _ => return None,
        };
        if filter_bytes.is_some_and(|bytes| bytes > bloom::MAX_BYTES) {
            return None;
        }
        let key_bytes = usize::from(head.key_bytes);
        let bytes = record_bytes(key_bytes, filter_bytes);
        if head.bytes as usize != bytes {
            return None;
        }
        map.bytes(offset, bytes)?;
        let crc = u32::from_le_bytes(crc.try_into().ok()?);
        let identity_start = usize::from(head.identity_start);
        if identity_start > key_bytes {
            return None;
        }
        let codes = (head.kind, head.algorithm);
        Some(Self {
            offset,
            bytes,
            key_bytes,
            identity_start,
            codes,
            filter_bytes,
            crc,
            current: None,
        })
    }

    /// Writes a complete new record at `offset`, where [`record_bytes`] bytes of heap are
    /// free.
    pub(super) fn write_new(
        map: &mut Mapping,
        offset: usize,
        seed: u32,
        record_key: &RecordKey<'_>,
        filter_bytes: Option<usize>,
    ) -> Option<Self> {
        let (key, identity_start) = (record_key.name, record_key.identity_start);
        let bytes = record_bytes(key.len(), filter_bytes);
        let codes = codes(record_key.kind, record_key.algorithm);
        let head = RecordHead {
            bytes: u32::try_from(bytes).ok()?,
            key_bytes: u16::try_from(key.len().min(KEY_BYTES_MAX)).ok()?,
            flags: if filter_bytes.is_some() { HAS_FILTER } else { 0 },
            filter_bytes: u32::try_from(filter_bytes.unwrap_or(0)).ok()?,
            identity_start: u16::try_from(identity_start).ok()?,
            kind: codes.0,
            algorithm: codes.1,
        };
        let head: [u8; HEAD_CRC] = encode(&head);
        let crc = head_checksum(seed, &head, key);
        map.clear(offset, bytes)?;
        map.write(offset, &head)?;
        map.write(offset + HEAD_CRC, &crc.to_le_bytes())?;
        map.write(offset + key_offset(filter_bytes.is_some()), key)?;
        Some(Self {
            offset,
            bytes,
            key_bytes: key.len(),
            identity_start,
            codes,
            filter_bytes,
            crc,
            current: None,
        })
    }

    /// Whether it is that of an account's habits.
    pub(super) fn is_of_habits(&self) -> bool {
        self.codes.0 == KIND_HABITS
    }

    /// Whether it is what an account sends.
    pub(super) fn is_of_usage(&self) -> bool {
        self.codes.0 == KIND_USAGE
    }

    /// Its code of how it is counted.
    pub(super) fn algorithm(&self) -> u8 {
        self.codes.1
    }

    /// Which record it is; `None` if this exirate does not know its kind or algorithm.
    pub(super) fn record_key<'a>(&self, map: &'a Mapping) -> Option<RecordKey<'a>> {
        let (kind, algorithm) = known(self.codes)?;
        let (name, identity_start) = (self.key(map)?, self.identity_start);
        Some(RecordKey { name, identity_start, kind, algorithm })
    }

    /// Its position in the index, for records of any kind.
    pub(super) fn slot(&self, map: &Mapping, hashing: &Hashing) -> Option<KeySlot> {
        let (name, identity_start) = (self.key(map)?, self.identity_start);
        // Neither the kind nor the algorithm matters.
        Some(hashing.place(RecordKey { identity_start, ..name.into() }))
    }

    /// The name up to the identity: the same for all records of one limit.
    pub(super) fn prefix<'a>(&self, map: &'a Mapping) -> Option<&'a [u8]> {
        self.key(map)?.get(..self.identity_start)
    }

    /// What distinguishes it from all other records of its shard.
    pub(super) fn distinct<'a>(&self, map: &'a Mapping) -> Option<(&'a [u8], usize, (u8, u8))> {
        Some((self.key(map)?, self.identity_start, self.codes))
    }

    /// The key's text.
    #[inline]
    pub(super) fn key<'a>(&self, map: &'a Mapping) -> Option<&'a [u8]> {
        map.bytes(self.offset + key_offset(self.filter_bytes.is_some()), self.key_bytes)
    }

    /// One of the two states, and whether it is valid.
    #[inline]
    fn state(&self, map: &Mapping, which: usize) -> Option<(State, impl Fn() -> bool)> {
        let bytes = map.bytes(self.offset + STATES.get(which)?, STATE_BYTES)?;
        let (covered, crc) = bytes.split_at_checked(STATE_CRC)?;
        let seed = self.crc;
        let valid = move || checksum(seed, covered).to_le_bytes() == crc;
        Some((decode(covered)?, valid))
    }

    /// The valid state that was written last. The checksum of the earlier one is computed
    /// only if the later one is not valid.
    #[inline]
    fn latest_state(&self, map: &Mapping) -> Option<Current> {
        let (a, a_is_valid) = self.state(map, 0)?;
        let (b, b_is_valid) = self.state(map, 1)?;
        let (a, b) = (Current { state: a, which: 0 }, Current { state: b, which: 1 });
        if b.state.is_after(&a.state) {
            b_is_valid().then_some(b).or_else(|| a_is_valid().then_some(a))
        } else {
            a_is_valid().then_some(a).or_else(|| b_is_valid().then_some(b))
        }
    }

    /// The contents of the record for the engine.
    #[inline]
    pub(super) fn remembered<'a>(&self, map: &'a Mapping, seed: u32) -> Option<Remembered<'a>> {
        let Current { state, .. } = self.current?;
        if state.is_blank() {
            return None;
        }
        Some(Remembered { state: state.decoded(self.algorithm()), filter: self.filter(map, seed) })
    }

    /// The filter, if there is one and it is not void.
    #[inline]
    pub(super) fn filter<'a>(&self, map: &'a Mapping, seed: u32) -> Option<Filter<'a>> {
        let bytes = self.filter_bytes?;
        let epoch = unseal_epoch(map.u64(self.offset + EPOCH)?, seed)?;
        Some(Filter { epoch, bits: map.bytes(self.filter_offset(), bytes)? })
    }

    /// The offset of the filter's bits.
    pub(super) fn filter_offset(&self) -> usize {
        self.offset + aligned(FILTER_KEY + self.key_bytes)
    }

    /// Writes a new state over the one that is not current. `base` is the sequence number
    /// to continue from if neither is valid.
    #[inline]
    pub(super) fn write_state(&self, map: &mut Mapping, change: &Change, base: u32) -> Option<()> {
        self.write(map, base, |sequence| State::new(&change.state, self.algorithm(), sequence))
    }

    /// Writes the state of a key that was reset.
    pub(super) fn write_blank(&self, map: &mut Mapping) -> Option<()> {
        self.write(map, 0, State::blank)
    }

    /// Writes the state that `state` returns for the next sequence number.
    #[inline]
    fn write(&self, map: &mut Mapping, base: u32, state: impl FnOnce(u32) -> State) -> Option<()> {
        let (which, sequence) = match self.current {
            Some(current) => (1 - current.which, current.state.sequence),
            None => (0, base),
        };
        let covered: [u8; STATE_CRC] = encode(&state(sequence.wrapping_add(1)));
        let mut bytes = [0; STATE_BYTES];
        let (head, tail) = bytes.split_at_mut(STATE_CRC);
        head.copy_from_slice(&covered);
        tail.copy_from_slice(&checksum(self.crc, &covered).to_le_bytes());
        map.write(self.offset + STATES.get(which)?, &bytes)
    }

    /// Adds `event` to the filter, unless it is void or missing.
    #[inline]
    pub(super) fn insert(&self, map: &mut Mapping, seed: u32, event: Event) -> Option<()> {
        if self.filter(map, seed).is_none() {
            return Some(());
        }
        map.change(self.filter_offset(), self.filter_bytes?, |bits| bloom::insert(bits, event))
    }

    /// Changes a bucket of a share, whose buckets are not void.
    pub(super) fn book(&self, map: &mut Mapping, booked: Booked) -> Option<()> {
        map.set_u64(self.filter_offset() + booked.index * 8, booked.word)
    }

    /// Marks the filter as void.
    pub(super) fn void_filter(&self, map: &mut Mapping) -> Option<()> {
        self.filter_bytes?;
        map.set_u64(self.offset + EPOCH, VOID)
    }

    /// Clears the bits of a void filter.
    pub(super) fn clear_filter(&self, map: &mut Mapping) -> Option<()> {
        map.clear(self.filter_offset(), self.filter_bytes?)
    }

    /// Starts a void filter whose bits are clear.
    pub(super) fn begin_filter(
        &self,
        map: &mut Mapping,
        seed: u32,
        epoch: i64,
        fill: Fill<'_>,
    ) -> Option<()> {
        let bytes = self.filter_bytes?;
        match fill {
            Fill::Event(event) => {
                map.change(self.filter_offset(), bytes, |bits| bloom::insert(bits, event))?;
            }
            Fill::Bits(bits) => map.write(self.filter_offset(), bits.get(..bytes)?)?,
        }
        map.set_u64(self.offset + EPOCH, seal_epoch(epoch, seed))
    }
}
