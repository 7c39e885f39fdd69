//! When a record can be dropped without changing a decision.

use super::{Average, Timestamp, bloom};

/// Below this a rate is printed as `0.0`.
const PRINTS_AS_ZERO: f64 = 0.05;

/// A quarter of the spacing of `f64` just under 1: a value below this times `c`
/// vanishes when it is added to a sum of `c`/2 or more.
const VANISHES: f64 = f64::EPSILON / 8.0;

/// Whether a record can be dropped at `now` without changing any later
/// decision.
///
/// `average` and `limit` are the record's, `filter_epoch` is the second in
/// which its Bloom filter was started, if it has one, and `period` is its
/// period in seconds. `min_count` is the smallest size with which an event of
/// this key can be *written*: 1 if every written event counts at least one, 0
/// if nothing is known. (Read-only checks write nothing and do not matter; nor
/// do repeated unique events, the first of which is new again after the filter
/// is dropped.)
///
/// # Why nothing is lost
/// Let `r` be the rate, `x ≥ 1` the periods since it was computed, `a = e^-x`
/// and `c` the size of the next event. With the record, the next rate is `R =
/// (1-a)·c/x + a·r`, or `c` if that is less; without it, it is `c`. Since
/// `(1-a)/x` falls with `x`, it is at most `1 - 1/e`, so `R < c` if `a·r <
/// c/e`. The rate is then the same `f64`, and so is the written record, and so
/// everything after it. For `c ≥ 1` it is sufficient that `a·r < 0.05`; for a
/// smaller `min_count`, that `a·r < 0.36·min_count`.
///
/// A check that counts nothing (`c = 0`) sees `a·r` instead of 0. Both are
/// printed as `0.0`, and both are under a limit greater than `a·r` and over a
/// limit of 0; so `a·r` must be below the record's own limit unless that is 0.
/// (Only a later read-only line with another limit below 0.05 could show a
/// difference.)
///
/// If such a check is *written*, as with `count=0` or a message of unknown
/// size, it carries `a·r` on, and events that follow at once add to it. With a
/// `min_count` of 0 the record is therefore kept until `a·r` vanishes in `f64`
/// when added to any event of size 1 or more: about 38 periods instead of three
/// to ten. Sizes between 0 and 1 for such a key are then exact only to 3e-17.
///
/// The filter must have expired, because until then a repeated event is not
/// counted. A record from the future (the clock went back) is kept. An infinite
/// or NaN rate never decays, and is kept for ever, as in Exim.
#[must_use]
pub(super) fn forgettable(
    average: Average,
    limit: f64,
    filter_epoch: Option<i64>,
    period: f64,
    min_count: f64,
    now: Timestamp,
) -> bool {
    let x = (now.as_seconds() - average.at.as_seconds()) / period;
    let left = (-x).exp() * average.rate;
    let bound = if min_count > 0.0 {
        // A little less than 1/e, because of the rounding of R.
        PRINTS_AS_ZERO.min(0.36 * min_count)
    } else {
        VANISHES
    };
    x >= 1.0
        && left < bound
        && (limit <= 0.0 || left < limit)
        && filter_epoch.is_none_or(|epoch| bloom::expired(epoch, now, period))
}

#[cfg(test)]
mod tests {
    use super::super::average::tests::Size;
    use super::*;
    use kit::quickcheck;
    use quickcheck::TestResult;

    const START: i64 = 1_700_000_000;

    fn at(seconds: i64) -> Timestamp {
        Timestamp { seconds: START + seconds, micros: 0 }
    }

    #[test]
    fn table() {
        let one = 1.0;
        // Rate, limit, start of the filter, min_count, now; with a period of
        // 1000 seconds.
        for (rate, limit, epoch, least, now, expected) in [
            (1.0, 100.0, None, one, 2995, false),
            (1.0, 100.0, None, one, 2996, true),
            (100.0, 100.0, None, one, 7600, false),
            (100.0, 100.0, None, one, 7601, true),
            (0.01, 100.0, None, one, 999, false),
            (0.01, 100.0, None, one, 1000, true),
            (0.0, 100.0, None, one, -1000, false),
            (1.0, 0.0, None, one, 3000, true),
            (1.0, 0.01, None, one, 3000, false),
            (1.0, 0.01, None, one, 4700, true),
            (1.0, 100.0, Some(START), one, 3000, true),
            (1.0, 100.0, Some(START + 2000), one, 3000, false),
            (1.0, 100.0, Some(START + 2000), one, 3001, true),
            (1.0, 100.0, None, 0.01, 5600, false),
            (1.0, 100.0, None, 0.01, 5700, true),
            (1.0, 100.0, None, 0.0, 38_000, false),
            (1.0, 100.0, None, 0.0, 38_200, true),
            (1e308, 100.0, None, one, 600_000, false),
            (1e308, 100.0, None, one, 720_000, true),
            (f64::INFINITY, 100.0, None, one, 1 << 40, false),
            (f64::NAN, 100.0, None, one, 1 << 40, false),
        ] {
            let average = Average { at: at(0), rate };
            let got = forgettable(average, limit, epoch, 1000.0, least, at(now));
            assert_eq!(got, expected, "{rate} {limit} {epoch:?} {least} {now}");
        }
    }

    /// The next rates with and without the record, over some more events.
    fn both(old: Average, period: f64, events: &[(u32, f64)], now: Timestamp) -> Vec<(f64, f64)> {
        let (mut kept, mut forgotten) = (Some(old), None);
        let mut now = now;
        let mut rates = Vec::new();
        for &(later, count) in events {
            now.micros += later % 1_000_000;
            now = Timestamp {
                seconds: now.seconds + i64::from(now.micros / 1_000_000),
                micros: now.micros % 1_000_000,
            };
            for average in [&mut kept, &mut forgotten] {
                *average = Some(match *average {
                    Some(average) => average.next(now, period, count),
                    None => Average::first(now, count),
                });
            }
            rates.push((kept.unwrap().rate, forgotten.unwrap().rate));
        }
        rates
    }

    quickcheck! {
        fn lossless_for_events_of_one_and_more(
            rate: Size, periods: u8, more: u32, events: Vec<(u32, u16)>
        ) -> TestResult {
            let now = at(i64::from(periods % 16) * 60 + i64::from(more % 60));
            let old = Average { at: at(0), rate: rate.0 };
            if !forgettable(old, 1.0, None, 60.0, 1.0, now) {
                return TestResult::discard();
            }
            let events: Vec<_> =
                events.into_iter().map(|(later, c)| (later, 1.0 + f64::from(c) / 16.0)).collect();
            TestResult::from_bool(both(old, 60.0, &events, now).iter().all(|(a, b)| a == b))
        }

        fn lossless_for_fractions(
            rate: Size, periods: u8, least: u8, events: Vec<(u32, u8)>
        ) -> TestResult {
            let least = f64::from(least) / 256.0;
            let now = at(i64::from(periods % 24) * 60 + 7);
            let old = Average { at: at(0), rate: rate.0 };
            if least == 0.0 || !forgettable(old, 1.0, None, 60.0, least, now) {
                return TestResult::discard();
            }
            let events: Vec<_> =
                events.into_iter().map(|(later, c)| (later, least + f64::from(c))).collect();
            TestResult::from_bool(both(old, 60.0, &events, now).iter().all(|(a, b)| a == b))
        }

        fn lossless_for_written_events_of_nothing(
            rate: u16, periods: u8, events: Vec<(u32, u8)>
        ) -> TestResult {
            let now = at(i64::from(periods % 64) * 60);
            let old = Average { at: at(0), rate: f64::from(rate) };
            if rate == 0 || !forgettable(old, 1.0, None, 60.0, 0.0, now) {
                return TestResult::discard();
            }
            let events: Vec<_> =
                events.into_iter().map(|(later, c)| (later, f64::from(c % 4))).collect();
            TestResult::from_bool(both(old, 60.0, &events, now).iter().all(|&(a, b)| {
                a == b || (a < 1e-15 && b == 0.0)
            }))
        }

        fn read_only_checks_decide_alike(rate: Size, limit: Size, now: u16) -> TestResult {
            let (old, now) = (Average { at: at(0), rate: rate.0 }, at(i64::from(now)));
            if !forgettable(old, limit.0, None, 60.0, 1.0, now) {
                return TestResult::discard();
            }
            let rate = old.next(now, 60.0, 0.0).rate;
            let same_verdict = (rate < limit.0) == (0.0 < limit.0);
            TestResult::from_bool(same_verdict && format!("{rate:.1}") == "0.0")
        }
    }
}
