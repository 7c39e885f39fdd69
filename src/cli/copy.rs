//! `exirate copy`: a backup while the database is in use.

use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::PathBuf;

use clap::Args;
use serde::Serialize;

use super::database::Common;
use super::screen::{Screen, progress};
use super::size::bytes;
use super::{Failure, Outcome};
use crate::spool::{Options, Spool};

/// Copies the database while it is in use
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  Back it up:
    exirate copy /var/backups/exirate

The copy is DIR/exirate; DIR is made if it is not there, and may hold no database
yet. `exirate list --spool DIR` shows what is in it, as all other commands do. Exim may run meanwhile: each shard is locked while it is copied, so every record
is whole, but two records may be some moments apart. The copy is checked as by
`exirate verify`. To go back to it, stop Exim and put DIR/exirate into the place of
the database. It is as secret as the database: whoever reads its key can choose
addresses that look seen before.

Exit status: 0 copied; 1 the copy has faults, as the database has; 2 an error.

JSON: an object.")]
pub(super) struct Copy {
    /// The directory for the copy
    #[arg(value_name = "DIR")]
    dir: PathBuf,

    #[command(flatten)]
    common: Common,
}

/// What was done, as JSON has it.
#[derive(Serialize)]
struct Answer {
    path: String,
    shards: usize,
    bytes: u64,
    records: u64,
    problems: Vec<String>,
}

impl Copy {
    pub(super) fn run(&self, screen: &mut Screen<'_>) -> Result<Outcome, Failure> {
        let mut spool = self.common.open()?;
        match std::fs::DirBuilder::new().mode(0o700).create(&self.dir) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => {
                return Err(Failure::new(format!("cannot make {}: {error}", self.dir.display())));
            }
            _ => {}
        }
        let bar = progress(256, "shards");
        let copied = spool.copy_to(&self.dir, |done| bar.set_position(done as u64))?;
        bar.finish_and_clear();
        let mut copy = Spool::open_existing(&self.dir, Options::default())?;
        let report = copy.verify()?;
        let answer = Answer {
            path: copy.directory().display().to_string(),
            shards: copied.shards,
            bytes: copied.bytes,
            records: report.records(),
            problems: report.problems().collect(),
        };
        if self.common.json {
            screen.json(&answer)?;
        } else {
            for problem in &answer.problems {
                writeln!(screen, "{problem}")?;
            }
            writeln!(
                screen,
                "copied {} records in {} shards, {}, to {}",
                answer.records,
                answer.shards,
                bytes(answer.bytes),
                answer.path
            )?;
        }
        Ok(Outcome::found_if(!answer.problems.is_empty()))
    }
}
