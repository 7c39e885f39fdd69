//! A database that forgets answers as one that never does.

use quickcheck::{Arbitrary, Gen};

use crate::engine::{Algorithm, Change, FilterChange, State};
use crate::rate::{Average, Timestamp};
use crate::spec::{Context, Spec, SpecRequest, StoredKey};
use crate::store::{Memory, Store};
use crate::sys::clock;

use super::tests::open;
use super::{Spool, Stats};

/// Lines of a configuration; the longest period is 20 minutes.
const SPECS: [&str; 7] = [
    "3 / 1m / per_mail / strict",
    "2.5 / 1m / per_mail / leaky",
    "1000 / 2m / per_addr / strict / unique=$x",
    "2000 / 90s / per_rcpt / leaky / unique=$x",
    "0 / 1m / per_conn / strict",
    "5 / 20m / per_cmd / strict / count=0.5",
    "5 / 20m / per_cmd / strict / count=0",
];

/// The key whose checks are decided by leaky buckets.
const BUCKET: u8 = 2;

/// One check, or a pause.
#[derive(Clone, Debug)]
enum Step {
    Check { spec: usize, key: u8, event: u8, readonly: bool },
    Wait { seconds: i64, micros: u32 },
    Compact,
}

impl Arbitrary for Step {
    fn arbitrary(g: &mut Gen) -> Self {
        match u8::arbitrary(g) % 16 {
            0 => Step::Compact,
            1..6 => Step::Wait {
                seconds: i64::from(u16::arbitrary(g)) >> (u8::arbitrary(g) % 16),
                micros: u32::arbitrary(g) % 1_000_000,
            },
            _ => Step::Check {
                spec: usize::arbitrary(g) % SPECS.len(),
                key: u8::arbitrary(g) % (BUCKET + 1),
                event: u8::arbitrary(g) % 5,
                readonly: u8::arbitrary(g) % 4 == 0,
            },
        }
    }
}

fn request(spec: usize, key: u8, event: u8, readonly: bool) -> SpecRequest {
    // Buckets that leak at different rates have records of their own: whether
    // one is empty depends on the rate.
    let name = if key == BUCKET { format!("bucket{spec}") } else { format!("key{key}") };
    let spec = format!("{} / {name}", SPECS[spec]);
    let mut request = Spec::parse(spec.as_bytes()).unwrap().request(&Context::outside()).unwrap();
    if request.unique.is_some() {
        request.unique = Some(vec![event]);
    }
    if readonly {
        request.update = crate::spec::Update::ReadOnly;
        request.count = 0.0;
    }
    request
}

/// Decides a request; as a leaky bucket that is empty after a period if `bucket`.
fn check(
    store: &mut impl Store,
    request: &SpecRequest,
    bucket: bool,
    now: Timestamp,
) -> (f64, bool) {
    let mut check = request.check();
    if bucket {
        let (burst, rate) = (request.limit, request.limit / request.period);
        check.algorithm = Algorithm::Bucket { burst, rate };
    }
    let Ok(decision) = store.decide_one(&check, || now) else { panic!("no decision") };
    (decision.rate, decision.over)
}

/// Runs both; how many records were forgotten by compacting, and by checks
/// alone.
fn run(steps: &[Step], compacts: bool) -> u64 {
    let folder = tempfile::tempdir().unwrap();
    let (mut spool, mut memory) = (open(folder.path()), Memory::new());
    let (start, _) = clock::now();
    let mut now = Timestamp { seconds: start, micros: 0 };
    for step in steps {
        match *step {
            Step::Wait { seconds, micros } => {
                now.micros += micros;
                now.seconds += seconds + i64::from(now.micros / 1_000_000);
                now.micros %= 1_000_000;
                clock::shifted::by(now.seconds - start);
                // Whoever checks next is another process.
                spool = open(folder.path());
            }
            Step::Compact if compacts => {
                spool.compact(now, |_| {}).unwrap();
            }
            Step::Compact => {}
            Step::Check { spec, key, event, readonly } => {
                let request = request(spec, key, event, readonly);
                let bucket = key == BUCKET;
                let forgets = check(&mut spool, &request, bucket, now);
                let never = check(&mut memory, &request, bucket, now);
                assert_eq!(forgets.1, never.1, "{step:?}: {forgets:?} {never:?}");
                assert!((forgets.0 - never.0).abs() < 1e-15, "{step:?}: {forgets:?} {never:?}");
            }
        }
    }
    clock::shifted::by(0);
    spool.stats().unwrap().forgotten
}

#[test]
fn no_answer_changes() {
    for compacts in [true, false] {
        let mut forgotten = 0;
        let mut g = kit::generator(300);
        for _ in 0..60 {
            forgotten += run(&Vec::<Step>::arbitrary(&mut g), compacts);
        }
        assert!(forgotten > 100, "{forgotten} records were forgotten, compacting: {compacts}");
    }
}

#[test]
fn no_answer_changes_in_long_lives() {
    kit::quick_check().tests(5).quickcheck(
        (|steps| {
            run(&steps, true);
        }) as fn(Vec<Step>),
    );
}

fn write(spool: &mut Spool, key: &[u8], at: Timestamp) {
    let average = Average { at, rate: 5.0 };
    let period = StoredKey::parse(key).unwrap().period_seconds().unwrap();
    let change = Change { state: State::new(average, 10.0, period), filter: FilterChange::Keep };
    spool.update(key, None, |_, _| ((), Some(change))).unwrap();
}

/// Keys with a period of a minute that share a shard with one of a week.
fn keys_of_a_shard(spool: &Spool) -> (Vec<u8>, Vec<Vec<u8>>) {
    let shard = |key: &[u8]| spool.database.hashing.place(key).shard;
    let long = b"1w/per_mail/stays".to_vec();
    let short = (0..).map(|n| format!("1m/per_mail/goes{n}").into_bytes());
    let short = short.filter(|key| shard(key) == shard(&long)).take(100);
    (long.clone(), short.collect())
}

#[test]
fn a_check_tidies_its_shard_after_six_hours() {
    let folder = tempfile::tempdir().unwrap();
    let mut spool = open(folder.path());
    let (long, short) = keys_of_a_shard(&spool);
    let start = Timestamp::from(clock::now());
    short.iter().for_each(|key| write(&mut spool, key, start));
    write(&mut spool, &long, start);
    let later = |hours: i64| Timestamp { seconds: start.seconds + hours * 3600, ..start };
    let records_after = |hours: i64| {
        clock::shifted::by(hours * 3600);
        let mut spool = open(folder.path());
        // Any check will do, also one that only looks.
        spool.update(&long, None, |_, _| ((), None)).unwrap();
        let Stats { records, forgotten, .. } = spool.stats().unwrap();
        (records, forgotten)
    };
    assert_eq!(records_after(5), (101, 0));
    assert_eq!(records_after(6), (1, 100));
    // Set back by more than it has been tidied ahead, the clock does not keep
    // it from being looked through; a record that may go still goes.
    write(&mut open(folder.path()), &short[0], later(-48));
    assert_eq!(records_after(-24), (1, 101));
    clock::shifted::by(0);
}

#[test]
fn tidying_waits_for_no_process_and_fails_no_check() {
    let folder = tempfile::tempdir().unwrap();
    let mut spool = open(folder.path());
    let (long, short) = keys_of_a_shard(&spool);
    let start = Timestamp::from(clock::now());
    short.iter().for_each(|key| write(&mut spool, key, start));
    clock::shifted::by(7 * 3600);
    let other = open(folder.path());
    let guard = other.database.lock_directory().unwrap();
    // Another process is rebuilding a shard: there is a next time.
    write(&mut open(folder.path()), &long, start);
    assert_eq!(spool.stats().unwrap().forgotten, 0);
    drop(guard);
    // No disk: likewise.
    crate::sys::failpoint::limit_disk(Some(0));
    open(folder.path()).update(&long, None, |_, _| ((), None)).unwrap();
    assert_eq!(spool.stats().unwrap().forgotten, 0);
    crate::sys::failpoint::limit_disk(None);
    write(&mut open(folder.path()), &long, start);
    assert_eq!(spool.stats().unwrap().forgotten, 100);
    clock::shifted::by(0);
}
