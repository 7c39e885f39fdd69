//! Shards that are made new: the first of their name, one with a larger index,
//! or one of what could be saved from a damaged one.
//!
//! A new file is complete, and on disk, before it gets the name. Whoever holds
//! the old one finds its SUPERSEDED flag at the next lock.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ffi::CStr;
use std::fs::File;
use std::io::{self, ErrorKind};

use crate::rate::Timestamp;
use crate::sys::files;
use crate::sys::lock::{self, Kind};
use crate::sys::mapping::Mapping;

use super::SpoolError;
use super::database::{Database, shard_name, shard_name_new};
use super::forget::forgettable;
use super::format::{
    ALIGN, DEAD, EMPTY, ENTRY_BYTES, FLAGS, HEADER_BYTES, HEADER_CRC, HEAP_END, Header, LIVE,
    SHARD_MAGIC, SUPERSEDED, VERSION, seal,
};
use super::record::Record;
use super::shard::{Body, PAGE};

/// Index entries of a new shard: header and index fill one page.
const CAPACITY_MIN: usize = (PAGE - HEADER_BYTES) / ENTRY_BYTES;

/// Why a shard is rebuilt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reason {
    /// Its index is nearly full, or half of its heap is dead.
    Growth,
    /// This is damaged.
    Damage(&'static str),
}

/// What became of a rebuild.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The name has a new file: the shard must be opened again.
    Replaced,
    /// Another process is rebuilding a shard, and this one can wait.
    Postponed,
}

/// Makes an empty shard, where none is there yet.
pub(super) fn create(database: &Database, number: u8) -> Result<(), SpoolError> {
    let _guard = database.lock_directory()?;
    let name = shard_name(number);
    if files::facts_at(&database.directory, &name).is_ok() {
        return Ok(());
    }
    build(database, number, &[], None, 1)?;
    publish(database, number)
}

/// Rebuilds the shard of `body`, which this process has locked.
///
/// Growth does not wait where `patient` is not asked for: it happens long
/// before it must.
pub(super) fn rebuild(
    database: &mut Database,
    body: &mut Body,
    reason: Reason,
    now: Timestamp,
    patient: bool,
) -> Result<Outcome, SpoolError> {
    let path = database.path_of(&shard_name(body.number));
    let incident = {
        let _guard = if patient || reason != Reason::Growth {
            database.lock_directory()?
        } else {
            match lock::try_lock(&database.directory, Kind::Exclusive)
                .map_err(SpoolError::io("lock", &database.path))?
            {
                Some(guard) => guard,
                None => return Ok(Outcome::Postponed),
            }
        };
        let (records, incident) = match reason {
            Reason::Growth => {
                let (records, damaged) = indexed(body, now);
                let incident = (damaged > 0).then(|| {
                    format!(
                        "{} has been rebuilt without its damaged records ({damaged}): their keys \
                         count from zero again",
                        path.display()
                    )
                });
                (records, incident)
            }
            Reason::Damage(what) => {
                let records = salvaged(&body.map, body.heap_start, database, body.number);
                let incident = format!(
                    "{} was damaged ({what}) and has been rebuilt; {} records were saved",
                    path.display(),
                    records.len()
                );
                (records, Some(incident))
            }
        };
        let generation = body.generation.wrapping_add(1);
        build(database, body.number, &records, Some(&body.map), generation)?;
        let flags = body.flags() | SUPERSEDED;
        let _ = body.map.set_half(FLAGS, flags);
        let published = publish(database, body.number);
        if published.is_err() {
            let _ = body.map.set_half(FLAGS, flags & !SUPERSEDED);
        }
        published?;
        incident
    };
    if let Some(incident) = incident {
        database.report(incident);
    }
    Ok(Outcome::Replaced)
}

/// Puts a shard with what can be saved in the place of `file`, whose header is
/// damaged, and keeps the damaged one under another name.
///
/// Does nothing where the damage is gone, or the file.
pub(super) fn replace_damaged(
    database: &mut Database,
    number: u8,
    file: &File,
    facts: &files::Facts,
) -> Result<(), SpoolError> {
    let name = shard_name(number);
    let path = database.path_of(&name);
    let incident = {
        let _shard_guard = database.lock(file, Kind::Exclusive, || path.clone())?;
        let _guard = database.lock_directory()?;
        let named = files::facts_at(&database.directory, &name)
            .is_ok_and(|now| now.identity == facts.identity);
        if !named || Body::open(database, number, file, facts).is_ok() {
            return Ok(());
        }
        let mut map = match Mapping::of(file, true) {
            Ok(map) => Some(map),
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => None,
            Err(error) => return Err(SpoolError::io("map", &path)(error)),
        };
        // The index may be of any size, and records begin after it.
        let records =
            map.as_ref().map_or_else(Vec::new, |map| salvaged(map, HEADER_BYTES, database, number));
        build(database, number, &records, map.as_ref(), 1)?;
        let aside = database.keep_damaged(&name)?;
        if let Some(map) = &mut map
            && map.bytes(0, HEADER_CRC).is_some_and(Header::is_ours)
        {
            // Those who have it open from better times look for the new one.
            // What bears none of our marks may be anybody's file that was
            // given this name, so it is moved aside as it is.
            let _ = map.set_half(FLAGS, SUPERSEDED);
        }
        publish(database, number)?;
        format!(
            "{} had a damaged header and has been rebuilt; {} records were saved; the damaged one \
             is kept as {}",
            path.display(),
            records.len(),
            aside.to_string_lossy()
        )
    };
    database.report(incident);
    Ok(())
}

/// The records that the index points at, without those that may be forgotten;
/// and how many more there were that are damaged.
fn indexed(body: &Body, now: Timestamp) -> (Vec<Record>, usize) {
    let (mut records, mut damaged) = (Vec::new(), 0);
    for offset in body.occupied() {
        let record = Record::read(&body.map, offset, body.seed);
        match record.and_then(|record| may_go(&record, &body.map, body.seed, now)) {
            Some(true) => {}
            Some(false) => records.extend(record),
            None => damaged += 1,
        }
    }
    (records, damaged)
}

/// Whether a record can be dropped without changing any answer; `None` where
/// it has no sound state. This is the one place that asks.
fn may_go(record: &Record, map: &Mapping, seed: u32, now: Timestamp) -> Option<bool> {
    let (current, key) = record.current.zip(record.key(map))?;
    let epoch = record.filter(map, seed).map(|filter| filter.epoch);
    let state = current.state;
    Some(forgettable(key, state.average(), state.limit, epoch, now))
}

/// The latest record of each key that is anywhere from `start` on. Those of
/// another shard, whose file was given this one's name, would never be found.
fn salvaged(map: &Mapping, start: usize, database: &Database, number: u8) -> Vec<Record> {
    let hashing = &database.hashing;
    let mut latest: HashMap<&[u8], (u32, Record)> = HashMap::new();
    let mut offset = start;
    while offset < map.len() {
        let record = Record::read(map, offset, hashing.seed);
        offset += record.map_or(ALIGN, |record| record.bytes);
        let Some(record) = record else { continue };
        let Some((key, current)) = record.key(map).zip(record.current) else { continue };
        if hashing.place(key).shard != number {
            continue;
        }
        let sequence = current.state.sequence;
        match latest.entry(key) {
            Entry::Vacant(entry) => {
                entry.insert((sequence, record));
            }
            Entry::Occupied(mut entry) => {
                if sequence.wrapping_sub(entry.get().0).cast_signed() > 0 {
                    entry.insert((sequence, record));
                }
            }
        }
    }
    let mut records: Vec<_> = latest.into_values().map(|(_, record)| record).collect();
    records.sort_unstable_by_key(|record| record.offset);
    records
}

/// Index entries for this many records, so that half as many more will fit.
fn capacity_for(records: usize) -> usize {
    (records * 15 / 8).max(CAPACITY_MIN)
}

/// Writes `records`, which are in `source`, as a complete new shard under its
/// temporary name. Whoever calls has locked the directory.
fn build(
    database: &Database,
    number: u8,
    records: &[Record],
    source: Option<&Mapping>,
    generation: u64,
) -> Result<(), SpoolError> {
    let name = shard_name_new(number);
    let file = database.create_file(&name)?;
    let capacity = capacity_for(records.len());
    let heap_start = HEADER_BYTES + capacity * ENTRY_BYTES;
    let heap_end = heap_start + records.iter().map(|record| record.bytes).sum::<usize>();
    let header = Header {
        magic: SHARD_MAGIC,
        version: VERSION,
        shard: u32::from(number),
        key: database.hashing.key,
        capacity: capacity as u64,
        heap_start: heap_start as u64,
        generation,
        reserved: 0,
    };
    let written = files::reserve(&file, 0, (heap_end + 1).next_multiple_of(PAGE) as u64)
        .and_then(|()| Mapping::of(&file, true))
        .and_then(|map| {
            let seed = database.hashing.seed;
            let mut body = Body::new(number, (0, 0), map, seed, capacity, generation);
            fill(&mut body, &header, database, records, source, heap_end)
                .ok_or_else(|| io::Error::from(ErrorKind::UnexpectedEof))
        })
        .and_then(|()| if records.is_empty() { Ok(()) } else { file.sync_data() });
    written.map_err(|error| {
        // What is left of it would only take space that is missing already.
        let _ = files::remove_at(&database.directory, &name);
        SpoolError::io("write", &database.path_of(&name))(error)
    })
}

/// Fills a new file: index, records, header.
fn fill(
    body: &mut Body,
    header: &Header,
    database: &Database,
    records: &[Record],
    source: Option<&Mapping>,
    heap_end: usize,
) -> Option<()> {
    let index = body.map.bytes_mut(HEADER_BYTES, body.capacity * ENTRY_BYTES)?;
    for entry in index.chunks_exact_mut(ENTRY_BYTES) {
        entry.copy_from_slice(&EMPTY.to_le_bytes());
    }
    let mut offset = body.heap_start;
    for record in records {
        let source = source?;
        let place = database.hashing.place(record.key(source)?);
        let start = place.start(body.capacity);
        let slot = (start..body.capacity).chain(0..start).find(|&s| body.entry(s).is_none())?;
        body.map.write(offset, source.bytes(record.offset, record.bytes)?)?;
        body.set_entry(slot, place.tag, offset)?;
        offset += record.bytes;
    }
    let seed = body.seed;
    body.map.set_word(HEAP_END, seal(heap_end as u64, seed))?;
    body.map.set_word(LIVE, seal(records.len() as u64, seed))?;
    body.map.set_word(DEAD, seal(0, seed))?;
    body.map.write(0, &header.encode())
}

/// Gives the new file its name.
fn publish(database: &Database, number: u8) -> Result<(), SpoolError> {
    let (from, to): (&CStr, &CStr) = (&shard_name_new(number), &shard_name(number));
    files::rename_at(&database.directory, from, to)
        .map_err(SpoolError::io("replace", &database.path_of(to)))
}
