//! Files and directories that are not what they should be: of another kind, of
//! another user, sparse, replaced or deleted.

use std::fs::{File, Permissions};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::Path;

use crate::common::records::{KEYS, database, directory, files, key, rate, use_all, write};
use crate::common::{assert_sound, event, next_second, open};
use exirate::engine::{Change, FilterChange, State};
use exirate::rate::{Average, Timestamp};
use exirate::spool::{Options, Spool, SpoolError};
use exirate::sys::secure_dir::DirError;

#[test]
fn only_regular_files_are_used() {
    for kind in ["FIFO", "symbolic link", "directory"] {
        for name in ["database", "shard"] {
            let folder = database();
            let path = match name {
                "database" => directory(folder.path()).join(name),
                _ => files(folder.path(), ".shard")[0].clone(),
            };
            let target = folder.path().join("target");
            std::fs::rename(&path, &target).unwrap();
            match kind {
                "FIFO" => {
                    let mode = rustix::fs::Mode::from_raw_mode(0o600);
                    rustix::fs::mkfifoat(rustix::fs::CWD, &path, mode).unwrap();
                }
                "symbolic link" => symlink(&target, &path).unwrap(),
                _ => std::fs::create_dir(&path).unwrap(),
            }
            let result = Spool::open(folder.path(), Options::default()).and_then(|mut spool| {
                (0..KEYS).try_for_each(|n| spool.update(key(n).as_bytes(), None, |_, _| ((), None)))
            });
            let error = result.unwrap_err();
            let expected = format!("{} is a {kind}: it must be a regular file", path.display());
            assert_eq!(error.to_string(), expected);
        }
    }
}

#[test]
fn a_foreign_file_is_quarantined_unchanged() {
    let folder = database();
    let shards = files(folder.path(), ".shard");
    let precious = folder.path().join("precious");
    // A text, a file too short for a header, and a damaged shard of an unknown
    // version.
    let mut later = std::fs::read(&shards[0]).unwrap();
    later[8] = 3;
    let text = "a line of somebody's precious file\n".repeat(300).into_bytes();
    for content in [text, b"short".to_vec(), later] {
        std::fs::write(&precious, &content).unwrap();
        for path in shards.iter().take(3) {
            std::fs::remove_file(path).unwrap();
            std::fs::hard_link(&precious, path).unwrap();
        }
        let mut spool = open(folder.path());
        (0..KEYS).for_each(|n| write(&mut spool, n));
        let incidents = spool.take_incidents();
        assert_eq!(incidents.len(), 3, "{incidents:?}");
        assert_sound(&mut spool);
        assert!(std::fs::read(&precious).unwrap() == content, "it was written to");
        let damaged = files(folder.path(), ".damaged-");
        assert_eq!(damaged.len(), 3);
        for path in damaged {
            let inode = |path: &Path| std::fs::metadata(path).unwrap().ino();
            assert_eq!(inode(&path), inode(&precious));
            std::fs::remove_file(path).unwrap();
        }
    }
}

#[test]
fn processes_that_have_a_damaged_shard_open_switch_to_the_new_one() {
    let folder = database();
    let mut old = open(folder.path());
    (0..KEYS).for_each(|n| assert!(rate(&mut old, n).is_some()));
    let shards = files(folder.path(), ".shard");
    for path in &shards {
        let file = File::options().write(true).open(path).unwrap();
        file.write_all_at(&[9], 40).unwrap();
    }
    let mut spool = open(folder.path());
    (0..KEYS).for_each(|n| write(&mut spool, n));
    for path in files(folder.path(), ".damaged-1") {
        let mut flags = [0; 4];
        File::open(path).unwrap().read_exact_at(&mut flags, 64).unwrap();
        assert_eq!(flags, [1, 0, 0, 0]);
    }
    // At once, and not within the next second.
    (0..KEYS).for_each(|n| write(&mut old, n));
    assert_eq!(old.stats().unwrap().records, u64::from(KEYS));
    drop(spool);
    assert_eq!(use_all(folder.path()), 0);
}

#[test]
fn a_file_of_another_user_is_refused() {
    // Only root can give files to other users.
    assert!(rustix::process::geteuid().is_root(), "this test must be run as root");
    let chown = |path: &Path, user| std::os::unix::fs::chown(path, Some(user), None).unwrap();
    let folder = tempfile::tempdir().unwrap();
    chown(folder.path(), 65_534);
    let mut spool = open(folder.path());
    (0..KEYS).for_each(|n| write(&mut spool, n));
    drop(spool);
    let shard = files(folder.path(), ".shard")[0].clone();
    let use_it = |options| {
        let mut spool = Spool::open(folder.path(), options)?;
        (0..KEYS).try_for_each(|n| spool.update(key(n).as_bytes(), None, |_, _| ((), None)))
    };
    for path in [directory(folder.path()).join("database"), shard.clone()] {
        let before = std::fs::read(&path).unwrap();
        chown(&path, 65_533);
        let error = use_it(Options::default()).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!(
                "{} is not safe: it belongs to user 65533: it should belong to the owner of its \
                 directory, user 65534; remove it, or give it to that user",
                path.display()
            )
        );
        assert!(std::fs::read(&path).unwrap() == before);
        // Those of root and of the directory's owner are accepted.
        for user in [0, 65_534] {
            chown(&path, user);
            use_it(Options::default()).unwrap();
        }
    }
    // Except a hard link to root's file, made by a user who may write to the
    // directory.
    let other = folder.path().join("other");
    std::fs::hard_link(&shard, &other).unwrap();
    use_it(Options::default()).unwrap();
    chown(&shard, 0);
    let error = use_it(Options::default()).unwrap_err().to_string();
    assert!(error.ends_with("it belongs to root and has another name elsewhere: remove it here"));
    std::fs::remove_file(&other).unwrap();
    use_it(Options::default()).unwrap();
    let (mine, log) = (folder.path().join("mine"), directory(folder.path()).join("audit.log"));
    std::fs::write(&mine, "mine").unwrap();
    chown(&mine, 0);
    std::fs::hard_link(&mine, &log).unwrap();
    let mut spool = open(folder.path());
    assert!(
        matches!(spool.log_change("x"), Err(SpoolError::Directory(DirError::Unsafe { path, .. })) if path == log)
    );
    assert_eq!(std::fs::read(&mine).unwrap(), b"mine");
    // A shard of another user is not used to recover the key either.
    std::fs::remove_file(directory(folder.path()).join("database")).unwrap();
    chown(&shard, 65_533);
    let error = Spool::open(folder.path(), Options::default()).unwrap_err();
    assert!(matches!(error, SpoolError::Directory(DirError::Unsafe { path, .. }) if path == shard));
}

/// So the desk sees Exim's spool directory: its unit makes an empty one of root's, with the database in it.
#[test]
fn what_root_put_into_its_own_directory_is_read() {
    let chown = |path: &Path, user| std::os::unix::fs::chown(path, Some(user), Some(user)).unwrap();
    let folder = tempfile::tempdir().unwrap();
    chown(folder.path(), 65_534);
    let mut spool = open(folder.path());
    (0..KEYS).for_each(|n| write(&mut spool, n));
    drop(spool);
    chown(folder.path(), 0);
    std::fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
    let records =
        || Spool::open_existing(folder.path(), Options::default())?.stats().map(|all| all.records);
    assert_eq!(records().unwrap(), u64::from(KEYS));
    // Who counts creates what is missing, and others may have made a directory that they can write to.
    let error = Spool::open(folder.path(), Options::default()).unwrap_err();
    assert!(error.to_string().contains("the owner of the spool directory, user 0"), "{error}");
    std::fs::set_permissions(folder.path(), Permissions::from_mode(0o1777)).unwrap();
    let error = records().unwrap_err();
    assert!(error.to_string().contains("the owner of the spool directory, user 0"), "{error}");
}

#[test]
fn the_directory_must_be_safe() {
    let folder = database();
    let directory = directory(folder.path());
    std::fs::set_permissions(&directory, Permissions::from_mode(0o777)).unwrap();
    let error = Spool::open(folder.path(), Options::default()).unwrap_err();
    assert_eq!(
        error.to_string(),
        format!(
            "{} is not safe: everyone may write to it (mode 0777): it should have mode 0750",
            directory.display()
        )
    );
    std::fs::set_permissions(&directory, Permissions::from_mode(0o750)).unwrap();
    open(folder.path());
    let moved = folder.path().join("moved");
    std::fs::rename(&directory, &moved).unwrap();
    symlink(&moved, &directory).unwrap();
    let error = Spool::open(folder.path(), Options::default()).unwrap_err();
    assert!(error.to_string().ends_with("is a symbolic link: it must be a directory"), "{error}");
    std::fs::remove_file(&directory).unwrap();
    std::fs::write(&directory, "").unwrap();
    let error = Spool::open(folder.path(), Options::default()).unwrap_err();
    assert!(error.to_string().ends_with("is a file: it must be a directory"), "{error}");
}

#[test]
fn modes_are_right_and_reading_creates_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let absent = Spool::open_existing(folder.path(), Options::default()).unwrap_err();
    assert!(matches!(absent, SpoolError::Absent { .. }));
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    let mut spool = open(folder.path());
    write(&mut spool, 1);
    let mode = |path: &Path| std::fs::metadata(path).unwrap().mode() & 0o7777;
    assert_eq!(mode(&directory(folder.path())), 0o750);
    assert!(files(folder.path(), "").iter().all(|path| mode(path) == 0o640));
    assert_eq!(files(folder.path(), "").len(), 2);
    let mut reader = Spool::open_existing(folder.path(), Options::default()).unwrap();
    for n in 0..KEYS {
        let seen = reader.peek(key(n).as_bytes(), None, |r, _| r.is_some()).unwrap();
        assert_eq!(seen, n == 1);
    }
    let refused = reader.update(b"key", None, |_, _| ((), None)).unwrap_err();
    assert!(matches!(refused, SpoolError::ReadOnly { .. }));
    // Opening a database for writing does not create shards in order to read
    // them either.
    assert_eq!(spool.stats().unwrap().records, 1);
    assert_eq!(files(folder.path(), "").len(), 2);
}

/// Copies a file with holes instead of zeros, as `cp --sparse=always`.
fn copy_with_holes(from: &Path, to: &Path) {
    let bytes = std::fs::read(from).unwrap();
    let copy = File::create_new(to).unwrap();
    copy.set_len(bytes.len() as u64).unwrap();
    for (page, offset) in bytes.chunks(4096).zip((0..).step_by(4096)) {
        if page.iter().any(|&byte| byte != 0) {
            copy.write_all_at(page, offset).unwrap();
        }
    }
}

#[test]
fn a_sparse_copy_can_be_read_and_is_filled_by_writing() {
    let folder = tempfile::tempdir().unwrap();
    let average = Average { at: Timestamp { seconds: 7, micros: 0 }, rate: 5.0 };
    let filter = FilterChange::Renew { bytes: 1_000_000, epoch: 3, event: event(7) };
    let change = Change { state: State::new(average, 1.0, 0.0), filter };
    open(folder.path()).update(key(5).as_bytes(), None, |_, _| ((), Some(change))).unwrap();
    let sparse = tempfile::tempdir().unwrap();
    std::fs::create_dir(directory(sparse.path())).unwrap();
    for path in files(folder.path(), "") {
        copy_with_holes(&path, &directory(sparse.path()).join(path.file_name().unwrap()));
    }
    let shard = &files(sparse.path(), ".shard")[0];
    let disk = || std::fs::metadata(shard).unwrap().blocks() * 512;
    assert!(disk() < 100_000, "no holes");
    let mut reader = Spool::open_existing(sparse.path(), Options::default()).unwrap();
    let look = |spool: &mut Spool| spool.peek(key(5).as_bytes(), None, |r, _| r.is_some());
    assert!(look(&mut reader).unwrap());
    assert!(disk() < 100_000, "reading has written");
    // Writing must fail with an error if the disk is full, and not with a
    // signal.
    assert_eq!(rate(&mut open(sparse.path()), 5), Some(5.0));
    assert!(disk() > 1_000_000);
}

#[test]
fn a_shard_deleted_or_replaced_is_noticed() {
    let folder = database();
    let mut spool = open(folder.path());
    (0..KEYS).for_each(|n| assert!(rate(&mut spool, n).is_some()));
    for path in files(folder.path(), ".shard") {
        std::fs::remove_file(path).unwrap();
    }
    // A process checks at most once a second whether a name still belongs to
    // its file.
    next_second();
    (0..KEYS).for_each(|n| assert_eq!(rate(&mut spool, n), None));
    (0..KEYS).for_each(|n| write(&mut spool, n));
    assert_eq!(use_all(folder.path()), 0);
}

#[test]
fn everything_belongs_to_the_owner_of_the_spool_directory() {
    let folder = tempfile::tempdir().unwrap();
    // Only root can change owners, and only root needs to.
    if rustix::process::geteuid().is_root() {
        std::os::unix::fs::chown(folder.path(), Some(65_534), Some(65_533)).unwrap();
    }
    let mut spool = open(folder.path());
    (0..KEYS).for_each(|n| write(&mut spool, n));
    let owner = |path: &Path| {
        let metadata = std::fs::metadata(path).unwrap();
        (metadata.uid(), metadata.gid())
    };
    let expected = owner(folder.path());
    assert_eq!(owner(&directory(folder.path())), expected);
    let paths = files(folder.path(), "");
    assert!(paths.len() > 200);
    assert!(paths.iter().all(|path| owner(path) == expected));
}
