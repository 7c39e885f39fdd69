//! Times of the calendar, as they are shown and as people write them.

use jiff::civil;
use jiff::tz::TimeZone;

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

/// `at` in this machine's time zone: `2026-11-20 11:50:37 +01:00`.
pub(crate) fn local(at: Timestamp) -> String {
    zoned(at, "%Y-%m-%d %H:%M:%S %:z")
}

/// `at` as a clock on the wall here shows it: `11:50:37`.
pub(crate) fn clock(at: Timestamp) -> String {
    zoned(at, "%H:%M:%S")
}

/// `at` in this machine's time zone, in the form of strftime.
fn zoned(at: Timestamp, form: &str) -> String {
    match jiff::Timestamp::from_second(at.seconds) {
        Ok(time) => time.to_zoned(jiff::tz::TimeZone::system()).strftime(form).to_string(),
        Err(_) => format!("@{}", at.seconds),
    }
}

/// The moment that `text` says: `now`, `2026-11-20T11:50:37Z`, `2026-11-20
/// 11:50:37` on the clock here, or seconds since 1970 as `@1795175437.5`.
pub(crate) fn parse(text: &str) -> Result<Timestamp, String> {
    let time = if text == "now" {
        Some(jiff::Timestamp::now())
    } else if let Some(seconds) = text.strip_prefix('@') {
        since_1970(seconds)
    } else if let Ok(time) = text.parse::<jiff::Timestamp>() {
        Some(time)
    } else {
        text.parse::<civil::DateTime>()
            .ok()
            .and_then(|time| TimeZone::system().to_zoned(time).ok())
            .map(|zoned| zoned.timestamp())
    };
    let time = time.ok_or_else(|| {
        "expected a time, such as '2026-11-20 11:50:37', 2026-11-20T11:50:37Z, @1795175437 or now"
            .to_owned()
    })?;
    Ok(timestamp(time))
}

/// A moment of the past, and for how many seconds it is meant: besides what [`parse`] reads,
/// `14:05`, `14:05:12`, `Tue 14:05` and `yesterday 14:05`, the latest such time.
pub(crate) fn past(text: &str, now: jiff::Zoned) -> Result<(Timestamp, i64), String> {
    if let Some(found) = on_a_day(text.trim(), &now) {
        return Ok(found);
    }
    let at = parse(text).map_err(|_| {
        "expected a time, such as 14:05, 'Tue 14:05', 'yesterday 14:05', '2026-11-20 11:50:37' or \
         2026-11-20T11:50:37Z"
            .to_owned()
    })?;
    // `2026-11-20 11:50` has no seconds.
    let minute = text.matches(':').count() == 1 && !text.contains('T');
    Ok((at, if minute { 60 } else { 1 }))
}

/// The latest such time before `now`.
fn on_a_day(text: &str, now: &jiff::Zoned) -> Option<(Timestamp, i64)> {
    let (day, clock) = text.rsplit_once(' ').unwrap_or(("", text));
    let (long, time) = match clock.matches(':').count() {
        1 => (60, civil::Time::strptime("%H:%M", clock).ok()?),
        2 => (1, civil::Time::strptime("%H:%M:%S", clock).ok()?),
        _ => return None,
    };
    let day = day.trim().to_lowercase();
    let today = now.date();
    let is_day = |date: civil::Date| match &*day {
        "" => true,
        "today" => date == today,
        "yesterday" => today.yesterday().is_ok_and(|yesterday| date == yesterday),
        name => {
            let full = date.strftime("%A").to_string().to_lowercase();
            name == full || name == full.get(..3).unwrap_or_default()
        }
    };
    let mut date = today;
    for _ in 0..8 {
        if is_day(date) {
            let at = date.to_datetime(time).to_zoned(now.time_zone().clone()).ok()?;
            if at <= *now {
                return Some((timestamp(at.timestamp()), long));
            }
        }
        date = date.yesterday().ok()?;
    }
    None
}

/// A moment of jiff's as one of ours, rounded down to microseconds.
pub(crate) fn timestamp(time: jiff::Timestamp) -> Timestamp {
    let micros = time.as_microsecond();
    Timestamp {
        seconds: micros.div_euclid(1_000_000),
        micros: u32::try_from(micros.rem_euclid(1_000_000)).unwrap_or(0),
    }
}

/// Seconds since 1970, with up to six decimals.
fn since_1970(text: &str) -> Option<jiff::Timestamp> {
    let (seconds, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    if !digits(seconds) || !digits(fraction) || fraction.len() > 6 {
        return None;
    }
    let micros: i32 = format!("{fraction:0<6}").parse().ok()?;
    jiff::Timestamp::new(seconds.parse().ok()?, micros * 1000).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_the_past_are_the_latest_such() {
        let now = "2026-11-24T12:00:00+01:00[+01:00]"; // a Tuesday
        let of = |text| past(text, now.parse().unwrap()).map(|(at, long)| (at.seconds, long));
        let at = |text: &str| text.parse::<jiff::Timestamp>().unwrap().as_second();
        for (text, when, long) in [
            ("11:59", "2026-11-24T10:59:00Z", 60),
            ("14:05", "2026-11-23T13:05:00Z", 60),
            ("14:05:12", "2026-11-23T13:05:12Z", 1),
            ("Tue 14:05", "2026-11-17T13:05:00Z", 60),
            ("tuesday 11:05", "2026-11-24T10:05:00Z", 60),
            ("Wed 11:05", "2026-11-18T10:05:00Z", 60),
            ("yesterday 14:05", "2026-11-23T13:05:00Z", 60),
            ("today 01:00", "2026-11-24T00:00:00Z", 60),
            ("2026-11-20T10:50:37Z", "2026-11-20T10:50:37Z", 1),
        ] {
            assert_eq!(of(text), Ok((at(when), long)), "{text}");
        }
        for text in ["", "Foo 14:05", "25:00", "tomorrow 14:05", "14", "today 14:05"] {
            assert!(of(text).is_err(), "{text}");
        }
        assert_eq!(past("2026-11-20 11:50", now.parse().unwrap()).unwrap().1, 60);
    }

    #[test]
    fn moments_are_what_they_say() {
        let at = |seconds, micros| Ok(Timestamp { seconds, micros });
        assert_eq!(parse("2026-11-20T10:50:37Z"), at(1_795_171_837, 0));
        assert_eq!(parse("2026-11-20T11:50:37.25+01:00"), at(1_795_171_837, 250_000));
        assert_eq!(parse("@1795171837"), at(1_795_171_837, 0));
        assert_eq!(parse("@5.000001"), at(5, 1));
        assert_eq!(parse("@5.1"), at(5, 100_000));
        assert!(parse("now").is_ok_and(|now| now.seconds > 1_700_000_000));
        assert!(parse("2026-11-20 11:50:37").is_ok() && parse("2026-11-20").is_ok());
        for text in
            ["", "@", "@x", "@-1", "@1.1234567", "soon", "11:50", "2026-13-01", "@99999999999999"]
        {
            assert!(parse(text).is_err(), "{text}");
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
}
