//! The database's directory, and the file in it that holds its key.

use std::ffi::{CStr, CString};
use std::fs::File;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::sys::files::{self, Access};
use crate::sys::lock::{self, Guard, Kind};
use crate::sys::secure_dir::SecureDir;

use super::SpoolError;
use super::format::{VERSIONS, Versions};
use super::hashing::Hashing;
use super::sizes::MAX_BYTES_DEFAULT;

/// The database's directory in the spool directory.
const DIRECTORY: &CStr = c"exirate";
/// How often something that others change meanwhile is tried again.
pub(super) const ATTEMPTS: usize = 100;
/// Permissions of the files.
pub(super) const FILE_MODE: u32 = 0o640;
/// How many damaged files of one name are kept.
const ASIDE_MAX: u32 = 9;
/// How many incidents are kept for [`super::Spool::take_incidents`]: some for
/// each shard, should all be mended at once.
const INCIDENTS_MAX: usize = 1024;

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
    /// The version that the database is written in.
    pub(super) version: u32,
    /// The most bytes that all shards together should take.
    pub(super) max_bytes: u64,
    pub(super) incidents: Vec<String>,
}

impl Database {
    /// Opens the database's directory under `spool`, whatever is in it; makes
    /// it where it is not there and `writable`.
    pub(super) fn open_directory(
        spool: &Path,
        options: Options,
        writable: bool,
    ) -> Result<Self, SpoolError> {
        Ok(Self {
            dir: SecureDir::open(spool, &[DIRECTORY], writable)?,
            writable,
            options,
            hashing: Hashing::new([0; 16]),
            versions: VERSIONS,
            version: VERSIONS.newest,
            max_bytes: MAX_BYTES_DEFAULT,
            incidents: Vec::new(),
        })
    }

    /// Refuses to change a database that is open for reading only.
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

    /// The error that says that `name` is of a version that is not known.
    pub(super) fn unknown_version(&self, name: &CStr, found: u32) -> SpoolError {
        SpoolError::Version { path: self.path_of(name), found, known: self.versions.newest }
    }

    /// Opens a regular file of ours, for writing where the database is open
    /// for that; `None` where there is nothing of that name.
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

    /// Makes a new file, in the place of what is there.
    ///
    /// Only whoever has locked the directory may do this.
    pub(super) fn create_file(&self, name: &CStr) -> Result<File, SpoolError> {
        Ok(self.dir.create_file(name, FILE_MODE)?)
    }

    /// Locks the directory: whoever makes files in it does so alone. A shard's
    /// lock is always taken before this one.
    pub(super) fn lock_directory(&self) -> Result<Guard<'_>, SpoolError> {
        Ok(self.dir.lock_directory(self.options.timeout)?)
    }

    /// As [`Database::lock_directory`]; unless `patient`, `None` where another
    /// process has it locked.
    pub(super) fn lock_directory_if(&self, patient: bool) -> Result<Option<Guard<'_>>, SpoolError> {
        if patient {
            return self.lock_directory().map(Some);
        }
        lock::try_lock(self.dir.directory(), Kind::Exclusive)
            .map_err(SpoolError::io("lock", self.dir.path()))
    }

    /// Locks a file, or says that another process holds it for too long.
    pub(super) fn lock<'a>(
        &self,
        file: &'a File,
        kind: Kind,
        path: impl Fn() -> PathBuf,
    ) -> Result<Guard<'a>, SpoolError> {
        Ok(self.dir.lock(file, kind, self.options.timeout, path)?)
    }

    /// Keeps a copy of a damaged file under another name; its own name stays,
    /// for the new file to be renamed to.
    pub(super) fn keep_damaged(&self, name: &CStr) -> Result<CString, SpoolError> {
        let path = self.path_of(name);
        let failed = SpoolError::io("set aside", &path);
        let mut aside = CString::default();
        for number in 1..=ASIDE_MAX {
            aside = suffixed(name, &format!(".damaged-{number}"));
            match files::link_at(self.dir.directory(), name, &aside) {
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => return Err(failed(error)),
                Ok(()) => return Ok(aside),
            }
        }
        let replaced = files::remove_at(self.dir.directory(), &aside)
            .and_then(|()| files::link_at(self.dir.directory(), name, &aside));
        replaced.map_err(failed)?;
        Ok(aside)
    }

    /// Notes something that the administrator should know.
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

/// The name of shard `number` while it is being written.
pub(super) fn shard_name_new(number: u8) -> CString {
    suffixed(c"", &format!("{number:02x}.new"))
}

/// `name` with `suffix`, neither of which has a NUL in it.
fn suffixed(name: &CStr, suffix: &str) -> CString {
    CString::new([name.to_bytes(), suffix.as_bytes()].concat()).unwrap_or_default()
}
