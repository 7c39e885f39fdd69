//! File systems that are not fit, or have no room.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::{Diagnosis, exim};
use kit::PrivateExim;

/// A file system in memory, as long as this lives.
pub(super) struct Mounted(PathBuf);

impl Mounted {
    /// Mounts one at `place`, which is made where it is not there.
    pub(super) fn tmpfs(place: &Path, options: &str) -> Self {
        std::fs::create_dir_all(place).unwrap();
        mount(&["-t", "tmpfs", "-o", options, "exirate-test", place.to_str().unwrap()]);
        Self(place.to_owned())
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

fn mount(arguments: &[&str]) {
    let output = Command::new("mount").args(arguments).output().unwrap();
    assert!(output.status.success(), "mount {arguments:?}: {output:?}");
}

/// An Exim whose spool is on a file system of its own, which has to go first; no daemon uses it yet.
fn elsewhere(options: &str) -> (PrivateExim, Mounted) {
    let exim = exim();
    let (spool, old) = (exim.spool(), exim.folder().join("old"));
    std::fs::rename(&spool, &old).unwrap();
    let mounted = Mounted::tmpfs(&spool, options);
    let copy = |from: &str, to: &str| {
        let output = Command::new("cp").args(["-aT", from, to]).output().unwrap();
        assert!(output.status.success(), "{output:?}");
    };
    copy(old.to_str().unwrap(), spool.to_str().unwrap());
    (exim, mounted)
}

#[test]
fn a_file_system_in_memory_is_noted() {
    let (exim, _mounted) = elsewhere("size=64m");
    let found = Diagnosis::of(&exim.with_callers());
    found.is_well();
    found.finding("note", &["is on tmpfs", "all rates are lost"]);
    found.finding("warning", &["free on the file system of", "may grow by 1 GiB"]);
    found.finding("ok", &["locks and shared mappings work", "(tmpfs)"]);
}

#[test]
fn a_full_file_system_is_a_problem() {
    let (exim, _mounted) = elsewhere("size=24m");
    let filler = exim.spool().join("filler");
    let output = Command::new("dd")
        .args(["if=/dev/zero", "bs=64k", &format!("of={}", filler.display())])
        .output()
        .unwrap();
    assert!(!output.status.success(), "it should have been filled up: {output:?}");
    let found = Diagnosis::of(&exim);
    found.finding("problem", &["0 B free", "free some space"]);
    found.finding("problem", &["cannot write in", "No space left", "free some space"]);
    std::fs::remove_file(filler).unwrap();
    Diagnosis::of(&exim.with_callers()).is_well();
}

#[test]
fn a_file_system_without_inodes_is_a_problem() {
    let (exim, _mounted) = elsewhere("size=64m,nr_inodes=40");
    Diagnosis::of(&exim).finding("problem", &["free inodes", "may need 264"]);
    mount(&["-o", "remount,nr_inodes=1000", exim.spool().to_str().unwrap()]);
    Diagnosis::of(&exim.with_callers()).is_well();
}

#[test]
fn a_file_system_that_is_read_only_is_a_problem() {
    let (exim, _mounted) = elsewhere("size=64m");
    let spool = exim.spool();
    mount(&["-o", "remount,ro", spool.to_str().unwrap()]);
    Diagnosis::of(&exim).finding("problem", &["mounted read-only"]);
    mount(&["-o", "remount,rw", spool.to_str().unwrap()]);
    Diagnosis::of(&exim.with_callers()).is_well();
}
