//! Clocks that jump.

use std::path::PathBuf;
use std::process::Command;

use crate::spool_common::{assert_sound, finish, open, start, start_by};
use crate::{count, rate};

/// The library of Debian's package `libfaketime`.
fn library() -> PathBuf {
    let folders = std::fs::read_dir("/usr/lib").unwrap().filter_map(Result::ok);
    let mut paths = folders.map(|entry| entry.path().join("faketime/libfaketime.so.1"));
    paths.find(|path| path.exists()).unwrap()
}

#[test]
fn a_clock_may_jump_in_both_directions() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    let library = library();
    let count_at = |offset: &str| {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.env("LD_PRELOAD", &library).env("FAKETIME", offset);
        finish(vec![start_by(command, &["count", path, "key"])]);
        rate(&mut open(folder.path()), "key").unwrap()
    };
    let rounded = |rate: f64| (rate * 10.0).round() / 10.0;
    finish(vec![start(&["count", path, "key"])]);
    finish(vec![start(&["count", path, "key"])]);
    assert_eq!(rate(&mut open(folder.path()), "key").map(rounded), Some(2.0));
    // A period later most is forgotten, but one event is never less than one.
    assert_eq!(rounded(count_at("+7d")), 1.4);
    assert_eq!(rounded(count_at("+400d")), 1.0);
    // Back again, it goes on from there as if no time had passed.
    assert_eq!(rounded(count_at("+0d")), 2.0);
    assert_eq!(rounded(count_at("-4000d")), 3.0);
    assert_eq!(rounded(count_at("-3993d")), 1.7);
    let mut spool = open(folder.path());
    assert_eq!(rounded(count(&mut spool, "key").unwrap()), 1.0);
    assert_sound(&mut spool);
}
