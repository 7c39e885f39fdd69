//! 29 February in a log without years: it says which year the lines around it are of, where the
//! file's last change does not, as of a copy.

use jiff::civil::{Date, date};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp as Jiff};

use super::stamp::{Stamp, Stamps};
use crate::rate::Timestamp;

/// So far from such a file other files of the same log may reach: half a year.
pub(super) const NEAR: SignedDuration = SignedDuration::from_hours(24 * 183);

/// The days of a log's lines that have no year, in their order.
#[derive(Debug, Default)]
pub(super) struct Days {
    /// The last one, by the year that the file's last change gives it.
    last: Option<Date>,
    /// How many new years the log has passed.
    new_years: i16,
    /// 29 February, if it was among them, and the new years before it.
    leap_day: Option<(Date, i16)>,
}

/// Whether there can be a 29 February between the first time without a year and the latest.
pub(super) fn is_possible(first: Timestamp, latest: Jiff) -> bool {
    let (Some(first), latest) = (day(first), latest.to_zoned(TimeZone::UTC).date()) else {
        return false;
    };
    let march = |year: i16| date(year, 3, 1);
    let next = if first < march(first.year()) { first.year() } else { first.year() + 1 };
    march(next) <= latest
}

impl Days {
    /// Considers the next line.
    pub(super) fn add(&mut self, stamp: &Stamp<'_>) {
        let Some(day) = day(stamp.at).filter(|_| !stamp.has_year) else { return };
        // Lines come in another order by days, not by half a year.
        if self.last.is_some_and(|last| last.month() - day.month() > 6) {
            self.new_years += 1;
        }
        if (day.month(), day.day()) == (2, 29) {
            self.leap_day = Some((day, self.new_years));
        }
        self.last = Some(day);
    }

    /// When the log ends, if 29 February says that it is in another year than it seems.
    pub(super) fn end(&self) -> Option<Jiff> {
        let ((leap_day, before), last) = (self.leap_day?, self.last?);
        let year = leap_day.year() + self.new_years - before;
        let end = date(year, last.month(), last.day().min(28)).at(23, 59, 59, 0);
        (year != last.year()).then(|| end.to_zoned(TimeZone::UTC).ok())?.map(|end| end.timestamp())
    }
}

fn day(at: Timestamp) -> Option<Date> {
    Some(Jiff::from_second(at.seconds).ok()?.to_zoned(TimeZone::UTC).date())
}

/// The times of another file of the same log, which was changed no earlier than this one.
pub(super) fn near(end: Jiff, stamps: Stamps) -> Stamps {
    end.checked_add(NEAR).map_or(stamps, |latest| stamps.no_later_than(latest))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The year in which a log of these days ends, if it is not the one that it seems to be.
    fn year(changed: &str, days: &[&str]) -> Option<i16> {
        let stamps = Stamps::new(changed.parse().unwrap());
        let mut found = Days::default();
        for day in days {
            found.add(&stamps.read(&format!("{day} 10:00:00 mx exim: x")).unwrap());
        }
        Some(found.end()?.to_zoned(TimeZone::UTC).year())
    }

    #[test]
    fn a_leap_day_gives_its_year_to_the_days_around_it() {
        let changed = "2026-11-20T00:00:00Z";
        assert_eq!(year(changed, &["Feb 28", "Feb 29", "Mar  1"]), Some(2024));
        assert_eq!(year(changed, &["Dec 31", "Jan  1", "Feb 29", "Mar  1"]), Some(2024));
        assert_eq!(year(changed, &["Feb 29", "Dec 31", "Jan  1"]), Some(2025));
        assert_eq!(year(changed, &["Feb 28", "Mar  1"]), None);
        assert_eq!(year("2024-03-02T00:00:00Z", &["Feb 28", "Feb 29", "Mar  1"]), None);
        assert_eq!(year("2025-01-02T00:00:00Z", &["Feb 29", "Dec 31", "Jan  1"]), None);
        let at = |text: &str| Timestamp {
            seconds: text.parse::<Jiff>().unwrap().as_second(),
            micros: 0,
        };
        for (first, latest, is) in [
            ("2026-02-28T10:00:00Z", "2026-03-01T10:00:00Z", true),
            ("2026-02-28T10:00:00Z", "2026-02-28T11:00:00Z", false),
            ("2025-03-01T10:00:00Z", "2026-02-28T11:00:00Z", false),
            ("2025-12-01T10:00:00Z", "2026-03-01T11:00:00Z", true),
        ] {
            assert_eq!(is_possible(at(first), latest.parse().unwrap()), is, "{first} {latest}");
        }
    }
}
