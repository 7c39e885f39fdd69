//! A database whose only shard is a crafted one, and the conditions that must
//! hold for any contents.

use std::path::PathBuf;
use std::sync::Once;

use exirate::engine::{Change, FilterChange, State};
use exirate::rate::{Average, Timestamp};
use exirate::spool::{Options, Spool, SpoolError};
use rustix::process::{Resource, Rlimit};

use super::open;
use kit::spool_image::{self as image, Shard};

/// The crafted shard.
pub(crate) const SHARD: u8 = 0x3f;

/// A spool directory whose database has this one shard. If a false size is
/// believed, or a loop does not end, resource limits kill the tests.
pub(crate) fn lay(shard: &Shard) -> tempfile::TempDir {
    static BOUNDS: Once = Once::new();
    BOUNDS.call_once(|| {
        for (resource, most) in [
            // Seconds of CPU time, bytes of a file (other tests copy this program), bytes of memory.
            (Resource::Cpu, 1_200),
            (Resource::Fsize, 512 << 20),
            (Resource::As, 64 << 30),
        ] {
            let maximum = rustix::process::getrlimit(resource).maximum;
            rustix::process::setrlimit(resource, Rlimit { current: Some(most), maximum }).unwrap();
        }
    });
    let folder = tempfile::tempdir().unwrap();
    let directory = folder.path().join("exirate");
    std::fs::create_dir(&directory).unwrap();
    std::fs::write(directory.join("database"), image::database()).unwrap();
    std::fs::write(directory.join(shard.name()), &shard.bytes).unwrap();
    folder
}

pub(crate) fn path(folder: &tempfile::TempDir) -> PathBuf {
    folder.path().join("exirate").join(format!("{SHARD:02x}.shard"))
}

pub(crate) fn keys(count: usize) -> Vec<Vec<u8>> {
    image::keys_of(SHARD).take(count).collect()
}

pub(crate) fn rate(spool: &mut Spool, key: &[u8]) -> Option<f64> {
    spool.peek(key, None, |found, _| found.map(|found| found.state.rate())).unwrap()
}

pub(crate) fn write(spool: &mut Spool, key: &[u8], rate: f64) -> Result<(), SpoolError> {
    let average = Average { at: Timestamp { seconds: 1_800_000_000, micros: 0 }, rate };
    let filter = FilterChange::Keep;
    let change = Change { state: State::new(average, 1.0, 0.0), filter };
    spool.update(key, None, |_, _| ((), Some(change)))
}

/// Runs all operations on a copy of the database, in which each key must be as
/// it should be, or absent. Returns the lost keys; the database is sound again
/// after they have been written.
pub(crate) fn use_all(folder: &tempfile::TempDir, keys: &[Vec<u8>]) -> Vec<usize> {
    // Read-only use neither panics nor shows more than there is.
    let mut reader = Spool::open_existing(folder.path(), Options::default()).unwrap();
    let _ = reader.verify().unwrap();
    list(&mut reader, folder);
    for key in keys {
        let _ = reader.get(key);
    }
    let mut spool = open(folder.path());
    let mut lost = Vec::new();
    for (n, key) in keys.iter().enumerate() {
        match rate(&mut spool, key) {
            Some(rate) => assert_eq!(rate, n as f64),
            None => lost.push(n),
        }
    }
    list(&mut spool, folder);
    for (n, key) in keys.iter().enumerate() {
        write(&mut spool, key, n as f64).unwrap();
        assert_eq!(rate(&mut spool, key), Some(n as f64));
    }
    lost
}

/// Lists everything: returns the number of keys, and checks that they fit the
/// size of the file.
pub(crate) fn list(spool: &mut Spool, folder: &tempfile::TempDir) -> usize {
    let (mut count, mut bytes) = (0, 0);
    spool
        .for_each(|entry| {
            count += 1;
            bytes += image::PLAIN_KEY
                + entry.key.len()
                + entry.filter.map_or(0, |filter| filter.bits.len());
        })
        .unwrap();
    let held = std::fs::metadata(path(folder)).unwrap().len();
    assert!(bytes as u64 <= held, "{bytes} bytes are listed of a file of {held}");
    count
}

/// A sound shard with these keys, whose rates are their numbers.
pub(crate) fn sound(keys: &[Vec<u8>], capacity: usize, bits: Option<&[u8]>) -> (Shard, Vec<usize>) {
    let mut shard = Shard::new(SHARD, capacity);
    let insert = |(n, key): (usize, &Vec<u8>)| shard.insert(key, n as f64, bits);
    let offsets = keys.iter().enumerate().map(insert).collect();
    shard.set_totals(keys.len() as u64);
    (shard, offsets)
}
