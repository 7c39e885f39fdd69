//! Copying the store while it is in use.

use std::collections::HashSet;
use std::ffi::{CStr, CString};
use std::fs::File;
use std::path::{Path, PathBuf};

use crate::sys::files::{self, Access as FileAccess};
use crate::sys::secure_dir::SecureDir;

use super::error::Problem;
use super::key::{KEY, KEY_MODE};
use super::log::{Log, RECORDS};
use super::names::{self, OPEN};
use super::options::SETTINGS;
use super::verify::Verified;
use super::{Access, FILE_MODE, LOCK_TIMEOUT, TraceError, TraceStore, trace_directory};

/// How much is read at once.
const BUFFER: usize = 1 << 20;

/// What [`TraceStore::copy_to`] has copied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Copied {
    /// The directory of the copy.
    pub path: PathBuf,
    /// Files that were copied.
    pub files: u64,
    /// Bytes of these files.
    pub bytes: u64,
    /// What [`TraceStore::verify`] counted in the copy.
    pub verified: Verified,
    /// What it found wrong with the copy.
    pub problems: Vec<Problem>,
}

impl TraceStore {
    /// Copies the store into `directory`, to `exirate/trace` in it, and verifies
    /// the copy. `directory` must exist and hold no trace store yet; it can then be
    /// used as a spool directory.
    ///
    /// The copy has every message that was recorded before the call. Recording
    /// goes on meanwhile: segments and full logs never change, and only while the
    /// open log is copied, which is small, does recording wait. Files that were
    /// damaged are copied as they are; those that [`TraceStore::repair`] has
    /// quarantined are left out.
    ///
    /// `progress` is called with the number of bytes that have been copied.
    ///
    /// # Errors
    /// There is a trace store already, or something could not be read or written;
    /// what has been copied stays.
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
        let mut done = HashSet::new();
        loop {
            copy.numbered(&mut done)?;
            // Nothing gets a number while the directory is locked, but a full log
            // may become a segment, and a listing may show neither: it is
            // listed twice.
            let _guard = self.dir.lock_directory(LOCK_TIMEOUT)?;
            let mut left = names::list(&self.dir)?;
            left.extend(names::list(&self.dir)?);
            if left.iter().all(|numbered| done.contains(&numbered.name())) {
                copy.open_log(self)?;
                break;
            }
        }
        // Only now: what has a key is a store.
        copy.file(KEY, KEY_MODE)?;
        let Copying { files, bytes, .. } = copy;
        let mut problems = Vec::new();
        let verified = TraceStore::open(&path, Access::Read)?
            .verify(&mut |_, _| {}, &mut |problem| problems.push(problem))?;
        Ok(Copied { path, files, bytes, verified, problems })
    }
}

/// A copy being made.
struct Copying<'a> {
    from: &'a SecureDir,
    to: SecureDir,
    files: u64,
    bytes: u64,
    progress: &'a mut dyn FnMut(u64),
}

impl Copying<'_> {
    /// Copies all full logs and segments but those that are `done`.
    fn numbered(&mut self, done: &mut HashSet<CString>) -> Result<(), TraceError> {
        loop {
            let mut found = false;
            for numbered in names::list(self.from)? {
                let name = numbered.name();
                if done.insert(name.clone()) {
                    self.file(&name, FILE_MODE)?;
                    found = true;
                }
            }
            if !found {
                return Ok(());
            }
        }
    }

    /// Copies the open log as far as its status says. The directory is locked.
    fn open_log(&mut self, store: &TraceStore) -> Result<(), TraceError> {
        let end = match Log::open(self.from, &store.key, OPEN, FileAccess::Read)? {
            Some(Ok(log)) => log.status.map(|status| status.end.max(RECORDS as u64)),
            // As it is, to the last byte.
            Some(Err(_)) => None,
            None => return Ok(()),
        };
        if let Some((file, facts)) = self.from.open_file(FileAccess::Read, OPEN)? {
            self.bytes(OPEN, &file, end.unwrap_or(u64::MAX).min(facts.size), FILE_MODE)?;
        }
        Ok(())
    }

    /// Copies a file whole, if it is there.
    fn file(&mut self, name: &CStr, mode: u32) -> Result<(), TraceError> {
        match self.from.open_file(FileAccess::Read, name)? {
            Some((file, facts)) => self.bytes(name, &file, facts.size, mode),
            None => Ok(()),
        }
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
