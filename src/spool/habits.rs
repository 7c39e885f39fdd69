//! The habits of accounts: records of a kind of their own.
//!
//! Such a record has two slots where others have a filter. Each holds the whole habits, a number
//! and a check; an update writes the older one. So a process that is killed loses at most the
//! message that it was about. The record's state says when the account last sent, for forgetting
//! and eviction.

use std::net::IpAddr;

use crate::engine::{Block, Change, FilterChange, Overridden, RecordKey, Remembered, State};
use crate::rate::habits::{Habits, Sensitivity, Update};
use crate::rate::{Average, Timestamp};
pub use crate::store::habits_key;
use crate::store::{Judged, OwnedKey, Sending, habits_network_hash};

use super::apply::{AddFailure, NewFilter};
use super::events::{count_lost, journal_alarm};
use super::forget::HABITS_KEPT;
use super::hashing::KeySlot;
use super::iterate::LeftOut;
use super::locked::Locked;
use super::record::{Fill, Record};
use super::shard::Body;
use super::slots::{SLOT_BYTES, SLOTS_BYTES, Slot, encoded, newest};
use super::{Spool, SpoolError};

/// A message as habits see it: its envelope.
#[derive(Clone, Copy, Debug)]
pub struct SentMessage<R> {
    /// When it was sent, in seconds since 1970.
    pub at: i64,
    /// The client's address, where it is known.
    pub client: Option<IpAddr>,
    /// The recipients, folded.
    pub recipients: R,
}

/// What somebody who knows says of the last alarm of an account.
#[derive(Clone, Copy, Debug)]
pub enum AlarmAnswer<'a> {
    /// It was the owner.
    Accepted,
    /// It was a thief: the messages since the evidence began went to these recipients, folded, and
    /// came from these clients. Both are forgotten.
    Stolen {
        /// The recipients.
        recipients: &'a [String],
        /// The clients.
        clients: &'a [IpAddr],
    },
}

impl Spool {
    /// Updates the habits of an account by a message. `key` is that of [`habits_key`].
    ///
    /// # Errors
    /// The database could not be used; nothing was learned.
    pub fn learn_habits<'r, R: IntoIterator<Item = &'r [u8]>>(
        &mut self,
        key: RecordKey<'_>,
        message: SentMessage<R>,
        sensitivity: Sensitivity,
    ) -> Result<Update, SpoolError> {
        let SentMessage { at, client, recipients } = message;
        let hashing = self.database.hashing.clone();
        let hash = |text: &[u8]| hashing.habit(text);
        let network = client.and_then(|client| habits_network_hash(client, hash));
        self.locked(key, false, |locked| {
            let (mut habits, before) = locked.habits();
            let recipients = recipients.into_iter().map(hash);
            let update = habits.message(at, network, recipients, sensitivity);
            locked.write(&habits, before, update.threshold)?;
            Ok(update)
        })
    }

    /// Updates the habits of an account by a message, and journals the alarm that it may raise.
    pub(super) fn judge_habits(
        &mut self,
        sending: &Sending<'_>,
        clock: impl FnOnce() -> Timestamp,
        overridden: impl FnOnce(i64) -> Option<Overridden>,
    ) -> Result<Judged, SpoolError> {
        let mut events = Vec::new();
        let judged = self.locked(sending.key, false, |locked| {
            let (mut habits, before) = locked.habits();
            let now = clock();
            let (judged, is_changed) =
                sending.judge(&mut habits, now.seconds, overridden(now.seconds));
            let told = judged.alarm.filter(|alarm| alarm.is_told && judged.overridden.is_none());
            if let Some(alarm) = told {
                let Locked { database, key_slot, key, lookup, .. } = &*locked;
                let (scores, number) = ((judged.score, judged.threshold), habits.answers().alarms);
                let place = (key, *key_slot, lookup);
                if !journal_alarm(database, place, &alarm, scores, number, now, &mut events) {
                    count_lost(locked.body);
                }
            }
            if is_changed {
                locked.write(&habits, before, judged.threshold)?;
            }
            Ok(judged)
        });
        self.keep_events(events);
        judged
    }

    /// Answers the last alarm of an account: see [`Habits::accept`] and [`Habits::stolen`]. `key` is
    /// that of [`habits_key`]. Returns whether there was one that nobody had answered.
    ///
    /// # Errors
    /// The database could not be used; nothing was changed.
    pub fn answer_habits(
        &mut self,
        key: RecordKey<'_>,
        answer: AlarmAnswer<'_>,
    ) -> Result<bool, SpoolError> {
        self.locked(key, false, |locked| {
            let Some(Slot { mut habits, which, sequence }) = locked.slot() else {
                return Ok(false);
            };
            let hash = |bytes: &[u8]| locked.database.hashing.habit(bytes);
            let before = habits.clone();
            let is_open = match answer {
                AlarmAnswer::Accepted => habits.accept(),
                AlarmAnswer::Stolen { recipients, clients } => habits.stolen(
                    recipients.iter().map(|one| hash(one.as_bytes())),
                    clients.iter().filter_map(|&client| habits_network_hash(client, hash)),
                ),
            };
            if habits != before {
                let threshold = habits.threshold(habits.at(), Sensitivity::default());
                locked.write(&habits, Some((which, sequence)), threshold)?;
            }
            Ok(is_open)
        })
    }

    /// Gives the habits of an account another key, unless more are known under that. Both keys are
    /// those of [`habits_key`].
    ///
    /// # Errors
    /// The database could not be used; they may be known under both.
    pub fn move_habits(
        &mut self,
        from: RecordKey<'_>,
        to: RecordKey<'_>,
    ) -> Result<(), SpoolError> {
        let Some(habits) = self.habits(from)? else { return Ok(()) };
        self.locked(to, false, |locked| {
            let (known, before) = locked.habits();
            if known.messages() < habits.messages() {
                let threshold = habits.threshold(habits.at(), Sensitivity::default());
                locked.write(&habits, before, threshold)?;
            }
            Ok(())
        })?;
        self.forget(from).map(drop)
    }

    /// The habits of an account; `key` is that of [`habits_key`].
    ///
    /// # Errors
    /// The database could not be used.
    pub fn habits(&mut self, key: RecordKey<'_>) -> Result<Option<Habits>, SpoolError> {
        let slot = self.database.hashing.place(key);
        self.peek(key, None, |remembered, _| {
            let Remembered { state, filter } = remembered?;
            Some(with_block(newest(filter?.bits, slot)?.habits, state.last_over))
        })
    }

    /// Calls `visit` with the key and the habits of each account, in no particular order, and
    /// returns what had to be left out.
    ///
    /// # Errors
    /// The database's directory cannot be used; nothing has been visited.
    pub fn for_each_habits(
        &mut self,
        mut visit: impl FnMut(OwnedKey, Habits),
    ) -> Result<LeftOut, SpoolError> {
        let hashing = self.database.hashing.clone();
        let read = |body: &Body| -> Vec<(OwnedKey, Habits)> {
            let all = body.records().flatten().filter(Record::is_of_habits);
            let read = all.filter_map(|record| {
                let slot = record.slot(&body.map, &hashing)?;
                let key = record.record_key(&body.map)?;
                let Remembered { state, filter } = record.remembered(&body.map, body.seed)?;
                let habits = with_block(newest(filter?.bits, slot)?.habits, state.last_over);
                Some((OwnedKey::from(key), habits))
            });
            read.collect()
        };
        let shards = self.each_shard(read, |all| {
            all.into_iter().for_each(|(key, habits)| visit(key, habits));
        })?;
        Ok(LeftOut { shards, ..LeftOut::default() })
    }
}

impl Locked<'_> {
    /// The habits, and where they are.
    fn habits(&self) -> (Habits, Option<(usize, u32)>) {
        match self.slot() {
            Some(Slot { habits, which, sequence }) => (habits, Some((which, sequence))),
            None => (Habits::default(), None),
        }
    }

    /// The slot that was written last.
    fn slot(&self) -> Option<Slot> {
        // Also where no state is sound: a slot has a check of its own.
        let record = self.lookup.record?;
        let slot = newest(record.filter(&self.body.map, self.body.seed)?.bits, self.key_slot)?;
        let last_over = record.current.map_or(0, |current| current.state.last_over);
        Some(Slot { habits: with_block(slot.habits, last_over), ..slot })
    }

    /// Writes the habits: into the slot that was not written last.
    fn write(
        &mut self,
        habits: &Habits,
        before: Option<(usize, u32)>,
        threshold: f64,
    ) -> Result<(), AddFailure> {
        let at = habits.at();
        let share = habits.score(at) / threshold;
        // It is evicted last.
        let rate = if habits.is_suspected(at) { 1.0 } else { share.min(1.0) };
        let average = Average { at: Timestamp { seconds: at, micros: 0 }, rate };
        let state = State { last_over: habits.block, ..State::new(average, 1.0, HABITS_KEPT) };
        let change = Change { state, filter: FilterChange::Keep };
        let Locked { file, body, key_slot, key, lookup, .. } = self;
        let map = &mut body.map;
        if let (Some(record), Some((which, sequence))) = (lookup.record, before) {
            let slot = encoded(habits, sequence.wrapping_add(1), *key_slot);
            let offset = record.filter_offset() + (1 - which) * SLOT_BYTES;
            let mut write = || {
                // Of an alarm that is lost, a block refuses nothing; of a block that is, its alarm would not.
                record.write_state(map, &change, 0)?;
                map.write(offset, &slot)
            };
            return write().ok_or_else(AddFailure::lost);
        }
        let mut slots = [0; SLOTS_BYTES];
        slots[..SLOT_BYTES].copy_from_slice(&encoded(habits, 1, *key_slot));
        let fill = Fill::Bits(&slots);
        // One that was forgotten by hand, or has no sound slot.
        if let Some(record) = lookup.record.filter(|one| one.filter_bytes == Some(SLOTS_BYTES)) {
            let seed = body.seed;
            let mut write = || {
                record.void_filter(map)?;
                record.write_state(map, &change, 0)?;
                record.begin_filter(map, seed, at, fill)
            };
            return write().ok_or_else(AddFailure::lost);
        }
        let slots = NewFilter { bytes: SLOTS_BYTES, epoch: at, fill };
        body.append(file, *key_slot, key, lookup, &change, Some(slots))
    }
}

/// The habits with the block that the state of their record holds.
fn with_block(mut habits: Habits, last_over: u32) -> Habits {
    habits.block = Block::held(last_over).map_or(0, Block::code);
    habits
}

/// The problem of a record of habits, if it has one.
pub(super) fn fault(record: &Record, body: &Body, slot: KeySlot) -> Option<&'static str> {
    let filter = record.filter(&body.map, body.seed)?;
    newest(filter.bits, slot).is_none().then_some("has no sound slot")
}

#[cfg(test)]
mod tests;
