//! What a logged event met, what would happen to the next one, and what would let them pass: commands,
//! each of which works where it is shown.

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::Serialize;

use crate::engine::{AlgorithmKind, Kind};
use crate::policy::explain::Measured;
use crate::rate::share::Counted;
use crate::rate::{Timestamp, Wait};
use crate::spool::LoggedEvent;
use crate::standing::commands::Commands;
use crate::standing::databases::StandingError;
use crate::standing::in_force::{By, InForce, NextEvent};
use crate::standing::key_state::{KeyState, KeyStateJson, later, passes};
use crate::standing::key_text;
use crate::standing::logged::{LoggedLimits, window_text};
use crate::standing::override_state::{OverrideJson, sentence};
use crate::standing::totals::{self, Totals};
use crate::store::{Inspect, Override, OwnedKey, Target};
use crate::text;

/// What would happen to the next event of a record, as JSON has it.
#[derive(Serialize, JsonSchema)]
pub(crate) struct NowExplanation {
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
    pub(crate) text: String,
    pub(crate) remedies: Vec<String>,
    #[serde(skip)]
    pub(crate) title: String,
    /// What the limit says, and what decides instead.
    #[serde(skip)]
    pub(crate) limit: String,
    #[serde(skip)]
    pub(crate) decides: Option<String>,
}

impl NowExplanation {
    /// Of each of these records that still exists, and of the totals that count the same.
    pub(crate) fn of(
        store: &mut dyn Inspect,
        keys: &[OwnedKey],
        commands: &Commands,
        in_force: &InForce,
    ) -> Result<Vec<Self>, StandingError> {
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
            Self::of_record(record, refused_by, commands, in_force)
        };
        Ok(found.iter().map(of_record).collect())
    }

    fn of_record(
        record: &KeyState,
        refused_by: Vec<String>,
        commands: &Commands,
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
            remedies: remedies(commands, record, &measured, &next, when.as_deref()),
            state: in_force.json(record),
        }
    }
}

/// What [`NowExplanation`] says where this override decides.
pub(crate) fn decides(one: &Override) -> String {
    let verb = if one.overridden.is_denial() { "refused" } else { "passes" };
    format!("; {verb}: {}", sentence(one))
}

/// An event that was logged, explained, as JSON has it.
#[derive(Serialize, JsonSchema)]
pub(crate) struct EventExplanation {
    /// Its limits; what is not known of them is null.
    windows: Vec<WindowJson>,
    /// When it would have passed all of them.
    passes_at: Option<String>,
    /// The same in words.
    pub(crate) text: Vec<String>,
    /// What would let it pass.
    pub(crate) remedies: Vec<String>,
}

/// A limit, as JSON has it.
#[derive(Serialize, JsonSchema)]
struct WindowJson {
    window: String,
    /// average, bucket, calendar or share.
    algorithm: &'static str,
    limit: f64,
    /// What the event counted.
    count: Option<f64>,
    rate_before: Option<f64>,
    rate: f64,
    over: bool,
    /// In seconds; null: never, or not known.
    retry_after: Option<u64>,
    /// The smallest whole limit that would let it pass.
    least_limit: f64,
}

impl EventExplanation {
    pub(crate) fn of(event: &LoggedEvent) -> Self {
        let limits = LoggedLimits::of(event);
        let (measured, waits): (Vec<Measured<'_>>, Vec<Option<Wait>>) = limits.measured().unzip();
        // What ends a block is said of now.
        let is_blocked = event.blocked().is_some();
        let wait = limits.wait().and_then(Wait::whole_seconds).filter(|_| !is_blocked);
        let at = Timestamp { micros: 0, ..event.at };
        let passes = wait.map(|seconds| later(at, seconds + 1));
        let when = passes.zip(wait).map(|(at, seconds)| {
            let (at, wait) = (text::local(at), text::duration(seconds as f64));
            format!("at {at}, {wait} after the event, if nothing else was counted")
        });
        let windows = waits.iter().zip(&measured).map(|(wait, measured)| WindowJson {
            window: measured.window.to_owned(),
            algorithm: measured.algorithm.word(),
            limit: measured.limit,
            count: measured.count,
            rate_before: measured.before,
            rate: measured.after,
            over: measured.over,
            retry_after: wait.and_then(Wait::whole_seconds),
            least_limit: measured.least_limit(),
        });
        Self {
            windows: windows.collect(),
            passes_at: passes.map(text::iso),
            text: measured.iter().map(ToString::to_string).collect(),
            remedies: match is_blocked {
                true => Vec::new(),
                false => past_remedies(&measured, event.record_key().kind, when.as_deref()),
            },
        }
    }
}

/// What would have let a past event pass, one a line: `limits` are all that it was compared
/// with, `passes` is when it would have passed by itself.
fn past_remedies(limits: &[Measured<'_>], kind: Kind, passes: Option<&str>) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(when) = passes {
        lines.push(format!("wait: it would pass {when}"));
    }
    for limit in limits.iter().filter(|limit| limit.over) {
        let (least, window) = (limit.least_limit(), limit.window);
        lines.push(match limit.algorithm {
            AlgorithmKind::Bucket => format!("a burst of {least} or more, at the rate {window}"),
            // A larger one would help, and who sends so should not have it.
            AlgorithmKind::Share => "a share that fails less: see what was sent".to_owned(),
            AlgorithmKind::MovingAverage | AlgorithmKind::Calendar => {
                let period = window.find(['/', ' ']).and_then(|at| window.get(at..));
                let period = period.unwrap_or_default();
                format!("a limit of {least}{period} or more, in place of {window}")
            }
        });
    }
    if kind == Kind::Policy {
        lines.push("an entry of exempt in the policy: none of its limits applies".to_owned());
    }
    lines
}

/// What lets the next event of a key pass; nothing if it passes. `passes` is when it passes by
/// itself.
fn remedies(
    commands: &Commands,
    record: &KeyState,
    measured: &Measured<'_>,
    next: &NextEvent<'_>,
    passes: Option<&str>,
) -> Vec<String> {
    let key = key_text::key(record.key());
    match &next.by {
        _ if !next.is_refused() => Vec::new(),
        By::Override(denial) => denied(commands, &key, denial),
        By::Blocked(_) => blocked(commands, &key),
        _ => {
            let mut lines = past_remedies(&[*measured], record.record_key().kind, passes);
            // Where a single event is as large as the limit, it is refused from nothing.
            if record.passes(1.0) {
                let unblock = commands.about("unblock", &key);
                lines.push(format!("`{unblock}`: what was counted is forgotten"));
            }
            let allow = commands.about("allow", &key);
            lines.push(format!("`{allow}`: no limit applies for a day"));
            lines
        }
    }
}

/// What ends a block, or is stronger.
pub(crate) fn blocked(commands: &Commands, key: &str) -> Vec<String> {
    let (unblock, allow) = (commands.about("unblock", key), commands.about("allow", key));
    vec![
        format!("`{unblock}`: the block ends, and what was counted is forgotten"),
        format!("`{allow}`: no limit applies for a day; the block stays, and refuses nothing"),
    ]
}

/// What ends a denial, or is stronger.
pub(crate) fn denied(commands: &Commands, key: &str, denial: &Override) -> Vec<String> {
    let first = match denial.target {
        Target::Exact { .. } => {
            let unblock = commands.about_override("unblock", denial);
            format!("`{unblock}`: the denial ends, and what was counted is forgotten")
        }
        // It is stronger than a glob.
        Target::Glob { .. } => {
            format!("`{}`: no limit applies for a day", commands.about("allow", key))
        }
    };
    let remove = commands.about_override("overrides --remove", denial);
    vec![first, format!("`{remove}`: that denial ends, and what was counted decides again")]
}
