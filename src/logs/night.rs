//! The night in which summer time ends: the times of a log that have no zone go back by an
//! hour, and the hour before and the hour after would count as one.

use crate::rate::Timestamp;

/// So far clocks go back, in seconds.
const HOUR: i64 = 3600;
/// A step back that is about an hour.
const STEP: std::ops::RangeInclusive<i64> = HOUR - 1200..=HOUR + 60;
/// Clocks go back in the first hours of a Sunday.
const LATEST_HOUR: i64 = 4;
const DAY: i64 = 86_400;

/// Puts the times without a zone that follow such a night after those before it.
#[derive(Debug, Default)]
pub(super) struct Night {
    /// The latest time so far, as it is used.
    latest: Option<Timestamp>,
    ahead: i64,
    /// Lines have come in another order than that of their times.
    is_unordered: bool,
    /// Where a clock went back: `FILE:LINE`.
    pub(super) found: Vec<String>,
    /// The time, as it is used, when it last did.
    since: i64,
    /// The full hour at which it did.
    hour: i64,
}

impl Night {
    /// The time to use for a line of that time, which has no zone.
    pub(super) fn time(&mut self, at: Timestamp, place: impl FnOnce() -> String) -> Timestamp {
        let later = |ahead: i64| Timestamp { seconds: at.seconds.saturating_add(ahead), ..at };
        let Some(latest) = self.latest else { return *self.latest.insert(at) };
        let mut used = later(self.ahead);
        let back = latest.seconds.saturating_sub(used.seconds);
        // A Sunday: the first of January 1970 was a Thursday.
        let is_sunday = (at.seconds.div_euclid(DAY) + 4).rem_euclid(7) == 0;
        let is_early = at.seconds.rem_euclid(DAY) < LATEST_HOUR * HOUR;
        let is_first = latest.seconds.saturating_sub(self.since) > DAY || self.found.is_empty();
        let is_step = STEP.contains(&back) && is_sunday && is_early && is_first;
        if is_step && !self.is_unordered {
            self.ahead += HOUR;
            used = later(self.ahead);
            self.since = used.seconds;
            self.hour = (latest.seconds.div_euclid(HOUR) + 1) * HOUR;
            self.found.push(place());
        } else if self.ahead > 0 && used.seconds - latest.seconds > HOUR / 2 {
            // A line from before that night which comes late.
            let before = later(self.ahead - HOUR);
            let is_near = (before.seconds - latest.seconds).abs() < HOUR / 2;
            if is_near && before.seconds < self.hour {
                used = before;
            }
        }
        self.is_unordered |= latest.seconds.saturating_sub(used.seconds) > HOUR / 6;
        self.latest = Some(latest.max(used));
        used
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The times used for these, in seconds after midnight on Sunday, 25 October 2026.
    fn used(times: &[i64]) -> (Vec<i64>, usize) {
        let midnight = 1_792_886_400;
        let mut night = Night::default();
        let of = |at: &i64| Timestamp { seconds: midnight + at, micros: 0 };
        let used =
            times.iter().map(|at| night.time(of(at), || "x".into()).seconds - midnight).collect();
        (used, night.found.len())
    }

    #[test]
    fn the_hour_that_comes_twice_counts_twice() {
        let (two, three) = (2 * HOUR, 3 * HOUR);
        let times = [two, two + 1800, three - 2, two + 1, three - 1, two + 60, three, three + 60];
        let expected = [
            two,
            two + 1800,
            three - 2,
            three + 1,
            three - 1,
            three + 60,
            three + HOUR,
            three + HOUR + 60,
        ];
        assert_eq!(used(&times), (expected.into(), 1));
        // Another night, and another step.
        for times in [[three + DAY, two + DAY], [three, three - 600], [three, three - 2 * HOUR]] {
            assert_eq!(used(&times), (times.into(), 0));
        }
        assert_eq!(used(&[12 * HOUR, 11 * HOUR]), (vec![12 * HOUR, 11 * HOUR], 0));
    }
}
