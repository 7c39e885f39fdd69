//! `exirate set`.

use serde_json::Value;

use crate::{json, list, run, stderr, stdout};

#[test]
fn a_rate_that_is_set_is_the_one_that_checks_go_on_from() {
    let spool = tempfile::tempdir().unwrap();
    let spec = "100 / 1w / strict / alice";
    run(spool.path(), &["check", "--count", spec]);
    let answer = json(&run(spool.path(), &["set", "alice", "--rate", "98.5", "--json"]));
    assert_eq!(answer["before"]["last_rate"], 1.0);
    assert_eq!(answer["after"]["last_rate"], 98.5);
    let over = |expected| {
        let output = run(spool.path(), &["check", "--count", spec]);
        assert_eq!(output.status.code(), Some(expected), "{}", stdout(&output));
    };
    over(0);
    over(1);
    // The time alone: a week ago, of the same rate.
    let output = run(spool.path(), &["set", "alice", "--at", "@1700000000"]);
    assert!(stdout(&output).contains("last seen  2023-11-1"), "{}", stdout(&output));
    assert_eq!(json(&run(spool.path(), &["check", "--count", spec, "--json"]))["rate"], 1.0);
    let log = std::fs::read_to_string(spool.path().join("exirate/audit.log")).unwrap();
    assert_eq!(log.lines().count(), 2);
    assert!(log.lines().all(|l| l.contains(" set rate=") && l.contains("(was rate=")), "{log}");
}

#[test]
fn an_event_that_is_set_does_not_count_again() {
    let spool = tempfile::tempdir().unwrap();
    let spec = "100 / 1w / per_addr / strict / carol";
    let check = |to: &str| {
        json(&run(spool.path(), &["check", "--count", spec, "--recipient", to, "--json"]))
    };
    check("a@x.test");
    let set = |to: &str| json(&run(spool.path(), &["set", "carol", "--event", to, "--json"]));
    assert_eq!(set("a@x.test")["event_was_counted"], true);
    assert_eq!(set("b@x.test")["event_was_counted"], false);
    assert_eq!(set("b@x.test")["event_was_counted"], true);
    assert_eq!(check("b@x.test")["count"], 0.0);
    assert_eq!(check("c@x.test")["count"], 1.0);
}

#[test]
fn a_key_that_is_created_is_the_one_that_exim_uses() {
    let spool = tempfile::tempdir().unwrap();
    run(spool.path(), &["check", "--count", "9 / 1h / other"]);
    for (mode, unique) in
        [("per_addr", false), ("per_rcpt", false), ("per_byte", false), ("per_cmd", true)]
    {
        let mut set = vec!["set", "a/b", "--create", "--mode", mode, "--period", "90m"];
        set.extend(["--rate", "50", "--limit", "10", "--event", "x@y.test"]);
        let mut spec = format!("10 / 90m / {mode} / strict / a//b");
        if unique {
            set.push("--unique");
            spec += " / unique=x@y.test";
        }
        let output = run(spool.path(), &set);
        assert_eq!(output.status.code(), Some(0), "{mode}: {}", stderr(&output));
        assert!(stdout(&output).starts_with("created a/b ("), "{}", stdout(&output));
        let check = ["check", &spec, "--recipient", "x@y.test", "--json"];
        let answer = json(&run(spool.path(), &check));
        let rate = answer["rate"].as_f64().unwrap();
        assert!((49.0..52.0).contains(&rate), "{mode}: {answer}");
        let counts = if unique || mode == "per_addr" { 0.0 } else { 1.0 };
        assert!(mode == "per_byte" || answer["count"] == counts, "{mode}: {answer}");
    }
    assert_eq!(list(spool.path()).len(), 5);
}

#[test]
fn what_cannot_be_set_is_an_error() {
    let spool = tempfile::tempdir().unwrap();
    for spec in ["1 / 1h / strict / bob", "1 / 1d / strict / bob"] {
        run(spool.path(), &["check", "--count", spec]);
    }
    for (arguments, code, words) in [
        (&["set", "bob"][..], 2, "nothing to set: use --rate"),
        (
            &["set", "bob", "--rate", "1"],
            2,
            "bob matches 2 records: 1d/per_mail/bob, 1h/per_mail/bob",
        ),
        (&["set", "nobody", "--rate", "1"], 1, "no key matches nobody"),
        (&["set", "bob", "--rate", "-1"], 2, "-1.0 is not a number from 0 to 1e18"),
        (&["set", "bob", "--at", "soon"], 2, "expected a time, such as"),
        (
            &["set", "bob", "--rate", "1", "--period", "soon"],
            2,
            "--mode or --period: expected a period",
        ),
        (&["set", "x", "--create", "--rate", "1"], 2, "--limit"),
        (
            &[
                "set", "x", "--create", "--rate", "1", "--limit", "1", "--mode", "x", "--period",
                "1h",
            ],
            2,
            "--mode x: expected per_mail",
        ),
    ] {
        let output = run(spool.path(), arguments);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {}", stderr(&output));
        assert!(stderr(&output).contains(words), "{arguments:?}: {}", stderr(&output));
    }
    assert!(list(spool.path()).iter().all(|row| row["last_rate"] == 1.0));
    let output = run(spool.path(), &["set", "bob", "--period", "1h", "--limit", "inf", "--json"]);
    assert_eq!(json(&output)["after"]["limit"], Value::Null);
}
