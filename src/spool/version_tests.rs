//! Libraries of two versions of the format, one of them made up.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::engine::{Algorithm, Check, Decision, Kind, RecordKey};
use crate::rate::Timestamp;
use crate::store::{Entry, Restored, Store as _};
use crate::versions::{OtherVersion, Versions};

use super::database::Database;
use super::format::{
    EMPTY, ENTRY_BYTES, HEAD_BYTES, HEAD_CRC, HEADER_BYTES, STATE_BYTES, STATE_CRC, STATES,
    VERSION, VERSIONS, checksum,
};
use super::{Options, Spool, SpoolError};

/// A later library, which also reads the version before its own.
const LATER: Versions = Versions { oldest: VERSION, newest: VERSION + 1 };
/// One later still, for which this version is too old.
const LAST: Versions = Versions { oldest: VERSION + 1, newest: VERSION + 2 };

fn open(folder: &Path, versions: Versions) -> Result<Spool, SpoolError> {
    Database::open_as(folder, Options::default(), true, versions).map(Spool::new)
}

fn read(folder: &Path, versions: Versions) -> Result<Spool, SpoolError> {
    Database::open_as(folder, Options::default(), false, versions).map(Spool::new)
}

/// A future that no rebuild forgets.
const NOW: Timestamp = Timestamp { seconds: 4_102_444_800, micros: 0 };

fn check(name: &str) -> Check<'_> {
    Check::new(
        RecordKey { identity_start: 3, ..name.into() },
        Algorithm::MovingAverage { limit: 5.0, period: 1e6 },
    )
}

fn decide(spool: &mut Spool, name: &str) -> Result<Decision, SpoolError> {
    spool.decide_one(&check(name), || NOW)
}

fn names(count: u32) -> impl Iterator<Item = String> {
    (0..count).map(|n| format!("1h/user {n}"))
}

/// The names and contents of all files.
fn contents(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    std::fs::read_dir(folder.join("exirate"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .map(|path| (path.clone(), std::fs::read(path).unwrap()))
        .collect()
}

/// How many files of the rates there are of each version.
fn versions(folder: &Path) -> BTreeMap<u32, usize> {
    let mut found = BTreeMap::new();
    let of_rates = |path: &Path| {
        path.ends_with("database") || path.extension().is_some_and(|ending| ending == "shard")
    };
    for (_, bytes) in contents(folder).iter().filter(|(path, _)| of_rates(path)) {
        *found.entry(u32::from_le_bytes(bytes[8..12].try_into().unwrap())).or_default() += 1;
    }
    found
}

/// What an administrator is to do about a version that is too high.
fn is_refused(error: &SpoolError) -> bool {
    let text = error.to_string();
    assert!(
        text.contains("is of format version 3, and this exirate knows no version above 2: use the")
            && text.contains("or run its `exirate export`, move the directory away"),
        "{text}"
    );
    assert!(!text.contains("damage"), "{text}");
    let version = OtherVersion { found: 3, known: VERSIONS };
    matches!(error, SpoolError::Version { version: found, .. } if *found == version)
}

/// Raises the version of a database that nothing older uses any more.
fn raise(folder: &Path) {
    let spool = open(folder, LATER).unwrap();
    let mut identity = spool.database.identity();
    identity.version = LATER.newest;
    spool.database.write_identity(&identity).unwrap();
}

#[test]
fn libraries_of_two_versions_use_a_database_side_by_side() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    // A daemon's children use the library that it had loaded when it started.
    let (mut old, mut new) = (open(path, VERSIONS).unwrap(), open(path, LATER).unwrap());
    let mut rebuilds = 0;
    for round in 1..=6 {
        for (n, name) in names(3_000).enumerate() {
            let spool = if n % 2 == round % 2 { &mut old } else { &mut new };
            let decision = decide(spool, &name).unwrap();
            assert_eq!(decision.rate.round(), round as f64, "{name}");
        }
        match round {
            2 => old = open(path, VERSIONS).unwrap(),
            3 => new = open(path, LATER).unwrap(),
            // The version stays when the later library rebuilds shards.
            4 => rebuilds += new.compact(NOW, |_| {}).unwrap().rebuilt,
            5 => old = open(path, LATER).unwrap(),
            _ => {}
        }
        assert_eq!(versions(path), BTreeMap::from([(VERSION, 257)]), "round {round}");
    }
    assert_eq!(rebuilds, 256);
    for mut spool in [read(path, VERSIONS).unwrap(), read(path, LATER).unwrap()] {
        assert_eq!(spool.verify().unwrap().problems().collect::<Vec<_>>(), [""; 0]);
        assert_eq!(spool.stats().unwrap().records, 3_000);
    }
    assert!(old.take_incidents().is_empty() && new.take_incidents().is_empty());
}

#[test]
fn a_database_of_a_later_version_is_refused_in_words() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let mut new = open(path, LATER).unwrap();
    names(500).for_each(|name| assert!(decide(&mut new, &name).is_ok()));
    assert_eq!(versions(path).keys().copied().collect::<Vec<_>>(), [3]);
    // Without the file `database`, the shards name the version.
    for _ in 0..2 {
        let before = contents(path);
        for result in [open(path, VERSIONS), read(path, VERSIONS)] {
            assert!(is_refused(&result.unwrap_err()));
        }
        assert_eq!(contents(path), before);
        let _ = std::fs::remove_file(path.join("exirate/database"));
    }
    // The later library knows from the shards which version to go on with.
    drop(new);
    let mut new = open(path, LATER).unwrap();
    assert_eq!(new.take_incidents().len(), 1);
    assert_eq!(decide(&mut new, "1h/user 1").unwrap().rate.round(), 2.0);
    assert!(is_refused(&open(path, VERSIONS).unwrap_err()));
}

#[test]
fn a_database_of_too_old_a_version_is_refused_in_words() {
    let folder = tempfile::tempdir().unwrap();
    decide(&mut open(folder.path(), VERSIONS).unwrap(), "1h/user").unwrap();
    let before = contents(folder.path());
    let error = open(folder.path(), LAST).unwrap_err();
    let version = OtherVersion { found: 2, known: LAST };
    assert!(matches!(error, SpoolError::Version { version: found, .. } if found == version));
    let text = error.to_string();
    assert!(text.contains("run `exirate export` of the exirate that wrote it"), "{text}");
    assert!(!text.contains("damage"), "{text}");
    assert_eq!(contents(folder.path()), before);
}

#[test]
fn a_library_that_is_still_loaded_is_refused_once_the_version_is_raised() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let mut old = open(path, VERSIONS).unwrap();
    // So many that no shard stays without a key.
    names(5_000).for_each(|name| assert!(decide(&mut old, &name).is_ok()));
    raise(path);
    // Shards are raised when they are rebuilt: until then, both count in them.
    let mut new = open(path, LATER).unwrap();
    for name in names(2_000) {
        assert_eq!(decide(&mut old, &name).unwrap().rate.round(), 2.0);
        assert_eq!(decide(&mut new, &name).unwrap().rate.round(), 3.0);
    }
    assert_eq!(versions(path), BTreeMap::from([(2, 256), (3, 1)]));
    new.compact(NOW, |_| {}).unwrap();
    assert_eq!(versions(path), BTreeMap::from([(3, 257)]));

    // The old one still has every shard mapped.
    let before = contents(path);
    for name in names(2_000) {
        assert!(is_refused(&decide(&mut old, &name).unwrap_err()), "{name}");
    }
    let all: Vec<_> = names(20).collect();
    let checks: Vec<_> = all.iter().map(|name| check(name)).collect();
    assert!(is_refused(&old.decide(&checks, || NOW, &mut vec![]).unwrap_err()));
    assert!(is_refused(&old.get(check("1h/user 1").key).unwrap_err()));
    let left_out = old.for_each(|entry| panic!("{entry:?}")).unwrap();
    assert!(left_out.shards.len() == 256 && left_out.shards.iter().all(is_refused));
    assert!(is_refused(&old.repair(NOW, |_| {}).unwrap_err()));
    assert!(is_refused(&old.compact(NOW, |_| {}).unwrap_err()));
    // Nor does it write its own version into the file `database`.
    assert!(is_refused(&old.set_max_bytes(1 << 28).unwrap_err()));
    let problems: Vec<_> = old.verify().unwrap().problems().collect();
    assert_eq!(problems.len(), 257);
    assert!(problems.iter().all(|text| text.contains("of format version 3")), "{problems:?}");
    assert!(!problems.iter().any(|text| text.contains("damage")), "{problems:?}");
    assert!(old.take_incidents().is_empty());
    assert_eq!(contents(path), before);

    assert!(new.set_max_bytes(1 << 28).is_ok());
    for name in names(2_000) {
        assert_eq!(decide(&mut new, &name).unwrap().rate.round(), 4.0);
    }
}

#[test]
fn a_downgrade_keeps_every_record_and_filter() {
    let (folder, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut new = open(folder.path(), LATER).unwrap();
    for name in names(300) {
        for event in [&b"one"[..], b"two", b"one"] {
            new.decide_one(&Check { event: Some(event), ..check(&name) }, || NOW).unwrap();
        }
    }
    let mut entries: Vec<Entry> = Vec::new();
    new.for_each(|entry| entries.push(entry)).unwrap();
    let mut old = Spool::create(other.path(), new.key(), Options::default()).unwrap();
    for entry in &entries {
        assert_eq!(old.restore(entry).unwrap(), Restored::Added);
        assert_eq!(old.get(entry.record_key()).unwrap().as_ref(), Some(entry));
    }
    assert_eq!((versions(other.path()).len(), entries.len()), (1, 300));
    for name in names(300) {
        let one = Check { event: Some(b"two"), ..check(&name) };
        let decision = old.decide_one(&one, || NOW).unwrap();
        assert_eq!((decision.details.seen, decision.rate.round()), (Some(true), 2.0));
    }
}

/// Gives the only record of the database another kind, as a later library may
/// write it in this version, with the checksums that it would have.
fn give_kind(folder: &Path, kind: u8) {
    let (path, mut bytes) =
        contents(folder).into_iter().find(|(path, _)| path.extension().is_some()).unwrap();
    let number = |at: usize| u64::from_le_bytes(bytes[at..at + ENTRY_BYTES].try_into().unwrap());
    let entries = (HEADER_BYTES..).step_by(ENTRY_BYTES);
    let entry = entries.map(number).find(|&entry| entry != EMPTY).unwrap() ^ EMPTY;
    let record = &mut bytes[entry as u32 as usize * 8..];
    let seed = open(folder, VERSIONS).unwrap().database.hashing.seed;
    record[14] = kind;
    let key_bytes = usize::from(u16::from_le_bytes(record[4..6].try_into().unwrap()));
    let start = STATES[1] + STATE_BYTES;
    let head = checksum(checksum(seed, &record[..HEAD_CRC]), &record[start..start + key_bytes]);
    record[HEAD_CRC..HEAD_BYTES].copy_from_slice(&head.to_le_bytes());
    for state in STATES {
        let sum = checksum(head, &record[state..state + STATE_CRC]);
        record[state + STATE_CRC..state + STATE_BYTES].copy_from_slice(&sum.to_le_bytes());
    }
    std::fs::write(path, bytes).unwrap();
}

#[test]
fn a_record_of_an_unknown_kind_is_carried_along_untouched() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    for _ in 0..3 {
        decide(&mut open(path, VERSIONS).unwrap(), "1h/user").unwrap();
    }
    give_kind(path, 9);
    let mut spool = open(path, VERSIONS).unwrap();
    let listed = |spool: &mut Spool| {
        let mut listed = Vec::new();
        assert_eq!(spool.for_each(|entry| listed.push(entry)).unwrap().damaged, 0);
        listed
    };
    assert_eq!(listed(&mut spool), []);
    // One of a known kind, of the same name, is another record.
    assert_eq!(decide(&mut spool, "1h/user").unwrap().rate, 1.0);
    for _ in 0..2 {
        assert_eq!(spool.compact(NOW, |_| {}).unwrap().rebuilt, 1);
        assert_eq!(spool.stats().unwrap().records, 2);
        assert_eq!(listed(&mut spool).len(), 1);
        assert_eq!(spool.verify().unwrap().problems().collect::<Vec<_>>(), [""; 0]);
    }
    assert_eq!((spool.damaged(), spool.take_incidents().len()), (0, 0));
    drop(spool);
    assert_eq!(decide(&mut open(path, VERSIONS).unwrap(), "1h/user").unwrap().rate.round(), 2.0);
    // Its own library finds it again.
    let bytes = std::fs::read(shard(path)).unwrap();
    assert!(bytes.windows(HEAD_BYTES).any(|head| head[14] == 9 && head[15] == 1 && head[4] == 7));
    assert_eq!(check("1h/user").key.kind, Kind::Spec);
}

fn shard(folder: &Path) -> PathBuf {
    contents(folder).into_keys().find(|path| path.extension().is_some()).unwrap()
}
