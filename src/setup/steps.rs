//! A failpoint: the step of a setup at which the process kills itself.

use std::cell::Cell;

use rustix::process::{Signal, getpid, kill_process};

/// Counts the steps that another process can see.
#[derive(Debug)]
pub(crate) struct Steps {
    left: Cell<Option<u32>>,
}

impl Steps {
    /// The process kills itself after so many steps; with `None`, never.
    pub(crate) fn new(left: Option<u32>) -> Self {
        Self { left: Cell::new(left) }
    }

    /// Makes one step.
    pub(super) fn step(&self) {
        match self.left.get() {
            // As `kill -9` does: nothing is tidied up.
            Some(0) => drop(kill_process(getpid(), Signal::KILL)),
            left => self.left.set(left.map(|left| left - 1)),
        }
    }
}
