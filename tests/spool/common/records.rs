//! A database with known records, and its files.

use std::path::{Path, PathBuf};

use exirate::engine::{Change, FilterChange, State};
use exirate::rate::{Average, Timestamp};
use exirate::spool::{Options, Spool};

use super::{event, open};

/// The number of keys in the databases that are damaged here.
pub(crate) const KEYS: u32 = 2_000;

pub(crate) fn key(n: u32) -> String {
    format!("the key of number {n}")
}

pub(crate) fn write(spool: &mut Spool, n: u32) {
    let average = Average { at: Timestamp { seconds: 7, micros: 0 }, rate: f64::from(n) };
    let filter = match n % 4 {
        0 => FilterChange::Renew { bytes: 40, epoch: 3, event: event(n.into()) },
        _ => FilterChange::Keep,
    };
    let change = Change { state: State::new(average, 1.0, 0.0), filter };
    spool.update(key(n).as_bytes(), None, |_, _| ((), Some(change))).unwrap();
}

/// The rate of a key, by a read-only check.
pub(crate) fn rate(spool: &mut Spool, n: u32) -> Option<f64> {
    spool.update(key(n).as_bytes(), None, |r, _| (r.map(|r| r.state.rate()), None)).unwrap()
}

/// A database with all keys, each written twice.
pub(crate) fn database() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let mut spool = open(folder.path());
    for n in (0..KEYS).chain(0..KEYS) {
        write(&mut spool, n);
    }
    folder
}

pub(crate) fn directory(folder: &Path) -> PathBuf {
    folder.join("exirate")
}

/// The files whose names have this ending, sorted.
pub(crate) fn files(folder: &Path, ending: &str) -> Vec<PathBuf> {
    let mut paths: Vec<_> = std::fs::read_dir(directory(folder))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.to_str().unwrap().contains(ending))
        .collect();
    paths.sort();
    paths
}

/// Uses every key of a damaged database: each must be as it was, or lost. Then
/// writes all keys, after which the database must be sound. Returns the number
/// of lost keys.
pub(crate) fn use_all(folder: &Path) -> u32 {
    // Read-only use neither panics nor repairs.
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
