//! Bytes, times and numbers for people to read.

use std::fmt::Write as _;

pub(in crate::cli) use crate::counted::{counted, counted_items};
use crate::rate::{Timestamp, Wait};

/// `bytes` as text that cannot drive a terminal: what is not printable, and
/// what is not UTF-8, is escaped as in a Rust string (`\n`, `\u{202e}`,
/// `\xff`); a backslash is doubled.
pub(in crate::cli) fn printable(bytes: &[u8]) -> String {
    escape(bytes, "")
}

/// As [`printable`], with a backslash before each of `also` as well.
pub(in crate::cli) fn escape(bytes: &[u8], also: &str) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                _ if also.contains(c) => text.extend(['\\', c]),
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
pub(in crate::cli) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// A number of seconds in the one or two largest units that matter: `45 s`,
/// `12 min`, `3 h 20 min`, `2 d 4 h`. Rounded up to the smaller unit.
pub(in crate::cli) fn duration(seconds: f64) -> String {
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

/// How long ago `then` was, seen from `now`: `now`, `5 min ago`, or `5 min
/// ahead` where it is yet to come.
pub(in crate::cli) fn age(then: Timestamp, now: Timestamp) -> String {
    let seconds = now.as_seconds() - then.as_seconds();
    if seconds <= -1.0 {
        // The clock went back.
        format!("{} ahead", duration(seconds.abs().floor()))
    } else if seconds < 1.0 {
        "now".to_owned()
    } else {
        format!("{} ago", duration(seconds.floor()))
    }
}

/// As [`age`], without the seconds once it is minutes.
pub(in crate::cli) fn rough_age(then: Timestamp, now: Timestamp) -> String {
    let seconds = now.as_seconds() - then.as_seconds();
    let cut = if seconds >= 60.0 { seconds % 60.0 } else { 0.0 };
    age(Timestamp { seconds: then.seconds.saturating_add(cut as i64), ..then }, now)
}

/// When one more event would pass, in words.
pub(in crate::cli) fn wait(wait: Wait) -> String {
    match wait.whole_seconds() {
        None => "never (one event is as large as the limit)".to_owned(),
        Some(0) => "now".to_owned(),
        Some(seconds) => format!("in {}", duration(seconds as f64)),
    }
}

/// As [`wait`], without a word on why, and without the seconds once it is
/// minutes: rounded up, so that it promises nothing too early.
pub(in crate::cli) fn rough_wait(wait: Wait) -> String {
    match wait.whole_seconds() {
        None => "never".to_owned(),
        Some(0) => "now".to_owned(),
        Some(seconds @ ..60) => format!("in {seconds} s"),
        Some(seconds) => format!("in {}", duration(seconds.div_ceil(60) as f64 * 60.0)),
    }
}

/// `word` as a shell reads it back.
pub(in crate::cli) fn shell(word: &str) -> String {
    // Only a zero byte cannot be quoted, which no argument contains.
    shlex::try_quote(word).map_or_else(|_| word.to_owned(), std::borrow::Cow::into_owned)
}

/// A number as short as can be: `100`, `0.5`, `inf`.
pub(in crate::cli) fn number(value: f64) -> String {
    format!("{value}")
}

/// A part of a whole in per cent: `85%`. Only what is the whole or more is shown
/// as 100 %.
pub(in crate::cli) fn percent(part: f64) -> String {
    match (part * 100.0).round() {
        hundred if hundred >= 100.0 && part < 1.0 => "99%".to_owned(),
        percent if percent.is_finite() => format!("{percent:.0}%"),
        _ => "-".to_owned(),
    }
}

/// `at` as ISO 8601 in UTC, to the second: `2026-11-20T10:50:37Z`. Beyond the
/// calendar, after the year 9999, as seconds since 1970: `@1795171837000`.
pub(in crate::cli) fn iso(at: Timestamp) -> String {
    match jiff::Timestamp::from_second(at.seconds) {
        Ok(time) => time.to_string(),
        Err(_) => format!("@{}", at.seconds),
    }
}

/// As [`iso`], to the microsecond.
pub(in crate::cli) fn iso_exact(at: Timestamp) -> String {
    let micros = i32::try_from(at.micros).unwrap_or(0);
    let time = jiff::Timestamp::new(at.seconds, micros * 1000);
    time.map_or_else(|_| format!("@{}", at.seconds), |time| time.to_string())
}

/// `at` in this machine's time zone: `2026-11-20 11:50:37 +01:00`.
pub(in crate::cli) fn local(at: Timestamp) -> String {
    zoned(at, "%Y-%m-%d %H:%M:%S %:z")
}

/// `at` as a clock on the wall here shows it: `11:50:37`.
pub(in crate::cli) fn clock(at: Timestamp) -> String {
    zoned(at, "%H:%M:%S")
}

/// `at` in this machine's time zone, in the form of strftime.
fn zoned(at: Timestamp, form: &str) -> String {
    match jiff::Timestamp::from_second(at.seconds) {
        Ok(time) => time.to_zoned(jiff::tz::TimeZone::system()).strftime(form).to_string(),
        Err(_) => format!("@{}", at.seconds),
    }
}

/// How long something is kept, in seconds (`None`: for ever), as an argument has it.
pub(in crate::cli) fn kept(keep: Option<u64>) -> String {
    let duration = |seconds| duration(seconds as f64).replace(' ', "");
    keep.map_or_else(|| "forever".to_owned(), duration)
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
    fn less_than_all_is_less_than_100_percent() {
        for (part, text) in [(0.0, "0%"), (0.996, "99%"), (1.0, "100%"), (1.596, "160%")] {
            assert_eq!(percent(part), text);
        }
        assert_eq!((percent(f64::INFINITY), percent(f64::NAN)), ("-".into(), "-".into()));
    }

    #[test]
    fn ages_are_seen_from_now() {
        let at = |seconds| Timestamp { seconds, micros: 0 };
        assert_eq!(age(at(100), at(100)), "now");
        assert_eq!(age(at(100), at(190)), "1 min 30 s ago");
        assert_eq!(age(at(400), at(100)), "5 min ahead");
        for (then, text) in
            [(100, "now"), (50, "50 s ago"), (-49, "2 min ago"), (400, "5 min ahead")]
        {
            assert_eq!(rough_age(at(then), at(100)), text);
        }
        assert_eq!(rough_age(at(0), at(7_379)), "2 h 2 min ago");
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
        assert_eq!(iso(i64::MAX), "@9223372036854775807");
    }

    #[test]
    fn waits_are_whole_seconds() {
        assert_eq!(Wait::Seconds(0.0).whole_seconds(), Some(0));
        assert_eq!(Wait::Seconds(11.01).whole_seconds(), Some(12));
        assert_eq!(Wait::Never.whole_seconds(), None);
        assert_eq!(wait(Wait::Seconds(719.2)), "in 12 min");
        for (seconds, text) in
            [(0.0, "now"), (59.0, "in 59 s"), (60.5, "in 2 min"), (3_599.0, "in 1 h")]
        {
            assert_eq!(rough_wait(Wait::Seconds(seconds)), text);
        }
        assert_eq!(rough_wait(Wait::Never), "never");
    }

    #[test]
    fn bytes_become_hexadecimal_digits() {
        assert_eq!(hex(&[0, 0x1f, 0xff]), "001fff");
    }
}
