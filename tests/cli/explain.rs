//! `exirate explain`.

use std::path::Path;
use std::process::Output;

use serde_json::Value;

use crate::{exirate, stderr, stdout};
use kit::FakeClock;

/// A spool directory, and a clock.
struct Place {
    spool: tempfile::TempDir,
    clock: FakeClock,
}

impl Place {
    /// At 12:00, alice is over two limits, and a client over a bucket.
    fn new() -> Self {
        let place = Self { spool: tempfile::tempdir().unwrap(), clock: FakeClock::new() };
        place.clock.freeze("2026-11-24 11:30:00");
        place.count("100 / 1h / per_rcpt / leaky", "alice@example.org", "99");
        place.clock.freeze("2026-11-24 12:00:00");
        place.count("100 / 1h / per_rcpt / leaky", "alice@example.org", "80");
        place.count("10 / 1d / per_mail / strict", "bob@example.org", "12");
        place.clock.freeze("2026-11-24 12:30:00");
        place
    }

    fn path(&self) -> &Path {
        self.spool.path()
    }

    fn run(&self, arguments: &[&str]) -> Output {
        let mut command = exirate();
        command.args(arguments).arg("--spool").arg(self.path()).env("TZ", "UTC");
        command.envs(self.clock.environment()).output().unwrap()
    }

    fn count(&self, spec: &str, key: &str, cost: &str) {
        let output = self.run(&["check", "--count", spec, "--key", key, "--cost", cost]);
        assert_eq!(stderr(&output), "");
    }

    fn explain(&self, more: &[&str]) -> Output {
        self.run(&[&["explain"][..], more].concat())
    }

    /// What is printed; the exit code and what is noted must be these.
    fn shows(&self, code: i32, noted: &str, more: &[&str]) -> String {
        let output = self.explain(more);
        assert_eq!(
            (output.status.code(), stderr(&output).trim_end()),
            (Some(code), noted),
            "{more:?}"
        );
        stdout(&output)
    }
}

fn has(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "{part:?} is not in:\n{text}");
    }
}

#[test]
fn the_latest_event_of_a_key_is_explained() {
    let place = Place::new();
    let found = place.shows(0, "", &["alice@example.org"]);
    has(
        &found,
        &[
            "alice@example.org: refused at 2026-11-24 12:00:00 UTC (30m ago)\n",
            "by        a ratelimit line: 100 / 1h / per_rcpt / leaky\n",
            // With a = exp(-0.5): 99·a, and 80·(1 - a)/0.5 more.
            "100/1h: rate 60.0 before, 123.0 with this event, which counts 80: over the limit\n",
        ],
    );
}

#[test]
fn json_has_what_the_words_say() {
    let place = Place::new();
    let json: Value =
        serde_json::from_str(&place.shows(0, "", &["bob@example.org", "--json"])).unwrap();
    let window = &json["windows"][0];
    assert_eq!((&window["count"], &window["rate"]), (&12.0.into(), &12.0.into()));
    assert_eq!((&window["retry_after"], &window["least_limit"]), (&Value::Null, &13.0.into()));
    assert_eq!(
        (&json["event"]["update"], &json["now"][0]["over"]),
        (&"strict".into(), &true.into())
    );
}

#[test]
fn overrides_decide_first() {
    let place = Place::new();
    for (command, says) in [
        (
            "deny",
            "bob@example.org cannot send now: denied until 2026-11-25 12:30:00 UTC (case 7)\n",
        ),
        ("allow", "bob@example.org can send now: allowed until 2026-11-25 12:30:00 UTC (case 7)\n"),
    ] {
        assert!(place.run(&[command, "bob@example.org", "--reason", "case 7"]).status.success());
        // Also what was refused before is not the subject then.
        let past = ": --at or --since explains it\n";
        for (noted, more) in [("", Some("--now")), (past, None)] {
            let arguments: Vec<&str> = ["bob@example.org"].into_iter().chain(more).collect();
            let output = place.explain(&arguments);
            assert!(stderr(&output).ends_with(noted), "{}", stderr(&output));
            let shown = stdout(&output);
            assert!(shown.starts_with(says), "{shown}");
            // Each thing is said once.
            assert_eq!(shown.matches("(case 7)").count(), 1, "{shown}");
            assert_eq!(shown.matches("unblock").count(), usize::from(command == "deny"), "{shown}");
            assert!(!shown.contains("refused at"), "{shown}");
        }
    }
    let since = stdout(&place.explain(&["bob@example.org", "--since", "1d"]));
    has(&since, &["bob@example.org can send now: ", ": refused at "]);
    assert!(place.run(&["unblock", "bob@example.org"]).status.success());
    let unblocked = place.explain(&["bob@example.org"]);
    assert_eq!(
        (stdout(&unblocked), unblocked.status.code()),
        (
            format!(
                "{}\n",
                "bob@example.org can send now: allowed until 2026-11-25 12:30:00 UTC (case 7)"
            ),
            Some(0)
        )
    );
    assert!(place.run(&["deny", "new@example.org"]).status.success());
    let new = place.explain(&["new@example.org"]);
    assert_eq!(new.status.code(), Some(1));
    has(&stdout(&new), &["new@example.org cannot send now: denied until "]);
}

#[test]
fn what_is_not_there_is_said() {
    let place = Place::new();
    let none = place.explain(&["nobody@example.org"]);
    assert_eq!(none.status.code(), Some(1));
    has(
        &stderr(&none),
        &["no refusal or crossing of nobody@example.org is logged\n", "no key matches"],
    );
    let early = place.explain(&["bob@example.org", "--at", "Mon 14:05"]);
    assert_eq!(early.status.code(), Some(1));
    has(
        &stderr(&early),
        &[
            "nothing is logged of it within an hour of 2026-11-23 14:05:00",
            "the nearest event is at 2026-11-24 12:00:00",
        ],
    );
    for wrong in [
        &["x", "--at", "soonish"][..],
        &[],
        &["x", "--id", "1xVl91-0000000001x-0a2b"],
        &["x", "--now", "--at", "14:05"],
        &["x", "--now", "--crossing"],
    ] {
        let output = place.explain(wrong);
        assert_eq!((output.status.code(), stdout(&output)), (Some(2), String::new()), "{wrong:?}");
    }
}

#[test]
fn the_only_similar_key_is_explained_at_once() {
    let place = Place::new();
    for typed in ["alice", "Alise", "alise@example.org"] {
        let noted = format!(
            "exirate: note: no key matches {typed}; showing the only similar key, \
             alice@example.org"
        );
        has(&place.shows(0, &noted, &[typed]), &["alice@example.org: refused at "]);
        has(&place.shows(0, &noted, &[typed, "--now"]), &["now, alice@example.org, "]);
        let shown = place.run(&["show", typed]);
        assert_eq!(stderr(&shown).trim_end(), noted);
        has(&stdout(&shown), &["alice@example.org: "]);
    }
    // A program, and who selects, gets what was asked for.
    for more in ["--json", "--exact", "--period=1h"] {
        assert_eq!(place.explain(&["alice", more]).status.code(), Some(1), "{more}");
    }
    // Two are similar.
    assert_eq!(place.explain(&["example.org"]).status.code(), Some(1));
    // Denied by that name.
    assert!(place.run(&["deny", "alice"]).status.success());
    has(&stdout(&place.explain(&["alice"])), &["alice cannot send now: denied until "]);
}

#[test]
fn a_glob_explains_the_latest_event_of_each_key() {
    let place = Place::new();
    let found = place.shows(0, "", &["*@example.org"]);
    has(&found, &["alice@example.org: refused", "bob@example.org: refused"]);
    let one =
        place.shows(0, "exirate: note: left out 1 more key: see --limit", &["*", "--limit", "1"]);
    assert_eq!(one.matches(": refused at ").count(), 1, "{one}");
}

#[test]
fn without_a_trace_store_it_says_what_to_switch_on() {
    let place = Place::new();
    let output = place.explain(&["bob@example.org", "--crossing"]);
    assert_eq!(output.status.code(), Some(1));
    has(&stdout(&output), &["bob@example.org: no messages are recorded here\n"]);
    has(&stderr(&output), &["there is no trace store: let Exim record messages"]);
}
