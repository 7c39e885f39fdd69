//! Full disks and read-only file systems.

use std::io::Write;
use std::path::Path;

use exirate::spool::{Options, Spool};

use super::documents::assert_documented;
use super::{count, rate};
use crate::common::{assert_sound, open};
use kit::mounts::{ext4, run, run_apart, tmpfs};

#[test]
fn a_full_tmpfs_loses_nothing() {
    let folder = tempfile::tempdir().unwrap();
    run_apart(&["hard_world", "full tmpfs", folder.path().to_str().unwrap()]);
}

#[test]
fn a_full_ext4_loses_nothing() {
    let folder = tempfile::tempdir().unwrap();
    run_apart(&["hard_world", "full ext4", folder.path().to_str().unwrap()]);
}

#[test]
fn a_read_only_file_system_can_be_read() {
    let folder = tempfile::tempdir().unwrap();
    run_apart(&["hard_world", "read-only", folder.path().to_str().unwrap()]);
}

pub(crate) fn full_tmpfs(folder: &Path) {
    let spool = tmpfs(folder, 1024);
    fill_up(&spool, || run("mount", &["-o", "remount,size=64m", spool.to_str().unwrap()]));
}

pub(crate) fn full_ext4(folder: &Path) {
    let spool = ext4(folder, 16 * 1024);
    let ballast = spool.join("ballast");
    std::fs::write(&ballast, vec![1; 8 * 1024 * 1024]).unwrap();
    fill_up(&spool, || std::fs::remove_file(&ballast).unwrap());
}

/// Fills the file system.
fn take_all(path: &Path) {
    let mut file = std::fs::File::create_new(path).unwrap();
    for size in [65_536, 1024, 1] {
        while file.write_all(&vec![1; size]).and_then(|()| file.sync_data()).is_ok() {}
    }
}

/// Fills a small file system with keys until there is no room left, and then
/// makes room again.
fn fill_up(folder: &Path, make_room: impl FnOnce()) {
    // Full from the beginning.
    let rest = folder.join("rest");
    take_all(&rest);
    match Spool::open(folder, Options::default()) {
        Ok(mut spool) => {
            assert_documented(&count(&mut spool, "key").unwrap_err().to_string(), folder, &[]);
        }
        Err(error) => assert_documented(&error.to_string(), folder, &[]),
    }
    std::fs::remove_file(&rest).unwrap();

    let mut spool = open(folder);
    let (mut written, mut full) = (Vec::new(), 0);
    for n in 0..100_000 {
        let key = n.to_string();
        match count(&mut spool, &key) {
            Ok(_) => written.push(key),
            Err(error) => {
                assert_documented(&error.to_string(), folder, &[]);
                full += 1;
            }
        }
        if full > 3_000 {
            break;
        }
    }
    assert!(full > 3_000 && written.len() > 100, "{} written, {full} not", written.len());
    take_all(&rest);
    // Existing keys are still counted, also by new processes.
    let mut spool = open(folder);
    for key in &written {
        let rate = count(&mut spool, key).unwrap();
        assert!((1.9..=2.0).contains(&rate), "{rate}");
    }
    assert_sound(&mut spool);
    make_room();
    for n in 0..10_000 {
        count(&mut spool, &format!("later {n}")).unwrap();
    }
    for key in &written {
        assert!(rate(&mut spool, key).unwrap() > 1.9);
    }
    assert_sound(&mut spool);
}

pub(crate) fn read_only(folder: &Path) {
    let spool = tmpfs(folder, 8 * 1024);
    let path = spool.to_str().unwrap();
    run("mount", &["-o", "remount,ro", path]);
    let error = Spool::open(&spool, Options::default()).unwrap_err();
    assert_documented(&error.to_string(), &spool, &[]);
    run("mount", &["-o", "remount,rw", path]);
    count(&mut open(&spool), "key").unwrap();
    run("mount", &["-o", "remount,ro", path]);
    let mut spool_database = open(&spool);
    for key in ["key", "another"] {
        let error = count(&mut spool_database, key).unwrap_err();
        assert_documented(&error.to_string(), &spool, &[]);
    }
    let mut reader = Spool::open_existing(&spool, Options::default()).unwrap();
    assert_eq!(rate(&mut reader, "key"), Some(1.0));
    assert_sound(&mut reader);
    run("mount", &["-o", "remount,rw", path]);
    assert!(count(&mut spool_database, "key").unwrap() > 1.9);
}
