//! Any sequence of operations on a sound database, compared with a plain map.
#![no_main]

use std::collections::BTreeMap;
use std::time::Duration;

use arbitrary::Arbitrary;
use exirate::engine::{AlgorithmKind, Change, FilterChange, Kind, RecordKey, State};
use exirate::rate::bloom::{self, Event};
use exirate::rate::{Average, Timestamp};
use exirate::spool::{Options, Spool};
use exirate::store::{Entry, FilterEntry, Restored};
use exirate_fuzz::{ground, image};
use libfuzzer_sys::fuzz_target;

#[derive(Arbitrary, Debug)]
enum Step {
    /// A check of one key.
    Write {
        place: Place,
        value: Value,
        filter: Filter,
    },
    /// Checks of many new keys: the shard grows.
    Fill {
        from: u16,
        count: u8,
    },
    /// As `exirate unblock`, `exirate import`.
    Forget {
        place: Place,
    },
    Restore {
        place: Place,
        value: Value,
        filter: Option<(i32, u8)>,
    },
    /// The program's commands with these names.
    Tidy,
    Compact,
    Repair,
    /// A new process opens the database.
    Reopen,
    /// An earlier process uses it again.
    Swap,
}

#[derive(Arbitrary, Clone, Copy, Debug)]
struct Value {
    second: u32,
    rate: u16,
    limit: u8,
    over_since: u8,
}

/// A record, of one of the algorithms.
#[derive(Arbitrary, Clone, Copy, Debug)]
struct Place {
    key: u8,
    algorithm: u8,
}

#[derive(Arbitrary, Clone, Copy, Debug)]
enum Filter {
    Keep,
    Insert(u64),
    Renew { bytes: u16, epoch: i32, event: u64 },
}

/// What tells records apart: those of one name with different algorithms are different.
type Known = (Vec<u8>, AlgorithmKind);

/// Keys here have no period, so they do not expire.
fn key(place: Place) -> Known {
    (ground::key(place.key % 48), ground::algorithm(place.algorithm))
}

fn record_key((name, algorithm): &Known) -> RecordKey<'_> {
    RecordKey { algorithm: *algorithm, ..name.into() }
}

impl Value {
    fn average(self) -> Average {
        let at = Timestamp { seconds: self.second.into(), micros: u32::from(self.rate) };
        Average { at, rate: self.rate.into() }
    }

    /// The second in which the window began, if it is counted by the calendar.
    fn start(self, algorithm: AlgorithmKind) -> i64 {
        if algorithm == AlgorithmKind::Calendar { self.second.into() } else { 0 }
    }
}

fn spread(event: u64) -> Event {
    Event(u128::from(event).wrapping_mul(0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C835))
}

#[derive(Default)]
struct Model(BTreeMap<Known, Entry>);

impl Model {
    fn write(&mut self, spool: &mut Spool, key: Known, value: Value, filter: Filter) {
        let filter = match filter {
            Filter::Keep => FilterChange::Keep,
            Filter::Insert(event) => FilterChange::Insert(spread(event)),
            Filter::Renew { bytes, epoch, event } => FilterChange::Renew {
                bytes: 1 + usize::from(bytes % 300),
                epoch: epoch.into(),
                event: spread(event),
            },
        };
        let change = Change {
            state: State {
                start: value.start(key.1),
                over_since: value.over_since.into(),
                ..State::new(value.average(), value.limit.into(), 0.0)
            },
            filter,
        };
        let known =
            spool.update(record_key(&key), None, |found, _| (found.is_some(), Some(change)));
        let before = self.0.remove(&key);
        assert_eq!(known.expect("it can be written"), before.is_some());
        let mut bits = before.and_then(|entry| entry.filter);
        match filter {
            // No share is made here.
            FilterChange::Keep | FilterChange::Book(_) => {}
            FilterChange::Insert(event) => {
                if let Some(filter) = &mut bits {
                    bloom::insert(&mut filter.bits, event);
                }
            }
            FilterChange::Renew { bytes, epoch, event } => {
                let mut filter = FilterEntry { epoch, bits: vec![0; bytes] };
                bloom::insert(&mut filter.bits, event);
                bits = Some(filter);
            }
        }
        self.remember(key, value, bits);
    }

    fn remember(&mut self, key: Known, value: Value, filter: Option<FilterEntry>) {
        let entry = entry(key.clone(), value, filter);
        self.0.insert(key, entry);
    }

    fn restore(&mut self, spool: &mut Spool, entry: Entry) {
        let done = spool.restore(&entry).expect("it can be restored");
        let expected = match self.0.get(&known(&entry)) {
            None => Restored::Added,
            Some(known) if known.average.at < entry.average.at => Restored::Replaced,
            Some(_) => Restored::Kept,
        };
        assert_eq!(done, expected);
        if done != Restored::Kept {
            self.0.insert(known(&entry), entry);
        }
    }

    /// Everything is as expected, and nothing else exists.
    fn check(&self, spool: &mut Spool) {
        let mut found = BTreeMap::new();
        let left_out = spool.for_each(|entry| {
            assert!(found.insert(known(&entry), entry).is_none(), "a key is listed twice");
        });
        let left_out = left_out.expect("it can be listed");
        assert!(left_out.damaged == 0 && left_out.shards.is_empty(), "{left_out:?}");
        assert_eq!(found, self.0);
        let report = spool.verify().expect("it can be verified");
        let problems: Vec<_> = report.problems().collect();
        assert!(problems.is_empty(), "{problems:?}");
        assert_eq!(spool.damaged(), 0);
    }
}

fn known(entry: &Entry) -> Known {
    (entry.key.clone(), entry.algorithm)
}

fn entry((key, algorithm): Known, value: Value, filter: Option<FilterEntry>) -> Entry {
    let (limit, over_since) = (value.limit.into(), value.over_since.into());
    Entry {
        key,
        identity_start: 0,
        kind: Kind::Spec,
        algorithm,
        average: value.average(),
        limit,
        start: value.start(algorithm),
        over_since,
        period: 0.0,
        last_over: 0,
        crossings: 0,
        apart: 0.0,
        filter,
    }
}

fn open() -> Spool {
    let options = Options { timeout: Duration::from_secs(1) };
    Spool::open(&ground::folder(), options).expect("it can be opened")
}

fuzz_target!(|steps: Vec<Step>| {
    ground::lay(&image::Shard::new(ground::SHARD, 31).bytes);
    let (mut spool, mut other, mut model) = (open(), open(), Model::default());
    let now = Timestamp { seconds: 1_800_000_000, micros: 0 };
    let mut whole = 0;
    for step in steps {
        // Operations on all 256 shards take as long as all others together.
        whole += usize::from(matches!(step, Step::Tidy | Step::Compact | Step::Repair));
        match step {
            Step::Write { place, value, filter } => {
                model.write(&mut spool, key(place), value, filter);
            }
            Step::Fill { from, count } => {
                let value = Value { second: 5, rate: from, limit: 1, over_since: 0 };
                for n in 0..u16::from(count) {
                    let key =
                        (ground::key_beyond(from.wrapping_add(n)), AlgorithmKind::MovingAverage);
                    model.write(&mut spool, key, value, Filter::Keep);
                }
            }
            Step::Forget { place } => {
                let key = key(place);
                let forgotten = spool.forget(record_key(&key)).expect("it can be forgotten");
                assert_eq!(forgotten, model.0.remove(&key));
            }
            Step::Restore { place, value, filter } => {
                let filter = filter.map(|(epoch, byte)| FilterEntry {
                    epoch: epoch.into(),
                    bits: vec![byte; 1 + usize::from(byte)],
                });
                model.restore(&mut spool, entry(key(place), value, filter));
            }
            Step::Tidy | Step::Compact | Step::Repair if whole > 2 => {}
            Step::Tidy => drop(spool.tidy(now, |_| ()).expect("it can be tidied")),
            Step::Compact => drop(spool.compact(now, |_| ()).expect("it can be compacted")),
            Step::Repair => {
                let done = spool.repair(now, |_| ()).expect("it can be repaired");
                assert_eq!(done.rebuilt, 0, "a sound shard has been repaired");
            }
            Step::Reopen => spool = open(),
            Step::Swap => std::mem::swap(&mut spool, &mut other),
        }
    }
    model.check(&mut spool);
});
