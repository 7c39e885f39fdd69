//! A directory of ours under Exim's spool directory, and the files in it: with
//! the owner they should have, through no symbolic link, and belonging to
//! nobody who should not be able to make them.

mod error;

use std::ffi::{CStr, CString, OsStr};
use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::files::{self, Access, FileInfo};
use super::holder::holder;
use super::lock::{self, Guard, Kind};

pub use error::DirError;

/// Permissions of a directory.
const DIRECTORY_MODE: u32 = 0o750;
/// How often something that others change meanwhile is tried again.
const ATTEMPTS: usize = 100;

/// A directory of ours, open.
#[derive(Debug)]
pub struct SecureDir {
    directory: File,
    path: PathBuf,
    /// Owner and group of everything here: those of the spool directory.
    owner: (u32, u32),
    /// The directory's own owner, who may own files here as well.
    directory_owner: u32,
}

impl SecureDir {
    /// Opens the directory that is found by `names`, one in the other, under
    /// `spool`; makes those that are not there where `make`.
    ///
    /// # Errors
    /// It is absent, is no directory, could be changed by strangers, or cannot
    /// be opened or made.
    pub fn open(spool: &Path, names: &[&CStr], make: bool) -> Result<Self, DirError> {
        let facts = files::facts_of(spool).map_err(DirError::io("open", spool))?;
        let mut place: Option<Self> = None;
        for name in names {
            let owner = (facts.uid, facts.gid);
            let above = place.as_ref().map_or(spool, |place| place.path.as_path());
            let path = above.join(OsStr::from_bytes(name.to_bytes()));
            let opened = match &place {
                Some(place) => files::open_directory_at(&place.directory, name),
                None => files::open_real_directory(&path),
            };
            let directory = match opened {
                Ok(directory) => directory,
                Err(error) if error.kind() == ErrorKind::NotFound && make => {
                    let parent = match place {
                        Some(place) => place.directory,
                        None => {
                            files::open_directory(spool).map_err(DirError::io("open", spool))?
                        }
                    };
                    make_directory(&parent, name, &path, owner)?
                }
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    return Err(DirError::Absent { path });
                }
                Err(error) => {
                    if let Ok(found) = std::fs::symlink_metadata(&path)
                        && !found.is_dir()
                    {
                        let found = if found.is_symlink() { "symbolic link" } else { "file" };
                        return Err(DirError::WrongKind { path, found, wanted: files::DIRECTORY });
                    }
                    return Err(DirError::io("open", &path)(error));
                }
            };
            let mut directory_owner = check_directory(&directory, &path, facts.uid)?;
            if make && is_to_be_given_away(directory_owner, facts.uid) {
                files::adopt(&directory, owner, DIRECTORY_MODE)
                    .map_err(DirError::io("give away", &path))?;
                directory_owner = facts.uid;
            }
            place = Some(Self { directory, path, owner, directory_owner });
        }
        place.ok_or_else(|| DirError::Absent { path: spool.to_path_buf() })
    }

    /// The directory itself, for names in it.
    #[must_use]
    pub fn directory(&self) -> &File {
        &self.directory
    }

    /// Its path, for messages.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The path of a file here, for messages.
    #[must_use]
    pub fn path_of(&self, name: &CStr) -> PathBuf {
        self.path.join(OsStr::from_bytes(name.to_bytes()))
    }

    /// For `map_err`: the operating system refused `action` on the file `name`.
    pub fn failed(&self, action: &'static str, name: &CStr) -> impl FnOnce(io::Error) -> DirError {
        let path = self.path_of(name);
        move |source| DirError::Io { action, path, source }
    }

    /// Whether its path still leads to it.
    #[must_use]
    pub fn is_current(&self) -> bool {
        let named = files::facts_of(&self.path).map(|facts| facts.identity);
        named.is_ok_and(|named| {
            files::info(&self.directory).is_ok_and(|facts| facts.identity == named)
        })
    }

    /// Opens a regular file of ours; `None` where there is nothing of that
    /// name.
    ///
    /// What root opens for writing, and is root's, is given to the owner of the
    /// spool directory: root may have been killed before it could do so, and
    /// Exim could not use the file.
    ///
    /// # Errors
    /// It is something else, belongs to a stranger, or cannot be opened.
    pub fn open_file(
        &self,
        access: Access,
        name: &CStr,
    ) -> Result<Option<(File, FileInfo)>, DirError> {
        let file = match files::open_at(&self.directory, name, access) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => {
                if let Ok(facts) = files::info_at(&self.directory, name) {
                    self.regular(name, &facts)?;
                }
                return Err(self.failed("open", name)(error));
            }
        };
        let facts = files::info(&file).map_err(|error| self.failed("open", name)(error))?;
        self.regular(name, &facts)?;
        self.owned(name, &facts)?;
        if access != Access::Read && is_to_be_given_away(facts.uid, self.owner.0) {
            files::adopt(&file, self.owner, facts.mode | 0o600)
                .map_err(|error| self.failed("give away", name)(error))?;
        }
        Ok(Some((file, facts)))
    }

    /// What is wrong with the owner or the permissions of the directory itself;
    /// `None` where they are right.
    #[must_use]
    pub fn directory_fault(&self) -> Option<String> {
        let facts = files::info(&self.directory).ok()?;
        self.access_fault(&facts, DIRECTORY_MODE)
    }

    /// What is wrong with the owner or the permissions of a file here that
    /// should have the mode `right`; `None` where they are right.
    #[must_use]
    pub fn access_fault(&self, facts: &FileInfo, right: u32) -> Option<String> {
        let process = rustix::process::geteuid().as_raw();
        let (uid, mode) = (facts.uid, facts.mode);
        if uid != self.owner.0 && (uid == 0 || uid != process) {
            return Some(format!(
                "it belongs to user {uid}: it must belong to the owner of the spool directory, \
                 user {}",
                self.owner.0
            ));
        }
        // Who may read it as well is `doctor`'s to judge.
        let wrong = mode & 0o700 != right & 0o700 || mode & 0o022 != 0;
        wrong.then(|| format!("it has mode {mode:04o}: it should have mode {right:04o}"))
    }

    /// Puts the owner and the permissions of a file here right.
    ///
    /// # Errors
    /// As for [`SecureDir::open_file`]; this process may not change them.
    pub fn adopt_file(&self, name: &CStr, mode: u32) -> Result<(), DirError> {
        let Some((file, _)) = self.open_file(Access::Read, name)? else { return Ok(()) };
        files::adopt(&file, self.owner, mode)
            .map_err(|error| self.failed("change the owner or mode of", name)(error))
    }

    /// Puts the owner and the permissions of the directory itself right.
    ///
    /// # Errors
    /// This process may not change them.
    pub fn adopt_directory(&self) -> Result<(), DirError> {
        files::adopt(&self.directory, self.owner, DIRECTORY_MODE)
            .map_err(DirError::io("change the owner or mode of", &self.path))
    }

    /// Refuses what is no regular file.
    ///
    /// # Errors
    /// [`DirError::WrongKind`].
    pub fn regular(&self, name: &CStr, facts: &FileInfo) -> Result<(), DirError> {
        if facts.kind == files::REGULAR {
            return Ok(());
        }
        let path = self.path_of(name);
        Err(DirError::WrongKind { path, found: facts.kind, wanted: files::REGULAR })
    }

    /// Refuses a file of a stranger: one that was linked or moved here, or that
    /// somebody who should not be able to has made.
    fn owned(&self, name: &CStr, facts: &FileInfo) -> Result<(), DirError> {
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
        Err(DirError::Unsafe { path: self.path_of(name), fault })
    }

    /// Makes a new file of this mode, in the place of what is there.
    ///
    /// Only whoever has locked the directory may do this, or else whoever alone
    /// makes files of this name.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn create_file(&self, name: &CStr, mode: u32) -> Result<File, DirError> {
        files::remove_at(&self.directory, name)
            .and_then(|()| files::create_at(&self.directory, name, self.owner, mode))
            .map_err(self.failed("create", name))
    }

    /// Opens a file for writing; makes an empty one of this mode where there is
    /// none.
    ///
    /// # Errors
    /// As for [`SecureDir::open_file`] and [`SecureDir::create_file`].
    pub fn open_or_create(&self, name: &CStr, mode: u32) -> Result<File, DirError> {
        for _ in 0..ATTEMPTS {
            if let Some((file, _)) = self.open_file(Access::Write, name)? {
                return Ok(file);
            }
            match files::create_at(&self.directory, name, self.owner, mode) {
                // Another process was faster.
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                result => return result.map_err(self.failed("create", name)),
            }
        }
        Err(DirError::Unsettled { path: self.path_of(name) })
    }

    /// Locks the directory: whoever makes files in it does so alone.
    ///
    /// # Errors
    /// [`DirError::Busy`], or its file system cannot lock.
    pub fn lock_directory(&self, timeout: Duration) -> Result<Guard<'_>, DirError> {
        self.lock(&self.directory, Kind::Exclusive, timeout, || self.path.clone())
    }

    /// Locks a file, or says that another process holds it for too long.
    ///
    /// # Errors
    /// [`DirError::Busy`], or its file system cannot lock.
    pub fn lock<'a>(
        &self,
        file: &'a File,
        kind: Kind,
        timeout: Duration,
        path: impl Fn() -> PathBuf,
    ) -> Result<Guard<'a>, DirError> {
        lock::lock(file, kind, timeout)
            .map_err(|source| DirError::Io { action: "lock", path: path(), source })?
            .ok_or_else(|| DirError::Busy { path: path(), waited: timeout, holder: holder(file) })
    }

    /// Opens the directory anew: a child shares its parent's locks on it.
    ///
    /// # Errors
    /// Those of `open`.
    pub fn reopen(&mut self) -> Result<(), DirError> {
        self.directory = files::open_directory_at(&self.directory, c".")
            .map_err(DirError::io("open", &self.path))?;
        Ok(())
    }
}

/// Whether this process is root's, and has met something of root's that must
/// be `owner`'s.
fn is_to_be_given_away(uid: u32, owner: u32) -> bool {
    uid == 0 && owner != 0 && rustix::process::geteuid().is_root()
}

/// Refuses a directory whose files strangers could replace; its owner.
fn check_directory(directory: &File, path: &Path, spool_owner: u32) -> Result<u32, DirError> {
    let facts = files::info(directory).map_err(DirError::io("open", path))?;
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
    Err(DirError::Unsafe { path: path.to_path_buf(), fault })
}

/// Makes a directory in `parent`, with its owner and mode from the first
/// moment on that it has its name; several processes may do so at once, and
/// any of them may be killed.
fn make_directory(
    parent: &File,
    name: &CStr,
    path: &Path,
    owner: (u32, u32),
) -> Result<File, DirError> {
    let failed = |error| DirError::io("create", path)(error);
    // Neither part has a NUL in it.
    let new = CString::new([name.to_bytes(), b".new"].concat()).unwrap_or_default();
    for _ in 0..ATTEMPTS {
        match files::make_directory_at(parent, &new) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            result => result.map_err(failed)?,
        }
        let adopted = files::open_directory_at(parent, &new)
            .and_then(|new| files::adopt(&new, owner, DIRECTORY_MODE));
        let renamed = match adopted {
            Ok(()) => match files::rename_new_at(parent, &new, name) {
                // Not every file system knows the flag; without it, an empty
                // directory of that name is replaced, which does no harm.
                Err(error) if error.kind() == ErrorKind::InvalidInput => {
                    files::rename_at(parent, &new, name)
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
                files::remove_directory_at(parent, &new).map_err(failed)?;
            }
            Err(error) => return Err(failed(error)),
        }
        match files::open_directory_at(parent, name) {
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            result => return result.map_err(failed),
        }
    }
    Err(DirError::Unsettled { path: path.to_path_buf() })
}
