//! `exirate config`.

use std::path::Path;
use std::process::Output;

use serde_json::Value;

use crate::prepared::Prepared;
use crate::unblock::at_a_terminal;
use crate::{json, run, stderr, stdout};

/// Runs `exirate config set ARGUMENTS`.
fn set(spool: &Path, arguments: &[&str]) -> Output {
    run(spool, &[&["config", "set"], arguments].concat())
}

fn config(spool: &Path) -> Value {
    json(&run(spool, &["config", "--json"]))
}

/// Imports rates with these keys.
fn fill(spool: &Path, keys: impl Iterator<Item = String>) {
    let now = std::time::UNIX_EPOCH.elapsed().unwrap().as_secs();
    let mut lines = "{\"exirate_export\":1}\n".to_owned();
    for key in keys {
        lines += &format!("{{\"key\":\"1w/per_rcpt/{key}\",\"rate\":1,\"limit\":9,");
        lines += &format!("\"seconds\":{now},\"micros\":0,\"over_since\":0}}\n");
    }
    let file = spool.join("keys.jsonl");
    std::fs::write(&file, lines).unwrap();
    let output = run(spool, &["import", file.to_str().unwrap()]);
    assert!(output.status.success(), "{}", stderr(&output));
}

fn keys(spool: &Path) -> u64 {
    json(&run(spool, &["stats", "--json"]))["keys"].as_u64().unwrap()
}

#[test]
fn settings_are_shown_changed_and_logged() {
    let spool = tempfile::tempdir().unwrap();
    let spool = spool.path();
    let output = run(spool, &["config"]);
    assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(2), ""));
    assert!(stderr(&output).starts_with("exirate: no rate database at"), "{}", stderr(&output));

    // Before the first check.
    let output = set(spool, &["rates.max_size=32M"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let said = stdout(&output);
    assert!(said.contains("\nrates.max_size      32 MiB, room for about "), "{said}");
    let settings = config(spool);
    assert_eq!(settings["trace"], Value::Null);
    assert_eq!(
        (&settings["rates"]["max_size"], &settings["rates"]["mode"]),
        (&(32 << 20).into(), &"0750".into())
    );
    assert_eq!(json(&run(spool, &["stats", "--json"]))["max_bytes"], 32 << 20);

    let output = set(spool, &["trace.keep=52w", "trace.max_size=2G", "rates.max_size=1g"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(stderr(&output).contains("TRACE_KEEP in exirate.conf"), "{}", stderr(&output));
    let settings = config(spool);
    assert_eq!(
        (&settings["trace"]["keep"], &settings["trace"]["max_size"]),
        (&(364 * 86_400).into(), &(2_u64 << 30).into())
    );
    assert_eq!(settings["rates"]["max_size"], 1 << 30);
    let output = set(spool, &["trace.keep=52w", "trace.max_size=2G"]);
    assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(0), ""), "nothing changed");
    let output = set(spool, &["trace.keep=forever"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert_eq!(config(spool)["trace"]["keep"], Value::Null);

    let log = std::fs::read_to_string(spool.join("exirate/audit.log")).unwrap();
    let changes: Vec<&str> =
        log.lines().map(|line| line.split_once(" config ").unwrap().1).collect();
    assert_eq!(
        changes,
        [
            "rates.max_size=33554432 (was 1073741824)",
            "rates.max_size=1073741824 (was 33554432)",
            "trace.max_size=2147483648 (was 1073741824)",
            "trace.keep=364d (was 90d)",
            "trace.keep=forever (was 364d)",
        ]
    );
}

#[test]
fn wrong_settings_are_refused_with_what_would_be_right() {
    let spool = tempfile::tempdir().unwrap();
    for (arguments, words) in [
        (&[][..], "<NAME=VALUE>"),
        (&["rates.max_size=5"], "expected a number and its unit, such as 512M or 2G"),
        (&["rates.max_size=16383k"], "rates.max_size must be at least 16 MiB"),
        (&["trace.max_size=1M"], "trace.max_size must be at least 32 MiB"),
        (&["trace.keep=long"], "expected a time, such as 90d or 52w, or `forever`"),
        (&["trace.keep=1h"], "trace.keep must be at least 1d"),
        (
            &["size=1G"],
            "expected rates.max_size=SIZE, crossings.max_size=SIZE, crossings.keep=TIME,",
        ),
        (&["trace.keep=1d", "trace.keep=2d"], "trace.keep is given twice"),
        (&["refusals.keep=1d", "refusals.keep=2d"], "refusals.keep is given twice"),
        (&["crossings.max_size=65M"], "must be at least 1 MiB, and at most 64 MiB"),
        (&["crossings.keep=1m"], "crossings.keep must be at least 1h"),
    ] {
        let output = set(spool.path(), arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(stderr(&output).contains(words), "{arguments:?}: {}", stderr(&output));
    }
    assert_eq!(std::fs::read_dir(spool.path()).unwrap().count(), 0);
    let output = set(&spool.path().join("missing"), &["rates.max_size=1G"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("no such directory"), "{}", stderr(&output));
}

#[test]
fn a_lower_limit_evicts_nothing_without_a_confirmation() {
    let spool = tempfile::tempdir().unwrap();
    let spool = spool.path();
    // Keys of some 500 bytes: more than the lowest size limit has room for.
    let padding = "x".repeat(500);
    let before = 26_000;
    fill(spool, (0..before).map(|n| format!("{n}{padding}")));
    let output = set(spool, &["rates.max_size=16M", "trace.keep=1d"]);
    assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(2), ""));
    let said = stderr(&output);
    assert!(
        said.contains(" records have no room in 16 MiB; nothing was changed: use --yes"),
        "{said}"
    );
    let expected: u64 = said.split(' ').nth(1).unwrap().parse().unwrap();
    assert!((1_000..before).contains(&expected), "{said}");
    let settings = config(spool);
    assert_eq!(
        (&settings["rates"]["max_size"], &settings["trace"]["keep"]),
        (&(1 << 30).into(), &(90 * 86_400).into())
    );

    let line = format!(
        "'{}' config set rates.max_size=16M --spool '{}'",
        env!("CARGO_BIN_EXE_exirate"),
        spool.display()
    );
    let output = at_a_terminal(&line, "n");
    assert_eq!(output.status.code(), Some(2), "{}", stdout(&output));
    assert!(stdout(&output).contains("remove them? [y/N]"), "{}", stdout(&output));
    assert_eq!(keys(spool), before);
    let output = at_a_terminal(&line, "y");
    assert_eq!(output.status.code(), Some(0), "{}", stdout(&output));
    assert_eq!(keys(spool), before - expected, "as many as were announced");
    assert_eq!(json(&run(spool, &["stats", "--json"]))["evicted"], expected);
    // All have room now.
    let output = set(spool, &["rates.max_size=17M"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert_eq!(set(spool, &["rates.max_size=16M"]).status.code(), Some(0));
}

#[test]
fn a_shorter_time_removes_no_message_without_a_confirmation() {
    let machine = Prepared::new();
    let messages = || {
        let stats = json(&machine.run("exirate stats --json"));
        stats["trace"]["messages"].as_u64().unwrap()
    };
    let before = messages();
    let refused = machine.run("exirate config set trace.keep=1d");
    assert_eq!((refused.status.code(), stdout(&refused).as_str()), (Some(2), ""));
    let said = stderr(&refused);
    assert!(said.contains(" messages are older than 1d; nothing was changed: use --yes"), "{said}");
    let keep = "exirate config --json | jq .trace.keep";
    assert_eq!(stdout(&machine.run(keep)), "7776000\n");
    assert_eq!(messages(), before);
    // All of them: with some younger ones, the file would stay.
    machine.at("2026-12-20 12:00:00");
    let done = machine.run("exirate config set --yes trace.keep=2d");
    assert_eq!(done.status.code(), Some(0), "{}", stderr(&done));
    assert_eq!(stdout(&machine.run(keep)), "172800\n");
    assert_eq!(messages(), 0);
    // A longer time removes nothing, and nothing is left that could be removed.
    for keep in ["trace.keep=3d", "trace.keep=1d"] {
        let output = machine.run(&format!("exirate config set {keep}"));
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    }
}

#[test]
fn the_database_has_room_for_as_many_keys_as_it_says() {
    let spool = tempfile::tempdir().unwrap();
    let spool = spool.path();
    assert_eq!(set(spool, &["rates.max_size=16M"]).status.code(), Some(0));
    let room = config(spool)["rates"]["room_keys"].as_u64().unwrap();
    let evicted = || json(&run(spool, &["stats", "--json"]))["evicted"].as_u64().unwrap();
    // With the period and mode, 30 bytes.
    let keys = |range: std::ops::Range<u64>| range.map(|n| format!("user{n:06}@ex.test"));
    fill(spool, keys(0..room * 9 / 10));
    assert_eq!(evicted(), 0);
    fill(spool, keys(room * 9 / 10..room * 11 / 10));
    assert!(evicted() > 0);
}

#[test]
fn the_readme_says_how_many_keys_there_is_room_for() {
    let spool = tempfile::tempdir().unwrap();
    assert_eq!(set(spool.path(), &["rates.max_size=1G"]).status.code(), Some(0));
    let shown = stdout(&run(spool.path(), &["config"]));
    let room = shown.lines().find_map(|line| line.split_once(", room for ")).unwrap().1;
    // Its lines are wrapped anywhere.
    let readme = crate::prepared::source("README.md");
    let words: Vec<&str> = readme.split_whitespace().collect();
    assert!(words.join(" ").contains(room), "{room}");
}
