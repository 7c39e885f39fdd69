//! The exponentially weighted moving average.

/// A moment as `gettimeofday` gives it: seconds and microseconds since 1970.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Timestamp {
    /// Whole seconds since 1970-01-01 00:00:00 UTC.
    pub seconds: i64,
    /// Microseconds within the second, `0..1_000_000`.
    pub micros: u32,
}

impl From<(i64, u32)> for Timestamp {
    fn from((seconds, micros): (i64, u32)) -> Self {
        Self { seconds, micros }
    }
}

impl Timestamp {
    /// The moment in seconds, rounded to `f64` exactly as Exim rounds it.
    #[must_use]
    pub fn as_seconds(self) -> f64 {
        self.seconds as f64 + f64::from(self.micros) / 1_000_000.0
    }
}

/// The smoothed rate of one key at one moment: all that a key needs remembered.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Average {
    /// When the rate was last computed.
    pub at: Timestamp,
    /// Smoothed events per period at that moment.
    pub rate: f64,
}

impl Average {
    /// The average after a key's first event of size `count`.
    ///
    /// It is what [`Average::next`] gives for an infinite interval.
    #[must_use]
    pub fn first(now: Timestamp, count: f64) -> Self {
        Self { at: now, rate: count }
    }

    /// The average after a further event of size `count` at `now`, smoothed
    /// over `period` seconds.
    #[must_use]
    pub fn next(self, now: Timestamp, period: f64, count: f64) -> Self {
        let elapsed = now.as_seconds() - self.at.as_seconds();
        // A clock that stands still or goes backwards must not divide by zero.
        let interval = if elapsed <= 0.0 { 1e-9 } else { elapsed };
        let i_over_p = interval / period;
        let a = (-i_over_p).exp();
        let rate = (1.0 - a) * count / i_over_p + a * self.rate;
        // An isolated event counts in full towards the period it falls in.
        Self { at: now, rate: if rate < count { count } else { rate } }
    }
}
