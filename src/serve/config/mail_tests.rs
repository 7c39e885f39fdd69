use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{Address, Checked, EarlyStage, Mail, check_mail};
use crate::identity::network::Cidr;
use crate::policy::word::OnError;
use crate::serve::socket::Access;
use crate::toml_file::diagnostic::place;

fn found(text: &str) -> (Option<Mail>, Vec<String>) {
    let Checked { config, diagnostics } = check_mail(Path::new("/f"), text);
    let files = [PathBuf::from("f")];
    let lines = diagnostics.sorted().into_iter();
    let lines = lines.map(|one| format!("{}: {}", place(&files, one.at), one.message));
    (config, lines.collect())
}

fn sound(text: &str) -> Mail {
    let (config, lines) = found(text);
    assert_eq!(lines, [""; 0]);
    config.unwrap()
}

#[test]
fn a_small_configuration_has_defaults() {
    let mail = sound("[listen]\npolicy = \"unix:/run/a\"\n");
    assert_eq!(mail.policy, Some(Address::Unix("/run/a".into())));
    assert_eq!((mail.policies, mail.on_error, mail.prepend), (None, OnError::FailOpen, false));
    assert_eq!(mail.access, Access { mode: 0o660, group: None });
    assert_eq!((mail.max_connections, mail.max_in_flight), (4000, 1000));
    assert_eq!(mail.idle_timeout, Duration::from_mins(10));
    assert_eq!((mail.milter, mail.record, mail.early_stages), (None, false, vec![]));
    assert_eq!((mail.max_message, mail.max_buffered), (16 << 20, 128 << 20));
    assert!((2..=8).contains(&mail.workers));
    // Either Exim's directory, or the one without Exim.
    assert!(mail.spool.starts_with("/var"), "{}", mail.spool.display());
}

#[test]
fn everything_can_be_set_beside_the_agent() {
    let mail = sound(
        r#"
        [listen]
        agent = "/run/exirate/agent.sock"
        policy = "inet:[2001:db8::1]:10031"
        allow = ["2001:db8::/64", "::1"]
        milter = "unix:/run/exirate/milter"
        [redis]
        password_file = "/nonexistent/which/only/the/agent/may/read"
        [agent]
        servers = 4
        [mail]
        spool = "/srv/exirate"
        policy_file = "/etc/exirate/policy.toml"
        policies = ["users", "clients"]
        on_error = "fail-closed"
        prepend = true
        early_stages = ["connect", "mail"]
        record = true
        max_message = "1M"
        max_buffered = "2G"
        socket_mode = "0600"
        socket_group = "root"
        max_connections = 5
        max_in_flight = 6
        workers = 7
        idle_timeout = "20s"
        "#,
    );
    let expected = Mail {
        policy: Some(Address::Inet("[2001:db8::1]:10031".parse().unwrap())),
        milter: Some(Address::Unix("/run/exirate/milter".into())),
        allow: ["2001:db8::/64", "::1"].map(|one| Cidr::parse(one).unwrap()).into(),
        spool: "/srv/exirate".into(),
        policy_file: Some("/etc/exirate/policy.toml".into()),
        policies: Some(vec!["users".to_owned(), "clients".to_owned()]),
        on_error: OnError::FailClosed,
        prepend: true,
        early_stages: vec![EarlyStage::Connect, EarlyStage::Mail],
        record: true,
        max_message: 1 << 20,
        max_buffered: 2 << 30,
        access: Access { mode: 0o600, group: Some(0) },
        max_connections: 5,
        max_in_flight: 6,
        workers: 7,
        idle_timeout: Duration::from_secs(20),
    };
    assert_eq!(mail, expected);
    assert_eq!(expected.policy.unwrap().to_string(), "inet:[2001:db8::1]:10031");
    for (text, address) in [("/run/a", "unix:/run/a"), ("inet:0.0.0.0:1", "inet:0.0.0.0:1")] {
        let listen = format!("[listen]\nallow = [\"127.0.0.0/8\"]\npolicy = {text:?}\n");
        let mail = sound(&format!("{listen}[mail]\npolicies = \"*\""));
        assert_eq!((mail.policy.unwrap().to_string().as_str(), mail.policies), (address, None));
    }
}

#[test]
fn a_port_that_every_local_user_reaches_is_a_warning() {
    for (text, address) in [
        ("inet:localhost:25", "inet:127.0.0.1:25"),
        ("inet:127.0.0.2:25", "inet:127.0.0.2:25"),
        ("inet:[::1]:25", "inet:[::1]:25"),
    ] {
        for name in ["policy", "milter"] {
            let (mail, lines) = found(&format!("[listen]\n{name} = {text:?}\n"));
            let expected = format!(
                "f:2:10: every user of this machine can connect to {address}, and count in the name \
                 of others; use a unix socket, such as \"unix:/var/spool/postfix/exirate/{name}\""
            );
            assert_eq!(lines, [expected]);
            assert!(mail.is_some());
        }
    }
}

#[test]
fn every_error_says_where_and_what_would_be_right() {
    let address = |text: &str| {
        format!(
            "f:2:10: {text:?} is not an address to listen on; expected such as \
             \"unix:/var/spool/postfix/exirate/policy\" or \"inet:127.0.0.1:8893\""
        )
    };
    let mail = |line: &str| format!("[listen]\npolicy = \"/a\"\n[mail]\n{line}\n");
    let listen = |text: &str| format!("[listen]\npolicy = {text:?}\n");
    for (text, expected) in [
        (
            String::new(),
            "f:1:1: [listen] names no socket for mail servers, such as policy = \
             \"unix:/var/spool/postfix/exirate/policy\" or milter = \
             \"unix:/var/spool/postfix/exirate/milter\""
                .to_owned(),
        ),
        (listen("tcp:1"), address("tcp:1")),
        (listen("inet:host.example:1"), address("inet:host.example:1")),
        (listen("inet:127.0.0.1:0"), address("inet:127.0.0.1:0")),
        (listen("inet:127.0.0.1"), address("inet:127.0.0.1")),
        (
            listen("unix:a"),
            "f:2:10: \"a\" is not the full path of a socket; expected such as \
             \"/run/exirate/policy\""
                .to_owned(),
        ),
        (
            listen("inet:0.0.0.0:10040"),
            "f:2:10: 0.0.0.0:10040 can be reached from other machines, and who connects counts in \
             the name of others; allow = [\"172.22.1.0/24\"] names the networks that may connect"
                .to_owned(),
        ),
        (
            "[listen]\nmilter = \"inet:[::]:1\"\nallow = [\"mail.example\"]\n".to_owned(),
            "f:3:10: \"mail.example\" is not a network; expected such as 192.0.2.0/24, 192.0.2.7 or \
             2001:db8::/32"
                .to_owned(),
        ),
        (
            "[listen]\nmilter = \"inet:[::]:1\"\nallow = []\n".to_owned(),
            "f:3:9: the array is empty; expected such as [\"172.22.1.0/24\"]".to_owned(),
        ),
        (
            mail("spool = \"a\""),
            "f:4:9: \"a\" is not a full path; expected such as \
             \"/var/lib/exirate\""
                .to_owned(),
        ),
        (
            mail("on_error = \"reject\""),
            "f:4:12: unknown on_error \"reject\"; allowed: fail-open, fail-closed".to_owned(),
        ),
        (
            mail("socket_mode = \"9\""),
            "f:4:15: \"9\" is not the mode of a socket; expected such as \"0660\"".to_owned(),
        ),
        (
            mail("socket_group = \"no-such\""),
            "f:4:16: there is no group \"no-such\" on this machine".to_owned(),
        ),
        (
            mail("idle_timeout = \"1\""),
            "f:4:16: \"1\" is not a time; expected such as \"600s\"".to_owned(),
        ),
        (
            mail("max_message = \"16\""),
            "f:4:15: \"16\" is not a number of bytes from 64k to 64G, with its unit; expected such \
             as \"16M\""
                .to_owned(),
        ),
        (
            mail("early_stages = [\"rcpt\"]"),
            "f:4:17: unknown stage \"rcpt\"; allowed: connect, helo, mail".to_owned(),
        ),
        (mail("workers = 0"), "f:4:11: 0 is not a number from 1 to 64".to_owned()),
    ] {
        let (config, lines) = found(&text);
        assert_eq!(lines, [expected], "{text}");
        assert!(config.is_none(), "{text}");
    }
}

#[test]
fn words_as_they_were_are_read_with_a_warning() {
    for (old, now, on_error) in [
        ("accept", "fail-open", OnError::FailOpen),
        ("tempfail", "fail-closed", OnError::FailClosed),
    ] {
        let text = format!("[listen]\npolicy = \"unix:/run/a\"\n[mail]\non_error = \"{old}\"\n");
        let (mail, lines) = found(&text);
        assert_eq!(mail.unwrap().on_error, on_error);
        assert_eq!(lines, [format!("f:4:12: \"{old}\" is now \"{now}\", as in a policy")]);
    }
}
