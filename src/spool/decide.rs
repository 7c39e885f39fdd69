//! Decides the checks of one event in their locked shards.

use std::fs::File;

use crate::engine::{self, Authority, Check, Decision, Pending};
use crate::rate::Timestamp;
use crate::rate::bloom::Event;
use crate::store::{Candidates, Counting, EventDetails, Judged, Sending, Store};
use crate::sys::clock;
use crate::sys::lock::{Guard, LockKind};

use super::apply::AddFailure;
use super::database::{ATTEMPTS, shard_name};
use super::events::entry::PendingEvent;
use super::events::{DecidedCheck, count_lost, journal};
use super::hashing::{Hashing, KeySlot};
use super::index::Lookup;
use super::locked::{Locked, check_length, due};
use super::overrides::{all_overridden, overridden};
use super::shard::{Body, Condition};
use super::{CHECKS_MAX, Spool, SpoolError};

/// A check, and what is computed from it before its shard is locked.
struct HashedCheck<'a> {
    check: &'a Check<'a>,
    key_slot: KeySlot,
    event: Option<Event>,
}

impl<'a> HashedCheck<'a> {
    #[inline]
    fn new(check: &'a Check<'_>, hashing: &Hashing) -> Self {
        Self {
            check,
            key_slot: hashing.place(check.key),
            event: check.counted_event().map(|text| hashing.event(text)),
        }
    }
}

impl Store for Spool {
    type Error = SpoolError;

    fn decide(
        &mut self,
        checks: &[Check<'_>],
        clock: impl FnOnce() -> Timestamp,
        decisions: &mut Vec<Decision>,
    ) -> Result<(), SpoolError> {
        decisions.clear();
        if let [check] = checks {
            decisions.push(self.decide_one(check, clock)?);
            return Ok(());
        }
        let mut clock = Some(clock);
        let mut clock = || clock.take().map_or_else(Timestamp::default, |clock| clock());
        self.decide_all(Authority::Local, checks, &mut clock, decisions)
    }

    #[inline]
    fn decide_one(
        &mut self,
        check: &Check<'_>,
        clock: impl FnOnce() -> Timestamp,
    ) -> Result<Decision, SpoolError> {
        let event = check.counted_event().map(|text| self.database.hashing.event(text));
        let candidates = self.candidates(&check.key);
        let mut events = Vec::new();
        let decided = self.locked(check.record_key(), event.is_some(), |locked| {
            let (now, mut place) = (clock(), None);
            let check = overridden(check, candidates, now, &mut place);
            let one = engine::decide_one(check, locked.remembered(), event, now);
            if one.is_first_over() {
                journal_one(locked, check, &one, &mut events);
            }
            if let Some(change) = one.change() {
                locked.apply(change)?;
            }
            locked.body.count_decided(std::iter::once(check), now);
            Ok(one.decision())
        });
        self.keep_events(events);
        if let Some(kept) = &mut self.kept {
            kept.at = decided.as_ref().ok().map(|decision| decision.at);
        }
        decided
    }

    #[inline]
    fn habits_hash(&self, text: &[u8]) -> u64 {
        self.database.hashing.habit(text)
    }

    fn learn(
        &mut self,
        sending: &Sending<'_>,
        clock: impl FnOnce() -> Timestamp,
    ) -> Result<Judged, SpoolError> {
        let candidates = self.candidates(&sending.key);
        self.judge_habits(sending, clock, |now| candidates.and_then(|all| all.at(now)))
    }

    #[inline]
    fn count_usage(
        &mut self,
        counting: &Counting<'_>,
        clock: impl FnOnce() -> Timestamp,
    ) -> Result<(), SpoolError> {
        self.count_in_record(counting, clock)
    }

    #[inline]
    fn has_events(&self) -> bool {
        Spool::has_events(self)
    }

    #[inline]
    fn keep_lock(&mut self, keeps: bool) {
        self.keeps_lock = keeps;
        if !keeps {
            self.release_lock();
        }
    }

    fn describe(&mut self, details: &EventDetails<'_>) {
        // Writing to a log may take a while.
        self.release_lock();
        Spool::describe(self, details);
    }
}

/// Writes what a check that is over has to write before the record's state.
#[cold]
fn journal_one(
    locked: &mut Locked<'_>,
    check: &Check<'_>,
    pending: &Pending,
    events: &mut Vec<PendingEvent>,
) {
    let Locked { database, key_slot, lookup, .. } = &*locked;
    let one = DecidedCheck { check, slot: *key_slot, lookup, pending };
    let mut lost = 0;
    journal(database, std::iter::once(one), events, |_| lost += 1);
    (0..lost).for_each(|_| count_lost(locked.body));
}

impl Spool {
    /// Decides a single check without counting anything. Also for a database that is
    /// open for reading only.
    ///
    /// # Errors
    /// The database could not be read.
    pub fn preview(
        &mut self,
        check: &Check<'_>,
        clock: impl FnOnce() -> Timestamp,
    ) -> Result<Decision, SpoolError> {
        let candidates = self.candidates(&check.key);
        self.peek(check.record_key(), check.counted_event(), |remembered, event| {
            let (now, mut place) = (clock(), None);
            let check = overridden(check, candidates, now, &mut place);
            engine::decide_one(check, remembered, event, now).decision()
        })
    }

    /// Decides the checks of one event by this authority; otherwise as [`Store::decide`].
    /// `clock` is called once.
    ///
    /// # Errors
    /// Those of [`Store::decide`].
    pub fn decide_as(
        &mut self,
        authority: Authority<'_>,
        checks: &[Check<'_>],
        clock: &mut dyn FnMut() -> Timestamp,
        decisions: &mut Vec<Decision>,
    ) -> Result<(), SpoolError> {
        decisions.clear();
        self.decide_all(authority, checks, clock, decisions)
    }

    /// `clock` is called once.
    fn decide_all(
        &mut self,
        authority: Authority<'_>,
        checks: &[Check<'_>],
        clock: &mut dyn FnMut() -> Timestamp,
        decisions: &mut Vec<Decision>,
    ) -> Result<(), SpoolError> {
        if checks.len() > CHECKS_MAX {
            return Err(SpoolError::TooManyChecks { checks: checks.len() });
        }
        checks.iter().try_for_each(|check| check_length(&check.key))?;
        let hashing = &self.database.hashing;
        let hashed: Vec<_> = checks.iter().map(|check| HashedCheck::new(check, hashing)).collect();
        let Some(first) = hashed.first() else { return Ok(()) };
        let candidates = self.all_candidates(checks);
        let mut pending = Vec::with_capacity(checks.len());
        if hashed.iter().all(|one| one.key_slot.shard == first.key_slot.shard) {
            self.decide_in_shard(
                authority,
                first.key_slot,
                &hashed,
                checks,
                &candidates,
                clock,
                &mut pending,
            )?;
        } else {
            self.decide_in_shards(authority, &hashed, checks, &candidates, clock, &mut pending)?;
        }
        decisions.extend(pending.iter().map(Pending::decision));
        Ok(())
    }

    /// Decides checks that are all of one shard.
    #[expect(clippy::too_many_arguments, reason = "two callers' worth of context")]
    fn decide_in_shard(
        &mut self,
        authority: Authority<'_>,
        key_slot: KeySlot,
        hashed: &[HashedCheck<'_>],
        checks: &[Check<'_>],
        candidates: &[Candidates],
        clock: &mut dyn FnMut() -> Timestamp,
        pending: &mut Vec<Pending>,
    ) -> Result<(), SpoolError> {
        let grows = hashed.iter().any(|one| one.event.is_some());
        let find = |body: &Body| hashed.iter().map(|one| one.find(body)).collect::<Vec<_>>();
        let mut events = Vec::new();
        let done = self.locked_shard(key_slot, grows, find, |database, file, body, lookups| {
            let read = |number: usize| {
                let (one, lookup) = (hashed.get(number), lookups.get(number));
                (lookup.and_then(|lookup| lookup.remembered(body)), one.and_then(|one| one.event))
            };
            let now = clock();
            let checks = all_overridden(checks, candidates, now);
            authority.decide(&checks, read, now, pending);
            if pending.iter().any(Pending::is_first_over) {
                let all = decided(&checks, hashed, &lookups, pending);
                let mut lost = 0;
                journal(database, all, &mut events, |_| lost += 1);
                (0..lost).for_each(|_| count_lost(body));
            }
            body.count_decided(checks.iter(), now);
            apply(file, body, hashed.iter().zip(&lookups).zip(&*pending))
        });
        self.keep_events(events);
        done
    }

    /// Decides checks of several shards, which are locked in ascending order.
    fn decide_in_shards(
        &mut self,
        authority: Authority<'_>,
        hashed: &[HashedCheck<'_>],
        checks: &[Check<'_>],
        candidates: &[Candidates],
        clock: &mut dyn FnMut() -> Timestamp,
        pending: &mut Vec<Pending>,
    ) -> Result<(), SpoolError> {
        self.database.require_writable()?;
        self.after_fork()?;
        let mut numbers: Vec<_> = hashed.iter().map(|one| one.key_slot.shard).collect();
        numbers.sort_unstable();
        numbers.dedup();
        let mut events = Vec::new();
        let index_of =
            |one: &HashedCheck<'_>| numbers.binary_search(&one.key_slot.shard).unwrap_or(0);
        for attempt in 0..ATTEMPTS {
            // On an early return the shards are closed; they are opened again when they
            // are needed.
            let mut shards = Vec::with_capacity(numbers.len());
            for &number in &numbers {
                shards.push(self.take_shard(number)?.ok_or_else(|| self.unsettled(number))?);
            }
            let mut parts: Vec<_> =
                shards.iter_mut().map(|shard| (&shard.file, &mut shard.body)).collect();
            let (guards, mut out_of_order) = self.lock_all(&mut parts)?;
            let mut lookups = Vec::new();
            if out_of_order.is_empty() {
                let due;
                (lookups, due) = look_up(hashed, &parts, index_of);
                // Once put in order, it is used as it is.
                out_of_order.extend(due.into_iter().filter(|_| attempt == 0));
            }
            if !out_of_order.is_empty() {
                drop(guards);
                shards.retain(|shard| !out_of_order.contains(&shard.body.number));
                shards.into_iter().for_each(|shard| self.put_shard(shard));
                self.put_in_order(hashed, &out_of_order)?;
                continue;
            }
            let read = |number: usize| {
                let part = hashed.get(number).and_then(|one| parts.get(index_of(one)));
                let lookup = part.zip(lookups.get(number));
                let remembered = lookup.and_then(|((_, body), lookup)| lookup.remembered(body));
                (remembered, hashed.get(number).and_then(|one| one.event))
            };
            let now = clock();
            let checks = all_overridden(checks, candidates, now);
            authority.decide(&checks, read, now, pending);
            if pending.iter().any(Pending::is_first_over) {
                let all = decided(&checks, hashed, &lookups, pending);
                let lost = |number| {
                    parts.iter_mut().filter(|(_, b)| b.number == number).for_each(|(_, b)| {
                        count_lost(b);
                    });
                };
                journal(&self.database, all, &mut events, lost);
            }
            if let Some((_, body)) = parts.first_mut() {
                body.count_decided(checks.iter(), now);
            }
            let done = parts.iter_mut().try_for_each(|(file, body)| {
                let number = body.number;
                let all = hashed.iter().zip(&lookups).zip(&*pending);
                let here = all.filter(|((one, _), _)| one.key_slot.shard == number);
                apply(file, body, here).map_err(|error| (error, number))
            });
            drop(guards);
            shards.into_iter().for_each(|shard| self.put_shard(shard));
            self.keep_events(events);
            let damaged = |lookup: &Lookup| lookup.damaged + u64::from(lookup.has_no_state());
            self.note_damage(lookups.iter().map(damaged).sum());
            return done.map_err(|(error, number)| error.into_error(&self.database, number));
        }
        Err(self.unsettled(numbers.first().copied().unwrap_or(0)))
    }

    /// Locks shards; and which of them are not as they should be.
    fn lock_all<'f>(
        &self,
        parts: &mut [(&'f File, &mut Body)],
    ) -> Result<(Vec<Guard<'f>>, Vec<u8>), SpoolError> {
        let mut guards = Vec::with_capacity(parts.len());
        let mut out_of_order = Vec::new();
        for (file, body) in parts {
            let number = body.number;
            let path = || self.database.path_of(&shard_name(number));
            guards.push(self.database.lock(file, LockKind::Exclusive, path)?);
            let condition = body.condition(file, &self.database, clock::coarse_seconds());
            match condition.map_err(|source| self.shard_error("examine", number, source))? {
                Condition::Ready => {}
                Condition::Stale | Condition::Damaged(_) => out_of_order.push(number),
            }
        }
        Ok((guards, out_of_order))
    }

    /// Puts these shards of checks in order, one at a time, so that no check waits for several of
    /// them.
    fn put_in_order(
        &mut self,
        hashed: &[HashedCheck<'_>],
        out_of_order: &[u8],
    ) -> Result<(), SpoolError> {
        for one in hashed.iter().filter(|one| out_of_order.contains(&one.key_slot.shard)) {
            let grows = one.event.is_some();
            self.locked(one.check.record_key(), grows, |_| Ok(()))?;
        }
        Ok(())
    }
}

/// Looks up checks in their locked shards; and which of these are due to be put in order.
fn look_up(
    hashed: &[HashedCheck<'_>],
    parts: &[(&File, &mut Body)],
    index_of: impl Fn(&HashedCheck<'_>) -> usize,
) -> (Vec<Lookup>, Vec<u8>) {
    let body = |one: &HashedCheck<'_>| parts.get(index_of(one)).map(|(_, body)| &**body);
    let lookups: Vec<Lookup> = hashed.iter().map_while(|one| Some(one.find(body(one)?))).collect();
    let is_due = |one: &(&HashedCheck<'_>, &Lookup)| {
        !one.1.stays() && body(one.0).is_some_and(|body| due(body, &lookups).is_some())
    };
    let due = hashed.iter().zip(&lookups).filter(is_due).map(|(one, _)| one.key_slot.shard);
    let due = due.collect();
    (lookups, due)
}

/// The checks of one event, as they were decided.
fn decided<'a>(
    checks: &'a [Check<'a>],
    hashed: &'a [HashedCheck<'a>],
    lookups: &'a [Lookup],
    pending: &'a [Pending],
) -> impl Iterator<Item = DecidedCheck<'a>> + Clone {
    checks.iter().zip(hashed).zip(lookups).zip(pending).map(|(((check, one), lookup), pending)| {
        DecidedCheck { check, slot: one.key_slot, lookup, pending }
    })
}

impl HashedCheck<'_> {
    fn find(&self, body: &Body) -> Lookup {
        body.find(self.key_slot, self.check.record_key())
    }
}

/// Applies the changes of several checks to their shard. Everything that can fail is
/// done before the first change.
fn apply<'a>(
    file: &File,
    body: &mut Body,
    all: impl Iterator<Item = ((&'a HashedCheck<'a>, &'a Lookup), &'a Pending)> + Clone,
) -> Result<(), AddFailure> {
    let changes = all.filter_map(|((one, lookup), pending)| Some((one, lookup, pending.change()?)));
    let (mut records, mut bytes) = (0, 0);
    for (one, lookup, change) in changes.clone() {
        if let Some(added) = Body::added_by(one.check.key.name, lookup, change) {
            (records, bytes) = (records + 1, bytes + added);
        }
    }
    if records > 0 {
        body.reserve(file, records, bytes)?;
    }
    let mut added = false;
    for (one, lookup, change) in changes {
        let (key_slot, key) = (one.key_slot, one.check.record_key());
        if added && lookup.record.is_none() {
            // The entry that was free may have been taken by the previous check.
            let lookup = body.find(key_slot, key);
            body.apply(file, key_slot, &key, &lookup, change)?;
        } else {
            body.apply(file, key_slot, &key, lookup, change)?;
            added |= lookup.record.is_none();
        }
    }
    Ok(())
}
