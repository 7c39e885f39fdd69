//! A directory under Exim's spool directory and the files in it, with the owner
//! they should have, never reached through a symbolic link, and never created
//! by an unauthorized user.

mod error;

use std::ffi::{CStr, CString, OsStr};
use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::files::{self, Access, FileInfo};
use super::lock::{self, Guard, LockKind};
use super::lock_holder::lock_holder;

pub use error::DirError;

/// Permissions of a directory.
const DIRECTORY_MODE: u32 = 0o750;
/// How often an operation is retried that other processes interfere with.
const ATTEMPTS: usize = 100;

/// An open directory.
#[derive(Debug)]
pub struct SecureDir {
    directory: File,
    path: PathBuf,
    /// Owner and group of everything in it: those of the spool directory.
    owner: (u32, u32),
    /// The directory's own owner, which may own files in it as well.
    directory_owner: u32,
}

impl SecureDir {
    /// Opens the directory at the path `names` under `spool`; creates missing
    /// directories if `make`.
    ///
    /// # Errors
    /// It does not exist, is not a directory, could be changed by unauthorized
    /// users, or cannot be opened or created.
    pub fn open(spool: &Path, names: &[&CStr], make: bool) -> Result<Self, DirError> {
        let spool_info = files::info_of(spool).map_err(DirError::io("open", spool))?;
        let mut owner = (spool_info.uid, spool_info.gid);
        let mut opened_dir: Option<Self> = None;
        for name in names {
            let is_first = opened_dir.is_none();
            let above = opened_dir.as_ref().map_or(spool, |dir| dir.path.as_path());
            let path = above.join(OsStr::from_bytes(name.to_bytes()));
            let opened = match &opened_dir {
                Some(dir) => files::open_directory_at(&dir.directory, name),
                None => files::open_real_directory(&path),
            };
            let directory = match opened {
                Ok(directory) => directory,
                Err(error) if error.kind() == ErrorKind::NotFound && make => {
                    let parent = match opened_dir {
                        Some(dir) => dir.directory,
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
            // Whose it is in a directory that root alone may write to was said by root: so the desk,
            // which sees no more of Exim's spool directory than the database, finds it.
            if !make && is_first && owner.0 == 0 && spool_info.mode & 0o022 == 0 {
                let info = files::info(&directory).map_err(DirError::io("open", &path))?;
                owner = (info.uid, info.gid);
            }
            let mut directory_owner = check_directory(&directory, &path, owner.0)?;
            if make && needs_new_owner(directory_owner, owner.0) {
                files::adopt(&directory, owner, DIRECTORY_MODE)
                    .map_err(DirError::io("change the owner of", &path))?;
                directory_owner = owner.0;
            }
            opened_dir = Some(Self { directory, path, owner, directory_owner });
        }
        opened_dir.ok_or_else(|| DirError::Absent { path: spool.to_path_buf() })
    }

    /// Opens the spool directory itself.
    ///
    /// # Errors
    /// It could be changed by unauthorized users, or cannot be opened.
    pub fn of_spool(spool: &Path) -> Result<Self, DirError> {
        let failed = || DirError::io("open", spool);
        let directory = files::open_directory(spool).map_err(failed())?;
        let info = files::info(&directory).map_err(failed())?;
        let directory_owner = check_directory(&directory, spool, info.uid)?;
        let owner = (info.uid, info.gid);
        Ok(Self { directory, path: spool.to_owned(), owner, directory_owner })
    }

    /// The directory itself, to access names in it.
    #[must_use]
    pub fn directory(&self) -> &File {
        &self.directory
    }

    /// Its path, for messages.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The path of a file in it, for messages.
    #[must_use]
    pub fn path_of(&self, name: &CStr) -> PathBuf {
        self.path.join(OsStr::from_bytes(name.to_bytes()))
    }

    /// For `map_err`: `action` on the file `name` failed.
    pub fn failed(&self, action: &'static str, name: &CStr) -> impl FnOnce(io::Error) -> DirError {
        move |source| DirError::Io { action, path: self.path_of(name), source }
    }

    /// Whether its path still leads to this directory.
    #[must_use]
    pub fn is_current(&self) -> bool {
        let named = files::info_of(&self.path).map(|info| info.identity);
        named.is_ok_and(|named| {
            files::info(&self.directory).is_ok_and(|info| info.identity == named)
        })
    }

    /// Opens a regular file; `None` if the name does not exist.
    ///
    /// If root opens a file for writing that belongs to root, the file is given
    /// to the owner of the spool directory: a root process may have been killed
    /// before it could do so, and Exim could not use the file.
    ///
    /// # Errors
    /// It is not a regular file, belongs to an unauthorized user, or cannot be
    /// opened.
    pub fn open_file(
        &self,
        access: Access,
        name: &CStr,
    ) -> Result<Option<(File, FileInfo)>, DirError> {
        let file = match files::open_at(&self.directory, name, access) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => {
                if let Ok(info) = files::info_at(&self.directory, name) {
                    self.regular(name, &info)?;
                }
                return Err(self.failed("open", name)(error));
            }
        };
        let info = files::info(&file).map_err(|error| self.failed("open", name)(error))?;
        self.regular(name, &info)?;
        self.owned(name, &info)?;
        if access != Access::Read && needs_new_owner(info.uid, self.owner.0) {
            files::adopt(&file, self.owner, info.mode | 0o600)
                .map_err(|error| self.failed("change the owner of", name)(error))?;
        }
        Ok(Some((file, info)))
    }

    /// What is wrong with the owner or mode of the directory itself; `None` if
    /// nothing is.
    #[must_use]
    pub fn directory_fault(&self) -> Option<String> {
        let info = files::info(&self.directory).ok()?;
        self.access_fault(&info, DIRECTORY_MODE)
    }

    /// What is wrong with the owner or mode of a file whose mode should be
    /// `right`; `None` if nothing is.
    #[must_use]
    pub fn access_fault(&self, info: &FileInfo, right: u32) -> Option<String> {
        let process = rustix::process::geteuid().as_raw();
        let (uid, mode) = (info.uid, info.mode);
        if uid != self.owner.0 && (uid == 0 || uid != process) {
            return Some(format!(
                "it belongs to user {uid}: it must belong to the owner of the spool directory, \
                 user {}",
                self.owner.0
            ));
        }
        // Who else may read it is reported by `doctor`.
        let wrong = mode & 0o700 != right & 0o700 || mode & 0o022 != 0;
        wrong.then(|| format!("it has mode {mode:04o}: it should have mode {right:04o}"))
    }

    /// Corrects the owner and mode of a file.
    ///
    /// # Errors
    /// As for [`SecureDir::open_file`]; this process may not change them.
    pub fn adopt_file(&self, name: &CStr, mode: u32) -> Result<(), DirError> {
        let Some((file, _)) = self.open_file(Access::Read, name)? else { return Ok(()) };
        files::adopt(&file, self.owner, mode)
            .map_err(|error| self.failed("change the owner or mode of", name)(error))
    }

    /// Corrects the owner and mode of the directory itself.
    ///
    /// # Errors
    /// This process may not change them.
    pub fn adopt_directory(&self) -> Result<(), DirError> {
        files::adopt(&self.directory, self.owner, DIRECTORY_MODE)
            .map_err(DirError::io("change the owner or mode of", &self.path))
    }

    /// Refuses anything that is not a regular file.
    ///
    /// # Errors
    /// [`DirError::WrongKind`].
    pub fn regular(&self, name: &CStr, info: &FileInfo) -> Result<(), DirError> {
        if info.kind == files::REGULAR {
            return Ok(());
        }
        let path = self.path_of(name);
        Err(DirError::WrongKind { path, found: info.kind, wanted: files::REGULAR })
    }

    /// Refuses a file of an unauthorized user: one that was linked or moved
    /// here, or created by a user who should not be able to.
    fn owned(&self, name: &CStr, info: &FileInfo) -> Result<(), DirError> {
        let process = rustix::process::geteuid().as_raw();
        // The owner of the directory may have linked a file of root's here,
        // which root must not write to. Files that root creates change owner at
        // once.
        let linked = info.uid == 0 && self.directory_owner != 0 && info.links > 1;
        let fault = if linked {
            "it belongs to root and has another name elsewhere: remove it here".to_owned()
        } else if [self.directory_owner, 0, process].contains(&info.uid) {
            return Ok(());
        } else {
            format!(
                "it belongs to user {}: it should belong to the owner of its directory, user {}; \
                 remove it, or give it to that user",
                info.uid, self.directory_owner
            )
        };
        Err(DirError::Unsafe { path: self.path_of(name), fault })
    }

    /// Creates a file with this mode, replacing an existing one.
    ///
    /// Only a process that has locked the directory may do this, or one that
    /// alone creates files of this name.
    ///
    /// # Errors
    /// It cannot be created.
    pub fn create_file(&self, name: &CStr, mode: u32) -> Result<File, DirError> {
        files::remove_at(&self.directory, name)
            .and_then(|()| files::create_at(&self.directory, name, self.owner, mode))
            .map_err(self.failed("create", name))
    }

    /// Creates a file that does not exist.
    ///
    /// # Errors
    /// It could not be created, mostly because it exists.
    pub fn create_new_file(&self, name: &CStr, mode: u32) -> Result<File, DirError> {
        files::create_at(&self.directory, name, self.owner, mode)
            .map_err(self.failed("create", name))
    }

    /// Opens a file for writing; creates an empty one with this mode if it does
    /// not exist.
    ///
    /// # Errors
    /// As for [`SecureDir::open_file`] and [`SecureDir::create_file`].
    pub fn open_or_create(&self, name: &CStr, mode: u32) -> Result<File, DirError> {
        for _ in 0..ATTEMPTS {
            if let Some((file, _)) = self.open_file(Access::Write, name)? {
                return Ok(file);
            }
            match files::create_at(&self.directory, name, self.owner, mode) {
                // Another process created it first.
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                result => return result.map_err(self.failed("create", name)),
            }
        }
        Err(DirError::Unsettled { path: self.path_of(name) })
    }

    /// Locks the directory. Only the holder of this lock creates files in it.
    ///
    /// # Errors
    /// [`DirError::Busy`], or its file system cannot lock.
    pub fn lock_directory(&self, timeout: Duration) -> Result<Guard<'_>, DirError> {
        self.lock(&self.directory, LockKind::Exclusive, timeout, || self.path.clone())
    }

    /// Locks a file; an error if another process holds the lock for too long.
    ///
    /// # Errors
    /// [`DirError::Busy`], or its file system cannot lock.
    pub fn lock<'a>(
        &self,
        file: &'a File,
        kind: LockKind,
        timeout: Duration,
        path: impl Fn() -> PathBuf,
    ) -> Result<Guard<'a>, DirError> {
        lock::lock(file, kind, timeout)
            .map_err(|source| DirError::Io { action: "lock", path: path(), source })?
            .ok_or_else(|| DirError::Busy {
                path: path(),
                waited: timeout,
                holder: lock_holder(file),
            })
    }

    /// Opens the directory again: a child process shares its parent's locks on
    /// it.
    ///
    /// # Errors
    /// Those of `open`.
    pub fn reopen(&mut self) -> Result<(), DirError> {
        self.directory = files::open_directory_at(&self.directory, c".")
            .map_err(DirError::io("open", &self.path))?;
        Ok(())
    }
}

/// Whether this process is root and found something of root's that must belong
/// to `owner`.
fn needs_new_owner(uid: u32, owner: u32) -> bool {
    uid == 0 && owner != 0 && rustix::process::geteuid().is_root()
}

/// Refuses a directory in which unauthorized users could replace files; returns
/// its owner.
fn check_directory(directory: &File, path: &Path, spool_owner: u32) -> Result<u32, DirError> {
    let info = files::info(directory).map_err(DirError::io("open", path))?;
    let fault = if info.mode & 0o002 != 0 {
        format!(
            "everyone may write to it (mode {:04o}): it should have mode {DIRECTORY_MODE:04o}",
            info.mode
        )
    } else if ![0, spool_owner, rustix::process::geteuid().as_raw()].contains(&info.uid) {
        format!(
            "it belongs to user {}: it should belong to the owner of the spool directory, user \
             {spool_owner}",
            info.uid
        )
    } else {
        return Ok(info.uid);
    };
    Err(DirError::Unsafe { path: path.to_path_buf(), fault })
}

/// Creates a directory in `parent` that has its owner and mode before it has
/// its name. Several processes may do so at once, and any of them may be
/// killed.
fn make_directory(
    parent: &File,
    name: &CStr,
    path: &Path,
    owner: (u32, u32),
) -> Result<File, DirError> {
    let failed = |error| DirError::io("create", path)(error);
    // Neither part contains a NUL.
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
                // Not every file system supports the flag. Without it, an empty
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
            // Another process was first, with the new name or with the old one.
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            // Another process has created it, or has left one behind that only
            // its owner can complete.
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
