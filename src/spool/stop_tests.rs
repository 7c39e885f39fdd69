//! A process that is stopped at each step of a rebuild: only the checks of keys
//! in that shard wait for it.

use std::path::Path;
use std::time::Duration;

use crate::engine::FilterChange;
use crate::sys::failpoint::{self, FailpointAction};
use crate::sys::fork::tests::{Child, in_child};
use crate::sys::secure_dir::DirError;
use crate::sys::simulated_disk::memory_folder;

use super::format::SHARDS;
use super::kill_tests::{KEY, insert, renew, state, write};
use super::tests::{change, open};
use super::{Options, Spool, SpoolError};

/// A database whose shard of [`KEY`] is rebuilt at the next [`insert`].
fn wasteful(folder: &Path) -> Spool {
    let mut spool = open(folder);
    for (n, bytes) in [(1, 60_000), (2, 70_000), (3, 40)] {
        write(&mut spool, KEY, change(n, renew(bytes, 1, 7)));
    }
    spool
}

/// Keys in shard `number`.
fn keys_in(spool: &Spool, number: u8) -> impl Iterator<Item = Vec<u8>> + use<> {
    let hashing = spool.database.hashing.clone();
    (0u32..)
        .map(|n| format!("a key of number {n}").into_bytes())
        .filter(move |key| hashing.place(key).shard == number)
}

/// How often shard `number` has been made.
fn generation(spool: &mut Spool, number: u8) -> u64 {
    spool.read_shard(number, |body| body.map_or(0, |body| body.generation)).unwrap()
}

/// Starts a process that is stopped after so many steps of the rebuild.
fn stopped_after(steps: u32, folder: &Path) -> Child {
    in_child(|| {
        let mut spool = open(folder);
        // The shard is open before its steps are counted.
        spool.peek(KEY, None, |_, _| ()).unwrap();
        failpoint::allow_steps_until(Some(steps), FailpointAction::Stops);
        write(&mut spool, KEY, change(4, insert(99)));
        true
    })
}

#[test]
fn a_rebuild_that_stands_still_stops_no_other_shard() {
    let (mut held, mut put_off) = (0, 0);
    for steps in 0.. {
        let folder = memory_folder();
        let shard = wasteful(folder.path()).database.hashing.place(KEY).shard;
        let child = stopped_after(steps, folder.path());
        if !child.stops() {
            assert!(child.succeeds());
            break;
        }
        let timeout = Duration::from_millis(5);
        let mut spool = Spool::open(folder.path(), Options { timeout }).unwrap();
        match spool.peek(KEY, None, |_, _| ()) {
            Ok(()) => {}
            Err(error @ SpoolError::Directory(DirError::Busy { .. })) => {
                held += 1;
                let process = child.process();
                let text = format!("which is stopped: continue it by `kill -CONT {process}`");
                assert!(error.to_string().contains(&text), "{error}");
            }
            Err(error) => panic!("{error}"),
        }
        // Another shard that is not there yet, and grows.
        let other = shard.wrapping_add(1);
        let mut keys = keys_in(&spool, other);
        let first = keys.next().unwrap();
        match spool.update(&first, None, |_, _| ((), Some(change(1, FilterChange::Keep)))) {
            Ok(()) => {
                keys.take(500)
                    .for_each(|key| write(&mut spool, &key, change(1, FilterChange::Keep)));
                assert_eq!(generation(&mut spool, other), 2, "step {steps}");
            }
            // The directory is locked for the moment in which the file is made.
            Err(SpoolError::Directory(DirError::Busy { path, .. })) => {
                assert_eq!(path, spool.directory(), "step {steps}");
                put_off += 1;
            }
            Err(error) => panic!("{error}"),
        }
        child.go_on();
        assert!(child.succeeds());
        let mut spool = open(folder.path());
        assert_eq!(generation(&mut spool, shard), 2);
        assert_eq!(state(&mut spool).unwrap().0, 4.0);
        assert_eq!(spool.verify().unwrap().problems().count(), 0);
    }
    assert!(held > 20, "{held}");
    assert!(put_off < 8, "{put_off}");
}

#[test]
fn growth_of_all_shards_needs_few_open_files() {
    let folder = memory_folder();
    let child = in_child(|| {
        // It has inherited what other tests have open at this moment.
        let names = std::fs::read_dir("/proc/self/fd").unwrap();
        let open_files = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let last: u64 = open_files.map(|name| name.parse().unwrap()).max().unwrap();
        let limit = rustix::process::Rlimit { current: Some(last + 16), maximum: Some(last + 16) };
        rustix::process::setrlimit(rustix::process::Resource::Nofile, limit).unwrap();
        let mut spool = open(folder.path());
        // Each shard grows while as many others are open as can be.
        for n in 0..256 * 450u32 {
            write(&mut spool, &n.to_le_bytes(), change(n, FilterChange::Keep));
        }
        spool.stats().unwrap().records == 256 * 450
    });
    assert!(child.succeeds());
    let mut spool = open(folder.path());
    let grown = (0..=u8::MAX).filter(|&n| generation(&mut spool, n) > 1).count();
    assert!(grown > SHARDS / 2, "{grown}");
    assert_eq!(spool.verify().unwrap().problems().count(), 0);
}
