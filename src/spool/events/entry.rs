//! One entry of the journal of crossings or of the log of refusals, as bytes.
//! `FORMAT.md` describes the same layout.

use crate::engine::AlgorithmKind;
use crate::rate::Timestamp;
use crate::store::{ByteReader, DETAILS, DETAILS_MAX, Enforcement, EventDetails};

/// The first bytes of an entry.
pub(in crate::spool) const MAGIC: [u8; 4] = *b"EXEV";
/// The version of the layout.
pub(in crate::spool) const VERSION: u8 = 1;
/// The offset of the size of the whole entry.
pub(in crate::spool) const BYTES: usize = 4;
/// The offset of the checksum, which covers all but itself.
pub(in crate::spool) const CRC: usize = 8;
/// The size of the fixed part.
pub(in crate::spool) const HEAD_BYTES: usize = 44;
/// The size of a window.
pub(in crate::spool) const WINDOW_BYTES: usize = 40;
/// The most windows of an entry; a check may have more, which are left out.
pub const EVENT_WINDOWS_MAX: usize = 8;
/// How many texts an entry has.
pub(in crate::spool) const TEXTS: usize = 1 + DETAILS.len();
/// The longest texts, in bytes, in their order; a longer one is cut.
pub(in crate::spool) const TEXTS_MAX: [usize; TEXTS] = {
    let mut all = [512; TEXTS];
    let (_, details) = all.split_at_mut(1);
    details.copy_from_slice(&DETAILS_MAX);
    all
};
/// The largest entry.
pub(in crate::spool) const ENTRY_BYTES_MAX: usize = {
    let mut bytes = HEAD_BYTES + EVENT_WINDOWS_MAX * WINDOW_BYTES;
    let mut text = 0;
    while text < TEXTS {
        bytes += 2 + TEXTS_MAX[text];
        text += 1;
    }
    bytes
};
const _: () = assert!(ENTRY_BYTES_MAX <= u16::MAX as usize);

/// What an entry says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::spool) enum EntryKind {
    /// A record has crossed its limit.
    Crossing,
    /// The details of a crossing that was written before.
    Details,
    /// An event was over an enforced limit.
    Refusal,
    /// An administrator has reset the record.
    Reset,
    /// An entry was removed.
    Blank,
}

impl EntryKind {
    const ALL: [(Self, u8); 5] = [
        (Self::Crossing, 1),
        (Self::Details, 2),
        (Self::Refusal, 3),
        (Self::Reset, 4),
        (Self::Blank, 5),
    ];

    fn byte(self) -> u8 {
        Self::ALL.iter().find(|(what, _)| *what == self).map_or(0, |(_, byte)| *byte)
    }

    fn of(byte: u8) -> Option<Self> {
        Self::ALL.iter().find(|(_, known)| *known == byte).map(|(what, _)| *what)
    }
}

/// The identity of a record in entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(in crate::spool) struct RecordId {
    /// The keyed hash of its name.
    pub(in crate::spool) hash: u64,
    /// As in the record: 1 of a spec, 2 of a policy.
    pub(in crate::spool) kind: u8,
    /// As in the record: 1 moving average, 2 leaky bucket, 3 calendar window.
    pub(in crate::spool) algorithm: u8,
}

/// One limit and the rate that was compared with it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct EventWindow {
    /// The limit; of a bucket, the burst.
    pub limit: f64,
    /// The period in seconds.
    pub period: f64,
    /// The rate or level that was remembered before the event, not decayed since; the count of
    /// the calendar window; of a share, what went out.
    pub before: f64,
    /// The rate, level or count with the event.
    pub after: f64,
    /// What the event counts; 0 if it counts nothing, or was logged by an exirate that did
    /// not log this. Of a share, what has failed.
    pub count: f32,
    /// How it is counted.
    pub algorithm: AlgorithmKind,
    /// The second (since 1970) in which the calendar window starts again; 0 of others.
    pub restarts: i64,
    /// Whether it was over.
    pub over: bool,
}

/// An entry.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::spool) struct Entry {
    pub(in crate::spool) what: EntryKind,
    pub(in crate::spool) record: RecordId,
    /// The number of the crossing.
    pub(in crate::spool) number: u32,
    pub(in crate::spool) at: Timestamp,
    /// The sequence number of the record's state before the event.
    pub(in crate::spool) sequence: u32,
    /// 1: leaky; 2: strict.
    pub(in crate::spool) update: u8,
    pub(in crate::spool) identity_start: u16,
    pub(in crate::spool) enforcement: Enforcement,
    pub(in crate::spool) windows: Vec<EventWindow>,
    /// The record's name, then the texts of [`EventDetails`] in order.
    pub(in crate::spool) texts: [Vec<u8>; TEXTS],
}

/// A crossing or refusal that waits for its details, and its shard.
#[derive(Debug)]
pub(in crate::spool) struct PendingEvent {
    pub(in crate::spool) entry: Entry,
    pub(in crate::spool) shard: u8,
}

/// Where among the texts the evidence of an alarm is.
pub(in crate::spool) const EVIDENCE: usize = TEXTS - 1;
const _: () = assert!(DETAILS_MAX[EVIDENCE - 1] == 256);

/// The texts of an entry.
pub(in crate::spool) fn texts(name: &[u8], details: &EventDetails<'_>) -> [Vec<u8>; TEXTS] {
    let mut texts: [Vec<u8>; TEXTS] = Default::default();
    let all = [name].into_iter().chain(details.texts());
    for ((text, whole), most) in texts.iter_mut().zip(all).zip(TEXTS_MAX) {
        text.extend_from_slice(whole.get(..most).unwrap_or(whole));
    }
    texts
}

impl Entry {
    /// The entry as bytes, with a checksum of `seed`.
    pub(in crate::spool) fn encode(&self, seed: u32) -> Vec<u8> {
        self.encode_to(seed, 0)
    }

    /// As [`Entry::encode`], with zeros at the end up to `least` bytes.
    pub(in crate::spool) fn encode_to(&self, seed: u32, least: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(ENTRY_BYTES_MAX);
        let micros =
            self.at.seconds.saturating_mul(1_000_000).saturating_add(self.at.micros.into());
        let windows = self.windows.iter().take(EVENT_WINDOWS_MAX);
        bytes.extend(MAGIC);
        bytes.extend([0, 0, VERSION, self.what.byte()]);
        bytes.extend([0; 4]);
        bytes.extend(self.number.to_le_bytes());
        bytes.extend(micros.to_le_bytes());
        bytes.extend(self.record.hash.to_le_bytes());
        bytes.extend(self.sequence.to_le_bytes());
        bytes.extend([self.record.kind, self.record.algorithm, self.update, windows.len() as u8]);
        bytes.extend(self.identity_start.to_le_bytes());
        bytes.extend([self.enforcement.byte(), 0]);
        for window in windows {
            let (algorithm, third) = match window.algorithm {
                AlgorithmKind::MovingAverage => (0, window.before),
                AlgorithmKind::Bucket => (1, window.before),
                AlgorithmKind::Calendar => (2, window.restarts as f64),
                AlgorithmKind::Share => (3, window.before),
            };
            for number in [window.limit, window.period, third, window.after] {
                bytes.extend(number.to_le_bytes());
            }
            bytes.extend([algorithm, u8::from(window.over), 0, 0]);
            bytes.extend(window.count.to_le_bytes());
        }
        for (text, most) in self.texts.iter().zip(TEXTS_MAX) {
            let text = text.get(..most).unwrap_or(text);
            bytes.extend((text.len() as u16).to_le_bytes());
            bytes.extend(text);
        }
        bytes.resize(bytes.len().max(least.min(ENTRY_BYTES_MAX)), 0);
        let size = (bytes.len() as u16).to_le_bytes();
        put(&mut bytes, BYTES, &size);
        let crc = checksum(&bytes, seed).to_le_bytes();
        put(&mut bytes, CRC, &crc);
        bytes
    }

    /// The entry at the start of `bytes`, and its size.
    pub(in crate::spool) fn decode(bytes: &[u8], seed: u32) -> Result<(Self, usize), EntryFault> {
        let head = bytes.get(..MAGIC.len().min(bytes.len())).unwrap_or_default();
        if !MAGIC.starts_with(head) {
            return Err(EntryFault::Damaged);
        }
        if bytes.len() < HEAD_BYTES {
            return Err(EntryFault::Cut);
        }
        let mut reader = reader_at(bytes, BYTES);
        let size = usize::from(reader.u16().ok_or(EntryFault::Damaged)?);
        if !(HEAD_BYTES..=ENTRY_BYTES_MAX).contains(&size) {
            return Err(EntryFault::Damaged);
        }
        let all = bytes.get(..size).ok_or(EntryFault::Cut)?;
        let stored = reader_at(all, CRC).u32().ok_or(EntryFault::Damaged)?;
        if checksum(all, seed) != stored {
            return Err(EntryFault::Damaged);
        }
        let entry = Self::read(all).ok_or(EntryFault::Unknown(size))?;
        Ok((entry, size))
    }

    /// The fields of an entry whose checksum is right; `None` if it is of a version or a
    /// kind that is not known.
    fn read(all: &[u8]) -> Option<Self> {
        let mut reader = reader_at(all, BYTES + 2);
        let [version, what] = reader.array()?;
        let what = EntryKind::of(what).filter(|_| version == VERSION)?;
        let _crc = reader.u32()?;
        let number = reader.u32()?;
        let micros = reader.i64()?;
        let hash = reader.array().map(u64::from_le_bytes)?;
        let sequence = reader.u32()?;
        let [kind, algorithm, update, windows] = reader.array()?;
        let identity_start = reader.u16()?;
        let [enforcement, _reserved] = reader.array()?;
        let mut entry = Self {
            what,
            record: RecordId { hash, kind, algorithm },
            number,
            at: Timestamp {
                seconds: micros.div_euclid(1_000_000),
                micros: micros.rem_euclid(1_000_000) as u32,
            },
            sequence,
            update,
            identity_start,
            enforcement: Enforcement::of(enforcement),
            windows: Vec::new(),
            texts: Default::default(),
        };
        if usize::from(windows) > EVENT_WINDOWS_MAX {
            return None;
        }
        for _ in 0..windows {
            let mut number = || reader.array().map(f64::from_le_bytes);
            let [limit, period, third, after] = [number()?, number()?, number()?, number()?];
            let [algorithm, over, _, _]: [u8; 4] = reader.array()?;
            let count = reader.array().map(f32::from_le_bytes)?;
            let (algorithm, before, restarts) = match algorithm {
                0 => (AlgorithmKind::MovingAverage, third, 0),
                2 => (AlgorithmKind::Calendar, (after - f64::from(count)).max(0.0), third as i64),
                3 => (AlgorithmKind::Share, third, 0),
                _ => (AlgorithmKind::Bucket, third, 0),
            };
            let over = over != 0;
            let window =
                EventWindow { limit, period, before, after, count, algorithm, restarts, over };
            entry.windows.push(window);
        }
        for (text, most) in entry.texts.iter_mut().zip(TEXTS_MAX) {
            // An entry without the texts that were added later.
            if reader.rest.is_empty() {
                break;
            }
            *text = reader.text().filter(|text| text.len() <= most)?.to_vec();
        }
        reader.rest.iter().all(|&byte| byte == 0).then_some(entry)
    }
}

/// Why there is no entry at a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::spool) enum EntryFault {
    /// The bytes are no entry.
    Damaged,
    /// They may be the beginning of one, and end too early.
    Cut,
    /// They are an entry of a kind or version that is not known, of this size.
    Unknown(usize),
}

/// The offset of the next place where an entry may begin, after the first byte.
pub(in crate::spool) fn next_magic(bytes: &[u8]) -> usize {
    let after = bytes.get(1..).unwrap_or_default();
    let found = after.windows(MAGIC.len()).position(|window| window == MAGIC);
    // The beginning of one may be at the end.
    let tail = after.len().saturating_sub(MAGIC.len() - 1);
    let at_end = || {
        let begins = |at: &usize| after.get(*at..).is_some_and(|rest| MAGIC.starts_with(rest));
        (tail..after.len()).find(begins)
    };
    1 + found.or_else(at_end).unwrap_or(after.len())
}

/// Whether another entry begins within bytes that begin one: then that one was cut.
pub(in crate::spool) fn has_another(bytes: &[u8]) -> bool {
    bytes.get(1..).is_some_and(|rest| rest.windows(MAGIC.len()).any(|window| window == MAGIC))
}

fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    bytes.iter_mut().skip(at).zip(value).for_each(|(to, &from)| *to = from);
}

/// The checksum of everything but the checksum.
pub(in crate::spool) fn checksum(all: &[u8], seed: u32) -> u32 {
    let mut hasher = crc32fast::Hasher::new_with_initial(seed);
    hasher.update(all.get(..CRC).unwrap_or_default());
    hasher.update(all.get(CRC + 4..).unwrap_or_default());
    hasher.finalize()
}

fn reader_at(bytes: &[u8], at: usize) -> ByteReader<'_> {
    ByteReader { rest: bytes.get(at..).unwrap_or_default() }
}
