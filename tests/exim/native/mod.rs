//! The same answers as native: random sessions through two real Exims, one
//! with `ratelimit`, one with the library, and not one difference.
//!
//! Both are driven in step, so that the times of their events differ by no
//! more than moments, and a difference shows at the command that made it.

mod drive;
mod session;
mod spec;
mod world;
mod wrong;

use drive::{Pair, Tally};
use kit::{FakeClock, Random, counts};
use std::time::{SystemTime, UNIX_EPOCH};
use world::{Side, World};

/// Long, so that what the two sides' moments differ by is nothing.
const LONG: &[&str] = &["1d", "1w", "36h", "2d3h4m5s", "1w1s"];
/// Such that the jumps of the clock matter.
const SHORT: &[&str] = &["30m", "1h", "6h", "1d", "1h1m1s"];

/// One world and its sessions.
fn run(seed: u64, sides: [Side; 2], sessions: usize, jumps: bool) -> Result<Tally, String> {
    let mut random = Random::new(seed);
    let world = World::new(&mut random, if jumps { SHORT } else { LONG });
    let clock = jumps.then(FakeClock::new);
    let mut offset = 0;
    let [first, second] = sides.map(|side| world.exim(side, clock.as_ref()));
    let mut pair = Pair::new(first, second);
    for n in 0..sessions {
        let steps = session::session(&mut random, jumps);
        let clock = clock.as_ref().map(|c| (c, &mut offset));
        pair.session(&steps, clock).map_err(|e| {
            format!(
                "seed {seed:#x}, session {n}, {sides:?}: {e}\nthe checks:\n{}",
                world.describe()
            )
        })?;
    }
    Ok(pair.tally)
}

/// The seeds that are always run, whose sessions reach every stage, and with `EXIRATE_TEST_LONG` one
/// that never was; or the one in `SEED`, to look at a failure again.
fn seeds(first: u64, fixed: u64) -> Vec<u64> {
    if let Ok(seed) = std::env::var("SEED") {
        let seed = u64::from_str_radix(seed.trim_start_matches("0x"), 16);
        return vec![seed.expect("SEED is a hexadecimal number")];
    }
    let new = counts::is_long()
        .then(|| SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64);
    (first..first + fixed).chain(new).collect()
}

fn compare_all(name: &str, first: u64, fixed: u64, sessions: usize, jumps: bool) {
    let mut sum = Tally::default();
    for seed in seeds(first, fixed) {
        println!("{name}: seed {seed:#x}");
        let tally = run(seed, [Side::Native, OURS], sessions, jumps);
        sum.add(&tally.unwrap_or_else(|e| {
            counts::record("differences from native", 1);
            panic!("{e}")
        }));
    }
    counts::record("checks compared with native", sum.checks() as u64);
    counts::record("differences from native", 0);
    println!(
        "{name}: {} sessions, {} checks and {} replies compared, 0 differences",
        sum.sessions,
        sum.checks(),
        sum.replies
    );
    for (stage, (checks, over)) in &sum.stages {
        println!("    {stage:15} {checks:6} checks, {over:5} over");
    }
    if std::env::var_os("SEED").is_some() {
        return; // one world alone need not reach every stage
    }
    // A comparison of nothing would find no difference either.
    for (stage, _) in world::STAGES {
        let (checks, over) = sum.stages.get(*stage).copied().unwrap_or_default();
        assert!(checks >= 20 && over > 0, "{stage}: {checks} checks, {over} over");
    }
}

/// The side that is compared with native.
const OURS: Side = Side::Ours;

#[test]
fn random_sessions_get_native_answers() {
    let (seeds, sessions) = if counts::is_long() { (30, 100) } else { (5, 50) };
    compare_all("as native", 21, seeds, sessions, false);
}

#[test]
fn random_sessions_get_native_answers_as_the_clock_jumps() {
    let seeds = if counts::is_long() { 20 } else { 3 };
    compare_all("as native, with jumps", 1, seeds, 50, true);
}

#[test]
fn a_difference_would_be_found() {
    let difference = run(1, [Side::Native, Side::Faulty], 40, false).unwrap_err();
    assert!(difference.contains("differs"), "{difference}");
}
