//! Detects a fork without a system call for each test.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use memmap2::MmapMut;

/// A word that the kernel sets to zero in every child process, if the kernel
/// supports that.
static WORD: OnceLock<Option<&'static AtomicU32>> = OnceLock::new();

/// The id of this process, to distinguish a child from its parent.
///
/// This costs one load from memory, except in the first call of each process.
/// The id is kept in a page that the kernel zeroes in a child
/// (`MADV_WIPEONFORK`, Linux 4.14). Without that, each call asks the kernel.
#[must_use]
pub fn process() -> u32 {
    let Some(word) = *WORD.get_or_init(wiped_word) else { return std::process::id() };
    match word.load(Ordering::Relaxed) {
        0 => {
            let id = std::process::id();
            word.store(id, Ordering::Relaxed);
            id
        }
        id => id,
    }
}

/// Maps the page, which stays mapped for the life of the process.
fn wiped_word() -> Option<&'static AtomicU32> {
    let mut page = MmapMut::map_anon(size_of::<AtomicU32>()).ok()?;
    let (start, length) = (page.as_mut_ptr().cast(), page.len());
    // SAFETY: start and length are those of a private anonymous mapping that
    // nothing else uses, and the advice changes nothing in this process.
    if unsafe { libc::madvise(start, length, libc::MADV_WIPEONFORK) } != 0 {
        return None;
    }
    let page: &'static mut MmapMut = Box::leak(Box::new(page));
    // SAFETY: the pointer is the start of a writable private page, so it is
    // aligned and valid for a u32. The page is leaked, so the pointer stays
    // valid. Nothing else has a pointer to it, and it is only accessed
    // atomically.
    Some(unsafe { AtomicU32::from_ptr(page.as_mut_ptr().cast()) })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A running forked process.
    pub(crate) struct Child(i32);

    /// Forks; `work` runs in the child, which ends with it.
    pub(crate) fn in_child(work: impl FnOnce() -> bool) -> Child {
        // SAFETY: only this thread continues in the child. Of the other
        // threads' state it uses the allocator, which the C library keeps
        // usable after a fork.
        let child = unsafe { libc::fork() };
        assert!(child >= 0);
        if child == 0 {
            let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
            // SAFETY: _exit takes any number and does not return.
            unsafe { libc::_exit(if matches!(result, Ok(true)) { 0 } else { 1 }) };
        }
        Child(child)
    }

    impl Child {
        /// Its process id.
        pub(crate) fn process(&self) -> u32 {
            self.0.unsigned_abs()
        }

        /// Waits until it has stopped or ended; returns whether it has stopped.
        /// It can be waited for again.
        pub(crate) fn stops(&self) -> bool {
            let mut info = std::mem::MaybeUninit::<libc::siginfo_t>::zeroed();
            let options = libc::WSTOPPED | libc::WEXITED | libc::WNOWAIT;
            // SAFETY: waitid writes one siginfo_t to `info`, which is a local
            // variable.
            let result =
                unsafe { libc::waitid(libc::P_PID, self.process(), info.as_mut_ptr(), options) };
            assert_eq!(result, 0);
            // SAFETY: waitid has written it, and all zeros were valid before.
            unsafe { info.assume_init() }.si_code == libc::CLD_STOPPED
        }

        /// Continues it after a stop.
        pub(crate) fn go_on(&self) {
            // SAFETY: kill accepts any numbers; this child has not been waited
            // for.
            assert_eq!(unsafe { libc::kill(self.0, libc::SIGCONT) }, 0);
        }

        /// Waits for its end; returns whether its work returned true.
        pub(crate) fn succeeds(self) -> bool {
            let status = self.wait(0);
            std::mem::forget(self);
            status == 0
        }

        /// Waits for a change of its state.
        fn wait(&self, options: i32) -> i32 {
            let mut status = 0;
            // SAFETY: waitpid writes one int to `status`, which is a local
            // variable.
            let waited = unsafe { libc::waitpid(self.0, &raw mut status, options) };
            assert_eq!(waited, self.0);
            status
        }
    }

    impl Drop for Child {
        fn drop(&mut self) {
            // SAFETY: as in `go_on`.
            unsafe { libc::kill(self.0, libc::SIGKILL) };
            self.wait(0);
        }
    }

    #[test]
    fn a_child_has_its_own_process_id() {
        let parent = process();
        assert_eq!(parent, std::process::id());
        let child = in_child(|| process() != parent && process() == std::process::id());
        assert!(child.succeeds());
        assert_eq!(process(), parent);
    }
}
