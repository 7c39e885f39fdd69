//! What lets an event pass that is refused: commands, each of which works where it is shown.

use crate::cli::shared::rates::Rates;
use crate::engine::{AlgorithmKind, Kind};
use crate::policy::explain::Measured;
use crate::standing::in_force::{By, NextEvent};
use crate::standing::key_state::KeyState;
use crate::standing::key_text;
use crate::store::{Override, Target};

/// What would have let a past event pass, one a line: `limits` are all that it was compared
/// with, `passes` is when it would have passed by itself.
pub(super) fn then(limits: &[Measured<'_>], kind: Kind, passes: Option<&str>) -> Vec<String> {
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
pub(super) fn now(
    rates: &Rates,
    record: &KeyState,
    measured: &Measured<'_>,
    next: &NextEvent<'_>,
    passes: Option<&str>,
) -> Vec<String> {
    let key = key_text::key(record.key());
    match &next.by {
        _ if !next.is_refused() => Vec::new(),
        By::Override(denial) => denied(rates, &key, denial),
        By::Blocked(_) => blocked(rates, &key),
        _ => {
            let mut lines = then(&[*measured], record.record_key().kind, passes);
            // Where a single event is as large as the limit, it is refused from nothing.
            if record.passes(1.0) {
                let unblock = rates.command("unblock", &key);
                lines.push(format!("`{unblock}`: what was counted is forgotten"));
            }
            let allow = rates.command("allow", &key);
            lines.push(format!("`{allow}`: no limit applies for a day"));
            lines
        }
    }
}

/// What ends a block, or is stronger.
pub(super) fn blocked(rates: &Rates, key: &str) -> Vec<String> {
    let (unblock, allow) = (rates.command("unblock", key), rates.command("allow", key));
    vec![
        format!("`{unblock}`: the block ends, and what was counted is forgotten"),
        format!("`{allow}`: no limit applies for a day; the block stays, and refuses nothing"),
    ]
}

/// What ends a denial, or is stronger.
pub(super) fn denied(rates: &Rates, key: &str, denial: &Override) -> Vec<String> {
    let first = match denial.target {
        Target::Exact { .. } => {
            let unblock = rates.command_about("unblock", denial);
            format!("`{unblock}`: the denial ends, and what was counted is forgotten")
        }
        // It is stronger than a glob.
        Target::Glob { .. } => {
            format!("`{}`: no limit applies for a day", rates.command("allow", key))
        }
    };
    let remove = rates.command_about("overrides --remove", denial);
    vec![first, format!("`{remove}`: that denial ends, and what was counted decides again")]
}
