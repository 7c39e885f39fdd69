//! Failures, and the errors for them.

use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};

use crate::{exirate, run, stderr, stdout};

#[test]
fn a_missing_database_is_the_same_error_for_every_command() {
    let spool = tempfile::tempdir().unwrap();
    for arguments in [
        &["list"][..],
        &["list", "--json"],
        &["show", "x"],
        &["top", "--once"],
        &["unblock", "x"],
        &["set", "x", "--rate", "1"],
        &["stats"],
        &["stats", "--prometheus"],
        &["verify"],
        &["repair"],
        &["config"],
        &["export"],
        &["copy", "/nonexistent"],
    ] {
        let output = run(spool.path(), arguments);
        assert_eq!(
            (output.status.code(), stdout(&output).as_str()),
            (Some(2), ""),
            "{arguments:?}"
        );
        assert!(stderr(&output).starts_with("exirate: no rate database at"), "{output:?}");
        assert!(stderr(&output).ends_with("run `exirate setup`\n"), "{output:?}");
    }
    assert_eq!(std::fs::read_dir(spool.path()).unwrap().count(), 0);

    // The trace store is not the rate database.
    let record = ["trace", "record", "--mbox", "/dev/null"];
    assert!(run(spool.path(), &record).status.success());
    for arguments in [
        &["list"][..],
        &["show", "x"],
        &["top", "--once"],
        &["unblock", "x"],
        &["set", "x", "--rate", "1"],
        &["export"],
    ] {
        let output = run(spool.path(), arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(stderr(&output).starts_with("exirate: no rate database at"), "{output:?}");
    }
    for command in ["stats", "verify", "repair", "config"] {
        let output = run(spool.path(), &[command]);
        assert_eq!(output.status.code(), Some(0), "{command}: {}", stderr(&output));
        let said = stderr(&output);
        assert!(command == "repair" || said.starts_with("exirate: note: no rate "), "{said}");
    }
    assert_eq!(std::fs::read_dir(spool.path().join("exirate")).unwrap().count(), 1);

    let missing = spool.path().join("missing");
    for arguments in [&["list"][..], &["check", "--count", "1 / 1h"]] {
        let output = run(&missing, arguments);
        assert_eq!(output.status.code(), Some(2));
        assert!(stderr(&output).contains("no such directory"), "{}", stderr(&output));
        assert_eq!(stdout(&output), "");
    }
    assert!(!missing.exists());
}

#[test]
fn errors_say_what_is_wrong_and_what_would_be_right() {
    let spool = tempfile::tempdir().unwrap();
    for (arguments, words) in [
        (&["check", "--count", "x / 1h"][..], &["\"x\" is not a positive number", "100"][..]),
        (&["check", "--count", "1 / soon"], &["\"soon\" is not a time value", "1h"]),
        (
            &["check", "--count", "1 / 1h / per_mail / per_rcpt"],
            &["conflicting", "one per_* option"],
        ),
        (&["check", "--count", "1 / 1h", "--cost", "-3"], &["--cost", "-3"]),
        (&["check"], &["<SPEC|POLICY>"]),
        (&["chek"], &["chek", "check"]),
    ] {
        let output = run(spool.path(), arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert_eq!(stdout(&output), "");
        for word in words {
            assert!(stderr(&output).contains(word), "{word:?}: {}", stderr(&output));
        }
    }
    let output = run(spool.path(), &["check", "1 / 1h / strict / per-rcpt / k"]);
    assert!(stderr(&output).contains("looks like the option per_rcpt"), "{}", stderr(&output));
    assert_eq!(std::fs::read_dir(spool.path()).unwrap().count(), 0);
}

#[test]
fn a_closed_output_pipe_is_no_error() {
    let spool = tempfile::tempdir().unwrap();
    run(spool.path(), &["check", "--count", "9 / 1w / strict / x"]);
    let mut child = exirate()
        .args(["list", "--spool"])
        .arg(spool.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // Closed before it can have written: nothing reads it while it starts.
    drop(child.stdout.take());
    let mut complaints = String::new();
    child.stderr.take().unwrap().read_to_string(&mut complaints).unwrap();
    assert_eq!((child.wait().unwrap().code(), complaints.as_str()), (Some(0), ""));
}

#[test]
fn without_permission_the_error_names_who_has_it() {
    const NOBODY: u32 = 65534;
    let spool = tempfile::tempdir().unwrap();
    run(spool.path(), &["check", "--count", "9 / 1w / strict / x"]);
    let open = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(spool.path(), open).unwrap();
    // A program that others may run as well, wherever this was built.
    let program = spool.path().join("program");
    let copied = Command::new("cp").arg(env!("CARGO_BIN_EXE_exirate")).arg(&program).status();
    assert!(copied.unwrap().success());
    let mut command = Command::new(&program);
    command.args(["list", "--spool"]).arg(spool.path());
    let output = command.uid(NOBODY).gid(NOBODY).output().unwrap();
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("Permission denied"), "{said}");
    assert!(said.ends_with("; run exirate as root, or as that user\n"), "{said}");
}

#[test]
fn older_words_work_and_name_the_new_ones() {
    let spool = tempfile::tempdir().unwrap();
    let spool = spool.path();
    let count = ["check", "--count", "9 / 1w / strict / alice", "--cost", "30"];
    let older = |word: &str, name: &str| {
        format!("exirate: note: `exirate {word}` is an older word for `exirate {name}`\n")
    };
    // `reset` never ended a denial.
    run(spool, &count);
    assert_eq!(run(spool, &["deny", "alice"]).status.code(), Some(0));
    let output = run(spool, &["reset", "alice"]);
    assert_eq!(
        (output.status.code(), stderr(&output)),
        (Some(0), older("reset", "unblock --keep-denials"))
    );
    assert!(stdout(&output).starts_with("reset alice (per_mail, 1w): "), "{output:?}");
    assert_eq!(run(spool, &["check", "9 / 1w / strict / alice"]).status.code(), Some(1));
    assert_eq!(run(spool, &["unblock", "alice"]).status.code(), Some(0));
    let output = run(spool, &["reset", "alice", "--dry-run", "--period", "1w", "--json"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).starts_with(&older("reset", "unblock --keep-denials")), "{output:?}");

    // `tidy` succeeds also where something was wrong.
    run(spool, &count);
    std::fs::write(spool.join("exirate/00.new"), "half").unwrap();
    let output = run(spool, &["tidy", "--damaged-older-than", "30d"]);
    assert_eq!((output.status.code(), stderr(&output)), (Some(0), older("tidy", "repair")));
    assert!(stdout(&output).contains("00.new, which was never finished"), "{output:?}");
    assert!(stdout(&output).contains("; the database takes "), "{output:?}");

    std::fs::write(spool.join("p.toml"), "version = 1\n[policy.p.default]\nmessages = \"9/1h\"\n")
        .unwrap();
    let file = spool.join("p.toml");
    let policy = ["--auth", "alice", "--recipient", "b@x.test", "--policy", file.to_str().unwrap()];
    let output = run(spool, &[&["policy", "check", "p"][..], &policy].concat());
    assert_eq!((output.status.code(), stderr(&output)), (Some(0), older("policy check", "check")));
    let same = run(spool, &[&["check", "p"][..], &policy].concat());
    assert_eq!((stdout(&same), stderr(&same)), (stdout(&output), String::new()));

    let output = run(spool, &["compact", "--json"]);
    assert_eq!((output.status.code(), stdout(&output)), (Some(2), String::new()));
    let said = stderr(&output);
    assert!(said.contains("no `exirate compact`") && said.contains("`exirate repair`"), "{said}");
    let help = stdout(&exirate().arg("--help").output().unwrap());
    for word in ["reset", "tidy", "compact"] {
        assert!(!help.contains(&format!("\n  {word} ")), "{help}");
    }
}

#[test]
fn a_check_takes_the_options_of_a_spec_or_of_a_policy() {
    let spool = tempfile::tempdir().unwrap();
    for (arguments, words) in [
        (
            &["check", "1 / 1h", "--auth", "x"][..],
            "--auth is for a policy, and \"1 / 1h\" is not one",
        ),
        (
            &["check", "p", "--count"],
            "--count is for a spec such as '100 / 1h / strict', and \"p\"",
        ),
        (&["check", "1 / 1h", "--recipient", "a@x", "--recipient", "b@x"], "has one --recipient"),
        (&["check", "100"], "a spec has the form m / p / options / key"),
    ] {
        let output = run(spool.path(), arguments);
        assert_eq!((output.status.code(), stdout(&output)), (Some(2), String::new()));
        assert!(stderr(&output).contains(words), "{words:?}: {}", stderr(&output));
    }
}
