//! What only one of two policy files refuses.

use std::collections::HashMap;
use std::path::Path;

use serde::Serialize;

use super::attempt::Attempt;
use super::decided::{Decided, SimulateError, exact};
use super::engine::Simulation;
use crate::rate::Timestamp;

/// So many keys are remembered; the refusals of further ones are only counted.
const KEYS_MAX: usize = 500_000;

/// How many attempts each of the two files refuses, as they are written in tables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RefusalCounts {
    /// Refused by the first alone.
    pub only_policy: u64,
    /// Refused by the second alone.
    pub only_against: u64,
    /// Refused by both.
    pub both: u64,
}

/// A key, and what the two files make of its attempts.
#[derive(Debug, Default, Serialize)]
pub struct KeyComparison {
    /// The key.
    pub key: String,
    /// The attempts.
    #[serde(flatten)]
    pub counts: RefusalCounts,
    /// When only one of them refused first.
    #[serde(serialize_with = "exact")]
    pub first: Option<Timestamp>,
    /// The limit by which the policy refused first.
    pub limit: Option<String>,
    /// The limit by which the other refused first.
    pub limit_against: Option<String>,
}

/// Compares what two policy files refuse.
pub struct Comparison<'a> {
    names: [&'a Path; 2],
    decided: u64,
    counts: RefusalCounts,
    /// Keys of which only one file refuses an attempt.
    rows: HashMap<String, KeyComparison>,
    /// Attempts that no row is of.
    omitted: u64,
}

/// A refusal: who was counted, and by which limit.
struct RefusedBy {
    key: String,
    limit: String,
}

impl<'a> Comparison<'a> {
    /// Of these files.
    pub fn new(policy: &'a Path, against: &'a Path) -> Self {
        Self {
            names: [policy, against],
            decided: 0,
            counts: RefusalCounts::default(),
            rows: HashMap::new(),
            omitted: 0,
        }
    }

    /// How many refused attempts are in no row, as there are too many keys.
    pub fn omitted(&self) -> u64 {
        self.omitted
    }

    /// Decides an attempt by both.
    ///
    /// # Errors
    /// Those of [`Simulation::decide`].
    pub fn decide(
        &mut self,
        policy: &mut Simulation<'_>,
        against: &mut Simulation<'_>,
        attempt: &Attempt,
    ) -> Result<(), SimulateError> {
        let (one, is_decided) = refused(policy, attempt)?;
        let (other, is_decided_too) = refused(against, attempt)?;
        self.decided += u64::from(is_decided || is_decided_too);
        let key = match (&one, &other) {
            (Some(by), _) | (None, Some(by)) => by.key.clone(),
            (None, None) => return Ok(()),
        };
        self.counts.add(one.is_some(), other.is_some());
        if self.rows.len() >= KEYS_MAX && !self.rows.contains_key(&key) {
            self.omitted += 1;
            return Ok(());
        }
        let row = self
            .rows
            .entry(key)
            .or_insert_with_key(|key| KeyComparison { key: key.clone(), ..Default::default() });
        row.counts.add(one.is_some(), other.is_some());
        if one.is_some() != other.is_some() {
            row.first.get_or_insert(attempt.at);
        }
        row.limit = row.limit.take().or(one.map(|by| by.limit));
        row.limit_against = row.limit_against.take().or(other.map(|by| by.limit));
        Ok(())
    }

    /// What has come of it: the first `top` keys of which only one file refuses an attempt, the most
    /// first.
    pub fn report(self, top: Option<usize>, notes: Vec<String>) -> ComparisonReport {
        let rows = self.rows.into_values().filter(|row| row.counts.differ() > 0);
        let mut rows: Vec<KeyComparison> = rows.collect();
        let by = |row: &KeyComparison| std::cmp::Reverse(row.counts.differ());
        rows.sort_by(|a, b| by(a).cmp(&by(b)).then_with(|| a.key.cmp(&b.key)));
        let keys = rows.len();
        let hit =
            |of: fn(&RefusalCounts) -> u64| rows.iter().filter(|row| of(&row.counts) > 0).count();
        let (keys_only_policy, keys_only_against) =
            (hit(|counts| counts.only_policy), hit(|counts| counts.only_against));
        rows.truncate(top.unwrap_or(usize::MAX));
        let [policy, against] = self.names.map(|name| name.display().to_string());
        ComparisonReport {
            policy,
            against,
            decided: self.decided,
            counts: self.counts,
            keys_only_policy,
            keys_only_against,
            verdict: self.counts.verdict(),
            omitted: keys - rows.len(),
            keys: rows,
            notes,
        }
    }
}

impl RefusalCounts {
    /// Adds an attempt that at least one of the files refuses.
    fn add(&mut self, policy: bool, against: bool) {
        match (policy, against) {
            (true, true) => self.both += 1,
            (true, false) => self.only_policy += 1,
            (false, _) => self.only_against += 1,
        }
    }

    /// Those that one alone refuses.
    pub fn differ(&self) -> u64 {
        self.only_policy + self.only_against
    }

    /// What the policy is, compared with the other.
    fn verdict(&self) -> &'static str {
        match (self.only_policy, self.only_against) {
            (0, 0) => "same",
            (_, 0) => "stricter",
            (0, _) => "milder",
            _ => "different",
        }
    }
}

/// Who refused an attempt, if it was, and whether it was decided.
fn refused(
    simulation: &mut Simulation<'_>,
    attempt: &Attempt,
) -> Result<(Option<RefusedBy>, bool), SimulateError> {
    let (mut by, mut is_decided) = (None, false);
    simulation.decide(attempt, &mut |decided: &Decided<'_>| {
        if decided.retry > 0 {
            return;
        }
        is_decided = true;
        if !decided.is_refused() || by.is_some() {
            return;
        }
        let policy = decided.decisions.policy.as_deref().unwrap_or_default();
        by = Some(match &decided.decisions.outcome.reason {
            Some(reason) => RefusedBy {
                key: reason.key().to_owned(),
                limit: format!("{policy}: {} {}", reason.unit.word(), reason.window()),
            },
            None => RefusedBy { key: String::new(), limit: policy.to_owned() },
        });
    })?;
    Ok((by, is_decided))
}

/// What has come of a comparison.
#[derive(Debug, Serialize)]
pub struct ComparisonReport {
    policy: String,
    against: String,
    /// How many attempts were decided.
    pub decided: u64,
    /// How many were refused.
    #[serde(flatten)]
    pub counts: RefusalCounts,
    /// Keys of which the first alone refuses an attempt.
    pub keys_only_policy: usize,
    /// Keys of which the second alone does.
    pub keys_only_against: usize,
    /// What the first is, compared with the second.
    pub verdict: &'static str,
    /// The keys.
    pub keys: Vec<KeyComparison>,
    notes: Vec<String>,
    /// How many further keys there are.
    #[serde(skip)]
    pub omitted: usize,
}
