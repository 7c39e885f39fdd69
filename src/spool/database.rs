//! The database's directory, and the file in it that holds its key.

use std::ffi::{CStr, CString};
use std::fs::File;
use std::io::{ErrorKind, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rand::TryRng;
use rand::rngs::SysRng;

use crate::sys::files::{self, Access};
use crate::sys::lock::{self, Guard, Kind};

use super::format::{
    DATABASE_BYTES, DATABASE_MAGIC, Fault, HEADER_CRC, Header, Identity, SHARDS, VERSION,
};
use super::hashing::Hashing;
use super::{Options, SpoolError};

/// The database's directory in the spool directory.
const DIRECTORY: &CStr = c"exirate";
/// The directory while it is being made.
const DIRECTORY_NEW: &CStr = c"exirate.new";
/// The file that holds the key.
const DATABASE: &CStr = c"database";
/// That file while it is being written.
const DATABASE_NEW: &CStr = c"database.new";
/// How often something that others change meanwhile is tried again.
pub(super) const ATTEMPTS: usize = 100;
/// Permissions of the directory.
const DIRECTORY_MODE: u32 = 0o750;
/// Permissions of the files.
const FILE_MODE: u32 = 0o640;
/// How many damaged files of one name are kept.
const ASIDE_MAX: u32 = 9;
/// How many incidents are kept for [`super::Spool::take_incidents`].
const INCIDENTS_MAX: usize = 16;

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
    pub(super) incidents: Vec<String>,
}

impl Database {
    /// Opens the database under `spool`; makes it where it is not there and
    /// `writable`.
    pub(super) fn open(spool: &Path, options: Options, writable: bool) -> Result<Self, SpoolError> {
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
        let mut database = Self {
            directory,
            path,
            owner,
            directory_owner,
            writable,
            options,
            hashing: Hashing::new([0; 16]),
            incidents: Vec::new(),
        };
        let key = match database.read_identity()? {
            Ok(identity) => identity.key,
            Err(Fault::Version(found)) => return Err(database.version(DATABASE, found)),
            Err(Fault::Damaged) => database.settle_identity()?,
        };
        database.hashing = Hashing::new(key);
        Ok(database)
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
    fn open_for(
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
    fn regular(&self, name: &CStr, facts: &files::Facts) -> Result<(), SpoolError> {
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
        if [self.directory_owner, 0, process].contains(&facts.uid) {
            return Ok(());
        }
        let fault = format!(
            "it belongs to user {}: it should belong to the owner of its directory, user {}; \
             remove it, or give it to that user",
            facts.uid, self.directory_owner
        );
        Err(SpoolError::Unsafe { path: self.path_of(name), fault })
    }

    /// Makes a new file, with nothing in it that was there before.
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

    /// Locks the directory: whoever makes or replaces files in it does so
    /// alone. A shard's lock is always taken before this one.
    pub(super) fn lock_directory(&self) -> Result<Guard<'_>, SpoolError> {
        self.lock(&self.directory, Kind::Exclusive, || self.path.clone())
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
            .ok_or_else(|| SpoolError::Busy { path: path(), waited })
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

    /// Reads the file `database`; one that is not there counts as damaged.
    fn read_identity(&self) -> Result<Result<Identity, Fault>, SpoolError> {
        let Some((file, _)) = self.open_for(Access::Read, DATABASE)? else {
            return Ok(Err(Fault::Damaged));
        };
        let mut bytes = [0; DATABASE_BYTES];
        let length = files::read_start(&file, &mut bytes)
            .map_err(SpoolError::io("read", &self.path_of(DATABASE)))?;
        Ok(Identity::decode(bytes.get(..length).unwrap_or(&[])))
    }

    /// Finds the key where the file `database` does not tell it, and writes
    /// that file again.
    fn settle_identity(&mut self) -> Result<[u8; 16], SpoolError> {
        if !self.writable {
            let absent = || SpoolError::Absent { path: self.path.clone() };
            return self.key_of_shards()?.ok_or_else(absent);
        }
        let (key, incident) = {
            let _guard = self.lock_directory()?;
            match self.read_identity()? {
                Ok(identity) => return Ok(identity.key),
                Err(Fault::Version(found)) => return Err(self.version(DATABASE, found)),
                Err(Fault::Damaged) => {}
            }
            let present = match files::facts_at(&self.directory, DATABASE) {
                Ok(facts) => {
                    self.regular(DATABASE, &facts)?;
                    true
                }
                Err(_) => false,
            };
            let found = self.key_of_shards()?;
            let key = match found {
                Some(key) => key,
                None => random_key()?,
            };
            let aside = if present { Some(self.keep_damaged(DATABASE)?) } else { None };
            self.write_identity(key)?;
            let path = self.path_of(DATABASE);
            let incident = match (&aside, found) {
                (None, None) => None,
                (None, Some(_)) => {
                    Some(format!("{} was lost and has been rebuilt", path.display()))
                }
                (Some(aside), _) => Some(format!(
                    "{} was damaged and has been {}; the damaged one is kept as {}",
                    path.display(),
                    if found.is_some() { "rebuilt" } else { "begun anew" },
                    aside.to_string_lossy()
                )),
            };
            (key, incident)
        };
        if let Some(incident) = incident {
            self.report(incident);
        }
        Ok(key)
    }

    /// Writes the file `database`, all or nothing.
    fn write_identity(&self, key: [u8; 16]) -> Result<(), SpoolError> {
        let identity =
            Identity { magic: DATABASE_MAGIC, version: VERSION, shards: SHARDS as u32, key };
        let mut file = self.create_file(DATABASE_NEW)?;
        let written = file
            .write_all(&identity.encode())
            .and_then(|()| file.sync_data())
            .and_then(|()| files::rename_at(&self.directory, DATABASE_NEW, DATABASE));
        written.map_err(SpoolError::io("write", &self.path_of(DATABASE)))
    }

    /// The key that a sound shard's header repeats, where there is one. A shard
    /// that cannot be opened is an error: it may be the one that tells.
    fn key_of_shards(&self) -> Result<Option<[u8; 16]>, SpoolError> {
        for number in 0..=u8::MAX {
            let name = shard_name(number);
            let mut bytes = [0; HEADER_CRC + 4];
            let Some((file, _)) = self.open_for(Access::Read, &name)? else { continue };
            let header = files::read_start(&file, &mut bytes)
                .map_or(Err(Fault::Damaged), |_| Header::decode(&bytes));
            match header {
                Ok(header) if header.shard == u32::from(number) => return Ok(Some(header.key)),
                // A new key would be the wrong one.
                Err(Fault::Version(found)) => return Err(self.version(&name, found)),
                _ => {}
            }
        }
        Ok(None)
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

/// 16 bytes that nobody can guess.
fn random_key() -> Result<[u8; 16], SpoolError> {
    let mut key = [0; 16];
    SysRng.try_fill_bytes(&mut key).map_err(|source| SpoolError::Random { source })?;
    Ok(key)
}

/// Refuses a directory whose files strangers could replace; its owner.
fn check_directory(directory: &File, path: &Path, spool_owner: u32) -> Result<u32, SpoolError> {
    let facts = files::facts(directory).map_err(SpoolError::io("open", path))?;
    let fault = if facts.mode & 0o002 != 0 {
        format!(
            "everyone may write to it (mode {:04o}): it should have mode {DIRECTORY_MODE:04o}",
            facts.mode
        )
    } else if ![0, spool_owner, rustix::process::geteuid().as_raw()].contains(&facts.uid) {
        format!(
            "it belongs to user {}: it should belong to the owner of the spool directory, user \
             {spool_owner}",
            facts.uid
        )
    } else {
        return Ok(facts.uid);
    };
    Err(SpoolError::Unsafe { path: path.to_path_buf(), fault })
}

/// Makes the database's directory, with its owner and mode from the first
/// moment on that it has its name; several processes may do so at once, and
/// any of them may be killed.
fn make_directory(spool: &Path, path: &Path, owner: (u32, u32)) -> Result<File, SpoolError> {
    let failed = |error| SpoolError::io("create", path)(error);
    let parent = files::open_directory(spool).map_err(SpoolError::io("open", spool))?;
    for _ in 0..ATTEMPTS {
        match files::make_directory_at(&parent, DIRECTORY_NEW) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            result => result.map_err(failed)?,
        }
        let adopted = files::open_directory_at(&parent, DIRECTORY_NEW)
            .and_then(|new| files::adopt(&new, owner.0, owner.1, DIRECTORY_MODE));
        let renamed = match adopted {
            Ok(()) => match files::rename_new_at(&parent, DIRECTORY_NEW, DIRECTORY) {
                // Not every file system knows the flag; without it, an empty
                // directory of that name is replaced, which does no harm.
                Err(error) if error.kind() == ErrorKind::InvalidInput => {
                    files::rename_at(&parent, DIRECTORY_NEW, DIRECTORY)
                }
                result => result,
            },
            Err(error) => Err(error),
        };
        match renamed {
            Ok(()) => {}
            // Another process was faster, with the new name or with the old.
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            // Somebody has made it, or has left one behind that only its owner
            // can finish.
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::AlreadyExists
                        | ErrorKind::DirectoryNotEmpty
                        | ErrorKind::PermissionDenied
                ) =>
            {
                files::remove_directory_at(&parent, DIRECTORY_NEW).map_err(failed)?;
            }
            Err(error) => return Err(failed(error)),
        }
        match files::open_directory_at(&parent, DIRECTORY) {
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            result => return result.map_err(failed),
        }
    }
    Err(SpoolError::Unsettled { path: path.to_path_buf() })
}
