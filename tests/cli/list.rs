//! `exirate list`.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;

use serde_json::Value;

use crate::{exirate, list, run, stderr, stdout};

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
    assert_eq!(lines[1][1..5], ["10", "300%", "1w", "per_mail"]);
    assert_eq!(lines[1].last(), Some(&"high"));
    assert_eq!(lines.len(), 4);
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
