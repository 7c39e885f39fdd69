//! Forgetting: by age, and by size, where folding comes first.

use crate::sys::files::{self, Access};
use crate::sys::secure_dir::DirError;

use super::super::decode;
use super::log::{Fault, Log};
use super::names::{self, Kind, Numbered, OPEN};
use super::options::Options;
use super::segment::Segment;
use super::{LOCK_TIMEOUT, TraceError, TraceStore};

/// What [`TraceStore::tidy`] has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tidied {
    /// Logs that were sealed.
    pub sealed: u64,
    /// Segments that were folded.
    pub folded: u64,
    /// Segments and logs that were forgotten.
    pub forgotten: u64,
    /// Messages in these, where that could be told.
    pub messages: u64,
}

/// A file, as far as matters here.
#[derive(Clone, Copy, Debug)]
struct Kept {
    numbered: Numbered,
    bytes: u64,
    /// When its last message passed, as far as is known.
    newest: i64,
    messages: u64,
    /// How often it was folded; `None` where it cannot be.
    folds: Option<u16>,
}

impl TraceStore {
    /// Seals what is left to be sealed, removes what killed processes have
    /// left, and forgets what is to be forgotten by `now`, in seconds since
    /// 1970.
    ///
    /// All of this is done by recording as well: it matters where nothing is
    /// recorded any more.
    ///
    /// # Errors
    /// The store cannot be used, or another process is at it for longer than
    /// this one waits.
    pub fn tidy(&mut self, now: i64) -> Result<Tidied, TraceError> {
        self.require_writable()?;
        self.after_fork()?;
        // They may have been chosen anew since the store was opened.
        self.options = Options::read(&self.dir)?;
        self.tidy_as_chosen(now)
    }

    pub(super) fn tidy_as_chosen(&mut self, now: i64) -> Result<Tidied, TraceError> {
        self.rotate_old(now)?;
        self.sealing(LOCK_TIMEOUT, |trace| {
            let mut tidied = Tidied::default();
            trace.remove_unfinished()?;
            // A disk without room for a segment may have some afterwards.
            let sealed = trace.seal_full(usize::MAX);
            trace.retain(now, usize::MAX, &mut tidied)?;
            tidied.sealed = sealed?;
            Ok(tidied)
        })
    }

    /// Gives the open log its number where no more should be appended to it.
    fn rotate_old(&self, now: i64) -> Result<(), TraceError> {
        let _guard = self.dir.lock_directory(LOCK_TIMEOUT)?;
        let full = match Log::open(&self.dir, &self.key, OPEN, Access::Read)? {
            None => false,
            // What a later version makes is left to it.
            Some(Err(Fault::Version(_))) => false,
            Some(Ok(log)) if log.head.decode > decode::VERSION => false,
            Some(Ok(log)) => log.status.is_none_or(|status| !self.has_room(&log, status, now)),
            Some(Err(Fault::Damaged | Fault::OtherKey)) => true,
        };
        if full { self.rotate() } else { Ok(()) }
    }

    /// Forgets what is too old by `now`; then folds and forgets until the store
    /// is as small as it should be, folding `folds` segments at the most.
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
        let open = files::info_at(self.dir.directory(), OPEN).map_or(0, |facts| facts.size);
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
                    // A full disk has no room for a smaller one beside it: then
                    // the oldest go.
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

    /// All full logs and segments, oldest first, and those that are quarantined.
    fn kept(&self) -> Result<Vec<Kept>, TraceError> {
        let mut all = Vec::new();
        for numbered in names::list_all(&self.dir)? {
            let name = numbered.name();
            let Ok(facts) = files::info_at(self.dir.directory(), &name) else { continue };
            if facts.kind != files::REGULAR {
                continue;
            }
            // Of what cannot be read, it is known when it was written.
            let newest = facts.modified;
            let mut kept = Kept { numbered, bytes: facts.size, newest, messages: 0, folds: None };
            if numbered.kind == Kind::Segment
                && let Ok(Some(Ok(segment))) = Segment::open(&self.dir, &self.key, &name)
            {
                let head = &segment.head;
                // A message may have come with a time that has not come yet.
                kept.newest = head.times[1].min(facts.modified);
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

    /// Folds a segment; its size then, or `None` where it cannot be smaller, or
    /// is damaged.
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
