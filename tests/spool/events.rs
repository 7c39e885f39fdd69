//! Sixteen processes cross limits together and are killed at random: no crossing is lost,
//! and none is read twice.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Child;
use std::time::{Duration, Instant};

use crate::common::{now, open};
use exirate::engine::{Algorithm, Check, Decision, Update};
use exirate::rate::Timestamp;
use exirate::spool::{EventDetails, EventKind, EventReader, LoggedEvent, Spool};
use exirate::store::Store as _;
use kit::worker::start;

const PROCESSES: usize = 16;
/// A record crosses again once its second has passed.
const PERIOD: f64 = 0.4;
const KEYS: [&str; 6] = ["leaky 1", "strict 1", "leaky 2", "strict 2", "leaky 3", "strict 3"];
/// How many of them are killed at least, and how many at most.
const KILLS: std::ops::Range<usize> = 100..100_000;

fn check(key: &str) -> Check<'_> {
    Check {
        count: 30.0,
        update: if key.starts_with("leaky") { Update::Leaky } else { Update::Strict },
        ..Check::new(key, Algorithm::MovingAverage { limit: 10.0, period: PERIOD })
    }
}

fn cross(spool: &mut Spool, key: &str, client: &str, at: fn() -> Timestamp) -> Decision {
    let decision = spool.decide_one(&check(key), at).unwrap();
    if spool.has_events() {
        spool.describe(&EventDetails { client: client.as_bytes(), ..EventDetails::default() });
    }
    decision
}

pub(crate) fn worker(arguments: &[String]) {
    let [folder, number] = arguments else { panic!("{arguments:?}") };
    let mut spool = open(Path::new(folder));
    // So that none outlives the test.
    let begun = Instant::now();
    while begun.elapsed() < kit::TIMEOUT {
        KEYS.iter().for_each(|key| {
            cross(&mut spool, key, number, now);
        });
    }
}

fn kill(mut child: Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}

/// A time at which each record crosses again.
fn later() -> Timestamp {
    let now = now();
    Timestamp { seconds: now.seconds + 3, ..now }
}

/// The crossings of each key.
fn read(spool: &mut Spool) -> BTreeMap<String, Vec<LoggedEvent>> {
    let mut reader = EventReader::new(EventKind::Crossings);
    let mut crossings: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for event in spool.read_events(&mut reader, later(), true).unwrap() {
        let key = String::from_utf8(event.stored.clone()).unwrap();
        crossings.entry(key).or_default().push(event);
    }
    assert_eq!(reader.damaged(), 0);
    crossings
}

#[test]
fn no_crossing_is_lost_or_read_twice_whoever_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    let begin = |number: usize| start(&["events", path, &number.to_string()]);
    let mut workers: Vec<Child> = (0..PROCESSES).map(begin).collect();
    let mut spool = open(folder.path());
    let (mut reader, mut found) = (EventReader::new(EventKind::Crossings), BTreeMap::new());
    let mut crossed = || {
        for event in spool.read_events(&mut reader, now(), true).unwrap() {
            *found.entry(event.stored).or_insert(0) += 1;
        }
        KEYS.iter().all(|key| found.get(key.as_bytes()).is_some_and(|count| *count > 2))
    };
    let (mut random, mut kills) = (kit::Random::new(7), 0);
    // Each record has crossed several times by then, however busy the machine is.
    while kills < KILLS.start || !crossed() {
        assert!(kills < KILLS.end, "they do not cross their limits");
        std::thread::sleep(Duration::from_millis(random.below(30) as u64));
        let number = random.below(PROCESSES);
        kill(std::mem::replace(&mut workers[number], begin(number)));
        kills += 1;
    }
    workers.into_iter().for_each(kill);

    let mut spool = open(folder.path());
    assert_eq!(spool.verify().unwrap().problems().count(), 0);
    // Every record now crosses again, and says how often it has crossed.
    let last: Vec<_> = KEYS.iter().map(|key| cross(&mut spool, key, "last", later)).collect();
    let crossings = read(&mut spool);
    assert_eq!(spool.stats().unwrap().lost, 0);
    for (key, last) in KEYS.iter().zip(last) {
        let events = &crossings[*key];
        assert!(last.crossed && last.crossings > 2, "{key}: {last:?}");
        let mut numbers: Vec<_> = events.iter().map(|event| event.number).collect();
        for pair in events.windows(2) {
            let [one, other] = pair else { continue };
            // The state of the first was not written, and the period has passed since.
            let apart = other.at.as_seconds() - one.at.as_seconds();
            assert!(one.number < other.number || apart > PERIOD, "{key}: {pair:?}");
        }
        numbers.dedup();
        assert_eq!(numbers, (1..=last.crossings).collect::<Vec<_>>(), "{key}");
        let own = events.last().unwrap();
        assert!(own.has_details && own.texts.client == b"last", "{own:?}");
    }
}
