//! Whether two answers differ, and by how much.

/// The answer of one side.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Answer {
    /// At or over the limit.
    pub over: bool,
    /// Events a period.
    pub rate: f64,
}

/// How the answers differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Difference {
    /// They do not.
    None,
    /// Only the last digit of the rates does, as they are printed: by rounding, or by the time
    /// between the two checks. The verdicts are the same.
    Rounding,
    /// Native knows events from before the comparison began.
    WarmingUp,
    /// The rates differ, the verdicts do not.
    Rate {
        /// By no more than this event.
        close: bool,
    },
    /// One is over the limit, the other is not.
    Verdict {
        /// The rates differ by no more than this event.
        close: bool,
    },
}

/// What two equal rates may differ by: native's is rounded to a tenth.
const ROUNDING: f64 = 0.051;
/// What they may differ by where they are printed with neighbouring last digits: 65.8 and 65.9.
const LAST_DIGIT: f64 = 0.151;
/// How many seconds may pass between the two, for each event.
const DELAY: f64 = 0.05;
/// After so many periods, a thousandth of what was counted before is left.
const WARM_UP_PERIODS: f64 = 7.0;

/// Compares the answers to one event that counts as `count` of a limit with this `period`,
/// which was compared first `age` ago; both in seconds.
///
/// Two sessions at the same moment may be counted in one order by native and in the other
/// by us. Then the rates differ by one event, for a moment; so such a difference is `close`.
#[must_use]
pub fn compare(native: Answer, ours: Answer, count: f64, period: f64, age: f64) -> Difference {
    let apart = (native.rate - ours.rate).abs();
    let tolerance = ROUNDING + native.rate.abs() * (DELAY / period).min(1.0);
    let close = apart <= tolerance + count;
    if native.over == ours.over && apart <= tolerance {
        Difference::None
    } else if native.over == ours.over && apart <= tolerance.max(LAST_DIGIT) {
        Difference::Rounding
    } else if native.rate > ours.rate && apart > tolerance && age < WARM_UP_PERIODS * period {
        Difference::WarmingUp
    } else if native.over == ours.over {
        Difference::Rate { close }
    } else {
        Difference::Verdict { close }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(over: bool, rate: f64) -> Answer {
        Answer { over, rate }
    }

    #[test]
    fn answers_differ_in_these_ways() {
        const OLD: f64 = 1e9;
        for (native, ours, age, expected) in [
            (answer(false, 5.0), answer(false, 5.04), OLD, Difference::None),
            (answer(true, 100.0), answer(true, 99.95), OLD, Difference::None),
            // 65.8 and 65.9, as they are printed.
            (answer(false, 65.8), answer(false, 65.86), OLD, Difference::Rounding),
            (answer(true, 65.9), answer(true, 65.75), 60.0, Difference::Rounding),
            (answer(false, 65.8), answer(false, 66.0), OLD, Difference::Rate { close: true }),
            (answer(false, 65.8), answer(true, 65.9), OLD, Difference::Verdict { close: true }),
            // Rounded, native's rate is that of the limit.
            (answer(false, 100.0), answer(true, 100.0), OLD, Difference::Verdict { close: true }),
            (answer(false, 99.0), answer(true, 100.0), OLD, Difference::Verdict { close: true }),
            (answer(true, 130.0), answer(false, 99.0), OLD, Difference::Verdict { close: false }),
            (answer(false, 5.0), answer(false, 6.0), OLD, Difference::Rate { close: true }),
            (answer(false, 5.0), answer(false, 7.0), OLD, Difference::Rate { close: false }),
            // Events from before are known to native only.
            (answer(true, 130.0), answer(false, 1.0), 60.0, Difference::WarmingUp),
            (answer(false, 1.0), answer(false, 9.0), 60.0, Difference::Rate { close: false }),
            (
                answer(false, 9.0),
                answer(false, 1.0),
                7.0 * 3600.0,
                Difference::Rate { close: false },
            ),
        ] {
            let found = compare(native, ours, 1.0, 3600.0, age);
            assert_eq!(found, expected, "{native:?} {ours:?} {age}");
        }
        // In a period of a second, 50 ms are much.
        let found = compare(answer(false, 10.0), answer(false, 10.5), 0.0, 1.0, OLD);
        assert_eq!(found, Difference::None);
    }

    #[test]
    fn what_is_no_number_differs() {
        let found = compare(answer(false, f64::NAN), answer(false, 1.0), 1.0, 60.0, 1e9);
        assert_eq!(found, Difference::Rate { close: false });
    }
}
