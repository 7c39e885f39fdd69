//! Which limit the past suggests: how high the keys have peaked, and how many of them each of
//! some limits would have hit.

use std::io;
use std::io::Write as _;

use anstyle::Style;
use serde::Serialize;

use super::events::Event;
use super::period::Period;
use crate::cli::policy::many;
use crate::cli::screen::Screen;
use crate::cli::table::{Column, Layout};
use crate::cli::text;
use crate::rate::Average;

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
/// Of fewer keys, none stands out.
const KEYS_MIN: usize = 10;

/// What the events of a log suggest for a period.
#[derive(Debug, Serialize)]
pub(super) struct Suggestion {
    /// In seconds.
    period: f64,
    #[serde(skip)]
    period_text: String,
    keys: usize,
    events: usize,
    peaks: Vec<PeakOf>,
    limits: Vec<Limit>,
    suggested: f64,
    reason: String,
    #[serde(skip)]
    mode: &'static str,
}

/// The highest peak of this share of the keys, of those with the lowest peaks.
#[derive(Debug, PartialEq, Serialize)]
struct PeakOf {
    share: f64,
    peak: f64,
}

/// What a limit would have hit.
#[derive(Debug, PartialEq, Serialize)]
struct Limit {
    limit: f64,
    keys: usize,
    events: usize,
}

impl Suggestion {
    /// What these events, in the order of time, suggest; `mode` is that of a spec which counts
    /// the same. There must be a key.
    pub(super) fn of(events: &[Event], keys: usize, period: &Period, mode: &'static str) -> Self {
        let Period { seconds: period, text } = period.clone();
        let mut peaks = vec![0.0; keys];
        replay(events, keys, period, |key, rate| {
            if let Some(peak) = peaks.get_mut(key) {
                *peak = rate.max(*peak);
            }
        });
        peaks.sort_by(f64::total_cmp);
        let (suggested, reason) = suggest(&peaks);
        let mut limits: Vec<Limit> = candidates(&peaks, suggested)
            .into_iter()
            .map(|limit| Limit { limit, keys: 0, events: 0 })
            .collect();
        // Of a key that peaked at the first limit or above, all lower limits are hit.
        for limit in &mut limits {
            limit.keys = peaks.iter().filter(|peak| **peak >= limit.limit).count();
        }
        replay(events, keys, period, |_, rate| {
            for limit in limits.iter_mut().take_while(|limit| rate >= limit.limit) {
                limit.events += 1;
            }
        });
        let highest = |share: f64| {
            let place = (share * keys as f64).ceil() as usize;
            let peak = peaks.get(place.clamp(1, keys.max(1)) - 1).copied().unwrap_or(0.0);
            PeakOf { share, peak }
        };
        let peaks = SHARES.into_iter().chain([1.0]).map(highest).collect();
        let events = events.len();
        Self { period, period_text: text, keys, events, peaks, limits, suggested, reason, mode }
    }

    /// Shows it.
    pub(super) fn print(&self, screen: &mut Screen<'_>) -> io::Result<()> {
        let period = &self.period_text;
        let keys = many(self.keys, "key", "keys");
        writeln!(screen, "period {period}: {keys}, {}", many(self.events, "event", "events"))?;
        let peaks: Vec<String> = self
            .peaks
            .iter()
            .map(|of| match of.share {
                1.0 => format!("highest {:.1}", of.peak),
                share => format!("{} % at most {:.1}", text::number(share * 100.0), of.peak),
            })
            .collect();
        writeln!(screen, "peaks: {}\n", peaks.join(", "))?;
        let columns =
            [Column::numbers("LIMIT"), Column::numbers("KEYS HIT"), Column::numbers("EVENTS HIT")];
        let cells = || {
            self.limits.iter().map(|limit| {
                [text::number(limit.limit), limit.keys.to_string(), limit.events.to_string()]
            })
        };
        let layout = Layout::of(screen, columns, cells());
        layout.head(screen)?;
        layout.write(screen, Style::new(), cells(), None)?;
        let Self { suggested, mode, reason, .. } = self;
        writeln!(screen, "\nsuggested: {} / {period}{mode}", text::number(*suggested))?;
        writeln!(screen, "  {reason}")
    }
}

/// Calls `visit` with the key and the rate of each event, as a strict check computes it.
fn replay(events: &[Event], keys: usize, period: f64, mut visit: impl FnMut(usize, f64)) {
    let mut averages: Vec<Option<Average>> = vec![None; keys];
    for event in events {
        let key = event.key as usize;
        let Some(known) = averages.get_mut(key) else { continue };
        let average = match known {
            Some(average) => average.next(event.at, period, event.count),
            None => Average::first(event.at, event.count),
        };
        *known = Some(average);
        visit(key, average.rate);
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
                many(out, "key", "keys")
            );
            (round_up(below * ROOM), reason)
        }
        _ => {
            let highest = peaks.last().copied().unwrap_or(0.0);
            let reason = match peaks.len() {
                few @ ..KEYS_MIN => format!(
                    "there are only {}: this is above the highest peak, {highest:.1}, so it would \
                     have hit nobody",
                    many(few, "key", "keys")
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
    use crate::rate::Timestamp;

    /// One event of each key, of these sizes, which are then the peaks; and two small ones of
    /// the first key.
    fn of(sizes: &[u32]) -> Suggestion {
        let at = |seconds: i64| Timestamp { seconds: 1_700_000_000 + seconds, micros: 0 };
        let one = |(size, key): (&u32, u32)| Event { at: at(0), key, count: f64::from(*size) };
        let mut events: Vec<Event> = sizes.iter().zip(0..).map(one).collect();
        events.extend([1, 2].map(|hours| Event { at: at(hours * 3600), key: 0, count: 0.25 }));
        let period = Period { seconds: 3600.0, text: "1h".into() };
        Suggestion::of(&events, sizes.len(), &period, "")
    }

    #[test]
    fn keys_that_stand_out_are_limited_and_no_others() {
        let mut counts: Vec<u32> = (0..200).map(|number| 1 + number % 20).collect();
        counts.extend([900, 400]);
        let found = of(&counts);
        assert_eq!(found.suggested, 30.0, "{found:?}");
        assert!(found.reason.starts_with("2 keys of 202 stand out, with a peak of 400.0"));
        assert!(found.reason.ends_with("the highest of the others is 20.0"), "{}", found.reason);
        let hit = found.limits.iter().find(|limit| limit.limit == 30.0).unwrap();
        assert_eq!((hit.keys, hit.events, found.events), (2, 2, 204));
        let low = found.limits.first().unwrap();
        assert!(low.limit <= 20.0 && low.keys > 2 && low.events == low.keys, "{low:?}");
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
