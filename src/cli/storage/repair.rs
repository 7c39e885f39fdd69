//! `exirate verify` and `exirate repair`: what is damaged in the databases, and repairing it.

use std::io::Write as _;
use std::path::Path;

use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;

use crate::cli::shared::administrator::AuditLog;
use crate::cli::shared::database::Common;
use crate::cli::shared::screen::{Screen, TERMINAL, Terminal, complain, note};
use crate::cli::{Failure, Json, Outcome};
use crate::spec::typed_period;
use crate::spool::{Options, Report, Spool, SpoolError};
use crate::standing::databases::{Both, require_owner};
use crate::text::time::now;
use crate::text::{self, Voice as _, bytes};
use crate::trace::{Access, TraceError, TraceStore, Verified, trace_directory};

/// Repair the databases, and drop what has expired
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  Repair both, and drop what has expired:
    exirate repair
  Show what is wrong, and change nothing:
    exirate repair --dry-run
  Remove quarantined files after a month:
    exirate repair --damaged-older-than 30d

All sound records and messages are kept. What cannot be read is set aside in a file of its own. It
may run while mail is accepted, and a server that is in use needs it only after damage.

Exit status: 0 nothing had to be repaired; 1 something was repaired, or would be
(--dry-run); 2 an error, or something could not be repaired.

All sound records and messages are kept. A file that cannot be read is quarantined: a shard is
renamed to *.damaged-1 to -9. A damaged list of overrides (`exirate allow`, `exirate deny`) is
quarantined as well: audit.log has the commands that set it. Unfinished files of killed processes
are removed. Exim may run meanwhile, and repairs what its checks meet by itself. What was done is
logged to audit.log in the database's directory, and to syslog (facility mail).

Then what has expired is dropped, which is never needed on a server that is in use. Checks do it
every six hours, shard by shard: a record is dropped only when that cannot change a decision any
more, and a shard is rebuilt only if that frees a quarter of it. `repair` rebuilds every shard.
The trace store does it whenever a log is full: the log is sealed, small segments are merged, and
messages are removed as `exirate config` says. `repair` also seals a log that is not full, and
merges all segments that fit into one. Where messages are no longer recorded, old ones are only
removed by `repair`.", add = Json::of::<RepairReport>())]
pub(in crate::cli) struct Repair {
    /// Change nothing: show what is wrong
    #[arg(long)]
    dry_run: bool,

    /// Remove files *.damaged-N that were quarantined longer ago than this, such
    /// as 30d; 0s removes all
    #[arg(long, value_name = "AGE", value_parser = age, conflicts_with = "dry_run")]
    damaged_older_than: Option<f64>,

    #[command(flatten)]
    common: Common,
}

/// What was wrong, and what became of it.
#[derive(Default, Serialize, JsonSchema)]
struct RepairReport {
    dry_run: bool,
    /// Found before.
    problems: Vec<String>,
    /// What was done.
    done: Vec<String>,
    /// What is still wrong.
    left: Vec<String>,
    /// The quarantined files that were removed.
    removed: Vec<String>,
    #[serde(flatten)]
    rates: Option<RatesTidied>,
    /// Null where there is no trace store, and with --dry-run.
    trace: Option<TracesTidied>,
}

/// What was dropped from the rate database, in JSON.
#[derive(Serialize, JsonSchema)]
struct RatesTidied {
    rebuilt: u64,
    forgotten: u64,
    evicted: u64,
    disk_before: u64,
    disk_after: u64,
}

/// What was dropped from the trace store, in JSON.
#[derive(Serialize, JsonSchema)]
struct TracesTidied {
    sealed: u64,
    files_removed: u64,
    messages_removed: u64,
    disk_before: u64,
    disk_after: u64,
}

impl RatesTidied {
    fn of(spool: &mut Spool) -> Result<Self, Failure> {
        // Counts that cannot be read are not worth failing for; nor can those of
        // all shards be compared with those of some.
        let before = spool.stats();
        let tidied = spool.compact(now(), TERMINAL.shards())?;
        let (before, after) = before.and_then(|b| Ok((b, spool.stats()?))).unwrap_or_default();
        Ok(Self {
            rebuilt: tidied.rebuilt,
            forgotten: after.forgotten.saturating_sub(before.forgotten),
            evicted: after.evicted.saturating_sub(before.evicted),
            disk_before: tidied.disk_before,
            disk_after: tidied.disk_after,
        })
    }

    fn print(&self, screen: &mut Screen<'_>) -> std::io::Result<()> {
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

impl Repair {
    /// As `exirate tidy`, an older word: what was repaired is no finding.
    pub(in crate::cli) fn tidy(&self, screen: &mut Screen<'_>) -> Result<Outcome, Failure> {
        self.run(screen).map(|_| Outcome::Fine)
    }

    pub(in crate::cli) fn run(&self, screen: &mut Screen<'_>) -> Result<Outcome, Failure> {
        let directory = self.common.directory()?;
        let mut report = RepairReport { dry_run: self.dry_run, ..RepairReport::default() };
        match Both::open(&directory, &Terminal) {
            Ok(mut both) => report.problems = Findings::of(&mut both)?.problems,
            // Where a store cannot even be opened, repairing it may help.
            Err(failure) if self.dry_run => return Err(failure.into()),
            Err(_) => {}
        }
        if !self.dry_run {
            require_owner(&directory)?;
            self.repair(&directory, &mut report)?;
        }
        let found = !report.problems.is_empty() || !report.done.is_empty();
        let left = report.left.len();
        screen.show(self.common.json, &report, print)?;
        if left > 0 {
            screen.flush()?;
            return Err(Failure::new(format!(
                "{} could not be repaired",
                text::counted(left, "problem", "problems")
            )));
        }
        Ok(Outcome::found_if(found))
    }

    /// Repairs the stores that exist, and drops what has expired where nothing is wrong any more.
    fn repair(&self, directory: &Path, report: &mut RepairReport) -> Result<(), Failure> {
        let mut traces = TraceStore::open_if_any(directory, Access::Write)?;
        let mut rates = match Spool::require(directory) {
            Ok(()) => Some(Spool::open(directory, Options::default())?),
            Err(SpoolError::Absent { .. }) if traces.is_some() => None,
            Err(error) => return Err(error.into()),
        };
        if let Some(spool) = &mut rates {
            repair_rates(spool, report)?;
        }
        if let Some(traces) = &mut traces {
            let repaired = traces.repair(&mut Terminal.progress("messages"))?;
            report.done.extend(repaired.done.iter().map(ToString::to_string));
            report.left.extend(repaired.left.iter().map(ToString::to_string));
        }
        if let Some(spool) = &mut rates {
            let mut log = AuditLog::new();
            for what in &report.done {
                log.add(spool, format_args!("repair {}", text::printable(what.as_bytes())));
            }
        }
        if !report.left.is_empty() {
            return Ok(());
        }
        if let Some(spool) = &mut rates {
            report.removed = self.remove(spool)?;
            report.rates = Some(RatesTidied::of(spool)?);
            spool.take_incidents().iter().for_each(note);
        }
        report.trace = traces.as_mut().map(TracesTidied::of).transpose()?;
        Ok(())
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
                log.add(spool, format_args!("repair removed={path}"));
                removed.push(path);
            }
        }
        Ok(removed)
    }
}

fn repair_rates(spool: &mut Spool, report: &mut RepairReport) -> Result<(), Failure> {
    let repaired = spool.repair(now(), TERMINAL.shards());
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

fn print(screen: &mut Screen<'_>, report: &RepairReport) -> std::io::Result<()> {
    for (what, texts) in
        [("found", &report.problems), ("done", &report.done), ("still wrong", &report.left)]
    {
        for text in texts {
            writeln!(screen, "{what}: {}", text::printable(text.as_bytes()))?;
        }
    }
    match (report.problems.len() + report.done.len(), report.dry_run) {
        (0, _) => writeln!(screen, "no problems: nothing to repair")?,
        (_, true) => writeln!(screen, "nothing was changed; `exirate repair` repairs this")?,
        (_, false) if report.left.is_empty() => writeln!(screen, "no problems are left")?,
        _ => {}
    }
    for path in &report.removed {
        writeln!(screen, "removed {path}")?;
    }
    report.rates.iter().try_for_each(|rates| rates.print(screen))?;
    report.trace.iter().try_for_each(|trace| trace.print(screen))
}

/// A time in seconds, written as a period or 0.
fn age(text: &str) -> Result<f64, String> {
    if matches!(text, "0" | "0s") {
        return Ok(0.0);
    }
    typed_period(text).map_err(|_| "expected a time such as 30d, 2w or 12h".to_owned())
}

/// Check the rate database and the trace store for damage
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  Check both databases:
    exirate verify
  For scripts:
    exirate verify --json | jq '.problems | length'

Every byte that can be checked is checked, and so are the owner and mode of each file. Nothing is
changed: `exirate repair` repairs what is found. It may run while mail is accepted.

Exit status: 0 no problem was found; 1 there are problems, one a line; 2 an error.

Every byte that can be checked is checked, and so are the owner and the mode of each
file. Nothing is changed: `exirate repair` repairs what is found. Exim may run
meanwhile; each shard is locked while it is read. A damaged record affects no other
key, and a damaged message no other message.

Everything in the trace store has a tag that only someone with its key can make, so a deliberate
change is found as well. Where the key is missing, only damage in segments is found, by their
checksums.", add = Json::of::<Findings>())]
pub(in crate::cli) struct Verify {
    #[command(flatten)]
    common: Common,
}

/// What was found, in JSON.
#[derive(Default, Serialize, JsonSchema)]
pub(in crate::cli) struct Findings {
    shards: usize,
    records: u64,
    damaged: u64,
    disk_bytes: u64,
    dead_bytes: u64,
    /// Null where there is no trace store.
    trace: Option<TraceFindings>,
    pub(in crate::cli) problems: Vec<String>,
    /// Whether there is a rate database.
    #[serde(skip)]
    has_rates: bool,
}

/// What was found in the trace store, in JSON.
#[derive(Serialize, JsonSchema)]
struct TraceFindings {
    files: u64,
    /// How many are readable; null without the key.
    messages: Option<u64>,
    bytes: u64,
    problems: u64,
}

impl Findings {
    /// Checks the stores that exist.
    pub(in crate::cli) fn of(both: &mut Both) -> Result<Self, Failure> {
        let mut findings = Self::default();
        if let Some(rates) = &mut both.rates {
            findings.add_rates(rates)?;
        }
        if let Some(traces) = &both.traces {
            let problems = &mut findings.problems;
            let found = traces.verify(&mut Terminal.progress("messages"), &mut |problem| {
                problems.push(problem.to_string())
            })?;
            findings.trace = Some(found.into());
        }
        Ok(findings)
    }

    /// Checks the rate database, if there is one, and a trace store without its key.
    fn without_key(rates: Option<Spool>, traces: &Path) -> Result<Self, Failure> {
        let mut findings = Self::default();
        if let Some(mut rates) = rates {
            findings.add_rates(&mut rates)?;
        }
        let problems = &mut findings.problems;
        let found = TraceStore::verify_without_key(traces, &mut |problem| {
            problems.push(problem.to_string());
        })?;
        findings.trace = Some(TraceFindings { messages: None, ..found.into() });
        Ok(findings)
    }

    fn add_rates(&mut self, spool: &mut Spool) -> Result<(), Failure> {
        let report: Report = spool.verify_with(TERMINAL.shards())?;
        let sum = |of: fn(&crate::spool::ShardReport) -> u64| report.shards.iter().map(of).sum();
        // The report on the file `database` is not one of a shard.
        let is_shard = |path: &std::path::Path| path.extension().is_some_and(|e| e == "shard");
        self.shards = report.shards.iter().filter(|shard| is_shard(&shard.path)).count();
        self.records = report.records();
        self.damaged = sum(|shard| shard.damaged);
        self.disk_bytes = sum(|shard| shard.disk);
        self.dead_bytes = sum(|shard| shard.dead);
        self.problems.extend(report.problems());
        self.has_rates = true;
        Ok(())
    }
}

impl From<Verified> for TraceFindings {
    fn from(Verified { files, messages, bytes, problems }: Verified) -> Self {
        Self { files, messages: Some(messages), bytes, problems }
    }
}

impl Verify {
    pub(in crate::cli) fn run(&self, screen: &mut Screen<'_>) -> Result<Outcome, Failure> {
        let directory = self.common.directory()?;
        let traces = trace_directory(&directory);
        let findings = match TraceStore::open(&traces, Access::Read) {
            Err(TraceError::NoKey { .. }) => {
                Findings::without_key(self.common.spool_if_any()?, &traces)?
            }
            _ => Findings::of(&mut Both::open(&directory, &Terminal)?)?,
        };
        screen.show(self.common.json, &findings, print_findings)?;
        Ok(Outcome::found_if(!findings.problems.is_empty()))
    }
}

fn print_findings(screen: &mut Screen<'_>, findings: &Findings) -> std::io::Result<()> {
    for problem in &findings.problems {
        writeln!(screen, "{}", text::printable(problem.as_bytes()))?;
    }
    let verdict = match findings.problems.len() {
        0 => "no problems".to_owned(),
        1 => "1 problem; `exirate repair` repairs it if possible".to_owned(),
        n => format!("{n} problems; `exirate repair` repairs what it can"),
    };
    let rates = findings
        .has_rates
        .then(|| format!("{} records in {} shards", findings.records, findings.shards));
    let traces = findings.trace.as_ref().map(|trace| {
        let files = text::counted(trace.files, "trace file", "trace files");
        match trace.messages {
            Some(messages) => {
                format!("{} in {files}", text::counted(messages, "message", "messages"))
            }
            None => {
                format!("an unknown number of messages in {files}")
            }
        }
    });
    let checked: Vec<String> = rates.into_iter().chain(traces).collect();
    writeln!(screen, "{verdict}: {}", checked.join(", "))
}
