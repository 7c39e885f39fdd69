//! Durations.

use crate::rate::{Timestamp, Wait};

/// The units of a period, and their seconds.
const UNITS: [(&str, u64); 4] = [("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1)];
/// The seconds of a week.
const WEEK: u64 = 604_800;

/// A period exactly, as an argument or a file has it: `1w`, `8d`, `1d12h`, `1h2m3s`.
pub(crate) fn period(seconds: f64) -> String {
    let whole = seconds as u64; // saturates
    if whole as f64 != seconds || whole == 0 {
        return if seconds.is_finite() { seconds.to_string() } else { "forever".to_owned() };
    }
    if whole.is_multiple_of(WEEK) {
        return format!("{}w", whole / WEEK);
    }
    let (mut text, mut left) = (String::new(), whole);
    for (unit, length) in UNITS {
        if left >= length {
            text += &format!("{}{unit}", left / length);
            left %= length;
        }
    }
    text
}

/// A number of seconds in the one or two largest units that matter: `45 s`,
/// `12 min`, `3 h 20 min`, `2 d 4 h`. Rounded up to the smaller unit.
pub(crate) fn duration(seconds: f64) -> String {
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

/// How long something is kept, in seconds (`None`: for ever), as an argument has it.
pub(crate) fn kept(keep: Option<u64>) -> String {
    let duration = |seconds| duration(seconds as f64).replace(' ', "");
    keep.map_or_else(|| "forever".to_owned(), duration)
}

/// How long ago `then` was, seen from `now`: `now`, `5 min ago`, or `5 min
/// ahead` where it is yet to come.
pub(crate) fn age(then: Timestamp, now: Timestamp) -> String {
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
pub(crate) fn rough_age(then: Timestamp, now: Timestamp) -> String {
    let seconds = now.as_seconds() - then.as_seconds();
    let cut = if seconds >= 60.0 { seconds % 60.0 } else { 0.0 };
    age(Timestamp { seconds: then.seconds.saturating_add(cut as i64), ..then }, now)
}

/// When one more event would pass, in words.
pub(crate) fn wait(wait: Wait) -> String {
    match wait.whole_seconds() {
        None => "never (one event is as large as the limit)".to_owned(),
        Some(0) => "now".to_owned(),
        Some(seconds) => format!("in {}", duration(seconds as f64)),
    }
}

/// As [`wait`], without a word on why, and without the seconds once it is
/// minutes: rounded up, so that it promises nothing too early.
pub(crate) fn rough_wait(wait: Wait) -> String {
    match wait.whole_seconds() {
        None => "never".to_owned(),
        Some(0) => "now".to_owned(),
        Some(seconds @ ..60) => format!("in {seconds} s"),
        Some(seconds) => format!("in {}", duration(seconds.div_ceil(60) as f64 * 60.0)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_period_is_exact() {
        for (seconds, text) in [
            (604_800.0, "1w"),
            (1_814_400.0, "3w"),
            (691_200.0, "8d"),
            (129_600.0, "1d12h"),
            (3_600.0, "1h"),
            (90.0, "1m30s"),
            (93_784.0, "1d2h3m4s"),
            (0.5, "0.5"),
            (f64::INFINITY, "forever"),
        ] {
            assert_eq!(period(seconds), text);
        }
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

    quickcheck::quickcheck! {
        fn a_period_can_be_typed(seconds: u32) -> bool {
            let seconds = f64::from(seconds >> 1).max(1.0);
            crate::spec::period(period(seconds).as_bytes()) == Ok(seconds)
        }
    }
}
