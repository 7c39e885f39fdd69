//! The workers, and the checks after a kill.
//!
//! Each worker records in a mapped file what it starts and what it has
//! completed.

use std::collections::HashSet;
use std::path::Path;

use exirate::engine::{Change, Filter, FilterChange, State};
use exirate::rate::bloom;
use exirate::rate::{Average, Timestamp};
use exirate::spool::{Options, Spool};
use exirate::sys::mapping::Mapping;

use crate::common::shards::Shards;
use crate::common::{event, open};

/// Counters of each worker: one for each of its plain keys, and these.
pub(crate) const COUNTERS: usize = 13;
/// The counter of its key with a filter, which is started again and again.
const FILTER: usize = 8;
/// The counter of its key whose filter changes its size each time: its shard is
/// rebuilt every few events.
const SIZES: usize = 9;
/// The counter of the keys it creates, all in a few shards, which grow.
const NEW: usize = 10;
/// The counter of the keys it creates there that expire at once.
const OLD: usize = 11;
/// The counter of its events on the common key.
const SHARED: usize = 12;
/// The size of each worker's part of the log: a pair of words for each counter,
/// and one that says that it is running.
const PART: usize = (COUNTERS + 1) * 16;
/// The number of events after which a filter is started again.
const EVENTS: u64 = 50;
/// The shards of the created keys.
const CROWDED: u8 = 8;
/// The common key of all workers.
const SHARED_KEY: &[u8] = b"everybody's key";
/// The number of turns between two tidyings.
const TIDY_EVERY: u64 = 400;

/// The notes of the workers.
pub(crate) struct Log(Mapping);

impl Log {
    pub(crate) fn make(folder: &Path, workers: usize) -> Self {
        std::fs::write(folder.join("log"), vec![0; workers * PART]).unwrap();
        Self::of(folder)
    }

    fn of(folder: &Path) -> Self {
        let path = folder.join("log");
        let file = std::fs::File::options().read(true).write(true).open(path).unwrap();
        Self(Mapping::of(&file, true).unwrap())
    }

    fn begun(&self, worker: usize, counter: usize) -> u64 {
        self.0.u64(worker * PART + counter * 16).unwrap()
    }

    fn done(&self, worker: usize, counter: usize) -> u64 {
        self.0.u64(worker * PART + counter * 16 + 8).unwrap()
    }

    fn begin(&mut self, worker: usize, counter: usize, count: u64) {
        self.0.set_u64(worker * PART + counter * 16, count).unwrap();
    }

    fn finish(&mut self, worker: usize, counter: usize, count: u64) {
        self.0.set_u64(worker * PART + counter * 16 + 8, count).unwrap();
    }

    pub(crate) fn is_at_work(&self, worker: usize) -> bool {
        self.0.u64(worker * PART + COUNTERS * 16).unwrap() != 0
    }

    pub(crate) fn set_at_work(&mut self, worker: usize, at_work: bool) {
        self.0.set_u64(worker * PART + COUNTERS * 16, at_work.into()).unwrap();
    }

    fn is_tidying(&self, worker: usize) -> bool {
        self.0.u64(worker * PART + COUNTERS * 16 + 8).unwrap() != 0
    }

    fn set_tidying(&mut self, worker: usize, tidying: bool) {
        self.0.set_u64(worker * PART + COUNTERS * 16 + 8, tidying.into()).unwrap();
    }
}

fn key(worker: usize, counter: usize) -> String {
    format!("worker {worker}, key {counter}")
}

/// The n-th key that a worker creates.
fn made_key(shards: &Shards, worker: usize, counter: usize, count: u64) -> String {
    let prefix = if counter == OLD { "1s/per_mail/" } else { "" };
    shards.key_below(CROWDED, &format!("{prefix}worker {worker}, new {count}"))
}

/// The change that sets the state of a key to `count`.
pub(crate) fn change(count: u64, filter: FilterChange) -> Change {
    let average = Average { at: Timestamp { seconds: 7, micros: 0 }, rate: count as f64 };
    Change { state: State::new(average, 1.0, 0.0), filter }
}

/// The change of the filter by event number `count`: it is started again at
/// intervals, alternately with the same and another size.
fn filter_change(count: u64) -> FilterChange {
    let event = event(count);
    if !(count - 1).is_multiple_of(EVENTS) {
        return FilterChange::Insert(event);
    }
    let generation = (count - 1) / EVENTS;
    let bytes = [2_000, 2_000, 30_000, 30_000, 500][generation as usize % 5];
    FilterChange::Renew { bytes, epoch: generation as i64, event }
}

/// A filter with another size than the last one.
fn resized(count: u64) -> FilterChange {
    let bytes = 20_000 + (count as usize % 3) * 10_000;
    FilterChange::Renew { bytes, epoch: 5, event: event(count) }
}

/// The counter for this turn.
fn counter(turn: u64) -> usize {
    match turn % 32 {
        0 => SIZES,
        8 | 24 => SHARED,
        n if n % 4 == 1 => NEW,
        n if n % 8 == 3 => OLD,
        n if n % 4 == 2 => FILTER,
        n => n as usize % FILTER,
    }
}

/// The main loop of a worker, which ends only by a kill.
pub(crate) fn work(folder: &Path, worker: usize) -> ! {
    let mut log = Log::of(folder);
    let mut spool = open(folder);
    let shards = Shards::of(folder);
    log.set_at_work(worker, true);
    for turn in 0.. {
        if worker == 0 && turn % TIDY_EVERY == TIDY_EVERY - 1 {
            log.set_tidying(worker, true);
            // All keys that may expire have not been used since 1970.
            spool.tidy(crate::common::now(), |_| ()).unwrap();
            log.set_tidying(worker, false);
        }
        let counter = counter(turn);
        let count = log.done(worker, counter) + 1;
        let (key, filter) = match counter {
            SHARED => (String::new(), FilterChange::Keep),
            FILTER => (key(worker, counter), filter_change(count)),
            SIZES => (key(worker, counter), resized(count)),
            NEW | OLD => (made_key(&shards, worker, counter, count), FilterChange::Keep),
            _ => (key(worker, counter), FilterChange::Keep),
        };
        log.begin(worker, counter, count);
        if counter == SHARED {
            spool
                .update(SHARED_KEY, None, |r, _| {
                    let count = r.map_or(0, |r| r.state.rate() as u64) + 1;
                    ((), Some(change(count, FilterChange::Keep)))
                })
                .unwrap();
        } else {
            let mut change = change(count, filter);
            if counter == OLD {
                // The period ended long ago.
                change.state.period = 1.0;
            }
            spool.update(key.as_bytes(), None, |_, _| ((), Some(change))).unwrap();
        }
        log.finish(worker, counter, count);
    }
    unreachable!()
}

/// The main loop of root's commands, which ends only by a kill.
pub(crate) fn work_as_root(folder: &Path, worker: usize) -> ! {
    let mut log = Log::of(folder);
    for turn in 0_u64.. {
        // Each command opens the database again.
        let mut spool = open(folder);
        log.set_at_work(worker, true);
        let now = crate::common::now();
        match turn % 4 {
            0 => _ = spool.compact(now, |_| ()).unwrap(),
            1 => {
                spool.repair(now, |_| ()).unwrap();
                let incidents = spool.take_incidents();
                // There is never anything to repair except incomplete files.
                let fine = incidents.iter().all(|what| what.contains("never finished"));
                assert!(fine, "{incidents:?}");
            }
            2 => {
                let key = format!("reset by {worker}");
                let change = change(turn + 1, FilterChange::Keep);
                spool.update(key.as_bytes(), None, |_, _| ((), Some(change))).unwrap();
                spool.forget(key.as_bytes()).unwrap();
            }
            _ => _ = spool.tidy(now, |_| ()).unwrap(),
        }
        // So long that the log is renamed from time to time.
        spool.log_change(&"reset ".repeat(10_000)).unwrap();
    }
    unreachable!()
}

/// The remembered count of a key, 0 if there is none.
pub(crate) fn count(spool: &mut Spool, key: &[u8]) -> u64 {
    spool.peek(key, None, |r, _| r.map_or(0, |r| r.state.rate() as u64)).unwrap()
}

/// The operations in progress at kills.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct UnderWay {
    pub(crate) events: u64,
    pub(crate) filters: u64,
    pub(crate) tidying: u64,
}

/// Checks the keys of killed workers.
pub(crate) struct Checker {
    pub(crate) log: Log,
    /// For each worker, the numbers of its filter's events that were in
    /// progress at a kill.
    killed: Vec<HashSet<u64>>,
    /// The number of kills during an event of the common key.
    lints: u64,
    pub(crate) under_way: UnderWay,
}

impl Checker {
    pub(crate) fn new(log: Log, workers: usize) -> Self {
        let killed = vec![HashSet::new(); workers];
        Self { log, killed, lints: 0, under_way: UnderWay::default() }
    }

    /// Compares the keys of a worker that was just killed with its log, and
    /// sets the log to the remembered state.
    pub(crate) fn check(&mut self, folder: &Path, worker: usize) {
        // There is no database yet if the very first worker was killed.
        let Ok(mut spool) = Spool::open_existing(folder, Options::default()) else {
            assert!((0..COUNTERS).all(|counter| self.log.begun(worker, counter) == 0));
            return;
        };
        let shards = Shards::of(folder);
        self.under_way.tidying += u64::from(self.log.is_tidying(worker));
        self.log.set_tidying(worker, false);
        for counter in 0..COUNTERS {
            let (begun, done) = (self.log.begun(worker, counter), self.log.done(worker, counter));
            assert!(begun == done || begun == done + 1);
            let interrupted = begun != done;
            self.under_way.events += u64::from(interrupted);
            let found = match counter {
                SHARED => {
                    self.lints += u64::from(interrupted);
                    done
                }
                NEW | OLD => {
                    let key = made_key(&shards, worker, counter, begun);
                    let found = count(&mut spool, key.as_bytes());
                    assert!(found == 0 || found == begun);
                    if found == begun { begun } else { done }
                }
                _ => count(&mut spool, key(worker, counter).as_bytes()),
            };
            assert!(found == begun || found == done, "{found} of {done} to {begun} in {counter}");
            if counter == FILTER && found > 0 {
                let renewal = (begun - 1).is_multiple_of(EVENTS);
                self.under_way.filters += u64::from(interrupted && renewal);
                self.killed[worker].insert(begun);
                check_filter(&mut spool, &key(worker, counter), found, &self.killed[worker]);
            }
            self.under_way.filters += u64::from(interrupted && counter == SIZES);
            self.log.begin(worker, counter, found);
            self.log.finish(worker, counter, found);
        }
        assert_eq!(spool.damaged(), 0);
    }

    /// Checks the common key, with no worker running.
    pub(crate) fn check_shared(&mut self, spool: &mut Spool) {
        let workers = 0..self.killed.len();
        let done: u64 = workers.map(|worker| self.log.done(worker, SHARED)).sum();
        let found = count(spool, SHARED_KEY);
        let end = done + self.lints;
        assert!((done..=end).contains(&found), "{found} of {done} to {end}");
        // The events of the others are attributed to the first worker.
        let first = self.log.done(0, SHARED) + found - done;
        self.log.begin(0, SHARED, first);
        self.log.finish(0, SHARED, first);
        self.lints = 0;
    }

    /// Checks all keys that were ever created; returns their number.
    pub(crate) fn check_made(&self, spool: &mut Spool, folder: &Path) -> u64 {
        let shards = Shards::of(folder);
        let mut made = 0;
        for worker in 0..self.killed.len() {
            for n in 1..=self.log.done(worker, NEW) {
                let key = made_key(&shards, worker, NEW, n);
                assert_eq!(count(spool, key.as_bytes()), n, "{key}");
                made += 1;
            }
        }
        made
    }

    /// The smallest number of events in a worker's filter.
    pub(crate) fn filter_events(&self) -> u64 {
        let workers = 0..self.killed.len();
        workers.map(|worker| self.log.done(worker, FILTER)).min().unwrap_or(0)
    }
}

/// Every event of the filter must be present, except those for which a kill
/// came between the state and its bits; a filter that was being started again
/// may be empty.
fn check_filter(spool: &mut Spool, key: &str, found: u64, killed: &HashSet<u64>) {
    let first = (found - 1) / EVENTS * EVENTS + 1;
    spool
        .peek(key.as_bytes(), None, |r, _| {
            let Some(Filter { epoch, bits }) = r.unwrap().filter else {
                // Empty: while it was being started again, or ever since, as
                // later events are added only to an existing filter.
                return;
            };
            assert_eq!(epoch, ((found - 1) / EVENTS) as i64);
            for n in (first..=found).filter(|n| !killed.contains(n)) {
                assert!(bloom::contains(bits, event(n)), "{n} of {first} to {found} is lost");
            }
        })
        .unwrap();
}
