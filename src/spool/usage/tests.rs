//! What accounts send, in the database and in memory.

use std::collections::BTreeMap;

use kit::random::Random;

use super::super::kill_tests::copy;
use super::super::tests::open;
use super::*;
use crate::calendar::{self, Zone};
use crate::engine::{Algorithm, Check};
use crate::rate::usage::{DAYS, HOURS, Sent, SentInHour};
use crate::store::{Memory, Store, usage_key};
use crate::sys::failpoint;
use crate::sys::simulated_disk::memory_folder;

const ALICE: &[u8] = b"auth:alice@example.org";
/// A Monday at noon, in UTC.
const NOON: i64 = 1_790_596_800;

fn count<S: Store>(store: &mut S, identity: &[u8], at: i64, zone: &Zone, sent: Sent) {
    let day = |at| zone.day(at);
    let counting = Counting { identity, sent, day: &day };
    store.count_usage(&counting, || Timestamp { seconds: at, micros: 7 }).unwrap();
}

/// As above, under the lock of a check of the account.
fn count_kept(spool: &mut Spool, identity: &[u8], at: i64, zone: &Zone, sent: Sent) {
    let algorithm = Algorithm::MovingAverage { limit: 9.0, period: 3600.0 };
    spool.keep_lock(true);
    spool.decide_one(&Check::new(identity, algorithm), || clock(at)).unwrap();
    count(spool, identity, at, zone, sent);
    spool.keep_lock(false);
}

fn usage(spool: &mut Spool, at: i64) -> Option<Usage> {
    spool.usage(usage_key(ALICE, &mut Vec::new()), at, Zone::default().day(at)).unwrap()
}

fn some(n: u64) -> Sent {
    Sent { messages: 1, recipients: n, bytes: 1000 * n, refused: n % 3, failed: n % 2 }
}

/// What a plain list of events comes to at `now`, by the days of jiff's calendar.
fn expected(events: &[(i64, Sent)], now: i64, zone: &jiff::tz::TimeZone) -> Usage {
    let date = |at: i64| jiff::Timestamp::from_second(at).unwrap().to_zoned(zone.clone()).date();
    let mut usage = Usage::default();
    for (at, sent) in events {
        let ago = date(*at).until(date(now)).unwrap().get_days();
        if let Some(day) = (DAYS as i32 - 1).checked_sub(ago).and_then(|n| usize::try_from(n).ok())
        {
            usage.days[day] += *sent;
        }
        let ago = now.div_euclid(3600) - at.div_euclid(3600);
        if let Ok(hour) = usize::try_from(HOURS as i64 - 1 - ago) {
            usage.hours[hour].recipients += sent.recipients;
            usage.hours[hour].refused += sent.refused;
        }
    }
    usage
}

#[test]
fn it_is_what_a_plain_list_of_events_comes_to_in_all_zones_and_as_summer_time_begins_and_ends() {
    let zones = ["UTC", "Europe/Berlin", "Australia/Lord_Howe", "Asia/Kathmandu", "America/Havana"];
    // 40 days around the changes of March and of October, and of April and November elsewhere.
    for (number, (name, start)) in zones
        .into_iter()
        .flat_map(|zone| [(zone, 1_772_841_600), (zone, 1_791_072_000)])
        .enumerate()
    {
        let (zone, of_jiff) =
            (calendar::load(Some(name)).unwrap(), jiff::tz::TimeZone::get(name).unwrap());
        let folder = memory_folder();
        let (mut spool, mut memory) = (open(folder.path()), Memory::new());
        let mut random = Random::new(number as u64);
        let mut events = BTreeMap::<usize, Vec<(i64, Sent)>>::new();
        let mut now = start;
        for n in 0..500 {
            now += match random.below(10) {
                0..6 => random.below(7200) as i64,
                6..8 => random.below(40_000) as i64,
                8 => random.below(10) as i64,
                // The clock is set back.
                _ => -(random.below(3000) as i64),
            };
            let account = random.below(3);
            let identity = format!("auth:u{account}@example.org");
            let sent = some(random.below(9) as u64);
            let count_one = [count::<Spool>, count_kept][random.below(2)];
            count_one(&mut spool, identity.as_bytes(), now, &zone, sent);
            count(&mut memory, identity.as_bytes(), now, &zone, sent);
            events.entry(account).or_default().push((now, sent));
            if n % 25 != 0 {
                continue;
            }
            let day = zone.day(now);
            let mut found = BTreeMap::new();
            spool
                .for_each_usage(now, day, |key, usage| {
                    found.insert(key.key().identity().to_vec(), usage);
                })
                .unwrap();
            assert_eq!(found.len(), events.len());
            for (account, events) in &events {
                // What is ahead of a clock that was set back is not shown.
                let past: Vec<_> = events.iter().copied().filter(|(at, _)| *at <= now).collect();
                let future = events.len() - past.len();
                let identity = format!("auth:u{account}@example.org");
                let expected = expected(&past, now, &of_jiff);
                let one = &found[identity.as_bytes()];
                if future == 0 {
                    assert_eq!(one, &expected, "{name} {account} {now}");
                }
                assert_eq!(memory.usage(identity.as_bytes(), now, day).as_ref(), Some(one));
            }
        }
        assert_eq!(spool.verify().unwrap().problems().collect::<Vec<_>>(), [] as [String; 0]);
        let mut others = 0;
        spool.for_each(|_| others += 1).unwrap();
        assert_eq!(others, events.len(), "usage is no key");
    }
}

#[test]
fn a_clock_that_was_wrong_loses_no_day_before() {
    let (zone, folder) = (Zone::default(), memory_folder());
    let mut spool = open(folder.path());
    count(&mut spool, ALICE, NOON - 86_400, &zone, some(5));
    // Ten days ahead, and right again.
    count(&mut spool, ALICE, NOON + 10 * 86_400, &zone, some(7));
    count(&mut spool, ALICE, NOON, &zone, some(2));
    let found = usage(&mut spool, NOON).unwrap();
    assert_eq!((found.last(1), found.days[DAYS - 2]), (some(2), some(5)));
    assert_eq!(found.hours[HOURS - 1], SentInHour { recipients: 2, refused: 2 });
    assert_eq!(usage(&mut spool, NOON + 10 * 86_400).unwrap().last(1), Sent::default());
}

#[test]
fn whoever_dies_while_counting_loses_nothing_but_that_event() {
    type Prepare = fn(&mut Spool);
    let zone = Zone::default();
    let before: [(&str, Prepare); 5] = [
        ("new", |_| {}),
        ("same hour", |spool| count(spool, ALICE, NOON - 1, &Zone::default(), some(3))),
        ("next day", |spool| count(spool, ALICE, NOON - 86_400, &Zone::default(), some(3))),
        ("after long", |spool| count(spool, ALICE, NOON - 36 * 86_400, &Zone::default(), some(3))),
        ("forgotten by hand", |spool| {
            count(spool, ALICE, NOON - 1, &Zone::default(), some(3));
            spool.forget(usage_key(ALICE, &mut Vec::new())).unwrap();
        }),
    ];
    let both = [count::<Spool>, count_kept];
    for ((what, prepare), count_one) in both.iter().flat_map(|one| before.map(|case| (case, one))) {
        let folder = memory_folder();
        let mut spool = open(folder.path());
        count(&mut spool, b"auth:bob", NOON, &zone, some(1));
        prepare(&mut spool);
        let old = usage(&mut spool, NOON).unwrap_or_default();
        drop(spool);
        let mut deaths = 0;
        for steps in 0.. {
            let attempt = memory_folder();
            copy(folder.path(), attempt.path());
            let mut dying = open(attempt.path());
            let died =
                failpoint::dies_after(steps, || count_one(&mut dying, ALICE, NOON, &zone, some(8)));
            drop(dying);
            let mut spool = open(attempt.path());
            let problems: Vec<_> = spool.verify().unwrap().problems().collect();
            assert!(problems.is_empty(), "{what}, step {steps}: {problems:?}");
            let left = usage(&mut spool, NOON).unwrap_or_default();
            assert_eq!(left.days[..DAYS - 1], old.days[..DAYS - 1], "{what}, step {steps}");
            let counts = left.last(1).counts().into_iter().zip(old.last(1).counts());
            for ((count, old), event) in counts.zip(some(8).counts()) {
                assert!(count == old || count == old + event, "{what}, step {steps}: {left:?}");
            }
            // The next event counts as it should.
            count(&mut spool, ALICE, NOON, &zone, some(4));
            let mut next = left.last(1);
            next += some(4);
            assert_eq!(usage(&mut spool, NOON).unwrap().last(1), next, "{what}, step {steps}");
            if !died {
                let mut all = old.last(1);
                all += some(8);
                assert_eq!(left.last(1), all, "{what}");
                break;
            }
            deaths += 1;
        }
        assert!(deaths > 3, "{what}: {deaths}");
    }
}

#[test]
fn under_a_lock_that_is_kept_it_is_counted_as_without() {
    let (zone, folder) = (Zone::default(), memory_folder());
    let mut spool = open(folder.path());
    let algorithm = Algorithm::MovingAverage { limit: 9.0, period: 3600.0 };
    for n in 0..5 {
        spool.keep_lock(true);
        spool.decide_one(&Check::new(ALICE, algorithm), || clock(NOON + n)).unwrap();
        count(&mut spool, ALICE, NOON + n, &zone, some(2));
        count(&mut spool, b"auth:bob", NOON + n, &zone, some(2));
        spool.keep_lock(false);
    }
    assert_eq!(usage(&mut spool, NOON + 5).unwrap().last(1).messages, 5);
    assert_eq!(spool.stats().unwrap().records, 1, "usage is no key");
}

fn clock(seconds: i64) -> Timestamp {
    Timestamp { seconds, micros: 0 }
}

#[test]
fn a_damaged_record_loses_the_counts_of_a_quarter_of_an_hour_at_most() {
    let (zone, folder) = (Zone::default(), memory_folder());
    let mut spool = open(folder.path());
    count_kept(&mut spool, b"auth:bob", NOON, &zone, some(4));
    count_kept(&mut spool, ALICE, NOON, &zone, some(5));
    drop(spool);
    // All of its head and its name, and of its words the first.
    for word in 0..40 {
        let attempt = memory_folder();
        copy(folder.path(), attempt.path());
        let mut spool = open(attempt.path());
        let place = spool.database.hashing.place(usage_key(ALICE, &mut Vec::new()));
        let mut shard = spool.take_shard(place.shard).unwrap().unwrap();
        let body = &mut shard.body;
        let at = body.usage_of(place, ALICE).unwrap().offset + 8 * word;
        let flipped = body.map.u64(at).unwrap() ^ 1 << (word % 64);
        body.map.set_u64(at, flipped).unwrap();
        spool.put_shard(shard);
        for n in 0..3 {
            count_kept(&mut spool, ALICE, NOON + n * 900, &zone, some(2));
        }
        let found = usage(&mut spool, NOON + 1800).unwrap().last(1);
        // Of what was counted before, and in the quarter of the damage.
        let (least, most) = (2 * some(2).recipients, (some(5).recipients + 3 * some(2).recipients));
        assert!((least..=most).contains(&found.recipients), "{word}: {found:?}");
        let mut name = Vec::new();
        let bob = usage_key(b"auth:bob", &mut name);
        let found = spool.usage(bob, NOON, zone.day(NOON)).unwrap();
        assert_eq!(found.unwrap().last(1), some(4), "{word}");
    }
}

#[test]
fn a_damaged_count_is_found_and_counts_as_nothing() {
    let (zone, folder) = (Zone::default(), memory_folder());
    let mut spool = open(folder.path());
    count(&mut spool, ALICE, NOON, &zone, some(5));
    let place = spool.database.hashing.place(usage_key(ALICE, &mut Vec::new()));
    let mut shard = spool.take_shard(place.shard).unwrap().unwrap();
    let body = &mut shard.body;
    let record = body.records().flatten().next().unwrap();
    let word =
        (1..WORDS).find(|word| body.map.u64(record.filter_offset() + word * WORD_BYTES) != Some(0));
    let at = record.filter_offset() + word.unwrap() * WORD_BYTES;
    let flipped = body.map.u64(at).unwrap() ^ 1;
    body.map.set_u64(at, flipped).unwrap();
    spool.put_shard(shard);
    let problems: Vec<_> = spool.verify().unwrap().problems().collect();
    assert!(problems.iter().any(|one| one.contains("has a damaged count")), "{problems:?}");
    let found = usage(&mut spool, NOON).unwrap().last(1);
    assert_eq!(found, Sent { messages: 0, ..some(5) });
}

#[test]
fn it_is_evicted_before_any_limit_and_the_accounts_go_first_that_sent_longest_ago() {
    let (zone, folder) = (Zone::default(), memory_folder());
    let mut spool = open(folder.path());
    spool.set_max_bytes(0).unwrap();
    let accounts = 12_000;
    let identity = |n: i64| format!("auth:u{n}@example.org");
    for n in 0..accounts {
        // Each a minute after the one before.
        count(&mut spool, identity(n).as_bytes(), NOON + n * 60, &zone, some(1));
    }
    let algorithm = Algorithm::MovingAverage { limit: 9.0, period: 864_000.0 };
    for n in 0..4_000 {
        let now = Timestamp { seconds: NOON + accounts * 60, micros: 0 };
        spool.decide_one(&Check::new(identity(n).as_bytes(), algorithm), || now).unwrap();
    }
    assert_eq!(spool.stats().unwrap().records, 4_000);
    let now = NOON + accounts * 60;
    let mut left = Vec::new();
    spool.for_each_usage(now, zone.day(now), |key, _| left.push(key.name)).unwrap();
    // A half of 16 MiB, of some 2 KB each, and what has come since a shard was last rebuilt.
    assert!((2_000..6_000).contains(&left.len()), "{}", left.len());
    let has = |n: i64| left.contains(&[b"usage/", identity(n).as_bytes()].concat());
    let (first, last) =
        ((0..2_000).filter(|&n| has(n)).count(), (11_000..12_000).filter(|&n| has(n)).count());
    assert!(first < 100 && last > 900, "{first} {last}");
}

#[test]
fn what_is_forgotten_is_gone_and_begins_at_zero() {
    let (zone, folder) = (Zone::default(), memory_folder());
    let mut spool = open(folder.path());
    count(&mut spool, ALICE, NOON, &zone, some(5));
    let (keys, _) = spool.keys_named(&|name| name.ends_with(b"alice@example.org")).unwrap();
    assert_eq!(keys.len(), 1);
    spool.forget(keys[0].key()).unwrap();
    assert_eq!(usage(&mut spool, NOON), None);
    spool.for_each_usage(NOON, zone.day(NOON), |key, _| panic!("{key:?}")).unwrap();
    count(&mut spool, ALICE, NOON, &zone, some(4));
    assert_eq!(usage(&mut spool, NOON).unwrap().last(DAYS), some(4));
}
