//! `exirate erase`.

use std::path::Path;
use std::process::Output;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::Value;

use exirate::spool::{HeldNote, Options, Spool};

use crate::{exirate, json, run, stderr, stdout};

const ALICE: &str = "alice@example.org";

fn fine(output: &Output) -> String {
    assert_eq!((output.status.code(), stderr(output)), (Some(0), String::new()));
    stdout(output)
}

fn count(spool: &Path, spec: &str, key: &str, recipient: &str) {
    let check = ["check", "--count", spec, "--key", key, "--cost", "30", "--recipient", recipient];
    assert_eq!(stderr(&run(spool, &check)), "");
}

/// alice everywhere, and others beside her.
fn fill(spool: &Path) {
    // Strict and over, leaky and over (so without a rate), under, and within a longer key.
    count(spool, "10 / 1w / per_rcpt / strict", "Alice@Example.org", "r1@x.test");
    count(spool, "10 / 1w / per_rcpt / leaky", ALICE, "r1@x.test");
    count(
        spool,
        "100 / 2d / per_conn / leaky",
        "auth:alice@example.org,client:192.0.2.7",
        "r1@x.test",
    );
    // bob writes to her, and is over; others have similar addresses.
    count(spool, "10 / 1w / per_rcpt / strict", "bob@example.org", ALICE);
    count(spool, "100 / 1w / per_rcpt / strict", "malice@example.org", "r1@x.test");
    count(spool, "100 / 1w / per_rcpt / strict", "alice+news@example.org", "r1@x.test");
    fine(&run(spool, &["allow", ALICE, "--until", "forever", "--reason", "holiday"]));
    // Nobody of these names was seen, which a note says.
    for deny in [
        &["deny", "carol@example.org", "--reason", "asked by alice@example.org."][..],
        &["deny", "*@example.net", "--reason", "spam", "--yes"],
    ] {
        assert_eq!(run(spool, deny).status.code(), Some(0));
    }
    let message = "From: x@y\r\nSubject: plans\r\n\r\nA text long enough to be found again.\r\n";
    for (id, sender, recipient) in [("a-1", ALICE, "r@x.test"), ("b-2", "bob@example.org", ALICE)] {
        let mut command = exirate();
        command.args(["trace", "record", "-", "--id", id, "--from", sender]);
        command.args(["--to", recipient, "--spool"]).arg(spool);
        let ran = kit::exim::run(command, message.as_bytes());
        assert_eq!((ran.code, ran.stderr.as_str()), (0, ""));
    }
    let mut database = Spool::open(spool, Options::default()).unwrap();
    for (id, key) in [("1A", "auth:alice@example.org"), ("1B", "auth:malice@example.org")] {
        let (id, key) = (id.to_owned(), key.as_bytes().to_vec());
        database.note_held(&HeldNote { id, key, ..HeldNote::default() }).unwrap();
    }
}

/// Which files below `folder` contain alice's address, whatever its case.
fn files_with_alice(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files_with_alice(&path));
            continue;
        }
        let bytes = std::fs::read(&path).unwrap().to_ascii_lowercase();
        let is_hers = |(at, part): (usize, &[u8])| {
            let before = at.checked_sub(1).map(|at| bytes[at]);
            part == ALICE.as_bytes() && before != Some(b'm')
        };
        if bytes.windows(ALICE.len()).enumerate().any(is_hers) {
            found.push(path.display().to_string());
        }
    }
    found
}

/// What is left of the others is as it was.
fn assert_others_are_left(spool: &Path) {
    let keys = |output: Output| -> Vec<String> {
        let rows: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
        let mut keys: Vec<_> = rows.iter().map(|r| r["key"].as_str().unwrap().to_owned()).collect();
        keys.sort();
        keys
    };
    let listed = keys(run(spool, &["list", "--json"]));
    assert_eq!(listed, ["alice+news@example.org", "bob@example.org", "malice@example.org"]);
    let overrides: Vec<Value> =
        serde_json::from_slice(&run(spool, &["overrides", "--json"]).stdout).unwrap();
    let overrides: Vec<_> = overrides.iter().map(|one| one["key"].as_str().unwrap()).collect();
    assert_eq!(overrides, ["*@example.net"]);
    for log in [&["events", "--json"][..], &["events", "--refusals", "--json"]] {
        let events = fine(&run(spool, log));
        let event: Value = serde_json::from_str(&events).unwrap();
        assert_eq!((&event["key"], &event["recipient"]), (&"bob@example.org".into(), &Value::Null));
        assert_eq!((&event["rate"], &event["limit"]), (&30.0.into(), &10.0.into()));
    }
    let messages =
        fine(&run(spool, &["trace", "query", "--text", "A text long enough to be found again."]));
    for part in ["a-1", "b-2", "[erased]", "bob@example.org", "r@x.test"] {
        assert!(messages.contains(part), "{part}: {messages}");
    }
    fine(&run(spool, &["verify"]));
}

#[test]
fn a_person_is_removed_from_everything_and_nobody_else() {
    let spool = tempfile::tempdir().unwrap();
    let spool = spool.path();
    fill(spool);
    assert!(!files_with_alice(spool).is_empty());
    let found = json(&run(spool, &["erase", "ALICE@example.org", "--dry-run", "--json"]));
    let expected = |erased: bool| {
        serde_json::json!({
            "rates": 3, "crossings": 2, "refusals": 2, "mentions": 2, "overrides": 2,
            "audit_lines": 2, "held_notes": 1, "messages": 2, "erased": erased, "left": [],
        })
    };
    assert_eq!(found, expected(false));
    // Without a terminal, it wants to be told.
    let output = run(spool, &["erase", ALICE]);
    assert_eq!(output.status.code(), Some(2));
    let message = stderr(&output);
    assert!(
        message.contains("this removes alice@example.org: 3 records, 2 crossings"),
        "{message}"
    );
    assert!(message.contains("use --yes"), "{message}");

    let found = json(&run(spool, &["erase", ALICE, "--yes", "--json"]));
    assert_eq!(found, expected(true));
    assert_eq!(files_with_alice(spool), [""; 0]);
    assert_others_are_left(spool);
    let log = std::fs::read_to_string(spool.join("exirate/audit.log")).unwrap();
    assert!(log.contains("key=*****************"), "{log}");
    let last = log.lines().last().unwrap();
    assert!(last.contains(" erase removed: 3 records, 2 crossings, 2 refusals, 2 names"), "{last}");

    let again = run(spool, &["erase", ALICE, "--yes"]);
    assert_eq!((again.status.code(), stdout(&again)), (Some(1), String::new()));
    assert!(stderr(&again).contains("nothing is stored about alice@example.org"));
}

#[test]
fn what_is_not_removed_is_reported() {
    let spool = tempfile::tempdir().unwrap();
    let spool = spool.path();
    fill(spool);
    let policy = spool.join("policy.toml");
    let text = "version = 1\n[policy.p]\ndefault.messages = \"1/1h\"\nuser.\"alice@example.org\".messages = \"9/1h\"\n";
    std::fs::write(&policy, text).unwrap();
    fine(&run(spool, &["policy", "apply", policy.to_str().unwrap()]));
    std::fs::write(spool.join("exirate/00.shard.damaged-1"), "x").unwrap();
    let output = run(spool, &["erase", ALICE, "--yes"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stdout(&output).starts_with("alice@example.org: removed: 3 records, 2 crossings, "));
    let message = stderr(&output);
    assert!(message.contains("left: 1 setting of the policies in use"), "{message}");
    assert!(message.contains("00.shard.damaged-1 is quarantined"), "{message}");
    for (person, what) in [("a", "is too short"), ("*@x", "no address has"), ("@x", "is a part")] {
        let output = run(spool, &["erase", person]);
        assert_eq!(output.status.code(), Some(2), "{person}");
        assert!(stderr(&output).contains(what), "{person}: {}", stderr(&output));
    }
}

/// Sets what tells threads to stop when it is dropped.
struct Stopping<'a>(&'a AtomicBool);

impl Drop for Stopping<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn a_killed_erasure_is_completed_by_the_next_while_others_are_counted() {
    let stop = AtomicBool::new(false);
    let spool = tempfile::tempdir().unwrap();
    let spool = spool.path();
    fill(spool);
    let counted = std::thread::scope(|scope| {
        // Also if an assertion fails: the scope waits for the workers.
        let _stopping = Stopping(&stop);
        let workers = [1, 2].map(|n| {
            let stop = &stop;
            scope.spawn(move || {
                let key = format!("worker{n}");
                let mut counted = 0;
                while !stop.load(Ordering::Relaxed) {
                    let check = ["check", "--count", "1M / 100w / strict", "--key", &key];
                    assert_eq!(stderr(&run(spool, &check)), "");
                    counted += 1;
                }
                counted
            })
        });
        for round in 0..30 {
            let mut command = exirate();
            command.args(["erase", ALICE, "--yes", "--spool"]).arg(spool);
            let mut child = command.stdout(std::process::Stdio::null()).spawn().unwrap();
            std::thread::sleep(Duration::from_micros(500 * round * round));
            let _ = child.kill();
            child.wait().unwrap();
            let completed = run(spool, &["erase", ALICE, "--yes"]);
            assert!(matches!(completed.status.code(), Some(0 | 1)), "{}", stderr(&completed));
            assert_eq!(files_with_alice(spool), [""; 0], "round {round}");
            count(spool, "10 / 1w / per_rcpt / strict", ALICE, "r1@x.test");
            let again = ["allow", ALICE, "--reason", "again", "--until", "1d"];
            assert_eq!(run(spool, &again).status.code(), Some(0));
        }
        stop.store(true, Ordering::Relaxed);
        workers.map(|worker| worker.join().unwrap())
    });
    for (n, counted) in [1, 2].into_iter().zip(counted) {
        let rows = json(&run(spool, &["list", &format!("worker{n}"), "--json"]));
        let rate = rows[0]["rate"].as_f64().unwrap();
        // Over so long a period, what was counted hardly decays.
        assert!((rate / f64::from(counted) - 1.0).abs() < 0.02, "{rate} of {counted}");
    }
    fine(&run(spool, &["verify"]));
}
