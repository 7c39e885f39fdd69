//! Tests of what the processes of a host know together.

use super::*;
use crate::spool::open_directory;

/// Two processes' breakers of one host.
fn two() -> (tempfile::TempDir, SecureDir, [Breaker; 2]) {
    let spool = tempfile::tempdir().unwrap();
    let directory = open_directory(spool.path(), true).unwrap();
    let breakers = [Breaker::open(&directory), Breaker::open(&directory)];
    (spool, directory, breakers)
}

#[test]
fn one_process_tries_for_all() {
    let (_spool, _, [mut a, mut b]) = two();
    assert!(a.may_ask(1000) && b.may_ask(1000) && a.may_ask(1000), "it is not away");
    assert_eq!(a.failed(1000, 50), None, "a single failure is not logged");
    assert!(!a.may_ask(1000) && !b.may_ask(50_999));
    assert!(b.may_ask(51_000), "after a pause, one tries");
    assert!(!a.may_ask(51_000), "and only one");
    assert_eq!(b.failed(51_000, 51), Some(Changed::Away));
    assert!(!a.may_ask(150_999) && a.may_ask(151_000), "the pause has doubled");
    assert_eq!(a.failed(151_000, 52), None, "it is logged once");
    b.count_apart(false);
    a.count_apart(true);
    for now in (200_000..).step_by(500_000).take(20) {
        if a.may_ask(now) {
            a.failed(now, 53);
        }
    }
    assert!(!b.may_ask(9_800_000) && b.may_ask(10_700_001), "it is a second at the most");
    assert_eq!(b.succeeded(54), None);
    assert!(a.may_ask(10_700_002) && a.may_ask(10_700_002), "all ask again");
    let back = Changed::Back { seconds: 2, apart: 2, over: 1 };
    assert_eq!(a.succeeded(63), Some(back), "ten seconds after the latest failure");
    assert_eq!(b.succeeded(63), None);
}

/// Else the session of Exim that has mapped it would end by SIGBUS.
#[test]
fn a_file_that_is_cut_off_while_it_is_mapped_ends_no_session() {
    let (_spool, directory, [mut a, mut b]) = two();
    assert_eq!(b.succeeded(50), None);
    let path = directory.path().join("cluster.state");
    for size in [0, 95] {
        std::fs::File::options().write(true).open(&path).unwrap().set_len(size).unwrap();
        for breaker in [&mut a, &mut b] {
            assert!(breaker.may_ask(1000));
            breaker.late(50);
            breaker.count_apart(true);
            breaker.reached();
            assert_eq!(breaker.failed(1000, 50), None);
            assert_eq!(breaker.succeeded(50), None);
        }
        [a, b] = [Breaker::open(&directory), Breaker::open(&directory)];
        a.succeeded(51);
        assert!(read_counts_at(&directory, 51).unwrap().shared > 0, "it is created again");
    }
}

#[test]
fn a_time_from_before_a_reboot_does_not_wait() {
    let (_spool, _, [mut a, mut b]) = two();
    a.failed(1 << 40, 50);
    assert!(b.may_ask(5));
}

#[test]
fn late_attempts_count_against_the_deadline_that_was_set() {
    let (_spool, directory, [mut a, mut b]) = two();
    let counts = || read_counts_at(&directory, 5000).unwrap();
    for second in 0..40 {
        if second % 2 == 0 {
            a.late(second);
        }
        b.count_apart(false);
    }
    assert_eq!((counts().late, counts().all_since, counts().apart_since), (20, 40, 40));
    assert!(counts().is_often_late());
    (0..4000).for_each(|_| assert_eq!(a.succeeded(45), None));
    assert!(!counts().is_often_late(), "it was long ago");
    forget_late(&directory);
    assert_eq!((counts().late, counts().all_since, counts().apart_since), (0, 0, 0));
    assert_eq!((counts().shared, counts().apart), (4000, 40));
    (0..19).for_each(|_| a.late(46));
    b.count_apart(false);
    assert!(!counts().is_often_late());
    a.late(46);
    assert!(counts().is_often_late());
}

#[test]
fn late_attempts_are_forgotten_after_a_day() {
    const DAY: u64 = 86_400;
    let (_spool, directory, [mut a, mut b]) = two();
    let counts = |now| read_counts_at(&directory, now).unwrap();
    for _ in 0..30 {
        a.late(10 * DAY);
        b.count_apart(false);
    }
    a.late(11 * DAY - 1);
    assert!(counts(11 * DAY).is_often_late());
    // The deadline was late on one day, and on no other.
    assert!(counts(12 * DAY - 1).is_often_late() && !counts(12 * DAY).is_often_late());
    assert_eq!((counts(12 * DAY).late, counts(12 * DAY).apart), (0, 30));
    // On the next one it is late again, and what was decided before says nothing of that.
    (0..1000).for_each(|_| assert_eq!(a.succeeded(11 * DAY), None));
    a.late(11 * DAY);
    let (now, latest) = (11 * DAY, counts(11 * DAY));
    assert_eq!((latest.late, latest.all_since, latest.apart_since), (1, 0, 0));
    (0..30).for_each(|_| a.late(now));
    assert_eq!(counts(now).late, 31);
    // The clock was set back.
    a.late(5 * DAY);
    assert_eq!(counts(5 * DAY).late, 1);
}

#[test]
fn what_is_counted_can_be_read() {
    let (spool, directory, [mut a, mut b]) = two();
    a.succeeded(1);
    b.count_apart(true);
    a.count_apart(false);
    a.failed(1, 70);
    let counts = |since| ClusterCounts {
        shared: 1,
        apart: 2,
        apart_over: 1,
        away_since: since,
        late: 0,
        all_since: 3,
        apart_since: 2,
    };
    assert_eq!(read_counts(&directory), Some(counts(None)));
    a.failed(1, 71);
    assert_eq!(read_counts(&directory), Some(counts(Some(71))));
    a.succeeded(72);
    let counts = |since| Some(ClusterCounts { shared: 2, all_since: 4, ..counts(since) });
    assert_eq!(read_counts_at(&directory, 80), counts(Some(71)));
    assert_eq!(read_counts_at(&directory, 81), counts(None));
    let path = spool.path().join("exirate/cluster.state");
    std::fs::write(&path, [7; 40]).unwrap();
    assert_eq!(read_counts(&directory), None);
    let mut again = Breaker::open(&directory);
    assert!(again.may_ask(1), "a damaged file is begun again");
    assert_eq!(read_counts(&directory), Some(ClusterCounts::default()));
}

/// A failure and a success that end at the same time: what one of them has noted is
/// not half undone by the other.
#[test]
fn no_race_leaves_it_away() {
    use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
    const ROUNDS: u64 = 20_000;
    let (_spool, directory, [mut a, mut b]) = two();
    let mut c = Breaker::open(&directory);
    let (round, done) = (AtomicU64::new(0), AtomicU64::new(0));
    let started = std::time::Instant::now();
    let wait = |word: &AtomicU64, value: u64| {
        for n in 0_u32.. {
            if word.load(SeqCst) >= value {
                break;
            }
            if n % 64 == 63 {
                assert!(started.elapsed().as_secs() < 600);
                std::thread::yield_now();
            }
            std::hint::spin_loop();
        }
    };
    let mut stuck = 0;
    let [mut away, mut back] = [0; 2];
    let mut count = |changed: Option<Changed>| match changed {
        Some(Changed::Away) => away += 1,
        Some(Changed::Back { .. }) => back += 1,
        None => {}
    };
    let each = |work: &mut dyn FnMut(u64) -> Option<Changed>| {
        let mut all = Vec::new();
        for number in 1..=ROUNDS {
            wait(&round, number);
            all.push(work(100 * number));
            done.fetch_add(1, SeqCst);
        }
        all
    };
    std::thread::scope(|scope| {
        let fails = scope.spawn(|| each(&mut |now| a.failed(now * 1_000_000, now)));
        let succeeds = scope.spawn(|| each(&mut |now| b.succeeded(now)));
        for number in 1..=ROUNDS {
            let now = 100 * number;
            count(c.failed(now * 1_000_000, now));
            round.store(number, SeqCst);
            wait(&done, 2 * number);
            count(c.succeeded(now + 50));
            if read_counts(&directory).unwrap().away_since.is_some() {
                stuck += 1;
            }
        }
        for all in [fails, succeeds] {
            all.join().unwrap().into_iter().for_each(&mut count);
        }
    });
    assert_eq!(stuck, 0, "rounds after which it stayed away");
    assert!(away == back && away > 0, "{away} {back}");
}

#[test]
fn without_the_file_a_process_is_on_its_own() {
    let mut breaker = Breaker::Own { until: 0, absence: Absence::default() };
    assert!(breaker.may_ask(1000));
    assert_eq!(breaker.failed(1000, 1), None);
    assert!(!breaker.may_ask(1000) && breaker.may_ask(51_000));
    assert_eq!(breaker.failed(51_000, 1), Some(Changed::Away));
    assert_eq!(breaker.failed(200_000, 1), None);
    assert!(!breaker.may_ask(201_000));
    assert_eq!(breaker.succeeded(2), None);
    assert!(breaker.may_ask(201_000));
    assert!(matches!(breaker.succeeded(11), Some(Changed::Back { .. })));
    assert_eq!(breaker.succeeded(11), None);
}

#[test]
fn a_file_of_a_later_version_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let directory = crate::spool::open_directory(folder.path(), true).unwrap();
    let path = folder.path().join("exirate/cluster.state");
    let later = [b"EXIRCLU2", &[7; 200][..]].concat();
    std::fs::write(&path, &later).unwrap();
    assert!(map(&directory).is_none());
    forget_late(&directory);
    assert!(read_counts(&directory).is_none());
    assert_eq!(std::fs::read(&path).unwrap(), later);
}

#[test]
fn the_table_is_the_layout() {
    let document: String = include_str!("../breaker.rs")
        .lines()
        .filter_map(|line| line.strip_prefix("//! "))
        .fold(String::new(), |all, line| all + line + "\n");
    let fields = kit::fields::documented(&document);
    for (field, offset) in [
        ("magic", 0),
        ("until", UNTIL),
        ("absence", ABSENCE),
        ("apart", APART),
        ("apart_over", APART_OVER),
        ("shared", SHARED),
        ("all_apart", ALL_APART),
        ("all_apart_over", ALL_APART_OVER),
    ] {
        assert_eq!(fields[field], (offset, 8), "{field}");
    }
    assert_eq!(fields.len() * 8, BYTES);
}
