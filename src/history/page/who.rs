//! Which identity of the page an attempt is of.

use std::hash::{BuildHasher as _, RandomState};

use crate::history::measure::{By, MeasuredBy, cut};
use crate::history::simulate::Attempt;

/// Finds the identities of attempts. They are compared by their texts in the log, so that
/// each is one that `exirate measure` shows, whatever a policy makes of it.
#[derive(Clone)]
pub struct Who {
    by: MeasuredBy,
    hasher: RandomState,
}

/// An identity: a hash of its text with a key of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Id(u64);

impl Who {
    /// Finds identities of this kind.
    #[must_use]
    pub fn new(by: MeasuredBy) -> Self {
        Self { by, hasher: RandomState::new() }
    }

    /// The identity of an attempt, if it has one.
    pub fn of(&self, attempt: &Attempt) -> Option<Id> {
        Some(self.named(&self.by.identity(&attempt.event.view())?))
    }

    /// The identity with this text.
    pub fn named(&self, text: &str) -> Id {
        Id(self.hasher.hash_one(cut(text)))
    }

    /// Whether an attempt without an identity may still be of one that the page shows:
    /// policies do not know what a client on the network says of its user.
    pub fn may_hide(&self, attempt: &Attempt) -> bool {
        self.by.by == By::User && attempt.event.client.address().is_some()
    }
}
