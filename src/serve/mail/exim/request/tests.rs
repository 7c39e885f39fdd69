use super::*;

/// A request of these attributes.
fn request(attributes: &[(&str, &[u8])]) -> EximRequest {
    let mut request = EximRequest::default();
    for (name, value) in attributes {
        request.set(name.as_bytes(), value).unwrap();
    }
    request
}

fn base64(bytes: &[u8]) -> Vec<u8> {
    STANDARD.encode(bytes).into_bytes()
}

/// As `exim/exirate.conf` sends it at RCPT, with this text as each that a client can choose.
fn rcpt(text: &[u8]) -> EximRequest {
    let text = base64(text);
    request(&[
        ("session", b"12.34"),
        ("message", b"56"),
        ("command", &base64(b"RCPT TO:<a")),
        ("notquit", b""),
        ("router", b""),
        ("transport", b""),
        ("address", b"192.0.2.7"),
        ("server", b"192.0.2.1"),
        ("id", b""),
        ("protocol", &base64(b"esmtpsa")),
        ("helo", &text),
        ("ident", &text),
        ("authenticated", b"1"),
        ("login", &text),
        ("auth_failed", b"0"),
        ("sender", &text),
        ("local_part", &text),
        ("domain", &text),
        ("size", b"-1"),
        ("recipients", b"2"),
        ("number", b"4"),
        ("failed", b"1"),
        ("list", b""),
        ("originator", b"0"),
        ("caller", b"0"),
        ("exim", b"100"),
    ])
}

#[test]
fn each_text_arrives_as_it_is() {
    for text in [
        &b"alice@example.org"[..],
        b"a\nlogin=bob\n\nrequest=exirate_policy\n",
        b"a\r\nb=c\x00d",
        b"\xff\xfe\xc3",
        b"100% \"q\" \\n $h ${readsocket{/x}} {} = \t",
        &[b'x'; 5000],
    ] {
        let step = rcpt(text).step().unwrap();
        let expected = written(text.into());
        let event = &step.event.event;
        assert_eq!(step.event.stage, AclStage::Rcpt);
        for value in [&event.auth, &event.helo, &event.sender] {
            assert_eq!(value.as_deref(), Some(&*expected));
        }
        assert_eq!(event.recipient.as_deref(), Some(&*format!("{expected}@{expected}")));
        // A client on the network says it.
        assert_eq!(event.local_account, None);
        assert_eq!(event.client.address(), Some([192, 0, 2, 7].into()));
        let facts = step.event.facts;
        assert_eq!((facts.recipients, facts.rejected_recipients, facts.message_size), (2, 1, 0));
        assert_eq!(step.event.exim, Some(EximCall { is_new_command: true, ..EximCall::default() }));
    }
}

#[test]
fn nothing_is_given_twice_and_texts_are_base64() {
    let mut twice = rcpt(b"a");
    assert_eq!(twice.set(b"login", b"Yg=="), Err(EximFault::Twice));
    for value in [&b"a"[..], b"YQ", b"Y Q=", b"YQ==\r", b"\xff"] {
        let wrong = request(&[("sender", value)]);
        assert_eq!(wrong.step().unwrap_err(), EximFault::NotBase64("sender"), "{value:?}");
    }
    let word = base64(b"tempfail");
    assert_eq!(request(&[("on_error", &word)]).step().unwrap_err(), EximFault::OnError);
    let check = EximRequest { is_check: true, ..rcpt(b"a") };
    assert_eq!(check.step().unwrap_err(), EximFault::NoSpec);
}

#[test]
fn the_stage_is_found_as_in_exim() {
    let stage = |command: &[u8], protocol: &[u8], id: &[u8], notquit: &[u8]| {
        let request = request(&[
            ("command", &base64(command)),
            ("protocol", &base64(protocol)),
            ("id", id),
            ("notquit", notquit),
        ]);
        request.step().unwrap().event.stage
    };
    use AclStage as S;
    for (command, protocol, id, notquit, expected) in [
        (&b""[..], &b"smtp"[..], &b""[..], &b""[..], S::Connect),
        (b"", b"local-smtp", b"", b"", S::Connect),
        (b"EHLO ab", b"smtp", b"", b"", S::Helo),
        (b"AUTH PLAIN", b"esmtp", b"", b"", S::Auth),
        (b"MAIL FROM:", b"esmtp", b"", b"", S::Mail),
        (b"RCPT TO:<a", b"esmtp", b"", b"", S::Rcpt),
        (b"DATA", b"esmtp", b"", b"", S::Predata),
        (b"DATA", b"esmtp", b"1xWTEm-000000007Ey-0hQb", b"", S::Data),
        (b"BDAT 20 LA", b"esmtp", b"1xWTEm-000000007Ey-0hQb", b"", S::Data),
        (b"QUIT", b"esmtp", b"", b"", S::Quit),
        (b"DATA", b"esmtp", b"", b"1", S::NotQuit),
        (b"", b"local", b"1xWTEm-000000007Ey-0hQb", b"", S::NotSmtp),
        (b"", b"local", b"", b"", S::NotSmtpStart),
        (b"DATA", b"local-bsmtp", b"1xWTEm-000000007Ey-0hQb", b"", S::NotSmtp),
        (b"", b"", b"", b"", S::Outside),
    ] {
        assert_eq!(stage(command, protocol, id, notquit), expected, "{command:?} {protocol:?}");
    }
}

#[test]
fn mail_of_the_system_is_what_root_and_exim_hand_over() {
    let of = |originator: &[u8], protocol: &[u8], id: &[u8]| {
        let request = request(&[
            ("protocol", &base64(protocol)),
            ("ident", &base64(b"root")),
            ("id", id),
            ("originator", originator),
            ("exim", b"100"),
        ]);
        let event = request.step().unwrap().event.event;
        (event.system, event.local.is(), event.local_account)
    };
    let root = || Some("root".to_owned());
    assert_eq!(of(b"0", b"local", b"1-2-3"), (true, true, root()));
    assert_eq!(of(b"100", b"local", b"1-2-3"), (true, true, root()));
    // Whatever the account is called.
    assert_eq!(of(b"33", b"local", b"1-2-3"), (false, true, root()));
    assert_eq!(of(b"", b"local", b"1-2-3"), (false, true, root()));
    // In a dialogue may be anybody.
    assert_eq!(of(b"0", b"local-esmtp", b"1-2-3"), (false, true, root()));
}

#[test]
fn what_an_account_hands_over_is_its_own_whatever_it_claims() {
    let of = |caller: &[u8], address: &[u8], serving: &[u8]| {
        let request = EximRequest {
            is_check: true,
            ..request(&[
                ("command", &base64(b"RCPT TO:<a")),
                ("protocol", &base64(b"smtp")),
                ("address", address),
                ("server", address),
                ("ident", &base64(b"root")),
                ("spec", &base64(b"1/1h")),
                ("key", &base64(b"k")),
                ("caller", caller),
                ("originator", caller),
                ("exim", b"100"),
                ("serving", serving),
            ])
        };
        let step = request.step().unwrap();
        let (check, call) = (step.check.clone().unwrap(), step.event.exim.clone().unwrap());
        assert!(!call.only_looks);
        let key = String::from_utf8(check.key.clone().unwrap()).unwrap();
        let address = check.context(&step.event).host_address.is_some();
        let event = step.event.event;
        (event.client.address().is_some(), event.local_account, call.is_of_account, key, address)
    };
    let client = (true, None, false, "k".to_owned(), true);
    for (caller, serving) in [(&b"0"[..], &b""[..]), (b"100", b""), (b"8", b"7:8")] {
        assert_eq!(of(caller, b"192.0.2.7", serving), client);
    }
    // Also by `exim -bh`, which nothing proves.
    let user = (u32::MAX - 7).to_string();
    let own = (false, Some(user.clone()), true, format!("local:{user}"), false);
    assert_eq!(of(user.as_bytes(), b"192.0.2.7", b""), own);
    // `exim -bs` of a local program: what Exim has found out, as ever.
    let program = (false, Some("root".to_owned()), true, "k".to_owned(), false);
    assert_eq!(of(user.as_bytes(), b"", b""), program);
}

#[test]
fn an_address_that_is_tested_is_not_counted() {
    let looks = |router: &[u8], id: &[u8], caller: &[u8]| {
        let request =
            request(&[("router", router), ("id", id), ("caller", caller), ("exim", b"100")]);
        request.step().unwrap().event.exim.unwrap().only_looks
    };
    assert!(looks(b"1", b"", b"33") && looks(b"", b"", b"33"));
    assert!(!looks(b"1", b"", b"0") && !looks(b"1", b"1-2-3", b"33"));
    let mut asked = rcpt(b"a");
    asked.set(b"look", b"1").unwrap();
    assert!(asked.step().unwrap().event.exim.unwrap().only_looks);
}

#[test]
fn recipients_may_contain_what_is_between_them() {
    let list = br#""a, b"@c.test, d@e.test, "x\"y, z@q"@p.test"#;
    assert_eq!(addresses(list), [r#""a, b"@c.test"#, "d@e.test", r#""x\"y, z@q"@p.test"#]);
    assert_eq!(addresses(b""), Vec::<String>::new());
    assert_eq!(addresses(b"a@b.test"), ["a@b.test"]);
    // Cut off.
    assert_eq!(addresses(b"a@b.test, \"c, d"), ["a@b.test", "\"c, d"]);
    assert_eq!(addresses(b"a@b.test, "), ["a@b.test"]);
    assert_eq!(addresses(b"\"\\"), ["\"\\"]);
}

#[test]
fn headers_mark_a_message() {
    for (name, value, marked) in [
        ("list_id", &b"<x.example>"[..], true),
        ("auto_submitted", b"no", false),
        ("auto_submitted", b" auto-replied\n", true),
        ("precedence", b"list", true),
        ("precedence", b"first-class", false),
        ("list_id", b"", false),
    ] {
        let mut request = rcpt(b"x");
        request.set(name.as_bytes(), &base64(value)).unwrap();
        assert_eq!(request.step().unwrap().event.marked, marked, "{name}");
    }
}

/// A local account's message has so many and so long recipients that Exim cuts off the list.
#[test]
fn recipients_that_are_cut_off_a_list_count_as_others() {
    let all: Vec<String> =
        (0..3000).map(|n| format!("{n}{}@private.test", "x".repeat(300))).collect();
    let list = all.join(", ");
    let cut = |length: usize| {
        let list = base64(&list.as_bytes()[..length]);
        let request = request(&[
            ("protocol", &base64(b"local")),
            ("id", b"1xWeBG-0006YM-0g"),
            ("recipients", b"3000"),
            ("list", &list),
        ]);
        request.step().unwrap().event.recipients
    };
    let known = cut(LIST_MAX);
    assert_eq!(known.iter().collect::<std::collections::HashSet<_>>().len(), 3000);
    let listed = known.iter().filter(|one| all.contains(one)).count();
    assert!(listed > 2000 && listed < 3000, "{listed}");
    assert!(known[listed..].iter().all(|one| crate::identity::mailbox::is_ambiguous(one)));
    let shipped = include_str!("../../../../../exim/exirate.conf");
    assert!(shipped.contains(&format!("${{length_{LIST_MAX}:$recipients}}")));
    // One that is not cut off is taken as it is.
    assert_eq!(cut(list.find(", 7x").unwrap()), all[..7]);
}
