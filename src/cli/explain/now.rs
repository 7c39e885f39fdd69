//! What would happen to the next event of a key.

use std::ffi::OsString;
use std::io::Write as _;

use serde::Serialize;

use super::event::window_text;
use crate::cli::database::now;
use crate::cli::key_state::{KeyState, KeyStateJson, later};
use crate::cli::override_state::{Active, OverrideJson, sentence};
use crate::cli::screen::Screen;
use crate::cli::{Failure, key_text, keys, text};
use crate::engine::{AlgorithmKind, Forced, Kind};
use crate::identity::fold::Folding;
use crate::policy::explain::{Measured, remedies};
use crate::policy::model::Policies;
use crate::rate::{Timestamp, Wait};
use crate::report::explain::rule;
use crate::store::{Inspect, OwnedKey};

/// What would happen to the next event of a record, as JSON has it.
#[derive(Serialize)]
pub(super) struct NowExplanation {
    #[serde(flatten)]
    state: KeyStateJson,
    rule: Option<String>,
    least_limit: f64,
    #[serde(rename = "override")]
    forced: Option<OverrideJson>,
    exempt: Option<String>,
    text: String,
    remedies: Vec<String>,
    #[serde(skip)]
    title: String,
}

impl NowExplanation {
    /// Of each of these records that still exists.
    pub(super) fn of(
        store: &mut dyn Inspect,
        keys: &[OwnedKey],
        policies: Option<&Policies>,
    ) -> Result<Vec<Self>, Failure> {
        let now = now();
        let mut found = Vec::new();
        for key in keys {
            if let Some(entry) = store.get(key.key())? {
                found.push(KeyState::from(entry));
            }
        }
        let overrides = Active::or_note(store, now);
        found.sort_by(|a, b| b.share(now).total_cmp(&a.share(now)));
        Ok(found.iter().map(|record| Self::of_record(record, &overrides, policies, now)).collect())
    }

    fn of_record(
        record: &KeyState,
        overrides: &Active,
        policies: Option<&Policies>,
        now: Timestamp,
    ) -> Self {
        let key = record.record_key();
        let bucket = record.algorithm == AlgorithmKind::Bucket;
        let as_written = record.period_text().filter(|_| !bucket);
        let period = as_written.or_else(|| record.period().map(keys::written));
        let window = window_text(record.limit, period.as_deref().unwrap_or("?"), bucket);
        let measured = Measured {
            window: &window,
            bucket,
            before: Some(record.rate(now)),
            after: record.rate_after(now, 1.0),
            limit: record.limit,
            count: Some(1.0),
            over: record.is_over(now),
        };
        let forced = overrides.deciding(record);
        let rule = policies.and_then(|all| rule::find(all, &key, None, now.seconds).ok());
        let exempt = rule.as_ref().and_then(|rule| rule.exempt);
        // Another limit is that of a package which Exim hands over, or of an earlier policy.
        let same = rule.filter(|rule| rule.algorithm.limit() == record.limit);
        let by = match (key.kind, &same, record.mode()) {
            (Kind::Spec, ..) => record.mode().unwrap_or_default(),
            (_, Some(rule), Some(mode)) => format!("{mode} by the rule {}", rule.table),
            (_, _, mode) => mode.unwrap_or_default(),
        };
        let but = match (forced.map(|one| (one.forced, sentence(one))), exempt) {
            (Some((Forced::Allow, why)), _) => format!("; passes: {why}"),
            (Some((Forced::Deny, why)), _) => format!("; refused: {why}"),
            (None, Some((_, why))) => {
                let why = text::printable(why.unwrap_or("no reason given").as_bytes());
                format!("; passes: the policy exempts the key ({why})")
            }
            (None, None) => match (measured.over, record.wait(now)) {
                (true, Some(wait)) => format!("; would pass {}", passes(wait, now)),
                (true, None) => "; when it would pass is not known".to_owned(),
                (false, _) => "; passes".to_owned(),
            },
        };
        let is_refused = match forced.map(|one| one.forced) {
            Some(Forced::Allow) => false,
            Some(Forced::Deny) => true,
            None => measured.over && exempt.is_none(),
        };
        let named = key_text::key(record.key());
        let remedies = match (is_refused, forced) {
            (false, _) => Vec::new(),
            (true, Some(_)) => {
                vec![format!("`exirate overrides --remove {named}`: the rate decides again")]
            }
            (true, None) => {
                let when = record.wait(now).map(|wait| passes(wait, now));
                remedies(&[measured], &named, key.kind == Kind::Policy, when.as_deref())
            }
        };
        Self {
            title: format!("{}, {by}", key_text::title(record.key())),
            rule: same.map(|rule| rule.table),
            least_limit: measured.least_limit(),
            forced: forced.map(OverrideJson::of),
            exempt: exempt.map(|(_, why)| why.unwrap_or_default().to_owned()),
            text: format!("{measured}{but}"),
            remedies,
            state: record.json(now),
        }
    }
}

/// When one more event would pass.
fn passes(wait: Wait, now: Timestamp) -> String {
    match text::whole_seconds(wait) {
        None => text::wait(wait),
        Some(seconds) => format!("{}, at {}", text::wait(wait), text::local(later(now, seconds))),
    }
}

/// Prints them.
pub(super) fn print(screen: &mut Screen<'_>, all: &[NowExplanation]) -> Result<(), Failure> {
    for one in all {
        writeln!(screen, "now, {}", one.title)?;
        writeln!(screen, "  {:<8}  {}", "next", one.text)?;
        for (n, text) in one.remedies.iter().enumerate() {
            writeln!(screen, "  {:<8}  {text}", if n == 0 { "to pass" } else { "or" })?;
        }
    }
    Ok(())
}

/// Prints the overrides of keys that have no record.
pub(super) fn print_overrides(
    screen: &mut Screen<'_>,
    store: &mut dyn Inspect,
    keys: &[OsString],
    narrow: &keys::Narrow,
    folding: &Folding,
) -> Result<(), Failure> {
    let second = now().seconds;
    let active = store.overrides()?;
    for key in keys {
        let Ok(target) = narrow.override_target(key, folding) else { continue };
        for one in active.iter().filter(|one| one.is_active(second) && one.target == target) {
            writeln!(screen, "now, {}", sentence(one))?;
        }
    }
    Ok(())
}
