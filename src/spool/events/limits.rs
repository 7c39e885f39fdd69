//! The size limits and ages of the event logs.

use super::super::format::StoredLimits;

/// The smallest size limit of an event log, in bytes.
pub const EVENT_BYTES_MIN: u64 = 1 << 20;
/// The largest one: readers hold a whole file in memory.
pub const EVENT_BYTES_MAX: u64 = 64 << 20;
/// The shortest time for which events are kept, in seconds.
pub const EVENT_KEEP_MIN: u64 = 3600;

/// One of the two event logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// The journal of crossings.
    Crossings,
    /// The log of refusals.
    Refusals,
}

impl EventKind {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Crossings, Self::Refusals];
}

/// The limits of one event log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogLimits {
    /// The size limit of both of its files together, in bytes.
    pub max_bytes: u64,
    /// How many seconds an event is kept; `None` for ever.
    pub keep: Option<u64>,
}

impl LogLimits {
    /// The size from which on a new file is begun.
    pub(super) fn file_bytes(self) -> u64 {
        self.max_bytes / 2
    }

    /// The second of the oldest events that are kept.
    pub(super) fn oldest(self, now: i64) -> i64 {
        self.keep.map_or(i64::MIN, |keep| now.saturating_sub_unsigned(keep))
    }

    fn of(max_bytes: u64, keep: u64) -> Self {
        let keep = Some(keep).filter(|&keep| keep != u64::MAX);
        Self {
            max_bytes: max_bytes.clamp(EVENT_BYTES_MIN, EVENT_BYTES_MAX),
            keep: keep.map(|keep| keep.max(EVENT_KEEP_MIN)),
        }
    }
}

/// The limits of both event logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventLimits {
    /// Those of the journal of crossings.
    pub crossings: LogLimits,
    /// Those of the log of refusals.
    pub refusals: LogLimits,
}

impl Default for EventLimits {
    fn default() -> Self {
        let limits = |mib: u64, days: u64| LogLimits::of(mib << 20, days * 86_400);
        Self { crossings: limits(8, 90), refusals: limits(16, 14) }
    }
}

impl EventLimits {
    /// Those of one log.
    #[must_use]
    pub fn of(&self, kind: EventKind) -> LogLimits {
        match kind {
            EventKind::Crossings => self.crossings,
            EventKind::Refusals => self.refusals,
        }
    }

    pub(in crate::spool) fn stored(self) -> StoredLimits {
        let keep = |limits: LogLimits| limits.keep.unwrap_or(u64::MAX);
        StoredLimits {
            crossings_bytes: self.crossings.max_bytes,
            crossings_keep: keep(self.crossings),
            refusals_bytes: self.refusals.max_bytes,
            refusals_keep: keep(self.refusals),
        }
    }

    /// The limits that the file `database` has; the defaults if they are missing or
    /// damaged.
    pub(in crate::spool) fn decode(bytes: &[u8]) -> Self {
        StoredLimits::decode(bytes).map_or_else(Self::default, |stored| Self {
            crossings: LogLimits::of(stored.crossings_bytes, stored.crossings_keep),
            refusals: LogLimits::of(stored.refusals_bytes, stored.refusals_keep),
        })
    }
}
