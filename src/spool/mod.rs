//! The file-locked spool database: a [`crate::store::Store`].
//!
//! It is a directory of 256 shards, shared by all processes. One check locks a shard,
//! looks a key up in a mapped index, reads and writes one record, and unlocks.
//! `FORMAT.md` in this directory specifies every byte, the order of all writes, and what
//! a killed process leaves behind.
//!
//! - a check: `decide`, by `locked` for one shard; `apply` writes changes, `preview` only looks
//! - a shard: `shard`, `index`, `record`, `hashing`; `new_shard`, `rebuild`, `live_records`
//!   and `quarantine` open, make and repair its file
//! - the directory: `database`, `superblock`, `format`, `sizes`
//! - crossings and refusals: `events`; lines of text, and notes of held messages: `text_log`,
//!   `held_note`
//! - overrides: `overrides`
//! - what may go: `forget`, `eviction`; upkeep: `tidy`, `verify`, `copy`, `stats`, [`counter_file`]
//! - by hand: `inspect`, `iterate`, `edit`
//! - habits of accounts: [`habits`], with `slots`

mod apply;
mod copy;
pub mod counter_file;
#[cfg(test)]
mod damage_tests;
mod database;
mod decide;
mod edit;
#[cfg(test)]
mod edit_tests;
mod error;
mod events;
mod eviction;
mod forget;
#[cfg(test)]
mod forget_tests;
mod format;
#[cfg(test)]
mod format_tests;
pub mod habits;
mod hashing;
mod held_note;
#[cfg(test)]
mod image_tests;
mod index;
mod inspect;
mod iterate;
#[cfg(test)]
mod kill_tests;
mod live_records;
mod locked;
mod new_shard;
mod overrides;
mod preview;
#[cfg(test)]
mod preview_tests;
mod quarantine;
mod rebuild;
mod record;
mod shard;
mod sizes;
mod slots;
mod stats;
#[cfg(test)]
mod stop_tests;
mod superblock;
#[cfg(test)]
mod tests;
mod text_log;
mod tidy;
mod usage;
mod usage_words;
mod verify;
#[cfg(test)]
mod version_tests;

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use crate::engine::{RecordKey, Remembered};
use crate::rate::Timestamp;
use crate::rate::bloom::Event;
use crate::store::Overrides;
use crate::sys::fork;
use crate::sys::lock;
use crate::sys::secure_dir::{DirError, SecureDir};
use crate::text::counted;

pub use copy::Copied;
pub use database::{FILE_MODE, Options, open_directory};
pub use error::SpoolError;
pub use events::{
    EVENT_BYTES_MAX, EVENT_BYTES_MIN, EVENT_KEEP_MIN, EVENT_WINDOWS_MAX, Enforcement, ErasedEvents,
    EventDetails, EventKind, EventLimits, EventReader, EventWindow, LogLimits, LoggedEvent,
    crossings_file,
};
pub use eviction::capacity;
pub use held_note::{HELD_BY, HeldNote, HeldUntil};
pub use iterate::{LeftOut, entry_bytes};
pub use preview::Preview;
pub use quarantine::Quarantined;
pub use sizes::{CHECKS_MAX, MAX_BYTES_DEFAULT, MAX_BYTES_MIN};
pub use stats::Stats;
pub use text_log::{LoggedLine, NotesRead};
pub use tidy::Tidied;
pub use verify::{Report, ShardReport};

use database::{Database, shard_name};
use format::SHARDS;
use hashing::KeySlot;
use shard::{Body, Shard};

/// The overrides as this process knows them.
#[derive(Debug, Default)]
struct KnownOverrides {
    /// The word they belong to; 0 says that there never were any.
    word: u64,
    list: Overrides,
    /// Where keys are folded, so that a check allocates nothing.
    scratch: String,
    /// The fault that was reported last.
    reported: Option<String>,
    /// The second of the coarse clock in which the mapped file was last found to be
    /// `database`.
    checked: i64,
}

/// A check whose shard, which is in the table, is still locked.
#[derive(Clone, Copy, Debug)]
struct LockedCheck {
    /// The record for which it was taken.
    slot: KeySlot,
    /// When a check was decided under it.
    at: Option<Timestamp>,
}

/// The spool database, open.
///
/// Opening it touches only its directory and one small file; each shard is
/// opened when it is first needed. After a fork, the child can go on using it; it opens
/// the shards again.
#[derive(Debug)]
pub struct Spool {
    database: Database,
    shards: Vec<Option<Box<Shard>>>,
    process: u32,
    damaged: u64,
    /// How many of them [`Spool::take_incidents`] has returned.
    reported: u64,
    overrides: KnownOverrides,
    /// Crossings and refusals that wait for [`Spool::describe`].
    events: Vec<events::entry::PendingEvent>,
    /// Whether locks are kept: see [`crate::store::Store::keep_lock`].
    keeps_lock: bool,
    /// The lock that is kept.
    kept: Option<LockedCheck>,
    /// Where in its record the usage of an account was counted last: that of the next one is counted
    /// there as well, as a rule.
    counted_at: [usize; 2],
}

impl Spool {
    /// Opens the database in the directory `exirate` of `spool_directory`; creates it if
    /// there is none.
    ///
    /// # Errors
    /// The directory or the file that holds the key cannot be used.
    pub fn open(spool_directory: &Path, options: Options) -> Result<Self, SpoolError> {
        Database::open(spool_directory, options, true).map(Self::new)
    }

    /// Opens the database in `spool_directory` for reading only: it creates and repairs
    /// nothing, and needs no permission to write.
    ///
    /// # Errors
    /// There is no database, or it cannot be read.
    pub fn open_existing(spool_directory: &Path, options: Options) -> Result<Self, SpoolError> {
        Database::open(spool_directory, options, false).map(Self::new)
    }

    /// Opens the database in `spool_directory` for changing it; creates it only where policies
    /// are in use: a mail server will use it, and somebody may be denied before the first check.
    ///
    /// # Errors
    /// [`SpoolError::Absent`], or it cannot be used.
    pub fn open_to_change(spool_directory: &Path, options: Options) -> Result<Self, SpoolError> {
        match Self::require(spool_directory) {
            Err(SpoolError::Absent { path }) if path.join("policy.image").exists() => {}
            required => required?,
        }
        Self::open(spool_directory, options)
    }

    /// Checks that `spool_directory` has a database, without opening it. The trace store,
    /// the policy image and the settings of a cluster in the same directory are no rate
    /// database.
    ///
    /// # Errors
    /// [`SpoolError::Absent`], or the directory cannot be read.
    pub fn require(spool_directory: &Path) -> Result<(), SpoolError> {
        let path = spool_directory.join("exirate");
        let is_other = |name: &OsStr| {
            let name = name.as_bytes();
            name == b"trace" || name.starts_with(b"policy.") || name.starts_with(b"cluster")
        };
        match std::fs::read_dir(&path) {
            Ok(mut entries) => match entries.all(|e| e.is_ok_and(|e| is_other(&e.file_name()))) {
                true => Err(SpoolError::Absent { path }),
                false => Ok(()),
            },
            // Opening it says what is wrong.
            Err(error) if error.kind() == std::io::ErrorKind::NotADirectory => Ok(()),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                Err(SpoolError::Absent { path })
            }
            Err(error) => Err(SpoolError::io("open", &path)(error)),
        }
    }

    fn new(database: Database) -> Self {
        let shards = std::iter::repeat_with(|| None).take(SHARDS).collect();
        let overrides = KnownOverrides::default();
        Self {
            database,
            shards,
            process: fork::process(),
            damaged: 0,
            reported: 0,
            overrides,
            events: Vec::new(),
            keeps_lock: false,
            kept: None,
            counted_at: [0; 2],
        }
    }

    /// The database's directory.
    #[must_use]
    pub fn directory(&self) -> &Path {
        self.database.dir.path()
    }

    /// The database's directory, open.
    #[must_use]
    pub fn secure_directory(&self) -> &SecureDir {
        &self.database.dir
    }

    /// How many damaged records this handle has found and dropped.
    #[must_use]
    pub fn damaged(&self) -> u64 {
        self.damaged
    }

    /// Returns, once, what the administrator should know: each damage that was found and
    /// what was done about it, in one sentence.
    pub fn take_incidents(&mut self) -> Vec<String> {
        let mut incidents = std::mem::take(&mut self.database.incidents);
        let new = self.damaged - self.reported;
        if new > 0 {
            self.reported = self.damaged;
            incidents.push(format!(
                "dropped {} in {}; {} from zero again",
                counted(new, "damaged record", "damaged records"),
                self.directory().display(),
                if new == 1 { "its key counts" } else { "their keys count" }
            ));
        }
        incidents
    }

    /// Reads the record of `key` and changes nothing. Also for a database that is open
    /// for reading only.
    ///
    /// # Errors
    /// The database could not be used; `look` has not run.
    pub fn peek<'k, T>(
        &mut self,
        key: impl Into<RecordKey<'k>>,
        event: Option<&[u8]>,
        look: impl FnOnce(Option<Remembered<'_>>, Option<Event>) -> T,
    ) -> Result<T, SpoolError> {
        let key = key.into();
        let place = self.database.hashing.place(key);
        let event = event.map(|text| self.database.hashing.event(text));
        let mut look = Some(look);
        let (result, damaged) = self.read_shard(place.shard, |shard: Option<&Body>| {
            let lookup = shard.map(|body| (body, body.find(place, key)));
            let remembered = lookup.as_ref().and_then(|(body, lookup)| {
                lookup.record.and_then(|record| record.remembered(&body.map, body.seed))
            });
            let damaged = lookup.as_ref().map_or(0, |(_, lookup)| lookup.damaged);
            (look.take().map(|look| look(remembered, event)), damaged)
        })?;
        self.damaged += damaged;
        result.ok_or_else(|| self.unsettled(place.shard))
    }

    /// Closes what a child process has inherited: a lock belongs to the open file, which
    /// parent and child share, so that both would hold it at once.
    fn after_fork(&mut self) -> Result<(), SpoolError> {
        let process = fork::process();
        if process != self.process {
            self.close_shards();
            self.database.dir.reopen()?;
            self.process = process;
        }
        Ok(())
    }

    /// Closes all shards, and so releases a lock that was kept.
    fn close_shards(&mut self) {
        self.kept = None;
        self.shards.iter_mut().for_each(|shard| *shard = None);
    }

    /// Takes a shard out of the table whose lock was kept.
    #[inline]
    fn take_kept(&mut self, number: u8) -> Option<Box<Shard>> {
        self.kept.take_if(|kept| kept.slot.shard == number)?;
        self.shards.get_mut(usize::from(number)).and_then(Option::take)
    }

    /// Releases a lock that was kept: always before another one is taken, as those who lock
    /// several do so in ascending order.
    #[inline]
    fn release_lock(&mut self) {
        if let Some(kept) = self.kept.take()
            && let Some(Some(shard)) = self.shards.get(usize::from(kept.slot.shard))
            // Else it is the parent's.
            && self.process == fork::process()
        {
            lock::unlock(&shard.file);
        }
    }

    /// Takes a shard out of the table, and opens it if it is not open.
    fn take_shard(&mut self, number: u8) -> Result<Option<Box<Shard>>, SpoolError> {
        self.release_lock();
        match self.shards.get_mut(usize::from(number)).and_then(Option::take) {
            Some(shard) => Ok(Some(shard)),
            None => self.open_shard(number),
        }
    }

    /// Opens a shard.
    #[cold]
    fn open_shard(&mut self, number: u8) -> Result<Option<Box<Shard>>, SpoolError> {
        self.with_files(|database| rebuild::open(database, number))
    }

    /// Runs `act`, which opens files. If the process has too many open files, closes all
    /// shards and runs it again.
    fn with_files<T>(
        &mut self,
        mut act: impl FnMut(&mut Database) -> Result<T, SpoolError>,
    ) -> Result<T, SpoolError> {
        let result = act(&mut self.database);
        let Err(SpoolError::Directory(error)) = &result else { return result };
        if !error.is_out_of_files() || self.shards.iter().all(Option::is_none) {
            return result;
        }
        self.close_shards();
        act(&mut self.database)
    }

    /// Puts a shard back into the table.
    fn put_shard(&mut self, shard: Box<Shard>) {
        if let Some(place) = self.shards.get_mut(usize::from(shard.body.number)) {
            *place = Some(shard);
        }
    }

    /// The error for a shard that kept being replaced.
    fn unsettled(&self, number: u8) -> SpoolError {
        SpoolError::Directory(DirError::Unsettled {
            path: self.database.path_of(&shard_name(number)),
        })
    }

    /// The error of a system call on a shard.
    fn shard_error(&self, action: &'static str, number: u8, source: io::Error) -> SpoolError {
        SpoolError::io(action, &self.database.path_of(&shard_name(number)))(source)
    }
}
