//! Sound records with numbers that no check would write: every operation on
//! them ends, with a result or an error.

use std::process::Command;

use crate::common::crafted::{SHARD, lay};
use crate::common::{now, open, request};
use exirate::spec::Update;
use exirate::store::Store as _;
use kit::spool_image::{self as image, Shard, State};

const NUMBERS: [f64; 14] = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    5e-324,
    1e-300,
    1e300,
    f64::MAX,
    f64::MIN,
    f64::INFINITY,
    f64::NEG_INFINITY,
    f64::NAN,
    9_007_199_254_740_993.0,
    1.8e19,
];
// The smallest time marks a key that was forgotten by hand.
const TIMES: [i64; 8] =
    [i64::MIN + 1, -1, 0, 1, 1_700_000_000_000_000, 1_900_000_000_000_000, i64::MAX - 1, i64::MAX];
const SECONDS: [u32; 4] = [0, 1, 1_900_000_000, u32::MAX];

/// One record for each; the numbers are rotated, so that each is combined with
/// most of the others.
fn states() -> Vec<State> {
    let count = NUMBERS.len() * TIMES.len() * 2;
    (0..count)
        .map(|n| State {
            period: 0,
            at: TIMES[n % TIMES.len()],
            rate: NUMBERS[n / TIMES.len() % NUMBERS.len()],
            limit: NUMBERS[(n * 5 + n / 31) % NUMBERS.len()],
            over_since: SECONDS[n / 3 % SECONDS.len()],
            sequence: [0, u32::MAX, 0x7FFF_FFFF, 0x8000_0000][n % 4],
        })
        .collect()
}

/// Stored keys as checks make them, all in this shard.
fn keys(count: usize) -> Vec<(String, Vec<u8>)> {
    (0..)
        .map(|n| (n.to_string(), request(&n.to_string(), None).key))
        .filter(|(_, stored)| image::Position::of(stored).shard == SHARD)
        .take(count)
        .collect()
}

fn hostile() -> (tempfile::TempDir, Vec<String>) {
    let states = states();
    let keys = keys(states.len());
    let mut shard = Shard::new(SHARD, 2 * states.len());
    for (n, (state, (_, stored))) in states.iter().zip(&keys).enumerate() {
        let bits = (n % 2 == 0).then_some(&[0x5A; 40][..]);
        let offset = shard.add(&image::record(stored, *state, bits));
        shard.index_key(stored, offset);
        if bits.is_some() {
            // A filter that began in any second that can be encoded.
            let seconds = [0, 1, (1 << 39) - 1, 1 << 39, (1 << 40) - 1, 1_900_000_000];
            shard.word(offset + image::EPOCH, image::sealed(seconds[n / 2 % seconds.len()]));
        }
    }
    shard.set_totals(states.len() as u64);
    (lay(&shard), keys.into_iter().map(|(key, _)| key).collect())
}

#[test]
fn every_check_decides() {
    for update in [Update::ReadOnly, Update::Leaky, Update::Strict] {
        let (folder, keys) = hostile();
        let mut spool = open(folder.path());
        for (n, key) in keys.iter().enumerate() {
            for limit in [0.0, 1.0, 1e9, f64::INFINITY] {
                let unique = (n % 3 == 0).then(|| "somebody".to_owned());
                let request = exirate::spec::SpecRequest { limit, update, ..request(key, unique) };
                let decision = spool.decide_one(&request.check(), now).unwrap();
                // A NaN rate is over every limit.
                let under = decision.rate < limit;
                assert_eq!(decision.over, !under, "{decision:?}");
                assert!(decision.remaining(now()) >= 0.0, "{decision:?}");
                let _ = decision.retry_after(now());
            }
        }
        // Growth checks all of them for expiry.
        for n in 0..3_000 {
            spool.decide_one(&request(&format!("more {n}"), None).check(), now).unwrap();
        }
        for key in &keys {
            spool.decide_one(&request(key, None).check(), now).unwrap();
        }
    }
}

#[test]
fn the_program_shows_them() {
    let (folder, keys) = hostile();
    let spool = folder.path().to_str().unwrap();
    for arguments in [&["list"][..], &["list", "--json"]] {
        let shown = exirate(&[arguments, &["--spool", spool]].concat());
        let missing: Vec<_> = keys.iter().filter(|key| !shown.contains(*key)).collect();
        assert!(missing.is_empty(), "{missing:?}");
    }
    for key in keys.iter().step_by(7) {
        let spec = format!("10 / 1w / per_rcpt / {key}");
        exirate(&["check", &spec, "--spool", spool]);
        exirate(&["check", "--count", &spec, "--json", "--spool", spool]);
    }
}

/// The output of the program, which may report problems but must not fail.
fn exirate(arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_exirate")).args(arguments).output().unwrap();
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(matches!(output.status.code(), Some(0 | 1)), "{arguments:?}: {errors}");
    assert!(!errors.contains("panicked"), "{errors}");
    String::from_utf8(output.stdout).unwrap()
}
