//! Times as options take them, each in the same words.

use clap::builder::ArgExt;
use clap::{Arg, Command};
use jiff::Zoned;
use jiff::civil::{Date, DateTime, Time};
use jiff::tz::{AmbiguousOffset, Offset, TimeZone};

use crate::rate::Timestamp;
use crate::spec::typed_period;
use crate::store::FOREVER;
use crate::text::time::{self, timestamp, zone};

/// A time as an option means it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cli) struct Moment {
    /// When it begins; of a time that the clock shows twice, the first.
    pub(in crate::cli) start: Timestamp,
    /// When it ends, as an end: of a day, when the next begins; of a time that the clock shows
    /// twice, the second; of others, `start`.
    pub(in crate::cli) end: Timestamp,
    precision: Precision,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Precision {
    Day,
    Minute,
    Second,
}

/// Where a duration leads, and which of several days a time on the clock is one of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    Past,
    Ahead,
}

/// What TIME is: the help of each command with such an option says it.
const HELP: &str = "\
TIME is a time on the clock of this server, such as 14:05, today, 'yesterday 14:05' or
2026-11-20; or a duration, such as 2h for two hours ago.";

/// The same where an option is of what is to come.
const HELP_AHEAD: &str = "\
TIME is a time on the clock of this server, such as 18:00, tomorrow, 'tomorrow 18:00' or
2026-12-31; or a duration, such as 2h for in two hours.";

/// Marks an option whose TIME is of what is to come.
#[derive(Clone, Debug)]
pub(in crate::cli) struct Ahead;

impl ArgExt for Ahead {}

/// The whole of it, for the manual pages.
const MANUAL: &str = "\
TIME is a time on the clock of this server: 14:05 or 14:05:30 (the latest one, or the next one for
an option about the future), a day (today, yesterday, tomorrow, Tue, 2026-11-20), or both, such as
'yesterday 14:05' or '2026-11-20 11:50:37'; a duration such as 2h, for two hours ago or, about the
future, in two hours (`2h ago` and `in 2h` always say which); or, in any zone,
2026-11-20T10:50:37Z, @1795175437 (seconds since 1970) or now. A day given as a start means its
beginning, and as an end, its end. When summer time ends, the clock shows an hour twice: a start
then means the first, an end the second, and CET or CEST after the time says which. A time that
the clock skips becomes later by what is skipped. The zone is the server's, or that of $TZ.";

/// `command` with what TIME is and [`MANUAL`] where an option takes a TIME, and so its subcommands.
pub(in crate::cli) fn explained(command: Command) -> Command {
    let command = command.mut_subcommands(explained);
    let is_time = |arg: &Arg| {
        let names = arg.get_value_names().unwrap_or_default();
        names.iter().any(|name| name == "TIME")
    };
    let help = match command.get_after_help() {
        Some(help) if command.get_arguments().any(is_time) => help.to_string(),
        _ => return command,
    };
    let (description, rest) = help.split_once(STATUS).unwrap_or((&help, ""));
    let (status, rest) = rest.split_once("\n\n").unwrap_or((rest, ""));
    let ahead = command.get_arguments().any(|arg| arg.get::<Ahead>().is_some());
    let time = if ahead { HELP_AHEAD } else { HELP };
    let help = format!("{description}\n\n{time}{STATUS}{status}\n\n{rest}\n\n{MANUAL}");
    command.after_help(help)
}

/// What follows the description of a command.
const STATUS: &str = "\n\nExit status:";

const EXPECTED: &str = "expected a time, such as 14:05, yesterday, 'yesterday 14:05', 2026-11-20, \
                        '2026-11-20 11:50:37', 2026-11-20T10:50:37Z, now, or 2h for two hours ago";
const EXPECTED_AHEAD: &str = "expected a time, such as 18:00, tomorrow, 'tomorrow 18:00', \
                              2026-12-31, '2026-12-31 18:00', 2026-12-31T17:00:00Z, or 2h for in \
                              two hours";

/// A time that is asked about.
///
/// # Errors
/// What would be right.
pub(in crate::cli) fn past(text: &str) -> Result<Moment, String> {
    moment(text, Direction::Past, &now()).ok_or_else(|| EXPECTED.to_owned())
}

/// When something begins that has happened, in seconds since 1970.
///
/// # Errors
/// What would be right.
pub(in crate::cli) fn since(text: &str) -> Result<i64, String> {
    past(text).map(|moment| moment.start.seconds)
}

/// The last second of what has happened up to a time.
///
/// # Errors
/// What would be right.
pub(in crate::cli) fn until(text: &str) -> Result<i64, String> {
    past(text).map(|moment| match moment.precision {
        Precision::Day => moment.end.seconds - 1,
        _ => moment.end.seconds,
    })
}

/// When something happened.
///
/// # Errors
/// What would be right.
pub(in crate::cli) fn at(text: &str) -> Result<Timestamp, String> {
    past(text).map(|moment| moment.start)
}

/// As of which time something is decided.
///
/// # Errors
/// What would be right.
pub(in crate::cli) fn as_of(text: &str) -> Result<Timestamp, String> {
    ahead(text).map(|moment| moment.start)
}

/// When something is to end, in seconds since 1970: a time that is yet to come.
///
/// # Errors
/// What would be right.
pub(in crate::cli) fn end(text: &str) -> Result<i64, String> {
    let end = ahead(text)?.end;
    match end.seconds > time::now().seconds {
        true => Ok(end.seconds),
        false => Err(format!("{} is in the past; {EXPECTED_AHEAD}", time::local(end))),
    }
}

/// When something is to end, as [`end`], or [`FOREVER`].
///
/// # Errors
/// What would be right.
pub(in crate::cli) fn end_or_forever(text: &str) -> Result<i64, String> {
    if text == "forever" {
        return Ok(FOREVER);
    }
    end(text).map_err(|expected| expected + ", or forever")
}

fn ahead(text: &str) -> Result<Moment, String> {
    moment(text, Direction::Ahead, &now()).ok_or_else(|| EXPECTED_AHEAD.to_owned())
}

fn now() -> Zoned {
    jiff::Timestamp::now().to_zoned(zone())
}

impl Moment {
    /// A moment of no length.
    fn exact(at: jiff::Timestamp) -> Self {
        Self { start: timestamp(at), end: timestamp(at), precision: Precision::Second }
    }

    /// For how many seconds it is meant, as the time of something.
    pub(in crate::cli) fn seconds(&self) -> i64 {
        let more = match self.precision {
            Precision::Day => 0,
            Precision::Minute => 60,
            Precision::Second => 1,
        };
        self.end.seconds - self.start.seconds + more
    }

    fn day(date: Date, zone: &TimeZone) -> Option<Self> {
        let start = |date: Date| Some(timestamp(date.to_zoned(zone.clone()).ok()?.timestamp()));
        let (start, end) = (start(date)?, start(date.tomorrow().ok()?)?);
        Some(Self { start, end, precision: Precision::Day })
    }

    /// A time on the clock there; of two, that of the zone with this name, if one is given.
    fn on_clock(
        at: DateTime,
        zone: &TimeZone,
        name: Option<&str>,
        precision: Precision,
    ) -> Option<Self> {
        let found = zone.to_ambiguous_timestamp(at);
        // Of a time that is left out, jiff's "later" is as much after the jump.
        let (mut start, mut end) = (found.compatible().ok()?, found.later().ok()?);
        if let Some(name) = name {
            let is_named = |at: &jiff::Timestamp| {
                let zoned = at.to_zoned(zone.clone());
                zoned.strftime("%Z").to_string().eq_ignore_ascii_case(name)
            };
            let is_gap = matches!(found.offset(), AmbiguousOffset::Gap { .. });
            let named = [start, end].into_iter().filter(|_| !is_gap).find(is_named);
            let at = match named {
                Some(named) => named,
                None => offset(name)?.to_timestamp(at).ok()?,
            };
            (start, end) = (at, at);
        }
        Some(Self { start: timestamp(start), end: timestamp(end), precision })
    }
}

/// What `text` means, seen from `now`.
fn moment(text: &str, direction: Direction, now: &Zoned) -> Option<Moment> {
    let text = text.trim();
    if let Ok(at) = text.parse::<jiff::Timestamp>() {
        return Some(Moment::exact(at));
    }
    let text = text.to_ascii_lowercase();
    let words: Vec<&str> = text.split_whitespace().collect();
    match *words {
        [] => return None,
        ["now"] => return Some(Moment::exact(now.timestamp())),
        [one] if one.starts_with('@') => return since_1970(one).map(Moment::exact),
        ["in", duration] => return away(duration, Direction::Ahead, now),
        [duration, "ago"] => return away(duration, Direction::Past, now),
        [duration] if typed_period(duration).is_ok() => return away(duration, direction, now),
        _ => {}
    }
    // `2026-11-20T11:50`
    let joined = words.first().and_then(|word| word.split_once('t'));
    let words = match joined.filter(|(day, _)| day.starts_with(|c: char| c.is_ascii_digit())) {
        Some((day, clock)) => [&[day, clock], words.get(1..)?].concat(),
        None => words,
    };
    let day = words.first().filter(|word| !word.contains(':')).copied();
    let mut rest = words.iter().skip(usize::from(day.is_some()));
    let time = match rest.next() {
        Some(word) => Some(clock(word)?),
        None => None,
    };
    let name = rest.next().copied();
    if rest.next().is_some() {
        return None;
    }
    let zone = now.time_zone();
    let of = |date: Date| match time {
        Some((time, precision)) => Moment::on_clock(date.to_datetime(time), zone, name, precision),
        None => Moment::day(date, zone),
    };
    let today = now.date();
    let is_meant = |date: Date| {
        let name = date.strftime("%A").to_string().to_lowercase();
        day.is_none_or(|day| day == name || Some(day) == name.get(..3))
    };
    match day {
        Some("today") => of(today),
        Some("yesterday") => of(today.yesterday().ok()?),
        Some("tomorrow") => of(today.tomorrow().ok()?),
        Some(date) if date.starts_with(|c: char| c.is_ascii_digit()) => {
            // Not the other forms of ISO 8601, such as that of weeks.
            of(date.parse().ok().filter(|_| date.len() == 10)?)
        }
        // The nearest such day in that direction, today included.
        _ => {
            let now = timestamp(now.timestamp());
            let days = (0..8).filter_map(|away| match direction {
                Direction::Past => today.checked_sub(jiff::Span::new().days(away)).ok(),
                Direction::Ahead => today.checked_add(jiff::Span::new().days(away)).ok(),
            });
            days.filter(|&date| is_meant(date)).filter_map(of).find(|found| match direction {
                Direction::Past => found.start <= now,
                Direction::Ahead => found.end > now,
            })
        }
    }
}

/// A time of the day, and how exact it is: `14:05`, `14:05:12`, `14:05:12.5`.
fn clock(word: &str) -> Option<(Time, Precision)> {
    match word.matches(':').count() {
        1 => Some((Time::strptime("%H:%M", word).ok()?, Precision::Minute)),
        2 => Some((Time::strptime("%H:%M:%S%.f", word).ok()?, Precision::Second)),
        _ => None,
    }
}

/// The moment that is a duration away from `now`.
fn away(duration: &str, direction: Direction, now: &Zoned) -> Option<Moment> {
    let seconds = typed_period(duration).ok().filter(|seconds| seconds.is_finite())?;
    let now = now.timestamp();
    let length =
        jiff::SignedDuration::try_from_secs_f64(seconds).unwrap_or(jiff::SignedDuration::MAX);
    Some(Moment::exact(match direction {
        Direction::Past => now.saturating_sub(length).ok()?,
        Direction::Ahead => now.saturating_add(length).ok()?,
    }))
}

/// The zone of `UTC`, `+01`, `+0100` and `+01:00`.
fn offset(name: &str) -> Option<Offset> {
    if ["utc", "gmt", "z"].contains(&name) {
        return Some(Offset::UTC);
    }
    let digits: String = name.get(1..)?.chars().filter(|c| *c != ':').collect();
    let is_number = digits.bytes().all(|b| b.is_ascii_digit());
    let number = |range| digits.get(range).and_then(|text: &str| text.parse::<i32>().ok());
    let (hours, minutes) = match digits.len() {
        2 => (number(0..2)?, 0),
        4 => (number(0..2)?, number(2..4)?),
        _ => return None,
    };
    let sign = match name.get(..1)? {
        "+" => 1,
        "-" => -1,
        _ => return None,
    };
    let seconds = sign * (hours * 3600 + minutes * 60);
    Offset::from_seconds(seconds).ok().filter(|_| is_number && minutes < 60)
}

/// `@` and the seconds since 1970, with up to six decimals.
fn since_1970(text: &str) -> Option<jiff::Timestamp> {
    let text = text.strip_prefix('@')?;
    let (seconds, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    if !digits(seconds) || !digits(fraction) || fraction.len() > 6 {
        return None;
    }
    let micros: i32 = format!("{fraction:0<6}").parse().ok()?;
    jiff::Timestamp::new(seconds.parse().ok()?, micros * 1000).ok()
}

#[cfg(test)]
mod tests;
