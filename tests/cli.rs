//! The program `exirate`, run as an administrator runs it.

#![cfg(feature = "cli")]
#![allow(missing_docs, clippy::unwrap_used)]

mod common;

use std::ffi::OsStr;
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

fn exirate() -> Command {
    Command::new(env!("CARGO_BIN_EXE_exirate"))
}

/// Runs `exirate ARGUMENTS --spool SPOOL`.
fn run(spool: &Path, arguments: &[&str]) -> Output {
    exirate().args(arguments).arg("--spool").arg(spool).output().unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

fn json(output: &Output) -> Value {
    assert_eq!(stderr(output), "");
    serde_json::from_slice(&output.stdout).unwrap()
}

fn list(spool: &Path) -> Vec<Value> {
    let output = run(spool, &["list", "--json"]);
    assert_eq!(output.status.code(), Some(0));
    json(&output).as_array().unwrap().clone()
}

#[test]
fn checks_count_until_the_limit_bites() {
    let spool = tempfile::tempdir().unwrap();
    let check = || run(spool.path(), &["check", "2.5 / 1w / strict / alice", "--json"]);
    for n in 1..=4 {
        let output = check();
        let answer = json(&output);
        let over = n >= 3;
        assert_eq!(output.status.code(), Some(i32::from(over)), "{answer}");
        assert_eq!(answer["over"], over);
        assert!((answer["rate"].as_f64().unwrap() - f64::from(n)).abs() < 0.1, "{answer}");
        assert_eq!(answer["limit"], 2.5);
        assert_eq!(answer["period"], 604_800.0);
        assert_eq!(answer["mode"], "per_mail");
        assert_eq!(answer["update"], "strict");
        assert_eq!(answer["key"], "alice");
        assert_eq!(answer["count"], 1.0);
        assert_eq!(answer["dry_run"], false);
        let waits = answer["retry_after"].as_u64().unwrap() > 0;
        assert_eq!(waits, n >= 2, "{answer}");
        // One event has left room for one more.
        assert!(answer["remaining"].as_f64().unwrap() <= 1.0, "{answer}");
    }
}

#[test]
fn a_dry_run_changes_nothing() {
    let spool = tempfile::tempdir().unwrap();
    let dry = ["check", "2 / 1w / strict / bob", "--dry-run", "--json"];
    for _ in 0..3 {
        let output = run(spool.path(), &dry);
        assert_eq!(json(&output)["rate"], 1.0);
        assert_eq!(output.status.code(), Some(0));
    }
    assert_eq!(std::fs::read_dir(spool.path()).unwrap().count(), 0, "it made a database");

    assert_eq!(run(spool.path(), &dry[..2]).status.code(), Some(0));
    let before = list(spool.path());
    for _ in 0..3 {
        let rate = json(&run(spool.path(), &dry))["rate"].as_f64().unwrap();
        assert!((1.9..=2.0).contains(&rate), "{rate}");
    }
    assert_eq!(list(spool.path())[0]["last_rate"], before[0]["last_rate"]);
    assert_eq!(list(spool.path())[0]["last_seen"], before[0]["last_seen"]);
}

#[test]
fn options_replace_what_the_spec_says() {
    let spool = tempfile::tempdir().unwrap();
    let spec = "100 / 1w / per_rcpt / strict / one";
    let answer =
        json(&run(spool.path(), &["check", spec, "--key", "t/w/o", "--count", "7.5", "--json"]));
    assert_eq!((&answer["key"], &answer["rate"]), (&"t/w/o".into(), &7.5.into()));
    let keys = list(spool.path());
    assert_eq!(keys.len(), 1);
    assert_eq!(keys[0]["key"], "t/w/o");
    assert_eq!(keys[0]["mode"], "per_rcpt");
    // The same key, written in the spec.
    let spec = "100 / 1w / per_rcpt / strict / t//w//o";
    let rate = json(&run(spool.path(), &["check", spec, "--json"]))["rate"].as_f64().unwrap();
    assert!((8.4..=8.5).contains(&rate), "{rate}");

    let output = run(spool.path(), &["check", "1 / 1h / readonly / x", "--count", "3"]);
    assert!(stderr(&output).contains("--count has no effect"), "{}", stderr(&output));
    assert!(stdout(&output).starts_with("under the limit (readonly"), "{}", stdout(&output));
}

#[test]
fn a_recipient_counts_once() {
    let spool = tempfile::tempdir().unwrap();
    for (recipient, count, rate) in
        [("a@x.test", 1.0, 1.0), ("a@x.test", 0.0, 1.0), ("b@x.test", 1.0, 2.0)]
    {
        let spec = "100 / 1w / per_addr / strict / carol";
        let answer = json(&run(spool.path(), &["check", spec, "--recipient", recipient, "--json"]));
        assert_eq!(answer["count"], count, "{recipient}");
        assert!((answer["rate"].as_f64().unwrap() - rate).abs() < 0.1, "{answer}");
    }
    let keys = list(spool.path());
    assert_eq!((&keys[0]["mode"], &keys[0]["unique"]), (&"per_addr".into(), &true.into()));
    let filter = &keys[0]["filter"];
    assert_eq!(filter["bytes"], 200);
    assert_eq!(filter["expired"], false);
    assert!((filter["events"].as_f64().unwrap() - 2.0).abs() < 0.5, "{filter}");
    let human = stdout(&run(spool.path(), &["list"]));
    assert!(human.contains("% ~2"), "{human}");
}

#[test]
fn the_busiest_key_is_listed_first() {
    let spool = tempfile::tempdir().unwrap();
    for (key, count) in [("low", "1"), ("high", "30"), ("middle", "5")] {
        run(spool.path(), &["check", "10 / 1w / strict", "--key", key, "--count", count]);
    }
    let keys = list(spool.path());
    let names: Vec<&str> = keys.iter().map(|row| row["key"].as_str().unwrap()).collect();
    assert_eq!(names, ["high", "middle", "low"]);
    assert_eq!(keys[0]["period"], 604_800.0);
    assert_eq!(keys[0]["period_text"], "1w");
    assert!(keys[0]["over_since"].is_string() && keys[1]["over_since"].is_null());

    let human = stdout(&run(spool.path(), &["list"]));
    let lines: Vec<Vec<&str>> = human.lines().map(|l| l.split_whitespace().collect()).collect();
    assert_eq!(lines[0][..6], ["RATE", "LIMIT", "SHARE", "PERIOD", "MODE", "SEEN"]);
    assert_eq!(lines[0][6..], ["OVER", "SINCE", "FREE", "AGAIN", "KEY"], "no filter: no column");
    assert_eq!(lines[1][1..5], ["10", "299%", "1w", "per_mail"]);
    assert_eq!(lines[1].last(), Some(&"high"));
    assert_eq!(lines.len(), 4);
}

#[test]
fn no_database_is_no_error_and_no_directory_is_one() {
    let spool = tempfile::tempdir().unwrap();
    let output = run(spool.path(), &["list", "--json"]);
    assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(0), "[]\n"));
    assert!(stderr(&output).starts_with("exirate: note: "), "{}", stderr(&output));
    assert_eq!(std::fs::read_dir(spool.path()).unwrap().count(), 0);

    let missing = spool.path().join("missing");
    for arguments in [&["list"][..], &["check", "1 / 1h"]] {
        let output = run(&missing, arguments);
        assert_eq!(output.status.code(), Some(2));
        assert!(stderr(&output).contains("no such directory"), "{}", stderr(&output));
        assert_eq!(stdout(&output), "");
    }
    assert!(!missing.exists());
}

#[test]
fn a_damaged_file_hides_no_other() {
    let spool = tempfile::tempdir().unwrap();
    for n in 0..20 {
        run(spool.path(), &["check", "10 / 1w / strict", "--key", &format!("key{n}")]);
    }
    let all = list(spool.path()).len();
    assert_eq!(all, 20);
    let database = spool.path().join("exirate");
    let mut shards: Vec<_> =
        std::fs::read_dir(&database).unwrap().map(|entry| entry.unwrap().path()).collect();
    shards.retain(|path| path.extension().is_some_and(|e| e == "shard"));
    shards.sort();
    // The first and the last, so that what is between them must be shown.
    let bad = [&shards[0], &shards[shards.len() - 1]];
    for path in bad {
        let mut bytes = std::fs::read(path).unwrap();
        bytes[20] ^= 1;
        std::fs::write(path, bytes).unwrap();
    }
    let output = run(spool.path(), &["list", "--json"]);
    assert_eq!(output.status.code(), Some(2));
    let rows: Value = serde_json::from_slice(&output.stdout).unwrap();
    let shown = rows.as_array().unwrap().len();
    assert!(shown >= shards.len() - 2 && shown < all, "{shown} of {all}");
    let human = run(spool.path(), &["list"]);
    assert_eq!(human.status.code(), Some(2));
    assert_eq!(stdout(&human).lines().count(), 1 + shown);
    for output in [output, human] {
        let said = stderr(&output);
        for path in bad {
            let advice = format!(
                "exirate: cannot read {}: its header is damaged; Exim puts it right at its next \
                 check of a key in it, and keeps the damaged file under another name\n",
                path.display()
            );
            assert!(said.contains(&advice), "{said}");
        }
        let summary = "exirate: the list is not complete: 2 of the 256 shards could not be read\n";
        assert!(said.ends_with(summary), "{said}");
    }
}

#[test]
fn keys_are_escaped_for_people_and_lossless_in_json() {
    let spool = tempfile::tempdir().unwrap();
    let key = OsStr::from_bytes(b"\x1b]0;gotcha\x07\xff");
    let mut check = exirate();
    check.args(["check", "9 / 1w / strict", "--spool"]).arg(spool.path()).arg("--key").arg(key);
    for output in [check.output().unwrap(), run(spool.path(), &["list"])] {
        assert_eq!(output.status.code(), Some(0));
        let text = stdout(&output);
        assert!(text.contains(r"\u{1b}]0;gotcha\u{7}\xff"), "{text}");
        assert!(text.chars().all(|c| c == '\n' || !c.is_control()), "{text:?}");
    }
    let row = &list(spool.path())[0];
    assert_eq!(row["key"], Value::Null);
    assert_eq!(row["key_hex"], "1b5d303b676f7463686107ff");
    assert_eq!(row["stored"], "31772f7065725f6d61696c2f1b5d303b676f7463686107ff");
}

#[test]
fn errors_say_what_is_wrong_and_what_would_be_right() {
    let spool = tempfile::tempdir().unwrap();
    for (arguments, words) in [
        (&["check", "x / 1h"][..], &["\"x\" is not a positive number", "100"][..]),
        (&["check", "1 / soon"], &["\"soon\" is not a time value", "1h"]),
        (&["check", "1 / 1h / per_mail / per_rcpt"], &["conflicting", "one per_* option"]),
        (&["check", "1 / 1h", "--count", "-3"], &["--count", "-3"]),
        (&["check"], &["<SPEC>"]),
        (&["chek"], &["chek", "check"]),
    ] {
        let output = run(spool.path(), arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert_eq!(stdout(&output), "");
        for word in words {
            assert!(stderr(&output).contains(word), "{word:?}: {}", stderr(&output));
        }
    }
    let output = run(spool.path(), &["check", "1 / 1h / strict / per-rcpt / k", "--dry-run"]);
    assert!(stderr(&output).contains("looks like the option per_rcpt"), "{}", stderr(&output));
    assert_eq!(std::fs::read_dir(spool.path()).unwrap().count(), 0);
}

#[test]
fn one_event_as_large_as_the_limit_never_passes() {
    let spool = tempfile::tempdir().unwrap();
    let spec = "1 / 1h / strict / x";
    let answer = json(&run(spool.path(), &["check", spec, "--json"]));
    assert_eq!((&answer["over"], &answer["retry_after"]), (&true.into(), &Value::Null));
    assert!(stdout(&run(spool.path(), &["check", spec])).contains("never"));
    let answer = json(&run(spool.path(), &["check", "inf / 1h / strict / y", "--json"]));
    assert_eq!((&answer["limit"], &answer["remaining"]), (&Value::Null, &Value::Null));
}

#[test]
fn a_reader_that_has_had_enough_is_no_error() {
    let spool = tempfile::tempdir().unwrap();
    run(spool.path(), &["check", "9 / 1w / strict / x"]);
    let mut child = exirate()
        .args(["list", "--spool"])
        .arg(spool.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // Closed before it can have written: nothing reads it while it starts.
    drop(child.stdout.take());
    let mut complaints = String::new();
    child.stderr.take().unwrap().read_to_string(&mut complaints).unwrap();
    assert_eq!((child.wait().unwrap().code(), complaints.as_str()), (Some(0), ""));
}

#[test]
fn every_command_has_help_with_examples() {
    for command in ["check", "list"] {
        let output = exirate().args([command, "--help"]).output().unwrap();
        assert_eq!(output.status.code(), Some(0));
        assert!(stdout(&output).contains("Examples:\n"), "{}", stdout(&output));
        assert!(stdout(&output).contains(&format!("exirate {command}")));
    }
    let output = exirate().arg("--help").output().unwrap();
    assert!(stdout(&output).contains("Exit status"));
}

#[test]
fn the_program_and_exim_count_in_one_database() {
    let exim = common::Setup::new().library().build();
    let spec = "2.5 / 1w / per_cmd / strict / shared";
    let dlfunc = format!("${{dlfunc{{EXIRATE}}{{ratelimit}}{{{spec}}}}} $sender_rate");
    assert_eq!(exim.expand(&dlfunc).stdout, "no 1.0\n");
    let dry = run(&exim.spool(), &["check", spec, "--dry-run", "--json"]);
    assert_eq!(format!("{:.1}", json(&dry)["rate"].as_f64().unwrap()), "2.0");
    assert_eq!(run(&exim.spool(), &["check", spec]).status.code(), Some(0));
    let rows = list(&exim.spool());
    assert_eq!((rows.len(), &rows[0]["key"]), (1, &"shared".into()));
    assert_eq!(exim.expand(&dlfunc).stdout, "yes 3.0\n");
}
