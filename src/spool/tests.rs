//! Tests of the whole store, in one process: against a model.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use quickcheck::{Arbitrary, Gen};

use crate::engine::{Change, Check, FilterChange, State, Update};
use crate::rate::bloom::{self, Event};
use crate::rate::{Average, Timestamp};
use crate::spec::{Context, Spec};
use crate::store::{Store, conformance};

use crate::sys::secure_dir::DirError;
use crate::sys::{failpoint, fork};

use super::{Options, Spool, SpoolError};

pub(super) fn open(folder: &Path) -> Spool {
    Spool::open(folder, Options::default()).unwrap()
}

#[test]
fn conforms() {
    let folders = std::cell::RefCell::new(Vec::new());
    let fresh = || {
        let folder = tempfile::tempdir().unwrap();
        let spool = open(folder.path());
        folders.borrow_mut().push(folder);
        spool
    };
    conformance::all(&fresh);
    conformance::habits(&fresh);
    conformance::inspection(fresh);
}

/// Something that happens to a database.
#[derive(Clone, Debug)]
enum Step {
    Keep(u16),
    Insert(u16, u64),
    Renew(u16, u8, u64),
    Look(u16),
    Burst(u16),
    Reopen,
}

impl Arbitrary for Step {
    fn arbitrary(g: &mut Gen) -> Self {
        let key = u16::arbitrary(g) % 50;
        match u8::arbitrary(g) % 40 {
            0..10 => Step::Keep(key),
            10..20 => Step::Insert(key, u64::arbitrary(g)),
            20..30 => Step::Renew(key, u8::arbitrary(g), u64::arbitrary(g)),
            30..36 => Step::Look(key),
            36 => Step::Reopen,
            _ => Step::Burst(u16::arbitrary(g)),
        }
    }
}

/// What the model remembers of a key: its last change's number, its filter.
type Model = HashMap<Vec<u8>, (u32, Option<(i64, Vec<u8>)>)>;

pub(super) fn change(n: u32, filter: FilterChange) -> Change {
    let at = Timestamp { seconds: i64::from(n), micros: n % 1_000_000 };
    let average = Average { at, rate: f64::from(n) };
    Change {
        state: State { over_since: n, ..State::new(average, f64::from(n) * 2.0, 0.0) },
        filter,
    }
}

fn key_text(key: u16) -> Vec<u8> {
    // No period, so that nothing is ever forgotten.
    [format!("{key}-").into_bytes(), vec![b'k'; usize::from(key) % 90]].concat()
}

pub(super) fn event(n: u64) -> Event {
    Event(u128::from(n).wrapping_mul(0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C835))
}

fn bytes(size: u8) -> usize {
    // A few sizes, so that the same one often comes again.
    [0, 1, 40, 41, 500, 4096, 30_000, 100_000][usize::from(size) % 8]
}

/// Compares one key with the model.
fn same(spool: &mut Spool, model: &Model, key: &[u8]) -> bool {
    let expected = model.get(key);
    let look = |r: Option<crate::engine::Remembered<'_>>| match (r, expected) {
        (None, None) => true,
        (Some(r), Some((n, filter))) => {
            let wanted = change(*n, FilterChange::Keep);
            r.state == State { period: r.state.period, ..wanted.state }
                && r.filter.map(|f| (f.epoch, f.bits.to_vec())) == *filter
        }
        _ => false,
    };
    spool.update(key, None, |r, _| (look(r), None)).unwrap()
        && spool.peek(key, None, |r, _| look(r)).unwrap()
}

#[test]
fn behaves_as_a_map_does() {
    fn run(steps: Vec<Step>) -> bool {
        let folder = tempfile::tempdir().unwrap();
        let mut spool = open(folder.path());
        let mut model = Model::new();
        let mut n = 0;
        for step in steps {
            n += 1;
            let mut write = |spool: &mut Spool, key: u16, filter: FilterChange| {
                let key = key_text(key);
                spool.update(&key, None, |_, _| ((), Some(change(n, filter)))).unwrap();
                let record = model.entry(key).or_default();
                record.0 = n;
                match filter {
                    FilterChange::Keep | FilterChange::Book(_) => {}
                    FilterChange::Insert(event) => {
                        if let Some((_, bits)) = &mut record.1 {
                            bloom::insert(bits, event);
                        }
                    }
                    FilterChange::Renew { bytes, epoch, event } => {
                        let mut bits = vec![0; bytes];
                        bloom::insert(&mut bits, event);
                        record.1 = Some((epoch, bits));
                    }
                }
            };
            match step {
                Step::Keep(key) => write(&mut spool, key, FilterChange::Keep),
                Step::Insert(key, e) => write(&mut spool, key, FilterChange::Insert(event(e))),
                Step::Renew(key, size, e) => {
                    let (bytes, epoch) = (bytes(size), i64::from(n) - 50);
                    let event = event(e);
                    write(&mut spool, key, FilterChange::Renew { bytes, epoch, event });
                }
                Step::Look(key) => {
                    if !same(&mut spool, &model, &key_text(key)) {
                        return false;
                    }
                }
                Step::Burst(seed) => {
                    for i in 0..300u16 {
                        write(&mut spool, seed.wrapping_add(i) % 20_000, FilterChange::Keep);
                    }
                }
                Step::Reopen => spool = open(folder.path()),
            }
        }
        let report = spool.verify().unwrap();
        let problems: Vec<_> = report.problems().collect();
        assert!(problems.is_empty(), "{problems:?}");
        let mut shown = 0;
        spool.for_each(|entry| shown += u64::from(model.contains_key(&entry.key))).unwrap();
        let count = model.len() as u64;
        let stats = spool.stats().unwrap();
        (shown, report.records(), stats.records, spool.damaged()) == (count, count, count, 0)
            && model.keys().all(|key| same(&mut spool, &model, key))
    }
    kit::quick_check().tests(40).quickcheck(run as fn(Vec<Step>) -> bool);
}

#[test]
fn grows_and_keeps_every_key() {
    let folder = tempfile::tempdir().unwrap();
    let mut spool = open(folder.path());
    // Far beyond the first index of all 256 shards, so that each is rebuilt.
    let count = 256 * 600;
    let key = |n: u32| format!("k/{n}").into_bytes();
    for n in 0..count {
        spool
            .update(&key(n), None, |r, _| {
                (assert!(r.is_none()), Some(change(n, FilterChange::Keep)))
            })
            .unwrap();
    }
    let mut other = Spool::open_existing(folder.path(), Options::default()).unwrap();
    for n in 0..count {
        let rate = other.peek(&key(n), None, |r, _| r.map(|r| r.state.rate())).unwrap();
        assert_eq!(rate, Some(f64::from(n)));
    }
    let report = other.verify().unwrap();
    assert_eq!(report.problems().collect::<Vec<_>>(), Vec::<String>::new());
    assert_eq!(report.records(), u64::from(count));
}

#[test]
fn another_handle_sees_growth() {
    let folder = tempfile::tempdir().unwrap();
    let (mut one, mut two) = (open(folder.path()), open(folder.path()));
    for n in 0..100_000u32 {
        let key = (n % 50_000).to_le_bytes();
        let spool = if n % 3 == 0 { &mut one } else { &mut two };
        spool
            .update(&key, None, |r, _| {
                assert_eq!(r.is_some(), n >= 50_000, "{n}");
                ((), Some(change(n, FilterChange::Keep)))
            })
            .unwrap();
    }
    assert_eq!(one.verify().unwrap().problems().count(), 0);
    assert_eq!((one.damaged(), two.damaged()), (0, 0));
}

#[test]
fn dead_heap_is_given_back() {
    let folder = tempfile::tempdir().unwrap();
    let mut spool = open(folder.path());
    // Each renewal has another size, so each leaves the record before it dead.
    for n in 0..2_000 {
        let (bytes, epoch, event) = (10_000 + n as usize % 2, 5, event(7));
        let filter = FilterChange::Renew { bytes, epoch, event };
        spool.update(b"k", None, |_, _| ((), Some(change(n, filter)))).unwrap();
    }
    let stats = spool.stats().unwrap();
    assert_eq!((stats.shards, stats.records), (1, 1));
    assert!(stats.disk < 300_000, "{stats:?}");
    assert_eq!(spool.verify().unwrap().problems().count(), 0);
}

#[test]
fn growth_forgets_what_changes_no_answer() {
    let folder = tempfile::tempdir().unwrap();
    let mut spool = open(folder.path());
    // All of these were last seen in 1970.
    for n in 0..256 * 600u32 {
        let key = format!("1h/per_mail/{n}");
        let mut change = change(n, FilterChange::Keep);
        change.state.period = 3600.0;
        spool.update(key.as_bytes(), None, |_, _| ((), Some(change))).unwrap();
    }
    let stats = spool.stats().unwrap();
    assert!(stats.records < 256 * 450, "{stats:?}");
}

#[test]
fn a_key_too_long_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let mut spool = open(folder.path());
    let mut update = |bytes: usize| {
        spool.update(&vec![b'x'; bytes], None, |_, _| ((), Some(change(1, FilterChange::Keep))))
    };
    assert!(update(65_535).is_ok());
    let error = update(65_536).unwrap_err();
    assert_eq!(error.to_string(), "key is too long: 65536 bytes, at most 65535 can be stored");
}

/// Adds one to the count of `key`.
fn bump(spool: &mut Spool, key: &[u8]) {
    spool
        .update(key, None, |r, _| {
            let count = r.map_or(0, |r| r.state.over_since);
            ((), Some(change(count + 1, FilterChange::Keep)))
        })
        .unwrap();
}

#[test]
fn parent_and_children_may_share_one() {
    let folder = tempfile::tempdir().unwrap();
    let mut spool = open(folder.path());
    bump(&mut spool, b"k");
    // All have inherited the same open files; nobody may count at once.
    let children: Vec<_> = (0..4)
        .map(|_| {
            fork::tests::in_child(|| {
                (0..5_000).for_each(|_| bump(&mut spool, b"k"));
                true
            })
        })
        .collect();
    (0..5_000).for_each(|_| bump(&mut spool, b"k"));
    assert!(children.into_iter().all(fork::tests::Child::succeeds));
    let count = spool.peek(b"k", None, |r, _| r.unwrap().state.over_since).unwrap();
    assert_eq!(count, 25_001);
}

#[test]
fn a_child_leaves_its_parents_lock_alone() {
    let folder = tempfile::tempdir().unwrap();
    let mut spool = open(folder.path());
    bump(&mut spool, b"k");
    let other = Spool::open(folder.path(), Options { timeout: Duration::from_millis(10) });
    let mut other = other.unwrap();
    let busy = |spool: &mut Spool| {
        matches!(
            spool.update(b"k", None, |_, _| ((), None)),
            Err(SpoolError::Directory(DirError::Busy { .. }))
        )
    };
    spool
        .update(b"k", None, |_, _| {
            assert!(busy(&mut other));
            // It inherits all, and uses another database, as it may.
            assert!(fork::tests::in_child(|| busy(&mut other)).succeeds());
            assert!(busy(&mut other));
            ((), None)
        })
        .unwrap();
    assert!(!busy(&mut other));
}

/// A full disk is an error for those who need some, and for nobody else.
#[test]
fn a_full_disk_loses_nothing() {
    for disk in [0, 4096, 100_000, 1_000_000, 3_000_000] {
        let folder = tempfile::tempdir().unwrap();
        let mut spool = open(folder.path());
        failpoint::limit_disk(Some(disk));
        let (mut full, mut written) = (0, Vec::new());
        for n in 0..50_000u32 {
            match spool
                .update(&n.to_le_bytes(), None, |_, _| ((), Some(change(n, FilterChange::Keep))))
            {
                Ok(()) => written.push(n),
                Err(error @ SpoolError::Directory(DirError::Io { .. })) => {
                    assert!(error.to_string().contains("free some space"), "{error}");
                    full += 1;
                }
                Err(error) => panic!("{error}"),
            }
            if full > 2_000 {
                break;
            }
        }
        assert!(full > 0);
        // What is there can be read and written.
        for &n in &written {
            spool
                .update(&n.to_le_bytes(), None, |r, _| {
                    assert_eq!(r.unwrap().state.over_since, n);
                    ((), Some(change(n, FilterChange::Keep)))
                })
                .unwrap();
        }
        assert_eq!(spool.verify().unwrap().problems().count(), 0);
        // With room again, all goes on.
        failpoint::limit_disk(None);
        bump(&mut spool, b"another");
        (50_000..51_000u32).for_each(|n| bump(&mut spool, &n.to_le_bytes()));
        assert_eq!(spool.stats().unwrap().records, written.len() as u64 + 1_001);
        assert_eq!(spool.verify().unwrap().problems().count(), 0);
    }
}

#[test]
fn a_quota_that_is_used_up_is_as_a_full_disk() {
    let folder = tempfile::tempdir().unwrap();
    let mut spool = open(folder.path());
    (0..1_000u32).for_each(|n| bump(&mut spool, &n.to_le_bytes()));
    failpoint::limit_quota(0);
    let filter = FilterChange::Renew { bytes: 10_000, epoch: 1, event: event(1) };
    let error = spool.update(b"new", None, |_, _| ((), Some(change(1, filter)))).unwrap_err();
    assert!(error.to_string().ends_with("quota exceeded; free some space on its file system"));
    // What is there needs none.
    (0..1_000u32).for_each(|n| bump(&mut spool, &n.to_le_bytes()));
    failpoint::limit_disk(None);
    bump(&mut spool, b"new");
    assert_eq!(spool.stats().unwrap().records, 1_001);
    assert_eq!(spool.verify().unwrap().problems().count(), 0);
}

#[test]
fn growth_that_must_wait_for_disk_waits() {
    let folder = tempfile::tempdir().unwrap();
    let mut spool = open(folder.path());
    // Texts that name no period, so that the rebuild forgets none.
    let hashing = spool.database.hashing.clone();
    let keys = (0u32..)
        .map(|n| format!("key {n}").into_bytes())
        .filter(|key| hashing.place(key).shard == 7);
    // Disk for records, but not for an index: a rebuild needs more at once.
    let keys: Vec<_> = keys.take(600).collect();
    let mut failed = None;
    for (i, key) in keys.iter().enumerate() {
        if i > 300 {
            failpoint::limit_disk(Some(20_000));
        }
        if let Err(error) =
            spool.update(key, None, |_, _| ((), Some(change(1, FilterChange::Keep))))
        {
            assert!(error.to_string().contains("/07.new"), "{error}");
            failed = Some(i);
            break;
        }
    }
    // 4/5 of 488 entries would be 390; the index is used to its very end.
    assert_eq!(failed, Some(488));
    failpoint::limit_disk(None);
    keys.iter().skip(488).for_each(|key| bump(&mut spool, key));
    assert_eq!(spool.stats().unwrap().records, 600);
    assert_eq!(spool.verify().unwrap().problems().count(), 0);
}

/// The bytes of all files of a folder, by name.
fn bytes_of(folder: &Path) -> BTreeMap<OsString, Vec<u8>> {
    let files = folder.read_dir().unwrap().map(|entry| entry.unwrap());
    files.map(|file| (file.file_name(), std::fs::read(file.path()).unwrap())).collect()
}

#[test]
fn decisions_are_counted_by_the_day() {
    const DAY: i64 = 86_400;
    let folder = tempfile::tempdir().unwrap();
    let mut spool = open(folder.path());
    let requests: Vec<_> = (0..2_000)
        .map(|n| {
            let spec = format!("2 / 1h / per_addr / leaky / user{n}");
            Spec::parse(spec.as_bytes()).unwrap().request(&Context::outside()).unwrap()
        })
        .collect();
    let at = |seconds| Timestamp { seconds: 1_700_006_400 + seconds, micros: 0 };
    assert_eq!(at(0).seconds % DAY, 0);
    // Some shards grow meanwhile. What is over its limit counts as well.
    for n in 0..3 {
        for request in &requests {
            spool.decide_one(&request.check(), || at(n)).unwrap();
        }
    }
    // One event of several identities counts once, in one shard or in several.
    let mut decisions = Vec::new();
    for checks in [&requests[..1], &requests[..2], &requests[..7]] {
        let checks: Vec<_> = checks.iter().map(|request| request.check()).collect();
        spool.decide(&checks, || at(DAY - 1), &mut decisions).unwrap();
    }
    spool.preview(&requests[0].check(), || at(DAY - 1)).unwrap();
    // What only reads a rate writes nothing, alone or with others.
    let checks = requests[..7].iter().map(|request| request.check());
    let checks: Vec<_> = checks.map(|c| Check { update: Update::ReadOnly, ..c }).collect();
    let before = bytes_of(&folder.path().join("exirate"));
    for checks in [&checks[..1], &checks[..2], &checks] {
        spool.decide(checks, || at(DAY - 1), &mut decisions).unwrap();
    }
    assert!(bytes_of(&folder.path().join("exirate")) == before, "something was written");
    let mut other = open(folder.path());
    let mut counted = |seconds| other.decided_on(at(seconds)).unwrap();
    assert_eq!([0, DAY - 1, DAY, -1].map(&mut counted), [6_003, 6_003, 0, 0]);
    // On another day each shard begins again, and keeps that when it is rebuilt.
    spool.decide_one(&requests[0].check(), || at(DAY)).unwrap();
    assert_eq!(counted(DAY), 1);
    assert_eq!(spool.verify().unwrap().problems().count(), 0);
}

#[test]
fn a_clock_that_was_set_back_goes_on_from_there() {
    const BEGIN: i64 = 1_700_000_000;
    const DAY: i64 = 86_400;
    let folder = tempfile::tempdir().unwrap();
    let spec = Spec::parse(b"2.5 / 1h / per_addr / strict / unique=$x / key").unwrap();
    let mut request = spec.request(&Context::outside()).unwrap();
    let mut decide = |event: &str, seconds: i64| {
        // Each check is another process's.
        let mut spool = open(folder.path());
        request.unique = Some(event.as_bytes().to_vec());
        let at = Timestamp { seconds, micros: 999_999 };
        let decision = spool.decide_one(&request.check(), || at).unwrap();
        let (kept, since) = spool
            .peek(request.check().key, None, |r, _| {
                r.and_then(|r| Some((r.state.average?, r.state.over_since)))
            })
            .unwrap()
            .unwrap();
        assert_eq!((kept.at, kept.rate), (at, decision.rate));
        assert_eq!(since != 0, decision.over);
        (decision.rate.round(), since)
    };
    let since = u32::try_from(BEGIN + 2).unwrap();
    assert_eq!(decide("a", BEGIN), (1.0, 0));
    assert_eq!(decide("b", BEGIN + 1), (2.0, 0));
    assert_eq!(decide("c", BEGIN + 2), (3.0, since));
    // As an event at the same moment: nothing decays, all that was seen still
    // is, and it has been over since then, though that is to come again.
    assert_eq!(decide("d", BEGIN - DAY), (4.0, since));
    assert_eq!(decide("a", BEGIN - DAY), (4.0, since));
    // From there on it decays as ever, long before the old time is reached.
    assert_eq!(decide("e", BEGIN - DAY + 7200), (1.0, 0));
    // The filter lives until a period after it was begun.
    assert_eq!(decide("a", BEGIN - DAY / 2), (0.0, 0));
    assert_eq!(decide("a", BEGIN + 3600), (0.0, 0));
    assert_eq!(decide("a", BEGIN + 3601), (1.0, 0));
    // Before 1970 as well.
    assert_eq!(decide("f", -5), (2.0, 0));
}
