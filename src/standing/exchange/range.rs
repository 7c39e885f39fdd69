//! Which numbers and times a record may have that is imported or set by hand: those that
//! checks can have written. Others would show nonsense, or hold a key for ever.

use crate::engine::Block;
use crate::rate::Timestamp;
use crate::store::Entry;

/// The largest number of events or bytes.
const MOST: f64 = 1e18;
/// How far a time may be ahead, in seconds: a year, as clocks differ.
const AHEAD: i64 = 366 * 86_400;

/// A rate, or the cost of an event.
///
/// # Errors
/// It is not from 0 to 1e18.
pub(crate) fn rate(rate: f64) -> Result<f64, String> {
    match rate {
        0.0..=MOST => Ok(rate),
        _ => Err(format!("{rate:?} is not a number from 0 to {MOST:?}")),
    }
}

/// A limit; infinite where it is not known.
///
/// # Errors
/// It is neither that nor from 0 to 1e18.
pub(crate) fn limit(limit: f64) -> Result<f64, String> {
    match limit {
        f64::INFINITY => Ok(limit),
        _ => rate(limit).map_err(|why| why + ", or inf"),
    }
}

/// A time in seconds since 1970.
///
/// # Errors
/// It is before 1970, or more than a year after `now`.
pub(crate) fn time(seconds: i64, now: Timestamp) -> Result<i64, String> {
    match seconds.checked_sub(now.seconds) {
        Some(..=AHEAD) if seconds >= 0 => Ok(seconds),
        _ if seconds < 0 => Err(format!("{seconds} is a time before 1970")),
        _ => Err(format!("{seconds} is a time more than a year ahead (in seconds since 1970)")),
    }
}

/// A record.
///
/// # Errors
/// Which of its numbers is out of range.
pub(crate) fn entry(entry: &Entry, now: Timestamp) -> Result<(), String> {
    let field_error = |name: &'static str| move |why: String| format!("its {name}: {why}");
    rate(entry.average.rate).map_err(field_error("rate"))?;
    limit(entry.limit).map_err(field_error("limit"))?;
    time(entry.average.at.seconds, now).map_err(field_error("time"))?;
    time(entry.over_since.into(), now).map_err(field_error("over_since"))?;
    if Block::held(entry.last_over).is_none() {
        time(entry.last_over.into(), now).map_err(field_error("last_over"))?;
    }
    if let Some(filter) = &entry.filter {
        time(filter.epoch, now).map_err(field_error("filter"))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp { seconds: 1_795_171_837, micros: 0 };

    kit::quickcheck! {
        fn what_is_taken_is_in_range(bits: u64, seconds: i64) -> bool {
            let number = f64::from_bits(bits);
            let plausible = (0.0..=1e18).contains(&number);
            rate(number).is_ok() == plausible
                && limit(number).is_ok() == (plausible || number == f64::INFINITY)
                && time(seconds, NOW).is_ok() == (0..=NOW.seconds + AHEAD).contains(&seconds)
        }
    }

    #[test]
    fn odd_numbers_are_refused() {
        for odd in [-9e18, -1.0, 1e308, 1.1e18, f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            assert!(rate(odd).is_err(), "{odd}");
            assert!(limit(odd).is_err() || odd == f64::INFINITY, "{odd}");
        }
        for seconds in [i64::MIN, -1, NOW.seconds + AHEAD + 1, i64::MAX] {
            assert!(time(seconds, NOW).is_err(), "{seconds}");
        }
        assert_eq!(rate(-9e18).unwrap_err(), "-9e18 is not a number from 0 to 1e18");
    }
}
