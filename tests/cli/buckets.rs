//! Records of leaky buckets, as `exirate list`, `top` and `show` print them.

use std::path::Path;

use exirate::engine::{Algorithm, AlgorithmKind, Check, Kind, RecordKey};
use exirate::spool::{Options, Spool};
use exirate::store::Store as _;
use exirate::sys::clock;

use crate::{exirate, json, run, stdout};

/// A database with the bucket of a policy's user: a burst of 4, of which one leaks in a
/// week; `events` of them were counted.
fn database(name: &str, events: u32) -> tempfile::TempDir {
    let spool = tempfile::tempdir().unwrap();
    let check = Check::new(
        RecordKey {
            name: name.as_bytes(),
            identity_start: name.rfind('/').map_or(0, |at| at + 1),
            kind: Kind::Policy,
            algorithm: AlgorithmKind::Bucket,
        },
        Algorithm::Bucket { burst: 4.0, rate: 1.0 / 604_800.0 },
    );
    let mut database = Spool::open(spool.path(), Options::default()).unwrap();
    for _ in 0..events {
        database.decide_one(&check, || clock::now().into()).unwrap();
    }
    spool
}

const NAME: &str = "outbound/recipients/1/7d/auth:alice";

/// The line of standard output that begins with `start`.
fn line(spool: &Path, arguments: &[&str], start: &str) -> String {
    let output = run(spool, arguments);
    let text = stdout(&output);
    let found = text.lines().find(|line| line.trim_start().starts_with(start));
    found.map(|line| line.trim().to_owned()).ok_or(output).unwrap()
}

#[test]
fn list_and_top_print_the_level_as_rate_and_the_burst_as_limit() {
    let spool = database(NAME, 3);
    for command in [&["list"][..], &["top", "--once"]] {
        let row = line(spool.path(), command, "3.0");
        let cells: Vec<&str> = row.split_whitespace().collect();
        assert_eq!(&cells[..5], ["3.0", "4", "75%", "1/7d", "outbound/recipients"], "{row}");
        assert!(row.ends_with(" auth:alice"), "{row}");
    }
    let record = &json(&run(spool.path(), &["list", "--json"]))[0];
    assert_eq!(
        (&record["key"], &record["mode"]),
        (&"auth:alice".into(), &"outbound/recipients".into())
    );
    assert_eq!((&record["algorithm"], &record["limit"]), (&"bucket".into(), &4.0.into()));
    let rate = record["rate"].as_f64().unwrap();
    assert!((2.99..=3.0).contains(&rate), "{rate}");
    assert!((record["leak"].as_f64().unwrap() * 604_800.0 - 1.0).abs() < 1e-9, "{record}");
    assert_eq!(record["over"], false);
    for command in ["list", "top"] {
        let help = stdout(&exirate().args(["man", command]).output().unwrap());
        let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(help.contains("leaky bucket") && help.contains("level"), "{command}");
    }
}

#[test]
fn show_prints_level_burst_and_leak() {
    let spool = database(NAME, 3);
    let of = |start: &str| line(spool.path(), &["show", "alice"], start);
    assert_eq!(of("level now"), "level now     3.0 of a burst of 4 (75%)");
    assert_eq!(of("leak"), "leak          1 in 1w, a full bucket in 4w");
    assert_eq!(of("next event"), "next event    passes: level 4.0; no more now");
    assert_eq!(of("counts"), "counts        recipients of policy outbound in a leaky bucket");
}

#[test]
fn a_bucket_over_its_burst_is_over_the_limit_until_enough_has_leaked() {
    let spool = database(NAME, 5);
    let of = |start: &str| line(spool.path(), &["show", "alice"], start);
    assert_eq!(of("auth:alice"), "auth:alice: over the limit");
    assert!(of("next event").starts_with("next event    refused: level 6.0"));
    // From 5 to 3.
    assert!(of("free again").contains("13d23h") || of("free again").contains("14d"));
    let over = json(&run(spool.path(), &["list", "--over", "--json"]));
    assert_eq!(over.as_array().unwrap().len(), 1);
}

#[test]
fn an_override_of_the_value_marks_the_policys_record() {
    let spool = database(NAME, 3);
    for (key, marked) in [("alice", true), ("auth:alice", true), ("sender:alice", false)] {
        assert!(run(spool.path(), &["deny", key]).status.success());
        let row = line(spool.path(), &["list"], "3.0");
        assert_eq!(row.ends_with("(denied)"), marked, "{key}: {row}");
        let shown = json(&run(spool.path(), &["show", "alice", "--json"]));
        assert_eq!(shown[0]["override"].is_null(), !marked, "{key}");
        assert!(run(spool.path(), &["overrides", "--remove", key]).status.success());
    }
}

#[test]
fn a_policys_record_is_found_by_its_key_value_and_whole_name() {
    for argument in ["alice", "auth:alice", "al*", NAME, "outbound/*"] {
        let spool = database(NAME, 5);
        assert_eq!(json(&run(spool.path(), &["list", argument, "--json"]))[0]["over"], true);
        let output = run(spool.path(), &["unblock", argument, "--yes"]);
        assert!(
            stdout(&output).contains("reset auth:alice (outbound/recipients, 1/7d)"),
            "{output:?}"
        );
        assert_eq!(json(&run(spool.path(), &["list", "--json"])), serde_json::json!([]));
    }
    let spool = database(NAME, 5);
    for argument in ["sender:alice", "alic", "alicia", "outbound"] {
        let output = run(spool.path(), &["list", argument]);
        assert_eq!(output.status.code(), Some(1), "{argument}");
    }
    let period = run(spool.path(), &["list", "--period", "1h"]);
    assert_eq!(period.status.code(), Some(1));
}
