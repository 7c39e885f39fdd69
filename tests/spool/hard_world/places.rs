//! Files and directories that are missing, or that others may not use.

use std::fs::Permissions;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use exirate::spool::{Options, Spool};

use super::documents::assert_documented;
use super::{count, rate};
use crate::common::records::directory;
use crate::common::shards::Shards;
use crate::common::{assert_sound, open, request};
use kit::copy_program;
use kit::worker::{finish, start_by};

/// Exim's user, in these tests: `nobody`.
pub(crate) const DAEMON: u32 = 65_534;

/// Starts a worker as another user. That user may not be able to reach the test
/// binary, so it is copied to `folder`.
pub(crate) fn start_as(user: u32, folder: &Path, arguments: &[&str]) -> Child {
    let program = folder.join("program");
    copy_program(std::env::current_exe().unwrap(), &program);
    set_mode(&program, 0o755);
    set_mode(folder, 0o755);
    let mut command = Command::new(program);
    command.uid(user).gid(user).current_dir(folder);
    start_by(command, arguments)
}

fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

/// A folder with a spool directory that belongs to the daemon.
fn spool_of_daemon() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let spool = folder.path().join("spool");
    std::fs::create_dir(&spool).unwrap();
    chown(&spool, Some(DAEMON), Some(DAEMON)).unwrap();
    (folder, spool)
}

#[test]
fn a_missing_spool_directory_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let spool = folder.path().join("spool");
    for error in [
        Spool::open(&spool, Options::default()).unwrap_err(),
        Spool::open_existing(&spool, Options::default()).unwrap_err(),
    ] {
        assert_documented(&error.to_string(), &spool, &[]);
    }
    std::fs::create_dir(&spool).unwrap();
    let error = Spool::open_existing(&spool, Options::default()).unwrap_err();
    assert_documented(&error.to_string(), &spool, &[]);
}

#[test]
fn missing_permissions_are_an_error() {
    let (folder, spool) = spool_of_daemon();
    count(&mut open(&spool), "key").unwrap();
    let shard = Shards::of(&spool).of_key("key");
    let shard = directory(&spool).join(format!("{shard:02x}.shard"));
    let try_it = |what: &str| {
        let arguments = ["hard_world", "other_user", spool.to_str().unwrap(), what];
        finish(vec![start_as(DAEMON, folder.path(), &arguments)]);
    };
    // Each as created by root, without permissions for others.
    for (path, what) in [
        (&shard, "shard"),
        (&directory(&spool).join("database"), "database"),
        (&directory(&spool), "directory"),
        (&spool, "spool"),
    ] {
        let (owner, mode) = (std::fs::metadata(path).unwrap().uid(), 0o750);
        chown(path, Some(0), Some(0)).unwrap();
        set_mode(path, 0o700);
        try_it(what);
        chown(path, Some(owner), Some(owner)).unwrap();
        set_mode(path, mode);
    }
    // A spool directory in which the daemon may create nothing.
    std::fs::remove_dir_all(directory(&spool)).unwrap();
    chown(&spool, Some(0), Some(0)).unwrap();
    set_mode(&spool, 0o755);
    try_it("create");
    set_mode(&spool, 0o777);
    finish(vec![start_as(
        DAEMON,
        folder.path(),
        &["hard_world", "daemon", spool.to_str().unwrap()],
    )]);
}

/// Uses a database without permission; prints the error.
pub(crate) fn as_another_user(spool: &Path, what: &str) {
    let error = Spool::open(spool, Options::default())
        .and_then(|mut database| count(&mut database, "key"))
        .unwrap_err();
    let text = error.to_string();
    assert!(text.contains("Permission denied"), "{text}");
    let name = match what {
        "shard" => ".shard:",
        "database" => "/exirate/database:",
        "directory" | "create" => "/exirate:",
        _ => "/spool",
    };
    assert!(text.contains(name), "{text}");
    assert_documented(&text, spool, &[]);
}

#[test]
fn a_directory_of_another_user_is_refused() {
    let (_folder, spool) = spool_of_daemon();
    count(&mut open(&spool), "key").unwrap();
    chown(directory(&spool), Some(4321), None).unwrap();
    let error = Spool::open(&spool, Options::default()).unwrap_err();
    assert_documented(&error.to_string(), &spool, &[("USER", "4321"), ("OWNER", "65534")]);
    chown(directory(&spool), Some(DAEMON), None).unwrap();
    count(&mut open(&spool), "key").unwrap();
}

#[test]
fn the_daemon_can_use_files_created_by_root() {
    let (folder, spool) = spool_of_daemon();
    let mut database = open(&spool);
    for n in 0..1_000 {
        count(&mut database, &n.to_string()).unwrap();
    }
    // And a file that root had not given away yet when it was killed.
    for number in [3, 4, 5] {
        let path = directory(&spool).join(format!("{number:02x}.new"));
        std::fs::write(&path, "begun").unwrap();
        set_mode(&path, 0o600);
    }
    finish(vec![start_as(
        DAEMON,
        folder.path(),
        &["hard_world", "daemon", spool.to_str().unwrap()],
    )]);
    for entry in std::fs::read_dir(directory(&spool)).unwrap() {
        let entry = entry.unwrap();
        assert_eq!(entry.metadata().unwrap().uid(), DAEMON, "{:?}", entry.path());
        let name = entry.file_name().into_string().unwrap();
        assert!(name == "database" || name.ends_with(".shard"), "{name}");
    }
    for n in 0..1_000 {
        assert!(rate(&mut database, &n.to_string()).unwrap() > 1.9);
    }
    assert_sound(&mut database);
}

/// Counts an event for keys in all shards.
pub(crate) fn count_keys(spool: &Path) {
    let mut database = open(spool);
    for n in 0..1_000 {
        assert!(count(&mut database, &n.to_string()).unwrap() > 1.9);
    }
}

/// The number of keys per shard, on average, with which every shard has been
/// rebuilt. A shard is rebuilt at 390 keys, and the probability that one has
/// fewer is 10^-19. (With 450, one database in 600 had such a shard among
/// three.)
const KEYS_A_SHARD: u32 = 600;

/// Uses a database until every shard is rebuilt.
pub(crate) fn as_the_daemon(spool: &Path) {
    let mut database = open(spool);
    for n in 0..256 * KEYS_A_SHARD {
        count(&mut database, &n.to_string()).unwrap();
    }
    assert_sound(&mut database);
    assert!(database.stats().unwrap().rebuilds > 256);
}

#[test]
fn a_killed_command_of_root_leaves_no_file_that_the_daemon_cannot_use() {
    let (folder, spool) = spool_of_daemon();
    let mut database = open(&spool);
    for n in 0..1_000 {
        count(&mut database, &n.to_string()).unwrap();
    }
    drop(database);
    let program = env!("CARGO_BIN_EXE_exirate");
    let arguments = ["repair", "--spool", spool.to_str().unwrap()];
    for call in ["fchown", "fchmod", "linkat", "fallocate", "rename"] {
        // Each of the calls is made by root, and it is killed at the second of
        // them.
        let status = Command::new("strace")
            .args(["-f", "-qq", "-o", "/dev/null", "-e", &format!("trace=/{call}")])
            .args(["-e", &format!("inject=/{call}:signal=KILL:when=2"), program])
            .args(arguments)
            .stdout(Stdio::null())
            .status()
            .unwrap();
        assert_eq!(status.signal(), Some(9), "{call}: {status}");
        let status = Command::new(program).args(arguments).stdout(Stdio::null()).status().unwrap();
        // 1: there was something to repair, and then there is nothing any more.
        assert!(matches!(status.code(), Some(0 | 1)), "{call}: {status}");
        let status = Command::new(program).args(arguments).stdout(Stdio::null()).status().unwrap();
        assert!(status.success(), "{call}: {status}");
        for entry in std::fs::read_dir(directory(&spool)).unwrap() {
            let entry = entry.unwrap();
            assert_eq!(entry.metadata().unwrap().uid(), DAEMON, "{call}: {:?}", entry.path());
        }
    }
    finish(vec![start_as(
        DAEMON,
        folder.path(),
        &["hard_world", "count keys", spool.to_str().unwrap()],
    )]);
}

#[test]
fn anything_with_a_temporary_name_is_replaced_unless_it_is_a_directory() {
    for kind in ["FIFO", "symbolic link", "file of another user", "directory"] {
        let folder = tempfile::tempdir().unwrap();
        let mut spool = open(folder.path());
        let number = Shards::of(folder.path()).of_key("key");
        let path = directory(folder.path()).join(format!("{number:02x}.new"));
        let precious = folder.path().join("precious");
        std::fs::write(&precious, "precious").unwrap();
        match kind {
            "FIFO" => {
                let mode = rustix::fs::Mode::from_raw_mode(0o600);
                rustix::fs::mkfifoat(rustix::fs::CWD, &path, mode).unwrap();
            }
            "symbolic link" => symlink(&precious, &path).unwrap(),
            "directory" => std::fs::create_dir(&path).unwrap(),
            _ => {
                chown(&precious, Some(4321), None).unwrap();
                std::fs::hard_link(&precious, &path).unwrap();
            }
        }
        assert_eq!(request("key", None).key, b"1w/per_rcpt/key");
        let counted = count(&mut spool, "key");
        if kind == "directory" {
            assert_documented(&counted.unwrap_err().to_string(), folder.path(), &[]);
            std::fs::remove_dir(&path).unwrap();
        }
        count(&mut spool, "key").unwrap();
        assert!(!path.exists());
        assert_eq!(std::fs::read(&precious).unwrap(), b"precious");
    }
}
