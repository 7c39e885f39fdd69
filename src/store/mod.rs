//! The seam between decisions and where rates are kept.
//!
//! A [`Store`] does one thing: one atomic read-decide-write of one record. The
//! decision is a closure that sees what is remembered and says what is to be
//! remembered from now on; the store does the rest, and nothing of the record
//! is changed when the closure asks for nothing.

#[cfg(test)]
pub(crate) mod conformance;
mod memory;

use crate::rate::Average;
use crate::rate::bloom::Event;

pub use memory::Memory;

/// What a store remembers of one key.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Remembered<'a> {
    /// The moving average.
    pub average: Average,
    /// The limit of the check that wrote the record last.
    pub limit: f64,
    /// The second (since 1970) since which every written rate was at or over
    /// its limit, or 0 where the last one was under.
    pub over_since: u32,
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
    /// The new moving average.
    pub average: Average,
    /// The limit it was held against.
    pub limit: f64,
    /// See [`Remembered::over_since`].
    pub over_since: u32,
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

/// A place where rates are kept.
pub trait Store {
    /// What can go wrong.
    type Error: std::error::Error;

    /// Runs `decide` on what is remembered of `key`, with the record locked,
    /// and then makes the change it asks for, all or nothing.
    ///
    /// `event` is the text of a unique event; `decide` is handed its hash
    /// under the store's own key. `decide` runs exactly once if the store can
    /// be used at all, and not otherwise.
    ///
    /// # Errors
    /// The store could not be used; then nothing was changed, and the key's
    /// record, if any, is as it was.
    fn update<T>(
        &mut self,
        key: &[u8],
        event: Option<&[u8]>,
        decide: impl FnOnce(Option<Remembered<'_>>, Option<Event>) -> (T, Option<Change>),
    ) -> Result<T, Self::Error>;
}
