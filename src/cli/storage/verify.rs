//! `exirate verify`: checks the rate database and the trace store.

use std::io::Write as _;
use std::path::Path;

use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;

use crate::cli::shared::database::{Both, Common, bar};
use crate::cli::shared::screen::{Screen, shards};
use crate::cli::{Failure, Json, Outcome};
use crate::spool::{Report, Spool};
use crate::text;
use crate::trace::{Access, TraceError, TraceStore, Verified, trace_directory};

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
            let found = traces
                .verify(&mut bar("messages"), &mut |problem| problems.push(problem.to_string()))?;
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
        let report: Report = spool.verify_with(shards())?;
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
            _ => Findings::of(&mut Both::open(&directory)?)?,
        };
        if self.common.json {
            screen.json(&findings)?;
        } else {
            print(screen, &findings)?;
        }
        Ok(Outcome::found_if(!findings.problems.is_empty()))
    }
}

fn print(screen: &mut Screen<'_>, findings: &Findings) -> std::io::Result<()> {
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
