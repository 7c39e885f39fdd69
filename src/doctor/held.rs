//! What Exim does with the messages that policies hold.

use std::path::Path;

use super::finding::Findings;
use crate::mta::command::Output;
use crate::mta::exim::Exim;
use crate::policy::image::PolicyFile;
use crate::policy::model::Policy;
use crate::policy::word::{Action, OnHabits, Verdict};

/// The macro of the shipped files by which mail of accounts is held that nobody could decide on.
const UNDECIDED: &str = "RATELIMIT_UNDECIDED";

/// Checks what becomes of held messages, if a policy in use holds any, or the shipped files may.
pub(super) fn look(exim: &Exim, spool: &Path, findings: &mut Findings) {
    let file = PolicyFile::open(spool);
    let policies = file.image().ok().and_then(|image| image.policies().ok());
    let policies = policies.map(|all| all.policies).unwrap_or_default();
    let is_by_policy = policies.iter().any(|(_, policy)| holds(policy));
    let defines =
        |output: &Output| output.stdout.starts_with(UNDECIDED) && output.stdout.contains("hold");
    if !is_by_policy && !exim.run(&["-bP", "macro", UNDECIDED]).is_ok_and(|out| defines(&out)) {
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
        let what = match is_by_policy {
            true => "what a policy holds",
            false => "what is held undecided, such as mail of a web form while the daemon is away,",
        };
        findings.warning(format!(
            "Exim has auto_thaw = {after}: it delivers {what} after that time, whether or not \
             somebody has looked at it"
        ));
    }
    if let Some(after) = value("timeout_frozen_after").filter(|_| is_by_policy) {
        findings.note(format!(
            "Exim has timeout_frozen_after = {after}: what a policy holds goes back to its sender \
             after that time; `exirate held` shows what waits"
        ));
    }
}

/// Whether a policy holds messages.
pub(crate) fn holds(policy: &Policy) -> bool {
    let is_grade = policy.settings.verdicts.iter().any(|grade| grade.verdict == Verdict::Hold);
    let is_habit = policy.tables().any(|limits| limits.habits.habits == Some(OnHabits::Hold));
    policy.settings.action == Action::Enforce && (is_grade || is_habit)
}
