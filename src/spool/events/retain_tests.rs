//! The size limits and ages of the event logs: what is shown, and what is on the disk.

use crate::engine::{Algorithm, Check, Decision};
use crate::rate::Timestamp;
use crate::store::Store as _;
use crate::sys::simulated_disk::memory_folder;

use super::super::tests::open;
use super::*;

const DAY: i64 = 86_400;

fn at(seconds: i64) -> Timestamp {
    Timestamp { seconds, micros: 0 }
}

/// A check that is over its limit.
fn over(spool: &mut Spool, key: &str, second: i64) -> Decision {
    let check = Check {
        count: 30.0,
        ..Check::new(key, Algorithm::MovingAverage { limit: 10.0, period: 60.0 })
    };
    let decision = spool.decide_one(&check, || at(second)).unwrap();
    spool.describe(&EventDetails { login: key.as_bytes(), ..EventDetails::default() });
    decision
}

/// The keys of the events that are shown at `now`.
fn shown(spool: &mut Spool, kind: EventKind, now: i64) -> Vec<String> {
    let mut reader = EventReader::new(kind);
    let events = spool.read_events(&mut reader, at(now), true).unwrap();
    assert_eq!(reader.damaged(), 0);
    events.iter().map(|event| String::from_utf8(event.stored.clone()).unwrap()).collect()
}

/// The names of the files of both logs that hold `text`.
fn holding(spool: &Spool, text: &str) -> Vec<&'static str> {
    let names = ["crossings", "crossings.1", "refusals", "refusals.1"];
    let holds = |name: &&str| {
        let bytes = std::fs::read(spool.directory().join(name)).unwrap_or_default();
        bytes.windows(text.len()).any(|window| window == text.as_bytes())
    };
    names.into_iter().filter(holds).collect()
}

fn limits(crossings_keep: Option<u64>, refusals_keep: Option<u64>) -> EventLimits {
    let default = EventLimits::default();
    EventLimits {
        crossings: LogLimits { keep: crossings_keep, ..default.crossings },
        refusals: LogLimits { keep: refusals_keep, ..default.refusals },
    }
}

#[test]
fn an_event_is_shown_until_it_is_as_old_as_its_log_keeps_it() {
    for (kind, age) in [(EventKind::Crossings, 90), (EventKind::Refusals, 14)] {
        let folder = memory_folder();
        let mut spool = open(folder.path());
        over(&mut spool, "key", 1_000_000);
        let last = 1_000_000 + age * DAY;
        assert_eq!(shown(&mut spool, kind, last), ["key"]);
        assert!(shown(&mut spool, kind, last + 1).is_empty());
        // It is hidden, and the next writer or `tidy` removes it.
        assert_eq!(shown(&mut spool, kind, last), ["key"]);
    }
}

#[test]
fn tidying_removes_the_bytes_of_an_old_event_and_of_no_other() {
    let folder = memory_folder();
    let mut spool = open(folder.path());
    spool.set_event_limits(limits(Some(10 * 86_400), Some(3600))).unwrap();
    let start = 1_000_000;
    over(&mut spool, "older@example.org", start);
    over(&mut spool, "newer@example.org", start + 1);
    let refusals = |spool: &Spool, name| holding(spool, name).contains(&"refusals");
    spool.tidy_events(at(start + 3600)).unwrap();
    assert!(refusals(&spool, "older@") && refusals(&spool, "newer@"));
    spool.tidy_events(at(start + 3601)).unwrap();
    assert!(!refusals(&spool, "older@") && refusals(&spool, "newer@"));
    assert_eq!(holding(&spool, "older@"), ["crossings"]);
    assert_eq!(shown(&mut spool, EventKind::Refusals, start), ["newer@example.org"]);
    // Readers and writers go on in the same file.
    over(&mut spool, "latest@example.org", start + 3601);
    let all = ["newer@example.org", "latest@example.org"];
    assert_eq!(shown(&mut spool, EventKind::Refusals, start), all);
    spool.tidy_events(at(start + 10 * DAY + 1)).unwrap();
    assert!(holding(&spool, "older@").is_empty());
    assert_eq!(holding(&spool, "newer@"), ["crossings"]);
    spool.tidy_events(at(start + 10 * DAY + 2)).unwrap();
    assert!(holding(&spool, "newer@").is_empty());
    // A file without an event goes, in two steps.
    spool.tidy_events(at(start + 30 * DAY)).unwrap();
    spool.tidy_events(at(start + 30 * DAY)).unwrap();
    for name in ["crossings", "crossings.1", "refusals", "refusals.1"] {
        assert!(!spool.directory().join(name).exists(), "{name}");
    }
    over(&mut spool, "new@example.org", start + 30 * DAY);
    assert_eq!(shown(&mut spool, EventKind::Crossings, start + 30 * DAY).len(), 1);
}

#[test]
fn writers_remove_what_is_too_old() {
    let folder = memory_folder();
    let mut spool = open(folder.path());
    spool.set_event_limits(limits(Some(3600), Some(3600))).unwrap();
    for n in 0..200 {
        over(&mut spool, &format!("key{n:04}@example.org"), 1_000_000 + n);
    }
    for n in 0..200 {
        over(&mut spool, &format!("later{n:04}@example.org"), 1_003_601 + n);
        // Each writer removes more than it adds.
        assert!(holding(&spool, &format!("key{n:04}@")).is_empty(), "{n}");
    }
    assert!(holding(&spool, "key").is_empty());
    assert_eq!(shown(&mut spool, EventKind::Crossings, 1_003_601).len(), 200);
    assert_eq!(shown(&mut spool, EventKind::Refusals, 1_003_601).len(), 200);
}

#[test]
fn a_wrong_time_does_not_stop_the_removal_and_forever_is_for_ever() {
    let folder = memory_folder();
    let mut spool = open(folder.path());
    over(&mut spool, "future@example.org", 1 << 40);
    over(&mut spool, "old@example.org", 1_000_000);
    spool.tidy_events(at(1_000_000 + 91 * DAY)).unwrap();
    assert!(holding(&spool, "old@").is_empty());
    assert_eq!(shown(&mut spool, EventKind::Crossings, 1_000_000), ["future@example.org"]);
    spool.set_event_limits(limits(None, None)).unwrap();
    spool.tidy_events(at(1 << 41)).unwrap();
    assert_eq!(shown(&mut spool, EventKind::Crossings, 1 << 41), ["future@example.org"]);
}

#[test]
fn damaged_bytes_before_an_old_event_go_with_it() {
    use std::io::Write as _;
    let folder = memory_folder();
    let mut spool = open(folder.path());
    over(&mut spool, "one", 1_000_000);
    let path = spool.directory().join("refusals");
    let mut file = std::fs::OpenOptions::new().append(true).open(path).unwrap();
    file.write_all(b"EXEV torn@example.org").unwrap();
    over(&mut spool, "two", 1_000_001);
    spool.tidy_events(at(1_000_001 + 14 * DAY)).unwrap();
    assert_eq!(holding(&spool, "torn@"), ["refusals"]);
    spool.tidy_events(at(1_000_002 + 14 * DAY)).unwrap();
    assert!(holding(&spool, "torn@").is_empty());
}

#[test]
fn a_kill_while_old_events_are_removed_hides_no_other() {
    use crate::sys::failpoint;
    let mut deaths = 0;
    for steps in 0.. {
        let folder = memory_folder();
        let mut spool = open(folder.path());
        for n in 0..6 {
            over(&mut spool, &format!("key{n}"), 1_000_000 + n);
        }
        let now = at(1_000_003 + 14 * DAY);
        let died = failpoint::dies_after(steps, || spool.tidy_events(now).unwrap());
        let mut spool = open(folder.path());
        let left = shown(&mut spool, EventKind::Refusals, now.seconds);
        assert_eq!(left, ["key3", "key4", "key5"], "step {steps}");
        spool.tidy_events(now).unwrap();
        assert!(!holding(&spool, "key2").contains(&"refusals"), "step {steps}");
        assert_eq!(shown(&mut spool, EventKind::Refusals, 1_000_000).len(), 3);
        deaths += u32::from(died);
        if !died {
            break;
        }
    }
    assert!(deaths < 1000);
}

#[test]
fn running_processes_apply_new_limits_at_their_next_check() {
    let folder = memory_folder();
    let (mut running, mut command) = (open(folder.path()), open(folder.path()));
    for n in 0..3 {
        over(&mut running, &format!("old{n}@example.org"), 1_000_000);
    }
    assert_eq!(running.event_limits().unwrap(), EventLimits::default());
    let mut smaller = limits(Some(3600), Some(7200));
    smaller.refusals.max_bytes = EVENT_BYTES_MIN;
    command.set_event_limits(smaller).unwrap();
    assert_eq!(command.event_limits().unwrap(), smaller);
    over(&mut running, "new@example.org", 1_003_601);
    assert!(!holding(&running, "old0@").contains(&"crossings"));
    assert!(holding(&running, "old0@").contains(&"refusals"));
    for n in 0..6000 {
        over(&mut running, &format!("new{n}@example.org"), 1_003_601);
    }
    assert!(running.event_bytes(EventKind::Refusals).unwrap() <= EVENT_BYTES_MIN);
    assert!(running.event_bytes(EventKind::Crossings).unwrap() > EVENT_BYTES_MIN);
    // A lower limit removes what has no room.
    smaller.crossings.max_bytes = EVENT_BYTES_MIN;
    command.set_event_limits(smaller).unwrap();
    command.tidy_events(at(1_003_601)).unwrap();
    let last = shown(&mut running, EventKind::Crossings, 1_003_601);
    assert_eq!(last.last().map(String::as_str), Some("new5999@example.org"));
}

#[test]
fn limits_are_kept_by_every_change_of_the_database() {
    let folder = memory_folder();
    let mut spool = open(folder.path());
    let own = EventLimits {
        crossings: LogLimits { max_bytes: 2 << 20, keep: None },
        refusals: LogLimits { max_bytes: 3 << 20, keep: Some(5000) },
    };
    spool.set_event_limits(own).unwrap();
    spool.set_max_bytes(1 << 28).unwrap();
    assert_eq!(spool.event_limits().unwrap(), own);
    assert_eq!((open(folder.path()).max_bytes(), spool.max_bytes()), (1 << 28, 1 << 28));
    let target = memory_folder();
    spool.copy_to(target.path(), |_| {}).unwrap();
    assert_eq!(open(target.path()).event_limits().unwrap(), own);
    // Limits beyond what is possible are moved to the nearest that is.
    let beyond = |max_bytes, keep| LogLimits { max_bytes, keep };
    let (low, high) = (beyond(0, Some(0)), beyond(u64::MAX, Some(u64::MAX - 1)));
    spool.set_event_limits(EventLimits { crossings: low, refusals: high }).unwrap();
    let bounded = EventLimits {
        crossings: beyond(EVENT_BYTES_MIN, Some(EVENT_KEEP_MIN)),
        refusals: beyond(EVENT_BYTES_MAX, Some(u64::MAX - 1)),
    };
    assert_eq!(spool.event_limits().unwrap(), bounded);
    // Damaged ones, and those of a file without any, are the defaults.
    let path = spool.directory().join("database");
    let sound = std::fs::read(&path).unwrap();
    for place in 56..92 {
        let mut bytes = sound.clone();
        bytes[place] ^= 1;
        std::fs::write(&path, bytes).unwrap();
        assert_eq!(open(folder.path()).event_limits().unwrap(), EventLimits::default());
    }
    std::fs::write(&path, &sound[..56]).unwrap();
    let mut old = open(folder.path());
    assert_eq!(old.event_limits().unwrap(), EventLimits::default());
    over(&mut old, "key", 1000);
    assert_eq!(shown(&mut old, EventKind::Crossings, 1000), ["key"]);
    old.set_event_limits(own).unwrap();
    assert_eq!(open(folder.path()).event_limits().unwrap(), own);
    // A damaged key leaves them.
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[20] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    assert_eq!(open(folder.path()).event_limits().unwrap(), own);
}
