//! The rates of all keys in one period, event by event, as a strict check computes them.

use super::runs::{Event, Runs};
use super::unique::Seen;
use super::{MeasureError, Period};
use crate::calendar::{Every, Zone};
use crate::rate::{Average, CalendarWindow, Timestamp};

/// Buckets of a histogram: 64 for each doubling, from 2^-32 to 2^96.
const PER_DOUBLING: f64 = 64.0;
const LOWEST: f64 = -32.0;
const BUCKETS: usize = 128 * 64;

/// Events of one key are at least this part of a period apart, and a microsecond: less time is not
/// exact enough for the arithmetic. A log in whole seconds has many events at the same time.
const APART: f64 = 3e-13;

/// No window of the calendar is longer than so many times what it has as a rule.
const LONGEST: f64 = 1.1;

/// The rates of all keys in one period; by the calendar, their counts.
pub struct Rates {
    period: f64,
    /// In microseconds: see [`APART`].
    apart: i64,
    averages: Vec<Option<Average>>,
    seen: Seen,
    windows: Option<Windows>,
}

/// The windows of the calendar.
struct Windows {
    every: Every,
    zone: Zone,
    /// That of the latest event.
    latest: CalendarWindow,
    /// What each key has counted, and the start of the window in which it has.
    counts: Vec<(i64, f64)>,
}

impl Windows {
    /// The start of the window of this time.
    fn start(&mut self, at: Timestamp) -> i64 {
        if !self.latest.has(at.seconds) {
            self.latest = self.zone.window(self.every, at.seconds);
        }
        self.latest.start
    }
}

impl Rates {
    /// Before the first event. `period` is in seconds.
    pub fn new(keys: usize, period: f64, calendar: Option<&(Every, Zone)>) -> Self {
        let windows = calendar.map(|(every, zone)| Windows {
            every: *every,
            zone: zone.clone(),
            latest: CalendarWindow::default(),
            counts: vec![(i64::MIN, 0.0); keys],
        });
        let averages = if windows.is_none() { vec![None; keys] } else { Vec::new() };
        let apart = ((period * APART * 1e6).ceil() as i64).max(1);
        let seen = match windows {
            None => Seen::new(keys, period),
            Some(_) => Seen::new(0, period * LONGEST),
        };
        Self { period, apart, averages, seen, windows }
    }

    /// The rate of the event's key with it.
    pub fn next(&mut self, event: &Event) -> f64 {
        let at = event.time();
        if let Some(windows) = &mut self.windows {
            let start = windows.start(at);
            let is_repeated = event.unique != 0 && self.seen.see_since(start, event.unique, at);
            let Some(known) = windows.counts.get_mut(event.key as usize) else { return 0.0 };
            let before = if known.0 == start { known.1 } else { 0.0 };
            *known = (start, before + if is_repeated { 0.0 } else { event.count });
            return known.1;
        }
        let is_repeated = event.unique != 0 && self.seen.see(event.key, event.unique, at);
        let count = if is_repeated { 0.0 } else { event.count };
        let Some(known) = self.averages.get_mut(event.key as usize) else { return 0.0 };
        let average = match known {
            Some(average) => {
                let least = average.at.as_micros().saturating_add(self.apart);
                average.next(at.max(Timestamp::from_micros(least)), self.period, count)
            }
            None => Average::first(at, count),
        };
        *known = Some(average);
        average.rate
    }

    /// Whether different recipients were told apart by a filter.
    pub fn is_approximate(&self) -> bool {
        self.seen.is_approximate()
    }
}

/// Calls `visit` with the number of the period, each event, and the rate of its key then.
/// Returns whether different recipients were told apart by a filter.
pub fn replay(
    events: &mut Runs,
    keys: usize,
    periods: &[Period],
    mut visit: impl FnMut(usize, &Event, f64),
) -> Result<bool, MeasureError> {
    let mut rates: Vec<Rates> =
        periods.iter().map(|one| Rates::new(keys, one.seconds, one.calendar.as_ref())).collect();
    events.each(|event| {
        for (number, rates) in rates.iter_mut().enumerate() {
            visit(number, event, rates.next(event));
        }
    })?;
    Ok(rates.iter().any(Rates::is_approximate))
}

/// The rates at messages: how many there were, and how many up to each rate, to about 1 %.
pub struct Histogram {
    buckets: Vec<(u64, f64)>,
    total: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { buckets: vec![(0, 0.0); BUCKETS], total: 0 }
    }
}

impl Histogram {
    /// A message met this rate.
    pub fn add(&mut self, rate: f64) {
        // `as` saturates.
        let place = ((rate.log2() - LOWEST) * PER_DOUBLING) as usize;
        if let Some((count, highest)) = self.buckets.get_mut(place.min(BUCKETS - 1)) {
            *count += 1;
            *highest = rate.max(*highest);
        }
        self.total += 1;
    }

    /// The rates, ascending, and how many messages met each.
    pub fn pairs(&self) -> impl Iterator<Item = (f64, u64)> {
        let met = self.buckets.iter().filter(|(count, _)| *count > 0);
        met.map(|&(count, highest)| (highest, count))
    }

    /// A rate that this share of the messages did not exceed.
    pub fn at(&self, share: f64) -> f64 {
        let wanted = (share * self.total as f64).ceil() as u64;
        let mut sum = 0;
        let reached = self.buckets.iter().find(|(count, _)| {
            sum += count;
            *count > 0 && sum >= wanted
        });
        reached.map_or(0.0, |(_, highest)| *highest)
    }
}

/// The highest rate of each message; its events follow each other.
#[derive(Clone, Copy, Default)]
pub struct MessageRate(Option<f64>);

impl MessageRate {
    /// Adds an event; returns the rate of the message before it, if that is complete.
    pub fn add(&mut self, event: &Event, rate: f64) -> Option<f64> {
        match self.0 {
            Some(before) if event.is_first => self.0.replace(rate).map(|_| before),
            Some(before) => {
                self.0 = Some(before.max(rate));
                None
            }
            None => {
                self.0 = Some(rate);
                None
            }
        }
    }

    /// The rate of the last message.
    pub fn last(self) -> Option<f64> {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_of_messages_are_exact_to_a_hundredth() {
        let mut histogram = Histogram::default();
        assert_eq!(histogram.at(0.5), 0.0);
        for n in 1..=1000 {
            histogram.add(f64::from(n));
        }
        for (share, rate) in [(0.5, 500.0), (0.9, 900.0), (0.999, 999.0), (1.0, 1000.0)] {
            let found = histogram.at(share);
            assert!((rate..=rate * 1.011).contains(&found), "{share}: {found}");
        }
        for odd in [0.0, 1e-300, 1e300, f64::INFINITY] {
            histogram.add(odd);
        }
        assert_eq!(histogram.at(1.0), f64::INFINITY);
    }

    #[test]
    fn a_message_has_the_highest_rate_of_its_events() {
        let mut rate = MessageRate::default();
        let mut event = Event { at: 0, key: 0, is_first: true, count: 1.0, unique: 1 };
        assert_eq!(rate.add(&event, 1.0), None);
        event.is_first = false;
        assert_eq!((rate.add(&event, 3.0), rate.add(&event, 2.0)), (None, None));
        event.is_first = true;
        assert_eq!((rate.add(&event, 2.5), rate.last()), (Some(3.0), Some(2.5)));
    }
}
