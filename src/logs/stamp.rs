//! The time at the start of a line of a log, and who wrote it.

use jiff::civil::DateTime;
use jiff::tz::Offset;
use jiff::{SignedDuration, Timestamp as Jiff};

use super::postfix;
use crate::rate::Timestamp;
use crate::text::is_exim_id;
use crate::text::time::offset;

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
    /// Whether the time has a zone; without one it is taken as UTC.
    pub has_zone: bool,
    /// Whether the line has its year.
    pub has_year: bool,
    /// The program that syslog names.
    pub tag: Option<Tag<'a>>,
    /// What follows.
    pub rest: &'a str,
}

/// A program, as syslog writes it: `mx1 postfix/smtpd[712]: `.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tag<'a> {
    /// The host.
    pub host: &'a str,
    /// The program.
    pub program: &'a str,
    /// Its process.
    pub pid: Option<u32>,
}

/// How much later than the file's last change a time may seem: clocks and zones differ.
const SLACK: SignedDuration = SignedDuration::from_hours(48);

/// What a syslog that names no program writes instead of equal lines.
pub(super) const REPEATED: &str = "last message repeated ";

/// A time, and how it was written.
#[derive(Clone, Copy)]
struct Time {
    at: Timestamp,
    has_zone: bool,
    /// Without its year, the time that a program writes itself says more.
    has_year: bool,
}

impl Stamps {
    /// For a file that was last changed at that time.
    #[must_use]
    pub fn new(changed: Jiff) -> Self {
        let latest = changed.checked_add(SLACK).unwrap_or(Jiff::MAX);
        Self { latest }
    }

    /// These, if no line is much later than that time.
    #[must_use]
    pub fn no_later_than(self, latest: Jiff) -> Self {
        Self { latest: self.latest.min(latest.checked_add(SLACK).unwrap_or(Jiff::MAX)) }
    }

    /// The time that no line is later than.
    #[must_use]
    pub fn latest(self) -> Jiff {
        self.latest
    }

    /// The time at the start of a line, and what follows it; `None` if it has none.
    ///
    /// It is one of Exim's (`2026-11-20 11:50:37`, perhaps with a fraction and a zone), or
    /// syslog's, which the host and the program's name follow, and perhaps Exim's own time.
    /// syslog's has one of the forms of RFC 3164, RFC 5424, `journalctl`, Solaris, AIX and
    /// FreeBSD. What `docker logs` and Kubernetes write before it is skipped. Times without a
    /// zone are taken as UTC.
    #[must_use]
    pub fn read<'a>(&self, line: &'a str) -> Option<Stamp<'a>> {
        // Exim's own lines are the most frequent.
        if let Some((time, rest)) = exim(line) {
            let is_of_exim =
                rest.get(..23).is_some_and(is_exim_id) || rest.get(..16).is_some_and(is_exim_id);
            if !is_of_exim && let Some((tag, rest)) = tagged(rest).filter(|(tag, _)| is_mail(tag)) {
                return Some(of_program(time, tag, rest));
            }
            let Time { at, has_zone, has_year } = time;
            return Some(Stamp { at, has_zone, has_year, tag: None, rest });
        }
        self.syslog(line, true)
    }

    /// A line of syslog, within what containers write if `is_outer`.
    fn syslog<'a>(&self, line: &'a str, is_outer: bool) -> Option<Stamp<'a>> {
        let line = match line.as_bytes().first()? {
            b'<' => priority(line)?,
            _ => line,
        };
        if let Some((time, tag, rest)) = rfc5424(line) {
            return Some(of_program(time, tag, rest));
        }
        let found = iso(line).or_else(|| self.classic(line)).or_else(|| unix(line));
        let Some((time, rest)) = found else {
            return if is_outer { self.without_time(line) } else { None };
        };
        match tagged(rest) {
            Some((tag, rest)) if is_outer && is_container(tag.program) => {
                Some(self.within(time, rest).unwrap_or_else(|| of_program(time, tag, rest)))
            }
            Some((tag, rest)) => Some(of_program(time, tag, rest)),
            None if is_outer => self.within(time, rest),
            None => None,
        }
    }

    /// What a program in a container wrote, which was received at that time: `docker logs -t`,
    /// Kubernetes' `2026-11-20T11:50:37.123456789Z stdout F …`.
    fn within<'a>(&self, received: Time, rest: &'a str) -> Option<Stamp<'a>> {
        let line = ["stdout F ", "stderr F ", "stdout P ", "stderr P "]
            .iter()
            .find_map(|stream| rest.strip_prefix(stream))
            .unwrap_or(rest);
        let own = self.read_once(line)?;
        let Time { at, has_zone, has_year } = received;
        Some(if has_zone { Stamp { at, has_zone, has_year, ..own } } else { own })
    }

    fn read_once<'a>(&self, line: &'a str) -> Option<Stamp<'a>> {
        match exim(line) {
            Some((Time { at, has_zone, has_year }, rest)) => {
                Some(Stamp { at, has_zone, has_year, tag: None, rest })
            }
            None => self.syslog(line, false),
        }
    }

    /// `mailserver-1  | Nov 20 11:50:37 …`, of `docker compose logs`; `HOST exim[7]: ` before
    /// Exim's own time.
    fn without_time<'a>(&self, line: &'a str) -> Option<Stamp<'a>> {
        if let Some((name, rest)) = line.split_once("| ")
            && !name.trim_end().contains(' ')
        {
            return self.read_once(rest).or_else(|| self.syslog(rest, true));
        }
        let (tag, rest) = tagged(line).filter(|(tag, _)| is_mail(tag))?;
        let (time, rest) = exim(rest)?;
        Some(of_program(time, tag, rest))
    }

    /// `Nov 20 11:50:37[.250123] `, `Nov 20 2026 11:50:37 `: without a year, the latest such
    /// time that is not after the file's last change.
    fn classic<'a>(&self, line: &'a str) -> Option<(Time, &'a str)> {
        const MONTHS: [&str; 12] =
            ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
        let (month, rest) = line.split_at_checked(3)?;
        let month = 1 + MONTHS.iter().position(|name| *name == month)? as i8;
        let (day, rest) = number(rest.strip_prefix(' ')?.trim_start_matches(' '))?;
        let rest = rest.strip_prefix(' ')?;
        let (year, rest) = match number(rest)? {
            (year @ 1970.., after) if !after.starts_with(':') => {
                (Some(year), after.strip_prefix(' ')?)
            }
            _ => (None, rest),
        };
        let (hour, minute, second, rest) = clock(rest)?;
        let (nanos, rest) = fraction(rest);
        let rest = rest.strip_prefix(' ')?;
        let of = |year: i16| {
            utc(DateTime::new(year, month, day as i8, hour, minute, second, nanos).ok()?)
        };
        let at = match year {
            Some(year) => of(year as i16)?,
            None => {
                let year = self.latest.to_zoned(jiff::tz::TimeZone::UTC).year();
                // 29 February exists in one year of four.
                (year - 8..=year).rev().find_map(|year| of(year).filter(|at| *at <= self.latest))?
            }
        };
        let time = Time { at: timestamp(at), has_zone: false, has_year: year.is_some() };
        Some((time, rest))
    }
}

/// The line of a program, which may write the time itself, as Exim does.
fn of_program<'a>(time: Time, tag: Tag<'a>, rest: &'a str) -> Stamp<'a> {
    // Solaris: `[ID 197553 mail.info] `.
    let rest = match rest.strip_prefix("[ID ").and_then(|rest| rest.split_once("] ")) {
        Some((id, after)) if id.bytes().take(6).any(|b| b.is_ascii_digit()) => after,
        _ => rest,
    };
    let Time { at, has_zone, has_year } = time;
    let tag = Some(tag);
    match exim(rest) {
        // Its zone is known, so syslog's time says all, and is more exact.
        Some((own, rest)) if !has_year || !has_zone => {
            let Time { at, has_zone, has_year } = own;
            Stamp { at, has_zone, has_year, tag, rest }
        }
        Some((_, rest)) => Stamp { at, has_zone, has_year, tag, rest },
        None => Stamp { at, has_zone, has_year, tag, rest },
    }
}

/// Whether it is a mail server's name.
fn is_mail(tag: &Tag<'_>) -> bool {
    tag.program.starts_with("exim") || postfix::daemon(tag.program).is_some()
}

/// Whether it is the name that docker's syslog driver gives a container: its id, or
/// `docker/NAME/ID`.
fn is_container(program: &str) -> bool {
    program.contains("docker")
        || (program.len() >= 12 && program.bytes().all(|b| b.is_ascii_hexdigit()))
}

/// Without `<22>`.
fn priority(line: &str) -> Option<&str> {
    let (number, rest) = line.strip_prefix('<')?.split_once('>')?;
    (number.len() <= 3 && number.bytes().all(|b| b.is_ascii_digit())).then_some(rest)
}

/// `1 2026-11-20T11:50:37.250Z mx postfix/smtpd 712 - - text`: RFC 5424.
fn rfc5424(line: &str) -> Option<(Time, Tag<'_>, &str)> {
    let (time, rest) = iso(line.strip_prefix("1 ")?)?;
    let mut words = rest.splitn(5, ' ');
    let (host, program, pid) = (words.next()?, words.next()?, words.next()?);
    let _id = words.next()?;
    let rest = words.next()?;
    let text = match rest.strip_prefix('-') {
        Some(text) => text,
        None => {
            let mut rest = rest;
            while rest.starts_with('[') {
                rest = structured(rest)?;
            }
            rest
        }
    };
    let text = text.strip_prefix(' ').unwrap_or(text);
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    Some((time, Tag { host, program, pid: pid.parse().ok() }, text))
}

/// What follows `[id name="value"]`.
fn structured(text: &str) -> Option<&str> {
    let (mut quoted, mut escaped) = (false, false);
    let end = text.bytes().position(|b| {
        let is_end = b == b']' && !quoted;
        match b {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => quoted = !quoted,
            _ => {}
        }
        is_end
    })?;
    text.get(end + 1..)
}

/// `2026-11-20 11:50:37[.250] [+0100] `: Exim's own time, and what follows it.
fn exim(line: &str) -> Option<(Time, &str)> {
    let (days, rest) = date(line)?;
    let (seconds, micros, rest) = seconds(days, rest.strip_prefix(' ')?)?;
    let rest = rest.strip_prefix(' ').or_else(|| rest.is_empty().then_some(rest))?;
    let (ahead, rest) = match rest.starts_with(['+', '-']) {
        true => {
            let (zone, after) = rest.split_once(' ').unwrap_or((rest, ""));
            offset(zone).map_or((None, rest), |offset| (Some(offset.seconds()), after))
        }
        false => (None, rest),
    };
    Some((time(seconds, micros, ahead)?, rest))
}

/// Exim's own time, and what follows it.
pub(super) fn without_own_time(line: &str) -> &str {
    exim(line).map_or(line, |(_, rest)| rest)
}

/// `2026-11-20T11:50:37[.250123](Z|+01:00|+0100|) `, `Fri 2026-11-20 11:50:37 CET `: RFC 3339
/// and the forms of `journalctl`.
fn iso(line: &str) -> Option<(Time, &str)> {
    const DAYS: [&str; 7] = ["Mon ", "Tue ", "Wed ", "Thu ", "Fri ", "Sat ", "Sun "];
    if let Some(line) = DAYS.iter().find_map(|day| line.strip_prefix(day)) {
        let (days, rest) = date(line)?;
        let (seconds, micros, rest) = seconds(days, rest.strip_prefix(' ')?)?;
        let (zone, rest) = rest.strip_prefix(' ')?.split_once(' ')?;
        // Of other zones, a name does not say how far they are ahead.
        let ahead = ["UTC", "GMT"].contains(&zone).then_some(0);
        return Some((time(seconds, micros, ahead)?, rest));
    }
    let (days, rest) = date(line)?;
    let (seconds, micros, rest) = seconds(days, rest.strip_prefix('T')?)?;
    let (zone, rest) = rest.split_at_checked(rest.find(' ')?)?;
    let ahead = match zone {
        "" => None,
        "Z" => Some(0),
        zone => Some(offset(&zone.replace(':', ""))?.seconds()),
    };
    Some((time(seconds, micros, ahead)?, rest.get(1..)?))
}

/// `1795175437.250123 `, of `journalctl -o short-unix`.
fn unix(line: &str) -> Option<(Time, &str)> {
    let (seconds, rest) = line.split_once('.')?;
    let is_seconds = seconds.len() == 10 && seconds.bytes().all(|b| b.is_ascii_digit());
    let (micros, rest) = rest.split_once(' ')?;
    let is_micros = micros.len() == 6 && micros.bytes().all(|b| b.is_ascii_digit());
    let seconds = seconds.parse().ok().filter(|_| is_seconds && is_micros)?;
    Some((time(seconds, micros.parse().ok()?, Some(0))?, rest))
}

/// A time on a clock that is so many seconds ahead of UTC, if that is known.
fn time(local: i64, micros: u32, ahead: Option<i32>) -> Option<Time> {
    let seconds = local - i64::from(ahead.unwrap_or(0));
    let is_known = (Jiff::MIN.as_second()..=Jiff::MAX.as_second()).contains(&seconds);
    let at = Timestamp { seconds, micros };
    is_known.then_some(Time { at, has_zone: ahead.is_some(), has_year: true })
}

/// `11:50:37[.250]` on this day since 1970: in seconds and microseconds.
fn seconds(days: i64, text: &str) -> Option<(i64, u32, &str)> {
    let (hour, minute, second, rest) = clock(text)?;
    let (nanos, rest) = fraction(rest);
    let local = days * 86_400 + i64::from(hour) * 3600 + i64::from(minute) * 60 + i64::from(second);
    Some((local, nanos.unsigned_abs() / 1000, rest))
}

/// `HOST PROGRAM[PID]: `, as syslog writes it: the program, and what follows. FreeBSD writes
/// `<mail.info>` before the host, AIX `mail:info` after it.
fn tagged(rest: &str) -> Option<(Tag<'_>, &str)> {
    let rest = match rest.strip_prefix('<') {
        Some(after) => after.split_once("> ")?.1,
        None => rest,
    };
    let (host, mut rest) = rest.split_once(' ')?;
    if rest.starts_with(REPEATED) {
        return Some((Tag { host, program: "", pid: None }, rest));
    }
    // A syslog that pads the host's name.
    rest = rest.trim_start_matches(' ');
    let (mut tag, mut after) = rest.split_once(' ').unwrap_or((rest, ""));
    if !tag.ends_with(':') && tag.starts_with("mail") && tag.contains([':', '.']) {
        (tag, after) = after.split_once(' ')?;
    }
    let tag = tag.strip_suffix(':')?;
    let (program, pid) = match tag.strip_suffix(']').and_then(|tag| tag.split_once('[')) {
        Some((program, pid)) => (program, pid.parse().ok()),
        None => (tag, None),
    };
    Some((Tag { host, program, pid }, after))
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

/// The number of at most four digits at the start of a text, and what follows it.
fn number(text: &str) -> Option<(u16, &str)> {
    let end = text.bytes().position(|b| !b.is_ascii_digit()).unwrap_or(text.len());
    let (number, rest) = text.split_at_checked(end)?;
    Some((digits(number.as_bytes())?, rest))
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
    use kit::quickcheck;

    fn at(line: &str) -> Option<(i64, u32, &str)> {
        let stamps = Stamps::new("2026-11-21T00:00:00Z".parse().unwrap());
        stamps.read(line).map(|Stamp { at, rest, .. }| (at.seconds, at.micros, rest))
    }

    /// Host, program, process and text of a line at [`SECONDS`].
    fn tagged_at(line: &str) -> Option<(String, String, Option<u32>, &str)> {
        let stamps = Stamps::new("2026-11-21T00:00:00Z".parse().unwrap());
        let Stamp { at, tag, rest, .. } = stamps.read(line)?;
        assert_eq!(at.seconds, SECONDS, "{line}");
        let Tag { host, program, pid } = tag?;
        Some((host.to_owned(), program.to_owned(), pid, rest))
    }

    #[test]
    fn each_syslog_has_its_own_form() {
        for line in [
            "Nov 20 11:50:37 mx postfix/smtpd[7]: x y",
            "Nov 20 11:50:37.250123 mx postfix/smtpd[7]: x y",
            "Nov 20 2026 11:50:37 mx postfix/smtpd[7]: x y",
            "<22>Nov 20 11:50:37 mx postfix/smtpd[7]: x y",
            "Nov 20 11:50:37 mx postfix/smtpd[7]: [ID 197553 mail.info] x y",
            "Nov 20 11:50:37 mx mail:info postfix/smtpd[7]: x y",
            "Nov 20 11:50:37 <mail.info> mx postfix/smtpd[7]: x y",
            "2026-11-20T11:50:37+00:00 mx postfix/smtpd[7]: x y",
            "2026-11-20T12:50:37+0100 mx postfix/smtpd[7]: x y",
            "2026-11-20T12:50:37.250123+0100 mx postfix/smtpd[7]: x y",
            "2026-11-20T11:50:37 mx postfix/smtpd[7]: x y",
            "2026-11-20 11:50:37 mx postfix/smtpd[7]: x y",
            "Fri 2026-11-20 11:50:37 UTC mx postfix/smtpd[7]: x y",
            "1795175437.250123 mx postfix/smtpd[7]: x y",
            "1 2026-11-20T11:50:37.25Z mx postfix/smtpd 7 - - x y",
            "<22>1 2026-11-20T11:50:37Z mx postfix/smtpd 7 - [a@1 b=\"c] \\\" d\"][e] \u{feff}x y",
            "2026-11-20T11:50:37.123456789Z Nov 20 12:50:37 mx postfix/smtpd[7]: x y",
            "2026-11-20T11:50:37.123456789Z stdout F Nov 20 11:50:37 mx postfix/smtpd[7]: x y",
            "2026-11-20T11:50:37.1Z 2026-11-20T11:50:37.250123+00:00 mx postfix/smtpd[7]: x y",
            "mailserver-1  | Nov 20 11:50:37 mx postfix/smtpd[7]: x y",
            "Nov 20 11:50:37 docker-host docker/mail/0123456789ab[99]: Nov 20 11:50:37 mx postfix/smtpd[7]: x y",
        ] {
            let expected = ("mx".to_owned(), "postfix/smtpd".to_owned(), Some(7), "x y");
            assert_eq!(tagged_at(line), Some(expected), "{line}");
        }
        let of_exim = ("mx".to_owned(), "exim".to_owned(), Some(7), "x y");
        assert_eq!(tagged_at("mx exim[7]: 2026-11-20 11:50:37 x y"), Some(of_exim.clone()));
        assert_eq!(tagged_at("2026-11-20 11:50:37 mx exim[7]: x y"), Some(of_exim));
        // What a message's text says is no program.
        let subject = "2026-11-20 11:50:37 1vM1aC-000000001Ac-1aBc exim[7]: x y";
        assert_eq!(tagged_at(subject), None);
        assert_eq!(at("2026-11-20T11:50:37.123Z 2026-11-20 12:50:37 x y").unwrap().2, "x y");
        assert_eq!(at("Nov 7 11:50:37 mx exim: x").map(|(at, ..)| at), Some(SECONDS - 13 * 86_400));
        let repeated = "Nov 20 11:50:37 mx last message repeated 4 times";
        assert_eq!(tagged_at(repeated).unwrap().3, "last message repeated 4 times");
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
