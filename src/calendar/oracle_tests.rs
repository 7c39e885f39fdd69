//! Random events against an oracle: it walks through each minute of the years, asks jiff what the
//! clock shows then, and begins a window where the clock first shows another hour, day, week or
//! month, or a later one. Nothing of it is shared with the code under test but the rules of the zones.

use std::collections::HashMap;

use jiff::Timestamp as Jiff;
use jiff::civil::{Date, DateTime, Time};
use jiff::tz::TimeZone;
use rand::rngs::SmallRng;
use rand::{RngExt as _, SeedableRng as _};

use super::{Every, load};
use crate::engine::{Algorithm, Check, Kind, RecordKey, Update};
use crate::rate::{Timestamp, Wait};
use crate::store::{Memory, Store as _};
use kit::counts;

/// Zones of both hemispheres, of half hours and three quarters, with half an hour of summer time,
/// and those that skipped a day, or changed at midnight or a minute after it.
const ZONES: [&str; 12] = [
    "Europe/Berlin",
    "America/New_York",
    "Australia/Lord_Howe",
    "Pacific/Apia",
    "Asia/Kathmandu",
    "America/Sao_Paulo",
    "America/St_Johns",
    "Africa/Casablanca",
    "Asia/Tehran",
    "Pacific/Chatham",
    "America/Havana",
    "UTC",
];

/// The start of the hour, day, week or month that a clock shows.
fn shown(every: Every, clock: DateTime) -> DateTime {
    let day = |date: Date| date.to_datetime(Time::midnight());
    match every {
        Every::Hour => clock.date().at(clock.hour(), 0, 0, 0),
        Every::Day => day(clock.date()),
        Every::Week => {
            let days = i32::from(clock.date().weekday().to_monday_zero_offset());
            day(clock.date().checked_sub(jiff::Span::new().days(days)).unwrap())
        }
        Every::Month => day(clock.date().first_of_month()),
    }
}

/// The starts of all windows from `from` until `to`, both in minutes since 1970.
fn starts(zone: &TimeZone, from: i64, to: i64) -> [Vec<i64>; 4] {
    let mut latest = [DateTime::MIN; 4];
    let mut all: [Vec<i64>; 4] = Default::default();
    for minute in from..to {
        let at = Jiff::from_second(minute * 60).unwrap();
        let clock = zone.to_datetime(at);
        for ((every, latest), starts) in Every::ALL.iter().zip(&mut latest).zip(&mut all) {
            let now = shown(*every, clock);
            if now > *latest {
                *latest = now;
                starts.push(minute * 60);
            }
        }
    }
    all
}

#[test]
fn random_events_are_counted_as_by_a_clock_on_the_wall() {
    let (zones, years, events) =
        if counts::is_long() { (12, 10, 1_000_000) } else { (4, 1, 100_000) };
    let mut random = SmallRng::seed_from_u64(34);
    let day = |year: i16| {
        let day = Date::new(year, 1, 1).unwrap().to_zoned(TimeZone::UTC).unwrap();
        day.timestamp().as_second() / 60
    };
    // With the day that Samoa left out.
    let (from, to) = (day(2011), day(2011 + years));
    let mut compared = 0;
    for name in ZONES.iter().take(zones) {
        let zone = load(Some(name)).unwrap();
        let starts = starts(&TimeZone::get(name).unwrap(), from, to);
        let mut store = Memory::new();
        let mut counted: HashMap<(usize, i64), f64> = HashMap::new();
        let mut at: Vec<i64> = (0..events / zones)
            .map(|_| match random.random_range(0..3) {
                // Near a boundary.
                0 => {
                    let starts = &starts[random.random_range(0..4_usize)];
                    starts[random.random_range(0..starts.len())] + random.random_range(-2..2)
                }
                _ => random.random_range(from * 60..to * 60),
            })
            .collect();
        at.sort_unstable();
        for second in at {
            let now = Timestamp { seconds: second, micros: 0 };
            for (which, &every) in Every::ALL.iter().enumerate() {
                // The first and the last window are cut off.
                let next = starts[which].partition_point(|start| *start <= second);
                if next < 2 || next == starts[which].len() {
                    continue;
                }
                let (start, end) = (starts[which][next - 1], starts[which][next]);
                let limit = [1.0, 5.0, 40.0, 200.0][which];
                let window = zone.window(every, second);
                assert_eq!((window.start, window.end), (start, end), "{name} {every:?} {second}");
                let check = Check {
                    key: RecordKey { kind: Kind::Policy, ..every.word().into() },
                    update: Update::Leaky,
                    ..Check::new("", Algorithm::Calendar { limit, window })
                };
                let decision = store.decide_one(&check, || now).unwrap();
                let sum = counted.entry((which, start)).or_default();
                assert_eq!(decision.over, *sum >= limit, "{name} {every:?} {second}");
                *sum = limit.min(*sum + 1.0);
                assert_eq!(decision.kept.map(|kept| kept.rate), Some(*sum));
                let wait = if *sum < limit { 0.0 } else { (end - second) as f64 };
                assert_eq!(decision.retry_after(now), Wait::Seconds(wait));
                compared += 1;
            }
        }
    }
    assert!(compared > events as u64 * 3, "{compared}");
    counts::record("events counted by the calendar as by a clock on the wall", compared);
}
