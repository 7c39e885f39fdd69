//! Policies in a real Exim: what each stage counts, the shipped files, a new policy
//! under a running process, and errors.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::acl_files::{base64, copy_shipped, login, shipped};
use exirate::engine::Kind;
use exirate::policy::counters::{self, RuleCounts};
use exirate::policy::{image, source::compile};
use exirate::spool::{Options, Spool};
use exirate::store::{Entry, Inspect};
use kit::{Client, PrivateExim, Setup};

/// Puts a policy into use, as `exirate policy apply` does.
pub(crate) fn apply(exim: &PrivateExim, policy: &str) {
    let none = |_: &Path| Err("no file".to_owned());
    let compiled = compile(Path::new("policy.toml"), &format!("version = 1\n{policy}"), &none);
    let policies = compiled.policies.unwrap_or_else(|| panic!("{:?}", compiled.diagnostics));
    image::install(&exim.spool(), &image::build(&policies)).unwrap();
}

fn image_path(exim: &PrivateExim) -> PathBuf {
    exim.spool().join("exirate").join("policy.image")
}

/// The policy in an ACL: nothing but the verdict, which refuses.
pub(crate) const OVER: &str = "  defer message = ${dlfunc{EXIRATE}{policy_info}{text}}\n\
                    \x20       condition = ${dlfunc{EXIRATE}{policy_over}{p}}\n  accept\n";

/// Every ACL that a message may pass.
pub(crate) const STAGES: [&str; 13] = [
    "acl_smtp_connect",
    "acl_smtp_helo",
    "acl_smtp_auth",
    "acl_smtp_mail",
    "acl_smtp_rcpt",
    "acl_smtp_predata",
    "acl_smtp_mime",
    "acl_smtp_data",
    "acl_smtp_data_prdr",
    "acl_not_smtp",
    "acl_not_smtp_start",
    "acl_smtp_notquit",
    "acl_smtp_quit",
];

/// An Exim that evaluates the policy `p` in every ACL, twice in each.
fn everywhere() -> Setup {
    let twice = "  warn condition = ${dlfunc{EXIRATE}{policy_over}{p}}\n";
    STAGES.iter().fold(Setup::new().library().auth(), |setup, stage| {
        setup.acl(stage, &format!("{twice}{OVER}"))
    })
}

/// The rates of the policy's records, rounded, by unit and identity.
pub(crate) fn rates(exim: &PrivateExim) -> BTreeMap<String, i64> {
    let mut spool = Spool::open(&exim.spool(), Options::default()).unwrap();
    let mut rates = BTreeMap::new();
    let visit = &mut |entry: Entry| {
        if entry.kind == Kind::Policy {
            let name = String::from_utf8(entry.key.clone()).unwrap();
            let rate = entry.average.rate.round() as i64;
            let name = name.replace("p/", "").replace("/1w/", " ");
            assert!(rates.insert(name, rate).is_none());
        }
    };
    Inspect::for_each(&mut spool, visit).unwrap();
    rates
}

fn expected(all: &[(&str, i64)]) -> BTreeMap<String, i64> {
    all.iter().map(|(name, rate)| ((*name).to_owned(), *rate)).collect()
}

pub(crate) const ALL_UNITS: &str = "[policy.p]\nupdate = \"strict\"\n[policy.p.default]\n\
    messages = \"1M/1w\"\nrecipients = \"1M/1w\"\nunique_recipients = \"1k/1w\"\n\
    unique_senders = \"1k/1w\"\nunique_clients = \"1k/1w\"\nbytes = \"1G/1w\"\n\
    connections = \"1M/1w\"\nrejected_recipients = \"1M/1w\"\nauth_failures = \"1M/1w\"\n";

#[test]
fn every_stage_counts_each_thing_once() {
    let mut exim =
        everywhere().main("prdr_enable = true").main("chunking_advertise_hosts = *").build();
    apply(&exim, ALL_UNITS);
    exim.start();
    // Two messages of alice, with three and two recipients; one recipient twice.
    let mut client = exim.session();
    login(&mut client, "Alice");
    let text = "Subject: x\nMIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=b\n\n\
                --b\n\none\n--b\n\ntwo\n--b--\n";
    for (from, to) in [
        ("a@client.test", &["u@private.test", "v@private.test", "w@private.test"][..]),
        ("b@client.test", &["u@private.test", "x@private.test"]),
    ] {
        let reply = client.message(from, to, text);
        assert!(reply.is_ok(), "{}", reply.text);
    }
    client.quit();
    let seen = rates(&exim);
    let bytes = seen["bytes auth:alice"];
    let alice = [
        ("auth_failures client:127.0.0.1", 0),
        ("bytes auth:alice", bytes),
        // Of each identity that the connection had.
        ("connections auth:alice", 1),
        ("connections client:127.0.0.1", 1),
        ("messages auth:alice", 2),
        ("recipients auth:alice", 5),
        ("rejected_recipients auth:alice", 0),
        ("unique_clients auth:alice", 1),
        ("unique_clients client:127.0.0.1", 1),
        ("unique_recipients auth:alice", 4),
        ("unique_senders auth:alice", 2),
    ];
    // What only looks leaves no record.
    let alice: Vec<_> = alice.into_iter().filter(|(_, rate)| *rate > 0).collect();
    assert_eq!(seen, expected(&alice));
    assert!((150..1500).contains(&bytes), "{bytes}");

    // By BDAT, and with PRDR, whose ACL runs for each recipient.
    let mut client = exim.session();
    login(&mut client, "bdat");
    assert!(client.command("MAIL FROM:<a@client.test> PRDR").is_ok());
    assert!(client.command("RCPT TO:<u@private.test>").is_ok());
    assert!(client.command("RCPT TO:<v@private.test>").is_ok());
    client.send(b"BDAT 9\r\nSubject: BDAT 10 LAST\r\n\r\n\r\nhello\r");
    assert!(client.expect().is_ok() && client.expect().code / 100 <= 3);
    client.quit();
    let seen = rates(&exim);
    let of = |name: &str| seen.get(&format!("{name} auth:bdat")).copied();
    assert_eq!(
        (of("messages"), of("recipients"), of("unique_recipients")),
        (Some(1), Some(2), Some(2))
    );
    assert!(of("bytes").is_some_and(|bytes| (10..800).contains(&bytes)), "{seen:?}");

    // In a batch, and from standard input without SMTP.
    let batch = b"MAIL FROM:<a@client.test>\nRCPT TO:<u@private.test>\nDATA\nSubject: x\n\nx\n.\n";
    exim.run(&["-oMa", "192.0.2.8", "-bS"], batch);
    exim.run(
        &["-oMa", "192.0.2.9", "u@private.test", "v@private.test", "u@private.test"],
        b"Subject: x\n\nx\n",
    );
    let seen = rates(&exim);
    for (client, recipients, unique) in [("192.0.2.8", 1, 1), ("192.0.2.9", 3, 2)] {
        let of = |name: &str| seen.get(&format!("{name} client:{client}")).copied();
        assert_eq!(of("messages"), Some(1), "{client} {seen:?}");
        assert_eq!(
            (of("recipients"), of("unique_recipients")),
            (Some(recipients), Some(unique)),
            "{client} {seen:?}"
        );
        assert!(of("bytes").is_some_and(|bytes| bytes > 5));
    }
    assert_eq!(exim.log("panic"), "");
}

#[test]
fn refused_recipients_and_failed_logins_are_counted_once() {
    let acl = "  warn condition = ${dlfunc{EXIRATE}{policy_over}{p}}\n\
               \x20 deny local_parts = no\n  accept\n";
    let mut exim = Setup::new()
        .library()
        .auth()
        .acl("acl_smtp_rcpt", acl)
        .acl("acl_smtp_auth", OVER)
        .acl("acl_smtp_quit", OVER)
        .acl("acl_smtp_notquit", OVER)
        .build();
    apply(&exim, ALL_UNITS);
    exim.start();
    let mut client = exim.session();
    for _ in 0..3 {
        assert_eq!(client.command(format!("AUTH PLAIN {}", base64(b"\0u\0bad"))).code, 535);
    }
    client.command("MAIL FROM:<a@client.test>");
    for name in ["no", "yes", "no", "no"] {
        client.command(format!("RCPT TO:<{name}@private.test>"));
    }
    client.quit();
    let seen = rates(&exim);
    assert_eq!(seen.get("auth_failures client:127.0.0.1"), Some(&3), "{seen:?}");
    assert_eq!(seen.get("rejected_recipients client:127.0.0.1"), Some(&3), "{seen:?}");
    // The last ones are counted when the connection breaks.
    let mut client = exim.session();
    assert_eq!(client.command(format!("AUTH PLAIN {}", base64(b"\0u\0bad"))).code, 535);
    drop(client);
    exim.wait_until("the fourth failure", |_| {
        rates(&exim).get("auth_failures client:127.0.0.1") == Some(&4)
    });
    assert_eq!(exim.log("panic"), "");
}

#[test]
fn a_router_counts_each_recipient_of_a_message_once() {
    let router = "counted:\n  driver = redirect\n\
                  \x20 condition = ${dlfunc{EXIRATE}{policy_over}{p}}\n  data = :defer: over\n\
                  later:\n  driver = redirect\n  allow_defer\n  data = :defer: later\n";
    let exim = Setup::new().library().main("queue_only = false").router(router).build();
    apply(
        &exim,
        "[policy.p]\nkey = \"sender\"\nupdate = \"strict\"\n[policy.p.default]\n\
                  messages = \"1k/1w\"\nrecipients = \"1k/1w\"\nbytes = \"1G/1w\"\n",
    );
    exim.run(
        &["-oMa", "192.0.2.9", "-odf", "-f", "s@client.test", "u@private.test", "v@private.test"],
        b"Subject: x\n\nx\n",
    );
    for _ in 0..3 {
        exim.run(&["-qff"], b"");
    }
    let seen = rates(&exim);
    assert_eq!(seen.get("messages sender:s@client.test"), Some(&1), "{seen:?}");
    assert_eq!(seen.get("recipients sender:s@client.test"), Some(&2), "{seen:?}");
}

#[test]
fn a_running_process_takes_up_a_new_policy_at_its_next_message() {
    let mut exim = Setup::new().library().auth().acl("acl_smtp_rcpt", OVER).build();
    apply(&exim, "[policy.p]\ndefault.recipients = \"1.5/1w\"\n");
    exim.start();
    let mut client = exim.session();
    login(&mut client, "alice");
    let codes = |client: &mut Client| {
        assert!(client.command("RSET").is_ok());
        assert!(client.command("MAIL FROM:<a@client.test>").is_ok());
        [(); 3].map(|()| client.command("RCPT TO:<u@private.test>").code)
    };
    assert_eq!(codes(&mut client), [250, 451, 451]);
    apply(&exim, "[policy.p]\ndefault.recipients = \"4.5/1w\"\n");
    assert_eq!(codes(&mut client), [250, 250, 250]);
    // A file that is not sound never replaces it: see the tests of `policy apply`.
    apply(
        &exim,
        "[policy.p]\ndefault.recipients = \"1.5/1w\"\nuser.alice.recipients = \"unlimited\"\n",
    );
    assert_eq!(codes(&mut client), [250, 250, 250]);
    assert_eq!(exim.log("panic"), "");
}

#[test]
fn checks_are_counted_by_rule_mode_and_verdict() {
    let policies = "[policy.refuses]\nupdate = \"strict\"\n\
                    default.recipients = [\"2.5/1w\", \"9/2w\"]\n\
                    verdicts = { \"100%\" = \"reject\" }\n\
                    [policy.watches]\naction = \"observe\"\ndefault.recipients = \"1.5/1w\"\n\
                    [policy.elsewhere]\nwhen = \"null_sender\"\ndefault.recipients = \"1/1w\"\n";
    let acl = "  warn condition = ${dlfunc{EXIRATE}{policy_over}{watches, elsewhere}}\n\
               \x20 deny condition = ${dlfunc{EXIRATE}{policy_over}{refuses}}\n  accept\n";
    let mut exim = Setup::new().library().acl("acl_smtp_rcpt", acl).build();
    apply(&exim, policies);
    exim.start();
    let say = |count: usize| {
        let mut client = exim.session();
        assert!(client.command("MAIL FROM:<a@client.test>").is_ok());
        (0..count).map(|_| client.command("RCPT TO:<u@private.test>").code).collect::<Vec<_>>()
    };
    assert_eq!(say(3), [250, 250, 550]);
    let counted = || {
        let found = counters::read(&exim.spool()).unwrap().unwrap();
        let row = |rule: RuleCounts| (rule.policy + " " + &rule.rule, rule.enforced, rule.observed);
        (found.rules.into_iter().map(row).collect::<Vec<_>>(), found.errors, found.uncounted)
    };
    let row = |name: &str, enforced, observed| (name.to_owned(), enforced, observed);
    let rows = vec![
        row("refuses recipients/1w", [2, 0, 0, 0, 0, 1], [0; 6]),
        row("refuses recipients/2w", [3, 0, 0, 0, 0, 0], [0; 6]),
        // What it would have been.
        row("watches recipients/1w", [0; 6], [1, 0, 0, 0, 2, 0]),
    ];
    assert_eq!(counted(), (rows, 0, 0));
    // A damaged file is replaced, and never fails a check. So is one that is no file.
    let path = exim.spool().join("exirate/policy.counters");
    std::fs::write(&path, "damaged").unwrap();
    assert_eq!(say(1), [550]);
    let [refused, ..] = &counted().0[..] else { panic!() };
    assert_eq!(refused.1, [0, 0, 0, 0, 0, 1]);
    std::fs::remove_file(&path).unwrap();
    std::fs::create_dir(&path).unwrap();
    assert_eq!(say(1), [550]);
    std::fs::remove_dir(&path).unwrap();
    // An evaluation that fails.
    std::fs::remove_file(image_path(&exim)).unwrap();
    assert_eq!(say(1), [250]);
    assert_eq!(counted(), (vec![], 3, 0));
    assert_eq!(exim.log("panic"), "");
}

#[test]
fn what_cannot_be_evaluated_is_logged_and_accepted_or_deferred() {
    let acl = "  warn set acl_m_v = ${dlfunc{EXIRATE}{policy}{$acl_m_name}{package=$acl_m_more}}\n\
               \x20 defer condition = ${if eq{$acl_m_v}{defer}}\n\
               \x20       message = ${dlfunc{EXIRATE}{policy_info}{text}}\n\
               \x20 accept message = $acl_m_v ${dlfunc{EXIRATE}{policy_info}{error}}\n";
    let names = "  warn set acl_m_name = $sender_address_local_part\n  accept\n";
    let mut exim =
        Setup::new().library().acl("acl_smtp_mail", names).acl("acl_smtp_rcpt", acl).build();
    let reply = |exim: &PrivateExim, policy: &str| {
        let mut client = exim.session();
        assert!(client.command(format!("MAIL FROM:<{policy}@client.test>")).is_ok());
        client.command("RCPT TO:<u@private.test>").text
    };
    exim.start();
    let none = reply(&exim, "open");
    // Exim breaks a long reply into lines after a colon.
    let none = none.replace("250-", "250 ");
    assert!(none.starts_with("250 accept no policy image at "), "{none}");
    assert!(none.contains("run `exirate policy apply`"), "{none}");
    exim.wait_for_log("exirate: cannot evaluate the policy \"open\", so the mail is not limited by it (on_error = fail-open): no policy image", 1);
    let limits = "default.recipients = \"9/1w\"\n";
    apply(
        &exim,
        &format!("[policy.open]\n{limits}[policy.closed]\non_error = \"fail-closed\"\n{limits}"),
    );
    assert_eq!(reply(&exim, "open"), "250 accept");
    assert_eq!(
        reply(&exim, "opne"),
        "250 accept there is no policy \"opne\" (the policies are: closed, open)"
    );
    // A database that cannot be used.
    let database = exim.spool().join("exirate").join("database");
    let permissions = std::fs::metadata(&database).unwrap().permissions();
    std::fs::set_permissions(&database, PermissionsExt::from_mode(0o0)).unwrap();
    let open = reply(&exim, "open");
    assert!(open.starts_with("250-accept ratelimit database not available:"), "{open}");
    assert_eq!(reply(&exim, "closed"), "451 Temporarily unavailable; try again later");
    std::fs::set_permissions(&database, permissions).unwrap();
    // A damaged image.
    let path = image_path(&exim);
    let mut bytes = std::fs::read(&path).unwrap();
    let last = bytes.len() - 1;
    bytes[8] ^= 1;
    bytes[last] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    let damaged = reply(&exim, "closed");
    assert!(damaged.starts_with("250-accept the policy image "), "{damaged}");
    assert_eq!(exim.log("panic"), "");
}

#[test]
fn wrong_calls_show_how_to_write_them() {
    let exim = Setup::new().library().build();
    apply(&exim, "[policy.p]\ndefault.recipients = \"9/1w\"\n");
    for (call, error) in [
        ("{policy}", "policy takes the name of a policy, and attributes"),
        (
            "{policy}{p}{gold}",
            "\"gold\" is not an attribute (the attributes are: package=, script=, on_error=, \
             refused=, at=, age=)",
        ),
        ("{policy}{p}{on_error=open}", "on_error= is fail-open or fail-closed, not \"open\""),
        ("{policy_info}{verdict}", "no policy has been evaluated in this process yet"),
        ("{policy_info}{verdicts}", "unknown field \"verdicts\" (one of: verdict, text, "),
        ("{policy_info}", "policy_info takes exactly one argument, FIELD, but 0 were given"),
    ] {
        let ran = exim.expand(&format!("${{dlfunc{{{}}}{call}}}", exim.library().display()));
        assert!(ran.stdout.contains(error), "{call}: {}", ran.stdout);
    }
    let library = exim.library();
    let library = library.display();
    let fields = [
        "policy",
        "rule",
        "window",
        "unit",
        "key",
        "rate",
        "limit",
        "remaining",
        "delay",
        "score",
        "crossed",
        "observed",
        "exempt",
        "measured",
        "error",
    ];
    let fields: Vec<_> = fields
        .iter()
        .map(|field| format!("${{dlfunc{{{library}}}{{policy_info}}{{{field}}}}}"))
        .collect();
    // Exim reads lines of limited length; all are expanded in one process.
    let first = format!("${{dlfunc{{{library}}}{{policy}}{{*}}{{on_error=fail-closed}}}}");
    let lines: Vec<String> = fields.chunks(5).map(|fields| fields.join("|")).collect();
    let ran = exim.run(&["-be"], format!("{first}\n{}\n", lines.join("\n")).as_bytes());
    let shown: Vec<&str> = ran.stdout.lines().map(|l| l.trim_start_matches("> ")).collect();
    let key = format!("local_account:{}", login_name());
    let expected = [
        "accept",
        &format!("p|default|9/1w|recipients|{key}"),
        "1.0|9|8|0|0.111",
        "no|no|no|accept|",
    ];
    assert_eq!(shown[..4], expected, "{}", ran.stderr);
}

/// The account that runs the test, as Exim names it.
fn login_name() -> String {
    let ran = std::process::Command::new("id").arg("-un").output().unwrap();
    String::from_utf8(ran.stdout).unwrap().trim().to_owned()
}

/// An Exim with the shipped ACL file in its ACLs.
pub(crate) fn with_the_shipped_acl(setup: Setup) -> PrivateExim {
    shipped_acl_before(setup, "  accept\n")
}

/// The same, with these lines after it at RCPT.
pub(crate) fn shipped_acl_before(setup: Setup, at_rcpt: &str) -> PrivateExim {
    let include = ".include PRIVATE/exim/acl_policy.conf\n";
    let mut setup = setup.library().auth().main(".include PRIVATE/exim/exirate.conf");
    setup = setup.acl("acl_smtp_rcpt", &format!("{include}{at_rcpt}"));
    for option in ["acl_smtp_data", "acl_not_smtp", "acl_smtp_auth"] {
        setup = setup.acl(option, &format!("{include}  accept\n"));
    }
    let exim = setup.build();
    copy_shipped(&exim);
    exim
}

/// The same with the shipped policy, with `change`.
fn shipped_exim(change: impl FnOnce(String) -> String) -> PrivateExim {
    let exim = with_the_shipped_acl(Setup::new());
    let policy = std::fs::read_to_string(shipped().join("policy.toml")).unwrap();
    apply(&exim, &change(policy.replace("version = 1\n", "")));
    exim
}

fn recipients(client: &mut Client, count: usize) -> Vec<String> {
    assert_eq!(client.command("MAIL FROM:<s@client.test>").code, 250);
    (0..count).map(|n| client.command(format!("RCPT TO:<r{n}@private.test>")).text).collect()
}

#[test]
fn the_shipped_policy_covers_users_local_programs_and_clients() {
    let mut exim = shipped_exim(|policy| {
        let policy =
            policy.replace("unique_recipients = \"100/1h\"", "unique_recipients = \"3/1h\"");
        let policy = policy.replace("\"2000/1h\"", "\"5.5/1h\"");
        policy.replace("recipients = \"1000/1h\"", "recipients = \"3/1h\"")
    });
    exim.start();
    let mut client = exim.session();
    login(&mut client, "alice");
    let replies = recipients(&mut client, 4);
    assert!(replies[1].starts_with("250"), "{replies:?}");
    let text = "451 Over the limit of 3 unique recipients in 1h; try again in ";
    assert!(replies[3].starts_with(text), "{replies:?}");
    exim.wait_for_log(
        "policy outbound: defer [127.0.0.1]: 4.0 unique_recipients, limit 3/1h, key auth:alice \
         (default)",
        1,
    );
    drop(client);
    // Root is not limited: day_of_mail.rs has a web form.
    let to: Vec<String> = (0..4).map(|n| format!("r{n}@private.test")).collect();
    let to: Vec<&str> = to.iter().map(String::as_str).collect();
    assert_eq!(exim.run(&to, b"Subject: x\n\nx\n").code, 0);
    // Programs that use SMTP on this machine share a limit of their own.
    let mut client = exim.session();
    let replies = recipients(&mut client, 6);
    assert!(replies[4].starts_with("250"), "{replies:?}");
    assert!(replies[5].starts_with("451 Over the limit of 5.5 recipients"), "{replies:?}");
    drop(client);
    // A client, which does not authenticate.
    let (mut client, _) = exim.pipe(&["-oMa", "192.0.2.7", "-bs"]);
    assert_eq!(client.expect().code, 220);
    client.command("EHLO client.test");
    let replies = recipients(&mut client, 4);
    assert!(
        replies[1].starts_with("250")
            && replies[3].starts_with("451 Over the limit of 3 recipients"),
        "{replies:?}"
    );
    let panics = exim.log("panic");
    assert!(panics.lines().all(|line| line.contains("lost privilege for using -C")), "{panics}");
}

#[test]
fn the_caps_of_a_message_have_texts_of_their_own() {
    let policy = "[policy.p]\ntext = \"try again in {retry_after}\"\n\
                  texts.recipients_per_message = \"No more than {limit} {unit}\"\n\
                  default.recipients_per_message = 2\ndefault.message_size = \"2k\"\n";
    let mut exim = shipped_exim(|_| policy.to_owned());
    exim.start();
    let mut client = exim.session();
    let small = client.message("s@client.test", &["a@private.test"], "Subject: x\n\nx\n");
    assert_eq!(small.code, 250, "{}", small.text);
    let replies = recipients(&mut client, 3);
    assert!(replies[1].starts_with("250"), "{replies:?}");
    assert!(replies[2].starts_with("451 No more than 2 recipients per message"), "{replies:?}");
    client.command("RSET");
    // As soon as the client declares it, or else when it has been received.
    let too_large = "550 A message may have at most 2k bytes";
    assert_eq!(client.command("MAIL FROM:<s@client.test> SIZE=3000").code, 250);
    let reply = client.command("RCPT TO:<a@private.test>");
    assert!(reply.text.starts_with(too_large), "{}", reply.text);
    client.command("RSET");
    let text = format!("Subject: x\n\n{}", "123456789\n".repeat(300));
    let reply = client.message("s@client.test", &["a@private.test"], &text);
    assert!(reply.text.starts_with(too_large), "{}", reply.text);
    assert_eq!(exim.log("panic"), "");
}

#[test]
fn the_shipped_lines_act_on_every_verdict() {
    for (verdict, code) in
        [("reject", 550), ("defer", 451), ("log", 250), ("delay", 250), ("hold", 250)]
    {
        let policy = format!(
            "[policy.p]\nupdate = \"strict\"\nlongest_delay = \"1s\"\n\
             default.recipients = \"1.5/1w\"\nverdicts = {{ \"100%\" = \"{verdict}\" }}\n"
        );
        let mut exim = shipped_exim(|_| policy);
        exim.start();
        let mut client = exim.session();
        let reply = client.message(
            "s@client.test",
            &["a@private.test", "b@private.test"],
            "Subject: x\n\nx\n",
        );
        assert_eq!(reply.code, code, "{verdict}: {}", reply.text);
        client.quit();
        let log = exim.log("main");
        assert!(
            log.contains(&format!(
                "policy p: {verdict} [127.0.0.1]: 2.0 recipients, limit 1.5/1w, key client:127.0.0.1 \
                 (default)"
            )),
            "{log}"
        );
        assert_eq!(log.contains("frozen"), verdict == "hold", "{log}");
        assert_eq!(exim.log("panic"), "");
    }
}
