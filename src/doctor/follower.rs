//! Whether the follower of the mail log counts what policies limit.

use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use super::finding::Findings;
use super::{MAIL_USER, units};
use crate::policy::model::Policies;
use crate::policy::needs;
use crate::policy::word::Action;
use crate::serve::config::read_follow;
use crate::serve::follow::state::FollowerState;
use crate::standing::key_state::second;
use crate::sys::users::name_of;
use crate::text::time::now;
use crate::text::{counted, counted_or_no, rough_age};

/// So far behind, in seconds, is worth a warning.
const BEHIND: i64 = 600;

/// Checks the follower with the configuration at `file`, for limits of `policies` in `spool`.
pub(super) fn look(policies: &Policies, spool: &Path, file: &Path, findings: &mut Findings) {
    let limits: Vec<String> = needs::of_delivery(policies)
        .map(|(unit, names)| format!("{} of {}", unit.word(), names.join(", ")))
        .collect();
    if limits.is_empty() {
        return;
    }
    let limits = limits.join(" and ");
    let owner = spool.metadata().ok().and_then(|info| name_of(info.uid()));
    let owner = owner.map_or_else(|| MAIL_USER.to_owned(), |name| name.display().to_string());
    let start = units::start(&format!("exirate-follow@{owner}.service"));
    let Ok(Some(config)) = read_follow(file).map(|checked| checked.config) else {
        let file = file.display();
        let text = format!("{file} has errors: the follower does not start with it");
        findings.problem(text).fix("exirate serve follow --check");
        return;
    };
    if config.spool != spool {
        findings.problem(format!(
            "{limits} are not counted: the follower counts in {}, not in {}",
            config.spool.display(),
            spool.display()
        ));
        return;
    }
    match FollowerState::read(&config.state) {
        Ok(None) => {
            let text = "the follower of the mail log has never run";
            findings.problem(format!("{limits} are not counted: {text}")).fix(start);
        }
        Err(error) => findings.hidden(format!("the state of the follower was not read: {error}")),
        Ok(Some(FollowerState { error: Some(error), .. })) => {
            findings.problem(format!("{limits} are not counted: {error}"));
        }
        Ok(Some(state)) if !FollowerState::runs(state.alive, now().seconds) => {
            let since = rough_age(second(state.alive), now());
            let text = format!("the follower of the mail log last ran {since}");
            findings.problem(format!("{limits} are not counted: {text}")).fix(start);
        }
        Ok(Some(state)) => runs(&state, policies, findings),
    }
}

/// Says what is to be said of a follower that runs.
fn runs(state: &FollowerState, policies: &Policies, findings: &mut Findings) {
    let log = &state.log;
    let behind = state.alive.saturating_sub(state.read);
    if behind > BEHIND {
        let until = rough_age(second(state.read), now());
        findings.warning(format!("the follower is behind: it has read {log} until {until}"));
    } else {
        let count = counted_or_no(state.counted, "failed recipient", "failed recipients");
        findings.ok(format!("the follower reads {log}: {count} counted"));
    }
    if state.forgotten > 0 {
        let count = counted(state.forgotten, "message", "messages");
        findings.warning(format!(
            "too many messages were in the queue: the follower has forgotten {count}, and does not \
             count what becomes of them"
        ));
    }
    if state.without_login > 0 {
        let count = counted(state.without_login, "failed recipient", "failed recipients");
        findings.note(format!(
            "{count} counted for the client: the log does not show who has logged in"
        ));
    }
    let refuses = |name: &&str| {
        policies.policies.get(*name).is_some_and(|one| one.settings.action == Action::Enforce)
    };
    let refusing: BTreeSet<&str> =
        needs::of_delivery(policies).flat_map(|(_, names)| names).filter(refuses).collect();
    if state.is_of_syslog && !refusing.is_empty() {
        let names = refusing.into_iter().collect::<Vec<_>>().join(", ");
        findings.note(format!(
            "any local user can write lines to {log}, and so have {names} refuse the mail of others; \
             the journal knows who writes: follow.log = \"journal\""
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::Level;
    use super::*;
    use crate::policy::source::compile;

    #[test]
    fn it_says_what_a_running_follower_does_not_count() {
        let policies = |action: &str| {
            let text = format!(
                "version = 1\n[policy.p]\naction = {action:?}\ndefault.failed_recipients = \"9/1h\"\n"
            );
            compile(Path::new("p"), &text, &|_: &Path| Err(String::new())).policies.unwrap()
        };
        let now = now().seconds;
        let well = FollowerState {
            alive: now,
            read: now,
            log: "LOG".to_owned(),
            ..FollowerState::default()
        };
        let found = |state: &FollowerState, action: &str| -> Vec<(Level, String)> {
            let mut findings = Findings::default();
            runs(state, &policies(action), &mut findings);
            findings.list.into_iter().map(|one| (one.level, one.text)).collect()
        };
        // A night in which nothing is logged is no reason to worry.
        let ok = (Level::Ok, "the follower reads LOG: no failed recipient counted".to_owned());
        assert_eq!(found(&well, "enforce"), [ok]);
        let behind = FollowerState { read: now - 7200, ..well.clone() };
        assert_eq!(found(&behind, "enforce")[0].0, Level::Warning);
        let forgotten = FollowerState { forgotten: 9, ..well.clone() };
        assert_eq!(found(&forgotten, "enforce")[1].0, Level::Warning);
        let hidden = FollowerState { without_login: 1, ..well.clone() };
        assert_eq!(found(&hidden, "enforce")[1].0, Level::Note);
        let of_syslog = FollowerState { is_of_syslog: true, ..well };
        assert!(
            found(&of_syslog, "enforce")[1].1.starts_with("any local user can write lines to LOG")
        );
        assert_eq!(found(&of_syslog, "observe").len(), 1);
        assert!(FollowerState::runs(now - 50, now) && !FollowerState::runs(now - 70, now));
    }
}
