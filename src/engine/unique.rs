//! A unique event, and the Bloom filter of its record.

use crate::rate::Timestamp;
use crate::rate::bloom::{self, Event};

use super::state::{Filter, FilterChange};

/// A unique event compared with the filter of its record.
pub(crate) struct UniqueEvent {
    /// The filter contains the event.
    pub(crate) seen: bool,
    /// There is a filter, but it is older than the period.
    pub(crate) expired: bool,
    /// The change to the filter if the event is counted.
    pub(crate) change: FilterChange,
}

impl UniqueEvent {
    /// Looks `event` up in `filter`, which is that of a calendar window if `start` is the second
    /// in which this began; `limit` is the size of a new filter in events.
    #[inline]
    pub(crate) fn find(
        filter: Option<Filter<'_>>,
        event: Event,
        limit: f64,
        period: f64,
        start: Option<i64>,
        now: Timestamp,
    ) -> Self {
        let live = filter.filter(|filter| match start {
            None => !bloom::expired(filter.epoch, now, period),
            Some(start) => filter.epoch == start,
        });
        // It is that of its window, whatever the clock of this store.
        let epoch = start.unwrap_or(now.seconds);
        let seen = live.is_some_and(|filter| bloom::contains(filter.bits, event));
        let change = match live {
            Some(_) if seen => FilterChange::Keep,
            Some(_) => FilterChange::Insert(event),
            None => FilterChange::Renew { bytes: bloom::bytes_for(limit), epoch, event },
        };
        Self { seen, expired: filter.is_some() && live.is_none(), change }
    }
}
