//! Resource limits of a process.

use std::fs::File;
use std::path::Path;

use exirate::spool::{Options, Spool};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::documents::assert_documented;
use crate::common::records::{key, rate, write};
use crate::common::{assert_sound, event, open};
use kit::worker::{finish, start};

use exirate::engine::{Change, FilterChange, State};
use exirate::rate::{Average, Timestamp};

#[test]
fn a_limit_on_file_sizes_is_an_error_and_not_a_signal() {
    let folder = tempfile::tempdir().unwrap();
    finish(vec![start(&["hard_world", "large files", folder.path().to_str().unwrap()])]);
}

#[test]
fn few_open_files_are_enough_and_none_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    finish(vec![start(&["hard_world", "open files", folder.path().to_str().unwrap()])]);
}

/// Sets the soft limit.
fn limit(resource: Resource, current: Option<u64>) {
    let maximum = getrlimit(resource).maximum;
    setrlimit(resource, Rlimit { current: current.or(maximum), maximum }).unwrap();
}

pub(crate) fn large_files(folder: &Path) {
    limit(Resource::Fsize, Some(0));
    let error = Spool::open(folder, Options::default()).unwrap_err();
    assert_documented(&error.to_string(), folder, &[]);
    limit(Resource::Fsize, Some(50_000));
    let mut spool = open(folder);
    let change = |bytes| {
        let average = Average { at: Timestamp { seconds: 7, micros: 0 }, rate: 1.0 };
        let filter = FilterChange::Renew { bytes, epoch: 3, event: event(7) };
        Change { state: State::new(average, 1.0, 0.0), filter }
    };
    write(&mut spool, 1);
    let large = spool.update(b"large", None, |_, _| ((), Some(change(60_000))));
    assert_documented(&large.unwrap_err().to_string(), folder, &[]);
    // Operations that fit still work.
    for n in 1..200 {
        write(&mut spool, n);
        assert_eq!(rate(&mut spool, n), Some(f64::from(n)));
    }
    limit(Resource::Fsize, None);
    spool.update(b"large", None, |_, _| ((), Some(change(60_000)))).unwrap();
    assert_sound(&mut spool);
}

pub(crate) fn open_files(folder: &Path) {
    // More than the test run has passed on.
    let highest = std::fs::read_dir("/proc/self/fd")
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_str().unwrap().parse::<u64>().unwrap());
    limit(Resource::Nofile, Some(highest.max().unwrap() + 17));
    let mut spool = open(folder);
    for _ in 0..2 {
        for n in 0..2_000 {
            write(&mut spool, n);
        }
    }
    drop(spool);
    for act in [assert_sound, log, bound, copy] {
        shards_have_taken_all_files(folder, act);
    }
    // The process itself has all of them open.
    let null = || File::open("/dev/null");
    let mut others: Vec<_> = std::iter::from_fn(|| null().ok()).collect();
    let error = Spool::open(folder, Options::default()).unwrap_err();
    assert_documented(&error.to_string(), folder, &[]);
    others.pop();
    others.pop();
    let mut spool = open(folder);
    others.extend(std::iter::from_fn(|| null().ok()));
    let look =
        |spool: &mut Spool| spool.update(key(5).as_bytes(), None, |r, _| (r.is_some(), None));
    let error = look(&mut spool).unwrap_err();
    assert_documented(&error.to_string(), folder, &[]);
    // One is enough, in any shard; it is closed for the next one.
    others.pop();
    assert!(look(&mut spool).unwrap());
    for n in 0..2_000 {
        assert_eq!(rate(&mut spool, n), Some(f64::from(n)));
    }
}

/// Runs `act` when the shards of a database, and other files, use up the limit
/// of open files.
fn shards_have_taken_all_files(folder: &Path, act: fn(&mut Spool)) {
    let mut spool = open(folder);
    for n in 0..8 {
        write(&mut spool, n);
    }
    let _others: Vec<_> = std::iter::from_fn(|| File::open("/dev/null").ok()).collect();
    act(&mut spool);
}

fn log(spool: &mut Spool) {
    spool.log_change("a line").unwrap();
}

fn bound(spool: &mut Spool) {
    spool.set_max_bytes(50 << 20).unwrap();
}

fn copy(spool: &mut Spool) {
    let target = spool.directory().with_file_name("copy");
    std::fs::create_dir(&target).unwrap();
    spool.copy_to(&target, |_| {}).unwrap();
}
