//! Files that this process has open already.
//!
//! If such a file is opened a second time and closed, the process loses the
//! `fcntl` locks that it holds on the file: those belong to the process, and
//! closing any descriptor of the file releases them all. So the file is read
//! through the existing descriptor.

use std::ffi::c_int;
use std::io;

/// How many descriptors are searched. The kernel always assigns the lowest free
/// number, so open descriptors start at 0.
const DESCRIPTORS_MAX: c_int = 4096;

/// A file that other code in this process has open and will close.
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
        (0..DESCRIPTORS_MAX).find_map(|number| {
            // SAFETY: an all-zero `stat` is valid, and fstat writes one to the
            // pointer it is given or reports an error. Any descriptor number
            // may be passed.
            let facts = unsafe {
                let mut facts = std::mem::zeroed::<libc::stat>();
                (libc::fstat(number, &raw mut facts) == 0).then_some(facts)
            }?;
            // The fields have other types on other machines.
            #[allow(clippy::useless_conversion, clippy::unnecessary_cast)]
            let found = (facts.st_dev as u64, facts.st_ino as u64);
            let size = u64::try_from(facts.st_size).ok()?;
            (found == identity && Self::is_readable(number)).then_some(Self { number, size })
        })
    }

    fn is_readable(number: c_int) -> bool {
        // SAFETY: F_GETFL only reads, and any descriptor number may be passed.
        let flags = unsafe { libc::fcntl(number, libc::F_GETFL) };
        flags >= 0 && flags & libc::O_ACCMODE != libc::O_WRONLY
    }

    /// The length of the file in bytes when it was found.
    #[must_use]
    pub fn size(self) -> u64 {
        self.size
    }

    /// Reads at `offset` until the buffer or the file ends; the descriptor's
    /// own offset does not change.
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

    /// Whether a lock of this process keeps another process from locking the
    /// file.
    fn is_locked(file: &File) -> bool {
        let fd = file.as_raw_fd();
        let child = fork::tests::in_child(|| {
            // SAFETY: an all-zero `flock` is valid and covers all bytes; the
            // kernel writes to it.
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
    fn reading_keeps_the_offset_and_the_locks() {
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
        // Opening the file a second time would release the lock:
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
