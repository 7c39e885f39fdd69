//! Hours, days, weeks and months of a time zone as windows in UTC.
//!
//! A window begins at the first moment at which the clock of the zone shows its hour, day, week or
//! month, or a later time, and ends where the next one begins. So the hour that a clock shows
//! twice in autumn is one window of two hours, a day has 23 or 25 hours then and in spring, and a day that
//! a zone leaves out has no window. Weeks begin on Monday.

#[cfg(feature = "cli")]
mod load;
#[cfg(test)]
#[cfg(feature = "cli")]
mod oracle_tests;

use std::fmt;

use crate::rate::CalendarWindow;

#[cfg(feature = "cli")]
pub use load::{NoZone, load};

/// The seconds of a day.
const DAY: i64 = 86_400;
/// More than any zone is away from UTC, in seconds.
const OFFSET_MAX: i64 = 26 * 3600;
/// No time is further from 1970, in seconds: 34,000 years.
const TIME_MAX: i64 = 1 << 40;

/// How often a count starts again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Every {
    /// Each hour.
    Hour,
    /// Each day, at midnight.
    Day,
    /// Each week, at midnight before Monday.
    Week,
    /// Each month, at midnight before its first day.
    Month,
}

impl Every {
    /// All of them.
    pub const ALL: &[Self] = &[Self::Hour, Self::Day, Self::Week, Self::Month];

    /// How it is written: `daily`.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Hour => "hourly",
            Self::Day => "daily",
            Self::Week => "weekly",
            Self::Month => "monthly",
        }
    }

    /// What it is: `day`.
    #[must_use]
    pub fn noun(self) -> &'static str {
        match self {
            Self::Hour => "hour",
            Self::Day => "day",
            Self::Week => "week",
            Self::Month => "month",
        }
    }

    /// The seconds that it has as a rule; of a month, 30 days.
    #[must_use]
    pub fn seconds(self) -> f64 {
        match self {
            Self::Hour => 3600.0,
            Self::Day => 86_400.0,
            Self::Week => 604_800.0,
            Self::Month => 2_592_000.0,
        }
    }

    /// The start of the one that has this time. Times are seconds since 1970 on the clock of the
    /// zone.
    fn start(self, time: i64) -> i64 {
        let day = time.div_euclid(DAY);
        match self {
            Self::Hour => time - time.rem_euclid(3600),
            Self::Day => day * DAY,
            // 1970 began on a Thursday.
            Self::Week => (day - (day + 3).rem_euclid(7)) * DAY,
            Self::Month => (day - day_of_month(day) + 1) * DAY,
        }
    }

    /// The start of the one after the one that starts at this time.
    fn next(self, start: i64) -> i64 {
        match self {
            Self::Hour => start + 3600,
            Self::Day => start + DAY,
            Self::Week => start + 7 * DAY,
            Self::Month => self.start(start + 31 * DAY),
        }
    }
}

/// The day of its month, from 1 on, of a day counted from 1970 on (Howard Hinnant,
/// "chrono-Compatible Low-Level Date Algorithms", `civil_from_days`).
fn day_of_month(day: i64) -> i64 {
    // Years begin on March 1, in cycles of 400 years.
    let day = (day + 719_468).rem_euclid(146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    day - (153 * month + 2) / 5 + 1
}

/// A time zone: how far its clock is ahead of UTC, and since when.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Zone {
    /// Its name, such as `Europe/Berlin`.
    pub name: Box<str>,
    /// How many seconds its clock was ahead of UTC before all changes.
    pub first: i32,
    /// The changes in their order: the second (since 1970) of each, and how many seconds the
    /// clock has been ahead of UTC since.
    pub changes: Box<[(i64, i32)]>,
}

/// With a number that differs where its rules do.
impl fmt::Display for Zone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = [(0, self.first)].into_iter().chain(self.changes.iter().copied());
        let rules = all.fold(0_u32, |rules, (at, ahead)| {
            let one = at.rotate_left(20) ^ i64::from(ahead);
            rules.rotate_left(5) ^ crc32fast::hash(&one.to_le_bytes())
        });
        write!(f, "{} (rules {rules:08x})", self.name)
    }
}

impl Zone {
    /// The window that has the second `now` (since 1970).
    #[must_use]
    pub fn window(&self, every: Every, now: i64) -> CalendarWindow {
        let (start, end) = self.shown(every, now);
        CalendarWindow { start: self.reaches(start), end }
    }

    /// The day that has the second `now` (since 1970), as a number of days since 1970 on the clock
    /// of the zone.
    #[must_use]
    pub fn day(&self, now: i64) -> i64 {
        self.shown(Every::Day, now).0.div_euclid(DAY)
    }

    /// Whether its clock is or was ever another than that of UTC.
    #[must_use]
    pub fn is_ahead(&self) -> bool {
        self.first != 0 || !self.changes.is_empty()
    }

    /// The start of the window that has the second `now`, on the clock of the zone, and its end in
    /// UTC.
    fn shown(&self, every: Every, now: i64) -> (i64, i64) {
        let now = now.clamp(-TIME_MAX, TIME_MAX);
        let mut start = every.start(now + i64::from(self.ahead(self.before(now))));
        // The clock has shown this already, and gone back since.
        loop {
            let next = every.next(start);
            let end = self.reaches(next);
            if end > now {
                return (start, end);
            }
            start = next;
        }
    }

    /// How many changes there were until this second.
    fn before(&self, second: i64) -> usize {
        self.changes.partition_point(|(at, _)| *at <= second)
    }

    /// How far the clock is ahead of UTC after so many changes.
    fn ahead(&self, changes: usize) -> i32 {
        let last = changes.checked_sub(1).and_then(|last| self.changes.get(last));
        last.map_or(self.first, |(_, ahead)| *ahead)
    }

    /// The first second in which the clock shows `time` or a later time.
    fn reaches(&self, time: i64) -> i64 {
        let mut changes = self.before(time - OFFSET_MAX);
        loop {
            let since = changes.checked_sub(1).and_then(|last| self.changes.get(last));
            let since = since.map_or(i64::MIN, |(at, _)| *at);
            let at = (time - i64::from(self.ahead(changes))).max(since);
            match self.changes.get(changes) {
                Some((until, _)) if at >= *until => changes += 1,
                _ => return at,
            }
        }
    }
}

#[cfg(test)]
#[cfg(feature = "cli")]
mod tests {
    use super::*;
    use kit::quickcheck;

    /// The second of a time in UTC, such as `2026-03-29T01:00`.
    fn utc(text: &str) -> i64 {
        format!("{text}:00Z").parse::<jiff::Timestamp>().unwrap().as_second()
    }

    #[test]
    fn windows_in_utc() {
        let zone = Zone::default();
        for (every, now, start, end) in [
            (Every::Hour, "2026-11-26T11:59", "2026-11-26T11:00", "2026-11-26T12:00"),
            (Every::Day, "2026-11-26T00:00", "2026-11-26T00:00", "2026-11-27T00:00"),
            // A Thursday.
            (Every::Week, "2026-11-26T11:59", "2026-11-23T00:00", "2026-11-30T00:00"),
            (Every::Week, "2026-11-29T23:59", "2026-11-23T00:00", "2026-11-30T00:00"),
            (Every::Month, "2024-02-29T11:59", "2024-02-01T00:00", "2024-03-01T00:00"),
            (Every::Month, "2023-02-28T23:59", "2023-02-01T00:00", "2023-03-01T00:00"),
            (Every::Month, "2026-12-31T23:59", "2026-12-01T00:00", "2027-01-01T00:00"),
        ] {
            let window = CalendarWindow { start: utc(start), end: utc(end) };
            assert_eq!(zone.window(every, utc(now)), window, "{every:?} {now}");
        }
    }

    /// The time zone, the window, now, and its start and end.
    const CHANGES: &str = "
        # Summer time: days of 23 and 25 hours.
        Europe/Berlin daily 2026-03-29T12:00 2026-03-28T23:00 2026-03-29T22:00
        Europe/Berlin daily 2026-10-25T12:00 2026-10-24T22:00 2026-10-25T23:00
        # The hour that comes twice, and the one that is left out.
        Europe/Berlin hourly 2026-10-25T00:30 2026-10-25T00:00 2026-10-25T02:00
        Europe/Berlin hourly 2026-10-25T01:30 2026-10-25T00:00 2026-10-25T02:00
        Europe/Berlin hourly 2026-03-29T01:00 2026-03-29T01:00 2026-03-29T02:00
        Europe/Berlin monthly 2026-10-25T12:00 2026-09-30T22:00 2026-10-31T23:00
        # Half an hour of summer time.
        Australia/Lord_Howe hourly 2026-04-04T15:10 2026-04-04T14:00 2026-04-04T15:30
        Australia/Lord_Howe hourly 2026-10-03T15:40 2026-10-03T15:30 2026-10-03T16:00
        # December 30 was left out.
        Pacific/Apia daily 2011-12-30T09:59 2011-12-29T10:00 2011-12-30T10:00
        Pacific/Apia daily 2011-12-30T10:00 2011-12-30T10:00 2011-12-31T10:00
        # At one minute past midnight, the clock went back to the day before.
        America/St_Johns daily 2010-11-07T03:00 2010-11-07T02:30 2010-11-08T03:30
        Asia/Kathmandu daily 2026-11-26T18:14 2026-11-25T18:15 2026-11-26T18:15
    ";

    #[test]
    fn clocks_that_change() {
        let rows = CHANGES.lines().map(str::trim).filter(|row| !row.starts_with('#'));
        for row in rows.filter(|row| !row.is_empty()) {
            let [zone, every, now, start, end] =
                row.split(' ').collect::<Vec<_>>().try_into().unwrap();
            let every = *Every::ALL.iter().find(|one| one.word() == every).unwrap();
            let window = CalendarWindow { start: utc(start), end: utc(end) };
            assert_eq!(load(Some(zone)).unwrap().window(every, utc(now)), window, "{row}");
        }
    }

    quickcheck! {
        fn windows_have_their_times_and_follow_one_another(changes: Vec<(u32, i16)>, now: i64) -> bool {
            let mut at = 0;
            let changes = changes.into_iter().map(|(later, ahead)| {
                at += i64::from(later % 100_000_000);
                (at, i32::from(ahead))
            });
            let zone = Zone { changes: changes.collect(), ..Zone::default() };
            let now = now >> (now & 31) & 0xffff_ffff;
            Every::ALL.iter().all(|&every| {
                let window = zone.window(every, now);
                let has = window.start <= now && now < window.end;
                let next = zone.window(every, window.end);
                let same = zone.window(every, window.start) == window;
                has && same && zone.window(every, window.end - 1) == window && next.start == window.end
            })
        }

        fn any_number_is_a_time(now: i64, change: i64, ahead: i32) -> bool {
            let zone = Zone { changes: [(change, ahead % 86_400)].into(), ..Zone::default() };
            Every::ALL.iter().all(|&every| zone.window(every, now).seconds() > 0.0)
        }
    }
}
