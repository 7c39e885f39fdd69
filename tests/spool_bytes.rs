//! Hostile and damaged files: no panic, no hang, and what is not damaged stays.
#![allow(clippy::unwrap_used, clippy::panic)]

mod spool_common;

use std::fs::{File, Permissions};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use exirate::rate::{Average, Timestamp};
use exirate::spool::{Options, Spool, SpoolError};
use exirate::store::{Change, FilterChange, Store};
use spool_common::{assert_sound, event, open};

/// Keys in the databases that are damaged here.
const KEYS: u32 = 2_000;

fn key(n: u32) -> String {
    format!("the key of number {n}")
}

fn write(spool: &mut Spool, n: u32) {
    let average = Average { at: Timestamp { seconds: 7, micros: 0 }, rate: f64::from(n) };
    let filter = match n % 4 {
        0 => FilterChange::Renew { bytes: 40, epoch: 3, event: event(n.into()) },
        _ => FilterChange::Keep,
    };
    let change = Change { average, limit: 1.0, over_since: 0, filter };
    spool.update(key(n).as_bytes(), None, |_, _| ((), Some(change))).unwrap();
}

/// The rate of a key, by a check that writes nothing.
fn rate(spool: &mut Spool, n: u32) -> Option<f64> {
    spool.update(key(n).as_bytes(), None, |r, _| (r.map(|r| r.average.rate), None)).unwrap()
}

/// A database with all keys, of two writes each.
fn database() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let mut spool = open(folder.path());
    for n in (0..KEYS).chain(0..KEYS) {
        write(&mut spool, n);
    }
    folder
}

fn directory(folder: &Path) -> PathBuf {
    folder.join("exirate")
}

/// The files there whose names end so, in order.
fn files(folder: &Path, ending: &str) -> Vec<PathBuf> {
    let mut paths: Vec<_> = std::fs::read_dir(directory(folder))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.to_str().unwrap().contains(ending))
        .collect();
    paths.sort();
    paths
}

/// Random numbers, the same in each run.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 33) % end
    }
}

/// Uses every key of a damaged database: each is as it was, or lost; then
/// writes all, after which the database is sound again. Returns the lost.
fn use_all(folder: &Path) -> u32 {
    // Those who only read neither panic nor repair.
    let mut reader = Spool::open_existing(folder, Options::default()).unwrap();
    let _ = reader.verify().unwrap();
    let _ = reader.for_each(|entry| assert!(entry.average.rate < f64::from(KEYS)));
    let mut spool = open(folder);
    let mut lost = 0;
    for n in 0..KEYS {
        match rate(&mut spool, n) {
            Some(rate) => assert_eq!(rate, f64::from(n)),
            None => lost += 1,
        }
    }
    for n in 0..KEYS {
        write(&mut spool, n);
        assert_eq!(rate(&mut spool, n), Some(f64::from(n)));
    }
    for n in 0..KEYS {
        assert_eq!(rate(&mut spool, n), Some(f64::from(n)));
    }
    lost
}

#[test]
fn a_flipped_bit_loses_one_key_at_most() {
    let folder = database();
    let mut random = Random(1);
    let shards = files(folder.path(), ".shard");
    for round in 0..200 {
        let path = &shards[random.below(shards.len() as u64) as usize];
        let file = File::options().read(true).write(true).open(path).unwrap();
        // Half of them in the header and its neighbourhood, half anywhere.
        let length = if round % 2 == 0 { 160 } else { file.metadata().unwrap().len() };
        let (offset, mut byte) = (random.below(length), [0]);
        file.read_exact_at(&mut byte, offset).unwrap();
        byte[0] ^= 1 << random.below(8);
        file.write_all_at(&byte, offset).unwrap();
        let lost = {
            let mut spool = open(folder.path());
            (0..KEYS).filter(|&n| rate(&mut spool, n) != Some(f64::from(n))).collect::<Vec<_>>()
        };
        assert!(lost.len() <= 1, "{lost:?} lost by byte {offset} of {}", path.display());
        let mut spool = open(folder.path());
        for n in lost {
            write(&mut spool, n);
        }
    }
}

#[test]
fn zeroed_and_overwritten_pages_lose_only_what_was_there() {
    let mut random = Random(2);
    for round in 0..36 {
        let folder = database();
        let shards = files(folder.path(), ".shard");
        let path = &shards[random.below(shards.len() as u64) as usize];
        let file = File::options().write(true).open(path).unwrap();
        let length = file.metadata().unwrap().len();
        let sector = random.below(length / 512) * 512;
        let (offset, size) = match round % 3 {
            0 => (sector, 512),
            1 => (sector / 4096 * 4096, 4096),
            _ => (0, length),
        };
        let garbage: Vec<u8> = match round % 4 {
            0 => vec![0; size as usize],
            1 => vec![0xFF; size as usize],
            2 => vec![b'x'; size as usize],
            _ => (0..size).map(|_| random.below(256) as u8).collect(),
        };
        file.write_all_at(&garbage, offset).unwrap();
        let lost = use_all(folder.path());
        // No more than about what one shard holds.
        assert!(lost <= 30, "{lost} lost in round {round}");
    }
}

#[test]
fn a_lost_index_is_made_again_from_the_records() {
    for byte in [0, 0xFF] {
        let folder = database();
        for path in files(folder.path(), ".shard") {
            let file = File::options().write(true).open(path).unwrap();
            file.write_all_at(&[byte; 4096 - 128], 128).unwrap();
        }
        assert_eq!(use_all(folder.path()), 0);
        assert_sound(&mut open(folder.path()));
    }
}

#[test]
fn a_lost_header_is_made_again_and_the_damaged_file_kept() {
    let folder = database();
    let shards = files(folder.path(), ".shard");
    for path in &shards {
        let file = File::options().write(true).open(path).unwrap();
        file.write_all_at(&[0; 128], 0).unwrap();
    }
    let mut spool = open(folder.path());
    assert_eq!((0..KEYS).filter(|&n| rate(&mut spool, n).is_none()).count(), 0);
    let incidents = spool.take_incidents();
    assert_eq!(incidents.len(), 16);
    assert!(incidents[0].contains("had a damaged header and has been rebuilt"), "{incidents:?}");
    assert_eq!(files(folder.path(), ".damaged-1").len(), shards.len());
    assert_sound(&mut spool);
}

#[test]
fn files_cut_short_lose_only_what_was_cut_off() {
    for length in [0, 1, 64, 127, 128, 129, 2000, 4096, 4097, 5000, 8191] {
        let folder = database();
        let shards = files(folder.path(), ".shard");
        // Kept open by a process from before.
        let old = [0, 129, 5000].contains(&length).then(|| {
            let mut old = open(folder.path());
            (0..KEYS).for_each(|n| assert!(rate(&mut old, n).is_some()));
            old
        });
        for path in shards.iter().take(3) {
            File::options().write(true).open(path).unwrap().set_len(length).unwrap();
        }
        let lost = use_all(folder.path());
        assert!(lost <= 60, "{lost} lost at {length}");
        assert_sound(&mut open(folder.path()));
        if let Some(mut old) = old {
            // Its files have been replaced under its hands, which it may notice
            // only in the next second.
            std::thread::sleep(std::time::Duration::from_millis(1_100));
            (0..KEYS).for_each(|n| assert_eq!(rate(&mut old, n), Some(f64::from(n))));
        }
    }
}

#[test]
fn garbage_in_all_files_is_survived() {
    let mut random = Random(3);
    for length in [0, 1, 36, 128, 5000, 100_000] {
        let folder = database();
        for path in files(folder.path(), "") {
            let bytes: Vec<u8> = (0..length).map(|_| random.below(256) as u8).collect();
            std::fs::write(path, bytes).unwrap();
        }
        let mut spool = open(folder.path());
        assert!((0..KEYS).all(|n| rate(&mut spool, n).is_none()));
        (0..KEYS).for_each(|n| write(&mut spool, n));
        assert_sound(&mut spool);
    }
}

#[test]
fn the_file_with_the_key_can_be_lost() {
    let folder = database();
    let path = directory(folder.path()).join("database");
    std::fs::remove_file(&path).unwrap();
    assert_eq!(use_all(folder.path()), 0);
    let bytes = std::fs::read(&path).unwrap();
    for bad in
        [&b""[..], &[0; 36], &bytes[..35], b"something else that is longer than it should be"]
    {
        std::fs::write(&path, bad).unwrap();
        let mut spool = open(folder.path());
        let incidents = spool.take_incidents();
        assert!(incidents[0].contains("damaged and has been rebuilt"), "{incidents:?}");
        assert_eq!(std::fs::read(&path).unwrap(), bytes);
        assert_eq!(rate(&mut spool, 5), Some(5.0));
    }
}

#[test]
fn a_later_version_is_a_clear_error_and_left_alone() {
    let folder = database();
    let mut paths = vec![directory(folder.path()).join("database")];
    paths.extend(files(folder.path(), ".shard"));
    for (path, crc) in paths.iter().zip([32].into_iter().chain(std::iter::repeat(60))) {
        let mut bytes = std::fs::read(path).unwrap();
        bytes[8] = 2;
        let sum = crc32fast::hash(&bytes[..crc]).to_le_bytes();
        bytes[crc..crc + 4].copy_from_slice(&sum);
        std::fs::write(path, &bytes).unwrap();
    }
    let error = Spool::open(folder.path(), Options::default()).unwrap_err();
    assert!(matches!(error, SpoolError::Version { found: 2, known: 1, .. }), "{error}");
    assert_eq!(
        error.to_string(),
        format!(
            "{} was written by a later exirate: its format is version 2, this exirate knows \
             version 1",
            paths[0].display()
        )
    );
    // Neither does it choose another key than that of the files there.
    let database = std::fs::read(&paths[0]).unwrap();
    std::fs::remove_file(&paths[0]).unwrap();
    let error = Spool::open(folder.path(), Options::default()).unwrap_err();
    assert!(matches!(error, SpoolError::Version { found: 2, known: 1, .. }), "{error}");
    assert!(!paths[0].exists());
    // And a shard alone is refused as well.
    let mut old = database;
    old[8] = 1;
    let sum = crc32fast::hash(&old[..32]).to_le_bytes();
    old[32..].copy_from_slice(&sum);
    std::fs::write(&paths[0], &old).unwrap();
    let before = std::fs::read(&paths[1]).unwrap();
    let mut spool = open(folder.path());
    for n in 0..KEYS {
        let error = spool.update(key(n).as_bytes(), None, |_, _| ((), None)).unwrap_err();
        assert!(matches!(error, SpoolError::Version { found: 2, .. }), "{error}");
    }
    assert_eq!(std::fs::read(&paths[1]).unwrap(), before);
}

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
fn a_file_that_is_not_ours_is_moved_aside_as_it_is() {
    let folder = database();
    let shards = files(folder.path(), ".shard");
    let precious = folder.path().join("precious");
    // A text, a file too short for a header, and a damaged shard of a version
    // that is not known here.
    let mut later = std::fs::read(&shards[0]).unwrap();
    later[8] = 2;
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
        let aside = files(folder.path(), ".damaged-");
        assert_eq!(aside.len(), 3);
        for path in aside {
            let inode = |path: &Path| std::fs::metadata(path).unwrap().ino();
            assert_eq!(inode(&path), inode(&precious));
            std::fs::remove_file(path).unwrap();
        }
    }
}

#[test]
fn a_damaged_shard_of_ours_sends_those_who_have_it_open_to_the_new_one() {
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
    // At once, and not in the next second.
    (0..KEYS).for_each(|n| write(&mut old, n));
    assert_eq!(old.sizes().unwrap().records, u64::from(KEYS));
    drop(spool);
    assert_eq!(use_all(folder.path()), 0);
}

#[test]
fn a_strangers_file_is_refused() {
    // Only root can give files to strangers, or come upon such.
    if !rustix::process::geteuid().is_root() {
        return;
    }
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
        // Those of root and of the directory's owner are fine.
        for user in [0, 65_534] {
            chown(&path, user);
            use_it(Options::default()).unwrap();
        }
    }
    // Nor does a stranger's shard tell the key.
    std::fs::remove_file(directory(folder.path()).join("database")).unwrap();
    chown(&shard, 65_533);
    let error = Spool::open(folder.path(), Options::default()).unwrap_err();
    assert!(matches!(error, SpoolError::Unsafe { path, .. } if path == shard));
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
fn modes_are_right_and_reading_makes_nothing() {
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
    // A database open for writing makes no shards to look at them, either.
    assert_eq!(spool.sizes().unwrap().records, 1);
    assert_eq!(files(folder.path(), "").len(), 2);
}

/// Copies a file and leaves holes where it has zeros, as `cp --sparse=always`.
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
    let change = Change { average, limit: 1.0, over_since: 0, filter };
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
    // Who writes wants an error where disk is short, and no signal.
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
    // It looks at most once a second whether a name is still that of its file.
    std::thread::sleep(std::time::Duration::from_millis(2_100));
    (0..KEYS).for_each(|n| assert_eq!(rate(&mut spool, n), None));
    (0..KEYS).for_each(|n| write(&mut spool, n));
    assert_eq!(use_all(folder.path()), 0);
}

#[test]
fn everything_belongs_to_the_owner_of_the_spool_directory() {
    let folder = tempfile::tempdir().unwrap();
    // Only root can give it to somebody else, and only root needs to.
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
