//! Crash images: what is on disk after each prefix of the writes of one
//! operation, with the last of them torn, and with sectors missing that were
//! not synced when the power failed.
//!
//! `kill_tests.rs` has the writer die; here its writes are replayed, so that
//! every image is made of what was written and of nothing else.

use std::collections::HashMap;
use std::path::Path;

use crate::engine::{Change, FilterChange};
use crate::rate::Timestamp;
use crate::sys::clock;
use crate::sys::simulated_disk::{Disk, memory_folder, power_cut, tears, torn};
use crate::sys::write_trace;

use super::kill_tests::{KEY, KeyMemory, crowd, insert, neighbours, renew, state, write};
use super::rebuild::{self, Reason};
use super::tests::{change, open};
use super::{Spool, SpoolError};
use kit::{Random, counts};

/// Power cuts for each operation, at least.
const CUTS: usize = 400;

/// One operation, and what it starts from.
struct Scene {
    before: Disk,
    writes: Vec<write_trace::Write>,
    last: Change,
    /// Its filter may be void after a kill.
    renewed: bool,
    /// What was remembered of [`KEY`] before it, and after.
    states: [KeyMemory; 2],
    /// The rates of all other keys.
    others: HashMap<Vec<u8>, f64>,
    images: u64,
}

/// All that is remembered, but for [`KEY`].
fn others(spool: &mut Spool) -> HashMap<Vec<u8>, f64> {
    let mut rates = HashMap::new();
    spool
        .for_each(|entry| {
            rates.insert(entry.key, entry.average.rate);
        })
        .unwrap();
    rates.remove(KEY);
    rates
}

impl Scene {
    /// Records `last`, done to [`KEY`] after `first` were, among what `prepare`
    /// has made.
    fn record(
        prepare: impl FnOnce(&mut Spool),
        first: &[Change],
        last: Change,
        renewed: bool,
    ) -> Self {
        let folder = memory_folder();
        let mut spool = open(folder.path());
        prepare(&mut spool);
        let rates = others(&mut spool);
        // Each has a state of before, which an older sector may bring back.
        for (n, key) in (1000..).zip(rates.keys()) {
            write(&mut spool, key, change(n, FilterChange::Keep));
        }
        let others = others(&mut spool);
        first.iter().for_each(|&change| write(&mut spool, KEY, change));
        let before = state(&mut spool);
        drop(spool);
        Self::record_in(folder.path(), last, renewed, before, others)
    }

    /// Records `last`, from opening the database on.
    fn record_in(
        folder: &Path,
        last: Change,
        renewed: bool,
        before: KeyMemory,
        others: HashMap<Vec<u8>, f64>,
    ) -> Self {
        let disk = Disk::of(folder);
        let (mut spool, writes) = write_trace::capture(|| {
            let mut spool = open(folder);
            write(&mut spool, KEY, last);
            spool
        });
        // Nothing was written that is not in the journal.
        let mut replayed = disk.clone();
        writes.iter().for_each(|write| replayed.apply(write));
        assert!(replayed.reachable() == Disk::of(folder).reachable());
        let states = [before, state(&mut spool)];
        Self { before: disk, writes, last, renewed, states, others, images: 0 }
    }

    /// Lays out an image and opens it.
    fn open(&mut self, disk: &Disk) -> (tempfile::TempDir, Spool) {
        let folder = memory_folder();
        disk.write_to(folder.path());
        self.images += 1;
        let spool = open(folder.path());
        (folder, spool)
    }

    /// A process was killed: only its own event may be lost.
    fn after_a_kill(&mut self, disk: &Disk, what: &str) {
        let (_folder, mut spool) = self.open(disk);
        for writes in 0..2 {
            let problems: Vec<_> = spool.verify().unwrap().problems().collect();
            assert!(problems.is_empty(), "{what}, {writes} writes later: {problems:?}");
            self.others_are_unchanged(&mut spool, what);
            let found = state(&mut spool);
            if writes == 0 {
                let [before, after] = &self.states;
                let rate = |state: &KeyMemory| state.as_ref().map(|state| state.0);
                let filter = |state: &KeyMemory| state.as_ref().and_then(|state| state.1.clone());
                assert!([rate(before), rate(after)].contains(&rate(&found)), "{what}");
                let fine = [filter(before), filter(after)].contains(&filter(&found))
                    || self.partly_inserted(&filter(&found))
                    || self.renewed && filter(&found).is_none();
                assert!(fine, "{what}: {found:?}");
                write(&mut spool, KEY, self.last);
            } else {
                assert_eq!(found.map(|s| s.0), self.states[1].as_ref().map(|s| s.0), "{what}");
            }
        }
        assert_eq!(spool.take_incidents(), Vec::<String>::new(), "{what}");
    }

    fn others_are_unchanged(&self, spool: &mut Spool, what: &str) {
        assert!(others(spool) == self.others, "{what}: another key has changed");
    }

    /// Whether a filter has all bits of before and some of those of the event.
    fn partly_inserted(&self, filter: &Option<(i64, Vec<u8>)>) -> bool {
        let [Some((_, Some(before))), Some((_, Some(after)))] = &self.states else { return false };
        filter.as_ref().is_some_and(|found| {
            [before.0, after.0, found.0].iter().all(|&epoch| epoch == before.0)
                && found.1.len() == before.1.len()
                && (found.1.iter().zip(&before.1).zip(&after.1)).all(|((found, before), after)| {
                    found & before == *before && found & !after == 0
                })
        })
    }

    /// The power has failed: this key's rate may be lost, but is none that was
    /// never written; no other is; and by use and a rebuild all is sound again.
    fn after_a_power_cut(&mut self, disk: &Disk, what: &str) {
        let (folder, mut spool) = self.open(disk);
        let rate = |state: &KeyMemory| state.as_ref().map(|state| state.0);
        let known = self.states.each_ref().map(rate);
        let found = rate(&state(&mut spool));
        assert!(found.is_none() || known.contains(&found), "{what}: {found:?} of {known:?}");
        // Of the others, a sector that is missing has all that it had before.
        self.others_are_unchanged(&mut spool, what);
        let keys: Vec<_> = self.others.keys().map(Vec::as_slice).chain([KEY]).collect();
        for (n, key) in (5000..).zip(&keys) {
            write(&mut spool, key, change(n, FilterChange::Keep));
        }
        rebuild_all(&mut spool).unwrap();
        drop(spool);
        let mut spool = open(folder.path());
        let problems: Vec<_> = spool.verify().unwrap().problems().collect();
        assert!(problems.is_empty(), "{what}: {problems:?}");
        for (n, key) in (5000..).zip(&keys) {
            let found = spool.peek(key, None, |r, _| r.map(|r| r.state.rate())).unwrap();
            assert_eq!(found, Some(f64::from(n)), "{what}");
        }
    }

    /// Makes all images; how many writes there were.
    fn images(mut self) -> usize {
        let writes = std::mem::take(&mut self.writes);
        let mut disk = self.before.clone();
        self.after_a_kill(&disk.clone(), "before the first write");
        for (n, write) in writes.iter().enumerate() {
            for length in tears(write) {
                let mut disk = disk.clone();
                disk.apply(&torn(write, length));
                self.after_a_kill(&disk, &format!("{length} bytes of write {n}, {write:?}"));
            }
            disk.apply(write);
            self.after_a_kill(&disk, &format!("write {n}, {write:?}"));
        }
        counts::record("images opened", self.images);
        counts::record("  of kills", self.images);
        let kills = self.images;
        let mut random = Random::new(1);
        for round in 0..CUTS.div_ceil(writes.len()) * writes.len() {
            let end = 1 + round % writes.len();
            let before = self.before.clone();
            let disk = power_cut(&before, &writes[..end], &mut random);
            self.after_a_power_cut(&disk, &format!("power cut {round} after {end} writes"));
        }
        counts::record("images opened", self.images - kills);
        counts::record("  of power cuts", self.images - kills);
        writes.len()
    }
}

/// Rebuilds every shard.
fn rebuild_all(spool: &mut Spool) -> Result<(), SpoolError> {
    let (seconds, micros) = clock::now();
    for number in 0..=u8::MAX {
        if spool.read_shard(number, |body| body.is_none())? {
            continue;
        }
        let Some(mut shard) = spool.take_shard(number)? else { continue };
        let now = Timestamp { seconds, micros };
        rebuild::rebuild(&mut spool.database, &mut shard.body, Reason::Growth, now, true)?;
    }
    Ok(())
}

/// Some keys in the key's shard, and some in others.
fn bystanders(spool: &mut Spool) {
    let near: Vec<_> = neighbours(spool).take(6).collect();
    let far = (0..3u32).map(|n| n.to_le_bytes().to_vec());
    for (n, key) in (10..).zip(near.into_iter().chain(far)) {
        let filter = if n % 3 == 0 { renew(40, 5, n.into()) } else { FilterChange::Keep };
        write(spool, &key, change(n, filter));
    }
}

/// Images of `last`, done to the key after `first` were.
fn images_after(first: &[Change], last: Change, renewed: bool) -> usize {
    Scene::record(bystanders, first, last, renewed).images()
}

#[test]
fn of_a_plain_write() {
    let writes =
        images_after(&[change(1, FilterChange::Keep)], change(2, FilterChange::Keep), false);
    assert_eq!(writes, 1);
}

#[test]
fn of_an_insertion() {
    assert!(images_after(&[change(1, renew(4000, 1, 1))], change(2, insert(99)), false) > 8);
}

#[test]
fn of_a_renewal_in_place() {
    assert!(images_after(&[change(1, renew(4000, 1, 1))], change(2, renew(4000, 9, 7)), true) > 5);
}

#[test]
fn of_a_renewal_of_another_size() {
    let first = [change(1, renew(40, 1, 1))];
    assert!(images_after(&first, change(2, renew(20_000, 9, 7)), false) > 15);
}

#[test]
fn of_a_new_key() {
    assert!(images_after(&[], change(2, FilterChange::Keep), false) > 9);
    assert!(images_after(&[], change(2, renew(9_000, 3, 7)), false) > 15);
}

#[test]
fn of_a_new_shard() {
    let prepare = |spool: &mut Spool| {
        let shard = spool.database.hashing.place(KEY).shard;
        for n in 0..9u32 {
            let key = n.to_le_bytes();
            if spool.database.hashing.place(&key).shard != shard {
                write(spool, &key, change(n, FilterChange::Keep));
            }
        }
    };
    let scene = Scene::record(prepare, &[], change(2, FilterChange::Keep), false);
    assert!(scene.writes.iter().any(|write| matches!(write, write_trace::Write::Renamed { .. })));
    assert!(scene.images() > 15);
}

#[test]
fn of_a_new_database() {
    let folder = memory_folder();
    let last = change(2, FilterChange::Keep);
    let scene = Scene::record_in(folder.path(), last, false, None, HashMap::new());
    assert!(scene.images() > 25);
}

#[test]
fn of_a_rebuild_for_a_larger_index() {
    let scene = Scene::record(crowd, &[], change(2, FilterChange::Keep), false);
    assert!(scene.others.len() > 350);
    assert!(scene.images() > 800);
}

#[test]
fn of_a_rebuild_that_gives_dead_heap_back() {
    let first = [(1, 60_000), (2, 70_000), (3, 40)].map(|(n, bytes)| change(n, renew(bytes, 1, 7)));
    let scene = Scene::record(bystanders, &first, change(4, insert(99)), false);
    assert!(scene.writes.iter().any(|write| matches!(write, write_trace::Write::Renamed { .. })));
    assert!(scene.images() > 25);
}
