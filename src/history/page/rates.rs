//! The rates of a log, as the page has them.

use std::collections::HashMap;

use super::{Log, Series};
use crate::history::measure::{
    By, Count, Event, Events, Histogram, MeasureError, Measured, MeasuredBy, MessageRate, Period,
    Rates, Runs,
};
use crate::logs::files::Stamped;

/// Of so many identities, the rates over time are in the page.
const SERIES_MAX: usize = 60;
/// The highest rate of each of so many parts of the time is shown.
const POINTS: i64 = 400;
const DAY: i64 = 86_400;
/// So long before and after a peak, the rates are shown more exactly: of each step the highest.
const AROUND: i64 = DAY / 2;
const NEAR_STEP: i64 = 300;

/// Reads the lines of a log.
pub struct RatesOfLog {
    by: By,
    count: Count,
    period: Period,
    events: Events<'static>,
    /// Whether all lines so far were of use.
    goes_on: bool,
}

/// What is known of an identity.
#[derive(Clone, Copy, Default)]
struct KnownIdentity {
    peak: f64,
    at: i64,
    messages: u64,
    count: f64,
}

impl RatesOfLog {
    /// Of no line yet: those of `count` in `period`, by the identity `by`.
    #[must_use]
    pub fn new(by: MeasuredBy, count: Count, period: Period) -> Self {
        let kind = by.by;
        let events = Events::new(&Measured::Arrivals(by, vec![count]));
        Self { by: kind, count, period, events, goes_on: true }
    }

    /// Considers a line.
    pub fn add(&mut self, line: &Stamped<'_>) {
        if self.goes_on {
            self.goes_on = self.events.add(line);
        }
    }

    /// What the log shows.
    pub fn finish(self, limit: Option<f64>, notes: &mut Vec<String>) -> Result<Log, MeasureError> {
        let (counted, names, lines) = self.events.finish()?;
        let mut counted = counted.into_iter();
        let mut runs = counted.next().map_or_else(|| Runs::one_of(1), |counted| counted.runs);
        let (who, one) = match self.by {
            By::Auth => ("logins", "Login"),
            By::Sender => ("senders", "Sender"),
            By::Host => ("clients", "Client"),
            By::User => ("local users", "Local user"),
            By::Domain => ("domains", "Domain"),
            By::Customer => ("customers", "Customer"),
            By::All => ("all together", "All"),
        };
        let unit = match self.count {
            Count::Messages => "messages",
            Count::Bytes => "bytes",
            Count::Recipients => "recipients",
            Count::Different => "different recipients",
        };
        if lines.messages_lacking > 0 {
            notes.push(format!(
                "Not among them: {} without a {} or without what is counted.",
                crate::text::counted(lines.messages_lacking, "message", "messages"),
                one.to_lowercase()
            ));
        }
        let mut log = Log {
            who,
            one,
            unit,
            period: self.period.text.clone(),
            zone: "times of the log",
            limit,
            ..Log::default()
        };
        first_pass(&mut log, &mut runs, names.len(), self.period.seconds)?;
        log.names = names;
        second_pass(&mut log, &mut runs, self.period.seconds)?;
        Ok(log)
    }
}

/// All but the series.
fn first_pass(
    log: &mut Log,
    runs: &mut Runs,
    keys: usize,
    period: f64,
) -> Result<(), MeasureError> {
    let mut known = vec![KnownIdentity::default(); keys];
    let mut rates = Rates::new(keys, period, None);
    let (mut histogram, mut message) = (Histogram::default(), MessageRate::default());
    let mut span: Option<(i64, i64)> = None;
    runs.each(|event| {
        let rate = rates.next(event);
        if let Some(rate) = message.add(event, rate) {
            histogram.add(rate);
        }
        let Some(known) = known.get_mut(event.key as usize) else { return };
        let second = event.time().seconds;
        if rate > known.peak {
            (known.peak, known.at) = (rate, second);
        }
        known.count += event.count;
        span = Some((span.map_or(second, |(first, _)| first), second));
        if event.is_first {
            known.messages += 1;
            log.total += 1;
            // The first of January 1970 was a Thursday.
            let day = (second.div_euclid(DAY) + 3).rem_euclid(7) as usize;
            let hour = (second.rem_euclid(DAY) / 3600) as usize;
            if let Some(count) = log.heat.get_mut(day).and_then(|hours| hours.get_mut(hour)) {
                *count += 1;
            }
        }
    })?;
    message.last().into_iter().for_each(|rate| histogram.add(rate));
    log.span = span.unwrap_or_default();
    log.rates = histogram.pairs().map(|(rate, count)| (short(rate), count)).collect();
    log.peaks = known.iter().map(|known| finite(known.peak)).collect();
    log.when = known.iter().map(|known| known.at).collect();
    log.messages = known.iter().map(|known| known.messages).collect();
    log.counts = known.iter().map(|known| short(known.count)).collect();
    Ok(())
}

/// The rates of the busiest over time.
fn second_pass(log: &mut Log, runs: &mut Runs, period: f64) -> Result<(), MeasureError> {
    let mut busiest: Vec<usize> = (0..log.peaks.len()).collect();
    let peak = |number: usize| log.peaks.get(number).copied().unwrap_or(0.0);
    busiest.sort_by(|&a, &b| peak(b).total_cmp(&peak(a)).then(a.cmp(&b)));
    busiest.truncate(SERIES_MAX);
    let places: HashMap<usize, usize> =
        busiest.iter().enumerate().map(|(place, &number)| (number, place)).collect();
    let (from, to) = log.span;
    let step = ((to - from) / POINTS).max(1);
    let when = |number: usize| log.when.get(number).copied().unwrap_or(from);
    let mut tracks: Vec<[Track; 2]> = busiest
        .iter()
        .map(|&number| {
            let (since, until) = (when(number) - AROUND, when(number) + AROUND);
            let near = Track::of(since.max(from), until.min(to), NEAR_STEP, period);
            [Track::of(from, to, step, period), near]
        })
        .collect();
    let mut rates = Rates::new(log.peaks.len(), period, None);
    runs.each(|event: &Event| {
        let rate = rates.next(event);
        let place = places.get(&(event.key as usize));
        for track in place.and_then(|&place| tracks.get_mut(place)).into_iter().flatten() {
            track.add(event.time().seconds, rate);
        }
    })?;
    let series = busiest.into_iter().zip(tracks);
    log.series = series
        .map(|(id, [whole, near])| Series {
            id,
            points: whole.finish(),
            around: (near.from, near.to),
            near: near.finish(),
        })
        .collect();
    Ok(())
}

/// The highest rate of an identity in each part of a time.
struct Track {
    from: i64,
    to: i64,
    step: i64,
    period: f64,
    points: Vec<(i64, f64)>,
    /// When the part began, and the highest one of it so far.
    part: Option<(i64, (i64, f64))>,
    /// The latest rate before the time.
    before: Option<(i64, f64)>,
    latest: Option<(i64, f64)>,
}

impl Track {
    fn of(from: i64, to: i64, step: i64, period: f64) -> Self {
        Self { from, to, step, period, points: Vec::new(), part: None, before: None, latest: None }
    }

    fn add(&mut self, at: i64, rate: f64) {
        if at > self.to {
            return;
        }
        if at < self.from {
            self.before = Some((at, rate));
            return;
        }
        self.begin();
        match &mut self.part {
            Some((since, highest)) if at - *since < self.step => {
                if rate > highest.1 {
                    *highest = (at, rate);
                }
            }
            _ => {
                self.close();
                self.decay(at);
                self.part = Some((at, (at, rate)));
            }
        }
        self.latest = Some((at, rate));
    }

    /// Begins with what is left of what was before.
    fn begin(&mut self) {
        let Some((at, rate)) = self.before.take() else { return };
        let left = short(rate * (-((self.from - at) as f64) / self.period).exp());
        self.points.push((self.from, left));
        self.latest = Some((self.from, left));
    }

    /// Keeps the highest rate of the part that ends.
    fn close(&mut self) {
        if let Some((_, (at, rate))) = self.part.take() {
            self.points.push((at, finite(rate)));
        }
    }

    /// Adds how the latest rate decays until `until`, if nothing is counted for long.
    fn decay(&mut self, until: i64) {
        let Some((at, rate)) = self.latest else { return };
        let gap = (until - at) as f64;
        if gap < 2.0 * self.step as f64 {
            return;
        }
        for periods in [0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0] {
            let after = periods * self.period;
            if after >= gap {
                break;
            }
            self.points.push((at + after as i64, short(rate * (-periods).exp())));
        }
        self.points.push((until, short(rate * (-gap / self.period).exp())));
    }

    fn finish(mut self) -> Vec<(i64, f64)> {
        self.begin();
        self.close();
        self.decay(self.to);
        self.points
    }
}

/// A number that JSON can have.
fn finite(number: f64) -> f64 {
    if number.is_finite() { number } else { f64::MAX }
}

/// A number with four significant digits, for what nothing is compared with.
fn short(number: f64) -> f64 {
    if !number.is_finite() || number == 0.0 {
        return if number.is_finite() { 0.0 } else { f64::MAX };
    }
    let scale = 10_f64.powi(3 - number.abs().log10().floor() as i32);
    let rounded = (number * scale).round() / scale;
    if number.abs() >= 1e4 { number.round() } else { rounded }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_track_keeps_highest_rates_and_shows_the_decay() {
        let mut track = Track::of(0, 405, 10, 100.0);
        for (at, rate) in [(0, 1.0), (3, 2.0), (5, 1.5), (400, 1.1)] {
            track.add(at, rate);
        }
        let points = track.finish();
        assert_eq!(points.first(), Some(&(3, 2.0)));
        assert_eq!(points.last(), Some(&(400, 1.1)));
        // Between them, what 1.5 at 5 decays to.
        assert!(points.contains(&(105, 0.5518)), "{points:?}");
        assert!(points.is_sorted_by_key(|(at, _)| *at), "{points:?}");
    }

    #[test]
    fn a_slow_rise_is_seen_as_it_rises() {
        let mut track = Track::of(0, 100, 10, 100.0);
        (0..100).for_each(|at| track.add(at, at as f64));
        let expected: Vec<(i64, f64)> =
            (0..10).map(|n| (10 * n + 9, 10.0 * n as f64 + 9.0)).collect();
        assert_eq!(track.finish(), expected);
    }

    #[test]
    fn a_part_of_the_time_begins_with_what_is_left() {
        let mut track = Track::of(100, 200, 10, 100.0);
        for (at, rate) in [(0, 1.0), (50, 2.0), (190, 3.0), (201, 9.0)] {
            track.add(at, rate);
        }
        let expected = [(100, 1.213), (125, 0.9447), (150, 0.7357), (190, 0.4932), (190, 3.0)];
        assert_eq!(track.finish(), expected);
        // Nothing was counted in it.
        let mut quiet = Track::of(100, 110, 10, 100.0);
        quiet.add(0, 1.0);
        assert_eq!(quiet.finish(), [(100, 0.3679)]);
    }

    #[test]
    fn numbers_are_short() {
        for (number, expected) in
            [(0.0, 0.0), (123.456, 123.5), (0.012_345, 0.012_35), (123_456.7, 123_457.0)]
        {
            assert_eq!(short(number), expected);
        }
        assert_eq!(short(f64::INFINITY), f64::MAX);
    }
}
