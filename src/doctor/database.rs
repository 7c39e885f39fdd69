//! The contents of the database.

use std::path::Path;

use super::finding::{Findings, Level, quoted};
use crate::spec::{Context, Spec};
use crate::spool::{Options, Spool, SpoolError, Stats};
use crate::sys::secure_dir::DirError;
use crate::text::bytes;
use crate::text::counted;

/// How many of its problems are listed; `exirate verify` lists all.
const PROBLEMS_MAX: usize = 5;

/// How many keys are tried for [`Contents::harmless`]: in a database of one
/// shard, each has a chance of 1 in 256.
const TRIES: u32 = 10_000;

/// What is in a database that can be read.
#[derive(Debug)]
pub(super) struct Contents {
    pub(super) stats: Stats,
    /// A spec whose check changes nothing: it counts nothing, and its shard exists.
    /// None in a database without shards.
    pub(super) harmless: Option<String>,
}

/// Checks the database in `spool`.
pub(super) fn look(spool: &Path, findings: &mut Findings) -> Option<Contents> {
    let found = Spool::require(spool)
        .and_then(|()| Spool::open_existing(spool, Options::default()))
        .and_then(|mut database| Ok((database.verify()?, database.stats(), harmless(&database))));
    let (report, stats, harmless) = match found {
        Ok(found) => found,
        Err(error) => {
            cannot_read(spool, &error, findings);
            return None;
        }
    };
    let problems: Vec<String> = report.problems().collect();
    for problem in problems.iter().take(PROBLEMS_MAX) {
        findings.problem(problem);
    }
    if let Some(more) = problems.len().checked_sub(PROBLEMS_MAX).filter(|&more| more > 0) {
        findings.problem(format!("and {more} more of this kind: see `exirate verify`"));
    }
    // A lock that another process holds is no damage.
    if problems.iter().any(|problem| !problem.starts_with("cannot lock ")) {
        findings.fix(format!("exirate repair --spool {}", quoted(spool)));
    }
    let stats = stats.ok()?;
    if problems.is_empty() {
        findings.ok(format!(
            "the database is sound: {} in {}",
            counted(report.records(), "key", "keys"),
            bytes(stats.disk)
        ));
    }
    history(&stats, spool, findings);
    Some(Contents { stats, harmless })
}

fn harmless(database: &Spool) -> Option<String> {
    (0..TRIES).map(|n| format!("1 / 1h / readonly / exirate doctor {n}")).find(|spec| {
        let request = Spec::parse(spec.as_bytes()).ok().map(|s| s.request(&Context::outside()));
        request
            .and_then(Result::ok)
            .is_some_and(|request| database.has_shard_of(request.check().key))
    })
}

fn cannot_read(spool: &Path, error: &SpoolError, findings: &mut Findings) {
    match error {
        SpoolError::Directory(DirError::Io { source, .. })
            if source.kind() == std::io::ErrorKind::PermissionDenied
                && !rustix::process::geteuid().is_root() =>
        {
            findings.hidden(format!("the database was not read: {error}"));
        }
        // Reported with the files.
        SpoolError::Directory(DirError::Unsafe { .. })
        | SpoolError::Directory(DirError::WrongKind { .. })
            if findings.count(Level::Problem) > 0 => {}
        // Policies and the trace store may be in its directory before.
        SpoolError::Absent { path } => {
            findings.note(format!(
                "no rate database at {} yet: the first check creates it",
                path.display()
            ));
        }
        SpoolError::Damaged { .. } => {
            findings.problem(error.to_string());
            findings.fix(format!("exirate repair --spool {}", quoted(spool)));
        }
        _ => {
            findings.problem(error.to_string());
        }
    }
}

/// How near the size limit is, and what has happened so far.
fn history(stats: &Stats, spool: &Path, findings: &mut Findings) {
    let percent = |part: u64| part as f64 / stats.max_bytes.max(1) as f64 * 100.0;
    // Each shard begins to evict at 7/8 of its part.
    let near = stats.disk > stats.max_bytes / 8 * 7;
    let used = format!(
        "it takes {:.0}% of its size limit of {}",
        percent(stats.disk),
        bytes(stats.max_bytes)
    );
    let raise = format!(
        "exirate config set --spool {} rates.max_size={}M",
        quoted(spool),
        stats.max_bytes.saturating_mul(2) >> 20
    );
    match (stats.evicted, near) {
        (0, false) => findings.ok(used),
        (0, true) => {
            findings
                .note(format!("{used}; when it is full, keys far from their limits are evicted"));
            findings.fix(raise);
        }
        (evicted, _) => {
            findings.note(format!(
                "{used}; so far {} that still counted had to be evicted",
                counted(evicted, "key", "keys")
            ));
            findings.fix(raise);
        }
    }
    if stats.dropped > 0 {
        findings.note(format!(
            "{} dropped so far: if that continues, check the disk",
            counted(stats.dropped, "damaged record", "damaged records")
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reported(stats: Stats) -> Vec<(super::super::finding::Level, String)> {
        let mut findings = Findings::default();
        history(&stats, Path::new("/spool"), &mut findings);
        findings.list.into_iter().map(|f| (f.level, f.text + &f.fix.concat())).collect()
    }

    #[test]
    fn the_size_limit_is_reported_before_and_after_it_is_reached() {
        use super::super::finding::Level::{Note, Ok};
        let stats = |disk, evicted| Stats { disk, evicted, max_bytes: 1 << 30, ..Stats::default() };
        assert_eq!(
            reported(stats(1 << 29, 0)),
            [(Ok, "it takes 50% of its size limit of 1 GiB".into())]
        );
        let near = reported(stats(1 << 30, 0));
        assert_eq!((near.len(), near[0].0), (1, Note));
        assert!(near[0].1.ends_with("rates.max_size=2048M"), "{near:?}");
        let past = reported(stats(0, 3));
        assert_eq!(past[0].0, Note);
        assert!(past[0].1.contains("3 keys that still counted had to be evicted"), "{past:?}");
        let damaged = reported(Stats { dropped: 1, ..stats(0, 0) });
        assert!(damaged[1].1.contains("1 damaged record dropped"), "{damaged:?}");
    }
}
