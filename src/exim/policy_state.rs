//! What is kept between calls of `policy`.

use super::policy_facts::PolicyVariables;
use crate::policy::counters::Counters;
use crate::policy::event::{Counted, Occurrence};
use crate::policy::image::PolicyFile;
use crate::policy::outcome::Outcome;

/// What is kept between calls of `policy`.
#[derive(Default)]
pub(super) struct Policies {
    pub(super) variables: Option<PolicyVariables>,
    pub(super) file: Option<PolicyFile>,
    pub(super) counters: Option<Counters>,
    /// What an event counts: kept to be filled again.
    pub(super) occurrences: Vec<Occurrence>,
    /// What each policy has counted in this session.
    pub(super) counted: Vec<(String, CountedBy)>,
    /// The latest call, for `policy_info`.
    pub(super) latest: Option<Latest>,
    /// The process that has logged an error.
    pub(super) logged: Option<u32>,
}

/// What a policy has counted in this session.
#[derive(Default)]
pub(super) struct CountedBy {
    pub(super) counted: Counted,
    /// The outcome of the message's recipients one by one, where they were counted
    /// all at once.
    pub(super) each_recipient: Option<Outcome>,
}

/// The latest call of `policy`.
#[derive(Debug, Default)]
pub(super) struct Latest {
    pub(super) policy: String,
    pub(super) outcome: Outcome,
    /// Why the policy could not be evaluated.
    pub(super) error: Option<String>,
}

impl Policies {
    /// Another message begins.
    pub(super) fn new_message(&mut self) {
        for (_, by) in &mut self.counted {
            by.counted.new_message();
            by.each_recipient = None;
        }
    }

    /// Another command begins.
    pub(super) fn new_command(&mut self) {
        self.counted.iter_mut().for_each(|(_, by)| by.counted.new_command());
    }

    /// Another connection begins.
    pub(super) fn new_connection(&mut self) {
        self.counted.clear();
    }
}
