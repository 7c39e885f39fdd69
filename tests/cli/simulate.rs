//! `exirate simulate`.

use std::path::Path;
use std::process::Output;

use serde_json::Value;

use crate::{exirate, json, stderr, stdout};

/// Messages and recipients of users, recipients of servers.
const POLICY: &str = "version = 1
[policy.out]
when = \"authenticated\"
default.messages = \"2.5/1h\"
[policy.in]
when = \"!authenticated\"
key = [\"client\"]
update = \"strict\"
default.recipients = \"2.5/1h\"
verdicts = { \"100%\" = \"defer\", \"150%\" = \"reject\" }
";

fn simulate(folder: &Path, arguments: &[&str]) -> Output {
    exirate().arg("simulate").args(arguments).current_dir(folder).output().unwrap()
}

/// A message, `minute` after 10:00: of a user, or of a server where `login` is empty.
fn message(minute: u32, login: &str, to: &[&str]) -> String {
    let (hour, minute) = (10 + minute / 60, minute % 60);
    let login = if login.is_empty() { String::new() } else { format!(" A=plain:{login}") };
    format!(
        "2026-11-20 {hour:02}:{minute:02}:07 1vM1aC-000000001Ac-1aBc <= s@x.test H=(h.test) \
         [192.0.2.7]:7{minute:03} P=esmtp{login} S=1000 for {}\n",
        to.join(" ")
    )
}

/// A folder with `policy.toml` and `mainlog`.
fn folder(policy: &str, log: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("policy.toml"), policy).unwrap();
    std::fs::write(folder.path().join("mainlog"), log).unwrap();
    folder
}

const FILES: [&str; 3] = ["--policy", "policy.toml", "mainlog"];

#[test]
fn who_is_refused_when_and_by_which_limit() {
    let mut log: String = (0..4).map(|n| message(n, "alice", &["a@y.test", "b@y.test"])).collect();
    log += &message(5, "bob", &["a@y.test"]);
    let folder = folder(POLICY, &log);
    let output = simulate(folder.path(), &[&FILES[..], &["--json"]].concat());
    assert_eq!((output.status.code(), stderr(&output)), (Some(1), String::new()));
    let found = json(&output);
    // `messages` are decided at the first recipient, for all of the message.
    assert_eq!(found["refused"], 4);
    assert_eq!((found["messages"].as_u64(), found["recipients"].as_u64()), (Some(5), Some(9)));
    assert_eq!(found["limits"].as_array().unwrap().len(), 1);
    let one = &found["limits"][0];
    for (field, value) in [
        ("policy", "out"),
        ("rule", "default"),
        ("unit", "messages"),
        ("window", "2.5/1h"),
        ("key", "auth:alice"),
        ("first", "2026-11-20T10:02:07Z"),
        ("last", "2026-11-20T10:03:07Z"),
    ] {
        assert_eq!(one[field], value, "{one}");
    }
    for (field, value) in
        [("refused", 4), ("messages", 2), ("recipients", 4), ("times", 1), ("rejected", 0)]
    {
        assert_eq!(one[field], value, "{one}");
    }
    let table = simulate(folder.path(), &FILES);
    assert_eq!(table.status.code(), Some(1));
    let table = stdout(&table);
    assert!(table.contains("2026-11-20 10:02:07  messages 2.5/1h  out     default  auth:alice"));
    assert!(table.contains("Refused: 4 of 17 attempts (4 for now, 0 for good)"), "{table}");
    assert!(table.contains("users do not try again"), "{table}");

    // Nobody is refused by the other policy, and there is no third.
    let only = |name: &str| simulate(folder.path(), &[&FILES[..], &["--only", name]].concat());
    assert_eq!(only("in").status.code(), Some(0));
    assert_eq!(only("other").status.code(), Some(2));
    let message = stderr(&only("other"));
    assert!(message.contains("policy.toml: there is no policy \"other\""), "{message}");
}

#[test]
fn what_waits_for_how_long_and_the_longest_queue() {
    let policy = "version = 1\n[policy.pace]\nat = \"delivery\"\nkey = \"destination\"\n\
                  default.recipients = \"60/1m\"\n";
    let to: Vec<String> = (0..70).map(|n| format!("to{n}@y.test")).collect();
    let to: Vec<&str> = to.iter().map(String::as_str).collect();
    let folder = folder(policy, &(message(0, "alice", &to) + &message(5, "bob", &["a@z.test"])));
    let output = simulate(folder.path(), &[&FILES[..], &["--json"]].concat());
    assert_eq!((output.status.code(), stderr(&output)), (Some(0), String::new()));
    let later = &json(&output)["later"];
    let of = |one: &Value, names: &[&str]| -> Value {
        names.iter().map(|name| one[*name].clone()).collect()
    };
    let waits: Value = of(later, &["recipients", "waited", "median", "most", "longest", "queue"]);
    assert_eq!(waits, serde_json::json!([71, 10, 53, 53, 53, 10]));
    let key: Value = of(&later["keys"][0], &["policy", "key", "recipients", "longest", "at"]);
    let at = "2026-11-20T10:00:07Z";
    assert_eq!(key, serde_json::json!(["pace", "destination:y.test", 10, 53, at]));
    let table = stdout(&simulate(folder.path(), &FILES));
    assert!(table.contains("Sent later: 10 of 71 recipients, in half of all cases within 53s"));
    assert!(table.contains("The longest queue: 10 at 2026-11-20 10:00:07\n"), "{table}");
    assert!(table.contains("pace    destination:y.test"), "{table}");
}

#[test]
fn each_refused_attempt_is_a_line() {
    let log = message(0, "", &["a@y.test", "b@y.test", "c@y.test", "d@y.test"]);
    let folder = folder(POLICY, &log);
    let events = |more: &[&str]| {
        let output = simulate(folder.path(), &[&FILES[..], &["--events"], more].concat());
        assert_eq!((output.status.code(), stderr(&output)), (Some(1), String::new()));
        stdout(&output)
    };
    assert_eq!(
        events(&[]),
        "2026-11-20 10:00:07 defer rcpt [192.0.2.7] from=<s@x.test> for=<c@y.test>: policy in: \
         3.0 recipients, limit 2.5/1h, key client:192.0.2.7 (default)
2026-11-20 10:00:07 reject rcpt [192.0.2.7] from=<s@x.test> for=<d@y.test>: policy in: 4.0 \
         recipients, limit 2.5/1h, key client:192.0.2.7 (default)\n"
            .replace("         ", "")
    );
    let lines = events(&["--json"]);
    let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let of = |field: &str| lines.iter().map(|line| line[field].clone()).collect::<Vec<_>>();
    assert_eq!(of("verdict"), ["defer", "reject"]);
    assert_eq!(of("time"), ["2026-11-20T10:00:07Z"; 2]);
    assert_eq!(of("helo"), ["h.test"; 2]);
    assert_eq!(of("recipients")[1][0], "d@y.test");
    assert_eq!((of("retry"), of("auth")), (vec![0.into(); 2], vec![Value::Null; 2]));
}

#[test]
fn how_other_servers_try_again_can_be_chosen() {
    let mut log = message(0, "", &["a@y.test", "b@y.test", "c@y.test"]);
    log += &message(300, "carol", &["z@y.test"]);
    let policy = POLICY.replace("update = \"strict\"\n", "");
    let folder = folder(&policy, &log);
    let retries = |wait: &str| {
        let output = simulate(folder.path(), &[&FILES[..], &["--json", "--retry", wait]].concat());
        json(&output)["retries"].clone()
    };
    let exim = retries("exim");
    assert_eq!((&exim["messages"], &exim["accepted"]), (&1.into(), &1.into()), "{exim}");
    assert_eq!(exim["longest"], 900.0, "{exim}");
    assert_eq!(retries("never")["messages"], 0);
    let once = retries("1m");
    assert_eq!((&once["tries"], &once["given_up"]), (&1.into(), &1.into()), "{once}");
    let output = simulate(folder.path(), &[&FILES[..], &["--retry", "soon"]].concat());
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("expected exim, never, or waits"), "{}", stderr(&output));
}

#[test]
fn two_files_are_compared_by_what_they_refuse() {
    let mut log: String = (0..4).map(|n| message(n, "alice", &["a@y.test"])).collect();
    log += &message(9, "", &["a@y.test", "b@y.test", "c@y.test"]);
    let folder = folder(POLICY, &log);
    let write = |name: &str, text: String| std::fs::write(folder.path().join(name), text).unwrap();
    write("wider.toml", POLICY.replace("messages = \"2.5/1h\"", "messages = \"3.5/1h\""));
    write(
        "other.toml",
        POLICY
            .replace("2.5/1h\"\nverdicts", "9/1h\"\nverdicts")
            .replace("messages = \"2.5/1h\"", "messages = \"1.5/1h\""),
    );
    let compare = |other: &str| {
        let arguments = [&FILES[..], &["--against", other, "--json"]].concat();
        let output = simulate(folder.path(), &arguments);
        let found = json(&output);
        let counts = ["only_policy", "only_against", "both"].map(|name| found[name].as_u64());
        (output.status.code(), found["verdict"].clone(), counts.map(Option::unwrap))
    };
    assert_eq!(compare("policy.toml"), (Some(0), "same".into(), [0, 0, 3]));
    assert_eq!(compare("wider.toml"), (Some(1), "stricter".into(), [1, 0, 2]));
    assert_eq!(compare("other.toml"), (Some(1), "different".into(), [1, 1, 2]));
    let output = simulate(folder.path(), &[&FILES[..], &["--against", "other.toml"]].concat());
    let text = stdout(&output);
    for part in [
        "out: messages 2.5/1h   out: messages 1.5/1h  auth:alice",
        "policy.toml refuses 1 attempt of 1 key that other.toml accepts",
        "for this log, neither is the stricter one",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn what_the_log_lacks_is_noted() {
    // No recipients, no sessions, and not in the order of time.
    let mut log = message(120, "alice", &["a@y.test"]);
    log += &message(0, "bob", &["a@y.test"]);
    let log = log.replace(" for a@y.test", "");
    let log: String = log
        .lines()
        .map(|l| l.split("]:7").next().unwrap().to_owned() + "] P=esmtp S=1\n")
        .collect();
    let policy = format!("{POLICY}default.auth_failures = \"9/1h\"\n")
        .replace("default.recipients", "default.unique_recipients = \"9/1h\"\ndefault.recipients");
    let policy = policy.replace("verdicts = { \"100%\" = \"defer\", \"150%\" = \"reject\" }\n", "");
    let folder = folder(&policy, &log);
    let output = simulate(folder.path(), &FILES);
    let said = stderr(&output);
    for part in [
        "the log is not in the order of time: ",
        "2 of 2 events are not assigned to a session by the log; sessions are guessed from clients and \
         logins, so auth_failures may differ",
        "for 2 messages, the log does not show the recipients: each counts as one",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert!(said.lines().all(|line| line.starts_with("exirate: note: ")), "{said}");
    let output = simulate(folder.path(), &[&FILES[..], &["--json"]].concat());
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(found["notes"].as_array().unwrap().len(), 3);
    // And what a policy or an option needs that this log does not have.
    let policy = policy.replace("default.messages", "key = [\"script\"]\ndefault.bytes = \"9G/1h\"\npackage.gold.messages = \"9/1h\"\ndefault.messages");
    std::fs::write(folder.path().join("policy.toml"), policy).unwrap();
    let said = stderr(&simulate(folder.path(), &[&FILES[..], &["--stages", "connect"]].concat()));
    for part in [
        "bytes are those of S=, about 200 more a message",
        "the log does not show connections, so nothing is decided when a client connects",
        "no log shows the script of a web host, by which out counts",
        "packages that the ACL hands over ({package=NAME}) are not in a log: out has those",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
}

#[test]
fn what_cannot_be_simulated_is_an_error() {
    let folder = folder(POLICY, "2026-11-20 10:00:00 Start queue run: pid=7\n\nx\n");
    let output = simulate(folder.path(), &FILES);
    assert_eq!((output.status.code(), stdout(&output)), (Some(2), String::new()));
    assert!(
        stderr(&output).contains("no line shows mail that came in: expected the main log of Exim")
    );
    let output = simulate(folder.path(), &[&FILES[..], &["--stages", "rcpt,quit"]].concat());
    assert!(stderr(&output).contains("\"quit\" is not a stage that a log shows"));
    std::fs::write(folder.path().join("policy.toml"), "version = 1\n[policy.a]\nx = 1\n").unwrap();
    let output = simulate(folder.path(), &FILES);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("policy.toml:3"), "{}", stderr(&output));
}

#[test]
fn text_of_clients_stays_text() {
    let hostile = "\u{1b}[2J<script>\u{202e}x\\\"";
    let mut log = String::new();
    for n in 0..4 {
        log += &message(n, hostile, &["\u{1b}]0;owned\u{7}@y.test"])
            .replace("s@x.test", "\"\u{1b}[31m A=plain:ceo\"@x.test")
            .replace("(h.test)", "(\u{9b}1m)");
    }
    log += "2026-11-20 10:09:00 \u{1b}[2J something else\n";
    let folder = folder(POLICY, &log);
    for more in [&[][..], &["--events"], &["--against", "policy.toml"]] {
        let output = simulate(folder.path(), &[&FILES[..], more].concat());
        let all = stdout(&output) + &stderr(&output);
        let is_harmless = |c: char| c == '\n' || !c.is_control() && c != '\u{202e}';
        assert!(all.chars().all(is_harmless), "{all:?}");
    }
    let output = simulate(folder.path(), &[&FILES[..], &["--json"]].concat());
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    let key = found["limits"][0]["key"].clone();
    // Control characters at its ends are not part of a login.
    assert_eq!(
        key,
        format!("auth:{}", hostile.trim_start_matches('\u{1b}').to_lowercase()).as_str()
    );
    assert!(!stdout(&output).contains('\u{1b}'));
}

/// Alice logs in twice, and a recipient of hers is refused, which Postfix logs without her login.
const POSTFIX: &str = "\
2026-11-20T10:00:00.000000+00:00 mx postfix/smtpd[101]: connect from h.test[192.0.2.7]
2026-11-20T10:00:01.000000+00:00 mx postfix/smtpd[101]: 4XyZ1a2b3cz1: client=h.test[192.0.2.7], sasl_method=PLAIN, sasl_username=alice
2026-11-20T10:00:01.100000+00:00 mx postfix/cleanup[102]: 4XyZ1a2b3cz1: message-id=<x@y>
2026-11-20T10:00:01.200000+00:00 mx postfix/qmgr[103]: 4XyZ1a2b3cz1: from=<alice@x.test>, size=1000, nrcpt=2 (queue active)
2026-11-20T10:00:01.300000+00:00 mx postfix/smtp[104]: 4XyZ1a2b3cz1: to=<a@y.test>, relay=mx[192.0.2.1]:25, delay=0.1, delays=0/0/0/0.1, dsn=2.0.0, status=sent (250 ok)
2026-11-20T10:00:01.400000+00:00 mx postfix/smtp[104]: 4XyZ1a2b3cz1: to=<b@y.test>, relay=mx[192.0.2.1]:25, delay=0.1, delays=0/0/0/0.1, dsn=2.0.0, status=sent (250 ok)
2026-11-20T10:00:01.500000+00:00 mx postfix/qmgr[103]: 4XyZ1a2b3cz1: removed
2026-11-20T10:00:02.000000+00:00 mx postfix/smtpd[101]: NOQUEUE: reject: RCPT from h.test[192.0.2.7]: 550 5.1.1 <no@y.test>: Recipient address rejected: User unknown; from=<alice@x.test> to=<no@y.test> proto=ESMTP helo=<h.test>
2026-11-20T10:00:03.000000+00:00 mx postfix/smtpd[101]: disconnect from h.test[192.0.2.7] ehlo=1 auth=1 mail=2 rcpt=2/3 data=1 quit=1 commands=8/9
2026-11-20T10:01:00.000000+00:00 mx postfix/smtpd[105]: connect from h.test[192.0.2.7]
2026-11-20T10:01:01.000000+00:00 mx postfix/smtpd[105]: 4XyZ1a2b3cz2: client=h.test[192.0.2.7], sasl_method=PLAIN, sasl_username=alice
2026-11-20T10:01:01.100000+00:00 mx postfix/cleanup[102]: 4XyZ1a2b3cz2: message-id=<x@y>
2026-11-20T10:01:01.200000+00:00 mx postfix/qmgr[103]: 4XyZ1a2b3cz2: from=<alice@x.test>, size=1000, nrcpt=1 (queue active)
2026-11-20T10:01:01.300000+00:00 mx postfix/smtp[104]: 4XyZ1a2b3cz2: to=<c@y.test>, relay=mx[192.0.2.1]:25, delay=0.1, delays=0/0/0/0.1, dsn=2.0.0, status=sent (250 ok)
2026-11-20T10:01:01.500000+00:00 mx postfix/qmgr[103]: 4XyZ1a2b3cz2: removed
2026-11-20T10:01:03.000000+00:00 mx postfix/smtpd[105]: disconnect from h.test[192.0.2.7]
";

#[test]
fn postfixs_log_is_simulated_as_well() {
    let policy =
        "version = 1\n[policy.out]\nwhen = \"authenticated\"\ndefault.recipients = \"3.5/1h\"\n";
    let folder = folder(policy, POSTFIX);
    let output = simulate(folder.path(), &[&FILES[..], &["--events"]].concat());
    assert_eq!((output.status.code(), stderr(&output)), (Some(1), String::new()));
    assert_eq!(
        stdout(&output),
        "2026-11-20 10:01:01 defer rcpt [192.0.2.7] auth=<alice> from=<alice@x.test> for=<c@y.test>: \
         policy out: 3.9 recipients, limit 3.5/1h, key auth:alice (default)\n"
    );
}
