//! The database in process: warm checks, opening, and bytes of disk, by size.

use std::path::Path;
use std::time::{Duration, Instant};

use exirate::spool::{Spool, Stats};

use crate::effort::Effort;
use crate::keys::{decide, number, open, parse, random, spec};
use kit::table::{head, median, micros, print, row};

/// Checks in a round.
const ROUND: usize = 1_000;
/// The number of keys of the database that each other one is compared with.
const FEW: usize = 1_000;
/// Room for the largest of them.
const MAX_BYTES: u64 = 8 << 30;

/// The results for a database of one size.
struct Measured {
    hot: f64,
    hot_parsed: f64,
    random: f64,
    /// The same with few keys, in interleaved rounds.
    random_few: f64,
    opened: f64,
    stats: Stats,
}

/// Prints the cost of a check without Exim.
pub(crate) fn run(effort: Effort) {
    head(&format!(
        "In process, medians of {} rounds of {ROUND} checks; keys of {} bytes",
        effort.short_rounds,
        parse(&spec(0)).key.len()
    ));
    let mut rows = vec![row([
        "keys",
        "warm, one key",
        "with the spec parsed",
        "warm, random keys",
        "relative to 1,000 keys",
        "open and first check",
        "bytes of disk a key",
    ])];
    for &keys in effort.keys {
        let measured = measure(keys, effort);
        assert_eq!(measured.stats.records, keys as u64);
        rows.push(row([
            &keys.to_string(),
            &micros(measured.hot),
            &micros(measured.hot_parsed),
            &micros(measured.random),
            &format!("{:.2}×", measured.random / measured.random_few),
            &micros(measured.opened),
            &format!("{:.1}", measured.stats.disk as f64 / keys as f64),
        ]));
    }
    print(&rows);
}

fn measure(keys: usize, effort: Effort) -> Measured {
    let (folder, few_folder) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut few = filled(few_folder.path(), FEW.min(keys));
    let mut many = filled(folder.path(), keys);
    let (mut of_few, mut of_many) = (random(FEW.min(keys)), random(keys));
    // First, to open and map all shards.
    for _ in 0..100 {
        random_round(&mut few, &mut of_few);
    }
    for _ in 0..keys.div_ceil(ROUND).max(100) {
        random_round(&mut many, &mut of_many);
    }
    let pairs = (0..effort.short_rounds)
        .map(|_| (random_round(&mut few, &mut of_few), random_round(&mut many, &mut of_many)));
    let (random_few, random): (Vec<_>, Vec<_>) = pairs.unzip();
    let (random_few, random) = (median(random_few), median(random));

    let text = spec(keys / 2);
    let request = parse(&text);
    let rounds = effort.short_rounds;
    let hot = (0..rounds).map(|_| round(|| decide(&mut many, &request)));
    let hot = median(hot.collect());
    let hot_parsed = (0..rounds).map(|_| round(|| decide(&mut many, &parse(&text))));
    let hot_parsed = median(hot_parsed.collect());
    let stats = many.stats().unwrap();
    drop(many);

    let mut request = parse(&spec(0));
    let opened = (0..effort.processes).map(|_| {
        number(&mut request, of_many.next().unwrap_or(0));
        let start = Instant::now();
        let mut spool = open(folder.path());
        decide(&mut spool, &request);
        start.elapsed()
    });
    let opened = median(opened.collect());
    Measured { hot, hot_parsed, random, random_few, opened, stats }
}

/// A database with so many keys.
fn filled(folder: &Path, keys: usize) -> Spool {
    let mut spool = open(folder);
    spool.set_max_bytes(MAX_BYTES).unwrap();
    let mut request = parse(&spec(0));
    for n in 0..keys {
        number(&mut request, n);
        decide(&mut spool, &request);
    }
    spool
}

/// The average time of a check of a random key in one round.
fn random_round(spool: &mut Spool, numbers: &mut impl Iterator<Item = usize>) -> Duration {
    let mut request = parse(&spec(0));
    round(|| {
        number(&mut request, numbers.next().unwrap_or(0));
        decide(spool, &request);
    })
}

/// The average time of one of [`ROUND`] checks: a round is so short that other
/// processes seldom interrupt it.
fn round(mut check: impl FnMut()) -> Duration {
    let start = Instant::now();
    (0..ROUND).for_each(|_| check());
    start.elapsed() / ROUND as u32
}
