//! What `exim_dumpdb SPOOL ratelimit` prints, of Exim 4.96 to 4.100:
//!
//! ```text
//! 20-Nov-2026 11:50:37.123456 rate:      8.000 key: 1h/per_rcpt/alice
//! 20-Nov-2026 11:50:37.123456 rate:      8.000 epoch: 20-Nov-2026 11:00:00 size: 200 key: 1h/per_rcpt/unique/alice
//! ```
//!
//! Times are those of the clock on the wall where it ran, or UTC with `-z`. The
//! bits of a filter are not printed.

use jiff::civil;
use jiff::tz::{AmbiguousOffset, TimeZone};

use crate::rate::{Average, Timestamp};
use crate::standing::key_state::entry;
use crate::store::Entry;
use crate::text::time;

/// Whether `line` is one that exim_dumpdb may have printed: it begins as a date
/// does.
pub(crate) fn looks_like(line: &[u8]) -> bool {
    matches!(
        line,
        [b'0'..=b'3', b'0'..=b'9', b'-', b'A'..=b'Z', b'a'..=b'z', b'a'..=b'z', b'-', ..]
    )
}

/// A record, and whether it had a filter.
#[derive(Debug, PartialEq)]
pub(crate) struct Dumped {
    pub(crate) entry: Entry,
    pub(crate) filter: bool,
}

/// The record of a line whose times are in `zone`; or what is wrong with it.
///
/// The limit is not in the dump: it is unknown, and infinite here.
pub(crate) fn read(line: &[u8], zone: &TimeZone, now: Timestamp) -> Result<Dumped, String> {
    let (head, after) = split(line, b" rate:")
        .ok_or("it has no ` rate:`: it takes lines as `exim_dumpdb SPOOL ratelimit` prints them")?;
    let at = time(head, zone, now)?;
    let after = after.trim_ascii_start();
    let end = after.iter().position(|&b| b == b' ').unwrap_or(after.len());
    let (rate, after) = after.split_at_checked(end).unwrap_or_default();
    let rate = text(rate);
    let rate: f64 = rate.parse().map_err(|_| format!("its rate {rate:?} is not a number"))?;
    let (filter, key) = if let Some(key) = after.strip_prefix(b" key: ") {
        (false, key)
    } else {
        let rest = after.strip_prefix(b" epoch: ").ok_or("after its rate there is no ` key: `")?;
        let (_, key) = split(rest, b" key: ").ok_or("it has no ` key: `")?;
        (true, key)
    };
    let average = Average { at, rate };
    let entry = entry(key.to_vec(), average, f64::INFINITY);
    Ok(Dumped { entry, filter })
}

/// The moment of `20-Nov-2026 11:50:37.123456`.
fn time(head: &[u8], zone: &TimeZone, now: Timestamp) -> Result<Timestamp, String> {
    let head = text(head);
    let wrong = || format!("its time {head:?} is not one, such as 20-Nov-2026 11:50:37.123456");
    let (second, micros) = head.split_once('.').ok_or_else(wrong)?;
    if micros.len() != 6 || !micros.bytes().all(|b| b.is_ascii_digit()) {
        return Err(wrong());
    }
    let micros: u32 = micros.parse().map_err(|_| wrong())?;
    let civil = civil::DateTime::strptime("%d-%b-%Y %H:%M:%S", second).map_err(|_| wrong())?;
    let ambiguous = zone.to_ambiguous_timestamp(civil);
    let twice = matches!(ambiguous.offset(), AmbiguousOffset::Fold { .. });
    let mut found = ambiguous.later().map_err(|_| wrong())?;
    // An hour that the clock showed twice: the later one forgets less, but
    // nothing has happened that is yet to come.
    if twice && found.as_second() > now.seconds {
        found = ambiguous.earlier().map_err(|_| wrong())?;
    }
    Ok(Timestamp { micros, ..time::timestamp(found) })
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// What comes before and after the first `separator`.
fn split<'a>(bytes: &'a [u8], separator: &[u8]) -> Option<(&'a [u8], &'a [u8])> {
    let at = bytes.windows(separator.len()).position(|window| window == separator)?;
    Some((bytes.get(..at)?, bytes.get(at + separator.len()..)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp { seconds: 1_795_171_837, micros: 0 };

    fn read_utc(line: &[u8]) -> Result<Dumped, String> {
        read(line, &TimeZone::UTC, NOW)
    }

    #[test]
    fn both_kinds_of_lines_are_understood() {
        let plain = read_utc(b"20-Nov-2026 10:50:37.000042 rate:      8.125 key: 1h/per_mail/a b");
        let entry = plain.unwrap().entry;
        assert_eq!(entry.key, b"1h/per_mail/a b");
        assert_eq!(entry.average.at, Timestamp { seconds: 1_795_171_837, micros: 42 });
        assert_eq!((entry.average.rate, entry.limit), (8.125, f64::INFINITY));
        let unique =
            b"05-Feb-2024 00:00:01.999999 rate: 123456789.125 epoch: 04-Feb-2024 23:00:00 \
                       size: 200 key: 1h/per_rcpt/unique/x key: \xff";
        let dumped = read_utc(unique).unwrap();
        assert!(dumped.filter);
        assert_eq!(dumped.entry.key, b"1h/per_rcpt/unique/x key: \xff");
        assert_eq!(dumped.entry.average.rate, 123_456_789.125);
        let odd = read_utc(b"20-Nov-2026 10:50:37.000042 rate:        inf key: rate: 1 key: ");
        assert_eq!(odd.unwrap().entry.key, b"rate: 1 key: ");
    }

    #[test]
    fn lines_of_other_kinds_give_an_error() {
        for (line, words) in [
            (&b"  1h/per_mail/a"[..], "exim_dumpdb"),
            (b"20-Nov-2026 10:50:37 rate: 1.0 key: x", "time"),
            (b"31-Feb-2026 10:50:37.000000 rate: 1.0 key: x", "time"),
            (b"20-Nov-2026 10:50:37.000000 rate: much key: x", "not a number"),
            (b"20-Nov-2026 10:50:37.000000 rate: 1.0", "key: "),
            (b"20-Nov-2026 10:50:37.000000 rate: 1.0 epoch: x", "key: "),
        ] {
            let error = read_utc(line).unwrap_err();
            assert!(error.contains(words), "{line:?}: {error}");
        }
        assert!(looks_like(b"20-Nov-2026 10") && !looks_like(b"{\"a\"") && !looks_like(b""));
    }

    #[test]
    fn an_hour_that_came_twice_is_the_later_one_unless_that_is_to_come() {
        let zone = TimeZone::posix("CET-1CEST,M3.5.0,M10.5.0/3").unwrap();
        let line = b"25-Oct-2026 02:30:00.000000 rate: 1.0 key: x";
        let at = |now| read(line, &zone, now).unwrap().entry.average.at.seconds;
        let later = 1_792_891_800; // 01:30 UTC
        assert_eq!(at(NOW), later);
        assert_eq!(at(Timestamp { seconds: later - 1, micros: 0 }), later - 3600);
    }
}
