//! Reads the journal of crossings and the log of refusals.

use std::collections::HashMap;
use std::fs::File;
use std::time::SystemTime;

use crate::engine::{AlgorithmKind, Block, BlockTime, Kind, RecordKey};
use crate::rate::Timestamp;
use crate::store::{DetailTexts, Enforcement, OVERDUE};
use crate::sys::files::{self, Access, FileInfo};

use super::super::database::ATTEMPTS;
use super::super::{Spool, SpoolError};
use super::entry::{
    ENTRY_BYTES_MAX, Entry, EntryFault, EntryKind, EventWindow, RecordId, TEXTS, TEXTS_MAX,
    has_another, next_magic,
};
use super::limits::{EVENT_BYTES_MAX, EventKind};
use super::log::EventLog;

/// The most bytes that are read of a file: no exirate writes a longer one.
const READ_MAX: u64 = EVENT_BYTES_MAX;
/// For how many seconds a crossing may have no details because its process is about to
/// write them.
const DETAILS_TIMEOUT: f64 = 2.0;

/// A crossing or a refusal. Texts are bytes as clients sent them.
#[derive(Clone, Debug, PartialEq)]
pub struct LoggedEvent {
    /// Crossing or refusal.
    pub kind: EventKind,
    /// When.
    pub at: Timestamp,
    /// The record's name; cut at 512 bytes.
    pub stored: Vec<u8>,
    /// Where in it the identity begins.
    identity_start: usize,
    /// What the record belongs to; `None` if this exirate does not know it.
    of: Option<Kind>,
    /// The number of the crossing; 0 of a refusal.
    pub number: u32,
    /// Whether the check was strict; else it was leaky.
    pub strict: bool,
    /// The limits that the event was compared with, at most eight.
    pub windows: Vec<EventWindow>,
    /// What the front end knew of it.
    pub texts: DetailTexts<Vec<u8>>,
    /// Whether the event is held against whoever sent it; a crossing without details is taken
    /// for one that is.
    pub enforcement: Enforcement,
    /// Whether the front end has written these texts.
    pub has_details: bool,
    record: RecordId,
    sequence: u32,
}

/// What the evidence of a crossing that blocks begins with; the second follows in which the block
/// ends.
const BLOCKED: &str = "blocked until ";
/// In place of the second, where it has no end.
const LIFTED: &str = "lifted";

/// The evidence of a crossing that blocks.
pub(super) fn blocked_evidence(block: Block) -> String {
    let end = block.end().map_or_else(|| LIFTED.to_owned(), |end| end.to_string());
    format!("{BLOCKED}{end}")
}

impl LoggedEvent {
    pub(super) fn of(entry: Entry, kind: EventKind) -> Self {
        let [stored, texts @ ..] = entry.texts;
        Self {
            kind,
            at: entry.at,
            stored,
            identity_start: usize::from(entry.identity_start),
            of: match entry.record.kind {
                1 => Some(Kind::Spec),
                2 => Some(Kind::Policy),
                3 => Some(Kind::Habits),
                _ => None,
            },
            number: if kind == EventKind::Crossings { entry.number } else { 0 },
            strict: entry.update == 2,
            windows: entry.windows,
            texts: texts.into(),
            enforcement: entry.enforcement,
            has_details: kind == EventKind::Refusals,
            record: entry.record,
            sequence: entry.sequence,
        }
    }

    /// A crossing that has not happened, of a spec's record: to try what becomes of one.
    #[must_use]
    pub fn invented(stored: &[u8], window: EventWindow, at: Timestamp) -> Self {
        let mut texts: [Vec<u8>; TEXTS] = Default::default();
        if let Some(first) = texts.first_mut() {
            *first = stored.to_vec();
        }
        let entry = Entry {
            what: EntryKind::Crossing,
            record: RecordId { hash: 0, kind: 1, algorithm: 1 },
            number: 1,
            at,
            sequence: 0,
            update: 2,
            identity_start: 0,
            enforcement: Enforcement::Enforced,
            windows: vec![window],
            texts,
        };
        Self { has_details: true, ..Self::of(entry, EventKind::Crossings) }
    }

    /// Whether the end of the record's name may be missing.
    #[must_use]
    pub fn is_cut(&self) -> bool {
        self.stored.len() >= TEXTS_MAX[0]
    }

    /// The event as bytes, for other servers.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut texts: [Vec<u8>; TEXTS] = Default::default();
        let all = [&self.stored].into_iter().chain(self.texts.values().map(|(_, text)| text));
        texts.iter_mut().zip(all).for_each(|(text, whole)| text.clone_from(whole));
        let what = match self.kind {
            EventKind::Crossings => EntryKind::Crossing,
            EventKind::Refusals => EntryKind::Refusal,
        };
        let entry = Entry {
            what,
            record: self.record,
            number: self.number,
            at: self.at,
            sequence: self.sequence,
            update: if self.strict { 2 } else { 1 },
            identity_start: u16::try_from(self.identity_start).unwrap_or(u16::MAX),
            enforcement: self.enforcement,
            windows: self.windows.clone(),
            texts,
        };
        entry.encode(0)
    }

    /// Reads what [`LoggedEvent::encode`] has written; `None` if it is something else.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (entry, size) = Entry::decode(bytes, 0).ok()?;
        let kind = match entry.what {
            EntryKind::Crossing => EventKind::Crossings,
            EntryKind::Refusal => EventKind::Refusals,
            _ => return None,
        };
        let event = Self { has_details: true, ..Self::of(entry, kind) };
        (size == bytes.len()).then_some(event)
    }

    /// The same of a record of this kind, whose identity begins there.
    #[cfg(test)]
    #[must_use]
    pub fn of_kind(self, kind: Kind, identity_start: usize) -> Self {
        Self { of: Some(kind), identity_start, ..self }
    }

    /// Whether it is an alarm of the habits of an account, not a crossing of a limit.
    #[must_use]
    pub fn is_alarm(&self) -> bool {
        self.of == Some(Kind::Habits)
    }

    /// Whether it says that mail has waited for too long, and what became of it (`evidence`).
    #[must_use]
    pub fn is_overdue(&self) -> bool {
        let name = self.stored.get(..self.identity_start).unwrap_or_default();
        self.of == Some(Kind::Policy)
            && name.split(|byte| *byte == b'/').nth(1) == Some(OVERDUE.as_bytes())
    }

    /// The block that the crossing has set, or that has refused the event.
    #[must_use]
    pub fn blocked(&self) -> Option<Block> {
        let text = str::from_utf8(&self.texts.evidence).ok()?;
        let code = text.strip_prefix(BLOCKED).filter(|_| !self.is_alarm())?;
        match code {
            LIFTED => BlockTime::UntilLifted.begun(self.at),
            end => Block::until(end.parse().ok()?),
        }
    }

    /// The key of the record. One of an unknown kind is taken for that of a spec.
    #[must_use]
    pub fn record_key(&self) -> RecordKey<'_> {
        RecordKey {
            name: &self.stored,
            identity_start: self.identity_start.min(self.stored.len()),
            kind: self.of.unwrap_or(Kind::Spec),
            algorithm: AlgorithmKind::of_code(self.record.algorithm).unwrap_or_default(),
        }
    }

    /// What this event is called wherever it is sent: the same at each reading.
    #[must_use]
    pub fn id(&self) -> String {
        let Timestamp { seconds, micros } = self.at;
        let RecordId { hash, kind, algorithm } = self.record;
        let what = if self.kind == EventKind::Refusals { "r" } else { "" };
        format!("{what}{hash:016x}{kind}{algorithm}-{}-{seconds}.{micros:06}", self.number)
    }

    /// Whether `later` is the same crossing, which was written again because the process
    /// was killed before it could write the record's state.
    pub(super) fn is_again(&self, later: &Self) -> bool {
        let period = self.windows.first().map_or(0.0, |window| window.period);
        let since = later.at.as_seconds() - self.at.as_seconds();
        // A record that was evicted begins again, and so do its numbers.
        let continues = later.sequence.wrapping_sub(self.sequence).cast_signed() >= 0;
        self.number == later.number && since.abs() <= period && continues
    }
}

/// Events read so far: see [`Spool::read_events`].
#[derive(Debug)]
pub struct EventReader {
    kind: EventKind,
    /// How far each file has been read.
    read: Vec<(FileId, u64)>,
    /// Where in `waiting` the latest crossing of each record is, counted from the first
    /// event, or that crossing itself once it was returned.
    latest: HashMap<RecordId, LatestOfKey>,
    waiting: Vec<LoggedEvent>,
    /// Bytes that are no entry.
    damaged: u64,
}

/// A file: its device and inode, and when it was made, where the file system says it. A file that is
/// removed gives its inode to a new one.
type FileId = ((u64, u64), Option<SystemTime>);

#[derive(Debug)]
struct LatestOfKey {
    event: LoggedEvent,
    /// Its place in `waiting`.
    at: Option<usize>,
}

impl EventReader {
    /// A reader from the oldest event on.
    #[must_use]
    pub fn new(kind: EventKind) -> Self {
        Self { kind, read: Vec::new(), latest: HashMap::new(), waiting: Vec::new(), damaged: 0 }
    }

    /// How many bytes were skipped because they are no entry.
    #[must_use]
    pub fn damaged(&self) -> u64 {
        self.damaged
    }

    /// Whether events were read that may still get their details.
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Takes in the entries of `bytes`; returns how many bytes are done with. An entry
    /// that ends too early is not, if it may still be written.
    fn parse(&mut self, bytes: &[u8], seed: u32) -> usize {
        let mut at = 0;
        while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
            match Entry::decode(rest, seed) {
                Ok((entry, size)) => {
                    self.add(entry);
                    at += size;
                }
                Err(EntryFault::Unknown(size)) => at += size,
                Err(EntryFault::Cut) if rest.len() < ENTRY_BYTES_MAX && !has_another(rest) => break,
                Err(EntryFault::Cut | EntryFault::Damaged) => {
                    let next = next_magic(rest);
                    self.damaged += next as u64;
                    at += next;
                }
            }
        }
        at
    }

    fn add(&mut self, entry: Entry) {
        match (self.kind, entry.what) {
            (EventKind::Refusals, EntryKind::Refusal) => {
                self.waiting.push(LoggedEvent::of(entry, self.kind));
            }
            (EventKind::Crossings, EntryKind::Crossing) => {
                let event = LoggedEvent::of(entry, self.kind);
                let known = self.latest.get(&event.record);
                if known.is_some_and(|known| known.event.is_again(&event)) {
                    return;
                }
                let latest = LatestOfKey { event: event.clone(), at: Some(self.waiting.len()) };
                self.latest.insert(event.record, latest);
                self.waiting.push(event);
            }
            (EventKind::Crossings, EntryKind::Details) => {
                let known = self.latest.get(&entry.record);
                let known = known.filter(|known| known.event.number == entry.number);
                let event = known.and_then(|known| self.waiting.get_mut(known.at?));
                if let Some(event) = event.filter(|event| !event.has_details) {
                    let [_, texts @ ..] = entry.texts;
                    (event.texts, event.has_details) = (texts.into(), true);
                    event.enforcement = entry.enforcement;
                }
            }
            (EventKind::Crossings, EntryKind::Reset) => {
                self.latest.remove(&entry.record);
            }
            _ => {}
        }
    }

    /// The events that are complete, in order, and not older than `oldest`; all that were
    /// read if `all`.
    fn take(&mut self, now: Timestamp, all: bool, oldest: i64) -> Vec<LoggedEvent> {
        let is_ready = |event: &LoggedEvent| {
            event.has_details || (now.as_seconds() - event.at.as_seconds()).abs() > DETAILS_TIMEOUT
        };
        let ready = match all {
            true => self.waiting.len(),
            false => self.waiting.iter().take_while(|event| is_ready(event)).count(),
        };
        for latest in self.latest.values_mut() {
            latest.at = latest.at.and_then(|at| at.checked_sub(ready));
        }
        self.waiting.drain(..ready).filter(|event| event.at.seconds >= oldest).collect()
    }
}

impl Spool {
    /// The second since which events of a kind are kept: older ones are removed.
    ///
    /// # Errors
    /// The limits could not be read.
    pub fn events_kept_since(&mut self, kind: EventKind, now: i64) -> Result<i64, SpoolError> {
        Ok(self.event_limits()?.of(kind).oldest(now))
    }

    /// Whether the log of a kind was begun again: older events than those it has may be gone.
    #[must_use]
    pub fn events_begun_again(&self, kind: EventKind) -> bool {
        let before = EventLog::of(kind).before;
        files::info_at(self.database.dir.directory(), before).is_ok()
    }

    /// Reads the events that were written since `reader` last read, in the order in
    /// which they were written; each crossing once. One that may still get its details
    /// comes with the next call, unless `all`. Those that are older than the log's age are
    /// left out, as seen at `now`. Also for a database that is open for
    /// reading only.
    ///
    /// # Errors
    /// A file could not be read.
    pub fn read_events(
        &mut self,
        reader: &mut EventReader,
        now: Timestamp,
        all: bool,
    ) -> Result<Vec<LoggedEvent>, SpoolError> {
        let log = EventLog::of(reader.kind);
        let limits = self.event_limits()?;
        let files = self.with_files(|database| {
            for _ in 0..ATTEMPTS {
                let current = database.open_for(Access::Read, log.name)?;
                let before = database.open_for(Access::Read, log.before)?;
                let now = files::info_at(database.dir.directory(), log.name).ok();
                // Otherwise a new file was begun in between.
                if now.map(|info| info.identity) == current.as_ref().map(|(_, info)| info.identity)
                {
                    return Ok([before, current]);
                }
            }
            let path = database.path_of(log.name);
            Err(crate::sys::secure_dir::DirError::Unsettled { path }.into())
        })?;
        let seed = self.database.hashing.seed;
        let id_of = |file: &File, info: &FileInfo| -> FileId {
            (info.identity, file.metadata().and_then(|metadata| metadata.created()).ok())
        };
        let names = [log.before, log.name];
        let files: Vec<_> = files
            .iter()
            .zip(names)
            .filter_map(|(file, name)| file.as_ref().map(|(file, info)| (file, info, name)))
            .map(|(file, info, name)| (file, info, id_of(file, info), name))
            .collect();
        reader.read.retain(|(known, _)| files.iter().any(|(_, _, id, _)| id == known));
        for (file, info, id, name) in files {
            let known = reader.read.iter().position(|(known, _)| *known == id);
            let from = known.and_then(|at| reader.read.get(at)).map_or(0, |(_, from)| *from);
            // It was replaced by a shorter one.
            let from = if from > info.size { 0 } else { from };
            let size = info.size.saturating_sub(from).min(READ_MAX);
            let mut bytes = vec![0; usize::try_from(size).unwrap_or(0)];
            let read = files::read_at(file, from, &mut bytes)
                .map_err(SpoolError::io("read", &self.database.path_of(name)))?;
            bytes.truncate(read);
            let done = reader.parse(&bytes, seed);
            if all {
                reader.damaged += (bytes.len() - done) as u64;
            }
            let done = from + if all { bytes.len() } else { done } as u64;
            match known.and_then(|at| reader.read.get_mut(at)) {
                Some(known) => known.1 = done,
                None => reader.read.push((id, done)),
            }
        }
        Ok(reader.take(now, all, limits.of(reader.kind).oldest(now.seconds)))
    }
}
