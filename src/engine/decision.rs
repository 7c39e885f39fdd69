//! The outcome of a check: a [`Decision`].

use crate::rate::{Average, Timestamp, Wait, remaining, retry_after};

/// The outcome of one check, and what led to it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Decision {
    /// Smoothed events per period, this event included: `$sender_rate`.
    pub rate: f64,
    /// Whether the rate is at or over the limit.
    pub over: bool,
    /// The limit the rate was held against.
    pub limit: f64,
    /// The period in seconds.
    pub period: f64,
    /// The size this event was counted with; 0 where it was read-only or had
    /// been seen before.
    pub count: f64,
    /// The size one more event of this kind would have.
    pub next_count: f64,
    /// When it was decided.
    pub at: Timestamp,
    /// The average that is remembered after it, if any.
    pub kept: Option<Average>,
    /// What the store found and did.
    pub details: Details,
}

/// What the store found and did: the lines of `exim -d+acl`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Details {
    /// There was a rate for the key.
    pub found: bool,
    /// The record's filter had outlived its period.
    pub filter_expired: bool,
    /// Whether the unique event had been seen before, where there was one and
    /// it was looked for.
    pub seen: Option<bool>,
    /// The event was counted in the record.
    pub written: bool,
}

impl Decision {
    /// The same rate held against another limit.
    ///
    /// This is how a decision is used again from memory: against whatever
    /// limit the later line has.
    #[must_use]
    pub fn against(self, limit: f64) -> Self {
        Self { limit, over: over(self.rate, limit), ..self }
    }

    /// How many more events of the same kind would pass at the moment `now`.
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

/// A sender exactly at the limit is over it: a limit of zero blocks.
#[inline]
pub(super) fn over(rate: f64, limit: f64) -> bool {
    // Exim tests `rate < limit`, so a rate that is no number is over.
    rate.partial_cmp(&limit) != Some(std::cmp::Ordering::Less)
}
