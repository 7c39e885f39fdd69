//! Locks on whole files, with a deadline.

use std::fs::File;
use std::io;
use std::time::{Duration, Instant};

use super::fork;

/// Tries before the first nap: a check holds its lock for about as long as
/// one of them takes.
const TRIES: u32 = 20;
/// The first nap.
const SHORTEST: Duration = Duration::from_micros(20);
/// The longest nap.
const LONGEST: Duration = Duration::from_millis(2);

/// Who else may hold the lock at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Other readers.
    Shared,
    /// Nobody.
    Exclusive,
}

/// A held lock; dropping it, also by a panic, lets go of it.
#[derive(Debug)]
pub struct Guard<'a> {
    file: &'a File,
    process: u32,
    waited: bool,
}

impl Guard<'_> {
    /// Whether another process held the lock when it was asked for.
    #[must_use]
    pub fn waited(&self) -> bool {
        self.waited
    }
}

/// Locks `file` at once, or gives `None` where another process holds it.
///
/// # Errors
/// The file system cannot lock.
pub fn try_lock(file: &File, kind: Kind) -> io::Result<Option<Guard<'_>>> {
    loop {
        let result = match kind {
            Kind::Shared => fs2::FileExt::try_lock_shared(file),
            Kind::Exclusive => fs2::FileExt::try_lock_exclusive(file),
        };
        match result {
            Ok(()) => return Ok(Some(Guard { file, process: fork::process(), waited: false })),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            Err(error) => return Err(error),
        }
    }
}

/// Locks `file`, or gives `None` where another process has held it for all of
/// `timeout`.
///
/// It asks again and again, with naps that grow to 2 ms: a lock with a
/// deadline would need a signal or a thread, and a guest in another program
/// may use neither.
///
/// # Errors
/// The file system cannot lock.
pub fn lock(file: &File, kind: Kind, timeout: Duration) -> io::Result<Option<Guard<'_>>> {
    if let Some(guard) = try_lock(file, kind)? {
        return Ok(Some(guard));
    }
    let mut guard = wait(file, kind, timeout)?;
    if let Some(guard) = &mut guard {
        guard.waited = true;
    }
    Ok(guard)
}

/// Asks again and again until `timeout` is at its end.
#[cold]
fn wait(file: &File, kind: Kind, timeout: Duration) -> io::Result<Option<Guard<'_>>> {
    let begun = Instant::now();
    for _ in 0..TRIES {
        std::thread::yield_now();
        if let Some(guard) = try_lock(file, kind)? {
            return Ok(Some(guard));
        }
    }
    let mut nap = SHORTEST;
    loop {
        let left = timeout.saturating_sub(begun.elapsed());
        if left.is_zero() {
            return try_lock(file, kind);
        }
        std::thread::sleep(nap.min(left));
        if let Some(guard) = try_lock(file, kind)? {
            return Ok(Some(guard));
        }
        nap = (nap * 2).min(LONGEST);
    }
}

impl Guard<'_> {
    /// Keeps the lock until [`unlock`] is called, or the file is closed by all
    /// who have it open.
    pub fn keep(self) {
        std::mem::forget(self);
    }
}

/// Lets go of a lock that this process has kept.
///
/// Closing the file would do the same, unless a child has it open as well.
pub fn unlock(file: &File) {
    // It can only fail where the file is not open.
    let _ = fs2::FileExt::unlock(file);
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        // A lock belongs to the open file that parent and child share: a child
        // that lets go of it would do so for its parent.
        if self.process == fork::process() {
            // It can only fail where the file is not open.
            let _ = fs2::FileExt::unlock(self.file);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn excludes_until_dropped() {
        let path = tempfile::NamedTempFile::new().unwrap();
        let one = path.reopen().unwrap();
        let two = path.reopen().unwrap();
        let guard = lock(&one, Kind::Exclusive, Duration::ZERO).unwrap().unwrap();
        assert!(try_lock(&two, Kind::Shared).unwrap().is_none());
        assert!(lock(&two, Kind::Exclusive, Duration::from_millis(5)).unwrap().is_none());
        drop(guard);
        let _shared = try_lock(&two, Kind::Shared).unwrap().unwrap();
        assert!(try_lock(&one, Kind::Exclusive).unwrap().is_none());
        assert!(try_lock(&one, Kind::Shared).unwrap().is_some());
    }

    #[test]
    fn a_panic_lets_go() {
        let path = tempfile::NamedTempFile::new().unwrap();
        let one = path.reopen().unwrap();
        let two = path.reopen().unwrap();
        let result = std::panic::catch_unwind(|| {
            let _guard = try_lock(&one, Kind::Exclusive).unwrap().unwrap();
            panic!("on purpose");
        });
        assert!(result.is_err());
        assert!(try_lock(&two, Kind::Exclusive).unwrap().is_some());
    }

    #[test]
    fn a_child_does_not_unlock_for_its_parent() {
        let path = tempfile::NamedTempFile::new().unwrap();
        let one = path.reopen().unwrap();
        let two = path.reopen().unwrap();
        let mut guard = try_lock(&one, Kind::Exclusive).unwrap();
        assert!(guard.is_some());
        // The child drops its own copy of the guard, and the file.
        assert!(fork::tests::in_child(|| guard.take().is_some()).succeeds());
        assert!(try_lock(&two, Kind::Exclusive).unwrap().is_none());
        drop(guard);
        assert!(try_lock(&two, Kind::Exclusive).unwrap().is_some());
    }
}
