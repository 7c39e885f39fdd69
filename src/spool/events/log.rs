//! Appends to the journal of crossings and to the log of refusals, begins a new file where one is
//! full, and removes old events.

use std::ffi::{CStr, OsStr};
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use crate::rate::Timestamp;
use crate::sys::files::{self, Access, FileInfo};
use crate::sys::secure_dir::DirError;

use super::super::database::{ATTEMPTS, DIRECTORY, Database, FILE_MODE};
use super::super::{Spool, SpoolError};
use super::expire::{Extent, expire, is_due};
use super::limits::{EventKind, EventLimits, LogLimits};

/// A file that is appended to, and its predecessor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::spool) struct EventLog {
    /// The file that is appended to.
    pub(in crate::spool) name: &'static CStr,
    /// The previous one.
    pub(in crate::spool) before: &'static CStr,
}

/// The file of the journal of crossings of a spool directory, which changes with each.
#[must_use]
pub fn crossings_file(spool: &Path) -> PathBuf {
    let name = OsStr::from_bytes(CROSSINGS.name.to_bytes());
    spool.join(OsStr::from_bytes(DIRECTORY.to_bytes())).join(name)
}

/// The journal of crossings.
pub(in crate::spool) const CROSSINGS: EventLog =
    EventLog { name: c"crossings", before: c"crossings.1" };
/// The log of refusals.
pub(in crate::spool) const REFUSALS: EventLog =
    EventLog { name: c"refusals", before: c"refusals.1" };
/// The files of both.
pub(in crate::spool) const EVENT_FILES: [&CStr; 4] =
    [CROSSINGS.name, CROSSINGS.before, REFUSALS.name, REFUSALS.before];

impl EventLog {
    /// The log of this kind.
    pub(super) fn of(kind: EventKind) -> Self {
        match kind {
            EventKind::Crossings => CROSSINGS,
            EventKind::Refusals => REFUSALS,
        }
    }
}

impl Spool {
    /// The size limits and ages of the event logs.
    ///
    /// # Errors
    /// They could not be read.
    pub fn event_limits(&mut self) -> Result<EventLimits, SpoolError> {
        self.with_files(|database| database.stored_event_limits())
    }

    /// Sets the size limits and ages of the event logs. Processes that have the database
    /// open apply them from their next check on.
    ///
    /// # Errors
    /// They could not be written, and have not changed.
    pub fn set_event_limits(&mut self, limits: EventLimits) -> Result<(), SpoolError> {
        self.database.require_writable()?;
        self.after_fork()?;
        let stored = EventLimits::decode(&limits.stored().encode());
        self.with_files(|database| database.set_event_limits(stored))
    }

    /// Removes the events that are too old, and those that have no room.
    ///
    /// # Errors
    /// A file could not be changed.
    pub fn tidy_events(&mut self, now: Timestamp) -> Result<(), SpoolError> {
        self.database.require_writable()?;
        self.after_fork()?;
        let limits = self.event_limits()?;
        for kind in EventKind::ALL {
            let log = EventLog::of(kind);
            self.with_files(|database| database.tidy_log(log, limits.of(kind), now))?;
        }
        Ok(())
    }

    /// How many bytes the two files of a log take.
    ///
    /// # Errors
    /// Their sizes could not be read.
    pub fn event_bytes(&mut self, kind: EventKind) -> Result<u64, SpoolError> {
        let log = EventLog::of(kind);
        self.with_files(|database| database.log_bytes(log))
    }
}

impl Database {
    /// The limits of a log, as they were at the latest check.
    fn limits_of(&self, log: EventLog) -> LogLimits {
        let limits = self.event_limits();
        if log == CROSSINGS { limits.crossings } else { limits.refusals }
    }

    /// Appends an entry in one write.
    ///
    /// # Errors
    /// It could not be written.
    pub(in crate::spool) fn append_event(
        &self,
        log: EventLog,
        entry: &[u8],
    ) -> Result<(), SpoolError> {
        let limits = self.limits_of(log);
        let full = limits.file_bytes();
        for _ in 0..ATTEMPTS {
            let Some((file, info)) = self.open_for(Access::Append, log.name)? else {
                self.begin_log(log)?;
                continue;
            };
            if info.size >= full && self.rotate(log, full)? {
                continue;
            }
            let written = if info.size >= limits.max_bytes {
                Err(ErrorKind::StorageFull.into())
            } else {
                files::append(&file, info.size, entry)
            };
            written.map_err(SpoolError::io("write", &self.path_of(log.name)))?;
            // The file may have been replaced twice meanwhile, and be gone.
            if [log.name, log.before].into_iter().any(|name| self.has_identity(name, &info)) {
                return Ok(());
            }
        }
        Err(DirError::Unsettled { path: self.path_of(log.name) }.into())
    }

    fn has_identity(&self, name: &CStr, info: &FileInfo) -> bool {
        files::info_at(self.dir.directory(), name).is_ok_and(|now| now.identity == info.identity)
    }

    /// Creates the file that is appended to, unless another process has. It needs no lock,
    /// for which a check would wait.
    #[cold]
    fn begin_log(&self, log: EventLog) -> Result<(), SpoolError> {
        match self.dir.create_new_file(log.name, FILE_MODE) {
            Err(DirError::Io { source, .. }) if source.kind() == ErrorKind::AlreadyExists => Ok(()),
            created => Ok(created.map(|_| ())?),
        }
    }

    /// Begins a new file if the current one has `full` bytes. False if it has not, or
    /// another process has the directory locked.
    #[cold]
    fn rotate(&self, log: EventLog, full: u64) -> Result<bool, SpoolError> {
        let Some(_guard) = self.lock_directory_if(false)? else { return Ok(false) };
        let current = self.open_for(Access::Read, log.name)?;
        let due = current.is_some_and(|(_, info)| info.size >= full);
        if due {
            self.replace_previous(log)?;
            self.begin_log(log)?;
        }
        Ok(due)
    }

    /// Makes the current file the previous one. The caller has locked the directory.
    fn replace_previous(&self, log: EventLog) -> Result<(), SpoolError> {
        files::rename_at(self.dir.directory(), log.name, log.before)
            .map_err(SpoolError::io("rename", &self.path_of(log.name)))
    }

    fn remove_previous(&self, log: EventLog) -> Result<(), SpoolError> {
        files::remove_at(self.dir.directory(), log.before)
            .map_err(SpoolError::io("remove", &self.path_of(log.before)))
    }

    /// How many bytes the files of a log take.
    pub(super) fn log_bytes(&self, log: EventLog) -> Result<u64, SpoolError> {
        let mut bytes = 0;
        for name in [log.before, log.name] {
            bytes += self.open_for(Access::Read, name)?.map_or(0, |(_, info)| info.size);
        }
        Ok(bytes)
    }

    /// Removes some entries that are older than the log's age, if there are any: called
    /// after an entry was appended. It waits for no lock, and what it reads is limited.
    pub(super) fn expire_some(&self, log: EventLog, now: Timestamp) -> Result<(), SpoolError> {
        let oldest = self.limits_of(log).oldest(now.seconds);
        if oldest == i64::MIN {
            return Ok(());
        }
        for name in [log.before, log.name] {
            let Some((file, _)) = self.open_for(Access::Read, name)? else { continue };
            if is_due(&file, self.hashing.seed, oldest)
                && let Some(_guard) = self.lock_directory_if(false)?
            {
                self.expire_file(log, name, oldest, Extent::Some)?;
            }
            // The entries of the next file are younger.
            break;
        }
        Ok(())
    }

    /// Removes what is older than the log's age, and what exceeds its size limit.
    pub(super) fn tidy_log(
        &self,
        log: EventLog,
        limits: LogLimits,
        now: Timestamp,
    ) -> Result<(), SpoolError> {
        let _guard = self.lock_directory()?;
        if self.log_bytes(log)? > limits.max_bytes {
            // Whoever appends begins a new file.
            if self
                .open_for(Access::Read, log.name)?
                .is_some_and(|(_, i)| i.size >= limits.file_bytes())
            {
                self.replace_previous(log)?;
            } else {
                self.remove_previous(log)?;
            }
        }
        let oldest = limits.oldest(now.seconds);
        if oldest == i64::MIN {
            return Ok(());
        }
        for name in [log.before, log.name] {
            self.expire_file(log, name, oldest, Extent::All)?;
        }
        Ok(())
    }

    /// Removes the entries of a file that are older than `oldest`, and the file if it is
    /// the previous one and has no other entries. The caller has locked the directory.
    fn expire_file(
        &self,
        log: EventLog,
        name: &CStr,
        oldest: i64,
        extent: Extent,
    ) -> Result<(), SpoolError> {
        let Some((file, info)) = self.open_for(Access::Write, name)? else { return Ok(()) };
        let done = expire(&file, info.size, self.hashing.seed, oldest, extent)
            .map_err(SpoolError::io("write", &self.path_of(name)))?;
        match done.is_empty && info.size > 0 {
            true if name == log.before => self.remove_previous(log),
            // The process that writes to it may not have noticed that it was renamed: it
            // is removed the next time.
            true if files::info_at(self.dir.directory(), log.before).is_err() => {
                self.replace_previous(log)
            }
            _ => Ok(()),
        }
    }
}
