//! Overrides in the spool database: running processes apply them at once, also after a
//! kill, and ignore damaged ones.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::engine::{Algorithm, Decision, Kind, Update};
use crate::rate::Timestamp;
use crate::spool::kill_tests::copy;
use crate::spool::tests::open;
use crate::store::{FOREVER, Store as _, Target, compile_glob};
use crate::sys::failpoint;
use crate::sys::simulated_disk::memory_folder;

use super::*;

const NOW: i64 = 1_700_000_000;

fn exact(overridden: Overridden, key: &str, until: i64) -> Override {
    let target = Target::literal(key.as_bytes());
    Override {
        overridden,
        target,
        argument: key.to_owned(),
        until,
        since: NOW,
        reason: String::new(),
        who: "uid=0".to_owned(),
    }
}

fn glob(overridden: Overridden, glob: &str) -> Override {
    let alternatives = compile_glob(glob, false).unwrap();
    let target = Target::Glob {
        alternatives,
        folding: crate::identity::fold::Folding::default().without_masks(),
    };
    Override { target, ..exact(overridden, glob, FOREVER) }
}

fn check(name: &[u8], start: usize) -> Check<'_> {
    Check {
        update: Update::Leaky,
        ..Check::new(
            RecordKey { identity_start: start, ..name.into() },
            Algorithm::MovingAverage { limit: 2.0, period: 3600.0 },
        )
    }
}

fn decide_at(spool: &mut Spool, name: &str, second: i64) -> Decision {
    let check = check(name.as_bytes(), name.rfind('/').map_or(0, |at| at + 1));
    spool.decide_one(&check, || Timestamp { seconds: second, micros: 0 }).unwrap()
}

fn decide(spool: &mut Spool, name: &str) -> Option<Overridden> {
    decide_at(spool, name, NOW).overridden
}

fn set(spool: &mut Spool, list: &[Override]) {
    spool.change_overrides(|there| *there = list.to_vec()).unwrap();
}

fn problems(spool: &mut Spool) -> Vec<String> {
    spool.verify().unwrap().problems().collect()
}

#[test]
fn running_processes_apply_a_change_at_their_next_check() {
    let folder = tempfile::tempdir().unwrap();
    let (mut command, mut running) = (open(folder.path()), open(folder.path()));
    for _ in 0..5 {
        decide_at(&mut running, "1h/per_mail/alice", NOW);
    }
    assert!(decide_at(&mut running, "1h/per_mail/alice", NOW).over);
    for (list, overridden) in [
        (vec![exact(Overridden::Allow, "alice", NOW + 9)], Some(Overridden::Allow)),
        (vec![exact(Overridden::Deny, "alice", NOW + 9)], Some(Overridden::Deny)),
        (vec![glob(Overridden::Allow, "a*")], Some(Overridden::Allow)),
        (vec![], None),
        (vec![exact(Overridden::Allow, "1h/per_mail/alice", FOREVER)], None),
    ] {
        set(&mut command, &list);
        for spool in [&mut running, &mut command, &mut open(folder.path())] {
            // Every record of the identity, whatever its period and mode.
            for name in ["1h/per_mail/alice", "1d/per_rcpt/alice"] {
                assert_eq!(decide(spool, name), overridden, "{list:?}");
            }
            assert_eq!(decide(spool, "1h/per_mail/bob"), None);
        }
        assert_eq!(running.overrides().unwrap(), list);
        assert_eq!(problems(&mut command), [""; 0]);
    }
}

#[test]
fn an_override_ends_by_itself_and_tidy_drops_it() {
    let folder = tempfile::tempdir().unwrap();
    let mut spool = open(folder.path());
    set(&mut spool, &[exact(Overridden::Deny, "a", NOW), glob(Overridden::Allow, "*")]);
    assert_eq!(decide_at(&mut spool, "a", NOW - 1).overridden, Some(Overridden::Deny));
    assert_eq!(decide_at(&mut spool, "a", NOW).overridden, Some(Overridden::Allow));
    spool.tidy(Timestamp { seconds: NOW, micros: 0 }, |_| {}).unwrap();
    assert_eq!(spool.overrides().unwrap(), [glob(Overridden::Allow, "*")]);
}

#[test]
fn an_override_of_a_value_applies_to_checks_of_policies() {
    let folder = tempfile::tempdir().unwrap();
    let mut spool = open(folder.path());
    let now = || Timestamp { seconds: NOW, micros: 0 };
    let of_policy = |name: &'static str| {
        let check = check(name.as_bytes(), name.rfind('/').unwrap() + 1);
        Check { key: RecordKey { kind: Kind::Policy, ..check.key }, ..check }
    };
    let (hour, day) = (of_policy("out/recipients/1h/auth:a"), of_policy("out/bytes/1d/auth:a"));
    for (key, of_policy, of_spec) in [
        ("a", Some(Overridden::Deny), Some(Overridden::Deny)),
        ("auth:a", Some(Overridden::Deny), None),
        ("sender:a", None, None),
    ] {
        set(&mut spool, &[exact(Overridden::Deny, key, FOREVER)]);
        assert_eq!(spool.decide_one(&hour, now).unwrap().overridden, of_policy, "{key}");
        let mut decisions = Vec::new();
        spool.decide(&[hour, day, check(b"1h/per_mail/a", 12)], now, &mut decisions).unwrap();
        let overridden: Vec<_> = decisions.iter().map(|decision| decision.overridden).collect();
        assert_eq!(overridden, [of_policy, of_policy, of_spec], "{key}");
    }
}

#[test]
fn several_checks_and_previews_are_overridden_too() {
    let folder = tempfile::tempdir().unwrap();
    let mut spool = open(folder.path());
    set(
        &mut spool,
        &[exact(Overridden::Deny, "a", FOREVER), exact(Overridden::Allow, "b", FOREVER)],
    );
    let now = || Timestamp { seconds: NOW, micros: 0 };
    let mut decisions = Vec::new();
    // In one shard, and in several.
    let one = [check(b"1h/a", 3), check(b"1d/a", 3)];
    let several = [check(b"1h/a", 3), check(b"1h/b", 3), check(b"1h/c", 3), check(b"1h/d", 3)];
    for (checks, expected) in [
        (&one[..], vec![Some(Overridden::Deny), Some(Overridden::Deny)]),
        (&several, vec![Some(Overridden::Deny), Some(Overridden::Allow), None, None]),
    ] {
        spool.decide(checks, now, &mut decisions).unwrap();
        let overridden: Vec<_> = decisions.iter().map(|decision| decision.overridden).collect();
        assert_eq!(overridden, expected);
        assert!(decisions.iter().all(|decision| !decision.details.written));
    }
    let mut reader = Spool::open_existing(folder.path(), crate::spool::Options::default()).unwrap();
    assert!(reader.preview(&check(b"1h/a", 3), now).unwrap().over);
}

#[test]
fn checks_of_one_call_use_one_version_of_the_list() {
    let folder = memory_folder();
    let (mut command, mut running) = (open(folder.path()), open(folder.path()));
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..500 {
                set(&mut command, &[glob(Overridden::Deny, "*")]);
                set(&mut command, &[]);
            }
            done.store(true, Ordering::Release);
        });
        let names: Vec<String> = (0..32).map(|n| format!("1h/{n}")).collect();
        let checks: Vec<_> = names.iter().map(|name| check(name.as_bytes(), 3)).collect();
        while !done.load(Ordering::Acquire) {
            let candidates = running.all_candidates(&checks);
            let now = Timestamp { seconds: NOW, micros: 0 };
            let overridden = all_overridden(&checks, &candidates, now);
            assert_eq!(overridden.len(), checks.len());
            assert!(overridden.iter().all(|one| one.overridden == overridden[0].overridden));
        }
    });
}

#[test]
fn a_replaced_superblock_does_not_hide_later_overrides() {
    let folder = tempfile::tempdir().unwrap();
    let (mut command, mut running) = (open(folder.path()), open(folder.path()));
    set(&mut command, &[exact(Overridden::Allow, "a", FOREVER)]);
    assert_eq!(decide(&mut running, "a"), Some(Overridden::Allow));
    command.set_max_bytes(1 << 30).unwrap();
    set(&mut command, &[exact(Overridden::Deny, "a", FOREVER)]);
    assert_eq!(decide(&mut running, "a"), Some(Overridden::Deny));
    set(&mut command, &[]);
    assert_eq!(decide(&mut running, "a"), None);
    // One that was deleted is written again when the database is opened.
    set(&mut command, &[exact(Overridden::Deny, "a", FOREVER)]);
    std::fs::remove_file(running.directory().join("database")).unwrap();
    assert_eq!(decide(&mut open(folder.path()), "a"), Some(Overridden::Deny));
}

#[test]
fn a_short_superblock_gets_a_word_with_the_first_override() {
    let folder = tempfile::tempdir().unwrap();
    let path = open(folder.path()).directory().join("database");
    let bytes = std::fs::read(&path).unwrap();
    std::fs::write(&path, &bytes[..44]).unwrap();
    let mut spool = open(folder.path());
    assert_eq!(decide(&mut spool, "a"), None);
    set(&mut spool, &[exact(Overridden::Deny, "a", FOREVER)]);
    assert_eq!(decide(&mut open(folder.path()), "a"), Some(Overridden::Deny));
    assert_eq!(std::fs::read(&path).unwrap().len(), DATABASE_FILE_BYTES);
}

#[test]
fn a_damaged_file_denies_nobody_and_is_quarantined_by_the_first_check() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = open(folder.path());
    set(&mut command, &[glob(Overridden::Deny, "*")]);
    let path = command.directory().join("overrides");
    let sound = std::fs::read(&path).unwrap();
    for (n, damaged) in
        [&b""[..], b"x", &sound[..sound.len() - 1], &[0xFF; 4096]].into_iter().enumerate()
    {
        std::fs::write(&path, damaged).unwrap();
        // A reader changes nothing.
        let mut reader =
            Spool::open_existing(folder.path(), crate::spool::Options::default()).unwrap();
        let found = problems(&mut reader);
        assert!(matches!(&*found, [one] if one.contains("overrides: it is damaged")), "{found:?}");
        assert!(reader.overrides().unwrap_err().to_string().contains("none is in force (`exirate"));
        for _ in 0..2 {
            let now = || Timestamp { seconds: NOW, micros: 0 };
            assert_eq!(reader.preview(&check(b"a", 0), now).unwrap().overridden, None);
        }
        let incidents = reader.take_incidents();
        assert!(
            matches!(&*incidents, [one] if one.contains("overrides are ignored: cannot use")),
            "{incidents:?}"
        );
        let mut spool = open(folder.path());
        for _ in 0..3 {
            assert_eq!(decide(&mut spool, "a"), None);
        }
        let incidents = spool.take_incidents();
        let kept = format!("quarantined as overrides.damaged-{}: the keys", n + 1);
        assert!(matches!(&*incidents, [one] if one.contains(&kept)), "{incidents:?}");
        assert!(incidents[0].contains("audit.log lists the commands"), "{incidents:?}");
        // Nothing is left for others to report.
        let mut other = open(folder.path());
        assert_eq!(decide(&mut other, "a"), None);
        assert_eq!(other.take_incidents(), [""; 0]);
        assert_eq!(problems(&mut spool), [""; 0]);
        assert_eq!(spool.overrides().unwrap(), []);
        let kept = spool.kept_damaged().unwrap();
        assert_eq!(std::fs::read(&kept[n].path).unwrap(), damaged);
        set(&mut command, &[glob(Overridden::Deny, "*")]);
        assert_eq!(decide(&mut spool, "a"), Some(Overridden::Deny));
    }
}

#[test]
fn of_many_processes_one_quarantines_a_damaged_file() {
    let folder = memory_folder();
    let mut command = open(folder.path());
    for round in 0..5 {
        set(&mut command, &[glob(Overridden::Deny, "*")]);
        std::fs::write(command.directory().join("overrides"), b"x").unwrap();
        let incidents: Vec<String> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8)
                .map(|_| {
                    scope.spawn(|| {
                        let mut spool = open(folder.path());
                        for _ in 0..20 {
                            assert_eq!(decide(&mut spool, "a"), None);
                        }
                        spool.take_incidents()
                    })
                })
                .collect();
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(incidents.len(), 1, "{incidents:?}");
        assert_eq!(command.kept_damaged().unwrap().len(), round + 1);
        assert_eq!(problems(&mut command), [""; 0]);
    }
}

#[test]
fn what_is_no_file_is_reported_and_keeps_repair_from_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let mut spool = open(folder.path());
    set(&mut spool, &[glob(Overridden::Deny, "*")]);
    decide(&mut spool, "a");
    let path = spool.directory().join("overrides");
    std::fs::remove_file(&path).unwrap();
    std::fs::create_dir(&path).unwrap();
    let shard = std::fs::read_dir(spool.directory())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .find(|path| path.extension().is_some_and(|extension| extension == "shard"))
        .unwrap();
    std::fs::write(&shard, b"damaged").unwrap();
    let mut spool = open(folder.path());
    let error = spool.repair(Timestamp { seconds: NOW, micros: 0 }, |_| {}).unwrap_err();
    assert!(error.to_string().contains("overrides"), "{error}");
    let found = problems(&mut spool);
    assert!(found[0].contains("overrides is a directory"), "{found:?}");
    assert!(found.iter().all(|problem| problem.contains("overrides")), "{found:?}");
    spool.take_incidents();
    for _ in 0..2 {
        assert_eq!(decide(&mut spool, "a"), None);
    }
    let incidents = spool.take_incidents();
    assert!(matches!(&*incidents, [one] if one.contains("overrides are ignored")), "{incidents:?}");
}

#[test]
fn a_killed_change_is_completed_by_the_next_check_or_tidy() {
    let folder = tempfile::tempdir().unwrap();
    let mut spool = open(folder.path());
    set(&mut spool, &[glob(Overridden::Deny, "*")]);
    decide(&mut spool, "a");
    let now = Timestamp { seconds: NOW, micros: 0 };
    let by_check = |spool: &mut Spool| assert_eq!(decide(spool, "a"), Some(Overridden::Deny));
    let by_tidy = |spool: &mut Spool| assert_eq!(spool.tidy(now, |_| {}).unwrap().rebuilt, 0);
    for complete in [&by_check as &dyn Fn(&mut Spool), &by_tidy] {
        let word = spool.database.word();
        let mut map = spool.database.writable_word().unwrap().unwrap();
        map.set_u64(DATABASE_WORD, word | CHANGING).unwrap();
        // Another process is changing them: nobody waits for it.
        let other = open(folder.path());
        let guard = other.database.lock_directory().unwrap();
        assert_eq!(decide(&mut spool, "a"), Some(Overridden::Deny));
        assert!(spool.has_unsettled_overrides());
        drop(guard);
        complete(&mut spool);
        assert!(!spool.has_unsettled_overrides() && !open(folder.path()).has_unsettled_overrides());
        assert_eq!(decide(&mut spool, "a"), Some(Overridden::Deny));
        assert_eq!(spool.take_incidents(), [""; 0]);
    }
}

/// Waits until the second of the coarse clock ends.
fn next_second() {
    let second = clock::coarse_seconds();
    while clock::coarse_seconds() == second {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

#[test]
fn a_deleted_superblock_keeps_its_overrides_until_it_is_written_again() {
    let folder = tempfile::tempdir().unwrap();
    let (mut command, mut running) = (open(folder.path()), open(folder.path()));
    let path = running.directory().join("database");
    set(&mut command, &[exact(Overridden::Deny, "a", FOREVER)]);
    assert_eq!(decide(&mut running, "a"), Some(Overridden::Deny));
    for change in [Overridden::Allow, Overridden::Deny] {
        std::fs::remove_file(&path).unwrap();
        next_second();
        let before = decide(&mut running, "a");
        assert!(before.is_some_and(|before| before != change), "what was known stays in force");
        // Another process writes `database` again, and changes the list.
        set(&mut open(folder.path()), &[exact(change, "a", FOREVER)]);
        next_second();
        assert_eq!(decide(&mut running, "a"), Some(change));
        assert_eq!(decide(&mut open(folder.path()), "a"), Some(change));
        assert_eq!(problems(&mut running), [""; 0]);
    }
    // The process that was running changes it.
    std::fs::remove_file(&path).unwrap();
    set(&mut running, &[]);
    assert_eq!(decide(&mut running, "a"), None);
    next_second();
    assert_eq!(decide(&mut command, "a"), None);
    assert!(path.exists());
    // One that was put in its place, as from a backup.
    set(&mut running, &[exact(Overridden::Deny, "a", FOREVER)]);
    let bytes = std::fs::read(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    std::fs::write(&path, bytes).unwrap();
    set(&mut open(folder.path()), &[exact(Overridden::Allow, "a", FOREVER)]);
    next_second();
    assert_eq!(decide(&mut running, "a"), Some(Overridden::Allow));
}

#[test]
fn a_file_that_the_superblock_does_not_name_is_a_problem_that_repair_solves() {
    let folder = tempfile::tempdir().unwrap();
    let mut spool = open(folder.path());
    set(&mut spool, &[glob(Overridden::Deny, "*")]);
    let kept = std::fs::read(spool.directory().join("overrides")).unwrap();
    set(&mut spool, &[]);
    std::fs::write(spool.directory().join("overrides"), kept).unwrap();
    assert_eq!(decide(&mut spool, "a"), None);
    assert!(problems(&mut spool)[0].contains("`database` does not name it"));
    spool.repair(Timestamp { seconds: NOW, micros: 0 }, |_| {}).unwrap();
    assert_eq!(problems(&mut spool), [""; 0]);
    assert_eq!(decide(&mut spool, "a"), Some(Overridden::Deny));
}

#[test]
fn a_copy_has_the_overrides() {
    let (folder, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut spool = open(folder.path());
    let list = [exact(Overridden::Deny, "a", FOREVER), glob(Overridden::Allow, "*")];
    set(&mut spool, &list);
    decide(&mut spool, "a");
    spool.copy_to(other.path(), |_| {}).unwrap();
    let mut copy = open(other.path());
    assert_eq!(copy.overrides().unwrap(), list);
    assert_eq!(decide(&mut copy, "a"), Some(Overridden::Deny));
    // One that is damaged keeps nothing else from being copied.
    let other = tempfile::tempdir().unwrap();
    std::fs::write(spool.directory().join("overrides"), b"x").unwrap();
    assert!(spool.copy_to(other.path(), |_| {}).unwrap().shards > 0);
    let incidents = spool.take_incidents();
    assert!(
        matches!(&*incidents, [one] if one.contains("the copy has no overrides")),
        "{incidents:?}"
    );
    assert_eq!(open(other.path()).overrides().unwrap(), []);
}

#[test]
fn what_is_too_large_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let mut spool = open(folder.path());
    let list = [exact(Overridden::Deny, "a", FOREVER)];
    set(&mut spool, &list);
    let long = Override { reason: "x".repeat(2000), ..exact(Overridden::Allow, "b", FOREVER) };
    let error = spool.change_overrides(|list| list.push(long)).unwrap_err();
    assert_eq!(error.to_string(), "the reason is longer than 1024 bytes");
    assert_eq!(spool.overrides().unwrap(), list);
    assert_eq!(problems(&mut spool), [""; 0]);
}

/// Kills a change at each of its steps: all processes, running or new, then have the old
/// overrides, or all have the new ones.
fn dies_everywhere(
    before: &[Override],
    change: impl Fn(&mut Spool),
    after: Option<Overridden>,
) -> u32 {
    let folder = memory_folder();
    let mut spool = open(folder.path());
    set(&mut spool, before);
    let old = decide(&mut spool, "a");
    let is_sound = |folder: &Path| {
        let found = problems(&mut open(folder));
        assert!(found.is_empty(), "{found:?}");
    };
    for steps in 0.. {
        let attempt = memory_folder();
        copy(folder.path(), attempt.path());
        let (mut running, mut dying) = (open(attempt.path()), open(attempt.path()));
        assert_eq!(decide(&mut running, "a"), old);
        let died = failpoint::dies_after(steps, || change(&mut dying));
        drop(dying);
        let first = decide(&mut running, "a");
        assert!(first == old || first == after, "step {steps}");
        for spool in [&mut running, &mut open(attempt.path())] {
            assert_eq!(decide(spool, "a"), first, "step {steps}");
        }
        is_sound(attempt.path());
        // The next change is seen by all.
        set(&mut open(attempt.path()), &[exact(Overridden::Allow, "a", FOREVER)]);
        assert_eq!(decide(&mut running, "a"), Some(Overridden::Allow), "step {steps}");
        set(&mut open(attempt.path()), &[]);
        assert_eq!(decide(&mut running, "a"), None, "step {steps}");
        is_sound(attempt.path());
        if !died {
            assert_eq!(first, after);
            return steps;
        }
    }
    0
}

#[test]
fn a_killed_change_leaves_old_or_new_for_all_processes() {
    let deny = [exact(Overridden::Deny, "a", FOREVER)];
    let set_deny = |spool: &mut Spool| set(spool, &deny);
    assert!(dies_everywhere(&[], set_deny, Some(Overridden::Deny)) > 5);
    assert!(dies_everywhere(&[glob(Overridden::Allow, "*")], set_deny, Some(Overridden::Deny)) > 5);
    assert!(dies_everywhere(&deny, |spool| set(spool, &[]), None) > 3);
    let shrink = |spool: &mut Spool| spool.set_max_bytes(1 << 30).unwrap();
    assert!(dies_everywhere(&deny, shrink, Some(Overridden::Deny)) > 5);
}
