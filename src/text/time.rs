//! Times of the calendar, as they are shown: those for people in this server's zone, with its
//! name.

use jiff::tz::{Disambiguation, Offset, TimeZone};

use crate::rate::Timestamp;
use crate::sys::clock;

/// The time.
pub(crate) fn now() -> Timestamp {
    clock::now().into()
}

/// `at` as ISO 8601 in UTC, to the second: `2026-11-20T10:50:37Z`. Beyond the
/// calendar, after the year 9999, as seconds since 1970: `@1795171837000`.
pub(crate) fn iso(at: Timestamp) -> String {
    match jiff::Timestamp::from_second(at.seconds) {
        Ok(time) => time.to_string(),
        Err(_) => format!("@{}", at.seconds),
    }
}

/// As [`iso`], of a whole second since 1970.
pub(crate) fn iso_second(seconds: i64) -> String {
    iso(Timestamp { seconds, micros: 0 })
}

/// As [`iso`], to the microsecond.
pub(crate) fn iso_exact(at: Timestamp) -> String {
    let micros = i32::try_from(at.micros).unwrap_or(0);
    let time = jiff::Timestamp::new(at.seconds, micros * 1000);
    time.map_or_else(|_| format!("@{}", at.seconds), |time| time.to_string())
}

/// `at` in UTC, as logs have it: `2026-11-20 10:50:37`.
pub(crate) fn utc(at: Timestamp) -> String {
    iso(at).replace('T', " ").replace('Z', "")
}

/// The form of [`local`], of strftime.
pub(crate) const LOCAL: &str = "%Y-%m-%d %H:%M:%S %Z";

/// `at` in this machine's time zone, with its name: `2026-11-20 11:50:37 CET`.
pub(crate) fn local(at: Timestamp) -> String {
    zoned(at, LOCAL)
}

/// As [`local`], of a whole second since 1970.
pub(crate) fn local_second(seconds: i64) -> String {
    local(Timestamp { seconds, micros: 0 })
}

/// This machine's time zone: that of `TZ` in the environment, else of /etc/localtime; UTC
/// without either.
pub(crate) fn zone() -> TimeZone {
    TimeZone::try_system().unwrap_or(TimeZone::UTC)
}

/// `at` as a clock on the wall here shows it: `11:50:37`.
pub(crate) fn clock(at: Timestamp) -> String {
    zoned(at, "%H:%M:%S")
}

/// `at` in this machine's time zone, in the form of strftime.
fn zoned(at: Timestamp, form: &str) -> String {
    match jiff::Timestamp::from_second(at.seconds) {
        Ok(time) => time.to_zoned(zone()).strftime(form).to_string(),
        Err(_) => format!("@{}", at.seconds),
    }
}

/// The time of a clock on the wall in this zone, which has been taken as UTC. Where the clock has
/// shown it twice, as summer time ended, it is the second time if `is_later`.
pub(crate) fn in_zone(wall: Timestamp, zone: &TimeZone, is_later: bool) -> Timestamp {
    let as_utc = jiff::Timestamp::from_microsecond(wall.as_micros()).ok();
    let real = as_utc.and_then(|at| {
        let which = if is_later { Disambiguation::Later } else { Disambiguation::Compatible };
        zone.to_ambiguous_timestamp(TimeZone::UTC.to_datetime(at)).disambiguate(which).ok()
    });
    real.map_or(wall, timestamp)
}

/// When this day has begun here, in seconds since 1970.
pub(crate) fn midnight() -> i64 {
    let now = jiff::Timestamp::now().to_zoned(zone());
    now.start_of_day().map_or(i64::MIN, |start| start.timestamp().as_second())
}

/// A moment of jiff's as one of ours, rounded down to microseconds.
pub(crate) fn timestamp(time: jiff::Timestamp) -> Timestamp {
    let micros = time.as_microsecond();
    Timestamp {
        seconds: micros.div_euclid(1_000_000),
        micros: u32::try_from(micros.rem_euclid(1_000_000)).unwrap_or(0),
    }
}

/// A zone as mail and Exim's logs write it: `+0100`.
pub(crate) fn offset(text: &str) -> Option<Offset> {
    let (sign, number) = match text.split_at_checked(1)? {
        ("+", number) => (1, number),
        ("-", number) => (-1, number),
        _ => return None,
    };
    let is_number = number.len() == 4 && number.bytes().all(|byte| byte.is_ascii_digit());
    let number: i32 = number.parse().ok().filter(|_| is_number)?;
    Offset::from_seconds(sign * (number / 100 * 3600 + number % 100 * 60)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn times_on_the_wall_are_those_of_their_zone() {
        let at = |text: &str| timestamp(text.parse().unwrap());
        let zone = TimeZone::fixed(jiff::tz::offset(2));
        let (wall, real) = (at("2026-11-26T11:00:00.25Z"), at("2026-11-26T09:00:00.25Z"));
        assert_eq!([false, true].map(|later| in_zone(wall, &zone, later)), [real; 2]);
        // Beyond the calendar there are no zones.
        let never = Timestamp { seconds: i64::MAX, micros: 0 };
        assert_eq!(in_zone(never, &zone, false), never);
        // The hour that comes twice, and one that is left out.
        let zone = TimeZone::posix("CET-1CEST,M3.5.0,M10.5.0/3").unwrap();
        for (wall, earlier, later) in [
            ("2026-10-25T02:30:00Z", "2026-10-25T00:30:00Z", "2026-10-25T01:30:00Z"),
            ("2026-10-25T03:30:00Z", "2026-10-25T02:30:00Z", "2026-10-25T02:30:00Z"),
            ("2026-03-29T02:30:00Z", "2026-03-29T01:30:00Z", "2026-03-29T01:30:00Z"),
        ] {
            let real = [false, true].map(|is_later| in_zone(at(wall), &zone, is_later));
            assert_eq!(real, [at(earlier), at(later)], "{wall}");
        }
    }
}
