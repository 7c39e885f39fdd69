//! The database in process: warm checks, opening, and bytes of disk.

use std::path::Path;
use std::time::{Duration, Instant};

use exirate::engine;
use exirate::rate::Timestamp;
use exirate::spec::{Context, Request, Spec};
use exirate::spool::{Options, Sizes, Spool};
use exirate::sys::clock;

use crate::Effort;
use crate::table::{head, median, micros, print, row};

/// What was measured of a database of some size.
struct Measured {
    hot: f64,
    hot_parsed: f64,
    random: f64,
    opened: f64,
    sizes: Sizes,
    key_bytes: f64,
}

/// Prints what a check costs without Exim around it.
pub(crate) fn run(effort: Effort) {
    head(&format!("In process, {} checks, medians of {} rounds", effort.checks, effort.rounds));
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
    let mut key_bytes = 0;
    for n in 0..keys {
        let request = request(n);
        key_bytes += request.key.len();
        decide(&mut spool, &request);
    }
    let hot = request(keys / 2);
    let requests: Vec<Request> = random(keys, effort.checks).map(request).collect();
    for request in &requests {
        decide(&mut spool, request); // every shard is open from here on
    }

    let rounds = |mut work: Box<dyn FnMut() + '_>| {
        let taken = (0..effort.rounds).map(|_| {
            let start = Instant::now();
            work();
            start.elapsed() / u32::try_from(effort.checks).unwrap()
        });
        median(taken.collect())
    };
    let hot_cost = rounds(Box::new(|| (0..effort.checks).for_each(|_| decide(&mut spool, &hot))));
    let text = spec(keys / 2);
    let hot_parsed = rounds(Box::new(|| {
        (0..effort.checks).for_each(|_| decide(&mut spool, &parse(&text)));
    }));
    let random_cost =
        rounds(Box::new(|| requests.iter().for_each(|request| decide(&mut spool, request))));
    let sizes = spool.sizes().unwrap();
    drop(spool);

    let opened: Vec<Duration> = random(keys, effort.processes)
        .map(|n| {
            let request = request(n);
            let start = Instant::now();
            let mut spool = open(folder.path());
            decide(&mut spool, &request);
            start.elapsed()
        })
        .collect();
    Measured {
        hot: hot_cost,
        hot_parsed,
        random: random_cost,
        opened: median(opened),
        sizes,
        key_bytes: key_bytes as f64 / keys as f64,
    }
}

fn open(folder: &Path) -> Spool {
    Spool::open(folder, Options::default()).unwrap()
}

fn decide(spool: &mut Spool, request: &Request) {
    let now = || Timestamp::from(clock::now());
    std::hint::black_box(engine::decide(spool, request, now).unwrap());
}

/// One spec for each client address.
fn spec(n: usize) -> String {
    format!("100 / 1w / per_rcpt / strict / 10.{}.{}.{}", n >> 16 & 255, n >> 8 & 255, n & 255)
}

fn parse(spec: &str) -> Request {
    Spec::parse(spec.as_bytes()).unwrap().request(&Context::outside()).unwrap()
}

fn request(n: usize) -> Request {
    parse(&spec(n))
}

/// Numbers below `below`, the same ones each time (xorshift64, Marsaglia 2003).
fn random(below: usize, count: usize) -> impl Iterator<Item = usize> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    (0..count).map(move |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % below as u64) as usize
    })
}
