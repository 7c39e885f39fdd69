//! What policies count on other ways into Exim than its daemon, and when a message is
//! delivered while it is received.

use std::net::{Ipv4Addr, TcpListener};
use std::os::fd::OwnedFd;
use std::process::Stdio;

use crate::acl_files::login;
use crate::policy::{ALL_UNITS, OVER, STAGES, apply, rates};
use kit::{Client, PrivateExim, Setup};

/// A setup that evaluates the policy `p` in every ACL, twice in each, with `more` before
/// it in that for RCPT.
fn everywhere(more: &str) -> Setup {
    let twice = "  warn condition = ${dlfunc{EXIRATE}{policy_over}{p}}\n";
    STAGES.iter().fold(Setup::new().library().auth(), |setup, stage| {
        let more = if *stage == "acl_smtp_rcpt" { more } else { "" };
        setup.acl(stage, &format!("{more}{twice}{OVER}"))
    })
}

/// What is counted for an identity: messages, recipients, different recipients and
/// senders, connections.
fn counted(exim: &PrivateExim, key: &str) -> [i64; 5] {
    let seen = rates(exim);
    let units = ["messages", "recipients", "unique_recipients", "unique_senders", "connections"];
    units.map(|unit| seen.get(&format!("{unit} {key}")).copied().unwrap_or(0))
}

const TEXT: &str = "Subject: x\n\nhello\n";

#[test]
fn cutthrough_delivery_counts_each_thing_once() {
    let mut target = Setup::new().build();
    let port = target.start();
    let mut exim = everywhere("  warn control = cutthrough_delivery\n")
        .main("queue_only = false")
        .router(
            "remote:\n  driver = manualroute\n  domains = remote.test\n  transport = out\n\
             \x20 route_list = * 127.0.0.1\n  self = send",
        )
        .transport(&format!("out:\n  driver = smtp\n  port = {port}\n  allow_localhost"))
        .build();
    apply(&exim, ALL_UNITS);
    exim.start();
    let mut client = exim.session();
    login(&mut client, "cut");
    for (from, to) in [
        ("a@client.test", &["u@remote.test"][..]),
        ("a@client.test", &["v@remote.test"]),
        // Two recipients end it.
        ("b@client.test", &["u@remote.test", "w@remote.test"]),
    ] {
        let reply = client.message(from, to, TEXT);
        assert!(reply.is_ok(), "{}", reply.text);
    }
    client.quit();
    assert_eq!(counted(&exim, "auth:cut"), [3, 4, 3, 2, 1]);
    let bytes = rates(&exim)["bytes auth:cut"];
    assert!((50..2000).contains(&bytes), "{bytes}");
    // They were delivered while they were received.
    exim.wait_for_log(">> u@remote.test", 1);
    exim.wait_for_log(">> v@remote.test", 1);
    assert_eq!(exim.log("panic"), "");
}

#[test]
fn smtp_from_inetd_counts_each_thing_once() {
    let exim = everywhere("").build();
    apply(&exim, ALL_UNITS);
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    for connection in 1..=2 {
        let mut client = Client::connect(port, Ipv4Addr::new(127, 0, 0, 5));
        let (stream, _) = listener.accept().unwrap();
        let mut command = exim.command();
        command.arg("-bs").stderr(Stdio::null());
        command.stdin(OwnedFd::from(stream.try_clone().unwrap())).stdout(OwnedFd::from(stream));
        let mut process = command.spawn().unwrap();
        // Only Exim has the connection.
        drop(command);
        assert_eq!(client.expect().code, 220);
        client.command("EHLO client.test");
        for (from, to) in [
            ("a@client.test", &["u@private.test", "v@private.test"][..]),
            ("b@client.test", &["u@private.test"]),
        ] {
            let reply = client.message(from, to, TEXT);
            assert!(reply.is_ok(), "{}", reply.text);
        }
        client.quit();
        process.wait().unwrap();
        // All loopback addresses are one client.
        let of = counted(&exim, "client:127.0.0.1");
        assert_eq!(of, [2 * connection, 3 * connection, 2, 2, connection]);
    }
    assert_eq!(exim.log("panic"), "");
}
