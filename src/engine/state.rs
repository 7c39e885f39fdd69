//! The remembered state of a record, and changes to it.

use crate::rate::block::Block;
use crate::rate::bloom::Event;
use crate::rate::share::Booked;
use crate::rate::{Average, CalendarWindow, Timestamp};

/// The contents of a record, without its filter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct State {
    /// The moving average, the level of the bucket, or the count of the calendar window; `None`
    /// if the record holds only a crossing and no event has been counted.
    pub average: Option<Average>,
    /// The limit of the last check that was counted; of a bucket, the burst. It
    /// is used for display, expiry and eviction; it never decides.
    pub limit: f64,
    /// The period of that check in seconds; used like the limit. That of a
    /// bucket is the time in which a full one becomes empty, so that `limit /
    /// period` leaks out in a second. That of a calendar window is its length.
    pub period: f64,
    /// The second (since 1970) in which the calendar window began; of a share, how many must have
    /// gone out before it counts; 0 of others.
    pub start: i64,
    /// The second (since 1970) since which every counted rate was at or over
    /// its limit; 0 if the last one was under.
    pub over_since: u32,
    /// The second (since 1970) of the latest over decision of a leaky or strict
    /// check; 0 if there was none, in the calendar window if it counts in one. Or a
    /// [`Block`].
    pub last_over: u32,
    /// The number of crossings: over decisions of leaky or strict checks without
    /// another one during the preceding period.
    pub crossings: u32,
    /// The rate, level or count that this server admitted while the cluster's
    /// store was unreachable, at the time of `average`: see
    /// [`Authority::Share`](super::Authority::Share).
    pub apart: f32,
}

impl State {
    /// The state of a record with this average, limit and period that is not
    /// over its limit.
    #[must_use]
    pub fn new(average: Average, limit: f64, period: f64) -> Self {
        Self { average: Some(average), ..Self::empty(limit, period) }
    }

    /// The state of a record without a rate.
    #[must_use]
    pub(super) fn empty(limit: f64, period: f64) -> Self {
        Self {
            average: None,
            limit,
            period,
            start: 0,
            over_since: 0,
            last_over: 0,
            crossings: 0,
            apart: 0.0,
        }
    }

    /// The calendar window that it counts.
    #[must_use]
    pub fn window(&self) -> CalendarWindow {
        CalendarWindow::lasting(self.start, self.period)
    }

    /// This state as a check of this window finds it at `now`: without what was counted in a
    /// window that is over, or in one that only a clock which was wrong can have been in, and
    /// without its over decisions. A block stays.
    #[must_use]
    #[inline]
    pub(crate) fn in_window(self, window: CalendarWindow, now: Timestamp) -> Self {
        let kept = self.window();
        if !window.follows(kept) && !kept.is_far(now) {
            return self;
        }
        let (start, period) = (window.start, window.seconds());
        let last_over = Block::held(self.last_over).map_or(0, Block::code);
        Self { average: None, start, period, over_since: 0, last_over, apart: 0.0, ..self }
    }

    /// The rate when an event was last counted; 0 if none was.
    #[must_use]
    pub fn rate(&self) -> f64 {
        self.average.map_or(0.0, |average| average.rate)
    }
}

/// The remembered state of one record, with its filter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Remembered<'a> {
    /// Everything but the filter.
    pub state: State,
    /// The record's Bloom filter, if it has one; of a share, its buckets.
    pub filter: Option<Filter<'a>>,
}

/// A record's Bloom filter: the unique events seen since `epoch`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Filter<'a> {
    /// The second (since 1970) in which the filter was started.
    pub epoch: i64,
    /// Its bits.
    pub bits: &'a [u8],
}

/// The new state of a record.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Change {
    /// The new state.
    pub state: State,
    /// The change to the filter.
    pub filter: FilterChange,
}

/// A change to a record's Bloom filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FilterChange {
    /// The filter does not change, or stays absent.
    Keep,
    /// The event is added to the existing filter.
    Insert(Event),
    /// A bucket of a share is changed; if it had none, the others are empty.
    Book(Booked),
    /// The filter is replaced by an empty one of `bytes` bytes, started in
    /// second `epoch`, and the event is added to it.
    Renew {
        /// The new filter's size; at most [`crate::rate::bloom::MAX_BYTES`].
        bytes: usize,
        /// The second (since 1970) in which it starts.
        epoch: i64,
        /// Its first event.
        event: Event,
    },
}
