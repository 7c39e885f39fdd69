//! Opening and creating files and directories.

use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::path::Path;

use rustix::fs::{self, AtFlags, Mode, OFlags};

#[cfg(test)]
use super::info_at;
use super::{info, retry};
#[cfg(test)]
use crate::sys::write_trace::{self, Write};

/// The access a file is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Reading only.
    Read,
    /// Reading and writing.
    Write,
    /// Reading and writing a new file; it is an error if the file exists.
    Create,
    /// Appending, also while other processes append.
    Append,
}

/// Keeps descriptors 0 to 2 free: a host that has closed its standard streams
/// would otherwise write its messages into our file.
fn above_standard_streams(file: File) -> io::Result<File> {
    use std::os::fd::AsRawFd;
    if file.as_raw_fd() > 2 {
        return Ok(file);
    }
    retry(|| rustix::io::fcntl_dupfd_cloexec(&file, 3)).map(File::from)
}

/// Opens a directory; symbolic links are followed.
///
/// # Errors
/// Those of `open`.
pub fn open_directory(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    above_standard_streams(retry(|| fs::open(path, flags, Mode::empty()))?.into())
}

/// Opens a directory by its path; the last component must not be a symbolic
/// link.
///
/// # Errors
/// Those of `open`.
pub fn open_real_directory(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    above_standard_streams(retry(|| fs::open(path, flags, Mode::empty()))?.into())
}

/// Opens a directory by its name in another; a symbolic link is refused.
///
/// # Errors
/// Those of `openat`.
pub fn open_directory_at(directory: &File, name: &CStr) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    above_standard_streams(retry(|| fs::openat(directory, name, flags, Mode::empty()))?.into())
}

/// Opens a file by its name in `directory`.
///
/// A symbolic link is refused, and a FIFO or device does not block. The caller
/// checks with [`info`] that it is a regular file.
///
/// # Errors
/// Those of `openat`.
pub fn open_at(directory: &File, name: &CStr, access: Access) -> io::Result<File> {
    let flags = OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let flags = flags
        | match access {
            Access::Read => OFlags::RDONLY,
            Access::Write => OFlags::RDWR,
            Access::Create => OFlags::RDWR | OFlags::CREATE | OFlags::EXCL,
            Access::Append => OFlags::WRONLY | OFlags::APPEND,
        };
    let mode = Mode::RUSR | Mode::WUSR;
    let file = above_standard_streams(retry(|| fs::openat(directory, name, flags, mode))?.into())?;
    #[cfg(test)]
    if access == Access::Create {
        write_trace::note(|| Write::File {
            directory: write_trace::id(directory),
            name: name.to_owned(),
            file: write_trace::id(&file),
        });
    }
    Ok(file)
}

/// Creates a file with this owner, group and mode; the name must be unused.
///
/// When root creates a file for another user, the owner is set before the file
/// gets its name, so a process killed in between leaves nothing behind. On a
/// file system without unnamed files (`O_TMPFILE`) the name comes first, and
/// [`adopt`] corrects the owner when the file is next opened.
///
/// # Errors
/// Those of `openat`, `fchown` (as root), `fchmod` and `linkat`, mostly
/// `AlreadyExists`.
pub fn create_at(
    directory: &File,
    name: &CStr,
    (uid, gid): (u32, u32),
    mode: u32,
) -> io::Result<File> {
    if uid != 0 && rustix::process::geteuid().is_root() {
        match create_unnamed(directory, (uid, gid), mode)
            .and_then(|file| name_file(&file, directory, name).map(|()| file))
        {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {}
            result => return result,
        }
    }
    let file = open_at(directory, name, Access::Create)?;
    adopt(&file, (uid, gid), mode)?;
    Ok(file)
}

/// Creates a file without a name.
fn create_unnamed(directory: &File, owner: (u32, u32), mode: u32) -> io::Result<File> {
    let flags = OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC;
    let private = Mode::RUSR | Mode::WUSR;
    let file = retry(|| fs::openat(directory, c".", flags, private))?;
    let file = above_standard_streams(file.into())?;
    adopt(&file, owner, mode)?;
    Ok(file)
}

/// Links an unnamed file into `directory`.
fn name_file(file: &File, directory: &File, name: &CStr) -> io::Result<()> {
    retry(|| fs::linkat(file, c"", directory, name, AtFlags::EMPTY_PATH))?;
    #[cfg(test)]
    write_trace::note(|| Write::File {
        directory: write_trace::id(directory),
        name: name.to_owned(),
        file: write_trace::id(file),
    });
    Ok(())
}

/// Creates a directory that only its owner can enter.
///
/// # Errors
/// Those of `mkdirat`.
pub fn make_directory_at(directory: &File, name: &CStr) -> io::Result<()> {
    retry(|| fs::mkdirat(directory, name, Mode::RWXU))?;
    #[cfg(test)]
    write_trace::note(|| Write::Directory {
        directory: write_trace::id(directory),
        name: name.to_owned(),
        made: info_at(directory, name).unwrap().identity,
    });
    Ok(())
}

/// Sets the owner, group and mode of a file or directory.
///
/// Only root can change the owner. For another user the owner is correct
/// already or cannot be changed, and the group is changed where that is
/// permitted.
///
/// # Errors
/// Those of `fchown` (as root) and `fchmod`.
pub fn adopt(file: &File, (uid, gid): (u32, u32), mode: u32) -> io::Result<()> {
    let found = info(file)?;
    if (found.uid, found.gid) != (uid, gid) {
        let root = rustix::process::geteuid().is_root();
        let owner = (root && found.uid != uid).then(|| fs::Uid::from_raw(uid));
        let result = retry(|| fs::fchown(file, owner, Some(fs::Gid::from_raw(gid))));
        if root {
            result?;
        }
    }
    if found.mode != mode {
        retry(|| fs::fchmod(file, Mode::from_raw_mode(mode)))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::failpoint;

    #[test]
    fn links_are_refused_and_fifos_do_not_block() {
        let folder = tempfile::tempdir().unwrap();
        let directory = open_directory(folder.path()).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", folder.path().join("link")).unwrap();
        rustix::fs::mkfifoat(&directory, "fifo", Mode::RUSR | Mode::WUSR).unwrap();
        assert!(open_at(&directory, c"link", Access::Read).is_err());
        let fifo = open_at(&directory, c"fifo", Access::Write).unwrap();
        assert_eq!(info(&fifo).unwrap().kind, "FIFO");
        assert_eq!(info_at(&directory, c"link").unwrap().kind, "symbolic link");
    }

    #[test]
    fn mode_does_not_depend_on_the_umask() {
        let folder = tempfile::tempdir().unwrap();
        let directory = open_directory(folder.path()).unwrap();
        let file = open_at(&directory, c"file", Access::Create).unwrap();
        let found = info(&file).unwrap();
        adopt(&file, (found.uid, found.gid), 0o640).unwrap();
        assert_eq!(info(&file).unwrap().mode, 0o640);
        assert!(open_at(&directory, c"file", Access::Create).is_err());
    }

    #[test]
    fn files_that_root_creates_never_exist_with_the_wrong_owner() {
        let mut created = false;
        for steps in 0.. {
            let folder = tempfile::tempdir().unwrap();
            let directory = open_directory(folder.path()).unwrap();
            let killed = failpoint::dies_after(steps, || {
                create_at(&directory, c"file", (4321, 4322), 0o640).unwrap();
            });
            if let Ok(found) = info_at(&directory, c"file") {
                assert_eq!((found.uid, found.gid, found.mode), (4321, 4322, 0o640));
                created = true;
            }
            if !killed {
                break;
            }
        }
        assert!(created);
        let folder = tempfile::tempdir().unwrap();
        let directory = open_directory(folder.path()).unwrap();
        let create = || create_at(&directory, c"file", (4321, 4322), 0o640);
        create().unwrap();
        assert_eq!(create().unwrap_err().kind(), io::ErrorKind::AlreadyExists);
    }
}
