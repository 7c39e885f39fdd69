//! `exirate repair`: mends what `verify` finds.

use std::io::Write as _;

use clap::Args;
use serde::Serialize;

use super::changes_log::ChangesLog;
use super::database::{Common, now};
use super::screen::{Screen, complain, progress};
use super::verify::Findings;
use super::{Failure, Outcome, spool_dir, text};
use crate::spool::{Options, Spool};

/// Mends the database
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  Mend what there is to mend:
    exirate repair
  What would it mend?
    exirate repair --dry-run

Every record that can be saved is. A file whose header is damaged, or that is none of
ours, is kept as *.damaged-1 to -9; `exirate tidy --damaged-older-than` removes such
files. What killed processes have left unfinished is removed. Exim may run meanwhile,
and mends by itself what a check meets. What was done is logged to changes.log
beside the database, and to syslog (facility mail).

Exit status: 0 there was nothing to mend; 1 there was, and it has been mended (with
--dry-run: it would be); 2 an error.

JSON: an object; `problems` were found before, `done` is what was done, `left` what
is still wrong; all arrays of texts.")]
pub(super) struct Repair {
    /// Changes nothing: shows what is wrong
    #[arg(long)]
    dry_run: bool,

    #[command(flatten)]
    common: Common,
}

/// What was done, as JSON has it.
#[derive(Serialize)]
struct Answer {
    dry_run: bool,
    problems: Vec<String>,
    done: Vec<String>,
    left: Vec<String>,
}

impl Repair {
    pub(super) fn run(&self, screen: &mut Screen<'_>) -> Result<Outcome, Failure> {
        let dir = spool_dir::find(self.common.spool.as_deref())?;
        Spool::require(&dir)?;
        let mut answer = Answer {
            dry_run: self.dry_run,
            problems: Vec::new(),
            done: Vec::new(),
            left: Vec::new(),
        };
        if self.dry_run {
            answer.problems = problems(&mut Spool::open_existing(&dir, Options::default())?)?;
        } else {
            // Where not even the key can be read, there is nothing to ask first.
            if let Ok(mut spool) = Spool::open_existing(&dir, Options::default()) {
                answer.problems = problems(&mut spool)?;
            }
            self.mend(&mut Spool::open(&dir, Options::default())?, &mut answer)?;
        }
        let found = !answer.problems.is_empty() || !answer.done.is_empty();
        let left = answer.left.len();
        if self.common.json {
            screen.json(&answer)?;
        } else {
            tell(screen, &answer)?;
        }
        if left > 0 {
            screen.flush()?;
            return Err(Failure::new(format!("{left} problem(s) could not be mended")));
        }
        Ok(Outcome::found_if(found))
    }

    fn mend(&self, spool: &mut Spool, answer: &mut Answer) -> Result<(), Failure> {
        let bar = progress(256, "shards");
        let repaired = spool.repair(now(), |done| bar.set_position(done as u64));
        bar.finish_and_clear();
        answer.done = spool.take_incidents();
        let mut log = ChangesLog::new();
        for what in &answer.done {
            log.add(spool, format_args!("repair {}", text::printable(what.as_bytes())));
        }
        if let Ok(repaired) = &repaired
            && repaired.rebuilt > 0
            && answer.done.is_empty()
        {
            let what = format!("rebuilt {} shard(s)", repaired.rebuilt);
            log.add(spool, format_args!("repair {what}"));
            answer.done.push(what);
        }
        answer.left = problems(spool)?;
        match repaired {
            // Why it is still wrong: what was done all the same is told as well.
            Err(error) if !answer.left.is_empty() => complain(error),
            repaired => drop(repaired?),
        }
        Ok(())
    }
}

fn problems(spool: &mut Spool) -> Result<Vec<String>, Failure> {
    Ok(Findings::from(&spool.verify()?).problems)
}

fn tell(screen: &mut Screen<'_>, answer: &Answer) -> std::io::Result<()> {
    for problem in &answer.problems {
        writeln!(screen, "found: {problem}")?;
    }
    for what in &answer.done {
        writeln!(screen, "done: {what}")?;
    }
    for problem in &answer.left {
        writeln!(screen, "still wrong: {problem}")?;
    }
    match (answer.problems.len() + answer.done.len(), answer.dry_run) {
        (0, _) => writeln!(screen, "nothing to mend: the database is sound"),
        (_, true) => writeln!(screen, "nothing was changed; `exirate repair` mends this"),
        (_, false) if answer.left.is_empty() => writeln!(screen, "the database is sound now"),
        _ => Ok(()),
    }
}
