//! Removing messages by age and by size; before removal, segments are folded.

use crate::sys::files::{self, Access};
use crate::sys::secure_dir::DirError;

use super::super::decode;
use super::log::{Fault, Log};
use super::merge::Merging;
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
            trace.retain(now, usize::MAX, &mut tidied)?;
            tidied.sealed = sealed?;
            Ok(tidied)
        })
    }

    /// Renames the open log to its number, unless it is of a later version, which is left to
    /// that version.
    fn rotate_own(&self) -> Result<(), TraceError> {
        let _guard = self.dir.lock_directory(LOCK_TIMEOUT)?;
        match Log::open(&self.dir, &self.key, OPEN, Access::Read)? {
            None | Some(Err(Fault::Version(_))) => Ok(()),
            Some(Ok(log)) if log.head.decode > decode::VERSION => Ok(()),
            Some(Ok(_) | Err(Fault::Damaged | Fault::OtherKey)) => self.rotate(),
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
        let old: Vec<Kept> = all.extract_if(.., |one| self.has_expired(one, now)).collect();
        self.forget(&old, tidied)?;
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
