//! What policies would have refused, as the page has it.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use crate::cli::policy::sound;
use crate::cli::{Failure, text};
use crate::policy::image::{Image, build};
use crate::policy::word::Word as _;
use crate::rate::Timestamp;
use crate::report::page::{Policy, RefusingLimit};
use crate::report::simulate::{
    Attempt, Decided, Part, Refusals, Settings, SimulateError, Simulation,
};

/// So many refusals of each limit and key are in the page, and so many in all.
const EACH_MAX: usize = 60;
const ALL_MAX: usize = 20_000;
/// So many limits and keys are in the page.
const LIMITS_MAX: usize = 20_000;

/// The policies of a file, as an image.
pub(super) fn image(file: &Path) -> Result<Image, Failure> {
    Ok(Image::from_bytes(build(&sound(file)?))?)
}

/// Evaluates policies on attempts.
pub(super) struct Evaluation<'i> {
    simulation: Simulation<'i>,
    file: PathBuf,
}

/// What was refused so far.
#[derive(Default)]
pub(super) struct Refused {
    totals: Refusals,
    /// Single refusals, by limit and key.
    rows: HashMap<LimitId, Vec<Row>>,
    count: usize,
}

/// A limit and key: the policy, what it counts, the limit as written, and the key.
type LimitId = (String, &'static str, String, String);

/// A single refusal.
struct Row {
    at: i64,
    rate: f64,
    passes: Option<i64>,
    recipient: String,
}

impl Refused {
    fn add(&mut self, decided: &Decided<'_>) {
        self.totals.add(decided);
        let is_refusal = decided.is_refused() || decided.would_be_refused();
        if !is_refusal || decided.retry > 0 || self.count >= ALL_MAX {
            return;
        }
        let outcome = &decided.decisions.outcome;
        let (Some(policy), Some(reason)) = (&decided.decisions.policy, &outcome.reason) else {
            return;
        };
        let id = (
            policy.clone(),
            reason.unit.word(),
            reason.window().to_owned(),
            reason.key().to_owned(),
        );
        let rows = self.rows.entry(id).or_default();
        if rows.len() >= EACH_MAX {
            return;
        }
        let at = decided.attempt.at;
        let passes = text::whole_seconds(reason.decision.retry_after(at));
        let recipient = match &decided.attempt.part {
            Part::Rcpt { recipient } => recipient.clone(),
            _ => String::new(),
        };
        rows.push(Row {
            at: at.seconds,
            rate: reason.decision.rate,
            passes: passes.map(|seconds| at.seconds.saturating_add_unsigned(seconds)),
            recipient,
        });
        self.count += 1;
    }
}

impl<'i> Evaluation<'i> {
    pub(super) fn new(image: &'i Image, file: &Path) -> Result<Self, Failure> {
        let simulation = Simulation::new(image, "*", Settings::default())
            .map_err(|error| Failure::new(format!("{}: {error}", file.display())))?;
        Ok(Self { simulation, file: file.to_owned() })
    }

    pub(super) fn decide(
        &mut self,
        attempt: &Attempt,
        refused: &mut Refused,
    ) -> Result<(), SimulateError> {
        self.simulation.decide(attempt, &mut |decided| refused.add(decided))
    }

    pub(super) fn finish(mut self, mut refused: Refused) -> Result<Policy, Failure> {
        let finished = self.simulation.finish(&mut |decided: &Decided<'_>| refused.add(decided));
        finished.map_err(|error| Failure::new(error.to_string()))?;
        let totals = self.simulation.totals();
        let end = totals.span.map_or(Timestamp::default(), |(_, last)| last);
        let events = refused.totals.events() + refused.totals.observed();
        let mut policy = Policy {
            file: self.file.display().to_string(),
            decided: totals.verdicts.all(),
            refused: events,
            ..Policy::default()
        };
        for one in refused.totals.sorted(end).into_iter().take(LIMITS_MAX) {
            let (first, last) = one.refused.unwrap_or_default();
            let of = one.of;
            let id = (of.policy, of.unit.word(), of.window, of.key);
            let number = policy.limits.len();
            for Row { at, rate, passes, recipient } in refused.rows.remove(&id).unwrap_or_default()
            {
                policy.refusals.push((number, at, rate, passes, recipient));
            }
            let (policy_name, unit, window, key) = id;
            policy.limits.push(RefusingLimit {
                key,
                policy: policy_name,
                rule: of.rule,
                unit,
                window,
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
        Ok(policy)
    }
}
