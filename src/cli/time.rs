//! Moments as people write them.

use jiff::civil;
use jiff::tz::TimeZone;

use crate::rate::Timestamp;

/// The moment that `text` says: `now`, `2026-11-20T11:50:37Z`, `2026-11-20
/// 11:50:37` on the clock here, or seconds since 1970 as `@1795175437.5`.
pub(super) fn parse(text: &str) -> Result<Timestamp, String> {
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

/// A moment of jiff's as one of ours, rounded down to microseconds.
pub(super) fn timestamp(time: jiff::Timestamp) -> Timestamp {
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
}
