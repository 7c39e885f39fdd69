//! The file that becomes a shard, while it is written.

use std::ffi::CStr;
use std::fs::File;
use std::io::{self, ErrorKind};

use crate::rate::Timestamp;
use crate::sys::files::{self, Access};
use crate::sys::lock::{self, LockKind};
use crate::sys::mapping::Mapping;
use crate::sys::secure_dir::DirError;

use super::SpoolError;
use super::database::{ATTEMPTS, Database, shard_name, shard_name_new};
use super::eviction::largest;
use super::format::{
    DEAD, DECIDED, DROPPED, EMPTY, ENTRY_BYTES, EVICTED, FORGOTTEN, HEADER_BYTES, HEAP_END, Header,
    LARGEST, LIVE, LOST, SHARD_MAGIC, TIDIED, WAITS,
};
use super::record::Record;
use super::shard::{Body, Counts};
use super::sizes::{PAGE, capacity_for};
use super::usage_words;

/// A file under a shard's temporary name that this process alone may write to.
///
/// It is locked until this is dropped, under its new name as well.
#[derive(Debug)]
pub(super) struct NewShard {
    file: File,
    number: u8,
    /// A killed process had started to write it.
    pub(super) left_behind: bool,
}

impl NewShard {
    /// Opens and locks the temporary file of shard `number`, and empties it. `None` if
    /// another process has locked it, unless `waits`.
    pub(super) fn claim(
        database: &Database,
        number: u8,
        waits: bool,
    ) -> Result<Option<Self>, SpoolError> {
        let name = shard_name_new(number);
        let path = || database.path_of(&name);
        for _ in 0..ATTEMPTS {
            let Some(file) = open(database, &name, waits)? else { return Ok(None) };
            if !lock_for_good(database, &file, &name, waits)? {
                return Ok(None);
            }
            let mut new = Self { file, number, left_behind: false };
            // The process that had it locked may have renamed it to the shard.
            let failed = |error| SpoolError::io("examine", &path())(error);
            let facts = files::info(&new.file).map_err(failed)?;
            match files::info_at(database.dir.directory(), &name) {
                Ok(named) if named.identity == facts.identity => {}
                Ok(_) => continue,
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                Err(error) => return Err(failed(error)),
            }
            // No process has mapped a file that a killed process left unfinished.
            if facts.size > 0 {
                files::empty(&new.file).map_err(|error| SpoolError::io("empty", &path())(error))?;
                new.left_behind = true;
            }
            return Ok(Some(new));
        }
        Err(SpoolError::Directory(DirError::Unsettled { path: path() }))
    }

    /// Writes `records`, which are in `source`, as a complete shard.
    pub(super) fn build(
        &self,
        database: &Database,
        records: &[Record],
        source: Option<&Mapping>,
        counts: Counts,
        now: Timestamp,
    ) -> Result<(), SpoolError> {
        let Self { file, number, .. } = self;
        let capacity = capacity_for(records.len());
        let heap_start = HEADER_BYTES + capacity * ENTRY_BYTES;
        let heap_end = heap_start + records.iter().map(|record| record.bytes).sum::<usize>();
        let header = Header {
            magic: SHARD_MAGIC,
            version: database.version,
            shard: u32::from(*number),
            key: database.hashing.key,
            capacity: capacity as u64,
            heap_start: heap_start as u64,
            generation: counts.rebuilds,
            reserved: 0,
        };
        let written = files::reserve(file, 0, (heap_end + 1).next_multiple_of(PAGE) as u64)
            .and_then(|()| Mapping::of(file, true))
            .and_then(|map| {
                let seed = database.hashing.seed;
                let mut body = Body::new(*number, (0, 0), map, seed, capacity, counts.rebuilds);
                fill(&mut body, database, records, source)
                    .and_then(|()| finish(&mut body, &header, records, heap_end, counts, now))
                    .ok_or_else(|| io::Error::from(ErrorKind::UnexpectedEof))
            })
            .and_then(|()| if records.is_empty() { Ok(()) } else { files::sync(file) });
        written.map_err(|error| {
            // A partial file would only take space that is already short.
            let name = shard_name_new(*number);
            let _ = files::remove_at(database.dir.directory(), &name);
            SpoolError::io("write", &database.path_of(&name))(error)
        })
    }

    /// Gives the file the shard's name.
    pub(super) fn publish(&self, database: &Database) -> Result<(), SpoolError> {
        let (from, to): (&CStr, &CStr) = (&shard_name_new(self.number), &shard_name(self.number));
        files::rename_at(database.dir.directory(), from, to)
            .map_err(SpoolError::io("replace", &database.path_of(to)))
    }

    /// Removes the file.
    pub(super) fn abandon(self, database: &Database) -> Result<(), SpoolError> {
        let name = shard_name_new(self.number);
        files::remove_at(database.dir.directory(), &name)
            .map_err(SpoolError::io("remove", &database.path_of(&name)))
    }
}

/// Locks the file until [`NewShard`] is dropped. False if another process has it
/// locked, unless `waits`.
fn lock_for_good(
    database: &Database,
    file: &File,
    name: &CStr,
    waits: bool,
) -> Result<bool, SpoolError> {
    let guard = if waits {
        Some(database.lock(file, LockKind::Exclusive, || database.path_of(name))?)
    } else {
        lock::try_lock(file, LockKind::Exclusive)
            .map_err(|error| SpoolError::io("lock", &database.path_of(name))(error))?
    };
    Ok(guard.map(lock::Guard::keep).is_some())
}

impl Drop for NewShard {
    fn drop(&mut self) {
        lock::unlock(&self.file);
    }
}

/// Opens or creates the file. `None` if that would have to wait, unless `waits`.
fn open(database: &Database, name: &CStr, waits: bool) -> Result<Option<File>, SpoolError> {
    if let Some(file) = usable(database, name)? {
        return Ok(Some(file));
    }
    // Creating it takes several steps. Other processes must see all or none of them:
    // they remove what looks like a killed process's unfinished file.
    let Some(_guard) = database.lock_directory_if(waits)? else { return Ok(None) };
    match usable(database, name)? {
        Some(file) => Ok(Some(file)),
        None => database.create_file(name).map(Some),
    }
}

/// Opens the file if it exists and can be used.
fn usable(database: &Database, name: &CStr) -> Result<Option<File>, SpoolError> {
    match database.open_for(Access::Write, name) {
        Ok(found) => Ok(found.map(|(file, _)| file)),
        Err(
            SpoolError::Directory(DirError::WrongKind { .. })
            | SpoolError::Directory(DirError::Unsafe { .. }),
        ) => Ok(None),
        Err(SpoolError::Directory(DirError::Io { source, .. }))
            if source.kind() == ErrorKind::PermissionDenied =>
        {
            Ok(None)
        }
        Err(error) => Err(error),
    }
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
        let place = record.slot(source, &database.hashing)?;
        let start = place.start(body.capacity);
        let slot = (start..body.capacity).chain(0..start).find(|&s| body.entry(s).is_none())?;
        body.map.write(offset, source.bytes(record.offset, record.bytes)?)?;
        if record.is_of_usage() {
            usage_words::mend(
                &mut body.map,
                offset + (record.filter_offset() - record.offset),
                place,
            )?;
        }
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
        (LOST, counts.lost),
        (DECIDED, counts.decided),
    ] {
        body.set_sealed(field, value)?;
    }
    body.map.write(0, &header.encode())
}
