//! Lines, and what clients write into them.

use super::*;

const ID: &str = "1tDabc-000000001Ab-AbCd";

fn arrived(line: &str) -> Arrival<'_> {
    match super::line(line) {
        Line { id: Some(_), what: What::Arrival(arrival), .. } => arrival,
        other => panic!("{line}: {other:?}"),
    }
}

#[test]
fn all_fields_of_an_arrival_are_read() {
    let line = "[4711] 1tDabc-000000001Ab-AbCd <= alice@example.org H=pc.example.org (laptop) \
         [192.0.2.7]:4711 I=[10.0.0.1]:587 U=al P=esmtpsa L X=TLS1.3:TLS_AES_256:256 CV=no \
         DN=\"CN=a b AB=x:y\" SNI=\"mx\" A=plain:alice PRDR K S=1234 M8S=8 RT=0.1s id=x@y \
         T=\"hello \\\" for x\" from <alice@example.org> for bob@x.test \"c d\"@x.test";
    let all = Arrival {
        has_reference: false,
        sender: "alice@example.org",
        host: Host { helo: Some("laptop"), address: Some("192.0.2.7"), port: Some(4711) },
        user: Some("al"),
        protocol: Some("esmtpsa"),
        auth: Some("alice"),
        size: Some(1234),
        recipients: Some("bob@x.test \"c d\"@x.test"),
        hides_login: false,
    };
    assert_eq!(arrived(line), all);
    let list = recipients(all.recipients.unwrap()).collect::<Vec<_>>();
    assert_eq!(list, ["bob@x.test", "\"c d\"@x.test"]);
    let local = arrived("16RdAL-0006pc-00 <= <> R=16RdAL-0006pc-01 U=Debian-exim P=local S=9");
    assert_eq!((local.sender, local.user, local.size), ("<>", Some("Debian-exim"), Some(9)));
    assert_eq!((local.host.address, local.auth, local.recipients), (None, None, None));
}

#[test]
fn clients_cannot_imitate_fields() {
    for (sender, host, client) in [
        ("\"a H=[198.51.100.1] A=plain:ceo S=1\"@x.org", "H=[192.0.2.7]", "192.0.2.7"),
        ("\"a \\\" A=plain:ceo\"@x.org", "H=([198.51.100.1]) [192.0.2.7]:25", "192.0.2.7"),
        ("a@x.org", "H=(198.51.100.1) [192.0.2.7]", "192.0.2.7"),
        ("a@x.org", "H=(A=plain:ceo) [2001:db8::1]:99", "2001:db8::1"),
        ("a@x.org", "H=h.example.org [192.0.2.7]:25", "192.0.2.7"),
        ("a@x.org", "H=h.example.org ([IPv6:2001:db8::2]) [192.0.2.7]:25", "192.0.2.7"),
    ] {
        for subject in ["x", "A=plain:ceo H=[198.51.100.1] S=1", "\\\" from <x> for y z"] {
            let line = format!(
                "{ID} <= {sender} {host} P=esmtpa A=login:bob S=77 id=\"a A=x:y\"@x \
                 T=\"{subject}\" for r@x.test"
            );
            let found = arrived(&line);
            assert_eq!((found.host.address, found.sender), (Some(client), sender), "{line}");
            assert_eq!((found.auth, found.size), (Some("bob"), Some(77)), "{line}");
            assert_eq!(found.recipients, Some("r@x.test"), "{line}");
        }
    }
    // Of a quote that is not closed, nothing is lost but its field.
    let line = format!("{ID} <= a@x H=[::1] P=esmtpsa SNI=\"x A=plain:bob S=7 for r@x");
    let found = arrived(&line);
    assert_eq!((found.auth, found.size, found.recipients), (Some("bob"), Some(7), Some("r@x")));
}

/// OpenSSL writes the quotes of a certificate's subject as they are, and what the host of a client
/// says of its user (RFC 1413) has no quotes at all.
#[test]
fn what_could_be_imitated_is_no_login() {
    let end = "S=500 id=x@y T=\"hello\" for r@x.test";
    let mut known = 0;
    for (head, tail, login) in [
        // What it is without an attack.
        ("U=al P=esmtpsa X=T:256 DN=\"/CN=a b\" SNI=\"m\"", "A=plain:me", Some(Some("me"))),
        ("U=a b P=esmtpa", "A=plain:me", Some(Some("me"))),
        ("P=esmtps DN=\"/CN=a\"", "K", Some(None)),
        // An authenticator without `server_set_id`.
        ("U=al P=esmtpa", "A=plain", Some(None)),
        ("P=esmtpsa DN=\"/CN=a\"b\"", "A=plain:me", Some(Some("me"))),
        // Who has not logged in has no login; nor the size and the recipients that it likes.
        ("P=esmtps DN=\"/CN=a\" A=plain:ceo\"", "K", Some(None)),
        ("P=esmtps DN=\"/CN=a\" A=plain:ceo S=1 T=\"a\"", "K", Some(None)),
        ("P=esmtps DN=\"/CN=a\" S=1 for x@y\"", "K", Some(None)),
        ("U=a A=plain:ceo P=esmtp", "K", Some(None)),
        ("U=a P=esmtpa A=plain:ceo S=1 P=esmtp", "K", None),
        ("U=a P=esmtpa A=plain:ceo P=esmtp", "K", None),
        // Who has logged in is nobody else.
        ("P=esmtpsa DN=\"/CN=a\" A=plain:ceo S=1 T=\"a\"", "A=plain:me", Some(Some("me"))),
        ("P=esmtpsa DN=\"/CN=a\" A=plain:ceo S=1 id=\"b\\\"", "A=plain:me", Some(Some("me"))),
        ("P=esmtpsa DN=\"/CN=a\" A=plain:ceo\"", "A=plain:me", Some(Some("me"))),
        ("P=esmtpsa SNI=\"a\" A=plain:ceo\"", "A=plain:me", Some(Some("me"))),
        ("P=esmtpsa SNI=\"a\" A=plain:ceo\"", "A=plain", None),
        ("U=a P=esmtpa A=plain:ceo S=1 P=esmtpa", "A=plain:me", None),
    ] {
        let line = format!("{ID} <= a@x.org H=(h) [192.0.2.7] {head} {tail} {end}");
        let found = arrived(&line);
        assert_eq!((found.host.address, found.sender), (Some("192.0.2.7"), "a@x.org"), "{line}");
        assert_eq!((found.auth, found.hides_login), (login.flatten(), login.is_none()), "{line}");
        let all = (found.size, found.recipients);
        assert_eq!(all, login.map_or((None, None), |_| (Some(500), Some("r@x.test"))), "{line}");
        known += usize::from(login.is_some());
    }
    assert_eq!(known, 13);
    // What follows the size is quoted, or has forms of its own.
    for subject in ["x A=plain:ceo", " for v@v", " from <a@b> for v@v", "\\\" A=plain:ceo S=1 id="]
    {
        for dn in ["/CN=a", "/CN=a\" A=plain:ceo S=1 T=\"b\\"] {
            let line = format!(
                "{ID} <= a@x H=[::1] P=esmtpsa DN=\"{dn}\" A=plain:me S=500 id=x@y T=\"{subject}\""
            );
            let found = arrived(&line);
            assert_eq!((found.auth, found.size), (Some("me"), Some(500)), "{line}");
        }
    }
    for (head, login) in [
        ("U=al X=T:256 DN=\"/CN=a b\" F=<a@x.org> A=plain:me", Some("me")),
        ("U=a F=<x@y> A=plain:ceo rejected RCPT <z@y>: no F=<a@x.org> A=plain:me", None),
        ("DN=\"/CN=a\" F=<x@y> A=plain:ceo rejected RCPT <z@y>: no\" F=<a@x.org> A=plain:me", None),
        ("DN=\"/CN=a\" F=<x@y> A=plain:ceo rejected RCPT <z@y>: no\"", None),
        ("U=x A=plain:ceo F=<a@x.org>", None),
    ] {
        let line = format!("H=(h) [192.0.2.7] {head} rejected RCPT <r@x.test>: no");
        let What::Refusal(found) = super::line(&line).what else { panic!("{line}") };
        assert_eq!((found.auth, found.hides_login), (login, login.is_none()), "{line}");
    }
    for what in ["EHLO a", "AUTH", "connection"] {
        let line = format!("H=(h) [192.0.2.7] U=a F=<x@y> A=plain:ceo rejected {what}: no");
        let What::Refusal(found) = super::line(&line).what else { panic!("{line}") };
        assert_eq!((found.auth, found.hides_login), (None, true), "{line}");
    }
}

#[test]
fn the_user_may_contain_spaces_and_a_sender_may_follow() {
    for (field, user) in [
        ("A=plain:al ice", Some("al ice")),
        ("A=plain:al ice K", Some("al ice")),
        ("A=plain:alice PRDR PRX=192.0.2.1 K", Some("alice")),
        ("A=plain:alice:alice@example.org", Some("alice")),
        ("A=plain:alice@example.org", Some("alice@example.org")),
        ("A=plain:", None),
        ("A=plain", None),
    ] {
        let line = format!("{ID} <= a@x H=[::1] P=esmtpa {field} S=7");
        assert_eq!(arrived(&line).auth, user, "{line}");
    }
}

#[test]
fn deliveries_name_the_address_before_redirection() {
    for (text, address, result) in [
        (
            "=> bob@x.test R=dnslookup T=smtp H=mx [192.0.2.1] C=\"250 <no@x>\"",
            "bob@x.test",
            Delivery::Done,
        ),
        ("-> bob <bob@x.test> F=<a@x> P=<a@x> R=local T=maildir", "bob@x.test", Delivery::Done),
        (">> c@y.test (b@y.test) <bob@x.test> R=r T=t", "bob@x.test", Delivery::Passed),
        ("*> bob@x.test", "bob@x.test", Delivery::Done),
        ("=> /var/mail/bob (x) <bob@x.test> R=r T=t", "bob@x.test", Delivery::Done),
        ("=> |/bin/filter -a <no@x.test> <bob@x.test> R=r T=t", "bob@x.test", Delivery::Done),
        ("=> :blackhole: <bob@x.test> R=r", "bob@x.test", Delivery::Done),
        (
            "== bob@x.test R=r T=t defer (111): Connection refused <no@x>",
            "bob@x.test",
            Delivery::Deferred,
        ),
        ("** bob@x.test: unknown user <no@x>", "bob@x.test", Delivery::Failed),
        ("** bob@x.test <bob@x.test>: unknown mail domain", "bob@x.test", Delivery::Failed),
        ("** \"b R=o b\"@x.test R=r T=t: 550 <no@x>", "\"b R=o b\"@x.test", Delivery::Failed),
    ] {
        let line = format!("{ID} {text}");
        let Line {
            pid: None,
            id: Some(ID),
            what: What::Recipient { address: to, result: how, .. },
        } = super::line(&line)
        else {
            panic!("{line}")
        };
        assert_eq!((to, how), (address, result), "{line}");
    }
}

#[test]
fn failures_are_of_addresses_that_the_client_named() {
    let smtp = "R=r T=t H=mx.test [192.0.2.1]:25 X=TLS1.3:a:256 CV=yes: SMTP error from remote mail \
                server after RCPT TO:<b@x.test>: 550 5.1.1";
    for (text, failure) in [
        (format!("** b@x.test F=<a@x> P=<a@x> {smtp}"), Some(Failure::Unknown)),
        (format!("** b@x.test <B@x.test> {smtp}"), Some(Failure::Unknown)),
        (format!("** b@x.test <list@y.test> {smtp}"), None),
        (format!("** b@x.test (all@y.test) <list@y.test> {smtp}"), None),
        (format!("** |/bin/false <list@y.test> {smtp}"), None),
        (format!("== b@x.test {smtp}"), None),
        (
            "== b@x.test R=r T=t H=mx [192.0.2.1] defer (-44) DT=0.1s: SMTP error from remote mail \
             server after RCPT TO:<b@x.test>: 421-4.7.28 an unusual rate\\n421 4.7.28 of mail"
                .to_owned(),
            Some(Failure::Throttled),
        ),
        (
            "== b@x.test R=r T=t defer (-46) H=mx [192.0.2.1]: SMTP error from remote mail server \
             after initial connection: 421 4.7.0 [TSS04] Messages from 192.0.2.9 deferred"
                .to_owned(),
            Some(Failure::Throttled),
        ),
        ("== b@x.test R=r T=t defer (111): Connection refused".to_owned(), None),
        ("** b@x.test: Unrouteable address".to_owned(), Some(Failure::Unknown)),
        // A local transport, and a recipient that looks like a reply.
        ("** b <b@x.test> R=r T=t: No such user".to_owned(), Some(Failure::Unknown)),
        ("** b <c@x.test> R=r T=t: No such user".to_owned(), None),
        (
            "** \"b: 452 x\"@x.test R=r T=t H=mx [192.0.2.1]: SMTP error from remote mail server after \
             RCPT TO:<\"b: 452 x\"@x.test>: 550 5.1.1 no"
                .to_owned(),
            Some(Failure::Unknown),
        ),
        (
            "** b@x.test R=r T=t H=mx [192.0.2.1]: SMTP error from remote mail server after pipelined \
             MAIL FROM:<\"a: 452 x\"@y.test> SIZE=9: 550 5.7.1 no"
                .to_owned(),
            Some(Failure::Other),
        ),
        (
            "** b@x.test R=r T=t H=mx [192.0.2.1]: SMTP error from remote mail server after MAIL \
             FROM:<a@y.test>: 550 5.1.1 user unknown"
                .to_owned(),
            Some(Failure::Other),
        ),
        (
            "** b@x.test R=r T=t H=mx [192.0.2.1]: SMTP error from remote mail server after \
             initial connection: 550 unknown user"
                .to_owned(),
            Some(Failure::Other),
        ),
        (
            "** b@x.test R=r T=t H=mx [192.0.2.1]: SMTP error from remote mail server after \
             pipelined end of data: 550 unknown user"
                .to_owned(),
            Some(Failure::Other),
        ),
        (
            "** b@x.test R=r T=t H=mx [192.0.2.1]: SMTP error from remote mail server after end of \
             data: 554 delivery error: dd This user doesn't have a x.test account"
                .to_owned(),
            Some(Failure::Unknown),
        ),
        ("** b@x.test R=fail: gone away".to_owned(), Some(Failure::Other)),
        ("** b@x.test R=r T=t: retry timeout exceeded".to_owned(), None),
        ("** b@x.test".to_owned(), Some(Failure::Other)),
    ] {
        let line = format!("{ID} {text}");
        let What::Recipient { failure: found, .. } = super::line(&line).what else {
            panic!("{line}")
        };
        assert_eq!(found, failure, "{line}");
    }
}

#[test]
fn refusals_name_client_sender_and_command() {
    let host = Host { helo: Some("h"), address: Some("192.0.2.7"), port: Some(25) };
    let all = Refusal {
        host,
        user: None,
        recipient: None,
        reason: None,
        sender: Some("a@x.org"),
        auth: Some("bob"),
        temporary: false,
        what: "RCPT <r@x.test>: too much",
        hides_login: false,
    };
    for (text, refusal) in [
        (
            "H=(h) [192.0.2.7]:25 X=TLS F=<a@x.org> A=plain:bob rejected RCPT <r@x.test>: too much",
            all,
        ),
        (
            "1tDabc-000000001Ab-AbCd H=(h) [192.0.2.7] F=<a@x.org> A=plain:bob temporarily rejected after DATA",
            Refusal {
                host: Host { port: None, ..host },
                temporary: true,
                what: "after DATA",
                ..all
            },
        ),
        (
            "H=(h) [192.0.2.7] F=<\"a rejected RCPT <x>\"@x.org> A=plain:bob rejected RCPT <r@x.test>: too much",
            Refusal {
                host: Host { port: None, ..host },
                sender: Some("\"a rejected RCPT <x>\"@x.org"),
                ..all
            },
        ),
        (
            "H=[192.0.2.7] U=me rejected connection in \"connect\" ACL",
            Refusal {
                host: Host { address: Some("192.0.2.7"), ..Host::default() },
                user: Some("me"),
                what: "connection in \"connect\" ACL",
                ..Refusal::default()
            },
        ),
    ] {
        assert_eq!(super::line(text).what, What::Refusal(refusal), "{text}");
    }
    assert_eq!(super::line("H=(h) [192.0.2.7]: SMTP timeout").what, What::Known);
}

#[test]
fn other_lines_are_no_arrivals() {
    assert_eq!(super::line("16RdAL-0006pc-00 Completed").what, What::Completed);
    assert_eq!(super::line(&format!("{ID} Completed QT=3s")).what, What::Completed);
    for text in [
        "",
        "Start queue run: pid=12",
        "no id <= a@b",
        "16RdAL-0006pc-0 <= a@b",
        "16RdAL-0006pc-00",
        "16RdAL-0006pc-00 no immediate delivery: <= a@b",
        "[12] [13] 16RdAL-0006pc-00 <= a@b",
        "SMTP connection from x <= a@b",
    ] {
        let what = super::line(text).what;
        assert!(
            matches!(what, What::Other(_) | What::Known | What::Connect(_)),
            "{text}: {what:?}"
        );
    }
}

/// As a real Exim writes them: outside quotes, a local part may have any character after a
/// backslash.
#[test]
fn other_lines_of_a_message_are_known() {
    for line in [
        "b@x.test: error ignored",
        "plain authenticator failed H=relay.test [192.0.2.7] 535 Incorrect authentication data",
        "remote host address is the local host: x.test",
        "TLS session: (certificate invalid): delivering unencrypted to H=x.test [192.0.2.7]",
    ] {
        assert_eq!(super::line(&format!("{ID} {line}")).what, What::Known, "{line}");
    }
    // The session may end during a message.
    for line in [
        "SMTP data timeout (message abandoned) on connection from (h) [192.0.2.7]:25 F=<a@x.test>",
        "SMTP connection lost after final dot H=(h) [192.0.2.7]:25 P=esmtp",
    ] {
        let line = format!("{ID} {line}");
        let What::Close(found) = super::line(&line).what else { panic!("{line}") };
        assert_eq!((found.address, found.port), (Some("192.0.2.7"), Some(25)), "{line}");
    }
}

#[test]
fn escaped_senders_cannot_imitate_fields() {
    for sender in [
        r#"a\ A=.":victim S=1"@x.test"#,
        r#"a\ A=login\:victim\ S=1@x.test"#,
        r#"a\ A=.":victim rejected "@x.test"#,
        r"a\ for\ victim\@x.test@x.test",
        r#"a\""@x.test"#,
        r"H=\(x\)\ \[198\.51\.100\.1\]\ U=v@x.test",
    ] {
        for recipient in ["b@x.test", r#""\""@x.test"#, r"c\ d@x.test"] {
            let line = format!(
                "{ID} <= {sender} H=(h) [192.0.2.9] U=al P=esmtpa A=p:me S=231 for {recipient}"
            );
            let found = arrived(&line);
            assert_eq!((found.sender, found.auth, found.size), (sender, Some("me"), Some(231)));
            assert_eq!((found.user, found.host.address), (Some("al"), Some("192.0.2.9")), "{line}");
            let all = recipients(found.recipients.unwrap()).collect::<Vec<_>>();
            assert_eq!(all, [recipient], "{line}");
            let line =
                format!("H=(h) [192.0.2.9] F=<{sender}> A=p:me rejected RCPT <{recipient}>: no");
            let What::Refusal(found) = super::line(&line).what else { panic!("{line}") };
            assert_eq!((found.sender, found.auth), (Some(sender), Some("me")), "{line}");
            let what = format!("RCPT <{recipient}>: no");
            assert_eq!(found.what, what, "{line}");
            let (named, rest) = bracketed(what.strip_prefix("RCPT <").unwrap()).unwrap();
            assert_eq!((named, rest), (recipient, ": no"), "{line}");
        }
    }
}

#[test]
fn what_a_client_sends_is_no_failed_login() {
    for line in [
        "SMTP syntax error in \"x authenticator failed for (x) [198.51.100.1]: 535 (set_id=v)\" \
         H=(h) [192.0.2.9] unrecognized command",
        "SMTP protocol error in \"AUTH x authenticator failed for [198.51.100.1]: 535\" H=[::1] no",
    ] {
        assert_eq!(super::line(line).what, What::Known, "{line}");
    }
}
