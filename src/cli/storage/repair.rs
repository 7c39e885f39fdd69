//! `exirate repair`: repairs what `exirate verify` finds.

use std::io::Write as _;
use std::path::Path;

use clap::Args;
use serde::Serialize;

use super::verify::Findings;
use crate::cli::shared::audit_log::AuditLog;
use crate::cli::shared::database::{Both, Common, bar, open_traces};
use crate::cli::shared::screen::{Screen, complain, progress};
use crate::cli::shared::text;
use crate::cli::shared::time::now;
use crate::cli::{Failure, Outcome};
use crate::spool::{Options, Spool, SpoolError};
use crate::trace::Access;

/// Repair the rate database and the trace store
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  Repair both:
    exirate repair
  Show what is wrong, and change nothing:
    exirate repair --dry-run

All sound records and messages are kept. A file that cannot be read is quarantined:
a shard is renamed to *.damaged-1 to -9, and `exirate tidy --damaged-older-than`
removes such files. A damaged list of overrides (`exirate allow`, `exirate deny`) is
quarantined as well: audit.log has the commands that had set it. What killed processes
have left unfinished is removed. Exim may run meanwhile, and repairs what its checks
meet by itself. What was done is logged to audit.log in the database's directory, and
to syslog (facility mail).

Exit status: 0 nothing had to be repaired; 1 something was repaired, or would be
(--dry-run); 2 an error, or something could not be repaired.

JSON: an object; `problems` were found before, `done` is what was done, `left` what
is still wrong; all arrays of texts.")]
pub(in crate::cli) struct Repair {
    /// Change nothing: show what is wrong
    #[arg(long)]
    dry_run: bool,

    #[command(flatten)]
    common: Common,
}

/// What was done, in JSON.
#[derive(Serialize)]
struct Report {
    dry_run: bool,
    problems: Vec<String>,
    done: Vec<String>,
    left: Vec<String>,
}

impl Repair {
    pub(in crate::cli) fn run(&self, screen: &mut Screen<'_>) -> Result<Outcome, Failure> {
        let directory = self.common.directory()?;
        let mut report = Report {
            dry_run: self.dry_run,
            problems: Vec::new(),
            done: Vec::new(),
            left: Vec::new(),
        };
        match Both::open(&directory) {
            Ok(mut both) => report.problems = Findings::of(&mut both)?.problems,
            // Where a store cannot even be opened, repairing it may help.
            Err(failure) if self.dry_run => return Err(failure),
            Err(_) => {}
        }
        if !self.dry_run {
            repair(&directory, &mut report)?;
        }
        let found = !report.problems.is_empty() || !report.done.is_empty();
        let left = report.left.len();
        if self.common.json {
            screen.json(&report)?;
        } else {
            print(screen, &report)?;
        }
        if left > 0 {
            screen.flush()?;
            return Err(Failure::new(format!(
                "{} could not be repaired",
                text::counted_items(left, "problem", "problems")
            )));
        }
        Ok(Outcome::found_if(found))
    }
}

/// Repairs the stores that exist.
fn repair(directory: &Path, report: &mut Report) -> Result<(), Failure> {
    let traces = open_traces(directory, Access::Write)?;
    match Spool::require(directory) {
        Ok(()) => repair_rates(&mut Spool::open(directory, Options::default())?, report)?,
        Err(SpoolError::Absent { .. }) if traces.is_some() => {}
        Err(error) => return Err(error.into()),
    }
    if let Some(mut traces) = traces {
        let repaired = traces.repair(&mut bar("messages"))?;
        report.done.extend(repaired.done.iter().map(ToString::to_string));
        report.left.extend(repaired.left.iter().map(ToString::to_string));
    }
    if !report.done.is_empty() && Spool::require(directory).is_ok() {
        let mut spool = Spool::open(directory, Options::default())?;
        let mut log = AuditLog::new();
        for what in &report.done {
            log.add(&mut spool, format_args!("repair {}", text::printable(what.as_bytes())));
        }
    }
    Ok(())
}

fn repair_rates(spool: &mut Spool, report: &mut Report) -> Result<(), Failure> {
    let bar = progress(256, "shards");
    let repaired = spool.repair(now(), |done| bar.set_position(done as u64));
    bar.finish_and_clear();
    report.done = spool.take_incidents();
    if let Ok(repaired) = &repaired
        && repaired.rebuilt > 0
        && report.done.is_empty()
    {
        report.done.push(format!("rebuilt {}", text::counted(repaired.rebuilt, "shard", "shards")));
    }
    report.left = spool.verify()?.problems().collect();
    match repaired {
        // Why it is still wrong; what was done is printed as well.
        Err(error) if !report.left.is_empty() => complain(error),
        repaired => drop(repaired?),
    }
    Ok(())
}

fn print(screen: &mut Screen<'_>, report: &Report) -> std::io::Result<()> {
    for (what, texts) in
        [("found", &report.problems), ("done", &report.done), ("still wrong", &report.left)]
    {
        for text in texts {
            writeln!(screen, "{what}: {}", text::printable(text.as_bytes()))?;
        }
    }
    match (report.problems.len() + report.done.len(), report.dry_run) {
        (0, _) => writeln!(screen, "no problems: nothing to repair"),
        (_, true) => writeln!(screen, "nothing was changed; `exirate repair` repairs this"),
        (_, false) if report.left.is_empty() => writeln!(screen, "no problems are left"),
        _ => Ok(()),
    }
}
