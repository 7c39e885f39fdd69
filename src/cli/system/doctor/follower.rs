//! Whether the follower of the mail log counts what policies limit.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use super::finding::Findings;
use super::{MAIL_USER, units};
use crate::cli::shared::key_state::second;
use crate::policy::model::Policies;
use crate::policy::needs;
use crate::serve::config::read_follow;
use crate::serve::follow::state::State;
use crate::sys::users::name_of;
use crate::text::time::now;
use crate::text::{counted_or_no, rough_age};

/// A follower that has written nothing for so long, in seconds, does not run.
const SILENT: i64 = 60;

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
    match State::read(&config.state) {
        Ok(None) => {
            let text = "the follower of the mail log has never run";
            findings.problem(format!("{limits} are not counted: {text}")).fix(start);
        }
        Err(error) => findings.hidden(format!("the state of the follower was not read: {error}")),
        Ok(Some(State { error: Some(error), .. })) => {
            findings.problem(format!("{limits} are not counted: {error}"));
        }
        Ok(Some(state)) if now().seconds.saturating_sub(state.read) > SILENT => {
            let since = rough_age(second(state.read), now());
            let text = format!("the follower of the mail log last read it {since}");
            findings.problem(format!("{limits} are not counted: {text}")).fix(start);
        }
        Ok(Some(state)) => {
            let count = counted_or_no(state.counted, "failed recipient", "failed recipients");
            findings.ok(format!("the follower reads {}: {count} counted", state.log));
        }
    }
}
