//! What policies make of an event, as JSON has it.

use schemars::JsonSchema;
use serde::Serialize;

use super::outcome::Reason;
use super::replay::{Decisions, Window};
use super::word::Word as _;
use crate::engine::Overridden;

/// What policies make of an event, as JSON has it.
#[derive(Serialize, JsonSchema)]
pub struct DecisionsJson<'a> {
    verdict: &'static str,
    /// The verdict if the policy was enforced and nobody exempt.
    measured: &'static str,
    #[serde(flatten)]
    limit: DecidingLimit<'a>,
    /// The reply.
    text: &'a str,
    /// In seconds.
    delay: f64,
    /// Whether a policy only observes it.
    observed: bool,
    /// Whether a policy exempts it.
    exempt: bool,
    /// Whether it crosses a limit.
    crossed: bool,
    /// How many recipients were refused before.
    refused_recipients: u32,
    /// Each limit.
    windows: Vec<WindowJson<'a>>,
}

/// The limit that decided; nothing where none applies.
#[derive(Serialize, JsonSchema)]
pub struct DecidingLimit<'a> {
    /// The policy of the limit that decides; null, as what follows, where none applies.
    policy: Option<&'a str>,
    rule: Option<&'a str>,
    unit: Option<&'static str>,
    /// The limit, as it is written.
    window: Option<&'a str>,
    /// Who is counted.
    key: Option<&'a str>,
}

impl<'a> DecidingLimit<'a> {
    /// Of these decisions.
    pub fn of(decisions: &'a Decisions) -> Self {
        let reason = decisions.outcome.reason.as_deref();
        Self {
            policy: decisions.policy.as_deref(),
            rule: reason.map(|reason| &*reason.rule),
            unit: reason.map(|reason| reason.unit.word()),
            window: reason.map(Reason::window),
            key: reason.map(Reason::key),
        }
    }
}

/// A limit, as JSON has it.
#[derive(Serialize, JsonSchema)]
struct WindowJson<'a> {
    policy: &'a str,
    rule: &'a str,
    unit: &'static str,
    window: &'a str,
    key: &'a str,
    /// The name of the record.
    record: &'a str,
    /// With the event.
    rate: f64,
    limit: f64,
    /// What the event counts.
    count: f64,
    over: bool,
    /// Null: no limit.
    remaining: Option<f64>,
    /// In seconds; null: never.
    retry_after: Option<u64>,
    crossed: bool,
    /// allow, deny or null.
    #[serde(rename = "override")]
    overridden: Option<&'static str>,
}

impl<'a> DecisionsJson<'a> {
    /// Of these decisions.
    pub fn of(decisions: &'a Decisions) -> Self {
        let outcome = &decisions.outcome;
        Self {
            verdict: outcome.verdict.word(),
            measured: outcome.measured.word(),
            limit: DecidingLimit::of(decisions),
            text: &outcome.text,
            delay: outcome.delay,
            observed: outcome.observed,
            exempt: outcome.exempt,
            crossed: decisions.crossed,
            refused_recipients: decisions.refused_recipients,
            windows: decisions.windows.iter().map(WindowJson::of).collect(),
        }
    }
}

impl<'a> WindowJson<'a> {
    fn of(window: &'a Window) -> Self {
        let decision = &window.decision;
        Self {
            policy: window.policy(),
            rule: &window.rule,
            unit: window.unit.word(),
            window: window.text(),
            key: window.key(),
            record: window.record(),
            rate: decision.rate,
            limit: decision.limit,
            count: decision.count,
            over: decision.over,
            remaining: Some(decision.remaining(decision.at)).filter(|left| left.is_finite()),
            retry_after: decision.retry_after(decision.at).whole_seconds(),
            crossed: decision.crossed,
            overridden: decision.overridden.map(Overridden::word),
        }
    }
}
