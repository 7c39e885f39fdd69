//! A month of an office's mail is learned from the log; the last of it, with a theft, goes through
//! Exim: what is held, until somebody says whose it was.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use exirate::rate::habits::{Habits, Sensitivity};
use exirate::spool::{Options, Spool};
use exirate::store::{Store as _, habits_network_hash};
use kit::exim::Ran;
use kit::office::{self, OfficeMail};
use kit::{PrivateExim, Setup};
use serde_json::Value;

use crate::acl_files::login;
use crate::policy::{apply, with_the_shipped_acl};

const POLICY: &str = "[policy.office]\nwhen = \"authenticated\"\nhabits = \"hold\"\n";

/// Which of the last messages raises the alarm, by the arithmetic, which is held to the reference
/// elsewhere, with the hashes of this database. A client on this machine has no network.
fn expected(spool: &Path, end: i64, sent: &[i64]) -> usize {
    let spool = Spool::open(spool, Options::default()).unwrap();
    let mut habits = Habits::default();
    office::alarm(end, sent, |mail, at, is_last| {
        let hash = |text: &[u8]| spool.habits_hash(text);
        let client = (!is_last).then(|| mail.client.parse().unwrap());
        let network = client.and_then(|client| habits_network_hash(client, hash));
        let to = mail.recipients.iter().map(|to| hash(to.as_bytes()));
        habits.message(at, network, to, Sensitivity::Normal).alarm.is_some()
    })
}

fn clock() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs().cast_signed()
}

/// Sends a message; whether it is accepted.
fn send(exim: &PrivateExim, account: &str, to: &[String]) -> bool {
    let mut client = exim.session();
    login(&mut client, format!("{account}@mail.test"));
    let to: Vec<&str> = to.iter().map(String::as_str).collect();
    client.message(&format!("{account}@mail.test"), &to, "Subject: x\n\nx\n").code == 250
}

fn exirate(exim: &PrivateExim, arguments: &[&str]) -> Ran {
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_exirate"));
    command.args(arguments).arg("--spool").arg(exim.spool());
    if arguments[0] == "held" || arguments.iter().any(|word| ["accept", "stolen"].contains(word)) {
        command.arg("--config").arg(exim.config());
    }
    // The commands that have no such option find this Exim as they find that of a machine.
    let folder = exim.folder().join("found");
    let path = std::env::var("PATH").unwrap();
    command.env("PATH", format!("{}:{path}", folder.display()));
    kit::exim::run(command, b"")
}

fn fine(exim: &PrivateExim, arguments: &[&str]) {
    let ran = exirate(exim, arguments);
    assert_eq!(ran.code, 0, "{arguments:?}: {ran:?}");
}

fn held(exim: &PrivateExim) -> Vec<Value> {
    let ran = exirate(exim, &["held", "--json"]);
    serde_json::from_str(&ran.stdout).unwrap_or_else(|_| panic!("{ran:?}"))
}

#[test]
fn a_theft_is_held_until_somebody_says_whose_it_was() {
    let mut exim = with_the_shipped_acl(Setup::new().main("log_selector = +received_recipients"));
    apply(&exim, POLICY);
    exim.start();
    let found = exim.folder().join("found");
    std::fs::create_dir(&found).unwrap();
    let (program, config) = (kit::exim::PROGRAM, exim.config());
    let text = format!("#!/bin/sh\nexec {program} -C {} \"$@\"\n", config.display());
    std::fs::write(found.join("exim"), text).unwrap();
    let mode = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(found.join("exim"), mode).unwrap();
    let now = clock();
    let (month, last) = (office::month(now), office::last());
    let log = exim.folder().join("month.log");
    std::fs::write(&log, office::exim_log(&month)).unwrap();
    let ran = exirate(&exim, &["habits", "learn", log.to_str().unwrap(), "--json"]);
    let learned: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(learned["messages"], month.len(), "{learned}");
    let mut sent = Vec::new();
    for mail in &last {
        assert!(send(&exim, mail.account, &mail.recipients), "{mail:?}");
        sent.push(clock());
    }
    let alarm = expected(&exim.spool(), now, &sent);
    let theft = |mails: &[OfficeMail]| mails.iter().filter(|mail| mail.account == "alice").count();
    let waiting = theft(&last[alarm..]);
    let all = held(&exim);
    assert_eq!(all.len(), waiting, "after {}: {all:?}", theft(&last[..alarm]));
    let is_alices = |one: &Value| one["key"] == "auth:alice@mail.test" && one["policy"] == "office";
    assert!(all.iter().all(is_alices), "{all:?}");
    let is_delivered = |to: &str| exim.log("main").contains(&format!("=> :blackhole: <{to}>"));

    // Each command that somebody asks about her says it.
    let count = format!("{waiting} messages of auth:alice@mail.test are held, since ");
    let release = "exirate held release auth:alice@mail.test";
    for command in ["show", "explain"] {
        let ran = exirate(&exim, &[command, "alice@mail.test"]);
        let is_said = ran.stdout.contains(&count) && ran.stdout.contains(release);
        assert!(is_said, "{command}: {ran:?}");
    }
    let ran = exirate(&exim, &["status"]);
    let line = format!("held       {waiting} messages of 1 key, since ");
    assert!(ran.stdout.contains(&line), "{ran:?}");
    let status: Value =
        serde_json::from_str(&exirate(&exim, &["status", "--json"]).stdout).unwrap();
    assert_eq!(status["held"]["messages"], waiting, "{status}");

    let ran = exirate(&exim, &["habits", "accept", "alice@mail.test"]);
    assert_eq!((ran.code, ran.stdout.matches("\nreleased ").count()), (0, waiting), "{ran:?}");
    assert!(ran.stdout.contains("auth:alice@mail.test is no longer suspected"), "{ran:?}");
    assert!(send(&exim, "alice", &[office::partner()]));
    let first = &last[alarm].recipients[0];
    exim.wait_for_log(&format!("=> :blackhole: <{first}>"), 1);
    assert_eq!(held(&exim), Vec::<Value>::new());
    let again = exirate(&exim, &["show", "alice@mail.test"]);
    assert!(!again.stdout.contains("held, since"), "{again:?}");

    let mut more = 1000;
    while held(&exim).is_empty() {
        assert!(more < 1100 && send(&exim, "alice", &[office::stranger(more)]));
        more += 1;
    }
    let main_log = exim.folder().join("log/mainlog");
    let logs = main_log.to_str().unwrap();
    let ran =
        exirate(&exim, &["habits", "stolen", "alice@mail.test", "--logs", logs, "--addresses"]);
    let warned = format!("{}\n", office::stranger(more - 1));
    assert!(ran.code == 0 && ran.stdout.contains(&warned), "{ran:?}");
    assert!(!send(&exim, "alice", &[office::partner()]));
    assert!(send(&exim, "emil", &[office::partner()]));
    // Without a terminal nothing is deleted, and it says what stays.
    assert!(ran.stderr.contains("1 message of auth:alice@mail.test stays held"), "{ran:?}");
    assert_eq!(held(&exim).len(), 1);
    fine(&exim, &["habits", "stolen", "alice@mail.test", "--logs", logs, "--held", "delete"]);
    assert_eq!(held(&exim), Vec::<Value>::new());
    assert!(!is_delivered(&office::stranger(more - 1)));
    // Exim says so where the doctor asks it, as its own user, by the program that is found.
    let panics = exim.log("panic");
    let mut lines = panics.lines().filter(|line| !line.ends_with("privilege for using -C option"));
    assert_eq!(lines.next(), None, "{panics}");
}
