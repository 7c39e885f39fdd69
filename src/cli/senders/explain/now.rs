//! What would happen to the next event of a key.

use std::collections::{BTreeSet, HashSet};
use std::io::Write as _;

use schemars::JsonSchema;
use serde::Serialize;

use super::remedies;
use crate::cli::Failure;
use crate::cli::shared::rates::Rates;
use crate::cli::shared::screen::Screen;
use crate::engine::AlgorithmKind;
use crate::policy::explain::Measured;
use crate::rate::share::Counted;
use crate::standing::in_force::{By, InForce};
use crate::standing::key_state::{KeyState, KeyStateJson, passes};
use crate::standing::key_text;
use crate::standing::logged::window_text;
use crate::standing::override_state::{OverrideJson, sentence};
use crate::standing::totals::{self, Totals};
use crate::store::{Inspect, Override, OwnedKey};
use crate::text;

/// What would happen to the next event of a record, as JSON has it.
#[derive(Serialize, JsonSchema)]
pub(super) struct NowExplanation {
    #[serde(flatten)]
    state: KeyStateJson,
    /// The table of the policy in use.
    rule: Option<String>,
    /// The smallest whole limit that would let it pass.
    least_limit: f64,
    #[serde(rename = "override")]
    overridden: Option<OverrideJson>,
    /// The reason of an exemption.
    exempt: Option<String>,
    /// The keys of the totals that refuse the event as well.
    refused_by: Vec<String>,
    text: String,
    remedies: Vec<String>,
    #[serde(skip)]
    title: String,
    /// What the limit says, and what decides instead.
    #[serde(skip)]
    limit: String,
    #[serde(skip)]
    decides: Option<String>,
}

impl NowExplanation {
    /// Of each of these records that still exists, and of the totals that count the same.
    pub(super) fn of(
        store: &mut dyn Inspect,
        keys: &[OwnedKey],
        rates: &Rates,
        in_force: &InForce,
    ) -> Result<Vec<Self>, Failure> {
        let totals = Totals::of(store, in_force, keys.iter().map(OwnedKey::key))?;
        let keys: BTreeSet<&OwnedKey> = keys.iter().chain(totals.keys()).collect();
        let mut found = Vec::new();
        for key in keys {
            if let Some(entry) = store.get(key.key())? {
                found.push(KeyState::from(entry));
            }
        }
        let now = in_force.now;
        found.sort_by(|a, b| b.share(now).total_cmp(&a.share(now)));
        let of_record = |record: &KeyState| {
            let refused_by = totals.refuse(in_force, record);
            Self::of_record(record, refused_by, rates, in_force)
        };
        Ok(found.iter().map(of_record).collect())
    }

    fn of_record(
        record: &KeyState,
        refused_by: Vec<String>,
        rates: &Rates,
        in_force: &InForce,
    ) -> Self {
        let (next, now) = (in_force.next(record), in_force.now);
        let algorithm = record.algorithm;
        let as_written = record.period_text().filter(|_| algorithm != AlgorithmKind::Bucket);
        let period = as_written.or_else(|| record.period().map(text::period));
        let window = window_text(record.limit, period.as_deref().unwrap_or("?"), algorithm);
        let (before, count) = match algorithm {
            AlgorithmKind::Share => {
                let Counted { sent, failed } = record.shared(now);
                (sent as f64, failed as f64)
            }
            _ => (record.rate(now), 1.0),
        };
        let measured = Measured {
            window: &window,
            algorithm,
            before: Some(before),
            after: record.rate_after(now, 1.0),
            limit: record.limit,
            count: Some(count),
            over: next.over,
        };
        let rule = in_force.rule(record);
        let by = match (&rule, record.mode()) {
            (Some(rule), Some(mode)) => format!("{mode} by the rule {}", rule.table),
            (_, mode) => mode.unwrap_or_default(),
        };
        let wait = next.wait(record, now);
        let but = match (next.why(), next.is_refused()) {
            (why, false) if !refused_by.is_empty() => {
                let why = why.map_or(String::new(), |why| format!("; {why}"));
                format!("{why}; refused by {}", totals::called(&refused_by))
            }
            (Some(why), true) => format!("; refused: {why}"),
            (Some(why), false) => format!("; passes: {why}"),
            (None, false) => "; passes".to_owned(),
            (None, true) => match wait {
                Some(wait) => format!("; would pass {}", passes(wait, now)),
                None => "; when it would pass is not known".to_owned(),
            },
        };
        let when = wait.map(|wait| passes(wait, now));
        let exempt = match &next.by {
            By::Exempt(_, exempt) => Some(exempt.reason.clone().unwrap_or_default()),
            _ => None,
        };
        Self {
            title: format!("{}, {by}", key_text::title(record.key())),
            rule: rule.map(|rule| rule.table),
            least_limit: measured.least_limit(),
            overridden: next.overridden().map(OverrideJson::of),
            exempt,
            refused_by,
            limit: measured.to_string(),
            decides: next.overridden().map(|_| but.clone()),
            text: format!("{measured}{but}"),
            remedies: remedies::now(rates, record, &measured, &next, when.as_deref()),
            state: in_force.json(record),
        }
    }
}

/// Prints them: each override that decides, and each remedy, once. `said` has those that were said.
pub(super) fn print(
    screen: &mut Screen<'_>,
    all: &[NowExplanation],
    said: &mut HashSet<String>,
) -> Result<(), Failure> {
    for one in all {
        writeln!(screen, "now, {}", one.title)?;
        let is_new = one.decides.as_ref().is_none_or(|decides| said.insert(decides.clone()));
        let text = if is_new { &one.text } else { &one.limit };
        writeln!(screen, "  {:<8}  {text}", "next")?;
        let new = one.remedies.iter().filter(|remedy| said.insert((*remedy).clone()));
        for (n, text) in new.enumerate() {
            writeln!(screen, "  {:<8}  {text}", if n == 0 { "to pass" } else { "or" })?;
        }
    }
    Ok(())
}

/// What [`NowExplanation`] says where this override decides.
pub(super) fn decides(one: &Override) -> String {
    let verb = if one.overridden.is_denial() { "refused" } else { "passes" };
    format!("; {verb}: {}", sentence(one))
}
