//! `exirate verify`: is the database sound?

use std::io::Write as _;

use clap::Args;
use serde::Serialize;

use super::database::Common;
use super::screen::{Screen, progress};
use super::{Failure, Outcome};
use crate::spool::Report;

/// Checks every byte of the database that can be checked
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  Is it sound?
    exirate verify
  For scripts:
    exirate verify --json | jq '.problems | length'

Exim may run meanwhile; each shard is locked while it is read. Nothing is changed:
`exirate repair` mends what is found, and so does Exim by itself as soon as a check
needs it. A damaged record harms no other key.

Exit status: 0 it is sound; 1 it is not, and each problem is a line; 2 an error.

JSON: an object; `problems` is an array of texts.")]
pub(super) struct Verify {
    #[command(flatten)]
    common: Common,
}

/// What was found, as JSON has it.
#[derive(Serialize)]
pub(super) struct Findings {
    shards: usize,
    records: u64,
    damaged: u64,
    disk_bytes: u64,
    dead_bytes: u64,
    pub(super) problems: Vec<String>,
}

impl From<&Report> for Findings {
    fn from(report: &Report) -> Self {
        let sum = |of: fn(&crate::spool::ShardReport) -> u64| report.shards.iter().map(of).sum();
        Self {
            // What is told of the file `database` is no shard.
            shards: report
                .shards
                .iter()
                .filter(|shard| shard.path.extension().is_some_and(|e| e == "shard"))
                .count(),
            records: report.records(),
            damaged: sum(|shard| shard.damaged),
            disk_bytes: sum(|shard| shard.disk),
            dead_bytes: sum(|shard| shard.dead),
            problems: report.problems().collect(),
        }
    }
}

impl Verify {
    pub(super) fn run(&self, screen: &mut Screen<'_>) -> Result<Outcome, Failure> {
        let mut spool = self.common.open()?;
        let bar = progress(256, "shards");
        let findings = Findings::from(&spool.verify_with(|done| bar.set_position(done as u64))?);
        drop(bar);
        if self.common.json {
            screen.json(&findings)?;
        } else {
            for problem in &findings.problems {
                writeln!(screen, "{problem}")?;
            }
            let verdict = match findings.problems.len() {
                0 => "sound".to_owned(),
                1 => "1 problem; `exirate repair` mends it if it can be mended".to_owned(),
                n => format!("{n} problems; `exirate repair` mends what can be mended"),
            };
            writeln!(
                screen,
                "{verdict}: {} records in {} shards",
                findings.records, findings.shards
            )?;
        }
        Ok(Outcome::found_if(!findings.problems.is_empty()))
    }
}
