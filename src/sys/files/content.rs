//! File contents: reading, writing, and reserving disk space.

use std::fs::File;
use std::io;

use rustix::fs::{self, FallocateFlags};
use rustix::io::Errno;

use super::{info, retry};
#[cfg(test)]
use crate::sys::{
    failpoint, simulated_disk,
    write_trace::{self, Write},
};

/// Reserves disk space for `length` bytes at `offset`, and extends the file to
/// that length if it is shorter.
///
/// Writing to a mapped page without disk space kills the process if the disk is
/// full; this returns an error that can be handled.
///
/// # Errors
/// Those of `fallocate`, mostly `StorageFull`. The file may have grown
/// nevertheless, but never without disk space behind it.
pub fn reserve(file: &File, offset: u64, length: u64) -> io::Result<()> {
    #[cfg(test)]
    failpoint::use_disk(length)?;
    let end = offset.saturating_add(length);
    within_limit(end)?;
    let result = retry(|| fs::fallocate(file, FallocateFlags::empty(), offset, length));
    match result {
        Err(error) if unsupported(&error) => write_zeros(file, offset, length)?,
        other => other?,
    }
    #[cfg(test)]
    write_trace::note(|| Write::Length { file: write_trace::id(file), bytes: end as usize });
    Ok(())
}

/// Refuses to make a file larger than the limit of this process (`ulimit -f`):
/// the kernel would send SIGXFSZ, which ends the process.
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
/// Those of `pwrite`; the file would exceed the size limit of this process.
pub fn write_start(file: &File, bytes: &[u8]) -> io::Result<()> {
    write_at(file, 0, bytes)
}

/// Writes all of `bytes` at `offset`; not atomically.
///
/// # Errors
/// Those of `pwrite`, mostly `StorageFull`; a part may have been written then.
/// The file would exceed the size limit of this process.
pub fn write_at(file: &File, offset: u64, bytes: &[u8]) -> io::Result<()> {
    within_limit(offset.saturating_add(bytes.len() as u64))?;
    overwrite_at(file, offset, bytes)
}

/// The same for a part of the file that is there already: a file within the size limit of this
/// process stays within it, which is not asked for.
///
/// # Errors
/// Those of `pwrite`; a part may have been written then.
pub fn overwrite_at(file: &File, offset: u64, bytes: &[u8]) -> io::Result<()> {
    #[cfg(test)]
    let (bytes, fault) = failpoint::writable_part(file, offset, bytes);
    let mut at = 0;
    while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
        #[cfg(test)]
        die_mid_write(file, offset + at as u64, rest);
        match retry(|| rustix::io::pwrite(file, rest, offset.saturating_add(at as u64)))? {
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

/// Appends all of `bytes` to a file that was opened for appending and has `size` bytes,
/// in one write.
///
/// # Errors
/// Those of `write`, mostly `StorageFull`; a part may have been written then. The file
/// would exceed the size limit of this process.
pub fn append(file: &File, size: u64, bytes: &[u8]) -> io::Result<()> {
    within_limit(size.saturating_add(bytes.len() as u64))?;
    #[cfg(test)]
    let (bytes, fault) = failpoint::writable_part(file, size, bytes);
    let written = retry(|| rustix::io::write(file, bytes))?;
    #[cfg(test)]
    write_trace::bytes(write_trace::id(file), size as usize, bytes);
    #[cfg(test)]
    fault?;
    if written < bytes.len() {
        return Err(io::ErrorKind::StorageFull.into());
    }
    Ok(())
}

/// Dies in the middle of a write, at a sector boundary, if no step is left.
/// Within a sector, neither the kernel nor a disk stops halfway.
#[cfg(test)]
fn die_mid_write(file: &File, offset: u64, bytes: &[u8]) {
    let sector = simulated_disk::SECTOR as u64;
    let middle = (offset + bytes.len() as u64 / 2) / sector * sector;
    if middle > offset && !failpoint::take_step() {
        let _ = rustix::io::pwrite(file, &bytes[..(middle - offset) as usize], offset);
        failpoint::die();
    }
}

/// Truncates a file that no process has mapped.
///
/// # Errors
/// Those of `ftruncate`.
pub fn empty(file: &File) -> io::Result<()> {
    retry(|| fs::ftruncate(file, 0))?;
    #[cfg(test)]
    write_trace::note(|| Write::Emptied { file: write_trace::id(file) });
    Ok(())
}

/// Waits until the written data is on disk.
///
/// # Errors
/// Those of `fdatasync`.
pub fn sync(file: &File) -> io::Result<()> {
    retry(|| fs::fdatasync(file))?;
    #[cfg(test)]
    write_trace::note(|| Write::Synced { file: write_trace::id(file) });
    Ok(())
}

/// Whether the error means that the file system lacks the call.
fn unsupported(error: &io::Error) -> bool {
    let code = error.raw_os_error();
    code == Some(Errno::OPNOTSUPP.raw_os_error()) || code == Some(Errno::NOSYS.raw_os_error())
}

/// Replaces `fallocate` on file systems without it. It writes only beyond the
/// end, so existing data is never overwritten.
fn write_zeros(file: &File, offset: u64, length: u64) -> io::Result<()> {
    let zeros = [0; 4096];
    let end = offset.saturating_add(length);
    let mut at = info(file)?.size.max(offset);
    while at < end {
        let rest = usize::try_from(end - at).unwrap_or(usize::MAX).min(zeros.len());
        let written = retry(|| rustix::io::pwrite(file, zeros.get(..rest).unwrap_or(&[]), at))?;
        at += written as u64;
    }
    Ok(())
}

/// Reads up to `buffer.len()` bytes from the start of the file; returns how
/// many.
///
/// # Errors
/// Those of `pread`.
pub fn read_start(file: &File, buffer: &mut [u8]) -> io::Result<usize> {
    read_at(file, 0, buffer)
}

/// Reads up to `buffer.len()` bytes at `offset`; returns how many. There are
/// fewer only at the end of the file.
///
/// # Errors
/// Those of `pread`.
pub fn read_at(file: &File, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while let Some(rest) = buffer.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        let at = offset.saturating_add(filled as u64);
        match retry(|| rustix::io::pread(file, &mut *rest, at))? {
            0 => break,
            count => filled += count,
        }
    }
    Ok(filled)
}

/// The first offset at or after `offset` that holds data: everything before it
/// is a hole. At the end of the file it is the file's length, and on a file
/// system without `SEEK_DATA` it is `offset`.
///
/// # Errors
/// Those of `lseek`.
pub fn data_from(file: &File, offset: u64) -> io::Result<u64> {
    match retry(|| fs::seek(file, fs::SeekFrom::Data(offset))) {
        // There is no data after `offset`.
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
    fn data_from_skips_holes() {
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
    fn reserve_allocates_disk_blocks() {
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
