//! Opens, creates and rebuilds shards: an empty one, one with a larger index, or one with
//! what could be saved from a damaged one.
//!
//! A new file is complete and on disk before it gets the shard's name. Processes
//! that have the old file open find its SUPERSEDED flag when they next lock it. The
//! new file is locked while it is written, so that only one process writes it; no
//! other shard waits.

use std::fs::File;
use std::io::ErrorKind;

use crate::rate::Timestamp;
use crate::sys::lock::LockKind;
use crate::sys::mapping::Mapping;
use crate::sys::secure_dir::DirError;
use crate::sys::{clock, files};

use super::SpoolError;
use super::database::{ATTEMPTS, Database, shard_name};
use super::format::{FLAGS, HEADER_BYTES, HEADER_CRC, Header, HeaderFault, SUPERSEDED};
use super::live_records::LiveRecords;
use super::new_shard::NewShard;
use super::shard::{Body, Counts, OpenFault, Shard};

/// Why a shard is rebuilt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reason {
    /// Its index is nearly full, or half of its heap is unused.
    Growth,
    /// It is damaged; this says what.
    Damage(&'static str),
}

/// The result of a rebuild.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The shard has a new file and must be opened again.
    Replaced,
    /// Another process is rebuilding this shard, and growth can wait.
    Postponed,
    /// It would have gained too little.
    Unneeded,
}

/// Opens shard `number`. Creates it if there is none, and replaces it by what can
/// be saved if its header is damaged.
///
/// In a database that is open for reading, neither happens: a missing shard is
/// `None`, and a damaged one is an error.
pub(super) fn open(database: &mut Database, number: u8) -> Result<Option<Box<Shard>>, SpoolError> {
    let name = shard_name(number);
    for _ in 0..ATTEMPTS {
        let Some((file, facts)) = database.open_file(&name)? else {
            if !database.writable {
                return Ok(None);
            }
            create(database, number)?;
            continue;
        };
        let what = match Body::open(database, number, &file, &facts) {
            Ok(body) => {
                // Writing to a hole could fail for lack of disk.
                if database.writable {
                    body.reserve_disk(&file, &facts)
                        .map_err(SpoolError::io("reserve disk for", &database.path_of(&name)))?;
                }
                return Ok(Some(Box::new(Shard { file, body })));
            }
            Err(OpenFault::Io(source)) => {
                return Err(SpoolError::io("map", &database.path_of(&name))(source));
            }
            Err(OpenFault::Header(HeaderFault::Version(found))) => {
                return Err(database.unknown_version(&name, found));
            }
            Err(OpenFault::Header(HeaderFault::Damaged)) => "its header is damaged",
        };
        if !database.writable {
            return Err(SpoolError::Damaged { path: database.path_of(&name), what });
        }
        replace_damaged(database, number, &file, &facts)?;
    }
    Err(SpoolError::Directory(DirError::Unsettled { path: database.path_of(&name) }))
}

/// Creates an empty shard if there is none.
pub(super) fn create(database: &Database, number: u8) -> Result<(), SpoolError> {
    let Some(new) = NewShard::claim(database, number, true)? else { return Ok(()) };
    if files::info_at(database.dir.directory(), &shard_name(number)).is_ok() {
        return new.abandon(database);
    }
    let counts = LiveRecords::default().counts(Counts::default());
    new.build(database, &[], None, counts, clock::now().into())?;
    new.publish(database)
}

/// Rebuilds the shard of `body`, which this process has locked.
///
/// If `waits` is false, growth is postponed while another process has the lock:
/// it is started long before it is needed.
pub(super) fn rebuild(
    database: &mut Database,
    body: &mut Body,
    reason: Reason,
    now: Timestamp,
    waits: bool,
) -> Result<Outcome, SpoolError> {
    let path = database.path_of(&shard_name(body.number));
    let limit_reached;
    let incident = {
        let waits = waits || reason != Reason::Growth;
        let Some(new) = NewShard::claim(database, body.number, waits)? else {
            return Ok(Outcome::Postponed);
        };
        if !body.still_named(database).map_err(SpoolError::io("examine", &path))? {
            // Something else deleted or replaced the file.
            new.abandon(database)?;
            return Ok(Outcome::Replaced);
        }
        let gathered = match reason {
            Reason::Growth => LiveRecords::indexed(body, now),
            Reason::Damage(_) => {
                LiveRecords::salvaged(&body.map, body.heap_start, database, body.number)
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
        let before = body.counts();
        let counts = gathered.counts(before);
        // Reported once only, so that an attacker cannot fill the log.
        limit_reached = (before.evicted == 0 && counts.evicted > 0).then(|| {
            format!(
                "{} has reached its share of the size limit of {} MiB: from now on, the least \
                 important records are evicted ({} so far); `exirate stats` counts them, and \
                 `exirate config set rates.max_size=` raises the limit",
                path.display(),
                database.max_bytes >> 20,
                counts.evicted
            )
        });
        new.build(database, &gathered.records, Some(&body.map), counts, now)?;
        let flags = body.flags() | SUPERSEDED;
        let _ = body.map.set_u32(FLAGS, flags);
        let published = new.publish(database);
        if published.is_err() {
            let _ = body.map.set_u32(FLAGS, flags & !SUPERSEDED);
        }
        published?;
        incident
    };
    incident.into_iter().chain(limit_reached).for_each(|incident| database.report(incident));
    Ok(Outcome::Replaced)
}

/// Replaces `file`, whose header is damaged, by a shard with what can be saved, and
/// keeps the damaged file under another name.
///
/// Does nothing if another process has already replaced or removed the file.
pub(super) fn replace_damaged(
    database: &mut Database,
    number: u8,
    file: &File,
    facts: &files::FileInfo,
) -> Result<(), SpoolError> {
    let name = shard_name(number);
    let path = database.path_of(&name);
    let incident = {
        let _shard_guard = database.lock(file, LockKind::Exclusive, || path.clone())?;
        let Some(new) = NewShard::claim(database, number, true)? else { return Ok(()) };
        let named = files::info_at(database.dir.directory(), &name)
            .is_ok_and(|now| now.identity == facts.identity);
        if !named || Body::open(database, number, file, facts).is_ok() {
            return new.abandon(database);
        }
        let mut map = match Mapping::of(file, true) {
            Ok(map) => Some(map),
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => None,
            Err(error) => return Err(SpoolError::io("map", &path)(error)),
        };
        // The index may be of any size, and records begin after it.
        let now = clock::now().into();
        let gathered = map.as_ref().map_or_else(LiveRecords::default, |map| {
            LiveRecords::salvaged(map, HEADER_BYTES, database, number).fit(
                map,
                database.max_bytes,
                now,
            )
        });
        let counts = gathered.counts(Counts::default());
        new.build(database, &gathered.records, map.as_ref(), counts, now)?;
        let aside = database.keep_damaged(&name)?;
        if let Some(map) = &mut map
            && map
                .bytes(0, HEADER_CRC)
                .is_some_and(|bytes| Header::is_ours(bytes, database.versions))
        {
            // Processes that opened it before it was damaged look for the new file.
            // A file that is not recognised as a shard may be any file that was
            // given this name, so its contents are not changed.
            let _ = map.set_u32(FLAGS, SUPERSEDED);
        }
        new.publish(database)?;
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
