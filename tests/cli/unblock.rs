//! `exirate unblock` of records; of denials, see `overrides`.

use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::{exirate, json, list, run, stderr, stdout};

fn count(spool: &std::path::Path, key: &str, count: &str) {
    let output =
        run(spool, &["check", "--count", "10 / 1w / strict", "--key", key, "--cost", count]);
    assert_eq!(stderr(&output), "");
}

fn keys(spool: &std::path::Path) -> Vec<String> {
    let mut keys: Vec<String> =
        list(spool).iter().map(|row| row["key"].as_str().unwrap().to_owned()).collect();
    keys.sort();
    keys
}

#[test]
fn who_is_reset_may_send_again() {
    let spool = tempfile::tempdir().unwrap();
    for key in ["alice", "bob"] {
        count(spool.path(), key, "30");
    }
    let check = ["check", "10 / 1w / strict / alice"];
    assert_eq!(run(spool.path(), &check).status.code(), Some(1));
    let dry = run(spool.path(), &["unblock", "alice", "--dry-run"]);
    assert!(
        stdout(&dry)
            .starts_with("would reset alice (per_mail, 1w): over the limit, rate 30.0, limit 10")
    );
    assert_eq!(run(spool.path(), &check).status.code(), Some(1), "a dry run has reset it");
    let output = run(spool.path(), &["unblock", "alice"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert_eq!(
        stdout(&output),
        "reset alice (per_mail, 1w): over the limit, rate 30.0, limit 10\n"
    );
    assert_eq!(run(spool.path(), &check).status.code(), Some(0));
    assert_eq!(keys(spool.path()), ["bob"]);
    let log = std::fs::read_to_string(spool.path().join("exirate/audit.log")).unwrap();
    let line = log.strip_suffix('\n').unwrap();
    assert!(line.contains("Z uid=") && line.contains(" unblock rate=30 limit=10 "), "{line}");
    assert!(line.ends_with(" key=1w/per_mail/alice") && !line.contains('\n'), "{line}");
}

#[test]
fn missing_keys_are_reported_and_the_rest_is_reset() {
    let spool = tempfile::tempdir().unwrap();
    count(spool.path(), "alice", "1");
    let output = run(spool.path(), &["unblock", "nobody", "alice"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("no key matches nobody"), "{}", stderr(&output));
    assert!(keys(spool.path()).is_empty());
    let empty = tempfile::tempdir().unwrap();
    let output = run(empty.path(), &["unblock", "alice"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("no rate database"), "{}", stderr(&output));
    assert_eq!(std::fs::read_dir(empty.path()).unwrap().count(), 0, "it made a database");
    assert_eq!(run(spool.path(), &["unblock"]).status.code(), Some(2));
}

#[test]
fn a_glob_needs_a_confirmation() {
    let spool = tempfile::tempdir().unwrap();
    for key in ["a@x.test", "b@x.test", "c@y.test"] {
        count(spool.path(), key, if key == "b@x.test" { "30" } else { "1" });
    }
    let output = run(spool.path(), &["unblock", "*@x.test"]);
    assert_eq!(output.status.code(), Some(2));
    let words = "this would unblock 2 records; no terminal to confirm: use --yes";
    assert!(stderr(&output).contains(words), "{}", stderr(&output));
    assert_eq!(keys(spool.path()).len(), 3);

    // At a terminal, it asks.
    let line = format!(
        "'{}' unblock '*@x.test' --spool '{}'",
        env!("CARGO_BIN_EXE_exirate"),
        spool.path().display()
    );
    for (answer, code, left) in [("n", 1, 3), ("", 1, 3)] {
        let output = at_a_terminal(&line, answer);
        assert_eq!(output.status.code(), Some(code), "{}", stdout(&output));
        let said = stdout(&output);
        assert!(said.contains("1w/per_mail/a@x.test") && said.contains("[y/N]"), "{said}");
        assert!(said.contains("nothing was unblocked"), "{said}");
        assert_eq!(keys(spool.path()).len(), left);
    }
    let output = at_a_terminal(&line, "y");
    assert_eq!(output.status.code(), Some(0), "{}", stdout(&output));
    assert_eq!(keys(spool.path()), ["c@y.test"]);

    count(spool.path(), "b@x.test", "30");
    let output = run(spool.path(), &["unblock", "--over", "--yes"]);
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(keys(spool.path()), ["c@y.test"]);
    assert_eq!(run(spool.path(), &["unblock", "--over", "--yes"]).status.code(), Some(1));
    assert_eq!(run(spool.path(), &["unblock", "C@Y.test"]).status.code(), Some(0));
}

#[test]
fn the_log_has_a_line_for_each_unless_there_are_many() {
    let spool = tempfile::tempdir().unwrap();
    let file = spool.path().join("many.jsonl");
    let rest = r#""rate":1,"limit":9,"seconds":1795170000,"micros":0,"over_since":0}"#;
    let mut lines = "{\"exirate_export\":1}\n".to_owned();
    for n in 0..103 {
        let key = if n < 101 { format!("many{n}") } else { format!("few{n}") };
        lines += &format!("{{\"key\":\"1w/per_mail/{key}\",{rest}\n");
    }
    std::fs::write(&file, lines).unwrap();
    run(spool.path(), &["import", file.to_str().unwrap()]);
    for glob in ["few*", "many*"] {
        assert_eq!(run(spool.path(), &["unblock", glob, "--yes"]).status.code(), Some(0));
    }
    assert!(keys(spool.path()).is_empty());
    let log = std::fs::read_to_string(spool.path().join("exirate/audit.log")).unwrap();
    let lines: Vec<&str> = log.lines().collect();
    assert_eq!(lines.len(), 4, "{log}");
    assert!(lines[0].contains(" import added=103 "), "{log}");
    assert!(lines[1].ends_with("key=1w/per_mail/few101"), "{log}");
    assert!(lines[3].ends_with(" unblock records=101 of=many*"), "{log}");
}

/// Runs a line of shell at a terminal at which `answer` is typed.
pub(crate) fn at_a_terminal(line: &str, answer: &str) -> std::process::Output {
    let mut command = Command::new("script");
    command.args(["-qec", line, "/dev/null"]);
    let ran = kit::exim::run(command, format!("{answer}\n").as_bytes());
    std::process::Output {
        status: std::os::unix::process::ExitStatusExt::from_raw(ran.code << 8),
        stdout: ran.stdout.into(),
        stderr: ran.stderr.into(),
    }
}

#[test]
fn no_event_is_lost_or_counted_twice_while_others_check() {
    const PROCESSES: usize = 3;
    const CHECKS: usize = 40;
    let spool = tempfile::tempdir().unwrap();
    count(spool.path(), "alice", "1");
    let checking = AtomicUsize::new(PROCESSES);
    let mut forgotten = 0.0;
    let mut resets = 0;
    std::thread::scope(|scope| {
        for _ in 0..PROCESSES {
            scope.spawn(|| {
                for _ in 0..CHECKS {
                    count(spool.path(), "alice", "1");
                }
                checking.fetch_sub(1, Ordering::SeqCst);
            });
        }
        while checking.load(Ordering::SeqCst) > 0 {
            let output = exirate()
                .args(["unblock", "alice", "--json", "--spool"])
                .arg(spool.path())
                .output();
            let output = output.unwrap();
            // Right after another reset there may be nothing to forget.
            if output.status.code() == Some(0) {
                let rows = json(&output)["reset"].as_array().unwrap().clone();
                for row in rows {
                    forgotten += row["last_rate"].as_f64().unwrap();
                    resets += 1;
                }
            }
        }
    });
    let left: f64 = list(spool.path()).iter().map(|row| row["last_rate"].as_f64().unwrap()).sum();
    let all = (1 + PROCESSES * CHECKS) as f64;
    // A rate of a week decays a little over the seconds that this takes.
    assert!((forgotten + left - all).abs() < 0.5, "{forgotten} + {left} of {all}");
    assert!(resets > 1, "only {resets} resets hit anything");
    assert_eq!(run(spool.path(), &["verify"]).status.code(), Some(0));
}

#[test]
fn keys_reset_before_an_error_are_reported_and_logged() {
    let spool = tempfile::tempdir().unwrap();
    let shards = || std::fs::read_dir(spool.path().join("exirate")).unwrap();
    let names = || shards().map(|file| file.unwrap().file_name()).collect::<Vec<_>>();
    for n in 0..101 {
        count(spool.path(), &format!("k{n:03}"), "1");
    }
    // One that has a shard of its own, and comes last.
    let before = names();
    let last = (0..)
        .find_map(|n| {
            count(spool.path(), &format!("z{n}"), "1");
            names().into_iter().find(|name| !before.contains(name))
        })
        .unwrap();
    let all = keys(spool.path()).len();
    let shard = std::fs::File::open(spool.path().join("exirate").join(last)).unwrap();
    shard.lock_shared().unwrap();
    let output = run(spool.path(), &["unblock", "*", "--mode", "per_mail", "--yes"]);
    assert_eq!(output.status.code(), Some(2));
    let said = format!("; {} of {all} records were reset", all - 1);
    assert!(stderr(&output).contains(&said), "{}", stderr(&output));
    assert_eq!(stdout(&output).lines().count(), all - 1);
    let log = std::fs::read_to_string(spool.path().join("exirate/audit.log")).unwrap();
    let line = format!(" unblock records={} of=--mode per_mail *\n", all - 1);
    assert!(log.ends_with(&line), "{log}");
    shard.unlock().unwrap();
    let output = run(spool.path(), &["unblock", "*", "--yes"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(keys(spool.path()).is_empty());
}

#[test]
fn what_could_not_be_looked_at_is_not_passed_over_in_silence() {
    let spool = tempfile::tempdir().unwrap();
    count(spool.path(), "alice", "30");
    let folder = spool.path().join("exirate");
    let names = || {
        let files = std::fs::read_dir(&folder).unwrap().map(|file| file.unwrap().path());
        files.filter(|file| file.extension().is_some_and(|e| e == "shard")).collect::<Vec<_>>()
    };
    let first = names().remove(0);
    let other = (0..).map(|n| format!("z{n}")).find(|key| {
        count(spool.path(), key, "30");
        names().len() == 2
    });
    let shard = std::fs::File::open(first).unwrap();
    shard.lock().unwrap();
    let words = "1 part of the rates could not be read";
    for arguments in [&["show", "*"][..], &["unblock", "--over", "--yes"]] {
        let output = run(spool.path(), arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        let said = stderr(&output);
        assert!(said.contains(words) && said.contains("cannot lock"), "{said}");
        assert!(stdout(&output).contains(other.as_deref().unwrap()), "{}", stdout(&output));
    }
    // Nor that nobody is, where nobody could be found.
    let output = run(spool.path(), &["unblock", "--over", "--yes"]);
    assert_eq!((output.status.code(), stdout(&output)), (Some(2), String::new()));
    shard.unlock().unwrap();
    assert!(keys(spool.path()).contains(&"alice".to_owned()));
}

#[test]
fn who_is_denied_stays_so_where_only_records_are_meant() {
    let spool = tempfile::tempdir().unwrap();
    let spool = spool.path();
    let check = || run(spool, &["check", "10 / 1w / strict / alice"]).status.code();
    count(spool, "alice", "30");
    assert_eq!(run(spool, &["deny", "alice"]).status.code(), Some(0));
    for options in [&["--keep-denials"][..], &["--period", "1w"], &["--mode", "per_mail"]] {
        let output = run(spool, &[&["unblock", "alice"], options].concat());
        assert_eq!((output.status.code(), stderr(&output)), (Some(0), String::new()));
        assert!(stdout(&output).starts_with("reset alice (per_mail, 1w): "), "{output:?}");
        assert_eq!(check(), Some(1));
        count(spool, "alice", "30");
    }
    // Denied, and so not blocked by its rate.
    let output = run(spool, &["unblock", "--over", "--yes"]);
    assert_eq!(stdout(&output), "no key is blocked by its rate\n");
    let output = run(spool, &["unblock", "alice", "--dry-run"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let said = stdout(&output);
    assert!(said.starts_with("would remove: alice is denied until "), "{said}");
    assert!(said.contains("\nwould reset alice (per_mail, 1w): "), "{said}");
    assert_eq!(check(), Some(1));
    let report = json(&run(spool, &["unblock", "alice", "--json"]));
    assert_eq!(
        (&report["dry_run"], &report["removed"][0]["key"]),
        (&false.into(), &"alice".into())
    );
    assert_eq!((check(), keys(spool)), (Some(0), Vec::new()));
}
