//! The database in process: warm checks, opening, and bytes of disk.

use std::path::Path;
use std::time::Instant;

use exirate::engine;
use exirate::rate::Timestamp;
use exirate::spec::{Context, Request, Spec};
use exirate::spool::{Options, Spool, Stats};
use exirate::sys::clock;

use crate::Effort;
use crate::table::{head, median, micros, print, row};

/// Checks in a round.
const ROUND: usize = 1_000;

/// What was measured of a database of some size.
struct Measured {
    hot: f64,
    hot_parsed: f64,
    random: f64,
    opened: f64,
    sizes: Stats,
    key_bytes: f64,
}

/// Prints what a check costs without Exim around it.
pub(crate) fn run(effort: Effort) {
    head(&format!("In process, medians of {} rounds of {ROUND} checks", effort.short_rounds));
    let mut rows = vec![row([
        "keys",
        "warm, one key",
        "with the spec parsed",
        "warm, random keys",
        "open and first check",
        "bytes of disk a key",
        "of them key text",
    ])];
    for &keys in effort.keys {
        let measured = measure(keys, effort);
        assert_eq!(measured.sizes.records, keys as u64);
        rows.push(row([
            &keys.to_string(),
            &micros(measured.hot),
            &micros(measured.hot_parsed),
            &micros(measured.random),
            &micros(measured.opened),
            &format!("{:.1}", measured.sizes.disk as f64 / keys as f64),
            &format!("{:.1}", measured.key_bytes),
        ]));
    }
    print(&rows);
}

fn measure(keys: usize, effort: Effort) -> Measured {
    let folder = tempfile::tempdir().unwrap();
    let mut spool = open(folder.path());
    let mut request = parse(&spec(0));
    for n in 0..keys {
        number(&mut request, n);
        decide(&mut spool, &request);
    }
    let mut numbers = random(keys);
    // One request whose key is written anew each time, as Exim does it: a
    // million requests would have cache misses of their own.
    let mut random_round = |spool: &mut Spool, rounds| {
        let round = || {
            for _ in 0..ROUND {
                number(&mut request, numbers.next().unwrap_or(0));
                decide(spool, &request);
            }
        };
        rounds_of(rounds, round)
    };
    // First, to have all shards open and mapped.
    random_round(&mut spool, keys.div_ceil(ROUND).max(100));
    let random_cost = random_round(&mut spool, effort.short_rounds);
    let text = spec(keys / 2);
    let hot_request = parse(&text);
    let hot = rounds_of(effort.short_rounds, || {
        (0..ROUND).for_each(|_| decide(&mut spool, &hot_request));
    });
    let hot_parsed = rounds_of(effort.short_rounds, || {
        (0..ROUND).for_each(|_| decide(&mut spool, &parse(&text)));
    });
    let sizes = spool.stats().unwrap();
    drop(spool);

    let opened = (0..effort.processes).map(|_| {
        number(&mut request, numbers.next().unwrap_or(0));
        let start = Instant::now();
        let mut spool = open(folder.path());
        decide(&mut spool, &request);
        start.elapsed()
    });
    let opened = median(opened.collect());
    let key_bytes = request.key.len() as f64;
    Measured { hot, hot_parsed, random: random_cost, opened, sizes, key_bytes }
}

/// The median cost of a check over many rounds, each so short that other
/// processes seldom come between.
fn rounds_of(rounds: usize, mut round: impl FnMut()) -> f64 {
    let taken = (0..rounds).map(|_| {
        let start = Instant::now();
        round();
        start.elapsed() / ROUND as u32
    });
    median(taken.collect())
}

fn open(folder: &Path) -> Spool {
    Spool::open(folder, Options::default()).unwrap()
}

fn decide(spool: &mut Spool, request: &Request) {
    let now = || Timestamp::from(clock::now());
    std::hint::black_box(engine::decide(spool, request, now).unwrap());
}

fn spec(n: usize) -> String {
    format!("100 / 1w / per_rcpt / strict / user{n:07}@example.org")
}

fn parse(spec: &str) -> Request {
    Spec::parse(spec.as_bytes()).unwrap().request(&Context::outside()).unwrap()
}

/// Makes `request` the one of [`spec`] `n`.
fn number(request: &mut Request, mut n: usize) {
    let digits = request.key_start + "user".len();
    for digit in request.key[digits..digits + 7].iter_mut().rev() {
        *digit = b'0' + (n % 10) as u8;
        n /= 10;
    }
}

/// Numbers below `below`, the same ones each time (xorshift64, Marsaglia 2003).
fn random(below: usize) -> impl Iterator<Item = usize> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    std::iter::repeat_with(move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % below as u64) as usize
    })
}
