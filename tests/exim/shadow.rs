//! Native `ratelimit` and ours on the same events (`exim/shadow.conf`).

use std::process::Command;

use crate::acl_files::shipped;
use kit::{Client, PrivateExim, Setup};

/// A line of an ACL with `ratelimit`, and the same line as it is compared.
const NATIVE: &str = "  defer ratelimit = 2.5 / 1h / per_rcpt / strict / $sender_address\n";
const COMPARED: &str =
    "  defer acl = exirate_shadow \"2.5 / 1h / per_rcpt / strict / $sender_address\"\n";
const LIMIT: &str = "2.5 / 1h / per_rcpt / strict";

/// An Exim whose RCPT ACL begins with `line`.
fn setup(line: &str) -> Setup {
    let file = std::fs::read_to_string(shipped().join("shadow.conf")).unwrap();
    let message = "        message = $sender_rate of $sender_rate_limit / $sender_rate_period\n";
    Setup::new()
        .library()
        .acls(&format!("exirate_shadow:\n{file}\n"))
        .acl("acl_smtp_rcpt", &format!("{line}{message}  accept\n"))
}

/// The replies to `count` recipients of a sender.
fn recipients(client: &mut Client, sender: &str, count: usize) -> Vec<(u16, String)> {
    client.command("RSET");
    client.command(format!("MAIL FROM:<{sender}>"));
    let rcpt = |n| client.command(format!("RCPT TO:<r{n}@private.test>"));
    (0..count).map(rcpt).map(|reply| (reply.code, reply.text)).collect()
}

fn exirate(exim: &PrivateExim, arguments: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_exirate"));
    let output = command.args(arguments).arg("--spool").arg(exim.spool()).output().unwrap();
    assert!(output.stderr.is_empty(), "{output:?}");
    (output.status.code(), String::from_utf8(output.stdout).unwrap())
}

/// The only limit of the report.
fn report(exim: &PrivateExim) -> serde_json::Value {
    let (code, text) = exirate(exim, &["shadow", "report", "--json"]);
    assert_eq!(code, Some(1), "{text}");
    let mut report: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(report["limits"].as_array().unwrap().len(), 1, "{text}");
    report["limits"][0].take()
}

fn numbers(report: &serde_json::Value) -> [u64; 5] {
    ["checks", "over", "only_native", "only_exirate", "warming_up"]
        .map(|name| report[name].as_u64().unwrap())
}

#[test]
fn both_are_asked_and_native_answers() {
    let mut native = setup(NATIVE).build();
    let mut compared = setup(COMPARED).build();
    native.start();
    compared.start();
    let expected = recipients(&mut native.session(), "a@x.test", 4);
    assert!(expected[3].1.contains("4.0 of 2.5 / 1h"), "{expected:?}");
    let mut client = compared.session();
    assert_eq!(recipients(&mut client, "a@x.test", 4), expected);
    let seen = report(&compared);
    assert_eq!(seen["limit"], LIMIT);
    assert_eq!(numbers(&seen), [4, 2, 0, 0, 0], "{seen}");
    assert_eq!(seen["safe"], "not yet", "{seen}");
    assert!(!compared.log("main").contains("exirate shadow:"), "{}", compared.log("main"));

    // Ours has counted more than native: native's answer counts, and the log says so.
    exirate(&compared, &["set", "a@x.test", "--rate", "50"]);
    assert_eq!(recipients(&mut client, "a@x.test", 1)[0].0, 451);
    let record = ["--mode", "per_rcpt", "--period", "1h", "--limit", "2.5"];
    exirate(&compared, &[&["set", "b@x.test", "--create", "--rate", "50"], &record[..]].concat());
    assert_eq!(recipients(&mut client, "b@x.test", 1)[0].0, 250);
    let log = compared.log("main");
    let line = "exirate shadow: native under 1.0, exirate over 51.0: \
                2.5 / 1h / per_rcpt / strict / b@x.test";
    assert!(log.contains(line), "{log}");
    let seen = report(&compared);
    assert_eq!(numbers(&seen), [6, 3, 0, 1, 0], "{seen}");
    assert_eq!((&seen["safe"], &seen["rates"]), (&"no".into(), &1.into()), "{seen}");

    // Native has counted what ours has not seen.
    exirate(&compared, &["unblock", "a@x.test", "--yes"]);
    assert_eq!(recipients(&mut client, "a@x.test", 1)[0].0, 451);
    assert_eq!(numbers(&report(&compared)), [7, 4, 0, 1, 1]);

    assert_eq!(exirate(&compared, &["shadow", "reset"]).1, "forgot the comparison of 1 limit\n");
    recipients(&mut client, "c@x.test", 1);
    assert_eq!(numbers(&report(&compared)), [1, 0, 0, 0, 0]);
}

#[test]
fn what_goes_wrong_on_our_side_changes_no_answer() {
    let mut exim = setup(COMPARED).build();
    std::fs::write(exim.spool().join("exirate"), "not a directory").unwrap();
    exim.start();
    let replies = recipients(&mut exim.session(), "a@x.test", 4);
    assert_eq!(replies.iter().map(|(code, _)| *code).collect::<Vec<_>>(), [250, 250, 451, 451]);
    assert!(replies[3].1.contains("4.0 of 2.5 / 1h"), "{replies:?}");
    let log = exim.log("main");
    assert_eq!(log.matches("exirate shadow: not compared: ").count(), 1, "{log}");
}

#[test]
fn what_native_cannot_answer_defers_as_before() {
    let mut exim = setup("  defer acl = exirate_shadow \"x / 1h / $sender_address\"\n").build();
    exim.start();
    assert_eq!(recipients(&mut exim.session(), "a@x.test", 1)[0].0, 451);
    assert!(exim.log("main").contains("error in arguments to \"ratelimit\" condition"));
    assert!(!exim.log("main").contains("exirate shadow:"));
}

#[test]
fn without_the_library_native_is_asked_alone() {
    let mut exim = setup(COMPARED).build();
    let config = std::fs::read_to_string(exim.config()).unwrap();
    let config: Vec<&str> = config.lines().filter(|l| !l.starts_with("EXIRATE =")).collect();
    std::fs::write(exim.config(), config.join("\n") + "\n").unwrap();
    exim.start();
    let replies = recipients(&mut exim.session(), "a@x.test", 3);
    assert_eq!(replies.iter().map(|(code, _)| *code).collect::<Vec<_>>(), [250, 250, 451]);
    assert!(!exim.spool().join("exirate").exists());
}
