//! Processes that are killed at random times, hundreds of times.
//!
//! Several workers record into one store whose logs are full after a few
//! messages, so that they seal all the time. Some stores are so small that
//! segments are removed as well; in the others the settings change.
//! After each kill the store is queried while the other workers continue; after
//! each round, in which all are killed, every message is searched for.
//! (`kill_tests.rs` covers every single step; here there are real processes,
//! real locks and real signals.)
//!
//! `EXIRATE_TEST_LONG=1` runs far more of them. One of the workers runs as
//! root, as root's commands do, and the others as Exim: wherever root was
//! killed, Exim's user can continue.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::{MetadataExt, chown};
use std::os::unix::process::{CommandExt as _, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::sys::simulated_disk::memory_folder;
use kit::{Random, counts};

use super::mirrored::Mirrored;
use super::options::{OptionsFile, SETTINGS};
use super::sigkill_work::{
    AT_WORK, BEGUN, DONE, MAY, Notes, OF_ONE, OPERATION, WORKERS, message, work,
};
use super::tests::{assert_sound, content_query, envelope, secret};
use super::*;

/// The environment variable that makes this test binary a worker.
const WORKER: &str = "EXIRATE_TEST_TRACE_WORKER";
/// Kills in all.
const KILLS: u64 = 96;
/// The same with `scripts/test --long`.
const KILLS_LONG: u64 = 10_000;
/// How many times more kills there may be until each operation was killed once.
const MORE_KILLS: u64 = 8;
/// Kills in each store.
const KILLS_A_STORE: u64 = 48;
/// Kills before all workers are killed, and the whole store is checked.
const KILLS_A_ROUND: u64 = 24;
/// Exim's user.
const EXIM: u32 = 65_534;
/// The size limit of a small store.
const LITTLE: u64 = 80 << 10;
/// A worker that has not begun by then never will.
const BEGIN: Duration = Duration::from_secs(300);
/// How many messages are searched for by their text after each round; all of
/// them at the end.
const SAMPLE: u64 = 20;

/// How many messages each worker may record between two kills, so that the
/// store does not become too large to check.
const GRANT: u64 = 6;
/// After so many kills, the whole store is verified while others record.
const VERIFY_EVERY: u64 = 8;

#[test]
fn worker_process() {
    let Ok(arguments) = std::env::var(WORKER) else { return };
    let arguments: Vec<_> = arguments.split('\n').collect();
    let [folder, worker, little] = arguments[..] else { panic!("{arguments:?}") };
    work(Path::new(folder), worker.parse().unwrap(), little == "little");
}

/// Totals of all stores.
#[derive(Debug, Default)]
struct Totals {
    kills: u64,
    recording: u64,
    other: u64,
    unfinished: u64,
    forgotten: u64,
    summary: u64,
}

impl Totals {
    /// Whether everything that the test is about has happened.
    fn all_hit(&self) -> bool {
        [self.other, self.forgotten, self.summary].iter().all(|&count| count > 0)
    }
}

/// A store and its workers.
struct World {
    folder: tempfile::TempDir,
    little: bool,
    workers: Vec<Option<Child>>,
    notes: Notes,
    /// Messages that were being recorded when a kill came.
    doubtful: BTreeSet<u32>,
    /// The incomplete segment that was examined last.
    unfinished: u64,
}

impl World {
    fn new(little: bool) -> Self {
        let folder = memory_folder();
        chown(folder.path(), Some(EXIM), Some(EXIM)).unwrap();
        set_room(folder.path(), if little { LITTLE } else { TRACE_BYTES_DEFAULT });
        let notes = Notes::make(folder.path());
        chown(folder.path().join("notes"), Some(EXIM), Some(EXIM)).unwrap();
        let workers = (0..WORKERS).map(|_| None).collect();
        Self { folder, little, workers, notes, doubtful: BTreeSet::new(), unfinished: 0 }
    }

    fn start_missing(&mut self) {
        let folder = self.folder.path().to_str().unwrap();
        for (n, worker) in (0..).zip(&mut self.workers) {
            if worker.is_none() {
                self.notes.set(n, AT_WORK, 0);
                let little = if self.little { "little" } else { "" };
                let name = concat!(module_path!(), "::worker_process").split_once("::").unwrap().1;
                // A path by which any user can run it.
                let mut command = Command::new("/proc/self/exe");
                if n > 0 {
                    command.uid(EXIM).gid(EXIM);
                }
                let started = command
                    .args([name, "--exact", "--nocapture", "--test-threads=1"])
                    .env(WORKER, format!("{folder}\n{n}\n{little}"))
                    .stdout(Stdio::null())
                    .spawn();
                *worker = Some(started.unwrap());
            }
        }
    }

    /// Lets all workers record some more messages.
    fn grant(&mut self) {
        for n in 0..WORKERS {
            self.notes.set(n, MAY, self.notes.get(n, BEGUN) + GRANT);
        }
    }

    fn wait_until_at_work(&self, worker: u32) {
        self.wait_until(|notes| notes.get(worker, AT_WORK) != 0, worker);
    }

    /// Until a worker has begun so many of the messages that it may record: on a slow machine, it would
    /// always be killed sooner.
    fn wait_until_it_has_begun(&self, some: u64, worker: u32) {
        let begun =
            |notes: &Notes| notes.get(worker, BEGUN) + GRANT >= notes.get(worker, MAY) + some;
        self.wait_until(begun, worker);
    }

    fn wait_until(&self, condition: impl Fn(&Notes) -> bool, worker: u32) {
        let begun = Instant::now();
        while !condition(&self.notes) {
            assert!(begun.elapsed() < BEGIN, "worker {worker} does not begin");
            std::thread::sleep(Duration::from_micros(100));
        }
    }

    /// Kills some workers at the same time, and examines what they leave.
    fn kill(&mut self, victims: &[u32], totals: &mut Totals) {
        for &n in victims {
            let worker = self.workers[n as usize].as_mut().unwrap();
            assert_eq!(worker.try_wait().unwrap(), None, "worker {n} has ended by itself");
            worker.kill().unwrap();
        }
        for &n in victims {
            let status = self.workers[n as usize].take().unwrap().wait().unwrap();
            assert_eq!(status.signal(), Some(9), "worker {n} ended by itself: {status}");
            totals.kills += 1;
            let [begun, done] = [BEGUN, DONE].map(|word| self.notes.get(n, word) as u32);
            assert!(begun == done || begun == done + 1);
            if begun > done {
                totals.recording += 1;
                self.doubtful.insert(n * OF_ONE + begun);
            } else {
                totals.other += self.notes.get(n, OPERATION);
            }
        }
        let new = trace_directory(self.folder.path()).join("segment.new");
        if let Ok(facts) = std::fs::metadata(new)
            && facts.ino() != self.unfinished
        {
            totals.unfinished += 1;
            self.unfinished = facts.ino();
        }
        if totals.kills.is_multiple_of(VERIFY_EVERY) {
            self.grant();
            assert_sound(&self.reader(), "while others record");
        }
        for &n in victims {
            self.check_last(n);
            // The recording in progress has ended, with or without success.
            self.notes.set(n, DONE, self.notes.get(n, BEGUN));
        }
    }

    fn reader(&self) -> TraceStore {
        TraceStore::open(&trace_directory(self.folder.path()), Access::Read).unwrap()
    }

    /// Queries the last message of a killed worker while others record.
    fn check_last(&self, worker: u32) {
        let last = self.notes.get(worker, DONE) as u32;
        let trace = self.reader();
        // In a small store, it may have been removed in the meantime.
        let number = worker * OF_ONE + last;
        if last > 0 && !self.little && !self.doubtful.contains(&number) {
            assert!(is_found(&trace, number), "{number} is not found by its text, or twice");
            let one = Query { ids: vec![envelope(number).id], ..Query::default() };
            assert_eq!(ask(&trace, &one).len(), 1, "{number}");
        }
    }

    /// Checks the whole store with no worker running; returns the number of
    /// messages.
    fn check_all(&self, in_the_end: bool, random: &mut Random, totals: &mut Totals) -> usize {
        let trace = self.reader();
        assert_sound(&trace, "after a round");
        let stats = trace.stats().unwrap();
        assert_eq!((stats.damaged, stats.lost, stats.other_key), (0, 0, 0));
        let forgotten = totals.forgotten;
        let mut found: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for result in ask(&trace, &Query::default()) {
            let n: u32 = result.envelope.id.strip_prefix("id-").unwrap().parse().unwrap();
            assert_eq!(result.envelope, envelope(n));
            found.entry(n / OF_ONE).or_default().push(n % OF_ONE);
        }
        for worker in 0..WORKERS {
            let found = found.entry(worker).or_default();
            found.sort_unstable();
            assert!(found.is_sorted_by(|a, b| a < b), "one is there twice: {found:?}");
            let last = self.notes.get(worker, BEGUN) as u32;
            // The oldest messages are removed first.
            let first = if self.little { found.first().copied().unwrap_or(last) } else { 1 };
            let whole = |n: u32| !self.doubtful.contains(&(worker * OF_ONE + n));
            totals.forgotten += u64::from((1..first).any(whole));
            let missing: Vec<_> = (first..=last)
                .filter(|n| found.binary_search(n).is_err())
                .filter(|n| !self.doubtful.contains(&(worker * OF_ONE + n)))
                .collect();
            assert!(missing.is_empty(), "worker {worker} has lost {missing:?} of {last}");
            assert!(found.last().is_none_or(|&n| n <= last));
        }
        let all: Vec<_> = found
            .iter()
            .flat_map(|(worker, all)| all.iter().map(move |n| worker * OF_ONE + n))
            .collect();
        let chosen = |_| all[random.below(all.len())];
        let chosen = match in_the_end {
            true => all.clone(),
            false => (0..SAMPLE.min(all.len() as u64)).map(chosen).collect(),
        };
        for n in chosen {
            assert!(is_found(&trace, n), "{n}");
            totals.summary += 1;
        }
        if self.little && totals.forgotten > forgotten {
            assert!(stats.bytes > LITTLE / 3, "too much was forgotten: {stats:?}");
        }
        all.len()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        for worker in self.workers.iter_mut().flatten() {
            let _ = worker.kill();
            let _ = worker.wait();
        }
    }
}

/// Sets a size limit below the minimum that an administrator can choose.
fn set_room(folder: &Path, bytes: u64) {
    let trace = super::tests::open(folder);
    let file = OptionsFile {
        magic: OptionsFile::MAGIC,
        version: trace.key.version,
        reserved: 0,
        settings: crate::trace::Settings::default().encode(),
        keep: u64::MAX,
        max_bytes: bytes,
    };
    mirrored::write(&trace.dir, SETTINGS, c"settings.new", FILE_MODE, &file).unwrap();
}

fn ask(trace: &TraceStore, query: &Query<'_>) -> Vec<QueryResult> {
    super::tests::ask(trace, query)
}

/// Whether a message is found by its text, once, with its envelope.
fn is_found(trace: &TraceStore, n: u32) -> bool {
    let results = ask(trace, &content_query(&decode::normalise(&secret(n))));
    results.iter().filter(|result| result.envelope == envelope(n)).count() == 1
}

/// Kills so many workers, or a few more, in one store.
fn kill_in_one_store(kills: u64, little: bool, random: &mut Random, totals: &mut Totals) {
    let mut world = World::new(little);
    let all: Vec<_> = (0..WORKERS).collect();
    let end = totals.kills + kills;
    while totals.kills < end {
        let round = end.min(totals.kills + KILLS_A_ROUND);
        while totals.kills < round {
            world.start_missing();
            world.grant();
            // Mostly one at a time, sometimes several.
            let count = if random.below(4) == 0 { 2 + random.below(2) as u32 } else { 1 };
            let first = random.below(WORKERS as usize) as u32;
            let victims: Vec<_> = (first..first + count).map(|n| n % WORKERS).collect();
            // Some before they have opened the store.
            if random.below(12) != 0 {
                let some = random.below(GRANT as usize) as u64;
                victims.iter().for_each(|&worker| {
                    world.wait_until_at_work(worker);
                    world.wait_until_it_has_begun(some, worker);
                });
            }
            std::thread::sleep(Duration::from_micros(random.below(1_000) as u64));
            world.kill(&victims, totals);
        }
        world.start_missing();
        world.grant();
        all.iter().for_each(|&worker| world.wait_until_at_work(worker));
        std::thread::sleep(Duration::from_micros(random.below(3_000) as u64));
        world.kill(&all, totals);
        world.check_all(false, random, totals);
    }
    // Recording continues, and incomplete files do no harm.
    let mut trace = TraceStore::open(&trace_directory(world.folder.path()), Access::Write).unwrap();
    let next = WORKERS * OF_ONE;
    trace.record(&envelope(next), message(next).as_bytes()).unwrap();
    assert!(is_found(&trace, next));
    let before = world.check_all(false, random, totals);
    trace.seal().unwrap();
    trace.options.max_bytes = u64::MAX;
    trace.tidy_with_options(0).unwrap();
    assert_eq!(world.check_all(true, random, totals), before);
    assert!(is_found(&trace, next));
    assert_eq!(trace.take_incidents(), Vec::<String>::new());
    for entry in std::fs::read_dir(trace.directory()).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let known = ["key", "settings", "sealing"].contains(&name.as_str());
        assert!(known || name.ends_with(".segment"), "{name} is left");
    }
}

#[test]
fn killed_processes_lose_at_most_their_own_message() {
    let kills = if std::env::var_os("EXIRATE_TEST_LONG").is_some() { KILLS_LONG } else { KILLS };
    let (mut random, mut totals) = (Random::new(1), Totals::default());
    for store in 0.. {
        kill_in_one_store(KILLS_A_STORE.min(kills), store % 2 == 1, &mut random, &mut totals);
        // Some operations are short: until each was killed, or it is clear that none is.
        let enough = totals.kills >= kills && store > 0;
        if enough && (totals.all_hit() || totals.kills >= kills.saturating_mul(MORE_KILLS)) {
            break;
        }
    }
    counts::record("kills survived by the trace store", totals.kills);
    counts::record("  after which messages were found by their text", totals.summary);
    counts::record("  in the midst of recording or sealing", totals.recording);
    counts::record("  in the midst of tidying, sealing or choosing settings", totals.other);
    counts::record("  that left a segment unfinished", totals.unfinished);
    assert!(totals.recording > totals.kills / 10, "{totals:?}");
    assert!(totals.all_hit(), "{totals:?}");
}
