//! Records that are damaged where only those who know the layout would hit
//! them; `tests/spool/bytes.rs` damages files anywhere.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::engine::FilterChange;

use super::Spool;
use super::database::shard_name;
use super::format::HEAD_BYTES;
use super::tests::{change, event, open};

const KEY: &[u8] = b"the key";

/// Writes change number `n` to `key`; the number of the one before.
fn write(spool: &mut Spool, key: &[u8], n: u32, filter: FilterChange) -> Option<u32> {
    spool
        .update(key, None, |r, _| (r.map(|r| r.state.over_since), Some(change(n, filter))))
        .unwrap()
}

/// Flips a bit of the record of [`KEY`].
fn flip(spool: &mut Spool, folder: &Path, bit: usize) {
    let place = spool.database.hashing.place(KEY);
    let offset = spool
        .read_shard(place.shard, |body| body.unwrap().find(place, KEY).record.unwrap().offset)
        .unwrap();
    let name = shard_name(place.shard).into_string().unwrap();
    let path = folder.join("exirate").join(name);
    let file = File::options().read(true).write(true).open(path).unwrap();
    let (at, mut byte) = ((offset + bit / 8) as u64, [0]);
    file.read_exact_at(&mut byte, at).unwrap();
    byte[0] ^= 1 << (bit % 8);
    file.write_all_at(&byte, at).unwrap();
}

/// The numbers of the last changes to all keys that can be listed.
fn listed(spool: &mut Spool) -> Vec<u32> {
    let mut numbers = Vec::new();
    spool.for_each(|entry| numbers.push(entry.over_since)).unwrap();
    numbers
}

#[test]
fn a_record_with_a_damaged_head_is_replaced() {
    let begun = FilterChange::Renew { bytes: 43, epoch: 77, event: event(1) };
    for filter in [FilterChange::Keep, begun] {
        for bit in 0..HEAD_BYTES * 8 {
            let folder = tempfile::tempdir().unwrap();
            let mut spool = open(folder.path());
            write(&mut spool, KEY, 1, filter);
            assert_eq!(write(&mut spool, KEY, 2, FilterChange::Keep), Some(1));
            flip(&mut spool, folder.path(), bit);
            assert_eq!(write(&mut spool, KEY, 3, FilterChange::Keep), None, "bit {bit}");
            assert_eq!(spool.damaged(), 1, "bit {bit}");
            // The new one is found by those who look up, and by those who list.
            assert_eq!(write(&mut spool, KEY, 4, FilterChange::Keep), Some(3), "bit {bit}");
            assert_eq!(listed(&mut spool), [4], "bit {bit}");
            assert_eq!(spool.damaged(), 1, "bit {bit}");
        }
    }
}

#[test]
fn growth_says_what_damage_it_leaves_out() {
    for damaged in [true, false] {
        let folder = tempfile::tempdir().unwrap();
        let mut spool = open(folder.path());
        write(&mut spool, KEY, 1, FilterChange::Keep);
        if damaged {
            flip(&mut spool, folder.path(), HEAD_BYTES * 8 - 1);
        }
        let hashing = spool.database.hashing.clone();
        let shard = hashing.place(KEY).shard;
        // These are from 1970, so that the rebuild forgets some; that is
        // nothing to report.
        let neighbours = (0u32..)
            .map(|n| format!("1s/per_mail/{n}"))
            .filter(|key| hashing.place(key.as_bytes()).shard == shard);
        for (n, key) in (2..).zip(neighbours.take(400)) {
            let mut change = change(n, FilterChange::Keep);
            change.state.period = 1.0;
            spool.update(key.as_bytes(), None, |_, _| ((), Some(change))).unwrap();
        }
        assert!(spool.stats().unwrap().records < 100, "no rebuild");
        let path = folder.path().join("exirate").join(shard_name(shard).into_string().unwrap());
        let expected = format!(
            "{} has been rebuilt without its damaged records (1): their keys count from zero again",
            path.display()
        );
        let incidents = spool.take_incidents();
        assert_eq!(incidents, if damaged { vec![expected] } else { Vec::new() });
        assert_eq!(write(&mut spool, KEY, 5, FilterChange::Keep), (!damaged).then_some(1));
    }
}
