//! Repairing and copying the store.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::path::Path;

use crate::sys::failpoint;
use crate::sys::simulated_disk::memory_folder;

use super::kill_tests::copy;
use super::tests::{assert_sound, found, open, open_small, record, record_fifty};
use super::*;

/// A store with a segment of 20 messages, a second one, and 10 messages in the log.
fn world() -> tempfile::TempDir {
    let folder = memory_folder();
    record_fifty(&mut open(folder.path()));
    folder
}

/// Flips a bit of a file.
fn damage(folder: &Path, name: &str, offset: i64) {
    let path = trace_directory(folder).join(name);
    let mut bytes = std::fs::read(&path).unwrap();
    let at = if offset < 0 { bytes.len() as i64 + offset } else { offset };
    bytes[at as usize] ^= 4;
    std::fs::write(&path, bytes).unwrap();
}

/// The bytes of the tables of the first segment.
fn tables(folder: &Path) -> i64 {
    let trace = open(folder);
    let opened = segment::Segment::open(&trace.dir, &trace.key, c"00000001.segment");
    opened.unwrap().unwrap().unwrap().head.table_bytes() as i64
}

fn problems(trace: &TraceStore) -> Vec<String> {
    let mut problems = Vec::new();
    trace.verify(&mut |_, _| {}, &mut |problem| problems.push(problem.to_string())).unwrap();
    problems
}

fn repair(folder: &Path) -> Repaired {
    let mut trace = TraceStore::open(&trace_directory(folder), Access::Write).unwrap();
    trace.repair(&mut |_, _| {}).unwrap()
}

#[test]
fn a_sound_store_does_not_change() {
    let folder = world();
    assert_eq!(repair(folder.path()), Repaired::default());
    assert_eq!(found(&open(folder.path())), (0..50).collect::<Vec<_>>());
}

#[test]
fn damaged_copies_are_rewritten() {
    let segment = "00000001.segment";
    let folder = world();
    let tables = tables(folder.path());
    for (name, offset, what) in [
        (segment, 100, "copies in it were damaged"),
        (segment, 196, "copies in it were damaged"),
        (segment, 195 + tables, "copies in it were damaged"),
        (segment, -5, "copies in it were damaged"),
        (segment, -5 - 196, "copies in it were damaged"),
        // The checksum itself.
        (segment, -1, "copies in it were damaged"),
        ("key", 20, "one of its two copies was damaged"),
        ("key", 530, "one of its two copies was damaged"),
        ("settings", 530, "one of its two copies was damaged"),
        ("open.log", 60, "it was damaged; it was closed to be sealed"),
        ("open.log", 1030, "it was damaged; it was closed to be sealed"),
    ] {
        let attempt = memory_folder();
        copy(folder.path(), attempt.path());
        damage(attempt.path(), name, offset);
        let reader = TraceStore::open(&trace_directory(attempt.path()), Access::Read).unwrap();
        assert!(!problems(&reader).is_empty(), "{name} {offset}");
        let Repaired { done, left } = repair(attempt.path());
        assert_eq!(left, [], "{name} {offset}");
        assert_eq!(done.len(), 1, "{name} {offset}: {done:?}");
        assert!(done[0].path.ends_with(name) && done[0].what.contains(what), "{done:?}");
        let trace = TraceStore::open(&trace_directory(attempt.path()), Access::Read).unwrap();
        assert_eq!(found(&trace), (0..50).collect::<Vec<_>>(), "{name} {offset}");
        assert_sound(&trace, name);
        if name == segment {
            let [a, b] =
                [&folder, &attempt].map(|f| std::fs::read(trace_directory(f.path()).join(name)));
            assert!(a.unwrap() == b.unwrap(), "{offset}");
        }
        assert_eq!(repair(attempt.path()), Repaired::default());
    }
}

#[test]
fn irreparable_damage_is_left_and_reported() {
    let folder = world();
    // In the last digests, which are followed by the second tables and head.
    let behind = tables(folder.path()) + segment::HEAD_BYTES as i64 + codec::CRC_BYTES as i64;
    damage(folder.path(), "00000001.segment", -behind - 5);
    let Repaired { done, left } = repair(folder.path());
    assert_eq!(done, []);
    assert!(left[0].what.contains("its checksum is wrong"), "{left:?}");
    assert!(left[1].what.contains("1 of its "), "{left:?}");
    // All other messages are found, and this file's envelopes.
    let trace = TraceStore::open(&trace_directory(folder.path()), Access::Read).unwrap();
    assert_eq!(super::tests::ask(&trace, &Query::default()).len(), 50);
}

#[test]
fn settings_with_two_damaged_copies_keep_all_messages() {
    let folder = world();
    damage(folder.path(), "settings", 20);
    damage(folder.path(), "settings", 530);
    let Repaired { done, left } = repair(folder.path());
    assert_eq!((done.len(), left.len()), (1, 0));
    assert!(done[0].what.contains("kept forever: set trace.keep"), "{done:?}");
    let trace = TraceStore::open(&trace_directory(folder.path()), Access::Read).unwrap();
    assert_eq!(trace.options().keep, None);
    assert_sound(&trace, "after a repair");
}

#[test]
fn unreadable_files_are_quarantined_and_removed_when_expired() {
    for (name, second) in [("00000001.segment", -5), ("open.log", 512)] {
        let folder = world();
        damage(folder.path(), name, 0);
        damage(folder.path(), name, second);
        let Repaired { done, left } = repair(folder.path());
        assert_eq!(left, [], "{name}");
        let quarantined = name.replace("open.log", "00000003.log") + ".damaged";
        assert!(done.iter().any(|done| done.what.contains(&quarantined)), "{done:?}");
        let path = trace_directory(folder.path()).join(quarantined);
        let mut trace = open(folder.path());
        assert_eq!(trace.stats().unwrap().quarantined, 1);
        assert_eq!(found(&trace).len(), if name == "open.log" { 40 } else { 30 });
        // No number is used twice.
        record(&mut trace, 100);
        trace.seal().unwrap();
        let next = trace_directory(folder.path()).join("00000004.segment");
        assert_eq!(next.exists(), name == "open.log");
        trace.options.keep = Some(1);
        trace.retain(crate::sys::clock::now().0 - 10, &mut Tidied::default()).unwrap();
        assert!(path.exists());
        trace.retain(crate::sys::clock::now().0 + 10, &mut Tidied::default()).unwrap();
        assert!(!path.exists());
    }
}

#[test]
fn files_of_killed_processes_are_removed_or_sealed() {
    let folder = world();
    let directory = trace_directory(folder.path());
    for name in ["key.new", "settings.new", "open.new", "segment.new"] {
        std::fs::write(directory.join(name), "x").unwrap();
    }
    std::fs::rename(directory.join("open.log"), directory.join("00000003.log")).unwrap();
    let Repaired { done, left } = repair(folder.path());
    assert_eq!((done.len(), left.len()), (4, 0), "{done:?}");
    let mut names: Vec<_> = std::fs::read_dir(&directory)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    let segments = ["00000001.segment", "00000002.segment", "00000003.segment"];
    assert_eq!(names, [&segments[..], &["key", "sealing", "settings"]].concat());
    assert_eq!(found(&open(folder.path())), (0..50).collect::<Vec<_>>());
}

#[test]
fn a_repair_may_be_killed_at_any_step() {
    let folder = world();
    damage(folder.path(), "00000001.segment", 100);
    damage(folder.path(), "open.log", 60);
    damage(folder.path(), "settings", 20);
    for steps in 0.. {
        let attempt = memory_folder();
        copy(folder.path(), attempt.path());
        let mut dying = TraceStore::open(&trace_directory(attempt.path()), Access::Write).unwrap();
        let died = failpoint::dies_after(steps, || dying.repair(&mut |_, _| {}).unwrap());
        drop(dying);
        assert_eq!(repair(attempt.path()).left, [], "step {steps}");
        let trace = TraceStore::open(&trace_directory(attempt.path()), Access::Read).unwrap();
        assert_eq!(found(&trace), (0..50).collect::<Vec<_>>(), "step {steps}");
        if !died {
            assert!(steps > 50, "{steps}");
            return;
        }
    }
}

/// Exim's user, who owns everything in the spool directory.
const EXIM: u32 = 65_534;

/// Asserts that everything in the store belongs to Exim.
fn assert_all_is_of_exim(folder: &Path, when: &str) {
    let directory = trace_directory(folder);
    let Ok(entries) = std::fs::read_dir(&directory) else { return };
    let entries = entries.map(|entry| entry.unwrap().path());
    for path in entries.chain([directory.clone()]) {
        let metadata = std::fs::metadata(&path).unwrap();
        let mode = match path.file_name().and_then(|name| name.to_str()) {
            _ if metadata.is_dir() => 0o750,
            Some("key" | "key.new") => 0o600,
            _ => 0o640,
        };
        // A file that root created but had not given its mode yet keeps the
        // stricter one.
        let stricter = mode & 0o7700 | metadata.mode() & 0o040;
        let found = (metadata.uid(), metadata.gid(), metadata.mode() & 0o7777);
        let mode = if path.ends_with("sealing") { stricter } else { mode };
        assert_eq!(found, (EXIM, EXIM, mode), "{} {when}", path.display());
    }
}

fn folder_of_exim() -> tempfile::TempDir {
    let folder = memory_folder();
    chown(folder.path(), Some(EXIM), Some(EXIM)).unwrap();
    folder
}

/// Operations on the store that root's commands run.
fn as_root(folder: &Path) {
    let mut trace = open_small(folder, 2);
    (0..3).for_each(|n| record(&mut trace, n));
    trace.set_options(Options { max_bytes: 1 << 30, ..super::tests::for_ever() }).unwrap();
    trace.tidy(super::tests::envelope(0).time).unwrap();
    trace.repair(&mut |_, _| {}).unwrap();
}

#[test]
fn a_command_of_root_may_be_killed_at_any_step() {
    for steps in 0.. {
        let folder = folder_of_exim();
        let died = failpoint::dies_after(steps, || as_root(folder.path()));
        assert_all_is_of_exim(folder.path(), &format!("after step {steps}"));
        as_root(folder.path());
        assert_all_is_of_exim(folder.path(), &format!("after a command that follows step {steps}"));
        if !died {
            assert!(steps > 100, "{steps}");
            return;
        }
    }
}

#[test]
fn commands_of_root_give_files_of_root_to_exim() {
    let folder = folder_of_exim();
    as_root(folder.path());
    let directory = trace_directory(folder.path());
    // As after a kill on a file system without O_TMPFILE.
    for name in ["sealing", "key.new", "open.new", "segment.new", "settings.new"] {
        let path = directory.join(name);
        let _ = std::fs::remove_file(&path);
        std::fs::write(&path, "").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    }
    let trace = TraceStore::open(&directory, Access::Read).unwrap();
    let found = problems(&trace);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].contains("sealing") && found[0].contains("user 0"), "{found:?}");
    let mut trace = open_small(folder.path(), 2);
    trace.tidy(super::tests::envelope(0).time).unwrap();
    assert_eq!(problems(&trace), Vec::<String>::new());
    as_root(folder.path());
    assert_all_is_of_exim(folder.path(), "after a command");
}

#[test]
fn verify_finds_wrong_owners_and_modes_and_repair_corrects_them() {
    let segment = "00000001.segment";
    for (name, right) in
        [("key", 0o600), ("settings", 0o640), ("open.log", 0o640), (segment, 0o640)]
    {
        for (owner, mode, fault) in
            [(0, right, "user 0"), (EXIM, 0o400, "mode 0400"), (EXIM, 0o662, "mode 0662")]
        {
            let folder = folder_of_exim();
            record_fifty(&mut open(folder.path()));
            let path = trace_directory(folder.path()).join(name);
            chown(&path, Some(owner), Some(owner)).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            let trace = TraceStore::open(&trace_directory(folder.path()), Access::Read).unwrap();
            let found = problems(&trace);
            assert_eq!(found.len(), 1, "{found:?}");
            assert!(found[0].contains(name) && found[0].contains(fault), "{found:?}");
            let Repaired { done, left } = repair(folder.path());
            assert_eq!((done.len(), left.len()), (1, 0), "{done:?} {left:?}");
            assert!(done[0].what.contains(fault), "{done:?}");
            assert_all_is_of_exim(folder.path(), "after a repair");
        }
    }
}

#[test]
fn a_copy_has_all_messages_while_others_record_and_seal() {
    let folder = world();
    let target = memory_folder();
    let mut other = open_small(folder.path(), 4);
    let mut next = 50;
    let mut trace = TraceStore::open(&trace_directory(folder.path()), Access::Read).unwrap();
    let copied = trace
        .copy_to(target.path(), &mut |_| {
            // After the settings and two segments: the rest may be the open
            // log, which is locked.
            if next < 56 {
                (0..2).for_each(|n| record(&mut other, next + n));
                other.seal().unwrap();
                next += 2;
            }
        })
        .unwrap();
    assert_eq!(next, 56);
    assert_eq!(copied.problems, []);
    assert_eq!(copied.path, trace_directory(target.path()));
    let copy = TraceStore::open(&copied.path, Access::Read).unwrap();
    assert_eq!(found(&copy), (0..56).collect::<Vec<_>>());
    assert_eq!(copied.verified.messages, 56);
    let names = std::fs::read_dir(&copied.path).unwrap().count() as u64;
    assert_eq!(names, copied.files);
    let mode = std::fs::metadata(copied.path.join("key")).unwrap().mode() & 0o777;
    assert_eq!(mode, 0o600);
    // A second copy to the same directory is refused.
    let error = trace.copy_to(target.path(), &mut |_| {}).unwrap_err().to_string();
    assert!(error.ends_with("is not empty: a copy needs a directory without a trace store"));
}

#[test]
fn damage_is_copied_and_reported() {
    let folder = world();
    damage(folder.path(), "00000002.segment", 100);
    let target = memory_folder();
    let mut trace = TraceStore::open(&trace_directory(folder.path()), Access::Read).unwrap();
    let copied = trace.copy_to(target.path(), &mut |_| {}).unwrap();
    assert!(!copied.problems.is_empty());
    assert_eq!(repair(target.path()).left, []);
    assert_eq!(found(&open(target.path())), (0..50).collect::<Vec<_>>());
}

/// Two stores that continue from the same copy, as after restoring a backup:
/// they share no keystream from then on, although the key and the messages are
/// the same.
#[test]
fn a_restored_copy_reuses_no_keystream() {
    let folder = world();
    let target = memory_folder();
    open(folder.path()).copy_to(target.path(), &mut |_| {}).unwrap();
    let before = std::fs::metadata(trace_directory(folder.path()).join("open.log")).unwrap().len();
    let both = [folder.path(), target.path()];
    for folder in both {
        (50..60).for_each(|n| record(&mut open(folder), n));
    }
    let logs = both.map(|f| std::fs::read(trace_directory(f).join("open.log")).unwrap());
    let [one, other] = logs.each_ref().map(|bytes| bytes.split_at(before as usize));
    assert!(one.0[log::RECORDS..] == other.0[log::RECORDS..], "they do not begin as one");
    assert!(one.1.len() == other.1.len() && one.1.len() > 1000);
    for folder in both {
        open(folder).seal().unwrap();
    }
    let segments =
        both.map(|f| std::fs::read(trace_directory(f).join("00000003.segment")).unwrap());
    // Between the two heads, which begin with plaintext.
    let segments = segments
        .each_ref()
        .map(|bytes| &bytes[log::START_BYTES..bytes.len() - segment::HEAD_BYTES - 4]);
    for (one, other) in [(one.1, other.1), (segments[0], segments[1])] {
        // By chance, one byte in 256 is the same; eight in a row never are.
        let same = one.windows(8).zip(other.windows(8)).filter(|(a, b)| a == b).count();
        assert_eq!(same, 0);
    }
}
