//! The settings of the event logs, and the removal of old events.

use crate::rate::Timestamp;

use super::super::{Spool, SpoolError};
use super::limits::{EventKind, EventLimits};
use super::log::EventLog;

impl Spool {
    /// The size limits and ages of the event logs.
    ///
    /// # Errors
    /// They could not be read.
    pub fn event_limits(&mut self) -> Result<EventLimits, SpoolError> {
        self.with_files(|database| database.stored_event_limits())
    }

    /// Sets the size limits and ages of the event logs. Processes that have the database
    /// open apply them from their next check on.
    ///
    /// # Errors
    /// They could not be written, and have not changed.
    pub fn set_event_limits(&mut self, limits: EventLimits) -> Result<(), SpoolError> {
        self.database.require_writable()?;
        self.after_fork()?;
        let stored = EventLimits::decode(&limits.stored().encode());
        self.with_files(|database| database.set_event_limits(stored))
    }

    /// Removes the events that are too old, and those that have no room.
    ///
    /// # Errors
    /// A file could not be changed.
    pub fn tidy_events(&mut self, now: Timestamp) -> Result<(), SpoolError> {
        self.database.require_writable()?;
        self.after_fork()?;
        let limits = self.event_limits()?;
        for kind in EventKind::ALL {
            let log = EventLog::of(kind);
            self.with_files(|database| database.tidy_log(log, limits.of(kind), now))?;
        }
        Ok(())
    }

    /// How many bytes the two files of a log take.
    ///
    /// # Errors
    /// Their sizes could not be read.
    pub fn event_bytes(&mut self, kind: EventKind) -> Result<u64, SpoolError> {
        let log = EventLog::of(kind);
        self.with_files(|database| database.log_bytes(log))
    }
}
