//! `exirate cluster`: what it writes, what it says of an agent that is not there, and what
//! it refuses.

use std::fs;

use crate::{run, stderr, stdout};

fn code(output: &std::process::Output) -> Option<i32> {
    output.status.code()
}

#[test]
fn join_writes_what_the_library_reads() {
    let spool = tempfile::tempdir().unwrap();
    let file = spool.path().join("exirate/cluster");
    let socket = spool.path().join("agent.sock");
    let socket = socket.to_str().unwrap();
    let arguments =
        ["cluster", "join", "--servers", "3", "--agent-user", "daemon", "--socket", socket];
    let joined = run(spool.path(), &arguments);
    assert_eq!(code(&joined), Some(1), "no agent replies yet: {}", stderr(&joined));
    let text = stdout(&joined);
    assert!(
        text.contains("  now      does not decide: cannot connect to it: No such file"),
        "{text}"
    );
    assert!(
        text.contains("away       local: this server admits 1/3 of what is left of each limit")
    );
    let written = fs::read_to_string(&file).unwrap();
    let user = written.lines().find_map(|line| line.strip_prefix("agent_user ")).unwrap();
    let passwd = fs::read_to_string("/etc/passwd").unwrap();
    let daemon = passwd.lines().find(|line| line.starts_with("daemon:")).unwrap();
    assert_eq!(daemon.split(':').nth(2).unwrap(), user);
    let socket = format!("socket {socket}");
    let config = "config /etc/exirate/exirate.toml";
    for line in ["servers 3", "deadline 100ms", "away local", config, &*socket] {
        assert!(written.lines().any(|one| one == line), "{line}: {written}");
    }
    // A second time it is replaced.
    let arguments = ["cluster", "join", "--servers", "5", "--agent-user", "7", "--away", "closed"];
    assert_eq!(code(&run(spool.path(), &arguments)), Some(1));
    let status = run(spool.path(), &["cluster", "status", "--json"]);
    assert_eq!(code(&status), Some(1));
    let status: serde_json::Value = serde_json::from_str(&stdout(&status)).unwrap();
    assert_eq!((&status["servers"], &status["agent_user"]), (&5.into(), &7.into()));
    assert_eq!((&status["away"], &status["decided_apart"]), (&"closed".into(), &0.into()));
    assert_eq!(status["socket"], "/run/exirate/agent.sock");
    assert!(status["error"].as_str().unwrap().starts_with("cannot connect to it: "));
    assert!(status.get("reply_ms").is_none() && status.get("away_since").is_none());
    let left = run(spool.path(), &["cluster", "leave"]);
    assert_eq!((code(&left), &*stdout(&left)), (Some(0), "this server counts alone\n"));
    assert!(!file.exists());
    for command in ["leave", "status"] {
        let again = run(spool.path(), &["cluster", command]);
        assert_eq!(code(&again), Some(1), "{command}");
        assert!(
            stdout(&again)
                .contains("this server shares no limits with others; `exirate cluster join`")
        );
    }
}

#[test]
fn what_cannot_be_is_refused_and_nothing_is_written() {
    let spool = tempfile::tempdir().unwrap();
    for (arguments, expected) in [
        (&["--servers", "0"][..], "0 is not in 1..=10000"),
        (&["--servers", "many"], "invalid value 'many'"),
        (&[], "--servers <N>"),
        (&["--servers", "2", "--deadline", "6000"], "6000 is not in 1..=5000"),
        (&["--servers", "2", "--away", "maybe"], "[possible values: local, open, closed]"),
        (&["--servers", "2", "--socket", "agent.sock"], "it must be an absolute path"),
        (&["--servers", "2", "--config", "exirate.toml"], "it must be an absolute path"),
        (&["--servers", "2", "--agent-user", "no such user"], "there is no user no such user"),
    ] {
        let arguments = [&["cluster", "join"], arguments].concat();
        let output = run(spool.path(), &arguments);
        assert_eq!(code(&output), Some(2), "{arguments:?}");
        let text = stderr(&output);
        assert!(text.contains(expected), "{arguments:?}: {text}");
    }
    assert!(!spool.path().join("exirate").exists());
}

#[test]
fn a_wrong_file_is_named_with_its_line() {
    let spool = tempfile::tempdir().unwrap();
    let arguments = ["cluster", "join", "--servers", "3", "--agent-user", "0"];
    run(spool.path(), &arguments);
    fs::write(spool.path().join("exirate/cluster"), "servers 3\nagent_user root\n").unwrap();
    let output = run(spool.path(), &["cluster", "status"]);
    assert_eq!(code(&output), Some(2));
    let text = stderr(&output);
    assert!(text.contains("/cluster:2: 'agent_user' must be the number of a user"), "{text}");
    assert!(text.contains("`exirate cluster join` writes the file again"), "{text}");
}
