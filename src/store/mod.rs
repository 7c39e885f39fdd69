//! Where rates are kept: what front ends call.
//!
//! A [`Store`] decides the checks of one event together: it reads what is
//! remembered of each, runs [`crate::engine`], and writes the changes, all
//! under its locks.

#[cfg(test)]
pub(crate) mod conformance;
mod memory;

use crate::engine::{Check, Decision};
use crate::rate::Timestamp;

pub use memory::Memory;

/// A place where rates are kept.
pub trait Store {
    /// What can go wrong.
    type Error: std::error::Error;

    /// Decides the checks of one event, and counts it as [`crate::engine`]
    /// says. `decisions` is emptied first, and then holds one for each check,
    /// in their order.
    ///
    /// Everything of one identity is read and written under one lock. With
    /// several identities, all locks are held at once; a process killed while
    /// it writes may leave the event counted for some of them.
    ///
    /// `clock` is read once, while everything is locked, so that the events of
    /// one record are in the order of their times.
    ///
    /// # Errors
    /// The store could not be used; then the event was not counted.
    fn decide(
        &mut self,
        checks: &[Check<'_>],
        clock: impl FnOnce() -> Timestamp,
        decisions: &mut Vec<Decision>,
    ) -> Result<(), Self::Error>;

    /// Decides a single check.
    ///
    /// # Errors
    /// Those of [`Store::decide`].
    fn decide_one(
        &mut self,
        check: &Check<'_>,
        clock: impl FnOnce() -> Timestamp,
    ) -> Result<Decision, Self::Error>;
}
