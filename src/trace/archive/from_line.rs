//! The line that begins a message in an mbox: `From alice@example.org Fri Nov
//! 20 11:50:37 2026`.

use jiff::civil;
use jiff::tz::{Offset, TimeZone};

use super::Hint;
use crate::text::time;

const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
const DAYS: [&str; 7] = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];

/// Whether a line that follows an empty one begins a message.
///
/// Not every program quotes `From ` in a body, so a date is looked for: a time
/// and a year. `From -` and a bare `From ` are those of Thunderbird.
pub(crate) fn begins_message(line: &[u8]) -> bool {
    let Some(rest) = line.strip_prefix(b"From ") else { return false };
    let rest = rest.trim_ascii();
    if rest.is_empty() || rest == b"-" {
        return true;
    }
    let mut words = rest.split(u8::is_ascii_whitespace);
    words.clone().any(is_clock) && words.any(is_year)
}

/// What the line contains.
pub(crate) fn read(line: &[u8]) -> Hint {
    let line = String::from_utf8_lossy(line);
    let rest = line.strip_prefix("From ").unwrap_or(&line).trim();
    let words: Vec<&str> = rest.split_ascii_whitespace().collect();
    // The sender may have blanks in it, if they are quoted.
    let is_date = |word: &&str| DAYS.contains(word) || MONTHS.contains(word);
    let date = words.iter().skip(1).position(is_date).map_or(words.len(), |at| at + 1);
    let (sender, date) = words.split_at_checked(date).unwrap_or((&words, &[]));
    let sender = match sender {
        // Thunderbird's, and Eudora's.
        [] | ["-"] | ["???@???"] => None,
        // A bounce has no sender; it is called so here.
        ["MAILER-DAEMON"] | ["<>"] => Some(String::new()),
        _ => Some(sender.join(" ")),
    };
    Hint { sender, time: time(date) }
}

/// The time of these words. Without a zone, it is local time.
fn time(words: &[&str]) -> Option<i64> {
    let (mut month, mut day, mut clock, mut year, mut offset) = (None, None, None, None, None);
    for word in words {
        if let Some(at) = (1_i8..).zip(MONTHS).find(|(_, name)| name == word) {
            month = month.or(Some(at.0));
        } else if is_clock(word.as_bytes()) {
            clock = clock.or_else(|| word.parse::<civil::Time>().ok());
        } else if is_year(word.as_bytes()) {
            year = year.or_else(|| word.parse::<i16>().ok());
        } else if let Some(zone) = zone(word) {
            offset = offset.or(Some(zone));
        } else if word.len() <= 2 {
            day = day.or_else(|| word.parse::<i8>().ok());
        }
    }
    let date = civil::Date::new(year?, month?, day?).ok()?;
    let moment = date.to_datetime(clock?);
    let stamp = match offset {
        Some(offset) => offset.to_timestamp(moment).ok()?,
        None => TimeZone::system().to_zoned(moment).ok()?.timestamp(),
    };
    Some(stamp.as_second())
}

/// `11:50` or `11:50:37`.
fn is_clock(word: &[u8]) -> bool {
    let mut parts = word.split(|&b| b == b':');
    let number = |part: &[u8]| matches!(part, [a, b] if a.is_ascii_digit() && b.is_ascii_digit());
    let hour = parts.next().is_some_and(|part| number(part) || matches!(part, [b'0'..=b'9']));
    let rest: Vec<bool> = parts.map(number).collect();
    hour && matches!(rest[..], [true] | [true, true])
}

fn is_year(word: &[u8]) -> bool {
    matches!(word, [b'1' | b'2', rest @ ..] if rest.len() == 3 && rest.iter().all(u8::is_ascii_digit))
}

/// `+0100` or `GMT`.
fn zone(word: &str) -> Option<Offset> {
    if matches!(word, "GMT" | "UTC" | "UT") {
        return Some(Offset::UTC);
    }
    time::offset(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_begins_a_message_has_a_date() {
        for line in [
            "From alice@example.org Fri Nov 20 11:50:37 2026\n",
            "From alice@example.org  Fri Nov 20 11:50:37 2026 +0100\r\n",
            "From - Fri Nov 20 11:50:37 2026",
            "From MAILER-DAEMON Fri Nov  6 1:50 2026",
            "From -\n",
            "From \n",
        ] {
            assert!(begins_message(line.as_bytes()), "{line}");
        }
        for line in [
            "From here on all is well.\n",
            "From 2026 on\n",
            "From 11:50 on\n",
            ">From a Fri Nov 20 11:50:37 2026\n",
            "From: alice@example.org\n",
            "From\n",
            "from a Fri Nov 20 11:50:37 2026\n",
            "",
        ] {
            assert!(!begins_message(line.as_bytes()), "{line}");
        }
    }

    #[test]
    fn it_contains_the_sender_and_the_time() {
        let hint = |sender: Option<&str>, time| Hint { sender: sender.map(str::to_owned), time };
        let at = Some(1_795_175_437);
        for (line, expected) in [
            ("From a@b.test Fri Nov 20 11:50:37 2026 +0000\n", hint(Some("a@b.test"), at)),
            ("From a@b.test Fri Nov 20 12:50:37 +0100 2026\n", hint(Some("a@b.test"), at)),
            ("From \"a b\"@c.test Fri Nov 20 11:50:37 GMT 2026", hint(Some("\"a b\"@c.test"), at)),
            ("From MAILER-DAEMON Fri Nov 20 11:50:37 UTC 2026", hint(Some(""), at)),
            ("From - Fri Nov 20 11:50:37 2026 +0000\r\n", hint(None, at)),
            ("From a@b.test Fri Nov 31 11:50:37 2026 +0000", hint(Some("a@b.test"), None)),
            ("From a@b.test Fri Nov 20 2026", hint(Some("a@b.test"), None)),
            ("From a@b.test\n", hint(Some("a@b.test"), None)),
            ("From \n", hint(None, None)),
        ] {
            assert_eq!(read(line.as_bytes()), expected, "{line}");
        }
        assert!(read(b"From a@b.test Fri Nov 20 11:50:37 2026").time.is_some());
        assert_eq!(read(b"From \xff\xfe Fri Nov").time, None);
    }
}
