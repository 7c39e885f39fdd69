use super::*;
use crate::policy::limit::Rule;
use crate::spool;
use crate::spool::counter_file::{BYTES, PROBES, SLOTS};
use std::fs;
use std::path::PathBuf;

fn checked<'a>(policy: &'a str, window: &'a str, verdict: Verdict) -> Checked<'a> {
    let rule = RuleName { unit: Some(Unit::Recipients), bucket: false, window, per: Per::Key };
    Checked { policy, rule, observed: false, verdict }
}

/// A spool directory with the directory of the database.
fn spool() -> tempfile::TempDir {
    let spool = tempfile::tempdir().unwrap();
    drop(spool::open_directory(spool.path(), true).unwrap());
    spool
}

fn file(spool: &tempfile::TempDir) -> PathBuf {
    spool.path().join("exirate/policy.counters")
}

fn sum(spool: &Path) -> u64 {
    let rules = read(spool).unwrap().unwrap().rules;
    rules.iter().flat_map(|rule| rule.enforced.iter().chain(&rule.observed)).sum()
}

#[test]
fn rules_are_counted_by_mode_and_verdict() {
    let spool = spool();
    assert_eq!(read(spool.path()).unwrap(), None);
    let mut counters = Counters::new(spool.path());
    let algorithm = Algorithm::MovingAverage { limit: 100.0, period: 3600.0 };
    let limit = Limit {
        unit: Unit::Bytes,
        per: Per::Domain,
        algorithm,
        every: None,
        text: "100/1h",
        rule: Rule::User("a"),
    };
    let total = Checked::new("outbound", &limit, true, Verdict::Reject);
    let bucket = Algorithm::Bucket { burst: 5.0, rate: 1.0 };
    let limit = Limit { per: Per::Key, algorithm: bucket, text: "1/1h", ..limit };
    let bucket = Checked::new("a", &limit, false, Verdict::Log);
    for (one, times) in
        [(total, 3), (bucket, 2), (Checked { verdict: Verdict::Accept, ..total }, 1)]
    {
        (0..times).for_each(|_| counters.count(&one));
    }
    counters.count_error();
    let found = read(spool.path()).unwrap().unwrap_or_default();
    let [a, outbound] = &found.rules[..] else { panic!("{found:?}") };
    assert_eq!((&*a.policy, &*a.rule), ("a", "bytes/bucket 1/1h"));
    assert_eq!((a.enforced, a.observed), ([0, 2, 0, 0, 0, 0], [0; 6]));
    assert_eq!((&*outbound.policy, &*outbound.rule), ("outbound", "bytes/1h (total)"));
    assert_eq!((outbound.enforced, outbound.observed), ([0; 6], [1, 0, 0, 0, 0, 3]));
    assert_eq!((found.uncounted, found.errors), (0, 1));
}

#[test]
fn nothing_is_created_without_a_database() {
    let spool = tempfile::tempdir().unwrap();
    let mut counters = Counters::new(spool.path());
    counters.count(&checked("p", "1h", Verdict::Accept));
    counters.count_error();
    assert_eq!(fs::read_dir(spool.path()).unwrap().count(), 0);
    assert_eq!(read(spool.path()).unwrap(), None);
    assert_eq!(retain(spool.path(), |_, _| true).unwrap(), 0);
}

#[test]
fn what_many_processes_count_adds_up() {
    let spool = spool();
    let windows: Vec<String> = (0..20).map(|n| format!("{n}s")).collect();
    // The file is there: while one creates it, others do not wait, and count nothing.
    Counters::new(spool.path()).count_error();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let mut counters = Counters::new(spool.path());
                for _ in 0..500 {
                    for window in &windows {
                        counters.count(&checked("p", window, Verdict::Defer));
                    }
                }
            });
        }
    });
    let found = read(spool.path()).unwrap().unwrap_or_default();
    assert_eq!(found.rules.len(), windows.len());
    for rule in &found.rules {
        assert_eq!(rule.enforced, [0, 0, 0, 0, 4000, 0], "{}", rule.rule);
    }
}

#[test]
fn the_file_has_room_for_so_many_rules_and_counts_the_others() {
    let spool = spool();
    let mut counters = Counters::new(spool.path());
    let windows: Vec<String> = (0..SLOTS + 100).map(|n| format!("{n}s")).collect();
    for _ in 0..2 {
        windows.iter().for_each(|one| counters.count(&checked("p", one, Verdict::Accept)));
    }
    let found = read(spool.path()).unwrap().unwrap_or_default();
    assert!((SLOTS - PROBES..=SLOTS).contains(&found.rules.len()), "{}", found.rules.len());
    assert!(found.rules.iter().all(|rule| rule.enforced == [2, 0, 0, 0, 0, 0]));
    assert_eq!(found.uncounted, 2 * (windows.len() - found.rules.len()) as u64);
    assert_eq!(fs::metadata(file(&spool)).unwrap().len(), BYTES as u64);
}

#[test]
fn names_that_are_too_long_are_cut_off() {
    let spool = spool();
    let mut counters = Counters::new(spool.path());
    let long = "ä".repeat(200);
    counters.count(&checked("p", &long, Verdict::Accept));
    let [rule] = &read(spool.path()).unwrap().unwrap().rules[..] else { panic!() };
    assert!(rule.rule.starts_with("recipients/äää"), "{}", rule.rule);
}

#[test]
fn a_process_that_is_killed_leaves_a_slot_that_the_next_one_completes() {
    let spool = spool();
    let one = checked("p", "1h", Verdict::Accept);
    // The tag was written, and a part of the name.
    Counters::new(spool.path()).count(&one);
    let mut bytes = fs::read(file(&spool)).unwrap();
    let name = bytes.windows(2).position(|two| two == b"p\n").unwrap();
    bytes[name + 8..name + 152].fill(0);
    fs::write(file(&spool), bytes).unwrap();
    assert_eq!(read(spool.path()).unwrap().unwrap().rules, []);
    Counters::new(spool.path()).count(&one);
    let [rule] = &read(spool.path()).unwrap().unwrap().rules[..] else { panic!() };
    assert_eq!((&*rule.rule, rule.enforced[0]), ("recipients/1h", 2));
}

#[test]
fn an_incomplete_file_is_completed() {
    for bytes in [0, 8, 4096, BYTES] {
        let spool = spool();
        fs::write(file(&spool), vec![0; bytes]).unwrap();
        Counters::new(spool.path()).count(&checked("p", "1h", Verdict::Accept));
        assert_eq!(sum(spool.path()), 1, "{bytes}");
    }
}

#[test]
fn a_damaged_file_is_quarantined_and_replaced() {
    let spool = spool();
    for bytes in [vec![0; BYTES + 1], vec![b'x'; BYTES], b"EXIRCNT1".to_vec(), b"EXIRCNT0".to_vec()]
    {
        fs::write(file(&spool), &bytes).unwrap();
        assert_eq!(read(spool.path()).unwrap(), None);
        Counters::new(spool.path()).count(&checked("p", "1h", Verdict::Accept));
        assert_eq!(sum(spool.path()), 1);
        assert_eq!(fs::read(file(&spool).with_extension("counters.damaged-1")).unwrap(), bytes);
        fs::remove_file(file(&spool)).unwrap();
    }
}

#[test]
fn a_file_of_a_later_version_is_left_alone() {
    let spool = spool();
    for later in [b"EXIRCNT2".to_vec(), [b"EXIRCNT9", &vec![7; BYTES][..]].concat()] {
        fs::write(file(&spool), &later).unwrap();
        let mut counters = Counters::new(spool.path());
        counters.count(&checked("p", "1h", Verdict::Accept));
        counters.count_error();
        for error in [read(spool.path()).err(), retain(spool.path(), |_, _| true).err()] {
            let error = error.unwrap().to_string();
            assert!(error.contains("policy.counters: it is of format version "), "{error}");
            assert!(
                error.ends_with("knows no version above 1: use the later exirate that wrote it")
            );
        }
        assert_eq!(fs::read(file(&spool)).unwrap(), later);
        assert_eq!(fs::read_dir(spool.path().join("exirate")).unwrap().count(), 1);
    }
}

#[test]
fn a_file_that_cannot_be_used_is_not_counted_in() {
    let spool = spool();
    fs::create_dir(file(&spool)).unwrap();
    let mut counters = Counters::new(spool.path());
    counters.count(&checked("p", "1h", Verdict::Accept));
    counters.count_error();
    assert_eq!(counters.file.ready(), Ready::No);
    assert!(read(spool.path()).is_err());
}

#[test]
fn random_damage_is_survived() {
    fn property(damage: Vec<(u32, u8)>) -> bool {
        let spool = spool();
        let windows = ["1h", "1d", "2d"];
        let count = || {
            let mut counters = Counters::new(spool.path());
            windows.iter().for_each(|one| counters.count(&checked("p", one, Verdict::Defer)));
        };
        count();
        let mut bytes = fs::read(file(&spool)).unwrap();
        for (at, xor) in damage {
            bytes[at as usize % BYTES] ^= xor;
        }
        fs::write(file(&spool), bytes).unwrap();
        count();
        // It may look as one of a later version.
        let found = read(spool.path()).unwrap_or_default().unwrap_or_default();
        let _ = retain(spool.path(), |policy, _| policy == "p");
        // What is shown are names that were written.
        found.rules.iter().all(|rule| rule.policy == "p")
    }
    kit::quick_check().quickcheck(property as fn(Vec<(u32, u8)>) -> bool);
}

#[test]
fn rules_that_no_longer_exist_are_freed_and_running_processes_go_on() {
    let spool = spool();
    let mut counters = Counters::new(spool.path());
    for window in ["1h", "2h", "3h"] {
        counters.count(&checked("p", window, Verdict::Accept));
    }
    counters.count_error();
    assert_eq!(retain(spool.path(), |_, _| true).unwrap(), 0);
    let kept = |_: &str, rule: &str| rule != "recipients/2h";
    assert_eq!(retain(spool.path(), kept).unwrap(), 1);
    counters.count(&checked("p", "1h", Verdict::Accept));
    counters.count(&checked("p", "4h", Verdict::Accept));
    let found = read(spool.path()).unwrap().unwrap_or_default();
    let rules = found.rules.iter().map(|rule| (&*rule.rule, rule.enforced[0]));
    let expected = [("recipients/1h", 2), ("recipients/3h", 1), ("recipients/4h", 1)];
    assert_eq!(rules.collect::<Vec<_>>(), expected);
    assert_eq!(found.errors, 1);
    assert!(!file(&spool).with_extension("counters.new").exists());
}
