//! The database's files, and what is in them.

use std::fs::FileTimes;
use std::os::unix::fs::{MetadataExt as _, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

use super::{Diagnosis, broken_and_fixed, exim, set_mode};
use serde_json::Value;

use crate::{stderr, stdout};

/// A shard that is there.
fn shard(database: &Path) -> PathBuf {
    let files = database.read_dir().unwrap().map(|entry| entry.unwrap().path());
    files.into_iter().find(|path| path.extension().is_some_and(|e| e == "shard")).unwrap()
}

#[test]
fn wrong_owners_and_modes_are_found_and_fixed() {
    let exim = exim();
    broken_and_fixed(&exim, &["exirate has mode 0777", "should have mode 0750"], |database| {
        set_mode(database, 0o777);
    });
    broken_and_fixed(&exim, &["exirate has mode 0550", "should have mode 0750"], |database| {
        set_mode(database, 0o550);
    });
    broken_and_fixed(&exim, &["1 file in ", "should have mode 0640"], |database| {
        set_mode(&shard(database), 0o644);
    });
    broken_and_fixed(&exim, &["2 files in ", "should have mode 0640"], |database| {
        set_mode(&shard(database), 0o440);
        set_mode(&database.join("database"), 0o666);
    });
    broken_and_fixed(&exim, &["exirate belongs to root:root", "Debian-exim"], |database| {
        chown(database, Some(0), Some(0)).unwrap();
    });
    broken_and_fixed(&exim, &["1 file in ", "database (root:root)"], |database| {
        chown(database.join("database"), Some(0), Some(0)).unwrap();
    });
    let spool = exim.spool();
    broken_and_fixed(&exim, &["spool belongs to root:root"], |_| {
        chown(&spool, Some(0), Some(0)).unwrap();
    });
    broken_and_fixed(&exim, &["spool has mode 0777", "should have mode 0755"], |_| {
        set_mode(&spool, 0o777);
    });
}

#[test]
fn what_is_no_file_is_quarantined() {
    let exim = exim();
    broken_and_fixed(&exim, &["1 file not regular", "77.shard"], |database| {
        symlink("/etc/passwd", database.join("77.shard")).unwrap();
    });
    broken_and_fixed(&exim, &["1 file not regular", "database"], |database| {
        let path = database.join("database");
        std::fs::remove_file(&path).unwrap();
        assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
    });
    let (database, away) = (exim.spool().join("exirate"), exim.spool().join("away"));
    std::fs::rename(&database, &away).unwrap();
    symlink(&away, &database).unwrap();
    Diagnosis::of(&exim).fix("problem", &["exirate is a symbolic link"]);
    // The daemon still listens in the directory that is away.
    let found = Diagnosis::of(&exim);
    assert!(matches!(found.texts("problem")[..], [why] if why.contains("no daemon listens on ")));
    Diagnosis::of(&exim.with_callers()).is_well();
}

#[test]
fn leftovers_are_counted_and_can_be_removed() {
    let exim = exim();
    let database = exim.spool().join("exirate");
    let owner = database.metadata().unwrap();
    let put = |name: &str, bytes: usize, age: u64| {
        let path = database.join(name);
        std::fs::write(&path, vec![1; bytes]).unwrap();
        set_mode(&path, 0o640);
        chown(&path, Some(owner.uid()), Some(owner.gid())).unwrap();
        let then = SystemTime::now() - Duration::from_secs(age);
        let file = std::fs::File::options().write(true).open(&path).unwrap();
        file.set_times(FileTimes::new().set_modified(then)).unwrap();
    };
    put("00.new", 10, 60); // somebody may be at it
    put("01.new", 10, 7200);
    put("02.shard.damaged-1", 4096, 3 * 86_400);
    put("database.damaged-1", 4096, 60);
    put("notes.txt", 10, 0);
    let found = Diagnosis::of(&exim);
    found.is_well();
    found.finding("note", &["1 file left unfinished by a killed process", "01.new"]);
    found.finding("note", &["2 damaged files quarantined", "8 KiB", "the oldest for 3d"]);
    let strange = found.finding("note", &["not exirate's", "notes.txt"]);
    assert_eq!(strange["fix"].as_array().unwrap().len(), 0, "whose it is, only the owner knows");
    found.fix("note", &["unfinished"]);
    found.fix("note", &["damaged files quarantined"]);
    assert_eq!(Diagnosis::of(&exim).texts("note").len(), 2, "no daemon, and notes.txt");
    assert!(database.join("00.new").exists());
    assert!(!database.join("01.new").exists());
}

#[test]
fn a_damaged_record_is_found_and_not_touched() {
    let exim = exim();
    let path = shard(&exim.spool().join("exirate"));
    let mut bytes = std::fs::read(&path).unwrap();
    let at = bytes.windows(5).position(|window| window == b"1h/pe").unwrap();
    bytes[at] ^= 1;
    std::fs::write(&path, &bytes).unwrap();
    let found = Diagnosis::of(&exim);
    let problems = found.texts("problem");
    assert!(problems[0].contains(path.to_str().unwrap()), "{problems:?}");
    assert!(problems[0].contains("is damaged"), "{problems:?}");
    let repair = found.findings.iter().filter_map(|f| f["fix"][0].as_str());
    assert!(repair.into_iter().any(|m| m.starts_with("exirate repair --spool ")), "{problems:?}");
    assert_eq!(std::fs::read(&path).unwrap(), bytes);
}

#[test]
fn a_held_lock_is_reported_and_is_no_damage() {
    let exim = exim();
    let shard = std::fs::File::open(shard(&exim.spool().join("exirate"))).unwrap();
    fs2::FileExt::lock_exclusive(&shard).unwrap();
    let found = Diagnosis::of(&exim);
    let held = found.finding("problem", &["cannot lock", "for process", "kill"]);
    assert_eq!(held["fix"].as_array().unwrap().len(), 0);
    fs2::FileExt::unlock(&shard).unwrap();
    Diagnosis::of(&exim).is_well();
}

#[test]
fn another_spool_directory_can_be_looked_at() {
    let (exim, other) = (exim(), tempfile::tempdir().unwrap());
    let copied = Command::new("cp").args(["-a"]).arg(exim.spool()).arg(other.path()).status();
    assert!(copied.unwrap().success());
    let spool = other.path().join("spool");
    set_mode(&spool.join("exirate"), 0o777);
    let found = Diagnosis::with(&exim, &["--spool", spool.to_str().unwrap()]);
    found.fix("problem", &["exirate has mode 0777"]);
    Diagnosis::with(&exim, &["--spool", spool.to_str().unwrap()]).is_well();
    std::fs::remove_dir_all(&spool).unwrap();
    let found = Diagnosis::with(&exim, &["--spool", spool.to_str().unwrap()]);
    found.fix("problem", &["the spool directory: No such file"]);
    Diagnosis::with(&exim, &["--spool", spool.to_str().unwrap()]).is_well();
}

#[test]
fn a_user_without_permission_is_advised_to_be_root() {
    use std::os::unix::process::CommandExt as _;
    let exim = exim();
    // A copy where everybody can run it.
    let program = exim.folder().join("exirate");
    kit::copy_program(env!("CARGO_BIN_EXE_exirate"), &program);
    set_mode(&program, 0o755);
    let mut doctor = Command::new(&program);
    doctor.args(["doctor", "--json", "--config"]).arg(exim.config()).uid(65_534).gid(65_534);
    let output = doctor.output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", stdout(&output));
    assert!(stderr(&output).contains("run this as root"), "{}", stderr(&output));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let again = format!("sudo exirate doctor --json --config {}", exim.config().display());
    let findings = report["findings"].as_array().unwrap();
    let asked = findings.iter().filter(|finding| finding["fix"][0] == *again).count();
    assert!(asked >= 2, "{report:#}");
    assert_eq!((&report["problems"], &report["complete"]), (&Value::from(0), &Value::from(false)));
    Diagnosis::of(&exim).is_well();
}
