//! Removing messages by age and by size.

use crate::sys::files::{self, Access};

use super::super::decode;
use super::log::{Log, LogFault};
use super::merge::Merging;
use super::names::{self, FileKind, Numbered, OPEN};
use super::options::Options;
use super::segment::Segment;
use super::{LOCK_TIMEOUT, TraceError, TraceStore};

/// The result of [`TraceStore::tidy`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tidied {
    /// Logs that were sealed.
    pub sealed: u64,
    /// Segments and logs that were removed.
    pub forgotten: u64,
    /// Messages in these, as far as known.
    pub messages: u64,
}

/// The properties of a file that matter here.
#[derive(Clone, Copy, Debug)]
struct Kept {
    numbered: Numbered,
    bytes: u64,
    /// The time of its last message, as far as known.
    newest: i64,
    messages: u64,
}

impl TraceStore {
    /// Seals all messages recorded so far, merges small segments, removes files that killed
    /// processes left, and removes expired messages. `now` is in seconds since 1970.
    ///
    /// Recording does the same from time to time; this is for stores in which little is
    /// recorded.
    ///
    /// # Errors
    /// The store cannot be used, or another process does the same for longer
    /// than the lock timeout.
    pub fn tidy(&mut self, now: i64) -> Result<Tidied, TraceError> {
        self.require_writable()?;
        self.after_fork()?;
        // They may have changed since the store was opened.
        self.options = Options::read(&self.dir)?;
        self.tidy_with_options(now)
    }

    pub(super) fn tidy_with_options(&mut self, now: i64) -> Result<Tidied, TraceError> {
        self.rotate_own()?;
        self.sealing(LOCK_TIMEOUT, |trace| {
            let mut tidied = Tidied::default();
            trace.remove_unfinished()?;
            // A full disk may have room for a segment afterwards.
            let sealed = trace.remove_replaced(usize::MAX).and_then(|()| {
                let sealed = trace.seal_full(usize::MAX)?;
                while trace.merge(Merging::All)? {}
                Ok(sealed)
            });
            trace.retain(now, &mut tidied)?;
            tidied.sealed = sealed?;
            Ok(tidied)
        })
    }

    /// Renames the open log to its number, unless it is of a later version, which is left to
    /// that version.
    fn rotate_own(&self) -> Result<(), TraceError> {
        let _guard = self.dir.lock_directory(LOCK_TIMEOUT)?;
        match Log::open(&self.dir, &self.key, OPEN, Access::Read)? {
            None | Some(Err(LogFault::Version(_))) => Ok(()),
            Some(Ok(log)) if log.head.decode > decode::VERSION => Ok(()),
            Some(Ok(_) | Err(LogFault::Damaged | LogFault::OtherKey)) => self.rotate(),
        }
    }

    /// Whether the oldest file has expired at the time `now`, or the store is too large. Opens
    /// one file only, as a recording process asks this often.
    pub(super) fn exceeds_limits(&self, now: i64) -> Result<bool, TraceError> {
        let all = names::list_all(&self.dir)?;
        let files = all.iter().map(|one| one.name());
        let sizes = files
            .chain([OPEN.to_owned()])
            .filter_map(|name| Some(files::info_at(self.dir.directory(), &name).ok()?.size));
        if sizes.sum::<u64>() > self.options.max_bytes {
            return Ok(true);
        }
        let oldest = all.first().and_then(|&numbered| self.kept_one(numbered));
        Ok(oldest.is_some_and(|oldest| self.has_expired(&oldest, now)))
    }

    fn has_expired(&self, one: &Kept, now: i64) -> bool {
        self.options.keep.is_some_and(|keep| one.newest < now.saturating_sub_unsigned(keep))
    }

    /// Removes expired messages at the time `now`; then the oldest files until the store is
    /// within its limit.
    pub(super) fn retain(&self, now: i64, tidied: &mut Tidied) -> Result<(), TraceError> {
        let mut all = self.kept()?;
        let old: Vec<Kept> = all.extract_if(.., |one| self.has_expired(one, now)).collect();
        self.forget(&old, tidied)?;
        let open = files::info_at(self.dir.directory(), OPEN).map_or(0, |info| info.size);
        let budget = self.options.max_bytes.saturating_sub(open);
        let mut total: u64 = all.iter().map(|one| one.bytes).sum();
        let enough = |one: &&Kept| {
            let exceeds = total > budget;
            total -= one.bytes;
            exceeds
        };
        let oldest = all.iter().take_while(enough).count();
        self.forget(all.get(..oldest).unwrap_or_default(), tidied)
    }

    /// All full logs and segments, oldest first, including quarantined ones.
    fn kept(&self) -> Result<Vec<Kept>, TraceError> {
        Ok(names::list_all(&self.dir)?.into_iter().filter_map(|one| self.kept_one(one)).collect())
    }

    /// One of them; `None` if it is not a regular file.
    fn kept_one(&self, numbered: Numbered) -> Option<Kept> {
        let name = numbered.name();
        let info = files::info_at(self.dir.directory(), &name).ok()?;
        if info.kind != files::REGULAR {
            return None;
        }
        // For unreadable files, the time of the last write is used.
        let newest = info.modified;
        let mut kept = Kept { numbered, bytes: info.size, newest, messages: 0 };
        if numbered.kind == FileKind::Segment
            && let Ok(Some(Ok(segment))) = Segment::open(&self.dir, &self.key, &name)
        {
            let head = &segment.head;
            // A message may have a time in the future.
            kept.newest = head.times[1].min(info.modified);
            kept.messages = head.messages.into();
        }
        Some(kept)
    }

    fn forget(&self, old: &[Kept], tidied: &mut Tidied) -> Result<(), TraceError> {
        for one in old {
            self.remove(&one.numbered.name())?;
            tidied.forgotten += 1;
            tidied.messages += one.messages;
        }
        Ok(())
    }
}
