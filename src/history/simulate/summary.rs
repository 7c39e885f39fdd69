//! What a simulation comes to: who would have been refused, and the totals.

use std::path::Path;

use serde::{Serialize, Serializer};

use super::decided::Totals;
use super::engine::Simulation;
use super::later::SentLater;
use super::named::NamedAccounts;
use super::refusals::{LimitKey, Refusals, Refused, grouped};
use super::retry::{AssumedRetries, Retries};
use crate::history::measure::MeasuredBy;
use crate::rate::Timestamp;

/// What a simulation comes to.
#[derive(Serialize)]
pub struct Summary<'a> {
    /// The policy file.
    pub policy: String,
    #[serde(flatten)]
    /// What was decided.
    pub totals: &'a Totals,
    decided: u64,
    /// Attempts that were refused.
    pub refused: u64,
    /// Those that a policy only observed.
    pub observed: u64,
    retries: RetriesOfOthers<'a>,
    /// Each limit and key that refused something.
    pub limits: Vec<Refused>,
    /// The accounts that habits name.
    #[serde(serialize_with = "accounts")]
    pub named: &'a NamedAccounts,
    /// What policies at delivery would have sent later.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub later: Option<SentLater>,
    notes: Vec<String>,
    #[serde(skip)]
    /// How other mail servers were assumed to try again.
    pub retry: &'a AssumedRetries,
}

/// How other mail servers were assumed to try again, and what came of it.
#[derive(Serialize)]
struct RetriesOfOthers<'a> {
    waits: &'a [f64],
    #[serde(flatten)]
    came_of_it: Retries,
}

fn accounts<S: Serializer>(named: &NamedAccounts, serializer: S) -> Result<S::Ok, S::Error> {
    named.all().serialize(serializer)
}

impl<'a> Summary<'a> {
    /// Of what was decided, and of these refusals.
    pub fn of(
        policy: &'a Path,
        simulation: &'a Simulation<'_>,
        refusals: Refusals,
        retry: &'a AssumedRetries,
        notes: Vec<String>,
    ) -> Self {
        let totals = simulation.totals();
        let end = totals.span.map_or_else(Timestamp::default, |(_, last)| last);
        Self {
            policy: policy.display().to_string(),
            totals,
            decided: totals.verdicts.all(),
            refused: refusals.events(),
            observed: refusals.observed(),
            retries: RetriesOfOthers { waits: retry.schedule.waits(), came_of_it: totals.retries },
            limits: refusals.sorted(end),
            named: simulation.named(),
            later: simulation.later(),
            notes,
            retry,
        }
    }

    /// Adds up the keys of each domain or customer.
    pub fn group(&mut self, by: &MeasuredBy) {
        let of = |key: &LimitKey| by.group_of_key(&key.policy, &key.key);
        self.limits = grouped(std::mem::take(&mut self.limits), of);
    }
}
