//! The time at the start of a line of a log.

use jiff::civil::DateTime;
use jiff::tz::Offset;
use jiff::{SignedDuration, Timestamp as Jiff};

use crate::rate::Timestamp;

/// Reads the time of each line of one file.
#[derive(Clone, Copy, Debug)]
pub struct Stamps {
    /// No line is much later: from this, a time without a year gets its year.
    latest: Jiff,
}

/// The start of a line: when it was written and by which program, and what follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp<'a> {
    /// When.
    pub at: Timestamp,
    /// The program, perhaps with `[PID]`, as syslog writes it: `postfix/smtpd[712]`.
    pub program: Option<&'a str>,
    /// What follows.
    pub rest: &'a str,
}

/// How much later than the file's last change a time may seem: clocks and zones differ.
const SLACK: SignedDuration = SignedDuration::from_hours(48);

impl Stamps {
    /// For a file that was last changed at that time.
    #[must_use]
    pub fn new(changed: Jiff) -> Self {
        let latest = changed.checked_add(SLACK).unwrap_or(Jiff::MAX);
        Self { latest }
    }

    /// The time at the start of a line, and what follows it; `None` if it has none.
    ///
    /// It is one of Exim's (`2026-11-20 11:50:37`, perhaps with a fraction and a zone), or
    /// syslog's (RFC 3339, or `Nov 20 11:50:37` without a year), which the host and the
    /// program's name follow, and perhaps Exim's own time. Times without a zone are taken
    /// as UTC.
    #[must_use]
    pub fn read<'a>(&self, line: &'a str) -> Option<Stamp<'a>> {
        if let Some((at, rest)) = exim(line) {
            return Some(Stamp { at, program: None, rest });
        }
        let (at, rest) = rfc3339(line).or_else(|| self.syslog(line))?;
        let (program, rest) = tagged(rest)?;
        let program = Some(program);
        // Exim's own time is less exact than that of RFC 3339, but has its year.
        match exim(rest) {
            Some((own, rest)) => {
                let at = if line.starts_with(char::is_numeric) { at } else { own };
                Some(Stamp { at, program, rest })
            }
            None => Some(Stamp { at, program, rest }),
        }
    }

    /// `Nov 20 11:50:37 `: the latest such time that is not after the file's last change.
    fn syslog<'a>(&self, line: &'a str) -> Option<(Timestamp, &'a str)> {
        const MONTHS: [&str; 12] =
            ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
        let (month, rest) = line.split_at_checked(3)?;
        let month = 1 + MONTHS.iter().position(|name| *name == month)? as i8;
        let rest = rest.strip_prefix(' ')?;
        let (day, rest) = rest.split_at_checked(2)?;
        let day = digits(day.trim_start().as_bytes())? as i8;
        let (hour, minute, second, rest) = clock(rest.strip_prefix(' ')?)?;
        let rest = rest.strip_prefix(' ')?;
        let year = self.latest.to_zoned(jiff::tz::TimeZone::UTC).year();
        // 29 February exists in one year of four.
        (year - 8..=year).rev().find_map(|year| {
            let at = utc(DateTime::new(year, month, day, hour, minute, second, 0).ok()?)?;
            (at <= self.latest).then(|| (timestamp(at), rest))
        })
    }
}

/// `2026-11-20 11:50:37[.250] [+0100] `: Exim's own time, and what follows it.
pub(super) fn exim(line: &str) -> Option<(Timestamp, &str)> {
    let (days, rest) = date(line)?;
    let (hour, minute, second, rest) = clock(rest.strip_prefix(' ')?)?;
    let (nanos, rest) = fraction(rest);
    let rest = rest.strip_prefix(' ').or_else(|| rest.is_empty().then_some(rest))?;
    let local = days * 86_400 + i64::from(hour) * 3600 + i64::from(minute) * 60 + i64::from(second);
    let (ahead, rest) = match rest.starts_with(['+', '-']) {
        true => {
            let (zone, after) = rest.split_once(' ').unwrap_or((rest, ""));
            offset(zone).map_or((0, rest), |offset| (offset.seconds(), after))
        }
        false => (0, rest),
    };
    let seconds = local - i64::from(ahead);
    let is_known = (Jiff::MIN.as_second()..=Jiff::MAX.as_second()).contains(&seconds);
    is_known.then_some((Timestamp { seconds, micros: nanos.unsigned_abs() / 1000 }, rest))
}

/// `2026-11-20T11:50:37[.250123](Z|+01:00) `
fn rfc3339(line: &str) -> Option<(Timestamp, &str)> {
    let (text, rest) = line.split_once(' ')?;
    let is_one = text.len() >= 20 && text.as_bytes().get(10) == Some(&b'T');
    let at: Jiff = text.parse().ok().filter(|_| is_one)?;
    Some((timestamp(at), rest))
}

/// `HOST PROGRAM[PID]: `, as syslog writes it: the program, and what follows.
fn tagged(rest: &str) -> Option<(&str, &str)> {
    let (_host, rest) = rest.split_once(' ')?;
    let (tag, rest) = rest.split_once(' ')?;
    Some((tag.strip_suffix(':')?, rest))
}

/// `2026-11-20`, as days since 1970.
fn date(line: &str) -> Option<(i64, &str)> {
    let (text, rest) = line.split_at_checked(10)?;
    let [y1, y2, y3, y4, b'-', m1, m2, b'-', d1, d2] = *text.as_bytes() else { return None };
    let number = |text: &[u8]| digits(text).map(i64::from);
    let (year, month, day) = (number(&[y1, y2, y3, y4])?, number(&[m1, m2])?, number(&[d1, d2])?);
    let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let most = match month {
        2 => 28 + i64::from(is_leap),
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => return None,
    };
    // Years that begin in March, so that a leap day is the last one.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let leaps = year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    let days = 365 * year + leaps + (153 * month + 2) / 5 + day - 719_469;
    (1..=most).contains(&day).then_some((days, rest))
}

/// `11:50:37`, as hour, minute and second.
fn clock(text: &str) -> Option<(i8, i8, i8, &str)> {
    let (text, rest) = text.split_at_checked(8)?;
    let [h1, h2, b':', m1, m2, b':', s1, s2] = *text.as_bytes() else { return None };
    let [hour, minute, second] =
        [[h1, h2], [m1, m2], [s1, s2]].map(|two| digits(&two).unwrap_or(99) as i8);
    // A leap second is taken as the one before.
    (hour < 24 && minute < 60 && second <= 60).then_some((hour, minute, second.min(59), rest))
}

/// `.250`, in nanoseconds; 0 if there is none.
fn fraction(text: &str) -> (i32, &str) {
    let Some(after) = text.strip_prefix('.') else { return (0, text) };
    let end = after.bytes().position(|b| !b.is_ascii_digit()).unwrap_or(after.len());
    let (part, rest) = after.split_at(end);
    let nanos = part.bytes().chain(std::iter::repeat(b'0')).take(9);
    (nanos.fold(0, |sum, b| sum * 10 + i32::from(b - b'0')), rest)
}

/// A zone as mail and Exim's logs write it: `+0100`.
#[must_use]
pub fn offset(text: &str) -> Option<Offset> {
    let (sign, number) = match text.split_at_checked(1)? {
        ("+", number) => (1, number),
        ("-", number) => (-1, number),
        _ => return None,
    };
    let number = digits(number.as_bytes()).filter(|_| number.len() == 4)? as i32;
    Offset::from_seconds(sign * (number / 100 * 3600 + number % 100 * 60)).ok()
}

/// A number of at most four digits.
fn digits(text: &[u8]) -> Option<u16> {
    let all = !text.is_empty() && text.len() <= 4 && text.iter().all(u8::is_ascii_digit);
    all.then(|| text.iter().fold(0, |sum, b| sum * 10 + u16::from(b - b'0')))
}

fn utc(time: DateTime) -> Option<Jiff> {
    Offset::UTC.to_timestamp(time).ok()
}

fn timestamp(time: Jiff) -> Timestamp {
    let micros = time.as_microsecond();
    Timestamp {
        seconds: micros.div_euclid(1_000_000),
        micros: u32::try_from(micros.rem_euclid(1_000_000)).unwrap_or(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::civil::Date;
    use quickcheck::quickcheck;

    fn at(line: &str) -> Option<(i64, u32, &str)> {
        let stamps = Stamps::new("2026-11-21T00:00:00Z".parse().unwrap());
        stamps.read(line).map(|Stamp { at, rest, .. }| (at.seconds, at.micros, rest))
    }

    const SECONDS: i64 = 1_795_175_437;

    #[test]
    fn exims_times_may_have_a_fraction_and_a_zone() {
        for (line, micros) in [
            ("2026-11-20 11:50:37 x y", 0),
            ("2026-11-20 11:50:37.250 x y", 250_000),
            ("2026-11-20 12:50:37 +0100 x y", 0),
            ("2026-11-20 07:20:37.5 -0430 x y", 500_000),
        ] {
            assert_eq!(at(line), Some((SECONDS, micros, "x y")), "{line}");
        }
        assert_eq!(at("2026-11-20 11:50:37 [12] x").unwrap().2, "[12] x");
        assert_eq!(at("2026-11-20 11:50:37"), Some((SECONDS, 0, "")));
    }

    quickcheck! {
        fn days_are_those_of_the_calendar(year: u16, month: u8, day: u8) -> bool {
            let (year, month, day) = (year % 10_000, month % 14, day % 33);
            let text = format!("{year:04}-{month:02}-{day:02}");
            let known = Date::new(year as i16, month as i8, day as i8).ok();
            let days = |date: Date| (date - date_of_1970()).get_days().into();
            date(&text) == known.map(|known| (days(known), ""))
        }
    }

    fn date_of_1970() -> Date {
        Date::constant(1970, 1, 1)
    }

    #[test]
    fn times_of_syslog_come_with_host_and_program() {
        for line in [
            "2026-11-20T12:50:37.250123+01:00 mail exim[712]: x y",
            "2026-11-20T11:50:37.250123Z mail exim: x y",
            // The zone is known: Exim's own time is not used.
            "2026-11-20T11:50:37.250123Z mail exim[712]: 2026-11-20 12:50:37 x y",
        ] {
            assert_eq!(at(line), Some((SECONDS, 250_123, "x y")), "{line}");
        }
        for line in [
            "Nov 20 11:50:37 mail exim[712]: x y",
            "Nov 20 11:50:37 mail exim[712]: 2026-11-20 11:50:37 x y",
        ] {
            assert_eq!(at(line), Some((SECONDS, 0, "x y")), "{line}");
        }
        assert_eq!(at("Nov  2 11:50:37 mail exim: x"), Some((SECONDS - 18 * 86_400, 0, "x")));
    }

    #[test]
    fn the_year_that_syslog_omits_is_the_latest_possible() {
        // 2026-11-21 has not had this December yet.
        let december = at("Dec 31 23:59:59 mail exim: x").unwrap().0;
        assert_eq!(december, 1_767_225_599);
        // The last leap day before.
        let leap = at("Feb 29 00:00:00 mail exim: x").unwrap().0;
        assert_eq!(leap, 1_709_164_800);
        // A clock or a zone may be ahead of the file's.
        assert_eq!(at("Nov 21 11:50:37 mail exim: x").unwrap().0, SECONDS + 86_400);
    }

    #[test]
    fn other_lines_have_no_time() {
        for line in [
            "",
            "x",
            "+++ 1tDabc has not completed +++",
            "2026-11-20",
            "2026-13-20 11:50:37 x",
            "2026-11-20 24:50:37 x",
            "2026-11-20 11:50:37x",
            "2026-11-20T11:50:37Z",
            "2026-11-20T11:50:37Z mail",
            "2026-11-20T11:50:37Z mail exim x",
            "Nov 31 11:50:37 mail exim: x",
            "Now 20 11:50:37 mail exim: x",
            "Nov 20 11:50:37",
            "ßßßßßßßßßßßßßßß",
        ] {
            assert_eq!(at(line), None, "{line}");
        }
    }
}
