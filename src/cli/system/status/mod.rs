//! `exirate status`: whether mail is limited, by what, and who is blocked: on one screen.
//!
//! [`facts`] collects it, with [`policies`] and [`keys`]; [`print`] shows it. All records are
//! read once; meanwhile the doctor looks at everything else.

mod facts;
mod follower;
mod health;
mod keys;
mod policies;
mod print;

use std::path::PathBuf;

use clap::Args;

use crate::cli::shared::bypass_notice;
use crate::cli::shared::database::Common;
use crate::cli::shared::screen::Screen;
use crate::cli::{Failure, Json, Outcome};
use crate::serve::config::FILE;
use facts::Status;

/// Show whether mail is limited, by what, and who is blocked
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  Is everything as it should be?
    exirate status
  Does the daemon of this container decide?
    exirate status --health
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

With --health, it asks `exirate serve mail` at the address of its configuration for a decision by the
policies in use and for one by the database, which count nothing: exit status 0 if both are made.")]
#[command(add = Json::of::<Status>())]
pub(in crate::cli) struct StatusCommand {
    /// Show only whether `exirate serve mail` decides, for the health check of a container
    #[arg(long)]
    health: bool,

    /// With --health, the configuration of that daemon
    #[arg(long, value_name = "FILE", default_value = FILE, requires = "health")]
    config: PathBuf,

    #[command(flatten)]
    common: Common,
}

impl StatusCommand {
    pub(in crate::cli) fn run(&self, screen: &mut Screen<'_>) -> Result<Outcome, Failure> {
        if self.health {
            return health::health(&self.config, screen);
        }
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
