//! The journal and the log, read back after kills, damage and full disks.

use std::path::Path;

use crate::engine::{Algorithm, AlgorithmKind, Check, Update};
use crate::rate::Timestamp;
use crate::store::Store as _;
use crate::sys::failpoint;
use crate::sys::files::Access;
use crate::sys::simulated_disk::memory_folder;

use super::super::tests::open;
use super::entry::{BYTES, CRC, ENTRY_BYTES_MAX, EntryFault, MAGIC, TEXTS_MAX, checksum};
use super::*;

fn at(seconds: i64) -> Timestamp {
    Timestamp { seconds, micros: 0 }
}

fn check(key: &str, update: Update, count: f64) -> Check<'_> {
    Check {
        count,
        update,
        ..Check::new(key, Algorithm::MovingAverage { limit: 10.0, period: 60.0 })
    }
}

fn decide(spool: &mut Spool, check: &Check<'_>, second: i64) -> crate::engine::Decision {
    spool.decide_one(check, || at(second)).unwrap()
}

fn all(spool: &mut Spool, kind: EventKind) -> (Vec<LoggedEvent>, u64) {
    let mut reader = EventReader::new(kind);
    let events = spool.read_events(&mut reader, at(0), true).unwrap();
    (events, reader.damaged())
}

fn crossings(spool: &mut Spool) -> Vec<(String, u32, i64)> {
    let (events, damaged) = all(spool, EventKind::Crossings);
    assert_eq!(damaged, 0);
    let name = |event: &LoggedEvent| String::from_utf8(event.stored.clone()).unwrap();
    events.iter().map(|event| (name(event), event.number, event.at.seconds)).collect()
}

fn entry() -> Entry {
    let details = EventDetails { login: b"alice", client: b"192.0.2.7", ..Default::default() };
    Entry {
        what: EntryKind::Refusal,
        record: RecordId { hash: 7, kind: 1, algorithm: 2 },
        number: 3,
        at: Timestamp { seconds: 1_795_171_837, micros: 999_999 },
        sequence: u32::MAX,
        update: 2,
        identity_start: 5,
        enforcement: Enforcement::Exempt,
        windows: vec![
            EventWindow {
                limit: 1.0,
                period: 2.0,
                before: 3.0,
                after: 4.0,
                count: 0.5,
                algorithm: AlgorithmKind::Bucket,
                restarts: 0,
                over: false
            };
            2
        ],
        texts: texts(b"1h/per_mail/alice", &details),
    }
}

#[test]
fn an_entry_is_read_as_it_was_written() {
    let long = vec![b'x'; 5000];
    let details = EventDetails { sender: &long, message_id: &long, ..Default::default() };
    let mut largest = Entry { windows: vec![EventWindow::default(); 12], ..entry() };
    largest.texts = texts(&long, &details);
    for one in
        [entry(), Entry { texts: Default::default(), windows: Vec::new(), ..entry() }, largest]
    {
        let bytes = one.encode(9);
        let windows = one.windows.iter().copied().take(EVENT_WINDOWS_MAX).collect();
        let one = Entry { windows, ..one };
        assert_eq!(Entry::decode(&bytes, 9), Ok((one, bytes.len())));
        assert!(bytes.len() <= ENTRY_BYTES_MAX);
    }
    let [name, .., message_id, _protocol, _script, _evidence] = texts(&long, &details);
    assert_eq!((name.len(), message_id.len()), (TEXTS_MAX[0], TEXTS_MAX[8]));
}

/// Texts are added at the end: an entry that was written before has none of them.
#[test]
fn an_entry_without_the_last_texts_is_read() {
    let one = Entry { texts: Default::default(), ..entry() };
    let mut bytes = one.encode(9);
    bytes.truncate(bytes.len() - 2);
    let size = (bytes.len() as u16).to_le_bytes();
    bytes[BYTES..][..2].copy_from_slice(&size);
    let crc = checksum(&bytes, 9).to_le_bytes();
    bytes[CRC..][..4].copy_from_slice(&crc);
    assert_eq!(Entry::decode(&bytes, 9), Ok((one, bytes.len())));
}

#[test]
fn no_changed_byte_goes_unnoticed() {
    let bytes = entry().encode(9);
    assert_eq!(Entry::decode(&bytes, 8), Err(EntryFault::Damaged), "another database's");
    for cut in 0..bytes.len() {
        let fault = Entry::decode(&bytes[..cut], 9).unwrap_err();
        assert_eq!(fault, EntryFault::Cut, "{cut}");
    }
    for place in 0..bytes.len() {
        for bit in 0..8 {
            let mut bytes = bytes.clone();
            bytes[place] ^= 1 << bit;
            assert!(Entry::decode(&bytes, 9).is_err(), "byte {place}, bit {bit}");
        }
    }
}

#[test]
fn each_crossing_is_journaled_once_and_gets_its_details() {
    let folder = memory_folder();
    let mut spool = open(folder.path());
    for (key, update) in [("leaky", Update::Leaky), ("strict", Update::Strict)] {
        for second in [1000, 1001, 1002, 1200, 1201] {
            let decision = decide(&mut spool, &check(key, update, 30.0), second);
            assert_eq!(decision.crossed, second % 100 == 0, "{key} {second}");
            assert!(decision.over && spool.has_events());
            let client = format!("192.0.2.{}", second % 100);
            spool.describe(&EventDetails { client: client.as_bytes(), ..Default::default() });
            assert!(!spool.has_events());
        }
        decide(&mut spool, &check("below", update, 3.0), 1300);
        assert!(!spool.has_events());
    }
    let expected =
        ["leaky", "strict"].map(|key| [(key.to_owned(), 1, 1000), (key.to_owned(), 2, 1200)]);
    assert_eq!(crossings(&mut spool), expected.concat());
    let (events, _) = all(&mut spool, EventKind::Crossings);
    for event in &events {
        assert!(event.has_details && event.texts.client == b"192.0.2.0", "{event:?}");
        let window = event.windows[0];
        assert_eq!((window.limit, window.period, window.over), (10.0, 60.0, true));
    }
    assert_eq!((events[0].strict, events[3].strict), (false, true));
    assert!((events[2].windows[0].before, events[2].windows[0].after) == (0.0, 30.0));
    assert_eq!(spool.stats().unwrap().lost, 0);
}

#[test]
fn a_refusal_is_logged_once_a_second_for_each_record() {
    let folder = memory_folder();
    let mut spool = open(folder.path());
    for second in [1000, 1000, 1000, 1001, 1001] {
        for key in ["a", "b"] {
            decide(&mut spool, &check(key, Update::Leaky, 30.0), second);
            if spool.has_events() {
                spool.describe(&EventDetails { sender: b"s@example.org", ..Default::default() });
            }
        }
        decide(&mut spool, &Check { refuses: None, ..check("c", Update::Leaky, 30.0) }, second);
        decide(&mut spool, &Check { count: 0.0, ..check("c", Update::ReadOnly, 0.0) }, second);
        spool.describe(&EventDetails::default());
    }
    let (refusals, damaged) = all(&mut spool, EventKind::Refusals);
    let of = |event: &LoggedEvent| (event.stored.clone(), event.at.seconds);
    let found: Vec<_> = refusals.iter().map(of).collect();
    let (a, b) = (b"a".to_vec(), b"b".to_vec());
    assert_eq!(found, [(a.clone(), 1000), (b.clone(), 1000), (a, 1001), (b, 1001)]);
    assert_eq!(damaged, 0);
    assert!(refusals.iter().all(|event| event.texts.sender == b"s@example.org"));
    assert!(!crossings(&mut spool).is_empty());
}

#[test]
fn the_windows_of_one_event_are_in_one_refusal() {
    let folder = memory_folder();
    let mut spool = open(folder.path());
    let day = Algorithm::MovingAverage { limit: 500.0, period: 86_400.0 };
    let checks = [
        check("x/alice", Update::Leaky, 6.0),
        Check { algorithm: day, ..check("y/alice", Update::Leaky, 6.0) },
        check("elsewhere", Update::Leaky, 6.0),
    ];
    let mut decisions = Vec::new();
    for _ in 0..2 {
        spool.decide(&checks, || at(1000), &mut decisions).unwrap();
    }
    spool.describe(&EventDetails::default());
    let (refusals, _) = all(&mut spool, EventKind::Refusals);
    let [refusal] = &refusals[..] else { panic!("{refusals:?}") };
    assert!(refusal.windows.iter().all(|window| window.count == 6.0));
    let limits = refusal.windows.iter().map(|window| (window.limit, window.over, window.before));
    assert_eq!(
        limits.collect::<Vec<_>>(),
        [(10.0, true, 6.0), (500.0, false, 6.0), (10.0, true, 6.0)]
    );
    let mut names: Vec<_> = crossings(&mut spool).into_iter().map(|(name, ..)| name).collect();
    names.sort();
    assert_eq!(names, ["elsewhere", "x/alice"]);
}

#[test]
fn several_checks_of_one_record_cross_once() {
    let folder = memory_folder();
    let mut spool = open(folder.path());
    let lower = Algorithm::MovingAverage { limit: 5.0, period: 60.0 };
    for checks in [
        [
            check("a", Update::Strict, 30.0),
            Check { algorithm: lower, ..check("a", Update::Strict, 30.0) },
        ],
        [
            check("b", Update::Strict, 7.0),
            Check { algorithm: lower, ..check("b", Update::Strict, 7.0) },
        ],
    ] {
        spool.decide(&checks, || at(1000), &mut Vec::new()).unwrap();
    }
    spool.describe(&EventDetails::default());
    assert_eq!(crossings(&mut spool), [("a".to_owned(), 1, 1000), ("b".to_owned(), 1, 1000)]);
}

#[test]
fn a_kill_at_any_step_loses_no_crossing_and_repeats_none() {
    for update in [Update::Leaky, Update::Strict] {
        for known in [false, true] {
            let mut deaths = 0;
            let mut journaled = false;
            for steps in 0.. {
                let folder = memory_folder();
                let mut spool = open(folder.path());
                if known {
                    decide(&mut spool, &check("key", update, 1.0), 900);
                }
                let died = failpoint::dies_after(steps, || {
                    decide(&mut spool, &check("key", update, 30.0), 1000);
                    spool.describe(&EventDetails { login: b"x", ..Default::default() });
                });
                drop(spool);
                let mut spool = open(folder.path());
                journaled |= died && !crossings(&mut spool).is_empty();
                // The next event comes before the state is known, or after.
                decide(&mut spool, &check("key", update, 1.0), 1002);
                let again = decide(&mut spool, &check("key", update, 30.0), 1003);
                assert_eq!(again.crossings, 1, "step {steps}");
                let read = crossings(&mut spool);
                assert_eq!(read.len(), 1, "step {steps}: {read:?}");
                assert_eq!((&*read[0].0, read[0].1), ("key", 1));
                decide(&mut spool, &check("key", update, 30.0), 1200);
                assert_eq!(crossings(&mut spool).len(), 2);
                if !died {
                    break;
                }
                deaths += 1;
            }
            assert!(deaths > 5 && journaled, "{deaths}");
        }
    }
}

#[test]
fn a_record_that_was_reset_crosses_again() {
    let folder = memory_folder();
    let mut spool = open(folder.path());
    for second in [1000, 1001] {
        assert!(decide(&mut spool, &check("key", Update::Strict, 30.0), second).crossed);
        spool.forget(b"key").unwrap();
    }
    let expected = [1000, 1001].map(|second| ("key".to_owned(), 1, second));
    assert_eq!(crossings(&mut spool), expected);
}

/// The path of a file of the database.
fn path(spool: &Spool, name: &str) -> std::path::PathBuf {
    spool.directory().join(name)
}

fn append(path: &Path, bytes: &[u8]) {
    use std::io::Write as _;
    std::fs::OpenOptions::new().append(true).open(path).unwrap().write_all(bytes).unwrap();
}

#[test]
fn bytes_that_are_no_entry_hide_no_later_entry() {
    let folder = memory_folder();
    let mut spool = open(folder.path());
    let seed = spool.database.hashing.seed;
    let sound = entry().encode(seed);
    decide(&mut spool, &check("first", Update::Strict, 30.0), 1000);
    let journal = path(&spool, "crossings");
    let mut damaged = sound.clone();
    damaged[20] ^= 1;
    let mut endless = sound.clone();
    endless[BYTES_AT] = 0xff;
    // An entry that a client sends as its sender, and that was cut by a full disk.
    let forged = Entry { what: EntryKind::Crossing, ..entry() }.encode(seed ^ 1);
    let details = EventDetails { sender: &forged, ..Default::default() };
    let carrier = Entry { texts: texts(b"carrier", &details), ..entry() }.encode(seed);
    let carrier = &carrier[..carrier.len() - 3];
    let garbage: [&[u8]; 9] = [
        b"x",
        &MAGIC,
        &[0; 5000],
        &[0xff; 3],
        &sound[..sound.len() - 1],
        &damaged,
        &endless,
        &MAGIC[..2],
        carrier,
    ];
    for (n, bytes) in garbage.iter().enumerate() {
        append(&journal, bytes);
        decide(&mut spool, &check(&format!("key {n}"), Update::Strict, 30.0), 2000);
    }
    let (events, skipped) = all(&mut spool, EventKind::Crossings);
    let names: Vec<_> = events.iter().map(|event| &event.stored[..]).collect();
    let expected: Vec<_> = (0..garbage.len()).map(|n| format!("key {n}").into_bytes()).collect();
    assert_eq!(names[0], b"first");
    assert_eq!(names[1..], expected);
    assert_eq!(skipped, garbage.iter().map(|bytes| bytes.len() as u64).sum::<u64>());
}

/// Where an entry has its size.
const BYTES_AT: usize = super::entry::BYTES + 1;

#[test]
fn hostile_files_are_read_without_a_panic() {
    let folder = memory_folder();
    let mut spool = open(folder.path());
    let seed = spool.database.hashing.seed;
    let sound = entry().encode(seed);
    let mut random = kit::Random::new(1);
    for _ in 0..300 {
        let mut bytes = sound.repeat(1 + random.below(4));
        for _ in 0..random.below(9) {
            let place = random.below(bytes.len());
            bytes[place] = random.below(256) as u8;
        }
        bytes.truncate(random.below(bytes.len() + 1));
        std::fs::write(path(&spool, "refusals"), &bytes).unwrap();
        let (events, damaged) = all(&mut spool, EventKind::Refusals);
        let whole = bytes.len() as u64 - damaged;
        assert_eq!(events.len() as u64 * sound.len() as u64, whole);
    }
}

#[test]
fn a_check_decides_although_nothing_can_be_journaled() {
    let folder = memory_folder();
    let mut spool = open(folder.path());
    decide(&mut spool, &check("key", Update::Leaky, 1.0), 900);
    std::fs::create_dir(path(&spool, "crossings")).unwrap();
    std::fs::create_dir(path(&spool, "refusals")).unwrap();
    assert!(decide(&mut spool, &check("key", Update::Leaky, 30.0), 1000).crossed);
    spool.describe(&EventDetails::default());
    assert_eq!(spool.stats().unwrap().lost, 2);
    assert!(!decide(&mut spool, &check("key", Update::Leaky, 1.0), 1001).over);
    // A full disk, in the middle of an entry.
    for name in ["crossings", "refusals"] {
        std::fs::remove_dir(path(&spool, name)).unwrap();
    }
    decide(&mut spool, &check("key", Update::Leaky, 30.0), 2000);
    failpoint::limit_disk(Some(50));
    assert!(decide(&mut spool, &check("key", Update::Leaky, 30.0), 3000).crossed);
    failpoint::limit_disk(None);
    assert_eq!(spool.stats().unwrap().lost, 3);
    decide(&mut spool, &check("key", Update::Leaky, 30.0), 4000);
    let (events, damaged) = all(&mut spool, EventKind::Crossings);
    assert_eq!(events.iter().map(|e| e.at.seconds).collect::<Vec<_>>(), [2000, 4000]);
    assert_eq!(damaged, 50);
    spool.compact(at(4000), |_| {}).unwrap();
    assert_eq!(spool.stats().unwrap().lost, 3, "a rebuild keeps the count");
    assert_eq!(spool.verify().unwrap().problems().count(), 0);
}

#[test]
fn the_first_event_does_not_wait_for_the_lock_of_the_directory() {
    let folder = memory_folder();
    let (mut spool, other) = (open(folder.path()), open(folder.path()));
    decide(&mut spool, &check("key", Update::Leaky, 1.0), 900);
    let guard = other.database.lock_directory().unwrap();
    assert!(decide(&mut spool, &check("key", Update::Leaky, 30.0), 1000).crossed);
    spool.describe(&EventDetails::default());
    drop(guard);
    assert_eq!(spool.stats().unwrap().lost, 0);
    assert_eq!(all(&mut spool, EventKind::Refusals).0.len(), 1);
    assert_eq!(crossings(&mut spool), [("key".to_owned(), 1, 1000)]);
}

#[test]
fn the_files_are_bounded_and_the_latest_entries_stay() {
    let folder = memory_folder();
    let mut spool = open(folder.path());
    let long = [b'x'; 600];
    let name = |n: u32| [format!("{n:06} ").as_bytes(), &long].concat();
    let mut follower = EventReader::new(EventKind::Crossings);
    let mut followed = 0;
    for n in 0..20_000 {
        let texts = texts(&name(n), &EventDetails::default());
        let record = RecordId { hash: n.into(), kind: 1, algorithm: 1 };
        let one = Entry { what: EntryKind::Crossing, record, texts, ..entry() };
        spool.database.append_event(CROSSINGS, &one.encode(spool.database.hashing.seed)).unwrap();
        if n % 1000 == 999 {
            let new = spool.read_events(&mut follower, at(0), false).unwrap();
            assert!(new.iter().all(|event| event.stored.starts_with(b"0")));
            followed += new.len();
        }
    }
    assert_eq!((followed, follower.damaged()), (20_000, 0));
    let sizes = ["crossings", "crossings.1"]
        .map(|name| std::fs::metadata(path(&spool, name)).unwrap().len());
    let half = EventLimits::default().crossings.max_bytes / 2;
    assert!(sizes.iter().all(|&size| size < half + ENTRY_BYTES_MAX as u64), "{sizes:?}");
    let (events, _) = all(&mut spool, EventKind::Crossings);
    assert!(events.len() > 5000);
    assert!(events.last().unwrap().stored.starts_with(b"019999 "));
    // While another process has the directory locked, the file grows, up to a point.
    let other = open(folder.path());
    let guard = other.database.lock_directory().unwrap();
    let bytes = vec![0; half as usize];
    append(&path(&spool, "crossings"), &bytes);
    let entry = entry().encode(0);
    spool.database.append_event(CROSSINGS, &entry).unwrap();
    append(&path(&spool, "crossings"), &bytes);
    assert!(spool.database.append_event(CROSSINGS, &entry).is_err());
    drop(guard);
    spool.database.append_event(CROSSINGS, &entry).unwrap();
}

#[test]
fn a_file_with_the_inode_of_one_before_is_read_from_its_start() {
    // Of a real file system, which gives inodes again.
    let folder = tempfile::tempdir().unwrap();
    let mut spool = open(folder.path());
    let mut follower = EventReader::new(EventKind::Crossings);
    for file in 1..=5 {
        // Each is longer than the one before.
        for number in 1..=file {
            let record = RecordId { hash: u64::from(number), kind: 1, algorithm: 1 };
            let number = file * 10 + number;
            let one = Entry { what: EntryKind::Crossing, record, number, ..entry() };
            let bytes = one.encode(spool.database.hashing.seed);
            spool.database.append_event(CROSSINGS, &bytes).unwrap();
        }
        let new = spool.read_events(&mut follower, at(0), true).unwrap();
        assert_eq!(new.len(), file as usize, "file {file}");
        std::fs::remove_file(path(&spool, "crossings")).unwrap();
    }
}

#[test]
fn a_copy_contains_the_events_and_a_stranger_cannot_add_one() {
    let folder = memory_folder();
    let mut spool = open(folder.path());
    decide(&mut spool, &check("key", Update::Strict, 30.0), 1000);
    spool.describe(&EventDetails { login: b"alice", ..Default::default() });
    let target = memory_folder();
    spool.copy_to(target.path(), |_| {}).unwrap();
    let mut copy = open(target.path());
    for kind in [EventKind::Crossings, EventKind::Refusals] {
        let (mut one, mut other) = (all(&mut spool, kind).0, all(&mut copy, kind).0);
        assert_eq!(one.len(), 1);
        assert_eq!(one.pop(), other.pop());
    }
    // Files with another seed, as of another database, are damage.
    let other = memory_folder();
    let mut other_spool = open(other.path());
    decide(&mut other_spool, &check("key", Update::Strict, 30.0), 1000);
    std::fs::copy(path(&other_spool, "crossings"), path(&spool, "crossings")).unwrap();
    let (events, damaged) = all(&mut spool, EventKind::Crossings);
    assert!(events.is_empty() && damaged > 0);
    assert!(spool.database.open_for(Access::Read, CROSSINGS.name).unwrap().is_some());
}
