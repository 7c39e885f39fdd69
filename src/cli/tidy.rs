//! `exirate tidy`: drops expired records now.

use std::io::Write as _;

use clap::Args;
use serde::Serialize;

use super::audit_log::AuditLog;
use super::database::{Common, now, print_incidents};
use super::screen::{Screen, progress};
use super::size::bytes;
use super::{Failure, Outcome, keys, text};
use crate::spool::{Spool, Tidied};

/// Drop expired records now
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  Drop expired records:
    exirate tidy
  Remove quarantined files after a month:
    exirate tidy --damaged-older-than 30d

This is never needed: checks do it every six hours, shard by shard. A record is dropped
only when that cannot change a decision any more, and a shard is rebuilt only if that
frees a quarter of it; `exirate compact` rebuilds all.

Exit status: 0 done, also if there was nothing to do; 2 an error.

JSON: an object.")]
pub(super) struct Tidy {
    /// Remove files *.damaged-N that were quarantined longer ago than this, such
    /// as 30d; 0s removes all
    #[arg(long, value_name = "TIME", value_parser = age)]
    damaged_older_than: Option<f64>,

    #[command(flatten)]
    common: Common,
}

/// What was done, in JSON.
#[derive(Serialize)]
pub(super) struct Answer {
    rebuilt: u64,
    forgotten: u64,
    evicted: u64,
    disk_before: u64,
    disk_after: u64,
    removed: Vec<String>,
}

impl Answer {
    /// What `work` has done to the database.
    pub(super) fn of(
        spool: &mut Spool,
        work: impl FnOnce(&mut Spool) -> Result<Tidied, Failure>,
    ) -> Result<Self, Failure> {
        // Counts that cannot be read are not worth failing for; nor can those of
        // all shards be compared with those of some.
        let before = spool.stats();
        let tidied = work(spool)?;
        let (before, after) = before.and_then(|b| Ok((b, spool.stats()?))).unwrap_or_default();
        Ok(Self {
            rebuilt: tidied.rebuilt,
            forgotten: after.forgotten.saturating_sub(before.forgotten),
            evicted: after.evicted.saturating_sub(before.evicted),
            disk_before: tidied.disk_before,
            disk_after: tidied.disk_after,
            removed: Vec::new(),
        })
    }

    pub(super) fn tell(&self, screen: &mut Screen<'_>) -> std::io::Result<()> {
        for path in &self.removed {
            writeln!(screen, "removed {path}")?;
        }
        let evicted = match self.evicted {
            0 => String::new(),
            n => format!(", evicted {n} more to keep the size limit"),
        };
        writeln!(
            screen,
            "rebuilt {} shard(s), dropped {} expired record(s){evicted}; the database takes {} of \
             disk, {} before",
            self.rebuilt,
            self.forgotten,
            bytes(self.disk_after),
            bytes(self.disk_before)
        )
    }
}

impl Tidy {
    pub(super) fn run(&self, screen: &mut Screen<'_>) -> Result<Outcome, Failure> {
        let mut spool = self.common.open_to_change()?;
        let removed = self.remove(&mut spool)?;
        let bar = progress(256, "shards");
        let mut answer = Answer::of(&mut spool, |spool| {
            Ok(spool.tidy(now(), |done| bar.set_position(done as u64))?)
        })?;
        bar.finish_and_clear();
        answer.removed = removed;
        print_incidents(&mut spool);
        if self.common.json {
            screen.json(&answer)?;
        } else {
            answer.tell(screen)?;
        }
        Ok(Outcome::Fine)
    }

    /// Removes quarantined files that are old enough, and returns their paths.
    fn remove(&self, spool: &mut Spool) -> Result<Vec<String>, Failure> {
        let Some(age) = self.damaged_older_than else { return Ok(Vec::new()) };
        let mut log = AuditLog::new();
        let mut removed = Vec::new();
        for file in spool.kept_damaged()? {
            if (now().seconds - file.since) as f64 >= age {
                spool.remove_damaged(&file)?;
                let path = text::printable(file.path.as_os_str().as_encoded_bytes());
                log.add(spool, format_args!("tidy removed={path}"));
                removed.push(path);
            }
        }
        Ok(removed)
    }
}

/// A time in seconds, written as a period or 0.
fn age(text: &str) -> Result<f64, String> {
    if matches!(text, "0" | "0s") {
        return Ok(0.0);
    }
    keys::period(text).map_err(|_| "expected a time such as 30d, 2w or 12h".to_owned())
}
