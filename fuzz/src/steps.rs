//! Operations of processes on a database, and the conditions that must hold for
//! any contents.

use arbitrary::Arbitrary;
use exirate::engine::{AlgorithmKind, Change, FilterChange, RecordKey, State};
use exirate::rate::bloom::{self, Event};
use exirate::rate::{Average, Timestamp};
use exirate::spool::{Options, Spool, SpoolError};
use exirate::store::{Entry, FilterEntry, Restored};

use crate::ground;

/// One operation on the database.
#[derive(Arbitrary, Debug)]
pub enum Step {
    /// A check that writes.
    Write {
        key: u8,
        algorithm: u8,
        rate: u32,
        filter: Filter,
    },
    /// A read-only check.
    Read {
        key: u8,
    },
    /// As `exirate check --dry-run`.
    Peek {
        key: u8,
    },
    /// So many new keys, so that the shard grows.
    Fill {
        from: u16,
        count: u8,
    },
    /// A new process opens the database.
    Reopen,
    /// A new process opens the database read-only.
    Look,
    List,
    Verify,
    /// The program's commands with these names.
    Stats,
    Forget {
        key: u8,
    },
    Restore {
        key: u8,
        algorithm: u8,
        at: i64,
        filter: Option<u8>,
    },
    Tidy {
        compact: bool,
    },
    Repair,
}

/// The change of the filter by a check.
#[derive(Arbitrary, Clone, Copy, Debug)]
pub enum Filter {
    Keep,
    Insert(u64),
    Renew { bytes: u8, event: u64 },
}

impl Step {
    /// Whether it is an operation on all shards.
    fn is_for_all(&self) -> bool {
        use Step::{List, Look, Repair, Stats, Tidy, Verify};
        matches!(self, Look | List | Verify | Stats | Tidy { .. } | Repair)
    }
}

/// Runs operations on the database created by [`ground::lay`].
pub fn take(steps: &[Step]) {
    let Some(mut spool) = open() else { return };
    // Operations on all 256 shards take as long as all others together.
    let mut whole = 0;
    for step in steps.iter().take(16) {
        whole += usize::from(step.is_for_all());
        match *step {
            _ if step.is_for_all() && whole > 1 => {}
            Step::Write { key, algorithm, rate, filter } => {
                let key = ground::key(key);
                write(&mut spool, record_key(&key, algorithm), f64::from(rate), filter);
            }
            Step::Read { key } => {
                let read = spool.update(&ground::key(key), None, |r, _| (r.is_some(), None));
                checked(read);
            }
            Step::Peek { key } => {
                checked(spool.peek(&ground::key(key), Some(b"event"), |r, _| r.is_some()));
            }
            Step::Fill { from, count } => {
                for n in 0..u16::from(count) {
                    let key = crate::ground::key_beyond(from.wrapping_add(n));
                    write(&mut spool, record_key(&key, 2), 1.0, Filter::Keep);
                }
            }
            Step::Reopen => match open() {
                Some(again) => spool = again,
                None => return,
            },
            Step::Look => {
                if let Some(mut reader) = checked(Spool::open_existing(&ground::folder(), OPTIONS))
                {
                    all(&mut reader);
                    checked(reader.peek(&ground::key(0), None, |r, _| r.is_some()));
                }
            }
            Step::List => all(&mut spool),
            Step::Verify => drop(checked(spool.verify())),
            Step::Stats => drop(checked(spool.stats())),
            Step::Forget { key } => {
                let key = ground::key(key);
                if checked(spool.forget(&key)).is_some() {
                    assert_eq!(checked(spool.get(&key)), Some(None), "it still exists");
                }
            }
            Step::Restore { key, algorithm, at, filter } => {
                restore(&mut spool, record_key(&ground::key(key), algorithm), at, filter);
            }
            Step::Tidy { compact: false } => drop(checked(spool.tidy(NOW, |_| ()))),
            Step::Tidy { compact: true } => drop(checked(spool.compact(NOW, |_| ()))),
            Step::Repair => repair(&mut spool),
        }
    }
}

/// A time at which the last quarter of the keys has expired.
const NOW: Timestamp = Timestamp { seconds: 1_800_000_000, micros: 0 };
const OPTIONS: Options = Options { timeout: std::time::Duration::from_secs(1) };

fn open() -> Option<Spool> {
    checked(Spool::open(&ground::folder(), OPTIONS))
}

/// The value of a successful operation. Whatever the files contain, the only
/// acceptable errors are a later version, and damage where nothing may be
/// repaired.
fn checked<T>(result: Result<T, SpoolError>) -> Option<T> {
    match result {
        Ok(value) => Some(value),
        Err(SpoolError::Version { version, .. }) => {
            assert!(!version.known.contain(version.found), "{version:?} is refused, but known");
            None
        }
        Err(SpoolError::Damaged { .. }) => None,
        Err(error) => panic!("{error}"),
    }
}

/// The key of a record of one of all algorithms.
fn record_key(name: &[u8], algorithm: u8) -> RecordKey<'_> {
    RecordKey { algorithm: ground::algorithm(algorithm), ..name.into() }
}

/// The second in which the calendar window of a record with this key began; 0 of others.
fn start(key: &RecordKey<'_>) -> i64 {
    if key.algorithm == AlgorithmKind::Calendar { NOW.seconds - 100 } else { 0 }
}

/// A written value is read back, whatever was there before.
fn write(spool: &mut Spool, key: RecordKey<'_>, rate: f64, filter: Filter) {
    let at = Timestamp { micros: 5, ..NOW };
    let filter = match filter {
        Filter::Keep => FilterChange::Keep,
        Filter::Insert(event) => FilterChange::Insert(spread(event)),
        Filter::Renew { bytes, event } => {
            FilterChange::Renew { bytes: usize::from(bytes), epoch: 7, event: spread(event) }
        }
    };
    let period = ground::period(key.name).into();
    let start = start(&key);
    let state = State { start, over_since: 9, ..State::new(Average { at, rate }, 3.0, period) };
    let change = Change { state, filter };
    let written = spool.update(key, None, |r, _| (r.is_some(), Some(change)));
    if checked(written).is_none() {
        return;
    }
    let check = |found: exirate::engine::Remembered<'_>| {
        assert_eq!(
            (found.state.average, found.state.limit, found.state.over_since, found.state.start),
            (Some(Average { at, rate }), 3.0, 9, start)
        );
        match (change.filter, found.filter) {
            (FilterChange::Renew { bytes, epoch, event }, Some(filter)) => {
                assert_eq!((filter.bits.len(), filter.epoch), (bytes, epoch));
                assert!(bytes == 0 || bloom::contains(filter.bits, event));
            }
            (FilterChange::Renew { .. }, None) => panic!("the new filter is missing"),
            (FilterChange::Insert(event), Some(filter)) => {
                assert!(filter.bits.is_empty() || bloom::contains(filter.bits, event));
            }
            // No share is made here.
            (FilterChange::Insert(_), None) | (FilterChange::Keep | FilterChange::Book(_), _) => {}
        }
    };
    let read = spool.update(key, None, |found, _| {
        check(found.expect("what was written is remembered"));
        ((), None)
    });
    read.expect("what was written can be read");
}

fn spread(event: u64) -> Event {
    Event(u128::from(event).wrapping_mul(0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C835))
}

/// Lists everything: never more than the files contain.
fn all(spool: &mut Spool) {
    let mut bytes = 0;
    let listed = spool.for_each(|entry| {
        let filter = entry.filter.map_or(0, |filter| filter.bits.len());
        bytes += crate::image::PLAIN_KEY + entry.key.len() + filter;
    });
    let left_out = checked(listed).expect("a damaged shard does not keep others from being listed");
    for error in left_out.shards {
        let _: Option<()> = checked(Err(error));
    }
    let path = ground::folder().join("exirate").join(format!("{:02x}.shard", ground::SHARD));
    let held = std::fs::metadata(path).map_or(0, |file| file.len());
    assert!(bytes as u64 <= held, "{bytes} bytes are listed of a file of {held}");
}

/// A restored value is read back, unless there is a newer one.
fn restore(spool: &mut Spool, key: RecordKey<'_>, at: i64, filter: Option<u8>) {
    let average = Average { at: Timestamp { seconds: at >> 24, micros: 0 }, rate: 2.0 };
    let filter =
        filter.map(|bytes| FilterEntry { epoch: 9, bits: vec![3; 1 + usize::from(bytes)] });
    let entry = Entry {
        key: key.name.to_vec(),
        identity_start: key.identity_start,
        kind: key.kind,
        algorithm: key.algorithm,
        average,
        limit: 1.0,
        start: start(&key),
        over_since: 0,
        period: ground::period(key.name).into(),
        last_over: 0,
        crossings: 3,
        apart: 0.5,
        filter,
    };
    match checked(spool.restore(&entry)) {
        Some(Restored::Added | Restored::Replaced) => {
            assert_eq!(spool.get(key).expect("it can be read"), Some(entry));
        }
        Some(Restored::Kept | Restored::NotShared) | None => {}
    }
}

/// A database that has been repaired is sound.
fn repair(spool: &mut Spool) {
    if checked(spool.repair(NOW, |_| ())).is_some() {
        let report = spool.verify().expect("what was repaired can be read");
        let problems: Vec<_> = report.problems().collect();
        assert!(problems.is_empty(), "{problems:?}");
    }
}
