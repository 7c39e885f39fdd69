//! `exirate verify`, `repair` and `copy`.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use exirate::engine::{Change, FilterChange, State};
use exirate::rate::{Average, Timestamp};
use exirate::spec::StoredKey;
use exirate::spool::{Options, Spool};

use crate::prepared::Prepared;
use crate::{json, list, run, stderr, stdout};

/// A database with `count` keys.
fn database(count: u32) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let mut spool = Spool::open(folder.path(), Options::default()).unwrap();
    for n in 0..count {
        write(&mut spool, n);
    }
    folder
}

fn write(spool: &mut Spool, n: u32) {
    let now = std::time::UNIX_EPOCH.elapsed().unwrap();
    let at = Timestamp { seconds: now.as_secs().cast_signed(), micros: now.subsec_micros() };
    let average = Average { at, rate: f64::from(n) + 1.0 };
    let week = 604_800.0;
    let change = Change { state: State::new(average, 10.0, week), filter: FilterChange::Keep };
    let key = format!("1w/per_mail/key of number {n}");
    spool.update(StoredKey::record_key(key.as_bytes()), None, |_, _| ((), Some(change))).unwrap();
}

fn shards(folder: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<_> = std::fs::read_dir(folder.join("exirate"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|e| e == "shard"))
        .collect();
    paths.sort();
    paths
}

fn flip(path: &Path, offset: usize) {
    let mut bytes = std::fs::read(path).unwrap();
    bytes[offset] ^= 1;
    std::fs::write(path, bytes).unwrap();
}

#[test]
fn repair_repairs_what_verify_finds() {
    let folder = database(2_000);
    let spool = folder.path();
    let output = run(spool, &["verify"]);
    assert_eq!(output.status.code(), Some(0));
    assert!(stdout(&output).starts_with("no problems: 2000 records in 2"), "{}", stdout(&output));
    let output = run(spool, &["repair"]);
    assert_eq!(output.status.code(), Some(0));
    assert!(stdout(&output).starts_with("no problems: nothing to repair\nrebuilt "), "{output:?}");

    let files = shards(spool);
    flip(&files[3], 20); // the header
    let record = std::fs::read(&files[7]).unwrap();
    let at = record.windows(6).position(|bytes| bytes == b"number").unwrap();
    flip(&files[7], at); // one record
    flip(&spool.join("exirate/database"), 20);
    std::fs::write(spool.join("exirate/00.new"), "half").unwrap();

    let verify = run(spool, &["verify", "--json"]);
    assert_eq!(verify.status.code(), Some(1));
    let problems = json(&verify)["problems"].as_array().unwrap().len();
    assert!(problems >= 3, "{}", stdout(&verify));
    let said = stdout(&run(spool, &["verify"]));
    assert!(said.contains("its header is damaged"), "{said}");
    assert!(said.contains("exirate/database: it is damaged"), "{said}");
    let dry = run(spool, &["repair", "--dry-run"]);
    assert_eq!(dry.status.code(), Some(1));
    assert!(stdout(&dry).ends_with("nothing was changed; `exirate repair` repairs this\n"));
    assert_eq!(run(spool, &["verify"]).status.code(), Some(1), "a dry run has repaired it");

    let output = run(spool, &["repair"]);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    let said = stdout(&output);
    assert!(said.contains("\nno problems are left\nrebuilt "), "{said}");
    for words in ["done: ", "00.new, which was never finished", "damaged-1"] {
        assert!(said.contains(words), "{words}: {said}");
    }
    assert_eq!(run(spool, &["verify"]).status.code(), Some(0));
    assert_eq!(list(spool).len(), 1_999, "one record was damaged");
    assert_eq!(json(&run(spool, &["stats", "--json"]))["damaged_files"], 2);
    let log = std::fs::read_to_string(spool.join("exirate/audit.log")).unwrap();
    assert!(log.lines().count() >= 3 && log.lines().all(|l| l.contains(" repair ")), "{log}");

    // What was kept goes when it is old enough, and not before.
    let output = run(spool, &["repair", "--damaged-older-than", "1d"]);
    assert!(!stdout(&output).contains("removed"), "{}", stdout(&output));
    let output = run(spool, &["repair", "--damaged-older-than", "0s"]);
    assert_eq!(stdout(&output).matches("removed ").count(), 2, "{}", stdout(&output));
    assert_eq!(json(&run(spool, &["stats", "--json"]))["damaged_files"], 0);
}

#[test]
fn one_shard_that_cannot_be_repaired_does_not_stop_the_others() {
    let folder = database(2_000);
    let spool = folder.path();
    let files = shards(spool);
    std::fs::remove_file(&files[0]).unwrap();
    std::fs::create_dir(&files[0]).unwrap();
    // Its kind is the only problem.
    std::fs::set_permissions(&files[0], std::fs::Permissions::from_mode(0o640)).unwrap();
    flip(&files[3], 20); // the header
    let said = stdout(&run(spool, &["verify"]));
    let first = files[0].to_str().unwrap();
    assert_eq!(said.matches(first).count(), 1, "{said}");
    let output = run(spool, &["repair"]);
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    let said = stdout(&output);
    assert!(said.contains("had a damaged header and has been rebuilt"), "{said}");
    assert!(said.contains(&format!("still wrong: {first} is a directory")), "{said}");
    assert!(stderr(&output).contains("1 problem could not be repaired"), "{}", stderr(&output));
    assert_eq!(run(spool, &["repair"]).status.code(), Some(2));
    std::fs::remove_dir(&files[0]).unwrap();
    assert_eq!(run(spool, &["verify"]).status.code(), Some(0));
}

#[test]
fn what_may_go_is_dropped_by_repair() {
    let folder = database(200);
    let mut spool = Spool::open(folder.path(), Options::default()).unwrap();
    for n in 0..2_000 {
        let average = Average { at: Timestamp { seconds: 1_000, micros: 0 }, rate: 1.0 };
        let change = Change { state: State::new(average, 10.0, 1.0), filter: FilterChange::Keep };
        let key = format!("1s/per_mail/old {n}");
        spool
            .update(StoredKey::record_key(key.as_bytes()), None, |_, _| ((), Some(change)))
            .unwrap();
    }
    let answer = json(&run(folder.path(), &["repair", "--json"]));
    assert_eq!(answer["forgotten"], 2_000, "{answer}");
    let left = list(folder.path());
    assert_eq!(left.len(), 200);
    assert!(left.iter().all(|row| row["period_text"] == "1w"), "{left:?}");
    let output = run(folder.path(), &["repair", "--damaged-older-than", "soon"]);
    assert!(stderr(&output).contains("expected a time such as 30d"), "{}", stderr(&output));
}

#[test]
fn a_copy_made_under_load_is_sound() {
    let folder = database(3_000);
    let copies = tempfile::tempdir().unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let (path, done) = (folder.path(), &done);
            scope.spawn(move || {
                let mut spool = Spool::open(path, Options::default()).unwrap();
                let mut n = thread;
                while !done.load(Ordering::Relaxed) {
                    // CachedSpec keys, and new ones, so that shards grow meanwhile.
                    write(&mut spool, n % 50_000);
                    n += 7;
                }
            });
        }
        for n in 0..5 {
            let to = copies.path().join(n.to_string());
            let output = run(folder.path(), &["copy", to.to_str().unwrap(), "--json"]);
            assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
            let answer = json(&output);
            assert!(answer["records"].as_u64().unwrap() >= 3_000, "{answer}");
            assert_eq!(run(&to, &["verify"]).status.code(), Some(0));
        }
        done.store(true, Ordering::Relaxed);
    });
    let to = copies.path().join("0");
    let again = run(folder.path(), &["copy", to.to_str().unwrap()]);
    assert_eq!(again.status.code(), Some(2));
    assert!(stderr(&again).contains("exists already and is not empty"), "{}", stderr(&again));
    let nowhere = run(folder.path(), &["copy", "/nonexistent/a/b"]);
    assert!(stderr(&nowhere).contains("cannot create /nonexistent/a/b"), "{}", stderr(&nowhere));
    // The copy is a database of its own.
    assert_eq!(run(&to, &["check", "--count", "9 / 1w / strict / mine"]).status.code(), Some(0));
}

#[test]
fn verify_checks_the_trace_store_as_well() {
    let machine = Prepared::new();
    let before = machine.run("exirate verify --json");
    assert_eq!(before.status.code(), Some(0), "{}", stdout(&before));
    assert!(json(&before)["trace"]["messages"].as_u64().unwrap() > 0);
    let files = std::fs::read_dir(machine.spool().join("exirate/trace")).unwrap();
    let largest = files
        .map(|file| file.unwrap().path())
        .max_by_key(|path| std::fs::metadata(path).unwrap().len())
        .unwrap();
    let middle = std::fs::metadata(&largest).unwrap().len() / 2;
    flip(&largest, usize::try_from(middle).unwrap());
    let after = machine.run("exirate verify");
    assert_eq!(after.status.code(), Some(1), "{}", stdout(&after));
    let copy = machine.run("exirate copy copy --json");
    assert_eq!(copy.status.code(), Some(1), "the copy is as damaged: {copy:?}");
    assert!(json(&copy)["trace"]["files"].as_u64().unwrap() > 0, "{copy:?}");
    let said = stdout(&after);
    assert!(said.contains(largest.to_str().unwrap()), "{said}");
    assert!(said.contains("problem"), "{said}");
    let repair = machine.run("exirate repair");
    assert_ne!(repair.status.code(), Some(0), "{repair:?}");
    assert!(stdout(&repair).contains("done: "), "{repair:?}");
    assert_eq!(machine.run("exirate verify").status.code(), Some(0), "{repair:?}");
    let copy = json(&machine.run("exirate copy sound --json"));
    assert_eq!(copy["problems"].as_array().unwrap().len(), 0, "{copy}");
    assert_eq!(copy["over"], 1, "{copy}");
    let list = machine.run("exirate list --spool sound --over --json | jq length");
    assert_eq!(stdout(&list), "1\n");
    // The trace store alone is enough.
    std::fs::remove_file(machine.spool().join("exirate/database")).unwrap();
    for file in shards(&machine.spool()) {
        std::fs::remove_file(file).unwrap();
    }
    let traces = machine.run("exirate verify");
    assert_eq!(traces.status.code(), Some(0), "{}", stderr(&traces));
    assert!(stderr(&traces).starts_with("exirate: note: no rate database"), "{traces:?}");
    // Without its key, not all can be checked, and that is said.
    assert_eq!(machine.run("exirate repair").status.code(), Some(0));
    std::fs::remove_file(machine.spool().join("exirate/trace/key")).unwrap();
    let keyless = machine.run("exirate verify");
    assert_eq!(keyless.status.code(), Some(1), "{keyless:?}");
    let said = stdout(&keyless);
    assert!(said.contains("it is missing: without it, only damage in "), "{said}");
    assert!(said.contains("0 logs were not checked"), "{said}");
    let last = said.lines().last().unwrap();
    assert!(last.starts_with("1 problem") && !said.contains("checksum"), "{said}");
    assert!(last.ends_with("an unknown number of messages in 2 trace files"), "{said}");
    let counted = &json(&machine.run("exirate verify --json"))["trace"]["messages"];
    assert!(counted.is_null(), "{counted}");
    let segment = std::fs::read_dir(machine.spool().join("exirate/trace")).unwrap();
    let segment = segment.map(|file| file.unwrap().path());
    let segment = segment.into_iter().find(|path| path.extension() == Some("segment".as_ref()));
    flip(&segment.unwrap(), 300);
    let said = stdout(&machine.run("exirate verify"));
    assert!(said.contains(".segment: its checksum is wrong"), "{said}");
}

/// Gives a file another format version, with the checksum of its header at `crc`.
fn stamp_version(path: &Path, crc: usize, version: u32) {
    let mut bytes = std::fs::read(path).unwrap();
    bytes[8..12].copy_from_slice(&version.to_le_bytes());
    let sum = crc32fast::hash(&bytes[..crc]);
    bytes[crc..crc + 4].copy_from_slice(&sum.to_le_bytes());
    std::fs::write(path, bytes).unwrap();
}

/// The names and contents of all files of the database.
fn contents(spool: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut files: Vec<_> = std::fs::read_dir(spool.join("exirate"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .map(|path| (path.clone(), std::fs::read(path).unwrap()))
        .collect();
    files.sort();
    files
}

#[test]
fn a_database_of_version_1_is_refused_and_not_changed() {
    // With the file `database`, without it, and with shards of version 1 only.
    for (stamped, present) in [(true, true), (true, false), (false, true)] {
        let folder = database(500);
        let spool = folder.path();
        let superblock = spool.join("exirate/database");
        for shard in shards(spool) {
            stamp_version(&shard, 60, 1);
        }
        if stamped {
            stamp_version(&superblock, 40, 1);
        }
        if !present {
            std::fs::remove_file(&superblock).unwrap();
        }
        let before = contents(spool);
        let commands: [&[&str]; 6] = [
            &["check", "10 / 1w / per_mail / key of number 7"],
            &["verify"],
            &["repair"],
            &["tidy"],
            &["show", "key of number 7"],
            &["doctor"],
        ];
        for command in commands {
            let output = run(spool, command);
            let text = stdout(&output) + &stderr(&output);
            assert_ne!(output.status.code(), Some(0), "{command:?}: {text}");
            let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(words.contains("is of format version 1"), "{command:?}: {text}");
            assert!(words.contains("run `exirate export` of the exirate that wrote it"), "{text}");
            assert!(!text.contains("damaged"), "{command:?}: {text}");
            assert!(contents(spool) == before, "{command:?} has changed a file: {text}");
        }
    }
}
