//! A process that dies at each step of each kind of write.
//!
//! `tests/spool/kill` kills real processes at random; this visits every
//! point, by letting the writer panic there. Nothing it drops on the way
//! writes.

use std::fs::Permissions;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::path::Path;

use crate::engine::{Algorithm, Block, BlockTime, Change, Check, FilterChange, Update};
use crate::rate::{CalendarWindow, Timestamp};
use crate::sys::failpoint;
use crate::sys::simulated_disk::memory_folder;

use super::tests::{change, event, open};
use crate::store::{Entry, Store as _};

use super::{EventKind, EventReader, Options, Spool};

pub(super) const KEY: &[u8] = b"the key";

/// Other keys; some scenarios add such as share the key's shard.
const BYSTANDERS: u32 = 20;

pub(super) fn write(spool: &mut Spool, key: &[u8], change: Change) {
    spool.update(key, None, |_, _| ((), Some(change))).unwrap();
}

pub(super) fn renew(bytes: usize, epoch: i64, number: u64) -> FilterChange {
    FilterChange::Renew { bytes, epoch, event: event(number) }
}

pub(super) fn insert(number: u64) -> FilterChange {
    FilterChange::Insert(event(number))
}

/// A copy of a database.
pub(super) fn copy(from: &Path, to: &Path) {
    std::fs::create_dir(to.join("exirate")).unwrap();
    for entry in std::fs::read_dir(from.join("exirate")).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), to.join("exirate").join(entry.file_name())).unwrap();
    }
}

/// All other records, in order.
fn bystanders(spool: &mut Spool) -> Vec<Entry> {
    let mut entries = Vec::new();
    spool.for_each(|entry| entries.push(entry)).unwrap();
    entries.retain(|entry| entry.key != KEY);
    entries.sort_by(|a, b| a.key.cmp(&b.key));
    entries
}

/// What is remembered of the key: the number of its last change, its filter.
pub(super) type KeyMemory = Option<(f64, Option<(i64, Vec<u8>)>)>;

pub(super) fn state(spool: &mut Spool) -> KeyMemory {
    spool
        .peek(KEY, None, |r, _| {
            r.map(|r| (r.state.rate(), r.filter.map(|f| (f.epoch, f.bits.to_vec()))))
        })
        .unwrap()
}

/// Makes `last` die at its first step, its second, and so on until it lives;
/// returns how often it died.
///
/// After each death, the database is sound, no other key has changed, and the
/// key is as it was before or as it should be after, but for its filter: that
/// may lack the last event, or all where it was to be `renewed`.
fn dies_everywhere(prepare: impl Fn(&mut Spool), last: Change, renewed: bool) -> u32 {
    let folder = memory_folder();
    let mut spool = open(folder.path());
    for n in 0..BYSTANDERS {
        let filter = if n % 3 == 0 { renew(40, 5, n.into()) } else { FilterChange::Keep };
        write(&mut spool, &n.to_le_bytes(), change(n, filter));
    }
    prepare(&mut spool);
    let others = bystanders(&mut spool);
    let before = state(&mut spool);
    drop(spool);
    let mut after = None;
    let mut seen = Vec::new();
    for steps in (0..).map(|n| if n == 0 { u32::MAX } else { n - 1 }) {
        let attempt = memory_folder();
        copy(folder.path(), attempt.path());
        let mut dying = open(attempt.path());
        let died = failpoint::dies_after(steps, || write(&mut dying, KEY, last));
        drop(dying);
        let mut spool = open(attempt.path());
        if steps == u32::MAX {
            after = state(&mut spool);
            continue;
        }
        for writes in 0..2 {
            let problems: Vec<_> = spool.verify().unwrap().problems().collect();
            assert!(problems.is_empty(), "step {steps}, {writes} writes later: {problems:?}");
            assert!(bystanders(&mut spool) == others, "step {steps} has changed another key");
            if writes == 0 {
                seen.push(state(&mut spool));
                // The next check of this key puts everything right.
                write(&mut spool, KEY, last);
                assert_eq!(state(&mut spool).map(|s| s.0), after.as_ref().map(|s| s.0));
            }
        }
        assert_eq!(spool.take_incidents(), Vec::<String>::new());
        if !died {
            assert_eq!(seen.pop(), Some(after.clone()));
            break;
        }
    }
    for state in &seen {
        let rate = state.as_ref().map(|s| s.0);
        assert!([&before, &after].map(|s| s.as_ref().map(|s| s.0)).contains(&rate));
        let filter = |state: &KeyMemory| state.as_ref().and_then(|state| state.1.clone());
        let fine = [filter(&before), filter(&after)].contains(&filter(state))
            || renewed && filter(state).is_none();
        assert!(fine, "{state:?}");
    }
    // It died before anything was done, and late enough to be done.
    assert_eq!(seen.first(), Some(&before));
    seen.len() as u32
}

#[test]
fn in_a_plain_write() {
    let prepare = |spool: &mut Spool| write(spool, KEY, change(1, FilterChange::Keep));
    assert!(dies_everywhere(prepare, change(2, FilterChange::Keep), false) >= 2);
}

/// The crossing is in the journal, the account is blocked, or both happens with the next event.
#[test]
fn in_a_crossing_that_blocks() {
    let check = |algorithm| Check {
        update: Update::Leaky,
        blocks: BlockTime::Seconds(86_400),
        ..Check::new(KEY, algorithm)
    };
    let average = check(Algorithm::MovingAverage { limit: 2.5, period: 60.0 });
    let window = CalendarWindow { start: 999_960, end: 1_000_020 };
    for check in [average, check(Algorithm::Calendar { limit: 2.0, window })] {
        let decide = |spool: &mut Spool, second: i64| {
            let at = Timestamp { seconds: 1_000_000 + second, micros: 0 };
            spool.decide_one(&check, || at).unwrap()
        };
        for steps in 0.. {
            let folder = memory_folder();
            let mut spool = open(folder.path());
            (0..2).for_each(|second| assert!(!decide(&mut spool, second).over));
            let died = failpoint::dies_after(steps, || assert!(decide(&mut spool, 2).over));
            drop(spool);
            let mut spool = open(folder.path());
            let next = decide(&mut spool, 3);
            assert!(next.over && next.crossed != next.overridden.is_some(), "step {steps}");
            assert_eq!(next.crossings, 1);
            // Its rate has fallen, and its window is over.
            let later = decide(&mut spool, 80_000);
            assert!(later.overridden.is_some() && later.blocked.is_some(), "step {steps}");
            let mut reader = EventReader::new(EventKind::Crossings);
            let at = Timestamp { seconds: 1_080_000, micros: 0 };
            let read = spool.read_events(&mut reader, at, true).unwrap();
            assert_eq!(read.len(), 1, "step {steps}: {read:?}");
            let ends = read[0].blocked().and_then(Block::end).unwrap();
            assert!((1_086_402..1_086_470).contains(&ends), "{ends}");
            assert!(spool.verify().unwrap().problems().next().is_none());
            if !died {
                assert!(steps > 1);
                break;
            }
        }
    }
}

#[test]
fn in_an_insertion() {
    let prepare = |spool: &mut Spool| write(spool, KEY, change(1, renew(40, 1, 1)));
    assert!(dies_everywhere(prepare, change(2, insert(99)), false) >= 3);
}

#[test]
fn in_a_renewal_in_place() {
    let prepare = |spool: &mut Spool| write(spool, KEY, change(1, renew(4000, 1, 1)));
    assert!(dies_everywhere(prepare, change(2, renew(4000, 9, 7)), true) >= 7);
}

#[test]
fn in_a_renewal_of_another_size() {
    let prepare = |spool: &mut Spool| write(spool, KEY, change(1, renew(40, 1, 1)));
    assert!(dies_everywhere(prepare, change(2, renew(100_000, 9, 7)), false) >= 12);
}

#[test]
fn in_a_new_key() {
    assert!(dies_everywhere(|_| {}, change(2, FilterChange::Keep), false) >= 10);
    assert!(dies_everywhere(|_| {}, change(2, renew(50_000, 3, 7)), false) >= 12);
}

/// Other keys in the key's shard.
pub(super) fn neighbours(spool: &Spool) -> impl Iterator<Item = Vec<u8>> + use<> {
    let hashing = spool.database.hashing.clone();
    let shard = hashing.place(KEY).shard;
    (0u32..)
        .map(|n| format!("neighbour {n}").into_bytes())
        .filter(move |key| hashing.place(key).shard == shard)
}

/// Fills the key's shard as far as it may be, so that the next new key has it
/// rebuilt.
pub(super) fn crowd(spool: &mut Spool) {
    let shard = usize::from(spool.database.hashing.place(KEY).shard);
    for (key, n) in neighbours(spool).zip(1..) {
        write(spool, &key, change(n, FilterChange::Keep));
        let body = &spool.shards[shard].as_ref().unwrap().body;
        let live = body.sealed(super::format::LIVE).unwrap();
        if live + 1 > body.capacity as u64 / 5 * 4 {
            return;
        }
    }
}

#[test]
fn who_has_mapped_less_of_the_file_counts_all_of_it() {
    for steps in 0.. {
        let folder = memory_folder();
        let mut neighbour = open(folder.path());
        let [other, third] = [0, 1].map(|n| neighbours(&neighbour).nth(n).unwrap());
        // So large that there is no rebuilding for what is taken for dead.
        write(&mut neighbour, KEY, change(1, renew(200_000, 9, 7)));
        let mut dying = open(folder.path());
        let last = change(2, renew(50_000, 9, 7));
        let died = failpoint::dies_after(steps, || write(&mut dying, &other, last));
        drop(dying);
        // It has not looked at the shard since.
        write(&mut neighbour, &third, change(3, FilterChange::Keep));
        let problems: Vec<_> = neighbour.verify().unwrap().problems().collect();
        assert!(problems.is_empty(), "step {steps}: {problems:?}");
        if !died {
            assert!(steps >= 12);
            break;
        }
    }
}

#[test]
fn in_a_rebuild_for_a_larger_index() {
    assert!(dies_everywhere(crowd, change(2, FilterChange::Keep), false) > 400);
}

#[test]
fn in_a_rebuild_that_gives_dead_heap_back() {
    let prepare = |spool: &mut Spool| {
        for (n, bytes) in [(1, 200_000), (2, 300_000), (3, 40)] {
            write(spool, KEY, change(n, renew(bytes, 1, 7)));
        }
    };
    assert!(dies_everywhere(prepare, change(4, insert(99)), false) > 20);
}

#[test]
fn in_making_a_database() {
    let mut deaths = 0;
    for steps in 0.. {
        let folder = memory_folder();
        let died = failpoint::dies_after(steps, || {
            write(&mut open(folder.path()), KEY, change(1, FilterChange::Keep));
        });
        let mut spool = open(folder.path());
        assert_eq!(spool.verify().unwrap().problems().count(), 0, "step {steps}");
        let found = state(&mut spool).map(|s| s.0);
        assert!([None, Some(1.0)].contains(&found));
        write(&mut spool, KEY, change(2, FilterChange::Keep));
        assert_eq!(state(&mut spool), Some((2.0, None)));
        assert_eq!(spool.verify().unwrap().problems().count(), 0);
        assert!(!folder.path().join("exirate.new").exists());
        if !died {
            break;
        }
        deaths += 1;
    }
    assert!(deaths > 25, "{deaths}");
}

/// Exim's user, which owns everything in its spool directory.
const EXIM: u32 = 65_534;

/// An empty spool directory of Exim's, as root sees it.
fn folder_of_exim() -> tempfile::TempDir {
    let folder = memory_folder();
    chown(folder.path(), Some(EXIM), Some(EXIM)).unwrap();
    folder
}

/// Fails unless everything in the database is Exim's, and nobody else's.
fn assert_all_is_of_exim(folder: &Path, when: &str) {
    let directory = folder.join("exirate");
    let entries = std::fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().path());
    for path in entries.chain([directory]) {
        let metadata = std::fs::metadata(&path).unwrap();
        let mode = if metadata.is_dir() { 0o750 } else { 0o640 };
        let found = (metadata.uid(), metadata.gid(), metadata.mode() & 0o7777);
        assert_eq!(found, (EXIM, EXIM, mode), "{} {when}", path.display());
    }
}

/// What root's commands do to files.
fn as_root(folder: &Path) {
    let mut spool = open(folder);
    spool.compact(Timestamp::default(), |_| ()).unwrap();
    spool.set_max_bytes(1 << 30).unwrap();
    spool.log_change("compact").unwrap();
}

#[test]
fn in_a_command_of_roots() {
    let mut deaths = 0;
    for steps in 0.. {
        let folder = folder_of_exim();
        write(&mut open(folder.path()), KEY, change(1, FilterChange::Keep));
        let died = failpoint::dies_after(steps, || as_root(folder.path()));
        assert_all_is_of_exim(folder.path(), &format!("after step {steps}"));
        as_root(folder.path());
        assert_all_is_of_exim(folder.path(), &format!("after a command that follows step {steps}"));
        assert_eq!(open(folder.path()).verify().unwrap().problems().count(), 0);
        if !died {
            break;
        }
        deaths += 1;
    }
    assert!(deaths > 40, "{deaths}");
}

#[test]
fn root_gives_away_what_an_earlier_command_of_roots_has_left() {
    let folder = folder_of_exim();
    let mut spool = open(folder.path());
    write(&mut spool, KEY, change(1, FilterChange::Keep));
    let shard = spool.database.hashing.place(KEY).shard;
    drop(spool);
    let directory = folder.path().join("exirate");
    // As a file system without O_TMPFILE has it after a kill.
    for name in [&format!("{shard:02x}.new"), "database.new", "audit.log"] {
        let path = directory.join(name);
        std::fs::write(&path, "").unwrap();
        set_mode(&path, 0o640);
        assert_eq!(std::fs::metadata(&path).unwrap().uid(), 0);
    }
    as_root(folder.path());
    assert_all_is_of_exim(folder.path(), "after a command");
    // A whole database of root's.
    for entry in std::fs::read_dir(&directory).unwrap() {
        chown(entry.unwrap().path(), Some(0), Some(0)).unwrap();
    }
    chown(&directory, Some(0), Some(0)).unwrap();
    as_root(folder.path());
    assert_all_is_of_exim(folder.path(), "after a command");
}

#[test]
fn verify_finds_files_that_exim_could_not_use_and_repair_gives_them_to_exim() {
    type Spoil = fn(&Path);
    let spoils: [(Spoil, &str); 4] = [
        (|path| chown(path, Some(0), Some(0)).unwrap(), "user 0"),
        (|path| chown(path, Some(0), None).unwrap(), "user 0"),
        (|path| set_mode(path, 0o400), "mode 0400"),
        (|path| set_mode(path, 0o660), "mode 0660"),
    ];
    for name in ["database", "shard", "audit.log"] {
        for (spoil, fault) in spoils {
            let folder = folder_of_exim();
            let mut spool = open(folder.path());
            write(&mut spool, KEY, change(1, FilterChange::Keep));
            spool.log_change("x").unwrap();
            let shard = format!("{:02x}.shard", spool.database.hashing.place(KEY).shard);
            let name = if name == "shard" { shard.as_str() } else { name };
            let path = spool.directory().join(name);
            spoil(&path);
            let mut reader = Spool::open_existing(folder.path(), Options::default()).unwrap();
            let problems: Vec<_> = reader.verify().unwrap().problems().collect();
            assert_eq!(problems.len(), 1, "{problems:?}");
            let named = problems[0].contains(&format!("{}", path.display()));
            assert!(named && problems[0].contains(fault), "{problems:?}");
            spool.repair(Timestamp::default(), |_| ()).unwrap();
            let incidents = spool.take_incidents();
            assert_eq!(incidents.len(), 1, "{incidents:?}");
            assert!(incidents[0].contains(fault), "{incidents:?}");
            assert_all_is_of_exim(folder.path(), "after a repair");
            assert_eq!(reader.verify().unwrap().problems().count(), 0);
            assert_eq!(state(&mut spool), Some((1.0, None)));
        }
    }
}

fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}
