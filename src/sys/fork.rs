//! Noticing a fork without a system call a look.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use memmap2::MmapMut;

/// A word that the kernel sets to zero in every child, where it can.
static WORD: OnceLock<Option<&'static AtomicU32>> = OnceLock::new();

/// The number of this process, for telling a child from its parent.
///
/// One load from memory, but in the first call of each process: the number is
/// kept in a page that the kernel wipes in a child (`MADV_WIPEONFORK`, Linux
/// 4.14). Where it will not, this asks the kernel each time.
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

/// Maps the page; it stays for the life of the process.
fn wiped_word() -> Option<&'static AtomicU32> {
    let mut page = MmapMut::map_anon(size_of::<AtomicU32>()).ok()?;
    let (start, length) = (page.as_mut_ptr().cast(), page.len());
    // SAFETY: start and length are those of a private anonymous mapping that
    // is ours alone, and the advice changes nothing in this process.
    if unsafe { libc::madvise(start, length, libc::MADV_WIPEONFORK) } != 0 {
        return None;
    }
    let page: &'static mut MmapMut = Box::leak(Box::new(page));
    // SAFETY: the pointer is the start of a writable private page, so it is
    // aligned and valid for a u32; the page is leaked, so it stays so; nothing
    // else has a pointer to it, and from here on it is only used atomically.
    Some(unsafe { AtomicU32::from_ptr(page.as_mut_ptr().cast()) })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A forked process that is at work.
    pub(crate) struct Child(i32);

    /// Forks; `work` runs in the child, which ends with it.
    pub(crate) fn in_child(work: impl FnOnce() -> bool) -> Child {
        // SAFETY: the child goes on with this thread alone. What it uses of
        // other threads' state is the allocator, which the C library makes
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
        /// Its number.
        pub(crate) fn process(&self) -> u32 {
            self.0.unsigned_abs()
        }

        /// Waits until it is stopped or has ended; whether it is stopped. It
        /// can be waited for again.
        pub(crate) fn stops(&self) -> bool {
            let mut info = std::mem::MaybeUninit::<libc::siginfo_t>::zeroed();
            let options = libc::WSTOPPED | libc::WEXITED | libc::WNOWAIT;
            // SAFETY: waitid writes one siginfo_t to `info`, which is ours.
            let result =
                unsafe { libc::waitid(libc::P_PID, self.process(), info.as_mut_ptr(), options) };
            assert_eq!(result, 0);
            // SAFETY: it was written just now, and zeros were valid before.
            unsafe { info.assume_init() }.si_code == libc::CLD_STOPPED
        }

        /// Continues it after a stop.
        pub(crate) fn go_on(&self) {
            // SAFETY: kill takes any numbers; this is a child of ours that has
            // not been waited for.
            assert_eq!(unsafe { libc::kill(self.0, libc::SIGCONT) }, 0);
        }

        /// Waits for its end; whether its work gave true.
        pub(crate) fn succeeds(self) -> bool {
            let status = self.wait(0);
            std::mem::forget(self);
            status == 0
        }

        /// Waits for a change of its state.
        fn wait(&self, options: i32) -> i32 {
            let mut status = 0;
            // SAFETY: waitpid writes one int to `status`, which is ours.
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
    fn a_child_is_told_from_its_parent() {
        let parent = process();
        assert_eq!(parent, std::process::id());
        let child = in_child(|| process() != parent && process() == std::process::id());
        assert!(child.succeeds());
        assert_eq!(process(), parent);
    }
}
