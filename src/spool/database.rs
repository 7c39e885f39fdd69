//! The database's directory, and the file in it that holds its key.

use std::ffi::{CStr, CString};
use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::sys::files::{self, Access};
use crate::sys::holder::holder;
use crate::sys::lock::{self, Guard, Kind};

use super::bound::MAX_BYTES_DEFAULT;
use super::directory::{check_directory, make_directory};
use super::format::{Fault, Identity, VERSION};
use super::hashing::Hashing;
use super::identity::DATABASE;
use super::{Options, SpoolError};

/// How often something that others change meanwhile is tried again.
pub(super) const ATTEMPTS: usize = 100;
/// Permissions of the files.
const FILE_MODE: u32 = 0o640;
/// How many damaged files of one name are kept.
const ASIDE_MAX: u32 = 9;
/// How many incidents are kept for [`super::Spool::take_incidents`]: some for
/// each shard, should all be mended at once.
const INCIDENTS_MAX: usize = 1024;

/// An open database: everything but its shards.
#[derive(Debug)]
pub(super) struct Database {
    pub(super) directory: File,
    /// The directory's path, for messages.
    pub(super) path: PathBuf,
    /// Owner and group of everything here: those of the spool directory.
    owner: (u32, u32),
    /// The directory's own owner, who may own files here as well.
    directory_owner: u32,
    pub(super) writable: bool,
    pub(super) options: Options,
    pub(super) hashing: Hashing,
    /// The most bytes that all shards together should take.
    pub(super) max_bytes: u64,
    pub(super) incidents: Vec<String>,
}

impl Database {
    /// Opens the database under `spool`; makes it where it is not there and
    /// `writable`.
    pub(super) fn open(spool: &Path, options: Options, writable: bool) -> Result<Self, SpoolError> {
        let mut database = Self::open_directory(spool, options, writable)?;
        let identity = match database.read_identity()? {
            Ok(identity) => identity,
            Err(Fault::Version(found)) => return Err(database.version(DATABASE, found)),
            Err(Fault::Damaged) => database.settle_identity()?,
        };
        database.take_identity(&identity);
        Ok(database)
    }

    /// Opens the database's directory under `spool`, whatever is in it; makes
    /// it where it is not there and `writable`.
    pub(super) fn open_directory(
        spool: &Path,
        options: Options,
        writable: bool,
    ) -> Result<Self, SpoolError> {
        let path = spool.join("exirate");
        let spool_facts = files::facts_of(spool).map_err(SpoolError::io("open", spool))?;
        let owner = (spool_facts.uid, spool_facts.gid);
        let directory = match files::open_real_directory(&path) {
            Ok(directory) => directory,
            Err(error) if error.kind() == ErrorKind::NotFound && writable => {
                make_directory(spool, &path, owner)?
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {
                return Err(SpoolError::Absent { path });
            }
            Err(error) => {
                if let Ok(found) = std::fs::symlink_metadata(&path)
                    && !found.is_dir()
                {
                    let found = if found.is_symlink() { "symbolic link" } else { "file" };
                    return Err(SpoolError::WrongKind { path, found, wanted: files::DIRECTORY });
                }
                return Err(SpoolError::io("open", &path)(error));
            }
        };
        let directory_owner = check_directory(&directory, &path, owner.0)?;
        Ok(Self {
            directory,
            path,
            owner,
            directory_owner,
            writable,
            options,
            hashing: Hashing::new([0; 16]),
            max_bytes: MAX_BYTES_DEFAULT,
            incidents: Vec::new(),
        })
    }

    /// Goes on as the database that `identity` says it is.
    pub(super) fn take_identity(&mut self, identity: &Identity) {
        self.hashing = Hashing::new(identity.key);
        self.max_bytes = identity.max_bytes;
    }

    /// The path of a file here, for messages.
    pub(super) fn path_of(&self, name: &CStr) -> PathBuf {
        self.path.join(std::ffi::OsStr::from_bytes(name.to_bytes()))
    }

    /// The error that says that a later version has written `name`.
    pub(super) fn version(&self, name: &CStr, found: u32) -> SpoolError {
        SpoolError::Version { path: self.path_of(name), found, known: VERSION }
    }

    /// Opens a regular file of ours, for writing where the database is open
    /// for that; `None` where there is nothing of that name.
    pub(super) fn open_file(
        &self,
        name: &CStr,
    ) -> Result<Option<(File, files::Facts)>, SpoolError> {
        self.open_for(if self.writable { Access::Write } else { Access::Read }, name)
    }

    /// As [`Database::open_file`], for `access`.
    pub(super) fn open_for(
        &self,
        access: Access,
        name: &CStr,
    ) -> Result<Option<(File, files::Facts)>, SpoolError> {
        let file = match files::open_at(&self.directory, name, access) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => {
                if let Ok(facts) = files::facts_at(&self.directory, name) {
                    self.regular(name, &facts)?;
                }
                return Err(SpoolError::io("open", &self.path_of(name))(error));
            }
        };
        let facts = files::facts(&file).map_err(SpoolError::io("open", &self.path_of(name)))?;
        self.regular(name, &facts)?;
        self.owned(name, &facts)?;
        Ok(Some((file, facts)))
    }

    /// Refuses what is no regular file.
    pub(super) fn regular(&self, name: &CStr, facts: &files::Facts) -> Result<(), SpoolError> {
        if facts.kind == files::REGULAR {
            return Ok(());
        }
        let path = self.path_of(name);
        Err(SpoolError::WrongKind { path, found: facts.kind, wanted: files::REGULAR })
    }

    /// Refuses a file of a stranger: one that was linked or moved here, or that
    /// somebody who should not be able to has made.
    fn owned(&self, name: &CStr, facts: &files::Facts) -> Result<(), SpoolError> {
        let process = rustix::process::geteuid().as_raw();
        // Whoever owns the directory may have linked a file of root's here, which
        // root could write to and must not. What root makes is given away at once.
        let linked = facts.uid == 0 && self.directory_owner != 0 && facts.links > 1;
        let fault = if linked {
            "it belongs to root and has another name elsewhere: remove it here".to_owned()
        } else if [self.directory_owner, 0, process].contains(&facts.uid) {
            return Ok(());
        } else {
            format!(
                "it belongs to user {}: it should belong to the owner of its directory, user {}; \
                 remove it, or give it to that user",
                facts.uid, self.directory_owner
            )
        };
        Err(SpoolError::Unsafe { path: self.path_of(name), fault })
    }

    /// Makes a new file, in the place of what is there.
    ///
    /// Only whoever has locked the directory may do this.
    pub(super) fn create_file(&self, name: &CStr) -> Result<File, SpoolError> {
        let made = files::remove_at(&self.directory, name)
            .and_then(|()| files::open_at(&self.directory, name, Access::Create))
            .and_then(|file| {
                files::adopt(&file, self.owner.0, self.owner.1, FILE_MODE)?;
                Ok(file)
            });
        made.map_err(SpoolError::io("create", &self.path_of(name)))
    }

    /// Locks the directory: whoever makes files in it does so alone. A shard's
    /// lock is always taken before this one.
    pub(super) fn lock_directory(&self) -> Result<Guard<'_>, SpoolError> {
        self.lock(&self.directory, Kind::Exclusive, || self.path.clone())
    }

    /// As [`Database::lock_directory`]; unless `patient`, `None` where another
    /// process has it locked.
    pub(super) fn lock_directory_if(&self, patient: bool) -> Result<Option<Guard<'_>>, SpoolError> {
        if patient {
            return self.lock_directory().map(Some);
        }
        lock::try_lock(&self.directory, Kind::Exclusive).map_err(SpoolError::io("lock", &self.path))
    }

    /// Locks a file, or says that another process holds it for too long.
    pub(super) fn lock<'a>(
        &self,
        file: &'a File,
        kind: Kind,
        path: impl Fn() -> PathBuf,
    ) -> Result<Guard<'a>, SpoolError> {
        let waited = self.options.patience;
        lock::lock(file, kind, waited)
            .map_err(|source| SpoolError::Io { action: "lock", path: path(), source })?
            .ok_or_else(|| SpoolError::Busy { path: path(), waited, holder: holder(file) })
    }

    /// Keeps a copy of a damaged file under another name; its own name stays,
    /// for the new file to be renamed to.
    pub(super) fn keep_damaged(&self, name: &CStr) -> Result<CString, SpoolError> {
        let path = self.path_of(name);
        let failed = SpoolError::io("set aside", &path);
        let mut aside = CString::default();
        for number in 1..=ASIDE_MAX {
            aside = suffixed(name, &format!(".damaged-{number}"));
            match files::link_at(&self.directory, name, &aside) {
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => return Err(failed(error)),
                Ok(()) => return Ok(aside),
            }
        }
        let replaced = files::remove_at(&self.directory, &aside)
            .and_then(|()| files::link_at(&self.directory, name, &aside));
        replaced.map_err(failed)?;
        Ok(aside)
    }

    /// Notes something that the administrator should know.
    pub(super) fn report(&mut self, incident: String) {
        if self.incidents.len() < INCIDENTS_MAX {
            self.incidents.push(incident);
        }
    }

    /// Opens the directory anew: a child shares its parent's locks on it.
    pub(super) fn reopen_directory(&mut self) -> Result<(), SpoolError> {
        self.directory = files::open_directory_at(&self.directory, c".")
            .map_err(SpoolError::io("open", &self.path))?;
        Ok(())
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
