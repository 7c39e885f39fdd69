//! The database's directory, and the files in it.

use std::ffi::{CStr, CString};
use std::fs::File;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::sys::files::{self, Access};
use crate::sys::lock::{self, Guard, LockKind};
use crate::sys::mapping::Mapping;
use crate::sys::secure_dir::{DirError, SecureDir};
use crate::versions::{OtherVersion, Versions};

use super::SpoolError;
use super::format::VERSIONS;
use super::hashing::Hashing;
use super::sizes::MAX_BYTES_DEFAULT;

/// The database's directory in the spool directory.
pub(super) const DIRECTORY: &CStr = c"exirate";
/// How often an action is repeated that another process's change has made useless.
pub(super) const ATTEMPTS: usize = 100;
/// Permissions of the files.
pub const FILE_MODE: u32 = 0o640;
/// How many damaged files of one name are kept.
const QUARANTINED_MAX: u32 = 9;
/// How many incidents are kept for [`super::Spool::take_incidents`]: several for each
/// shard, if all are repaired at once.
const INCIDENTS_MAX: usize = 1024;

/// Opens the directory of the database under `spool`, whatever it contains; creates it if
/// it is missing and `create`.
///
/// # Errors
/// Those of [`SecureDir::open`].
pub fn open_directory(spool: &Path, create: bool) -> Result<SecureDir, DirError> {
    SecureDir::open(spool, &[DIRECTORY], create)
}

/// The file `database`, mapped for its word.
#[derive(Debug)]
pub(super) struct DatabaseWord {
    pub(super) map: Mapping,
    /// Its device and inode.
    pub(super) identity: (u64, u64),
}

/// How the database is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// How long to wait for another process's lock before giving up.
    pub timeout: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self { timeout: Duration::from_secs(5) }
    }
}

/// An open database: everything but its shards.
#[derive(Debug)]
pub(super) struct Database {
    /// Its directory.
    pub(super) dir: SecureDir,
    pub(super) writable: bool,
    pub(super) options: Options,
    pub(super) hashing: Hashing,
    /// The versions of the format that this library knows.
    pub(super) versions: Versions,
    /// The format version of this database.
    pub(super) version: u32,
    /// The size limit of all shards together, in bytes.
    pub(super) max_bytes: u64,
    pub(super) incidents: Vec<String>,
    /// The file `database`, mapped for its word.
    pub(super) word: Option<DatabaseWord>,
}

impl Database {
    /// Opens the database's directory under `spool`, whatever it contains; creates it if
    /// it is missing and `writable`.
    pub(super) fn open_directory(
        spool: &Path,
        options: Options,
        writable: bool,
    ) -> Result<Self, SpoolError> {
        Ok(Self {
            dir: open_directory(spool, writable)?,
            writable,
            options,
            hashing: Hashing::new([0; 16]),
            versions: VERSIONS,
            version: VERSIONS.newest,
            max_bytes: MAX_BYTES_DEFAULT,
            incidents: Vec::new(),
            word: None,
        })
    }

    /// An error if the database is open for reading only.
    #[inline]
    pub(super) fn require_writable(&self) -> Result<(), SpoolError> {
        if self.writable {
            Ok(())
        } else {
            Err(SpoolError::ReadOnly { path: self.dir.path().to_path_buf() })
        }
    }

    /// The path of a file here, for messages.
    pub(super) fn path_of(&self, name: &CStr) -> PathBuf {
        self.dir.path_of(name)
    }

    /// The error for a file `name` of an unknown version.
    pub(super) fn unknown_version(&self, name: &CStr, found: u32) -> SpoolError {
        let version = OtherVersion { found, known: self.versions };
        SpoolError::Version { path: self.path_of(name), version }
    }

    /// Opens a regular file in the directory, for writing if the database is open for
    /// writing; `None` if there is no such file.
    pub(super) fn open_file(
        &self,
        name: &CStr,
    ) -> Result<Option<(File, files::FileInfo)>, SpoolError> {
        self.open_for(if self.writable { Access::Write } else { Access::Read }, name)
    }

    /// As [`Database::open_file`], for `access`.
    pub(super) fn open_for(
        &self,
        access: Access,
        name: &CStr,
    ) -> Result<Option<(File, files::FileInfo)>, SpoolError> {
        Ok(self.dir.open_file(access, name)?)
    }

    /// Creates a new file, and replaces an existing one. The caller has locked the
    /// directory.
    pub(super) fn create_file(&self, name: &CStr) -> Result<File, SpoolError> {
        Ok(self.dir.create_file(name, FILE_MODE)?)
    }

    /// Locks the directory, so that one process at a time creates files. A shard's lock
    /// is always taken before this one.
    pub(super) fn lock_directory(&self) -> Result<Guard<'_>, SpoolError> {
        Ok(self.dir.lock_directory(self.options.timeout)?)
    }

    /// As [`Database::lock_directory`]; unless `waits`, `None` if another process has
    /// it locked.
    pub(super) fn lock_directory_if(&self, waits: bool) -> Result<Option<Guard<'_>>, SpoolError> {
        if waits {
            return self.lock_directory().map(Some);
        }
        lock::try_lock(self.dir.directory(), LockKind::Exclusive)
            .map_err(SpoolError::io("lock", self.dir.path()))
    }

    /// Locks a file. An error if another process holds the lock for too long.
    pub(super) fn lock<'a>(
        &self,
        file: &'a File,
        kind: LockKind,
        path: impl Fn() -> PathBuf,
    ) -> Result<Guard<'a>, SpoolError> {
        Ok(self.dir.lock(file, kind, self.options.timeout, path)?)
    }

    /// Gives a damaged file another name in addition, so that it is kept when a new file
    /// is renamed over the old name.
    pub(super) fn keep_damaged(&self, name: &CStr) -> Result<CString, SpoolError> {
        let path = self.path_of(name);
        let failed = SpoolError::io("keep a copy of", &path);
        let mut kept = CString::default();
        for number in 1..=QUARANTINED_MAX {
            kept = suffixed(name, &format!(".damaged-{number}"));
            match files::link_at(self.dir.directory(), name, &kept) {
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => return Err(failed(error)),
                Ok(()) => return Ok(kept),
            }
        }
        let replaced = files::remove_at(self.dir.directory(), &kept)
            .and_then(|()| files::link_at(self.dir.directory(), name, &kept));
        replaced.map_err(failed)?;
        Ok(kept)
    }

    /// Records an incident that the administrator should know of.
    pub(super) fn report(&mut self, incident: String) {
        if self.incidents.len() < INCIDENTS_MAX {
            self.incidents.push(incident);
        }
    }
}

/// The name of shard `number`: `3f.shard`.
pub(super) fn shard_name(number: u8) -> CString {
    suffixed(c"", &format!("{number:02x}.shard"))
}

/// The name of shard `number` while it is written.
pub(super) fn shard_name_new(number: u8) -> CString {
    suffixed(c"", &format!("{number:02x}.new"))
}

/// `name` with `suffix`; neither contains a NUL.
fn suffixed(name: &CStr, suffix: &str) -> CString {
    CString::new([name.to_bytes(), suffix.as_bytes()].concat()).unwrap_or_default()
}
