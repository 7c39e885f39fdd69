//! Files opened relative to a directory, never through a symbolic link, with
//! the owner, group and mode they should have.

use std::ffi::{CStr, CString};
use std::fs::File;
use std::io;
use std::path::Path;

use rustix::fs::{self, AtFlags, FallocateFlags, FileType, Mode, OFlags, RenameFlags, Stat};
use rustix::io::Errno;

#[cfg(test)]
use super::journal::{self, Write};

/// What a file is to be opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Reading only.
    Read,
    /// Reading and writing.
    Write,
    /// Reading and writing, and it must not have been there.
    Create,
    /// Writing behind what is there, whoever else does so too.
    Append,
}

/// What the kernel says of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    /// Device and inode: the file itself, whatever its name.
    pub identity: (u64, u64),
    /// `regular file`, `directory`, `symbolic link`, `FIFO`, …
    pub kind: &'static str,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Permission bits.
    pub mode: u32,
    /// How many names it has.
    pub links: u64,
    /// Length in bytes.
    pub size: u64,
    /// Bytes of disk that are really there.
    pub disk: u64,
    /// The second, since 1970, in which its contents were last changed.
    pub modified: i64,
}

/// `kind` of a regular file.
pub const REGULAR: &str = "regular file";
/// `kind` of a directory.
pub const DIRECTORY: &str = "directory";

impl From<Stat> for Facts {
    // The fields of `Stat` have other types on other machines.
    #[allow(clippy::useless_conversion, clippy::unnecessary_cast)]
    fn from(stat: Stat) -> Self {
        let kind = match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => REGULAR,
            FileType::Directory => DIRECTORY,
            FileType::Symlink => "symbolic link",
            FileType::Fifo => "FIFO",
            FileType::Socket => "socket",
            FileType::CharacterDevice | FileType::BlockDevice => "device",
            FileType::Unknown => "file of an unknown kind",
        };
        Self {
            identity: (stat.st_dev as u64, stat.st_ino as u64),
            kind,
            uid: stat.st_uid,
            gid: stat.st_gid,
            mode: stat.st_mode as u32 & 0o7777,
            links: stat.st_nlink as u64,
            size: u64::try_from(stat.st_size).unwrap_or(0),
            disk: u64::try_from(stat.st_blocks).unwrap_or(0).saturating_mul(512),
            modified: stat.st_mtime as i64,
        }
    }
}

/// Calls again what a signal has interrupted.
fn again<T>(mut call: impl FnMut() -> Result<T, Errno>) -> io::Result<T> {
    #[cfg(test)]
    super::fuel::step();
    loop {
        match call() {
            Err(Errno::INTR) => {}
            result => return result.map_err(io::Error::from),
        }
    }
}

/// Facts about an open file.
///
/// # Errors
/// Those of `fstat`.
pub fn facts(file: &File) -> io::Result<Facts> {
    again(|| fs::fstat(file)).map(Facts::from)
}

/// Facts about whatever has this name in `directory`; a symbolic link is not
/// followed.
///
/// # Errors
/// Those of `fstatat`, `NotFound` above all.
pub fn facts_at(directory: &File, name: &CStr) -> io::Result<Facts> {
    again(|| fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)).map(Facts::from)
}

/// Facts about a path; symbolic links are followed.
///
/// # Errors
/// Those of `stat`.
pub fn facts_of(path: &Path) -> io::Result<Facts> {
    again(|| fs::stat(path)).map(Facts::from)
}

/// Keeps descriptors 0 to 2 free: a host that has closed its standard streams
/// would write its messages into our file.
fn above_standard_streams(file: File) -> io::Result<File> {
    use std::os::fd::AsRawFd;
    if file.as_raw_fd() > 2 {
        return Ok(file);
    }
    again(|| rustix::io::fcntl_dupfd_cloexec(&file, 3)).map(File::from)
}

/// Opens a directory; symbolic links are followed.
///
/// # Errors
/// Those of `open`.
pub fn open_directory(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    above_standard_streams(again(|| fs::open(path, flags, Mode::empty()))?.into())
}

/// Opens a directory by its path, the last part of which may be no symbolic
/// link.
///
/// # Errors
/// Those of `open`.
pub fn open_real_directory(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    above_standard_streams(again(|| fs::open(path, flags, Mode::empty()))?.into())
}

/// Opens a directory by its name in another; a symbolic link is refused.
///
/// # Errors
/// Those of `openat`.
pub fn open_directory_at(directory: &File, name: &CStr) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    above_standard_streams(again(|| fs::openat(directory, name, flags, Mode::empty()))?.into())
}

/// Opens a file by its name in `directory`.
///
/// A symbolic link is refused, and a FIFO or device does not make it wait; the
/// caller checks by [`facts`] that it got a regular file.
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
    let file = above_standard_streams(again(|| fs::openat(directory, name, flags, mode))?.into())?;
    #[cfg(test)]
    if access == Access::Create {
        journal::note(|| Write::File {
            directory: journal::id(directory),
            name: name.to_owned(),
            file: journal::id(&file),
        });
    }
    Ok(file)
}

/// Makes a directory that only its owner can enter.
///
/// # Errors
/// Those of `mkdirat`.
pub fn make_directory_at(directory: &File, name: &CStr) -> io::Result<()> {
    again(|| fs::mkdirat(directory, name, Mode::RWXU))?;
    #[cfg(test)]
    journal::note(|| Write::Directory {
        directory: journal::id(directory),
        name: name.to_owned(),
        made: facts_at(directory, name).unwrap().identity,
    });
    Ok(())
}

/// Gives a file or directory the owner, group and mode it should have.
///
/// Only root can give files away; for anyone else the owner is right already
/// or cannot be, and the group is given where that is allowed.
///
/// # Errors
/// Those of `fchown` (as root) and `fchmod`.
pub fn adopt(file: &File, uid: u32, gid: u32, mode: u32) -> io::Result<()> {
    let found = facts(file)?;
    if (found.uid, found.gid) != (uid, gid) {
        let root = rustix::process::geteuid().is_root();
        let owner = (root && found.uid != uid).then(|| fs::Uid::from_raw(uid));
        let result = again(|| fs::fchown(file, owner, Some(fs::Gid::from_raw(gid))));
        if root {
            result?;
        }
    }
    if found.mode != mode {
        again(|| fs::fchmod(file, Mode::from_raw_mode(mode)))?;
    }
    Ok(())
}

/// Makes sure that the file has real disk behind `length` bytes from `offset`
/// on, and is at least that long.
///
/// Writing to a mapped page that has no disk behind it, with none left, kills
/// the process; here it is an error that can be handled.
///
/// # Errors
/// Those of `fallocate`: `StorageFull` above all. The file may have become
/// longer all the same, but never without disk behind it.
pub fn reserve(file: &File, offset: u64, length: u64) -> io::Result<()> {
    #[cfg(test)]
    super::fuel::take_disk(length)?;
    let end = offset.saturating_add(length);
    within_limit(end)?;
    let result = again(|| fs::fallocate(file, FallocateFlags::empty(), offset, length));
    match result {
        Err(error) if unsupported(&error) => write_zeros(file, offset, length)?,
        other => other?,
    }
    #[cfg(test)]
    journal::note(|| Write::Length { file: journal::id(file), bytes: end as usize });
    Ok(())
}

/// Refuses to make a file longer than this process may (`ulimit -f`): the
/// kernel would end the process with SIGXFSZ.
fn within_limit(end: u64) -> io::Result<()> {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Fsize).current;
    if limit.is_some_and(|limit| end > limit) {
        return Err(Errno::FBIG.into());
    }
    Ok(())
}

/// Writes all of `bytes` at the start of the file.
///
/// # Errors
/// Those of `pwrite`; the file may be longer than this process may make one.
pub fn write_start(file: &File, bytes: &[u8]) -> io::Result<()> {
    write_at(file, 0, bytes)
}

/// Writes all of `bytes` from `offset` on; not in one step.
///
/// # Errors
/// Those of `pwrite`: `StorageFull` above all, and then some of it may have
/// been written; the file may be longer than this process may make one.
pub fn write_at(file: &File, offset: u64, bytes: &[u8]) -> io::Result<()> {
    within_limit(offset.saturating_add(bytes.len() as u64))?;
    #[cfg(test)]
    let (bytes, fault) = super::fuel::fits(file, offset, bytes);
    let mut at = 0;
    while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
        #[cfg(test)]
        die_halfway(file, offset + at as u64, rest);
        match again(|| rustix::io::pwrite(file, rest, offset.saturating_add(at as u64)))? {
            0 => return Err(io::ErrorKind::WriteZero.into()),
            count => at += count,
        }
    }
    #[cfg(test)]
    journal::bytes(journal::id(file), offset as usize, bytes);
    #[cfg(test)]
    fault?;
    Ok(())
}

/// Dies in the midst of a write, between two sectors, where there is no fuel
/// left: the kernel copies what lies within one in one go, whatever is to
/// happen to the process, and so does a disk.
#[cfg(test)]
fn die_halfway(file: &File, offset: u64, bytes: &[u8]) {
    let sector = super::images::SECTOR as u64;
    let middle = (offset + bytes.len() as u64 / 2) / sector * sector;
    if middle > offset && !super::fuel::burn() {
        let _ = rustix::io::pwrite(file, &bytes[..(middle - offset) as usize], offset);
        super::fuel::die();
    }
}

/// Empties a file that nobody has mapped.
///
/// # Errors
/// Those of `ftruncate`.
pub fn empty(file: &File) -> io::Result<()> {
    again(|| fs::ftruncate(file, 0))?;
    #[cfg(test)]
    journal::note(|| Write::Emptied { file: journal::id(file) });
    Ok(())
}

/// Waits until what was written to the file is on disk.
///
/// # Errors
/// Those of `fdatasync`.
pub fn sync(file: &File) -> io::Result<()> {
    again(|| fs::fdatasync(file))?;
    #[cfg(test)]
    journal::note(|| Write::Synced { file: journal::id(file) });
    Ok(())
}

/// Whether a file system does not know the call.
fn unsupported(error: &io::Error) -> bool {
    let code = error.raw_os_error();
    code == Some(Errno::OPNOTSUPP.raw_os_error()) || code == Some(Errno::NOSYS.raw_os_error())
}

/// What `fallocate` does, on file systems without it: only beyond the end, so
/// that nothing that is there is written over.
fn write_zeros(file: &File, offset: u64, length: u64) -> io::Result<()> {
    let zeros = [0; 4096];
    let end = offset.saturating_add(length);
    let mut at = facts(file)?.size.max(offset);
    while at < end {
        let rest = usize::try_from(end - at).unwrap_or(usize::MAX).min(zeros.len());
        let written = again(|| rustix::io::pwrite(file, zeros.get(..rest).unwrap_or(&[]), at))?;
        at += written as u64;
    }
    Ok(())
}

/// Reads up to `buffer.len()` bytes from the start of the file; how many.
///
/// # Errors
/// Those of `pread`.
pub fn read_start(file: &File, buffer: &mut [u8]) -> io::Result<usize> {
    read_at(file, 0, buffer)
}

/// Reads up to `buffer.len()` bytes from `offset` on; how many: fewer only
/// where the file ends.
///
/// # Errors
/// Those of `pread`.
pub fn read_at(file: &File, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while let Some(rest) = buffer.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        let at = offset.saturating_add(filled as u64);
        match again(|| rustix::io::pread(file, &mut *rest, at))? {
            0 => break,
            count => filled += count,
        }
    }
    Ok(filled)
}

/// The names in a directory, in no order, without `.` and `..`; no more than
/// `most` of them.
///
/// # Errors
/// Those of `openat` and `getdents`.
pub fn names(directory: &File, most: usize) -> io::Result<Vec<CString>> {
    let mut names = Vec::new();
    for entry in again(|| fs::Dir::read_from(directory))? {
        let entry = entry?;
        let name = entry.file_name();
        if name != c"." && name != c".." && names.len() < most {
            names.push(name.to_owned());
        }
    }
    Ok(names)
}

/// Where in a file there is data, at `offset` or after it: what is before that
/// is a hole. At its end, or where the file system cannot tell, there is some.
///
/// # Errors
/// Those of `lseek`.
pub fn data_from(file: &File, offset: u64) -> io::Result<u64> {
    match again(|| fs::seek(file, fs::SeekFrom::Data(offset))) {
        // Beyond the last of it.
        Err(error) if error.raw_os_error() == Some(libc::ENXIO) => Ok(facts(file)?.size),
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => Ok(offset),
        result => result,
    }
}

/// Renames within `directory`; what had the new name is replaced in one step.
///
/// # Errors
/// Those of `renameat`.
pub fn rename_at(directory: &File, from: &CStr, to: &CStr) -> io::Result<()> {
    again(|| fs::renameat(directory, from, directory, to))?;
    #[cfg(test)]
    note_renamed(directory, from, to);
    Ok(())
}

/// Renames within `directory`, unless the new name is taken.
///
/// # Errors
/// Those of `renameat2`: `AlreadyExists` above all.
pub fn rename_new_at(directory: &File, from: &CStr, to: &CStr) -> io::Result<()> {
    again(|| fs::renameat_with(directory, from, directory, to, RenameFlags::NOREPLACE))?;
    #[cfg(test)]
    note_renamed(directory, from, to);
    Ok(())
}

#[cfg(test)]
fn note_renamed(directory: &File, from: &CStr, to: &CStr) {
    journal::note(|| Write::Renamed {
        directory: journal::id(directory),
        from: from.to_owned(),
        to: to.to_owned(),
    });
}

/// Gives a file a second name within `directory`.
///
/// # Errors
/// Those of `linkat`: `AlreadyExists` above all.
pub fn link_at(directory: &File, from: &CStr, to: &CStr) -> io::Result<()> {
    again(|| fs::linkat(directory, from, directory, to, AtFlags::empty()))?;
    #[cfg(test)]
    journal::note(|| Write::Linked {
        directory: journal::id(directory),
        from: from.to_owned(),
        to: to.to_owned(),
    });
    Ok(())
}

/// Removes a file; that there is none is no error.
///
/// # Errors
/// Those of `unlinkat`.
pub fn remove_at(directory: &File, name: &CStr) -> io::Result<()> {
    absent_is_fine(again(|| fs::unlinkat(directory, name, AtFlags::empty())))?;
    #[cfg(test)]
    journal::note(|| Write::Removed { directory: journal::id(directory), name: name.to_owned() });
    Ok(())
}

/// Removes an empty directory; that there is none is no error.
///
/// # Errors
/// Those of `unlinkat`.
pub fn remove_directory_at(directory: &File, name: &CStr) -> io::Result<()> {
    absent_is_fine(again(|| fs::unlinkat(directory, name, AtFlags::REMOVEDIR)))?;
    #[cfg(test)]
    journal::note(|| Write::Removed { directory: journal::id(directory), name: name.to_owned() });
    Ok(())
}

/// Turns `NotFound` into success.
fn absent_is_fine(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holes_are_told_from_data() {
        use std::os::unix::fs::FileExt;
        let file = tempfile::tempfile().unwrap();
        file.set_len(1 << 30).unwrap();
        assert_eq!(data_from(&file, 0).unwrap(), 1 << 30);
        file.write_all_at(b"x", 1 << 29).unwrap();
        assert_eq!(data_from(&file, 0).unwrap(), 1 << 29);
        assert_eq!(data_from(&file, 1 << 29).unwrap(), 1 << 29);
        assert_eq!(data_from(&file, 1 << 30).unwrap(), 1 << 30);
    }
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn links_are_refused_and_fifos_do_not_wait() {
        let folder = tempfile::tempdir().unwrap();
        let directory = open_directory(folder.path()).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", folder.path().join("link")).unwrap();
        rustix::fs::mkfifoat(&directory, "fifo", Mode::RUSR | Mode::WUSR).unwrap();
        assert!(open_at(&directory, c"link", Access::Read).is_err());
        let fifo = open_at(&directory, c"fifo", Access::Write).unwrap();
        assert_eq!(facts(&fifo).unwrap().kind, "FIFO");
        assert_eq!(facts_at(&directory, c"link").unwrap().kind, "symbolic link");
    }

    #[test]
    fn mode_does_not_depend_on_the_umask() {
        let folder = tempfile::tempdir().unwrap();
        let directory = open_directory(folder.path()).unwrap();
        let file = open_at(&directory, c"file", Access::Create).unwrap();
        let found = facts(&file).unwrap();
        adopt(&file, found.uid, found.gid, 0o640).unwrap();
        assert_eq!(facts(&file).unwrap().mode, 0o640);
        assert!(open_at(&directory, c"file", Access::Create).is_err());
    }

    #[test]
    fn reserved_bytes_have_disk_behind_them() {
        let file = tempfile::tempfile().unwrap();
        reserve(&file, 0, 10_000).unwrap();
        let metadata = file.metadata().unwrap();
        assert_eq!(metadata.len(), 10_000);
        assert!(metadata.blocks() * 512 >= 10_000);
        let other = tempfile::tempfile().unwrap();
        write_zeros(&other, 100, 5_000).unwrap();
        assert_eq!(facts(&other).unwrap().size, 5_100);
    }
}
