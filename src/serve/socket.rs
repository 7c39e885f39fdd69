//! A unix socket that one instance of the daemon listens on.

use std::fs::{File, Metadata, Permissions};
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _, chown};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::serve::notify::Manager;
use crate::sys::inherited;
use crate::sys::lock::{self, Guard, LockKind};
use crate::sys::lock_holder::lock_holder;
use crate::sys::small_file::{open_lock, with_suffix};

/// Why the socket cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    /// Another instance listens on it.
    #[error("{path} is in use by {by}: stop that first, or set another path in [listen]")]
    InUse {
        /// The socket.
        path: PathBuf,
        /// What is known of the other instance.
        by: String,
    },
    /// There is something else at its path.
    #[error("{0} exists and is no socket: remove it, or set another path in [listen]")]
    NoSocket(PathBuf),
    /// A system call failed.
    #[error("{action} {path}: {source}{}", remedy(.path, .source))]
    Io {
        /// What failed: `cannot create`.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// A remedy for the error, appended to its message.
fn remedy(path: &Path, error: &io::Error) -> String {
    let folder = path.parent().unwrap_or(path).display();
    match error.kind() {
        io::ErrorKind::NotFound => format!("; the directory {folder} must exist"),
        io::ErrorKind::PermissionDenied => {
            format!("; the directory {folder} must belong to the daemon's user")
        }
        _ => String::new(),
    }
}

/// How long an instance may take to notice that another has taken over its socket.
const TAKE_OVER_MAX: Duration = Duration::from_secs(10);

/// Who may connect to a unix socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// The mode of the socket.
    pub mode: u32,
    /// Its group, if it is not that of this process.
    pub group: Option<u32>,
}

impl Access {
    /// The owner and a group: if `group` is none, the `usual` one where this process may set it,
    /// else that which the directory or this process gives the socket.
    #[must_use]
    pub fn of_group(group: Option<u32>, usual: Option<u32>) -> Self {
        Self { mode: 0o660, group: group.or(usual.filter(|group| may_set(*group))) }
    }
}

/// Whether this process may set this group.
fn may_set(group: u32) -> bool {
    use rustix::process::{getegid, geteuid, getgroups};
    let is_member = || getgroups().is_ok_and(|all| all.iter().any(|one| one.as_raw() == group));
    geteuid().is_root() || getegid().as_raw() == group || is_member()
}

/// A socket that this process listens on. While it exists, no other instance can listen at
/// its path; when it is dropped, the socket is removed, unless the service manager keeps it.
#[derive(Debug)]
pub struct Listener {
    path: PathBuf,
    identity: (u64, u64),
    listener: Option<UnixListener>,
    is_kept: bool,
    // Holds the lock.
    _lock: File,
}

/// The name of a socket that the service manager keeps: which file it is.
fn name_of((device, inode): (u64, u64)) -> String {
    format!("{device}.{inode}")
}

/// The socket that was kept for this file, unless others may connect now.
fn kept(found: &Metadata, access: Access) -> Option<OwnedFd> {
    let same_mode = found.mode() & 0o777 == access.mode;
    let same_group = access.group.is_none_or(|group| group == found.gid());
    (same_mode && same_group).then(|| inherited::take(&name_of((found.dev(), found.ino()))))?
}

/// The file that an instance has locked while it listens at `path`. It stays.
#[must_use]
pub fn lock_of(path: &Path) -> PathBuf {
    with_suffix(path, ".lock")
}

impl Listener {
    /// Listens at `path`, where those who have `access` may connect. The socket of an instance that was
    /// killed is replaced; one that the service manager has kept goes on.
    ///
    /// # Errors
    /// Another instance or program listens there, or a system call failed.
    pub fn bind(path: &Path, access: Access) -> Result<Self, SocketError> {
        Self::bind_as(path, access, false)
    }

    /// As [`Listener::bind`]; an instance that listens there ends, and nobody is refused meanwhile.
    ///
    /// # Errors
    /// Another program listens there, the other instance goes on, or a system call failed.
    pub fn take_over(path: &Path, access: Access) -> Result<Self, SocketError> {
        Self::bind_as(path, access, true)
    }

    fn bind_as(path: &Path, access: Access, take_over: bool) -> Result<Self, SocketError> {
        let failed = |action, path: &Path| {
            let path = path.to_owned();
            move |source| SocketError::Io { action, path, source }
        };
        let lock_path = lock_of(path);
        let lock = open_lock(&lock_path).map_err(failed("cannot create", &lock_path))?;
        let locked_within = |timeout| -> Result<bool, SocketError> {
            let guard = lock::lock(&lock, LockKind::Exclusive, timeout)
                .map_err(failed("cannot lock", &lock_path))?;
            Ok(guard.map(Guard::keep).is_some())
        };
        let in_use = || {
            let holder = lock_holder(&lock);
            let by = holder.map_or_else(
                || "another process".to_owned(),
                |holder| format!("process {} ({})", holder.process, holder.name),
            );
            SocketError::InUse { path: path.to_owned(), by }
        };
        let is_first = locked_within(Duration::ZERO)?;
        if !is_first && !take_over {
            return Err(in_use());
        }
        match std::fs::symlink_metadata(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(failed("cannot look at", path)(error)),
            Ok(found) if !found.file_type().is_socket() => {
                return Err(SocketError::NoSocket(path.to_owned()));
            }
            Ok(found) => {
                if let Some(kept) = kept(&found, access) {
                    let listener = UnixListener::from(kept);
                    listener.set_nonblocking(true).map_err(failed("cannot use", path))?;
                    let (path, identity) = (path.to_owned(), (found.dev(), found.ino()));
                    return Ok(Self {
                        path,
                        identity,
                        listener: Some(listener),
                        is_kept: true,
                        _lock: lock,
                    });
                }
                // A program without our lock may listen there.
                if is_first && UnixStream::connect(path).is_ok() {
                    let by = "another program".to_owned();
                    return Err(SocketError::InUse { path: path.to_owned(), by });
                }
            }
        }
        // Clients find the old socket or the new one, and never one that refuses them.
        let new = with_suffix(path, ".new");
        match std::fs::remove_file(&new) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(failed("cannot remove", &new)(error));
            }
            _ => {}
        }
        let listener = UnixListener::bind(&new).map_err(failed("cannot create", &new))?;
        if let Some(group) = access.group {
            chown(&new, None, Some(group)).map_err(failed("cannot change the group of", &new))?;
        }
        std::fs::set_permissions(&new, Permissions::from_mode(access.mode))
            .map_err(failed("cannot change", &new))?;
        let made = std::fs::symlink_metadata(&new).map_err(failed("cannot look at", &new))?;
        std::fs::rename(&new, path).map_err(failed("cannot create", path))?;
        // The other instance notices, and ends; those who connect until then wait.
        if !is_first && !locked_within(TAKE_OVER_MAX)? {
            return Err(in_use());
        }
        listener.set_nonblocking(true).map_err(failed("cannot use", path))?;
        let identity = (made.dev(), made.ino());
        Ok(Self {
            path: path.to_owned(),
            identity,
            listener: Some(listener),
            is_kept: false,
            _lock: lock,
        })
    }

    /// Has the service manager keep it, so that those who connect while this program is restarted
    /// wait for a moment, and are served.
    pub fn keep(&mut self, manager: &Manager) {
        if let Some(listener) = self.listener.as_ref().filter(|_| !self.is_kept) {
            self.is_kept = manager.keep(&name_of(self.identity), listener.as_fd());
        }
    }

    /// Makes sure that those who connect to the path find this socket.
    ///
    /// # Errors
    /// It was removed or replaced: in words.
    pub fn check(&self) -> Result<(), String> {
        let path = self.path.display();
        match std::fs::symlink_metadata(&self.path) {
            Ok(found) if (found.dev(), found.ino()) == self.identity => Ok(()),
            Ok(_) => Err(format!("the socket {path} was replaced by something else")),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Err(format!("the socket {path} was removed"))
            }
            // What cannot be looked at may well be there.
            Err(_) => Ok(()),
        }
    }

    /// The listening socket, once.
    pub fn take(&mut self) -> Option<UnixListener> {
        self.listener.take()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if !self.is_kept && self.check().is_ok() {
            // If it stays, the next instance replaces it.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ACCESS: Access = Access { mode: 0o660, group: None };

    #[test]
    fn a_stale_socket_is_replaced_and_one_in_use_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.sock");
        // What an instance leaves behind that was killed.
        drop(UnixListener::bind(&path).unwrap());
        assert!(UnixStream::connect(&path).is_err());
        let first = Listener::bind(&path, ACCESS).unwrap();
        UnixStream::connect(&path).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o660);
        let second = Listener::bind(&path, ACCESS).unwrap_err().to_string();
        let (own, socket) = (std::process::id(), path.display());
        assert!(second.starts_with(&format!("{socket} is in use by process {own} (")), "{second}");
        UnixStream::connect(&path).unwrap();
        drop(first);
        assert!(!path.exists());
        drop(Listener::bind(&path, ACCESS).unwrap());
    }

    #[test]
    fn a_socket_is_taken_over_and_nobody_is_refused_meanwhile() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.sock");
        let mut old = Listener::bind(&path, ACCESS).unwrap();
        let listener = old.take().unwrap();
        let new = std::thread::spawn({
            let path = path.clone();
            move || Listener::take_over(&path, ACCESS).map_err(|error| error.to_string())
        });
        // As the daemon does, once a second.
        while old.check().is_ok() {
            UnixStream::connect(&path).unwrap();
            // Nobody is there when the other one was found.
            let _ = listener.accept();
        }
        drop((listener, old));
        let mut new = new.join().unwrap().unwrap();
        assert_eq!(new.check(), Ok(()));
        let _client = UnixStream::connect(&path).unwrap();
        assert!(new.take().unwrap().accept().is_ok());
        assert!(Listener::bind(&path, ACCESS).is_err());
    }

    #[test]
    fn what_is_not_ours_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.sock");
        std::fs::write(&path, "precious").unwrap();
        let error = Listener::bind(&path, ACCESS).unwrap_err().to_string();
        assert!(error.contains("exists and is no socket"), "{error}");
        assert_eq!(std::fs::read(&path).unwrap(), b"precious");
        std::fs::remove_file(&path).unwrap();
        // Another program, which does not know the lock.
        let _other = UnixListener::bind(&path).unwrap();
        let error = Listener::bind(&path, ACCESS).unwrap_err().to_string();
        assert!(error.contains("is in use by another program"), "{error}");
        UnixStream::connect(&path).unwrap();
        // The socket of an instance that was replaced is not removed with the old one.
        let path = folder.path().join("b.sock");
        let old = Listener::bind(&path, ACCESS).unwrap();
        assert_eq!(old.check(), Ok(()));
        std::fs::remove_file(&path).unwrap();
        assert!(old.check().unwrap_err().ends_with("b.sock was removed"));
        let _new = UnixListener::bind(&path).unwrap();
        assert!(old.check().unwrap_err().ends_with("b.sock was replaced by something else"));
        drop(old);
        UnixStream::connect(&path).unwrap();
        let error =
            Listener::bind(Path::new("/nonexistent/a.sock"), ACCESS).unwrap_err().to_string();
        assert!(error.contains("the directory /nonexistent must exist"), "{error}");
    }
}
