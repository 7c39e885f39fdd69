//! `exirate list`.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;

use serde_json::Value;

use crate::prepared::Prepared;
use crate::{exirate, json, list, run, stderr, stdout};

#[test]
fn the_busiest_key_is_listed_first() {
    let spool = tempfile::tempdir().unwrap();
    for (key, count) in [("low", "1"), ("high", "30"), ("middle", "5")] {
        run(spool.path(), &["check", "--count", "10 / 1w / strict", "--key", key, "--cost", count]);
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
    assert_eq!(lines[1][1..5], ["10", "300%", "1w", "per_mail"]);
    assert_eq!(lines[1].last(), Some(&"high"));
    assert_eq!(lines.len(), 4);
}

#[test]
fn a_damaged_file_hides_no_other() {
    let spool = tempfile::tempdir().unwrap();
    for n in 0..20 {
        run(spool.path(), &["check", "--count", "10 / 1w / strict", "--key", &format!("key{n}")]);
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
                "exirate: cannot read {}: its header is damaged; Exim repairs it at its next \
                 check of a key in it, and keeps the damaged file under another name\n",
                path.display()
            );
            assert!(said.contains(&advice), "{said}");
        }
        let summary = "exirate: the output is incomplete: 2 parts of the rates could not be read\n";
        assert!(said.ends_with(summary), "{said}");
    }
}

#[test]
fn keys_are_escaped_for_people_and_lossless_in_json() {
    let spool = tempfile::tempdir().unwrap();
    let key = OsStr::from_bytes(b"\x1b]0;gotcha\x07\xff");
    let mut check = exirate();
    check
        .args(["check", "--count", "9 / 1w / strict", "--spool"])
        .arg(spool.path())
        .arg("--key")
        .arg(key);
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
    // What JSON itself would leave as it is.
    let key = "\u{9b}31m\u{202e}\u{7f}x";
    let check = run(spool.path(), &["check", "--count", "9 / 1w / strict", "--key", key]);
    assert_eq!(check.status.code(), Some(0), "{}", stderr(&check));
    for command in [&["list", "--json"][..], &["export"]] {
        let text = stdout(&run(spool.path(), command));
        assert!(text.contains(r"\u009b31m\u202e\u007fx"), "{text}");
        assert!(text.chars().all(|c| c == '\n' || !c.is_control() && c != '\u{202e}'), "{text:?}");
    }
    let [export, other] = [spool.path().join("export"), spool.path().join("other")];
    std::fs::create_dir(&other).unwrap();
    run(spool.path(), &["export", "--output", export.to_str().unwrap()]);
    assert_eq!(run(&other, &["import", export.to_str().unwrap()]).status.code(), Some(0));
    assert!(list(&other).iter().any(|row| row["key"] == key));
}

#[test]
fn it_is_sorted_and_cut_as_one_likes() {
    let machine = Prepared::new();
    for (arguments, expected) in [
        ("--sort share", &["alice@example.org", "192.0.2.7", "bob@example.net", "web"][..]),
        ("", &["alice@example.org", "192.0.2.7", "bob@example.net", "web"]),
        ("--sort rate", &["web", "alice@example.org", "alice@example.org", "bob@example.net"]),
        ("--sort seen", &["alice", "192.0.2.7", "alice@example.org", "alice@example.org"]),
        ("--sort key", &["192.0.2.7", "2001:db8::1", "alice", "alice@example.org"]),
        ("--over", &["alice@example.org"]),
    ] {
        for limit in [1, 3, 4] {
            let line = format!("exirate list {arguments} --limit {limit} --json | jq -r '.[].key'");
            let text = stdout(&machine.run(&line));
            let keys: Vec<&str> = text.lines().collect();
            assert_eq!(keys, expected[..limit.min(expected.len())], "{arguments}");
        }
    }
    assert_eq!(stdout(&machine.run("exirate list --limit 0")), "");
    assert_eq!(stdout(&machine.run("exirate list --json --limit 0")), "[]\n");
}

#[test]
fn json_has_all_that_the_table_shows() {
    let machine = Prepared::new();
    let output = machine.run("exirate list alice@example.org --period 1h --json");
    let row = &json(&output)[0];
    assert_eq!((&row["over"], &row["limit"]), (&true.into(), &100.0.into()));
    assert!((row["share"].as_f64().unwrap() - 1.1277).abs() < 1e-3, "{row}");
    assert_eq!(row["over_since"], "2026-11-20T11:42:05Z");
    assert_eq!(row["retry_after"], 465);
    assert_eq!(row["free_at"], "2026-11-20T11:58:22Z");
}

#[test]
fn colours_are_for_terminals_and_for_who_asks() {
    let machine = Prepared::new();
    // A terminal as `script` makes it, with nothing said about colours.
    let on_terminal = |setting: &str, option: &str| {
        let line = format!("stty cols 120; {setting} exirate list {option}");
        let command = format!("TERM=xterm SHELL=/bin/sh script -qec '{line}' /dev/null");
        stdout(&machine.run(&command)).contains("\x1b[31m")
    };
    assert!(on_terminal("", ""));
    assert!(!on_terminal("", "--color never"));
    assert!(!on_terminal("NO_COLOR=1", ""));
    assert!(!on_terminal("TERM=dumb", ""));
    assert!(on_terminal("NO_COLOR=1", "--color always"));
    assert!(!stdout(&machine.run("exirate list")).contains('\x1b'));
    assert!(stdout(&machine.run("exirate --color always list")).contains("\x1b[31m"));
}

#[test]
fn a_narrow_terminal_is_not_overrun() {
    let machine = Prepared::new();
    for width in [120, 80, 60, 40] {
        let line = format!("stty cols {width}; exirate list --color never");
        let command = format!("TERM=xterm SHELL=/bin/sh script -qec '{line}' /dev/null");
        let text = stdout(&machine.run(&command));
        assert!(text.starts_with("     RATE     LIMIT  SHARE"), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= width), "{width}: {text}");
        // One line a key, while there is room for it.
        assert!(width < 60 || text.lines().count() == 9, "{width}: {text}");
    }
}
