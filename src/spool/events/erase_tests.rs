//! Removing a person from the event logs: what goes, what stays, and who is disturbed.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::engine::{Algorithm, Check};
use crate::rate::Timestamp;
use crate::store::Store as _;
use crate::sys::failpoint;
use crate::sys::simulated_disk::memory_folder;

use super::super::tests::open;
use super::entry::{CRC, TEXTS, VERSION};
use super::*;

const FILES: [&str; 4] = ["crossings", "crossings.1", "refusals", "refusals.1"];

fn at(seconds: i64) -> Timestamp {
    Timestamp { seconds, micros: 0 }
}

/// Whether a text contains the address as a whole.
fn theirs(text: &[u8]) -> bool {
    let address = b"bob@example.org";
    let inside = |byte: Option<&u8>| byte.is_some_and(|b| b.is_ascii_alphanumeric() || *b == b'.');
    text.windows(address.len()).enumerate().any(|(place, window)| {
        window.eq_ignore_ascii_case(address)
            && !inside(place.checked_sub(1).and_then(|before| text.get(before)))
            && !inside(text.get(place + address.len()))
    })
}

/// An event that is over its limit, with these details.
fn over(spool: &mut Spool, key: &str, second: i64, details: EventDetails<'_>) {
    let check = Check {
        count: 30.0,
        ..Check::new(key, Algorithm::MovingAverage { limit: 10.0, period: 60.0 })
    };
    spool.decide_one(&check, || at(second)).unwrap();
    spool.describe(&details);
}

fn to(recipient: &str) -> EventDetails<'_> {
    EventDetails { recipient: recipient.as_bytes(), client: b"192.0.2.7", ..Default::default() }
}

fn by(login: &str) -> EventDetails<'_> {
    EventDetails { login: login.as_bytes(), ..EventDetails::default() }
}

fn name(event: &LoggedEvent) -> String {
    String::from_utf8(event.stored.clone()).unwrap()
}

fn events(spool: &mut Spool, kind: EventKind) -> Vec<LoggedEvent> {
    spool.read_events(&mut EventReader::new(kind), at(0), true).unwrap()
}

fn shown(spool: &mut Spool, kind: EventKind) -> Vec<String> {
    events(spool, kind).iter().map(name).collect()
}

fn bytes_of(spool: &Spool, file: &str) -> Vec<u8> {
    std::fs::read(spool.directory().join(file)).unwrap_or_default()
}

fn append(spool: &Spool, file: &str, bytes: &[u8]) {
    use std::io::Write as _;
    let path = spool.directory().join(file);
    let mut file = std::fs::OpenOptions::new().append(true).create(true).open(path).unwrap();
    file.write_all(bytes).unwrap();
}

/// Whether a file has the bytes of the address.
fn is_anywhere(spool: &Spool) -> bool {
    FILES.iter().any(|file| {
        let bytes = bytes_of(spool, file).to_ascii_lowercase();
        bytes.windows(15).any(|window| window == b"bob@example.org")
    })
}

fn rotate(spool: &Spool) {
    for file in ["crossings", "refusals"] {
        let path = spool.directory().join(file);
        std::fs::rename(&path, spool.directory().join(format!("{file}.1"))).unwrap();
    }
}

/// Erases the person, and checks that it was counted before and that nothing is left.
fn erase(spool: &mut Spool) -> ErasedEvents {
    let sizes = |spool: &Spool| FILES.map(|file| bytes_of(spool, file).len());
    let (counted, before) = (spool.count_events_of(&theirs).unwrap(), sizes(spool));
    let erased = spool.erase_events_of(&theirs).unwrap();
    assert_eq!((erased, sizes(spool)), (counted, before));
    assert!(!is_anywhere(spool));
    assert_eq!(spool.count_events_of(&theirs).unwrap(), ErasedEvents::default());
    let files = FILES.map(|file| bytes_of(spool, file));
    assert_eq!(spool.erase_events_of(&theirs).unwrap(), ErasedEvents::default());
    assert_eq!(FILES.map(|file| bytes_of(spool, file)), files);
    erased
}

#[test]
fn an_event_of_theirs_goes_and_another_loses_the_text_that_is_theirs() {
    for field in 0..TEXTS {
        for text in ["bob@example.org", "BOB@Example.ORG", "<Bob@example.org>"] {
            let folder = memory_folder();
            let mut spool = open(folder.path());
            let sound = [
                "1h/alice",
                "p",
                "r",
                "u",
                "l",
                "192.0.2.7",
                "s@a",
                "r@a",
                "id",
                "smtp",
                "/x",
                "e",
            ];
            let mut fields = sound.map(str::as_bytes);
            fields[field] = text.as_bytes();
            let [
                key,
                policy,
                rule,
                unit,
                login,
                client,
                sender,
                recipient,
                message_id,
                protocol,
                script,
                evidence,
            ] = fields;
            let details = EventDetails {
                policy,
                rule,
                unit,
                login,
                client,
                sender,
                recipient,
                message_id,
                protocol,
                script,
                evidence,
                ..by("")
            };
            over(&mut spool, "first", 1000, by("alice"));
            over(&mut spool, std::str::from_utf8(key).unwrap(), 1001, details);
            over(&mut spool, "last", 1002, by("xbob@example.orga"));
            let before = EventKind::ALL.map(|kind| events(&mut spool, kind));
            let counted = spool.count_events_of(&theirs).unwrap();
            let erased = spool.erase_events_of(&theirs).unwrap();
            assert_eq!(erased, counted);
            let whole = field == 0 || field == 4;
            let expected = match whole {
                true => ErasedEvents { crossings: 1, refusals: 1, ..Default::default() },
                false => ErasedEvents { recipients: 2, ..Default::default() },
            };
            assert_eq!(erased, expected, "{field}");
            for (kind, mut before) in EventKind::ALL.into_iter().zip(before) {
                match whole {
                    true => drop(before.remove(1)),
                    false => {
                        fields[field] = b"";
                        let [_, texts @ ..] = fields.map(<[u8]>::to_vec);
                        before[1].texts = texts.into();
                    }
                }
                assert_eq!(events(&mut spool, kind), before, "{field}");
            }
            assert_eq!(spool.erase_events_of(&theirs).unwrap(), ErasedEvents::default());
        }
    }
}

#[test]
fn an_event_goes_whole_from_both_files() {
    let folder = memory_folder();
    let mut spool = open(folder.path());
    for second in 0..3 {
        over(&mut spool, &format!("before{second}"), 1000 + second, by("alice"));
        over(&mut spool, "1h/bob@example.org", 1000 + second * 200, to("alice@example.org"));
    }
    // Its details are in the next file.
    let details = bytes_of(&spool, "crossings");
    over(&mut spool, "of two files", 1003, by("Bob@example.org"));
    let all = bytes_of(&spool, "crossings");
    let (_, size) = Entry::decode(&all[details.len()..], spool.database.hashing.seed).unwrap();
    let (former, latter) = all.split_at(details.len() + size);
    std::fs::write(spool.directory().join("crossings"), former).unwrap();
    rotate(&spool);
    append(&spool, "crossings", latter);
    over(&mut spool, "after", 1004, to("bob@example.org"));
    let erased = erase(&mut spool);
    assert_eq!(erased, ErasedEvents { crossings: 4, refusals: 4, recipients: 2, damaged: 0 });
    for kind in EventKind::ALL {
        assert_eq!(shown(&mut spool, kind), ["before0", "before1", "before2", "after"]);
        let last = events(&mut spool, kind).pop().unwrap();
        assert_eq!(last.texts.client, b"192.0.2.7");
    }
}

#[test]
fn a_crossing_that_was_written_again_goes_with_the_one_that_names_them() {
    let folder = memory_folder();
    let mut spool = open(folder.path());
    let seed = spool.database.hashing.seed;
    over(&mut spool, "record", 1000, by("bob@example.org"));
    over(&mut spool, "other", 1000, by("alice"));
    let all = bytes_of(&spool, "crossings");
    let (mut again, _) = Entry::decode(&all, seed).unwrap();
    again.at.seconds += 1;
    append(&spool, "crossings", &again.encode(seed));
    assert_eq!(shown(&mut spool, EventKind::Crossings), ["record", "other"]);
    assert_eq!(erase(&mut spool).crossings, 1);
    assert_eq!(shown(&mut spool, EventKind::Crossings), ["other"]);
}

#[test]
fn a_reader_keeps_its_place() {
    let folder = memory_folder();
    let (mut spool, mut other) = (open(folder.path()), open(folder.path()));
    for kind in EventKind::ALL {
        let mut reader = EventReader::new(kind);
        let mut next = |spool: &mut Spool| -> Vec<String> {
            spool.read_events(&mut reader, at(0), false).unwrap().iter().map(name).collect()
        };
        let start = 1000 + 1000 * i64::from(kind == EventKind::Refusals);
        for n in 0..4 {
            over(&mut spool, &format!("a{n}"), start + n, to("bob@example.org"));
        }
        assert!(next(&mut spool).len() >= 4);
        over(&mut spool, "bob@example.org", start + 5, by("bob@example.org"));
        over(&mut spool, "b", start + 6, by("alice"));
        erase(&mut other);
        over(&mut spool, "c", start + 7, by("alice"));
        assert_eq!(next(&mut spool), ["b", "c"]);
        assert!(next(&mut spool).is_empty());
    }
}

#[test]
fn writers_lose_nothing_and_nothing_is_read_twice() {
    const WRITERS: usize = 4;
    const EVENTS: usize = 150;
    let folder = memory_folder();
    let (mut command, mut follower) = (open(folder.path()), open(folder.path()));
    let left = AtomicUsize::new(WRITERS);
    let mut readers = EventKind::ALL.map(EventReader::new);
    let mut read = EventKind::ALL.map(|_| Vec::new());
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let (folder, left) = (folder.path(), &left);
            scope.spawn(move || {
                let mut spool = open(folder);
                for n in 0..EVENTS {
                    let key = format!("{writer}/{n}");
                    over(&mut spool, &key, 1000, to("bob@example.org"));
                    over(&mut spool, &format!("{key}/bob@example.org"), 1000, by("x"));
                }
                left.fetch_sub(1, Ordering::Release);
            });
        }
        loop {
            let done = left.load(Ordering::Acquire) == 0;
            command.erase_events_of(&theirs).unwrap();
            for (reader, read) in readers.iter_mut().zip(&mut read) {
                let events = follower.read_events(reader, at(1000), done).unwrap();
                read.extend(events.iter().map(name).filter(|name| !name.contains("bob")));
            }
            if done {
                break;
            }
        }
    });
    let mut expected: Vec<String> =
        (0..WRITERS).flat_map(|writer| (0..EVENTS).map(move |n| format!("{writer}/{n}"))).collect();
    expected.sort();
    for ((mut read, reader), kind) in read.into_iter().zip(readers).zip(EventKind::ALL) {
        read.sort();
        assert_eq!(read, expected);
        assert_eq!(reader.damaged(), 0);
        let mut shown = shown(&mut follower, kind);
        shown.sort();
        assert_eq!(shown, expected);
    }
    assert!(!is_anywhere(&follower));
}

#[test]
fn a_kill_hides_no_other_event_and_a_second_call_completes_it() {
    for steps in 0.. {
        let folder = memory_folder();
        let mut spool = open(folder.path());
        for n in 0..3 {
            over(&mut spool, &format!("first{n}"), 1000 + n, by("alice"));
            over(&mut spool, &format!("theirs{n}"), 1000 + n, by("bob@example.org"));
            over(&mut spool, &format!("{n}/bob@example.org"), 1000 + n, by("alice"));
            over(&mut spool, &format!("to{n}"), 1000 + n, to("bob@example.org"));
        }
        append(&spool, "refusals", b"EXEV torn bob@example.org");
        let died = failpoint::dies_after(steps, || spool.erase_events_of(&theirs).unwrap());
        let mut spool = open(folder.path());
        for kind in EventKind::ALL {
            let shown = shown(&mut spool, kind);
            let count = |part: &str| shown.iter().filter(|name| name.starts_with(part)).count();
            assert_eq!(count("first"), 3, "step {steps}");
            // A write that ends in the middle destroys one entry.
            assert!(count("to") >= 2, "step {steps}");
        }
        erase(&mut spool);
        for kind in EventKind::ALL {
            let shown = shown(&mut spool, kind);
            assert!(shown.iter().all(|n| n.starts_with("first") || n.starts_with("to")));
            assert!(shown.len() >= 5, "step {steps}");
        }
        if !died {
            assert!(steps > 20);
            break;
        }
    }
}

#[test]
fn bytes_that_are_no_entry_become_zeros_if_they_name_them() {
    let folder = memory_folder();
    let mut spool = open(folder.path());
    let seed = spool.database.hashing.seed;
    over(&mut spool, "bob@example.org", 1000, to("bob@example.org"));
    let whole = bytes_of(&spool, "refusals");
    over(&mut spool, "one", 1001, by("alice"));
    let mut stretches: Vec<Vec<u8>> = vec![
        b"EXEV torn bob@example.org".to_vec(),
        b"EXEVEXEV,Bob@Example.orgEXEV".to_vec(),
        // The lengths of the next texts are letters.
        b"\x0f\0bob@example.orga\0".to_vec(),
        b"x\x0f\0bob@example.orgab".to_vec(),
        whole[..whole.len() - 1].to_vec(),
    ];
    let mut damaged = whole.clone();
    damaged[20] ^= 1;
    stretches.push(damaged);
    for (n, bytes) in stretches.iter().enumerate() {
        append(&spool, "refusals", b"EXEV xbob@example.com");
        over(&mut spool, &format!("a{n}"), 1002, by("alice"));
        append(&spool, "refusals", bytes);
        over(&mut spool, &format!("b{n}"), 1003, by("alice"));
    }
    // The end of the file, where a process was killed.
    append(&spool, "refusals", &whole[..whole.len() - 30]);
    let mut reader = EventReader::new(EventKind::Refusals);
    let before = spool.read_events(&mut reader, at(0), false).unwrap().len();
    let erased = erase(&mut spool);
    assert_eq!(erased.damaged, stretches.len() as u64 + 1);
    assert_eq!((erased.refusals, erased.crossings, erased.recipients), (1, 1, 0));
    let left = bytes_of(&spool, "refusals");
    let others = left.windows(16).filter(|window| *window == b"xbob@example.com").count();
    assert_eq!(others, stretches.len());
    over(&mut spool, "last", 1004, by("alice"));
    assert_eq!(shown(&mut spool, EventKind::Refusals).len(), before);
    let next = spool.read_events(&mut reader, at(0), false).unwrap();
    assert_eq!(next.iter().map(name).collect::<Vec<_>>(), ["last"]);
    assert_eq!(Entry::decode(&whole, seed).unwrap().0.texts[0], b"bob@example.org");
}

#[test]
fn an_entry_of_a_later_version_goes_whole() {
    let folder = memory_folder();
    let mut spool = open(folder.path());
    let seed = spool.database.hashing.seed;
    let later = |size: usize, text: &[u8]| {
        let mut bytes = vec![0; size];
        bytes[..8].copy_from_slice(b"EXEV\0\0\0\x03");
        bytes[4..6].copy_from_slice(&(size as u16).to_le_bytes());
        bytes[6] = VERSION + 1;
        bytes[20..20 + text.len()].copy_from_slice(text);
        let mut hasher = crc32fast::Hasher::new_with_initial(seed);
        hasher.update(&bytes[..CRC]);
        hasher.update(&bytes[CRC + 4..]);
        bytes[CRC..CRC + 4].copy_from_slice(&hasher.finalize().to_le_bytes());
        bytes
    };
    let kept = later(100, b"alice@example.org");
    // The smaller one has no room for a blank entry.
    for bytes in [later(100, b"bob@example.org"), later(50, b"bob@example.org"), kept.clone()] {
        append(&spool, "refusals", &bytes);
        over(&mut spool, "key", 1000, by("alice"));
    }
    let before = shown(&mut spool, EventKind::Refusals);
    assert_eq!(erase(&mut spool), ErasedEvents { refusals: 2, ..Default::default() });
    assert!(bytes_of(&spool, "refusals").windows(100).any(|window| window == kept));
    assert_eq!(shown(&mut spool, EventKind::Refusals), before);
}

#[test]
fn what_is_too_old_is_still_removed_by_writers() {
    let folder = memory_folder();
    let mut spool = open(folder.path());
    for n in 0..20 {
        over(&mut spool, &format!("{n}/bob@example.org"), 1000, by("bob@example.org"));
    }
    over(&mut spool, "old", 1000, by("alice"));
    erase(&mut spool);
    assert!(bytes_of(&spool, "refusals").windows(5).any(|window| window == b"alice"));
    let later = 1001 + 90 * 86_400;
    over(&mut spool, "new", later, by("x"));
    assert!(!bytes_of(&spool, "refusals").windows(5).any(|window| window == b"alice"));
    assert_eq!(shown(&mut spool, EventKind::Refusals), ["new"]);
}

#[test]
fn what_is_still_being_written_stays() {
    let folder = memory_folder();
    let mut spool = open(folder.path());
    over(&mut spool, "bob@example.org", 1000, by("alice"));
    let (whole, seed) = (bytes_of(&spool, "refusals"), spool.database.hashing.seed);
    let begun = &whole[..whole.len() - 1];
    for (until, damaged) in [(0, 0), (begun.len(), 1)] {
        let mut search = super::erase::Search::new(EventKind::Refusals, seed, &theirs);
        search.file(0, begun, until);
        assert_eq!(search.finish().0.damaged, damaged);
    }
}

#[test]
fn a_database_that_is_open_for_reading_is_counted_and_not_changed() {
    let folder = memory_folder();
    let mut spool = open(folder.path());
    over(&mut spool, "bob@example.org", 1000, by("alice"));
    rotate(&spool);
    over(&mut spool, "alice", 1000, to("bob@example.org"));
    let options = crate::spool::Options::default();
    let mut reader = Spool::open_existing(folder.path(), options).unwrap();
    let counted = reader.count_events_of(&theirs).unwrap();
    assert_eq!(counted, ErasedEvents { crossings: 1, refusals: 1, recipients: 2, damaged: 0 });
    assert!(matches!(reader.erase_events_of(&theirs), Err(SpoolError::ReadOnly { .. })));
    assert_eq!(erase(&mut spool), counted);
}
