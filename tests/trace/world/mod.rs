//! A hard world for the trace store: disks that are full, few open files, small
//! files, directories that cannot be written to. What cannot be recorded says
//! why, and leaves what there is whole.
//!
//! As root: file systems are mounted, and processes become somebody else.

use std::fs::{File, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use crate::bytes::store;
use crate::bytes::store::{ask, open, path, question, read, record};
use crate::spool_common::mounts::{run, run_apart, tmpfs};
use crate::spool_common::{finish, start, start_by};
use exirate::trace::{Options, Query, TraceStore, trace_directory};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Somebody who is not root.
const SOMEBODY: u32 = 65_534;

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

/// Messages of any age are kept.
fn for_ever(folder: &Path) -> TraceStore {
    let mut trace = open(folder).unwrap();
    trace.set_options(Options { keep: None, ..Options::default() }).unwrap();
    trace
}

/// What is wrong with the store.
fn problems(folder: &Path) -> Vec<String> {
    let mut problems = Vec::new();
    let trace = read(folder).unwrap();
    trace.verify(&mut |_, _| {}, &mut |problem| problems.push(problem.to_string())).unwrap();
    problems
}

/// Fails unless the store is sound, and has these messages and no others.
fn assert_has(folder: &Path, messages: std::ops::Range<u32>) {
    assert_eq!(problems(folder), Vec::<String>::new());
    let trace = read(folder).unwrap();
    let (answers, asked) = ask(&trace, &Query::default());
    assert_eq!(asked.damaged, []);
    let found = answers.into_iter().map(|answer| answer.envelope);
    assert!(found.eq(messages.clone().map(store::envelope)), "{messages:?}");
    for n in messages.step_by(17) {
        let answers = ask(&trace, &question(n)).0;
        assert!(answers.iter().any(|answer| answer.envelope == store::envelope(n)), "{n}");
    }
}

/// Fails unless an error says what, where and why.
fn assert_told(error: &str, folder: &Path, why: &str) {
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
                assert_told(&error.to_string(), &spool, why);
                full += 1;
            }
        }
    }
    assert!(n > 200, "{n}");
    assert_has(&spool, 0..n);
    // A segment has no room either: the log stays what it is.
    if let Err(error) = trace.seal() {
        assert_told(&error.to_string(), &spool, why);
    }
    assert_has(&spool, 0..n);
    run("mount", &["-o", "remount,size=4m", spool.to_str().unwrap()]);
    (n..n + 50).for_each(|n| record(&mut trace, n).unwrap());
    trace.seal().unwrap();
    assert_has(&spool, 0..n + 50);
    // One that cannot be written to at all can be asked.
    drop(trace);
    run("mount", &["-o", "remount,ro", spool.to_str().unwrap()]);
    let error = open(&spool).and_then(|mut trace| record(&mut trace, 9999)).unwrap_err();
    assert_told(&error.to_string(), &spool, "Read-only file system");
    assert_has(&spool, 0..n + 50);
}

/// Sets the soft limit.
fn limit(resource: Resource, current: Option<u64>) {
    let maximum = getrlimit(resource).maximum;
    setrlimit(resource, Rlimit { current: current.or(maximum), maximum }).unwrap();
}

#[test]
fn a_limit_on_file_sizes_is_an_error_and_no_signal() {
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
    assert_told(&error, folder, "File too large");
    assert!(n > 50, "{n}");
    assert_has(folder, 0..n);
    limit(Resource::Fsize, Some(1_000));
    assert_told(&trace.seal().unwrap_err().to_string(), folder, "File too large");
    assert_has(folder, 0..n);
    let error = record(&mut trace, n).unwrap_err().to_string();
    assert_told(&error, folder, "File too large");
    limit(Resource::Fsize, None);
    record(&mut trace, n).unwrap();
    trace.seal().unwrap();
    assert_has(folder, 0..n + 1);
}

#[test]
fn without_a_file_to_open_nothing_is_lost() {
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
    // Who has the log open already may go on.
    let mut next = 200;
    match record(&mut trace, next) {
        Ok(()) => next += 1,
        Err(error) => assert_told(&error.to_string(), folder, why),
    }
    assert!(trace.seal().unwrap_err().to_string().contains(why));
    let error = open(folder).unwrap_err().to_string();
    assert!(error.contains(why) && error.contains(folder.to_str().unwrap()), "{error}");
    // Who asks is told that not all have answered, or that none can.
    let mut answers = 0;
    match trace.query(&Query::default(), &mut |_, _| {}, &mut |_| answers += 1) {
        Ok(asked) => assert!(asked.damaged.iter().any(|one| one.to_string().contains(why))),
        Err(error) => assert_told(&error.to_string(), folder, why),
    }
    drop(others);
    record(&mut trace, next).unwrap();
    assert_has(folder, 0..next + 1);
}

/// Has a worker done by somebody who is not root.
fn as_somebody(role: &str, folder: &Path) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.uid(SOMEBODY).gid(SOMEBODY);
    finish(vec![start_by(command, &[role, folder.to_str().unwrap()])]);
}

/// A store of somebody's, in a directory that everybody may enter.
fn of_somebody(folder: &Path) {
    std::fs::set_permissions(folder, Permissions::from_mode(0o755)).unwrap();
    chown(folder, Some(SOMEBODY), Some(SOMEBODY)).unwrap();
    let mut trace = for_ever(folder);
    (0..10).for_each(|n| record(&mut trace, n).unwrap());
    trace.seal().unwrap();
    (10..15).for_each(|n| record(&mut trace, n).unwrap());
}

#[test]
fn a_directory_that_cannot_be_written_to() {
    let folder = tempfile::tempdir().unwrap();
    of_somebody(folder.path());
    // All that root has made belongs to whom the spool directory belongs.
    for entry in std::fs::read_dir(trace_directory(folder.path())).unwrap() {
        let facts = entry.unwrap().metadata().unwrap();
        assert_eq!(std::os::unix::fs::MetadataExt::uid(&facts), SOMEBODY);
    }
    let directory = trace_directory(folder.path());
    std::fs::set_permissions(&directory, Permissions::from_mode(0o550)).unwrap();
    as_somebody("unwritable", folder.path());
    std::fs::set_permissions(&directory, Permissions::from_mode(0o750)).unwrap();
    assert_has(folder.path(), 0..16);
    as_somebody("unreadable", folder.path());
}

fn unwritable(folder: &Path) {
    let mut trace = open(folder).unwrap();
    // There is a log with room; it is the directory that cannot be changed.
    record(&mut trace, 15).unwrap();
    let error = trace.seal().unwrap_err().to_string();
    assert_told(&error, folder, "Permission denied");
    let [problem] = &problems(folder)[..] else { panic!("{:?}", problems(folder)) };
    assert!(problem.ends_with("it has mode 0550: it should have mode 0750"), "{problem}");
}

/// Of a store that belongs to another user, nothing is told.
fn unreadable(folder: &Path) {
    let aside = folder.join("another");
    std::fs::create_dir(&aside).unwrap();
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
