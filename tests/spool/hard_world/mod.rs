//! The behaviour of the spool database when the system lacks resources. Each
//! result is documented in `docs/when-things-fail.md`, and each text there is
//! compared with the real message.
//!
//! These tests run as root: file systems are mounted in separate namespaces, so
//! that they disappear when the worker ends.

use crate::common;
mod clock;
mod disk;
mod documents;
mod limits;
mod places;
mod processes;

use std::path::Path;

use exirate::spool::{Spool, SpoolError};
use exirate::store::Store as _;

use crate::common::{now, request};

pub(crate) fn worker(arguments: &[String]) {
    let [role, folder, rest @ ..] = arguments else { panic!("{arguments:?}") };
    let folder = Path::new(folder);
    match role.as_str() {
        "full tmpfs" => disk::full_tmpfs(folder),
        "full ext4" => disk::full_ext4(folder),
        "read-only" => disk::read_only(folder),
        "large files" => limits::large_files(folder),
        "open files" => limits::open_files(folder),
        "other_user" => places::as_another_user(folder, &rest[0]),
        "daemon" => places::as_the_daemon(folder),
        "count keys" => places::count_keys(folder),
        "count" => _ = count(&mut common::open(folder), &rest[0]).unwrap(),
        "stop" => processes::stop_while_locked(folder),
        other => panic!("{other}"),
    }
}

/// Counts one event of `key`; returns the rate.
fn count(spool: &mut Spool, key: &str) -> Result<f64, SpoolError> {
    spool.decide_one(&request(key, None).check(), now).map(|decision| decision.rate)
}

/// The remembered rate of `key`.
fn rate(spool: &mut Spool, key: &str) -> Option<f64> {
    spool.peek(request(key, None).check().key, None, |r, _| r.map(|r| r.state.rate())).unwrap()
}
