//! Decides what the next events would get, and counts nothing.

use std::collections::HashSet;

use crate::engine::{Check, Decision};
use crate::rate::Timestamp;
use crate::store::{Counting, Judged, Memory, OwnedKey, Sending, Store};

use super::locked::check_length;
use super::overrides::all_overridden;
use super::{Spool, SpoolError};

/// The records and overrides of a spool database as a [`Store`] of its own: the events
/// that it decides count in memory only. Also for a database that is open for reading
/// only.
///
/// Each record is copied when it is used first. Records of one call are not read
/// under one lock, so an event that Exim decides meanwhile may count in some only.
#[derive(Debug)]
pub struct Preview<'s> {
    spool: &'s mut Spool,
    memory: Memory,
    copied: HashSet<OwnedKey>,
}

impl<'s> Preview<'s> {
    /// What `spool` remembers.
    #[must_use]
    pub fn new(spool: &'s mut Spool) -> Self {
        let memory = Memory::with_event_key(spool.database.hashing.event_key());
        Self { spool, memory, copied: HashSet::new() }
    }

    fn copy(&mut self, check: &Check<'_>) -> Result<(), SpoolError> {
        check_length(&check.key)?;
        let key = OwnedKey::from(check.record_key());
        if self.copied.contains(&key) {
            return Ok(());
        }
        let memory = &mut self.memory;
        self.spool.peek(key.key(), None, |remembered, _| {
            if let Some(remembered) = remembered {
                memory.put(key.clone(), remembered);
            }
        })?;
        self.copied.insert(key);
        Ok(())
    }
}

impl Store for Preview<'_> {
    type Error = SpoolError;

    fn decide(
        &mut self,
        checks: &[Check<'_>],
        clock: impl FnOnce() -> Timestamp,
        decisions: &mut Vec<Decision>,
    ) -> Result<(), SpoolError> {
        decisions.clear();
        checks.iter().try_for_each(|check| self.copy(check))?;
        let candidates = self.spool.all_candidates(checks);
        let now = clock();
        let Ok(()) =
            self.memory.decide(&all_overridden(checks, &candidates, now), || now, decisions);
        Ok(())
    }

    fn decide_one(
        &mut self,
        check: &Check<'_>,
        clock: impl FnOnce() -> Timestamp,
    ) -> Result<Decision, SpoolError> {
        let mut decisions = Vec::with_capacity(1);
        self.decide(&[*check], clock, &mut decisions)?;
        // One for each check.
        decisions.pop().ok_or_else(|| self.spool.unsettled(0))
    }

    fn habits_hash(&self, text: &[u8]) -> u64 {
        self.spool.habits_hash(text)
    }

    fn learn(
        &mut self,
        sending: &Sending<'_>,
        clock: impl FnOnce() -> Timestamp,
    ) -> Result<Judged, SpoolError> {
        let identity = sending.key.identity();
        if self.memory.habits(identity).is_none()
            && let Some(habits) = self.spool.habits(sending.key)?
        {
            self.memory.put_habits(identity, habits);
        }
        let (candidates, now) = (self.spool.candidates(&sending.key), clock());
        let overridden = candidates.and_then(|candidates| candidates.at(now.seconds));
        Ok(self.memory.learn_overridden(sending, overridden, now))
    }

    fn count_usage(
        &mut self,
        _counting: &Counting<'_>,
        _clock: impl FnOnce() -> Timestamp,
    ) -> Result<(), SpoolError> {
        Ok(())
    }
}
