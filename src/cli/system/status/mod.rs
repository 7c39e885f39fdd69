//! `exirate status`: whether mail is limited, by what, and who is blocked: on one screen.
//!
//! [`facts`] collects it, with [`policies`] and [`keys`]; [`print`] shows it. All records are
//! read once; meanwhile the doctor looks at everything else.

mod facts;
mod follower;
mod keys;
mod policies;
mod print;

use clap::Args;

use crate::cli::shared::bypass_notice;
use crate::cli::shared::database::Common;
use crate::cli::shared::screen::Screen;
use crate::cli::{Failure, Outcome};
use facts::Status;

/// Show whether mail is limited, by what, and who is blocked
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  Is everything as it should be?
    exirate status
  For scripts: who is blocked?
    exirate status --json | jq -r '.blocked_first[].key'

The first line says whether mail is limited, the others by what, who is blocked, and what is
wrong; `exirate doctor` has the details of what is wrong.

Exit status: 0 mail is limited, or observed as its policies say, and the doctor finds no
problem; 1 nothing is limited, or there is a problem; 2 an error.

The first line says whether mail is limited: whether the configuration of the mail server reaches
a line of exirate or asks `exirate serve mail`, the policies that it evaluates are in use and
enforced, and there is no `exirate bypass`. Then follow what decides; the policies and their file,
and whether that differs from what was applied; how many keys there are, how many were counted
today, and when the last event was; who is blocked now, and since when; which accounts `exirate
habits` suspects; how many messages policies hold, if this user may read the mail server's queue; who is allowed, denied or exempt; what accounts sent today and yesterday; the last crossings, and whether their alerts
were sent; what the follower of the mail log does; the servers that share limits; the databases.
The last line says what `exirate doctor` finds, which also verifies each record.

Where limits are shared, the keys are those that this server has seen.

JSON: an object. `verdict` is limited, observed, bypassed, doubtful or not_limited, and `text`
says it. `decided_by` is an array with `server`, `front_end`, `specs` (how many a configuration
has there) and `policies` (null: all). `policies` has `name`, `action` and whether it is
`evaluated`, `applied` is when they were applied, `policy_file` and `policy_file_state` (same,
differs, errors, absent, unreadable or large: not compared). `keys`, `keys_today`,
`decisions_since_utc_midnight` (each spec and each policy at each stage is one), `last_event`,
`blocked` and `blocked_first` (`key`, `rate`, `limit`, `period`, `mode`, `since`, `free_at`,
`why`), `suspected` and `suspected_first` (accounts with habits unlike their own), `sent_today` and
`sent_yesterday` (`messages`, `recipients`, `bytes`, `refused`, `failed`; null: not counted), `allowed`,
`denied` and `overrides`, `exempt` (entries of the policies), `crossings_today`, `crossings` (the
last ones, with `waiting_for`, the receivers that have not received it), `receivers` (`name`,
`waiting`, `failing`), `units` (those that run or are to: `name`, `enabled`, `active`, `last` and
`fault`), `bypass_until`, `follower` (null, or `log`, `running`, `behind_seconds`,
`counted_today` and `error`), `cluster` (null, or `servers`, `away_since`, `reply_ms` and
`error`), `database` (null, or `disk_bytes`, `max_bytes`, `damaged` and `unreadable`), `trace`
(null, or `messages`, `disk_bytes`, `max_bytes` and `damaged`), `held` (null: not known; or
`messages`, `keys` and `since`), `doctor` (`problems`, `warnings`,
`first`, `complete`).")]
pub(in crate::cli) struct StatusCommand {
    #[command(flatten)]
    common: Common,
}

impl StatusCommand {
    pub(in crate::cli) fn run(&self, screen: &mut Screen<'_>) -> Result<Outcome, Failure> {
        // It is the first line.
        bypass_notice::announced();
        let directory = self.common.directory()?;
        let status = Status::of(&directory, self.common.spool.is_some())?;
        match self.common.json {
            true => screen.json(&status)?,
            false => print::print(screen, &status)?,
        }
        Ok(Outcome::found_if(!status.is_well()))
    }
}
