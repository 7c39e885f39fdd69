//! What the next events will get: how many would pass now, and when.

use super::{Average, Timestamp};

/// How long until one more event would pass.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Wait {
    /// This many seconds; 0 where it would pass at once.
    Seconds(f64),
    /// No wait helps: the event alone is as large as the limit.
    Never,
}

/// How many more events of size `count` would pass at the moment `now`.
///
/// Infinite where events have no size.
#[must_use]
pub fn remaining(
    kept: Option<Average>,
    now: Timestamp,
    period: f64,
    limit: f64,
    count: f64,
) -> f64 {
    if count >= limit {
        return 0.0;
    }
    let rate = kept.map_or(0.0, |kept| kept.next(now, period, 0.0).rate);
    ((limit - rate) / count).floor().max(0.0)
}

/// The least wait from `now` after which one more event of size `count` would
/// pass under `limit`.
#[must_use]
pub fn retry_after(
    kept: Option<Average>,
    now: Timestamp,
    period: f64,
    limit: f64,
    count: f64,
) -> Wait {
    if count >= limit {
        return Wait::Never;
    }
    let Some(kept) = kept else { return Wait::Seconds(0.0) };
    let passes = |x: f64| {
        let a = (-x).exp();
        (1.0 - a) * count / x + a * kept.rate < limit
    };
    let waited = (now.as_seconds() - kept.at.as_seconds()).max(1e-9) / period;
    if passes(waited) {
        return Wait::Seconds(0.0);
    }
    let (mut low, mut high) = (waited, waited.max(1e-9) * 2.0);
    while !passes(high) {
        (low, high) = (high, high * 2.0);
    }
    for _ in 0..200 {
        let middle = f64::midpoint(low, high);
        if passes(middle) { high = middle } else { low = middle }
    }
    Wait::Seconds((high - waited) * period)
}
