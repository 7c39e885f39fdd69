//! Clocks that jump.

use std::process::Command;

use exirate::rate::Timestamp;
use exirate::spec::{Context, Spec};
use exirate::store::Store as _;

use super::{count, rate};
use crate::common::{assert_sound, open};
use kit::FakeClock;
use kit::worker::{finish, start, start_by};

#[test]
fn a_clock_may_jump_in_both_directions() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    let clock = FakeClock::new();
    let count_at = |days: i64| {
        clock.set(days * 86_400);
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.envs(clock.environment());
        finish(vec![start_by(command, &["hard_world", "count", path, "key"])]);
        rate(&mut open(folder.path()), "key").unwrap()
    };
    let rounded = |rate: f64| (rate * 10.0).round() / 10.0;
    finish(vec![start(&["hard_world", "count", path, "key"])]);
    finish(vec![start(&["hard_world", "count", path, "key"])]);
    assert_eq!(rate(&mut open(folder.path()), "key").map(rounded), Some(2.0));
    // A period later most of the rate has decayed, but one event is never less
    // than one.
    assert_eq!(rounded(count_at(7)), 1.4);
    assert_eq!(rounded(count_at(400)), 1.0);
    // Set back again, it continues from there as if no time had passed.
    assert_eq!(rounded(count_at(0)), 2.0);
    assert_eq!(rounded(count_at(-4000)), 3.0);
    assert_eq!(rounded(count_at(-3993)), 1.7);
    let mut spool = open(folder.path());
    assert_eq!(rounded(count(&mut spool, "key").unwrap()), 1.0);
    assert_sound(&mut spool);
}

#[test]
fn a_key_over_a_leaky_limit_waits_for_its_time_in_the_future() {
    const BEGIN: i64 = 1_700_000_000;
    const YEAR: i64 = 365 * 86_400;
    let folder = tempfile::tempdir().unwrap();
    let mut spool = open(folder.path());
    let spec = Spec::parse(b"2.5 / 1h / leaky / key").unwrap();
    let request = spec.request(&Context::outside()).unwrap();
    let over = |spool: &mut exirate::spool::Spool, seconds| {
        spool.decide_one(&request.check(), || Timestamp { seconds, micros: 0 }).unwrap().over
    };
    assert!(!over(&mut spool, BEGIN + YEAR) && !over(&mut spool, BEGIN + YEAR));
    assert!(over(&mut spool, BEGIN) && over(&mut spool, BEGIN + YEAR / 2));
    assert!(!over(&mut spool, BEGIN + YEAR + 7_200));
    assert!(!over(&mut spool, BEGIN + YEAR + 7_200) && over(&mut spool, BEGIN));
    spool.forget(request.check().key).unwrap();
    assert!(!over(&mut spool, BEGIN));
}
