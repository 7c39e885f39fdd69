//! Calendar windows: an hour, a day, a week or a month of some time zone.
//!
//! A window is named by its start and end in UTC, which whoever asks has computed: see the
//! module `calendar`. Events are counted in the window of the record. It moves on to the
//! window of a check if that begins in the second half of its own or later, and never to
//! an earlier one. In one zone, windows follow one another, so that each begins with a count
//! of nothing. Where clocks or zones differ, or a zone was changed, the same window may be
//! some hours away: then the count does not start again, and each window has more than half of its length.
//!
//! The clock of the store decides which window is the present one: for a check whose clock is
//! behind or ahead it is that of the record, if that is the present one, else its own, moved by
//! whole lengths. So no server can end a window of a shared store early, or begin one that is
//! not the present. A record that is in a far window nevertheless, as the
//! store's own clock was wrong, counts as none.

use super::{Average, Timestamp, Wait};

/// A window of the calendar, in seconds since 1970: from `start` until before `end`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CalendarWindow {
    /// The second in which it begins.
    pub start: i64,
    /// The second in which the next one begins; after `start`.
    pub end: i64,
}

impl CalendarWindow {
    /// For so many seconds after its end a window is still kept: then it is over in any zone.
    /// One may begin so many seconds from now, or as many as it has if these are more.
    pub const KEPT: i64 = 86_400;

    /// The one that begins in this second and has this length in seconds.
    #[must_use]
    #[inline]
    pub fn lasting(start: i64, seconds: f64) -> Self {
        // A length that no window has is cut to the largest number.
        Self { start, end: start.saturating_add(seconds as i64) }
    }

    /// Its length in seconds.
    #[must_use]
    #[inline]
    pub fn seconds(self) -> f64 {
        self.length() as f64
    }

    #[inline]
    fn length(self) -> i64 {
        self.end.saturating_sub(self.start)
    }

    /// Whether a clock which shows this second is in it.
    #[must_use]
    #[inline]
    pub fn has(self, second: i64) -> bool {
        (self.start..self.end).contains(&second)
    }

    /// The window that a clock which shows this second is in, where the clock that this one is from
    /// shows another time: that in which the record counts, or one of this length.
    #[must_use]
    #[inline]
    pub fn at(self, second: i64, kept: Option<Self>) -> Self {
        if self.has(second) {
            return self;
        }
        // Months differ in length, so one that is moved may begin in the midst of it.
        if let Some(kept) = kept.filter(|kept| kept.has(second)) {
            return kept;
        }
        let length = self.length().max(1);
        let start = second.saturating_sub(second.saturating_sub(self.start).rem_euclid(length));
        Self { start, end: start.saturating_add(length) }
    }

    /// Whether what is counted in this window counts at this time: it is not over, and not that
    /// of a clock which was far ahead.
    #[must_use]
    pub fn is_present(self, now: Timestamp) -> bool {
        now.seconds < self.end && !self.is_far(now)
    }

    /// Whether nothing is lost with a record of this window at `now`: every later check that asks
    /// in the same zone begins another one. A day later, in any zone.
    #[must_use]
    pub fn is_of_the_past(self, now: Timestamp) -> bool {
        now.seconds.saturating_sub(self.end) >= Self::KEPT
    }

    /// What is counted at `now` of what a record of this window remembers.
    #[must_use]
    pub fn counted(self, kept: Option<Average>, now: Timestamp) -> f64 {
        kept.filter(|_| self.is_present(now)).map_or(0.0, |kept| kept.rate)
    }

    /// Whether it begins so late that only a clock which was wrong can have been in it.
    #[must_use]
    #[inline]
    pub fn is_far(self, now: Timestamp) -> bool {
        let ahead = self.start.saturating_sub(now.seconds);
        ahead > Self::KEPT && ahead > self.length()
    }

    /// Whether a record of the window `kept` moves on to this one.
    #[must_use]
    #[inline]
    pub fn follows(self, kept: Self) -> bool {
        let later = self.start.saturating_sub(kept.start);
        later > kept.length().saturating_sub(later)
    }

    /// The second in which a record of the window `kept` starts to count again, where this
    /// window is the present one: exact, unless this clock is behind and the zones differ as well.
    #[must_use]
    #[inline]
    pub fn restarts(self, kept: Self) -> i64 {
        let next = Self { start: self.end, end: self.end };
        if next.follows(kept) { self.end } else { kept.end }
    }
}

/// The limit of a window and the second in which it began as one number, which a store keeps in
/// place of the limit: an `f32` in the upper half, so that it is never NaN, and the second, as
/// `u32`, in the lower one.
#[must_use]
#[inline]
pub fn pack(limit: f64, start: i64) -> f64 {
    let start = u32::try_from(start).unwrap_or(if start < 0 { 0 } else { u32::MAX });
    f64::from_bits(u64::from((limit as f32).to_bits()) << 32 | u64::from(start))
}

/// What [`pack`] has packed.
#[must_use]
#[inline]
pub fn unpack(packed: f64) -> (f64, i64) {
    let bits = packed.to_bits();
    (f32::from_bits((bits >> 32) as u32).into(), i64::from(bits as u32))
}

/// How many more events of size `count` would pass if `counted` are counted already.
#[must_use]
pub(super) fn remaining(counted: f64, limit: f64, count: f64) -> f64 {
    if exceeds(counted + count, limit) {
        0.0
    } else if count > 0.0 {
        ((limit - counted) / count).floor()
    } else {
        f64::INFINITY
    }
}

/// The wait from `now` until one more event of size `count` would pass, if `counted` are counted
/// already and the count starts again in second `restarts`.
#[must_use]
pub(super) fn retry_after(
    counted: f64,
    limit: f64,
    count: f64,
    restarts: i64,
    now: Timestamp,
) -> Wait {
    if exceeds(count, limit) {
        return Wait::Never;
    }
    if !exceeds(counted + count, limit) {
        return Wait::Seconds(0.0);
    }
    let micros = Timestamp { seconds: restarts, micros: 0 }.as_micros();
    Wait::Seconds(micros.saturating_sub(now.as_micros()).max(0) as f64 / 1e6)
}

/// Whether a count is over the limit: exactly the limit passes. NaN is over.
#[must_use]
#[inline]
pub fn exceeds(counted: f64, limit: f64) -> bool {
    counted.partial_cmp(&limit).is_none_or(|order| order.is_gt())
}

/// Whether a store that is given this limit of a window keeps it as `stored`: see [`pack`].
#[must_use]
pub(super) fn is_stored_as(limit: f64, stored: f64) -> bool {
    unpack(pack(limit, 0)).0 == stored
}

#[cfg(test)]
mod tests {
    use super::*;
    use kit::quickcheck;

    const DAY: i64 = 86_400;

    /// A day that begins so many hours after 1970.
    fn day(hours: i64) -> CalendarWindow {
        CalendarWindow { start: hours * 3600, end: hours * 3600 + DAY }
    }

    #[test]
    fn the_next_window_follows() {
        assert!(day(24).follows(day(0)) && day(72).follows(day(0)));
        assert!(!day(0).follows(day(0)) && !day(0).follows(day(24)) && !day(-240).follows(day(0)));
        // Another zone's.
        assert!(!day(6).follows(day(0)) && !day(12).follows(day(0)) && day(13).follows(day(0)));
        // Days of 23 and 25 hours.
        let (short, long) = (CalendarWindow { end: DAY - 3600, ..day(0) }, day(23));
        assert!(
            long.follows(short) && day(25).follows(CalendarWindow { end: DAY + 3600, ..day(0) })
        );
        let extreme = CalendarWindow { start: i64::MAX, end: i64::MIN };
        assert!(!extreme.follows(extreme) || extreme.seconds() < 0.0);
    }

    #[test]
    fn the_clock_of_the_store_says_which_window_it_is() {
        for (hours, now, expected) in [
            (0, 0, 0),
            (0, DAY - 1, 0),
            // The clock of the check is behind, and ahead.
            (0, DAY, 24),
            (0, 400 * DAY + 5, 400 * 24),
            (24, DAY - 1, 0),
            (6, 0, -18),
            (400 * 24 + 6, 7 * 3600, 6),
        ] {
            assert_eq!(day(hours).at(now, None), day(expected), "{hours} {now}");
        }
        for extreme in [
            CalendarWindow { start: i64::MAX, end: i64::MIN },
            CalendarWindow { start: i64::MIN, end: i64::MAX },
            CalendarWindow { start: 5, end: 5 },
        ] {
            for now in [i64::MIN, 0, i64::MAX] {
                assert!(extreme.at(now, None).start <= now);
            }
        }
    }

    #[test]
    fn a_far_window_does_not_count() {
        let at = |seconds| Timestamp { seconds, micros: 0 };
        assert!(day(0).is_present(at(0)) && !day(0).is_present(at(DAY)));
        // A clock was a day ahead, and one was more.
        assert!(day(24).is_present(at(0)) && !day(25).is_present(at(0)));
        let month = CalendarWindow { start: 30 * DAY, end: 61 * DAY };
        assert!(!month.is_far(at(-DAY)) && month.is_far(at(-2 * DAY)));
        let hour = CalendarWindow { start: DAY, end: DAY + 3600 };
        assert!(!hour.is_far(at(0)) && hour.is_far(at(-1)));
    }

    #[test]
    fn a_stored_limit_is_known_again() {
        for limit in [0.0, 0.1, 500.0, 123_456_789.0, f64::INFINITY] {
            assert!(is_stored_as(limit, unpack(pack(limit, 7)).0));
            assert!(!is_stored_as(limit, 499.0));
        }
    }

    #[test]
    fn restarts_where_the_record_moves_on() {
        assert_eq!(day(0).restarts(day(0)), DAY);
        // The zone was changed: the next window that follows.
        assert_eq!(day(6).restarts(day(0)), day(6).end);
        assert_eq!(day(-6).restarts(day(0)), day(-6).end);
        // This clock is behind.
        assert_eq!(day(-24).restarts(day(0)), DAY);
    }

    #[test]
    fn waits_are_exact() {
        let now = Timestamp { seconds: 100, micros: 250_000 };
        let wait = |counted, count| retry_after(counted, 5.0, count, 160, now);
        assert_eq!(wait(4.0, 1.0), Wait::Seconds(0.0));
        assert_eq!(wait(5.0, 1.0), Wait::Seconds(59.75));
        assert_eq!(wait(0.0, 6.0), Wait::Never);
        assert_eq!(wait(f64::NAN, 1.0), Wait::Seconds(59.75));
        assert_eq!((remaining(3.0, 5.0, 1.0), remaining(3.0, 5.0, 1.5)), (2.0, 1.0));
        assert_eq!((remaining(5.0, 5.0, 1.0), remaining(5.0, 5.0, 0.0)), (0.0, f64::INFINITY));
        assert_eq!(remaining(0.0, 0.0, 1.0), 0.0);
    }

    #[test]
    fn packed_numbers_come_back() {
        for limit in [0.0, 500.0, 524_288_000.0, 0.5, f64::INFINITY] {
            for start in [0, 1_700_000_000, i64::from(u32::MAX)] {
                let packed = pack(limit, start);
                assert!(packed >= 0.0, "{limit} {start}");
                assert_eq!(unpack(packed), (limit, start));
            }
        }
        assert_eq!(
            (unpack(pack(1.0, -5)), unpack(pack(1.0, 1 << 40)).1),
            ((1.0, 0), i64::from(u32::MAX))
        );
    }

    quickcheck! {
        /// Whatever the zones and clocks: the count starts again no sooner than after more
        /// than half of a window, and never goes back.
        fn windows_of_a_record_are_half_a_window_apart(starts: Vec<u16>) -> bool {
            let mut kept = day(0);
            starts.into_iter().all(|hours| {
                let next = day(i64::from(hours % 500));
                let before = kept;
                if next.follows(kept) {
                    kept = next;
                }
                kept == before || kept.start - before.start > DAY / 2
            })
        }
    }
}
