//! Processes that are killed at random instants, a few hundred times.
//!
//! Each of two workers goes through all kinds of writes on keys of its own,
//! and notes in a mapped file what it begins and what it has done. After each
//! kill: the database is sound, each key has lost at most the one event that
//! was under way, and no other key has changed. (`src/spool/kill_tests.rs`
//! visits every single point; here it is real processes, shared shards and
//! real signals.)

#![allow(clippy::unwrap_used, clippy::panic)]

mod spool_common;

use std::collections::HashSet;
use std::path::Path;
use std::time::Duration;

use exirate::rate::bloom::{self, Event};
use exirate::rate::{Average, Timestamp};
use exirate::spool::{Options, Spool};
use exirate::store::{Change, Filter, FilterChange, Store};
use exirate::sys::mapping::Mapping;
use spool_common::{arguments, assert_sound, event, open, start};

const WORKERS: usize = 2;
const ROUNDS: u32 = 150;
/// Counters of each worker: one for each of its plain keys, one for its key
/// with a filter, one for the keys it makes.
const COUNTERS: usize = 10;
const FILTER: usize = 8;
const NEW: usize = 9;
/// Events of a filter before it is begun again.
const EVENTS: u64 = 50;

/// Where a counter of things begun is in the log; that of things done is 8
/// bytes behind it.
fn place(worker: usize, counter: usize) -> usize {
    (worker * COUNTERS + counter) * 16
}

fn key(worker: usize, counter: usize) -> String {
    format!("worker {worker}, key {counter}")
}

fn log(folder: &Path) -> Mapping {
    let file = std::fs::File::options().read(true).write(true).open(folder.join("log")).unwrap();
    Mapping::of(&file, true).unwrap()
}

/// The change that makes `count` the state of a key.
fn change(count: u64, filter: FilterChange) -> Change {
    let average = Average { at: Timestamp { seconds: 7, micros: 0 }, rate: count as f64 };
    Change { average, limit: 1.0, over_since: 0, filter }
}

/// What event number `count` does to the filter: every so many begin it again,
/// in turn of the same size and of another.
fn filter_change(count: u64) -> FilterChange {
    let event = event(count);
    if !(count - 1).is_multiple_of(EVENTS) {
        return FilterChange::Insert(event);
    }
    let generation = (count - 1) / EVENTS;
    let bytes = [2_000, 2_000, 30_000, 30_000, 500][generation as usize % 5];
    FilterChange::Renew { bytes, epoch: generation as i64, event }
}

#[test]
fn worker_process() {
    let Some(arguments) = arguments() else { return };
    let [folder, worker] = &arguments[..] else { panic!("{arguments:?}") };
    let (folder, worker) = (Path::new(folder), worker.parse::<usize>().unwrap());
    let mut log = log(folder);
    let mut spool = open(folder);
    for turn in 0.. {
        let counter = if turn % 40 == 0 { NEW } else { turn % NEW };
        let place = place(worker, counter);
        let count = log.word(place + 8).unwrap() + 1;
        let (key, filter) = match counter {
            FILTER => (key(worker, counter), filter_change(count)),
            NEW => (format!("worker {worker}, new {count}"), FilterChange::Keep),
            _ => (key(worker, counter), FilterChange::Keep),
        };
        log.set_word(place, count).unwrap();
        spool.update(key.as_bytes(), None, |_, _| ((), Some(change(count, filter)))).unwrap();
        log.set_word(place + 8, count).unwrap();
    }
}

/// The count that is remembered of a key, 0 where there is none.
fn count(spool: &mut Spool, key: &str) -> u64 {
    spool.peek(key.as_bytes(), None, |r, _| r.map_or(0, |r| r.average.rate as u64)).unwrap()
}

/// Checks one worker's keys against its log after a kill, and sets the log to
/// what is remembered.
///
/// `killed` are the numbers of the filter's events that were under way when a
/// kill came.
fn check_worker(spool: &mut Spool, log: &mut Mapping, worker: usize, killed: &mut HashSet<u64>) {
    for counter in 0..COUNTERS {
        let place = place(worker, counter);
        let (begun, done) = (log.word(place).unwrap(), log.word(place + 8).unwrap());
        assert!(begun == done || begun == done + 1);
        let found = match counter {
            NEW if count(spool, &format!("worker {worker}, new {begun}")) == begun => begun,
            NEW => done,
            _ => count(spool, &key(worker, counter)),
        };
        assert!(found == begun || found == done, "{found} of {done} to {begun} in {counter}");
        if counter == FILTER && found > 0 {
            killed.insert(begun);
            check_filter(spool, &key(worker, counter), found, killed);
        }
        log.set_word(place, found).unwrap();
        log.set_word(place + 8, found).unwrap();
    }
}

/// Every event of the filter is there, but for those where a kill came between
/// the state and its bits; a filter that was being begun again may be void.
fn check_filter(spool: &mut Spool, key: &str, found: u64, killed: &HashSet<u64>) {
    let first = (found - 1) / EVENTS * EVENTS + 1;
    spool
        .peek(key.as_bytes(), None, |r, _| {
            let Some(Filter { epoch, bits }) = r.unwrap().filter else {
                // Void: while it was begun again, or ever since, as what
                // follows only adds to a filter that is there.
                return;
            };
            assert_eq!(epoch, ((found - 1) / EVENTS) as i64);
            for n in (first..=found).filter(|n| !killed.contains(n)) {
                assert!(bloom::contains(bits, event(n)), "{n} of {first} to {found} is lost");
            }
        })
        .unwrap();
}

/// Random pauses, the same in each run.
struct Pauses(u64);

impl Pauses {
    fn next(&mut self) -> Duration {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        Duration::from_micros(8_000 + (self.0 >> 40) % 15_000)
    }
}

#[test]
fn killed_processes_lose_their_own_event_at_most() {
    let folder = tempfile::tempdir().unwrap();
    let bytes = vec![0; WORKERS * COUNTERS * 16];
    std::fs::write(folder.path().join("log"), bytes).unwrap();
    let mut log = log(folder.path());
    let mut spool = open(folder.path());
    let bystander = |n: u64| format!("bystander {n}");
    for n in 1..500 {
        let filter = FilterChange::Renew { bytes: 40, epoch: 3, event: Event(n.into()) };
        spool.update(bystander(n).as_bytes(), None, |_, _| ((), Some(change(n, filter)))).unwrap();
    }
    drop(spool);
    let mut killed = vec![HashSet::new(); WORKERS];
    let mut pauses = Pauses(1);
    for round in 0..ROUNDS {
        let path = folder.path().to_str().unwrap();
        let mut workers: Vec<_> =
            (0..WORKERS).map(|worker| start(&[path, &worker.to_string()])).collect();
        for worker in &mut workers {
            std::thread::sleep(pauses.next());
            worker.kill().unwrap();
            worker.wait().unwrap();
        }
        // Read-only: it repairs nothing, and finds nothing to repair.
        let mut spool = Spool::open_existing(folder.path(), Options::default()).unwrap();
        assert_sound(&mut spool);
        for (worker, killed) in killed.iter_mut().enumerate() {
            check_worker(&mut spool, &mut log, worker, killed);
        }
        for n in (1..500).filter(|n| n % 10 == u64::from(round) % 10) {
            assert_eq!(count(&mut spool, &bystander(n)), n);
        }
        assert_eq!(spool.damaged(), 0);
    }
    // Enough has happened for this to mean something.
    let mut spool = open(folder.path());
    for worker in 0..WORKERS {
        assert!(log.word(place(worker, FILTER)).unwrap() > 10 * EVENTS);
        for n in 1..=log.word(place(worker, NEW)).unwrap() {
            assert_eq!(count(&mut spool, &format!("worker {worker}, new {n}")), n);
        }
    }
    for n in 1..500 {
        assert_eq!(count(&mut spool, &bystander(n)), n);
    }
    assert_sound(&mut spool);
    assert_eq!(spool.take_incidents(), Vec::<String>::new());
}
