//! A token of one customer, or of some domains: whatever others have is as if it did not exist, for each
//! route, for the stream of events, and for the broker when it is asked directly.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::IpAddr;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::{Arc, Mutex};

use exirate::engine::{Algorithm, AlgorithmKind, Check, Kind, RecordKey, Update};
use exirate::policy::image::{build, install};
use exirate::policy::source::compile;
use exirate::rate::habits::Sensitivity;
use exirate::rate::usage::Sent;
use exirate::serve::web::role::Role;
use exirate::serve::web::token::{self, Scope};
use exirate::spool::habits::{SentMessage, habits_key};
use exirate::spool::{EventDetails, Options, Spool};
use exirate::store::{Counting, FOREVER, Store as _};
use serde_json::{Value, json};

use super::desk::{Answer, Desk, bearer, broker, now};

const OWN: &str = r#"version = 1
[policy.out]
default.recipients = "10/1h"
default.habits = "hold"
customer.acme = { domains = ["acme.test"], users = ["bob@shared.test"], package = "gold", total.recipients = "30/1h" }
domain."acme.test".total.recipients = "25/1h"
package.gold.messages = "90/1h"
[[policy.out.exempt]]
match = ["ceo@acme.test"]
reason = "letters"
"#;

/// What others have besides.
const OTHERS: &str = r#"
[[policy.out.exempt]]
match = ["eve@evil.test", "alice2@acme.test"]
reason = "evil"
[policy.out.customer.evil]
domains = ["evil.test"]
package = "evil"
total.recipients = "30/1h"
[policy.out.domain."evil.test"]
total.recipients = "25/1h"
[policy.out.user."eve@evil.test"]
recipients = "11/1h"
[policy.out.package.evil]
messages = "7/1h"
[policy.evil]
when = [{ sender_domain = ["evil.test"] }]
default.recipients = "10/1h"
"#;

/// What a customer tries, whose others are.
const KEYS: [&str; 16] = [
    "eve@evil.test",
    "auth:eve@evil.test",
    "local_account:eve",
    "eve",
    "customer:evil",
    "domain:evil.test",
    "evil.test",
    "192.0.2.66",
    "client:192.0.2.66",
    "sender:eve@evil.test",
    "eve@evil.test/alice@acme.test",
    "1h/per_rcpt/eve@evil.test",
    "out/recipients/1h/auth:eve@evil.test",
    "auth:eve@evil.test,client:192.0.2.66",
    "*@evil.test",
    "{eve@evil.test,alice@acme.test}",
];

const VERBS: [&str; 7] = ["unblock", "allow", "deny", "end", "accept", "stolen", "release"];

fn apply(desk: &Desk, text: &str) {
    let compiled = compile(Path::new("policy.toml"), text, &|_| Err("none".to_owned()));
    let policies = compiled.policies.unwrap_or_else(|| panic!("{:?}", compiled.diagnostics));
    install(desk.folder.path(), &build(&policies)).unwrap();
}

/// Counts so many events of each identity by the policy, or of a key by a spec, sent by `login`.
fn count(desk: &Desk, names: &[&str], events: u32, login: &str, client: &str) {
    let mut spool = Spool::open(desk.folder.path(), Options::default()).unwrap();
    for name in names {
        let (kind, prefix) = match name.split_once(':') {
            Some(_) => (Kind::Policy, "out/recipients/1h/"),
            None => (Kind::Spec, "1h/per_rcpt/"),
        };
        let name = format!("{prefix}{name}");
        let algorithm = AlgorithmKind::MovingAverage;
        let key =
            RecordKey { name: name.as_bytes(), identity_start: prefix.len(), kind, algorithm };
        let average = Algorithm::MovingAverage { limit: 10.0, period: 3600.0 };
        let check = Check { update: Update::Strict, ..Check::new(key, average) };
        for _ in 0..events {
            spool.decide_one(&check, now).unwrap();
            if spool.has_events() {
                let (login, client) = (login.as_bytes(), client.as_bytes());
                spool.describe(&EventDetails { client, login, ..EventDetails::default() });
            }
        }
    }
}

/// Counts what an account has sent today: so many messages, each to two recipients.
fn sent(desk: &Desk, identity: &str, messages: u64) {
    let mut spool = Spool::open(desk.folder.path(), Options::default()).unwrap();
    let sent = Sent { messages, recipients: 2 * messages, ..Sent::default() };
    let identity = identity.as_bytes();
    let counting = Counting { identity, sent, day: &|at| at.div_euclid(86_400) };
    spool.count_usage(&counting, now).unwrap();
}

fn raise_alarm(desk: &Desk, identity: &str) {
    let mut spool = Spool::open(desk.folder.path(), Options::default()).unwrap();
    let (end, mut name) = (now().seconds, Vec::new());
    let mut send = |at: i64, to: &str| {
        let client = Some(IpAddr::from([192, 0, 2, 66]));
        let message = SentMessage { at, client, recipients: [to.as_bytes()] };
        let key = habits_key(identity.as_bytes(), &mut name);
        spool.learn_habits(key, message, Sensitivity::Normal).unwrap().alarm.is_some()
    };
    (1..60).rev().for_each(|day| _ = send(end - day * 86_400, "friend@a.test"));
    assert!((0..1000).any(|stranger| send(end, &format!("stranger{stranger}@a.test"))));
}

/// Plays `exirate serve held`, with these keys' messages; returns what was released.
pub(super) fn queue(desk: &Desk, keys: &Arc<Mutex<Vec<&'static str>>>) -> Arc<Mutex<String>> {
    let (listener, keys) = (UnixListener::bind(desk.path("held")).unwrap(), Arc::clone(keys));
    let done = Arc::new(Mutex::new(String::new()));
    let (deeds, at) = (Arc::clone(&done), now().seconds);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut line = String::new();
            BufReader::new(&stream).read_line(&mut line).unwrap();
            let reply = if line.contains("\"do\"") {
                *deeds.lock().unwrap() += &line;
                let asked: Value = serde_json::from_str(&line).unwrap();
                json!({ "done": vec![json!({ "Ok": null }); asked["do"][1].as_array().unwrap().len()] })
            } else {
                let keys = keys.lock().unwrap();
                let held = keys.iter().enumerate().map(|(number, key)| {
                    json!({
                        "id": format!("id{number}"), "at": at, "policy": "out", "key": key.as_bytes(),
                        "why": "this message raises an alarm", "sender": key, "recipients": 1, "size": 1,
                    })
                });
                let unread = if keys.len() > 1 { vec!["evil: unreadable"] } else { Vec::new() };
                json!({ "held": { "messages": held.collect::<Vec<_>>(), "unread": unread } })
            };
            let _ = stream.write_all(format!("{reply}\n").as_bytes());
        }
    });
    done
}

/// A reply without what the time alone changes, such as the order of rates that are as high.
fn timeless(value: Value) -> Value {
    let of_field = |(name, one): (String, Value)| {
        let is_time = ["next", "retry_after"].contains(&&*name) && !one.is_null();
        (name, if is_time { json!("N") } else { timeless(one) })
    };
    match value {
        Value::Number(number) if number.is_f64() => json!("N"),
        Value::String(text) => {
            // Of a time to wait, the units change as well.
            let text = text.split(": the next passes in").next().unwrap_or_default();
            let parts = text.split(|c: char| c.is_ascii_digit()).filter(|part| !part.is_empty());
            json!(parts.collect::<Vec<_>>().join("#"))
        }
        Value::Array(all) => {
            let mut all: Vec<Value> = all.into_iter().map(timeless).collect();
            if all.iter().all(|one| one["pasted"].is_string()) {
                all.sort_by_key(|one| one["pasted"].to_string());
            }
            Value::Array(all)
        }
        Value::Object(all) => Value::Object(all.into_iter().map(of_field).collect()),
        other => other,
    }
}

fn encoded(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

/// All that can be asked with a token by GET, but for the stream: each route that there is.
fn requests(desk: &Desk) -> Vec<String> {
    let schema = desk.ask("GET", "/api/v1/openapi.json", &[], None).json();
    let (mut all, mut posts) = (Vec::new(), BTreeSet::new());
    for (path, methods) in schema["paths"].as_object().unwrap() {
        let name = path.trim_start_matches("/api/v1/");
        if methods["post"].is_object() {
            posts.insert(name);
        }
        let Some(get) = methods["get"].as_object() else { continue };
        let parameters =
            get.get("parameters").and_then(Value::as_array).cloned().unwrap_or_default();
        let named: Vec<&str> = parameters.iter().map(|one| one["name"].as_str().unwrap()).collect();
        if ["events", "openapi.json"].contains(&name) {
            continue;
        }
        all.push(format!("{path}?limit=50"));
        for parameter in named {
            let values: Vec<&str> = match parameter {
                "key" => KEYS.iter().copied().chain(["customer:acme", "alice@acme.test"]).collect(),
                "q" | "search" => vec!["evil", "test", "eve", "a", "192", "1"],
                "state" => vec!["blocked", "close", "suspected", "denied", "exempt"],
                "limit" => vec!["1", "2"],
                "cursor" => continue,
                other => panic!("{path} has a parameter that this test does not know: {other}"),
            };
            all.extend(values.iter().map(|value| format!("{path}?{parameter}={}", encoded(value))));
        }
    }
    let known = VERBS.iter().copied().chain(["session"]).collect();
    assert_eq!(posts, known, "a change that this test does not know");
    all.push("/api/v1/identities?key=alice%40acme.test&key=eve%40evil.test".to_owned());
    all
}

struct Tried {
    desk: Desk,
    acme: String,
    domain: String,
}

impl Tried {
    fn get(&self, path: &str, token: &str) -> Answer {
        self.desk.ask("GET", path, &[&bearer(token)], None)
    }

    fn change(&self, verb: &str, key: &str, token: &str) -> Answer {
        let mut body = json!({ "key": key });
        if ["allow", "deny"].contains(&verb) {
            body = json!({ "key": key, "seconds": 60, "reason": "" });
        }
        self.desk.ask("POST", &format!("/api/v1/{verb}"), &[&bearer(token)], Some(body))
    }

    /// All replies to whoever has `token`.
    fn replies(&self, token: &str) -> Vec<(String, u16, Value)> {
        let mut all = Vec::new();
        for path in requests(&self.desk) {
            let answer = self.get(&path, token);
            all.push((path, answer.status, timeless(answer.json())));
        }
        // What is refused to all of them changes nothing, so that it can be asked for twice.
        for (verb, key) in VERBS.iter().flat_map(|verb| KEYS.map(|key| (verb, key))) {
            let answer = self.change(verb, key, token);
            assert!([400, 403].contains(&answer.status), "{verb} {key}: {answer:?}");
            all.push((format!("{verb} {key}"), answer.status, timeless(answer.json())));
            let line = json!({ "who": { "token": token }, "verb": verb, "key": key });
            let asked = broker(&self.desk.path("broker"), format!("{line}\n").as_bytes());
            let asked: Value = serde_json::from_slice(&asked).unwrap();
            assert!(asked["refused"].is_object(), "{verb} {key}: {asked}");
            all.push((format!("broker: {verb} {key}"), 0, timeless(asked)));
        }
        for key in ["", "eve@evil.test", "customer:evil"] {
            let line = json!({ "who": { "token": token }, "verb": "held", "key": key });
            let asked = broker(&self.desk.path("broker"), format!("{line}\n").as_bytes());
            all.push((format!("broker: held {key}"), 0, serde_json::from_slice(&asked).unwrap()));
        }
        all
    }
}

fn tried() -> Tried {
    let desk = Desk::empty("changes_a_day = 1000");
    let add = |name: &str, scope: Option<Scope>| {
        let scope = Some(scope.unwrap());
        token::change(&desk.path("tokens"), |all| all.add(name, Role::Help, 0, FOREVER, scope))
    };
    let acme = add("acme", Scope::customer("acme")).unwrap();
    let domain = add("domain", Scope::domains(["ACME.test"])).unwrap();
    Tried { desk, acme, domain }
}

#[test]
fn what_others_have_is_neither_shown_nor_counted_nor_changed() {
    let tried = tried();
    let desk = &tried.desk;
    apply(desk, OWN);
    let own = ["auth:alice@acme.test", "auth:bob@shared.test", "alice@acme.test"];
    count(desk, &own, 12, "alice@acme.test", "192.0.2.7");
    count(desk, &["customer:acme", "domain:acme.test"], 12, "alice@acme.test", "192.0.2.7");
    count(desk, &["auth:close@acme.test", "auth:ceo@acme.test"], 9, "", "");
    raise_alarm(desk, "auth:carol@acme.test");
    sent(desk, "auth:alice@acme.test", 3);
    sent(desk, "auth:bob@shared.test", 1);
    let held = Arc::new(Mutex::new(vec!["auth:alice@acme.test"]));
    let released = queue(desk, &held);
    let (_broker, _web) = desk.both();
    for (verb, key) in [("deny", "dave@acme.test"), ("allow", "erin@acme.test")] {
        assert_eq!(tried.change(verb, key, &tried.acme).status, 200);
    }
    let stream = desk.connect();
    let request = format!(
        "GET /api/v1/events HTTP/1.1\r\nHost: localhost\r\n{}\r\n\r\n",
        bearer(&tried.acme)
    );
    (&stream).write_all(request.as_bytes()).unwrap();
    let mut text = String::new();
    let mut read_until = |part: &str| {
        while !text.contains(part) {
            let mut bytes = [0; 4096];
            let length = (&stream).read(&mut bytes).unwrap();
            assert!(length > 0, "{text}");
            text += &String::from_utf8_lossy(&bytes[..length]);
        }
        text.clone()
    };
    read_until("\"blocked\":");
    let before = [&tried.acme, &tried.domain].map(|token| tried.replies(token));
    let status = tried.get("/api/v1/status", &tried.acme).json();
    assert_eq!((&status["keys"], &status["blocked"]), (&json!(7), &json!(5)), "{status}");
    let status = tried.get("/api/v1/status", &tried.domain).json();
    assert_eq!((&status["keys"], &status["blocked"]), (&json!(5), &json!(3)), "{status}");

    // Others come.
    apply(desk, &format!("{OWN}{OTHERS}"));
    let others = ["auth:eve@evil.test", "eve@evil.test", "local_account:eve", "client:192.0.2.66"];
    count(desk, &others, 15, "eve@evil.test", "192.0.2.66");
    let others =
        ["customer:evil", "domain:evil.test", "eve@evil.test/alice@acme.test", "192.0.2.66"];
    count(desk, &others, 15, "eve@evil.test", "192.0.2.66");
    count(desk, &["sender:alice@acme.test"], 15, "eve@evil.test", "192.0.2.66");
    count(desk, &["auth:mallory@shared.test", "auth:eve2@evil.test"], 9, "", "");
    raise_alarm(desk, "auth:eve@evil.test");
    sent(desk, "auth:eve@evil.test", 7);
    sent(desk, "auth:mallory@shared.test", 7);
    held.lock().unwrap().extend(["auth:eve@evil.test", "sender:alice@acme.test"]);
    for (verb, key) in [("deny", "eve@evil.test"), ("allow", "eve3@evil.test")] {
        let body = json!({ "key": key, "seconds": 600, "reason": "evil alice@acme.test" });
        assert_eq!(desk.change(&format!("/api/v1/{verb}"), body).status, 200);
    }
    let mut glob = std::process::Command::new(env!("CARGO_BIN_EXE_exirate"));
    glob.args([
        "deny",
        "{eve,eve4}@evil.test",
        "--until",
        "1h",
        "--yes",
        "--reason",
        "evil",
        "--spool",
    ]);
    let glob = glob.arg(desk.folder.path()).output().unwrap();
    assert!(glob.status.code() < Some(2), "{glob:?}");
    let all = desk.get("/api/v1/status").json();
    assert!(all["keys"].as_u64() >= Some(18) && all["blocked"].as_u64() > Some(12), "{all}");

    let audit = desk.audit_log();
    let after = [&tried.acme, &tried.domain].map(|token| tried.replies(token));
    assert_eq!(desk.audit_log(), audit, "something of others was changed");
    for (before, after) in before.iter().flatten().zip(after.iter().flatten()) {
        assert_eq!(before, after);
        let (path, status, reply) = after;
        let text = reply.to_string();
        let is_echo = *status == 400
            || reply["refused"]["why"] == "malformed"
            || text.contains("expected one key, not a glob");
        for word in ["evil", "eve@", "mallory", "sender:"] {
            assert!(is_echo || !text.contains(word), "{path}: {text}");
        }
    }
    let usage = |key: &str, token: &str| {
        let answer = tried.get(&format!("/api/v1/usage?key={}", encoded(key)), token);
        answer.json()["sent"].clone()
    };
    let acme = &usage("customer:acme", &tried.acme)[0];
    assert_eq!(
        (&acme["days"][34]["recipients"], &acme["days"][33]["messages"]),
        (&json!(8), &json!(0))
    );
    let member =
        |number: usize| (&acme["members"][number]["key"], &acme["members"][number]["share"]);
    assert_eq!(member(0), (&json!("auth:alice@acme.test"), &json!(0.75)), "{acme}");
    assert_eq!(member(1), (&json!("auth:bob@shared.test"), &json!(0.25)), "{acme}");
    let domain = &usage("domain:acme.test", &tried.domain)[0];
    assert_eq!(domain["members"].as_array().unwrap().len(), 1, "{domain}");
    assert_eq!(usage("alice@acme.test", &tried.domain)[0]["hours"][23]["recipients"], 6);
    // What it has itself it sees and changes, but for its total.
    let mine = tried.change("deny", "auth:bob@shared.test", &tried.acme);
    assert_eq!(mine.status, 200, "{mine:?}");
    assert_eq!(tried.change("unblock", "bob@shared.test", &tried.domain).problem(), "bounds");
    assert_eq!(tried.change("unblock", "customer:acme", &tried.acme).problem(), "bounds");
    let done = tried.change("release", "alice@acme.test", &tried.acme);
    assert_eq!(done.json()["messages"], 1, "{done:?}");
    assert_eq!(*released.lock().unwrap(), "{\"do\":[\"release\",[\"id0\"]]}\n");
    let text = read_until("auth:bob@shared.test\",\"text\"");
    for word in ["evil", "eve@", "mallory", "192.0.2.66"] {
        assert!(!text.contains(word), "{text}");
    }
}

#[test]
fn what_refuses_a_mailbox_and_others_is_said_without_their_names() {
    let tried = tried();
    let desk = &tried.desk;
    apply(desk, OWN);
    count(desk, &["customer:acme"], 40, "bob@shared.test", "192.0.2.66");
    count(desk, &["auth:alice@acme.test"], 1, "", "");
    let glob = "{bob@shared,carol@acme}.test";
    let mut deny = std::process::Command::new(env!("CARGO_BIN_EXE_exirate"));
    deny.args(["deny", glob, "--until", "1h", "--yes", "--reason", "bob", "--spool"]);
    let done = deny.arg(desk.folder.path()).output().unwrap();
    assert!(done.status.code() < Some(2), "{done:?}");
    let (_broker, _web) = desk.both();
    let reply = |path: &str, token: &str| tried.get(path, token).json();
    let alice = reply("/api/v1/identity?key=alice%40acme.test", &tried.domain);
    assert_eq!(alice["reasons"], json!(["refused by the total of a group of senders"]), "{alice}");
    assert_eq!(alice["totals"], json!([]));
    let alice = reply("/api/v1/identity?key=alice%40acme.test", &tried.acme);
    assert_eq!(alice["reasons"], json!(["refused by the total of customer:acme"]), "{alice}");
    let carol = reply("/api/v1/identity?key=carol%40acme.test", &tried.domain);
    assert_eq!(carol["overrides"][0]["key"], "a group of senders", "{carol}");
    let done = tried.change("unblock", "carol@acme.test", &tried.domain);
    let detail = done.json()["detail"].to_string();
    assert!(detail.contains("a group of senders is denied until"), "{detail}");
    let done = tried.change("unblock", "alice@acme.test", &tried.domain).json();
    assert_eq!(done["said"][0], "the total of a group of senders refuses as well", "{done}");
    for text in [alice, carol, done] {
        let text = text.to_string();
        assert!(!text.contains("bob") && !text.contains("shared"), "{text}");
    }
    // Who may look only changes nothing, of his own either.
    let scope = Scope::customer("acme");
    let add = |all: &mut token::Tokens| all.add("look", Role::View, 0, FOREVER, scope);
    let look = token::change(&desk.path("tokens"), add).unwrap();
    assert_eq!(tried.change("unblock", "alice@acme.test", &look).problem(), "role");
    assert_eq!(reply("/api/v1/me", &look)["scope"], "customer acme");
}
