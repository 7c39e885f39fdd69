//! `exirate tidy`: does now what recording and checks do from time to time.

use std::io::Write as _;

use clap::Args;
use serde::Serialize;

use crate::cli::shared::audit_log::AuditLog;
use crate::cli::shared::database::{Both, Common, print_incidents};
use crate::cli::shared::screen::{Screen, note, progress};
use crate::cli::shared::size::bytes;
use crate::cli::shared::time::now;
use crate::cli::shared::{keys, text};
use crate::cli::{Failure, Outcome};
use crate::spool::{Spool, Tidied};
use crate::trace::TraceStore;

/// Drop expired records and messages now
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  Drop what has expired:
    exirate tidy
  Remove quarantined shards after a month:
    exirate tidy --damaged-older-than 30d

On a server that is in use, this is never needed. Checks tidy the rate database every six
hours, shard by shard. A record is dropped only when that cannot change a decision any
more, and a shard is rebuilt only if that frees a quarter of it; `exirate compact`
rebuilds all. The trace store is tidied whenever a log is full: the log is sealed, small
segments are merged, and messages are removed as `exirate config` says. This seals a log
that is not full as well, and merges all segments that fit into one. Where nothing is
recorded any more, nothing is removed either: run this there.

Exit status: 0 done, also if there was nothing to do; 2 an error.

JSON: an object; `trace` is null where there is no trace store.")]
pub(in crate::cli) struct Tidy {
    /// Remove files *.damaged-N that were quarantined longer ago than this, such
    /// as 30d; 0s removes all
    #[arg(long, value_name = "TIME", value_parser = age)]
    damaged_older_than: Option<f64>,

    #[command(flatten)]
    common: Common,
}

/// What was done, in JSON.
#[derive(Serialize)]
struct Report {
    #[serde(flatten)]
    rates: Option<RatesTidied>,
    trace: Option<TracesTidied>,
    removed: Vec<String>,
}

/// What was done to the rate database, in JSON.
#[derive(Serialize)]
pub(in crate::cli) struct RatesTidied {
    rebuilt: u64,
    forgotten: u64,
    evicted: u64,
    disk_before: u64,
    disk_after: u64,
}

/// What was done to the trace store, in JSON.
#[derive(Serialize)]
struct TracesTidied {
    sealed: u64,
    files_removed: u64,
    messages_removed: u64,
    disk_before: u64,
    disk_after: u64,
}

impl RatesTidied {
    /// What `work` has done to the database.
    pub(in crate::cli) fn of(
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
        })
    }

    pub(in crate::cli) fn print(&self, screen: &mut Screen<'_>) -> std::io::Result<()> {
        let evicted = match self.evicted {
            0 => String::new(),
            n => format!(", evicted {n} more to keep the size limit"),
        };
        writeln!(
            screen,
            "rebuilt {}, dropped {}{evicted}; the database takes {} of disk, {} before",
            text::counted(self.rebuilt, "shard", "shards"),
            text::counted(self.forgotten, "expired record", "expired records"),
            bytes(self.disk_after),
            bytes(self.disk_before)
        )
    }
}

impl TracesTidied {
    fn of(store: &mut TraceStore) -> Result<Self, Failure> {
        let disk_before = store.stats()?.bytes;
        let tidied = store.tidy(now().seconds);
        store.take_incidents().iter().for_each(note);
        let tidied = tidied?;
        Ok(Self {
            sealed: tidied.sealed,
            files_removed: tidied.forgotten,
            messages_removed: tidied.messages,
            disk_before,
            disk_after: store.stats()?.bytes,
        })
    }

    fn print(&self, screen: &mut Screen<'_>) -> std::io::Result<()> {
        writeln!(
            screen,
            "sealed {}, removed {} in {}; the trace store takes {} of disk, {} before",
            text::counted(self.sealed, "log", "logs"),
            text::counted(self.messages_removed, "message", "messages"),
            text::counted(self.files_removed, "file", "files"),
            bytes(self.disk_after),
            bytes(self.disk_before)
        )
    }
}

impl Tidy {
    pub(in crate::cli) fn run(&self, screen: &mut Screen<'_>) -> Result<Outcome, Failure> {
        let mut both = Both::open_to_change(&self.common.directory()?)?;
        let mut report = Report { rates: None, trace: None, removed: Vec::new() };
        if let Some(spool) = &mut both.rates {
            report.removed = self.remove(spool)?;
            let bar = progress(256, "shards");
            report.rates = Some(RatesTidied::of(spool, |spool| {
                Ok(spool.tidy(now(), |done| bar.set_position(done as u64))?)
            })?);
            bar.finish_and_clear();
            print_incidents(spool);
        }
        if let Some(store) = &mut both.traces {
            report.trace = Some(TracesTidied::of(store)?);
        }
        if self.common.json {
            screen.json(&report)?;
            return Ok(Outcome::Fine);
        }
        for path in &report.removed {
            writeln!(screen, "removed {path}")?;
        }
        if let Some(rates) = &report.rates {
            rates.print(screen)?;
        }
        if let Some(trace) = &report.trace {
            trace.print(screen)?;
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
