//! The trace store in `exirate stats`, `verify` and `repair`; `exirate trace export`.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Output;

use serde_json::Value;

use super::{passed, trace};
use crate::{run, stderr, stdout};

/// The log that is written to.
fn log(spool: &std::path::Path) -> std::path::PathBuf {
    let store = spool.join("exirate/trace");
    let paths = fs::read_dir(&store).unwrap().map(|entry| entry.unwrap().path());
    paths.into_iter().max_by_key(|path| path.metadata().unwrap().len()).unwrap()
}

/// What a command prints in JSON. That there is no rate database here is a note.
fn json(output: &Output) -> Value {
    let said = stderr(output);
    assert!(said.is_empty() || said.starts_with("exirate: note: no rate database at "), "{said}");
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn the_store_is_counted() {
    let spool = passed();
    let stats = json(&run(spool.path(), &["stats", "--json"]));
    let stats = &stats["trace"];
    assert_eq!((&stats["messages"], &stats["damaged_files"]), (&5.into(), &0.into()));
    assert_eq!(stats["oldest"], "2026-11-18T09:12:04Z");
    assert_eq!(stats["newest"], "2026-11-20T11:10:14Z");
    let each = stats["bytes_per_message"].as_f64().unwrap();
    assert_eq!(each * 5.0, stats["disk_bytes"].as_f64().unwrap());
    let said = stdout(&run(spool.path(), &["stats"]));
    for line in
        ["messages    5 in the trace store\n", "oldest      2026-11-18", "damaged     0 files\n"]
    {
        assert!(said.contains(line), "{line}: {said}");
    }
}

#[test]
fn damage_is_found_and_hides_nothing_else() {
    let spool = passed();
    let output = run(spool.path(), &["verify"]);
    assert_eq!(output.status.code(), Some(0), "{}", stdout(&output));
    assert!(stdout(&output).starts_with("no problems: 5 messages in "), "{}", stdout(&output));
    let log = log(spool.path());
    let mut bytes = fs::read(&log).unwrap();
    // In the last record.
    let at = bytes.len() - 20;
    bytes[at] ^= 1;
    fs::write(&log, bytes).unwrap();
    let output = run(spool.path(), &["verify", "--json"]);
    assert_eq!(output.status.code(), Some(1));
    let found = json(&output);
    assert_eq!(found["trace"]["messages"], 4);
    assert_eq!(found["problems"].as_array().unwrap().len(), 1);
    let said = stdout(&run(spool.path(), &["verify"]));
    assert!(said.contains(log.to_str().unwrap()), "{said}");
    let output = trace(spool.path(), &["query", "--since", "@0", "--json"]);
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(answer["matches"], 4);
}

#[test]
fn damage_is_repaired() {
    let spool = passed();
    let output = run(spool.path(), &["repair", "--dry-run"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert_eq!(stdout(&output), "no problems: nothing to repair\n");
    let log = log(spool.path());
    let mut bytes = fs::read(&log).unwrap();
    let at = bytes.len() - 20;
    bytes[at] ^= 1;
    fs::write(&log, bytes).unwrap();
    let key = spool.path().join("exirate/trace/key");
    fs::set_permissions(&key, fs::Permissions::from_mode(0o644)).unwrap();
    let output = run(spool.path(), &["repair", "--json"]);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    let report = json(&output);
    let done = report["done"].as_array().unwrap();
    let texts: Vec<_> = done.iter().map(|done| done.as_str().unwrap()).collect();
    for what in ["mode 0644", "open.log: it was damaged", "was damaged in 1 place;"] {
        assert!(texts.iter().any(|text| text.contains(what)), "{what}: {texts:?}");
    }
    assert_eq!(report["left"], Value::Array(Vec::new()));
    assert_eq!(run(spool.path(), &["verify"]).status.code(), Some(0));
    assert_eq!(key.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    let output = run(spool.path(), &["repair"]);
    assert!(stdout(&output).starts_with("no problems: nothing to repair\nsealed "), "{output:?}");
    assert_eq!(json(&run(spool.path(), &["stats", "--json"]))["trace"]["messages"], 4);
}

#[test]
fn envelopes_are_exported_and_nothing_else() {
    let spool = passed();
    let output = trace(spool.path(), &["export"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let lines: Vec<Value> =
        stdout(&output).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 5);
    assert_eq!(lines[3]["recipients"].as_array().unwrap().len(), 2);
    assert_eq!(lines[4]["sender"], "");
    assert!(!stdout(&output).contains("northern"));
    let file = spool.path().join("mail.csv");
    let output =
        trace(spool.path(), &["export", "--format", "csv", "--output", file.to_str().unwrap()]);
    assert!(stdout(&output).starts_with("wrote 5 messages to "), "{}", stdout(&output));
    let mode = file.metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let written = fs::read_to_string(&file).unwrap();
    let lines: Vec<&str> = written.lines().collect();
    assert_eq!(lines[0], "time,id,sender,recipients,client,authenticated,partial");
    assert_eq!(
        lines[4],
        "2026-11-20T11:02:33Z,1vLo2C-000000007Hb-1gTt,alice@example.org,carol@example.org \
         dora@example.net,192.0.2.7,,no"
    );
    let output = trace(spool.path(), &["export", "--until", "2026-11-18T23:59:59Z"]);
    assert_eq!(stdout(&output).lines().count(), 1);
}

#[test]
fn a_stolen_key_is_all_that_opens_it() {
    let spool = passed();
    let key = spool.path().join("exirate/trace/key");
    assert_eq!(key.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    fs::remove_file(&key).unwrap();
    let output = trace(spool.path(), &["query", "--from", "alice@example.org"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("key is missing"), "{}", stderr(&output));
}
