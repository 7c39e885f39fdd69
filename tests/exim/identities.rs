//! One identity has one limit in Exim, however a client or an administrator writes it.

use std::process::Command;

use crate::acl_files::{codes, exim, login, recipients, session};
use crate::policy::{apply, rates};
use kit::{Client, PrivateExim};

/// Spellings that authenticators may take for `alice`.
const ALICE: [&[u8]; 14] = [
    b"alice",
    b"ALICE",
    b"alice ",
    b" alice",
    b"alice\t",
    b"alice\n",
    b"alice\r\n",
    b"alice.",
    b"alice. .",
    b"alice@",
    b"alice\x0b\x7f",
    b"alice\xc2\xa0",
    br"alice\n",
    b"\x01\nAlice \t\n",
];

/// A session of a user with this login.
fn user(exim: &PrivateExim, name: impl AsRef<[u8]>) -> Client {
    let mut client = session(exim, [127, 0, 0, 1]);
    login(&mut client, name);
    client
}

/// Runs the program on the database of `exim`; what it printed.
fn exirate(exim: &PrivateExim, arguments: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_exirate"));
    let output = command.args(arguments).arg("--spool").arg(exim.spool()).output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8(said).unwrap())
}

#[test]
fn a_login_has_one_limit_however_it_is_written() {
    for file in ["acl_check_rcpt.conf", "acl_check_rcpt_lookup.conf"] {
        let macros = "RATELIMIT_USER = 2.5 / 1w\nRATELIMIT_FILE = PRIVATE/exim/limits";
        let mut exim = exim(macros, "acl_smtp_rcpt", file);
        exim.start();
        let passes = |name: &[u8]| {
            let mut client = user(&exim, name);
            let replies = recipients(&mut client, &["x", "y", "z"]);
            codes(&replies).iter().filter(|code| **code == "250").count()
        };
        let first = passes(b"alice");
        assert_eq!(first, 2, "{file}");
        for name in ALICE {
            assert_eq!(passes(name), 0, "{file} {}", name.escape_ascii());
        }
        // Others have limits of their own. Bytes that are no UTF-8 are all one character.
        let long = "A".repeat(3000);
        let other = "A".repeat(2999) + "b";
        for (name, passed) in [
            (&b"alice2"[..], 2),
            (br"a\303b", 2),
            (br"CORP\alice", 2),
            ("\u{c4}lice".as_bytes(), 2),
            ("\u{e4}LICE ".as_bytes(), 0),
            ("a\u{308}lice".as_bytes(), 2),
            (b"\xe4lice", 2),
            (b"\xf6LICE", 0),
            (b"=?utf-8?q?alice?=", 2),
            (long.as_bytes(), 2),
            (long.to_lowercase().as_bytes(), 0),
            (other.as_bytes(), 2),
        ] {
            assert_eq!(passes(name), passed, "{file} {}", name.escape_ascii());
        }
        // A NUL ends the login.
        let mut client = session(&exim, [127, 0, 0, 1]);
        let plain = crate::acl_files::base64(b"\0alice\0x\0good");
        assert_eq!(client.command(format!("AUTH PLAIN {plain}")).code, 535);
        assert_eq!(exim.log("panic"), "");
    }
}

#[test]
fn bytes_of_a_login_are_counted_together() {
    let mut exim = exim("RATELIMIT_BYTES = 8k / 1w", "acl_smtp_data", "acl_check_data.conf");
    exim.start();
    let text = format!("Subject: x\n\n{}", "0123456789abcde\n".repeat(312));
    let mut codes = Vec::new();
    for name in ALICE {
        let mut client = user(&exim, name);
        codes.push(client.message("s@client.test", &["a@private.test"], &text).code);
    }
    assert_eq!((codes[0], &codes[1..]), (250, &[451; 13][..]));
}

/// The replies to so many RCPTs from a client with this address.
fn from(exim: &PrivateExim, address: &str, count: usize) -> Vec<String> {
    let (mut client, _) = exim.pipe(&["-bs", "-oMa", address]);
    let greeting = client.expect().text;
    if !greeting.starts_with("220") {
        return vec![greeting];
    }
    client.command("EHLO client.test");
    let replies = recipients(&mut client, &["a", "b", "c", "d"][..count]);
    client.quit();
    replies
}

#[test]
fn a_network_of_ipv6_has_one_limit() {
    let spellings =
        ["2001:db8::1", "2001:DB8:0:0::2", "2001:0db8:0000:0000:ffff::3", "2001:db8::4"];
    let limited =
        exim("RATELIMIT_CLIENT = 2.5 / 1w", "acl_smtp_rcpt", "acl_check_rcpt_client.conf");
    let replies: Vec<String> = spellings.iter().flat_map(|one| from(&limited, one, 1)).collect();
    assert_eq!(codes(&replies), ["250", "250", "451", "451"]);
    assert_eq!(codes(&from(&limited, "2001:db8:0:1::1", 1)), ["250"]);
    for (address, expected) in [("::ffff:192.0.2.7", ["250"; 2]), ("192.0.2.7", ["451"; 2])] {
        assert_eq!(codes(&from(&limited, address, 2)), expected, "{address}");
    }
    let connects =
        exim("RATELIMIT_CONNECT = 2.5 / 1w", "acl_smtp_connect", "acl_check_connect.conf");
    let replies: Vec<String> = spellings.iter().flat_map(|one| from(&connects, one, 1)).collect();
    assert_eq!(codes(&replies), ["250", "250", "451", "451"]);
    // An address finds the record of its network, and a denial is one of the network.
    let (code, said) = exirate(&connects, &["list", "2001:db8::9"]);
    assert!(code == Some(0) && said.contains("2001:db8::/64"), "{said}");
    exirate(&connects, &["unblock", "2001:db8::9"]);
    assert_eq!(codes(&from(&connects, "2001:db8::1", 1)), ["250"]);
    assert_eq!(exirate(&connects, &["deny", "2001:db8::9"]).0, Some(0));
    assert_eq!(codes(&from(&connects, "2001:db8::1", 1)), ["451"]);
    for (macros, option, file, log) in [
        ("RATELIMIT_BRISK = 2.5 / 1w\nRATELIMIT_DELAY = 0s", "acl_smtp_rcpt", "_delay", "at 3.0"),
        ("", "acl_smtp_rcpt", "_measure", "sends 4.0"),
    ] {
        let exim = exim(macros, option, &format!("acl_check_rcpt{file}.conf"));
        spellings.iter().for_each(|one| drop(from(&exim, one, 1)));
        assert!(exim.log("main").contains(log), "{file}: {}", exim.log("main"));
    }
}

#[test]
fn the_policies_in_use_say_how_logins_are_folded() {
    let mut exim = exim("RATELIMIT_USER = 2.5 / 1w", "acl_smtp_rcpt", "acl_check_rcpt.conf");
    exim.start();
    let mut running = user(&exim, "alice+x");
    assert_eq!(codes(&recipients(&mut running, &["a", "b", "c"])), ["250", "250", "451"]);
    let mut other = user(&exim, "alice");
    assert_eq!(codes(&recipients(&mut other, &["a"])), ["250"]);
    apply(&exim, "[identity]\nfold = { plus = true }\nqualify = \"x.test\"\n");
    let mut after = user(&exim, "Alice+y");
    assert_eq!(codes(&recipients(&mut after, &["a", "b", "c"])), ["250", "250", "451"]);
    let mut after = user(&exim, "alice@X.test");
    assert_eq!(codes(&recipients(&mut after, &["a"])), ["451"]);
    let (code, said) = exirate(&exim, &["show", "ALICE+z"]);
    assert!(code == Some(0) && said.contains("alice@x.test"), "{said}");
    assert_eq!(exim.log("panic"), "");
}

#[test]
fn tables_of_policies_find_logins_that_are_not_ascii() {
    let acl = "  defer condition = ${dlfunc{EXIRATE}{policy_over}{p}}\n  accept\n";
    let setup = kit::Setup::new().library().auth().acl("acl_smtp_rcpt", acl);
    let mut exim = setup.build();
    apply(
        &exim,
        "[policy.p]\ndefault.recipients = \"1k/1w\"\nuser.\"\u{c4}lice\".recipients = \"1.5/1w\"\n\
         [[policy.p.exempt]]\nmatch = \"J\u{fc}rgen@x.test\"\nreason = \"x\"\n",
    );
    exim.start();
    let mut replies = Vec::new();
    for name in ["\u{c4}LICE", "\u{e4}lice", "\u{e4}lice\n"] {
        replies.extend(recipients(&mut user(&exim, name), &["a"]));
    }
    assert_eq!(codes(&replies), ["250", "451", "451"]);
    let counted = rates(&exim);
    assert_eq!(counted.len(), 1, "{counted:?}");
    assert!(counted.contains_key("recipients auth:\u{e4}lice"), "{counted:?}");
    // As the log shows it.
    let escaped = r"\303\204LICE";
    assert!(exirate(&exim, &["show", escaped]).1.contains("auth:"));
    assert_eq!(exirate(&exim, &["unblock", escaped]).0, Some(0));
    assert_eq!(codes(&recipients(&mut user(&exim, "\u{c4}lice"), &["a"])), ["250"]);
}

#[test]
fn recipients_that_are_blank_are_counted() {
    let acl = "  defer condition = ${dlfunc{EXIRATE}{policy_over}{p}}\n  accept\n";
    let mut exim = kit::Setup::new().library().acl("acl_smtp_rcpt", acl).build();
    apply(&exim, "[policy.p]\nupdate = \"strict\"\ndefault.unique_recipients = \"2.5/1w\"\n");
    exim.start();
    let mut client = exim.session();
    client.command("MAIL FROM:<s@client.test>");
    let mut to = |local: &str| client.command(format!("RCPT TO:<{local}@private.test>")).code;
    // However many blanks, it is one recipient, and one.
    let all = [r#"" ""#, r#"" ""#, r#""  ""#, "a", "b"];
    assert_eq!(all.map(&mut to), [250, 250, 250, 250, 451]);
}

#[test]
fn a_denial_stops_a_login_however_it_is_written_and_nothing_that_strangers_choose() {
    let acl = "  defer condition = ${dlfunc{EXIRATE}{policy_over}{login}}\n  \
               deny condition = ${dlfunc{EXIRATE}{policy_over}{sender}}\n        \
               message = as the sender\n  accept\n";
    let mut exim = kit::Setup::new().library().auth().acl("acl_smtp_rcpt", acl).build();
    apply(
        &exim,
        "[policy.login]\nwhen = \"authenticated\"\ndefault.recipients = \"1k/1w\"\n\
         [policy.sender]\nkey = \"sender\"\ndefault.recipients = \"1k/1w\"\n",
    );
    exim.start();
    let login_code = |name: &str| recipients(&mut user(&exim, name), &["a"])[0][..3].to_owned();
    let from = |sender: &str| {
        let mut client = session(&exim, [127, 0, 0, 1]);
        client.command(format!("MAIL FROM:<{sender}>"));
        client.command("RCPT TO:<a@private.test>").code
    };
    assert_eq!(login_code("paula@example.org"), "250");
    assert_eq!(from("paula@example.org"), 250);
    let (code, said) = exirate(&exim, &["deny", "Paula@Example.org"]);
    assert!(code == Some(0) && !said.contains("seen"), "{said}");
    for name in ["paula@example.org", "PAULA@example.org", "Paula@Example.org. "] {
        assert_eq!(login_code(name), "451", "{name}");
    }
    assert_eq!(from("paula@example.org"), 250, "a stranger");
    let (code, said) = exirate(&exim, &["deny", "bob@example.org"]);
    let unseen = "bob@example.org has not been seen yet; it is denied from now on";
    assert!(code == Some(0) && said.contains(unseen), "{said}");
    assert_eq!(login_code("Bob@example.org"), "451");
    assert_eq!(from("bob@example.org"), 250);
    // A line of one's own says what its verb says.
    assert_eq!(exirate(&exim, &["deny", "sender:Bob@example.org", "--reply", "defer"]).0, Some(0));
    assert_eq!(from("bob@example.org"), 550);
    let forever = ["deny", "erin@example.org", "--until", "forever", "--reply", "reject"];
    assert_eq!(exirate(&exim, &forever).0, Some(0));
    assert_eq!(login_code("erin@example.org"), "451");
    // A policy that folds otherwise has denials fold so.
    let policy = exim.folder().join("policy.toml");
    let text = "version = 1\n[identity]\nqualify = \"x.test\"\n[policy.login]\n\
                default.recipients = \"1k/1w\"\n[policy.sender]\nkey = \"sender\"\n\
                default.recipients = \"1k/1w\"\n";
    assert_eq!(exirate(&exim, &["deny", "carol"]).0, Some(0));
    std::fs::write(&policy, text).unwrap();
    let (code, said) = exirate(&exim, &["policy", "apply", policy.to_str().unwrap()]);
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(login_code("carol@x.test"), "451");
    assert_eq!(login_code("dora"), "250");
    // The shipped lines say what the denial says.
    let mut shipped = crate::acl_files::exim("", "acl_smtp_rcpt", "acl_policy.conf");
    apply(&shipped, "[policy.p]\nwhen = \"authenticated\"\ndefault.recipients = \"1k/1w\"\n");
    shipped.start();
    for (denied, until, code) in [("carol", "forever", "550"), ("dora", "1h", "451")] {
        let (status, said) = exirate(&shipped, &["deny", denied, "--until", until]);
        assert_eq!(status, Some(0), "{said}");
        assert_eq!(codes(&recipients(&mut user(&shipped, denied), &["a"])), [code], "{denied}");
    }
}
