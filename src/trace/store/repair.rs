//! Repairing what [`TraceStore::verify`] finds.

use std::ffi::CStr;

use crate::sys::files::{self, Access};
use crate::sys::secure_dir::DirError;

use super::access::{FILES_NEW, files_of};
use super::error::Problem;
use super::key::{KEY, KEY_MODE, KEY_NEW, KeyFile};
use super::log::{Log, LogFault};
use super::mirrored::{self, MirroredCopy};
use super::names::{self, FileKind, Numbered, OPEN};
use super::options::{Options, OptionsFile, SETTINGS, SETTINGS_NEW};
use super::segment::Segment;
use super::{FILE_MODE, LOCK_TIMEOUT, TraceError, TraceStore, decode};

/// The result of [`TraceStore::repair`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Repaired {
    /// What was wrong with which file, and how it was repaired.
    pub done: Vec<Problem>,
    /// Problems that remain.
    pub left: Vec<Problem>,
}

impl TraceStore {
    /// Repairs what can be repaired:
    ///
    /// - the owner and mode of the directory and its files
    /// - a key or settings with one damaged copy, and settings with two
    /// - a damaged log: its sound messages are sealed
    /// - a segment in which only copies of heads or tables are damaged
    /// - logs and segments that cannot be read are quarantined
    /// - files that killed processes left incomplete are removed, and logs they
    ///   left are sealed
    ///
    /// A segment that has lost a part does not change: the rest of it can be
    /// queried, and it expires as usual. `progress` is that of
    /// [`TraceStore::verify`], which checks the store afterwards.
    ///
    /// # Errors
    /// The store cannot be used, or another process holds its locks for too
    /// long. A key with two damaged copies cannot be repaired; such a store
    /// cannot be opened.
    /// cannot even be opened.
    pub fn repair(&mut self, progress: &mut dyn FnMut(u64, u64)) -> Result<Repaired, TraceError> {
        self.require_writable()?;
        self.after_fork()?;
        let mut done = Vec::new();
        self.repair_access(&mut done);
        let known = self.incidents.len();
        self.sealing(LOCK_TIMEOUT, |trace| {
            {
                let _guard = trace.dir.lock_directory(LOCK_TIMEOUT)?;
                trace.repair_small_files(&mut done)?;
                trace.rotate_damaged(&mut done)?;
                for name in FILES_NEW {
                    trace.remove_left(name, &mut done)?;
                }
            }
            trace.key_file = super::key::identity(&trace.dir);
            trace.options = Options::read(&trace.dir)?;
            trace.remove_replaced(usize::MAX)?;
            trace.seal_full(usize::MAX)?;
            for numbered in names::list(&trace.dir)? {
                trace.repair_numbered(numbered, &mut done)?;
            }
            Ok(())
        })?;
        let incidents = self.incidents.split_off(known.min(self.incidents.len()));
        let path = self.directory().to_path_buf();
        done.extend(incidents.into_iter().map(|what| Problem { path: path.clone(), what }));
        let mut left = Vec::new();
        self.verify(progress, &mut |problem| left.push(problem))?;
        Ok(Repaired { done, left })
    }

    fn note_repair(&self, done: &mut Vec<Problem>, name: &CStr, what: impl Into<String>) {
        done.push(Problem { path: self.dir.path_of(name), what: what.into() });
    }

    /// Corrects owners and modes. Those that cannot be corrected are reported
    /// by `verify`.
    fn repair_access(&self, done: &mut Vec<Problem>) {
        if let Some(fault) = self.dir.directory_fault()
            && self.dir.adopt_directory().is_ok()
        {
            self.note_repair(done, c".", format!("{fault}; this has been corrected"));
        }
        for (name, mode) in files_of(&self.dir).unwrap_or_default() {
            if let Some(fault) = self.access_fault(&name, mode)
                && self.dir.adopt_file(&name, mode).is_ok()
            {
                self.note_repair(done, &name, format!("{fault}; this has been corrected"));
            }
        }
    }

    /// Rewrites the key and the settings if one of their copies is damaged. The
    /// directory is locked.
    fn repair_small_files(&self, done: &mut Vec<Problem>) -> Result<(), TraceError> {
        if let MirroredCopy::Sound(key, false) = mirrored::read::<KeyFile>(&self.dir, KEY)? {
            mirrored::write(&self.dir, KEY, KEY_NEW, KEY_MODE, &key)?;
            self.note_repair(done, KEY, "one of its two copies was damaged; it was rewritten");
        }
        let (options, what) = match mirrored::read::<OptionsFile>(&self.dir, SETTINGS)? {
            MirroredCopy::Sound(file, false) => {
                (file, "one of its two copies was damaged; it was rewritten")
            }
            MirroredCopy::Damaged => (
                Options::when_damaged().to_file(self.key.version),
                "both of its copies were damaged; the defaults were written, but messages are \
                 kept forever: set trace.keep and trace.max_size again with `exirate config set`",
            ),
            MirroredCopy::Sound(_, true) | MirroredCopy::Nothing => return Ok(()),
        };
        mirrored::write(&self.dir, SETTINGS, SETTINGS_NEW, FILE_MODE, &options)?;
        self.note_repair(done, SETTINGS, what);
        Ok(())
    }

    /// Renames a damaged open log to a number, so that it is sealed. The
    /// directory is locked.
    fn rotate_damaged(&self, done: &mut Vec<Problem>) -> Result<(), TraceError> {
        let damaged = match Log::open(&self.dir, &self.key, OPEN, Access::Read)? {
            None | Some(Err(LogFault::Version(_) | LogFault::OtherKey)) => false,
            Some(Err(LogFault::Damaged)) => true,
            Some(Ok(log)) if log.head.decode > decode::VERSION => false,
            Some(Ok(log)) => {
                let bytes = log.read().map_err(self.dir.failed("read", OPEN))?;
                !log.whole || log.damage(&log.records(bytes, &self.key)).is_some()
            }
        };
        if damaged {
            self.note_repair(
                done,
                OPEN,
                "it was damaged; it was closed to be sealed, and a new log is started",
            );
            self.rotate()?;
        }
        Ok(())
    }

    /// Removes a file that a killed process left incomplete.
    fn remove_left(&self, name: &CStr, done: &mut Vec<Problem>) -> Result<(), TraceError> {
        if files::info_at(self.dir.directory(), name).is_ok() {
            self.remove(name)?;
            self.note_repair(done, name, "a killed process left it incomplete; it was removed");
        }
        Ok(())
    }

    /// Repairs a full log or a segment, or quarantines it. The lock on
    /// `sealing` is held.
    fn repair_numbered(
        &self,
        numbered: Numbered,
        done: &mut Vec<Problem>,
    ) -> Result<(), TraceError> {
        let name = numbered.name();
        let (damaged, kind) = match numbered.kind {
            FileKind::Segment => match Segment::open(&self.dir, &self.key, &name) {
                Ok(Some(Ok(segment))) => {
                    if !segment.is_sound()
                        && let Some(bytes) = segment.restored(&self.key)
                    {
                        self.write_segment(&bytes, &name)?;
                        let what = "copies in it were damaged; it was rewritten from the others";
                        self.note_repair(done, &name, what);
                    }
                    return Ok(());
                }
                opened => (is_damaged(opened), FileKind::QuarantinedSegment),
            },
            _ => {
                let opened = Log::open(&self.dir, &self.key, &name, Access::Read);
                (is_damaged(opened), FileKind::QuarantinedLog)
            }
        };
        if damaged {
            let to = Numbered { kind, ..numbered }.name();
            files::rename_at(self.dir.directory(), &name, &to)
                .map_err(self.dir.failed("rename", &name))?;
            let to = self.dir.path_of(&to);
            let what = format!(
                "both copies of its head are damaged; it was renamed to {}, which is removed when \
                 it is older than messages are kept",
                to.display()
            );
            self.note_repair(done, &name, what);
        }
        Ok(())
    }
}

/// Whether a file could be opened but not read.
fn is_damaged<T>(opened: Result<Option<Result<T, LogFault>>, DirError>) -> bool {
    matches!(opened, Ok(Some(Err(LogFault::Damaged))))
}
