//! The two tables of the papers on which rate limiting in Exim is based, both
//! by Tony Finch.
//!
//! - The burst table of "Rate limiting for Exim on ppswitch" (2005): how many
//!   messages at a constant interval pass before the limit takes effect.
//! - The false-positive table of his note on Bloom filters for unique events.

use exirate::rate::{Timestamp, bloom};
use exirate::spec::{Context, Spec};
use exirate::store::Memory;
use exirate::store::Store as _;
use siphasher::sip128::{Hasher128, SipHasher24};
use std::hash::Hasher;

/// The keyed hash of an event, as a real store computes it; the key is
/// constant, so that every run gives the same counts.
fn event(text: &[u8]) -> bloom::Event {
    let mut hasher = SipHasher24::new_with_keys(0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908);
    hasher.write(text);
    bloom::Event(hasher.finish128().as_u128())
}

/// The columns of the burst table: period in seconds, limit.
const COLUMNS: [(u32, f64); 4] = [(86_400, 100.0), (18_000, 20.0), (3600, 4.0), (900, 1.0)];

/// The rows: the interval in microseconds, and for each column `rk` and `n` as
/// printed.
///
/// One number is truncated instead of rounded: 1.21 is 1.2164.
const BURSTS: [(i64, [(f64, &str); 4]); 6] = [
    (1000, [(86_400_000.0, "100"), (18_000_000.0, "20"), (3_600_000.0, "4"), (900_000.0, "1")]),
    (1_000_000, [(86_400.0, "100"), (18_000.0, "20.01"), (3600.0, "4.002"), (900.0, "1.001")]),
    (10_000_000, [(8640.0, "101"), (1800.0, "20.1"), (360.0, "4.02"), (90.0, "1.01")]),
    (60_000_000, [(1440.0, "104"), (300.0, "20.7"), (60.0, "4.14"), (15.0, "1.03")]),
    (300_000_000, [(288.0, "123"), (60.0, "24.3"), (12.0, "4.87"), (3.0, "1.21")]),
    (600_000_000, [(144.0, "171"), (30.0, "33.0"), (6.0, "6.59"), (1.5, "1.65")]),
];

/// The paper's formula for the number of messages, at a rate of `rk` per
/// period, that raise the rate from `r0` to the limit `m`.
fn messages(r0: f64, rk: f64, m: f64) -> f64 {
    rk * ((r0 - rk) / (m - rk)).ln()
}

/// The burst table as printed, by the formula.
#[test]
fn burst_table_by_the_formula() {
    for (interval, row) in BURSTS {
        for ((period, limit), (rk, printed)) in COLUMNS.into_iter().zip(row) {
            assert_eq!(f64::from(period) / (interval as f64 / 1e6), rk, "{interval} {period}");
            let n = messages(0.0, rk, limit);
            let digits = printed.split_once('.').map_or(0, |(_, digits)| digits.len());
            let rounded = format!("{n:.digits$}");
            if printed == "1.21" {
                assert_eq!((rounded.as_str(), (n * 100.0).floor()), ("1.22", 121.0));
            } else {
                assert_eq!(rounded, printed, "{n}, every {interval} µs in {period} s");
            }
        }
    }
}

/// How many messages of a burst on a new key, `interval` microseconds apart,
/// pass before the limit takes effect.
fn passing(spec: &str, interval: i64) -> u32 {
    let request = Spec::parse(spec.as_bytes()).unwrap().request(&Context::outside()).unwrap();
    let (mut store, mut passed) = (Memory::default(), 0);
    loop {
        let micros = 1_700_000_000_000_000 + i64::from(passed) * interval;
        let now = Timestamp {
            seconds: micros / 1_000_000,
            micros: u32::try_from(micros % 1_000_000).unwrap(),
        };
        if store.decide_one(&request.check(), || now).unwrap().over {
            return passed;
        }
        passed += 1;
    }
}

/// The burst table by the engine, in whole messages.
///
/// The paper's `n` is continuous, and starts at a rate of 0 with an average
/// that gives the first message `(1-a)·rk`, a little less than 1. The paper's
/// own modification for very slow senders, which Exim has, gives it 1. From
/// there on the formula holds: message `1 + n'` reaches the limit, where `n'`
/// raises the rate from 1 to the limit. The whole messages before it pass, that
/// is, `ceil(n')`. This is the integer part of the `n` in the table, except in
/// the last column: with a limit of 1 the first message alone reaches the
/// limit, and none passes.
#[test]
fn burst_table_by_the_engine() {
    for (interval, row) in BURSTS {
        for ((period, limit), (rk, _)) in COLUMNS.into_iter().zip(row) {
            let passed = f64::from(passing(&format!("{limit} / {period} / burst"), interval));
            let place = format!("every {interval} µs in {period} s");
            assert_eq!(passed, messages(1.0, rk, limit).ceil(), "{place}");
            let whole = messages(0.0, rk, limit).floor();
            assert_eq!(passed, if limit == 1.0 { whole - 1.0 } else { whole }, "{place}");
            // Strict and leaky differ only after the limit has taken effect.
            let strict = passing(&format!("{limit} / {period} / strict / burst"), interval);
            assert_eq!(f64::from(strict), passed, "{place}");
        }
    }
}

/// A burst of different recipients behaves like one of messages; repeated
/// recipients are not counted. One store in some hundred has a filter that takes one of
/// these recipients for another: it is tried again with other keys.
#[test]
fn a_burst_of_unique_events() {
    let differences: Vec<String> = (0..3).map_while(|_| burst_of_unique_events().err()).collect();
    assert!(differences.len() < 3, "{differences:?}");
}

/// What differs from a burst of messages, if anything does.
fn burst_of_unique_events() -> Result<(), String> {
    let spec = Spec::parse(b"20 / 18000 / per_addr / burst").unwrap();
    let mut store = Memory::default();
    for n in 0..25 {
        for repeated in [false, true, true] {
            let local_part = format!("friend{n}");
            let context = Context { local_part: local_part.as_bytes(), ..Context::outside() };
            let request = spec.request(&context).unwrap();
            let now = Timestamp { seconds: 1_700_000_000 + n, micros: 0 };
            let decision = store.decide_one(&request.check(), || now).unwrap();
            // Leaky: a refused event is not remembered.
            let expected = (n >= 20, Some(repeated && n < 20));
            let found = (decision.over, decision.details.seen);
            if found != expected {
                return Err(format!("{n} {repeated}: {found:?}, expected {expected:?}"));
            }
        }
    }
    Ok(())
}

/// The false-positive table: load (events per unit of limit), the rate in
/// percent and "1 in" as printed, and the number of filters to test.
///
/// The formula is `(1 - e^(-load/2))^8`. Some printed numbers are rounded
/// generously: 1 in 170000 is 1 in 174,500, 1 in 1700 is 1 in 1741, 1 in 40 is
/// 1 in 39.2; and 1 in 10.7 is truncated from 10.75.
const FALSE_POSITIVES: [(f64, &str, f64, u32); 5] = [
    (0.5, "0.0006", 170_000.0, 60),
    (1.0, "0.06", 1700.0, 10),
    (2.0, "2.5", 40.0, 4),
    (std::f64::consts::E, "9.3", 10.7, 4),
    (4.0, "31", 3.2, 4),
];

fn formula(load: f64) -> f64 {
    (1.0 - (-0.5 * load).exp()).powi(8)
}

/// The false-positive table as printed, by the formula.
#[test]
fn false_positive_table_by_the_formula() {
    for (load, percent, one_in, _) in FALSE_POSITIVES {
        let digits = percent.split_once('.').map_or(0, |(_, digits)| digits.len());
        assert_eq!(format!("{:.digits$}", 100.0 * formula(load)), percent, "{load}");
        let ratio = formula(load) * one_in;
        assert!((0.97..1.03).contains(&ratio), "1 in {} at {load}", 1.0 / formula(load));
    }
}

/// The false-positive table, measured: filters for a limit of 1000 with the
/// number of different events for the load, tested with 200,000 events that are
/// in none of them.
#[test]
fn false_positive_table_measured() {
    const LIMIT: f64 = 1000.0;
    const UNSEEN: u32 = 200_000;
    let absent: Vec<bloom::Event> =
        (0..UNSEEN).map(|n| event(format!("stranger{n}@example.org").as_bytes())).collect();
    for (load, _, _, filters) in FALSE_POSITIVES {
        let mut found = 0;
        for filter in 0..filters {
            let mut bits = vec![0; bloom::bytes_for(LIMIT)];
            for n in 0..(load * LIMIT) as u32 {
                let address = format!("friend{n}@{filter}.{load}.example.org");
                bloom::insert(&mut bits, event(address.as_bytes()));
            }
            found += absent.iter().filter(|&&e| bloom::contains(&bits, e)).count();
        }
        let tries = f64::from(UNSEEN) * f64::from(filters);
        let expected = tries * formula(load);
        assert!(expected >= 30.0, "too few tries at load {load}: {expected}");
        // Three standard deviations of the count; and 3 % because filters are
        // not all equally full, and the formula is an approximation.
        let tolerance = 3.0 * expected.sqrt() + 0.03 * expected;
        println!("{load:.2}: {found} of {tries}, {expected:.1} ± {tolerance:.1} expected");
        assert!((found as f64 - expected).abs() < tolerance, "{load}: {found}, {expected}");
    }
}
