//! A disk that is full, or a quota used up, at each byte of every operation: a
//! failed operation leaves the store sound and returns the reason.

use crate::sys::failpoint;
use crate::sys::simulated_disk::memory_folder;

use super::kill_tests::{FULL, OPERATIONS, Operation, check_after, copy};
use super::tests::{TOGETHER, assert_sound, envelope, found, open, record, text};
use super::*;

/// Runs an operation with so much free space; returns its error, if it failed.
fn with_room(operation: Operation, trace: &mut TraceStore, bytes: u64) -> Option<String> {
    trace.limits.messages = FULL;
    trace.limits.together = TOGETHER;
    failpoint::limit_disk(Some(bytes));
    let n = operation.before();
    let done = match operation {
        Operation::Record | Operation::RecordBeyond | Operation::Merge => {
            trace.record(&envelope(n), text(n).as_bytes())
        }
        Operation::Seal => trace.seal(),
        Operation::Shrink => {
            trace.limits.merged = 1;
            trace.options.max_bytes = trace.stats().unwrap().bytes - 1;
            trace.tidy_with_options(envelope(0).time).map(drop)
        }
        Operation::Forget => {
            trace.options.keep = Some(1);
            trace.tidy_with_options(envelope(FULL).time + 1).map(drop)
        }
        Operation::Choose => {
            let settings = crate::trace::WinnowSettings { gram: 9, ..Default::default() };
            let settings = crate::trace::Settings::Winnow(settings);
            let options = Options { settings, ..super::tests::for_ever() };
            trace.set_options(options).and_then(|()| trace.record(&envelope(n), text(n).as_bytes()))
        }
    };
    failpoint::limit_disk(None);
    let incidents = trace.take_incidents();
    done.err().map(|error| error.to_string()).or(incidents.first().cloned())
}

#[test]
fn a_full_disk_loses_nothing_and_is_reported() {
    for operation in OPERATIONS {
        let folder = memory_folder();
        operation.prepare(folder.path());
        let (mut full, mut bytes) = (0, 0);
        loop {
            let attempt = memory_folder();
            copy(folder.path(), attempt.path());
            let mut trace = open(attempt.path());
            let what = format!("{operation:?} with {bytes} bytes");
            let incident = with_room(operation, &mut trace, bytes);
            if let Some(text) = &incident {
                full += 1;
                let path = trace.directory().to_str().unwrap();
                assert!(text.contains(path) && text.contains("no storage space"), "{what}: {text}");
            }
            assert_sound(&trace, &what);
            let found = found(&trace);
            drop(trace);
            assert!(operation.may_leave(&found), "{what}");
            check_after(operation, attempt.path(), &what);
            if incident.is_none() {
                assert!(
                    operation == Operation::Forget || operation == Operation::Shrink || full > 0,
                    "{what}"
                );
                break;
            }
            // Not at each byte of the largest files.
            bytes += 7 + bytes / 4;
        }
    }
}

/// The disk stays full: each message is refused, and the earlier ones are
/// found.
#[test]
fn recording_continues_when_there_is_room_again() {
    let folder = memory_folder();
    let mut trace = super::tests::open_small(folder.path(), FULL);
    (0..6).for_each(|n| record(&mut trace, n));
    failpoint::limit_quota(0);
    for n in 6..40 {
        let error = trace.record(&envelope(n), text(n).as_bytes()).unwrap_err().to_string();
        assert!(error.starts_with("cannot ") && error.contains("quota"), "{error}");
    }
    failpoint::limit_disk(None);
    assert!(found(&trace).into_iter().eq(0..6));
    (6..40).for_each(|n| record(&mut trace, n));
    trace.seal().unwrap();
    assert!(found(&trace).into_iter().eq(0..40));
    assert_sound(&trace, "with room again");
}
