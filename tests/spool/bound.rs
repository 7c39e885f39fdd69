//! A client that varies keys can neither make the database exceed its size
//! limit nor evict keys that are over a limit; and every evicted record is
//! counted.

use std::path::Path;

use crate::common::{assert_sound, now, open};
use exirate::rate::{Average, Timestamp};
use exirate::spec::{Context, Spec, SpecRequest};
use exirate::spool::{MAX_BYTES_MIN, Spool};
use exirate::store::Store as _;
use kit::worker::{finish, start};

/// Processes that vary keys at the same time.
const FLOODERS: usize = 3;
/// Keys of each of them.
const KEYS: usize = 100_000;
/// Senders that are over their limit.
const SENDERS: usize = 60;

/// A constant time, so that rates can be compared exactly.
fn still() -> Timestamp {
    Timestamp { seconds: now().seconds / 100_000 * 100_000, micros: 0 }
}

fn request(spec: &str) -> SpecRequest {
    Spec::parse(spec.as_bytes()).unwrap().request(&Context::outside()).unwrap()
}

fn check(spool: &mut Spool, spec: &str) -> f64 {
    spool.decide_one(&request(spec).check(), still).unwrap().rate
}

/// The rate after so many events at one moment, with a period of a week.
fn after(events: usize) -> f64 {
    let mut average = Average::first(still(), 1.0);
    for _ in 1..events {
        average = average.next(still(), 7.0 * 86_400.0, 1.0);
    }
    average.rate
}

/// The ACL line that the flood hits, and another one.
fn flooded(key: impl std::fmt::Display) -> String {
    format!("20 / 1w / per_mail / strict / {key}")
}

fn other_key(key: impl std::fmt::Display) -> String {
    format!("500 / 1w / per_rcpt / strict / {key}")
}

pub(crate) fn worker(arguments: &[String]) {
    let [folder, number] = arguments else { panic!("{arguments:?}") };
    let mut spool = open(Path::new(folder));
    for n in 0..KEYS {
        check(&mut spool, &flooded(format_args!("invented{number}-{n}@example.org")));
    }
}

#[test]
fn a_flood_of_keys_is_limited_and_evicts_no_key_over_its_limit() {
    // In memory: this does not depend on the disk.
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let mut spool = open(folder.path());
    spool.set_max_bytes(0).unwrap();
    assert_eq!(spool.max_bytes(), MAX_BYTES_MIN);
    for sender in 0..SENDERS {
        for _ in 0..25 {
            check(&mut spool, &flooded(format_args!("over{sender}")));
        }
        // Not over a limit, but of another line, with keys that nobody can
        // invent.
        check(&mut spool, &other_key(sender));
    }
    drop(spool);
    let path = folder.path().to_str().unwrap();
    finish((0..FLOODERS).map(|n| start(&["bound", path, &n.to_string()])).collect());

    let mut spool = open(folder.path());
    assert_sound(&mut spool);
    for sender in 0..SENDERS {
        assert_eq!(check(&mut spool, &flooded(format_args!("over{sender}"))), after(26));
        assert_eq!(check(&mut spool, &other_key(sender)), after(2));
    }
    let stats = spool.stats().unwrap();
    // Each shard may exceed its share by a record and the rest of a page.
    let slack = stats.shards as u64 * 2 * 4096;
    assert!(stats.disk <= MAX_BYTES_MIN + slack, "{stats:?}");
    assert!(stats.disk > MAX_BYTES_MIN / 2, "{stats:?}");
    let made = (FLOODERS * KEYS + 2 * SENDERS) as u64;
    assert_eq!(stats.records + stats.evicted, made, "{stats:?}");
    assert_eq!((stats.forgotten, stats.dropped), (0, 0));
    assert!(stats.evicted > made / 2);
}

#[test]
fn compacting_applies_a_lower_size_limit_at_once() {
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let mut spool = open(folder.path());
    for n in 0..200_000 {
        check(&mut spool, &flooded(n));
    }
    assert_eq!(spool.take_incidents(), Vec::<String>::new());
    let before = spool.stats().unwrap();
    assert!(before.disk > MAX_BYTES_MIN * 3 / 2, "{before:?}");
    spool.set_max_bytes(MAX_BYTES_MIN).unwrap();
    let compacted = spool.compact(still(), |_| {}).unwrap();
    let after = spool.stats().unwrap();
    assert_eq!((compacted.rebuilt, compacted.disk_before), (256, before.disk));
    assert_eq!(compacted.disk_after, after.disk);
    assert!(after.disk <= MAX_BYTES_MIN, "{after:?}");
    // Reported once for each shard.
    let incidents = spool.take_incidents();
    assert_eq!(incidents.len(), 256);
    assert!(
        incidents.iter().all(|t| t.contains("reached its share of the size limit of 16 MiB")),
        "{incidents:?}"
    );
    for n in 200_000..300_000 {
        check(&mut spool, &flooded(n));
    }
    assert!(spool.stats().unwrap().evicted > after.evicted);
    assert_eq!(spool.take_incidents(), Vec::<String>::new());
    let after = spool.stats().unwrap();
    assert_eq!(after.records + after.evicted, 300_000);
    assert_sound(&mut spool);
}

/// The largest possible filter in the smallest database: keys that are over a
/// limit stay nevertheless.
#[test]
fn large_filters_stay_in_a_small_database() {
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let mut spool = open(folder.path());
    spool.set_max_bytes(0).unwrap();
    let line = |n: u32, event: u32| {
        let mut request = request(&format!("1000000 / 1w / per_rcpt / strict / unique=x / {n}"));
        request.unique = Some(event.to_le_bytes().to_vec());
        request
    };
    for event in 0..5 {
        for n in 0..20 {
            let decision = spool.decide_one(&line(n, event).check(), still).unwrap();
            assert_eq!(decision.rate, after(event as usize + 1));
        }
    }
    let stats = spool.stats().unwrap();
    assert_eq!((stats.records, stats.evicted), (20, 0));
    assert_sound(&mut spool);
}
