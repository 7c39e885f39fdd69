//! Outcomes, which Exim knows after a command: the shipped files count them, however a client
//! ends its connections and transactions.

use crate::acl_files::{base64, copy_shipped, login};
use crate::policy::{apply, rates};
use kit::{PrivateExim, Setup};

const POLICY: &str = "[policy.p]\nwhen = \"!authenticated\"\nkey = \"client\"\n\
    update = \"strict\"\n[policy.p.default]\nrejected_recipients = \"5.5/1w\"\n\
    auth_failures = \"5.5/1w\"\n";

/// What refuses recipients after the policies.
const CHECKS: &str = "  deny local_parts = ^bad\n       message = 553 5.1.1 no such user\n  \
                      defer local_parts = ^later\n  accept\n";

/// An Exim with the shipped files where their heads say. `refused`: also the one around the
/// ACL for RCPT.
fn exim(refused: bool) -> PrivateExim {
    let include = |name: &str| format!("  .include_if_exists PRIVATE/exim/{name}\n");
    let policy = include("acl_policy.conf");
    let mut setup = Setup::new().library().auth().main(".include PRIVATE/exim/exirate.conf");
    setup = if refused {
        let around =
            format!("  deny !acl = inner\n{}  accept\n", include("acl_policy_refused.conf"));
        setup.acl("acl_smtp_rcpt", &around).acls(&format!("inner:\n{policy}{CHECKS}\n"))
    } else {
        setup.acl("acl_smtp_rcpt", &format!("{policy}{CHECKS}"))
    };
    for option in ["acl_smtp_auth", "acl_smtp_data"] {
        setup = setup.acl(option, &format!("{policy}  accept\n"));
    }
    for option in ["acl_smtp_quit", "acl_smtp_notquit"] {
        setup = setup.acl(option, &format!("{}  accept\n", include("acl_policy_end.conf")));
    }
    let mut exim = setup.build();
    copy_shipped(&exim);
    apply(&exim, POLICY);
    exim.start();
    exim
}

/// How a client gives up what it has begun.
#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    Quit,
    Drop,
    Rset,
    Ehlo,
}

/// Sends one recipient of each name in a message of its own; the codes of the replies.
fn one_a_message(exim: &PrivateExim, names: &[&str], end: End) -> Vec<u16> {
    let lost = "while reading SMTP command from";
    let before = exim.log("main").matches(lost).count();
    let mut codes = Vec::new();
    let mut client = None;
    for name in names {
        let open = client.get_or_insert_with(|| exim.session());
        open.command("MAIL FROM:<a@client.test>");
        let reply = open.command(format!("RCPT TO:<{name}@private.test>"));
        codes.push(reply.code);
        match end {
            End::Rset => drop(open.command("RSET")),
            End::Ehlo => drop(open.command("EHLO client.test")),
            End::Quit => drop(client.take().unwrap().quit()),
            End::Drop => {
                drop(client.take());
                exim.wait_for_log(lost, before + codes.len());
            }
        }
    }
    codes
}

fn rate(exim: &PrivateExim, unit: &str) -> i64 {
    rates(exim).get(&format!("{unit} client:127.0.0.1")).copied().unwrap_or(0)
}

#[test]
fn one_bad_recipient_a_message_is_counted_however_the_message_ends() {
    for (refused, end) in [
        (false, End::Quit),
        (false, End::Drop),
        (true, End::Quit),
        (true, End::Drop),
        (true, End::Rset),
        (true, End::Ehlo),
    ] {
        let exim = exim(refused);
        // What is deferred or accepted is not refused.
        let codes = one_a_message(&exim, &["later", "good"], end);
        assert_eq!(codes, [451, 250]);
        assert_eq!(rate(&exim, "rejected_recipients"), 0, "{refused} {end:?}");
        let codes = one_a_message(&exim, &["bad"; 9], end);
        assert_eq!(codes[..6], [553; 6], "{refused} {end:?}");
        assert_eq!(codes[6..], [451; 3], "{refused} {end:?}");
        assert_eq!(rate(&exim, "rejected_recipients"), 6, "{refused} {end:?}");
        assert_eq!(exim.log("panic"), "");
    }
}

#[test]
fn each_refused_recipient_is_counted_once_in_a_message_of_several() {
    for refused in [false, true] {
        let exim = exim(refused);
        let mut client = exim.session();
        client.command("MAIL FROM:<a@client.test>");
        let names = ["bad", "good", "bad1", "later", "bad2"];
        let codes = names.map(|name| client.command(format!("RCPT TO:<{name}@private.test>")).code);
        assert_eq!(codes, [553, 250, 553, 451, 553]);
        assert_eq!(client.command("DATA").code, 354);
        assert!(client.command("Subject: x\r\n\r\nx\r\n.").is_ok());
        assert_eq!(rate(&exim, "rejected_recipients"), 3, "{refused}");
        client.quit();
        assert_eq!(rate(&exim, "rejected_recipients"), 3, "{refused}");
    }
}

#[test]
fn one_guess_a_connection_is_counted() {
    let guess = format!("AUTH PLAIN {}", base64(b"\0u\0bad"));
    for end in [End::Quit, End::Drop] {
        let exim = exim(false);
        // A login that succeeds counts nothing.
        let mut client = exim.session();
        login(&mut client, "alice");
        client.quit();
        assert_eq!(rate(&exim, "auth_failures"), 0);
        let mut codes = Vec::new();
        for guesses in 1.. {
            let mut client = exim.session();
            codes.push(client.command(&guess).code);
            match end {
                End::Quit => drop(client.quit()),
                _ => drop(client),
            }
            if guesses == 9 {
                break;
            }
            // The connection ends without a line in the log if it is dropped.
            let expected = guesses.min(6);
            exim.wait_until("the guess", |_| rate(&exim, "auth_failures") >= expected);
        }
        assert_eq!(codes[..6], [535; 6], "{end:?}");
        assert!(codes[6..].iter().all(|code| *code != 535), "{codes:?}");
        assert_eq!(exim.log("panic"), "");
    }
}
