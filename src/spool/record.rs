//! One record in a shard's heap: head, two states, key, filter.

use crate::engine::{self, Change, Filter, Kind, RecordKey, Remembered};
use crate::rate::bloom::{self, Event};
use crate::rate::{Average, Timestamp};
use crate::sys::mapping::Mapping;

use super::format::{
    ALIGN, EPOCH, FILTER_KEY, HAS_FILTER, HEAD_BYTES, HEAD_CRC, Head, KEY_BYTES_MAX, KIND_POLICY,
    KIND_SPEC, MOVING_AVERAGE, NEVER, PLAIN_KEY, STATE_BYTES, STATE_CRC, STATES, State, checksum,
    decode, encode, seal_epoch, unseal_epoch,
};

use super::hashing::{Hashing, KeySlot};

/// A word that is no sealed epoch: the filter is void.
const VOID: u64 = 0;

/// A record whose head has been found sound and which lies in the mapping.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Record {
    /// Where it begins in the file.
    pub(super) offset: usize,
    /// Its whole size in bytes.
    pub(super) bytes: usize,
    key_bytes: usize,
    identity_start: usize,
    /// What it belongs to, and how its rate is computed: codes of the format. A
    /// later exirate may have more of them.
    codes: (u8, u8),
    /// The size of its filter, where it has one.
    pub(super) filter_bytes: Option<usize>,
    /// The head's checksum; the states' checksums begin from it, so that a
    /// state is valid in its own record only.
    crc: u32,
    /// The valid state that was written last, when the record was read.
    pub(super) current: Option<Current>,
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
    /// These bits, as many as it has.
    Bits(&'a [u8]),
}

/// The next multiple of [`ALIGN`].
fn aligned(bytes: usize) -> usize {
    bytes.next_multiple_of(ALIGN)
}

/// Where the key is in a record, with a filter or without.
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

/// The codes in the head of a record of this kind.
fn codes(kind: Kind) -> (u8, u8) {
    let kind = match kind {
        Kind::Spec => KIND_SPEC,
        Kind::Policy => KIND_POLICY,
    };
    (kind, MOVING_AVERAGE)
}

impl State {
    fn new(state: &engine::State, sequence: u32) -> Self {
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
            limit: state.limit,
            // Saturating. Rounded up, as what is kept for too long harms nobody.
            period: state.period.ceil() as u32,
            apart: state.apart,
            over_since: state.over_since,
            last_over: state.last_over,
            crossings: state.crossings,
            sequence,
        }
    }

    /// What it says to the engine.
    #[inline]
    pub(super) fn decoded(&self) -> engine::State {
        engine::State {
            average: (self.at != NEVER).then(|| self.average()),
            limit: self.limit,
            period: self.period.into(),
            over_since: self.over_since,
            last_over: self.last_over,
            crossings: self.crossings,
            apart: self.apart,
        }
    }

    /// The moving average in it.
    pub(super) fn average(&self) -> Average {
        let micros = u32::try_from(self.at.rem_euclid(1_000_000)).unwrap_or(0);
        Average {
            at: Timestamp { seconds: self.at.div_euclid(1_000_000), micros },
            rate: self.rate,
        }
    }

    /// A state that says that the key has been forgotten by hand, written after
    /// the one with `sequence`.
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

    /// Whether it says that the key has been forgotten by hand.
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
    /// The record at `offset`, or `None` where its head or key is damaged, or
    /// it does not lie in the mapping.
    pub(super) fn read(map: &Mapping, offset: usize, seed: u32) -> Option<Self> {
        let mut record = Self::outline(map, offset)?;
        if !record.head_is_sound(map, seed)? {
            return None;
        }
        record.current = record.latest_state(map);
        Some(record)
    }

    /// Whether the head's checksum fits the head and the key.
    fn head_is_sound(&self, map: &Mapping, seed: u32) -> Option<bool> {
        let (head, _) = map.bytes(self.offset, HEAD_BYTES)?.split_at_checked(HEAD_CRC)?;
        Some(head_checksum(seed, head, self.key(map)?) == self.crc)
    }

    /// The record at `offset` if it is that of `key`; `None` where it is of
    /// another one, or damaged.
    ///
    /// The head's checksum is not looked at in a record without a filter that
    /// has a valid state: all that such a head says follows from the key, and a
    /// state is only valid with the checksum that the head ought to have. Where
    /// there is a filter, only the checksum tells its size; where no state is
    /// valid, the checksum itself may be what is damaged, and a state written
    /// with it would be believed here and nowhere else.
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
            || record.codes != codes(key.kind)
        {
            return None;
        }
        record.current = record.latest_state(map);
        let vouched_for = record.filter_bytes.is_none() && record.current.is_some();
        (vouched_for || record.head_is_sound(map, seed)?).then_some(record)
    }

    /// What a head says, if that can be true: its sizes agree, and the whole
    /// record lies in the mapping.
    #[inline]
    fn outline(map: &Mapping, offset: usize) -> Option<Self> {
        let (head, crc) = map.bytes(offset, HEAD_BYTES)?.split_at_checked(HEAD_CRC)?;
        let head: Head = decode(head)?;
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

    /// Writes a whole new record: at `offset` is free heap of [`record_bytes`]
    /// bytes.
    pub(super) fn write_new(
        map: &mut Mapping,
        offset: usize,
        seed: u32,
        record_key: &RecordKey<'_>,
        filter_bytes: Option<usize>,
    ) -> Option<Self> {
        let (key, identity_start) = (record_key.name, record_key.identity_start);
        let bytes = record_bytes(key.len(), filter_bytes);
        let codes = codes(record_key.kind);
        let head = Head {
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

    /// Which record it is; `None` where it is of a kind that this exirate does
    /// not know.
    pub(super) fn record_key<'a>(&self, map: &'a Mapping) -> Option<RecordKey<'a>> {
        let kind = [Kind::Spec, Kind::Policy].into_iter().find(|&kind| codes(kind) == self.codes);
        let (name, identity_start) = (self.key(map)?, self.identity_start);
        Some(RecordKey { name, identity_start, kind: kind? })
    }

    /// Where it belongs, whatever its kind.
    pub(super) fn slot(&self, map: &Mapping, hashing: &Hashing) -> Option<KeySlot> {
        let (name, identity_start) = (self.key(map)?, self.identity_start);
        Some(hashing.place(RecordKey { name, identity_start, kind: Kind::Spec }))
    }

    /// The key up to the identity: the same for all records of one line of a
    /// configuration.
    pub(super) fn prefix<'a>(&self, map: &'a Mapping) -> Option<&'a [u8]> {
        self.key(map)?.get(..self.identity_start)
    }

    /// What tells it from all others of its shard.
    pub(super) fn distinct<'a>(&self, map: &'a Mapping) -> Option<(&'a [u8], usize, (u8, u8))> {
        Some((self.key(map)?, self.identity_start, self.codes))
    }

    /// The key's text.
    #[inline]
    pub(super) fn key<'a>(&self, map: &'a Mapping) -> Option<&'a [u8]> {
        map.bytes(self.offset + key_offset(self.filter_bytes.is_some()), self.key_bytes)
    }

    /// One of the two states and whether it is valid.
    #[inline]
    fn state(&self, map: &Mapping, which: usize) -> Option<(State, impl Fn() -> bool)> {
        let bytes = map.bytes(self.offset + STATES.get(which)?, STATE_BYTES)?;
        let (covered, crc) = bytes.split_at_checked(STATE_CRC)?;
        let seed = self.crc;
        let valid = move || checksum(seed, covered).to_le_bytes() == crc;
        Some((decode(covered)?, valid))
    }

    /// The valid state that was written last. Only where the later one is not
    /// valid is the other one's checksum looked at.
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

    /// What is remembered here.
    #[inline]
    pub(super) fn remembered<'a>(&self, map: &'a Mapping, seed: u32) -> Option<Remembered<'a>> {
        let Current { state, .. } = self.current?;
        if state.is_blank() {
            return None;
        }
        Some(Remembered { state: state.decoded(), filter: self.filter(map, seed) })
    }

    /// The filter, where there is one that is not void.
    #[inline]
    pub(super) fn filter<'a>(&self, map: &'a Mapping, seed: u32) -> Option<Filter<'a>> {
        let bytes = self.filter_bytes?;
        let epoch = unseal_epoch(map.u64(self.offset + EPOCH)?, seed)?;
        Some(Filter { epoch, bits: map.bytes(self.filter_offset(), bytes)? })
    }

    /// Where the filter's bits begin.
    fn filter_offset(&self) -> usize {
        self.offset + aligned(FILTER_KEY + self.key_bytes)
    }

    /// Writes a new state over the one that is not current.
    ///
    /// `base` is the sequence to go on from where neither is.
    #[inline]
    pub(super) fn write_state(&self, map: &mut Mapping, change: &Change, base: u32) -> Option<()> {
        self.write(map, base, |sequence| State::new(&change.state, sequence))
    }

    /// Writes that the key has been forgotten by hand.
    pub(super) fn write_blank(&self, map: &mut Mapping) -> Option<()> {
        self.write(map, 0, State::blank)
    }

    /// Writes the state that `state` makes of its sequence.
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

    /// Adds `event` to the filter, where there is one that is not void.
    #[inline]
    pub(super) fn insert(&self, map: &mut Mapping, seed: u32, event: Event) -> Option<()> {
        if self.filter(map, seed).is_none() {
            return Some(());
        }
        map.change(self.filter_offset(), self.filter_bytes?, |bits| bloom::insert(bits, event))
    }

    /// Voids the filter: from this step on there is none.
    pub(super) fn void_filter(&self, map: &mut Mapping) -> Option<()> {
        self.filter_bytes?;
        map.set_u64(self.offset + EPOCH, VOID)
    }

    /// Clears the bits of a void filter.
    pub(super) fn clear_filter(&self, map: &mut Mapping) -> Option<()> {
        map.clear(self.filter_offset(), self.filter_bytes?)
    }

    /// Begins a void filter whose bits are clear.
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
