//! Shared by the tests of the spool database.

pub(crate) mod crafted;
pub(crate) mod records;
pub(crate) mod shards;

use std::path::Path;

use exirate::rate::Timestamp;
use exirate::rate::bloom::Event;
use exirate::spec::{Mode, Scope, SpecRequest, Update};
use exirate::spool::{Options, Spool};
use exirate::sys::clock;

pub(crate) fn open(folder: &Path) -> Spool {
    Spool::open(folder, Options::default()).unwrap()
}

/// Waits until the second of the clock ends by which a process looks whether a file has been
/// replaced.
pub(crate) fn next_second() {
    let second = clock::coarse_seconds();
    while clock::coarse_seconds() == second {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

pub(crate) fn now() -> Timestamp {
    let (seconds, micros) = clock::now();
    Timestamp { seconds, micros }
}

/// A strict check of `key` with a period of a week. With a unique event, `key`
/// begins with `unique/`, as in a stored key.
pub(crate) fn request(key: &str, unique: Option<String>) -> SpecRequest {
    let prefix = if unique.is_some() { "1w/per_rcpt/unique/" } else { "1w/per_rcpt/" };
    SpecRequest {
        key: format!("1w/per_rcpt/{key}").into_bytes(),
        key_start: prefix.len(),
        limit: 100_000.0,
        period: 7.0 * 24.0 * 3600.0,
        mode: Mode::PerAddr,
        update: Update::Strict,
        count: 1.0,
        unique: unique.map(String::into_bytes),
        scope: Scope::Command,
    }
}

/// A different event for each number.
pub(crate) fn event(number: u64) -> Event {
    Event(u128::from(number).wrapping_mul(0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C835))
}

/// Panics with all problems of the database, if there are any.
pub(crate) fn assert_sound(spool: &mut Spool) {
    let report = spool.verify().unwrap();
    let problems: Vec<_> = report.problems().collect();
    assert!(problems.is_empty(), "{problems:#?}");
}
