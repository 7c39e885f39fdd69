//! Which limit the past suggests: how high the keys have peaked, and how many of them each of
//! some limits would have hit.

use schemars::JsonSchema;
use serde::Serialize;

use super::events::Count;
use super::rates::{Histogram, MessageRate, replay};
use super::runs::Runs;
use super::{MeasureError, Period};
use crate::text::counted;

/// The shares of the keys for which the highest peak is shown.
const SHARES: [f64; 4] = [0.5, 0.9, 0.99, 0.999];
/// The first digits of limits that people choose.
const DIGITS: [f64; 6] = [1.0, 1.5, 2.0, 3.0, 5.0, 7.0];
/// At most so many limits below the suggested one are shown.
const LOWER_MAX: usize = 5;
/// At most so many above it are.
const HIGHER_MAX: usize = 8;
/// A limit leaves this much room above the highest peak that it is to let pass.
const ROOM: f64 = 1.1;
/// Keys stand out if their peaks are so many times those of all others, and they are at most
/// this share of the keys, or one key.
const STANDS_OUT: (f64, f64) = (3.0, 0.01);
/// At most so many keys are named.
const NAMES_MAX: usize = 20;
/// Of fewer keys, none stands out.
const KEYS_MIN: usize = 10;

/// What is counted.
#[derive(Clone, Copy, Debug, Default)]
pub struct CountMode {
    /// How, if there are several.
    pub count: Option<Count>,
    /// The mode of a spec which counts the same, with a slash.
    pub mode: &'static str,
}

/// What the events of a log suggest for a period.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Suggestion {
    /// What is counted, of several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<Count>,
    /// The period in seconds.
    pub period: f64,
    /// By the calendar: `daily`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub every: Option<&'static str>,
    /// The period as it was written.
    #[serde(skip)]
    pub of: Period,
    /// Keys with an event.
    pub keys: usize,
    /// Events.
    pub events: u64,
    /// Messages.
    pub messages: u64,
    /// How high the keys have peaked.
    pub peaks: Vec<PeakOf>,
    /// Which rates the messages met.
    pub message_rates: Vec<RateOf>,
    /// What some limits would have hit.
    pub limits: Vec<Limit>,
    /// The suggested limit.
    pub suggested: f64,
    /// Why this one.
    pub reason: String,
    /// The keys that it would have hit, the highest peaks first; of many, some.
    pub hits: Vec<KeyPeak>,
    /// See [`CountMode::mode`].
    #[serde(skip)]
    pub mode: &'static str,
}

/// A key and its peak.
#[derive(Debug, PartialEq, Serialize, JsonSchema)]
pub struct KeyPeak {
    /// The key.
    pub key: String,
    /// Its peak.
    pub peak: f64,
}

/// The highest peak of this share of the keys, of those with the lowest peaks.
#[derive(Debug, PartialEq, Serialize, JsonSchema)]
pub struct PeakOf {
    /// The share, from 0 to 1.
    pub share: f64,
    /// The peak.
    pub peak: f64,
}

/// At this share of the messages, the rate was at most this; to about 1 %.
#[derive(Debug, PartialEq, Serialize, JsonSchema)]
pub struct RateOf {
    /// The share, from 0 to 1.
    pub share: f64,
    /// The rate.
    pub rate: f64,
}

/// What a limit would have hit.
#[derive(Debug, PartialEq, Serialize, JsonSchema)]
pub struct Limit {
    /// The limit.
    pub limit: f64,
    /// Keys whose peak is at it or above.
    pub keys: usize,
    /// Events at which the rate was.
    pub events: u64,
    /// Messages at which it was.
    pub messages: u64,
}

/// The events of a period, before the limits to compare are known.
struct Measured {
    peaks: Vec<f64>,
    rates: Histogram,
    message: MessageRate,
    messages: u64,
}

impl Suggestion {
    /// What these events suggest for each period, and whether different recipients were told
    /// apart by a filter. There must be an event if there is a period. Keys without one do not
    /// matter.
    pub fn of(
        events: &mut Runs,
        names: &[String],
        periods: &[Period],
        what: CountMode,
    ) -> Result<(Vec<Self>, bool), MeasureError> {
        let keys = names.len();
        let mut all: Vec<Measured> = periods.iter().map(|_| Measured::new(keys)).collect();
        let is_approximate = replay(events, keys, periods, |number, event, rate| {
            let Some(of) = all.get_mut(number) else { return };
            if let Some(peak) = of.peaks.get_mut(event.key as usize) {
                *peak = rate.max(*peak);
            }
            of.messages += u64::from(event.is_first);
            if let Some(rate) = of.message.add(event, rate) {
                of.rates.add(rate);
            }
        })?;
        let len = events.len();
        let mut found: Vec<(Self, MessageRate)> = Vec::new();
        for (of, period) in all.iter_mut().zip(periods) {
            of.message.last().into_iter().for_each(|rate| of.rates.add(rate));
            found.push((of.suggestion(names, len, period, what), MessageRate::default()));
        }
        replay(events, keys, periods, |number, event, rate| {
            let Some((of, message)) = found.get_mut(number) else { return };
            of.hit(rate, |limit| limit.events += 1);
            if let Some(rate) = message.add(event, rate) {
                of.hit(rate, |limit| limit.messages += 1);
            }
        })?;
        let ended = found.into_iter().map(|(mut of, message)| {
            let last = message.last();
            last.into_iter().for_each(|rate| of.hit(rate, |limit| limit.messages += 1));
            of
        });
        Ok((ended.collect(), is_approximate))
    }

    /// Changes the limits that are not above the rate.
    fn hit(&mut self, rate: f64, change: impl FnMut(&mut Limit)) {
        let Self { limits, of, .. } = self;
        limits.iter_mut().take_while(|limit| of.is_over(rate, limit.limit)).for_each(change);
    }
}

impl Measured {
    fn new(keys: usize) -> Self {
        let message = MessageRate::default();
        // No rate is below zero: keys that stay there have no events.
        Self { peaks: vec![-1.0; keys], rates: Histogram::default(), message, messages: 0 }
    }

    /// What is suggested, and the limits to compare.
    fn suggestion(
        &mut self,
        names: &[String],
        events: u64,
        period: &Period,
        what: CountMode,
    ) -> Suggestion {
        let of = period.clone();
        let CountMode { count, mode } = what;
        let peaks = &mut self.peaks;
        let named = peaks.clone();
        peaks.retain(|peak| *peak >= 0.0);
        let keys = peaks.len();
        peaks.sort_by(f64::total_cmp);
        let (suggested, reason) = suggest(peaks);
        // Who counts whole events needs no part of one.
        let suggested = if of.calendar.is_some() { suggested.ceil() } else { suggested };
        // A key that peaked at a limit or above is hit by it.
        let hit = |limit: f64| peaks.iter().filter(|peak| of.is_over(**peak, limit)).count();
        let limit = |limit| Limit { limit, keys: hit(limit), events: 0, messages: 0 };
        let limits = candidates(peaks, suggested).into_iter().map(limit).collect();
        let mut hits: Vec<(&String, f64)> =
            names.iter().zip(named).filter(|(_, peak)| of.is_over(*peak, suggested)).collect();
        hits.sort_by(|(a, of_a), (b, of_b)| of_b.total_cmp(of_a).then_with(|| a.cmp(b)));
        hits.truncate(NAMES_MAX);
        let hits = hits.into_iter().map(|(key, peak)| KeyPeak { key: key.clone(), peak }).collect();
        let highest = |share: f64| {
            let place = (share * keys as f64).ceil() as usize;
            let peak = peaks.get(place.clamp(1, keys.max(1)) - 1).copied().unwrap_or(0.0);
            PeakOf { share, peak }
        };
        Suggestion {
            count,
            period: of.seconds,
            every: of.every(),
            of,
            keys,
            events,
            messages: self.messages,
            peaks: SHARES.into_iter().chain([1.0]).map(highest).collect(),
            message_rates: SHARES.map(|share| RateOf { share, rate: self.rates.at(share) }).into(),
            limits,
            suggested,
            reason,
            hits,
            mode,
        }
    }
}

/// The limit for keys with these peaks, from the lowest to the highest, and why.
fn suggest(peaks: &[f64]) -> (f64, String) {
    let (ratio, share) = STANDS_OUT;
    let most = ((peaks.len() as f64 * share) as usize).max(1);
    let gap = |out: &usize| {
        let [below, above] = peaks.get(peaks.len().checked_sub(out + 1)?..)?.first_chunk()?;
        Some((*below, *above))
    };
    let widest = (1..=most)
        .filter_map(|out| Some((out, gap(&out)?)))
        .max_by(|(_, (a, b)), (_, (c, d))| (b / a).total_cmp(&(d / c)));
    match widest {
        Some((out, (below, above))) if peaks.len() >= KEYS_MIN && above >= ratio * below => {
            let of = peaks.len();
            let stand = if out == 1 { "stands" } else { "stand" };
            let reason = format!(
                "{} of {of} {stand} out, with a peak of {above:.1} or more; the highest of the \
                 others is {below:.1}",
                counted(out, "key", "keys")
            );
            (round_up(below * ROOM), reason)
        }
        _ => {
            let highest = peaks.last().copied().unwrap_or(0.0);
            let reason = match peaks.len() {
                few @ ..KEYS_MIN => format!(
                    "there {} only {}: this is above the highest peak, {highest:.1}, so it would \
                     have hit nobody",
                    if few == 1 { "is" } else { "are" },
                    counted(few, "key", "keys")
                ),
                _ => format!(
                    "no key stands out: this is above the highest peak, {highest:.1}, so it would \
                     have hit nobody"
                ),
            };
            (round_up(highest * ROOM), reason)
        }
    }
}

/// The limits to compare, in order: the suggested one, some that are a little lower, and
/// higher ones that would have hit somebody.
fn candidates(peaks: &[f64], suggested: f64) -> Vec<f64> {
    let highest = peaks.last().copied().unwrap_or(0.0);
    let powers = std::iter::successors(Some(1.0), |power| Some(power * 10.0));
    let all: Vec<f64> = powers
        .take_while(|power| *power <= highest)
        .flat_map(|power| DIGITS.map(|digit| digit * power))
        .filter(|limit| *limit <= highest && *limit != suggested)
        .collect();
    let (lower, higher): (Vec<f64>, Vec<f64>) = all.into_iter().partition(|one| *one < suggested);
    let is_round = |limit: &&f64| {
        let power = 10_f64.powf(limit.log10().floor());
        [1.0, 2.0, 5.0].contains(&(**limit / power))
    };
    let lower = lower.iter().rev().take(LOWER_MAX).rev();
    let higher = higher.iter().filter(is_round).take(HIGHER_MAX);
    lower.chain([&suggested]).chain(higher).copied().collect()
}

/// The lowest number that people choose for a limit which is not below `least`.
fn round_up(least: f64) -> f64 {
    let mut power = 10_f64.powf(least.max(1.0).log10().floor());
    loop {
        if let Some(limit) = DIGITS.into_iter().map(|d| d * power).find(|limit| *limit >= least) {
            return limit;
        }
        power *= 10.0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::measure::Event;

    /// One event of each key, of these sizes, which are then the peaks; two small ones of the
    /// first key; and a key without events.
    fn of(sizes: &[u32]) -> Suggestion {
        let one = |hours: i64, key: u32, count: f64| Event {
            at: (1_700_000_000 + hours * 3600) * 1_000_000,
            key,
            is_first: true,
            count,
            unique: 0,
        };
        let mut events = Runs::one_of(1);
        let all = sizes.iter().zip(0..).map(|(size, key)| one(0, key, f64::from(*size)));
        for event in all.chain([one(1, 0, 0.25), one(2, 0, 0.25)]) {
            events.push(event).unwrap_or_else(|_| panic!());
        }
        let period = Period { seconds: 3600.0, text: "1h".into(), calendar: None };
        let names: Vec<String> = (0..=sizes.len()).map(|number| format!("k{number}")).collect();
        let found = Suggestion::of(&mut events, &names, &[period], CountMode::default());
        found.unwrap_or_else(|_| panic!()).0.remove(0)
    }

    #[test]
    fn keys_that_stand_out_are_limited_and_no_others() {
        let mut counts: Vec<u32> = (0..200).map(|number| 1 + number % 20).collect();
        counts.extend([900, 400]);
        let found = of(&counts);
        assert_eq!(found.suggested, 30.0, "{found:?}");
        assert!(found.reason.starts_with("2 keys of 202 stand out, with a peak of 400.0"));
        assert!(found.reason.ends_with("the highest of the others is 20.0"), "{}", found.reason);
        let hits: Vec<_> = found.hits.iter().map(|hit| (&*hit.key, hit.peak.round())).collect();
        assert_eq!(hits, [("k200", 900.0), ("k201", 400.0)]);
        let hit = found.limits.iter().find(|limit| limit.limit == 30.0).unwrap();
        assert_eq!((hit.keys, hit.events, found.events), (2, 2, 204));
        assert!(found.limits.iter().all(|limit| limit.messages == limit.events));
        let low = found.limits.first().unwrap();
        assert!(low.limit <= 20.0 && low.keys > 2 && low.events == low.keys as u64, "{low:?}");
        let peak = |share| found.peaks.iter().find(|of| of.share == share).unwrap().peak.round();
        assert_eq!([0.5, 0.9, 0.99, 1.0].map(peak), [11.0, 19.0, 20.0, 900.0]);
    }

    #[test]
    fn where_none_stands_out_nobody_is_limited() {
        let found = of(&(1..=100).collect::<Vec<_>>());
        assert_eq!(found.suggested, 150.0);
        assert!(found.reason.starts_with("no key stands out"), "{}", found.reason);
        assert!(found.limits.iter().all(|limit| limit.limit != 150.0 || limit.keys == 0));
        // Of few keys, it is not known what is usual.
        let few = of(&[1, 1, 500]);
        assert_eq!(few.suggested, 700.0);
        assert!(few.reason.starts_with("there are only 3 keys"), "{}", few.reason);
        let (_, reason) = super::suggest(&[5.0]);
        assert!(reason.starts_with("there is only 1 key: "), "{reason}");
        let one = of(&[1]);
        assert_eq!((one.suggested, one.limits.len()), (1.5, 2), "{one:?}");
    }

    #[test]
    fn limits_are_numbers_that_people_choose() {
        for (least, limit) in
            [(0.0, 1.0), (1.0, 1.0), (1.1, 1.5), (7.1, 10.0), (99.0, 100.0), (1.6e9, 2e9)]
        {
            assert_eq!(round_up(least), limit);
        }
        assert_eq!(candidates(&[12.0], 15.0), [2.0, 3.0, 5.0, 7.0, 10.0, 15.0]);
        let higher = [1.0, 1.5, 2.0, 3.0, 5.0, 7.0, 10.0, 20.0, 50.0, 100.0];
        assert_eq!(candidates(&[120.0], 7.0), higher);
        assert_eq!(candidates(&[9e12], 7.0).len(), LOWER_MAX + 1 + HIGHER_MAX);
    }
}
