//! Durations, written as a spec has them: `45s`, `12m`, `3h20m`, `2d4h`.

#[cfg(feature = "cli")]
use crate::rate::{Timestamp, Wait};

/// The units, and their seconds.
const UNITS: [(&str, u64); 4] = [("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1)];
/// The seconds of a week.
#[cfg(feature = "rates")]
const WEEK: u64 = 604_800;
/// The seconds after which nobody waits: some 300 years.
const NEVER: f64 = 1e10;

/// A number of seconds in the one or two largest units that matter, rounded up to the smaller
/// unit: `45s`, `12m`, `3h20m`, `2d4h`; `forever` if it does not end.
pub(crate) fn duration(seconds: f64) -> String {
    if !seconds.is_finite() {
        return "forever".to_owned();
    }
    let whole = seconds.max(0.0).ceil() as u64; // saturates
    for pair in UNITS.windows(2) {
        let [(_, large), (_, small)] = pair else { continue };
        if whole >= *large {
            return exact(whole.div_ceil(*small).saturating_mul(*small));
        }
    }
    exact(whole)
}

/// As [`duration`], without the seconds once it is minutes: how long to wait, where no second
/// matters. `never` if it does not end.
pub(crate) fn rough(seconds: f64) -> String {
    match seconds {
        ..=59.0 => duration(seconds),
        ..NEVER => duration((seconds / 60.0).ceil() * 60.0),
        _ => "never".to_owned(),
    }
}

/// A period exactly, as an argument or a file has it: `1w`, `8d`, `1d12h`, `1h2m3s`.
#[cfg(feature = "rates")]
pub(crate) fn period(seconds: f64) -> String {
    let whole = seconds as u64; // saturates
    match whole {
        _ if !seconds.is_finite() => "forever".to_owned(),
        _ if whole as f64 != seconds || whole == 0 => seconds.to_string(),
        _ if whole.is_multiple_of(WEEK) => format!("{}w", whole / WEEK),
        _ => exact(whole),
    }
}

/// A period that may be a quotient, such as that of a bucket, to the second.
#[cfg(feature = "rates")]
pub(crate) fn whole_period(seconds: f64) -> String {
    period(seconds.round().max(1.0))
}

/// All units that matter.
fn exact(mut left: u64) -> String {
    let mut text = String::new();
    for (unit, length) in UNITS {
        if left >= length {
            text += &format!("{}{unit}", left / length);
            left %= length;
        }
    }
    if text.is_empty() { "0s".to_owned() } else { text }
}

/// How long something is kept, in seconds (`None`: for ever), as an argument has it.
#[cfg(feature = "cli")]
pub(crate) fn kept(keep: Option<u64>) -> String {
    keep.map_or_else(|| "forever".to_owned(), exact)
}

/// How long ago `then` was, seen from `now`: `now`, `5m ago`, or `5m ahead` where it is yet
/// to come.
#[cfg(feature = "cli")]
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
#[cfg(feature = "cli")]
pub(crate) fn rough_age(then: Timestamp, now: Timestamp) -> String {
    let seconds = now.as_seconds() - then.as_seconds();
    let cut = if seconds >= 60.0 { seconds % 60.0 } else { 0.0 };
    age(Timestamp { seconds: then.seconds.saturating_add(cut as i64), ..then }, now)
}

/// When one more event would pass, in words: as [`rough`] as a refusal says it, so that nothing
/// is promised too early.
#[cfg(feature = "cli")]
pub(crate) fn wait(wait: Wait) -> String {
    match wait.whole_seconds() {
        None => "never (one event is as large as the limit)".to_owned(),
        Some(_) => short_wait(wait),
    }
}

/// As [`wait`], without a word on why.
#[cfg(feature = "cli")]
pub(crate) fn short_wait(wait: Wait) -> String {
    match wait.whole_seconds().map(|seconds| seconds as f64) {
        Some(0.0) => "now".to_owned(),
        Some(seconds @ ..NEVER) => format!("in {}", rough(seconds)),
        _ => "never".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_rounded_up_to_what_is_shown() {
        for (seconds, text, roughly) in [
            (0.0, "0s", "0s"),
            (0.2, "1s", "1s"),
            (59.0, "59s", "59s"),
            (59.5, "1m", "1m"),
            (60.0, "1m", "1m"),
            (61.0, "1m1s", "2m"),
            (720.0, "12m", "12m"),
            (3_599.5, "1h", "1h"),
            (3_600.0, "1h", "1h"),
            (12_001.0, "3h21m", "3h21m"),
            (86_399.0, "1d", "1d"),
            (187_200.0, "2d4h", "2d4h"),
            (31_536_060.0, "365d1h", "365d1h"),
            (1e10, "115740d18h", "never"),
            (f64::INFINITY, "forever", "never"),
            (f64::NAN, "forever", "never"),
        ] {
            assert_eq!((&*duration(seconds), &*rough(seconds)), (text, roughly));
        }
    }

    #[cfg(feature = "rates")]
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

    #[cfg(feature = "rates")]
    #[test]
    fn a_quotient_is_a_period_to_the_second() {
        for (seconds, text) in [
            (18_000.000_000_000_004, "5h"),
            (10.0 / (7.0 / 3_600.0), "1h25m43s"),
            (0.2, "1s"),
            (f64::INFINITY, "forever"),
        ] {
            assert_eq!(whole_period(seconds), text);
        }
    }

    #[cfg(feature = "rates")]
    kit::quickcheck! {
        fn what_is_shown_can_be_typed(seconds: u32) -> bool {
            let seconds = f64::from(seconds >> 1).max(1.0);
            let read = |text: String| crate::spec::period(text.as_bytes()).ok();
            let shown = read(duration(seconds));
            read(period(seconds)) == Some(seconds)
                && shown.is_none_or(|shown| shown >= seconds && shown < seconds * 1.1 + 1.0)
        }
    }

    #[cfg(feature = "cli")]
    #[test]
    fn what_is_kept_is_exact() {
        let shown = [Some(604_800), Some(93_784), Some(0), None].map(kept);
        assert_eq!(shown, ["7d", "1d2h3m4s", "0s", "forever"]);
    }

    #[cfg(feature = "cli")]
    #[test]
    fn ages_are_seen_from_now() {
        let at = |seconds| Timestamp { seconds, micros: 0 };
        assert_eq!(age(at(100), at(100)), "now");
        assert_eq!(age(at(100), at(190)), "1m30s ago");
        assert_eq!(age(at(400), at(100)), "5m ahead");
        for (then, text) in [(100, "now"), (50, "50s ago"), (-49, "2m ago"), (400, "5m ahead")] {
            assert_eq!(rough_age(at(then), at(100)), text);
        }
        assert_eq!(rough_age(at(0), at(7_379)), "2h2m ago");
    }

    #[cfg(feature = "cli")]
    #[test]
    fn waits_are_whole_seconds() {
        assert_eq!(Wait::Seconds(0.0).whole_seconds(), Some(0));
        assert_eq!(Wait::Seconds(11.01).whole_seconds(), Some(12));
        assert_eq!(Wait::Never.whole_seconds(), None);
        assert_eq!(wait(Wait::Seconds(719.2)), "in 12m");
        assert!(wait(Wait::Never).starts_with("never ("));
        for (seconds, text) in [(0.0, "now"), (59.0, "in 59s"), (60.5, "in 2m"), (3_599.0, "in 1h")]
        {
            assert_eq!(short_wait(Wait::Seconds(seconds)), text);
            assert_eq!(wait(Wait::Seconds(seconds)), text);
        }
        assert_eq!(short_wait(Wait::Never), "never");
    }
}
