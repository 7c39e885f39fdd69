//! `docs/hosting.md`: each recipe is sound, and limits what it says, of mail that comes in a burst.

use std::io::Write as _;
use std::path::Path;
use std::process::Stdio;

use serde_json::{Value, json};

use crate::{exirate, stderr, stdout};

const PAGE: &str = include_str!("../../docs/hosting.md");

/// The first policy of a section of a page, as a whole file.
pub(crate) fn recipe(page: &str, heading: &str) -> String {
    let section = page.split(&format!("\n## {heading}\n")).nth(1).unwrap();
    let section = section.split("\n## ").next().unwrap();
    let policy = section.split("\n```toml\n").nth(1).unwrap().split("\n```").next().unwrap();
    let head = if policy.starts_with("version = 1\n") { "" } else { "version = 1\n" };
    // The exemption ends after this test has been forgotten.
    format!("{head}{policy}\n").replace("until = 2027", "until = 2096")
}

/// Who sends; each message is to one recipient.
pub(crate) type Sender = Value;

/// A section with a sender, how many messages of many are accepted, and what refuses the others:
/// the policy, the rule and the window.
pub(crate) type Case = (&'static str, fn(usize) -> Sender, usize, &'static str);

pub(crate) const ALL: usize = usize::MAX;

pub(crate) fn login(name: &str) -> Sender {
    json!({"auth": name, "sender": name, "client": "198.51.100.7"})
}

pub(crate) fn local(account: &str, sender: &str) -> Sender {
    json!({"local_account": account, "sender": sender})
}

fn inbound(n: usize) -> Sender {
    json!({"client": "192.0.2.1", "sender": "a@x.test", "recipient": format!("u{n}@example.org")})
}

fn script(account: &str, name: &str) -> Sender {
    json!({"local_account": account, "script": name, "sender": "a@x.test"})
}

pub(crate) fn client(address: &str) -> Sender {
    json!({"client": address, "sender": "a@example.com"})
}

const CASES: &[Case] = &[
    ("A stolen password", |_| login("alice@example.org"), 100, "outbound default 100/1h"),
    (
        "A stolen password",
        |n| json!({"auth": "bob@example.org", "client": format!("198.51.100.{n}")}),
        20,
        "outbound default 20/1d",
    ),
    // Webmail with a login is not local; without one, each sender has a limit, and all have one.
    (
        "Webmail on the same machine",
        |_| json!({"auth": "alice", "client": "127.0.0.1", "sender": "alice@example.org"}),
        ALL,
        "",
    ),
    (
        "Webmail on the same machine",
        |_| json!({"client": "127.0.0.1", "sender": "alice@example.org"}),
        100,
        "webmail default 100/1h",
    ),
    (
        "Webmail on the same machine",
        |n| json!({"client": "127.0.0.1", "sender": format!("u{n}@example.org")}),
        2000,
        "localhost default 2000/1h",
    ),
    ("Webmail on the same machine", |n| local("www-data", &format!("u{n}@example.org")), ALL, ""),
    (
        "Webmail on the same machine",
        |_| local("www-data", "a@x.test"),
        100,
        "webmail default 100/1h",
    ),
    ("PHP scripts", |_| local("customer1", "a@x.test"), 50, "web default 50/1h"),
    ("PHP scripts", |_| local("shop", "a@x.test"), 500, "web user shop 500/1h"),
    ("PHP scripts", |_| script("customer1", "/srv/www/a:form.php"), 20, "scripts default 20/1h"),
    ("PHP scripts", |n| script("customer1", &format!("/srv/{n}:x.php")), 50, "web default 50/1h"),
    ("PHP scripts", |_| script("shop", "/srv/www/shop:news.php"), 500, "web user shop 500/1h"),
    ("PHP scripts", |_| client("127.0.0.1"), ALL, ""),
    ("A newsletter", |_| login("news@example.org"), 3000, "outbound user news@example.org 3000/1h"),
    ("A newsletter", |_| login("club@example.org"), ALL, ""),
    ("A newsletter", |_| login("carl@example.org"), 100, "outbound default 100/1h"),
    ("Several domains", |_| login("a@example.org"), 400, "outbound package business 400/1h"),
    ("Several domains", |_| login("a@example.com"), 100, "outbound default 100/1h"),
    (
        "Several domains",
        |n| login(&format!("u{n}@example.com")),
        500,
        "outbound default (total) 500/1h",
    ),
    (
        "Several domains",
        |_| login("ceo@example.net"),
        2000,
        "outbound package business (total) 2000/1h",
    ),
    (
        "A customer with several domains",
        |_| login("a@example.net"),
        400,
        "outbound package business 400/1h",
    ),
    (
        "A customer with several domains",
        |n| login(&format!("u{n}@example.{}", ["org", "net"][n % 2])),
        1000,
        "outbound customer acme (total) 1000/1h",
    ),
    ("A customer with several domains", |_| login("a@example.com"), 100, "outbound default 100/1h"),
    ("A gateway in front", |_| client("192.0.2.25"), ALL, ""),
    ("A gateway in front", |_| client("192.0.2.27"), 1000, "inbound default 1000/1h"),
    ("A smarthost for other servers", |_| client("10.0.0.7"), 200, "relay default 200/1h"),
    (
        "A smarthost for other servers",
        |_| client("10.0.0.25"),
        5000,
        "relay user 10.0.0.25 5000/1h",
    ),
    ("A smarthost for other servers", |_| client("10.0.0.53"), ALL, ""),
    ("A smarthost for other servers", |_| client("192.0.2.1"), ALL, ""),
    (
        "A smarthost for other servers",
        |n| client(&format!("2001:db8:1::{:x}", n % 2)),
        400,
        "relay default 200/1h",
    ),
    (
        "Sending through a smarthost",
        |n| [login("a@example.org"), login("b@example.org")][n % 2].clone(),
        2000,
        "everything default 2000/1h",
    ),
    // Nor can strangers use it up.
    ("Sending through a smarthost", |_| client("192.0.2.1"), ALL, ""),
    ("Sending through a smarthost", |n| inbound(n), ALL, ""),
    ("Mail of the system", |_| local("nagios", "a@x.test"), ALL, ""),
    ("Mail of the system", |_| local("root", "a@x.test"), ALL, ""),
    ("Mail of the system", |_| local("www-data", "a@x.test"), 50, "web default 50/1h"),
];

#[test]
fn every_recipe_is_sound_and_limits_what_it_says() {
    let headings: Vec<&str> = PAGE.lines().filter_map(|line| line.strip_prefix("## ")).collect();
    assert_eq!(headings.len(), PAGE.matches("\n```toml\n").count());
    is_as_said(PAGE, &headings, CASES);
}

/// The policy in each of these sections has no warning, and limits what the cases say.
pub(crate) fn is_as_said(page: &str, headings: &[&str], cases: &[Case]) {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("policy.toml");
    for heading in headings {
        std::fs::write(&file, recipe(page, heading)).unwrap();
        let output = exirate().args(["policy", "lint"]).arg(&file).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{heading}: {}", stdout(&output));
        assert!(cases.iter().any(|(of, ..)| of == heading), "{heading} is not tried");
    }
    for (heading, sender, limit, by) in cases {
        std::fs::write(&file, recipe(page, heading)).unwrap();
        let messages = if *limit == ALL { 5200 } else { limit + limit / 10 + 20 };
        let (accepted, refused_by) = decided(&file, sender, messages);
        match *limit {
            ALL => assert_eq!((accepted, refused_by.as_str()), (messages, ""), "{heading}"),
            // A little of the rate decays meanwhile.
            limit => {
                let expected = limit..=limit + limit / 100;
                assert!(expected.contains(&accepted), "{heading}: {accepted} of {limit}");
                assert_eq!(refused_by, *by, "{heading}");
            }
        }
    }
}

/// What is decided of so many messages, one each 10 ms.
pub(crate) fn decisions(
    policy: &Path,
    sender: &dyn Fn(usize) -> Sender,
    messages: usize,
) -> Vec<Value> {
    let mut child = exirate()
        .args(["policy", "run", "--policy"])
        .arg(policy)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let events: Vec<String> = (0..messages)
        .map(|n| {
            let mut event = sender(n);
            event["time"] = json!(1_795_000_000.0 + n as f64 / 100.0);
            if event.get("recipient").is_none() {
                event["recipient"] = json!(format!("r{n}@example.net"));
            }
            event.to_string()
        })
        .collect();
    let mut input = child.stdin.take().unwrap();
    let writer = std::thread::spawn(move || input.write_all(events.join("\n").as_bytes()));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let decisions: Vec<Value> =
        stdout(&output).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(decisions.len(), messages);
    decisions
}

/// How many of so many messages are accepted, and what refuses the first other.
pub(crate) fn decided(
    policy: &Path,
    sender: &dyn Fn(usize) -> Sender,
    messages: usize,
) -> (usize, String) {
    let decisions = decisions(policy, sender, messages);
    let passes = |one: &&Value| one["verdict"] == "accept" || one["verdict"] == "log";
    let accepted = decisions.iter().filter(passes).count();
    let refused = decisions.iter().find(|one| !passes(one));
    let word = |one: &Value, field: &str| one[field].as_str().unwrap().to_owned();
    let by =
        refused.map(|one| ["policy", "rule", "window"].map(|field| word(one, field)).join(" "));
    (accepted, by.unwrap_or_default())
}
