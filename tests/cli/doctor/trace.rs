//! The trace store's files, and what is in them.

use std::io::Write as _;
use std::os::unix::fs::{chown, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::{Diagnosis, PrivateExim, exim, set_mode};
use crate::exirate;

/// Records a message that is new, or one from long ago.
fn record(exim: &PrivateExim, arguments: &[&str]) {
    let mut child = exirate()
        .args(["trace", "record", "-", "--spool"])
        .arg(exim.spool())
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(b"Subject: hello\n\nHello all of you.\n").unwrap();
    assert!(child.wait().unwrap().success());
}

/// An Exim with a trace store, and that store.
fn recorded() -> (PrivateExim, PathBuf) {
    let exim = exim();
    record(&exim, &[]);
    let store = exim.spool().join("exirate/trace");
    (exim, store)
}

fn broken_and_fixed(words: &[&str], how: impl FnOnce(&Path)) {
    let (exim, store) = recorded();
    how(&store);
    Diagnosis::of(&exim).fix("problem", words);
    Diagnosis::of(&exim).is_well();
}

#[test]
fn a_good_store_is_well_and_none_is_not_missed() {
    let none = Diagnosis::of(&exim());
    assert!(none.findings.iter().all(|finding| finding["about"] != "The trace store"));
    let (exim, _) = recorded();
    let found = Diagnosis::of(&exim);
    found.is_well();
    assert_eq!(found.texts("note").len(), 1, "there is no daemon");
    found.finding("ok", &["exirate/trace and its files", "no other user can read the key"]);
    found.finding("ok", &["the trace store is sound: 1 message in "]);
    found.finding("ok", &["the latest message was recorded "]);
    found.finding("ok", &["exirate and its files belong to "]);
}

#[test]
fn wrong_owners_and_modes_are_found_and_fixed() {
    broken_and_fixed(
        &["trace/key should have mode 0600", "can search the recorded mail"],
        |store| {
            set_mode(&store.join("key"), 0o640);
        },
    );
    broken_and_fixed(&["1 file in ", "should have mode 0640", "open.log"], |store| {
        set_mode(&store.join("open.log"), 0o666);
    });
    broken_and_fixed(&["trace has mode 0777", "should have mode 0750"], |store| {
        set_mode(store, 0o777);
    });
    broken_and_fixed(&["trace belongs to root:root"], |store| {
        chown(store, Some(0), Some(0)).unwrap();
    });
    broken_and_fixed(&["1 file in ", "trace/key (root:root)"], |store| {
        chown(store.join("key"), Some(0), Some(0)).unwrap();
    });
    broken_and_fixed(&["trace is a symbolic link"], |store| {
        let away = store.with_file_name("away");
        std::fs::rename(store, &away).unwrap();
        symlink(&away, store).unwrap();
        // Or the doctor would have a look at that.
        assert!(Command::new("rm").arg("-r").arg(&away).status().unwrap().success());
    });
}

#[test]
fn damage_and_a_lost_key_are_reported() {
    let (exim, store) = recorded();
    let log = store.join("open.log");
    let sound = std::fs::read(&log).unwrap();
    let mut bytes = sound.clone();
    let at = bytes.len() - 20;
    bytes[at] ^= 1;
    std::fs::write(&log, bytes).unwrap();
    Diagnosis::of(&exim).finding("problem", &["open.log"]);
    std::fs::write(&log, sound).unwrap();
    Diagnosis::of(&exim).is_well();
    std::fs::write(store.join("notes.txt"), "").unwrap();
    Diagnosis::of(&exim).finding("note", &["not exirate's", "notes.txt"]);
    std::fs::remove_file(store.join("key")).unwrap();
    Diagnosis::of(&exim).finding("problem", &["trace/key is missing", "restore it"]);
}
