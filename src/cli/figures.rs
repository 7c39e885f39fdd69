//! The figures of the whole database, for `stats` in its three forms.

use std::collections::BTreeMap;

use serde::Serialize;

use super::Failure;
use super::database;
use super::record::Record;
use super::text;
use crate::rate::Timestamp;
use crate::spool::Spool;

/// Kinds of keys that are told apart. A database has as many as Exim's
/// configuration has lines; only one that was written to by others has more.
const KINDS_MAX: usize = 100;

/// Everything that is counted.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Figures {
    pub(super) keys: u64,
    pub(super) over: u64,
    pub(super) disk_bytes: u64,
    pub(super) max_bytes: u64,
    pub(super) heap_bytes: u64,
    pub(super) dead_bytes: u64,
    pub(super) filter_bytes: u64,
    pub(super) index_entries: u64,
    pub(super) shards: u64,
    pub(super) shards_unreadable: u64,
    pub(super) damaged_files: u64,
    pub(super) damaged_files_bytes: u64,
    pub(super) damaged_now: u64,
    pub(super) rebuilds: u64,
    pub(super) forgotten: u64,
    pub(super) evicted: u64,
    pub(super) dropped: u64,
    pub(super) lock_waits: u64,
    pub(super) kinds: Vec<Kind>,
}

/// The figures of the keys of one mode and period.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Kind {
    pub(super) period: String,
    pub(super) mode: String,
    pub(super) keys: u64,
    pub(super) over: u64,
    pub(super) bytes: u64,
}

impl Figures {
    /// Counts. What cannot be read is told and left out.
    pub(super) fn of(spool: &mut Spool, now: Timestamp) -> Result<Self, Failure> {
        let mut kinds: BTreeMap<(String, String), Kind> = BTreeMap::new();
        let (mut keys, mut over) = (0, 0);
        let damaged_before = spool.damaged();
        let unread = database::visit(spool, |entry| {
            let bytes = entry.bytes() as u64;
            let record = Record::from(entry);
            let is_over = u64::from(record.is_over(now));
            keys += 1;
            over += is_over;
            let name =
                (record.period_text().unwrap_or_default(), record.mode().unwrap_or_default());
            // One that is told apart stays so: or its figures would be too low.
            let known = kinds.len() < KINDS_MAX || kinds.contains_key(&name);
            let name = if known { name } else { Default::default() };
            let kind = kinds.entry(name).or_default();
            kind.keys += 1;
            kind.over += is_over;
            kind.bytes += bytes;
        })?;
        let damaged_now = spool.damaged() - damaged_before;
        // It has been told which shards cannot be read.
        let stats = spool.stats_of_readable()?;
        let aside = spool.kept_damaged()?;
        let kinds = kinds.into_iter().map(|((period, mode), kind)| Kind { period, mode, ..kind });
        Ok(Self {
            keys,
            over,
            disk_bytes: stats.disk,
            max_bytes: spool.max_bytes(),
            heap_bytes: stats.heap,
            dead_bytes: stats.dead,
            filter_bytes: stats.filters,
            index_entries: stats.index_entries,
            shards: stats.shards as u64,
            shards_unreadable: unread as u64,
            damaged_files: aside.len() as u64,
            damaged_files_bytes: aside.iter().map(|aside| aside.disk).sum(),
            damaged_now,
            rebuilds: stats.rebuilds,
            forgotten: stats.forgotten,
            evicted: stats.evicted,
            dropped: stats.dropped,
            lock_waits: stats.waits,
            kinds: kinds.collect(),
        })
    }

    /// Which part of the bound is taken, 0 to 1 and a little more.
    pub(super) fn fill(&self) -> f64 {
        self.disk_bytes as f64 / self.max_bytes as f64
    }
}

/// Bytes for people: `1.5 MiB`.
pub(super) fn bytes(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let (mut value, mut unit) = (bytes as f64, "B");
    for name in UNITS {
        (value, unit) = (value / 1024.0, name);
        // What would be shown as 1024 is 1 of the next.
        if value < 1023.95 {
            break;
        }
    }
    let text = text::number((value * 10.0).round() / 10.0);
    format!("{text} {unit}")
}

/// Bytes as people write them: `2G`, `512M`, `16777216`.
pub(super) fn parse_bytes(text: &str) -> Result<u64, String> {
    let wrong = || "it takes a size in bytes, such as 512M or 2G (1024-based)".to_owned();
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, unit) = text.split_at(end);
    let shift = match unit.to_ascii_lowercase().trim_end_matches("ib") {
        "" => 0,
        "k" => 10,
        "m" => 20,
        "g" => 30,
        "t" => 40,
        _ => return Err(wrong()),
    };
    let number: u64 = digits.parse().map_err(|_| wrong())?;
    number.checked_mul(1 << shift).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_for_people() {
        for (number, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1 KiB"),
            (1536, "1.5 KiB"),
            (1_048_575, "1 MiB"),
            (1 << 30, "1 GiB"),
            (u64::MAX, "16384 PiB"),
        ] {
            assert_eq!(bytes(number), text);
        }
        assert_eq!(parse_bytes("2G"), Ok(2 << 30));
        assert_eq!(parse_bytes("512MiB"), Ok(512 << 20));
        assert_eq!(parse_bytes("16777216"), Ok(16 << 20));
        for text in ["", "G", "1.5G", "-1", "2X", "99999999999T"] {
            assert!(parse_bytes(text).is_err(), "{text}");
        }
    }
}
