//! The highest rates of keys.

use schemars::JsonSchema;
use serde::Serialize;

use super::events::{Count, Lines};
use super::rates::replay;
use super::runs::{Event, Runs};
use super::suggest::Suggestion;
use super::{MeasureError, Period};
use crate::rate::Timestamp;
use crate::text;

/// What was found of a key.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Peak<'a> {
    /// Empty where all lines count together.
    pub(crate) key: &'a str,
    /// What is counted, if several are measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) count: Option<Count>,
    /// In seconds, if several are measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) period: Option<f64>,
    /// daily, where the calendar counts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) every: Option<&'static str>,
    #[serde(skip)]
    pub(crate) period_text: &'a str,
    /// The highest rate.
    pub(crate) peak: f64,
    /// When that was.
    pub(crate) when: String,
    pub(crate) events: u64,
    /// How many of the events were over the limit.
    pub(crate) over: Option<u64>,
}

/// What is known of a key so far.
#[derive(Clone, Copy, Debug, Default)]
struct KeyRates {
    peak: f64,
    /// When it peaked, in microseconds since 1970.
    at: i64,
    events: u64,
    over: u64,
}

/// All rates, as JSON.
#[derive(Serialize, JsonSchema)]
pub struct RatesReport<'a> {
    /// What became of the lines.
    pub(crate) lines: &'a Lines,
    pub(crate) rates: &'a [Peak<'a>],
}

/// What is suggested, as JSON.
#[derive(Serialize, JsonSchema)]
pub struct Suggestions<'a> {
    /// What became of the lines.
    pub(crate) lines: &'a Lines,
    /// Each count and period.
    pub(crate) periods: &'a [Suggestion],
}

/// Which peaks are wanted.
#[derive(Clone, Copy, Debug)]
pub struct PeaksWanted<'a> {
    /// In each of these periods.
    pub periods: &'a [Period],
    /// What is counted, if several are measured.
    pub count: Option<Count>,
    /// How many events would have been over this limit.
    pub limit: Option<f64>,
    /// Only the first.
    pub top: Option<usize>,
}

impl<'a> PeaksWanted<'a> {
    /// What these events come to, in each period, the highest peak first.
    /// The second is whether different recipients were told apart approximately.
    ///
    /// # Errors
    /// The events cannot be read.
    pub fn of(
        &self,
        events: &mut Runs,
        keys: &'a [String],
    ) -> Result<(Vec<Peak<'a>>, bool), MeasureError> {
        let periods = self.periods;
        let mut known = vec![vec![KeyRates::default(); keys.len()]; periods.len()];
        let is_approximate = replay(events, keys.len(), periods, |number, event, rate| {
            let of = known.get_mut(number).and_then(|keys| keys.get_mut(event.key as usize));
            if let Some((known, period)) = of.zip(periods.get(number)) {
                known.add(event, rate, self.limit.is_some_and(|limit| period.is_over(rate, limit)));
            }
        })?;
        let mut peaks = Vec::new();
        for (period, known) in periods.iter().zip(&known) {
            let seen = keys.iter().zip(known).filter(|(_, known)| known.events > 0);
            peaks.extend(seen.map(|(key, known)| (period, &**key, known)));
        }
        peaks.sort_by(|(_, a, of_a), (_, b, of_b)| {
            of_b.peak.total_cmp(&of_a.peak).then_with(|| a.cmp(b))
        });
        peaks.truncate(self.top.unwrap_or(usize::MAX));
        let rows = peaks.into_iter().map(|(period, key, known)| Peak {
            key,
            count: self.count,
            period: (periods.len() > 1).then_some(period.seconds),
            every: period.every(),
            period_text: &period.text,
            peak: known.peak,
            when: text::iso(Timestamp::from_micros(known.at)).replace('T', " ").replace('Z', ""),
            events: known.events,
            over: self.limit.map(|_| known.over),
        });
        Ok((rows.collect(), is_approximate))
    }
}

impl KeyRates {
    fn add(&mut self, event: &Event, rate: f64, is_over: bool) {
        self.events += 1;
        if self.events == 1 || rate > self.peak {
            (self.peak, self.at) = (rate, event.at);
        }
        self.over += u64::from(is_over);
    }
}
