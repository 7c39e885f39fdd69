//! The interface to the stores of rates, which front ends call.
//!
//! A [`Store`] decides the checks of one event together: it reads the
//! remembered state of each, runs [`crate::engine`], and writes the changes,
//! all under its locks.

pub(crate) mod byte_reader;
#[cfg(test)]
pub(crate) mod conformance;
mod details;
mod habits;
mod inspect;
mod memory;
mod overrides;
mod usage;

use crate::engine::{Check, Decision};
use crate::rate::Timestamp;

pub(crate) use byte_reader::ByteReader;
pub use details::{DETAILS, DETAILS_MAX, DetailTexts, Enforcement, EventDetails, OVERDUE};
pub use habits::{Judged, Learn, Sending, SendingStage, habits_key, habits_network_hash};
pub use inspect::{
    Edit, Edited, Entry, FilterEntry, Inspect, InspectError, OwnedKey, Restored, Statistics,
    Unread, Visit, Wanted,
};
pub use memory::Memory;
pub use overrides::{
    ALTERNATIVES_MAX, Candidates, FOREVER, LIST_BYTES_MAX, LIST_HEADER_BYTES, ListFault,
    OVERRIDES_MAX, Override, Overrides, Sort, TEXT_MAX, Target, compile_glob, deciding, names,
};

pub(crate) use usage::USAGE;
pub use usage::{Counting, usage_key};

/// A store of rates.
pub trait Store {
    /// The error type.
    type Error: std::error::Error;

    /// Decides the checks of one event, and counts it by the rules of
    /// [`crate::engine`]. `decisions` is cleared and then filled with one
    /// decision for each check, in order.
    ///
    /// All records of one identity are read and written under one lock. With
    /// several identities, all locks are held at once; if the process is killed
    /// while it writes, the event may be counted for some of them only.
    ///
    /// `clock` is read once, while all locks are held, so that the events of
    /// each record are in the order of their times.
    ///
    /// # Errors
    /// The store could not be used; the event was not counted.
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

    /// The hash of a recipient, folded, or of the bytes of a client's network, of which habits
    /// have some bits.
    fn habits_hash(&self, text: &[u8]) -> u64;

    /// Updates the habits of an account by a message that it sends and that all policies
    /// accept, and returns what they say of it. `clock` is read as by [`Store::decide`].
    ///
    /// Where limits are shared by several servers, habits are those of this one.
    ///
    /// # Errors
    /// The store could not be used; nothing was learned.
    fn learn(
        &mut self,
        sending: &Sending<'_>,
        clock: impl FnOnce() -> Timestamp,
    ) -> Result<Judged, Self::Error>;

    /// Counts what an account has sent. `clock` is read as by [`Store::decide`], or not at all where
    /// the lock is still kept of a check, whose time it then has.
    ///
    /// Where limits are shared by several servers, each counts what it accepts itself.
    ///
    /// # Errors
    /// The store could not be used; nothing was counted.
    fn count_usage(
        &mut self,
        counting: &Counting<'_>,
        clock: impl FnOnce() -> Timestamp,
    ) -> Result<(), Self::Error>;

    /// Says whether a lock that is taken is kept until another one is needed or this is called with
    /// `false`: where the calls that follow at once are as a rule about the same identity. Other
    /// processes wait meanwhile.
    fn keep_lock(&mut self, _keeps: bool) {}

    /// Whether the latest decisions have made crossings or refusals that
    /// [`Store::describe`] should describe.
    fn has_events(&self) -> bool {
        false
    }

    /// Completes the crossings and refusals of the latest decisions with what the front end
    /// knows of the event. To be called when [`Store::has_events`].
    fn describe(&mut self, _details: &EventDetails<'_>) {}
}
