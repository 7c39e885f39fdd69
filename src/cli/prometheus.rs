//! The figures as Prometheus's text format, for the textfile collector of its
//! node exporter.

use std::io::{self, Write};

use super::figures::{Figures, Kind};
use crate::rate::Timestamp;

/// A figure of a kind of keys.
type OfKind = fn(&Kind) -> u64;

/// Writes all figures, as of `now`.
pub(super) fn write(out: &mut dyn Write, figures: &Figures, now: Timestamp) -> io::Result<()> {
    for (name, help, value) in [
        ("disk_bytes", "Disk that the database takes.", figures.disk_bytes),
        ("bound_bytes", "Disk that it may take.", figures.max_bytes),
        ("heap_bytes", "Records, dead ones included.", figures.heap_bytes),
        ("dead_bytes", "Records that no key needs any more.", figures.dead_bytes),
        ("filter_bytes", "Filters of unique events.", figures.filter_bytes),
        ("index_entries", "Entries of the indexes, taken and free.", figures.index_entries),
        ("shards", "Shards that exist.", figures.shards),
        ("unreadable_shards", "Shards that could not be read.", figures.shards_unreadable),
        ("damaged_records", "Damaged records that are there now.", figures.damaged_now),
        ("damaged_files", "Damaged files that were replaced and kept.", figures.damaged_files),
    ] {
        head(out, name, help, "gauge")?;
        writeln!(out, "exirate_{name} {value}")?;
    }
    let of_kinds: [(&str, &str, OfKind); 3] = [
        ("keys", "Keys that are remembered.", |kind| kind.keys),
        ("keys_over_limit", "Keys of which one more event would be refused.", |kind| kind.over),
        ("record_bytes", "Records of live keys.", |kind| kind.bytes),
    ];
    for (name, help, value) in of_kinds {
        head(out, name, help, "gauge")?;
        for kind in &figures.kinds {
            let (period, mode) = (label(&kind.period), label(&kind.mode));
            let value = value(kind);
            writeln!(out, "exirate_{name}{{period=\"{period}\",mode=\"{mode}\"}} {value}")?;
        }
    }
    for (name, help, value) in [
        ("rebuilds_total", "Files that the shards have had.", figures.rebuilds),
        ("forgotten_total", "Records that could change no answer any more.", figures.forgotten),
        ("evicted_total", "Records that went to keep the bound.", figures.evicted),
        ("dropped_total", "Damaged records that were dropped.", figures.dropped),
        ("lock_waits_total", "Checks that had to wait for a lock.", figures.lock_waits),
    ] {
        head(out, name, help, "counter")?;
        writeln!(out, "exirate_{name} {value}")?;
    }
    let name = "stats_timestamp_seconds";
    head(out, name, "When this was counted.", "gauge")?;
    writeln!(out, "exirate_{name} {}", now.seconds)
}

fn head(out: &mut dyn Write, name: &str, help: &str, kind: &str) -> io::Result<()> {
    writeln!(out, "# HELP exirate_{name} {help}\n# TYPE exirate_{name} {kind}")
}

/// A label's value, escaped.
fn label(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}
