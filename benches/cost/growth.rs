//! The cost of growth: for checks that make shards grow, and for other checks
//! during growth.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use exirate::rate::Timestamp;
use exirate::sys::clock;

use crate::effort::Effort;
use crate::keys::{decide, number, open, parse, spec};
use kit::table::{head, micros, print, row};

/// Prints the pauses while a database is filled up to its size limit and
/// beyond.
pub(crate) fn run(effort: Effort) {
    let keys = effort.growth;
    head(&format!("Growth: {keys} new keys into an empty database, with the default size limit"));
    let folder = tempfile::tempdir().unwrap();
    let mut rows = vec![row(["", "checks", "median", "99.9 %", "99.999 %", "longest"])];
    let filled = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let bystander = scope.spawn(|| bystander(folder.path(), &filled));
        rows.push(cells("each a new key", fill(folder.path(), keys)));
        filled.store(true, Ordering::Release);
        rows.push(cells("meanwhile, an existing key", bystander.join().unwrap()));
    });
    let mut spool = open(folder.path());
    let now = Timestamp::from(clock::now());
    // Every shard once more, each at its final size.
    let mut last = Instant::now();
    let mut pauses = Vec::new();
    spool
        .compact(now, |_| {
            pauses.push(last.elapsed());
            last = Instant::now();
        })
        .unwrap();
    rows.push(cells("a rebuild of a whole shard", pauses));
    print(&rows);
    let stats = spool.stats().unwrap();
    println!(
        "\n{} records in {} MiB; {} had to go at the bound; {} rebuilds; {} checks had to wait",
        stats.records,
        stats.disk >> 20,
        stats.evicted,
        stats.rebuilds,
        stats.waits
    );
}

fn cells(name: &str, mut taken: Vec<Duration>) -> Vec<String> {
    taken.sort_unstable();
    let at = |part: f64| {
        let index = ((taken.len() - 1) as f64 * part).round() as usize;
        micros(taken[index].as_secs_f64() * 1e6)
    };
    row([name, &taken.len().to_string(), &at(0.5), &at(0.999), &at(0.99999), &at(1.0)])
}

/// The time of each check of a new key.
fn fill(folder: &Path, keys: usize) -> Vec<Duration> {
    let mut spool = open(folder);
    let mut request = parse(&spec(0));
    let check = |n| {
        number(&mut request, n);
        let start = Instant::now();
        decide(&mut spool, &request);
        start.elapsed()
    };
    (1..=keys).map(check).collect()
}

/// The time of each check of one key, by a second user of the database, until
/// it is filled.
fn bystander(folder: &Path, filled: &AtomicBool) -> Vec<Duration> {
    let mut spool = open(folder);
    let request = parse(&spec(0));
    let mut taken = Vec::new();
    while taken.is_empty() || !filled.load(Ordering::Acquire) {
        let start = Instant::now();
        decide(&mut spool, &request);
        taken.push(start.elapsed());
        // At the rate of an ordinary sender; the processor is used by the other
        // one.
        std::thread::sleep(Duration::from_micros(100));
    }
    taken
}
