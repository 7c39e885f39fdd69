//! What a store remembers of a record, and how that changes.

use crate::rate::Average;
use crate::rate::bloom::Event;

/// What a record holds besides its filter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct State {
    /// The moving average.
    pub average: Option<Average>,
    /// The limit of the check that was counted last. It is shown and used to
    /// forget and to evict; it never decides.
    pub limit: f64,
    /// The period of that check in seconds; used as the limit is.
    pub period: f64,
    /// The second (since 1970) since which every counted rate was at or over
    /// its limit, or 0 where the last one was under.
    pub over_since: u32,
}

impl State {
    /// The state of a record that has this average, was held against this
    /// limit and was not over it.
    #[must_use]
    pub fn new(average: Average, limit: f64, period: f64) -> Self {
        Self { average: Some(average), limit, period, over_since: 0 }
    }

    /// The rate as it was when it was counted last; 0 where nothing was.
    #[must_use]
    pub fn rate(&self) -> f64 {
        self.average.map_or(0.0, |average| average.rate)
    }
}

/// What a store remembers of one record.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Remembered<'a> {
    /// Everything but the filter.
    pub state: State,
    /// The record's Bloom filter, where it has one.
    pub filter: Option<Filter<'a>>,
}

/// A record's Bloom filter: the unique events seen since `epoch`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Filter<'a> {
    /// The second (since 1970) in which the filter was begun.
    pub epoch: i64,
    /// Its bits.
    pub bits: &'a [u8],
}

/// What is to be remembered from now on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Change {
    /// The new state.
    pub state: State,
    /// What happens to the filter.
    pub filter: FilterChange,
}

/// What happens to a record's Bloom filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FilterChange {
    /// It stays as it is, or stays absent.
    Keep,
    /// The event is added to the filter that is there.
    Insert(Event),
    /// An empty filter of `bytes` bytes takes its place, begun in second
    /// `epoch`, and the event is added to that.
    Renew {
        /// The new filter's size; at most [`crate::rate::bloom::MAX_BYTES`].
        bytes: usize,
        /// The second (since 1970) in which it begins.
        epoch: i64,
        /// Its first event.
        event: Event,
    },
}
