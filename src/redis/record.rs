//! A record as it is stored: see `record.lua`.

use crate::engine::{AlgorithmKind, Filter, Kind, RecordKey, Remembered, State};
use crate::rate::bloom::MAX_BYTES as FILTER_BYTES_MAX;
use crate::rate::{Average, Timestamp, calendar};
use crate::store::{ByteReader, FilterEntry};
use crate::versions::{OtherVersion, Versions};

/// The version of the layout.
const VERSION: u8 = 1;
/// The flag of a record that has a rate.
const HAS_RATE: u8 = 1;
/// The flag of a record that counts in a calendar window, or is a share: see `calendar::pack`.
const CALENDAR: u8 = 2;
/// The size of the header.
pub(super) const HEAD: usize = 92;
/// Times are whole microseconds, as a double can have them.
const TIME_MAX: f64 = (1_u64 << 53) as f64;
/// What all keys of records begin with.
pub(super) const PREFIX: &str = "exirate:{";

/// Whether this version of a record is known.
pub(super) fn known(version: u32) -> Result<(), OtherVersion> {
    Versions::only(VERSION.into()).check(version)
}

/// Whether a value is no record of a later version: what all versions begin with, `record.lua`
/// says.
pub(super) fn not_later(value: &[u8]) -> Result<(), OtherVersion> {
    match value {
        &[version, _, 0, 0, ..] if version > 0 => known(version.into()),
        _ => Ok(()),
    }
}

/// A record.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Record {
    /// Whether it counts in a calendar window, or is a share.
    pub(super) is_calendar: bool,
    /// Everything but the filter.
    pub(super) state: State,
    /// Its Bloom filter, if it has one.
    pub(super) filter: Option<FilterEntry>,
    /// The numbers of the latest events, the last one first.
    pub(super) events: [[u8; 8]; 4],
}

impl Record {
    /// Reads a record; `None` if it is none.
    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        let mut reader = ByteReader { rest: bytes };
        let [version, flags] = reader.array()?;
        let _unused = reader.u16()?;
        let mut number = || reader.array().map(f64::from_le_bytes);
        let (rate, at, limit, period) = (number()?, number()?, number()?, number()?);
        let mut number = || reader.u32();
        let (over_since, last_over, crossings) = (number()?, number()?, number()?);
        let filter_bytes = usize::try_from(number()?).ok()?;
        let epoch = reader.array().map(f64::from_le_bytes)?;
        let mut event = || reader.array();
        let events = [event()?, event()?, event()?, event()?];
        let is_number = |number: f64| number >= 0.0;
        if version != VERSION
            || ![rate, limit, period].into_iter().all(is_number)
            || at.is_nan()
            || at.abs() >= TIME_MAX
            || filter_bytes > FILTER_BYTES_MAX
            || reader.rest.len() != filter_bytes
        {
            return None;
        }
        let average = Average { at: Timestamp::from_micros(at as i64), rate };
        let (limit, start) = match flags & CALENDAR {
            0 => (limit, 0),
            _ => calendar::unpack(limit),
        };
        let state =
            State { start, over_since, last_over, crossings, ..State::new(average, limit, period) };
        let has_rate = flags & HAS_RATE != 0;
        Some(Self {
            is_calendar: flags & CALENDAR != 0,
            state: State { average: has_rate.then_some(average), ..state },
            filter: (filter_bytes > 0)
                .then(|| FilterEntry { epoch: epoch as i64, bits: reader.rest.to_vec() }),
            events,
        })
    }

    /// The record as it is stored.
    pub(super) fn write(&self) -> Vec<u8> {
        let State { average, limit, period, start, over_since, last_over, crossings, apart: _ } =
            self.state;
        let (flags, average) = match average {
            Some(average) => (HAS_RATE, average),
            None => (0, Average { at: Timestamp::default(), rate: 0.0 }),
        };
        let (epoch, bits) = match &self.filter {
            Some(filter) => (filter.epoch as f64, &filter.bits[..]),
            None => (0.0, &[][..]),
        };
        let (flags, limit) = match self.is_calendar {
            false => (flags, limit),
            true => (flags | CALENDAR, calendar::pack(limit, start)),
        };
        let mut bytes = vec![VERSION, flags, 0, 0];
        for number in [average.rate, average.at.as_micros() as f64, limit, period] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        let filter_bytes = u32::try_from(bits.len()).unwrap_or(0);
        for number in [over_since, last_over, crossings, filter_bytes] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        bytes.extend_from_slice(&epoch.to_le_bytes());
        bytes.extend(self.events.iter().flatten());
        bytes.extend_from_slice(bits);
        bytes
    }

    /// As the engine takes it.
    pub(super) fn remembered(&self) -> Remembered<'_> {
        let filter = self.filter.as_ref();
        let filter = filter.map(|one| Filter { epoch: one.epoch, bits: &one.bits });
        Remembered { state: self.state, filter }
    }

    /// The header of a record that is stored as `bytes`, which differs after every change.
    pub(super) fn header(bytes: &[u8]) -> &[u8] {
        bytes.get(..HEAD).unwrap_or(bytes)
    }
}

/// The letter of a kind in a key.
pub(super) fn kind_letter(kind: Kind) -> u8 {
    match kind {
        Kind::Spec => b's',
        Kind::Policy => b'p',
        Kind::Habits => b'h',
        Kind::Usage => b'u',
    }
}

/// The kind with this letter.
pub(super) fn kind_of(letter: u8) -> Option<Kind> {
    let all = [Kind::Spec, Kind::Policy, Kind::Habits, Kind::Usage];
    all.into_iter().find(|one| kind_letter(*one) == letter)
}

/// The letter of an algorithm in a key.
pub(super) fn algorithm_letter(algorithm: AlgorithmKind) -> u8 {
    match algorithm {
        AlgorithmKind::MovingAverage => b'm',
        AlgorithmKind::Bucket => b'b',
        AlgorithmKind::Calendar => b'c',
        AlgorithmKind::Share => b'f',
    }
}

/// The algorithm with this letter.
pub(super) fn algorithm_of(letter: u8) -> Option<AlgorithmKind> {
    let all = [1, 2, 3, 4].into_iter().filter_map(AlgorithmKind::of_code);
    all.into_iter().find(|one| algorithm_letter(*one) == letter)
}

/// The key of a record, whose identity has this tag.
pub(super) fn key(record: &RecordKey<'_>, tag: &str) -> Vec<u8> {
    let kind = char::from(kind_letter(record.kind));
    let algorithm = char::from(algorithm_letter(record.algorithm));
    let start = record.identity_start;
    let mut key = format!("{PREFIX}{tag}}}{kind}{algorithm}{start}:").into_bytes();
    key.extend_from_slice(record.name);
    key
}

/// The record that a key is that of, and the tag of its identity; `None` if it is none.
pub(super) fn read_key(key: &[u8]) -> Option<(RecordKey<'_>, &str)> {
    let rest = key.strip_prefix(PREFIX.as_bytes())?;
    let tag_end = rest.iter().position(|byte| *byte == b'}')?;
    let (tag, rest) = rest.split_at_checked(tag_end)?;
    let (&[_, kind, algorithm], rest) = rest.split_first_chunk()?;
    let start_end = rest.iter().position(|byte| *byte == b':')?;
    let start = std::str::from_utf8(rest.get(..start_end)?).ok()?.parse().ok()?;
    let name = rest.get(start_end + 1..)?;
    let (kind, algorithm) = (kind_of(kind)?, algorithm_of(algorithm)?);
    let known = start <= name.len();
    let record = RecordKey { name, identity_start: start, kind, algorithm };
    known.then_some((record, std::str::from_utf8(tag).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> Record {
        let average = Average { at: Timestamp::from_micros(1_700_000_000_250_001), rate: 2.5 };
        let state = State::new(average, 100.0, 3600.0);
        Record {
            state: State { over_since: 1, last_over: 2, crossings: 3, ..state },
            filter: Some(FilterEntry { epoch: 1_700_000_000, bits: vec![7; 40] }),
            events: [[1; 8], [2; 8], [3; 8], [4; 8]],
            is_calendar: false,
        }
    }

    #[test]
    fn what_is_written_is_read() {
        let whole = record();
        let state = State { average: None, ..whole.state };
        let plain = Record { filter: None, state, ..whole };
        let state = State { start: 1_700_000_000, ..whole.state };
        let calendar = Record { is_calendar: true, state, ..plain.clone() };
        for one in [record(), plain, calendar] {
            let bytes = one.write();
            assert_eq!(Record::read(&bytes), Some(one.clone()));
            assert_eq!(Record::header(&bytes).len(), HEAD);
            // Cut off, or longer.
            for length in 0..bytes.len() {
                assert_eq!(Record::read(&bytes[..length]), None, "{length}");
            }
            assert_eq!(Record::read(&[&bytes[..], b"x"].concat()), None);
        }
    }

    #[test]
    fn numbers_that_cannot_be_are_no_record() {
        let good = record().write();
        let mut wrong: Vec<(usize, Vec<u8>)> =
            vec![(0, vec![2]), (48, 2_000_001_u32.to_le_bytes().to_vec())];
        for offset in [4, 12, 20, 28] {
            wrong.push((offset, f64::NAN.to_le_bytes().to_vec()));
        }
        for offset in [4, 20, 28] {
            wrong.push((offset, (-1.0_f64).to_le_bytes().to_vec()));
        }
        wrong.push((12, TIME_MAX.to_le_bytes().to_vec()));
        for (offset, bytes) in wrong {
            let mut record = good.clone();
            record[offset..offset + bytes.len()].copy_from_slice(&bytes);
            assert_eq!(Record::read(&record), None, "{offset}: {bytes:?}");
        }
    }

    #[test]
    fn keys_are_read_as_they_are_written() {
        for (name, start) in [(&b"1h/per_rcpt/alice"[..], 12), (b"", 0), (b"a}b{:\0\xff", 7)] {
            for (kind, algorithm) in
                [(Kind::Spec, AlgorithmKind::MovingAverage), (Kind::Policy, AlgorithmKind::Bucket)]
            {
                let one = RecordKey { name, identity_start: start, kind, algorithm };
                let written = key(&one, "0123456789abcdef");
                let (read, tag) = read_key(&written).unwrap();
                assert_eq!((read, tag), (one, "0123456789abcdef"));
            }
        }
        for wrong in [
            "exirate:secret",
            "exirate:{",
            "exirate:{x}",
            "exirate:{x}sm",
            "exirate:{x}sm5",
            "exirate:{x}sm5:four",
            "exirate:{x}sm-1:four",
            "exirate:{x}xm0:four",
            "exirate:{x}sx0:four",
        ] {
            assert_eq!(read_key(wrong.as_bytes()), None, "{wrong}");
        }
    }
}
