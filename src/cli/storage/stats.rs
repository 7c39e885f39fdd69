//! `exirate stats`: key counts and database health.

use std::io::Write as _;
use std::path::PathBuf;

use clap::Args;

use crate::cli::shared::database::{self, Common};
use crate::cli::shared::output_file;
use crate::cli::shared::screen::{Screen, Terminal};
use crate::cli::shared::table::{self, Column};
use crate::cli::{Failure, Json, Outcome};
use crate::overview::counts::{
    AllCounts, Cluster, ModeCounts, PolicyCounts, Rates, RuleChecks, SharedKeys, Traces,
};
use crate::overview::prometheus;
use crate::rate::Timestamp;
use crate::standing::databases::Both;
use crate::text::time::now;
use crate::text::{self, bytes};

/// Permissions of the file for Prometheus, which another user reads.
const READABLE: u32 = 0o644;

/// Show key counts and database health
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  Count keys, and those that are blocked:
    exirate stats
  For Prometheus, through the textfile collector of its node exporter:
    exirate stats --prometheus /var/lib/prometheus/node-exporter/exirate.prom
  How much of the size limit is used?
    exirate stats --json | jq .fill

FORGOTTEN counts records that were dropped because they could decide nothing any more, EVICTED those
that were dropped because the size limit was reached: see `exirate config`.

Exit status: 0 counted; 2 an error. Where a file is damaged, the others are counted
all the same.

FORGOTTEN counts records that were dropped because they could not change a decision
any more, EVICTED those that were dropped although they could, because the size limit
was reached: see `exirate config`. DAMAGED records are dropped when a
check or `exirate repair` meets them. These counts start when the database is created.
BYTES are those of the records of a kind of key, without the index and dead records.

For each rule of a policy, CHECKS counts how often it was checked, and LOG to REJECT
what the verdicts were; in the mode observe, what they would have been. A rule is what
it counts and the period, for all users together.

Messages are appended to logs; a full log is sealed into a segment, which is smaller.
Files of another key cannot be queried and are removed when they are too old.

The metrics of --prometheus begin with exirate_, those of the trace store with
exirate_trace_; docs/metrics.md lists them. FILE.tmp is written first and then
renamed, so that an incomplete file is never read.", add = Json::of::<AllCounts>())]
pub(in crate::cli) struct Stats {
    /// Print metrics in Prometheus's text format, or write them to FILE
    #[arg(
        long,
        value_name = "FILE",
        value_hint = clap::ValueHint::FilePath,
        num_args = 0..=1,
        default_missing_value = "-",
        conflicts_with = "json"
    )]
    prometheus: Option<PathBuf>,

    #[command(flatten)]
    common: Common,
}

impl Stats {
    pub(in crate::cli) fn run(&self, screen: &mut Screen<'_>) -> Result<Outcome, Failure> {
        let now = now();
        let spool = self.common.directory()?;
        let mut both = Both::open(&spool, &Terminal)?;
        // The timer that writes the metrics has no access to the shared store.
        let shared = self.prometheus.is_none();
        let counts = AllCounts::of(&mut both, &spool, shared, now, &Terminal)?;
        match &self.prometheus {
            Some(path) if path.as_os_str() == "-" => prometheus::write(screen, &counts, now)?,
            Some(path) => output_file::replace(path, READABLE, |out| {
                Ok(prometheus::write(out, &counts, now)?)
            })?,
            None if self.common.json => screen.json(&counts)?,
            None => print(screen, &counts, now)?,
        }
        screen.flush()?;
        let unread = counts.rates.as_ref().map_or(0, |rates| rates.shards_unreadable);
        database::incomplete(usize::try_from(unread).unwrap_or(usize::MAX))?;
        Ok(Outcome::Fine)
    }
}

fn print(screen: &mut Screen<'_>, counts: &AllCounts, now: Timestamp) -> Result<(), Failure> {
    let AllCounts { rates, policies, cluster, traces, .. } = counts;
    let mut blocks = 0;
    let mut next = |screen: &mut Screen<'_>| {
        blocks += 1;
        if blocks > 1 { writeln!(screen) } else { Ok(()) }
    };
    if let Some(rates) = rates {
        next(screen)?;
        print_rates(screen, rates)?;
    }
    if let Some(policies) = policies {
        next(screen)?;
        print_policies(screen, policies)?;
    }
    if let Some(cluster) = cluster {
        next(screen)?;
        print_cluster(screen, cluster)?;
    }
    if let Some(traces) = traces {
        next(screen)?;
        print_traces(screen, traces, now)?;
    }
    Ok(())
}

fn print_cluster(screen: &mut Screen<'_>, cluster: &Cluster) -> Result<(), Failure> {
    let Cluster { servers, is_away, decided_shared, decided_apart, apart_over, .. } = cluster;
    let now = if *is_away { ", which cannot be reached now" } else { "" };
    writeln!(screen, "shared      by {servers} servers{now}")?;
    if let Some(SharedKeys { keys, over }) = &cluster.keys {
        writeln!(screen, "  keys      {keys}, {over} blocked now")?;
    }
    writeln!(screen, "  decided   {decided_shared} events by the shared store")?;
    writeln!(screen, "  apart     {decided_apart} without it, {apart_over} of them over a limit")?;
    Ok(())
}

fn print_rates(screen: &mut Screen<'_>, rates: &Rates) -> Result<(), Failure> {
    let rows = [
        ("keys", format!("{}, {} blocked now", rates.keys, rates.over)),
        ("disk", disk(rates.disk_bytes, rates.max_bytes, rates.fill)),
        (
            "records",
            format!(
                "{}, of which {} filters, {} dead",
                bytes(rates.heap_bytes),
                bytes(rates.filter_bytes),
                bytes(rates.dead_bytes)
            ),
        ),
        ("index", format!("{} of {} entries used", rates.keys, rates.index_entries)),
        (
            "shards",
            // The first file of a shard is not a rebuild.
            format!(
                "{} of 256, {} rebuilt",
                rates.shards,
                rates.rebuilds.saturating_sub(rates.shards)
            ),
        ),
        ("forgotten", rates.forgotten.to_string()),
        ("evicted", rates.evicted.to_string()),
        ("damaged", damaged(rates)),
        ("lock waits", rates.lock_waits.to_string()),
        ("not logged", format!("{} crossings and refusals", rates.events_lost)),
    ];
    print_rows(screen, &rows)?;
    if rates.kinds.is_empty() {
        return Ok(());
    }
    writeln!(screen)?;
    let or_other = |text: &str| if text.is_empty() { "other" } else { text }.to_owned();
    let columns: [table::Shows<'_, ModeCounts>; 5] = [
        (Column::numbers("KEYS"), &|kind| kind.keys.to_string()),
        (Column::numbers("BLOCKED"), &|kind| kind.over.to_string()),
        (Column::numbers("BYTES"), &|kind| bytes(kind.bytes)),
        (Column::words("PERIOD"), &|kind| or_other(&kind.period)),
        (Column::words("MODE"), &|kind| or_other(&kind.mode)),
    ];
    Ok(table::print(screen, &rates.kinds, columns)?)
}

fn print_policies(screen: &mut Screen<'_>, policies: &PolicyCounts) -> Result<(), Failure> {
    let PolicyCounts { rules, errors, uncounted } = policies;
    let checks = rules.iter().fold(0_u64, |sum, rule| sum.saturating_add(rule.checks));
    let failed = format!("{checks} checks of rules, {errors} evaluations failed");
    let more = Some(uncounted).filter(|n| **n > 0);
    let more = more.map_or(String::new(), |n| format!(", {n} more of rules that have no counter"));
    print_rows(screen, &[("policies", failed + &more)])?;
    if rules.is_empty() {
        return Ok(());
    }
    writeln!(screen)?;
    let count_of = |rule: &RuleChecks, verdict| {
        rule.verdicts.get(verdict).map_or(String::new(), u64::to_string)
    };
    let columns: [table::Shows<'_, RuleChecks>; 9] = [
        (Column::numbers("CHECKS"), &|rule| rule.checks.to_string()),
        (Column::numbers("LOG"), &|rule| count_of(rule, "log")),
        (Column::numbers("DELAY"), &|rule| count_of(rule, "delay")),
        (Column::numbers("HOLD"), &|rule| count_of(rule, "hold")),
        (Column::numbers("DEFER"), &|rule| count_of(rule, "defer")),
        (Column::numbers("REJECT"), &|rule| count_of(rule, "reject")),
        (Column::words("MODE"), &|rule| rule.mode.to_owned()),
        (Column::words("POLICY"), &|rule| text::printable(rule.policy.as_bytes())),
        (Column::words("RULE"), &|rule| text::printable(rule.rule.as_bytes())),
    ];
    Ok(table::print(screen, rules, columns)?)
}

fn print_traces(screen: &mut Screen<'_>, traces: &Traces, now: Timestamp) -> Result<(), Failure> {
    let time = |seconds: Option<i64>| match seconds {
        None => "none".to_owned(),
        Some(seconds) => {
            let at = Timestamp { seconds, micros: 0 };
            format!("{} ({})", text::local(at), text::rough_age(at, now))
        }
    };
    let each = traces.bytes_per_message.map(|each| format!(", {} a message", bytes(each as u64)));
    let lost = Some(traces.lost_parts)
        .filter(|&n| n > 0)
        .map(|n| text::counted(n, "part", "parts"))
        .map(|parts| format!(", and {parts} of logs that were sealed since"));
    let rows = [
        ("messages", format!("{} in the trace store", traces.messages)),
        ("oldest", time(traces.times.map(|(oldest, _)| oldest))),
        ("newest", time(traces.times.map(|(_, newest)| newest))),
        (
            "disk",
            disk(traces.disk_bytes, traces.max_bytes, traces.fill) + &each.unwrap_or_default(),
        ),
        (
            "files",
            format!(
                "{}, {}",
                text::counted(traces.segments, "segment", "segments"),
                text::counted(traces.logs, "log", "logs")
            ),
        ),
        (
            "damaged",
            text::counted(traces.damaged_files, "file", "files") + &lost.unwrap_or_default(),
        ),
        ("other key", text::counted(traces.other_key_files, "file", "files")),
        ("shortest", format!("{} bytes of text are found for certain", traces.shortest)),
    ];
    print_rows(screen, &rows)
}

fn print_rows(screen: &mut Screen<'_>, rows: &[(&str, String)]) -> Result<(), Failure> {
    for (name, value) in rows {
        writeln!(screen, "{name:<10}  {value}")?;
    }
    Ok(())
}

fn disk(used: u64, max: u64, fill: f64) -> String {
    format!("{}, {} of the size limit {}", bytes(used), text::percent(fill), bytes(max))
}

fn damaged(rates: &Rates) -> String {
    let mut text = format!("{} records dropped", rates.dropped);
    if rates.damaged_now > 0 {
        text += &format!(", {} left: see `exirate verify`", rates.damaged_now);
    }
    if rates.damaged_files > 0 {
        text += &format!(
            "; {} quarantined, {}",
            text::counted(rates.damaged_files, "file", "files"),
            bytes(rates.damaged_files_bytes)
        );
    }
    text
}
