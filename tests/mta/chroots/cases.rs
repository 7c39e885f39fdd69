//! What must hold with each mail server and each protocol. The cases run one after another
//! on one server; each has a user of its own.

use std::net::Ipv4Addr;

use serde_json::Value;

use super::addresses;
use super::server::{FrontEnd, Server};
use crate::document;
use kit::machine::{INSIDE, OUTSIDE};
use kit::until;

const ALERTS: &str = include_str!("../../../docs/alerts.md");
/// The text of the refusals that the document's policies make.
const OVER: &str = "Over the limit of 5 recipients in 1h; try again in ";
/// That of a client from outside.
const CLIENT: &str = "Over the limit of 8 recipients in 1h; try again in ";

/// All of them.
pub(super) fn all(server: &Server) {
    a_user_is_limited(server);
    swaks_sees_it(server);
    messages_of_a_connection_count_together(server);
    recipients_before_rset_count(server);
    pipelined_commands_have_their_replies(server);
    connections_of_a_user_count_together(server);
    a_held_message_waits(server);
    a_message_may_be_refused_for_good(server);
    bytes_count_when_a_message_is_there(server);
    bounces_have_a_null_sender(server);
    what_the_server_makes_itself_passes(server);
    the_sendmail_command_is_a_local_client(server);
    a_client_from_outside_is_limited(server);
    all_of_loopback_is_one_client(server);
    addresses::mean_the_same(server);
    if server.front_end != FrontEnd::Policy {
        messages_are_found_in_the_trace_store(server);
    }
    if server.front_end == FrontEnd::Policy {
        postfix_takes_the_fixes(server);
    }
    an_alert_is_mailed(server);
    the_doctor_sees_it(server);
}

/// What the doctor prints is taken by Postfix's own commands, and repairs what it was printed
/// for.
fn postfix_takes_the_fixes(server: &Server) {
    let check = "check_policy_service { unix:exirate/policy, timeout=10s, default_action=DUNNO }";
    let submission = "postconf -M 'submission/inet=submission inet n - y - - smtpd'";
    let back = "postconf -M '127.0.0.1:10025/inet=127.0.0.1:10025 inet n - y - - smtpd' && \
                postconf -P '127.0.0.1:10025/inet/content_filter='";
    let own = "submission/inet/smtpd_recipient_restrictions=$mua";
    for (broken, problem) in [
        (
            format!(
                "{submission} && postconf -P '{own}' && \
                 postconf -e 'mua = permit_sasl_authenticated, reject'"
            ),
            "the check is not in smtpd_recipient_restrictions of submission/inet",
        ),
        (
            format!(
                "{submission} && postconf -P '{own}' && postconf -e 'mua = permit_mynetworks, \
                 check_policy_service {{ unix:other/service, default_action={{450 try later}} }}'"
            ),
            "the check is not in smtpd_recipient_restrictions of submission/inet",
        ),
        (
            "postconf -e 'smtpd_recipient_restrictions = check_policy_service \
             unix:private/exirate, permit_mynetworks, reject'"
                .to_owned(),
            "smtpd_recipient_restrictions in main.cf asks unix:private/exirate",
        ),
        (
            format!(
                "postconf -e 'smtpd_restriction_classes = limited' 'limited = {check}' \
                 'smtpd_recipient_restrictions = permit_mynetworks, limited, reject'"
            ),
            "permit_mynetworks is before the check",
        ),
        (back.to_owned(), "each message counts twice"),
    ] {
        server.machine.run(&broken);
        let output = server.exirate("doctor --json");
        let found: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let findings = found["findings"].as_array().unwrap();
        let is_problem = |text: &str| {
            findings.iter().any(|one| {
                one["level"] == "problem" && one["text"].as_str().unwrap().contains(text)
            })
        };
        assert!(is_problem(problem), "{broken}: {found:#}");
        for fix in findings.iter().flat_map(|one| one["fix"].as_array().unwrap()) {
            let fix = fix.as_str().unwrap();
            if fix.starts_with("postconf ") {
                server.machine.run(fix);
            }
        }
        server.machine.run("postfix check");
        let output = server.exirate("doctor");
        assert_eq!(output.status.code(), Some(0), "{broken}: {output:?}");
    }
}

/// The refused recipients get nothing, the others the message.
fn a_user_is_limited(server: &Server) {
    let mut alice = server.machine.login("alice");
    assert!(alice.command("MAIL FROM:<alice@mail.test>").is_ok());
    for to in ["bob@mail.test", "u1@mail.test", "u2@mail.test", "u3@mail.test", "u4@mail.test"] {
        let reply = alice.command(format!("RCPT TO:<{to}>"));
        assert!(reply.is_ok(), "{to}: {reply:?}\n{}", server.log());
    }
    for _ in 0..2 {
        let reply = alice.command("RCPT TO:<carol@mail.test>");
        server.refused(&reply, 451, OVER);
    }
    let reply = alice.data("Subject: limited\r\n\r\nthe first of alice\r\n");
    assert!(reply.is_ok(), "{reply:?}");
    assert!(alice.quit().unwrap().is_ok());
    until("bob has it", || server.machine.read("/var/mail/bob").contains("the first of alice"));
    assert!(!server.machine.read("/var/mail/carol").contains("the first of alice"));
    // A line in the log, and a key for each command.
    until("a line in the log", || {
        let log = server.log();
        log.lines().any(|line| {
            line.contains("policy outbound: defer [192.0.2.2]: ") && line.contains("limit 5/1h")
        })
    });
    let listed = server.exirate("list");
    assert!(String::from_utf8_lossy(&listed.stdout).contains("alice@mail.test"), "{listed:?}");
}

/// As another client shows it to its user.
fn swaks_sees_it(server: &Server) {
    let login = ["--auth", "PLAIN", "--auth-user", "alice@mail.test", "--auth-password", "secret"];
    let message = ["--from", "alice@mail.test", "--to", "bob@mail.test"];
    let said = server.swaks(&[&login[..], &message].concat());
    let refused = said.lines().find(|line| line.starts_with("<** 45") && line.contains(" 4.7.1 "));
    assert!(refused.is_some_and(|line| line.contains(OVER)), "{said}");
}

fn messages_of_a_connection_count_together(server: &Server) {
    let mut dora = server.machine.login("dora");
    for _ in 0..2 {
        let to = ["u1@mail.test", "u2@mail.test"];
        let reply = dora.message("dora@mail.test", &to, "Subject: two\r\n\r\nx\r\n");
        assert!(reply.is_ok(), "{reply:?}\n{}", server.log());
    }
    assert!(dora.command("MAIL FROM:<dora@mail.test>").is_ok());
    assert!(dora.command("RCPT TO:<u1@mail.test>").is_ok());
    server.refused(&dora.command("RCPT TO:<u2@mail.test>"), 451, OVER);
    assert!(dora.quit().unwrap().is_ok());
}

fn recipients_before_rset_count(server: &Server) {
    let mut emil = server.machine.login("emil");
    for _ in 0..2 {
        assert!(emil.command("MAIL FROM:<emil@mail.test>").is_ok());
        for to in ["u1@mail.test", "u2@mail.test"] {
            assert!(emil.command(format!("RCPT TO:<{to}>")).is_ok(), "{}", server.log());
        }
        assert!(emil.command("RSET").is_ok());
    }
    assert!(emil.command("MAIL FROM:<emil@mail.test>").is_ok());
    assert!(emil.command("RCPT TO:<u3@mail.test>").is_ok());
    server.refused(&emil.command("RCPT TO:<u4@mail.test>"), 451, OVER);
    assert!(emil.quit().unwrap().is_ok());
}

fn pipelined_commands_have_their_replies(server: &Server) {
    let mut flora = server.machine.login("flora");
    let mut commands = "MAIL FROM:<flora@mail.test>\r\n".to_owned();
    for n in 0..8 {
        commands += &format!("RCPT TO:<u{n}@mail.test>\r\n");
    }
    flora.send((commands + "DATA\r\n").as_bytes());
    assert!(flora.expect().is_ok());
    for n in 0..8 {
        let reply = flora.expect();
        match n {
            0..5 => assert!(reply.is_ok(), "{n}: {reply:?}"),
            _ => server.refused(&reply, 451, OVER),
        }
    }
    assert_eq!(flora.expect().code, 354);
    flora.send(b"Subject: pipelined\r\n\r\nx\r\n.\r\n");
    let reply = flora.expect();
    assert!(reply.is_ok(), "{reply:?}");
    assert!(flora.quit().unwrap().is_ok());
}

fn connections_of_a_user_count_together(server: &Server) {
    for n in 0..7 {
        let mut gus = server.machine.login("gus");
        assert!(gus.command("MAIL FROM:<gus@mail.test>").is_ok());
        let reply = gus.command("RCPT TO:<u1@mail.test>");
        if n < 5 {
            assert!(reply.is_ok(), "{n}: {reply:?}");
        } else {
            server.refused(&reply, 451, OVER);
        }
        assert!(gus.quit().unwrap().is_ok());
    }
}

fn a_held_message_waits(server: &Server) {
    let machine = &server.machine;
    let mut hanna = machine.login("hanna");
    for text in ["goes out", "goes out as well", "is held one", "is held two", "is held three"] {
        let text = format!("Subject: hold\r\n\r\n{text}\r\n");
        let reply = hanna.message("hanna@hold.test", &["bob@mail.test"], &text);
        assert!(reply.is_ok(), "{reply:?}");
    }
    assert!(hanna.quit().unwrap().is_ok());
    let bob = || machine.read("/var/mail/bob");
    until("the others are delivered", || bob().contains("goes out as well"));
    let queue = hold_another(server);
    let sender = |sender: &str| machine.run(queue).matches(sender).count();
    assert_eq!((sender("hanna@hold.test"), sender("admin@mail.test")), (3, 1));
    assert!(!bob().contains("is held"));

    let held = || -> Value {
        let output = server.exirate("held --json");
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"))
    };
    let all = held();
    let all = all.as_array().unwrap();
    assert_eq!(all.len(), 3, "{all:?}");
    for one in all {
        assert_eq!(one["key"], "auth:hanna@mail.test");
        assert_eq!((&one["policy"], &one["recipients"]), (&"held".into(), &1.into()));
        assert_eq!(one["sender"], "hanna@hold.test");
        assert!(one["why"].as_str().unwrap().ends_with(".0 messages, limit 2/1h"), "{one}");
    }
    let id = |n: usize| all[n]["id"].as_str().unwrap();
    let shown = server.exirate(&format!("held show {}", id(0)));
    let shown = String::from_utf8(shown.stdout).unwrap();
    assert!(shown.contains("to:     bob@mail.test\n"), "{shown}");
    assert!(shown.contains("  Subject: hold\n"), "{shown}");
    let released = server.exirate(&format!("held release {}", id(0)));
    assert_eq!(released.status.code(), Some(0), "{released:?}");
    until("it is delivered", || bob().contains("is held"));
    assert_eq!(bob().matches("is held").count(), 1);
    let deleted = server.exirate("held delete hanna@mail.test --yes");
    assert_eq!(deleted.status.code(), Some(0), "{deleted:?}");
    assert_eq!(held(), Value::Array(Vec::new()));
    assert_eq!((sender("hanna@hold.test"), sender("admin@mail.test")), (0, 1));
    assert_eq!(bob().matches("is held").count(), 1);
}

/// Has the administrator hold a message; the command that lists all that is held.
fn hold_another(server: &Server) -> &'static str {
    let machine = &server.machine;
    if server.front_end == FrontEnd::Sendmail {
        machine.run(
            "printf 'Subject: mine\\n\\nx\\n' | sendmail -Am -odq -f admin@mail.test bob@mail.test
            sendmail -Am -qSadmin@mail.test -Qmine",
        );
        return "grep -h ^S /var/spool/mqueue/hf* || true";
    }
    machine.run(
        "echo '/^Subject: mine/ HOLD' >/etc/postfix/mine
        postconf -e 'header_checks = regexp:/etc/postfix/mine'
        postfix reload
        printf 'Subject: mine\\n\\nx\\n' | sendmail -f admin@mail.test bob@mail.test",
    );
    let held = "postqueue -j | grep '\"queue_name\": \"hold\"' || true";
    until("it is held", || machine.run(held).contains("admin@mail.test"));
    held
}

fn a_message_may_be_refused_for_good(server: &Server) {
    let mut ivo = server.machine.login("ivo");
    let to = ["u1@mail.test"];
    for _ in 0..2 {
        assert!(ivo.message("ivo@reject.test", &to, "Subject: one\r\n\r\nx\r\n").is_ok());
    }
    let reply = ivo.message("ivo@reject.test", &to, "Subject: three\r\n\r\nx\r\n");
    // A % in a milter's text is a directive, unless it is doubled.
    server.refused(&reply, 550, "100% of 2 messages");
    assert!(ivo.quit().unwrap().is_ok());
}

fn bytes_count_when_a_message_is_there(server: &Server) {
    let line = "0123456789abcdef".repeat(4) + "\r\n";
    let text = "Subject: large\r\n\r\n".to_owned() + &line.repeat(10 * 1024 * 1024 / line.len());
    let mut jan = server.machine.login("jan");
    let reply = jan.message("jan@large.test", &["u1@mail.test"], &text);
    assert!(reply.is_ok(), "{reply:?}");
    let reply = jan.message("jan@large.test", &["u1@mail.test"], &text);
    server.refused(&reply, 451, "Over 15M bytes in 1h");
    // Postfix keeps the envelope of a message that the policy protocol has refused.
    assert!(jan.command("RSET").is_ok());
    // A small one is over as well, but does not know it before it is there.
    let reply = jan.message("jan@large.test", &["u1@mail.test"], "Subject: small\r\n\r\nx\r\n");
    server.refused(&reply, 451, "Over 15M bytes in 1h");
    assert!(jan.quit().unwrap().is_ok());
}

/// They are counted by their recipient, and not for the client's login.
fn bounces_have_a_null_sender(server: &Server) {
    let mut client = server.machine.session(INSIDE);
    for n in 0..3 {
        assert!(client.command("MAIL FROM:<>").is_ok());
        let reply = client.command("RCPT TO:<u9@mail.test>");
        assert_eq!(reply.is_ok(), n < 2, "{n}: {reply:?}\n{}", server.log());
        assert!(client.command("RSET").is_ok());
    }
    assert!(client.command("MAIL FROM:<>").is_ok());
    assert!(client.command("RCPT TO:<u8@mail.test>").is_ok());
    assert!(client.quit().unwrap().is_ok());
}

/// A bounce of the mail server reaches a user who is over the limit.
fn what_the_server_makes_itself_passes(server: &Server) {
    let mut client = server.machine.session(INSIDE);
    let reply = client.message(
        "carol@mail.test",
        &["undeliverable@mail.test"],
        "Subject: undeliverable\r\n\r\nx\r\n",
    );
    assert!(reply.is_ok(), "{reply:?}");
    assert!(client.quit().unwrap().is_ok());
    until("the bounce comes", || {
        server.machine.read("/var/mail/carol").contains("undeliverable@mail.test")
    });
}

/// Mail by the `sendmail` command is that of the machine: by milter it is recorded and could
/// be limited, by the policy protocol it is not seen.
fn the_sendmail_command_is_a_local_client(server: &Server) {
    let message = b"From: carol@mail.test\nTo: bob@mail.test\nSubject: local\n\n\
        the quick brown fox of carol jumps over each lazy dog that lives in the northern \
        branch of the company\n";
    let line = "setpriv --reuid=carol --regid=carol --init-groups sendmail -f carol@mail.test bob@mail.test";
    let output = server.machine.feed(line, message);
    assert!(output.status.success(), "{output:?}");
    until("it is delivered", || {
        server.machine.read("/var/mail/bob").contains("the quick brown fox of carol")
    });
}

fn a_client_from_outside_is_limited(server: &Server) {
    let mut client = server.machine.session(OUTSIDE);
    assert!(client.command("MAIL FROM:<stranger@example.org>").is_ok());
    for n in 0..10 {
        let reply = client.command(format!("RCPT TO:<u{n}@mail.test>"));
        match n {
            0..8 => assert!(reply.is_ok(), "{n}: {reply:?}\n{}", server.log()),
            _ => server.refused(&reply, 451, CLIENT),
        }
    }
    assert!(client.data("Subject: from outside\r\n\r\nx\r\n").is_ok());
    assert!(client.quit().unwrap().is_ok());
    // A client of the machine itself is not.
    let mut client = server.machine.session(INSIDE);
    assert!(client.command("MAIL FROM:<carol@mail.test>").is_ok());
    for n in 0..10 {
        assert!(client.command(format!("RCPT TO:<u{n}@mail.test>")).is_ok());
    }
    assert!(client.quit().unwrap().is_ok());
}

/// Whoever has one of its addresses has all.
fn all_of_loopback_is_one_client(server: &Server) {
    for last in 2..=6 {
        let mut client = server.machine.session(Ipv4Addr::new(127, 0, 0, last));
        assert!(client.command("MAIL FROM:<a@loop.test>").is_ok());
        let reply = client.command("RCPT TO:<u1@mail.test>");
        match last {
            2..=4 => assert!(reply.is_ok(), "{last}: {reply:?}\n{}", server.log()),
            _ => server.refused(&reply, 451, "Over the limit"),
        }
        assert!(client.quit().unwrap().is_ok());
    }
}

fn messages_are_found_in_the_trace_store(server: &Server) {
    let text = "as we feared, the margin of the northern branch fell to four percent in the third \
        quarter, while the southern one has held its ground. Please keep this among us until the \
        board has met.";
    let mut kim = server.machine.login("kim");
    let message = format!("Subject: the northern branch\r\n\r\n{text}\r\n");
    let reply = kim.message("kim@mail.test", &["bob@mail.test", "u3@mail.test"], &message);
    assert!(reply.is_ok(), "{reply:?}");
    assert!(kim.quit().unwrap().is_ok());
    let id = reply.text.split_whitespace().last().unwrap().to_owned();
    let mut found = String::new();
    until("it is recorded", || {
        let output = server.exirate(&format!("trace query --json --text '{text}'"));
        found = String::from_utf8_lossy(&output.stdout).into_owned();
        output.status.success()
    });
    for part in ["kim@mail.test", "bob@mail.test", "u3@mail.test", "192.0.2.2"] {
        assert!(found.contains(part), "{part}: {found}");
    }
    if server.front_end == FrontEnd::Milter {
        assert!(found.contains(&id), "{id}: {found}");
    }
    // Local mail, too.
    let text = "the quick brown fox of carol jumps over each lazy dog that lives in the northern \
        branch of the company";
    let output = server.exirate(&format!("trace query --json --text '{text}'"));
    let found = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && found.contains("carol@mail.test"), "{output:?}");
}

/// By the mail server itself, from the daemon as the document starts it.
fn an_alert_is_mailed(server: &Server) {
    let machine = &server.machine;
    let policy = machine.read("/etc/exirate/policy.toml");
    machine.write(
        "/etc/exirate/policy.toml",
        &format!("{policy}\n[on.crossing]\nmail = \"bob@mail.test\"\n"),
    );
    machine.run(&format!("set -e\n{}", document::commands(ALERTS, "systemctl enable")));
    // One message for all that were late.
    let alert = "alice@mail.test is over the limit of 5 recipients in 1h of the policy outbound";
    until("the alert arrives", || machine.read("/var/mail/bob").contains(alert));
    until("the doctor knows it", || {
        let output = server.exirate("doctor");
        String::from_utf8_lossy(&output.stdout).contains("alerts: mail got all")
    });
}

fn the_doctor_sees_it(server: &Server) {
    let output = server.exirate("doctor");
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{said}\n{output:?}");
    let well = match server.front_end {
        FrontEnd::Policy => "ok       Postfix asks exirate by the policy protocol\n",
        FrontEnd::Milter => "ok       Postfix asks exirate by the milter\n",
        FrontEnd::Sendmail => "ok       Sendmail asks exirate by the milter\n",
    };
    assert!(said.contains(well), "{said}");
    assert!(said.contains("ok       it listens on unix:/"), "{said}");
    // Without the daemon, it says so.
    server.machine.run("systemctl stop exirate-mail");
    until("it has stopped", || server.log().contains("stopped"));
    let output = server.exirate("doctor");
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("PROBLEM  it does not listen on unix:/"), "{said}");
}
