//! The store that the servers share, as `src/redis/decide.lua` is.

use std::collections::VecDeque;

use crate::engine::{Algorithm, Authority, Check, Decision, Update};
use crate::rate::Timestamp;
use crate::store::Memory;

use super::truth::{Limit, Sum, counted, decayed};

/// So many numbers of events are remembered with each key.
const REMEMBERED: usize = 4;

/// One check of an event.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    pub(super) key: usize,
    pub(super) size: f64,
    pub(super) update: Update,
}

/// What is known of a key.
#[derive(Clone, Debug, Default)]
struct Key {
    /// The numbers of the latest events that were counted, and when.
    latest: VecDeque<(u64, i64)>,
    /// The rate that it should have, and when by its own clock.
    rate: Option<(f64, i64)>,
    accepted: Sum,
}

/// A reply to a request.
#[derive(Clone, Debug)]
pub(super) struct Reply {
    pub(super) decisions: Vec<Decision>,
    /// The shared rate of each key at that time, if there is one.
    pub(super) rates: Vec<Option<f64>>,
    /// When the event was counted.
    pub(super) at: i64,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Shared {
    store: Memory,
    keys: Vec<Key>,
    /// Its clock is that far ahead, in microseconds.
    pub(super) ahead: i64,
}

impl Shared {
    pub(super) fn new(keys: usize) -> Self {
        Self { keys: vec![Key::default(); keys], ..Self::default() }
    }

    /// The sum of all events of a key that it has accepted and not lost.
    pub(super) fn accepted(&self, key: usize) -> Sum {
        self.keys[key].accepted
    }

    /// As [`Sum::forget`].
    pub(super) fn forget(&mut self, key: usize, now: i64, limit: &Limit, seconds: f64) -> f64 {
        self.keys[key].accepted.forget(now, limit.algorithm, seconds)
    }

    /// Decides an event. A check that has counted an event with this number counts it no
    /// more, and a leaky one that has counted it has accepted it.
    pub(super) fn decide(
        &mut self,
        event: u64,
        parts: &[Part],
        checks: &[Check<'_>],
        limits: &[Limit],
        now: i64,
    ) -> Reply {
        let here = now + self.ahead;
        let mut at = now;
        let known: Vec<bool> = parts
            .iter()
            .map(|part| {
                let mut latest = self.keys[part.key].latest.iter();
                let found = latest.find(|(number, _)| *number == event);
                at = found.map_or(at, |(_, then)| at.min(*then));
                part.update != Update::ReadOnly && found.is_some()
            })
            .collect();
        let asked: Vec<_> = checks
            .iter()
            .zip(&known)
            .map(|(check, known)| match known {
                true => Check { count: 0.0, update: Update::ReadOnly, refuses: None, ..*check },
                false => *check,
            })
            .collect();
        let mut decisions = Vec::new();
        let timestamp = Timestamp::from_micros(here);
        self.store.decide_as(Authority::Local, &asked, timestamp, &mut decisions);
        let mut accepted = true;
        let mut rates = Vec::with_capacity(parts.len());
        for (number, part) in parts.iter().enumerate() {
            let decision = &mut decisions[number];
            if known[number] && part.update == Update::Leaky {
                decision.over = false;
            }
            accepted &= !decision.over || part.update == Update::ReadOnly;
        }
        for (number, part) in parts.iter().enumerate() {
            let (decision, key) = (&decisions[number], &mut self.keys[part.key]);
            let algorithm = limits[part.key].algorithm;
            let counts = match part.update {
                _ if known[number] => false,
                Update::Leaky => {
                    let is_leaky = |(_, part): &(_, &Part)| part.update == Update::Leaky;
                    !decisions.iter().zip(parts).filter(is_leaky).any(|(one, _)| one.over)
                }
                Update::Strict => true,
                Update::ReadOnly => false,
            };
            let before = key.rate;
            let next = before
                .map_or(part.size, |(rate, then)| counted(algorithm, rate, then, here, part.size));
            if counts {
                assert!((decision.rate - next).abs() <= 1e-9 * next, "{decision:?}, {next}");
                key.rate = Some((next, here));
                key.latest.push_front((event, now));
                key.latest.truncate(REMEMBERED);
                if accepted {
                    key.accepted.add(now, algorithm, part.size, now);
                }
            } else if asked[number].update == Update::Leaky
                && matches!(algorithm, Algorithm::Bucket { .. })
            {
                // The level is stored as it is now.
                key.rate = before.map(|(rate, then)| (decayed(algorithm, rate, then, here), here));
            }
            rates.push(key.rate.map(|(rate, then)| decayed(algorithm, rate, then, here)));
        }
        Reply { decisions, rates, at }
    }
}
