//! Files that the process around us has open.
//!
//! Opening such a file once more, and closing it, would let go of the locks
//! that the process holds on it by `fcntl`: they are the process's, and the
//! first descriptor of the file that is closed ends them all. So it is read by
//! the descriptor that is there.

use std::ffi::c_int;
use std::io;

/// How far descriptors are looked through: the first free one is always taken,
/// so that a process has those from 0 on.
const MOST_DESCRIPTORS: c_int = 4096;

/// A file that somebody else in this process has open, and will close.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Descriptor {
    number: c_int,
    size: u64,
}

impl Descriptor {
    /// The lowest descriptor by which the file with this device and inode is
    /// open for reading.
    #[must_use]
    pub fn of(identity: (u64, u64)) -> Option<Self> {
        (0..MOST_DESCRIPTORS).find_map(|number| {
            // SAFETY: a `stat` of zeros is one, and fstat writes one to the
            // pointer it is given or says that it did not. Any number may be
            // asked about.
            let facts = unsafe {
                let mut facts = std::mem::zeroed::<libc::stat>();
                (libc::fstat(number, &raw mut facts) == 0).then_some(facts)
            }?;
            // The fields have other types on other machines.
            #[allow(clippy::useless_conversion, clippy::unnecessary_cast)]
            let found = (facts.st_dev as u64, facts.st_ino as u64);
            let size = u64::try_from(facts.st_size).ok()?;
            (found == identity && Self::lets_read(number)).then_some(Self { number, size })
        })
    }

    fn lets_read(number: c_int) -> bool {
        // SAFETY: F_GETFL only asks, and any number may be asked about.
        let flags = unsafe { libc::fcntl(number, libc::F_GETFL) };
        flags >= 0 && flags & libc::O_ACCMODE != libc::O_WRONLY
    }

    /// How long the file was when it was found, in bytes.
    #[must_use]
    pub fn size(self) -> u64 {
        self.size
    }

    /// Reads what lies at `offset`, as much as there is; the descriptor's own
    /// offset stays where it is.
    ///
    /// # Errors
    /// Those of `pread`.
    pub fn read_at(self, mut offset: u64, into: &mut [u8]) -> io::Result<usize> {
        let mut done = 0;
        while let Some(rest) = into.get_mut(done..).filter(|rest| !rest.is_empty()) {
            let at = libc::off_t::try_from(offset).map_err(|_| io::ErrorKind::InvalidInput)?;
            // SAFETY: pread writes at most as many bytes as `rest` has.
            let read =
                unsafe { libc::pread(self.number, rest.as_mut_ptr().cast(), rest.len(), at) };
            match usize::try_from(read) {
                Ok(0) => break,
                Ok(read) => {
                    done += read;
                    offset += read as u64;
                }
                Err(_) => {
                    let error = io::Error::last_os_error();
                    if error.kind() != io::ErrorKind::Interrupted {
                        return Err(error);
                    }
                }
            }
        }
        Ok(done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::{files, fork};
    use std::fs::File;
    use std::io::{Seek, Write};
    use std::os::fd::AsRawFd;

    /// Whether another process is kept from locking it by a lock of ours.
    fn is_locked(file: &File) -> bool {
        let fd = file.as_raw_fd();
        let child = fork::tests::in_child(|| {
            // SAFETY: a `flock` of zeros is one: of all bytes; the kernel
            // writes to it.
            unsafe {
                let mut lock = std::mem::zeroed::<libc::flock>();
                lock.l_type = libc::F_WRLCK as _;
                libc::fcntl(fd, libc::F_GETLK, &raw mut lock) == 0
                    && i32::from(lock.l_type) != libc::F_UNLCK
            }
        });
        child.succeeds()
    }

    #[test]
    fn it_is_read_and_neither_moved_nor_unlocked() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"0123456789").unwrap();
        // SAFETY: as above.
        unsafe {
            let mut lock = std::mem::zeroed::<libc::flock>();
            lock.l_type = libc::F_WRLCK as _;
            assert_eq!(libc::fcntl(file.as_raw_fd(), libc::F_SETLK, &raw const lock), 0);
        }
        let found = Descriptor::of(files::info(&file).unwrap().identity).unwrap();
        assert_eq!((found.number, found.size()), (file.as_raw_fd(), 10));
        let mut bytes = [0; 20];
        assert_eq!(found.read_at(3, &mut bytes).unwrap(), 7);
        assert_eq!(&bytes[..8], b"3456789\0");
        assert_eq!(found.read_at(30, &mut bytes).unwrap(), 0);
        assert_eq!(file.stream_position().unwrap(), 10);
        assert!(is_locked(&file));
        // This is how opening it once more would end:
        drop(File::open(format!("/proc/self/fd/{}", file.as_raw_fd())).unwrap());
        assert!(!is_locked(&file));
    }

    #[test]
    fn a_file_that_is_not_open_for_reading_is_not_found() {
        let named = tempfile::NamedTempFile::new().unwrap();
        let identity = files::info(named.as_file()).unwrap().identity;
        assert!(Descriptor::of(identity).is_some());
        let path = named.into_temp_path();
        assert_eq!(Descriptor::of(identity), None);
        let writing = File::options().write(true).open(&path).unwrap();
        assert_eq!(Descriptor::of(identity), None);
        drop(writing);
    }
}
