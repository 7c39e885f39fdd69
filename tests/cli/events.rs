//! `exirate events`.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use crate::{run, stderr, stdout};
use kit::FakeClock;

fn count(spool: &Path, spec: &str, key: &str, recipient: &str) {
    let check = ["check", "--count", spec, "--key", key, "--cost", "30", "--recipient", recipient];
    assert_eq!(stderr(&run(spool, &check)), "");
}

/// alice over a strict limit, a client over a leaky one, and bob under it.
fn database() -> tempfile::TempDir {
    let spool = tempfile::tempdir().unwrap();
    count(spool.path(), "10 / 1w / per_rcpt / strict", "alice", "r1@x.test");
    count(spool.path(), "10 / 2d / per_conn / leaky", "192.0.2.7", "r2@x.test");
    count(spool.path(), "100 / 2d / per_conn / leaky", "bob", "r3@x.test");
    spool
}

fn events(spool: &Path, more: &[&str]) -> Output {
    run(spool, &[&["events"][..], more].concat())
}

fn objects(output: &Output) -> Vec<Value> {
    assert_eq!((output.status.code(), stderr(output)), (Some(0), String::new()));
    stdout(output).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn crossings_and_refusals_are_listed() {
    let spool = database();
    let spool = spool.path();
    let table = stdout(&events(spool, &[]));
    let rows: Vec<Vec<&str>> =
        table.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows[0], ["TIME", "RATE", "LIMIT", "PERIOD", "RECIPIENT", "KEY"]);
    assert_eq!(rows[1][3..], ["30.0", "10", "1w", "r1@x.test", "alice"]);
    assert_eq!(rows[2][3..], ["30.0", "10", "2d", "r2@x.test", "192.0.2.7"]);
    assert_eq!(rows.len(), 3);
    let all = objects(&events(spool, &["--json"]));
    assert_eq!(all.len(), 2);
    let alice = &all[0];
    for (name, value) in [
        ("event", Value::from("crossing")),
        ("key", "alice".into()),
        ("number", 1.into()),
        ("update", "strict".into()),
        ("rate", 30.0.into()),
        ("limit", 10.0.into()),
        ("period", 604_800.0.into()),
        ("recipient", "r1@x.test".into()),
        ("sender", Value::Null),
    ] {
        assert_eq!(alice[name], value, "{name}");
    }
    let refusals = objects(&events(spool, &["--refusals", "--json"]));
    assert_eq!(refusals.len(), 2);
    assert_eq!((&refusals[1]["event"], &refusals[1]["number"]), (&"refusal".into(), &Value::Null));
    let window = &refusals[1]["windows"][0];
    assert_eq!((&window["rate_before"], &window["over"]), (&0.0.into(), &true.into()));
}

#[test]
fn keys_periods_times_and_numbers_select() {
    let spool = database();
    let spool = spool.path();
    let keys = |more: &[&str]| -> Vec<String> {
        let all = objects(&events(spool, &[&["--json"][..], more].concat()));
        all.iter().map(|event| event["key"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(keys(&["ali*"]), ["alice"]);
    assert_eq!(keys(&["[192.0.2.7]", "alice"]), ["alice", "192.0.2.7"]);
    assert_eq!(keys(&["--mode", "per_conn"]), ["192.0.2.7"]);
    assert_eq!(keys(&["--period", "1w"]), ["alice"]);
    assert_eq!(keys(&["--limit", "1"]), ["192.0.2.7"]);
    assert_eq!(keys(&["--since", "1h"]), ["alice", "192.0.2.7"]);
    assert_eq!(keys(&["--since", "2999-01-01"]), [""; 0]);
    let missing = events(spool, &["bob", "--period", "2d"]);
    assert_eq!(missing.status.code(), Some(1));
    assert_eq!(stderr(&missing), "exirate: no crossing matches bob --period 2d\n");
    let wrong = events(spool, &["--since", "soon"]);
    assert_eq!(wrong.status.code(), Some(2));
    assert!(stderr(&wrong).contains("expected a time, such as 14:05"), "{}", stderr(&wrong));
}

#[test]
fn that_nothing_has_happened_is_said() {
    let spool = tempfile::tempdir().unwrap();
    let absent = events(spool.path(), &[]);
    assert_eq!(absent.status.code(), Some(2));
    count(spool.path(), "100 / 1w", "alice", "r@x.test");
    for (more, what) in [(&[][..], "crossing"), (&["--refusals"], "refusal")] {
        let none = events(spool.path(), more);
        assert_eq!(none.status.code(), Some(0));
        assert_eq!(stderr(&none), format!("exirate: note: no {what} is logged\n"));
        assert_eq!(stdout(&none), "");
    }
}

#[test]
fn what_clients_sent_cannot_drive_the_terminal() {
    let spool = tempfile::tempdir().unwrap();
    count(spool.path(), "10 / 1w", "a\x1b[2J", "r\x1b]0;x\x07@x.test");
    let table = events(spool.path(), &[]);
    assert!(!table.stdout.contains(&0x1b), "{}", stdout(&table));
    assert!(stdout(&table).contains(r"r\u{1b}]0;x\u{7}@x.test"), "{}", stdout(&table));
    let json = events(spool.path(), &["--json"]);
    assert!(!json.stdout.contains(&0x1b));
    assert_eq!(objects(&json)[0]["recipient"], "r\x1b]0;x\x07@x.test");
}

#[test]
fn damage_hides_no_event_and_is_reported() {
    let spool = database();
    let journal = spool.path().join("exirate/crossings");
    let mut bytes = std::fs::read(&journal).unwrap();
    bytes[30] ^= 1;
    std::fs::write(&journal, &bytes).unwrap();
    let found = events(spool.path(), &["--json"]);
    assert_eq!(found.status.code(), Some(0));
    assert_eq!(stdout(&found).lines().count(), 1);
    let said = stderr(&found);
    assert!(
        said.starts_with("exirate: note: skipped ") && said.contains("that are no event"),
        "{said}"
    );
    let verified = run(spool.path(), &["verify"]);
    assert_eq!(verified.status.code(), Some(0), "{}", stdout(&verified));
}

#[test]
fn new_events_are_printed_as_they_happen() {
    let spool = database();
    let mut follow = Command::new(env!("CARGO_BIN_EXE_exirate"));
    follow.args(["events", "--follow", "--json", "--spool"]).arg(spool.path());
    let mut follow = follow.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(follow.stdout.take().unwrap()).lines();
    let mut next = || -> Value { serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap() };
    assert_eq!((&next()["key"], &next()["key"]), (&"alice".into(), &"192.0.2.7".into()));
    count(spool.path(), "10 / 1w", "carol", "r4@x.test");
    let carol = next();
    assert_eq!((&carol["key"], &carol["recipient"]), (&"carol".into(), &"r4@x.test".into()));
    follow.kill().unwrap();
    follow.wait().unwrap();
}

#[test]
fn a_reset_key_crosses_again() {
    let clock = FakeClock::new();
    clock.freeze("2026-11-20 12:00:00");
    let spool = tempfile::tempdir().unwrap();
    let exirate = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_exirate"));
        command.args(arguments).arg("--spool").arg(spool.path()).envs(clock.environment());
        command.output().unwrap()
    };
    for _ in 0..2 {
        exirate(&["check", "--count", "10 / 1w / strict", "--key", "alice", "--cost", "30"]);
        assert!(exirate(&["unblock", "alice"]).status.success());
    }
    let numbers = objects(&exirate(&["events", "--json"]));
    assert_eq!(numbers.iter().map(|event| &event["number"]).collect::<Vec<_>>(), [1, 1]);
}

#[test]
fn events_are_kept_as_long_as_the_settings_say() {
    let clock = FakeClock::new();
    clock.freeze("2026-11-20 12:00:00");
    let spool = tempfile::tempdir().unwrap();
    let exirate = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_exirate"));
        command.args(arguments).arg("--spool").arg(spool.path()).envs(clock.environment());
        command.output().unwrap()
    };
    let count = |key: &str| {
        let check = ["check", "--count", "10 / 1w / strict", "--key", key, "--cost", "30"];
        assert_eq!(stderr(&exirate(&check)), "");
    };
    let shown = |more: &[&str]| -> Vec<String> {
        let all = objects(&exirate(&[&["events", "--json"][..], more].concat()));
        all.iter().map(|event| event["key"].as_str().unwrap().to_owned()).collect()
    };
    let on_disk = |key: &str| -> Vec<&str> {
        let names = ["crossings", "crossings.1", "refusals", "refusals.1"];
        let read = |name: &str| std::fs::read(spool.path().join("exirate").join(name));
        let has = |name: &&str| {
            let bytes = read(name).unwrap_or_default();
            bytes.windows(key.len()).any(|window| window == key.as_bytes())
        };
        names.into_iter().filter(has).collect()
    };
    count("alice@example.org");
    clock.freeze("2026-11-20 14:00:00");
    count("bob@example.org");
    let set = |arguments: &[&str]| exirate(&[&["config", "set"][..], arguments].concat());
    let refused = set(&["crossings.keep=1h", "refusals.keep=3h"]);
    assert_eq!(refused.status.code(), Some(2));
    let said = stderr(&refused);
    assert!(said.contains("1 of the crossings are older than 1h; nothing was changed"), "{said}");
    assert_eq!(shown(&[]).len(), 2);
    assert_eq!(on_disk("alice@"), ["crossings", "refusals"]);
    let done = set(&["crossings.keep=1h", "refusals.keep=3h", "--yes"]);
    assert_eq!(done.status.code(), Some(0), "{}", stderr(&done));
    assert!(stdout(&done).contains("\ncrossings.keep      1h\n"), "{}", stdout(&done));
    let settings: Value = serde_json::from_str(&stdout(&exirate(&["config", "--json"]))).unwrap();
    let of = |log: &str| {
        (settings["rates"][log]["keep"].clone(), settings["rates"][log]["max_size"].clone())
    };
    assert_eq!(of("crossings"), (3600.into(), (8 << 20).into()));
    assert_eq!(of("refusals"), (10_800.into(), (16 << 20).into()));
    let log = std::fs::read_to_string(spool.path().join("exirate/audit.log")).unwrap();
    let logged = |text: &str| log.lines().any(|line| line.ends_with(text));
    assert!(logged("config crossings.keep=1h (was 90d)"), "{log}");
    assert!(logged("config refusals.keep=3h (was 14d)"), "{log}");
    assert_eq!(
        (shown(&[]), on_disk("alice@")),
        (vec!["bob@example.org".to_owned()], vec!["refusals"])
    );
    // To the second, whoever looks.
    clock.freeze("2026-11-20 15:00:00");
    assert_eq!((shown(&[]).len(), shown(&["--refusals"]).len()), (1, 2));
    clock.freeze("2026-11-20 15:00:01");
    assert_eq!((shown(&[]).len(), shown(&["--refusals"]).len()), (0, 1));
    assert_eq!(on_disk("bob@"), ["crossings", "refusals"]);
    assert_eq!(on_disk("alice@"), ["refusals"]);
    assert!(exirate(&["repair"]).status.success());
    assert_eq!((on_disk("bob@"), on_disk("alice@")), (vec!["refusals"], vec![]));
    // Without `exirate repair`: the next event removes them.
    clock.freeze("2026-11-20 18:00:00");
    count("carol@example.org");
    assert_eq!(on_disk("bob@"), Vec::<&str>::new());
    assert_eq!(shown(&["--refusals"]), ["carol@example.org"]);
}
