//! The operations for the tests of kills, power failures and full disks, and
//! the conditions that must hold afterwards; and a process that is stopped at
//! each step.
//!
//! `image_tests.rs` examines the files after each write of these operations, so
//! no test needs to kill a process at each of them as well; `sigkill_tests.rs`
//! kills real processes at random times.

use std::path::Path;

use crate::sys::failpoint::{self, FailpointAction};
use crate::sys::fork::tests::{Child, in_child};
use crate::sys::simulated_disk::memory_folder;

use super::tests::{TOGETHER, assert_sound, found, open, open_small, record};
use super::*;

/// The number of messages in a full log here.
pub(super) const FULL: u32 = 4;
/// The number of messages before the operation.
pub(super) const BEFORE: u32 = 11;

/// A copy of a store.
pub(super) fn copy(from: &Path, to: &Path) {
    let (from, to) = (trace_directory(from), trace_directory(to));
    std::fs::create_dir_all(&to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        // With its mode.
        std::fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}

/// An operation on a store of [`BEFORE`] messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    /// A message is recorded in a log that is not full.
    Record,
    /// A message is recorded when the log is full, which is then sealed.
    RecordBeyond,
    /// A message is recorded when the log is full, which is then sealed and merged.
    Merge,
    /// All messages are sealed.
    Seal,
    /// The oldest segment is removed because the store is too large.
    Shrink,
    /// The oldest segment is removed because it has expired.
    Forget,
    /// The settings are changed, and a message is recorded.
    Choose,
}

pub(super) const OPERATIONS: [Operation; 7] = [
    Operation::Record,
    Operation::RecordBeyond,
    Operation::Merge,
    Operation::Seal,
    Operation::Shrink,
    Operation::Forget,
    Operation::Choose,
];

impl Operation {
    /// Prepares a store: two or three segments, and an open log, which may be full.
    pub(super) fn prepare(self, folder: &Path) {
        let mut trace = open_small(folder, FULL);
        let sealed = if self == Self::Merge { 3 * FULL } else { 2 * FULL };
        (0..sealed).for_each(|n| record(&mut trace, n));
        trace.seal().unwrap();
        (sealed..self.before()).for_each(|n| record(&mut trace, n));
        if self == Self::Shrink {
            trace.seal().unwrap();
        }
    }

    /// The number of messages before it.
    pub(super) fn before(self) -> u32 {
        match self {
            Self::RecordBeyond => BEFORE.next_multiple_of(FULL),
            Self::Merge => 4 * FULL,
            _ => BEFORE,
        }
    }

    /// Runs it.
    pub(super) fn run(self, trace: &mut TraceStore) {
        trace.limits.messages = FULL;
        trace.limits.together = TOGETHER;
        match self {
            Self::Record | Self::RecordBeyond | Self::Merge => record(trace, self.before()),
            Self::Seal => trace.seal().unwrap(),
            Self::Shrink => {
                trace.limits.merged = 1;
                trace.options.max_bytes = trace.stats().unwrap().bytes - 1;
                let tidied = trace.tidy_with_options(super::tests::envelope(0).time).unwrap();
                assert_eq!(tidied.forgotten, 1);
            }
            Self::Forget => {
                let first = super::tests::envelope(FULL).time;
                trace.options.keep = Some(1);
                trace.tidy_with_options(first + 1).unwrap();
            }
            Self::Choose => {
                let settings = crate::trace::WinnowSettings { gram: 9, ..Default::default() };
                let settings = crate::trace::Settings::Winnow(settings);
                trace.set_options(Options { settings, ..super::tests::for_ever() }).unwrap();
                record(trace, self.before());
            }
        }
    }

    /// Whether these messages may be found after it was interrupted.
    pub(super) fn may_leave(self, found: &[u32]) -> bool {
        let all: Vec<_> = (0..self.before()).collect();
        let more: Vec<_> = (0..=self.before()).collect();
        match self {
            Self::Record | Self::RecordBeyond | Self::Merge | Self::Choose => {
                found == all || found == more
            }
            Self::Seal => found == all,
            Self::Forget | Self::Shrink => found == all || found == &all[FULL as usize..],
        }
    }
}

/// After a process died in the middle of an operation: nothing else is lost,
/// and later operations succeed.
pub(super) fn check_after(operation: Operation, folder: &Path, what: &str) {
    let trace = TraceStore::open(&trace_directory(folder), Access::Read).unwrap();
    assert_sound(&trace, what);
    let left = found(&trace);
    assert!(operation.may_leave(&left), "{what}: {left:?}");
    let mut trace = open_small(folder, FULL);
    let next = 1000;
    record(&mut trace, next);
    let mut expected = left.clone();
    expected.push(next);
    assert_eq!(found(&trace), expected, "{what}");
    trace.tidy_with_options(super::tests::envelope(0).time).unwrap();
    trace.seal().unwrap();
    assert_eq!(found(&trace), expected, "{what}");
    assert_sound(&trace, what);
    assert_eq!(trace.take_incidents(), Vec::<String>::new(), "{what}");
    let stats = trace.stats().unwrap();
    assert_eq!((stats.logs, stats.damaged, stats.lost), (0, 0, 0), "{what}");
    for name in std::fs::read_dir(trace.directory()).unwrap() {
        let name = name.unwrap().file_name().into_string().unwrap();
        assert!(!name.ends_with(".log"), "{what}: {name}");
    }
}

/// Starts a process that stops after so many steps.
fn stopped_after(steps: u32, operation: Operation, folder: &Path) -> Child {
    in_child(|| {
        let mut trace = open(folder);
        failpoint::allow_steps_until(Some(steps), FailpointAction::Stops);
        operation.run(&mut trace);
        true
    })
}

#[test]
fn all_segments_are_merged_by_that_operation() {
    let folder = memory_folder();
    Operation::Merge.prepare(folder.path());
    let mut trace = open(folder.path());
    assert_eq!(trace.stats().unwrap().segments, u64::from(TOGETHER - 1));
    Operation::Merge.run(&mut trace);
    assert_eq!(trace.stats().unwrap().segments, 1);
}

#[test]
fn a_stopped_process_is_named_and_does_not_block_queries() {
    let (mut held, mut free) = (0, 0);
    // While a log is sealed, nobody waits; while one is renamed, all wait.
    for steps in (0..).step_by(3) {
        let folder = memory_folder();
        Operation::RecordBeyond.prepare(folder.path());
        let child = stopped_after(steps, Operation::RecordBeyond, folder.path());
        if !child.stops() {
            assert!(child.succeeds());
            break;
        }
        let mut trace = TraceStore::open(&trace_directory(folder.path()), Access::Write).unwrap();
        trace.limits.messages = 1000;
        assert!(Operation::RecordBeyond.may_leave(&found(&trace)), "step {steps}");
        // It does not block others for longer than the timeout.
        match trace.append(&super::tests::envelope(500), &[]) {
            Ok(done) => {
                assert!(done);
                free += 1;
            }
            Err(error) => {
                held += 1;
                let text = format!(
                    "cannot lock {}: waited 0.2s for process {} (",
                    trace.directory().display(),
                    child.process()
                );
                assert!(error.to_string().starts_with(&text), "{error}");
                assert!(error.to_string().contains("which is stopped"), "{error}");
            }
        }
        child.go_on();
        assert!(child.succeeds());
        assert_sound(&open(folder.path()), "continued");
    }
    assert!(held > 2 && free > 5, "{held} {free}");
}
