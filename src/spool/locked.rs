//! A shard that is locked and ready for use.

use std::fs::File;

use crate::engine::{Change, RecordKey, Remembered};
use crate::rate::Timestamp;
use crate::store::USAGE;
use crate::sys::clock;
use crate::sys::lock::{Guard, LockKind};

use super::apply::AddFailure;
use super::database::{ATTEMPTS, Database, shard_name};
use super::format::{DEAD, KEY_BYTES_MAX, LIVE, TIDIED, WAITS};
use super::hashing::KeySlot;
use super::index::Lookup;
use super::live_records;
use super::rebuild::{self, Outcome, Reason};
use super::shard::{Body, Condition, Shard};
use super::{LockedCheck, Spool, SpoolError};

/// The least unused heap, in bytes, that is worth a rebuild.
const DEAD_MIN: u64 = 64 * 1024;

/// A locked shard, and the result of looking one key up in it.
pub(super) struct Locked<'a> {
    pub(super) database: &'a Database,
    pub(super) file: &'a File,
    pub(super) body: &'a mut Body,
    pub(super) key_slot: KeySlot,
    pub(super) key: RecordKey<'a>,
    pub(super) lookup: Lookup,
}

impl Locked<'_> {
    /// The contents of the key's record.
    #[inline]
    pub(super) fn remembered(&self) -> Option<Remembered<'_>> {
        self.lookup.remembered(self.body)
    }

    /// Applies a change to the key's record, or to a new one.
    #[inline]
    pub(super) fn apply(&mut self, change: &Change) -> Result<(), AddFailure> {
        self.body.apply(self.file, self.key_slot, &self.key, &self.lookup, change)
    }
}

impl Spool {
    /// Locks the shard of `key`, completes or repairs it where needed, and runs `act`.
    ///
    /// If `grows`, an existing record may need more room, which is made first.
    #[inline]
    pub(super) fn locked<T>(
        &mut self,
        key: RecordKey<'_>,
        grows: bool,
        act: impl FnOnce(&mut Locked<'_>) -> Result<T, AddFailure>,
    ) -> Result<T, SpoolError> {
        check_length(&key)?;
        let key_slot = self.database.hashing.place(key);
        self.locked_shard(
            key_slot,
            grows,
            |body| [body.find(key_slot, key)],
            |database, file, body, [lookup]| {
                act(&mut Locked { database, file, body, key_slot, key, lookup })
            },
        )
    }

    /// As above for the shard of `key_slot`; `act` also gets the result of `find`.
    #[inline]
    pub(super) fn locked_shard<L: AsRef<[Lookup]>, T>(
        &mut self,
        key_slot: KeySlot,
        grows: bool,
        find: impl Fn(&Body) -> L,
        act: impl FnOnce(&Database, &File, &mut Body, L) -> Result<T, AddFailure>,
    ) -> Result<T, SpoolError> {
        self.database.require_writable()?;
        self.after_fork()?;
        let number = key_slot.shard;
        let mut failure = None;
        for _ in 0..ATTEMPTS {
            // On every exit but the last, the shard is closed, to be opened again.
            let kept = self.take_kept(number);
            let is_kept = kept.is_some();
            let found = kept.map_or_else(|| self.take_shard(number), |shard| Ok(Some(shard)))?;
            let Some(mut shard) = found else { break };
            let Shard { file, body } = &mut *shard;
            let second = clock::coarse_seconds();
            body.prefetch(key_slot, second, [0; 2]);
            if self.keeps_lock {
                body.prefetch(key_slot.beside(USAGE), second, self.counted_at);
            }
            let path = || self.database.path_of(&shard_name(number));
            let guard = match is_kept {
                true => Guard::of_kept(file),
                false => self.database.lock(file, LockKind::Exclusive, path)?,
            };
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
            let found = find(body);
            let lookups = found.as_ref();
            self.note_damage(lookups.iter().map(|lookup| lookup.damaged).sum());
            if self.rebuild_if_due(body, lookups, grows, &mut failure) {
                continue;
            }
            self.note_damage(lookups.iter().filter(|lookup| lookup.has_no_state()).count() as u64);
            let done = act(&self.database, file, body, found);
            match self.keeps_lock {
                true => {
                    guard.keep();
                    self.kept = Some(LockedCheck { slot: key_slot, at: None });
                }
                false => drop(guard),
            }
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

    /// Counts damaged records.
    #[inline]
    pub(super) fn note_damage(&mut self, records: u64) {
        self.damaged += records;
    }

    /// Removes what can be forgotten from a locked shard. True if that has replaced the
    /// shard, so that it must be opened again.
    #[cold]
    fn tidied(&mut self, body: &mut Body) -> bool {
        body.tidy_due = false;
        // A failure is not an error of the check; a later check tries again.
        matches!(self.tidy_shard(body, clock::now().into(), false), Ok(Outcome::Replaced))
    }

    /// Rebuilds a locked shard where a quarter of it or more is of no use any
    /// more; notes that it has been looked through.
    pub(super) fn tidy_shard(
        &mut self,
        body: &mut Body,
        now: Timestamp,
        waits: bool,
    ) -> Result<Outcome, SpoolError> {
        if live_records::is_worth_it(body, now) {
            return self.rebuild(body, Reason::Growth, now, waits);
        }
        let _ = body.set_sealed(TIDIED, now.seconds.max(0).cast_unsigned());
        Ok(Outcome::Unneeded)
    }

    /// Rebuilds a locked shard. Unless `waits`, growth does not wait for a lock.
    pub(super) fn rebuild(
        &mut self,
        body: &mut Body,
        reason: Reason,
        now: Timestamp,
        waits: bool,
    ) -> Result<Outcome, SpoolError> {
        self.with_files(|database| rebuild::rebuild(database, body, reason, now, waits))
    }

    /// Rebuilds a locked shard if that is due. True if it did, so that the shard must be
    /// opened again. A failure is an error only if the check cannot go on without it.
    #[inline]
    fn rebuild_if_due(
        &mut self,
        body: &mut Body,
        lookups: &[Lookup],
        grows: bool,
        failure: &mut Option<SpoolError>,
    ) -> bool {
        if !grows && lookups.iter().all(Lookup::stays) {
            return false;
        }
        let Some((reason, full)) = due(body, lookups) else { return false };
        // On a full disk it would otherwise fail at every check.
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

/// Why a shard should be rebuilt now, if so, and whether it has no room left.
pub(super) fn due(body: &Body, lookups: &[Lookup]) -> Option<(Reason, bool)> {
    if lookups.iter().any(|lookup| lookup.index_damaged) {
        return Some((Reason::Damage("its index is damaged"), false));
    }
    let (Some(live), Some(dead)) = (body.sealed(LIVE), body.sealed(DEAD)) else {
        return Some((Reason::Damage("its counts are damaged"), false));
    };
    let end = body.heap_end().unwrap_or(0);
    let used = end.saturating_sub(body.heap_start) as u64;
    let new = lookups.iter().filter(|lookup| lookup.record.is_none()).count() as u64;
    let entries = live.saturating_add(new);
    let capacity = body.capacity as u64;
    let wasteful = dead > used / 2 && dead > DEAD_MIN;
    // No free entry means that the count is wrong, even if its checksum is right.
    let packed = lookups.iter().any(|lookup| lookup.slot.is_none());
    let crowded = new > 0 && (entries > capacity / 5 * 4 || packed);
    let beyond = end > body.share;
    let full = crowded && (entries > capacity / 20 * 19 || packed) || end > body.share / 8 * 9;
    (crowded || wasteful || beyond).then_some((Reason::Growth, full))
}

/// An error where a record's name is longer than one can be stored.
#[inline]
pub(super) fn check_length(key: &RecordKey<'_>) -> Result<(), SpoolError> {
    if key.name.len() > KEY_BYTES_MAX {
        return Err(SpoolError::KeyTooLong { bytes: key.name.len() });
    }
    Ok(())
}
