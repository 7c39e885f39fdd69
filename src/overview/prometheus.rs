//! The counts in Prometheus's text format, for the textfile collector of its
//! node exporter. docs/metrics.md describes each metric.

use std::io::{self, Write};

use super::counts::{AllCounts, Cluster, ModeCounts, PolicyCounts, Rates, Traces, UsageToday};
use crate::rate::Timestamp;
use crate::serve::servers::{JsonAgent, JsonServer};

/// Writes all metrics, as of `now`.
pub(crate) fn write(out: &mut dyn Write, counts: &AllCounts, now: Timestamp) -> io::Result<()> {
    if let Some(rates) = &counts.rates {
        write_rates(out, rates)?;
        rates.usage.iter().try_for_each(|usage| write_usage(out, usage))?;
    }
    if let Some(policies) = &counts.policies {
        write_policies(out, policies)?;
    }
    if let Some(cluster) = &counts.cluster {
        write_cluster(out, cluster)?;
    }
    if let Some(traces) = &counts.traces {
        write_traces(out, traces)?;
    }
    let time = u64::try_from(now.seconds).unwrap_or(0);
    write_all(
        out,
        "gauge",
        &[
            ("bypass_seconds", "Until the bypass ends; 0 without one.", counts.bypass_seconds),
            ("stats_timestamp_seconds", "When this was counted.", time),
        ],
    )
}

fn write_rates(out: &mut dyn Write, rates: &Rates) -> io::Result<()> {
    write_all(
        out,
        "gauge",
        &[
            ("disk_bytes", "Disk space used by the rate database.", rates.disk_bytes),
            ("max_bytes", "Size limit of the rate database.", rates.max_bytes),
            ("heap_bytes", "Records, including dead ones.", rates.heap_bytes),
            ("dead_bytes", "Records that no key uses any more.", rates.dead_bytes),
            ("filter_bytes", "Bloom filters of unique events.", rates.filter_bytes),
            ("index_entries", "Index entries, used and free.", rates.index_entries),
            ("shards", "Shards that exist.", rates.shards),
            ("unreadable_shards", "Shards that could not be read.", rates.shards_unreadable),
            ("damaged_records", "Damaged records in the database.", rates.damaged_now),
            ("quarantined_files", "Damaged files that were replaced.", rates.damaged_files),
        ],
    )?;
    type OfKind = fn(&ModeCounts) -> u64;
    let of_kinds: [(&str, &str, OfKind); 3] = [
        ("keys", "Keys in the database.", |kind| kind.keys),
        ("keys_over_limit", "Keys of which one more event would be refused.", |kind| kind.over),
        ("record_bytes", "Records of keys, without dead ones.", |kind| kind.bytes),
    ];
    for (name, help, value) in of_kinds {
        head(out, name, help, "gauge")?;
        for kind in &rates.kinds {
            let (period, mode) = (label(&kind.period), label(&kind.mode));
            let value = value(kind);
            writeln!(out, "exirate_{name}{{period=\"{period}\",mode=\"{mode}\"}} {value}")?;
        }
    }
    write_all(
        out,
        "counter",
        &[
            ("rebuilds_total", "Shard files written.", rates.rebuilds),
            ("forgotten_total", "Records dropped because they expired.", rates.forgotten),
            ("evicted_total", "Records dropped to keep the size limit.", rates.evicted),
            ("dropped_total", "Damaged records dropped.", rates.dropped),
            ("lock_waits_total", "Checks that waited for a lock.", rates.lock_waits),
            ("events_lost_total", "Crossings and refusals not written.", rates.events_lost),
        ],
    )
}

fn write_usage(out: &mut dyn Write, usage: &UsageToday) -> io::Result<()> {
    let UsageToday { accounts, sent } = usage;
    write_all(
        out,
        "gauge",
        &[
            ("sending_accounts_today", "Accounts that have sent today.", *accounts),
            ("sent_messages_today", "Messages of accounts today.", sent.messages),
            ("sent_recipients_today", "Recipients of accounts today.", sent.recipients),
            ("sent_bytes_today", "Bytes of messages of accounts today.", sent.bytes),
            ("refused_recipients_today", "Refused recipients of accounts.", sent.refused),
            ("failed_recipients_today", "Failed deliveries of accounts.", sent.failed),
        ],
    )
}

fn write_policies(out: &mut dyn Write, policies: &PolicyCounts) -> io::Result<()> {
    let (name, help) = ("policy_checks_total", "Checks of the rules of policies.");
    head(out, name, help, "counter")?;
    for rule in &policies.rules {
        for (verdict, count) in &rule.verdicts {
            let (policy, mode) = (label(&rule.policy), rule.mode);
            let rule = label(&rule.rule);
            writeln!(
                out,
                "exirate_{name}{{policy=\"{policy}\",rule=\"{rule}\",mode=\"{mode}\",\
                 verdict=\"{verdict}\"}} {count}"
            )?;
        }
    }
    write_all(
        out,
        "counter",
        &[
            ("policy_errors_total", "Evaluations of policies that failed.", policies.errors),
            (
                "policy_uncounted_checks_total",
                "Checks of rules for which there was no counter.",
                policies.uncounted,
            ),
        ],
    )
}

fn write_cluster(out: &mut dyn Write, cluster: &Cluster) -> io::Result<()> {
    write_all(
        out,
        "gauge",
        &[
            ("cluster_servers", "Servers that share the limits.", cluster.servers.into()),
            (
                "cluster_away",
                "1 while the shared limits cannot be reached, else 0.",
                cluster.is_away.into(),
            ),
        ],
    )?;
    write_all(
        out,
        "counter",
        &[
            (
                "cluster_decided_shared_total",
                "Events decided by the shared store.",
                cluster.decided_shared,
            ),
            ("cluster_decided_apart_total", "Events decided without it.", cluster.decided_apart),
            (
                "cluster_apart_over_total",
                "Events decided without it that were over a limit.",
                cluster.apart_over,
            ),
        ],
    )?;
    write_servers(out, &cluster.servers_seen)
}

/// The servers that share the limits, as the agent has seen them.
fn write_servers(out: &mut dyn Write, servers: &[JsonServer]) -> io::Result<()> {
    if servers.is_empty() {
        return Ok(());
    }
    head(out, "cluster_server_info", "The release and the policies of a server.", "gauge")?;
    for server in servers {
        let name = label(&server.name);
        let release = label(server.agent.as_ref().map_or("", |agent| &agent.release));
        let policy = label(server.policy.as_deref().unwrap_or_default());
        writeln!(
            out,
            "exirate_cluster_server_info{{server=\"{name}\",release=\"{release}\",\
             policy=\"{policy}\"}} 1"
        )?;
    }
    type OfAgent = fn(&JsonAgent) -> f64;
    let of_agents: [(&str, &str, &str, OfAgent); 5] = [
        ("seen_timestamp_seconds", "When the agent of a server was seen last.", "gauge", |agent| {
            agent.seen as f64
        }),
        ("start_timestamp_seconds", "When the agent of a server started.", "gauge", |agent| {
            agent.started as f64
        }),
        ("clock_offset_seconds", "The clock of a server minus that of Redis.", "gauge", |agent| {
            agent.clock_offset
        }),
        ("name_conflict", "1 if several servers have this name, else 0.", "gauge", |agent| {
            f64::from(u8::from(agent.name_conflict))
        }),
        (
            "decisions_total",
            "Requests that the agent of a server has decided.",
            "counter",
            |agent| agent.decisions as f64,
        ),
    ];
    for (name, help, kind, value) in of_agents {
        let name = format!("cluster_server_{name}");
        head(out, &name, help, kind)?;
        for (server, agent) in servers.iter().filter_map(|one| Some((one, one.agent.as_ref()?))) {
            let (server, value) = (label(&server.name), value(agent));
            writeln!(out, "exirate_{name}{{server=\"{server}\"}} {value}")?;
        }
    }
    Ok(())
}

fn write_traces(out: &mut dyn Write, traces: &Traces) -> io::Result<()> {
    write_all(
        out,
        "gauge",
        &[
            ("trace_messages", "Messages in the trace store.", traces.messages),
            ("trace_segments", "Segments of the trace store.", traces.segments),
            ("trace_logs", "Logs of the trace store.", traces.logs),
            ("trace_disk_bytes", "Bytes of all segments and logs.", traces.disk_bytes),
            ("trace_max_bytes", "Size limit of the trace store.", traces.max_bytes),
            ("trace_damaged_files", "Files that could not be read.", traces.damaged_files),
            ("trace_quarantined_files", "Quarantined files.", traces.quarantined_files),
            ("trace_other_key_files", "Files of a previous key.", traces.other_key_files),
            ("trace_lost_parts", "Damaged parts of logs that were sealed.", traces.lost_parts),
        ],
    )
}

fn write_all(out: &mut dyn Write, kind: &str, metrics: &[(&str, &str, u64)]) -> io::Result<()> {
    for (name, help, value) in metrics {
        head(out, name, help, kind)?;
        writeln!(out, "exirate_{name} {value}")?;
    }
    Ok(())
}

fn head(out: &mut dyn Write, name: &str, help: &str, kind: &str) -> io::Result<()> {
    writeln!(out, "# HELP exirate_{name} {help}\n# TYPE exirate_{name} {kind}")
}

/// A label's value, escaped.
fn label(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}
