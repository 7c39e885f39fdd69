//! `docs/migrate.md` and `docs/panels.md`: every policy in them is sound and limits what it says,
//! and those that replace a native line decide as it does.

use std::fs;
use std::path::Path;
use std::process::Output;

use exirate::policy::image::{Image, build};
use exirate::policy::replay::{Replay, ReplayEvent};
use exirate::policy::source::compile;
use exirate::policy::word::Verdict;
use exirate::rate::Timestamp;
use exirate::spec::{Context, Spec};
use exirate::store::{Memory, Store as _};

use serde_json::json;

use crate::hosting::{ALL, Case, client, decided, decisions, is_as_said, local, login, recipe};
use crate::{exirate, stdout};

const PAGE: &str = include_str!("../../docs/migrate.md");
const PANELS: &str = include_str!("../../docs/panels.md");

fn policy(dir: &std::path::Path, arguments: &[&str]) -> Output {
    exirate().arg("policy").args(arguments).current_dir(dir).output().unwrap()
}

/// The blocks of code, with their languages.
fn blocks(text: &str) -> Vec<(&str, &str)> {
    let fences: Vec<&str> = text.split("\n```").collect();
    let starts = fences.iter().skip(1).step_by(2);
    starts.map(|block| block.split_once('\n').unwrap()).collect()
}

#[test]
fn every_policy_is_sound() {
    let dir = tempfile::tempdir().unwrap();
    for (_, block) in [PAGE, PANELS].iter().flat_map(|page| blocks(page)) {
        if block.starts_with("version = 1\n") {
            fs::write(dir.path().join("p.toml"), block).unwrap();
            let output = policy(dir.path(), &["lint", "p.toml"]);
            assert_eq!(output.status.code(), Some(0), "{block}\n{}", stdout(&output));
        }
    }
}

/// A bounce to one recipient.
fn bounce() -> serde_json::Value {
    json!({"client": "192.0.2.7", "sender": "", "recipient": "alice@example.org"})
}

const OTHERS: &[Case] = &[
    (
        "From `smtp_ratelimit_mail` and `smtp_ratelimit_rcpt`",
        |_| client("192.0.2.7"),
        60,
        "slow default 60/10m",
    ),
    ("From policyd (cluebringer)", |_| login("alice"), 101, "quota default 101/1h"),
    ("From postfwd", |_| login("alice"), 100, "users default 100/1d"),
    ("From postfwd", |_| client("192.0.2.7"), 5, "clients default 5/5m"),
    ("From postfwd", |_| client("10.0.0.7"), ALL, ""),
    ("From rspamd", |_| login("alice"), 100, "user default 1/1m"),
    ("From rspamd", |_| bounce(), 20, "bounce_to_ip default 20/1h"),
];

#[test]
fn what_other_programs_limit_is_limited_as_the_page_says() {
    let headings = PAGE.lines().filter_map(|line| line.strip_prefix("## From "));
    let headings: Vec<String> = headings.map(|one| format!("From {one}")).collect();
    // Its policies are compared with the native lines.
    let others: Vec<&str> =
        headings.iter().map(|one| &**one).filter(|one| !one.contains("Exim's")).collect();
    is_as_said(PAGE, &others, OTHERS);
}

const CASES: &[Case] = &[
    ("cPanel", |_| login("a@example.com"), 300, "hourly default (total) 300 hourly"),
    (
        "cPanel",
        |n| login(&format!("u{n}@example.org")),
        1000,
        "hourly package gold (total) 1000 hourly",
    ),
    ("cPanel", |_| login("a@example.net"), ALL, ""),
    ("cPanel", |_| local("shop", "a@x.test"), 300, "hourly_scripts default 300 hourly"),
    ("cPanel", |_| local("mailman", "a@x.test"), ALL, ""),
    // The 30th failure of the 50 messages of a domain: all of it is refused.
    (
        "cPanel",
        |n| match n {
            50..=79 => {
                json!({"stage": "delivery", "auth": "a@example.com", "outcome": "undeliverable"})
            }
            _ => login("b@example.com"),
        },
        79,
        "failures default (total) 60%/1h",
    ),
    ("DirectAdmin", |_| login("a@example.org"), 50, "daily default 50 daily"),
    (
        "DirectAdmin",
        |n| login(&format!("u{}@example.{}", n % 9, ["org", "net"][n % 2])),
        200,
        "daily customer fred (total) 200 daily",
    ),
    // A script and mailboxes of one account.
    (
        "DirectAdmin",
        |n| match n % 2 {
            0 => local("fred", "a@x.test"),
            _ => login(&format!("u{}@example.org", n % 9)),
        },
        200,
        "daily customer fred (total) 200 daily",
    ),
    (
        "DirectAdmin",
        |_| local("wilma", "a@x.test"),
        1000,
        "daily customer wilma (total) 1000 daily",
    ),
    ("DirectAdmin", |_| client("192.0.2.7"), ALL, ""),
    ("Plesk", |_| login("a@example.org"), 100, "hourly package business 100/1h"),
    (
        "Plesk",
        |n| login(&format!("u{n}@example.org")),
        200,
        "hourly package business (total) 200/1h",
    ),
    ("Plesk", |_| login("news@example.org"), 200, "hourly package business (total) 200/1h"),
    (
        "Plesk",
        |n| match n % 3 {
            0 => local("acme_web", "a@x.test"),
            _ => login(&format!("u{n}@example.{}", ["org", "net"][n % 2])),
        },
        300,
        "hourly customer acme (total) 300/1h",
    ),
    ("Plesk", |_| login("a@example.com"), 50, "hourly default 50/1h"),
    ("Plesk", |n| login(&format!("u{n}@example.com")), 100, "hourly default (total) 100/1h"),
    ("ISPConfig", |_| client("192.0.2.7"), 100, "clients default 100/1m"),
    ("ISPConfig", |n| roaming("a@example.com", n), 200, "outgoing default 200 daily"),
    ("ISPConfig", |n| roaming("a@example.org", n), 500, "outgoing domain example.org 500 daily"),
    ("Hestia", |_| login("a@example.org"), 200, "account default 200/1h"),
    ("Hestia", |_| login("news@example.org"), 1000, "account user news@example.org 1000/1h"),
    ("Hestia", |_| local("shop", "a@x.test"), 200, "website default 200/1h"),
    ("mailcow", |_| login("alice@example.org"), 100, "mailbox user alice@example.org 100/1h"),
    ("mailcow", |_| login("bob@example.org"), 10, "mailbox user bob@example.org 10/1m"),
    (
        "mailcow",
        |n| login(&format!("u{n}@example.net")),
        500,
        "whole domain example.net (total) 500/1h",
    ),
    ("mailcow", |_| login("carl@example.com"), ALL, ""),
];

/// A login from many addresses, which share no limit of clients.
fn roaming(name: &str, n: usize) -> serde_json::Value {
    json!({"auth": name, "sender": name, "client": format!("198.51.{}.{}", n / 200, n % 200)})
}

#[test]
fn what_panels_limit_is_limited_as_the_page_says() {
    let headings: Vec<&str> = PANELS.lines().filter_map(|line| line.strip_prefix("## ")).collect();
    is_as_said(PANELS, &headings, CASES);
}

/// Whatever logins are folded to, an account is found as it is written.
#[test]
fn scripts_of_a_customer_are_in_its_total_if_logins_are_qualified() {
    let page = recipe(PANELS, "DirectAdmin");
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("p.toml");
    for (identity, account, exempt) in [
        ("qualify = \"example.org\"\n", "fred", "boss"),
        ("fold.plus = true\n", "Fred", "Boss"),
        ("", "fred", "boss"),
    ] {
        let text = page
            .replace("[identity]\n", &format!("[identity]\n{identity}"))
            .replace("user.fred.", &format!("user.{account}."))
            .replace("users = [\"fred\"]", &format!("users = [{account:?}]"))
            + &format!("[[policy.daily.exempt]]\nmatch = [{exempt:?}]\n");
        fs::write(&file, text).unwrap();
        let (accepted, by) = decided(&file, &|_| local(account, "a@x.test"), 230);
        assert_eq!((accepted, by.as_str()), (200, "daily customer fred (total) 200 daily"));
        assert_eq!(decided(&file, &|_| local(exempt, "a@x.test"), 230).0, 230, "{exempt}");
        // Shown as the login and as the account.
        for when in ["", "when = \"local\"\n", "key = \"local_account\"\n"] {
            let text = fs::read_to_string(&file).unwrap();
            let text = text.replace("[policy.daily]\n", &format!("[policy.daily]\n{when}"));
            fs::write(dir.path().join("shown.toml"), text).unwrap();
            let output = policy(dir.path(), &["show", "--user", account, "--file", "shown.toml"]);
            let shown = stdout(&output);
            assert!(shown.contains("customer fred") && shown.contains("unlimited"), "{shown}");
        }
        let output = policy(dir.path(), &["lint", "p.toml"]);
        assert_eq!(output.status.code(), Some(0), "{}", stdout(&output));
    }
}

#[test]
fn what_cpanel_queues_is_held_and_what_hestia_warns_of_is_logged() {
    let verdicts = |heading: &str, sender: serde_json::Value, messages: usize| {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("p.toml");
        fs::write(&file, recipe(PANELS, heading)).unwrap();
        let mut runs: Vec<(String, usize)> = Vec::new();
        for one in decisions(&file, &|_| sender.clone(), messages) {
            let verdict = one["verdict"].as_str().unwrap().to_owned();
            match runs.last_mut() {
                Some((last, count)) if *last == verdict => *count += 1,
                _ => runs.push((verdict, 1)),
            }
        }
        runs.into_iter().map(|(verdict, count)| format!("{verdict} {count}")).collect::<Vec<_>>()
    };
    let held = verdicts("cPanel", login("a@example.com"), 400);
    assert_eq!(held, ["accept 300", "hold 74", "reject 26"]);
    let warned = verdicts("Hestia", login("a@example.org"), 250);
    assert_eq!(warned, ["accept 100", "log 100", "reject 50"]);
}

/// Both hash recipients with this key. The filters of which recipients are different take a new
/// one for a known one now and then, by their hashes: with the same key, for the same ones.
const EVENT_KEY: [u8; 16] = [7; 16];

/// An event of both: a message of somebody.
#[derive(Clone, Copy)]
struct Message {
    micros: i64,
    who: usize,
    to: usize,
    size: u64,
}

/// Many events, with pauses in which some of the rate decays.
fn messages() -> Vec<Message> {
    let mut random = 0x9E37_79B9_7F4A_7C15_u64;
    let mut next = |most: u64| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random % most
    };
    let mut micros = 1_795_000_000_000_000;
    let mut all = Vec::new();
    for n in 0..1500 {
        micros += if n % 300 == 299 {
            5_000_000_000
        } else {
            next(if n % 300 < 150 { 400_000 } else { 8_000_000 }) as i64
        };
        let (who, to, size) = (next(2) as usize, next(90) as usize, next(90_000));
        all.push(Message { micros, who, to, size });
    }
    all
}

#[test]
fn a_policy_that_replaces_a_native_line_decides_as_it_does() {
    let section = PAGE.split("\n## From Exim's `ratelimit`\n").nth(1).unwrap();
    let section = section.split("\n## ").next().unwrap();
    let blocks = blocks(section);
    let mut seen = 0;
    for pair in blocks.chunks(2) {
        let [("exim", line), ("toml", policies)] = pair else { panic!("{pair:?}") };
        let spec = line.split("ratelimit = ").nth(1).unwrap().trim();
        let native = native(spec);
        let migrated = migrated(policies, line.contains("!authenticated"));
        let differs = native.iter().zip(&migrated).position(|(one, other)| one != other);
        assert_eq!(differs, None, "{spec}: event {differs:?}");
        assert_eq!(native.len(), migrated.len());
        let refused = native.iter().filter(|over| **over).count();
        assert!((20..native.len() - 20).contains(&refused), "{spec}: {refused} refused");
        seen += 1;
    }
    assert_eq!(seen, 5);
}

/// Whether the native line refuses each message. Where a line counts something else than
/// the message, it is that of the message: its one recipient, its connection.
fn native(spec: &str) -> Vec<bool> {
    let mut store = Memory::with_event_key(EVENT_KEY);
    let default_key = !spec.contains('$');
    messages()
        .iter()
        .map(|message| {
            let login = ["alice", "bob"][message.who];
            let client = ["192.0.2.7", "2001:db8::7"][message.who];
            let text = spec.replace("$authenticated_id", login);
            let local_part = format!("r{}", message.to);
            let context = Context {
                host_address: default_key.then_some(client.as_bytes()),
                local_part: local_part.as_bytes(),
                domain: b"example.net",
                recipients: 1,
                message_size: Some(message.size),
                ..Context::outside()
            };
            let request = Spec::parse(text.as_bytes()).unwrap().request(&context).unwrap();
            let now = Timestamp {
                seconds: message.micros / 1_000_000,
                micros: (message.micros % 1_000_000) as u32,
            };
            store.decide_one(&request.check(), || now).unwrap().over
        })
        .collect()
}

/// Whether the policies do.
fn migrated(policies: &str, anonymous: bool) -> Vec<bool> {
    let none = |_: &Path| Err("no file".to_owned());
    let compiled = compile(Path::new("p.toml"), policies, &none);
    assert!(compiled.policies.is_some(), "{:?}", compiled.diagnostics);
    let image = Image::from_bytes(build(&compiled.policies.unwrap())).unwrap();
    let mut replay = Replay::new(&image, "*").unwrap();
    let mut store = Memory::with_event_key(EVENT_KEY);
    let mut is_refused = |message: &Message| {
        let mut event = serde_json::json!({
            "time": (message.micros as f64 / 1e6),
            "client": (["192.0.2.7", "2001:db8::7"][message.who]),
            "sender": "s@example.org",
            "recipient": (format!("r{}@example.net", message.to)),
            "size": message.size,
        });
        if !anonymous {
            event["auth"] = ["alice", "bob"][message.who].into();
        }
        let event = ReplayEvent::from_json(&event.to_string()).unwrap();
        replay.decide(&event, &mut store).unwrap().outcome.verdict == Verdict::Defer
    };
    messages().iter().map(&mut is_refused).collect()
}
