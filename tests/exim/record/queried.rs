//! An ACL asks whether a text was seen before.

use super::RECORD;
use kit::{FakeClock, PrivateExim, Setup};

/// An Exim that refuses what was seen before, and records the rest.
fn that_asks(text: &str) -> PrivateExim {
    let acl = format!(
        "  deny message = seen before\n       \
         condition = ${{dlfunc{{EXIRATE_TRACE}}{{recorded}}{text}}}\n{RECORD}"
    );
    let mut exim = Setup::new().library().acl("acl_smtp_data", &acl).build();
    exim.start();
    exim
}

#[test]
fn a_text_that_was_seen_is_refused() {
    let exim = that_asks("{$h_subject:}");
    let mut client = exim.session();
    let mut send = |subject: &str| {
        let text = format!("Subject: {subject}\n\nbody\n");
        client.message("s@client.test", &["a@private.test"], &text).text
    };
    let lost = "the keys of the third warehouse are lost, so go round by the canal and knock at the \
                window of the office, where the night watchman has another set of them";
    let other = "our new office is open from Monday on, with coffee for whoever comes before nine, \
                 and a view of the harbour from each of its eleven desks";
    assert!(send(lost).starts_with("250"));
    assert!(send(other).starts_with("250"));
    for seen in [
        lost,
        &lost.replace("ware", "WARE").replacen(' ', "  ", 3),
        &lost.replace("third warehouse", "=?utf-8?Q?third_ware=C2=ADhouse?="),
        lost.split_once(' ').unwrap().1,
    ] {
        assert_eq!(send(seen), "550 seen before", "{seen}");
    }
    // Too short to tell: an error says from what length on it could.
    assert!(send("keys").starts_with("451"));
    exim.wait_for_log(
        "recorded: the text is too short: it has 4 bytes, and must have at least ",
        1,
    );
    assert_eq!(exim.log("panic"), "");
}

#[test]
fn text_is_queried_as_it_was_received() {
    let exim = that_asks("{$message_body}{short=no}");
    let mut client = exim.session();
    let mut send = |text: &[u8]| {
        client.command("MAIL FROM:<s@client.test>");
        client.command("RCPT TO:<a@private.test>");
        client.command("DATA");
        client.send(b"Content-Type: text/plain; charset=iso-8859-1\r\n\r\n");
        client.send(text);
        client.send(b"\r\n.\r\n");
        client.expect().text
    };
    // Not UTF-8, in which $message_body says it: the bytes of Latin-1.
    let text = b"M\xe9m\xe9 a d\xe9j\xe0 \xe9t\xe9 au march\xe9 de No\xebl o\xf9 l'\xe9picier a \
                 c\xe9d\xe9 les derni\xe8res figues s\xe8ches de l'\xe9t\xe9 \xe0 l'h\xf4tel";
    assert!(send(text).starts_with("250"));
    assert_eq!(send(text), "550 seen before");
    assert_eq!(exim.log("panic"), "");
}

#[test]
fn queries_can_be_limited_and_short_texts_can_have_a_result() {
    let clock = FakeClock::new();
    let exim = Setup::new().library().clock(&clock).acl("acl_not_smtp", RECORD).build();
    let expand = |arguments: &str| {
        let ran = exim.expand(&format!("${{dlfunc{{EXIRATE_TRACE}}{{recorded}}{arguments}}}"));
        (ran.stdout + &ran.stderr).trim_end().to_owned()
    };
    // Nothing was recorded, and asking makes nothing.
    let lost = "{the keys of the third warehouse are lost, so go round by the canal and knock at \
                the office window}";
    assert_eq!(expand(lost), "no");
    assert!(!exim.spool().join("exirate").exists());
    let message = format!("To: b@private.test\n\n{}\n", lost.trim_matches(['{', '}']));
    assert_eq!(exim.run(&["-odq", "-t"], message.as_bytes()).code, 0);
    for (arguments, answer) in [
        (lost, "yes"),
        (&format!("{lost}{{since=1h}}"), "yes"),
        (&format!("{lost}{{since=1h / doubt=1e-30}}"), "no"),
        // A text of which the most was carried may be taken for one that was.
        ("{nobody will know which of the eleven desks has a view of the harbour}", "no"),
        // Long enough to be asked, but not to be sure.
        ("{the keys of the thi}", "no"),
        ("{the keys of the thi}{doubt=1}", "yes"),
        ("{keys}{short=yes}", "yes"),
        ("{keys}{short=no}", "no"),
        ("{}{short=no}", "no"),
    ] {
        assert_eq!(expand(arguments), answer, "{arguments}");
    }
    clock.set(3);
    assert_eq!(expand(&format!("{lost}{{since=1s}}")), "no");
    for (arguments, error) in [
        ("{keys}", "Failed: recorded: the text is too short: it has 4 bytes"),
        ("{}", "Failed: recorded: the text is too short: it has 0 bytes"),
        (
            "{x}{until=1h}",
            "Failed: recorded: \"until=1h\" is not an option (the options are: since=",
        ),
        ("", "Failed: recorded: it takes one or two arguments, but 0 were given"),
    ] {
        assert!(expand(arguments).starts_with(error), "{arguments}: {}", expand(arguments));
    }
}
