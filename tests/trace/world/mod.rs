//! The trace store on full disks, with few open files, with a limit on file
//! sizes, and in directories without write permission. Recording fails with the
//! reason, and leaves the store sound.
//!
//! These tests run as root: they mount file systems and start processes as
//! other users.

use std::fs::{File, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use crate::bytes::store;
use crate::bytes::store::{ask, open, path, question, read, record};
use exirate::trace::{Options, Query, TraceStore, trace_directory};
use kit::mounts::{run, run_apart, tmpfs};
use kit::worker::{finish, start, start_by};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// A user other than root.
const OTHER_USER: u32 = 65_534;

pub(crate) fn worker(arguments: &[String]) {
    let [role, folder] = arguments else { panic!("{arguments:?}") };
    let folder = Path::new(folder);
    match role.as_str() {
        "full disk" => full_disk(folder),
        "small files" => small_files(folder),
        "few files" => few_files(folder),
        "unwritable" => unwritable(folder),
        "unreadable" => unreadable(folder),
        other => panic!("{other}"),
    }
}

/// A store that keeps messages of any age.
fn for_ever(folder: &Path) -> TraceStore {
    let mut trace = open(folder).unwrap();
    trace.set_options(Options { keep: None, ..Options::default() }).unwrap();
    trace
}

/// The problems of the store.
fn problems(folder: &Path) -> Vec<String> {
    let mut problems = Vec::new();
    let trace = read(folder).unwrap();
    trace.verify(&mut |_, _| {}, &mut |problem| problems.push(problem.to_string())).unwrap();
    problems
}

/// Asserts that the store is sound, and has exactly these messages.
fn assert_has(folder: &Path, messages: std::ops::Range<u32>) {
    assert_eq!(problems(folder), Vec::<String>::new());
    let trace = read(folder).unwrap();
    let (results, summary) = ask(&trace, &Query::default());
    assert_eq!(summary.damaged, []);
    let found = results.into_iter().map(|result| result.envelope);
    assert!(found.eq(messages.clone().map(store::envelope)), "{messages:?}");
    for n in messages.step_by(17) {
        let results = ask(&trace, &question(n)).0;
        assert!(results.iter().any(|result| result.envelope == store::envelope(n)), "{n}");
    }
}

/// Asserts that an error says what failed, where and why.
fn assert_explained(error: &str, folder: &Path, why: &str) {
    let place = folder.join("exirate");
    assert!(error.starts_with("cannot "), "{error}");
    assert!(error.contains(place.to_str().unwrap()) && error.contains(why), "{error}");
}

#[test]
fn a_full_disk_loses_nothing() {
    let folder = tempfile::tempdir().unwrap();
    run_apart(&["full disk", folder.path().to_str().unwrap()]);
}

fn full_disk(folder: &Path) {
    let spool = tmpfs(folder, 256);
    let mut trace = for_ever(&spool);
    let why = "No space left on device";
    let (mut n, mut full) = (0, 0);
    while full < 50 {
        match record(&mut trace, n) {
            Ok(()) => n += 1,
            Err(error) => {
                assert_explained(&error.to_string(), &spool, why);
                full += 1;
            }
        }
    }
    assert!(n > 200, "{n}");
    assert_has(&spool, 0..n);
    // There is no room for a segment either: the log does not change.
    if let Err(error) = trace.seal() {
        assert_explained(&error.to_string(), &spool, why);
    }
    assert_has(&spool, 0..n);
    run("mount", &["-o", "remount,size=4m", spool.to_str().unwrap()]);
    (n..n + 50).for_each(|n| record(&mut trace, n).unwrap());
    trace.seal().unwrap();
    assert_has(&spool, 0..n + 50);
    // A read-only store can be queried.
    drop(trace);
    run("mount", &["-o", "remount,ro", spool.to_str().unwrap()]);
    let error = open(&spool).and_then(|mut trace| record(&mut trace, 9999)).unwrap_err();
    assert_explained(&error.to_string(), &spool, "Read-only file system");
    assert_has(&spool, 0..n + 50);
}

/// Sets the soft limit.
fn limit(resource: Resource, current: Option<u64>) {
    let maximum = getrlimit(resource).maximum;
    setrlimit(resource, Rlimit { current: current.or(maximum), maximum }).unwrap();
}

#[test]
fn a_limit_on_file_sizes_is_an_error_and_not_a_signal() {
    let folder = tempfile::tempdir().unwrap();
    finish(vec![start(&["small files", folder.path().to_str().unwrap()])]);
}

fn small_files(folder: &Path) {
    let mut trace = for_ever(folder);
    limit(Resource::Fsize, Some(20_000));
    let mut n = 0;
    let error = loop {
        match record(&mut trace, n) {
            Ok(()) => n += 1,
            Err(error) => break error.to_string(),
        }
    };
    assert_explained(&error, folder, "File too large");
    assert!(n > 50, "{n}");
    assert_has(folder, 0..n);
    limit(Resource::Fsize, Some(1_000));
    assert_explained(&trace.seal().unwrap_err().to_string(), folder, "File too large");
    assert_has(folder, 0..n);
    let error = record(&mut trace, n).unwrap_err().to_string();
    assert_explained(&error, folder, "File too large");
    limit(Resource::Fsize, None);
    record(&mut trace, n).unwrap();
    trace.seal().unwrap();
    assert_has(folder, 0..n + 1);
}

#[test]
fn without_free_file_descriptors_nothing_is_lost() {
    let folder = tempfile::tempdir().unwrap();
    finish(vec![start(&["few files", folder.path().to_str().unwrap()])]);
}

fn few_files(folder: &Path) {
    let mut trace = for_ever(folder);
    for n in 0..200 {
        record(&mut trace, n).unwrap();
        if n % 3 == 0 {
            trace.seal().unwrap();
        }
    }
    // Fewer than there are segments.
    limit(Resource::Nofile, Some(24));
    assert_has(folder, 0..200);
    let null = || File::open("/dev/null");
    let others: Vec<_> = std::iter::from_fn(|| null().ok()).collect();
    let why = "Too many open files";
    // A process that has the log open may continue.
    let mut next = 200;
    match record(&mut trace, next) {
        Ok(()) => next += 1,
        Err(error) => assert_explained(&error.to_string(), folder, why),
    }
    assert!(trace.seal().unwrap_err().to_string().contains(why));
    let error = open(folder).unwrap_err().to_string();
    assert!(error.contains(why) && error.contains(folder.to_str().unwrap()), "{error}");
    // A query reports that not all files were searched, or fails.
    let mut results = 0;
    match trace.query(&Query::default(), &mut |_, _| {}, &mut |_| results += 1) {
        Ok(summary) => assert!(summary.damaged.iter().any(|one| one.to_string().contains(why))),
        Err(error) => assert_explained(&error.to_string(), folder, why),
    }
    drop(others);
    record(&mut trace, next).unwrap();
    assert_has(folder, 0..next + 1);
}

/// Runs a worker as a user other than root.
fn as_other_user(role: &str, folder: &Path) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.uid(OTHER_USER).gid(OTHER_USER);
    finish(vec![start_by(command, &[role, folder.to_str().unwrap()])]);
}

/// A store of another user, in a directory that everyone may enter.
fn of_other_user(folder: &Path) {
    std::fs::set_permissions(folder, Permissions::from_mode(0o755)).unwrap();
    chown(folder, Some(OTHER_USER), Some(OTHER_USER)).unwrap();
    let mut trace = for_ever(folder);
    (0..10).for_each(|n| record(&mut trace, n).unwrap());
    trace.seal().unwrap();
    (10..15).for_each(|n| record(&mut trace, n).unwrap());
}

#[test]
fn a_directory_without_write_permission() {
    let folder = tempfile::tempdir().unwrap();
    of_other_user(folder.path());
    // Everything created by root belongs to the owner of the spool directory.
    for entry in std::fs::read_dir(trace_directory(folder.path())).unwrap() {
        let facts = entry.unwrap().metadata().unwrap();
        assert_eq!(std::os::unix::fs::MetadataExt::uid(&facts), OTHER_USER);
    }
    let directory = trace_directory(folder.path());
    std::fs::set_permissions(&directory, Permissions::from_mode(0o550)).unwrap();
    as_other_user("unwritable", folder.path());
    std::fs::set_permissions(&directory, Permissions::from_mode(0o750)).unwrap();
    assert_has(folder.path(), 0..16);
    as_other_user("unreadable", folder.path());
}

fn unwritable(folder: &Path) {
    let mut trace = open(folder).unwrap();
    // There is a log with room; only the directory is not writable.
    record(&mut trace, 15).unwrap();
    let error = trace.seal().unwrap_err().to_string();
    assert_explained(&error, folder, "Permission denied");
    let [problem] = &problems(folder)[..] else { panic!("{:?}", problems(folder)) };
    assert!(problem.ends_with("it has mode 0550: it should have mode 0750"), "{problem}");
}

/// A store of another user cannot be read.
fn unreadable(folder: &Path) {
    let other = folder.join("another");
    std::fs::create_dir(&other).unwrap();
    for error in [read(Path::new("/root")), open(Path::new("/root"))] {
        let error = error.unwrap_err().to_string();
        assert!(error.contains("/root"), "{error}");
    }
    let key = path(folder, "key");
    std::fs::set_permissions(&key, Permissions::from_mode(0o000)).unwrap();
    for error in [read(folder), open(folder)] {
        let error = error.unwrap_err().to_string();
        assert!(error.contains(key.to_str().unwrap()), "{error}");
        assert!(error.contains("Permission denied"), "{error}");
    }
}
