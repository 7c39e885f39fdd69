//! Failpoints for tests: a process that dies or stops at a chosen write, and a
//! disk that fills up.

use std::cell::Cell;
use std::fs::File;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// What happens at the first step that is not allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FailpointAction {
    /// The process panics and writes nothing while it unwinds.
    Dies,
    /// The process stops, as with `kill -STOP`; once continued, it runs to its
    /// end.
    Stops,
}

thread_local! {
    static LEFT: Cell<Option<u32>> = const { Cell::new(None) };
    static FAILURE: Cell<FailpointAction> = const { Cell::new(FailpointAction::Dies) };
    static DISK: Cell<Option<(u64, io::ErrorKind)>> = const { Cell::new(None) };
}

/// Allows this thread so many writing steps before it dies; `None` is any
/// number.
pub(crate) fn allow_steps(steps: Option<u32>) {
    allow_steps_until(steps, FailpointAction::Dies);
}

/// As [`allow_steps`], with a choice of failure.
pub(crate) fn allow_steps_until(steps: Option<u32>, failure: FailpointAction) {
    LEFT.set(steps);
    FAILURE.set(failure);
}

/// Runs `act`, in which this thread dies after so many writing steps; whether it did.
pub(crate) fn dies_after<T>(steps: u32, act: impl FnOnce() -> T) -> bool {
    allow_steps(Some(steps));
    let died = catch_unwind(AssertUnwindSafe(act)).is_err();
    allow_steps(None);
    died
}

/// Limits the bytes of disk that this thread may reserve; `None` is any number.
pub(crate) fn limit_disk(bytes: Option<u64>) {
    DISK.set(bytes.map(|bytes| (bytes, io::ErrorKind::StorageFull)));
}

/// As [`limit_disk`], but the error is that of a used-up quota.
pub(crate) fn limit_quota(bytes: u64) {
    DISK.set(Some((bytes, io::ErrorKind::QuotaExceeded)));
}

/// Uses so many bytes of disk.
pub(crate) fn use_disk(bytes: u64) -> io::Result<()> {
    match DISK.get() {
        None => Ok(()),
        Some((left, error)) if left < bytes => Err(error.into()),
        Some((left, error)) => {
            DISK.set(Some((left - bytes, error)));
            Ok(())
        }
    }
}

/// The part of `bytes` that fits on the disk when written to `file` at
/// `offset`, and the error to return if that is not all of it.
pub(crate) fn writable_part<'a>(
    file: &File,
    offset: u64,
    bytes: &'a [u8],
) -> (&'a [u8], io::Result<()>) {
    let Some((left, error)) = DISK.get() else { return (bytes, Ok(())) };
    let present = file.metadata().map_or(0, |metadata| metadata.len()).saturating_sub(offset);
    let fits = usize::try_from(present.saturating_add(left)).unwrap_or(usize::MAX);
    let more = (bytes.len() as u64).saturating_sub(present).min(left);
    DISK.set(Some((left - more, error)));
    match bytes.get(..fits) {
        Some(fitting) if fits < bytes.len() => (fitting, Err(error.into())),
        _ => (bytes, Ok(())),
    }
}

/// Makes one step; false if the process must die instead.
pub(crate) fn take_step() -> bool {
    match LEFT.get() {
        None => true,
        Some(0) if FAILURE.get() == FailpointAction::Stops => {
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

/// Dies if no step is left.
pub(crate) fn step() {
    if !take_step() {
        die();
    }
}

/// Dies: nothing may be written after this.
pub(crate) fn die() -> ! {
    panic!("killed")
}
