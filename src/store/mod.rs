//! The interface to the stores of rates, which front ends call.
//!
//! A [`Store`] decides the checks of one event together: it reads the
//! remembered state of each, runs [`crate::engine`], and writes the changes,
//! all under its locks.

mod byte_reader;
#[cfg(test)]
pub(crate) mod conformance;
mod inspect;
mod memory;
mod overrides;

use crate::engine::{Check, Decision};
use crate::rate::Timestamp;

pub(crate) use byte_reader::ByteReader;
pub use inspect::{
    Edit, Edited, Entry, FilterEntry, Inspect, InspectError, OwnedKey, Restored, Statistics, Unread,
};
pub use memory::Memory;
pub use overrides::{
    ALTERNATIVES_MAX, Candidates, FOREVER, LIST_BYTES_MAX, LIST_HEADER_BYTES, ListFault,
    OVERRIDES_MAX, Override, Overrides, Sort, TEXT_MAX, Target, compile_glob, deciding, names,
};

/// Whether an event that is over is held against whoever sent it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Enforcement {
    /// It is.
    #[default]
    Enforced,
    /// The policy only observes.
    Observed,
    /// The policy exempts it.
    Exempt,
}

impl Enforcement {
    const ALL: [Self; 3] = [Self::Enforced, Self::Observed, Self::Exempt];

    /// Its word in the output.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Enforced => "enforced",
            Self::Observed => "observed",
            Self::Exempt => "exempt",
        }
    }

    pub(crate) fn byte(self) -> u8 {
        self as u8
    }

    /// What is unknown is taken for enforced: it is to be seen.
    pub(crate) fn of(byte: u8) -> Self {
        Self::ALL.get(usize::from(byte)).copied().unwrap_or_default()
    }
}

/// What the front end knows of an event. Texts are bytes as clients sent them; longer
/// ones are cut.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EventDetails<'a> {
    /// The policy; empty for a spec.
    pub policy: &'a [u8],
    /// The rule of the policy; empty for a spec.
    pub rule: &'a [u8],
    /// What the policy counts; empty for a spec.
    pub unit: &'a [u8],
    /// The authenticated user.
    pub login: &'a [u8],
    /// The client's address.
    pub client: &'a [u8],
    /// The envelope sender.
    pub sender: &'a [u8],
    /// The recipient.
    pub recipient: &'a [u8],
    /// The message id.
    pub message_id: &'a [u8],
    /// Whether the policy enforces what it has decided.
    pub enforcement: Enforcement,
}

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

    /// Whether the latest decisions have made crossings or refusals that
    /// [`Store::describe`] should describe.
    fn has_events(&self) -> bool {
        false
    }

    /// Completes the crossings and refusals of the latest decisions with what the front end
    /// knows of the event. To be called when [`Store::has_events`].
    fn describe(&mut self, _details: &EventDetails<'_>) {}
}
