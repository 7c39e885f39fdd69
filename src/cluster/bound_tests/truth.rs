//! What is true in the simulation, computed beside the code under test.

use crate::engine::{Algorithm, Update};
use crate::rate::{Average, Bucket, Timestamp};

/// How the events of one key are counted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limit {
    pub(super) algorithm: Algorithm,
    pub(super) update: Update,
}

/// The algorithm of a share: the bucket of one of `servers` servers leaks more slowly.
pub(super) fn share_of(algorithm: Algorithm, servers: f64) -> Algorithm {
    match algorithm {
        Algorithm::Bucket { burst, rate } => Algorithm::Bucket { burst, rate: rate / servers },
        other => other,
    }
}

/// A sum of events, each decayed since it was counted; of a bucket, what has not leaked out.
///
/// Times are microseconds of the true time.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sum {
    value: f64,
    at: i64,
}

impl Sum {
    pub(super) fn at(self, now: i64, algorithm: Algorithm) -> f64 {
        decayed_sum(self.value, (now - self.at) as f64 / 1e6, algorithm)
    }

    /// Adds an event of this size that was counted at `then`.
    pub(super) fn add(&mut self, now: i64, algorithm: Algorithm, size: f64, then: i64) {
        let size = decayed_sum(size, (now - then) as f64 / 1e6, algorithm);
        *self = Self { value: self.at(now, algorithm) + size, at: now };
    }

    /// Forgets what a clock that is set forward by so many seconds lets it forget, and
    /// returns that.
    pub(super) fn forget(&mut self, now: i64, algorithm: Algorithm, seconds: f64) -> f64 {
        let before = self.at(now, algorithm);
        *self = Self { value: decayed_sum(before, seconds, algorithm), at: now };
        before - self.value
    }
}

fn decayed_sum(value: f64, seconds: f64, algorithm: Algorithm) -> f64 {
    match algorithm {
        Algorithm::MovingAverage { period, .. } => value * (-seconds / period).exp(),
        Algorithm::Bucket { rate, .. } => (value - seconds * rate).max(0.0),
        // Within one window. Shares are not among them.
        Algorithm::Calendar { .. } | Algorithm::Share { .. } => value,
    }
}

/// The rate, or the level, at `now` of one that was `rate` at `at`.
pub(super) fn decayed(algorithm: Algorithm, rate: f64, at: i64, now: i64) -> f64 {
    let average = Average { at: Timestamp::from_micros(at), rate };
    let now = Timestamp::from_micros(now);
    match algorithm {
        Algorithm::MovingAverage { period, .. } => average.next(now, period, 0.0).rate,
        Algorithm::Bucket { burst, rate } => Bucket { burst, rate }.level(Some(average), now),
        Algorithm::Calendar { .. } | Algorithm::Share { .. } => rate,
    }
}

/// As above, with another event of this size.
pub(super) fn counted(algorithm: Algorithm, rate: f64, at: i64, now: i64, size: f64) -> f64 {
    match algorithm {
        Algorithm::MovingAverage { period, .. } => {
            let average = Average { at: Timestamp::from_micros(at), rate };
            average.next(Timestamp::from_micros(now), period, size).rate
        }
        _ => decayed(algorithm, rate, at, now) + size,
    }
}

/// What a server should remember of a key: the shared rate of which it has heard last, and
/// the rate that it has admitted apart.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ServerMemory {
    /// Microseconds of the server's own clock.
    pub(super) at: i64,
    pub(super) shared: f64,
    pub(super) apart: f64,
}

/// What a server that is apart should decide.
#[derive(Clone, Copy, Debug)]
pub(super) struct Expected {
    /// `R + N·A`, with the event.
    pub(super) rate: f64,
    pub(super) over: bool,
    /// The rounding of a stored rate may decide.
    pub(super) is_close: bool,
    /// What it remembers if the event is counted.
    pub(super) counted: ServerMemory,
    /// The same if it is not counted.
    pub(super) kept: ServerMemory,
}

impl ServerMemory {
    /// What a server should decide of an event of this size; `None`: it knows nothing.
    pub(super) fn expect(
        known: Option<Self>,
        limit: &Limit,
        servers: f64,
        now: i64,
        size: f64,
    ) -> Expected {
        let Limit { algorithm, .. } = *limit;
        let share = share_of(algorithm, servers);
        let of = known.unwrap_or(Self { at: now, ..Self::default() });
        let shared = decayed(algorithm, of.shared, of.at, now);
        let apart = match known {
            Some(known) => counted(share, known.apart, known.at, now, size),
            None => size,
        };
        let rate = shared + servers * apart;
        let close = |to: f64| (rate - to).abs() <= ROUNDING * (to + algorithm.limit());
        let (over, is_close) = match algorithm {
            Algorithm::MovingAverage { limit, .. } => (rate >= limit, close(limit)),
            Algorithm::Calendar { limit, .. } => (rate > limit, close(limit)),
            Algorithm::Share { share, .. } => (rate >= share.limit, close(share.limit)),
            Algorithm::Bucket { burst, .. } => {
                // An empty bucket admits an event of any size.
                let event = servers * size;
                let is_empty = |algorithm, level| match known {
                    Some(one) => decayed(algorithm, level + ROUNDING * burst, one.at, now) == 0.0,
                    None => true,
                };
                let is_empty = is_empty(share, of.apart) && is_empty(algorithm, of.shared);
                let over = !is_empty && rate > burst && rate > event;
                (over, !is_empty && (close(burst) || close(event)))
            }
        };
        let kept = match algorithm {
            Algorithm::Bucket { .. } if known.is_some() && limit.update == Update::Leaky => {
                Self { at: now, shared, apart: decayed(share, of.apart, of.at, now) }
            }
            _ => of,
        };
        Expected { rate, over, is_close, counted: Self { at: now, shared, apart }, kept }
    }
}

/// The rate that a server has admitted is stored in 32 bits, thousands of times.
pub(super) const ROUNDING: f64 = 5e-5;
