//! The algorithms side by side: what is asked of each of them in the same words.
//!
//! What a check computes under its lock is in `engine::decide`; everything that looks at a rate
//! calls what is here.

use super::outlook::{self, ENOUGH_PERIODS, Wait};
use super::{Average, Bucket, CalendarWindow, Share, Timestamp, bloom, calendar, forget, share};

/// How a record is counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "cli", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "cli", serde(rename_all = "lowercase"))]
pub enum AlgorithmKind {
    /// See [`Algorithm::MovingAverage`].
    #[default]
    #[cfg_attr(feature = "cli", serde(rename = "average"))]
    MovingAverage,
    /// See [`Algorithm::Bucket`].
    Bucket,
    /// See [`Algorithm::Calendar`].
    Calendar,
    /// See [`Algorithm::Share`].
    Share,
}

impl AlgorithmKind {
    /// Its name in output.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::MovingAverage => "average",
            Self::Bucket => "bucket",
            Self::Calendar => "calendar",
            Self::Share => "share",
        }
    }

    /// What it measures: the word for its rate.
    #[must_use]
    pub fn measure(self) -> &'static str {
        match self {
            Self::MovingAverage => "rate",
            Self::Bucket => "level",
            Self::Calendar => "count",
            Self::Share => "share",
        }
    }

    /// What it measures, with its unit's word and as many decimals as people read: `rate 9.3`,
    /// `count 12`.
    #[must_use]
    pub fn measured(self, rate: f64) -> String {
        match self {
            // A count is whole, as a rule.
            Self::Calendar => format!("{} {rate}", self.measure()),
            Self::MovingAverage | Self::Bucket => format!("{} {rate:.1}", self.measure()),
            Self::Share => format!("{} {rate:.1}%", self.measure()),
        }
    }

    /// Its number in the files and protocols of exirate.
    #[must_use]
    #[inline]
    pub const fn code(self) -> u8 {
        match self {
            Self::MovingAverage => 1,
            Self::Bucket => 2,
            Self::Calendar => 3,
            Self::Share => 4,
        }
    }

    /// The one with this number, if this exirate knows it.
    #[must_use]
    #[inline]
    pub const fn of_code(code: u8) -> Option<Self> {
        match code {
            1 => Some(Self::MovingAverage),
            2 => Some(Self::Bucket),
            3 => Some(Self::Calendar),
            4 => Some(Self::Share),
            _ => None,
        }
    }

    /// Whether an event of size `count` is over, if `rate` is the rate or level
    /// with it. A moving average exactly at the limit is over: a limit of zero
    /// blocks. A bucket or a calendar window that is exactly full is not.
    #[inline]
    pub(crate) fn over(self, rate: f64, limit: f64, count: f64) -> bool {
        match self {
            // Exim tests `rate < limit`, so NaN is over.
            Self::MovingAverage | Self::Share => {
                rate.partial_cmp(&limit) != Some(std::cmp::Ordering::Less)
            }
            Self::Bucket => Bucket { burst: limit, rate: 0.0 }.over(rate, count),
            Self::Calendar => calendar::exceeds(rate, limit),
        }
    }

    /// The smallest whole limit, or burst, under which an event with this rate is not over.
    #[must_use]
    pub fn least_limit(self, rate: f64) -> f64 {
        // A bucket or a calendar window may be exactly full; a rate must stay below its limit.
        match self {
            Self::Bucket | Self::Calendar => rate.ceil(),
            Self::MovingAverage | Self::Share => rate.floor() + 1.0,
        }
    }

    /// Whether a store that is given `limit` keeps it as `stored`.
    #[must_use]
    pub fn is_stored_as(self, limit: f64, stored: f64) -> bool {
        match self {
            Self::Calendar | Self::Share => calendar::is_stored_as(limit, stored),
            Self::MovingAverage | Self::Bucket => limit == stored,
        }
    }
}

/// How events become a rate, and the limit it is compared with.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Algorithm {
    /// The exponentially weighted moving average of Exim's `ratelimit`.
    MovingAverage {
        /// The limit: a rate at or above it is over. Not negative, not NaN; may
        /// be infinite.
        limit: f64,
        /// The period in seconds; greater than zero.
        period: f64,
    },
    /// A leaky bucket: see [`Bucket`]. Where a moving average has a rate, it has
    /// a level; the burst is its limit. A refused event adds nothing, but the
    /// level is stored as it is then, and dated now, as rspamd does.
    Bucket {
        /// An event for which there is no room is over, unless the bucket is
        /// empty. Greater than zero.
        burst: f64,
        /// What leaks out in a second. Not negative, not NaN; may be 0.
        rate: f64,
    },
    /// So many in a window of the calendar. Where a moving average has a rate, it has the count
    /// of the window, which starts again with the next one: see [`CalendarWindow`].
    Calendar {
        /// An event with which more would be counted is over. Not negative, not NaN; may be
        /// infinite.
        limit: f64,
        /// The present window, which is not empty.
        window: CalendarWindow,
    },
    /// The share of what went out that has failed, in percent: see [`Share`]. Where others have a
    /// filter, its record has the buckets.
    Share {
        /// The limit and the period.
        share: Share,
        /// The event is a failure of a message that was accepted in this second; else it is
        /// something that goes out.
        accepted: Option<i64>,
    },
}

impl Algorithm {
    /// Its kind, which selects the record.
    #[must_use]
    #[inline]
    pub fn kind(&self) -> AlgorithmKind {
        match self {
            Self::MovingAverage { .. } => AlgorithmKind::MovingAverage,
            Self::Bucket { .. } => AlgorithmKind::Bucket,
            Self::Calendar { .. } => AlgorithmKind::Calendar,
            Self::Share { .. } => AlgorithmKind::Share,
        }
    }

    /// The limit; of a bucket, the burst.
    #[must_use]
    #[inline]
    pub fn limit(&self) -> f64 {
        match self {
            Self::MovingAverage { limit, .. } | Self::Calendar { limit, .. } => *limit,
            Self::Bucket { burst, .. } => *burst,
            Self::Share { share, .. } => share.limit,
        }
    }

    /// The period in seconds. That of a bucket is the time in which a full one
    /// becomes empty: for so long a unique event does not count again, and
    /// after so long without over decisions the next one is a crossing. That of a calendar
    /// window is its length.
    #[must_use]
    #[inline]
    pub fn period(&self) -> f64 {
        match *self {
            Self::MovingAverage { period, .. } => period,
            Self::Bucket { burst, rate } => Bucket { burst, rate }.period(),
            Self::Calendar { window, .. } => window.seconds(),
            Self::Share { share, .. } => share.period,
        }
    }

    /// The present window of the calendar, if it counts in one, by the clock of who asks.
    #[must_use]
    #[inline]
    pub fn window(&self) -> Option<CalendarWindow> {
        match self {
            Self::MovingAverage { .. } | Self::Bucket { .. } | Self::Share { .. } => None,
            Self::Calendar { window, .. } => Some(*window),
        }
    }

    /// What leaks out of a bucket in a second; 0 for others.
    #[must_use]
    #[inline]
    pub fn leak(&self) -> f64 {
        match self {
            Self::MovingAverage { .. } | Self::Calendar { .. } | Self::Share { .. } => 0.0,
            Self::Bucket { rate, .. } => *rate,
        }
    }

    /// The parameters of the bucket, if it is one.
    #[must_use]
    pub fn bucket(&self) -> Option<Bucket> {
        match *self {
            Self::Bucket { burst, rate } => Some(Bucket { burst, rate }),
            Self::MovingAverage { .. } | Self::Calendar { .. } | Self::Share { .. } => None,
        }
    }

    /// The share, if it is one.
    #[must_use]
    #[inline]
    pub fn share(&self) -> Option<Share> {
        match *self {
            Self::Share { share, .. } => Some(share),
            _ => None,
        }
    }

    /// How a record is counted, by the figures that it keeps: the period of a bucket is the time
    /// in which a full one becomes empty, and `start` is the second in which a calendar window
    /// began, or how many must have gone out before a share counts.
    #[must_use]
    pub fn of_record(kind: AlgorithmKind, limit: f64, period: f64, start: i64) -> Self {
        match kind {
            AlgorithmKind::MovingAverage => Self::MovingAverage { limit, period },
            AlgorithmKind::Bucket => {
                let leaks = period > 0.0 && period.is_finite();
                Self::Bucket { burst: limit, rate: if leaks { limit / period } else { 0.0 } }
            }
            AlgorithmKind::Calendar => {
                Self::Calendar { limit, window: CalendarWindow::lasting(start, period) }
            }
            AlgorithmKind::Share => {
                let least = u32::try_from(start).unwrap_or(0);
                Self::Share { share: Share { limit, least, period }, accepted: None }
            }
        }
    }

    /// The rate, level or count with one more event of size `count` at `now`, where `kept` is
    /// remembered; with a size of 0, what is left now.
    #[must_use]
    pub fn after(&self, kept: Option<Average>, now: Timestamp, count: f64) -> f64 {
        match *self {
            Self::MovingAverage { period, .. } => match kept {
                Some(average) => average.next(now, period, count).rate,
                None => Average::first(now, count).rate,
            },
            Self::Bucket { burst, rate } => Bucket { burst, rate }.level(kept, now) + count,
            Self::Calendar { window, .. } => window.counted(kept, now) + count,
            // Its buckets say more.
            Self::Share { share, .. } => {
                let lasts = |at: Timestamp| now.seconds.saturating_sub(at.seconds) <= share.lasts();
                kept.filter(|kept| lasts(kept.at)).map_or(0.0, |kept| kept.rate)
            }
        }
    }

    /// How many more events of size `count` would pass, one directly after the other from `now`
    /// on.
    #[must_use]
    pub fn remaining(&self, kept: Option<Average>, now: Timestamp, count: f64) -> f64 {
        match *self {
            Self::MovingAverage { limit, period } => {
                outlook::remaining(kept, now, period, limit, count)
            }
            Self::Bucket { burst, rate } => Bucket { burst, rate }.remaining(kept, now, count),
            Self::Calendar { limit, window } => {
                calendar::remaining(window.counted(kept, now), limit, count)
            }
            Self::Share { share, .. } => match self.after(kept, now, count) < share.limit {
                true => f64::INFINITY,
                false => 0.0,
            },
        }
    }

    /// The shortest wait from `now` after which one more event of size `count` would pass.
    #[must_use]
    pub fn retry_after(&self, kept: Option<Average>, now: Timestamp, count: f64) -> Wait {
        match *self {
            Self::MovingAverage { limit, period } => {
                outlook::retry_after(kept, now, period, limit, count)
            }
            Self::Bucket { burst, rate } => Bucket { burst, rate }.retry_after(kept, now, count),
            Self::Calendar { limit, window } => {
                calendar::retry_after(window.counted(kept, now), limit, count, window.end, now)
            }
            Self::Share { share, .. } => match kept.filter(|kept| kept.rate >= share.limit) {
                Some(kept) => share::wait(kept.at.seconds.saturating_add(share.lasts()), now),
                None => Wait::Seconds(0.0),
            },
        }
    }

    /// Whether a filter of unique events that was started in second `epoch` has expired.
    #[must_use]
    pub fn filter_expired(&self, epoch: i64, now: Timestamp) -> bool {
        match self.window() {
            Some(window) => now.seconds >= window.end,
            // What has buckets has no filter.
            None => self.share().is_none() && bloom::expired(epoch, now, self.period()),
        }
    }

    /// Whether a record can be dropped at `now` without changing any later decision, where an
    /// event that is written costs at least `least`: see [`forget::forgettable`],
    /// [`Bucket::forgettable`] and [`CalendarWindow::is_of_the_past`].
    #[must_use]
    pub fn forgettable(
        &self,
        kept: Average,
        filter_epoch: Option<i64>,
        least: f64,
        now: Timestamp,
    ) -> bool {
        match *self {
            Self::MovingAverage { limit, period } => {
                forget::forgettable(kept, limit, filter_epoch, period, least, now)
            }
            Self::Bucket { burst, rate } => {
                Bucket { burst, rate }.forgettable(kept, filter_epoch, now)
            }
            Self::Calendar { window, .. } => window.is_of_the_past(now),
            Self::Share { share, .. } => {
                now.seconds.saturating_sub(kept.at.seconds) > share.lasts()
            }
        }
    }

    /// From which second on a record is forgettable, whatever events cost, if nothing more is
    /// counted; `None` if never.
    #[must_use]
    pub fn forgettable_from(&self, kept: Average, filter_epoch: Option<i64>) -> Option<i64> {
        if let Some(window) = self.window() {
            return Some(window.end.saturating_add(CalendarWindow::KEPT));
        }
        let may_go =
            |seconds| self.forgettable(kept, filter_epoch, 0.0, Timestamp { seconds, micros: 0 });
        let bucket = self.bucket();
        // A bucket may have been empty already.
        let start = kept.at.seconds - i64::from(bucket.is_some());
        // Whatever may ever go has decayed to nothing by then, and its filter has expired.
        let leaking = bucket.map_or(0.0, |bucket| kept.rate / bucket.rate);
        let period = self.period();
        let most = (ENOUGH_PERIODS * period).max(leaking + period + 2.0) as i64;
        let end = filter_epoch.map_or(start, |epoch| epoch.max(start)).saturating_add(most);
        if !may_go(end) {
            return None;
        }
        let (mut kept, mut gone) = (start, end);
        // At most 63 halvings.
        while gone - kept > 1 {
            let middle = i64::midpoint(kept, gone);
            if may_go(middle) { gone = middle } else { kept = middle }
        }
        Some(gone)
    }
}
