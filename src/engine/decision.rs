//! The outcome of a check.

use crate::rate::{Average, Timestamp, Wait, remaining, retry_after};

/// The outcome of one check, with details.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Decision {
    /// Smoothed events per period, including this event: `$sender_rate`.
    pub rate: f64,
    /// Whether the rate is at or over the limit.
    pub over: bool,
    /// The limit that the rate was compared with.
    pub limit: f64,
    /// The period in seconds.
    pub period: f64,
    /// The size this event was counted with; 0 if the check was read-only or
    /// the event had been seen before.
    pub count: f64,
    /// The size of one more event of this kind.
    pub next_count: f64,
    /// When the check was decided.
    pub at: Timestamp,
    /// The average remembered after the check, if any.
    pub kept: Option<Average>,
    /// Whether this is a crossing: the check is leaky or strict, the rate is
    /// over, and the record had no over decision during the period before.
    pub crossed: bool,
    /// The number of the latest crossing of the record; 0 before the first.
    pub crossings: u32,
    /// What the store found and wrote.
    pub details: Details,
}

/// What the store found and wrote, for the lines of `exirate` in `exim -d+acl`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Details {
    /// There was a rate for the key.
    pub found: bool,
    /// The record's filter was older than the period.
    pub filter_expired: bool,
    /// Whether the unique event had been seen before; `None` if there was none
    /// or the check was read-only.
    pub seen: Option<bool>,
    /// The event was counted in the record.
    pub written: bool,
}

impl Decision {
    /// Compares the same rate with another limit.
    ///
    /// A decision that is reused from memory is compared with the limit of the
    /// later line. It is not a crossing: only the first decision can be one.
    #[must_use]
    pub fn against(self, limit: f64) -> Self {
        Self { limit, over: over(self.rate, limit), crossed: false, ..self }
    }

    /// How many more events of the same kind would pass at `now`.
    #[must_use]
    pub fn remaining(&self, now: Timestamp) -> f64 {
        remaining(self.kept, now, self.period, self.limit, self.next_count)
    }

    /// The shortest wait from `now` after which one more event of the same
    /// kind would pass.
    #[must_use]
    pub fn retry_after(&self, now: Timestamp) -> Wait {
        retry_after(self.kept, now, self.period, self.limit, self.next_count)
    }
}

/// A rate exactly at the limit is over: a limit of zero blocks.
#[inline]
pub(crate) fn over(rate: f64, limit: f64) -> bool {
    // Exim tests `rate < limit`, so NaN is over.
    rate.partial_cmp(&limit) != Some(std::cmp::Ordering::Less)
}
