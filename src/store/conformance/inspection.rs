//! Tests that every store must pass that can be inspected.

use std::collections::HashSet;

use super::super::{Edit, Entry, Inspect, Memory, OwnedKey, Restored, Store};
use super::{at, check, decide, leaky, with_limit};
use crate::engine::{
    Algorithm, AlgorithmKind, Block, BlockTime, Check, Kind, RecordKey, Remembered, Update,
};
use crate::rate::{Average, CalendarWindow, Timestamp};
use quickcheck::Arbitrary;

/// Runs the tests of a store that can be inspected; `fresh` creates an empty one.
pub(crate) fn inspection<S: Store + Inspect>(mut fresh: impl FnMut() -> S) {
    lists_the_records_that_checks_write(&mut fresh());
    removed_records_start_again(&mut fresh());
    blocked_records_are_listed_and_lifted(&mut fresh());
    edits_change_what_they_name(&mut fresh());
    edits_create_records_when_asked(&mut fresh());
    events_are_found_and_set(&mut fresh());
    restores_what_another_store_lists(&mut fresh(), &mut fresh());
    buckets_are_listed_edited_and_restored(&mut fresh(), &mut fresh());
    windows_are_listed_edited_and_restored(&mut fresh(), &mut fresh());
    edits_and_checks_take_turns(&mut fresh);
}

/// All records, in order: the same however they are read.
fn list<S: Inspect>(store: &mut S) -> Vec<Entry> {
    let mut entries = Vec::new();
    let unread = Inspect::for_each(store, &mut |entry| entries.push(entry)).unwrap();
    assert_eq!((unread.damaged, unread.parts.len()), (0, 0));
    let sort = |entries: &mut Vec<Entry>| {
        entries.sort_by_key(|entry| OwnedKey::from(entry.record_key()));
    };
    sort(&mut entries);
    let mut looked_at = Vec::new();
    let look = &mut |key: RecordKey<'_>, remembered: Remembered<'_>| {
        looked_at.extend(Entry::of(&key, remembered));
    };
    let unread = store.survey(look).unwrap();
    assert_eq!((unread.damaged, unread.parts.len()), (0, 0));
    sort(&mut looked_at);
    assert_eq!(looked_at, entries);
    let identity = |entry: &Entry| entry.record_key().identity().to_vec();
    let identities: HashSet<Vec<u8>> =
        entries.iter().step_by(2).map(identity).chain([b"nobody".to_vec()]).collect();
    let mut found = Vec::new();
    store.for_each_of(&identities, &mut |entry| found.push(entry)).unwrap();
    sort(&mut found);
    let mut expected = entries.clone();
    expected.retain(|entry| identities.contains(&identity(entry)));
    assert_eq!(found, expected);
    entries
}

fn get<S: Inspect>(store: &mut S, key: RecordKey<'_>) -> Option<Entry> {
    Inspect::get(store, key).unwrap()
}

/// Keys of one name that are different records.
fn keys_of_one_name(name: &str) -> [RecordKey<'_>; 3] {
    let key: RecordKey<'_> = name.into();
    [key, RecordKey { identity_start: 2, ..key }, RecordKey { kind: Kind::Policy, ..key }]
}

fn lists_the_records_that_checks_write<S: Store + Inspect>(store: &mut S) {
    assert_eq!(list(store), []);
    let over = with_limit(0.5, check("b/over"));
    for (n, key) in keys_of_one_name("a/b").into_iter().enumerate() {
        decide(store, &[Check { key, count: n as f64, ..check("") }], at(n as i64));
    }
    decide(store, &[over], at(9));
    // A record that only remembers a crossing has no rate, and is not listed.
    decide(store, &[with_limit(0.5, leaky("c"))], at(9));
    let entries = list(store);
    assert_eq!(entries.len(), 4);
    for (n, key) in keys_of_one_name("a/b").into_iter().enumerate() {
        let entry = get(store, key).unwrap();
        assert!(entries.contains(&entry));
        assert_eq!(OwnedKey::from(entry.record_key()).key(), key);
        assert_eq!(entry.average, Average::first(at(n as i64), n as f64));
        assert_eq!((entry.limit, entry.period, entry.crossings), (5.0, 3600.0, 0));
    }
    let entry = get(store, over.key).unwrap();
    let second = u32::try_from(at(9).seconds).unwrap();
    assert_eq!((entry.over_since, entry.last_over, entry.crossings), (second, second, 1));
    assert_eq!(entry.state().average, Some(entry.average));
    for none in ["c", "a", "b"] {
        assert_eq!(get(store, none.into()), None, "{none}");
    }
    assert_eq!(store.statistics().unwrap().records, 4);
    assert!(store.statistics().unwrap().bytes > 0);
    assert!(!store.location().is_empty() && store.take_incidents().is_empty());
}

fn removed_records_start_again<S: Store + Inspect>(store: &mut S) {
    for key in keys_of_one_name("a/b") {
        decide(store, &[Check { key, event: Some(b"e"), ..check("") }], at(0));
    }
    for (n, key) in keys_of_one_name("a/b").into_iter().enumerate() {
        assert_eq!(list(store).len(), 3 - n);
        let removed = store.remove(key).unwrap().unwrap();
        assert_eq!((removed.record_key(), removed.average.rate), (key, 1.0));
        assert!(removed.filter.is_some());
        assert_eq!((get(store, key), store.remove(key).unwrap()), (None, None));
        assert!(!store.has_event(key, b"e").unwrap());
    }
    for key in keys_of_one_name("a/b") {
        let decision = decide(store, &[Check { key, event: Some(b"e"), ..check("") }], at(1))[0];
        assert_eq!((decision.details.found, decision.details.seen), (false, Some(false)));
    }
}

fn blocked_records_are_listed_and_lifted<S: Store + Inspect>(store: &mut S) {
    // The first event is as large as the limit, and is never counted.
    let one = Check { blocks: BlockTime::UntilLifted, count: 9.0, ..leaky("key") };
    assert!(decide(store, &[one], at(0))[0].crossed);
    let [entry] = &list(store)[..] else { panic!() };
    assert_eq!((entry.average, entry.crossings), (Average { at: at(0), rate: 0.0 }, 1));
    assert_eq!(Block::held(entry.last_over).and_then(Block::end), None);
    // What is edited stays blocked, and so does what is restored.
    let edit = Edit { rate: Some(0.5), now: at(5), ..Edit::default() };
    let edited = store.set("key".into(), &edit).unwrap().unwrap().after;
    assert_eq!(edited.last_over, entry.last_over);
    let small = Check { count: 0.5, ..one };
    assert!(decide(store, &[small], at(40_000_000))[0].blocked.is_some());
    let removed = store.remove("key".into()).unwrap().unwrap();
    assert!(!decide(store, &[small], at(40_000_001))[0].over);
    let again = Entry { average: Average { at: at(40_000_002), rate: 0.0 }, ..removed };
    assert_eq!(store.restore(&again).unwrap(), Restored::Replaced);
    assert!(decide(store, &[small], at(40_000_003))[0].over);
}

fn edits_change_what_they_name<S: Store + Inspect>(store: &mut S) {
    decide(store, &[with_limit(2.0, check("key")), check("other")], at(0));
    decide(store, &[with_limit(2.0, check("key"))], at(0));
    let before = get(store, "key".into()).unwrap();
    assert!(before.over_since != 0 && before.crossings == 1);
    let edits = [
        Edit { rate: Some(0.25), now: at(5), ..Edit::default() },
        Edit { limit: Some(0.125), now: at(6), ..Edit::default() },
        Edit { at: Some(at(3)), now: at(7), ..Edit::default() },
        Edit { rate: Some(7.0), at: Some(at(4)), limit: Some(9.0), now: at(8), ..Edit::default() },
    ];
    let expected = [
        (0.25, 2.0, at(5), 0),
        (0.25, 0.125, at(5), at(6).seconds),
        (0.25, 0.125, at(3), at(6).seconds),
        (7.0, 9.0, at(4), 0),
    ];
    let mut last = before.clone();
    for (edit, (rate, limit, at, over_since)) in edits.iter().zip(expected) {
        let edited = store.set("key".into(), edit).unwrap().unwrap();
        assert_eq!(edited.before.as_ref(), Some(&last), "{edit:?}");
        assert_eq!(get(store, "key".into()).as_ref(), Some(&edited.after));
        last = edited.after;
        assert_eq!((last.average, last.limit), (Average { at, rate }, limit), "{edit:?}");
        assert_eq!(i64::from(last.over_since), over_since, "{edit:?}");
        assert_eq!((last.crossings, last.last_over), (1, before.last_over));
        assert_eq!(edited.seen, None);
    }
    assert_eq!(get(store, "other".into()).unwrap().average.rate, 1.0);
    // The next check goes on from there.
    assert_eq!(decide(store, &[check("key")], at(4))[0].rate.round(), 8.0);
}

fn edits_create_records_when_asked<S: Store + Inspect>(store: &mut S) {
    let key = RecordKey { identity_start: 3, ..(&b"1h/key"[..]).into() };
    let edit = Edit { rate: Some(3.0), period: 3600.0, now: at(1), ..Edit::default() };
    assert_eq!(store.set(key, &edit).unwrap(), None);
    assert_eq!(list(store), []);
    let edited = store.set(key, &Edit { create: true, ..edit }).unwrap().unwrap();
    assert_eq!(edited.before, None);
    assert_eq!((edited.after.limit, edited.after.period), (f64::INFINITY, 3600.0));
    assert_eq!(list(store), [edited.after]);
    let decision = decide(store, &[Check { key, ..check("") }], at(1))[0];
    assert!(decision.details.found && decision.rate.round() == 4.0);
}

fn events_are_found_and_set<S: Store + Inspect>(store: &mut S) {
    let unique = Check { event: Some(b"one"), ..check("key") };
    decide(store, &[unique], at(0));
    let key = unique.key;
    let has = |store: &mut S, event: &[u8]| store.has_event(key, event).unwrap();
    assert!(has(store, b"one") && !has(store, b"two"));
    assert!(!store.has_event("none".into(), b"one").unwrap());
    let edit = |event, now| Edit { event: Some(event), now, ..Edit::default() };
    for (event, seen) in [(&b"one"[..], true), (b"two", false), (b"two", true)] {
        let edited = store.set(key, &edit(event, at(1))).unwrap().unwrap();
        assert_eq!((edited.seen, edited.after.average.rate), (Some(seen), 1.0));
    }
    let two = Check { event: Some(b"two"), ..check("key") };
    assert_eq!(decide(store, &[two], at(2))[0].details.seen, Some(true));
    // A filter that has expired is started again.
    let edited = store.set(key, &edit(b"three", at(3601))).unwrap().unwrap();
    assert_eq!(edited.seen, Some(false));
    assert!(has(store, b"three") && !has(store, b"one"));
}

fn restores_what_another_store_lists<S: Store + Inspect>(one: &mut S, other: &mut S) {
    for (n, key) in keys_of_one_name("a/b").into_iter().enumerate() {
        for event in [&b"x"[..], b"y"] {
            let unique = Check { key, event: Some(event), ..with_limit(1.5, check("")) };
            decide(one, &[unique], at(n as i64));
        }
    }
    let entries = list(one);
    for entry in &entries {
        assert_eq!(other.restore(entry).unwrap(), Restored::Added);
        assert_eq!(other.restore(entry).unwrap(), Restored::Kept);
    }
    assert_eq!(list(other), entries);
    let entry = &entries[0];
    let moved = |seconds| {
        let at = Timestamp { seconds: entry.average.at.seconds + seconds, ..entry.average.at };
        Entry { average: Average { at, rate: 77.0 }, filter: None, ..entry.clone() }
    };
    assert_eq!(other.restore(&moved(-1)).unwrap(), Restored::Kept);
    assert_eq!(get(other, entry.record_key()).as_ref(), Some(entry));
    assert_eq!(other.restore(&moved(1)).unwrap(), Restored::Replaced);
    assert_eq!(get(other, entry.record_key()), Some(moved(1)));
    assert_eq!(one.filter_key(), one.filter_key());
    assert!(one.log_change("a line").is_ok());
}

fn buckets_are_listed_edited_and_restored<S: Store + Inspect>(one: &mut S, other: &mut S) {
    let algorithm = Algorithm::Bucket { burst: 4.0, rate: 0.125 };
    let bucket = Check { algorithm, count: 3.0, event: Some(b"e"), ..check("key") };
    decide(one, &[check("key"), bucket], at(0));
    let key = bucket.record_key();
    let entry = get(one, key).unwrap();
    assert_eq!((entry.record_key(), entry.average.rate, entry.filter.is_some()), (key, 3.0, true));
    assert_eq!((entry.limit, entry.period, entry.crossings), (4.0, 32.0, 0));
    assert_eq!(get(one, "key".into()).unwrap().average.rate, 1.0);
    assert!(one.has_event(key, b"e").unwrap() && !one.has_event("key".into(), b"e").unwrap());
    let entries = list(one);
    assert_eq!(entries.len(), 2);
    for entry in &entries {
        assert_eq!(other.restore(entry).unwrap(), Restored::Added);
    }
    assert_eq!(list(other), entries);
    // What leaks out in a second stays when the burst is changed.
    let edit = Edit { rate: Some(2.5), limit: Some(2.0), now: at(8), ..Edit::default() };
    let edited = one.set(key, &edit).unwrap().unwrap();
    assert_eq!(edited.before.as_ref().map(|before| before.average), Some(entry.average));
    let after = edited.after;
    assert_eq!((after.average, after.period), (Average { at: at(8), rate: 2.5 }, 16.0));
    assert_eq!(i64::from(after.over_since), at(8).seconds);
    let full = one.set(key, &Edit { rate: Some(2.0), now: at(8), ..Edit::default() });
    assert_eq!(full.unwrap().unwrap().after.over_since, 0, "it is full, not over");
    let decision = decide(one, &[Check { count: 1.0, event: None, ..bucket }], at(16))[0];
    assert_eq!((decision.rate, decision.over), (2.0, false));
    let new = RecordKey { algorithm: AlgorithmKind::Bucket, .."new".into() };
    let edit = Edit { create: true, period: 8.0, rate: Some(1.0), limit: Some(2.0), ..edit };
    assert_eq!(one.set(new, &edit).unwrap().unwrap().after.record_key(), new);
    assert!(get(one, new).is_some() && get(one, "new".into()).is_none());
    assert_eq!(one.remove(key).unwrap().unwrap().algorithm, AlgorithmKind::Bucket);
    assert!(get(one, key).is_none() && get(one, "key".into()).is_some());
}

fn windows_are_listed_edited_and_restored<S: Store + Inspect>(store: &mut S, other: &mut S) {
    let window = CalendarWindow { start: at(0).seconds - 100, end: at(0).seconds + 900 };
    let algorithm = Algorithm::Calendar { limit: 4.0, window };
    let one = Check { algorithm, count: 3.0, event: Some(b"e"), ..check("key") };
    decide(store, &[one], at(1));
    let key = one.record_key();
    let entry = get(store, key).unwrap();
    assert_eq!((entry.algorithm, entry.start), (AlgorithmKind::Calendar, window.start));
    assert_eq!((entry.limit, entry.period, entry.average.rate), (4.0, 1000.0, 3.0));
    assert_eq!(list(store), std::slice::from_ref(&entry));
    // A count that is set is that of the same window, and so is an event.
    let edit = Edit { rate: Some(1.0), event: Some(b"f"), now: at(2), ..Edit::default() };
    let edited = store.set(key, &edit).unwrap().unwrap();
    assert_eq!((edited.after.start, edited.after.average.rate), (window.start, 1.0));
    let seen = decide(store, &[Check { event: Some(b"f"), ..one }], at(3))[0];
    assert_eq!((seen.rate, seen.details.seen), (1.0, Some(true)));
    assert_eq!(decide(store, &[Check { event: None, ..one }], at(3))[0].rate, 4.0);
    let entry = Entry { filter: None, ..get(store, key).unwrap() };
    assert_eq!(other.restore(&entry).unwrap(), Restored::Added);
    assert_eq!(get(other, key), Some(entry.clone()));
    assert_eq!(other.restore(&entry).unwrap(), Restored::Kept);
    let more = decide(other, &[Check { event: None, ..one }], at(4))[0];
    assert_eq!((more.rate, more.over), (7.0, true));
}

/// Random checks and changes by hand leave the same records as in memory.
fn edits_and_checks_take_turns<S: Store + Inspect>(fresh: &mut impl FnMut() -> S) {
    for seed in 0..20 {
        let (mut store, mut model) = (fresh(), Memory::new());
        let mut random = kit::generator(50);
        for step in 0..60 {
            let name = format!("{}", u8::arbitrary(&mut random) % 6);
            let key: RecordKey<'_> = name.as_str().into();
            let number = f64::from(u8::arbitrary(&mut random) % 8);
            match u8::arbitrary(&mut random) % 8 {
                0 => assert_eq!(store.remove(key).unwrap(), model.remove(key).unwrap()),
                1 | 2 => {
                    let edit = Edit {
                        rate: bool::arbitrary(&mut random).then_some(number),
                        limit: bool::arbitrary(&mut random).then_some(number),
                        create: bool::arbitrary(&mut random),
                        period: 3600.0,
                        now: at(step),
                        ..Edit::default()
                    };
                    let edited = store.set(key, &edit).unwrap();
                    assert_eq!(edited, model.set(key, &edit).unwrap(), "{seed} {step}");
                }
                _ => {
                    let one = Check { update: Update::Leaky, ..with_limit(number, check(&name)) };
                    let decision = decide(&mut store, &[one], at(step))[0];
                    assert_eq!(decision, decide(&mut model, &[one], at(step))[0], "{seed} {step}");
                }
            }
            assert_eq!(list(&mut store), list(&mut model), "{seed} {step}");
        }
    }
}

#[test]
fn memory_can_be_inspected() {
    inspection(Memory::new);
}
