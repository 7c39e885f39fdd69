//! Customers: totals of several domains and users, and what commands say of them.

use std::process::Output;
use std::time::SystemTime;

use exirate::event::{AclStage, Event, Origin};
use exirate::policy::evaluator::{Evaluator, Observer, PolicySession, Step};
use exirate::policy::word::Verdict;
use exirate::rate::Timestamp;
use exirate::spool::{Options, Spool};
use serde_json::Value;

use crate::{exirate, json, stderr, stdout};

const POLICY: &str = r#"version = 1
[policy.out]
update = "strict"
default.messages = "100/1h"
users = "users.csv"
[policy.out.package.gold]
messages = "50/1h"
[policy.out.customer.acme]
domains = ["A.test", "b.test"]
package = "gold"
total = { messages = "3/1h" }
[policy.all]
key = ["server"]
when = "authenticated"
default.messages = "1000/1h"
"#;
const USERS: &str = "user,customer,habits\nann@c.test,acme,observe\n";

/// A spool directory with the policies in use.
struct Machine(tempfile::TempDir);

impl Machine {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("spool")).unwrap();
        let machine = Self(dir);
        machine.write("p.toml", POLICY);
        machine.write("users.csv", USERS);
        let output = machine.run(&["policy", "apply", "p.toml", "--spool", "spool"]);
        assert_eq!(stderr(&output), "");
        machine
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.0.path().join(name), text).unwrap();
    }

    fn run(&self, arguments: &[&str]) -> Output {
        exirate().args(arguments).current_dir(&self.0).output().unwrap()
    }

    /// Counts a message of `login` by the policies `names`; whether it is accepted.
    fn sends(&self, names: &str, login: &str) -> bool {
        let spool = self.0.path().join("spool");
        let mut database = Spool::open(&spool, Options::default()).unwrap();
        let client = Origin::Client([192, 0, 2, 7].into());
        let event = Event { auth: Some(login), client, ..Event::default() };
        let step = Step::new(AclStage::Mail, event);
        let mut session = PolicySession::default();
        let evaluated = Evaluator::open(&spool).evaluate(
            &mut session,
            names,
            &step,
            Ok(&mut database),
            now,
            &mut Nothing,
        );
        assert_eq!(evaluated.failure, None);
        evaluated.outcome.verdict == Verdict::Accept
    }
}

struct Nothing;

impl Observer for Nothing {}

fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    Timestamp { seconds: since.as_secs() as i64, micros: since.subsec_micros() }
}

#[test]
fn a_total_is_of_the_users_of_a_customer_together() {
    let machine = Machine::new();
    let all = ["x@a.test", "Y@B.test", "z@b.test", "Ann@C.test", "other@c.test", "x@a.test"];
    assert_eq!(
        all.map(|login| machine.sends("out", login)),
        [true, true, true, false, true, false]
    );

    // Who was refused by the total has it explained.
    for key in ["ann@c.test", "customer:acme"] {
        let output = machine.run(&["explain", key, "--spool", "spool"]);
        let text = stdout(&output);
        let first = format!("{key} cannot send now: refused by the total of customer:acme; ");
        let now = text.starts_with(&first) || key == "customer:acme";
        assert!(now && text.contains("\ncustomer:acme: refused"), "{key}: {text}");
        let rule = "by        policy out, which counts messages; rule: customer acme (total)";
        assert!(text.contains(rule), "{key}: {text}");
        let now = "now, customer:acme, out/messages by the rule customer acme (total)";
        assert!(text.contains(now), "{key}: {text}");
    }
    let output = machine.run(&["explain", "x@a.test", "--now", "--spool", "spool"]);
    assert!(stdout(&output).contains("by the rule package gold, from customer acme"));
    let output = machine.run(&["explain", "other@c.test", "--spool", "spool"]);
    assert!(!stdout(&output).contains("acme"), "{}", stdout(&output));

    let output = machine.run(&["unblock", "customer:acme", "--spool", "spool"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(machine.sends("out", "ann@c.test"));
    let output = machine.run(&["deny", "customer:acme", "--spool", "spool"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(!machine.sends("out", "ann@c.test") && machine.sends("out", "other@c.test"));
}

/// A total refuses who is within the limits of his own: commands say so of him.
#[test]
fn a_total_that_refuses_is_told_of_its_users() {
    let machine = Machine::new();
    let policy = POLICY
        .replace("\"strict\"", "\"leaky\"")
        .replace("{ messages = \"3/1h\" }", "{ messages = \"3 daily\" }");
    machine.write("p.toml", &policy);
    let run = |arguments: &[&str]| {
        let output = machine.run(&[arguments, &["--spool", "spool"]].concat());
        (output.status.code(), stdout(&output), stderr(&output))
    };
    let (code, ..) = run(&["policy", "apply", "p.toml"]);
    assert_eq!(code, Some(0));
    for _ in 0..3 {
        assert!(machine.sends("out", "x@a.test"));
    }
    assert!(!machine.sends("out", "x@a.test") && !machine.sends("out", "y@b.test"));

    let (code, text, _) = run(&["explain", "--now", "x@a.test"]);
    assert_eq!(code, Some(0));
    assert!(!text.contains("; passes"), "{text}");
    assert!(text.contains("; refused by the total of customer:acme\n"), "{text}");
    assert!(text.contains("now, customer:acme, out/messages by the rule customer acme (total)"));
    let (code, text, _) = run(&["show", "x@a.test"]);
    assert_eq!(code, Some(0));
    let first = "auth:x@a.test: under the limit, and refused by the total of customer:acme\n";
    assert!(text.starts_with(first), "{text}");
    assert!(text.contains("next event    refused by the total of customer:acme"), "{text}");
    assert!(text.contains("customer:acme (out/messages, daily): refuses; would pass"), "{text}");
    let output = machine.run(&["show", "x@a.test", "--json", "--spool", "spool"]);
    assert_eq!(json(&output)[0]["refused_by"][0], "customer:acme");

    // Of one who was only ever refused, nothing is counted.
    for command in [&["explain", "--now"][..], &["show"]] {
        let (code, text, notes) = run(&[command, &["y@b.test"]].concat());
        assert_eq!(code, Some(0), "{notes}");
        let note = "y@b.test has no record of its own; it is refused by the total of customer:acme";
        assert!(notes.contains(note), "{notes}");
        assert!(text.contains("customer:acme"), "{text}");
    }
    let (code, _, notes) = run(&["show", "z@other.test"]);
    assert_eq!((code, notes.contains("acme")), (Some(1), false), "{notes}");
    for user in ["x@a.test", "y@b.test"] {
        let (_, _, notes) = run(&["unblock", user]);
        let note = "the total of customer:acme refuses as well: `exirate unblock customer:acme \
                    --spool spool` resets it";
        assert!(notes.contains(note), "{notes}");
    }

    // A user who is allowed is still held by the total, until that is allowed as well.
    let (code, _, notes) = run(&["allow", "x@a.test"]);
    assert_eq!(code, Some(0), "{notes}");
    let note = "the total of customer:acme still holds; `exirate allow customer:acme --spool \
                spool` lifts it";
    assert!(notes.contains(note), "{notes}");
    assert!(!machine.sends("out", "x@a.test"));
    assert_eq!(run(&["allow", "customer:acme"]).0, Some(0));
    assert!(machine.sends("out", "x@a.test"));
    let (_, text, _) = run(&["show", "x@a.test"]);
    assert!(!text.contains("refused") && text.contains("passes (allowed)"), "{text}");
    let (_, _, notes) = run(&["allow", "y@b.test"]);
    assert!(!notes.contains("still holds"), "{notes}");
}

/// The total of a domain is told of as that of a customer.
#[test]
fn the_total_of_a_domain_is_told_of_its_users() {
    let machine = Machine::new();
    let policy = POLICY.to_owned()
        + "[policy.dom]\ndefault.total = { messages = \"1 daily\" }\n\
         [[policy.dom.exempt]]\nmatch = [\"ceo@d.test\"]\nreason = \"letter\"\n";
    machine.write("p.toml", &policy);
    let applied = machine.run(&["policy", "apply", "p.toml", "--spool", "spool"]);
    assert_eq!(applied.status.code(), Some(0), "{}", stderr(&applied));
    assert!(machine.sends("dom", "a@d.test") && !machine.sends("dom", "b@d.test"));
    let now = |user| machine.run(&["explain", "--now", user, "--spool", "spool"]);
    assert!(stderr(&now("b@d.test")).contains("refused by the total of domain:d.test"));
    assert!(!stderr(&now("ceo@d.test")).contains("refused"), "exempt from the total as well");
    assert!(!stderr(&now("a@e.test")).contains("refused"));
}

#[test]
fn show_says_whose_customer_a_user_is_and_where_the_package_is_from() {
    let machine = Machine::new();
    let show = ["policy", "show", "--policy", "out", "--file", "p.toml", "--user"];
    let output = machine.run(&[&show[..], &["ann@c.test"]].concat());
    let lines: Vec<String> = stdout(&output)
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect();
    assert_eq!(
        lines,
        [
            "POLICY LIMIT UNIT PER RULE WHERE",
            "out 50/1h messages ann@c.test package gold p.toml:7:12",
            "out 3/1h messages all of customer acme customer acme p.toml:11:22",
            "out: package gold, from customer acme",
            "out: habits observe, sensitivity normal (user ann@c.test)",
        ]
    );
    let output = machine.run(&[&show[..], &["x@a.test", "--json"]].concat());
    let found = &json(&output)["policies"][0];
    assert_eq!((&found["customer"], &found["package"]), (&"acme".into(), &"gold".into()));
    assert_eq!(found["package_from"], "customer acme");
    assert_eq!(found["habits"], Value::Null);
    let found = json(&machine.run(&[&show[..], &["ann@c.test", "--json"]].concat()));
    let habits = &found["policies"][0]["habits"];
    assert_eq!(habits["rule"], "user ann@c.test");
    assert_eq!((&habits["habits"], &habits["sensitivity"]), (&"observe".into(), &"normal".into()));
}

#[test]
fn lint_and_diff_know_customers() {
    let machine = Machine::new();
    let other = POLICY.replace("\"3/1h\"", "\"4/1h\"").replace(", \"b.test\"", "")
        + "[policy.out.customer.empty]\n[policy.out.package.iron]\nmessages = \"1/1h\"\n\
           [policy.out.customer.Empty]\n";
    machine.write("other.toml", &other);
    let output = machine.run(&["policy", "lint", "other.toml"]);
    let found = stdout(&output);
    for line in [
        "other.toml:16:22: warning: the customer \"empty\" has no domain and no user",
        "other.toml:17:21: warning: no user, domain or customer has the package \"iron\": \
         it applies only where a front end hands it over",
        "other.toml:16:22: warning: the customers \"Empty\" and \"empty\" are two, with a total each: \
         their names differ in case only",
    ] {
        assert!(found.lines().any(|one| one == line), "{found}");
    }
    machine.write("users.csv", &USERS.replace("acme", ""));
    let output = machine.run(&["policy", "diff", "p.toml", "other.toml"]);
    let found = stdout(&output);
    for line in [
        "- policy.out.customer \"acme\".total.messages = 3 / 1h",
        "+ policy.out.customer \"acme\".total.messages = 4 / 1h",
        "- policy.out.domain \"b.test\".customer = acme",
    ] {
        assert!(found.lines().any(|one| one == line), "{found}");
    }
}

#[test]
fn all_that_goes_through_a_server_is_counted_together() {
    let machine = Machine::new();
    for login in ["x@a.test", "y@c.test"] {
        assert!(machine.sends("all", login));
    }
    let output = machine.run(&["list", "--json", "--spool", "spool"]);
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap().to_lowercase();
    let found = &json(&output)[0];
    assert_eq!(found["key"], format!("server:{}", name.trim()));
    assert_eq!(found["rate"].as_f64().unwrap().round(), 2.0);
}

#[test]
fn usage_of_a_customer_or_a_domain_is_that_of_its_accounts() {
    let machine = Machine::new();
    // The fourth of acme is refused.
    for (login, times) in [("x@a.test", 2), ("ann@c.test", 2), ("bob@c.test", 5), ("carl", 1)] {
        for _ in 0..times {
            machine.sends("*", login);
        }
    }
    let usage =
        |arguments: &[&str]| machine.run(&[&["usage"], arguments, &["--spool", "spool"]].concat());
    let rows = |by: &str| -> Vec<(String, u64)> {
        let list = json(&usage(&["--by", by, "--json"]));
        assert_eq!(list["total"]["messages"], 9, "{by}");
        let rows = list["rows"].as_array().unwrap().clone();
        let row = |row: &Value| {
            (row["key"].as_str().unwrap().to_owned(), row["messages"].as_u64().unwrap())
        };
        let mut rows: Vec<_> = rows.iter().map(row).collect();
        rows.sort();
        rows
    };
    let of = |rows: &[(&str, u64)]| -> Vec<(String, u64)> {
        rows.iter().map(|(key, count)| ((*key).to_owned(), *count)).collect()
    };
    assert_eq!(rows("customer"), of(&[("", 6), ("customer:acme", 3)]));
    assert_eq!(rows("domain"), of(&[("", 1), ("domain:a.test", 2), ("domain:c.test", 6)]));
    let users =
        [("auth:ann@c.test", 1), ("auth:bob@c.test", 5), ("auth:carl", 1), ("auth:x@a.test", 2)];
    assert_eq!(rows("user"), of(&users));
    let acme = json(&usage(&["customer:acme", "--json"]));
    let members = acme[0]["members"].as_array().unwrap();
    assert_eq!(members.len(), 2);
    assert_eq!(acme[0]["days"].as_array().unwrap().len(), 35);
    assert_eq!(acme[0]["days"][34]["messages"], 3);
    let shown = stdout(&usage(&["x@a.test", "--days", "1"]));
    assert!(shown.starts_with("auth:x@a.test: in the last 24 hours 0 recipients"), "{shown}");
    let csv = stdout(&usage(&["--csv", "--sort", "messages", "--days", "1"]));
    assert_eq!(csv.lines().nth(1), Some("auth:bob@c.test,5,0,0,0,0"));
    // What cannot be known is refused, with the reason.
    for by in ["script", "client"] {
        let refused = usage(&["--by", by]);
        assert_eq!(refused.status.code(), Some(2));
        assert!(stderr(&refused).contains("strangers could fill"), "{}", stderr(&refused));
    }
    assert_eq!(usage(&["nobody@c.test"]).status.code(), Some(1));
    // It is of a person, and goes with it.
    let erased = machine.run(&["erase", "bob@c.test", "--yes", "--spool", "spool"]);
    assert_eq!(erased.status.code(), Some(0), "{}", stderr(&erased));
    assert_eq!(usage(&["bob@c.test"]).status.code(), Some(1));
    let status = json(&machine.run(&["status", "--json", "--spool", "spool"]));
    assert_eq!(status["sent_today"]["messages"], 4);
    let metrics = stdout(&machine.run(&["stats", "--prometheus", "--spool", "spool"]));
    assert!(metrics.contains("\nexirate_sent_messages_today 4\n"), "{metrics}");
    let shown = stdout(&machine.run(&["show", "x@a.test", "--spool", "spool"]));
    let line = "auth:x@a.test sent today 2 messages to 0 recipients, yesterday 0 to 0";
    assert!(shown.contains(line), "{shown}");
}

#[test]
fn the_past_is_compared_by_domain_and_by_customer() {
    let machine = Machine::new();
    let policy = "version = 1\n[policy.out]\nwhen = \"authenticated\"\ndefault.messages = \"2/1h\"\n\
                  customer.acme = { domains = [\"A.test\"], users = [\"ann@c.test\", \"web7\"] }\n";
    machine.write("past.toml", policy);
    let (mut log, mut number) = (String::new(), 0);
    let mut send = |user: &str, as_user: &str, messages: usize| {
        for _ in 0..messages {
            number += 1;
            let (id, second) = (format!("1vM2a0-{number:011}-1aBc"), number % 60);
            log += &format!(
                "2026-11-28 10:{:02}:{second:02} {id} <= {user} {as_user} S=2048 for x@y.test\n",
                number / 60
            );
        }
    };
    for (login, messages) in [("Ann@c.test", 5), ("bob@a.test", 4), ("mal@d.test", 3)] {
        let by = format!("H=(pc) [192.0.2.7] P=esmtpsa A=plain:{login}");
        send(login, &by, messages);
    }
    send("web7@a.test", "U=web7 P=local", 2);
    send("alice@a.test", "H=mx.test [192.0.2.99] P=esmtp", 6);
    machine.write("mainlog", &log);
    let events = |output: &Output| -> Vec<(String, u64)> {
        let printed: Value = serde_json::from_slice(&output.stdout).unwrap();
        let rates = printed["rates"].as_array().unwrap().clone();
        let of = |one: &Value| {
            (one["key"].as_str().unwrap().to_owned(), one["events"].as_u64().unwrap())
        };
        rates.iter().map(of).collect()
    };
    let measure = |arguments: &[&str]| {
        machine.run(&[&["measure", "1d", "mainlog", "--json", "--by"], arguments].concat())
    };
    let known = |key: &str, events: u64| (key.to_owned(), events);
    let by_domain = measure(&["domain", "--policy", "past.toml"]);
    assert_eq!(events(&by_domain), [known("c.test", 5), known("a.test", 4), known("d.test", 3)]);
    // Strangers who call themselves so are not of the domain.
    let lacking = "8 messages without an authenticated user with a domain (A=): not counted";
    assert!(stderr(&by_domain).contains(lacking), "{}", stderr(&by_domain));
    let by_customer = measure(&["customer", "--policy", "past.toml"]);
    assert_eq!(events(&by_customer), [known("acme", 11)]);
    let wrong = stderr(&measure(&["auth", "--policy", "past.toml"]));
    assert!(wrong.contains("--policy needs --by domain or --by customer"), "{wrong}");

    let simulate = |arguments: &[&str]| -> Vec<(String, u64, u64)> {
        let all = [&["simulate", "mainlog", "--policy", "past.toml", "--json"], arguments].concat();
        let limits = json(&machine.run(&all))["limits"].as_array().unwrap().clone();
        let number = |one: &Value, name: &str| one[name].as_u64().unwrap();
        let row = |one: &Value| {
            (one["key"].as_str().unwrap().to_owned(), number(one, "refused"), number(one, "times"))
        };
        limits.iter().map(row).collect()
    };
    let each = simulate(&[]);
    let of = |key: &str| each.iter().find(|(one, ..)| one == key).unwrap().clone();
    let [ann, bob, mal] = ["auth:ann@c.test", "auth:bob@a.test", "auth:mal@d.test"].map(of);
    assert!(ann.1 > 0 && bob.1 > 0 && mal.1 > 0 && each.len() == 3, "{each:?}");
    let acme = ("customer:acme".to_owned(), ann.1 + bob.1, ann.2 + bob.2);
    assert_eq!(simulate(&["--by", "customer"]), [acme, (String::new(), mal.1, mal.2)]);
    let domains = [("domain:c.test", ann), ("domain:a.test", bob), ("domain:d.test", mal)];
    let domains = domains.map(|(key, (_, refused, times))| (key.to_owned(), refused, times));
    assert_eq!(simulate(&["--by", "domain"]), domains);

    let report = [
        "report",
        "mainlog",
        "--by",
        "customer",
        "--policy",
        "past.toml",
        "--json",
        "--output",
        "r",
    ];
    assert_eq!(machine.run(&report).status.code(), Some(0));
    let page = std::fs::read_to_string(machine.0.path().join("r")).unwrap();
    let page: Value = serde_json::from_str(&page).unwrap();
    assert_eq!(
        (&page["log"]["who"], &page["log"]["names"]),
        (&"customers".into(), &serde_json::json!(["acme"]))
    );
}

/// A token for nobody is made, and said to be for nobody, with the nearest name.
#[test]
fn a_token_for_a_customer_or_domain_that_nobody_has_is_noted() {
    let machine = Machine::new();
    machine.sends("out", "zoe@seen.test");
    for (n, (option, name, noted)) in [
        ("--customer", "acme", None),
        (
            "--customer",
            "acm",
            Some("no customer acm, so the token shows nobody now; similar: acme"),
        ),
        ("--domain", "B.test", None),
        ("--domain", "c.test", None),
        ("--domain", "seen.test", None),
        (
            "--domain",
            "seem.test",
            Some("no domain seem.test, so the token shows nobody now; similar: seen.test"),
        ),
        (
            "--domain",
            "elsewhere.example",
            Some("no domain elsewhere.example, so the token shows nobody now\n"),
        ),
    ]
    .into_iter()
    .enumerate()
    {
        let token = format!("t{n}");
        let output = machine.run(&[
            "web", "token", "add", &token, "--role", "view", "--until", "1d", "--file", "tokens",
            "--spool", "spool", option, name,
        ]);
        assert!(output.status.success() && stdout(&output).starts_with("exirate_"), "{output:?}");
        let said = stderr(&output);
        match noted {
            Some(noted) => assert!(said.contains(noted), "{name}: {said}"),
            None => assert!(!said.contains("so the token"), "{name}: {said}"),
        }
    }
}
