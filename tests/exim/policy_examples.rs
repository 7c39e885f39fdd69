//! A real session for each example of `docs/policy.md`.
//!
//! Limits are made small, so that few commands reach them.

use std::path::Path;

use crate::acl_files::login;
use exirate::policy::limit::Subject;
use exirate::policy::word::{OnHabits, Sensitivity};
use exirate::policy::{image, source::compile};
use kit::{Client, PrivateExim, Setup};

/// The blocks of the documentation, in order.
fn examples() -> Vec<String> {
    let page = include_str!("../../docs/policy.md");
    let blocks = page.split("\n```toml\n").skip(1);
    blocks.map(|rest| rest.split("\n```").next().unwrap().to_owned()).collect()
}

/// Users of the example that names a file of users.
const USERS: &str = "user,package,customer,recipients\nalice@example.org,gold,,\nbob@example.org,,acme,3/1h 200/1d\n";

/// Puts an example in use, with each `(as written, instead)` of `small`.
fn apply(exim: &PrivateExim, example: &str, small: &[(&str, &str)]) {
    let mut text = example.to_owned();
    for (written, instead) in small {
        assert!(text.contains(written), "{written} is not in\n{example}");
        text = text.replace(written, instead);
    }
    let head = if text.contains("version = 1") { "" } else { "version = 1\n" };
    let users = |_: &Path| Ok(USERS.to_owned());
    let compiled = compile(Path::new("policy.toml"), &format!("{head}{text}"), &users);
    let policies = compiled.policies.unwrap_or_else(|| panic!("{:?}", compiled.diagnostics));
    image::install(&exim.spool(), &image::build(&policies)).unwrap();
}

/// What Exim replies to RCPT: the code and the verdict, the rule, whether it crossed.
type Seen = (u16, String);

fn seen(client: &mut Client, recipient: &str) -> Seen {
    let reply = client.command(format!("RCPT TO:<{recipient}>"));
    let text = reply.text.replace("\r\n", " ");
    (reply.code, text.split_once(' ').map(|(_, text)| text.to_owned()).unwrap_or_default())
}

/// A session of a client; with a login, it authenticates.
fn session(exim: &PrivateExim, client: &str, auth: Option<&str>, sender: &str) -> Client {
    let (mut smtp, _) = exim.pipe(&["-oMa", client, "-bs"]);
    assert_eq!(smtp.expect().code, 220);
    smtp.command("EHLO client.test");
    if let Some(auth) = auth {
        login(&mut smtp, auth);
    }
    assert!(smtp.command(format!("MAIL FROM:<{sender}>")).is_ok());
    smtp
}

/// How many recipients are accepted, of at most `most`, and the reply to the next.
fn accepted(client: &mut Client, most: usize, to: impl Fn(usize) -> String) -> (usize, String) {
    for n in 0..most {
        let (code, text) = seen(client, &to(n));
        if code != 250 {
            return (n, format!("{code} {text}"));
        }
    }
    (most, String::new())
}

const ACL: &str = "  warn set acl_m_v = ${dlfunc{EXIRATE}{policy}{*}{package=$acl_c_package}}\n\
    \x20 deny condition = ${if eq{$acl_m_v}{reject}}\n\
    \x20      message = reject ${dlfunc{EXIRATE}{policy_info}{text}}\n\
    \x20 defer condition = ${if eq{$acl_m_v}{defer}}\n\
    \x20      message = defer ${dlfunc{EXIRATE}{policy_info}{rule}} ${dlfunc{EXIRATE}{policy_info}{text}}\n\
    \x20 deny local_parts = no\n\
    \x20 accept message = $acl_m_v ${dlfunc{EXIRATE}{policy_info}{rule}} ${dlfunc{EXIRATE}{policy_info}{crossed}}\n";

/// What is shown of an example, which is the text.
type Example = fn(&PrivateExim, &str);

#[test]
fn each_example_of_the_documentation_in_a_session() {
    let exim = Setup::new().library().auth().acl("acl_smtp_rcpt", ACL).build();
    let examples = examples();
    let sessions: [(&str, Example); 17] = [
        ("[policy.bounces]", whole_file),
        ("[policy.web]", identity),
        ("[policy.inbound]", conditions),
        ("[policy.ipv6_networks]", networks),
        ("texts.recipients_per_message", caps),
        ("failed_share = {", shares),
        ("total = { recipients", precedence),
        ("[policy.to]", buckets),
        ("[policy.bounce_to]", as_rspamd),
        ("[policy.outbound.customer.acme]", customers),
        ("users = \"users.csv\"", users),
        ("\"300%\" = \"reject\"", verdicts),
        ("habits = \"hold\"", habits),
        ("[on.crossing]", crossing),
        ("deny = \"until-lifted\"", blocked),
        ("default.recipients = \"3/1h\"", tried),
        ("abuse@example.org", exemptions),
    ];
    assert_eq!(examples.len(), sessions.len(), "an example without a session");
    for (example, (has, session)) in examples.iter().zip(sessions) {
        assert!(example.contains(has), "{has} is not in\n{example}");
        session(&exim, example);
        // The next example starts from nothing.
        std::fs::remove_dir_all(exim.spool().join("exirate")).unwrap();
    }
    assert_eq!(exim.log("panic").lines().filter(|l| !l.contains("lost privilege")).count(), 0);
}

fn whole_file(exim: &PrivateExim, example: &str) {
    // The exemption ends after this test has been forgotten.
    apply(exim, example, &[("2026-12-31", "2096-12-31"), ("60/1h", "6/1h"), ("100/1h", "4/1h")]);
    let to = |n: usize| format!("r{n}@x.test");
    let mut client = session(exim, "198.51.100.1", Some("Al@x.test"), "a@x.test");
    let (count, reply) = accepted(&mut client, 9, |_| "same@x.test".to_owned());
    assert_eq!(count, 4, "{reply}");
    assert!(
        reply.starts_with("451 defer default Over 4 recipients in 1h; try again in "),
        "{reply}"
    );
    // Folded, and of the domain's package; unlimited in one unit, limited in another.
    let mut client = session(exim, "198.51.100.1", Some("News+x@Example.org"), "a@x.test");
    assert_eq!(accepted(&mut client, 9, |_| "same@x.test".to_owned()).0, 9);
    let (count, reply) = accepted(&mut client, 9, to);
    assert_eq!(count, 5, "{reply}");
    assert!(reply.contains("Over 6 unique recipients in 1h"), "{reply}");
    // Exempt: one by login, one by network.
    for (address, auth) in [("198.51.100.1", "ceo@example.org"), ("192.0.2.9", "dan@x.test")] {
        let mut client = session(exim, address, Some(auth), "a@x.test");
        assert_eq!(accepted(&mut client, 9, to).0, 9, "{auth}");
    }
    // Bounces, by the recipient.
    let mut client = session(exim, "198.51.100.1", None, "");
    let (count, reply) = accepted(&mut client, 9, |_| "victim@x.test".to_owned());
    assert_eq!(count, 5, "{reply}");
    assert_eq!(seen(&mut client, "other@x.test").0, 250);
}

fn identity(exim: &PrivateExim, example: &str) {
    apply(exim, example, &[("100/1h", "3/1h")]);
    let message = |client: &str, auth| {
        let mut smtp = session(exim, client, auth, "a@x.test");
        seen(&mut smtp, "r@x.test")
    };
    // A client that may not relay is not limited by it.
    assert_eq!(message("192.0.2.7", None), (250, "accept  no".to_owned()));
    let codes = [(); 5].map(|()| message("10.1.2.3", None).0);
    assert_eq!(codes, [250, 250, 250, 451, 451]);
    // An IPv6 client is its /64, a login is qualified and without what follows `+`.
    let v6 = ["2001:db8::1", "2001:db8::2:3", "2001:db8::9:9", "2001:db8::7"];
    assert_eq!(v6.map(|client| message(client, None).0), [250, 250, 250, 451]);
    let logins = ["alice", "Alice@Example.ORG", "alice+x@example.org", "ALICE"];
    assert_eq!(logins.map(|auth| message("10.1.2.9", Some(auth)).0), [250, 250, 250, 451]);
}

fn conditions(exim: &PrivateExim, example: &str) {
    apply(exim, example, &[("60/1m", "3/1w"), ("20/1h", "3/1h")]);
    // Refused recipients of a client, in one connection.
    let mut client = session(exim, "192.0.2.7", None, "a@x.test");
    let replies = ["no@example.org"; 5].map(|to| seen(&mut client, to).0);
    assert_eq!(replies, [550, 550, 550, 550, 451]);
    // Connections of another.
    let connect = |client: &str, to: &str| {
        let mut smtp = session(exim, client, None, "a@x.test");
        [seen(&mut smtp, to).0, seen(&mut smtp, to).0]
    };
    let codes = [(); 4].map(|()| connect("192.0.2.8", "a@sub.example.org"));
    assert_eq!(codes, [[250; 2], [250; 2], [250; 2], [451; 2]]);
    // Mail to other domains is not meant.
    assert_eq!(connect("192.0.2.8", "a@example.net"), [250; 2]);
}

fn networks(exim: &PrivateExim, example: &str) {
    // What a client may have tried, as its failures count.
    let changes = [("auth_failures = \"200/1h\"", "recipients = \"3/1h\""), ("log", "defer")];
    apply(exim, example, &changes);
    let code = |client: &str| seen(&mut session(exim, client, None, "a@x.test"), "r@x.test").0;
    let of_one = ["2001:db8:1::1", "2001:db8:1:1::1", "2001:db8:1:200::1", "2001:db8:1:ffff::1"];
    assert_eq!(of_one.map(code), [250, 250, 250, 451]);
    assert_eq!(code("2001:db8:2::1"), 250);
    assert_eq!(["192.0.2.7"; 5].map(code), [250; 5]);
}

/// Limits that a few recipients reach.
const SMALL: [(&str, &str); 3] =
    [("\"200/1h\"", "\"4/1h\""), ("\"2000/1h\"", "\"6/1h\""), ("\"5000/1h\"", "\"9/1h\"")];

/// How many recipients of a user are accepted, and what refuses the next.
fn accepted_of(exim: &PrivateExim, auth: &str) -> (usize, String) {
    let mut client = session(exim, "192.0.2.7", Some(auth), "a@x.test");
    let (count, reply) = accepted(&mut client, 12, |_| "r@x.test".to_owned());
    (count, reply.split(" Over").next().unwrap().to_owned())
}

fn refused(count: usize, rule: &str) -> (usize, String) {
    (count, format!("451 defer {rule}"))
}

fn precedence(exim: &PrivateExim, example: &str) {
    apply(exim, example, &SMALL);
    let of = |auth: &str| accepted_of(exim, auth);
    assert_eq!(of("carl@example.net"), refused(4, "default"));
    assert_eq!(of("dora@example.org"), refused(6, "package gold"));
    // Unlimited; but all users of the domain together are not.
    assert_eq!(of("news@example.org"), refused(3, "default (total)"));
}

fn customers(exim: &PrivateExim, example: &str) {
    apply(exim, example, &SMALL);
    let of = |auth: &str| accepted_of(exim, auth);
    assert_eq!(of("ann@example.org"), refused(6, "package gold"));
    // What ann was refused by her own limit does not count.
    assert_eq!(of("Bob@Example.net"), refused(3, "customer acme (total)"));
    assert_eq!(of("news@example.com"), refused(0, "customer acme (total)"));
    assert_eq!(of("carl@example.com"), refused(4, "default"));
}

fn caps(exim: &PrivateExim, example: &str) {
    apply(exim, example, &[("recipients_per_message = 100", "recipients_per_message = 2")]);
    for _ in 0..2 {
        let mut smtp = session(exim, "192.0.2.7", Some("alice@example.org"), "a@x.test");
        let (count, reply) = accepted(&mut smtp, 5, |n| format!("r{n}@x.test"));
        let text = "defer default At most 2 recipients a message: use a mailing list";
        assert_eq!((count, reply.ends_with(text)), (2, true), "{reply}");
    }
}

/// What goes out has not failed yet: tests/cli/share.rs has what the follower counts later.
fn shares(exim: &PrivateExim, example: &str) {
    apply(exim, example, &[("least = 50", "least = 2")]);
    let mut client = session(exim, "192.0.2.7", Some("alice@x.test"), "alice@x.test");
    assert_eq!(accepted(&mut client, 9, |n| format!("r{n}@x.test")).0, 9);
}

fn buckets(exim: &PrivateExim, example: &str) {
    apply(exim, example, &[("burst = 20", "burst = 3"), ("burst = 100", "burst = 5")]);
    let messages = |client: &str, to: &str, recipients: usize| {
        let mut smtp = session(exim, client, None, "a@x.test");
        accepted(&mut smtp, recipients, |_| to.to_owned()).0
    };
    // Each recipient of a client by itself.
    assert_eq!(messages("192.0.2.7", "a@x.test", 5), 3);
    assert_eq!(messages("192.0.2.7", "b@x.test", 5), 3);
    assert_eq!(messages("192.0.2.8", "a@x.test", 5), 3);
}

fn as_rspamd(exim: &PrivateExim, example: &str) {
    apply(exim, example, &[("burst = 60", "burst = 4"), ("burst = 20", "burst = 2")]);
    let message = |client: &str, auth: &str, recipients: usize| {
        let mut smtp = session(exim, client, Some(auth), "a@x.test");
        accepted(&mut smtp, recipients, |_| "r@x.test".to_owned()).0
    };
    // Recipients, then messages, in one bucket each; not from a relay, nor if exempt.
    assert_eq!(message("192.0.2.7", "alice@example.org", 6), 4);
    assert_eq!([1, 1, 1].map(|n| message("192.0.2.7", "bob@example.org", n)), [1, 1, 0]);
    assert_eq!(message("10.1.2.3", "alice@example.org", 6), 6);
    assert_eq!(message("192.0.2.7", "News@example.org", 6), 6);
    let mut client = session(exim, "192.0.2.7", None, "");
    // Only observed, as any client can choose the recipient.
    assert_eq!(accepted(&mut client, 9, |_| "victim@example.org".to_owned()).0, 9);
    assert_eq!(accepted(&mut client, 9, |_| "abuse@example.org".to_owned()).0, 9);
}

fn users(exim: &PrivateExim, example: &str) {
    apply(exim, example, &[("100/1h", "5/1h"), ("1000/1h", "8/1h")]);
    let of = |auth: &str| {
        let mut client = session(exim, "192.0.2.7", Some(auth), "a@x.test");
        let (count, reply) = accepted(&mut client, 12, |_| "r@x.test".to_owned());
        (count, reply.split(" Over").next().unwrap().to_owned())
    };
    assert_eq!(of("alice@example.org"), (8, "451 defer package gold".to_owned()));
    assert_eq!(of("bob@example.org"), (3, "451 defer user bob@example.org".to_owned()));
    assert_eq!(of("carl@example.org"), (5, "451 defer default".to_owned()));
}

/// `exirate check` says what the next RCPT gets.
fn verdicts(exim: &PrivateExim, example: &str) {
    apply(exim, example, &[("100/1h", "10/1h")]);
    let mut client = session(exim, "192.0.2.7", Some("alice"), "a@x.test");
    let mut all = Vec::new();
    for n in 0..32 {
        let expected = checked(exim).filter(|_| [7, 8, 9, 10, 11, 29, 30].contains(&n));
        let (_, text) = seen(&mut client, "r@x.test");
        let verdict = text.split(' ').next().unwrap().to_owned();
        if let Some(expected) = expected {
            assert_eq!(expected, verdict, "recipient {n}: {text}");
        }
        all.push(verdict);
    }
    let count = |verdict: &str| all.iter().filter(|one| *one == verdict).count();
    assert_eq!(["accept", "log", "defer", "reject"].map(count), [8, 2, 20, 2], "{all:?}");
}

/// The verdict of `exirate check` for the next recipient of alice.
fn checked(exim: &PrivateExim) -> Option<String> {
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_exirate"))
        .args(["check", "*", "--auth", "alice", "--client", "192.0.2.7", "--json"])
        .args(["--sender", "a@x.test", "--recipient", "r@x.test", "--stage", "rcpt", "--spool"])
        .arg(exim.spool())
        .output()
        .unwrap();
    let json: serde_json::Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&output.stderr)));
    json["verdict"].as_str().map(str::to_owned)
}

/// What becomes of a suspected account is in `habits.rs`; here, who is suspected.
fn habits(exim: &PrivateExim, example: &str) {
    apply(exim, example, &[("500/1h", "3/1h")]);
    let mut client = session(exim, "192.0.2.7", Some("alice"), "a@x.test");
    assert_eq!(accepted(&mut client, 9, |_| "r@x.test".to_owned()).0, 3);
    let file = image::PolicyFile::open(&exim.spool());
    let policy = file.image().unwrap().policy("outbound").unwrap().unwrap();
    for (identity, package, expected) in [
        ("alice@example.org", None, Some(Sensitivity::Normal)),
        ("ceo@example.org", None, Some(Sensitivity::High)),
        ("tickets@example.org", None, None),
        ("alice@example.org", Some("newsletter"), None),
    ] {
        let subject = Subject { identity, package, ..Subject::default() };
        let found = policy.habits(&subject).unwrap().map(|one| (one.on, one.sensitivity));
        assert_eq!(found, expected.map(|how| (OnHabits::Hold, how)), "{identity}");
    }
}

fn crossing(exim: &PrivateExim, example: &str) {
    apply(
        exim,
        example,
        &[("100/1h", "3/1h"), ("[policy.outbound]", "[policy.outbound]\naction = \"observe\"")],
    );
    let mut client = session(exim, "192.0.2.7", Some("alice"), "a@x.test");
    let all = [(); 5].map(|()| seen(&mut client, "r@x.test").1);
    let accepted = "accept default no";
    assert_eq!(all, [accepted, accepted, accepted, "log default yes", "log default no"]);
}

fn blocked(exim: &PrivateExim, example: &str) {
    apply(exim, example, &[("500/1h", "2.5/1h")]);
    let mut client = session(exim, "192.0.2.7", Some("alice"), "a@x.test");
    let (count, reply) = accepted(&mut client, 9, |_| "r@x.test".to_owned());
    assert!(count == 2 && reply.starts_with("451 "), "{count} {reply}");
    let (code, text) = seen(&mut client, "r@x.test");
    assert!(code == 550 && text.contains("Blocked after too much mail"), "{code} {text}");
    let mut other = session(exim, "192.0.2.7", Some("bob"), "a@x.test");
    assert_eq!(seen(&mut other, "r@x.test").0, 250);
}

fn tried(exim: &PrivateExim, example: &str) {
    apply(exim, example, &[]);
    // As its events: a recipient, then three.
    let mut codes = Vec::new();
    for to in [&["a@example.net"][..], &["b@example.net", "c@example.net", "d@example.net"]] {
        let mut client = session(exim, "192.0.2.7", Some("alice"), "a@x.test");
        codes.extend(to.iter().map(|to| seen(&mut client, to).0));
    }
    assert_eq!(codes, [250, 250, 250, 451]);
    let mut client = session(exim, "192.0.2.7", None, "a@x.test");
    assert_eq!(seen(&mut client, "e@example.net"), (250, "accept  no".to_owned()));
}

fn exemptions(exim: &PrivateExim, example: &str) {
    apply(exim, example, &[("100/1h", "3/1h")]);
    let of = |client: &str, auth, to: &str| {
        let mut smtp = session(exim, client, auth, "a@x.test");
        accepted(&mut smtp, 6, |_| to.to_owned()).0
    };
    assert_eq!(of("198.51.100.1", Some("alice@example.org"), "r@x.test"), 3);
    assert_eq!(of("198.51.100.1", Some("alice@example.org"), "Abuse@example.org"), 6);
    for (client, auth) in [
        ("198.51.100.1", Some("CEO@example.org")),
        ("198.51.100.1", Some("chair@board.example.org")),
        ("192.0.2.77", None),
    ] {
        assert_eq!(of(client, auth, "r@x.test"), 6, "{client} {auth:?}");
    }
}
