//! Appends to the journal of crossings and to the log of refusals, and replaces files
//! that are full or too old.

use std::ffi::CStr;
use std::fs::File;
use std::io::ErrorKind;

use crate::rate::Timestamp;
use crate::sys::files::{self, Access, FileInfo};
use crate::sys::secure_dir::DirError;

use super::super::SpoolError;
use super::super::database::{ATTEMPTS, Database, FILE_MODE};
use super::entry::{ENTRY_BYTES_MAX, Entry, Fault, HEAD_BYTES, next_magic};

/// A file that is appended to, and its predecessor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::spool) struct EventLog {
    /// The file that is appended to.
    pub(in crate::spool) name: &'static CStr,
    /// The previous one.
    pub(in crate::spool) before: &'static CStr,
    /// The size from which on a new file is begun. No file exceeds twice this.
    pub(in crate::spool) bytes: u64,
    /// How many seconds an entry is kept at most, if the database is tidied daily.
    pub(in crate::spool) age: i64,
}

/// The journal of crossings.
pub(in crate::spool) const CROSSINGS: EventLog =
    EventLog { name: c"crossings", before: c"crossings.1", bytes: 4 << 20, age: 90 * 86_400 };
/// The log of refusals.
pub(in crate::spool) const REFUSALS: EventLog =
    EventLog { name: c"refusals", before: c"refusals.1", bytes: 8 << 20, age: 14 * 86_400 };
/// The files of both.
pub(in crate::spool) const EVENT_FILES: [&CStr; 4] =
    [CROSSINGS.name, CROSSINGS.before, REFUSALS.name, REFUSALS.before];

impl Database {
    /// Appends an entry in one write.
    ///
    /// # Errors
    /// It could not be written.
    pub(in crate::spool) fn append_event(
        &self,
        log: EventLog,
        entry: &[u8],
    ) -> Result<(), SpoolError> {
        for _ in 0..ATTEMPTS {
            let Some((file, info)) = self.open_for(Access::Append, log.name)? else {
                self.begin_log(log)?;
                continue;
            };
            if info.size >= log.bytes && self.rotate(log, |_, size| size >= log.bytes)? {
                continue;
            }
            let written = if info.size >= log.bytes * 2 {
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

    /// Begins a new file, if `is_due` says so of the open file and its size. False if it
    /// is not due, or another process has the directory locked.
    #[cold]
    fn rotate(
        &self,
        log: EventLog,
        is_due: impl FnOnce(&File, u64) -> bool,
    ) -> Result<bool, SpoolError> {
        let Some(_guard) = self.lock_directory_if(false)? else { return Ok(false) };
        let due = self
            .open_for(Access::Read, log.name)?
            .is_some_and(|(file, info)| is_due(&file, info.size));
        if due {
            files::rename_at(self.dir.directory(), log.name, log.before)
                .map_err(SpoolError::io("rename", &self.path_of(log.name)))?;
            self.begin_log(log)?;
        }
        Ok(due)
    }

    /// Removes the previous file if all of its entries are older than half of the age,
    /// and begins a new one if the first entry of the current one is. So an entry is
    /// kept for half of the age at least, unless the size limit is reached, and not
    /// beyond the age.
    pub(in crate::spool) fn tidy_log(
        &self,
        log: EventLog,
        now: Timestamp,
    ) -> Result<(), SpoolError> {
        let expired = |seconds: i64| now.seconds.saturating_sub(seconds) > log.age / 2;
        if let Some((_, info)) = self.open_for(Access::Read, log.before)?
            && expired(info.modified)
        {
            files::remove_at(self.dir.directory(), log.before)
                .map_err(SpoolError::io("remove", &self.path_of(log.before)))?;
        }
        // While there is a previous file, renaming would lose entries too early.
        if files::info_at(self.dir.directory(), log.before).is_err() {
            let seed = self.hashing.seed;
            self.rotate(log, |file, _| first_time(file, seed).is_some_and(expired))?;
        }
        Ok(())
    }
}

/// The time of the first entry of a file.
fn first_time(file: &File, seed: u32) -> Option<i64> {
    let mut bytes = vec![0; ENTRY_BYTES_MAX * 4];
    let read = files::read_start(file, &mut bytes).ok()?;
    bytes.truncate(read);
    let mut rest = &bytes[..];
    while rest.len() >= HEAD_BYTES {
        match Entry::decode(rest, seed) {
            Ok((entry, _)) => return Some(entry.at.seconds),
            Err(Fault::Unknown(size)) => rest = rest.get(size..)?,
            Err(_) => rest = rest.get(next_magic(rest)..)?,
        }
    }
    None
}
