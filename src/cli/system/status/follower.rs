//! The follower of the mail log, as `exirate status` shows it.

use std::path::Path;

use schemars::JsonSchema;
use serde::Serialize;

use crate::serve::config::{FILE, read_follow};
use crate::serve::follow::state::FollowerState;
use crate::text;
use crate::text::counted_or_no;
use crate::text::time::now;

/// So far behind, in seconds, is worth a word.
const BEHIND: i64 = 60;

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Follower {
    log: String,
    running: bool,
    /// How far before now it has read the log; if it does not run, when it last did.
    behind_seconds: i64,
    /// How many failed recipients it found today; a policy may leave some out, such as those of mail
    /// with an empty sender.
    counted_today: u64,
    error: Option<String>,
}

impl Follower {
    /// That which counts in `spool`, if it ever ran and can be looked at.
    pub(super) fn of(spool: &Path) -> Option<Self> {
        let config = read_follow(Path::new(FILE)).ok()?.config.filter(|one| one.spool == spool)?;
        let FollowerState { alive, read, log, today, day, error, .. } =
            FollowerState::read(&config.state).ok().flatten()?;
        let now = now().seconds;
        let running = FollowerState::runs(alive, now);
        let since = if running { read } else { alive };
        let behind_seconds = now.saturating_sub(since).max(0);
        let counted_today = if day == text::time::midnight() { today } else { 0 };
        Some(Self { log, running, behind_seconds, counted_today, error })
    }

    pub(super) fn shown(&self) -> String {
        let Self { log, running, behind_seconds, counted_today, error } = self;
        let behind = || text::rough(*behind_seconds as f64);
        let state = match error {
            _ if !running => format!("does not run since {} ago", behind()),
            Some(error) => format!("counts nothing: {error}"),
            None if *behind_seconds > BEHIND => format!("is behind by {}", behind()),
            None => format!("reads {log}"),
        };
        let count = counted_or_no(*counted_today, "failed recipient", "failed recipients");
        format!("{state}; {count} found today")
    }
}
