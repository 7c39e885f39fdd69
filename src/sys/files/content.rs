//! What is in a file: reading, writing, and the disk behind it.

use std::fs::File;
use std::io;

use rustix::fs::{self, FallocateFlags};
use rustix::io::Errno;

use super::{again, info};
#[cfg(test)]
use crate::sys::{
    failpoint, images,
    write_trace::{self, Write},
};

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
    failpoint::take_disk(length)?;
    let end = offset.saturating_add(length);
    within_limit(end)?;
    let result = again(|| fs::fallocate(file, FallocateFlags::empty(), offset, length));
    match result {
        Err(error) if unsupported(&error) => write_zeros(file, offset, length)?,
        other => other?,
    }
    #[cfg(test)]
    write_trace::note(|| Write::Length { file: write_trace::id(file), bytes: end as usize });
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
    let (bytes, fault) = failpoint::fits(file, offset, bytes);
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
    write_trace::bytes(write_trace::id(file), offset as usize, bytes);
    #[cfg(test)]
    fault?;
    Ok(())
}

/// Dies in the midst of a write, between two sectors, where there is no fuel
/// left: the kernel copies what lies within one in one go, whatever is to
/// happen to the process, and so does a disk.
#[cfg(test)]
fn die_halfway(file: &File, offset: u64, bytes: &[u8]) {
    let sector = images::SECTOR as u64;
    let middle = (offset + bytes.len() as u64 / 2) / sector * sector;
    if middle > offset && !failpoint::burn() {
        let _ = rustix::io::pwrite(file, &bytes[..(middle - offset) as usize], offset);
        failpoint::die();
    }
}

/// Empties a file that nobody has mapped.
///
/// # Errors
/// Those of `ftruncate`.
pub fn empty(file: &File) -> io::Result<()> {
    again(|| fs::ftruncate(file, 0))?;
    #[cfg(test)]
    write_trace::note(|| Write::Emptied { file: write_trace::id(file) });
    Ok(())
}

/// Waits until what was written to the file is on disk.
///
/// # Errors
/// Those of `fdatasync`.
pub fn sync(file: &File) -> io::Result<()> {
    again(|| fs::fdatasync(file))?;
    #[cfg(test)]
    write_trace::note(|| Write::Synced { file: write_trace::id(file) });
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
    let mut at = info(file)?.size.max(offset);
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

/// Where in a file there is data, at `offset` or after it: what is before that
/// is a hole. At its end, or where the file system cannot tell, there is some.
///
/// # Errors
/// Those of `lseek`.
pub fn data_from(file: &File, offset: u64) -> io::Result<u64> {
    match again(|| fs::seek(file, fs::SeekFrom::Data(offset))) {
        // Beyond the last of it.
        Err(error) if error.raw_os_error() == Some(libc::ENXIO) => Ok(info(file)?.size),
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => Ok(offset),
        result => result,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

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

    #[test]
    fn reserved_bytes_have_disk_behind_them() {
        let file = tempfile::tempfile().unwrap();
        reserve(&file, 0, 10_000).unwrap();
        let metadata = file.metadata().unwrap();
        assert_eq!(metadata.len(), 10_000);
        assert!(metadata.blocks() * 512 >= 10_000);
        let other = tempfile::tempfile().unwrap();
        write_zeros(&other, 100, 5_000).unwrap();
        assert_eq!(info(&other).unwrap().size, 5_100);
    }
}
