//! What is in Redis, or replies in its place, is another program's, or of somebody who means no good.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixListener;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use exirate::cluster::wire::write_request;
use exirate::engine::Overridden;

use crate::client::{NotDecided, check, fresh, request};
use crate::process::{Machine, Manager, Process, until};

/// What a Redis replies.
fn ask(machine: &Machine, arguments: &[&str]) -> String {
    let mut command = Command::new("redis-cli");
    command.arg("-s").arg(machine.path("redis.sock")).args(arguments);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn run(machine: &Machine, arguments: &[&str]) -> std::process::Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_exirate"));
    command.args(arguments).arg("--spool").arg(machine.folder.path());
    command.stdin(Stdio::null()).output().unwrap()
}

/// What decides the next event of this key before its rate does.
fn overridden(machine: &Machine, key: &str) -> Option<Overridden> {
    let mut client = machine.client();
    client.stream.write_all(&request(fresh(), key)).unwrap();
    client.decision().unwrap().1.overridden
}

#[test]
fn keys_of_others_keep_no_denial_from_being_known() {
    let machine = Machine::new("deadline = \"2s\"", "");
    machine.share("");
    let _redis = machine.redis();
    ask(&machine, &["set", "exirate:forms", "of another program"]);
    let _agent = machine.start_deciding();
    let denied = |key: &str| overridden(&machine, key) == Some(Overridden::Deny);
    assert!(!denied("alice") && !denied("bob"));
    let deny = |key: &str| {
        let done = run(&machine, &["deny", key, "--until", "1h", "--yes"]);
        assert!(done.status.success(), "{done:?}");
    };
    deny("alice");
    until("the denial is known", || denied("alice"));
    // A later one, while nobody can look whether the secret is the same.
    ask(&machine, &["copy", "exirate:overrides", "before"]);
    deny("bob");
    ask(&machine, &["rename", "exirate:overrides", "after"]);
    ask(&machine, &["rename", "before", "exirate:overrides"]);
    ask(&machine, &["lpush", "foreign", "of another program"]);
    ask(&machine, &["rename", "foreign", "exirate:secret"]);
    until("the list is as before", || !denied("bob"));
    ask(&machine, &["rename", "after", "exirate:overrides"]);
    until("the denial is known", || denied("bob"));
}

#[test]
fn large_values_of_others_are_not_read() {
    const LARGE: usize = 300_000_000;
    let machine = Machine::new("deadline = \"5s\"", "");
    let _redis = machine.redis();
    let _agent = machine.start_deciding();
    let sent = || {
        let text = ask(&machine, &["info", "stats"]);
        let line = text.lines().find_map(|line| line.strip_prefix("total_net_output_bytes:"));
        line.unwrap().parse::<usize>().unwrap()
    };
    for key in ["exirate:secret", "exirate:overrides"] {
        ask(&machine, &["setrange", key, &LARGE.to_string(), "x"]);
        let (begun, before) = (Instant::now(), sent());
        // It is looked at each second.
        while begun.elapsed() < Duration::from_secs(3) {
            assert!(machine.client().ask("alice").is_ok());
        }
        assert!(sent() - before < LARGE / 5, "{key}: {}", sent() - before);
        ask(&machine, &["del", key]);
    }
}

/// A process that was stopped asks with hardly any time left.
#[test]
fn requests_without_time_say_nothing_of_the_store() {
    let machine = Machine::new("deadline = \"2s\"", "");
    let _redis = machine.redis();
    let _agent = machine.start_deciding();
    let before = machine.log();
    let (begun, mut client) = (Instant::now(), machine.client());
    while begun.elapsed() < Duration::from_secs(1) {
        let mut message = Vec::new();
        write_request(&mut message, fresh(), 1, &[check("alice")]).unwrap();
        client.stream.write_all(&message).unwrap();
        // Most are refused.
        let _: Result<_, NotDecided> = client.decision();
    }
    assert_eq!(machine.log(), before);
    assert!(client.ask("bob").is_ok());
}

#[test]
fn names_of_records_are_published_again_by_each_agent() {
    let (one, deadline) = (Machine::new("deadline = \"2s\"", ""), "deadline = \"2s\"");
    let _redis = one.redis();
    let at = format!("server = \"unix://{}\"\n{deadline}", one.path("redis.sock").display());
    let other = Machine::of(&at, "server_name = \"mx2\"");
    let _agents = [one.start_deciding(), other.start_deciding()];
    one.client().ask("alice").unwrap();
    // Written otherwise, so that only one of them knows it.
    other.client().ask("a+b@example.org").unwrap();
    let forms = || {
        let text = ask(&one, &["hkeys", "exirate:forms"]);
        let mut all: Vec<String> = text.lines().map(str::to_owned).collect();
        all.sort();
        all
    };
    until("both are known", || forms().len() == 2);
    let before = forms();
    for removes in [&["flushall"][..], &["del", "exirate:forms"]] {
        ask(&one, removes);
        until("both are known again", || forms() == before);
    }
}

/// Replies to whatever is asked with an error of several lines.
fn hostile(machine: &Machine) {
    let listener = UnixListener::bind(machine.path("redis.sock")).unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            std::thread::spawn(move || {
                let mut bytes = [0; 4096];
                let text = "EVIL one\nWATCHDOG=trigger\nexirate: forged\u{1b}]0;owned\u{7}";
                let reply = format!("!{}\r\n{text}\r\n", text.len());
                while let Ok(read @ 1..) = stream.read(&mut bytes) {
                    let commands = bytes[..read].iter().filter(|byte| **byte == b'*').count();
                    if stream.write_all(reply.repeat(commands).as_bytes()).is_err() {
                        return;
                    }
                }
            });
        }
    });
}

#[test]
fn what_a_hostile_redis_replies_is_one_line_and_drives_no_terminal() {
    let machine = Machine::new("", "");
    machine.share("");
    hostile(&machine);
    let manager = Manager::new(&machine);
    let mut command = machine.command();
    command.env("NOTIFY_SOCKET", &manager.path);
    let _agent = Process(command.spawn().unwrap());
    let mut status = String::new();
    while !status.contains("forged") {
        status = manager.next("STATUS=");
        assert_eq!(status.lines().count(), 1, "{status}");
    }
    for arguments in [&["list"][..], &["show", "alice"], &["cluster", "status"]] {
        let done = run(&machine, arguments);
        let said = [done.stdout, done.stderr].concat();
        let text = String::from_utf8(said).unwrap();
        assert!(text.chars().all(|c| c == '\n' || !c.is_control()), "{arguments:?}: {text:?}");
        assert!(!text.contains("\nexirate: forged"), "{arguments:?}: {text}");
    }
    assert!(machine.log().contains("forged") && !machine.log().contains('\u{1b}'));
}
