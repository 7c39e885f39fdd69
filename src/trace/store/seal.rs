//! Sealing: a full log becomes a segment.
//!
//! The process that seals, merges or removes holds the lock on `sealing`.
//! Recording only tries to take it: its current holder handles what is left, or
//! a later one does.

use std::ffi::CStr;
use std::time::Duration;

use crate::sys::clock;
use crate::sys::files::{self, Access};
use crate::sys::lock::LockKind;
use crate::sys::secure_dir::DirError;
use crate::text::counted;

use super::log::{Log, LogFault, MESSAGES_MAX};
use super::merge::{Merging, NEWEST};
use super::names::{self, FileKind, Numbered, OPEN};
use super::options::Options;
use super::segment::{Origin, Segment, build};
use super::{FILE_MODE, LOCK_TIMEOUT, Tidied, TraceError, TraceStore, wire};

/// The file that is locked while sealing, merging or removing.
pub(super) const SEALING: &CStr = c"sealing";
/// A segment while it is being written.
pub(super) const SEGMENT_NEW: &CStr = c"segment.new";
/// How many logs a recording process seals: more than one, so that a backlog shrinks.
const FEW: usize = 2;

/// The result of sealing a full log.
enum Sealed {
    /// It was sealed into a segment.
    Yes,
    /// It had been sealed before, or had no messages.
    Removed,
    /// It cannot be sealed: it has another key or a later version, or is
    /// damaged.
    No,
}

impl TraceStore {
    /// Seals all messages recorded so far. Messages recorded later go into
    /// another segment.
    ///
    /// # Errors
    /// The store cannot be used, or another process is sealing for longer than
    /// the lock timeout.
    pub fn seal(&mut self) -> Result<(), TraceError> {
        self.require_writable()?;
        self.after_fork()?;
        {
            let _guard = self.dir.lock_directory(LOCK_TIMEOUT)?;
            if files::info_at(self.dir.directory(), OPEN).is_ok() {
                self.rotate()?;
            }
        }
        self.sealing(LOCK_TIMEOUT, |trace| trace.seal_full(usize::MAX).map(drop))
    }

    /// Runs after a log became full: seals it, merges small segments, and removes expired
    /// messages, unless another process does so. Errors become incidents: the message
    /// itself has been recorded.
    pub(super) fn seal_after_recording(&mut self) {
        let settled = self.sealing(Duration::ZERO, |trace| {
            // They may have changed since the store was opened.
            trace.options = Options::read(&trace.dir)?;
            trace.remove_replaced(NEWEST)?;
            // A full disk may have room for a segment afterwards.
            let sealed = trace.seal_full(FEW).and_then(|_| trace.merge(Merging::Some));
            let now = clock::now().0;
            if trace.exceeds_limits(now)? {
                trace.retain(now, &mut Tidied::default())?;
            }
            sealed.map(drop)
        });
        match settled {
            Ok(()) | Err(TraceError::Directory(DirError::Busy { .. })) => {}
            Err(error) => self.report(error.to_string()),
        }
    }

    /// Runs `work` while no other process seals, merges or removes.
    pub(super) fn sealing<T>(
        &mut self,
        timeout: Duration,
        work: impl FnOnce(&mut Self) -> Result<T, TraceError>,
    ) -> Result<T, TraceError> {
        let file = self.dir.open_or_create(SEALING, FILE_MODE)?;
        let path = self.dir.path_of(SEALING);
        let _guard = self.dir.lock(&file, LockKind::Exclusive, timeout, || path.clone())?;
        work(self)
    }

    /// Seals full logs, oldest first, at most `limit`; returns how many. The
    /// lock on `sealing` is held.
    pub(super) fn seal_full(&mut self, limit: usize) -> Result<u64, TraceError> {
        let mut sealed = 0;
        let logs = names::list(&self.dir)?.into_iter().filter(|one| one.kind == FileKind::Log);
        for numbered in logs {
            match self.seal_one(numbered) {
                Ok(Sealed::Yes) => sealed += 1,
                Ok(Sealed::Removed | Sealed::No) => {}
                // A file that is not ours does not prevent other logs from
                // being sealed.
                Err(TraceError::Directory(
                    error @ (DirError::WrongKind { .. } | DirError::Unsafe { .. }),
                )) => self.report(error.to_string()),
                Err(error) => return Err(error),
            }
            if sealed >= limit as u64 {
                break;
            }
        }
        Ok(sealed)
    }

    fn seal_one(&mut self, numbered: Numbered) -> Result<Sealed, TraceError> {
        let name = numbered.name();
        let Some(Ok(log)) = Log::open(&self.dir, &self.key, &name, Access::Read)? else {
            return Ok(Sealed::No);
        };
        let segment = Numbered { kind: FileKind::Segment, ..numbered }.name();
        match Segment::open(&self.dir, &self.key, &segment)? {
            None => {}
            Some(Ok(segment)) if segment.head.log == log.head.id && segment.is_sound() => {
                self.remove(&name)?;
                return Ok(Sealed::Removed);
            }
            // The segment of the same log is damaged: it is written again.
            Some(Ok(segment)) if segment.head.log == log.head.id => {}
            Some(Err(LogFault::Damaged)) => {}
            Some(_) => {
                self.renumber(&name)?;
                return Ok(Sealed::No);
            }
        }
        let bytes = log.read().map_err(self.dir.failed("read", &name))?;
        let records = log.records(bytes, &self.key);
        let mut lost = records.damaged + u32::from(records.torn && log.is_sound());
        let mut messages = Vec::with_capacity(records.sound.len());
        for record in &records.sound {
            match wire::decode(records.envelope(record)) {
                Some(envelope) => messages.push((envelope, records.digest(record))),
                None => lost += 1,
            }
        }
        // If the status is damaged, old records may follow the last one.
        lost += messages.len().saturating_sub(MESSAGES_MAX as usize) as u32;
        messages.truncate(MESSAGES_MAX as usize);
        if lost > 0 {
            self.report(format!(
                "{} was damaged in {}; the messages there are lost, the other {} can be found",
                self.dir.path_of(&name).display(),
                counted(lost, "place", "places"),
                messages.len()
            ));
        }
        if messages.is_empty() {
            self.remove(&name)?;
            return Ok(Sealed::Removed);
        }
        let (id, settings, decode) = (log.head.id, log.head.settings, log.head.decode);
        let number = numbered.number;
        let origin = Origin { number, first: number, log: id, settings, decode, lost };
        let scheme = log.settings.scheme(&self.key.digest);
        match build(messages, origin, scheme.as_ref(), &self.key)? {
            Some(bytes) => self.write_segment(&bytes, &segment)?,
            None => return Ok(Sealed::No),
        }
        self.remove(&name)?;
        Ok(Sealed::Yes)
    }

    /// Writes a segment atomically.
    pub(super) fn write_segment(&self, bytes: &[u8], name: &CStr) -> Result<(), TraceError> {
        let file = self.dir.create_file(SEGMENT_NEW, FILE_MODE)?;
        let written = files::write_start(&file, bytes)
            .and_then(|()| files::sync(&file))
            .and_then(|()| files::rename_at(self.dir.directory(), SEGMENT_NEW, name));
        if written.is_err() {
            // On a full disk, the incomplete file would take space.
            let _ = files::remove_at(self.dir.directory(), SEGMENT_NEW);
        }
        Ok(written.map_err(self.dir.failed("write", name))?)
    }

    /// Removes an incomplete segment of a killed process.
    pub(super) fn remove_unfinished(&self) -> Result<(), TraceError> {
        self.remove(SEGMENT_NEW)
    }

    /// Renames a log to another number: its own belongs to another segment.
    fn renumber(&self, name: &CStr) -> Result<(), TraceError> {
        let _guard = self.dir.lock_directory(LOCK_TIMEOUT)?;
        let other = Numbered { number: names::next(&self.dir)?, kind: FileKind::Log }.name();
        let renamed = files::rename_at(self.dir.directory(), name, &other);
        Ok(renamed.map_err(self.dir.failed("rename", name))?)
    }

    pub(super) fn remove(&self, name: &CStr) -> Result<(), TraceError> {
        let removed = files::remove_at(self.dir.directory(), name);
        Ok(removed.map_err(self.dir.failed("remove", name))?)
    }
}
