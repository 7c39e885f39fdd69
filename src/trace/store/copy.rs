//! Copying the store while it is in use.

use std::collections::{HashMap, HashSet};
use std::ffi::{CStr, CString};
use std::fs::File;
use std::path::{Path, PathBuf};

use crate::sys::files::{self, Access as FileAccess};
use crate::sys::secure_dir::SecureDir;

use super::error::Problem;
use super::key::{KEY, KEY_MODE};
use super::log::{Log, RECORDS};
use super::names::{self, Numbered, OPEN};
use super::options::SETTINGS;
use super::verify::Verified;
use super::{Access, FILE_MODE, LOCK_TIMEOUT, TraceError, TraceStore, trace_directory};

/// The size of the buffer.
const BUFFER: usize = 1 << 20;

/// The result of [`TraceStore::copy_to`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Copied {
    /// The directory of the copy.
    pub path: PathBuf,
    /// Number of files copied.
    pub files: u64,
    /// Their size in bytes.
    pub bytes: u64,
    /// The counts of [`TraceStore::verify`] for the copy.
    pub verified: Verified,
    /// The problems it found in the copy.
    pub problems: Vec<Problem>,
}

impl TraceStore {
    /// Copies the store to `exirate/trace` in `directory`, and verifies the
    /// copy. `directory` must exist and contain no trace store; it can then be
    /// used as a spool directory.
    ///
    /// The copy contains every message that was recorded before the call.
    /// Recording continues during the copy: segments and full logs never
    /// change, but are replaced by others, which are copied again. Recording
    /// waits only while the open log, which is small, is copied. Damaged files are copied as they are; files quarantined by
    /// [`TraceStore::repair`] are left out.
    ///
    /// `progress` is called with the number of bytes copied so far.
    ///
    /// # Errors
    /// There is a trace store already, or a file could not be read or written;
    /// the files copied so far remain.
    pub fn copy_to(
        &mut self,
        directory: &Path,
        progress: &mut dyn FnMut(u64),
    ) -> Result<Copied, TraceError> {
        self.after_fork()?;
        let path = trace_directory(directory);
        let target = SecureDir::open(directory, &[c"exirate", c"trace"], true)?;
        if !files::names(target.directory(), 1).map_err(target.failed("read", c"."))?.is_empty() {
            return Err(TraceError::Exists { path });
        }
        let mut copy = Copying { from: &self.dir, to: target, files: 0, bytes: 0, progress };
        copy.file(SETTINGS, FILE_MODE)?;
        let mut done = HashMap::new();
        loop {
            copy.numbered(&mut done)?;
            // No file gets a number while the directory is locked. But a full
            // log may become a segment, and a listing at that moment may
            // contain neither, so it is listed twice.
            let _guard = self.dir.lock_directory(LOCK_TIMEOUT)?;
            let mut left: HashSet<CString> = HashSet::new();
            for _ in 0..2 {
                left.extend(names::list(&self.dir)?.into_iter().map(Numbered::name));
            }
            if left.iter().all(|name| done.get(name) == Some(&copy.identity(name))) {
                copy.open_log(self)?;
                // What was sealed or merged meanwhile is in another file.
                done.keys().filter(|name| !left.contains(*name)).try_for_each(|n| copy.undo(n))?;
                break;
            }
        }
        // The key is copied last: a directory with a key is a store.
        copy.file(KEY, KEY_MODE)?;
        let Copying { files, bytes, .. } = copy;
        let mut problems = Vec::new();
        let verified = TraceStore::open(&path, Access::Read)?
            .verify(&mut |_, _| {}, &mut |problem| problems.push(problem))?;
        Ok(Copied { path, files, bytes, verified, problems })
    }
}

/// Device and inode; `None` if the file does not exist.
type Identity = Option<(u64, u64)>;

/// A copy in progress.
struct Copying<'a> {
    from: &'a SecureDir,
    to: SecureDir,
    files: u64,
    bytes: u64,
    progress: &'a mut dyn FnMut(u64),
}

impl Copying<'_> {
    /// Copies all full logs and segments that are not in `done`, or are other files than
    /// those.
    fn numbered(&mut self, done: &mut HashMap<CString, Identity>) -> Result<(), TraceError> {
        loop {
            let mut found = false;
            for numbered in names::list(self.from)? {
                let name = numbered.name();
                if done.get(&name) != Some(&self.identity(&name)) {
                    let copied = self.file(&name, FILE_MODE)?;
                    done.insert(name, copied);
                    found = true;
                }
            }
            if !found {
                return Ok(());
            }
        }
    }

    /// Copies the open log up to the end in its status. The directory is
    /// locked.
    fn open_log(&mut self, store: &TraceStore) -> Result<(), TraceError> {
        let end = match Log::open(self.from, &store.key, OPEN, FileAccess::Read)? {
            Some(Ok(log)) => log.status.map(|status| status.end.max(RECORDS as u64)),
            // A damaged log is copied completely.
            Some(Err(_)) => None,
            None => return Ok(()),
        };
        if let Some((file, info)) = self.from.open_file(FileAccess::Read, OPEN)? {
            self.bytes(OPEN, &file, end.unwrap_or(u64::MAX).min(info.size), FILE_MODE)?;
        }
        Ok(())
    }

    /// Identifies a file of the store.
    fn identity(&self, name: &CStr) -> Identity {
        files::info_at(self.from.directory(), name).ok().map(|info| info.identity)
    }

    /// Copies a whole file, if it exists; returns which one.
    fn file(&mut self, name: &CStr, mode: u32) -> Result<Identity, TraceError> {
        let Some((file, info)) = self.from.open_file(FileAccess::Read, name)? else {
            return Ok(None);
        };
        self.bytes(name, &file, info.size, mode)?;
        Ok(Some(info.identity))
    }

    /// Removes a file from the copy.
    fn undo(&self, name: &CStr) -> Result<(), TraceError> {
        let removed = files::remove_at(self.to.directory(), name);
        Ok(removed.map_err(self.to.failed("remove", name))?)
    }

    fn bytes(&mut self, name: &CStr, from: &File, size: u64, mode: u32) -> Result<(), TraceError> {
        let to = self.to.create_file(name, mode)?;
        let mut buffer = vec![0; BUFFER];
        let mut at = 0;
        while at < size {
            let want = usize::try_from(size - at).unwrap_or(BUFFER).min(BUFFER);
            let part = buffer.get_mut(..want).unwrap_or(&mut []);
            let read = files::read_at(from, at, part).map_err(self.from.failed("read", name))?;
            if read == 0 {
                break;
            }
            let part = part.get(..read).unwrap_or(&[]);
            files::write_at(&to, at, part).map_err(self.to.failed("write", name))?;
            at += read as u64;
            self.bytes += read as u64;
            (self.progress)(self.bytes);
        }
        files::sync(&to).map_err(self.to.failed("write", name))?;
        self.files += 1;
        Ok(())
    }
}
