//! `exirate explain`, for what a real Exim has refused, counted and recorded.

use std::fmt::Write as _;
use std::process::{Command, Output};

use serde_json::Value;

use crate::acl_files::login;
use crate::policy::{OVER, apply, with_the_shipped_acl};
use kit::{FakeClock, PrivateExim, Setup};

fn explain(exim: &PrivateExim, clock: &FakeClock, more: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_exirate"));
    command.args(["explain", "--spool"]).arg(exim.spool()).args(more).env("TZ", "UTC");
    command.envs(clock.environment()).output().unwrap()
}

fn text(output: &Output) -> String {
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn object(output: &Output) -> Value {
    serde_json::from_str(text(output).lines().next().unwrap()).unwrap()
}

#[test]
fn a_refusal_is_explained_by_key_time_and_message() {
    let clock = FakeClock::new();
    clock.freeze("2026-11-24 14:05:12");
    let mut exim = with_the_shipped_acl(Setup::new().clock(&clock).main("timezone = UTC"));
    let policy = "[policy.out]\ndefault.recipients = [\"3.5/1h\", \"100/1w\"]\n\
                  default.bytes = \"2k/1d\"\n";
    apply(&exim, policy);
    exim.start();
    let mut client = exim.session();
    login(&mut client, "alice");
    client.command("MAIL FROM:<alice@client.test>");
    let reply = |n: i32, client: &mut kit::Client| client.command(format!("RCPT TO:<r{n}@y.test>"));
    let codes: Vec<u16> = (0..4).map(|n| reply(n, &mut client).code).collect();
    assert_eq!(codes, [250, 250, 250, 451]);
    // Too large for the limit on bytes: it is refused as a message that has an id.
    let large = client.data(&format!("Subject: x\n\n{}\n", "x".repeat(3000)));
    assert!(!large.is_ok(), "{}", large.text);
    clock.freeze("2026-11-24 14:15:12");

    let found = text(&explain(&exim, &clock, &["alice", "--at", "14:05"]));
    for part in [
        "auth:alice: refused at 2026-11-24 14:05:12 UTC (10m ago)\n",
        "policy out, which counts recipients; rule: default\n",
        "login alice, client 127.0.0.1, from alice@client.test, to r3@y.test\n",
        "3.5/1h: rate 3.0 before, 4.0 with this event, which counts 1: over the limit\n",
        "100/1w: rate 3.0 before, 4.0 with this event, which counts 1: under the limit\n",
        "a limit of 5/1h or more, in place of 3.5/1h\n",
        "an entry of exempt",
        "now, auth:alice, out/recipients by the rule default\n",
    ] {
        assert!(found.contains(part), "{part:?} is not in:\n{found}");
    }
    let json =
        object(&explain(&exim, &clock, &["alice", "--json", "--since", "1h", "--limit", "9"]));
    let window = &json["windows"][0];
    let figures =
        ["rate_before", "rate", "count"].map(|name| window[name].as_f64().unwrap().round());
    assert_eq!((figures, &window["over"]), ([3.0, 4.0, 1.0], &true.into()));
    assert_eq!((&json["event"]["rule"], &window["least_limit"]), (&"default".into(), &5.0.into()));
    assert!(json["passes_at"].as_str().unwrap() > "2026-11-24T14:05:12Z", "{json}");

    // By the id that Exim has logged.
    let log = exim.log("main");
    let refused = log.lines().find(|line| line.contains("rejected after DATA")).unwrap();
    let id = refused.split(' ').nth(2).unwrap();
    let by_id = object(&explain(&exim, &clock, &["--id", id, "--json"]));
    assert_eq!(by_id["event"]["message_id"], id);
    assert_eq!(by_id["event"]["unit"], "bytes");
    // One message alone is larger than the limit: no wait helps.
    assert_eq!(
        (&by_id["passes_at"], &by_id["windows"][0]["retry_after"]),
        (&Value::Null, &Value::Null)
    );
    let unknown = explain(&exim, &clock, &["--id", "1aaaaa-00000000001-0001"]);
    assert_eq!(unknown.status.code(), Some(1));
    assert!(unknown.stdout.starts_with(b"nothing is logged of message 1aaaaa-"), "{unknown:?}");
    assert_eq!(exim.log("panic"), "");
}

#[test]
fn the_functions_explain_in_a_line_and_count_nothing() {
    let mut exim = Setup::new()
        .library()
        .acl(
            "acl_smtp_rcpt",
            "  defer condition = ${dlfunc{EXIRATE}{policy_over}{p}}\n\
             \x20       message = ${dlfunc{EXIRATE}{policy_info}{explain}}\n  accept\n",
        )
        .build();
    apply(&exim, "[policy.p]\ndefault.recipients = \"1.5/1w\"\n");
    exim.start();
    let mut client = exim.session();
    client.command("MAIL FROM:<a@client.test>");
    assert_eq!(client.command("RCPT TO:<b@y.test>").code, 250);
    for _ in 0..2 {
        assert_eq!(client.command("RCPT TO:<c@y.test>").code, 451);
    }
    // Exim breaks the reply into lines.
    let line = ": defer by policy p, rule default: recipients of client:127.0.0.1, 1.5/1w: rate 1.0 \
                before, 2.0 with this event, which counts 1: over the limit; one more would pass in ";
    exim.wait_for_log(line, 2);
    let spec = |spec: &str| {
        let text = format!(
            "${{dlfunc{{EXIRATE}}{{ratelimit}}{{{spec}}}{{alice}}}} \
             ${{dlfunc{{EXIRATE}}{{ratelimit_info}}{{explain}}}}"
        );
        exim.expand(&text.replace("EXIRATE", &exim.library().display().to_string())).stdout
    };
    spec("5 / 1h / per_mail / strict");
    for _ in 0..2 {
        let line = spec("5 / 1h / per_mail / readonly");
        assert!(line.contains("no per_mail of alice, 5/1h: rate "), "{line}");
        assert!(line.contains(" more would pass"), "{line}");
    }
}

/// A text of so many words, another one for each seed.
fn words(seed: u64) -> String {
    let mut random = kit::Random::new(seed);
    let mut text = String::new();
    for n in 0..300 {
        for _ in 0..6 {
            text.push(random.letter());
        }
        let _ = write!(text, "{}", if n % 10 == 9 { '\n' } else { ' ' });
    }
    text
}

#[test]
fn a_newsletter_and_phishing_are_told_apart() {
    let clock = FakeClock::new();
    clock.freeze("2026-11-24 14:00:00");
    let record = "  warn logwrite = recorded: ${dlfunc{EXIRATE_TRACE}{record}}\n  accept\n";
    let mut exim = Setup::new()
        .library()
        .auth()
        .clock(&clock)
        .acl("acl_smtp_rcpt", OVER)
        .acl("acl_smtp_data", record)
        .build();
    apply(&exim, "[policy.p]\nupdate = \"strict\"\ndefault.recipients = \"5.5/1h\"\n");
    exim.start();
    for (name, text) in
        [("news", (|_| words(1)) as fn(u64) -> String), ("stolen", |n| words(n + 10))]
    {
        let mut client = exim.session();
        login(&mut client, name);
        for n in 0..6 {
            let to = format!("r{n}@d{n}.test");
            let message = format!("From: a@client.test\nSubject: x\n\n{}\n", text(n));
            let reply = client.message("a@client.test", &[&to], &message);
            assert_eq!(reply.is_ok(), n < 5, "{name} {n}: {}", reply.text);
        }
    }
    for (name, pattern, start, alike) in [
        (
            "news",
            "same_text",
            "auth:news: one text, sent again and again: 5 messages, to 5 recipients",
            "100% on average, of 5 compared; one text\n",
        ),
        (
            "stolen",
            "different_texts",
            "auth:stolen: different texts: 5 messages, ",
            " compared; 5 different texts, the most frequent in 20%\n",
        ),
    ] {
        let found = text(&explain(&exim, &clock, &[name, "--crossing"]));
        assert!(found.starts_with(start), "{found}");
        for part in ["127.0.0.0/24 (5)", "d4.test (1)", "5.5/1h, rate 6.0", alike] {
            assert!(found.contains(part), "{part:?} is not in:\n{found}");
        }
        let json = object(&explain(&exim, &clock, &[name, "--crossing", "--json"]));
        assert_eq!(json["crossing"]["pattern"], pattern);
        assert_eq!(json["sender"], format!("the login {name}"));
    }
}
