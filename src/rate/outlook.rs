//! Predictions for the next events: how many would pass now, and when the next
//! one would.
//!
//! An event passes if its rate is below the limit. With `x` periods since the
//! rate `r` was stored, one more event of size `c` has the rate `R(x) = (1 -
//! e^-x)·c/x + e^-x·r`, but at least `c`. Both terms fall with `x`, so once an
//! event would pass, it would also pass later.

use super::{Average, Timestamp};

/// The wait until one more event would pass.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Wait {
    /// This many seconds, a whole number of microseconds (as far as `f64` is
    /// exact: 136 years); 0 if it would pass at once.
    Seconds(f64),
    /// No wait is long enough: the event alone reaches the limit, or the rate
    /// is infinite or NaN, or the wait would be longer than 140 000 years.
    Never,
}

impl Wait {
    /// In whole seconds, rounded up; `None` where no wait helps.
    #[must_use]
    pub fn whole_seconds(self) -> Option<u64> {
        match self {
            Self::Seconds(seconds) => Some(seconds.ceil() as u64), // saturates
            Self::Never => None,
        }
    }
}

/// The longest wait that is returned, in microseconds.
const LONGEST_MICROS: i64 = 1 << 62;

/// More periods than any finite rate needs to decay to 0: the smallest `e^-x`
/// above zero is at x = 745.1.
pub(super) const ENOUGH_PERIODS: f64 = 750.0;

/// How many more events of size `count` would pass, one directly after the
/// other from `now` on.
///
/// The first one has the rate `R` above, each later one `count` more, minus the
/// decay in between: arbitrarily little, but enough for an event that would
/// exactly reach the limit to pass. So without a remembered rate, `m` events of
/// size 1 pass with a whole limit of `m`, and the next one is over. (Events in
/// the same microsecond are 1e-9 seconds apart in Exim's arithmetic, where
/// rounding outweighs the decay: then it is `m - 1` or `m`, depending on the
/// period.)
///
/// Infinite if events have no size, or the limit is infinite.
#[must_use]
pub(super) fn remaining(
    kept: Option<Average>,
    now: Timestamp,
    period: f64,
    limit: f64,
    count: f64,
) -> f64 {
    if count >= limit {
        return 0.0;
    }
    let first = match kept {
        None => count,
        Some(kept) => {
            let x = (now.as_seconds() - kept.at.as_seconds()).max(0.0) / period;
            // If x is tiny, `(1-a)/x` as Average::next computes it loses
            // digits, and the result would depend on the rounding.
            let fresh = if x > 0.0 { -(-x).exp_m1() / x } else { 1.0 };
            let rate = fresh * count + (-x).exp() * kept.rate;
            if rate < count { count } else { rate }
        }
    };
    if !first.is_finite() || first > limit {
        0.0
    } else if count > 0.0 {
        1.0 + ((limit - first) / count).floor()
    } else {
        f64::INFINITY
    }
}

/// The shortest wait from `now` after which one more event of size `count`
/// would pass with `limit`, in whole microseconds.
///
/// Found by bisection with [`Average::next`] itself, so an event after exactly
/// this wait passes. An event a microsecond earlier does not, except with waits
/// under 1e-8 periods (6 ms of a week), where the rounding of `1 - e^-x`
/// outweighs the decay in a microsecond.
#[must_use]
pub(super) fn retry_after(
    kept: Option<Average>,
    now: Timestamp,
    period: f64,
    limit: f64,
    count: f64,
) -> Wait {
    // Also Never if either is NaN.
    if count.partial_cmp(&limit) != Some(std::cmp::Ordering::Less) {
        return Wait::Never;
    }
    let Some(kept) = kept else { return Wait::Seconds(0.0) };
    let passes = |micros: i64| kept.next(now.plus(micros), period, count).rate < limit;
    if passes(0) {
        return Wait::Seconds(0.0);
    }
    let elapsed = now.as_seconds() - kept.at.as_seconds();
    // The time of a record from the future must be reached first.
    let enough = ((-elapsed).max(0.0) + ENOUGH_PERIODS * period) * 1e6;
    let guess = || ((crossing(kept.rate, limit, count) * period - elapsed) * 1e6) as i64;
    shortest_wait(guess, enough, passes)
}

/// The shortest wait that `passes`, in microseconds, if `guess` is near it and one
/// of `enough` passes, if any does. A wait of 0 must not pass.
pub(super) fn shortest_wait(
    guess: impl FnOnce() -> i64,
    enough: f64,
    passes: impl Fn(i64) -> bool,
) -> Wait {
    // `as` saturates.
    let enough = (enough as i64).clamp(1, LONGEST_MICROS);
    if !passes(enough) {
        return Wait::Never;
    }
    let (mut fails, mut passing) = around(guess(), enough, &passes);
    // At most 62 halvings, and mostly two or three.
    while passing - fails > 1 {
        let middle = i64::midpoint(fails, passing);
        if passes(middle) { passing = middle } else { fails = middle }
    }
    Wait::Seconds(passing as f64 / 1e6)
}

/// About how many periods after it was `rate` the rate of one more event of size
/// `count` falls to `limit`: Newton's method, good enough for a first guess.
fn crossing(rate: f64, limit: f64, count: f64) -> f64 {
    // Above it, as the event itself decays, too.
    let mut x = (rate / (limit - count)).ln().clamp(1e-9, ENOUGH_PERIODS);
    for _ in 0..8 {
        let decay = (-x).exp();
        let fresh = (1.0 - decay) / x;
        let slope = count * (decay - fresh) / x - rate * decay;
        let next = x - (count * fresh + rate * decay - limit) / slope;
        // From below, it gets nearer with each step.
        x = if next > 0.0 { next.min(ENOUGH_PERIODS) } else { x / 8.0 };
    }
    x
}

/// Two waits around the shortest one that `passes`, found from a guess: the first
/// fails, or is 0, and the second passes, or is `enough`.
fn around(guess: i64, enough: i64, passes: impl Fn(i64) -> bool) -> (i64, i64) {
    let (mut fails, mut passing) = (0, enough);
    let (mut at, mut step) = (guess.clamp(0, enough), 2_i64);
    while fails < at && at < passing {
        if passes(at) {
            passing = at;
            at = at.saturating_sub(step);
        } else {
            fails = at;
            at = at.saturating_add(step);
        }
        // Both ends are near the guess.
        if passing.saturating_sub(fails) <= step.saturating_mul(2) {
            break;
        }
        step = step.saturating_mul(8);
    }
    (fails, passing)
}

impl Timestamp {
    /// The time this many microseconds later; not negative.
    #[must_use]
    pub(super) fn plus(self, micros: i64) -> Self {
        let micros = micros.saturating_add(i64::from(self.micros));
        Self {
            seconds: self.seconds.saturating_add(micros / 1_000_000),
            // Less than a million.
            micros: (micros % 1_000_000) as u32,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::average::tests::Size;
    use super::*;
    use kit::quickcheck;
    use quickcheck::TestResult;

    const NOW: Timestamp = Timestamp { seconds: 1_700_000_000, micros: 250_000 };

    fn kept(rate: f64) -> Option<Average> {
        Some(Average { at: NOW, rate })
    }

    fn after(kept: Option<Average>, at: Timestamp, period: f64, count: f64) -> Average {
        kept.map_or(Average::first(at, count), |kept| kept.next(at, period, count))
    }

    /// How many events pass, `step` microseconds apart, the first one at `now`.
    fn burst(
        mut kept: Option<Average>,
        mut now: Timestamp,
        step: i64,
        (period, limit, count): (f64, f64, f64),
    ) -> f64 {
        let mut passed = 0.0;
        loop {
            let next = after(kept, now, period, count);
            if next.rate >= limit || passed > 5000.0 {
                return passed;
            }
            (kept, now, passed) = (Some(next), now.plus(step), passed + 1.0);
        }
    }

    #[test]
    fn without_a_rate_as_many_events_pass_as_the_limit() {
        for (limit, count, expected) in [
            (100.0, 1.0, 100.0),
            (1000.0, 1.0, 1000.0),
            (2.5, 1.0, 2.0),
            (10.0, 4.0, 2.0),
            (100.0, 2.5, 40.0),
            // A single event of the size of the limit is over it.
            (1.0, 1.0, 0.0),
            (4.0, 5.0, 0.0),
            (0.0, 0.0, 0.0),
            (1.01, 1.0, 1.0),
        ] {
            for period in [60.0, 3600.0, 86_400.0, 604_800.0] {
                assert_eq!(remaining(None, NOW, period, limit, count), expected);
                if limit <= 100.0 {
                    let setting = (period, limit, count);
                    assert_eq!(burst(None, NOW, 1000, setting), expected, "{setting:?}");
                }
            }
        }
        assert_eq!(remaining(None, NOW, 60.0, 5.0, 0.0), f64::INFINITY);
        assert_eq!(remaining(kept(1e300), NOW, 60.0, f64::INFINITY, 1.0), f64::INFINITY);
        assert_eq!(remaining(kept(f64::INFINITY), NOW, 60.0, f64::INFINITY, 1.0), 0.0);
        assert_eq!(remaining(kept(f64::NAN), NOW, 60.0, 5.0, 1.0), 0.0);
        assert_eq!(remaining(None, NOW, 60.0, 5.0, f64::INFINITY), 0.0);
    }

    #[test]
    fn predictions_hold_throughout_a_burst() {
        for setting in [(3600.0, 20.0, 1.0), (86_400.0, 100.0, 1.0), (604_800.0, 30.0, 2.5)] {
            let (period, limit, count) = setting;
            for step in [50, 1000, 100_000] {
                let (mut kept, mut now) = (None, NOW);
                loop {
                    let foreseen = remaining(kept, now, period, limit, count);
                    // The following events of the burst, 50 µs apart.
                    let passed = burst(kept, now.plus(50), 50, setting);
                    assert_eq!(passed, foreseen, "{kept:?} {setting:?}");
                    let next = after(kept, now, period, count);
                    if next.rate >= limit {
                        break;
                    }
                    (kept, now) = (Some(next), now.plus(step));
                }
            }
        }
    }

    /// If the clock stands still, Exim's rounding decides whether an event that
    /// exactly reaches the limit passes; and with a period of more than 208
    /// days no event counts (the burst was stopped after 5001).
    #[test]
    fn a_clock_that_stands_still() {
        for (period, expected) in STILL {
            let passed = burst(None, NOW, 0, (period, 100.0, 1.0));
            assert_eq!(passed, expected, "{period}");
        }
    }

    const STILL: [(f64, f64); 5] =
        [(60.0, 99.0), (3600.0, 99.0), (86_400.0, 100.0), (604_800.0, 99.0), (2e7, 5001.0)];

    #[test]
    fn waits() {
        let seconds = |wait| match wait {
            Wait::Seconds(seconds) => seconds,
            Wait::Never => f64::INFINITY,
        };
        // Far over the limit the new event hardly matters: p·ln(r/m).
        let wait = seconds(retry_after(kept(1e9), NOW, 3600.0, 1e6, 1.0));
        assert!((wait - 3600.0 * 1000_f64.ln()).abs() < 0.01, "{wait}");
        // c = 0: p·ln(r/m) exactly.
        let wait = seconds(retry_after(kept(8.0), NOW, 100.0, 2.0, 0.0));
        assert!((wait - 100.0 * 4_f64.ln()).abs() < 2e-6, "{wait}");
        // r = c = 1, m = 1.5: (1-e^-x)/x + e^-x = 1.5 at x = 0.37266.
        let wait = seconds(retry_after(kept(1.0), NOW, 1e4, 1.5, 1.0));
        let x = wait / 1e4;
        assert!(((1.0 - (-x).exp()) / x + (-x).exp() - 1.5).abs() < 1e-9, "{x}");
        // The wait includes ten seconds for a record from the future.
        let ahead = Some(Average { at: NOW.plus(10_000_000), rate: 8.0 });
        let late = seconds(retry_after(ahead, NOW, 100.0, 2.0, 0.0));
        assert!((late - 10.0 - 100.0 * 4_f64.ln()).abs() < 2e-6, "{late}");
    }

    #[test]
    fn extremes() {
        let ask = |rate, period, limit, count| retry_after(kept(rate), NOW, period, limit, count);
        let (tiny, huge, infinite) = (5e-324, f64::MAX, f64::INFINITY);
        assert_eq!(ask(1.0, 60.0, 1.0, 1.0), Wait::Never);
        assert_eq!(ask(1.0, 60.0, 0.0, 0.0), Wait::Never);
        assert_eq!(ask(1.0, 60.0, f64::NAN, 1.0), Wait::Never);
        assert_eq!(ask(infinite, 60.0, 5.0, 1.0), Wait::Never);
        assert_eq!(ask(f64::NAN, 60.0, 5.0, 1.0), Wait::Never);
        assert_eq!(ask(9.0, 1e300, 5.0, 1.0), Wait::Never);
        assert_eq!(ask(9.0, infinite, 5.0, 1.0), Wait::Never);
        assert_eq!(ask(9.0, 60.0, infinite, 1.0), Wait::Seconds(0.0));
        assert_eq!(ask(9.0, 1e-300, 5.0, 1.0), Wait::Seconds(0.0));
        assert_eq!(retry_after(None, NOW, 60.0, 5.0, 1.0), Wait::Seconds(0.0));
        for (rate, period, limit, count) in [
            (huge, 60.0, tiny, 0.0),
            (huge, 2147483647.0, 1.0, 0.999_999_999_999),
            (huge, 1e-6, 1.0, 0.5),
            (1e300, 1.0, 1e-300, 1e-301),
        ] {
            let Wait::Seconds(wait) = ask(rate, period, limit, count) else {
                panic!("{rate} {period} {limit} {count}")
            };
            assert!(wait > 0.0 && wait <= 750.0 * period + 1e-6, "{wait}");
        }
    }

    #[test]
    fn a_guess_is_near_the_wait() {
        for (rate, limit, count, period) in [
            (1001.0, 1000.0, 1.0, 3600.0),
            (5e5, 1000.0, 20.0, 604_800.0),
            (3.0, 5.0, 4.5, 60.0),
            (1e300, 1e-3, 0.0, 1.0),
        ] {
            let Wait::Seconds(wait) = retry_after(kept(rate), NOW, period, limit, count) else {
                panic!("{rate} {limit} {count}")
            };
            let guess = crossing(rate, limit, count) * period;
            assert!(wait > 0.0 && (wait - guess).abs() <= 2e-6 + 1e-9 * wait, "{wait} {guess}");
        }
    }

    quickcheck! {
        fn exactly_that_long(rate: Size, limit: Size, count: Size, period: u32, age: u32) -> TestResult {
            let (rate, limit, count) = (rate.0, limit.0, count.0);
            let period = f64::from((period >> (period % 32)) + 1).min(3e7);
            let known = Average { at: NOW, rate };
            let now = NOW.plus(i64::from(age >> (age % 32)) * 1000);
            if rate.is_nan() || limit.is_nan() || count.is_nan() || rate.is_infinite() {
                return TestResult::discard();
            }
            let at = |wait: f64| known.next(now.plus((wait * 1e6).round() as i64), period, count).rate;
            match retry_after(Some(known), now, period, limit, count) {
                Wait::Never => TestResult::from_bool(count >= limit),
                // Not an exact number of microseconds in f64.
                Wait::Seconds(wait) if wait > 4e9 => TestResult::discard(),
                Wait::Seconds(wait) => {
                    // A thousandth of a second less, or a millionth, or the
                    // rounding error of 1-a.
                    let less = wait - 1e-3_f64.max(1e-6 * wait).max(1e-8 * period);
                    TestResult::from_bool(at(wait) < limit && (less < 0.0 || at(less) >= limit))
                }
            }
        }

        fn retry_after_and_remaining_agree(rate: u16, limit: u16, count: u8, period: u16) -> bool {
            let (rate, limit, count) =
                (f64::from(rate) / 64.0, f64::from(limit) / 64.0, f64::from(count) / 16.0);
            let (period, now) = (f64::from(period) + 1.0, NOW.plus(3_000_000));
            let room = remaining(kept(rate), now, period, limit, count) > 0.0;
            room == (retry_after(kept(rate), now, period, limit, count) == Wait::Seconds(0.0))
        }

        fn remaining_equals_the_length_of_a_burst(rate: u16, limit: u16, count: u8, age: u16) -> TestResult {
            let (rate, limit, count) =
                (f64::from(rate) / 64.0, f64::from(limit) / 64.0, 1.0 + f64::from(count) / 16.0);
            // Not at the same time: see a_clock_that_stands_still.
            let (now, setting) = (NOW.plus(1000 + i64::from(age) * 1000), (86_400.0, limit, count));
            let known = Average { at: NOW, rate };
            let foreseen = remaining(Some(known), now, 86_400.0, limit, count);
            // If the last event exactly reaches the limit, the decay during the
            // burst and the rounding decide.
            let rest = (limit - known.next(now, 86_400.0, count).rate) / count;
            if foreseen > 2000.0 || (rest - rest.round()).abs() < 2e-3 {
                return TestResult::discard();
            }
            TestResult::from_bool(foreseen == burst(Some(known), now, 50, setting))
        }
    }
}
