//! Alerts that people can act on: what they say, many at once, and tests of receivers.

use std::process::Output;
use std::time::{SystemTime, UNIX_EPOCH};

use exirate::rate::Timestamp;
use exirate::rate::habits::Sensitivity;
use exirate::spool::{Options, Spool};
use exirate::store::{Learn, Sending, SendingStage, Store as _, habits_key};
use kit::{FakeClock, TIMEOUT};
use serde_json::Value;

use super::{Machine, code, post};
use crate::{exirate, run, stderr, stdout};

/// Stores each message in a file of its own: `mail.N`.
const SENDMAIL: &str = "cd \"${0%/*}\"; n=$(ls | grep -c '^mail[.]'); cat >mail.$n";

fn mails(machine: &Machine) -> Vec<String> {
    let read = |n| std::fs::read_to_string(machine.path(&format!("mail.{n}"))).ok();
    (0..).map_while(read).collect()
}

fn deliver(machine: &Machine, clock: &FakeClock, time: &str) -> Output {
    let sendmail = machine.path("sendmail").display().to_string();
    machine.at(clock, time, &["events", "deliver", "--json", "--sendmail", &sendmail])
}

fn cross(machine: &Machine, clock: &FakeClock, time: &str, keys: std::ops::Range<usize>) {
    for n in keys {
        let key = format!("user{n}");
        let check =
            ["check", "--count", "10 / 1w / per_rcpt / strict", "--key", &key, "--cost", "30"];
        assert_eq!(stderr(&machine.at(clock, time, &check)), "");
    }
}

#[test]
fn a_mail_says_who_how_much_and_what_to_do() {
    let machine = Machine::new("mail = \"a@example.org\"");
    machine.program("sendmail", SENDMAIL);
    let clock = FakeClock::new();
    for (key, cost) in [("--it's me*\\", "30"), ("--it's me*\\", "5"), ("zoë", "30")] {
        let spec = "10 / 1h / per_rcpt / strict";
        let (key, cost) = (format!("--key={key}"), format!("--cost={cost}"));
        let check = ["check", "--count", spec, &key, &cost, "--recipient", "r@example.net"];
        assert_eq!(stderr(&machine.at(&clock, "2026-12-01 10:00:00", &check)), "");
    }
    assert_eq!(code(&deliver(&machine, &clock, "2026-12-01 10:00:05")), Some(0));
    let mails = mails(&machine);
    assert_eq!(mails.len(), 2, "{mails:?}");
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    let host = host.trim();
    let text = &mails[1];
    assert!(
        text.contains(&format!("Subject: exirate: zo? is over the limit on {host}\n")),
        "{text}"
    );
    assert!(text.contains(&format!("zoë is over the limit of 10 recipients in 1h on {host}, with 30.0 at 2026-12-01 10:00:00 ")), "{text}");
    assert!(mails[0].contains("; refused since: 1 or more."), "{}", mails[0]);
    // Each command can be pasted, whatever the key is.
    let command = |mail: &str, word: &str| {
        let start = format!("  exirate {word} ");
        let line = mail.lines().find(|line| line.starts_with(&start)).unwrap().trim().to_owned();
        let line = line.replacen("exirate", &kit::shell_quoted(env!("CARGO_BIN_EXE_exirate")), 1);
        let mut shell = std::process::Command::new("/bin/sh");
        shell.args(["-c", &line]).envs(clock.environment()).output().unwrap()
    };
    for mail in &mails {
        let explained = command(mail, "explain");
        assert_eq!(code(&explained), Some(0), "{mail}\n{}", stderr(&explained));
        assert!(
            stdout(&explained).contains(": refused at ")
                || stdout(&explained).contains("went over"),
            "{}",
            stdout(&explained)
        );
        assert_eq!(code(&command(mail, "deny")), Some(0), "{mail}");
    }
    let denied = stdout(&machine.at(&clock, "2026-12-01 10:00:06", &["overrides", "--json"]));
    assert_eq!(serde_json::from_str::<Value>(&denied).unwrap().as_array().unwrap().len(), 2);
    mails.iter().for_each(|mail| assert_eq!(code(&command(mail, "unblock")), Some(0), "{mail}"));
    let denied = stdout(&machine.at(&clock, "2026-12-01 10:00:07", &["overrides", "--json"]));
    assert_eq!(denied, "[]\n");
    let listed = stdout(&machine.at(&clock, "2026-12-01 10:00:08", &["list", "--json"]));
    assert_eq!(listed, "[]\n");
}

#[test]
fn an_alarm_of_habits_says_its_evidence_and_how_to_answer_it() {
    let machine = Machine::new("run = [\"DIR/alarm\", \"{key}\"]\nmail = \"a@example.org\"");
    machine.program("alarm", "echo \"$1\" >>\"${0%/*}/ran\"; cat >\"${0%/*}/object\"");
    machine.program("sendmail", SENDMAIL);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs().cast_signed();
    let mut spool = Spool::open(machine.spool(), Options::default()).unwrap();
    let mut send = |at: i64, to: &str| {
        let mut name = Vec::new();
        let sending = Sending {
            key: habits_key(b"auth:alice@example.org", &mut name),
            network: None,
            recipients: &[spool.habits_hash(to.as_bytes())],
            sensitivity: Sensitivity::Normal,
            stage: SendingStage::Sent,
            learn: Learn::Always,
        };
        spool.learn(&sending, || Timestamp { seconds: at, micros: 0 }).unwrap().alarm
    };
    for n in (1..=60).rev() {
        assert_eq!(send(now - n * 20_000, "bob@example.net"), None);
    }
    let alarm = (0..50).find_map(|n| send(now, &format!("s{n}@example.net"))).unwrap();
    drop(spool);
    let sendmail = machine.path("sendmail").display().to_string();
    let delivered = machine.deliver(&["--sendmail", &sendmail]);
    assert_eq!((code(&delivered), stderr(&delivered)), (Some(0), String::new()));
    let evidence = alarm.to_string();
    assert_eq!(machine.lines("ran"), ["auth:alice@example.org"]);
    let object: Value = serde_json::from_str(&machine.lines("object")[0]).unwrap();
    assert_eq!((&object["event"], &object["evidence"]), (&"crossing".into(), &evidence.into()));
    let mails = mails(&machine);
    let [mail] = &mails[..] else { panic!("{mails:?}") };
    assert!(mail.contains("auth:alice@example.org may be stolen"), "{mail}");
    assert!(mail.contains("recipients that it has never written to"), "{mail}");
    let answer = mail.lines().find(|line| line.starts_with("  exirate habits accept ")).unwrap();
    let program = kit::shell_quoted(env!("CARGO_BIN_EXE_exirate"));
    let answer = answer.trim().replacen("exirate", &program, 1);
    let answered = std::process::Command::new("/bin/sh").args(["-c", &answer]).output().unwrap();
    assert_eq!(code(&answered), Some(0), "{}", stderr(&answered));
    let shown = stdout(&run(machine.spool(), &["habits", "--json"]));
    assert_eq!(serde_json::from_str::<Value>(&shown).unwrap()[0]["answer"], "accepted");
    assert_eq!(stdout(&machine.deliver(&["--sendmail", &sendmail])), "");
}

#[test]
fn more_than_ten_within_a_minute_are_one_message() {
    let (url, received) = post::server();
    let machine = Machine::new(&format!(
        "log = true\nrun = [\"DIR/over\", \"{{key}}\"]\npost = \"{url}\"\nmail = \"a@example.org\""
    ));
    machine.program("over", "echo \"$1\" >>\"${0%/*}/ran\"");
    machine.program("sendmail", "exit 75");
    let clock = FakeClock::new();
    cross(&machine, &clock, "2026-12-01 10:00:00", 0..12);
    let first = deliver(&machine, &clock, "2026-12-01 10:00:05");
    assert_eq!(code(&first), Some(1));
    assert!(stderr(&first).contains("; 12 events from "), "{}", stderr(&first));
    // Programs and logs get each.
    assert_eq!(machine.lines("ran").len(), 12);
    assert_eq!(stdout(&first).matches(" is over the limit: ").count(), 12);
    let body = |request: String| -> Value {
        serde_json::from_str(request.split_once("\r\n\r\n").unwrap().1).unwrap()
    };
    let digest = body(received.recv_timeout(TIMEOUT).unwrap());
    assert_eq!((&digest["event"], &digest["count"]), (&"digest".into(), &12.into()));
    assert_eq!(digest["events"].as_array().unwrap().len(), 12);
    assert_eq!(digest["events"][11]["who"], "user11");
    assert_eq!(
        (&digest["redelivered"], &digest["events"][0]["attempt"]),
        (&false.into(), &1.into())
    );
    assert!(
        digest["text"].as_str().unwrap().ends_with(": user0, user1, user2 and 9 more."),
        "{digest}"
    );
    assert!(received.try_recv().is_err());

    // A second attempt may have more, and is marked.
    cross(&machine, &clock, "2026-12-01 10:00:20", 12..14);
    machine.program("sendmail", SENDMAIL);
    assert_eq!(code(&deliver(&machine, &clock, "2026-12-01 10:00:40")), Some(0));
    let all = mails(&machine);
    assert_eq!(all.len(), 1, "{all:?}");
    assert!(all[0].contains("X-Exirate-Attempt: 2\nX-Exirate-Redelivered: yes\n"), "{}", all[0]);
    assert!(all[0].contains("Subject: exirate: 14 keys are over limits on "), "{}", all[0]);
    assert_eq!(all[0].matches("\n  exirate deny --exact ").count(), 14, "{}", all[0]);

    // `post` has got twelve in this minute, and gets what is new once it is over.
    assert!(received.try_recv().is_err());
    let late = deliver(&machine, &clock, "2026-12-01 10:01:21");
    assert_eq!((code(&late), stderr(&late)), (Some(0), String::new()));
    let digest = body(received.recv_timeout(TIMEOUT).unwrap());
    assert_eq!((&digest["count"], &digest["redelivered"]), (&2.into(), &false.into()));
    // Nothing is sent twice.
    assert_eq!(code(&deliver(&machine, &clock, "2026-12-01 10:05:00")), Some(0));
    assert_eq!((mails(&machine).len(), machine.lines("ran").len()), (1, 14));
    assert!(received.try_recv().is_err());
}

#[test]
fn ten_within_a_minute_are_ten_messages() {
    let machine = Machine::new("mail = \"a@example.org\"");
    machine.program("sendmail", SENDMAIL);
    let clock = FakeClock::new();
    cross(&machine, &clock, "2026-12-01 10:00:00", 0..10);
    cross(&machine, &clock, "2026-12-01 10:01:00", 10..11);
    assert_eq!(code(&deliver(&machine, &clock, "2026-12-01 10:01:05")), Some(0));
    assert_eq!(mails(&machine).len(), 11);
}

#[test]
fn a_test_alert_goes_to_each_receiver_and_says_what_it_did() {
    let (url, received) = post::server();
    let machine = Machine::new(&format!(
        "log = true\nrun = [\"DIR/over\", \"{{key}}\"]\npost = \"{url}\"\nmail = \"a@example.org\""
    ));
    machine.program("over", "echo \"$1 $EXIRATE_TEST\" >\"${0%/*}/ran\"; echo no room >&2; exit 9");
    machine.program("sendmail", SENDMAIL);
    let sendmail = machine.path("sendmail").display().to_string();
    // Also before anything was counted.
    let output = machine.deliver(&["--test", "--sendmail", &sendmail]);
    assert_eq!(code(&output), Some(1), "{}", stderr(&output));
    let said = stdout(&output);
    let lines: Vec<&str> = said.lines().collect();
    assert!(
        lines[0].contains("exirate-test is over the limit: ") && lines[0].ends_with(" test"),
        "{said}"
    );
    let over = machine.path("over").display().to_string();
    assert_eq!(lines[1], "log: standard output has accepted it");
    assert!(
        lines[2].starts_with(&format!(
            "run: {over} has failed: {over} failed (exit status 9): no room"
        )),
        "{said}"
    );
    assert_eq!(lines[3], format!("post: {} has accepted it", url.trim_end_matches("/hook")));
    assert_eq!(lines[4], format!("mail: {sendmail}, for a@example.org, has accepted it"));
    assert_eq!(machine.lines("ran"), ["exirate-test yes"]);
    let mail = &mails(&machine)[0];
    assert!(
        mail.contains("Subject: exirate: test of alerts from ")
            && mail.contains(": nobody is over a limit."),
        "{mail}"
    );
    // The first of its commands says the same.
    let explain = mail.lines().find_map(|line| line.trim().strip_prefix("exirate explain "));
    let arguments = std::iter::once("explain").chain(explain.unwrap().split(' '));
    let explained = run(machine.spool(), &arguments.collect::<Vec<_>>());
    assert_eq!(code(&explained), Some(0), "{}", stderr(&explained));
    assert!(stdout(&explained).ends_with(": nobody is over a limit\n"), "{explained:?}");
    let request = received.recv_timeout(TIMEOUT).unwrap();
    assert!(request.contains("\"test\":true"), "{request}");
    // It is no event: nothing was sent, and nothing is later.
    assert!(!machine.path("exirate/delivery.mail").exists());
    let json = run(
        machine.spool(),
        &["events", "deliver", "--test", "--json", "--sendmail", "/nonexistent"],
    );
    let last: Value = serde_json::from_str(stdout(&json).lines().last().unwrap()).unwrap();
    assert_eq!((&last["receiver"], &last["ok"]), (&"mail".into(), &false.into()));
    assert!(last["error"].as_str().unwrap().contains("is not installed"), "{last}");

    let none = Machine::new("log = false");
    let output = exirate()
        .args(["events", "deliver", "--test", "--spool"])
        .arg(none.spool())
        .output()
        .unwrap();
    assert_eq!(code(&output), Some(2));
    assert!(stderr(&output).contains("nobody is alerted"), "{}", stderr(&output));
}
