//! What policies would have refused, as the page has it.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::path::{Path, PathBuf};

use super::who::{Id, Who};
use super::{Named, Policy, RefusingLimit};
use crate::history::simulate::{
    Attempt, AttemptPart, Decided, Refusals, SimulateError, Simulation, SimulationSettings,
};
use crate::policy::image::Image;
use crate::policy::word::Unit;
use crate::rate::Timestamp;

/// So many refusals of each limit and key are in the page, and so many in all.
const EACH_MAX: usize = 60;
const ALL_MAX: usize = 20_000;
/// So many limits and keys are in the page, and so many pairs of these and an identity.
const LIMITS_MAX: usize = 20_000;
const SHARES_MAX: usize = 60_000;
/// So many pairs of a limit and key, and an identity, are remembered, in 25 MB.
const PAIRS_MAX: usize = 500_000;

/// Evaluates policies on attempts.
pub struct Evaluation<'i> {
    simulation: Simulation<'i>,
    file: PathBuf,
    refused: RefusedSoFar,
}

/// What was refused so far.
struct RefusedSoFar {
    totals: Refusals,
    who: Who,
    hasher: RandomState,
    /// Single refusals.
    rows: HashMap<LimitId, Vec<RefusalRow>>,
    count: usize,
    /// How many attempts of each identity each limit refused. That they were its attempts is
    /// all that counts: a key may be of several identities, folded or masked.
    pairs: HashMap<(LimitId, Id), u64>,
    /// There were too many pairs.
    has_omitted: bool,
    /// Attempts were refused that may be of any identity.
    has_hidden: bool,
}

/// A limit and key: a hash of the policy, the unit, the limit as written, and the key.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct LimitId(u64);

/// A single refusal.
struct RefusalRow {
    at: i64,
    rate: f64,
    passes: Option<i64>,
    recipient: String,
    who: Option<Id>,
}

impl RefusedSoFar {
    fn new(who: Who) -> Self {
        Self {
            totals: Refusals::default(),
            who,
            hasher: RandomState::new(),
            rows: HashMap::new(),
            count: 0,
            pairs: HashMap::new(),
            has_omitted: false,
            has_hidden: false,
        }
    }

    fn limit(&self, policy: &str, unit: Unit, window: &str, key: &str) -> LimitId {
        LimitId(self.hasher.hash_one((policy, unit, window, key)))
    }

    fn add(&mut self, decided: &Decided<'_>) {
        self.totals.add(decided);
        let is_refusal = decided.is_refused() || decided.would_be_refused();
        if !is_refusal || decided.retry > 0 {
            return;
        }
        let outcome = &decided.decisions.outcome;
        let (Some(policy), Some(reason)) = (&decided.decisions.policy, &outcome.reason) else {
            return;
        };
        let limit = self.limit(policy, reason.unit, reason.window(), reason.key());
        let who = self.who.of(decided.attempt);
        match who {
            Some(id) => self.add_pair(limit, id),
            None => self.has_hidden |= self.who.may_hide(decided.attempt),
        }
        if self.count >= ALL_MAX {
            return;
        }
        let rows = self.rows.entry(limit).or_default();
        if rows.len() >= EACH_MAX {
            return;
        }
        let at = decided.attempt.at;
        let passes = reason.decision.retry_after(at).whole_seconds();
        let recipient = match &decided.attempt.part {
            AttemptPart::Rcpt { recipient } => recipient.to_string(),
            _ => String::new(),
        };
        rows.push(RefusalRow {
            at: at.seconds,
            rate: reason.decision.rate,
            passes: passes.map(|seconds| at.seconds.saturating_add_unsigned(seconds)),
            recipient,
            who,
        });
        self.count += 1;
    }

    fn add_pair(&mut self, limit: LimitId, id: Id) {
        let has_room = self.pairs.len() < PAIRS_MAX;
        match self.pairs.get_mut(&(limit, id)) {
            Some(count) => *count += 1,
            None if has_room => {
                self.pairs.insert((limit, id), 1);
            }
            None => self.has_omitted = true,
        }
    }

    /// How many attempts of each of the identities were refused, as far as it is known.
    fn of(&self, names: &[String]) -> Vec<Option<u64>> {
        let mut sums: HashMap<Id, u64> = HashMap::new();
        for ((_, id), count) in &self.pairs {
            *sums.entry(*id).or_default() += count;
        }
        let is_known = !self.has_omitted && !self.has_hidden;
        let refused_of = |name: &String| is_known.then(|| sums.get(&self.who.named(name)).copied());
        names.iter().map(|name| refused_of(name).map(Option::unwrap_or_default)).collect()
    }

    /// Fills in what is of the identities.
    fn fill(mut self, policy: &mut Policy, names: &[String], end: Timestamp) {
        policy.of = self.of(names);
        let numbers: HashMap<Id, usize> =
            names.iter().enumerate().map(|(number, name)| (self.who.named(name), number)).collect();
        let mut places = HashMap::new();
        for one in std::mem::take(&mut self.totals).sorted(end).into_iter().take(LIMITS_MAX) {
            let of = one.of;
            let id = self.limit(&of.policy, of.unit, &of.window, &of.key);
            let place = policy.limits.len();
            places.insert(id, place);
            for row in self.rows.remove(&id).unwrap_or_default() {
                let who = row.who.and_then(|who| numbers.get(&who).copied());
                policy.refusals.push((place, row.at, row.rate, row.passes, row.recipient, who));
            }
            let (first, last) = one.refused.unwrap_or_default();
            policy.limits.push(RefusingLimit {
                key: of.key,
                policy: of.policy,
                rule: of.rule,
                unit: of.unit.word(),
                window: of.window,
                observed: one.observed,
                refused: one.events,
                times: one.crossings,
                over: one.over,
                peak: one.highest,
                limit: one.limit,
                first: first.seconds,
                last: last.seconds,
            });
        }
        let share = |((limit, id), count): (&(LimitId, Id), &u64)| {
            Some((*places.get(limit)?, *numbers.get(id)?, *count))
        };
        policy.shares = self.pairs.iter().filter_map(share).collect();
        policy
            .shares
            .sort_unstable_by_key(|&(limit, id, count)| (std::cmp::Reverse(count), limit, id));
        policy.shares.truncate(SHARES_MAX);
    }
}

impl<'i> Evaluation<'i> {
    /// By all policies of `image`, which `file` has.
    ///
    /// # Errors
    /// As [`Simulation::new`].
    pub fn new(image: &'i Image, file: &Path, who: Who) -> Result<Self, SimulateError> {
        let simulation = Simulation::new(image, "*", SimulationSettings::default())?;
        Ok(Self { simulation, file: file.to_owned(), refused: RefusedSoFar::new(who) })
    }

    /// Decides an attempt of the log.
    ///
    /// # Errors
    /// As [`Simulation::decide`].
    pub fn decide(&mut self, attempt: &Attempt) -> Result<(), SimulateError> {
        self.simulation.decide(attempt, &mut |decided| self.refused.add(decided))
    }

    /// What was refused, and of which of the identities with these names.
    ///
    /// # Errors
    /// As [`Simulation::finish`].
    pub fn finish(mut self, names: &[String]) -> Result<Policy, SimulateError> {
        let refused = &mut self.refused;
        self.simulation.finish(&mut |decided: &Decided<'_>| refused.add(decided))?;
        let totals = self.simulation.totals();
        let end = totals.span.map_or(Timestamp::default(), |(_, last)| last);
        let mut policy = Policy {
            file: self.file.display().to_string(),
            decided: totals.verdicts.all(),
            refused: self.refused.totals.events() + self.refused.totals.observed(),
            ..Policy::default()
        };
        let named = self.simulation.named();
        policy.compared = named.compared;
        policy.named = named
            .all()
            .iter()
            .map(|one| Named {
                key: one.key.to_string(),
                at: one.at.seconds,
                strangers: one.alarm.strangers,
                evidence: one.alarm.to_string(),
                alarms: one.alarms,
            })
            .collect();
        self.refused.fill(&mut policy, names, end);
        Ok(policy)
    }
}
