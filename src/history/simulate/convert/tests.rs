//! Attempts from lines as a real Exim 4.96 writes them.

use super::*;
use crate::history::simulate::Attempt;
use crate::logs::files::Stamped;
use crate::logs::item::{FailedLogin, Message, Server};
use crate::logs::messages::{JoinSettings, Joiner};
use crate::logs::stamp::Stamps;

/// The attempts of a log, one a line: session, second, part, login, result.
fn converted(log: &str) -> (String, Unshown) {
    converted_as(log, |attempt| {
        let Attempt { at, session, event, part, in_log } = attempt;
        let part = match part {
            AttemptPart::Rcpt { recipient } => format!("rcpt {recipient}"),
            AttemptPart::Data { size } => format!("data {size:?}"),
            AttemptPart::NotSmtp { recipients, size } => format!("local {recipients:?} {size:?}"),
            other => format!("{other:?}").to_lowercase(),
        };
        let who = event.auth.as_deref().or(event.local_account.as_deref()).unwrap_or("-");
        let seconds = at.seconds % 60;
        format!("{session} {seconds}: {part} {who} {in_log:?}\n")
    })
}

/// The attempts of a log, each as `show` has it.
fn converted_as(log: &str, show: impl Fn(&Attempt) -> String) -> (String, Unshown) {
    let stamps = Stamps::new("2026-11-25T00:00:00Z".parse().unwrap());
    let mut joiner = Joiner::new(JoinSettings::default());
    let mut converter = Converter::default();
    let mut text = String::new();
    let mut visit = |attempt: &Attempt| text += &show(attempt);
    for (number, line) in (1..).zip(log.lines()) {
        let crate::logs::stamp::Stamp { at, tag, rest, .. } = stamps.read(line).unwrap();
        let stamped =
            Stamped { line, at, has_zone: true, ahead: 0, tag, rest, place: ("mainlog", number) };
        joiner.line(&stamped, &mut |item| converter.add(item, &mut visit));
    }
    joiner.finish(&mut |item| converter.add(item, &mut visit));
    converter.finish(&mut visit);
    let unshown = converter.unshown();
    (text, unshown)
}

const H9: &str = "H=(s.test) [192.0.2.9]:53833 I=[192.0.2.1]:25";

#[test]
fn the_accepted_recipients_of_a_message_come_before_the_refused_ones() {
    let log = format!(
        "2026-11-24 05:24:01.126 [1] SMTP connection from [192.0.2.9]:53833 I=[192.0.2.1]:25 (TCP/IP connection count = 1)
2026-11-24 05:24:02.130 [2] {H9} F=<a@x> A=plain:alice rejected RCPT <no@y>: unknown user
2026-11-24 05:24:03.132 [2] policy a: defer [192.0.2.9]: 5.0 recipients, limit 4.5/2h, key auth:alice (default)
2026-11-24 05:24:03.132 [2] {H9} F=<a@x> A=plain:alice temporarily rejected RCPT <r3@y>: Over the limit
2026-11-24 05:24:04.132 [2] 1xVj0h-0005aO-0Q <= a@x {H9} P=esmtpa A=plain:alice S=184 for r1@y r2@y
2026-11-24 05:24:05.340 [2] 1xVj0h-0005aP-15 {H9} F=<a@x> A=plain:alice temporarily rejected after DATA: bad
2026-11-24 05:24:06.340 [2] SMTP connection from (s.test) [192.0.2.9]:53833 I=[192.0.2.1]:25 closed by QUIT
"
    );
    let (attempts, unshown) = converted(&log);
    assert_eq!(
        attempts,
        "1 1: connect - Accepted
1 2: auth - Accepted
1 2: mail alice Accepted
1 2: rcpt r1@y alice Accepted
1 2: rcpt r2@y alice Accepted
1 2: rcpt no@y alice Rejected
1 3: rcpt r3@y alice Limited
1 4: data Some(184) alice Accepted
1 5: mail alice Accepted
1 5: rcpt  alice Accepted
1 5: data None alice Deferred
1 6: close alice Accepted
"
    );
    assert_eq!((unshown.with_session, unshown.refused_after_data), (4, 1));
    assert_eq!(unshown.connections, 1);
}

#[test]
fn whose_a_message_without_data_was_is_known_from_what_follows() {
    let session = |login: &str| {
        converted(&format!(
            "2026-11-24 05:24:01.126 [1] {H9} incomplete transaction (RSET) from <a@x> for r1@y
2026-11-24 05:24:02.126 [1] 1xVj0h-0005aO-0Q <= a@x {H9} P=esmtp {login}S=184 for r2@y
2026-11-24 05:24:03.126 [1] {H9} incomplete transaction (QUIT) from <a@x>
"
        ))
        .0
    };
    assert_eq!(
        session("A=plain:alice "),
        "1 1: auth - Accepted
1 1: mail alice Accepted
1 1: rcpt r1@y alice Accepted
1 1: incomplete alice Accepted
1 2: mail alice Accepted
1 2: rcpt r2@y alice Accepted
1 2: data Some(184) alice Accepted
1 3: mail alice Accepted
1 3: incomplete alice Accepted
1 3: close alice Accepted
"
    );
    assert!(!session("").contains("auth") && !session("").contains("alice"));
    // A login that fails later was not successful before.
    let log = format!(
        "2026-11-24 05:24:01.126 [1] {H9} incomplete transaction (RSET) from <a@x> for r1@y
2026-11-24 05:24:02.126 [1] plain authenticator failed for (s.test) [192.0.2.9]:53833 I=[192.0.2.1]:25: 535 Incorrect authentication data (set_id=bob)
2026-11-24 05:24:03.126 [1] {H9} temporarily rejected AUTH PLAIN: Over the limit of 3 auth_failures
2026-11-24 05:24:04.126 [1] {H9} F=<b@x> A=plain:alice rejected RCPT <r2@y>
"
    );
    assert_eq!(
        converted(&log).0,
        "1 1: mail - Accepted
1 1: rcpt r1@y - Accepted
1 1: incomplete - Accepted
1 2: auth - Rejected
1 3: auth - Limited
1 4: auth - Accepted
1 4: mail alice Accepted
1 4: rcpt r2@y alice Rejected
1 4: incomplete alice Accepted
1 4: close alice Accepted
"
    );
}

#[test]
fn what_does_not_end_ends_after_five_minutes() {
    let log = format!(
        "2026-11-24 05:24:01.126 [1] {H9} F=<a@x> rejected RCPT <r1@y>
2026-11-24 05:24:02.126 [1] {H9} F=<b@x> rejected RCPT <r2@y>
2026-11-24 05:30:03.126 [2] 1xVj0h-0005aO-0Q <= c@x H=[192.0.2.8]:5 P=esmtp S=1 for r3@y
2026-11-24 05:30:04.126 [1] 1xVj0h-0005aO-0R <= b@x {H9} P=esmtp S=2 for r4@y
"
    );
    assert_eq!(
        converted(&log).0,
        "1 1: mail - Accepted
1 1: rcpt r1@y - Rejected
1 1: incomplete - Accepted
1 2: mail - Accepted
1 2: rcpt r2@y - Rejected
1 2: incomplete - Accepted
2 3: mail - Accepted
2 3: rcpt r3@y - Accepted
2 3: data Some(1) - Accepted
1 4: mail - Accepted
1 4: rcpt r4@y - Accepted
1 4: data Some(2) - Accepted
2 3: close - Accepted
1 4: close - Accepted
"
    );
}

#[test]
fn a_message_does_not_end_because_an_earlier_one_would_have() {
    let log = format!(
        "2026-11-24 05:24:01.126 [1] {H9} F=<a@x> rejected RCPT <r1@y>
2026-11-24 05:24:02.126 [1] 1xVj0h-0005aO-0Q <= a@x {H9} P=esmtp S=1 for r2@y
2026-11-24 05:29:00.126 [1] {H9} F=<a@x> rejected RCPT <r3@y>
2026-11-24 05:29:20.126 [1] 1xVj0h-0005aO-0Q <= a@x {H9} P=esmtp S=2 for r4@y
"
    );
    assert_eq!(
        converted(&log).0,
        "1 1: mail - Accepted
1 1: rcpt r2@y - Accepted
1 1: rcpt r1@y - Rejected
1 2: data Some(1) - Accepted
1 0: mail - Accepted
1 0: rcpt r4@y - Accepted
1 0: rcpt r3@y - Rejected
1 20: data Some(2) - Accepted
1 20: close - Accepted
"
    );
}

#[test]
fn local_mail_is_smtp_only_in_a_session() {
    let log = "2026-11-24 05:24:01.964 [7] SMTP connection from root
2026-11-24 05:24:02.965 [7] U=root F=<l@x> rejected RCPT <no@y>: unknown user
2026-11-24 05:24:03.966 [7] 1xVj0h-0005aT-37 <= l@x U=root P=local-esmtp S=283 for r1@y
2026-11-24 05:24:04.966 [7] U=root incomplete transaction (RSET) from <l@x> for r1@y
2026-11-24 05:24:05.966 [7] SMTP connection from root closed by QUIT
2026-11-24 05:24:06.977 [8] 1xVj0h-0005aV-39 <= z@x U=web P=local S=245 for r1@y r2@y
2026-11-24 05:24:07.977 [9] 1xVj0h-0005aV-3A U=web F=<z@x> rejected by non-SMTP ACL: no
";
    assert_eq!(
        converted(log).0,
        "1 1: connect - Accepted
1 2: mail root Accepted
1 2: rcpt r1@y root Accepted
1 2: rcpt no@y root Rejected
1 3: data Some(283) root Accepted
1 4: mail root Accepted
1 4: rcpt r1@y root Accepted
1 4: incomplete root Accepted
1 5: close root Accepted
2 6: local [\"r1@y\", \"r2@y\"] Some(245) web Accepted
3 7: local [\"\"] None web Rejected
2 6: close web Accepted
3 7: close web Accepted
"
    );
}

#[test]
fn webmail_that_logs_in_is_not_local() {
    let log = "2026-11-24 05:24:01 1xVj0h-0005aO-0Q <= a@x H=(w) [127.0.0.1] P=esmtp S=1 for r@y
2026-11-24 05:24:02 1xVj0h-0005aO-0R <= a@x H=(w) [127.0.0.1] P=esmtpa A=plain:alice S=1 for r@y
2026-11-24 05:24:03 1xVj0h-0005aO-0S <= a@x U=web P=local S=1 for r@y
";
    let (local, _) = converted_as(log, |attempt| match attempt.part {
        AttemptPart::Mail | AttemptPart::NotSmtp { .. } => {
            format!("{}\n", attempt.event.local.is())
        }
        _ => String::new(),
    });
    assert_eq!(local, "true\nfalse\ntrue\n");
}

#[test]
fn without_sessions_the_client_and_its_login_are_one_for_five_minutes() {
    let log = "2026-11-24 05:24:01 plain authenticator failed for (s.test) [192.0.2.9]: 535 Incorrect authentication data (set_id=bob)
2026-11-24 05:24:02 H=(s.test) [192.0.2.9] F=<a@x> A=plain:alice rejected RCPT <no@y>
2026-11-24 05:24:03 1xVj0h-0005aO-0Q <= a@x H=(s.test) [192.0.2.9] P=esmtpa A=plain:alice S=1
2026-11-24 05:24:04 1xVj0h-0005aO-0R <= a@x H=(s.test) [192.0.2.9] P=esmtpa A=plain:bob
2026-11-24 05:24:05 1xVj0h-0005aO-0R => r1@y R=r T=t
2026-11-24 05:24:06 1xVj0h-0005aO-0R Completed
2026-11-24 05:30:07 1xVj0h-0005aO-0S <= a@x H=(s.test) [192.0.2.9] P=esmtpa A=plain:bob S=3 for r2@y
2026-11-24 05:30:08 1xVj0h-0005aO-0T <= a@x U=root P=local S=4 for r3@y
";
    let (attempts, unshown) = converted(log);
    assert_eq!(
        attempts,
        "1 1: auth - Rejected
1 2: auth - Accepted
1 2: mail alice Accepted
1 2: rcpt  alice Accepted
1 2: rcpt no@y alice Rejected
1 3: data Some(1) alice Accepted
1 3: close alice Accepted
2 4: auth - Accepted
2 4: mail bob Accepted
2 4: rcpt r1@y bob Accepted
2 4: data None bob Accepted
2 4: close bob Accepted
3 7: auth - Accepted
3 7: mail bob Accepted
3 7: rcpt r2@y bob Accepted
3 7: data Some(3) bob Accepted
4 8: local [\"r3@y\"] Some(4) root Accepted
4 8: close root Accepted
3 7: close bob Accepted
"
    );
    let expected = Unshown {
        without_session: 5,
        without_recipients: 1,
        without_size: 1,
        ..Unshown::default()
    };
    assert_eq!(unshown, expected);
}

#[test]
fn what_is_remembered_is_bounded() {
    let mut converter = Converter::default();
    let mut attempts = 0_u64;
    let mut visit = |_: &Attempt| attempts += 1;
    let refused = |sender: &str, port: u32| {
        let client = std::net::Ipv4Addr::from(port / 60_000 + 0x0a00_0000).into();
        let key = SessionKey::Port { host: 0, client, port: (port % 60_000) as u16 };
        let event = Event {
            sender: Some(sender.into()),
            recipient: Some("r@y".into()),
            client: Origin::Client(client),
            ..Event::default()
        };
        let refusal = Refusal { stage: Stage::Rcpt, ..Refusal::default() };
        let at = Timestamp { seconds: 1_795_175_437, micros: 0 };
        Item {
            at,
            session: Some(key),
            login: LoginShown::InLine,
            server: Server::Exim,
            event,
            what: ItemKind::Refusal(refusal),
        }
    };
    for port in 0..SESSIONS_MAX as u32 + 10 {
        converter.add(refused("a@x", port), &mut visit);
        assert!(converter.held <= HELD_MAX + 1 && converter.sessions.len() <= SESSIONS_MAX);
    }
    for _ in 0..HELD_MAX + 10 {
        converter.add(refused("b@x", 7), &mut visit);
    }
    assert!(converter.held <= HELD_MAX + 1, "{}", converter.held);
    converter.finish(&mut visit);
    assert!(converter.sessions.is_empty() && converter.waiting.is_empty());
    // Nothing is lost.
    assert!(attempts > (SESSIONS_MAX + HELD_MAX) as u64, "{attempts}");
}

/// An item of a few sessions, of a log in which anything may follow anything.
#[derive(Clone, Debug)]
struct AnyItem(u8, u8, u8);

impl quickcheck::Arbitrary for AnyItem {
    fn arbitrary(g: &mut quickcheck::Gen) -> Self {
        Self(u8::arbitrary(g), u8::arbitrary(g), u8::arbitrary(g))
    }
}

impl AnyItem {
    /// The item, and how many recipients it has.
    fn item(&self, seconds: i64) -> (Item, usize) {
        let client = (!self.1.is_multiple_of(3))
            .then(|| std::net::Ipv4Addr::new(192, 0, 2, self.1 % 3).into());
        let session = match self.1 / 64 {
            0 => None,
            1 => Some(SessionKey::Process { service: 1, pid: u32::from(self.1 % 3), run: 1 }),
            _ => client.map(|client| SessionKey::Port {
                host: 0,
                client,
                port: u16::from(self.1 % 2),
            }),
        };
        let mut event = Event::<Text> {
            client: client.map_or(Origin::Program, Origin::Client),
            ..Event::default()
        };
        let auth = (!self.2.is_multiple_of(2)).then(|| "alice".into());
        let sender = Some(format!("s{}@x", self.2 % 3).into());
        let recipients: Vec<Text> = (0..self.2 % 4).map(|n| format!("r{n}@y").into()).collect();
        let stages =
            [Stage::Connect, Stage::Auth, Stage::Mail, Stage::Rcpt, Stage::Rcpt, Stage::Data];
        let stage = stages[usize::from(self.2) % stages.len()];
        let many = recipients.len();
        let (what, recipients) = match self.0 % 8 {
            0 => (ItemKind::Connect, 0),
            1 => (ItemKind::Close, 0),
            2 => (ItemKind::FailedLogin(FailedLogin::default()), 0),
            3 => {
                event.sender = sender;
                (ItemKind::Incomplete { recipients }, many)
            }
            4 | 5 => {
                let recipient = (stage == Stage::Rcpt).then(|| "r@y".into());
                event = Event { recipient, sender, auth, ..event };
                let refusal = Refusal { stage, ..Refusal::default() };
                (ItemKind::Refusal(refusal), usize::from(stage == Stage::Rcpt))
            }
            _ => {
                event = Event { sender, auth, ..event };
                let message = Message { recipients, recipients_known: true, size: None };
                (ItemKind::Message(message), many)
            }
        };
        let login = LoginShown::InLine;
        let at = Timestamp { seconds, micros: 0 };
        (Item { at, session, login, server: Server::Exim, event, what }, recipients)
    }
}

kit::quickcheck! {
    /// Each recipient is one attempt, between the MAIL and the end of its message.
    fn nothing_is_lost_or_out_of_place(items: Vec<AnyItem>, pauses: Vec<u16>) -> bool {
        let mut converter = Converter::default();
        let (mut named, mut attempted) = (0, 0);
        let mut in_message = std::collections::HashSet::new();
        let mut is_sound = true;
        let mut visit = |attempt: &Attempt| match &attempt.part {
            AttemptPart::Mail => is_sound &= in_message.insert(attempt.session),
            AttemptPart::Rcpt { recipient } => {
                is_sound &= in_message.contains(&attempt.session);
                attempted += usize::from(!recipient.is_empty());
            }
            AttemptPart::Data { .. } | AttemptPart::Incomplete => {
                is_sound &= in_message.remove(&attempt.session);
            }
            AttemptPart::NotSmtp { recipients, .. } => {
                attempted += recipients.iter().filter(|to| !to.is_empty()).count();
            }
            // It is of no session.
            AttemptPart::Failed { .. } => {}
            AttemptPart::Connect | AttemptPart::Auth | AttemptPart::Close => {
                is_sound &= !in_message.contains(&attempt.session);
            }
        };
        let mut seconds = 1_795_175_437;
        for (n, one) in items.iter().enumerate() {
            seconds += i64::from(pauses.get(n).copied().unwrap_or(0) % 400);
            let (item, recipients) = one.item(seconds);
            named += recipients;
            converter.add(item, &mut visit);
        }
        converter.finish(&mut visit);
        is_sound && named == attempted && in_message.is_empty() && converter.held == 0
    }
}

#[test]
fn sessions_that_are_over_are_not_remembered() {
    let stamps = Stamps::new("2026-11-25T00:00:00Z".parse().unwrap());
    let mut joiner = Joiner::new(JoinSettings::default());
    let mut converter = Converter::default();
    let (mut closed, mut most) = (0, 0);
    let mut visit = |attempt: &Attempt| closed += u32::from(attempt.part == AttemptPart::Close);
    // A client a minute comes and is not seen to leave.
    for minute in 0..600 {
        let (hour, host) = (minute / 60, minute % 250);
        let line = format!(
            "2026-11-24 {hour:02}:{:02}:01 1xVj0h-0005aO-0Q <= a@x H=(s{minute}) [192.0.2.{host}] \
             P=esmtp S=184 for r@y",
            minute % 60
        );
        let crate::logs::stamp::Stamp { at, tag, rest, .. } = stamps.read(&line).unwrap();
        let stamped =
            Stamped { line: &line, at, has_zone: true, ahead: 0, tag, rest, place: ("mainlog", 1) };
        joiner.line(&stamped, &mut |item| converter.add(item, &mut visit));
        most = most.max(converter.sessions.len());
    }
    converter.finish(&mut visit);
    assert_eq!(closed, 600);
    let minutes = usize::try_from(GUESSED_SECONDS + IDLE_SECONDS).unwrap() / 60;
    assert!(most <= minutes + 1, "{most}");
}
