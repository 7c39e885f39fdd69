//! The outcome of a check.

use crate::rate::share::{self, Counted};
use crate::rate::{Algorithm, AlgorithmKind, Average, CalendarWindow, Timestamp, Wait};

use super::check::Overridden;
use crate::rate::block::Block;

/// The outcome of one check, with details.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Decision {
    /// Smoothed events per period, the level of the bucket, or the count of the calendar
    /// window, including this event: `$sender_rate`.
    pub rate: f64,
    /// Whether the rate is at or over the limit, or the bucket or window had no room, or what
    /// an override says instead.
    pub over: bool,
    /// The override that decided instead of the rate, if any.
    pub overridden: Option<Overridden>,
    /// The block of the identity: the one that denies the event, with [`Overridden::Deny`], or the
    /// one that this crossing has set.
    pub blocked: Option<Block>,
    /// How the event was counted.
    pub algorithm: AlgorithmKind,
    /// The limit that the rate was compared with; of a bucket, the burst.
    pub limit: f64,
    /// The period in seconds: see [`Algorithm::period`](super::Algorithm::period). Of a calendar
    /// window: the length of the one in which the record counts.
    pub period: f64,
    /// The second (since 1970) in which that window began; of a share, how many must have gone
    /// out; 0 for other algorithms.
    pub start: i64,
    /// The second (since 1970) in which the count starts again, or from which on a share is below
    /// its limit; 0 for other algorithms.
    pub restarts: i64,
    /// Of a share, what it was computed from: without what goes out by this event.
    pub share: Counted,
    /// What leaks out of a bucket in a second; 0 for a moving average.
    pub leak: f64,
    /// The size this event was counted with; 0 if the check was read-only or
    /// the event had been seen before. Of a share, how many have failed.
    pub count: f64,
    /// The size of one more event of this kind.
    pub next_count: f64,
    /// When the check was decided.
    pub at: Timestamp,
    /// The average or level remembered after the check, if any.
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
    /// The decision on `number` of something in one message, of which `cap` are allowed: that
    /// of a bucket which was empty before. Nothing is remembered of it.
    #[must_use]
    pub fn of_cap(cap: f64, number: f64, at: Timestamp) -> Self {
        Self {
            rate: number,
            over: number > cap,
            overridden: None,
            blocked: None,
            algorithm: AlgorithmKind::Bucket,
            limit: cap,
            period: f64::INFINITY,
            start: 0,
            restarts: 0,
            share: Counted::default(),
            leak: 0.0,
            count: 1.0,
            next_count: 1.0,
            at,
            kept: Some(Average { at, rate: number }),
            crossed: false,
            crossings: 0,
            details: Details { written: true, ..Details::default() },
        }
    }

    /// As [`Decision::against`], of a limit that counts so, in the same record.
    #[must_use]
    pub fn against_limit_of(self, algorithm: &Algorithm) -> Self {
        let same = match algorithm.share() {
            Some(share) => Self { rate: share.rate(self.share), start: share.least.into(), ..self },
            None => self,
        };
        same.against(algorithm.limit())
    }

    /// Compares the same rate with another limit.
    ///
    /// A decision that is reused from memory is compared with the limit of the
    /// later line. It is not a crossing: only the first decision can be one.
    #[must_use]
    pub fn against(self, limit: f64) -> Self {
        let over = decide_over(self.algorithm.over(self.rate, limit, self.count), self.overridden);
        Self { limit, over, crossed: false, ..self }
    }

    /// The part of the limit that the rate has reached, at least 1 if it is over.
    #[must_use]
    pub fn part(&self) -> f64 {
        let part = if self.limit > 0.0 { self.rate / self.limit } else { f64::INFINITY };
        // A rate that is not a number is over.
        let part = if part.is_nan() { 1.0 } else { part };
        if self.over { part.max(1.0) } else { part }
    }

    /// Whether the rate has reached this part of the limit. What applies from all of it
    /// on applies to what is over, as a bucket is not that is exactly full.
    #[must_use]
    #[inline]
    pub fn reaches(&self, part: f64) -> bool {
        if part == 1.0 { self.over } else { self.part() >= part && (self.over || part < 1.0) }
    }

    /// Whether a check that refuses from this part of its limit on refuses the event:
    /// see [`Check::refuses`](super::Check::refuses).
    #[must_use]
    #[inline]
    pub fn refuses(&self, from: Option<f64>) -> bool {
        from.is_some_and(|from| match self.overridden {
            None => self.reaches(from),
            Some(overridden) => overridden.is_denial(),
        })
    }

    /// What a read-only decision would be if an event of this size was counted.
    #[must_use]
    pub fn if_counted(self, count: f64) -> Self {
        let Self { kept, at, limit, algorithm, overridden, .. } = self;
        if algorithm == AlgorithmKind::Share {
            return self;
        }
        let rate = self.counted().after(kept, at, count);
        let over = decide_over(algorithm.over(rate, limit, count), overridden);
        Self { rate, over, count, ..self }
    }

    /// How many more events of the same kind would pass at `now`.
    #[must_use]
    pub fn remaining(&self, now: Timestamp) -> f64 {
        match self.overridden {
            Some(Overridden::Allow) => f64::INFINITY,
            Some(Overridden::Deny | Overridden::Reject) => 0.0,
            None if self.blocked.is_some() => 0.0,
            None if self.algorithm == AlgorithmKind::Share => {
                if self.over {
                    0.0
                } else {
                    f64::INFINITY
                }
            }
            None => self.counted().remaining(self.kept, now, self.next_count),
        }
    }

    /// The shortest wait from `now` after which one more event of the same
    /// kind would pass.
    #[must_use]
    pub fn retry_after(&self, now: Timestamp) -> Wait {
        match (self.overridden, self.blocked) {
            (Some(Overridden::Allow), _) => Wait::Seconds(0.0),
            (_, Some(block)) => block.wait(now),
            (Some(Overridden::Deny | Overridden::Reject), None) => Wait::Never,
            (None, None) if self.algorithm == AlgorithmKind::Share => {
                share::wait(if self.over { self.restarts } else { 0 }, now)
            }
            (None, None) => self.counted().retry_after(self.kept, now, self.next_count),
        }
    }

    /// The window of the calendar in which the record counts, if it counts in one.
    #[must_use]
    pub fn window(&self) -> Option<CalendarWindow> {
        let is_of_calendar = self.algorithm == AlgorithmKind::Calendar;
        is_of_calendar.then(|| CalendarWindow::lasting(self.start, self.period))
    }

    /// How the record counts, by the clock of the store.
    fn counted(&self) -> Algorithm {
        let Self { limit, period, leak, start, restarts, .. } = *self;
        match self.algorithm {
            AlgorithmKind::MovingAverage => Algorithm::MovingAverage { limit, period },
            AlgorithmKind::Bucket => Algorithm::Bucket { burst: limit, rate: leak },
            AlgorithmKind::Calendar => {
                Algorithm::Calendar { limit, window: CalendarWindow { start, end: restarts } }
            }
            AlgorithmKind::Share => Algorithm::of_record(self.algorithm, limit, period, start),
        }
    }
}

/// Whether a check is over its limit: as measured, unless an override decides.
#[inline]
pub(super) fn decide_over(measured: bool, overridden: Option<Overridden>) -> bool {
    match overridden {
        None => measured,
        Some(overridden) => overridden.is_denial(),
    }
}
