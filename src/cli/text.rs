//! Bytes, times and numbers for people to read.

use std::fmt::Write as _;

use crate::rate::{Timestamp, Wait};

/// `bytes` as text that cannot drive a terminal: what is not printable, and
/// what is not UTF-8, is escaped as in a Rust string (`\n`, `\u{202e}`,
/// `\xff`); a backslash is doubled.
pub(super) fn printable(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '"' | '\'' => text.push(c),
                _ => text.extend(c.escape_debug()),
            }
        }
        for byte in chunk.invalid() {
            // Writing to a String cannot fail.
            let _ = write!(text, "\\x{byte:02x}");
        }
    }
    text
}

/// `bytes` in lower-case hexadecimal digits.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// A number of seconds in the one or two largest units that matter: `45 s`,
/// `12 min`, `3 h 20 min`, `2 d 4 h`. Rounded up to the smaller unit.
pub(super) fn duration(seconds: f64) -> String {
    const UNITS: [(u64, &str); 4] = [(86_400, "d"), (3_600, "h"), (60, "min"), (1, "s")];
    if !seconds.is_finite() {
        return "for ever".to_owned();
    }
    let whole = seconds.max(0.0).ceil() as u64; // saturates
    for pair in UNITS.windows(2) {
        let [(large, large_name), (small, small_name)] = pair else { continue };
        if whole < *large {
            continue;
        }
        let rounded = whole.div_ceil(*small).saturating_mul(*small);
        if rounded != whole {
            return duration(rounded as f64); // it may have reached a larger unit
        }
        let (first, rest) = (rounded / large, rounded % large / small);
        return match rest {
            0 => format!("{first} {large_name}"),
            _ => format!("{first} {large_name} {rest} {small_name}"),
        };
    }
    format!("{whole} s")
}

/// How long ago `then` was, seen from `now`.
pub(super) fn age(then: Timestamp, now: Timestamp) -> String {
    let seconds = now.as_seconds() - then.as_seconds();
    if seconds < 1.0 { "now".to_owned() } else { format!("{} ago", duration(seconds.floor())) }
}

/// When one more event would pass, in words.
pub(super) fn wait(wait: Wait) -> String {
    match whole_seconds(wait) {
        None => "never (one event is as large as the limit)".to_owned(),
        Some(0) => "now".to_owned(),
        Some(seconds) => format!("in {}", duration(seconds as f64)),
    }
}

/// A wait in whole seconds, rounded up, as `retry_after` gives it; `None`
/// where no wait helps.
pub(super) fn whole_seconds(wait: Wait) -> Option<u64> {
    match wait {
        Wait::Seconds(seconds) => Some(seconds.ceil() as u64), // saturates
        Wait::Never => None,
    }
}

/// A number as short as can be: `100`, `0.5`, `inf`.
pub(super) fn number(value: f64) -> String {
    format!("{value}")
}

/// `at` as ISO 8601 in UTC, to the second: `2026-11-20T10:50:37Z`.
///
/// Days to date by Howard Hinnant's `civil_from_days`
/// (<https://howardhinnant.github.io/date_algorithms.html>).
pub(super) fn iso(at: Timestamp) -> String {
    let (days, second) = (at.seconds.div_euclid(86_400), at.seconds.rem_euclid(86_400));
    let shifted = i128::from(days) + 719_468;
    let (era, day_of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = year_of_era + era * 400 + i128::from(month <= 2);
    let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_cannot_drive_the_terminal() {
        assert_eq!(printable(b"alice@example.org"), "alice@example.org");
        assert_eq!(printable("jürgen".as_bytes()), "jürgen");
        assert_eq!(printable(b"a\x1b[2Jb\r\n\x07"), r"a\u{1b}[2Jb\r\n\u{7}");
        assert_eq!(printable(b"\xff\x9b1m"), r"\xff\x9b1m");
        assert_eq!(printable("\u{202e}gpj\u{9b}\u{200b}".as_bytes()), r"\u{202e}gpj\u{9b}\u{200b}");
        assert_eq!(printable(br#"it's "a\b""#), r#"it's "a\\b""#);
    }

    #[test]
    fn durations_are_rounded_up_to_what_is_shown() {
        for (seconds, text) in [
            (0.0, "0 s"),
            (0.2, "1 s"),
            (59.0, "59 s"),
            (60.0, "1 min"),
            (61.0, "1 min 1 s"),
            (720.0, "12 min"),
            (3_599.5, "1 h"),
            (3_600.0, "1 h"),
            (12_001.0, "3 h 21 min"),
            (86_399.0, "1 d"),
            (187_200.0, "2 d 4 h"),
            (f64::INFINITY, "for ever"),
        ] {
            assert_eq!(duration(seconds), text, "{seconds}");
        }
    }

    #[test]
    fn dates_are_those_of_the_calendar() {
        let iso = |seconds| iso(Timestamp { seconds, micros: 999_999 });
        assert_eq!(iso(0), "1970-01-01T00:00:00Z");
        assert_eq!(iso(951_782_399), "2000-02-28T23:59:59Z");
        assert_eq!(iso(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(iso(1_795_171_837), "2026-11-20T10:50:37Z");
        assert_eq!(iso(-1), "1969-12-31T23:59:59Z");
        assert!(iso(i64::MAX).ends_with('Z') && iso(i64::MIN).starts_with('-'));
    }

    #[test]
    fn waits_are_whole_seconds() {
        assert_eq!(whole_seconds(Wait::Seconds(0.0)), Some(0));
        assert_eq!(whole_seconds(Wait::Seconds(11.01)), Some(12));
        assert_eq!(whole_seconds(Wait::Never), None);
        assert_eq!(wait(Wait::Seconds(719.2)), "in 12 min");
    }

    #[test]
    fn bytes_become_hexadecimal_digits() {
        assert_eq!(hex(&[0, 0x1f, 0xff]), "001fff");
    }
}
