//! Crash images: the contents of the disk after each prefix of the writes of an
//! operation, with the last write torn, and with missing sectors that were not
//! synced when the power failed.
//!
//! The writes of each operation of `kill_tests.rs` are replayed, so that every
//! image contains exactly what was written. After the last write the operation
//! is complete.

use crate::sys::simulated_disk::{Disk, SECTOR, memory_folder, power_cut, torn};
use crate::sys::write_trace::{self, Write};
use kit::Random;

use super::kill_tests::{FULL, OPERATIONS, Operation, check_after};
use super::tests::{ask, content_query, envelope, open, open_small, record, secret};
use super::*;

/// The minimum number of power failures for each operation.
const CUTS: usize = 60;

/// At how many bytes a write can be torn: the kernel and the disk write a
/// sector atomically.
fn tears(write: &Write) -> Vec<usize> {
    let Write::Bytes { offset, bytes, .. } = write else { return Vec::new() };
    (SECTOR - offset % SECTOR..bytes.len()).step_by(SECTOR).collect()
}

/// The messages that were recorded and synced before: those in segments.
const SYNCED: u32 = 2 * FULL;

/// After a power failure: messages of segments are found or were removed on
/// purpose, every result is a recorded message, and recording continues.
fn check_after_a_power_cut(operation: Operation, disk: &Disk, what: &str) {
    let folder = memory_folder();
    disk.write_to(folder.path());
    let directory = trace_directory(folder.path());
    if let Ok(trace) = TraceStore::open(&directory, Access::Read) {
        trace.verify(&mut |_, _| {}, &mut |_| {}).unwrap();
    }
    let mut trace = open_small(folder.path(), FULL);
    record(&mut trace, 1000);
    trace.seal().unwrap();
    trace.tidy(envelope(0).time).unwrap();
    let mut numbers = Vec::new();
    trace
        .query(&Query::default(), &mut |_, _| {}, &mut |result| {
            let n: u32 = result.envelope.id.strip_prefix("id-").unwrap().parse().unwrap();
            assert_eq!(result.envelope, envelope(n), "{what}");
            numbers.push(n);
        })
        .unwrap();
    assert!(numbers.is_sorted_by(|a, b| a < b), "{what}: {numbers:?}");
    assert_eq!(numbers.last(), Some(&1000), "{what}");
    for n in 0..SYNCED {
        let forgets = [Operation::Forget, Operation::Shrink].contains(&operation);
        let forgotten = forgets && n < FULL && !numbers.contains(&0);
        assert!(numbers.contains(&n) || forgotten, "{what}: {n} of {numbers:?}");
    }
    for &n in &numbers {
        assert!(!ask(&trace, &content_query(&secret(n))).is_empty(), "{what}: {n}");
    }
}

/// All images of an operation; returns their number.
fn images(operation: Operation) -> (u64, u64) {
    let folder = memory_folder();
    operation.prepare(folder.path());
    let before = Disk::of(folder.path());
    let ((), writes) = write_trace::capture(|| {
        // Including the opening, as in a new process.
        operation.run(&mut open(folder.path()));
    });
    // The trace contains every write.
    let mut disk = before.clone();
    writes.iter().for_each(|write| disk.apply(write));
    assert!(disk.reachable() == Disk::of(folder.path()).reachable(), "{operation:?}");
    let (mut disk, mut kills) = (before.clone(), 0);
    let mut killed = |disk: &Disk, what: &str| {
        let folder = memory_folder();
        disk.write_to(folder.path());
        check_after(operation, folder.path(), what);
        kills += 1;
    };
    killed(&disk, "before the first write");
    for (n, write) in writes.iter().enumerate() {
        for length in tears(write) {
            let mut disk = disk.clone();
            disk.apply(&torn(write, length));
            killed(&disk, &format!("{operation:?}: {length} bytes of write {n}"));
        }
        disk.apply(write);
        killed(&disk, &format!("{operation:?}: write {n}"));
    }
    let (mut random, mut cuts) = (Random::new(1), 0);
    for round in 0..CUTS.div_ceil(writes.len()) * writes.len() {
        let end = 1 + round % writes.len();
        let disk = power_cut(&before, &writes[..end], &mut random);
        let what = format!("{operation:?}: power cut {round} after {end} writes");
        check_after_a_power_cut(operation, &disk, &what);
        cuts += 1;
    }
    (kills, cuts)
}

#[test]
fn of_all_operations() {
    for (operation, least) in OPERATIONS.into_iter().zip([3, 10, 15, 10, 2, 3, 10]) {
        let (kills, cuts) = images(operation);
        assert!(kills >= least && cuts >= CUTS as u64, "{operation:?}: {kills} {cuts}");
    }
}

#[test]
fn of_a_new_store() {
    let folder = memory_folder();
    let before = Disk::of(folder.path());
    let ((), writes) = write_trace::capture(|| record(&mut open(folder.path()), 0));
    let mut disk = before;
    for (n, write) in writes.iter().enumerate() {
        let images = tears(write).into_iter().map(|length| torn(write, length));
        for write in images.chain([write.clone()]) {
            let mut disk = disk.clone();
            disk.apply(&write);
            let folder = memory_folder();
            disk.write_to(folder.path());
            let mut trace = open(folder.path());
            super::tests::assert_sound(&trace, &format!("write {n}"));
            record(&mut trace, 1);
            let found = super::tests::found(&trace);
            assert!(found == [1] || found == [0, 1], "write {n}: {found:?}");
        }
        disk.apply(write);
    }
    assert!(writes.len() > 15, "{}", writes.len());
}
