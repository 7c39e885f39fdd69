//! The file `overrides`, and the word in `database` that changes with it. Running
//! processes load the word before each check, and read the file only when the word has
//! changed.

use std::borrow::Cow;
use std::ffi::CStr;
use std::io::ErrorKind;

use crate::engine::{Check, Overridden, RecordKey};
use crate::rate::Timestamp;
use crate::store::{Candidates, LIST_BYTES_MAX, ListFault, Override, Overrides};
use crate::sys::clock;
use crate::sys::files::{self, Access};
use crate::sys::mapping::Mapping;

use super::database::Database;
use super::database::DatabaseWord;
use super::format::{DATABASE_FILE_BYTES, DATABASE_MAGIC, DATABASE_WORD};
use super::superblock::DATABASE;
use super::text_log::AUDIT;
use super::{Spool, SpoolError};

/// The overrides.
pub(super) const OVERRIDES: &CStr = c"overrides";
/// That file while it is written.
pub(super) const OVERRIDES_NEW: &CStr = c"overrides.new";

/// There is a file `overrides`.
pub(super) const PRESENT: u64 = 1;
/// One of the two files is being replaced: each check opens both again.
pub(super) const CHANGING: u64 = 2;
/// The rest of the word counts the changes.
const CHANGE: u64 = 4;
/// No word: it is reread.
const UNKNOWN: u64 = u64::MAX;

/// The result of reading the file.
type Listed = Result<Overrides, ListFault>;

impl Spool {
    /// The overrides that apply to a key; `None` if there are no overrides.
    #[inline]
    pub(super) fn candidates(&mut self, key: &RecordKey<'_>) -> Option<Candidates> {
        if self.has_overrides() { Some(self.find(key)) } else { None }
    }

    /// As [`Spool::candidates`], for each check; empty if there are no overrides. All are
    /// from one version of the list.
    #[inline]
    pub(super) fn all_candidates(&mut self, checks: &[Check<'_>]) -> Vec<Candidates> {
        if self.has_overrides() {
            checks.iter().map(|check| self.find(&check.key)).collect()
        } else {
            Vec::new()
        }
    }

    /// The checks with the overrides in force at `now`, for a store that decides elsewhere.
    pub(crate) fn with_overrides<'c, 'a>(
        &mut self,
        checks: &'c [Check<'a>],
        now: Timestamp,
    ) -> Cow<'c, [Check<'a>]> {
        let candidates = self.all_candidates(checks);
        all_overridden(checks, &candidates, now)
    }

    /// Whether there are overrides. Reads them again if they have changed.
    #[inline]
    fn has_overrides(&mut self) -> bool {
        let second = clock::coarse_seconds();
        // First the second: that finds a file that was cut off, whose word must not be read.
        if second != self.overrides.checked || self.database.word() != self.overrides.word {
            self.refresh_overrides(second);
        }
        !self.overrides.list.is_empty()
    }

    #[cold]
    fn find(&mut self, key: &RecordKey<'_>) -> Candidates {
        self.overrides.list.find(key, &mut self.overrides.scratch)
    }

    /// Finds out, once a second, whether `database` is another file, such as when it was
    /// deleted and has been written again; reads `overrides` if the word has changed.
    #[cold]
    fn refresh_overrides(&mut self, second: i64) {
        if second != self.overrides.checked {
            self.overrides.checked = second;
            if !self.database.has_current_word() {
                self.database.map_word();
                self.overrides.word = UNKNOWN;
            }
        }
        if self.database.word() != self.overrides.word {
            self.reread_overrides();
        }
    }

    /// Reads the file again. One that is damaged is quarantined, and then there are no
    /// overrides: it neither allows nor denies. What cannot be solved is reported once.
    #[cold]
    fn reread_overrides(&mut self) {
        let (mut word, mut listed) = self.read_list();
        // A process is changing them, or was killed while it did.
        let unsettled = word == UNKNOWN || matches!(listed, Ok(Err(ListFault::Damaged)));
        if unsettled && self.database.writable {
            match self.settle_overrides() {
                Ok(true) => (word, listed) = self.read_list(),
                // Another process is doing so: read again at the next check.
                Ok(false) => {
                    word = UNKNOWN;
                    listed = listed.map(|listed| Ok(listed.unwrap_or_default()));
                }
                // If they could be read, that they cannot be written is no fault.
                Err(_) if listed.as_ref().is_ok_and(Result::is_ok) => {}
                Err(error) => listed = Err(error),
            }
        }
        let (list, fault) = match listed {
            Ok(Ok(list)) => (list, None),
            Ok(Err(fault)) => (Overrides::default(), Some(self.database.override_fault(fault))),
            Err(error) => (Overrides::default(), Some(error)),
        };
        let fault = fault.map(|fault| fault.to_string());
        if let Some(fault) = &fault
            && self.overrides.reported.as_ref() != Some(fault)
        {
            self.database.report(format!("overrides are ignored: {fault}"));
        }
        self.overrides.word = word;
        self.overrides.list = list;
        self.overrides.reported = fault;
    }

    /// Reads the word and the file: the word is [`UNKNOWN`] if it is to be read again at
    /// the next check.
    fn read_list(&mut self) -> (u64, Result<Listed, SpoolError>) {
        let mut word = self.database.word();
        if word & CHANGING != 0 {
            self.database.map_word();
            word = self.database.word();
        }
        let settled = if word & CHANGING == 0 { word } else { UNKNOWN };
        let listed = match word & (PRESENT | CHANGING) {
            0 => Ok(Ok(Overrides::default())),
            _ => self.with_files(|database| database.read_overrides()),
        };
        (settled, listed)
    }

    /// Completes a change that a killed process has begun, and quarantines a damaged
    /// list. False if another process has the directory locked.
    fn settle_overrides(&mut self) -> Result<bool, SpoolError> {
        self.after_fork()?;
        let settled = self.with_files(|database| database.change_overrides(false, |_| {}))?;
        Ok(settled.is_some())
    }

    /// All overrides, also those that have ended, in the order in which they were set.
    ///
    /// # Errors
    /// The file cannot be read, or is damaged.
    pub fn overrides(&mut self) -> Result<Vec<Override>, SpoolError> {
        let listed = self.with_files(|database| database.read_overrides())?;
        listed.map(|list| list.list()).map_err(|fault| self.database.override_fault(fault))
    }

    /// Whether there is an override that has ended. A damaged file has none.
    pub(super) fn has_ended_overrides(&mut self, now: Timestamp) -> bool {
        let ended = |list: Vec<Override>| list.iter().any(|one| !one.is_active(now.seconds));
        self.overrides().is_ok_and(ended)
    }

    /// Runs `change` on the overrides, and replaces the file in one step. Running
    /// processes apply it at their next check. A damaged file is kept under another name,
    /// and the list is begun again.
    ///
    /// # Errors
    /// They could not be written, and have not changed.
    pub fn change_overrides<T>(
        &mut self,
        change: impl FnOnce(&mut Vec<Override>) -> T,
    ) -> Result<T, SpoolError> {
        self.database.require_writable()?;
        self.after_fork()?;
        let changed = self.database.change_overrides(true, change)?;
        self.overrides.word = UNKNOWN;
        changed.ok_or_else(|| SpoolError::Damaged {
            path: self.database.path_of(OVERRIDES),
            what: "it cannot be locked",
        })
    }

    /// Whether a process was killed while it changed the overrides, or is changing them.
    pub(super) fn has_unsettled_overrides(&self) -> bool {
        self.database.word() & CHANGING != 0
    }
}

/// The check with the override in force, if there is one, in `place`.
#[inline]
pub(super) fn overridden<'c, 'a>(
    check: &'c Check<'a>,
    candidates: Option<Candidates>,
    now: Timestamp,
    place: &'c mut Option<Check<'a>>,
) -> &'c Check<'a> {
    match candidates.and_then(|candidates| candidates.at(now.seconds)) {
        None => check,
        Some(overridden) => place.insert(with(check, overridden)),
    }
}

/// The checks with the overrides in force; `candidates` are theirs, or none.
#[inline]
pub(super) fn all_overridden<'c, 'a>(
    checks: &'c [Check<'a>],
    candidates: &[Candidates],
    now: Timestamp,
) -> Cow<'c, [Check<'a>]> {
    if candidates.is_empty() {
        return Cow::Borrowed(checks);
    }
    let at = |candidates: &Candidates| candidates.at(now.seconds);
    let with = |(check, candidates): (&Check<'a>, &Candidates)| match at(candidates) {
        None => *check,
        Some(overridden) => with(check, overridden),
    };
    Cow::Owned(checks.iter().zip(candidates).map(with).collect())
}

/// The check with this override, unless the caller has set one.
#[cold]
fn with<'a>(check: &Check<'a>, overridden: Overridden) -> Check<'a> {
    Check { overridden: check.overridden.or(Some(overridden)), ..*check }
}

impl Database {
    /// The word of the file `database` as it is mapped; 0 if that file is not mapped.
    #[inline]
    pub(super) fn word(&self) -> u64 {
        self.word.as_ref().and_then(|word| word.map.u64(DATABASE_WORD)).unwrap_or(0)
    }

    /// Maps the file `database` for its word. One that cannot be mapped has none:
    /// overrides are then ignored.
    pub(super) fn map_word(&mut self) {
        let file = self.open_for(Access::Read, DATABASE).ok().flatten();
        self.word = file.and_then(|(file, info)| {
            Some(DatabaseWord { map: Mapping::of(&file, false).ok()?, identity: info.identity })
        });
    }

    /// Whether the file `database` is the one that is mapped. Where there is none, the
    /// word and the overrides that are known stay in force, until it is written again.
    fn has_current_word(&self) -> bool {
        match (files::info_at(self.dir.directory(), DATABASE), &self.word) {
            (Ok(info), Some(word)) => {
                info.identity == word.identity && info.size >= word.map.len() as u64
            }
            (Ok(_), None) => false,
            (Err(_), _) => true,
        }
    }

    /// The file `database`, mapped for changing its word; `None` if it is missing or too
    /// short to have one.
    fn writable_word(&self) -> Result<Option<Mapping>, SpoolError> {
        let Some((file, info)) = self.open_for(Access::Write, DATABASE)? else { return Ok(None) };
        if info.size < DATABASE_FILE_BYTES as u64 {
            return Ok(None);
        }
        Mapping::of(&file, true).map(Some).map_err(SpoolError::io("map", &self.path_of(DATABASE)))
    }

    /// Runs `replace`, which puts a new `database` in place of the old one. It gets the
    /// word of the new file. Processes that have mapped the old file open it again.
    pub(super) fn replace_database(
        &self,
        replace: impl FnOnce(u64) -> Result<(), SpoolError>,
    ) -> Result<(), SpoolError> {
        // Whatever else has the name is replaced all the same, and never written to.
        let is_ours = |map: &Mapping| map.bytes(0, 8).is_some_and(|magic| magic == DATABASE_MAGIC);
        let mut old = self.writable_word().unwrap_or(None).filter(is_ours);
        let word = old.as_ref().and_then(|map| map.u64(DATABASE_WORD)).unwrap_or(0);
        let present = files::info_at(self.dir.directory(), OVERRIDES).is_ok();
        if let Some(map) = &mut old {
            let _ = map.set_u64(DATABASE_WORD, word | CHANGING);
        }
        // A new database begins with 0.
        let next = if old.is_some() || present { changed(word, present) } else { 0 };
        let replaced = replace(next);
        if replaced.is_err()
            && let Some(map) = &mut old
        {
            let _ = map.set_u64(DATABASE_WORD, word);
        }
        replaced
    }

    /// Reads the file `overrides`; a missing one is an empty list.
    pub(super) fn read_overrides(&self) -> Result<Listed, SpoolError> {
        let Some((file, info)) = self.open_for(Access::Read, OVERRIDES)? else {
            return Ok(Ok(Overrides::default()));
        };
        let Some(size) = usize::try_from(info.size).ok().filter(|&size| size <= LIST_BYTES_MAX)
        else {
            return Ok(Err(ListFault::Damaged));
        };
        let mut bytes = vec![0; size];
        let read = files::read_start(&file, &mut bytes)
            .map_err(SpoolError::io("read", &self.path_of(OVERRIDES)))?;
        bytes.truncate(read);
        Ok(Overrides::decode(bytes))
    }

    /// The error for a file `overrides` that is not a list.
    pub(super) fn override_fault(&self, fault: ListFault) -> SpoolError {
        SpoolError::Overrides { path: self.path_of(OVERRIDES), fault }
    }

    /// Runs `change` on the overrides, and replaces the file; without `waits`, `None` if
    /// another process has the directory locked.
    fn change_overrides<T>(
        &mut self,
        waits: bool,
        change: impl FnOnce(&mut Vec<Override>) -> T,
    ) -> Result<Option<T>, SpoolError> {
        let (result, quarantined) = {
            let Some(_guard) = self.lock_directory_if(waits)? else { return Ok(None) };
            let (mut list, is_damaged) = match self.read_overrides()? {
                Ok(list) => (list.list(), false),
                Err(ListFault::Damaged) => (Vec::new(), true),
                Err(fault) => return Err(self.override_fault(fault)),
            };
            let before = list.clone();
            let result = change(&mut list);
            let word = match self.writable_word()? {
                Some(map) => Some(map),
                None => {
                    self.rewrite_identity()?;
                    self.writable_word()?
                }
            };
            let path = self.path_of(DATABASE);
            let mut map = word.ok_or(SpoolError::Damaged { path, what: "it has no word" })?;
            let settled = map.u64(DATABASE_WORD).unwrap_or(0);
            let agrees = settled & (PRESENT | CHANGING) == u64::from(!list.is_empty());
            if list == before && agrees && !is_damaged {
                return Ok(Some(result));
            }
            let kept = if is_damaged { Some(self.keep_damaged(OVERRIDES)?) } else { None };
            self.write_overrides(&list, &mut map)?;
            (result, kept)
        };
        self.map_word();
        if let Some(kept) = quarantined {
            let path = self.path_of(OVERRIDES);
            let log = self.path_of(AUDIT.name);
            self.report(format!(
                "{} was damaged and has been quarantined as {}: the keys that it allowed or \
                 denied no longer are; {} lists the commands that had set it: run them again",
                path.display(),
                kept.to_string_lossy(),
                log.display()
            ));
        }
        Ok(Some(result))
    }

    /// Replaces the file, and changes the word. The caller has locked the directory.
    fn write_overrides(&self, list: &[Override], word: &mut Mapping) -> Result<(), SpoolError> {
        let path = self.path_of(OVERRIDES);
        let bytes = Overrides::encode(list).map_err(|what| SpoolError::OverrideSize { what })?;
        let directory = self.dir.directory();
        if !list.is_empty() {
            let file = self.create_file(OVERRIDES_NEW)?;
            files::write_start(&file, &bytes)
                .and_then(|()| files::sync(&file))
                .map_err(SpoolError::io("write", &path))?;
        }
        let lost = || SpoolError::io("write", &path)(ErrorKind::UnexpectedEof.into());
        let before = word.u64(DATABASE_WORD).ok_or_else(lost)?;
        word.set_u64(DATABASE_WORD, before | CHANGING).ok_or_else(lost)?;
        let replaced = match list.is_empty() {
            true => files::remove_at(directory, OVERRIDES),
            false => files::rename_at(directory, OVERRIDES_NEW, OVERRIDES),
        };
        let after = if replaced.is_ok() { changed(before, !list.is_empty()) } else { before };
        word.set_u64(DATABASE_WORD, after).ok_or_else(lost)?;
        replaced.map_err(SpoolError::io("write", &path))
    }

    /// Puts these into a new database.
    pub(super) fn put_overrides(&mut self, list: &[Override]) -> Result<(), SpoolError> {
        self.change_overrides(true, |there| there.extend_from_slice(list)).map(drop)
    }

    /// Keeps a damaged file under another name, and has `database` name a sound one. The
    /// incidents say what was done.
    pub(super) fn repair_overrides(&mut self) -> Result<(), SpoolError> {
        let has_fault = self.overrides_problem().is_some();
        let version = matches!(self.read_overrides(), Ok(Err(ListFault::Version(_))));
        if has_fault && !version {
            self.change_overrides(true, |_| {})?;
        }
        Ok(())
    }

    /// What is wrong with the file `overrides`, if anything.
    pub(super) fn overrides_problem(&self) -> Option<String> {
        match self.read_overrides() {
            Err(error) => return Some(error.to_string()),
            Ok(Err(fault)) => {
                return Some(format!("{fault}: its allow and deny entries no longer apply"));
            }
            Ok(Ok(_)) => {}
        }
        let present = files::info_at(self.dir.directory(), OVERRIDES).is_ok();
        // Where `database` is missing, it will name it when it is written again.
        let ignored = present && self.word.is_some() && self.word() & (PRESENT | CHANGING) == 0;
        ignored.then(|| "it is ignored: `database` does not name it".to_owned())
    }
}

/// The word after a change.
fn changed(word: u64, present: bool) -> u64 {
    let count = (word & !(PRESENT | CHANGING)).wrapping_add(CHANGE);
    // All ones stand for no word.
    (if count | PRESENT | CHANGING == UNKNOWN { CHANGE } else { count }) | u64::from(present)
}

#[cfg(test)]
mod tests;
