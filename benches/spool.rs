//! What the spool database costs, without Exim and without parsing: a warm
//! check, opening, and bytes of disk, over 1,000, 100,000 and 1,000,000 keys.
//!
//! Numbers of keys may be given as arguments instead. Medians of many rounds,
//! each so short that other processes seldom come between.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::hint::black_box;
use std::path::Path;
use std::time::Instant;

use exirate::engine;
use exirate::rate::Timestamp;
use exirate::spec::{Mode, Request, Scope, Update};
use exirate::spool::{Options, Spool};
use exirate::sys::{clock, lock};

/// Checks in a round.
const CHECKS: u32 = 1_000;
/// Rounds.
const ROUNDS: usize = 301;

fn request(n: u32) -> Request {
    Request {
        key: format!("1h/per_rcpt/user{n:06}@example.org").into_bytes(),
        key_start: "1h/per_rcpt/".len(),
        limit: 1e9,
        period: 3600.0,
        mode: Mode::PerRcpt,
        update: Update::Strict,
        count: 1.0,
        unique: None,
        scope: Scope::Command,
    }
}

/// Makes it the key of [`request`] `n`.
fn number(key: &mut [u8], mut n: u32) {
    for digit in key[16..22].iter_mut().rev() {
        *digit = b'0' + (n % 10) as u8;
        n /= 10;
    }
}

fn now() -> Timestamp {
    let (seconds, micros) = clock::now();
    Timestamp { seconds, micros }
}

fn check(spool: &mut Spool, request: &Request) {
    black_box(engine::decide(spool, request, now).unwrap());
}

fn open(folder: &Path) -> Spool {
    Spool::open(folder, Options::default()).unwrap()
}

/// The median of `rounds` times `round`, each divided by what it returns.
fn median(rounds: usize, mut round: impl FnMut() -> u32) -> f64 {
    let mut times: Vec<f64> = (0..rounds)
        .map(|_| {
            let begun = Instant::now();
            let count = round();
            begun.elapsed().as_secs_f64() * 1e6 / f64::from(count)
        })
        .collect();
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

/// The next of a sequence of numbers under `below` in no order.
fn next(state: &mut u64, below: u32) -> u32 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (((*state >> 32) * u64::from(below)) >> 32) as u32
}

fn main() {
    let given: Vec<u32> = std::env::args().skip(1).filter_map(|a| a.parse().ok()).collect();
    let counts = if given.is_empty() { vec![1_000, 100_000, 1_000_000] } else { given };
    let files: Vec<_> = (0..256).map(|_| tempfile::tempfile().unwrap()).collect();
    let floor = |files: &[std::fs::File]| {
        median(ROUNDS, || {
            for n in 0..CHECKS as usize {
                let file = &files[n * 97 % files.len()];
                drop(lock::try_lock(file, lock::Kind::Exclusive).unwrap().unwrap());
            }
            CHECKS
        })
    };
    println!(
        "lock and unlock: {:.3} µs; of 256 files in turn: {:.3} µs",
        floor(&files[..1]),
        floor(&files)
    );
    println!(
        "      keys    fill µs   warm random µs   warm hot µs   open+first µs   disk B/key   -key text"
    );
    for keys in counts {
        let folder = tempfile::tempdir().unwrap();
        let requests: Vec<Request> = (0..keys).map(request).collect();
        let mut spool = open(folder.path());
        let fill = median(1, || {
            requests.iter().for_each(|request| check(&mut spool, request));
            keys
        });
        let mut state = 1;
        // One request whose key is written anew each time, as Exim does: a
        // million requests would cost cache misses of their own.
        let mut request = request(0);
        let mut random = |rounds| {
            median(rounds, || {
                for _ in 0..CHECKS {
                    number(&mut request.key, next(&mut state, keys));
                    check(&mut spool, &request);
                }
                CHECKS
            })
        };
        // First, to have all pages mapped.
        random(ROUNDS);
        let warm = random(ROUNDS);
        let hot = median(ROUNDS, || {
            (0..CHECKS).for_each(|_| check(&mut spool, &requests[keys as usize / 2]));
            CHECKS
        });
        let first = median(501, || {
            let mut spool = open(folder.path());
            check(&mut spool, &requests[next(&mut state, keys) as usize]);
            1
        });
        let sizes = spool.sizes().unwrap();
        assert_eq!(sizes.records, u64::from(keys));
        let disk = sizes.disk as f64 / f64::from(keys);
        let text = requests.iter().map(|request| request.key.len()).sum::<usize>() as f64;
        println!(
            "{keys:>10} {fill:>10.2} {warm:>16.3} {hot:>13.3} {first:>15.1} {disk:>12.1} {:>11.1}",
            disk - text / f64::from(keys)
        );
    }
}
