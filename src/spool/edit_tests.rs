//! Keys forgotten and put back by hand, also by a process that dies.

use crate::engine::{AlgorithmKind, FilterChange, RecordKey};
use crate::rate::bloom::{self, Event};
use crate::rate::{Average, Timestamp};
use crate::spec::{Context, Spec};
use crate::store::Store;
use crate::sys::failpoint;

use super::tests::{change, event, open};
use crate::store::{Entry, FilterEntry, Restored};

use super::{Options, Spool, SpoolError};

fn write(spool: &mut Spool, key: &[u8], n: u32, filter: FilterChange) {
    spool.update(key, None, |_, _| ((), Some(change(n, filter)))).unwrap();
}

fn renew(bytes: usize) -> FilterChange {
    FilterChange::Renew { bytes, epoch: 7, event: event(1) }
}

fn sound(spool: &mut Spool) {
    assert_eq!(spool.verify().unwrap().problems().collect::<Vec<_>>(), Vec::<String>::new());
}

#[test]
fn a_forgotten_key_is_as_one_never_seen() {
    let folder = tempfile::tempdir().unwrap();
    let mut spool = open(folder.path());
    let spec = Spec::parse(b"3 / 1h / per_addr / strict / unique=$x / alice").unwrap();
    let mut request = spec.request(&Context::outside()).unwrap();
    let mut check = |spool: &mut Spool, event: &str| {
        request.unique = Some(event.as_bytes().to_vec());
        let now = Timestamp { seconds: 1_700_000_000, micros: 0 };
        let decision = spool.decide_one(&request.check(), || now).unwrap();
        (decision.rate.round(), decision.over, decision.details.found)
    };
    let alice = "1h/per_rcpt/unique/alice";
    let alice = RecordKey { identity_start: alice.len() - 5, ..alice.into() };
    let all = ["a", "b", "c", "d"].map(|event| check(&mut spool, event));
    assert_eq!(all[3], (4.0, true, true));
    let forgotten = spool.forget(alice).unwrap().unwrap();
    assert!(forgotten.filter.is_some() && forgotten.over_since != 0);
    assert_eq!(spool.get(alice).unwrap(), None);
    assert_eq!(spool.stats().unwrap().records, 0);
    spool.for_each(|entry| panic!("{entry:?}")).unwrap();
    assert_eq!(spool.forget(alice).unwrap(), None);
    assert_eq!(spool.forget(b"1h/per_rcpt/unique/bob").unwrap(), None);
    sound(&mut spool);
    // What was seen counts again.
    assert_eq!(
        ["a", "b", "a"].map(|event| check(&mut spool, event)),
        [(1.0, false, false), (2.0, false, true), (2.0, false, true),]
    );
    sound(&mut spool);
}

#[test]
fn a_plain_write_brings_no_forgotten_event_back() {
    let folder = tempfile::tempdir().unwrap();
    let mut spool = open(folder.path());
    write(&mut spool, b"key", 5, renew(400));
    spool.forget(b"key").unwrap().unwrap();
    write(&mut spool, b"key", 6, FilterChange::Keep);
    assert_eq!(spool.get(b"key").unwrap().unwrap().filter, None);
}

#[test]
fn growth_and_salvage_bring_no_forgotten_key_back() {
    let folder = tempfile::tempdir().unwrap();
    let mut spool = open(folder.path());
    // A dead record, then the one that is forgotten.
    write(&mut spool, b"key", 5, renew(40));
    write(&mut spool, b"key", 6, renew(80));
    spool.forget(b"key").unwrap().unwrap();
    let number = usize::from(spool.database.hashing.place(b"key").shard);
    let body = &mut spool.shards[number].as_mut().unwrap().body;
    body.set_sealed(super::format::LIVE, 3).unwrap();
    let now = Timestamp { seconds: 9, micros: 0 };
    assert_eq!(spool.repair(now, |_| {}).unwrap().rebuilt, 1);
    assert_eq!(spool.get(b"key").unwrap(), None);
    spool.compact(now, |_| {}).unwrap();
    assert_eq!(spool.get(b"key").unwrap(), None);
    assert_eq!(spool.stats().unwrap().forgotten, 1);
    sound(&mut spool);
}

#[test]
fn forgetting_dies_at_any_step() {
    for filter in [FilterChange::Keep, renew(4_000)] {
        let mut deaths = 0;
        for steps in 0.. {
            let folder = tempfile::tempdir().unwrap();
            let mut spool = open(folder.path());
            write(&mut spool, b"key", 5, filter);
            write(&mut spool, b"other", 6, renew(50));
            let (before, other) = (spool.get(b"key").unwrap(), spool.get(b"other").unwrap());
            let died = failpoint::dies_after(steps, || spool.forget(b"key"));
            let mut spool = open(folder.path());
            sound(&mut spool);
            assert_eq!(spool.get(b"other").unwrap(), other);
            match spool.get(b"key").unwrap() {
                None => {}
                Some(found) => {
                    let before = before.unwrap();
                    assert!(died && found.average == before.average);
                    assert!(found.filter.is_none() || found.filter == before.filter);
                }
            }
            if !died {
                break;
            }
            deaths += 1;
        }
        assert!(deaths >= 2);
    }
}

fn entry(seconds: i64, filter: Option<(i64, usize)>) -> Entry {
    Entry {
        algorithm: AlgorithmKind::MovingAverage,
        key: b"1h/per_rcpt/unique/alice".to_vec(),
        average: Average { at: Timestamp { seconds, micros: 999_999 }, rate: 0.1 + 0.2 },
        limit: f64::INFINITY,
        over_since: 5,
        identity_start: 0,
        kind: crate::engine::Kind::Spec,
        period: 3600.0,
        start: 0,
        last_over: 6,
        crossings: 7,
        apart: 0.25,
        filter: filter.map(|(epoch, bytes)| FilterEntry { epoch, bits: vec![0xa7; bytes] }),
    }
}

#[test]
fn an_entry_is_put_back_as_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let mut spool = open(folder.path());
    let steps = [
        (entry(10, None), Restored::Added),
        (entry(10, Some((1, 40))), Restored::Kept),
        (entry(11, Some((-1, 40))), Restored::Replaced),
        (entry(12, Some((2, 41))), Restored::Replaced),
        (entry(13, Some((3, 2_000_000))), Restored::Replaced),
        (entry(9, None), Restored::Kept),
        (entry(14, None), Restored::Replaced),
    ];
    let mut latest = None;
    for (entry, wanted) in steps {
        assert_eq!(spool.restore(&entry).unwrap(), wanted);
        latest = if wanted == Restored::Kept { latest } else { Some(entry) };
        assert!(spool.get(b"1h/per_rcpt/unique/alice").unwrap() == latest);
        sound(&mut spool);
    }
    // One that cannot be a filter is none.
    for bytes in [0, 2_000_001] {
        spool.restore(&entry(15 + bytes as i64, Some((3, bytes)))).unwrap();
        let found = spool.get(b"1h/per_rcpt/unique/alice").unwrap().unwrap();
        assert_eq!(found, entry(15 + bytes as i64, None));
    }
    sound(&mut spool);
}

#[test]
fn a_copy_is_another_database_with_the_same_content() {
    let (folder, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut spool = open(folder.path());
    spool.set_max_bytes(50 << 20).unwrap();
    for n in 0..2_000_u32 {
        write(
            &mut spool,
            &n.to_le_bytes(),
            n,
            if n % 5 == 0 { renew(60) } else { FilterChange::Keep },
        );
    }
    let mut steps = Vec::new();
    let copied = spool.copy_to(other.path(), |step| steps.push(step)).unwrap();
    assert_eq!(steps, (1..=256).collect::<Vec<_>>());
    assert!(copied.shards > 200 && copied.bytes > 2_000 * 100);
    let mut copy = open(other.path());
    sound(&mut copy);
    assert_eq!((copy.key(), copy.max_bytes()), (spool.key(), 50 << 20));
    let entries = |spool: &mut Spool| {
        let mut entries = Vec::new();
        spool.for_each(|entry| entries.push(entry)).unwrap();
        entries.sort_by(|a, b| a.key.cmp(&b.key));
        entries
    };
    assert!(entries(&mut spool) == entries(&mut copy));
    // They part from there on.
    write(&mut copy, b"new", 1, FilterChange::Keep);
    assert_eq!(spool.get(b"new").unwrap(), None);
    let error = spool.copy_to(other.path(), |_| {}).unwrap_err();
    assert!(matches!(error, SpoolError::Present { .. }), "{error}");
    // Damage is repaired first.
    let body = &mut spool.shards[7].as_mut().unwrap().body;
    body.map.set_u64(super::format::HEAP_END, u64::MAX).unwrap();
    let third = tempfile::tempdir().unwrap();
    let error = spool.copy_to(third.path(), |_| {}).unwrap_err();
    assert!(matches!(error, SpoolError::Damaged { .. }), "{error}");
}

#[test]
fn a_database_can_be_made_with_a_known_key() {
    let folder = tempfile::tempdir().unwrap();
    let mut spool = Spool::create(folder.path(), [9; 16], Options::default()).unwrap();
    write(&mut spool, b"key", 1, renew(40));
    let hashed = spool.peek(b"key", Some(b"text"), |_, event| event).unwrap().unwrap();
    let other = tempfile::tempdir().unwrap();
    let mut same = Spool::create(other.path(), [9; 16], Options::default()).unwrap();
    assert_eq!(same.peek(b"key", Some(b"text"), |_, event| event).unwrap(), Some(hashed));
    let mut bits = vec![0; 40];
    bloom::insert(&mut bits, hashed);
    assert!(bloom::contains(&bits, hashed) && !bloom::contains(&bits, Event(1)));
    assert!(Spool::create(folder.path(), [9; 16], Options::default()).is_err());
}
