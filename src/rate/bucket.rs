//! The leaky bucket.
//!
//! Each event adds its size to the level of a bucket, from which `rate` leaks
//! out a second, down to nothing. An event passes if the bucket has room for
//! it, or is empty. The rule and the order of the operations are those of
//! rspamd 3.4 (the Redis scripts in `src/plugins/lua/ratelimit.lua`, without the
//! dynamic factors), so that verdicts agree: `tests/rspamd.rs` compares them.
//!
//! So in any `t` seconds events of at most `burst + rate·t` in total pass, and
//! one event more if that is larger than the burst: nothing else could ever
//! admit a message to more recipients than `burst`.
//!
//! A level is remembered as an [`Average`], with the level as its rate.

use super::outlook::{Wait, shortest_wait};
use super::{Average, Timestamp, bloom};

/// The parameters of a leaky bucket.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bucket {
    /// The size of all events that pass at once if the bucket is empty; greater
    /// than zero.
    pub burst: f64,
    /// What leaks out in a second. Not negative, not NaN; 0 never leaks.
    pub rate: f64,
}

impl Bucket {
    /// The time in seconds in which a full bucket becomes empty: `burst/rate`.
    #[must_use]
    #[inline]
    pub fn period(&self) -> f64 {
        self.burst / self.rate
    }

    /// The level at `now`: `kept - min((now - then)·rate, kept)`, and 0 if
    /// nothing is remembered. Nothing leaks while the clock goes back.
    #[must_use]
    #[inline]
    pub fn level(&self, kept: Option<Average>, now: Timestamp) -> f64 {
        let Some(kept) = kept else { return 0.0 };
        let elapsed = (now.as_seconds() - kept.at.as_seconds()).max(0.0);
        let leaked = elapsed * self.rate;
        if leaked >= kept.rate { 0.0 } else { kept.rate - leaked }
    }

    /// Whether an event of size `count` is over, if `after` is the level with
    /// it: the bucket was not empty (`after > count`), and `after > burst`.
    #[must_use]
    #[inline]
    pub fn over(&self, after: f64, count: f64) -> bool {
        // NaN is over, as with a moving average.
        let full = after.partial_cmp(&self.burst).is_none_or(|order| order.is_gt());
        full && (after > count || after.is_nan())
    }

    /// How many more events of size `count` would pass, one directly after the
    /// other from `now` on. Infinite if events have no size.
    #[must_use]
    pub fn remaining(&self, kept: Option<Average>, now: Timestamp, count: f64) -> f64 {
        let level = self.level(kept, now);
        if self.over(level + count, count) {
            0.0
        } else if count > 0.0 {
            // A single one passes if the bucket is empty.
            ((self.burst - level) / count).floor().max(1.0)
        } else {
            f64::INFINITY
        }
    }

    /// The shortest wait from `now` after which one more event of size `count`
    /// would pass, in whole microseconds: until there is room for it, or, if it
    /// is larger than the burst, until the bucket is empty.
    #[must_use]
    pub fn retry_after(&self, kept: Option<Average>, now: Timestamp, count: f64) -> Wait {
        let passes = |micros: i64| {
            let level = self.level(kept, now.plus(micros));
            !self.over(level + count, count)
        };
        if passes(0) {
            return Wait::Seconds(0.0);
        }
        let Some(kept) = kept else { return Wait::Never };
        // The time of a level from the future must be reached first.
        let ahead = (kept.at.as_seconds() - now.as_seconds()).max(0.0);
        let level = self.level(Some(kept), now);
        let room = if count <= self.burst { self.burst - count } else { 0.0 };
        let guess = || ((ahead + (level - room) / self.rate) * 1e6) as i64;
        // A second more, as the times are rounded.
        let enough = (ahead + level / self.rate + 1.0) * 1e6;
        shortest_wait(guess, enough, passes)
    }

    /// Whether a record can be dropped at `now` without changing any later
    /// decision of a bucket that leaks no slower: the bucket is empty, which is the same as none, and its Bloom
    /// filter, which was started in second `filter_epoch`, has expired. A record
    /// from the future (the clock went back) is kept, and so is an infinite or
    /// NaN level.
    #[must_use]
    pub fn forgettable(&self, kept: Average, filter_epoch: Option<i64>, now: Timestamp) -> bool {
        now.as_seconds() >= kept.at.as_seconds()
            && kept.rate.is_finite()
            && self.level(Some(kept), now) <= 0.0
            && filter_epoch.is_none_or(|epoch| bloom::expired(epoch, now, self.period()))
    }
}

/// A score that grows with a level or rate, from 0 towards 2: `2·tanh(level /
/// (2·threshold))`. At the threshold it is 0.92.
///
/// It is that of rspamd's `ratelimit` module with `symbol` set
/// (`doc/markdown/modules/ratelimit.md`, "the value is scaled as 2 * tanh(bucket
/// / (threshold * 2))"). A threshold of 0 gives 2 for any level above 0.
#[must_use]
pub fn score(level: f64, threshold: f64) -> f64 {
    // Not 0/0.
    if level <= 0.0 { 0.0 } else { 2.0 * (level / (2.0 * threshold)).tanh() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kit::quickcheck;
    use quickcheck::TestResult;

    const NOW: Timestamp = Timestamp { seconds: 1_700_000_000, micros: 250_000 };

    fn kept(level: f64) -> Option<Average> {
        Some(Average { at: NOW, rate: level })
    }

    /// A bucket written independently, on plain numbers, as in rspamd.
    #[derive(Default)]
    struct Model(Option<(f64, f64)>);

    impl Model {
        /// Whether an event is over; it is added if not.
        fn event(&mut self, now: f64, (burst, rate): (f64, f64), count: f64) -> bool {
            let Some((mut level, last)) = self.0 else {
                self.0 = Some((count, now));
                return false;
            };
            if level > 0.0 && now > last {
                level -= f64::min((now - last) * rate, level);
            }
            let over = level > 0.0 && level + count > burst;
            self.0 = Some((if over { level } else { level + count }, now));
            over
        }
    }

    /// How many events pass, all at `now`.
    fn passing(bucket: Bucket, level: f64, count: f64) -> f64 {
        let (mut level, mut passed) = (level, 0.0);
        while passed < 5000.0 && !bucket.over(level + count, count) {
            (level, passed) = (level + count, passed + 1.0);
        }
        passed
    }

    #[test]
    fn table() {
        let bucket = Bucket { burst: 5.0, rate: 0.5 };
        assert_eq!(bucket.period(), 10.0);
        // Level, age in microseconds; level then, events of 1 that pass, wait in seconds.
        for (level, age, then, remaining, wait) in [
            (0.0, 0, 0.0, 5.0, 0.0),
            (4.0, 0, 4.0, 1.0, 0.0),
            (4.5, 0, 4.5, 0.0, 1.0),
            (5.0, 0, 5.0, 0.0, 2.0),
            (5.0, 1_000_000, 4.5, 0.0, 1.0),
            (5.0, 2_000_000, 4.0, 1.0, 0.0),
            (5.0, 10_000_000, 0.0, 5.0, 0.0),
            (5.0, 99_000_000, 0.0, 5.0, 0.0),
            (5.0, -3_000_000, 5.0, 0.0, 5.0),
            (50.0, 0, 50.0, 0.0, 92.0),
        ] {
            let at = Timestamp { seconds: NOW.seconds - age / 1_000_000, micros: NOW.micros };
            let kept = Some(Average { at, rate: level });
            assert_eq!(bucket.level(kept, NOW), then, "{level} {age}");
            assert_eq!(bucket.remaining(kept, NOW, 1.0), remaining, "{level} {age}");
            assert_eq!(bucket.retry_after(kept, NOW, 1.0), Wait::Seconds(wait), "{level} {age}");
        }
        assert_eq!(bucket.remaining(None, NOW, 2.0), 2.0);
        assert_eq!(bucket.remaining(kept(5.0), NOW, 0.0), f64::INFINITY);
        assert_eq!(bucket.remaining(kept(5.5), NOW, 0.0), 0.0);
    }

    #[test]
    fn an_empty_bucket_admits_any_event() {
        let bucket = Bucket { burst: 5.0, rate: 0.5 };
        assert_eq!(bucket.remaining(None, NOW, 9.0), 1.0);
        assert_eq!(bucket.retry_after(None, NOW, 9.0), Wait::Seconds(0.0));
        // Then the whole event must leak out.
        assert_eq!(bucket.retry_after(kept(9.0), NOW, 9.0), Wait::Seconds(18.0));
        assert_eq!(bucket.retry_after(kept(9.0), NOW, 1.0), Wait::Seconds(10.0));
    }

    #[test]
    fn extremes() {
        let never = Bucket { burst: 5.0, rate: 0.0 };
        assert_eq!(never.retry_after(kept(5.0), NOW, 1.0), Wait::Never);
        assert_eq!(never.retry_after(kept(4.0), NOW, 1.0), Wait::Seconds(0.0));
        assert_eq!(never.retry_after(kept(1.0), NOW, 1e9), Wait::Never);
        assert!(!never.forgettable(Average { at: NOW, rate: 1.0 }, None, NOW.plus(1 << 60)));
        let bucket = Bucket { burst: 5.0, rate: 1.0 };
        for level in [f64::INFINITY, f64::NAN] {
            let later = NOW.plus(1 << 60);
            assert_eq!(bucket.retry_after(kept(level), NOW, 1.0), Wait::Never, "{level}");
            assert_eq!(bucket.remaining(kept(level), NOW, 1.0), 0.0, "{level}");
            assert!(!bucket.forgettable(Average { at: NOW, rate: level }, None, later));
        }
        let slow = Bucket { burst: 1.0, rate: 1e-300 };
        assert_eq!(slow.retry_after(kept(1.0), NOW, 1.0), Wait::Never);
        let wide = Bucket { burst: f64::INFINITY, rate: 1.0 };
        assert_eq!(wide.retry_after(kept(1e300), NOW, 1.0), Wait::Seconds(0.0));
        assert_eq!(wide.remaining(kept(1e300), NOW, 1.0), f64::INFINITY);
    }

    #[test]
    fn scores() {
        assert_eq!((score(0.0, 5.0), score(0.0, 0.0), score(-1.0, 5.0)), (0.0, 0.0, 0.0));
        assert_eq!((score(1.0, 0.0), score(1e300, 5.0)), (2.0, 2.0));
        // tanh(x) = (e^2x - 1)/(e^2x + 1), with 2x = level/threshold.
        for (level, threshold) in [(5.0, 5.0), (1.0, 100.0), (30.0, 20.0_f64)] {
            let e = f64::exp(level / threshold);
            let expected = 2.0 * (e - 1.0) / (e + 1.0);
            assert!((score(level, threshold) - expected).abs() < 1e-12, "{level} {threshold}");
        }
        assert!((score(1.0, 1.0) - 0.924_234).abs() < 1e-6);
    }

    /// Steps of 1/64 second, so that all sums are exact.
    fn step(at: Timestamp, steps: u16) -> Timestamp {
        at.plus(i64::from(steps) * 15_625)
    }

    quickcheck! {
        fn decides_as_the_model(burst: u8, rate: u8, events: Vec<(u16, u8)>) -> bool {
            let (burst, rate) = (f64::from(burst) / 4.0 + 0.25, f64::from(rate) / 64.0);
            let bucket = Bucket { burst, rate };
            let (mut known, mut model, mut now) = (None, Model::default(), NOW);
            events.into_iter().all(|(later, count)| {
                now = step(now, later % 2000);
                let count = f64::from(count % 16) / 2.0;
                let level = bucket.level(known, now);
                let over = bucket.over(level + count, count);
                let first = known.is_none();
                let after = if over { level } else { level + count };
                known = Some(Average { at: now, rate: after });
                over == model.event(now.as_seconds(), (burst, rate), count)
                    && known.map(|kept| kept.rate) == model.0.map(|(level, _)| level)
                    && !(first && over)
            })
        }

        fn exactly_that_long(level: u16, burst: u16, rate: u16, count: u8, age: u32) -> TestResult {
            let (burst, rate) = (f64::from(burst) / 8.0 + 0.5, f64::from(rate) / 3000.0);
            let bucket = Bucket { burst, rate };
            let (known, count) = (kept(f64::from(level) / 3.0), f64::from(count) / 7.0);
            let now = NOW.plus(i64::from(age >> (age % 32)));
            let passes = |micros: i64| {
                !bucket.over(bucket.level(known, now.plus(micros)) + count, count)
            };
            match bucket.retry_after(known, now, count) {
                Wait::Never => TestResult::from_bool(rate == 0.0 && !passes(1 << 60)),
                Wait::Seconds(wait) => {
                    let micros = (wait * 1e6).round() as i64;
                    TestResult::from_bool(passes(micros) && (micros == 0 || !passes(micros - 1)))
                }
            }
        }

        fn remaining_is_the_length_of_a_burst(level: u16, burst: u16, count: u8, age: u16) -> bool {
            // Quarters, so that all sums are exact.
            let bucket = Bucket { burst: f64::from(burst % 4096) / 4.0 + 0.25, rate: 0.25 };
            let count = f64::from(count) / 4.0;
            let known = kept(f64::from(level) / 4.0);
            let now = NOW.plus(i64::from(age) * 1_000_000);
            let foreseen = bucket.remaining(known, now, count);
            let passed = passing(bucket, bucket.level(known, now), count);
            foreseen == if passed == 5000.0 { foreseen.max(5000.0) } else { passed }
        }

        fn what_can_be_forgotten_changes_no_decision(
            level: u16, burst: u8, rate: u8, age: u16, events: Vec<(u16, u8)>
        ) -> TestResult {
            let bucket = Bucket { burst: f64::from(burst), rate: f64::from(rate) / 16.0 };
            let mut now = NOW.plus(i64::from(age) * 100_000 - 5_000_000);
            let old = Average { at: NOW, rate: f64::from(level) / 8.0 };
            if !bucket.forgettable(old, None, now) {
                return TestResult::discard();
            }
            let (mut with, mut without) = (Some(old), None);
            for (later, count) in events {
                now = step(now, later);
                let count = f64::from(count) / 4.0;
                let [a, b] = [&mut with, &mut without].map(|known| {
                    let level = bucket.level(*known, now);
                    let over = bucket.over(level + count, count);
                    *known = Some(Average { at: now, rate: if over { level } else { level + count } });
                    (over, level)
                });
                if a != b {
                    return TestResult::failed();
                }
            }
            TestResult::passed()
        }
    }
}
