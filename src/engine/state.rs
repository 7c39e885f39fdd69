//! The remembered state of a record, and changes to it.

use crate::rate::Average;
use crate::rate::bloom::Event;

/// The contents of a record, without its filter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct State {
    /// The moving average, or the level of the bucket; `None` if the record
    /// holds only a crossing and no event has been counted.
    pub average: Option<Average>,
    /// The limit of the last check that was counted; of a bucket, the burst. It
    /// is used for display, expiry and eviction; it never decides.
    pub limit: f64,
    /// The period of that check in seconds; used like the limit. That of a
    /// bucket is the time in which a full one becomes empty, so that `limit /
    /// period` leaks out in a second.
    pub period: f64,
    /// The second (since 1970) since which every counted rate was at or over
    /// its limit; 0 if the last one was under.
    pub over_since: u32,
    /// The second (since 1970) of the latest over decision of a leaky or strict
    /// check; 0 if there was none.
    pub last_over: u32,
    /// The number of crossings: over decisions of leaky or strict checks without
    /// another one during the preceding period.
    pub crossings: u32,
    /// The rate, or the level of a bucket, that this server admitted while the cluster's
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
        Self { average: None, limit, period, over_since: 0, last_over: 0, crossings: 0, apart: 0.0 }
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
    /// The record's Bloom filter, if it has one.
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
