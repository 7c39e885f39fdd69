//! One atomic read-decide-write of one record.

use std::fs::File;

use crate::rate::Timestamp;
use crate::rate::bloom::Event;
use crate::store::{Change, Remembered, Store};
use crate::sys::clock;
use crate::sys::lock::Kind;

use super::apply::Failure;
use super::database::{ATTEMPTS, shard_name};
use super::format::{DEAD, KEY_BYTES_MAX, LIVE, TIDIED, WAITS};
use super::hashing::KeySlot;
use super::index::Lookup;
use super::live_records;
use super::rebuild::{self, Outcome, Reason};
use super::shard::{Body, Condition, Shard};
use super::{Spool, SpoolError};

/// Dead heap smaller than this is not worth a rebuild.
const DEAD_MIN: u64 = 64 * 1024;

/// A locked shard and what its index says of one key.
pub(super) struct Locked<'a> {
    pub(super) file: &'a File,
    pub(super) body: &'a mut Body,
    pub(super) key_slot: KeySlot,
    pub(super) key: &'a [u8],
    pub(super) lookup: Lookup,
}

impl Locked<'_> {
    /// What is remembered of the key.
    #[inline]
    pub(super) fn remembered(&self) -> Option<Remembered<'_>> {
        self.lookup.record.and_then(|record| record.remembered(&self.body.map, self.body.seed))
    }

    /// Makes a change in the key's record, or in a new one.
    #[inline]
    pub(super) fn apply(&mut self, change: &Change) -> Result<(), Failure> {
        self.body.apply(self.file, self.key_slot, self.key, &self.lookup, change)
    }
}

impl Spool {
    /// Runs `act` on the locked shard of `key`, which has been put in order.
    ///
    /// `grows` says that a record that is there may have to move: what makes
    /// room is done first.
    #[inline]
    pub(super) fn locked<T>(
        &mut self,
        key: &[u8],
        grows: bool,
        act: impl FnOnce(&mut Locked<'_>) -> Result<T, Failure>,
    ) -> Result<T, SpoolError> {
        if key.len() > KEY_BYTES_MAX {
            return Err(SpoolError::KeyTooLong { bytes: key.len() });
        }
        self.database.require_writable()?;
        self.after_fork()?;
        let key_slot = self.database.hashing.place(key);
        let number = key_slot.shard;
        let mut failure = None;
        for _ in 0..ATTEMPTS {
            // On every way out but the last, the shard is closed and will be
            // opened again.
            let Some(mut shard) = self.take_shard(number)? else { break };
            let Shard { file, body } = &mut *shard;
            let second = clock::coarse_seconds();
            body.prefetch(key_slot, second);
            let guard = self
                .database
                .lock(file, Kind::Exclusive, || self.database.path_of(&shard_name(number)))?;
            let condition = body
                .condition(file, &self.database, second)
                .map_err(|source| self.shard_error("examine", number, source))?;
            match condition {
                Condition::Ready => {}
                Condition::Stale => continue,
                Condition::Damaged(what) => {
                    self.rebuild(body, Reason::Damage(what), clock::now().into(), true)?;
                    continue;
                }
            }
            if guard.waited() {
                let _ = body.count(WAITS);
            }
            if body.tidy_due && self.tidied(body) {
                continue;
            }
            let lookup = body.find(key_slot, key);
            self.damaged += lookup.damaged;
            if self.rebuild_if_due(body, &lookup, grows, &mut failure) {
                continue;
            }
            if lookup.record.is_some_and(|record| record.current.is_none()) {
                self.damaged += 1;
            }
            let done = act(&mut Locked { file, body, key_slot, key, lookup });
            drop(guard);
            self.put_shard(shard);
            return match done {
                Ok(result) => Ok(result),
                Err(error) => {
                    Err(failure.unwrap_or_else(|| error.into_error(&self.database, number)))
                }
            };
        }
        Err(self.unsettled(number))
    }

    /// Looks a locked shard through for what may go. True where that has
    /// replaced it, so that it must be opened again.
    #[cold]
    fn tidied(&mut self, body: &mut Body) -> bool {
        body.tidy_due = false;
        // Where it cannot be done now, there is a next time; a check must not
        // fail for it.
        matches!(self.tidy_shard(body, clock::now().into(), false), Ok(Outcome::Replaced))
    }

    /// Rebuilds a locked shard where a quarter of it or more is of no use any
    /// more; notes that it has been looked through.
    pub(super) fn tidy_shard(
        &mut self,
        body: &mut Body,
        now: Timestamp,
        patient: bool,
    ) -> Result<Outcome, SpoolError> {
        if live_records::is_worth_it(body, now) {
            return self.rebuild(body, Reason::Growth, now, patient);
        }
        let _ = body.set_sealed(TIDIED, now.seconds.max(0).cast_unsigned());
        Ok(Outcome::Unneeded)
    }

    /// Rebuilds a locked shard. Unless `patient`, growth waits for nobody.
    pub(super) fn rebuild(
        &mut self,
        body: &mut Body,
        reason: Reason,
        now: Timestamp,
        patient: bool,
    ) -> Result<Outcome, SpoolError> {
        self.with_files(|database| rebuild::rebuild(database, body, reason, now, patient))
    }

    /// Rebuilds a locked shard where that is due. True where it was, so that
    /// it must be opened again; a failure is kept for when there is no way on.
    #[inline]
    fn rebuild_if_due(
        &mut self,
        body: &mut Body,
        lookup: &Lookup,
        grows: bool,
        failure: &mut Option<SpoolError>,
    ) -> bool {
        // A plain record that is there needs no room, unless it is to get a
        // filter.
        let plain = lookup.record.is_some_and(|record| record.filter_bytes.is_none());
        if plain && !grows && !lookup.index_damaged {
            return false;
        }
        let Some((reason, full)) = due(body, lookup) else { return false };
        // On a full disk it would fail at every check.
        let second = clock::coarse_seconds();
        if body.rebuild_failed == second && !full {
            return false;
        }
        match self.rebuild(body, reason, clock::now().into(), full) {
            Ok(Outcome::Replaced) => true,
            Ok(Outcome::Postponed | Outcome::Unneeded) => false,
            Err(error) => {
                body.rebuild_failed = second;
                *failure = Some(error);
                false
            }
        }
    }
}

/// Why a shard should be rebuilt now, if it should, and whether it has no room
/// left without that.
fn due(body: &Body, lookup: &Lookup) -> Option<(Reason, bool)> {
    if lookup.index_damaged {
        return Some((Reason::Damage("its index is damaged"), false));
    }
    let (Some(live), Some(dead)) = (body.sealed(LIVE), body.sealed(DEAD)) else {
        return Some((Reason::Damage("its counts are damaged"), false));
    };
    let end = body.heap_end().unwrap_or(0);
    let used = end.saturating_sub(body.heap_start) as u64;
    let entries = live.saturating_add(1);
    let capacity = body.capacity as u64;
    let wasteful = dead > used / 2 && dead > DEAD_MIN;
    // No free entry: then the count is wrong, whatever its check says.
    let packed = lookup.slot.is_none();
    let crowded = lookup.record.is_none() && (entries > capacity / 5 * 4 || packed);
    let beyond = end > body.share;
    let full = crowded && (entries > capacity / 20 * 19 || packed) || end > body.share / 8 * 9;
    (crowded || wasteful || beyond).then_some((Reason::Growth, full))
}

impl Store for Spool {
    type Error = SpoolError;

    fn update<T>(
        &mut self,
        key: &[u8],
        event: Option<&[u8]>,
        decide: impl FnOnce(Option<Remembered<'_>>, Option<Event>) -> (T, Option<Change>),
    ) -> Result<T, SpoolError> {
        let event = event.map(|text| self.database.hashing.event(text));
        self.locked(key, event.is_some(), |locked| {
            let (result, change) = decide(locked.remembered(), event);
            if let Some(change) = change {
                locked.apply(&change)?;
            }
            Ok(result)
        })
    }
}
