//! The journal of crossings and the log of refusals: two files of limited size each.
//!
//! A crossing is written under the lock of its shard, before the record's state. So none
//! is lost to a kill, and one that is written twice has the same number: a reader returns
//! it once. What only the front end knows follows after the lock is released, by
//! [`Spool::describe`]; so does a refusal.

pub(super) mod entry;
mod erase;
#[cfg(test)]
mod erase_tests;
mod expire;
mod limits;
mod log;
mod read;
#[cfg(test)]
mod retain_tests;
#[cfg(test)]
mod tests;

use crate::engine::{AlgorithmKind, Check, Kind, Pending, RecordKey, Update};
use crate::rate::Timestamp;
use crate::rate::habits::{Alarm, SUSPECTED_FOR};

use super::database::Database;
use super::format::LOST;
use super::hashing::KeySlot;
use super::index::Lookup;
use super::shard::Body;
use super::{Spool, SpoolError};
use crate::sys::lock;

pub use crate::store::{Enforcement, EventDetails};
pub use entry::{EVENT_WINDOWS_MAX, EventWindow};
use entry::{EVIDENCE, Entry, EntryKind, PendingEvent, RecordId, texts};
pub use erase::ErasedEvents;
pub use limits::{
    EVENT_BYTES_MAX, EVENT_BYTES_MIN, EVENT_KEEP_MIN, EventKind, EventLimits, LogLimits,
};
pub use log::crossings_file;
pub(super) use log::{CROSSINGS, EVENT_FILES, REFUSALS};
pub use read::{EventReader, LoggedEvent};
#[cfg(test)]
pub(super) use {entry::HEAD_BYTES as EVENT_BYTES, entry::WINDOW_BYTES};

/// The most events that wait for [`Spool::describe`]; later ones get no details.
const PENDING_MAX: usize = 16;

/// One check of an event, and what was decided.
#[derive(Clone, Copy)]
pub(super) struct DecidedCheck<'a> {
    pub(super) check: &'a Check<'a>,
    pub(super) slot: KeySlot,
    pub(super) lookup: &'a Lookup,
    pub(super) pending: &'a Pending,
}

impl DecidedCheck<'_> {
    /// Whether there is something to write.
    #[inline]
    pub(super) fn is_event(&self) -> bool {
        self.pending.is_first_over()
    }

    /// Whether it is a refusal to be logged: the first over decision of the record in
    /// this second, which refuses the event.
    fn is_refusal(&self) -> bool {
        self.is_event() && self.pending.refuses()
    }

    fn window(&self) -> EventWindow {
        let decision = self.pending.decision();
        EventWindow {
            limit: decision.limit,
            period: decision.period,
            before: match decision.algorithm {
                AlgorithmKind::Calendar => decision.rate - decision.count,
                AlgorithmKind::Share => decision.share.sent as f64,
                _ => self.pending.before().map_or(0.0, crate::engine::State::rate),
            },
            after: decision.rate,
            count: decision.count as f32,
            algorithm: decision.algorithm,
            restarts: decision.restarts,
            over: decision.over,
        }
    }

    fn entry(&self, what: EntryKind, windows: Vec<EventWindow>) -> Entry {
        let decision = self.pending.decision();
        let evidence = decision.blocked.map_or_else(String::new, read::blocked_evidence);
        let details = EventDetails { evidence: evidence.as_bytes(), ..EventDetails::default() };
        let key = self.check.record_key();
        let current = self.lookup.record.and_then(|record| record.current);
        Entry {
            what,
            record: record_id(&key, self.slot),
            number: decision.crossings,
            at: decision.at,
            sequence: current.map_or(0, |current| current.state.sequence),
            update: if self.check.update == Update::Strict { 2 } else { 1 },
            identity_start: u16::try_from(key.identity_start).unwrap_or(0),
            // The front end knows.
            enforcement: Enforcement::Enforced,
            windows,
            texts: texts(key.name, &details),
        }
    }
}

fn record_id(key: &RecordKey<'_>, slot: KeySlot) -> RecordId {
    RecordId {
        hash: slot.hash(),
        kind: match key.kind {
            Kind::Spec => 1,
            Kind::Policy => 2,
            Kind::Habits => 3,
            Kind::Usage => 4,
        },
        algorithm: key.algorithm.code(),
    }
}

/// Writes the crossings of `decided` to the journal, and adds to `events` what is to be
/// described. The shard, or all shards, are locked; no state has been written. A crossing
/// that cannot be written is counted in the shard: the check goes on.
#[cold]
pub(super) fn journal<'a>(
    database: &Database,
    decided: impl Iterator<Item = DecidedCheck<'a>> + Clone,
    events: &mut Vec<PendingEvent>,
    mut lost: impl FnMut(u8),
) {
    let mut keep = |entry: Entry, shard: u8| events.push(PendingEvent { entry, shard });
    let mut crossed: Vec<RecordId> = Vec::new();
    for one in decided.clone().filter(|one| one.pending.decision().crossed) {
        // Several checks may be of one record.
        let record = record_id(&one.check.record_key(), one.slot);
        if crossed.contains(&record) {
            continue;
        }
        crossed.push(record);
        let entry = one.entry(EntryKind::Crossing, vec![one.window()]);
        match database.append_event(CROSSINGS, &entry.encode(database.hashing.seed)) {
            Ok(()) => {
                let windows = Vec::new();
                keep(Entry { what: EntryKind::Details, windows, ..entry }, one.slot.shard);
            }
            Err(_) => lost(one.slot.shard),
        }
    }
    if let Some(refusal) = decided.clone().find(DecidedCheck::is_refusal) {
        let windows = decided.map(|one| one.window()).take(EVENT_WINDOWS_MAX).collect();
        keep(refusal.entry(EntryKind::Refusal, windows), refusal.slot.shard);
    }
}

/// Writes an alarm of the habits of an account to the journal, as a crossing of their record, and
/// adds it to `events`, to be described. The shard is locked; nothing has been written.
#[cold]
pub(super) fn journal_alarm(
    database: &Database,
    (key, slot, lookup): (&RecordKey<'_>, KeySlot, &Lookup),
    alarm: &Alarm,
    (score, threshold): (f64, f64),
    number: u32,
    at: Timestamp,
    events: &mut Vec<PendingEvent>,
) -> bool {
    let current = lookup.record.and_then(|record| record.current);
    let window = EventWindow {
        // It is only shown: after an earlier alarm it has many digits.
        limit: (threshold * 10.0).round() / 10.0,
        period: SUSPECTED_FOR as f64,
        after: score,
        over: true,
        ..EventWindow::default()
    };
    let evidence = alarm.to_string();
    let details = EventDetails { evidence: evidence.as_bytes(), ..EventDetails::default() };
    let entry = Entry {
        what: EntryKind::Crossing,
        record: record_id(key, slot),
        number,
        at,
        sequence: current.map_or(0, |current| current.state.sequence),
        update: 2,
        identity_start: u16::try_from(key.identity_start).unwrap_or(0),
        enforcement: Enforcement::Enforced,
        windows: vec![window],
        texts: texts(key.name, &details),
    };
    let written = database.append_event(CROSSINGS, &entry.encode(database.hashing.seed)).is_ok();
    if written {
        let entry = Entry { what: EntryKind::Details, windows: Vec::new(), ..entry };
        events.push(PendingEvent { entry, shard: slot.shard });
    }
    written
}

/// Counts an event that could not be written.
pub(super) fn count_lost(body: &mut Body) {
    let _ = body.count(LOST);
}

impl Spool {
    /// Whether there are crossings or refusals that [`Spool::describe`] should describe.
    #[must_use]
    #[inline]
    pub fn has_events(&self) -> bool {
        !self.events.is_empty()
    }

    /// Keeps what is to be described.
    #[inline]
    pub(super) fn keep_events(&mut self, mut events: Vec<PendingEvent>) {
        if !events.is_empty() {
            self.events.append(&mut events);
            self.events.truncate(PENDING_MAX);
        }
    }

    /// Completes the crossings and refusals of the latest calls of
    /// [`Store::decide`](crate::store::Store::decide) with what the front end knows of
    /// the event. To be called when [`Spool::has_events`], after the decision is known. A
    /// text that is empty is kept out; of a refusal nothing is logged without this call.
    ///
    /// What cannot be written is counted: see [`super::Stats::lost`].
    #[cold]
    pub fn describe(&mut self, details: &EventDetails<'_>) {
        let seed = self.database.hashing.seed;
        for PendingEvent { mut entry, shard } in std::mem::take(&mut self.events) {
            let name = std::mem::take(&mut entry.texts[0]);
            let log = if entry.what == EntryKind::Refusal { REFUSALS } else { CROSSINGS };
            // Of a crossing, the name is known.
            let name = if entry.what == EntryKind::Refusal { &name[..] } else { b"" };
            let evidence = std::mem::take(&mut entry.texts[EVIDENCE]);
            let evidence = if evidence.is_empty() { details.evidence } else { &evidence };
            entry.texts = texts(name, &EventDetails { evidence, ..*details });
            entry.enforcement = details.enforcement;
            if self.database.append_event(log, &entry.encode(seed)).is_err() {
                self.count_lost_in(shard);
            }
            // What cannot be removed now is removed after another event, or by `exirate repair`.
            let _ = self.database.expire_some(log, entry.at);
        }
    }

    /// Counts an event that could not be written, after its shard was unlocked. If it
    /// cannot be locked at once, it is not counted.
    fn count_lost_in(&mut self, shard: u8) {
        let Ok(Some(mut shard)) = self.take_shard(shard) else { return };
        if let Ok(Some(_guard)) = lock::try_lock(&shard.file, lock::LockKind::Exclusive)
            && shard.body.still_named(&self.database).unwrap_or(false)
        {
            count_lost(&mut shard.body);
        }
        self.put_shard(shard);
    }

    /// Writes to the journal that a record was reset, so that its crossings are numbered
    /// from 1 again.
    pub(super) fn journal_reset(
        database: &Database,
        key: &RecordKey<'_>,
        slot: KeySlot,
    ) -> Result<(), SpoolError> {
        let (seconds, micros) = crate::sys::clock::now();
        let entry = Entry {
            what: EntryKind::Reset,
            record: record_id(key, slot),
            number: 0,
            at: crate::rate::Timestamp { seconds, micros },
            sequence: 0,
            update: 0,
            identity_start: 0,
            enforcement: Enforcement::Enforced,
            windows: Vec::new(),
            texts: texts(b"", &EventDetails::default()),
        };
        database.append_event(CROSSINGS, &entry.encode(database.hashing.seed))
    }
}

impl Database {
    /// Copies the files of the journal and the log to a new database with the same key.
    pub(super) fn copy_events(&self, target: &Self) -> Result<(), SpoolError> {
        use crate::sys::files::{self, Access};
        for name in EVENT_FILES {
            let Some((file, info)) = self.open_for(Access::Read, name)? else { continue };
            let mut bytes = vec![0; usize::try_from(info.size.min(EVENT_BYTES_MAX)).unwrap_or(0)];
            let read = files::read_start(&file, &mut bytes)
                .map_err(SpoolError::io("read", &self.path_of(name)))?;
            bytes.truncate(read);
            let copy = target.create_file(name)?;
            files::write_start(&copy, &bytes)
                .and_then(|()| files::sync(&copy))
                .map_err(SpoolError::io("write", &target.path_of(name)))?;
        }
        Ok(())
    }
}
