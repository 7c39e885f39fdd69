//! A burst over a limit at delivery: what waits leaves in its order as there is room, by `exirate held
//! decide`, which may be killed.

use std::collections::BTreeMap;

use kit::{counts, sink, until};
use serde_json::Value;

use super::failed::syslog;
use super::server::{FrontEnd, Server};
use super::{postfix, sendmail};

/// Limits the recipients of each user.
fn apply(server: &Server, limit: &str) {
    let policy = format!(
        "version = 1\n[policy.later]\nat = \"delivery\"\nwhen = \"authenticated\"\nkey = \"auth\"\n\
         default.recipients = \"{limit}\"\n"
    );
    server.machine.write("/etc/exirate/policy.toml", &policy);
    server.machine.run("exirate policy apply /etc/exirate/policy.toml");
}

/// The recipient of a message of the burst.
fn recipient(number: usize) -> String {
    format!("n{number:03}@other.test")
}

/// What waits: the queue id of each number.
fn waiting(server: &Server) -> BTreeMap<usize, String> {
    let output = server.exirate("held --json");
    let all: Vec<Value> = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {output:?}"));
    let number = |one: &Value| {
        assert_eq!((&one["state"], &one["policy"]), (&"waiting".into(), &"later".into()), "{one}");
        assert_eq!(one["key"], "auth:alice@mail.test");
        assert!(one["until"].as_i64() >= one["at"].as_i64(), "{one}");
        one["sender"].as_str().unwrap()[1..4].parse().unwrap()
    };
    all.iter().map(|one| (number(one), one["id"].as_str().unwrap().to_owned())).collect()
}

/// The numbers of the messages that were delivered, in the order of the log.
fn delivered(server: &Server) -> Vec<usize> {
    let log = server.machine.read("/var/log/mail.log");
    let sent =
        log.lines().filter(|line| line.contains("status=sent") || line.contains("stat=Sent"));
    sent.filter_map(|line| line.split_once("to=<n")?.1.get(..3)?.parse().ok()).collect()
}

/// Lets out what there is room for; the numbers of what was released, in order.
fn decide(server: &Server) -> Vec<usize> {
    let ids: BTreeMap<String, usize> =
        waiting(server).into_iter().map(|(number, id)| (id, number)).collect();
    let output = server.exirate("held decide");
    assert!(matches!(output.status.code(), Some(0 | 1)), "{output:?}");
    assert!(output.stderr.is_empty(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let id = |line: &str| line.split_once(" is counted").map(|(id, _)| ids[id]);
    text.lines().filter_map(id).collect()
}

/// Sends `all` messages, of which `most` fit; all are accepted.
fn burst(server: &Server, all: usize, most: usize) {
    apply(server, &format!("{most}.5/1w"));
    let mut alice = server.machine.login("alice");
    for number in 0..all {
        let sender = format!("s{number:03}@mail.test");
        let reply = alice.message(&sender, &[&recipient(number)], "Subject: x\r\n\r\nx\r\n");
        assert!(reply.is_ok(), "{reply:?}\n{}", server.log());
    }
    let waiting = waiting(server);
    assert!(waiting.keys().copied().eq(most..all), "{waiting:?}\n{}", server.log());
    until("what fits is delivered", || delivered(server).len() == most);
    assert!(decide(server).is_empty());
}

/// All leave in their order, and once.
fn all_leave(server: &Server, all: usize, most: usize) {
    let mut next = all - waiting(server).len();
    while next < all {
        let released = decide(server);
        assert!(released.iter().copied().eq(next..next + released.len()), "{next}: {released:?}");
        // As the limit says, whatever was killed.
        assert!(released.len() <= most, "{released:?}");
        next += released.len();
        until("it is delivered", || delivered(server).len() >= next);
    }
    assert!(waiting(server).is_empty());
    let mut sent = delivered(server);
    sent.sort_unstable();
    assert!(sent.into_iter().eq(0..all));
}

fn postfix_sends_a_burst_later(front_end: FrontEnd) {
    let server = postfix::start("trixie-postfix", front_end);
    let machine = &server.machine;
    let (all, most) = if counts::is_long() { (500, 60) } else { (30, 10) };
    burst(&server, all, most);
    // Now there is room for some in each second.
    apply(&server, &format!("{most}/3s"));
    // Killed after it has counted, and before it releases.
    machine.run("mv /usr/sbin/postsuper /usr/sbin/postsuper.real");
    machine.write("/usr/sbin/postsuper", "#!/bin/sh\nkill -KILL $PPID\n");
    machine.run("chmod 755 /usr/sbin/postsuper");
    let killed = server.exirate("held decide");
    assert!(matches!(killed.status.code(), None | Some(137)), "{killed:?}");
    let log = machine.read("/var/lib/exirate/exirate/held.log");
    let counted = log.matches("\tleaves").count();
    assert!((most - 1..=most).contains(&counted), "{log}");
    assert_eq!(waiting(&server).len(), all - most, "{log}");
    machine.run("mv /usr/sbin/postsuper.real /usr/sbin/postsuper");
    let released = decide(&server);
    assert!(released.len() >= counted, "{counted}: {released:?}");
    assert!(released.iter().copied().eq(most..most + released.len()), "{released:?}");
    all_leave(&server, all, most);
    assert_eq!(machine.run("postqueue -p").trim(), "Mail queue is empty");
    // What is larger than the limit is refused.
    let mut alice = machine.login("alice");
    let to: Vec<String> = (0..most + 2).map(recipient).collect();
    let to: Vec<&str> = to.iter().map(String::as_str).collect();
    let reply = alice.message("s000@mail.test", &to, "Subject: x\r\n\r\nx\r\n");
    assert!(reply.text.contains("This message alone is over a limit"), "{reply:?}");
    assert!((400..500).contains(&reply.code), "{reply:?}");
    let lint = server.exirate("policy lint /etc/exirate/policy.toml");
    assert_eq!(lint.status.code(), Some(0), "{lint:?}");
}

#[test]
fn postfix_sends_a_burst_later_by_the_milter() {
    postfix_sends_a_burst_later(FrontEnd::Milter);
}

#[test]
fn postfix_sends_a_burst_later_by_the_policy_protocol() {
    postfix_sends_a_burst_later(FrontEnd::Policy);
}

#[test]
fn sendmail_sends_a_burst_later() {
    let more = "define(`SMART_HOST', `relay:[127.0.0.1]')dnl\n\
                define(`RELAY_MAILER_ARGS', `TCP $h 2501')dnl\n";
    let server = sendmail::start_with(more, syslog);
    sink::serve(server.machine.listen(2501));
    burst(&server, 12, 4);
    apply(&server, "4/3s");
    all_leave(&server, 12, 4);
}
