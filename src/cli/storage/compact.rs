//! `exirate compact`: make the rate database as small as possible.

use clap::Args;

use super::tidy::RatesTidied;
use crate::cli::shared::database::{Common, print_incidents};
use crate::cli::shared::screen::{Screen, progress};
use crate::cli::shared::time::now;
use crate::cli::{Failure, Outcome};

/// Make the rate database as small as possible
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  Free what disk space can be freed:
    exirate compact

Every shard is rebuilt with the records that still count. This is never needed: shards
are rebuilt when they grow. The size limit is a setting: see `exirate config`.

Exit status: 0 done; 2 an error.

JSON: an object.")]
pub(in crate::cli) struct Compact {
    #[command(flatten)]
    common: Common,
}

impl Compact {
    pub(in crate::cli) fn run(&self, screen: &mut Screen<'_>) -> Result<Outcome, Failure> {
        let mut spool = self.common.spool_to_change()?;
        let bar = progress(256, "shards");
        let compacted = RatesTidied::of(&mut spool, |spool| {
            Ok(spool.compact(now(), |done| bar.set_position(done as u64))?)
        })?;
        bar.finish_and_clear();
        print_incidents(&mut spool);
        if self.common.json {
            screen.json(&compacted)?;
        } else {
            compacted.print(screen)?;
        }
        Ok(Outcome::Fine)
    }
}
