//! Somebody who varies keys can neither make the database grow past its bound
//! nor push out who is over a limit; and every record that goes is counted.

use std::path::Path;

use crate::spool_common::{assert_sound, finish, now, open, start};
use exirate::rate::{Average, Timestamp};
use exirate::spec::{Context, Request, Spec};
use exirate::spool::{MAX_BYTES_MIN, Spool};
use exirate::store::Store as _;

/// Processes that vary keys at the same time.
const FLOODERS: usize = 3;
/// Keys of each of them.
const KEYS: usize = 100_000;
/// Senders who are over their limit.
const SENDERS: usize = 60;

/// All on one moment, so that rates can be compared exactly.
fn still() -> Timestamp {
    Timestamp { seconds: now().seconds / 100_000 * 100_000, micros: 0 }
}

fn request(spec: &str) -> Request {
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

/// The line that the flooder meets, and the one beside it.
fn flooded(key: impl std::fmt::Display) -> String {
    format!("20 / 1w / per_mail / strict / {key}")
}

fn beside(key: impl std::fmt::Display) -> String {
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
fn a_flood_of_keys_is_bounded_and_pushes_out_nobody_who_matters() {
    // In memory: what is tested here does not depend on the disk.
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let mut spool = open(folder.path());
    spool.set_max_bytes(0).unwrap();
    assert_eq!(spool.max_bytes(), MAX_BYTES_MIN);
    for sender in 0..SENDERS {
        for _ in 0..25 {
            check(&mut spool, &flooded(format_args!("over{sender}")));
        }
        // Not over, but of another line, whose keys nobody can invent.
        check(&mut spool, &beside(sender));
    }
    drop(spool);
    let path = folder.path().to_str().unwrap();
    finish((0..FLOODERS).map(|n| start(&["bound", path, &n.to_string()])).collect());

    let mut spool = open(folder.path());
    assert_sound(&mut spool);
    for sender in 0..SENDERS {
        assert_eq!(check(&mut spool, &flooded(format_args!("over{sender}"))), after(26));
        assert_eq!(check(&mut spool, &beside(sender)), after(2));
    }
    let stats = spool.stats().unwrap();
    // Each shard may be beyond its share by a record and the rest of a page.
    let slack = stats.shards as u64 * 2 * 4096;
    assert!(stats.disk <= MAX_BYTES_MIN + slack, "{stats:?}");
    assert!(stats.disk > MAX_BYTES_MIN / 2, "{stats:?}");
    let made = (FLOODERS * KEYS + 2 * SENDERS) as u64;
    assert_eq!(stats.records + stats.evicted, made, "{stats:?}");
    assert_eq!((stats.forgotten, stats.dropped), (0, 0));
    assert!(stats.evicted > made / 2);
}

#[test]
fn a_lowered_bound_is_kept_at_once_by_compacting() {
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
    // Told once for each shard, and then no more.
    let told = spool.take_incidents();
    assert_eq!(told.len(), 256);
    assert!(
        told.iter().all(|t| t.contains("reached its part of the size limit of 16 MiB")),
        "{told:?}"
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

/// A filter as large as there can be, in the smallest database: the senders
/// whom it is there for stay all the same.
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
