//! Times as arguments of --since and --until.

use crate::cli::shared::keys;
use crate::text::time;
use crate::text::time::now;

/// A time, in seconds since 1970: as other commands take it, or an age such as
/// `7d`.
pub(super) fn since(text: &str) -> Result<i64, String> {
    if let Ok(age) = keys::period(text)
        && age.is_finite()
    {
        return Ok(now().seconds.saturating_sub(age as i64));
    }
    time::parse(text).map(|moment| moment.seconds).map_err(|_| {
        "use a time, such as '2026-11-20 11:50:37', 2026-11-20, @1795175437 or now, or an age, \
         such as 7d"
            .to_owned()
    })
}

/// The last second of the time `text`: of a date, that of the day.
pub(super) fn until(text: &str) -> Result<i64, String> {
    let seconds = since(text)?;
    // `2026-11-20`
    let is_date = text.len() == 10 && text.bytes().filter(|&b| b == b'-').count() == 2;
    if !is_date {
        return Ok(seconds);
    }
    // A day may have an hour more or less.
    let next = text.parse::<jiff::civil::Date>().and_then(|date| date.tomorrow());
    let end = next.and_then(|day| day.to_zoned(jiff::tz::TimeZone::system()));
    Ok(end.map_or(seconds, |end| end.timestamp().as_second() - 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_may_be_ages() {
        let age = |text| now().seconds - since(text).unwrap();
        assert!((7 * 86_400..7 * 86_400 + 5).contains(&age("7d")));
        assert!((0..5).contains(&age("now")));
        assert_eq!(since("@1795175437"), Ok(1_795_175_437));
        assert!(since("soon").unwrap_err().contains("such as 7d"));
        // A bare number is one of seconds, as everywhere.
        assert!((3600..3605).contains(&age("3600")));
    }

    #[test]
    fn a_day_is_meant_to_its_end() {
        let span = until("2026-11-20").unwrap() - since("2026-11-20").unwrap();
        assert_eq!(span, 86_399);
        assert_eq!(until("@1795175437"), Ok(1_795_175_437));
    }
}
