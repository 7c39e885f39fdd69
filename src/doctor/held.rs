//! What Exim does with the messages that policies hold.

use std::path::Path;

use super::finding::Findings;
use crate::mta::exim::Exim;
use crate::policy::image::PolicyFile;
use crate::policy::model::Policy;
use crate::policy::word::{Action, OnHabits, Verdict};

/// Checks what becomes of held messages, if a policy in use holds any.
pub(super) fn look(exim: &Exim, spool: &Path, findings: &mut Findings) {
    let file = PolicyFile::open(spool);
    let policies = file.image().ok().and_then(|image| image.policies().ok());
    let Some(policies) = policies.map(|all| all.policies) else { return };
    if !policies.iter().any(|(_, policy)| holds(policy)) {
        return;
    }
    let output = exim.run(&["-bP", "auto_thaw", "timeout_frozen_after"]);
    let Some(output) = output.ok().filter(|output| output.success) else { return };
    let value = |name: &str| {
        let start = format!("{name} = ");
        let value = output.stdout.lines().find_map(|line| line.strip_prefix(&start));
        value.filter(|value| *value != "0s").map(str::to_owned)
    };
    findings.about("Held mail");
    if let Some(after) = value("auto_thaw") {
        findings.warning(format!(
            "Exim has auto_thaw = {after}: it delivers what a policy holds after that time, whether \
             or not somebody has looked at it"
        ));
    }
    if let Some(after) = value("timeout_frozen_after") {
        findings.note(format!(
            "Exim has timeout_frozen_after = {after}: what a policy holds goes back to its sender \
             after that time; `exirate held` shows what waits"
        ));
    }
}

/// Whether a policy holds messages.
fn holds(policy: &Policy) -> bool {
    let is_grade = policy.settings.verdicts.iter().any(|grade| grade.verdict == Verdict::Hold);
    let is_habit = policy.tables().any(|limits| limits.habits.habits == Some(OnHabits::Hold));
    policy.settings.action == Action::Enforce && (is_grade || is_habit)
}
