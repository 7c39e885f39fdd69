//! Shards that are made new: the first of their name, one with a larger index,
//! or one of what could be saved from a damaged one.
//!
//! A new file is complete, and on disk, before it gets the name. Whoever holds
//! the old one finds its SUPERSEDED flag at the next lock.

use std::ffi::CStr;
use std::fs::File;
use std::io::{self, ErrorKind};

use crate::rate::Timestamp;
use crate::sys::lock::{self, Kind};
use crate::sys::mapping::Mapping;
use crate::sys::{clock, files};

use super::SpoolError;
use super::bound::largest;
use super::database::{Database, shard_name, shard_name_new};
use super::format::{
    DEAD, DROPPED, EMPTY, ENTRY_BYTES, EVICTED, FLAGS, FORGOTTEN, HEADER_BYTES, HEADER_CRC,
    HEAP_END, Header, LARGEST, LIVE, SHARD_MAGIC, SUPERSEDED, TIDIED, VERSION, WAITS,
};
use super::gather::{self, Gathered};
use super::record::Record;
use super::shard::{Body, Counts, PAGE};

/// Index entries of a new shard: header and index fill one page.
pub(super) const CAPACITY_MIN: usize = (PAGE - HEADER_BYTES) / ENTRY_BYTES;

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
    /// There was too little to be gained.
    Unneeded,
}

/// Makes an empty shard, where none is there yet.
pub(super) fn create(database: &Database, number: u8) -> Result<(), SpoolError> {
    let _guard = database.lock_directory()?;
    let name = shard_name(number);
    if files::facts_at(&database.directory, &name).is_ok() {
        return Ok(());
    }
    let counts = Gathered::default().counts(Counts::default());
    build(database, number, &[], None, counts, clock::now().into())?;
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
        let gathered = match reason {
            Reason::Growth => Gathered::indexed(body, now),
            Reason::Damage(_) => {
                Gathered::salvaged(&body.map, body.heap_start, database, body.number)
            }
        };
        let gathered = gathered.fit(&body.map, database.max_bytes, now);
        let incident = match (reason, gathered.dropped) {
            (Reason::Growth, 0) => None,
            (Reason::Growth, damaged) => Some(format!(
                "{} has been rebuilt without its damaged records ({damaged}): their keys count \
                 from zero again",
                path.display()
            )),
            (Reason::Damage(what), _) => Some(format!(
                "{} was damaged ({what}) and has been rebuilt; {} records were saved",
                path.display(),
                gathered.records.len()
            )),
        };
        let counts = gathered.counts(body.counts());
        build(database, body.number, &gathered.records, Some(&body.map), counts, now)?;
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

/// Rebuilds the shard of `body`, which this process has locked, where a quarter
/// of it or more is of no use any more; notes that it has been looked through.
pub(super) fn tidy(
    database: &mut Database,
    body: &mut Body,
    now: Timestamp,
    patient: bool,
) -> Result<Outcome, SpoolError> {
    if gather::is_worth_it(body, now) {
        return rebuild(database, body, Reason::Growth, now, patient);
    }
    let _ = body.set_sealed(TIDIED, now.seconds.max(0).cast_unsigned());
    Ok(Outcome::Unneeded)
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
        let now = clock::now().into();
        let gathered = map.as_ref().map_or_else(Gathered::default, |map| {
            Gathered::salvaged(map, HEADER_BYTES, database, number).fit(
                map,
                database.max_bytes,
                now,
            )
        });
        let counts = gathered.counts(Counts::default());
        build(database, number, &gathered.records, map.as_ref(), counts, now)?;
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
            gathered.records.len(),
            aside.to_string_lossy()
        )
    };
    database.report(incident);
    Ok(())
}

/// Index entries for this many records, so that half as many more will fit.
pub(super) const fn capacity_for(records: usize) -> usize {
    let capacity = records * 15 / 8;
    if capacity > CAPACITY_MIN { capacity } else { CAPACITY_MIN }
}

/// Writes `records`, which are in `source`, as a complete new shard under its
/// temporary name. Whoever calls has locked the directory.
fn build(
    database: &Database,
    number: u8,
    records: &[Record],
    source: Option<&Mapping>,
    counts: Counts,
    now: Timestamp,
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
        generation: counts.rebuilds,
        reserved: 0,
    };
    let written = files::reserve(&file, 0, (heap_end + 1).next_multiple_of(PAGE) as u64)
        .and_then(|()| Mapping::of(&file, true))
        .and_then(|map| {
            let seed = database.hashing.seed;
            let mut body = Body::new(number, (0, 0), map, seed, capacity, counts.rebuilds);
            fill(&mut body, database, records, source)
                .and_then(|()| finish(&mut body, &header, records, heap_end, counts, now))
                .ok_or_else(|| io::Error::from(ErrorKind::UnexpectedEof))
        })
        .and_then(|()| if records.is_empty() { Ok(()) } else { files::sync(&file) });
    written.map_err(|error| {
        // What is left of it would only take space that is missing already.
        let _ = files::remove_at(&database.directory, &name);
        SpoolError::io("write", &database.path_of(&name))(error)
    })
}

/// Fills a new file: index and records.
fn fill(
    body: &mut Body,
    database: &Database,
    records: &[Record],
    source: Option<&Mapping>,
) -> Option<()> {
    body.map.change(HEADER_BYTES, body.capacity * ENTRY_BYTES, |index| {
        for entry in index.chunks_exact_mut(ENTRY_BYTES) {
            entry.copy_from_slice(&EMPTY.to_le_bytes());
        }
    })?;
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
    Some(())
}

/// Writes the header of a new file.
fn finish(
    body: &mut Body,
    header: &Header,
    records: &[Record],
    heap_end: usize,
    counts: Counts,
    now: Timestamp,
) -> Option<()> {
    for (field, value) in [
        (HEAP_END, heap_end as u64),
        (LIVE, records.len() as u64),
        (DEAD, 0),
        (TIDIED, now.seconds.max(0).cast_unsigned()),
        (FORGOTTEN, counts.forgotten),
        (EVICTED, counts.evicted),
        (DROPPED, counts.dropped),
        (WAITS, counts.waits),
        (LARGEST, largest(records) as u64),
    ] {
        body.set_sealed(field, value)?;
    }
    body.map.write(0, &header.encode())
}

/// Gives the new file its name.
fn publish(database: &Database, number: u8) -> Result<(), SpoolError> {
    let (from, to): (&CStr, &CStr) = (&shard_name_new(number), &shard_name(number));
    files::rename_at(&database.directory, from, to)
        .map_err(SpoolError::io("replace", &database.path_of(to)))
}
