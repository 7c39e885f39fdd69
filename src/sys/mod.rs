//! What the operating system gives: locks, mappings, secure files, the clock,
//! fork detection.
//!
//! Nothing here knows anything of ours, so moments are plain numbers. Of all
//! that is not about Exim, this is the only place with `unsafe`.
#![allow(unsafe_code)]

pub mod clock;
pub mod files;
pub mod fork;
pub mod lock;
pub mod mapping;

#[cfg(test)]
pub(crate) mod fuel {
    //! A process that dies at a chosen step of its writing, and a disk that
    //! fills up, for tests.

    use std::cell::Cell;

    thread_local! {
        static LEFT: Cell<Option<u32>> = const { Cell::new(None) };
        static DISK: Cell<Option<u64>> = const { Cell::new(None) };
    }

    /// Lets this thread make so many writing steps, or any number.
    pub(crate) fn fill(steps: Option<u32>) {
        LEFT.set(steps);
    }

    /// Gives this thread so many bytes of disk to reserve, or any number.
    pub(crate) fn give_disk(bytes: Option<u64>) {
        DISK.set(bytes);
    }

    /// Whether so many bytes of disk are left; then they are taken.
    pub(crate) fn take_disk(bytes: u64) -> bool {
        match DISK.get() {
            None => true,
            Some(left) if left < bytes => false,
            Some(left) => {
                DISK.set(Some(left - bytes));
                true
            }
        }
    }

    /// One step is to be made; false where the process dies instead.
    pub(crate) fn burn() -> bool {
        match LEFT.get() {
            None => true,
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
}
