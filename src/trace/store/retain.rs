//! Removing messages by age and by size; before removal, segments are folded.

use crate::sys::files::{self, Access};
use crate::sys::secure_dir::DirError;

use super::super::decode;
use super::log::{Fault, Log};
use super::names::{self, Kind, Numbered, OPEN};
use super::options::Options;
use super::segment::Segment;
use super::{LOCK_TIMEOUT, TraceError, TraceStore};

/// The result of [`TraceStore::tidy`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tidied {
    /// Logs that were sealed.
    pub sealed: u64,
    /// Segments that were folded.
    pub folded: u64,
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
    /// How often it was folded; `None` if it cannot be folded.
    folds: Option<u16>,
}

impl TraceStore {
    /// Seals full logs, removes files that killed processes left, and removes
    /// expired messages. `now` is in seconds since 1970.
    ///
    /// Recording does the same; this is for stores in which nothing is
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
        self.rotate_old(now)?;
        self.sealing(LOCK_TIMEOUT, |trace| {
            let mut tidied = Tidied::default();
            trace.remove_unfinished()?;
            // A full disk may have room for a segment afterwards.
            let sealed = trace.seal_full(usize::MAX);
            trace.retain(now, usize::MAX, &mut tidied)?;
            tidied.sealed = sealed?;
            Ok(tidied)
        })
    }

    /// Renames the open log to its number if nothing more should be appended to
    /// it.
    fn rotate_old(&self, now: i64) -> Result<(), TraceError> {
        let _guard = self.dir.lock_directory(LOCK_TIMEOUT)?;
        let full = match Log::open(&self.dir, &self.key, OPEN, Access::Read)? {
            None => false,
            // The log of a later version is left to that version.
            Some(Err(Fault::Version(_))) => false,
            Some(Ok(log)) if log.head.decode > decode::VERSION => false,
            Some(Ok(log)) => log.status.is_none_or(|status| !self.has_room(&log, status, now)),
            Some(Err(Fault::Damaged | Fault::OtherKey)) => true,
        };
        if full { self.rotate() } else { Ok(()) }
    }

    /// Removes expired messages at the time `now`; then folds and removes
    /// segments until the store is within its limit, folding at most `folds`
    /// segments.
    pub(super) fn retain(
        &mut self,
        now: i64,
        mut folds: usize,
        tidied: &mut Tidied,
    ) -> Result<(), TraceError> {
        let mut all = self.kept()?;
        if let Some(keep) = self.options.keep {
            let oldest = now.saturating_sub_unsigned(keep);
            let (old, rest) = all.into_iter().partition(|one| one.newest < oldest);
            all = rest;
            self.forget(&old, tidied)?;
        }
        let open = files::info_at(self.dir.directory(), OPEN).map_or(0, |info| info.size);
        let budget = self.options.max_bytes.saturating_sub(open);
        loop {
            let total: u64 = all.iter().map(|one| one.bytes).sum();
            if total <= budget {
                return Ok(());
            }
            let folded = all.iter().filter(|one| one.folds.is_some_and(|folds| folds > 0));
            let folded: u64 = folded.map(|one| one.bytes).sum();
            let may_fold = folded < self.options.max_bytes / 2;
            if let Some(one) = all.iter_mut().find(|one| may_fold && one.folds == Some(0)) {
                let Some(left) = folds.checked_sub(1) else { return Ok(()) };
                folds = left;
                match self.fold(one.numbered) {
                    Ok(Some(bytes)) => {
                        tidied.folded += 1;
                        (one.bytes, one.folds) = (bytes, Some(1));
                    }
                    Ok(None) => one.folds = None,
                    // A full disk has no room for the smaller file: then the
                    // oldest are removed.
                    Err(error @ TraceError::Directory(DirError::Io { .. })) => {
                        self.report(error.to_string());
                        one.folds = None;
                    }
                    Err(error) => return Err(error),
                }
            } else if all.is_empty() {
                return Ok(());
            } else {
                self.forget(&[all.remove(0)], tidied)?;
            }
        }
    }

    /// All full logs and segments, oldest first, including quarantined ones.
    fn kept(&self) -> Result<Vec<Kept>, TraceError> {
        let mut all = Vec::new();
        for numbered in names::list_all(&self.dir)? {
            let name = numbered.name();
            let Ok(info) = files::info_at(self.dir.directory(), &name) else { continue };
            if info.kind != files::REGULAR {
                continue;
            }
            // For unreadable files, the time of the last write is used.
            let newest = info.modified;
            let mut kept = Kept { numbered, bytes: info.size, newest, messages: 0, folds: None };
            if numbered.kind == Kind::Segment
                && let Ok(Some(Ok(segment))) = Segment::open(&self.dir, &self.key, &name)
            {
                let head = &segment.head;
                // A message may have a time in the future.
                kept.newest = head.times[1].min(info.modified);
                kept.messages = head.messages.into();
                kept.folds = Some(head.folds);
            }
            all.push(kept);
        }
        Ok(all)
    }

    fn forget(&self, old: &[Kept], tidied: &mut Tidied) -> Result<(), TraceError> {
        for one in old {
            self.remove(&one.numbered.name())?;
            tidied.forgotten += 1;
            tidied.messages += one.messages;
        }
        Ok(())
    }

    /// Folds a segment; returns its new size, or `None` if it cannot be
    /// smaller, or is damaged.
    fn fold(&self, numbered: Numbered) -> Result<Option<u64>, TraceError> {
        let name = numbered.name();
        let Some(Ok(segment)) = Segment::open(&self.dir, &self.key, &name)? else {
            return Ok(None);
        };
        let scheme = segment.settings.scheme(&self.key.digest);
        let Some(bytes) = segment.fold(scheme.as_ref(), &self.key)? else { return Ok(None) };
        self.write_segment(&bytes, &name)?;
        Ok(Some(bytes.len() as u64))
    }
}
