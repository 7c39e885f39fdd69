//! A process that dies or is stopped at a chosen step of its writing, and a
//! disk that fills up, for tests.

use std::cell::Cell;
use std::fs::File;
use std::io;

/// What happens to a process at the step for which it has no fuel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// It panics, and writes nothing on its way out.
    Dies,
    /// It stops, as by `kill -STOP`; continued, it goes on for good.
    Stops,
}

thread_local! {
    static LEFT: Cell<Option<u32>> = const { Cell::new(None) };
    static END: Cell<End> = const { Cell::new(End::Dies) };
    static DISK: Cell<Option<(u64, io::ErrorKind)>> = const { Cell::new(None) };
}

/// Lets this thread make so many writing steps and then die, or any number.
pub(crate) fn fill(steps: Option<u32>) {
    fill_until(steps, End::Dies);
}

/// As [`fill`], with another end.
pub(crate) fn fill_until(steps: Option<u32>, end: End) {
    LEFT.set(steps);
    END.set(end);
}

/// Gives this thread so many bytes of disk to reserve, or any number.
pub(crate) fn give_disk(bytes: Option<u64>) {
    DISK.set(bytes.map(|bytes| (bytes, io::ErrorKind::StorageFull)));
}

/// As [`give_disk`], where it is a quota that is used up.
pub(crate) fn give_quota(bytes: u64) {
    DISK.set(Some((bytes, io::ErrorKind::QuotaExceeded)));
}

/// Takes so many bytes of disk.
pub(crate) fn take_disk(bytes: u64) -> io::Result<()> {
    match DISK.get() {
        None => Ok(()),
        Some((left, error)) if left < bytes => Err(error.into()),
        Some((left, error)) => {
            DISK.set(Some((left - bytes, error)));
            Ok(())
        }
    }
}

/// As much of `bytes` as fits on the disk when written to `file` from `offset`
/// on, and the error that follows where that is not all.
pub(crate) fn fits<'a>(file: &File, offset: u64, bytes: &'a [u8]) -> (&'a [u8], io::Result<()>) {
    let Some((left, error)) = DISK.get() else { return (bytes, Ok(())) };
    let present = file.metadata().map_or(0, |facts| facts.len()).saturating_sub(offset);
    let fits = usize::try_from(present.saturating_add(left)).unwrap_or(usize::MAX);
    let more = (bytes.len() as u64).saturating_sub(present).min(left);
    DISK.set(Some((left - more, error)));
    match bytes.get(..fits) {
        Some(fitting) if fits < bytes.len() => (fitting, Err(error.into())),
        _ => (bytes, Ok(())),
    }
}

/// One step is to be made; false where the process dies instead.
pub(crate) fn burn() -> bool {
    match LEFT.get() {
        None => true,
        Some(0) if END.get() == End::Stops => {
            LEFT.set(None);
            let this = rustix::process::getpid();
            rustix::process::kill_process(this, rustix::process::Signal::STOP).is_ok()
        }
        Some(0) => false,
        Some(left) => {
            LEFT.set(Some(left - 1));
            true
        }
    }
}

/// Dies where there is no fuel left.
pub(crate) fn step() {
    if !burn() {
        die();
    }
}

/// Dies: what follows must not write.
pub(crate) fn die() -> ! {
    panic!("killed")
}
