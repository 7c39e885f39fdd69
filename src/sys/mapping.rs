//! A file as memory shared with other processes.
//!
//! Every access is checked against the length of the mapping, which is the
//! length of the file when it was mapped. Users of this module must keep two
//! rules: a process writes only under an exclusive file lock and reads only
//! under an exclusive or shared one, and no process ever shortens a mapped
//! file. Where all processes access a word as one, it needs no lock.

use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, compiler_fence};

use memmap2::{MmapOptions, MmapRaw};

use super::clock;

/// At most this much of a file is mapped: 32 GiB. A file that was extended
/// beyond what a process can map stays usable.
pub const LENGTH_MAX: usize = 1 << 35;

/// A file that stays mapped for long. Somebody may cut it off, and then whoever touches what is no
/// longer there ends by SIGBUS: once a second, it is looked at before it is used.
#[derive(Debug)]
pub struct Watched {
    file: File,
    size: u64,
    second: i64,
}

impl Watched {
    /// To be made when this many bytes of the file are mapped.
    #[must_use]
    pub fn of(file: File, length: usize) -> Self {
        Self { file, size: length as u64, second: clock::coarse_seconds() }
    }

    /// Whether the file is still as long as what is mapped of it, as seen in this second.
    #[inline]
    pub fn is_whole(&mut self) -> bool {
        self.second == clock::coarse_seconds() || self.look()
    }

    /// As [`Watched::is_whole`], as seen now.
    #[cold]
    pub fn look(&mut self) -> bool {
        self.second = clock::coarse_seconds();
        self.file.metadata().is_ok_and(|info| info.len() >= self.size)
    }
}

/// A mapped file.
#[derive(Debug)]
pub struct Mapping {
    raw: MmapRaw,
    writable: bool,
    /// Identifies the mapped file.
    #[cfg(test)]
    file: super::write_trace::Id,
}

impl Mapping {
    /// Maps the whole of `file`, or its first [`LENGTH_MAX`] bytes; for writing
    /// too if `writable`.
    ///
    /// # Errors
    /// The file is empty, or cannot be mapped.
    pub fn of(file: &File, writable: bool) -> io::Result<Self> {
        Self::of_size(file, file.metadata()?.len(), writable)
    }

    /// As [`Mapping::of`], of a file whose size is known.
    ///
    /// # Errors
    /// As [`Mapping::of`].
    pub fn of_size(file: &File, size: u64, writable: bool) -> io::Result<Self> {
        let length = usize::try_from(size).unwrap_or(usize::MAX).min(LENGTH_MAX);
        if length == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let mut options = MmapOptions::new();
        options.len(length);
        let raw =
            if writable { options.map_raw(file)? } else { options.map_raw_read_only(file)? };
        Ok(Self {
            raw,
            writable,
            #[cfg(test)]
            file: super::write_trace::id(file),
        })
    }

    /// How many bytes are mapped.
    #[must_use]
    pub fn len(&self) -> usize {
        self.raw.len()
    }

    /// Whether nothing is mapped; always false.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether `length` bytes from `offset` on are all mapped.
    fn holds(&self, offset: usize, length: usize) -> bool {
        offset.checked_add(length).is_some_and(|end| end <= self.raw.len())
    }

    /// The bytes in this range, or `None` if they are not all mapped.
    #[must_use]
    pub fn bytes(&self, offset: usize, length: usize) -> Option<&[u8]> {
        if !self.holds(offset, length) {
            return None;
        }
        // SAFETY: the range was just checked to lie in the mapping, which lives
        // as long as `self`; bytes need no alignment and have no invalid
        // values. They do not change meanwhile: this process needs `&mut self`
        // for that, and other processes respect the lock (see the module).
        Some(unsafe { std::slice::from_raw_parts(self.raw.as_ptr().add(offset), length) })
    }

    /// The bytes in this range for changing, or `None` if they are not all
    /// mapped, or not writable.
    #[inline]
    fn bytes_mut(&mut self, offset: usize, length: usize) -> Option<&mut [u8]> {
        if !self.writable || !self.holds(offset, length) {
            return None;
        }
        #[cfg(test)]
        super::failpoint::step();
        // SAFETY: as in `bytes`; the mapping is writable, and `&mut self` makes
        // this the only reference into it in this process.
        Some(unsafe { std::slice::from_raw_parts_mut(self.raw.as_mut_ptr().add(offset), length) })
    }

    /// The 8-byte word at `offset`, or `None` if it is not mapped or `offset`
    /// is not a multiple of 8.
    #[must_use]
    #[inline]
    pub fn u64(&self, offset: usize) -> Option<u64> {
        let pointer = self.aligned::<AtomicU64>(offset)?;
        // SAFETY: `aligned` has checked range and alignment. A load writes
        // nothing, so a read-only mapping suffices (a u64 load is one plain
        // load on every 64-bit machine); other accesses to words are atomic
        // too.
        let value = unsafe { AtomicU64::from_ptr(pointer) }.load(Ordering::Acquire);
        Some(u64::from_le(value))
    }

    /// Stores an 8-byte word atomically, ordered after all earlier writes and
    /// before all later ones.
    #[must_use = "None means that nothing was written"]
    #[inline]
    pub fn set_u64(&mut self, offset: usize, value: u64) -> Option<()> {
        if !self.writable {
            return None;
        }
        let pointer = self.aligned::<AtomicU64>(offset)?;
        #[cfg(test)]
        super::failpoint::step();
        Self::barrier();
        // SAFETY: `aligned` has checked range and alignment, and the mapping
        // is writable.
        unsafe { AtomicU64::from_ptr(pointer) }.store(value.to_le(), Ordering::Release);
        #[cfg(test)]
        super::write_trace::bytes(self.file, offset, &value.to_le_bytes());
        Self::barrier();
        Some(())
    }

    /// Adds `more` to an 8-byte word in one atomic step, which needs no lock; returns what it was.
    #[must_use = "None means that nothing was written"]
    #[inline]
    pub fn add_u64(&self, offset: usize, more: u64) -> Option<u64> {
        let word = self.writable_u64(offset)?;
        if cfg!(target_endian = "little") {
            return Some(word.fetch_add(more, Ordering::Relaxed));
        }
        let add = |value: u64| Some(u64::from_le(value).wrapping_add(more).to_le());
        let before = word.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
        before.ok().map(u64::from_le)
    }

    /// Replaces an 8-byte word if it is `old`, in one atomic step, which needs no lock;
    /// returns what it was.
    #[must_use = "None means that nothing was written"]
    #[inline]
    pub fn replace_u64(&self, offset: usize, old: u64, new: u64) -> Option<u64> {
        let word = self.writable_u64(offset)?;
        let (old, new) = (old.to_le(), new.to_le());
        let result = word.compare_exchange(old, new, Ordering::AcqRel, Ordering::Acquire);
        Some(u64::from_le(result.unwrap_or_else(|found| found)))
    }

    /// The word at `offset`, if the mapping is writable.
    #[inline]
    fn writable_u64(&self, offset: usize) -> Option<&AtomicU64> {
        let pointer = self.aligned::<AtomicU64>(offset).filter(|_| self.writable)?;
        // SAFETY: `aligned` has checked range and alignment, the mapping is writable and
        // lives as long as `self`, and other accesses to words are atomic too.
        Some(unsafe { AtomicU64::from_ptr(pointer) })
    }

    /// As [`Mapping::u64`], for 4 bytes.
    #[must_use]
    #[inline]
    pub fn u32(&self, offset: usize) -> Option<u32> {
        let pointer = self.aligned::<AtomicU32>(offset)?;
        // SAFETY: as in `u64`.
        let value = unsafe { AtomicU32::from_ptr(pointer) }.load(Ordering::Acquire);
        Some(u32::from_le(value))
    }

    /// As [`Mapping::set_u64`], for 4 bytes.
    #[must_use = "None means that nothing was written"]
    #[inline]
    pub fn set_u32(&mut self, offset: usize, value: u32) -> Option<()> {
        if !self.writable {
            return None;
        }
        let pointer = self.aligned::<AtomicU32>(offset)?;
        #[cfg(test)]
        super::failpoint::step();
        Self::barrier();
        // SAFETY: as in `set_u64`.
        unsafe { AtomicU32::from_ptr(pointer) }.store(value.to_le(), Ordering::Release);
        #[cfg(test)]
        super::write_trace::bytes(self.file, offset, &value.to_le_bytes());
        Self::barrier();
        Some(())
    }

    /// Lets `work` change the bytes in this range. The change is not atomic; it
    /// is ordered after all earlier writes and before all later ones.
    #[must_use = "None means that nothing was written"]
    #[inline]
    pub fn change(
        &mut self,
        offset: usize,
        length: usize,
        work: impl FnOnce(&mut [u8]),
    ) -> Option<()> {
        #[cfg(test)]
        let file = self.file;
        let target = self.bytes_mut(offset, length)?;
        Self::barrier();
        #[cfg(test)]
        let before = target.to_vec();
        work(target);
        #[cfg(test)]
        super::write_trace::difference(file, offset, &before, target);
        Self::barrier();
        Some(())
    }

    /// Copies `bytes` to `offset`, ordered after all earlier writes and before
    /// all later ones; not atomically.
    #[must_use = "None means that nothing was written"]
    #[inline]
    pub fn write(&mut self, offset: usize, bytes: &[u8]) -> Option<()> {
        let target = self.bytes_mut(offset, bytes.len())?;
        Self::barrier();
        #[cfg(test)]
        if !super::failpoint::take_step() {
            // Dies in the middle of the copy.
            let (half, _) = target.split_at_mut(bytes.len() / 2);
            half.copy_from_slice(&bytes[..bytes.len() / 2]);
            super::failpoint::die();
        }
        target.copy_from_slice(bytes);
        #[cfg(test)]
        super::write_trace::bytes(self.file, offset, bytes);
        Self::barrier();
        Some(())
    }

    /// Sets the bytes in this range to zero; ordered as [`Mapping::write`] is.
    #[must_use = "None means that nothing was written"]
    pub fn clear(&mut self, offset: usize, length: usize) -> Option<()> {
        let target = self.bytes_mut(offset, length)?;
        Self::barrier();
        #[cfg(test)]
        if !super::failpoint::take_step() {
            target.split_at_mut(length / 2).0.fill(0);
            super::failpoint::die();
        }
        target.fill(0);
        #[cfg(test)]
        super::write_trace::bytes(self.file, offset, &vec![0; length]);
        Self::barrier();
        Some(())
    }

    /// Hints to the processor to fetch the cache line at `offset`. Does nothing
    /// on other architectures or outside the mapping.
    #[inline]
    pub fn prefetch(&self, offset: usize) {
        #[cfg(target_arch = "x86_64")]
        if self.holds(offset, 1) {
            // SAFETY: a prefetch never faults, and this address lies in the
            // mapping.
            unsafe {
                use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
                _mm_prefetch::<_MM_HINT_T0>(self.raw.as_ptr().add(offset).cast());
            }
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = offset;
    }

    /// Keeps the compiler from moving a write across this point. That is enough
    /// for a process that may be killed anywhere: the next process that takes the
    /// lock sees the stores that were executed, and no others.
    #[inline]
    fn barrier() {
        compiler_fence(Ordering::SeqCst);
    }

    /// A pointer to the `T` at `offset`, with range and alignment checked.
    #[inline]
    fn aligned<T>(&self, offset: usize) -> Option<*mut T::Plain>
    where
        T: Word,
    {
        if !offset.is_multiple_of(size_of::<T>()) || !self.holds(offset, size_of::<T>()) {
            return None;
        }
        // SAFETY: the range lies in the mapping. The start of a mapping is
        // aligned to a page, so the pointer is as aligned as its offset is.
        Some(unsafe { self.raw.as_mut_ptr().add(offset) }.cast())
    }
}

/// An atomic integer in a mapping.
trait Word {
    /// The plain integer type.
    type Plain;
}

impl Word for AtomicU64 {
    type Plain = u64;
}

impl Word for AtomicU32 {
    type Plain = u32;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapping(bytes: u64, writable: bool) -> Mapping {
        let file = tempfile::tempfile().unwrap();
        file.set_len(bytes).unwrap();
        Mapping::of(&file, writable).unwrap()
    }

    #[test]
    fn every_access_is_bounds_checked() {
        let mut map = mapping(100, true);
        assert_eq!(map.len(), 100);
        assert_eq!(map.set_u64(88, 7), Some(()));
        assert_eq!(map.u64(88), Some(7));
        assert_eq!(map.bytes(88, 8), Some(&[7, 0, 0, 0, 0, 0, 0, 0][..]));
        assert_eq!(map.u64(96), None);
        assert_eq!(map.u64(4), None);
        assert_eq!(map.set_u32(96, 9), Some(()));
        assert_eq!(map.u32(96), Some(9));
        assert_eq!(map.u32(98), None);
        assert_eq!(map.u32(100), None);
        assert_eq!(map.bytes(99, 2), None);
        assert_eq!(map.bytes(usize::MAX, 2), None);
        assert_eq!(map.bytes(100, 0), Some(&[][..]));
        assert_eq!(map.write(99, b"ab"), None);
        assert_eq!(map.write(98, b"ab"), Some(()));
        assert_eq!(map.change(97, 2, |bytes| bytes[0] = b'c'), Some(()));
        assert_eq!(map.bytes(96, 4), Some(&b"\x09cab"[..]));
        assert_eq!(map.change(97, 4, |_| panic!("must not run")), None);
        assert_eq!(map.clear(0, 101), None);
        assert_eq!(map.clear(0, 100), Some(()));
        assert_eq!(map.bytes(98, 2), Some(&[0, 0][..]));
    }

    #[test]
    fn a_read_only_mapping_refuses_writes() {
        let mut map = mapping(64, false);
        assert_eq!(map.u64(8), Some(0));
        assert_eq!(map.u32(8), Some(0));
        assert_eq!(map.set_u64(8, 1), None);
        assert_eq!(map.set_u32(8, 1), None);
        assert_eq!(map.write(8, b"x"), None);
        assert_eq!(map.change(0, 1, |_| panic!("must not run")), None);
    }

    #[test]
    fn only_the_start_of_a_too_long_file_is_mapped() {
        let file = tempfile::tempfile().unwrap();
        let longest = (36..63).rev().find(|power| file.set_len(1 << power).is_ok()).unwrap();
        let map = Mapping::of(&file, true).unwrap();
        assert_eq!(map.len(), LENGTH_MAX, "of 2^{longest} bytes");
        assert_eq!(map.u64(LENGTH_MAX - 8), Some(0));
        assert_eq!(map.u64(LENGTH_MAX), None);
    }

    #[test]
    fn an_empty_file_is_refused() {
        assert!(Mapping::of(&tempfile::tempfile().unwrap(), true).is_err());
    }
}
