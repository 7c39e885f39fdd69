//! Whole-file locks with a timeout.

use std::fs::File;
use std::io;
use std::time::{Duration, Instant};

use super::fork;

/// Attempts before the first sleep: a check holds its lock for about as long as
/// one attempt takes.
const TRIES: u32 = 20;
/// The first sleep.
const SHORTEST: Duration = Duration::from_micros(20);
/// The longest sleep.
const LONGEST: Duration = Duration::from_millis(2);

/// Which other processes may hold the lock at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockKind {
    /// Other readers.
    Shared,
    /// None.
    Exclusive,
}

/// A held lock. Dropping it, also during a panic, releases the lock.
#[derive(Debug)]
pub struct Guard<'a> {
    file: &'a File,
    process: u32,
    waited: bool,
}

impl Guard<'_> {
    /// Whether another process held the lock at first.
    #[must_use]
    pub fn waited(&self) -> bool {
        self.waited
    }
}

/// Locks `file` without waiting; `None` if another process holds the lock.
///
/// # Errors
/// The file system does not support locks.
pub fn try_lock(file: &File, kind: LockKind) -> io::Result<Option<Guard<'_>>> {
    loop {
        let result = match kind {
            LockKind::Shared => fs2::FileExt::try_lock_shared(file),
            LockKind::Exclusive => fs2::FileExt::try_lock_exclusive(file),
        };
        match result {
            Ok(()) => return Ok(Some(Guard { file, process: fork::process(), waited: false })),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            Err(error) => return Err(error),
        }
    }
}

/// Locks `file`; `None` if other processes held the lock for all of `timeout`.
///
/// It polls, with sleeps that grow to 2 ms: a blocking lock with a timeout
/// would need a signal or a thread, and a library inside another program can
/// use neither.
///
/// # Errors
/// The file system does not support locks.
pub fn lock(file: &File, kind: LockKind, timeout: Duration) -> io::Result<Option<Guard<'_>>> {
    if let Some(guard) = try_lock(file, kind)? {
        return Ok(Some(guard));
    }
    let mut guard = wait(file, kind, timeout)?;
    if let Some(guard) = &mut guard {
        guard.waited = true;
    }
    Ok(guard)
}

/// Polls until `timeout` has passed.
#[cold]
fn wait(file: &File, kind: LockKind, timeout: Duration) -> io::Result<Option<Guard<'_>>> {
    let begun = Instant::now();
    for _ in 0..TRIES {
        std::thread::yield_now();
        if let Some(guard) = try_lock(file, kind)? {
            return Ok(Some(guard));
        }
    }
    let mut sleep = SHORTEST;
    loop {
        let left = timeout.saturating_sub(begun.elapsed());
        if left.is_zero() {
            return try_lock(file, kind);
        }
        std::thread::sleep(sleep.min(left));
        if let Some(guard) = try_lock(file, kind)? {
            return Ok(Some(guard));
        }
        sleep = (sleep * 2).min(LONGEST);
    }
}

impl<'a> Guard<'a> {
    /// Keeps the lock until [`unlock`] is called, or every process that has the
    /// file open has closed it.
    pub fn keep(self) {
        std::mem::forget(self);
    }

    /// The guard of a lock of `file` that this process has kept.
    #[must_use]
    pub fn of_kept(file: &'a File) -> Self {
        Self { file, process: fork::process(), waited: false }
    }
}

/// Releases a lock kept by [`Guard::keep`].
///
/// Closing the file has the same effect, unless a child process has it open
/// too.
pub fn unlock(file: &File) {
    // This fails only if the file is not open.
    let _ = fs2::FileExt::unlock(file);
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        // The lock belongs to the open file that parent and child share: if a
        // child released it, the parent would lose it.
        if self.process == fork::process() {
            // This fails only if the file is not open.
            let _ = fs2::FileExt::unlock(self.file);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_excludes_others_until_dropped() {
        let path = tempfile::NamedTempFile::new().unwrap();
        let one = path.reopen().unwrap();
        let two = path.reopen().unwrap();
        let guard = lock(&one, LockKind::Exclusive, Duration::ZERO).unwrap().unwrap();
        assert!(try_lock(&two, LockKind::Shared).unwrap().is_none());
        assert!(lock(&two, LockKind::Exclusive, Duration::from_millis(5)).unwrap().is_none());
        drop(guard);
        let _shared = try_lock(&two, LockKind::Shared).unwrap().unwrap();
        assert!(try_lock(&one, LockKind::Exclusive).unwrap().is_none());
        assert!(try_lock(&one, LockKind::Shared).unwrap().is_some());
    }

    #[test]
    fn a_panic_releases_the_lock() {
        let path = tempfile::NamedTempFile::new().unwrap();
        let one = path.reopen().unwrap();
        let two = path.reopen().unwrap();
        let result = std::panic::catch_unwind(|| {
            let _guard = try_lock(&one, LockKind::Exclusive).unwrap().unwrap();
            panic!("on purpose");
        });
        assert!(result.is_err());
        assert!(try_lock(&two, LockKind::Exclusive).unwrap().is_some());
    }

    #[test]
    fn a_child_does_not_unlock_for_its_parent() {
        let path = tempfile::NamedTempFile::new().unwrap();
        let one = path.reopen().unwrap();
        let two = path.reopen().unwrap();
        let mut guard = try_lock(&one, LockKind::Exclusive).unwrap();
        assert!(guard.is_some());
        // The child drops its own copy of the guard, and the file.
        assert!(fork::tests::in_child(|| guard.take().is_some()).succeeds());
        assert!(try_lock(&two, LockKind::Exclusive).unwrap().is_none());
        drop(guard);
        assert!(try_lock(&two, LockKind::Exclusive).unwrap().is_some());
    }
}
