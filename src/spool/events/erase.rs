//! Removes a person from the event logs, entry by entry and in place, so that other
//! processes can append meanwhile, and readers keep their place.

use std::collections::HashMap;
use std::fs::File;
use std::io;

use crate::sys::files::{self, Access};

use super::super::database::Database;
use super::super::{Spool, SpoolError};
use super::entry::{Entry, EntryKind, MAGIC, RecordId, next_magic};
use super::expire::{Extent, Part, blank, expire, part};
use super::limits::EventKind;
use super::log::EventLog;
use super::read::LoggedEvent;

/// The longest text that is looked for in bytes that are no entry.
const TEXT_MAX: usize = 512;

/// What [`Spool::erase_events_of`] has removed, or would remove.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ErasedEvents {
    /// Crossings that were removed whole.
    pub crossings: u64,
    /// Refusals that were removed whole.
    pub refusals: u64,
    /// Other events that have lost a text, such as the recipient or the sender.
    pub recipients: u64,
    /// Stretches of bytes that are no entry and named the person.
    pub damaged: u64,
}

/// Whether a text names the person.
type IsTheirs<'a> = &'a dyn Fn(&[u8]) -> bool;

impl Spool {
    /// What [`Spool::erase_events_of`] would remove. Also for a database that is open for
    /// reading only.
    ///
    /// # Errors
    /// A file could not be read.
    pub fn count_events_of(
        &mut self,
        is_theirs: &dyn Fn(&[u8]) -> bool,
    ) -> Result<ErasedEvents, SpoolError> {
        let mut erased = ErasedEvents::default();
        for kind in EventKind::ALL {
            erased.add(self.with_files(|database| database.count_in_log(kind, is_theirs))?);
        }
        Ok(erased)
    }

    /// Removes a person from both event logs: events whose stored name, identity or login
    /// is theirs, and of the other events the texts that are theirs.
    ///
    /// `is_theirs` is asked for each text that is not empty, as a whole. For a record, it
    /// is asked for the stored name and for the identity in it. Where bytes are no entry,
    /// it is asked for all that may be a text in them, and for all of them at once.
    ///
    /// What is written meanwhile is not searched. A second call finds what the first one
    /// missed.
    ///
    /// # Errors
    /// A file could not be changed, or another process has the directory locked for longer
    /// than the lock timeout. What has been erased by then stays erased.
    pub fn erase_events_of(
        &mut self,
        is_theirs: &dyn Fn(&[u8]) -> bool,
    ) -> Result<ErasedEvents, SpoolError> {
        self.database.require_writable()?;
        self.after_fork()?;
        let mut erased = ErasedEvents::default();
        for kind in EventKind::ALL {
            erased.add(self.with_files(|database| database.erase_in_log(kind, is_theirs))?);
        }
        Ok(erased)
    }
}

impl ErasedEvents {
    fn add(&mut self, other: Self) {
        self.crossings += other.crossings;
        self.refusals += other.refusals;
        self.recipients += other.recipients;
        self.damaged += other.damaged;
    }
}

impl Database {
    fn count_in_log(
        &self,
        kind: EventKind,
        is_theirs: IsTheirs<'_>,
    ) -> Result<ErasedEvents, SpoolError> {
        let log = EventLog::of(kind);
        // If the current file is renamed in between, it is found twice.
        let current = self.open_for(Access::Read, log.name)?;
        let before = self.open_for(Access::Read, log.before)?;
        let is_current = |identity| current.as_ref().is_some_and(|(_, i)| i.identity == identity);
        let before = before.filter(|(_, info)| !is_current(info.identity));
        let mut search = Search::new(kind, self.hashing.seed, is_theirs);
        for (number, (opened, name)) in
            [(before, log.before), (current, log.name)].iter().enumerate()
        {
            let Some((file, info)) = opened else { continue };
            let bytes =
                read(file, info.size).map_err(SpoolError::io("read", &self.path_of(name)))?;
            search.file(number, &bytes, bytes.len());
        }
        Ok(search.finish().0)
    }

    fn erase_in_log(
        &self,
        kind: EventKind,
        is_theirs: IsTheirs<'_>,
    ) -> Result<ErasedEvents, SpoolError> {
        let log = EventLog::of(kind);
        let _guard = self.lock_directory()?;
        let mut search = Search::new(kind, self.hashing.seed, is_theirs);
        let mut opened = Vec::new();
        for name in [log.before, log.name] {
            let Some((file, _)) = self.open_for(Access::Write, name)? else { continue };
            let (until, bytes) =
                settled(&file).map_err(SpoolError::io("read", &self.path_of(name)))?;
            search.file(opened.len(), &bytes, until);
            opened.push((file, name));
        }
        let (erased, changes) = search.finish();
        for change in &changes {
            let Some((file, name)) = opened.get(change.place.file) else { continue };
            files::write_at(file, change.place.offset, &change.bytes)
                .map_err(SpoolError::io("write", &self.path_of(name)))?;
        }
        for (file, name) in &opened {
            // States in the first entry how many blank ones follow.
            files::info(file)
                .and_then(|info| expire(file, info.size, self.hashing.seed, i64::MIN, Extent::All))
                .and_then(|_| if changes.is_empty() { Ok(()) } else { files::sync(file) })
                .map_err(SpoolError::io("write", &self.path_of(name)))?;
        }
        Ok(erased)
    }
}

/// Up to `size` bytes of a file.
fn read(file: &File, size: u64) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(size).unwrap_or(0)];
    let read = files::read_start(file, &mut bytes)?;
    bytes.truncate(read);
    Ok(bytes)
}

/// The bytes of a file, and the place before which nothing is still being written. The
/// caller has locked the directory.
fn settled(file: &File) -> io::Result<(usize, Vec<u8>)> {
    let until = files::info(file)?.size;
    let mut first = [0];
    if files::read_start(file, &mut first)? > 0 {
        // It has this value already. But writes to one file wait for each other: those
        // that had begun are complete, or have failed, after this one.
        files::write_start(file, &first)?;
    }
    let bytes = read(file, files::info(file)?.size)?;
    Ok((usize::try_from(until).unwrap_or(bytes.len()).min(bytes.len()), bytes))
}

/// Bytes that are no entry, divided where one may have begun.
fn pieces(mut bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let (piece, rest) = bytes.split_at_checked(next_magic(bytes)).unwrap_or((bytes, &[]));
        bytes = rest;
        Some(piece).filter(|piece| !piece.is_empty())
    })
}

/// Where an entry is.
#[derive(Clone, Copy, Debug)]
struct Place {
    /// The number of the file.
    file: usize,
    offset: u64,
    size: usize,
}

/// Bytes to be written at a place.
pub(super) struct BytesToWrite {
    place: Place,
    bytes: Vec<u8>,
}

/// An entry of an event.
struct TheirEntry {
    place: Place,
    /// Whether the event is theirs because of this entry.
    is_theirs: bool,
    /// The entry without the texts that are theirs, if it has any.
    without: Option<Vec<u8>>,
}

/// What is to be removed from the files of a log.
pub(super) struct Search<'a> {
    kind: EventKind,
    seed: u32,
    is_theirs: IsTheirs<'a>,
    /// The entries of each event: a crossing that was written again has several.
    events: Vec<Vec<TheirEntry>>,
    /// The latest crossing of each record, and its place in `events`.
    latest: HashMap<RecordId, (LoggedEvent, usize)>,
    /// The places of all crossings in `events`, by what their details repeat.
    crossings: HashMap<(RecordId, u32, i64, u32), usize>,
    changes: Vec<BytesToWrite>,
    erased: ErasedEvents,
}

impl<'a> Search<'a> {
    pub(super) fn new(kind: EventKind, seed: u32, is_theirs: IsTheirs<'a>) -> Self {
        Self {
            kind,
            seed,
            is_theirs,
            events: Vec::new(),
            latest: HashMap::new(),
            crossings: HashMap::new(),
            changes: Vec::new(),
            erased: ErasedEvents::default(),
        }
    }

    /// Takes in the bytes of a file, of which those from `until` on may still be being
    /// written.
    pub(super) fn file(&mut self, file: usize, bytes: &[u8], until: usize) {
        let (mut at, mut damaged) = (0, None);
        loop {
            let rest = bytes.get(at..).filter(|_| at < until).unwrap_or_default();
            let found = part(rest, self.seed);
            if let Some((Part::Damaged, length)) = found {
                damaged.get_or_insert(at);
                at += length;
                continue;
            }
            // What ends too early is damaged as well.
            let end = if found.is_some() { at } else { until };
            self.damaged(file, damaged.take().unwrap_or(at)..end, bytes);
            let Some((part, size)) = found else { break };
            let place = Place { file, offset: at as u64, size };
            match part {
                Part::Entry(entry) => self.entry(place, *entry),
                Part::Unknown if self.is_named_in(rest.get(..size).unwrap_or(rest)) => {
                    self.events.push(vec![TheirEntry { place, is_theirs: true, without: None }]);
                }
                Part::Unknown | Part::Damaged => {}
            }
            at += size;
        }
    }

    /// Takes in bytes that are no entry. If they name the person, they become zeros.
    fn damaged(&mut self, file: usize, range: std::ops::Range<usize>, bytes: &[u8]) {
        let (offset, size) = (range.start as u64, range.len());
        if bytes.get(range).is_some_and(|bytes| self.is_named_in(bytes)) {
            let place = Place { file, offset, size };
            self.changes.push(BytesToWrite { place, bytes: vec![0; size] });
            self.erased.damaged += 1;
        }
    }

    fn names(&self, text: &[u8]) -> bool {
        !text.is_empty() && (self.is_theirs)(text)
    }

    /// Whether bytes whose layout is not known name the person: all of them; what follows
    /// two bytes that may be its length; or what has no control character.
    fn is_named_in(&self, bytes: &[u8]) -> bool {
        let after_length = |at: usize| {
            let length = match bytes.get(at..at + 2)? {
                &[low, high] => usize::from(u16::from_le_bytes([low, high])),
                _ => return None,
            };
            bytes.get(at + 2..at + 2 + length).filter(|_| length <= TEXT_MAX)
        };
        self.names(bytes)
            || pieces(bytes).flat_map(|piece| piece.split(u8::is_ascii_control)).any(|text| {
                // The last bytes may be of the length of the next text, or begin an entry.
                let cut = |by: usize| text.get(..text.len().checked_sub(by)?);
                (0..MAGIC.len()).filter_map(cut).any(|text| self.names(text))
            })
            || (0..bytes.len()).filter_map(after_length).any(|text| self.names(text))
    }

    fn entry(&mut self, place: Place, mut entry: Entry) {
        let [name, _, _, _, login, ..] = &entry.texts;
        let identity = name.get(usize::from(entry.identity_start)..).unwrap_or_default();
        let is_theirs = [name, identity, login].into_iter().any(|text| self.names(text));
        let named = entry.texts.each_ref().map(|text| self.names(text));
        let mut texts = entry.texts.iter_mut().zip(named);
        texts.by_ref().filter(|(_, named)| *named).for_each(|(text, _)| text.clear());
        let is_named = named.contains(&true);
        let without = is_named.then(|| entry.encode_to(self.seed, place.size));
        let found = TheirEntry { place, is_theirs, without };
        let (record, number, at) = (entry.record, entry.number, entry.at);
        let written = (record, number, at.seconds, at.micros);
        let event = match entry.what {
            EntryKind::Crossing => {
                entry.texts = Default::default();
                let event = LoggedEvent::of(entry, EventKind::Crossings);
                let latest = self.latest.get(&record);
                let again =
                    latest.filter(|(first, _)| first.is_again(&event)).map(|latest| latest.1);
                if again.is_none() {
                    self.latest.insert(record, (event, self.events.len()));
                }
                self.crossings.insert(written, again.unwrap_or(self.events.len()));
                again
            }
            EntryKind::Details => self.crossings.get(&written).copied(),
            EntryKind::Refusal if !is_theirs && !is_named => return,
            EntryKind::Refusal => None,
            EntryKind::Reset => {
                self.latest.remove(&record);
                return;
            }
            EntryKind::Blank => return,
        };
        match event.and_then(|event| self.events.get_mut(event)) {
            Some(entries) => entries.push(found),
            None => self.events.push(vec![found]),
        }
    }

    /// The changes, in an order in which a killed process leaves nothing that a second
    /// call does not find: the entries that name the person come last of each event; and
    /// of those that repeat a crossing the first comes last, as readers return that one.
    pub(super) fn finish(mut self) -> (ErasedEvents, Vec<BytesToWrite>) {
        for mut entries in self.events {
            if entries.iter().any(|found| found.is_theirs) {
                *match self.kind {
                    EventKind::Crossings => &mut self.erased.crossings,
                    EventKind::Refusals => &mut self.erased.refusals,
                } += 1;
                entries.reverse();
                entries.sort_by_key(|found| found.is_theirs);
                self.changes.extend(entries.into_iter().map(|TheirEntry { place, .. }| {
                    let bytes = blank(place.size, self.seed, 0);
                    // One of a later version may have no room for a blank entry.
                    let fits = bytes.len() == place.size;
                    BytesToWrite { place, bytes: if fits { bytes } else { vec![0; place.size] } }
                }));
                continue;
            }
            let before = self.changes.len();
            self.changes.extend(entries.into_iter().filter_map(
                |TheirEntry { place, without, .. }| {
                    without.map(|bytes| BytesToWrite { place, bytes })
                },
            ));
            self.erased.recipients += u64::from(self.changes.len() > before);
        }
        (self.erased, self.changes)
    }
}
