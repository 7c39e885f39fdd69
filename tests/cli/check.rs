//! `exirate check`.

use serde_json::Value;

use crate::{json, list, run, stderr, stdout};

#[test]
fn checks_count_until_the_limit_bites() {
    let spool = tempfile::tempdir().unwrap();
    let check = || run(spool.path(), &["check", "--count", "2.5 / 1w / strict / alice", "--json"]);
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
        assert_eq!(answer["counted"], true);
        let waits = answer["retry_after"].as_u64().unwrap() > 0;
        assert_eq!(waits, n >= 2, "{answer}");
        // One event has left room for one more.
        assert!(answer["remaining"].as_f64().unwrap() <= 1.0, "{answer}");
    }
}

#[test]
fn nothing_is_counted_without_the_option() {
    let spool = tempfile::tempdir().unwrap();
    let dry = ["check", "2 / 1w / strict / bob", "--json"];
    for _ in 0..3 {
        let output = run(spool.path(), &dry);
        assert_eq!(json(&output)["rate"], 1.0);
        assert_eq!(output.status.code(), Some(0));
    }
    assert_eq!(std::fs::read_dir(spool.path()).unwrap().count(), 0, "it made a database");

    let counted = run(spool.path(), &["check", "--count", dry[1]]);
    assert_eq!(counted.status.code(), Some(0));
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
    let answer = json(&run(
        spool.path(),
        &["check", "--count", spec, "--key", "t/w/o", "--cost", "7.5", "--json"],
    ));
    assert_eq!((&answer["key"], &answer["rate"]), (&"t/w/o".into(), &7.5.into()));
    let keys = list(spool.path());
    assert_eq!(keys.len(), 1);
    assert_eq!(keys[0]["key"], "t/w/o");
    assert_eq!(keys[0]["mode"], "per_rcpt");
    // The same key, written in the spec.
    let spec = "100 / 1w / per_rcpt / strict / t//w//o";
    let rate =
        json(&run(spool.path(), &["check", "--count", spec, "--json"]))["rate"].as_f64().unwrap();
    assert!((8.4..=8.5).contains(&rate), "{rate}");

    let output = run(spool.path(), &["check", "--count", "1 / 1h / readonly / x", "--cost", "3"]);
    assert!(stderr(&output).contains("--count and --cost have no effect"), "{}", stderr(&output));
    assert!(stdout(&output).starts_with("under the limit (readonly"), "{}", stdout(&output));
}

#[test]
fn a_recipient_counts_once() {
    let spool = tempfile::tempdir().unwrap();
    for (recipient, count, rate) in
        [("a@x.test", 1.0, 1.0), ("a@x.test", 0.0, 1.0), ("b@x.test", 1.0, 2.0)]
    {
        let spec = "100 / 1w / per_addr / strict / carol";
        let answer = json(&run(
            spool.path(),
            &["check", "--count", spec, "--recipient", recipient, "--json"],
        ));
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
fn one_event_as_large_as_the_limit_never_passes() {
    let spool = tempfile::tempdir().unwrap();
    let spec = "1 / 1h / strict / x";
    let answer = json(&run(spool.path(), &["check", "--count", spec, "--json"]));
    assert_eq!((&answer["over"], &answer["retry_after"]), (&true.into(), &Value::Null));
    assert!(stdout(&run(spool.path(), &["check", "--count", spec])).contains("never"));
    let answer = json(&run(spool.path(), &["check", "--count", "inf / 1h / strict / y", "--json"]));
    assert_eq!((&answer["limit"], &answer["remaining"]), (&Value::Null, &Value::Null));
}

#[test]
fn the_program_and_exim_count_in_one_database() {
    let exim = kit::Setup::new().library().build();
    let spec = "2.5 / 1w / per_cmd / strict / shared";
    let dlfunc = format!("${{dlfunc{{EXIRATE}}{{ratelimit}}{{{spec}}}}} $sender_rate");
    assert_eq!(exim.expand(&dlfunc).stdout, "no 1.0\n");
    let dry = run(&exim.spool(), &["check", spec, "--json"]);
    assert_eq!(format!("{:.1}", json(&dry)["rate"].as_f64().unwrap()), "2.0");
    assert_eq!(run(&exim.spool(), &["check", "--count", spec]).status.code(), Some(0));
    let rows = list(&exim.spool());
    assert_eq!((rows.len(), &rows[0]["key"]), (1, &"shared".into()));
    assert_eq!(exim.expand(&dlfunc).stdout, "yes 3.0\n");
}
