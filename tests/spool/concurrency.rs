//! Many processes at once: every event is counted exactly once.

use std::path::Path;
use std::time::Duration;

use crate::common::{assert_sound, now, open, request};
use exirate::engine::{Algorithm, Check, Update};
use exirate::rate::{Average, Timestamp};
use exirate::spool::{Options, Spool, SpoolError};
use exirate::store::Store;
use exirate::sys::lock::{self, LockKind};
use exirate::sys::secure_dir::DirError;
use kit::worker::{finish, start};

const PROCESSES: u32 = 16;
const EVENTS: u32 = 5_000;

/// The clock of all workers stands still, at a future time that no rebuild
/// expires. So the same events give the same rate regardless of speed: with the
/// real clock, events in one microsecond differ by up to 1 %.
fn still() -> Timestamp {
    Timestamp { seconds: 4_000_000_000, micros: 0 }
}

/// The rate after so many events.
fn after(events: u32) -> f64 {
    let period = request("", None).period;
    (1..events).fold(Average::first(still(), 1.0), |a, _| a.next(still(), period, 1.0)).rate
}

/// Waits for all other workers, so that they run at the same time: the parent
/// holds a lock on the directory until all have been started.
fn wait_for_start(folder: &Path) {
    let gate = std::fs::File::open(folder.join("gate")).unwrap();
    drop(lock::lock(&gate, LockKind::Shared, Duration::from_secs(60)).unwrap().unwrap());
}

/// Runs a worker of `role` in each of 16 processes at the same time.
fn run_all(folder: &Path, role: &str) {
    let gate = std::fs::File::create(folder.join("gate")).unwrap();
    let guard = lock::try_lock(&gate, LockKind::Exclusive).unwrap().unwrap();
    let children = (0..PROCESSES)
        .map(|n| start(&["concurrency", role, folder.to_str().unwrap(), &n.to_string()]))
        .collect();
    drop(guard);
    finish(children);
}

/// The addresses of worker `n`: each worker shares half of them with the next.
fn addresses(n: u32) -> impl Iterator<Item = String> {
    (0..EVENTS).map(move |i| format!("user{}@example.org", n * EVENTS / 2 + i))
}

pub(crate) fn worker(arguments: &[String]) {
    let [role, folder, number] = arguments else { panic!("{arguments:?}") };
    let (folder, number) = (Path::new(folder), number.parse::<u32>().unwrap());
    wait_for_start(folder);
    let mut spool = open(folder);
    match role.as_str() {
        "count" => {
            for _ in 0..EVENTS {
                spool.decide_one(&request("one", None).check(), still).unwrap();
            }
        }
        "unique" => {
            for address in addresses(number) {
                spool.decide_one(&request("unique/one", Some(address)).check(), still).unwrap();
            }
        }
        "grow" => {
            // All workers create the same keys, so each key is created by one
            // and found by the others, through all rebuilds.
            for n in 0..20_000 {
                let key = format!("{}", (n * 7919 + number * 1250) % 20_000);
                spool.decide_one(&request(&key, None).check(), still).unwrap();
            }
        }
        "create" => {
            for n in 0..40 {
                spool.decide_one(&request(&n.to_string(), None).check(), still).unwrap();
            }
        }
        "cross" => cross(&mut spool, folder, number),
        other => panic!("{other}"),
    }
}

/// Makes checks of one key that are all over the limit, strict and leaky ones
/// alternately, and writes the numbers of the crossings to a file.
fn cross(spool: &mut Spool, folder: &Path, number: u32) {
    let start: i64 = std::fs::read_to_string(folder.join("time")).unwrap().parse().unwrap();
    let mut crossings = String::new();
    for n in 0..EVENTS {
        let update = if (n + number).is_multiple_of(2) { Update::Strict } else { Update::Leaky };
        let request = request("one", None);
        let check = Check {
            algorithm: Algorithm::MovingAverage { limit: 0.5, period: PERIOD as f64 },
            update,
            ..request.check()
        };
        // All within one period.
        let seconds = start + i64::from(n) * (PERIOD - 1) / i64::from(EVENTS);
        let decision = spool.decide_one(&check, || Timestamp { seconds, micros: n }).unwrap();
        assert!(decision.over && decision.crossings > 0);
        if decision.crossed {
            crossings.push_str(&format!("{}\n", decision.crossings));
        }
    }
    std::fs::write(folder.join(format!("crossings.{number}")), crossings).unwrap();
}

const PERIOD: i64 = 60;

/// The rate of `key`.
fn rate(folder: &Path, key: &str) -> f64 {
    let request = request(key, None);
    open(folder).peek(request.check().key, None, |r, _| r.unwrap().state.rate()).unwrap()
}

#[test]
fn every_event_of_every_process_is_counted() {
    let folder = tempfile::tempdir().unwrap();
    run_all(folder.path(), "count");
    assert_eq!(rate(folder.path(), "one"), after(PROCESSES * EVENTS));
    assert_sound(&mut open(folder.path()));
}

#[test]
fn overlapping_unique_events_are_counted_once() {
    let folder = tempfile::tempdir().unwrap();
    run_all(folder.path(), "unique");
    let distinct = (PROCESSES - 1) * EVENTS / 2 + EVENTS;
    let rate = rate(folder.path(), "unique/one");
    // The filter is less than half full: of 42,500 events, one in a million
    // appears as seen before. Events that do are replaced.
    assert!(rate <= after(distinct) + 1e-3, "{rate} of {distinct}");
    assert!(rate >= after(distinct - 2) - 1e-3, "{rate} of {distinct}");
    assert_sound(&mut open(folder.path()));
}

#[test]
fn nothing_is_lost_while_shards_grow() {
    let folder = tempfile::tempdir().unwrap();
    run_all(folder.path(), "grow");
    let mut spool = open(folder.path());
    assert_sound(&mut spool);
    let mut keys = 0;
    spool
        .for_each(|entry| {
            keys += 1;
            assert_eq!(entry.average.rate, after(PROCESSES));
        })
        .unwrap();
    assert_eq!(keys, 20_000);
}

#[test]
fn racing_creators_agree() {
    for _ in 0..8 {
        let folder = tempfile::tempdir().unwrap();
        run_all(folder.path(), "create");
        // All have counted in the same files, with the same key.
        let mut spool = open(folder.path());
        assert_eq!(spool.stats().unwrap().records, 40);
        spool.for_each(|entry| assert_eq!(entry.average.rate, after(PROCESSES))).unwrap();
        let names: Vec<_> = std::fs::read_dir(folder.path().join("exirate"))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|name| !name.ends_with(".shard"))
            .collect();
        assert_eq!(names, ["database"]);
        assert!(!folder.path().join("exirate.new").exists());
    }
}

#[test]
fn each_crossing_is_counted_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    for round in 1..=4_u32 {
        // More than a period after the last event of the previous round.
        let start = still().seconds + i64::from(round) * 3 * PERIOD;
        std::fs::write(path.join("time"), start.to_string()).unwrap();
        run_all(path, "cross");
        let crossings: Vec<u32> = (0..PROCESSES)
            .map(|n| std::fs::read_to_string(path.join(format!("crossings.{n}"))).unwrap())
            .flat_map(|text| text.lines().map(|line| line.parse().unwrap()).collect::<Vec<_>>())
            .collect();
        assert_eq!(crossings, [round]);
        let entry = open(path).get(request("one", None).check().key).unwrap().unwrap();
        assert_eq!(entry.crossings, round);
    }
    assert_sound(&mut open(path));
}

#[test]
fn a_lock_held_for_too_long_is_an_error_and_then_none() {
    let folder = tempfile::tempdir().unwrap();
    let mut spool = open(folder.path());
    spool.decide_one(&request("one", None).check(), now).unwrap();
    let path = std::fs::read_dir(folder.path().join("exirate"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .find(|path| path.extension().is_some_and(|extension| extension == "shard"))
        .unwrap();
    // A stopped process keeps its lock, as this open file does.
    let file = std::fs::File::open(&path).unwrap();
    let guard = lock::try_lock(&file, LockKind::Exclusive).unwrap().unwrap();
    let timeout = Duration::from_millis(50);
    let mut other = Spool::open(folder.path(), Options { timeout }).unwrap();
    let error = other
        .update(request("one", None).check().key, None, |_, _| -> ((), _) {
            panic!("must not run")
        })
        .unwrap_err();
    assert!(matches!(error, SpoolError::Directory(DirError::Busy { .. })));
    let name = std::fs::read_to_string("/proc/self/comm").unwrap();
    assert_eq!(
        error.to_string(),
        format!(
            "cannot lock {}: waited 0.05s for process {process} ({}); if it hangs, end it by \
             `kill -KILL {process}`, which damages no data",
            path.display(),
            name.trim_end(),
            process = std::process::id()
        )
    );
    drop(guard);
    let decision = other.decide_one(&request("one", None).check(), now).unwrap();
    assert!(decision.rate > 1.9);
}
