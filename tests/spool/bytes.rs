//! Damaged and hostile bytes: no panic, no hang, and undamaged records stay.

use std::fs::File;
use std::os::unix::fs::FileExt;

use crate::common::records::{KEYS, database, directory, files, key, rate, use_all, write};
use crate::common::{assert_sound, next_second, open};
use exirate::spool::{Options, Spool, SpoolError};
use exirate::versions::{OtherVersion, Versions};
use kit::Random;

/// The version after that of this exirate.
const LATER: OtherVersion = OtherVersion { found: 3, known: Versions::only(2) };

#[test]
fn a_flipped_bit_loses_at_most_one_key() {
    let folder = database();
    let mut random = Random::new(1);
    let shards = files(folder.path(), ".shard");
    for round in 0..200 {
        let path = &shards[random.below(shards.len())];
        let file = File::options().read(true).write(true).open(path).unwrap();
        // Half of them in or near the header, half anywhere.
        let length = if round % 2 == 0 { 160 } else { file.metadata().unwrap().len() };
        let (offset, mut byte) = (random.below(length as usize) as u64, [0]);
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
fn zeroed_and_overwritten_pages_lose_only_their_records() {
    let mut random = Random::new(2);
    for round in 0..36 {
        let folder = database();
        let shards = files(folder.path(), ".shard");
        let path = &shards[random.below(shards.len())];
        let file = File::options().write(true).open(path).unwrap();
        let length = file.metadata().unwrap().len();
        let sector = random.below(length as usize / 512) as u64 * 512;
        let (offset, size) = match round % 3 {
            0 => (sector, 512),
            1 => (sector / 4096 * 4096, 4096),
            _ => (0, length),
        };
        let garbage: Vec<u8> = match round % 4 {
            0 => vec![0; size as usize],
            1 => vec![0xFF; size as usize],
            2 => vec![b'x'; size as usize],
            _ => (0..size).map(|_| random.byte()).collect(),
        };
        file.write_all_at(&garbage, offset).unwrap();
        let lost = use_all(folder.path());
        // At most about the contents of one shard.
        assert!(lost <= 30, "{lost} lost in round {round}");
    }
}

#[test]
fn a_lost_index_is_rebuilt_from_the_records() {
    for byte in [0, 0xFF] {
        let folder = database();
        for path in files(folder.path(), ".shard") {
            let file = File::options().write(true).open(path).unwrap();
            file.write_all_at(&[byte; 4096 - 192], 192).unwrap();
        }
        assert_eq!(use_all(folder.path()), 0);
        assert_sound(&mut open(folder.path()));
    }
}

#[test]
fn a_lost_header_is_rebuilt_and_the_damaged_file_kept() {
    let folder = database();
    let shards = files(folder.path(), ".shard");
    for path in &shards {
        let file = File::options().write(true).open(path).unwrap();
        file.write_all_at(&[0; 192], 0).unwrap();
    }
    let mut spool = open(folder.path());
    assert_eq!((0..KEYS).filter(|&n| rate(&mut spool, n).is_none()).count(), 0);
    let incidents = spool.take_incidents();
    assert_eq!(incidents.len(), shards.len());
    assert!(incidents[0].contains("had a damaged header and has been rebuilt"), "{incidents:?}");
    assert_eq!(files(folder.path(), ".damaged-1").len(), shards.len());
    assert_sound(&mut spool);
}

#[test]
fn truncated_files_lose_only_the_records_cut_off() {
    for length in [0, 1, 64, 127, 128, 191, 192, 193, 2000, 4096, 4097, 5000, 8191] {
        let folder = database();
        let shards = files(folder.path(), ".shard");
        // Kept open by an earlier process.
        let old = [0, 193, 5000].contains(&length).then(|| {
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
            // Its files were replaced while it had them open, which it may
            // notice only within the next second.
            next_second();
            (0..KEYS).for_each(|n| assert_eq!(rate(&mut old, n), Some(f64::from(n))));
        }
    }
}

#[test]
fn extended_files_lose_nothing() {
    let folder = database();
    for path in files(folder.path(), ".shard").iter().take(3) {
        let file = File::options().write(true).open(path).unwrap();
        // Longer than a shard can be, and if the file system permits, longer
        // than a process can map.
        let longest = (36..63).rev().find(|power| file.set_len(1 << power).is_ok());
        assert!(longest.is_some(), "this file system has no large files");
    }
    assert_sound(&mut open(folder.path()));
    assert_eq!(use_all(folder.path()), 0);
    assert_sound(&mut open(folder.path()));
}

/// Only parts with data are searched for records: a file made of holes must not
/// take long.
#[test]
fn long_damaged_files_are_repaired() {
    use std::os::unix::fs::FileExt;
    let folder = database();
    // The end of the heap, and the magic.
    for (path, damaged) in files(folder.path(), ".shard").iter().zip([72, 0]) {
        let file = File::options().write(true).open(path).unwrap();
        file.set_len(1 << 40).unwrap();
        file.write_all_at(&[0x55; 8], damaged).unwrap();
    }
    assert_eq!(use_all(folder.path()), 0);
    assert_sound(&mut open(folder.path()));
}

#[test]
fn random_bytes_in_all_files_are_survived() {
    let mut random = Random::new(3);
    for length in [0, 1, 44, 128, 192, 5000, 100_000] {
        let folder = database();
        for path in files(folder.path(), "") {
            let bytes: Vec<u8> = (0..length).map(|_| random.byte()).collect();
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
        [&b""[..], &[0; 44], &bytes[..43], b"something else that is longer than it should be"]
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
fn a_later_version_is_an_error_and_does_not_change() {
    let folder = database();
    let mut paths = vec![directory(folder.path()).join("database")];
    paths.extend(files(folder.path(), ".shard"));
    for (path, crc) in paths.iter().zip([40].into_iter().chain(std::iter::repeat(60))) {
        let mut bytes = std::fs::read(path).unwrap();
        bytes[8] = 3;
        let sum = crc32fast::hash(&bytes[..crc]).to_le_bytes();
        bytes[crc..crc + 4].copy_from_slice(&sum);
        std::fs::write(path, &bytes).unwrap();
    }
    let error = Spool::open(folder.path(), Options::default()).unwrap_err();
    assert!(matches!(error, SpoolError::Version { version, .. } if version == LATER), "{error}");
    assert_eq!(
        error.to_string(),
        format!(
            "{} is of format version 3, and this exirate knows no version above 2: use the later \
             exirate that wrote it, or run its `exirate export`, move the directory away, and run \
             `exirate import` of this one",
            paths[0].display()
        )
    );
    // Nor does it create another key than that of the existing files.
    let database = std::fs::read(&paths[0]).unwrap();
    std::fs::remove_file(&paths[0]).unwrap();
    let error = Spool::open(folder.path(), Options::default()).unwrap_err();
    assert!(matches!(error, SpoolError::Version { version, .. } if version == LATER), "{error}");
    assert!(!paths[0].exists());
    // A single shard of a later version is refused as well.
    let mut old = database;
    old[8] = 2;
    let sum = crc32fast::hash(&old[..40]).to_le_bytes();
    old[40..44].copy_from_slice(&sum);
    std::fs::write(&paths[0], &old).unwrap();
    let before = std::fs::read(&paths[1]).unwrap();
    let mut spool = open(folder.path());
    for n in 0..KEYS {
        let error = spool.update(key(n).as_bytes(), None, |_, _| ((), None)).unwrap_err();
        assert!(
            matches!(error, SpoolError::Version { version, .. } if version == LATER),
            "{error}"
        );
    }
    assert_eq!(std::fs::read(&paths[1]).unwrap(), before);
}
