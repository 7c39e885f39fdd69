//! Exim's processes and root's commands, killed at random times, thousands of
//! times.
//!
//! Eight workers of Exim's user run all kinds of writes at the same time, on
//! their own keys that share shards, and on one common key; one of them also
//! tidies. Two workers of root compact, repair, tidy, reset and log meanwhile.
//! After each kill, each of the worker's keys must have lost at most the one
//! event that was in progress. After each round, in which all are killed, the
//! database must be sound and no other key changed. (`src/spool/kill_tests.rs`
//! covers every single step; here there are real processes, shared shards and
//! real signals.)
//!
//! `KILLS=100000 cargo test --test spool kill::` runs more of them.

use crate::common;
mod work;

use std::fs::Permissions;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::os::unix::process::{CommandExt as _, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use crate::common::{assert_sound, open};
use exirate::engine::FilterChange;
use exirate::rate::bloom::Event;
use exirate::spool::{Options, Spool};
use kit::worker::start_by;
use kit::{Random, copy_program, counts};
use work::{Checker, Log, change, count, work, work_as_root};

/// Workers of Exim's user.
const WORKERS: usize = 8;
/// Workers of root.
const ROOTS: usize = 2;
/// All of them.
const ALL: usize = WORKERS + ROOTS;
/// Exim's user in these tests: `nobody`.
const EXIM: u32 = 65_534;
/// The number of kills, unless `KILLS` is set, and with `scripts/test --long`.
const KILLS: u64 = 2_000;
const KILLS_LONG: u64 = 100_000;
/// How many times more kills there may be until each operation was killed once.
const MORE_KILLS: u64 = 4;
/// Kills in each database.
const KILLS_A_DATABASE: u64 = 300;
/// Kills before all workers are killed, and the whole database is checked.
const KILLS_A_ROUND: u64 = 60;
/// Keys that no worker uses.
const BYSTANDERS: u64 = 500;
/// A worker that has not started by then never will.
const START_TIMEOUT: Duration = kit::TIMEOUT;

pub(crate) fn worker(arguments: &[String]) {
    let [folder, worker] = arguments else { panic!("{arguments:?}") };
    let (folder, worker) = (Path::new(folder), worker.parse().unwrap());
    if worker < WORKERS { work(folder, worker) } else { work_as_root(folder, worker) }
}

/// Totals of all databases.
#[derive(Debug, Default)]
struct Totals {
    kills: u64,
    commands: u64,
    events: u64,
    rebuilds: u64,
    filters: u64,
    tidying: u64,
}

impl Totals {
    /// Whether everything that the test is about has happened.
    fn all_hit(&self) -> bool {
        [self.rebuilds, self.filters, self.tidying].iter().all(|&count| count > 0)
    }
}

/// A database and its workers.
struct World {
    folder: tempfile::TempDir,
    workers: Vec<Option<Child>>,
    checker: Checker,
    /// The incomplete files of killed processes when last checked.
    unfinished: Vec<PathBuf>,
    rebuilds: u64,
    kills: u64,
    /// How many of them were those of root's commands.
    commands: u64,
}

impl World {
    fn new(bystanders: bool) -> Self {
        let folder = memory_folder();
        chown(folder.path(), Some(EXIM), Some(EXIM)).unwrap();
        if bystanders {
            let mut spool = open(folder.path());
            for n in 1..BYSTANDERS {
                let filter = FilterChange::Renew { bytes: 40, epoch: 3, event: Event(n.into()) };
                let key = format!("bystander {n}");
                spool.update(key.as_bytes(), None, |_, _| ((), Some(change(n, filter)))).unwrap();
            }
        }
        let log = Log::make(folder.path(), ALL);
        chown(folder.path().join("log"), Some(EXIM), Some(EXIM)).unwrap();
        // Exim's user may not be able to reach the test binary.
        let program = folder.path().join("program");
        copy_program(std::env::current_exe().unwrap(), &program);
        std::fs::set_permissions(&program, Permissions::from_mode(0o755)).unwrap();
        let workers = (0..ALL).map(|_| None).collect();
        let checker = Checker::new(log, WORKERS);
        Self {
            folder,
            workers,
            checker,
            unfinished: Vec::new(),
            rebuilds: 0,
            kills: 0,
            commands: 0,
        }
    }

    fn start_missing(&mut self) {
        for (n, worker) in self.workers.iter_mut().enumerate() {
            if worker.is_none() {
                self.checker.log.set_at_work(n, false);
                let mut command = Command::new(self.folder.path().join("program"));
                if n < WORKERS {
                    command.uid(EXIM).gid(EXIM);
                }
                let arguments = ["kill", self.folder.path().to_str().unwrap(), &n.to_string()];
                *worker = Some(start_by(command, &arguments));
            }
        }
    }

    fn wait_until_at_work(&self, worker: usize) {
        let begun = Instant::now();
        while !self.checker.log.is_at_work(worker) {
            assert!(begun.elapsed() < START_TIMEOUT, "worker {worker} does not begin");
            std::thread::sleep(Duration::from_micros(100));
        }
    }

    /// Kills some workers at the same time, and checks what they leave.
    fn kill(&mut self, victims: &[usize]) {
        for &n in victims {
            let worker = self.workers[n].as_mut().unwrap();
            assert_eq!(worker.try_wait().unwrap(), None, "worker {n} has ended by itself");
            worker.kill().unwrap();
        }
        for &n in victims {
            let status = self.workers[n].take().unwrap().wait().unwrap();
            assert_eq!(status.signal(), Some(9), "worker {n} ended by itself: {status}");
            self.kills += 1;
            self.commands += u64::from(n >= WORKERS);
        }
        self.count_unfinished();
        for &n in victims.iter().filter(|&&n| n < WORKERS) {
            self.checker.check(self.folder.path(), n);
        }
    }

    /// Counts the rebuilds that kills left incomplete: files being written that
    /// no process is writing.
    fn count_unfinished(&mut self) {
        let Ok(entries) = std::fs::read_dir(self.folder.path().join("exirate")) else { return };
        let unfinished: Vec<_> = entries
            .filter_map(|entry| Some(entry.ok()?.path()))
            .filter(|path| path.extension().is_some_and(|extension| extension == "new"))
            .filter(|path| {
                let file = std::fs::File::open(path).ok();
                file.is_some_and(|file| fs2::FileExt::try_lock_shared(&file).is_ok())
            })
            .collect();
        let new = unfinished.iter().filter(|path| !self.unfinished.contains(path)).count();
        self.rebuilds += new as u64;
        self.unfinished = unfinished;
    }

    /// Checks the whole database, with no worker running.
    fn check_all(&mut self, bystanders: bool) {
        // Read-only: it repairs nothing, and finds nothing to repair.
        let mut spool = Spool::open_existing(self.folder.path(), Options::default()).unwrap();
        assert_sound(&mut spool);
        for entry in std::fs::read_dir(spool.directory()).unwrap() {
            let entry = entry.unwrap();
            assert_eq!(entry.metadata().unwrap().uid(), EXIM, "{:?}", entry.path());
        }
        self.checker.check_shared(&mut spool);
        for n in (1..BYSTANDERS).filter(|_| bystanders) {
            assert_eq!(count(&mut spool, format!("bystander {n}").as_bytes()), n);
        }
        assert_eq!(spool.damaged(), 0);
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

/// An empty directory, in memory if possible: processes are killed, not the
/// machine.
fn memory_folder() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() }.unwrap()
}

/// Kills so many workers, or a few more, in one database.
fn kill_in_one_database(kills: u64, random: &mut Random, totals: &mut Totals) {
    let bystanders = random.below(4) != 0;
    let mut world = World::new(bystanders);
    let all: Vec<_> = (0..ALL).collect();
    while world.kills < kills {
        let round = kills.min(world.kills + KILLS_A_ROUND);
        while world.kills < round {
            world.start_missing();
            // Mostly one at a time, sometimes several.
            let count = if random.below(4) == 0 { 2 + random.below(ALL - 1) } else { 1 };
            let first = random.below(ALL);
            let victims: Vec<_> = (0..count).map(|n| (first + n) % ALL).collect();
            // Some before they have opened the database.
            if random.below(10) != 0 {
                victims.iter().for_each(|&worker| world.wait_until_at_work(worker));
            }
            std::thread::sleep(Duration::from_micros(random.below(4_000) as u64));
            world.kill(&victims);
        }
        world.start_missing();
        all.iter().for_each(|&worker| world.wait_until_at_work(worker));
        std::thread::sleep(Duration::from_micros(random.below(4_000) as u64));
        world.kill(&all);
        world.check_all(bystanders);
    }
    // Incomplete files do no harm.
    let mut spool = open(world.folder.path());
    let made = world.checker.check_made(&mut spool, world.folder.path());
    spool.tidy(common::now(), |_| ()).unwrap();
    assert_eq!(world.checker.check_made(&mut spool, world.folder.path()), made);
    assert_sound(&mut spool);
    assert_eq!(spool.take_incidents(), Vec::<String>::new());
    // Enough has happened for this to be meaningful.
    assert!(made > 0 && world.checker.filter_events() > 0);
    totals.kills += world.kills;
    totals.commands += world.commands;
    totals.events += world.checker.under_way.events;
    totals.filters += world.checker.under_way.filters;
    totals.tidying += world.checker.under_way.tidying;
    totals.rebuilds += world.rebuilds;
}

#[test]
fn killed_processes_lose_at_most_their_own_event() {
    let kills = if counts::is_long() { KILLS_LONG } else { KILLS };
    let kills = std::env::var("KILLS").map_or(kills, |text| text.parse().unwrap());
    let (mut random, mut totals) = (Random::new(1), Totals::default());
    // Some operations are short: until each was killed, or it is clear that none is.
    while totals.kills < kills
        || !totals.all_hit() && totals.kills < kills.saturating_mul(MORE_KILLS)
    {
        kill_in_one_database(KILLS_A_DATABASE.min(kills), &mut random, &mut totals);
    }
    counts::record("kills survived", totals.kills);
    counts::record("  of root's commands", totals.commands);
    counts::record("  in the midst of an event", totals.events);
    counts::record("  in the midst of a rebuild", totals.rebuilds);
    counts::record("  in the midst of beginning a filter again", totals.filters);
    counts::record("  in the midst of tidying", totals.tidying);
    assert!(totals.commands > totals.kills / 20, "{totals:?}");
    assert!(totals.events > totals.kills / 10, "{totals:?}");
    assert!(totals.all_hit(), "{totals:?}");
}
