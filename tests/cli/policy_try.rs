//! `exirate check` with policies, and `exirate policy run`.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Output, Stdio};

use crate::{exirate, json, stderr, stdout};

const POLICY: &str = r#"version = 1
[policy.outbound]
when = "authenticated"
update = "strict"
text = "Over {limit} {unit}; try again in {retry_after}"
default.recipients = ["3/1h", "50/1d"]
default.unique_recipients = "10/1h"
package.gold.recipients = "30/1h"
[policy.bounces]
when = "null_sender"
key = ["recipient"]
bucket = { burst = 2, rate = "1 / 1h" }
"#;

fn machine() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("spool")).unwrap();
    fs::write(dir.path().join("p.toml"), POLICY).unwrap();
    dir
}

fn run(dir: &Path, arguments: &[&str]) -> Output {
    exirate().args(arguments).current_dir(dir).output().unwrap()
}

fn check(dir: &Path, arguments: &[&str]) -> Output {
    run(dir, &[&["check", "--spool", "spool"], arguments].concat())
}

fn replay(dir: &Path, arguments: &[&str], events: &str) -> Output {
    let mut child = exirate()
        .args(["policy", "run", "--policy", "p.toml"])
        .args(arguments)
        .current_dir(dir)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // One that refuses its arguments ends before it reads.
    let _ = child.stdin.take().unwrap().write_all(events.as_bytes());
    child.wait_with_output().unwrap()
}

/// The lines of JSON.
fn lines(output: &Output) -> Vec<serde_json::Value> {
    stdout(output).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn check_shows_each_window_and_counts_nothing() {
    let dir = machine();
    let dir = dir.path();
    let none = check(dir, &["outbound", "--auth", "alice"]);
    assert_eq!(none.status.code(), Some(2));
    assert!(stderr(&none).contains("policy.image"), "{}", stderr(&none));
    assert!(run(dir, &["policy", "apply", "--spool", "spool", "p.toml"]).status.success());

    let alice = ["outbound", "--auth", "Alice", "--recipient", "bob@x.test"];
    for _ in 0..3 {
        let output = check(dir, &alice);
        assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(0), ""));
        assert!(stdout(&output).starts_with("accept\n  policy      outbound\n"));
        let found = json(&check(dir, &[&alice[..], &["--json"]].concat()));
        assert_eq!(found["verdict"], "accept");
        let windows = found["windows"].as_array().unwrap();
        let of = |name: &str| windows.iter().map(|one| one[name].clone()).collect::<Vec<_>>();
        assert_eq!(of("window"), ["3/1h", "50/1d", "10/1h"]);
        assert_eq!(of("rate"), [1.0, 1.0, 1.0]);
        assert_eq!(of("record")[0], "outbound/recipients/1h/auth:alice");
        assert_eq!((&of("remaining")[0], &of("retry_after")[0]), (&2.0.into(), &0.into()));
    }
    // All recipients of a message, one after the other.
    let three = ["c@x.test", "d@x.test", "e@x.test"].map(|to| ["--recipient", to]).concat();
    let output = check(dir, &[&alice[..], &three].concat());
    assert_eq!(output.status.code(), Some(1));
    let shown = stdout(&output);
    assert!(shown.starts_with("defer: Over 3 recipients; try again in "), "{shown}");
    // Another package; a time at which all has decayed; a policy that does not apply.
    let gold = check(dir, &[&alice[..], &three, &["--package", "gold", "--json"]].concat());
    assert_eq!(
        (gold.status.code(), &json(&gold)["windows"][0]["rule"]),
        (Some(0), &"package gold".into())
    );
    let bounce = ["bounces", "--sender", "", "--recipient", "bob@x.test", "--json"];
    let found = json(&check(dir, &bounce));
    assert_eq!(found["windows"][0]["record"], "bounces/recipients/1/1h/recipient:bob@x.test");
    let output = check(dir, &["bounces", "--sender", "a@x.test", "--recipient", "b@x.test"]);
    assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(0), "accept\n"));
    let said = "exirate: note: no limit of bounces applies to such an event\n";
    assert_eq!(stderr(&output), said);
    let output = check(dir, &["outbnd", "--auth", "alice"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("no policy \"outbnd\"; did you mean \"outbound\"?"));
    assert!(!dir.join("spool/exirate/database").exists());
}

#[test]
fn check_honours_and_shows_overrides() {
    let dir = machine();
    let dir = dir.path();
    assert!(run(dir, &["policy", "apply", "--spool", "spool", "p.toml"]).status.success());
    // The database, with an event of somebody else.
    run(dir, &["check", "9 / 1h / strict", "--key", "x", "--count", "--spool", "spool"]);
    let deny =
        ["deny", "alice", "--until", "1d", "--reason", "stolen password", "--spool", "spool"];
    assert!(run(dir, &deny).status.success());
    let alice = ["*", "--auth", "alice", "--recipient", "bob@x.test"];
    let output = check(dir, &alice);
    assert_eq!(output.status.code(), Some(1));
    let shown = stdout(&output);
    assert!(shown.starts_with("defer: Blocked by the administrator\n"), "{shown}");
    assert!(shown.contains("override    alice is denied until "), "{shown}");
    assert_eq!(shown.matches("stolen password").count(), 1, "{shown}");
    let found = json(&check(dir, &[&alice[..], &["--json"]].concat()));
    assert_eq!(found["windows"][0]["override"], "deny");
    assert_eq!(found["windows"][0]["retry_after"], serde_json::Value::Null);
    // It has ended then.
    let output = check(dir, &[&alice[..], &["--at", "2100-01-01T00:00:00Z"]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", stdout(&output));
}

#[test]
fn run_decides_events_with_their_own_times() {
    let dir = machine();
    let event = |seconds: i64| {
        format!(
            "{{\"time\":{},\"auth\":\"alice\",\"recipient\":\"b@x.test\"}}\n",
            1_795_171_800 + seconds
        )
    };
    let events: String = [0, 1, 2, 3, 7200, 7201].map(event).concat();
    let output = replay(dir.path(), &[], &events);
    assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(0), ""));
    let verdicts: Vec<_> = lines(&output).iter().map(|line| line["verdict"].clone()).collect();
    assert_eq!(verdicts, ["accept", "accept", "accept", "defer", "accept", "accept"]);
    let crossed: Vec<_> = lines(&output).iter().map(|line| line["crossed"].clone()).collect();
    assert_eq!(crossed, [false, false, false, true, false, false]);
    let fourth = &lines(&output)[3];
    assert_eq!((&fourth["line"], &fourth["time"]), (&4.into(), &"2026-11-20T10:50:03Z".into()));
    assert_eq!((&fourth["policy"], &fourth["rule"]), (&"outbound".into(), &"default".into()));
    assert_eq!((&fourth["window"], &fourth["key"]), (&"3/1h".into(), &"auth:alice".into()));
    assert_eq!(fourth["windows"].as_array().unwrap().len(), 3);
    // A time that goes back.
    let back = replay(dir.path(), &[], &[event(100), event(0), event(50)].concat());
    let rates: Vec<_> = lines(&back).iter().map(|l| l["windows"][0]["rate"].clone()).collect();
    assert!(rates[1].as_f64().unwrap() > 1.9 && rates[2].as_f64().unwrap() > 2.8, "{rates:?}");
    // Only some policies.
    let output = replay(dir.path(), &["--only", "bounces"], &event(0));
    assert_eq!(lines(&output)[0]["policy"], serde_json::Value::Null);
    let output = replay(dir.path(), &["--only", "x"], &event(0));
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(
        stderr(&output),
        "exirate: there is no policy \"x\"; the policies are: bounces, outbound\n"
    );
}

#[test]
fn run_reports_wrong_lines_and_goes_on() {
    let dir = machine();
    let good = "{\"time\":1795171800,\"auth\":\"a\",\"recipient\":\"b@x.test\"}";
    let long = format!("{{\"comment\":\"{}\"}}", "x".repeat(5 << 20));
    let events =
        format!("\n{good}\n{{\"time\":1,\"clinet\":\"x\"}}\nhello\n{long}\n\r\n{good}\r\n{good}");
    let output = replay(dir.path(), &[], &events);
    assert_eq!(output.status.code(), Some(2));
    let seen: Vec<_> = lines(&output).iter().map(|line| line["line"].clone()).collect();
    assert_eq!(seen, [2, 7, 8]);
    assert_eq!(
        stderr(&output),
        "exirate: standard input, line 3: unknown field \"clinet\"; did you mean \"client\"?\n\
         exirate: standard input, line 4: not JSON: expected value at column 1\n\
         exirate: standard input, line 5: it is longer than 4194304 bytes\n\
         exirate: 3 of 8 lines were invalid and have been skipped; all others are decided\n"
    );
    let many = replay(dir.path(), &[], &"x\n".repeat(50));
    assert_eq!(stderr(&many).lines().count(), 22);
    assert!(stderr(&many).contains("exirate: and 30 more lines are invalid\n"));
    let empty = replay(dir.path(), &[], "");
    assert_eq!((empty.status.code(), stdout(&empty).as_str()), (Some(0), ""));
    let none = run(dir.path(), &["policy", "run", "none.jsonl", "--policy", "p.toml"]);
    assert_eq!(none.status.code(), Some(2));
    assert!(stderr(&none).contains("cannot read none.jsonl: No such file"));
}

#[test]
fn the_example_of_the_documentation_prints_what_it_says() {
    let page = include_str!("../../docs/policy.md");
    let part = page.split("\n## Try a policy\n").nth(1).unwrap();
    let part = part.split("\n## ").next().unwrap();
    let block = |kind: &str, n: usize| {
        let mark = format!("\n```{kind}\n");
        part.split(&mark).nth(n).unwrap().split("```").next().unwrap().to_owned()
    };
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("p.toml"), block("toml", 1)).unwrap();
    let output = replay(dir.path(), &[], &block("json", 1));
    let shown: String = lines(&output)
        .iter()
        .map(|line| {
            let cells = ["line", "verdict", "refused_recipients", "rule"].map(|n| line[n].clone());
            format!("{}\n", serde_json::Value::from(cells.to_vec()))
        })
        .collect();
    assert_eq!(shown, block("text", 1), "{}", stderr(&output));
    // Each field and each stage is in the table.
    let error =
        replay(dir.path(), &[], "{\"time\":1,\"zzzzzzzz\":1}\n{\"time\":1,\"stage\":\"\"}\n");
    let said = stderr(&error);
    let fields = said.split("the fields are ").nth(1).unwrap().lines().next().unwrap();
    let stages = said.split("expected one of ").nth(1).unwrap().split(", not ").next().unwrap();
    for name in fields.split(", ").chain(stages.split(", ")) {
        assert!(part.contains(&format!("`{name}`")), "{name} is not documented");
    }
}
