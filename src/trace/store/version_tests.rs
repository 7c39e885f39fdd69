//! Libraries of two versions of the format at one store, one of them made up.

use std::collections::BTreeMap;
use std::path::Path;

use crate::versions::as_the_next;

use super::tests::{assert_sound, found, open, record};
use super::*;

/// How many files there are of each version.
fn versions(folder: &Path) -> BTreeMap<u32, usize> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(trace_directory(folder)).unwrap() {
        let path = entry.unwrap().path();
        if path.file_name().is_some_and(|name| name != "sealing") {
            let bytes = std::fs::read(path).unwrap();
            let version =
                bytes.get(8..12).map_or(0, |four| four.try_into().map_or(0, u32::from_le_bytes));
            *found.entry(version).or_default() += 1;
        }
    }
    found
}

#[test]
fn libraries_of_two_versions_use_a_store_side_by_side() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    // An Exim that was started before the upgrade has the old library loaded.
    let mut old = open(path);
    let mut new = as_the_next(|| open(path));
    for n in 0..60 {
        match n % 3 {
            0 => record(&mut old, n),
            1 => as_the_next(|| record(&mut new, n)),
            _ if n % 20 == 14 => as_the_next(|| {
                new.seal().unwrap();
                new.tidy(0).unwrap();
                record(&mut new, n);
            }),
            _ => record(&mut old, n),
        };
        let recorded: Vec<u32> = (0..=n).collect();
        if n % 10 == 9 {
            assert_eq!(found(&old), recorded);
            assert_eq!(as_the_next(|| found(&new)), recorded);
        }
    }
    // Whoever writes writes the version of the store.
    assert_eq!(
        versions(path).keys().collect::<Vec<_>>(),
        [&VERSIONS.newest],
        "{:?}",
        versions(path)
    );
    assert!(versions(path)[&VERSIONS.newest] > 3, "{:?}", versions(path));
    as_the_next(|| new.repair(&mut |_, _| {}).unwrap());
    assert_eq!(versions(path).len(), 1);
    assert_sound(&old, "after the repair of the later one");
    assert_eq!(found(&old).len(), 60);
}

#[test]
fn a_store_of_a_later_version_is_refused_in_words_and_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    as_the_next(|| {
        let mut new = open(path);
        (0..3).for_each(|n| record(&mut new, n));
        assert_eq!(found(&new), [0, 1, 2]);
    });
    assert_eq!(versions(path).keys().collect::<Vec<_>>(), [&(VERSIONS.newest + 1)]);
    let contents = || {
        let read = std::fs::read_dir(trace_directory(path)).unwrap();
        let paths = read.map(|entry| entry.unwrap().path());
        paths.map(|path| (path.clone(), std::fs::read(path).unwrap())).collect::<BTreeMap<_, _>>()
    };
    let before = contents();
    for access in [Access::Read, Access::Write] {
        let error = TraceStore::open(&trace_directory(path), access).unwrap_err().to_string();
        assert!(
            error.contains(
                "is of format version 6, and this exirate knows no version above 5: use the"
            ),
            "{error}"
        );
        assert!(!error.contains("damage"), "{error}");
    }
    assert_eq!(contents(), before);
}

#[test]
fn a_library_that_is_still_loaded_records_nothing_into_a_later_log() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let mut old = open(path);
    record(&mut old, 0);
    // As if the version had been raised on purpose, while it runs.
    let raised = as_the_next(|| {
        let mut new = open(path);
        new.key.version = VERSIONS.newest + 1;
        new.rotate().unwrap();
        record(&mut new, 1);
        found(&new)
    });
    assert_eq!(raised, [0, 1]);
    let error = old.record(&super::tests::envelope(2), b"x").unwrap_err().to_string();
    assert!(error.contains("open.log is of format version 6, and this exirate knows"), "{error}");
    // What it can read, it reads.
    let mut results = Vec::new();
    let see = &mut |result: QueryResult| results.push(result.envelope.id);
    let summary = old.query(&Query::default(), &mut |_, _| {}, see).unwrap();
    assert_eq!((results, summary.damaged.len()), (vec!["id-0".to_owned()], 1));
    old.repair(&mut |_, _| {}).unwrap();
    assert_eq!(as_the_next(|| found(&open(path))), [0, 1]);
}
