//! A month of an office's mail is learned from the log; the last of it, with a theft, goes through
//! the mail server: what is held, until somebody says whose it was.

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use exirate::rate::habits::{Habits, Sensitivity};
use exirate::spool::{Options, Spool};
use exirate::store::{Store as _, habits_network_hash};
use kit::office::{self, OfficeMail};
use kit::{sink, until};
use serde_json::Value;

use super::failed::syslog;
use super::server::{FrontEnd, Server};
use super::{postfix, sendmail};

const POLICY: &str = "version = 1\n[policy.office]\nwhen = \"authenticated\"\nhabits = \"hold\"\n";
const ALICE: &str = "auth:alice@mail.test";

fn now() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs().cast_signed()
}

/// Which of the last messages raises the alarm, by the arithmetic, which is held to the reference
/// elsewhere, with the hashes of this database.
fn expected(spool: &Path, end: i64, sent: &[i64]) -> usize {
    let spool = Spool::open(spool, Options::default()).unwrap();
    let mut habits = Habits::default();
    office::alarm(end, sent, |mail, at, _| {
        let hash = |text: &[u8]| spool.habits_hash(text);
        let network = habits_network_hash(mail.client.parse().unwrap(), hash);
        let to = mail.recipients.iter().map(|to| hash(to.as_bytes()));
        habits.message(at, network, to, Sensitivity::Normal).alarm.is_some()
    })
}

/// Sends a message; whether it is accepted.
fn send(server: &Server, account: &str, to: &[String]) -> bool {
    let mut client = server.machine.login(account);
    let to: Vec<&str> = to.iter().map(String::as_str).collect();
    let text = "Subject: x\r\n\r\nx\r\n";
    client.message(&format!("{account}@mail.test"), &to, text).is_ok()
}

fn held(server: &Server) -> Vec<Value> {
    let output = server.exirate("held --json");
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"))
}

fn fine(server: &Server, line: &str) {
    let output = server.exirate(line);
    assert_eq!(output.status.code(), Some(0), "{line}: {output:?}");
}

/// Whether the mail server has delivered a message to this recipient.
fn is_delivered(server: &Server, to: &str) -> bool {
    let (log, to) = (server.machine.read("/var/log/mail.log"), format!("<{to}>"));
    let sent = ["status=sent", "stat=Sent"];
    log.lines().any(|line| line.contains(&to) && sent.iter().any(|sent| line.contains(sent)))
}

fn a_theft_is_held_until_somebody_says_whose_it_was(
    server: &Server,
    log: fn(&[OfficeMail]) -> String,
) {
    let (machine, now) = (&server.machine, now());
    machine.write("/etc/exirate/policy.toml", POLICY);
    let (month, last) = (office::month(now), office::last());
    machine.write("/var/log/month.log", &log(&month));
    machine.run("exirate policy apply /etc/exirate/policy.toml");
    let learned = server.exirate("habits learn /var/log/month.log --json");
    let learned: Value = serde_json::from_slice(&learned.stdout).unwrap();
    assert_eq!(learned["messages"], month.len(), "{learned}");
    let mut sent = Vec::new();
    for mail in &last {
        assert!(send(server, mail.account, &mail.recipients), "{mail:?}");
        sent.push(self::now());
    }
    let alarm = expected(&machine.path("/var/lib/exirate"), now, &sent);
    let theft = |mails: &[OfficeMail]| mails.iter().filter(|mail| mail.account == "alice").count();
    let waiting = theft(&last[alarm..]);
    let all = held(server);
    assert_eq!(all.len(), waiting, "after {}: {all:?}", theft(&last[..alarm]));
    assert!(all.iter().all(|one| one["key"] == ALICE && one["policy"] == "office"), "{all:?}");
    assert!(all[0]["why"].as_str().unwrap().contains("alarm"), "{all:?}");
    let (first, other) = (&last[alarm].recipients[0], &last[1].recipients[0]);
    until("others are delivered", || is_delivered(server, other));
    assert!(!is_delivered(server, first));

    fine(server, "habits accept alice@mail.test");
    assert!(send(server, "alice", &[office::partner()]));
    until("accepting it delivers it", || is_delivered(server, first));
    assert_eq!(held(server), Vec::<Value>::new());

    let mut more = 1000;
    let mut until_one_is_held = || {
        while held(server).is_empty() {
            assert!(more < 1100 && send(server, "alice", &[office::stranger(more)]));
            more += 1;
        }
        office::stranger(more - 1)
    };
    let released = until_one_is_held();
    fine(server, "held release alice@mail.test --yes");
    until("it is delivered", || is_delivered(server, &released));
    let deleted = until_one_is_held();
    let output = server.exirate("habits stolen alice@mail.test --logs /var/log/mail.log --yes");
    assert!(matches!(output.status.code(), Some(0 | 1)), "{output:?}");
    assert!(!send(server, "alice", &[office::partner()]));
    assert!(send(server, "emil", &[office::partner()]));
    fine(server, "held delete alice@mail.test --yes");
    assert_eq!(held(server), Vec::<Value>::new());
    assert!(!is_delivered(server, &deleted));
}

#[test]
fn postfix_holds_a_theft_by_the_policy_protocol() {
    let server = postfix::start("bookworm-postfix", FrontEnd::Policy);
    a_theft_is_held_until_somebody_says_whose_it_was(&server, office::postfix_log);
}

#[test]
fn sendmail_holds_a_theft() {
    let more = "define(`SMART_HOST', `relay:[127.0.0.1]')dnl\n\
                define(`RELAY_MAILER_ARGS', `TCP $h 2501')dnl\n";
    let server = sendmail::start_with(more, syslog);
    sink::serve(server.machine.listen(2501));
    a_theft_is_held_until_somebody_says_whose_it_was(&server, office::sendmail_log);
}
