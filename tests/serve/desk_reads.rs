//! What the desk's API reads: who is suspected, denied and exempt, searches, what has happened, and the
//! stream of it.

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::net::IpAddr;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::UnixStream;
use std::path::Path;

use exirate::engine::{Algorithm, AlgorithmKind, Check, Kind, RecordKey, Update};
use exirate::policy::image::{build, install};
use exirate::policy::source::compile;
use exirate::rate::habits::Sensitivity;
use exirate::spool::habits::{SentMessage, habits_key};
use exirate::spool::{EventDetails, EventLimits, LogLimits, Options, Spool};
use exirate::store::Store as _;
use serde_json::{Value, json};

use super::desk::{Desk, bearer, now};

fn open(desk: &Desk) -> Spool {
    Spool::open(desk.folder.path(), Options::default()).unwrap()
}

/// Counts so many events of a record, whose limit is 10 an hour, from this client.
fn count(desk: &Desk, key: RecordKey<'_>, events: u32, client: &str) {
    let algorithm = Algorithm::MovingAverage { limit: 10.0, period: 3600.0 };
    let check = Check { update: Update::Strict, ..Check::new(key, algorithm) };
    let mut spool = open(desk);
    for _ in 0..events {
        spool.decide_one(&check, now).unwrap();
        if spool.has_events() {
            let client = client.as_bytes();
            spool.describe(&EventDetails { client, login: b"x", ..EventDetails::default() });
        }
    }
}

fn of_spec(name: &str) -> RecordKey<'_> {
    let identity_start = "1h/per_rcpt/".len();
    RecordKey { identity_start, ..name.as_bytes().into() }
}

fn of_policy(name: &str) -> RecordKey<'_> {
    let identity_start = "out/recipients/1h/".len();
    let algorithm = AlgorithmKind::MovingAverage;
    RecordKey { name: name.as_bytes(), identity_start, kind: Kind::Policy, algorithm }
}

fn encoded(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

fn pasted(list: &Value) -> Vec<String> {
    let of = |one: &Value| one["pasted"].as_str().unwrap().to_owned();
    list.as_array().unwrap().iter().map(of).collect()
}

/// Puts policies in force.
fn apply(desk: &Desk, text: &str) {
    let compiled = compile(Path::new("policy.toml"), text, &|_| Err("none".to_owned()));
    let policies = compiled.policies.unwrap_or_else(|| panic!("{:?}", compiled.diagnostics));
    install(desk.folder.path(), &build(&policies)).unwrap();
}

/// Has an account send to many strangers after weeks of little mail.
fn raise_alarm(desk: &Desk, identity: &str) {
    let mut spool = open(desk);
    let (end, mut name) = (now().seconds, Vec::new());
    let mut send = |at: i64, to: &str| {
        let client = Some(IpAddr::from([192, 0, 2, 7]));
        let message = SentMessage { at, client, recipients: [to.as_bytes()] };
        let key = habits_key(identity.as_bytes(), &mut name);
        spool.learn_habits(key, message, Sensitivity::Normal).unwrap().alarm.is_some()
    };
    for day in (1..60).rev() {
        send(end - day * 86_400, "friend@example.net");
    }
    let alarm = (0..1000).any(|stranger| send(end, &format!("stranger{stranger}@example.net")));
    assert!(alarm, "no alarm");
}

#[test]
fn who_is_suspected_is_shown_with_the_evidence_until_somebody_answers() {
    let desk = Desk::new("");
    apply(&desk, "version = 1\n[policy.out]\ndefault.habits = \"hold\"\n");
    raise_alarm(&desk, "auth:carol@example.org");
    let (_broker, _web) = desk.both();
    let list = desk.get("/api/v1/keys?state=suspected").json();
    let carol = &list["keys"][0];
    assert_eq!(pasted(&list["keys"]), ["auth:carol@example.org"]);
    assert_eq!(carol["state"], Value::Null);
    let suspicion = &carol["suspicion"];
    let evidence = suspicion["evidence"].as_str().unwrap();
    let strangers = suspicion["strangers"].as_u64().unwrap();
    assert!(
        evidence.starts_with(&format!("{strangers} recipients that it has never written to")),
        "{evidence}"
    );
    assert!(carol["reason"].as_str().unwrap().ends_with(evidence));
    assert_eq!(suspicion["action"], "hold");
    for time in ["since", "until", "alarm_at"] {
        assert!(suspicion[time].as_str().unwrap().ends_with('Z'), "{suspicion}");
    }
    assert_eq!(desk.get("/api/v1/status").json()["suspected"], 1);
    let identity = desk.get("/api/v1/identity?key=Carol%40example.org").json();
    assert_eq!(identity["suspicion"], *suspicion);
    let found = desk.get("/api/v1/search?q=CAROL").json();
    assert_eq!(pasted(&found["found"]), ["carol@example.org"]);
    assert_eq!(found["found"][0]["suspected"], true);
    let answer = desk.change("/api/v1/accept", json!({ "key": "carol@example.org" }));
    assert_eq!(answer.status, 200, "{answer:?}");
    let said = answer.json()["said"].to_string();
    assert!(said.contains(" stay known until it has written to "), "{said}");
    assert_eq!(desk.get("/api/v1/keys?state=suspected").json()["keys"], json!([]));
    let after = desk.get("/api/v1/identity?key=carol%40example.org").json();
    assert_eq!(after["suspicion"]["answer"], "accepted");
    let changes = desk.get("/api/v1/changes?key=carol%40example.org").json();
    assert_eq!(changes["changes"][0]["what"], "accept");
    assert_eq!(changes["changes"][0]["who"], "token:desk");
}

#[test]
fn who_is_denied_or_exempt_is_listed() {
    let desk = Desk::new("");
    apply(
        &desk,
        "version = 1\n[identity]\nqualify = \"example.org\"\n[policy.out]\n\
         default.recipients = \"10/1h\"\n\
         customer.acme = { domains = [\"acme.test\"], total.recipients = \"30/1h\" }\n\
         user.\"dave@example.org\".recipients = \"5/1h\"\nuser.erin.recipients = \"6/1h\"\n\
         [[policy.out.exempt]]\nmatch = [\"ceo@example.org\"]\nreason = \"letters\"\n",
    );
    count(&desk, of_policy("out/recipients/1h/auth:ceo@example.org"), 20, "192.0.2.7");
    count(&desk, of_policy("out/recipients/1h/auth:close@example.org"), 9, "192.0.2.7");
    let (_broker, _web) = desk.both();
    let body = |key: &str| json!({ "key": key, "seconds": 600, "reason": "a call" });
    assert_eq!(desk.change("/api/v1/deny", body("dave@example.org")).status, 200);
    assert_eq!(desk.change("/api/v1/allow", body("erin@example.org")).status, 200);
    let of = |state: &str| desk.get(&format!("/api/v1/keys?state={state}")).json()["keys"].clone();
    let denied = of("denied");
    assert_eq!(pasted(&denied), ["dave@example.org"]);
    assert_eq!(denied[0]["override"]["who"], "web=token:desk");
    assert_eq!(denied[0]["override"]["reason"], "a call");
    let exempt = of("exempt");
    assert_eq!(pasted(&exempt), ["erin@example.org", "auth:ceo@example.org"]);
    assert!(exempt[1]["reason"].as_str().unwrap().contains("exempts the key (letters)"));
    assert_eq!(pasted(&of("close")), ["auth:close@example.org"]);
    assert_eq!(of("close")[0]["rule"], "default");
    let status = desk.get("/api/v1/status").json();
    assert_eq!((&status["denied"], &status["exempt"]), (&json!(1), &json!(2)));
    assert_eq!(desk.get("/api/v1/keys?state=odd").problem(), "malformed");
    // An override without a record is found as well.
    let found = desk.get("/api/v1/search?q=dave").json();
    assert_eq!(pasted(&found["found"]), ["dave@example.org"]);
    let policies = desk.get("/api/v1/policies").json();
    let out = &policies["policies"][0];
    assert_eq!((&out["name"], &out["exempt"][0]["reason"]), (&json!("out"), &json!("letters")));
    let limit = &out["tables"][0]["limits"][0];
    assert_eq!((&limit["unit"], &limit["text"]), (&json!("recipients"), &json!("10/1h")));
    assert_eq!((&out["customers"], &out["users"]), (&json!(1), &json!(2)));
    let tables = out["tables"].as_array().unwrap();
    let acme = tables.iter().find(|table| table["table"] == "customer acme").unwrap();
    let total = &acme["limits"][0];
    assert_eq!((&total["total"], &total["text"]), (&json!(true), &json!("30/1h")));
    // A login without its domain is the same one.
    assert_eq!(desk.change("/api/v1/deny", body("Close")).status, 200);
    for name in ["close", "CLOSE@Example.org", "auth:close"] {
        let one = desk.get(&format!("/api/v1/identity?key={}", encoded(name))).json();
        assert_eq!(pasted(&one["records"]), ["auth:close@example.org"], "{name}: {one}");
        assert_eq!(one["overrides"][0]["reason"], "a call", "{name}: {one}");
        assert_eq!(one["refused"], true, "{name}: {one}");
    }
    assert_eq!(desk.change("/api/v1/end", json!({ "key": "close" })).status, 200);
}

#[test]
fn what_is_found_is_that_identity_and_no_other() {
    let desk = Desk::new("");
    let specs = [
        "PAULA@Example.ORG.",
        "paula@example.org",
        "\u{202e}gro@x",
        "a*b?c[d]",
        "1h/per_rcpt/nested",
        "a\nb",
        "<img src=x>",
        "paul",
    ];
    for name in specs {
        count(&desk, of_spec(&format!("1h/per_rcpt/{name}")), 3, "192.0.2.7");
    }
    for name in ["auth:paula@example.org", "auth:paula@example.org,client:192.0.2.7", "auth:a,,b"] {
        count(&desk, of_policy(&format!("out/recipients/1h/{name}")), 4, "192.0.2.7");
    }
    let (_broker, _web) = desk.both();
    // Before there is an index, and with one.
    for round in 0..2 {
        let paula = desk.get("/api/v1/identity?key=Paula%40Example.org").json();
        let records = pasted(&paula["records"]);
        let known: BTreeSet<&str> = records.iter().map(String::as_str).collect();
        let expected = [
            "PAULA@Example.ORG.",
            "auth:paula@example.org",
            "auth:paula@example.org,client:192.0.2.7",
            "paula@example.org",
        ];
        assert_eq!(known, BTreeSet::from(expected), "{round}");
        assert_eq!(desk.get("/api/v1/status").status, 200);
    }
    let hits = pasted(&desk.get("/api/v1/search?q=paul").json()["found"]);
    assert_eq!(hits[0], "paul", "what is the whole name comes first: {hits:?}");
    assert_eq!(hits.len(), 4, "{hits:?}");
    for (part, bytes) in [
        ("gro", "\u{202e}gro@x".as_bytes()),
        ("a*b?", b"a*b?c[d]"),
        ("nested", b"1h/per_rcpt/nested"),
        ("a\nb", b"a\nb"),
        ("<IMG", b"<img src=x>"),
    ] {
        let found = desk.get(&format!("/api/v1/search?q={}", encoded(part))).json();
        let hits = pasted(&found["found"]);
        assert_eq!(hits.len(), 1, "{part}");
        let identity = desk.get(&format!("/api/v1/identity?key={}", encoded(&hits[0]))).json();
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(identity["records"][0]["state"]["key_hex"], hex, "{part}");
        assert_eq!(identity["records"].as_array().unwrap().len(), 1, "{part}");
    }
    // A panel's list, in its order; one that is nobody is there as well.
    let list = desk.get("/api/v1/identities?key=a%2Cb&key=nobody&key=paul").json();
    let all = list["identities"].as_array().unwrap();
    assert_eq!(pasted(&all[0]["records"]), ["auth:a,,b"]);
    assert_eq!((&all[1]["records"], &all[1]["refused"]), (&json!([]), &json!(false)));
    assert_eq!(pasted(&all[2]["records"]), ["paul"]);
    let many = "key=x&".repeat(101);
    assert_eq!(desk.get(&format!("/api/v1/identities?{many}")).problem(), "malformed");
    assert_eq!(desk.get("/api/v1/identities?key=paul&key=*").problem(), "malformed");
}

#[test]
fn a_list_is_read_by_pages_while_rates_change() {
    let desk = Desk::new("");
    for number in 0..30 {
        let name = format!("1h/per_rcpt/key{number:02}");
        count(&desk, of_spec(&name), 11 + number, "192.0.2.7");
    }
    let (_broker, _web) = desk.both();
    let (mut seen, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = desk.get(&format!("/api/v1/keys?limit=7&search=key{cursor}")).json();
        seen.extend(pasted(&page["keys"]));
        let Some(next) = page["next"].as_str() else { break };
        cursor = format!("&cursor={next}");
        // One that was shown rises, and the last as well: to a page that was shown.
        for name in ["1h/per_rcpt/key29", "1h/per_rcpt/key00"] {
            count(&desk, of_spec(name), 40, "192.0.2.7");
        }
        // Something is changed: the next page is of another look.
        let body = json!({ "key": format!("other{}", seen.len()), "seconds": 60, "reason": "" });
        assert_eq!(desk.change("/api/v1/deny", body).status, 200);
    }
    let different: BTreeSet<&String> = seen.iter().collect();
    assert_eq!(different.len(), seen.len(), "one is shown twice: {seen:?}");
    let missing: Vec<String> = (0..30)
        .map(|number| format!("key{number:02}"))
        .filter(|name| !seen.contains(name))
        .collect();
    assert_eq!(missing, ["key00"], "that one rose to a page before");
}

#[test]
fn what_was_refused_and_changed_is_listed_by_pages() {
    let desk = Desk::new("");
    count(&desk, of_policy("out/recipients/1h/auth:frank@example.org"), 12, "192.0.2.7");
    count(&desk, of_policy("out/recipients/1h/auth:grace@example.org"), 12, "198.51.100.9");
    let (_broker, _web) = desk.both();
    let of_frank = desk.get("/api/v1/crossings?key=Frank%40example.org").json();
    let all = of_frank["crossings"].as_array().unwrap();
    assert!(!all.is_empty(), "{of_frank}");
    for one in all {
        assert_eq!(one["pasted"], "auth:frank@example.org");
        assert_eq!(one["client"], "192.0.2.7");
        assert!(one["text"][0].as_str().unwrap().starts_with("10/1h: "), "{one}");
    }
    assert_eq!(of_frank["clients"][0]["client"], "192.0.2.7");
    assert_eq!(of_frank["clients"].as_array().unwrap().len(), 1);
    // All of them, one by one.
    let (mut ids, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = desk.get(&format!("/api/v1/crossings?limit=1{cursor}")).json();
        let page_ids = page["crossings"].as_array().unwrap().iter().map(|one| one["id"].clone());
        ids.extend(page_ids.map(|id| id.as_str().unwrap().to_owned()));
        let Some(next) = page["next"].as_str() else { break };
        cursor = format!("&cursor={next}");
    }
    let whole = desk.get("/api/v1/crossings").json();
    let whole: Vec<&str> = whole["crossings"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["id"].as_str().unwrap())
        .collect();
    assert_eq!(ids, whole);
    assert_eq!(BTreeSet::from_iter(&ids).len(), ids.len());
    for key in ["a@x", "b@x", "a@x"] {
        let body = json!({ "key": key, "seconds": 60, "reason": format!("key={key} key=b@x") });
        assert_eq!(desk.change("/api/v1/deny", body).status, 200);
    }
    let of_a = desk.get("/api/v1/changes?key=A%40x&limit=1").json();
    assert_eq!(of_a["changes"][0]["key"], "a@x");
    let next = of_a["next"].as_str().unwrap();
    let of_a = desk.get(&format!("/api/v1/changes?key=a%40x&limit=1&cursor={next}")).json();
    assert_eq!((&of_a["changes"][0]["key"], &of_a["next"]), (&json!("a@x"), &Value::Null));
    let all = desk.get("/api/v1/changes").json();
    let keys: Vec<&Value> =
        all["changes"].as_array().unwrap().iter().map(|one| &one["key"]).collect();
    assert_eq!(keys, ["a@x", "b@x", "a@x"]);
    assert_eq!(desk.get("/api/v1/changes?cursor=odd").problem(), "malformed");
}

/// A stream of events.
struct Events {
    stream: UnixStream,
    text: String,
}

/// An event.
#[derive(Debug)]
struct SentEvent {
    event: String,
    id: Option<String>,
    data: Value,
}

impl Events {
    fn begin(desk: &Desk, last: Option<&str>) -> Self {
        let mut stream = desk.connect();
        let last = last.map(|id| format!("Last-Event-ID: {id}\r\n")).unwrap_or_default();
        let request = format!(
            "GET /api/v1/events HTTP/1.1\r\nHost: localhost\r\n{last}{}\r\n\r\n",
            bearer(&desk.view)
        );
        stream.write_all(request.as_bytes()).unwrap();
        Self { stream, text: String::new() }
    }

    /// The next event, or an id without one.
    fn next(&mut self) -> SentEvent {
        loop {
            // Between the lines of chunked encoding.
            if let Some((block, rest)) = self.text.split_once("\n\n") {
                let of = |name: &str| {
                    let line = block.lines().find_map(|line| line.strip_prefix(name));
                    line.map(|value| value.trim_start().to_owned())
                };
                let data =
                    of("data:").map_or(Value::Null, |data| serde_json::from_str(&data).unwrap());
                let sent =
                    SentEvent { event: of("event:").unwrap_or_default(), id: of("id:"), data };
                self.text = rest.to_owned();
                if sent.id.is_some() || !sent.event.is_empty() {
                    return sent;
                }
                continue;
            }
            let mut part = [0; 65_536];
            let length = self.stream.read(&mut part).unwrap();
            assert!(length > 0, "the stream has ended: {}", self.text);
            self.text += &String::from_utf8_lossy(&part[..length]);
        }
    }

    /// The events up to the first for which `is_last`, without those of how keys stand.
    fn until(&mut self, is_last: impl Fn(&SentEvent) -> bool) -> Vec<SentEvent> {
        let mut all = Vec::new();
        loop {
            let next = self.next();
            let ends = is_last(&next);
            if next.event != "state" {
                all.push(next);
            }
            if ends {
                return all;
            }
        }
    }
}

#[test]
fn a_stream_has_what_happens_and_continues_where_it_ended() {
    let desk = Desk::new("");
    let (_broker, web) = desk.both();
    let mut stream = Events::begin(&desk, None);
    let first = stream.next();
    assert!(first.id.is_some(), "it may be continued from its beginning: {first:?}");
    stream.until(|one| one.event == "state");
    count(&desk, of_policy("out/recipients/1h/auth:heidi@example.org"), 12, "192.0.2.7");
    let is_heidi = |one: &SentEvent| one.data["pasted"] == "auth:heidi@example.org";
    let crossing = stream.until(is_heidi).pop().unwrap();
    assert_eq!((&*crossing.event, &crossing.data["client"]), ("crossing", &json!("192.0.2.7")));
    let id = crossing.id.clone().unwrap();
    let deny = |key: &str| {
        let body = json!({ "key": key, "seconds": 60, "reason": "" });
        assert_eq!(desk.change("/api/v1/deny", body).status, 200);
    };
    deny("a@x");
    let change = stream.until(|one| one.event == "change").pop().unwrap();
    assert_eq!((&change.data["key"], &change.data["who"]), (&json!("a@x"), &json!("token:desk")));
    drop(stream);
    deny("b@x");
    let is_b = |one: &SentEvent| one.data["key"] == "b@x";
    // The crossing itself is not repeated; what came after it is.
    let keys = |all: &[SentEvent]| -> Vec<Value> {
        let changes = all.iter().filter(|one| one.event == "change");
        changes.map(|one| one.data["key"].clone()).collect()
    };
    let again = Events::begin(&desk, Some(&id)).until(is_b);
    assert!(!again.iter().any(is_heidi), "{again:?}");
    assert_eq!(keys(&again), [json!("a@x"), json!("b@x")]);
    // By another process, and from the beginning.
    drop(web);
    let web = desk.start("web", Some("web"));
    let again = Events::begin(&desk, Some(&id)).until(is_b);
    assert_eq!(keys(&again), [json!("a@x"), json!("b@x")]);
    let again = Events::begin(&desk, first.id.as_deref()).until(is_b);
    assert_eq!(again.iter().filter(|one| is_heidi(one)).count(), 1, "{again:?}");
    // What nobody can have had.
    for id in ["nonsense", "x-5.000000"] {
        let missed = Events::begin(&desk, Some(id)).next();
        assert_eq!(missed.event, "missed", "{id}: {missed:?}");
        assert!(missed.data["detail"].is_string());
    }
    drop(web);
}

#[test]
fn what_was_erased_or_removed_from_the_journal_is_not_sent_again() {
    let desk = Desk::new("");
    let (_broker, web) = desk.both();
    let mut stream = Events::begin(&desk, None);
    let first = stream.next().id.unwrap();
    stream.until(|one| one.event == "state");
    count(&desk, of_policy("out/recipients/1h/auth:ivan@example.org"), 12, "192.0.2.7");
    let is_of = |name: &'static str| move |one: &SentEvent| one.data["pasted"] == name;
    stream.until(is_of("auth:ivan@example.org"));
    let mut erase = std::process::Command::new(env!("CARGO_BIN_EXE_exirate"));
    erase.args(["erase", "ivan@example.org", "--yes", "--spool"]).arg(desk.folder.path());
    let done = erase.output().unwrap();
    assert!(done.status.code() == Some(0), "{done:?}");
    let missed = stream.until(|one| one.event == "missed").pop().unwrap();
    assert!(missed.data["detail"].is_string());
    // The stream goes on.
    count(&desk, of_policy("out/recipients/1h/auth:judy@example.org"), 12, "192.0.2.7");
    let judy = stream.until(is_of("auth:judy@example.org")).pop().unwrap();
    let again = Events::begin(&desk, Some(&first)).until(is_of("auth:judy@example.org"));
    assert_eq!(again[0].event, "missed", "{again:?}");
    assert!(!again.iter().any(is_of("auth:ivan@example.org")), "{again:?}");
    // The journal is begun again, and again: it has two files.
    let mut spool = open(&desk);
    let small = LogLimits { max_bytes: 1 << 20, keep: None };
    let limits = EventLimits { crossings: small, ..spool.event_limits().unwrap() };
    spool.set_event_limits(limits).unwrap();
    let journal = desk.path("exirate/crossings");
    let file = || std::fs::metadata(&journal).unwrap().ino();
    let mut number = 0;
    let long = [b'x'; 300];
    let details =
        EventDetails { login: &long, sender: &long, recipient: &long, ..EventDetails::default() };
    let all = |events: &[SentEvent]| events.iter().filter(|one| one.event == "crossing").count();
    let is_last = |number: usize| {
        let name = json!(number.to_string());
        move |one: &SentEvent| one.data["pasted"] == name
    };
    for _ in 0..2 {
        let (current, before) = (file(), number);
        while file() == current {
            number += 1;
            let name = format!("1h/per_rcpt/{number}");
            let algorithm = Algorithm::MovingAverage { limit: 1.0, period: 3600.0 };
            spool.decide_one(&Check::new(of_spec(&name), algorithm), now).unwrap();
            spool.describe(&details);
        }
        // None is lost while the journal is read.
        assert_eq!(all(&stream.until(is_last(number))), number - before);
    }
    drop(spool);
    drop((stream, web));
    // Another process finds less in the journal.
    let _web = desk.start("web", Some("web"));
    let again = Events::begin(&desk, judy.id.as_deref()).until(is_last(number));
    assert_eq!(again[0].event, "missed", "{again:?}");
    assert!((1..number).contains(&all(&again)), "{} of {number}", all(&again));
}
