//! Lines as real Exims wrote them, and damaged ones.

use super::*;
use crate::event::Origin;
use crate::logs::stamp::{Stamp, Stamps};
use crate::rate::Timestamp;

pub(super) struct Joined {
    pub(super) items: Vec<Item>,
    pub(super) counts: JoinCounts,
}

pub(super) fn join_with(settings: JoinSettings, log: &str) -> Joined {
    let stamps = Stamps::new("2026-11-25T00:00:00Z".parse().unwrap());
    let mut joiner = Joiner::new(settings);
    let mut items = Vec::new();
    for (line, number) in log.lines().zip(1..) {
        let Stamp { at, tag, rest, .. } = stamps.read(line).expect(line);
        let stamped =
            Stamped { line, at, has_zone: true, ahead: 0, tag, rest, place: ("mainlog", number) };
        joiner.line(&stamped, &mut |item| items.push(item));
    }
    joiner.finish(&mut |item| items.push(item));
    Joined { items, counts: joiner.counts().clone() }
}

pub(super) fn join(log: &str) -> Joined {
    join_with(JoinSettings::default(), log)
}

/// The process of an item's session.
pub(super) fn process(item: &Item) -> Option<u32> {
    postfix_lines::process_of(item.session).map(|(_, pid)| pid)
}

/// How many lines were not used for this reason.
fn unused(counts: &JoinCounts, reason: Reason) -> u64 {
    counts.unused.of(reason).count
}

/// What the items are, in short.
pub(super) fn short(joined: &Joined) -> Vec<String> {
    joined.items.iter().map(one).collect()
}

fn one(Item { event, what, .. }: &Item) -> String {
    let client = event.client.address().map_or("-".into(), |client| client.to_string());
    let text = |text: &Option<Text>| text.as_deref().unwrap_or("-").to_owned();
    match what {
        ItemKind::Message(m) => format!(
            "message {} {client} {} {} {:?}{}",
            text(&event.sender),
            text(&event.auth),
            m.size.unwrap_or(0),
            m.recipients,
            if m.recipients_known { "" } else { " ?" }
        ),
        ItemKind::Refusal(r) | ItemKind::Discarded(r) => format!(
            "{} {:?} {client} {} {} {}{}: {}",
            if matches!(what, ItemKind::Refusal(_)) { "refused" } else { "discarded" },
            r.stage,
            text(&event.sender),
            text(&event.recipient),
            if r.temporary { "4" } else { "5" },
            if r.limited { " limited" } else { "" },
            r.reason
        ),
        ItemKind::FailedLogin(f) => format!("login {client} {}", text(&f.user)),
        ItemKind::Incomplete { recipients } => {
            format!("incomplete {} {client} {recipients:?}", text(&event.sender))
        }
        ItemKind::Failed(undelivered) => {
            let (auth, to) = (text(&event.auth), text(&event.recipient));
            format!("failed {client} {auth} {to} {:?}", undelivered.failure)
        }
        ItemKind::Connect => format!("connect {client}"),
        ItemKind::Close => format!("close {client}"),
    }
}

/// Exim 4.96 with `log_selector = +all`.
const ALL: &str = r#"2026-11-24 05:19:16.543 [18123] SMTP connection from [127.0.0.1]:57215 I=[127.0.0.1]:2599 (TCP/IP connection count = 1)
2026-11-24 05:19:16.545 [18167] H=(cl.test) [127.0.0.1]:57215 I=[127.0.0.1]:2599 F=<alice@x.test> A=plain:al ice rejected RCPT <no@y.test>: no such user
2026-11-24 05:19:16.554 [18167] 1xViw0-0004j1-1l <= alice@x.test H=(cl.test) [127.0.0.1]:57215 I=[127.0.0.1]:2599 P=esmtpa L.- A=plain:alice S=202 M8S=0 RT=0.004s T="x" from <alice@x.test> for bob@y.test two@y.test bob@y.test
2026-11-24 05:19:16.570 [18167] SMTP connection from (cl.test) [127.0.0.1]:57215 I=[127.0.0.1]:2599 closed by QUIT
2026-11-24 05:19:16.608 [18168] cwd=/tmp/lx/spool 6 args: /usr/sbin/exim4 -DALL= -C /tmp/lx/exim.conf -Mc 1xViw0-0004j1-1l
2026-11-24 05:19:16.608 [18168] 1xViw0-0004j1-1l => :blackhole: <oneb@x.test> R=discard
2026-11-24 05:19:16.609 [18168] 1xViw0-0004j1-1l Completed QT=0.063s
2026-11-24 05:19:16.775 [18170] H=[127.0.0.9]:38057 I=[127.0.0.1]:2599 rejected connection in "connect" ACL: bad host
2026-11-24 05:19:16.777 [18171] H=(bad.helo) [127.0.0.2]:47889 I=[127.0.0.1]:2599 rejected EHLO or HELO bad.helo
2026-11-24 05:19:16.777 [18171] plain authenticator failed for (ok) [127.0.0.2]:47889 I=[127.0.0.1]:2599: 535 Incorrect authentication data (set_id=ali ce)
2026-11-24 05:19:16.777 [18171] H=(ok) [127.0.0.2]:47889 I=[127.0.0.1]:2599 temporarily rejected MAIL <bad@x.test>: sender bad
2026-11-24 05:19:16.777 [18171] H=(ok) [127.0.0.2]:47889 I=[127.0.0.1]:2599 incomplete transaction (RSET) from <good@x.test> for a@y.test
2026-11-24 05:19:16.777 [18171] policy inbound: defer [127.0.0.2]: 1001.0 recipients, limit 1000/1h, key client:127.0.0.2 (default)
2026-11-24 05:19:16.777 [18171] H=(ok) [127.0.0.2]:47889 I=[127.0.0.1]:2599 F=<good@x.test> temporarily rejected RCPT <pol@y.test>: Limit reached
2026-11-24 05:19:16.783 [18171] H=(ok) [127.0.0.2]:47889 I=[127.0.0.1]:2599 F=<good@x.test> temporarily rejected RCPT <native@y.test>
2026-11-24 05:19:16.786 [18171] H=(ok) [127.0.0.2]:47889 I=[127.0.0.1]:2599 Warning: Sender rate 1.0 / 1h
2026-11-24 05:19:16.786 [18171] unqualified recipient rejected: <x> H=(ok) [127.0.0.2]:47889 I=[127.0.0.1]:2599
2026-11-24 05:19:16.988 [18171] H=(ok) [127.0.0.2]:47889 I=[127.0.0.1]:2599 incomplete transaction (connection lost) from <good@x.test> for a@y.test native2@y.test
2026-11-24 05:19:16.988 [18171] unexpected disconnection while reading SMTP command from (ok) [127.0.0.2]:47889 I=[127.0.0.1]:2599 D=0.212s
2026-11-24 05:19:16.989 [18172] H=(noauth) [127.0.0.3]:35503 I=[127.0.0.1]:2599 temporarily rejected AUTH PLAIN
2026-11-24 05:19:17.010 [18172] H=(noauth) [127.0.0.3]:35503 I=[127.0.0.1]:2599 F=<z@x.test> RCPT <disc@y.test>: discarded by RCPT ACL
2026-11-24 05:19:17.018 [18172] 1xViw1-0004j6-02 <= z@x.test H=(noauth) [127.0.0.3]:35503 I=[127.0.0.1]:2599 P=esmtp L.- S=196 M8S=0 RT=0.007s T="x" from <z@x.test>
2026-11-24 05:19:17.018 [18172] 1xViw1-0004j6-02 => blackhole (RCPT ACL discarded recipients)
2026-11-24 05:19:17.018 [18172] 1xViw1-0004j6-02 Completed
2026-11-24 05:19:17.019 [18172] 1xViw1-0004j6-03 H=(noauth) [127.0.0.3]:35503 I=[127.0.0.1]:2599 F=<z@x.test> rejected after DATA: bad content
2026-11-24 05:19:17.034 [18172] 1xViw1-0004j6-06 rejected from <z@x.test> H=(noauth) [127.0.0.3]:35503: message too big: read=20021 max=10240
2026-11-24 05:19:17.034 [18172] rejected MAIL command H=(noauth) [127.0.0.3]:35503 I=[127.0.0.1]:2599: too many messages in one connection
2026-11-24 05:19:17.034 [18172] SMTP syntax error in "FOO bar" H=(noauth) [127.0.0.3]:35503 I=[127.0.0.1]:2599 unrecognized command
2026-11-24 05:19:17.036 [18172] SMTP connection from (noauth) [127.0.0.3]:35503 I=[127.0.0.1]:2599 lost D=0.048s
2026-11-24 05:19:17.254 [18183] SMTP connection from (h) [127.0.0.5]:47659 I=[127.0.0.1]:2599 lost while reading message data (after header)
2026-11-24 05:19:17.258 [18184] no MAIL in SMTP connection from (h) [127.0.0.5]:39189 I=[127.0.0.1]:2599 D=0.004s C=HELO
2026-11-24 05:19:18.136 [18204] 1xViw2-0004jc-0P F=<no@x.test> rejected by non-SMTP ACL: local no
2026-11-24 05:19:18.174 [18206] 1xViw2-0004je-0V <= <> R=1xViw2-0004jc-0P U=Debian-exim P=local S=918 M8S=0 RT=0.009s id*=E1xViw2-0004je-0V@private.test T="Mail failure" from <> for no@x.test
2026-11-24 05:19:18.211 [18209] SMTP connection from root
2026-11-24 05:19:18.211 [18209] U=root F=<bs@x.test> rejected RCPT <no@y.test>: no such user
2026-11-24 05:19:18.226 [18209] SMTP connection from root closed by QUIT
"#;

#[test]
fn each_line_of_a_real_log_becomes_its_item() {
    let joined = join(ALL);
    let expected = [
        "connect 127.0.0.1",
        "refused Rcpt 127.0.0.1 alice@x.test no@y.test 5: no such user",
        r#"message alice@x.test 127.0.0.1 alice 202 ["bob@y.test", "two@y.test", "bob@y.test"]"#,
        "close 127.0.0.1",
        "refused Connect 127.0.0.9 - - 5: bad host",
        "refused Helo 127.0.0.2 - - 5: ",
        "login 127.0.0.2 ali ce",
        "refused Mail 127.0.0.2 bad@x.test - 4: sender bad",
        r#"incomplete good@x.test 127.0.0.2 ["a@y.test"]"#,
        "refused Rcpt 127.0.0.2 good@x.test pol@y.test 4 limited: Limit reached",
        "refused Rcpt 127.0.0.2 good@x.test native@y.test 4: ",
        "refused Rcpt 127.0.0.2 - x 5: ",
        r#"incomplete good@x.test 127.0.0.2 ["a@y.test", "native2@y.test"]"#,
        "close 127.0.0.2",
        "refused Auth 127.0.0.3 - - 4: ",
        "discarded Rcpt 127.0.0.3 z@x.test disc@y.test 5: discarded by RCPT ACL",
        "message z@x.test 127.0.0.3 - 196 [] ?",
        "refused Data 127.0.0.3 z@x.test - 5: bad content",
        "refused Data 127.0.0.3 z@x.test - 5: message too big: read=20021 max=10240",
        "refused Mail 127.0.0.3 - - 5: too many messages in one connection",
        "close 127.0.0.3",
        "close 127.0.0.5",
        "refused Data - no@x.test - 5: local no",
        r#"message  - - 918 ["no@x.test"]"#,
        "connect -",
        "refused Rcpt - bs@x.test no@y.test 5: no such user",
        "close -",
    ];
    let found = short(&joined);
    for (found, expected) in found.iter().zip(expected) {
        assert_eq!(found, expected);
    }
    assert_eq!(found.len(), expected.len());
    assert_eq!((unused(&joined.counts, Reason::NotUnderstood), joined.counts.given_up), (0, 0));
    // A session is its client's port, of a local one its process; the daemon's is none.
    let port = SessionKey::Port { host: 0, client: "127.0.0.1".parse().unwrap(), port: 57215 };
    assert!(joined.items[..4].iter().all(|item| item.session == Some(port)));
    assert_eq!(process(&joined.items[26]), Some(18209));
    // The user, the HELO name, the local account.
    let event = &joined.items[1].event;
    assert_eq!((event.auth.as_deref(), event.helo.as_deref()), (Some("al ice"), Some("cl.test")));
    let event = &joined.items[23].event;
    assert_eq!(event.local_account.as_deref(), Some("Debian-exim"));
    assert_eq!(event.client, Origin::Program);
}

/// Of 4.98 and later, with the connection's id.
#[test]
fn newer_exims_log_the_id_of_the_connection() {
    let log = "2026-11-24 05:59:29.955 [8257] SMTP connection from [127.0.0.2]:40449 I=[127.0.0.1]:25 Ci=8257 (TCP/IP connection count = 1)
2026-11-24 05:59:29.956 [8257] SMTP connection Ci=8257 from (client.test) [127.0.0.2]:40449 I=[127.0.0.1]:25 D=0.001s closed by QUIT
2026-11-24 05:59:29.962 [8259] plain authenticator failed for H=([198.51.100.1]) [127.0.0.3]:38081 I=[127.0.0.1]:25 Ci=8259: 435 x (set_id=al (set_id=ice)
2026-11-24 05:59:29.963 [8259] H=(h) [127.0.0.3]:38081 I=[127.0.0.1]:25 Ci=8259 F=<c@x.test> rejected RCPT <no@y.test>: no such user
2026-11-24 05:59:29.975 [8261] SMTP connection Ci=8261 from (h) [127.0.0.5]:51635 I=[127.0.0.1]:25 lost while reading message data (after header)
";
    let joined = join(log);
    let expected = [
        "connect 127.0.0.2",
        "close 127.0.0.2",
        "login 127.0.0.3 al (set_id=ice",
        "refused Rcpt 127.0.0.3 c@x.test no@y.test 5: no such user",
        "close 127.0.0.5",
    ];
    assert_eq!(short(&joined), expected);
    assert_eq!(joined.items[0].session, joined.items[1].session);
}

#[test]
fn recipients_come_from_deliveries_where_the_arrival_has_none() {
    let log = "2026-11-24 05:19:20 1xViw4-0004kV-1t <= alice@x.test H=(cl.test) [127.0.0.1] P=esmtpa A=plain:alice S=191
2026-11-24 05:19:20 1xViw5-0004kV-1t >> early@y.test R=r T=t
2026-11-24 05:19:20 1xViw5-0004kV-1t <= b@x.test H=(cl.test) [127.0.0.1] P=esmtp S=7
2026-11-24 05:19:20 H=[127.0.0.9] rejected connection in \"connect\" ACL: bad host
2026-11-24 05:19:20 1xViw5-0004kV-1t Completed
2026-11-24 05:19:20 1xViw4-0004kV-1t => :blackhole: <bob@y.test> R=discard
2026-11-24 05:19:20 1xViw4-0004kV-1t -> one@x.test <bob@y.test> R=discard
2026-11-24 05:19:20 1xViw4-0004kV-1t == later@y.test R=defer defer (-1): later
2026-11-24 05:19:20 1xViw4-0004kV-1t ** fail@y.test R=fail: no such
2026-11-24 05:19:20 1xViw4-0004kV-1t Completed
2026-11-24 05:19:20 1xViw6-0004kV-1t <= c@x.test U=c P=local S=1
2026-11-24 05:19:20 1xViw6-0004kV-1t => x@y.test R=r
";
    let all = [
        r#"message alice@x.test 127.0.0.1 alice 191 ["bob@y.test", "later@y.test", "fail@y.test"]"#,
        r#"message b@x.test 127.0.0.1 - 7 ["early@y.test"]"#,
        "refused Connect 127.0.0.9 - - 5: bad host",
        "failed 127.0.0.1 alice fail@y.test Other",
        // The log ended before the message did.
        r#"message c@x.test - - 1 ["x@y.test"] ?"#,
    ];
    assert_eq!(short(&join(log)), all);
    // Without them, nothing waits.
    let without = join_with(JoinSettings { recipients: false, failures: false }, log);
    assert_eq!(short(&without)[0], "message alice@x.test 127.0.0.1 alice 191 [] ?");
    // As often as the client named them.
    let named = "2026-11-24 05:19:20 1xViw4-0004kV-1t <= a@x U=a P=local S=1 for b@y b@y c@y\n";
    assert_eq!(short(&join(named)), [r#"message a@x - - 1 ["b@y", "b@y", "c@y"]"#]);
    // Of deliveries, each recipient once, also of many.
    let mut log = "2026-11-24 05:19:20 1xViw4-0004kV-1t <= a@x.test U=a P=local S=1\n".to_owned();
    for n in 0..2000 {
        log += &format!("2026-11-24 05:19:20 1xViw4-0004kV-1t => r{}@y.test R=r\n", n % 500);
    }
    let ItemKind::Message(message) = &join(&log).items[0].what else { panic!() };
    assert_eq!(message.recipients.len(), 500);
}

#[test]
fn what_waits_is_bounded() {
    let mut joiner = Joiner::new(JoinSettings::default());
    let mut order = Vec::new();
    let mut line = |joiner: &mut Joiner, text: &str| {
        let at = Timestamp { seconds: 1, micros: 0 };
        let stamped = Stamped {
            line: text,
            at,
            has_zone: true,
            ahead: 0,
            tag: None,
            rest: text,
            place: ("m", 1),
        };
        joiner.line(&stamped, &mut |item| {
            if let ItemKind::Message(message) = item.what {
                order.push(message.size.unwrap());
            }
        });
    };
    for n in 0..WAITING_MAX + 10 {
        line(&mut joiner, &format!("{n:06}-000000-00 <= a@x.test U=a P=local S={n}"));
    }
    assert!(joiner.waiting.len() <= WAITING_MAX && joiner.queue(0).open.len() <= WAITING_MAX);
    assert_eq!(joiner.counts().given_up, 10);
    // Much text is bounded as well.
    let long = "r".repeat(100_000);
    for n in 0..400 {
        line(&mut joiner, &format!("{:06}-000000-00 => {long}{n}@x R=r", WAITING_MAX + 9));
    }
    line(&mut joiner, "999999-000000-00 <= a@x.test U=a P=local S=1");
    assert!(joiner.bytes <= BYTES_MAX, "{}", joiner.bytes);
    joiner.finish(&mut |_| {});
    assert!(order.is_sorted(), "in the order of the log");
}

#[test]
fn syslogs_lines_are_joined_and_other_programs_counted() {
    let log = "Nov 24 05:19:20 mail exim[7]: [1/2] 2026-11-24 05:19:20 1xViw4-0004kV-1t <= a@x.test H=(h) [127.0.0.1] P=es
Nov 24 05:19:20 mail dovecot: imap-login: x
Nov 24 05:19:20 mail exim[7]: [2/2] mtp S=9 for b@y.test
";
    let joined = join(log);
    assert_eq!(short(&joined), [r#"message a@x.test 127.0.0.1 - 9 ["b@y.test"]"#]);
    assert_eq!(process(&joined.items[0]), Some(7));
    assert_eq!(
        (
            unused(&joined.counts, Reason::OtherProgram),
            unused(&joined.counts, Reason::NotUnderstood)
        ),
        (1, 0)
    );
}

#[test]
fn lines_that_are_not_understood_are_counted_with_their_place() {
    let log = "2026-11-24 05:19:20 Start queue run: pid=12
2026-11-24 05:19:20 something new
2026-11-24 05:19:20 1xViw4-0004kV-1t something else
";
    let counts = join(log).counts;
    assert_eq!(
        (counts.used, unused(&counts, Reason::Silent), unused(&counts, Reason::NotUnderstood)),
        (0, 1, 2)
    );
    let first = ("mainlog:2".to_owned(), "2026-11-24 05:19:20 something new".to_owned());
    assert_eq!(counts.unused.of(Reason::NotUnderstood).examples[0], first);
}

/// Postfix 3.10.
const POSTFIX: &str = r#"Nov 24 06:04:03 mail postfix/smtpd[194]: connect from localhost[127.0.0.1]
Nov 24 06:04:03 mail postfix/smtpd[194]: 4jYXLq5nnzz1V: client=localhost[127.0.0.1], sasl_method=PLAIN, sasl_username=alice
Nov 24 06:04:03 mail postfix/smtpd[194]: 4jYXLq5nnzz1V: reject: RCPT from localhost[127.0.0.1]: 554 5.7.1 <no@y.test>: Recipient address rejected: nope; from=<alice@x.test> to=<no@y.test> proto=ESMTP helo=<client.test>
Nov 24 06:04:04 mail postfix/smtpd[194]: 4jYXLq5nnzz1V: reject: RCPT from localhost[127.0.0.1]: 450 4.7.1 <later@y.test>: Recipient address rejected: Over the limit of 100 recipients in 1h; from=<alice@x.test> to=<later@y.test> proto=ESMTP helo=<client.test>
Nov 24 06:04:04 mail postfix/cleanup[200]: 4jYXLq5nnzz1V: message-id=<a b to=<z>, x@y>
Nov 24 06:04:04 mail postfix/qmgr[190]: 4jYXLq5nnzz1V: from=<alice@x.test>, size=260, nrcpt=3 (queue active)
Nov 24 06:04:04 mail postfix/discard[206]: 4jYXLq5nnzz1V: to=<bob@y.test>, relay=none, delay=0.97, delays=0.95/0.02/0/0, dsn=2.0.0, status=sent (y.test)
Nov 24 06:04:04 mail postfix/discard[206]: 4jYXLq5nnzz1V: to=<one@y.test>, orig_to=<two@y.test>, relay=none, delay=0.97, dsn=2.0.0, status=sent (y.test)
Nov 24 06:04:04 mail postfix/discard[206]: 4jYXLq5nnzz1V: to=<other@y.test>, orig_to=<two@y.test>, relay=none, delay=0.97, dsn=2.0.0, status=deferred (y.test)
Nov 24 06:04:04 mail postfix/smtpd[194]: NOQUEUE: reject: MAIL from localhost[127.0.0.1]: 554 5.7.1 <bad@x.test>: Sender address rejected: bad; from=<bad@x.test> proto=ESMTP helo=<client.test>
Nov 24 06:04:05 mail postfix/smtpd[194]: 4jYXLs0Hmpz1X: client=localhost[127.0.0.1]
Nov 24 06:04:05 mail postfix/cleanup[200]: 4jYXLs0Hmpz1X: removed (canceled)
Nov 24 06:04:05 mail postfix/smtpd[194]: warning: Message delivery request rate limit exceeded: 5 from localhost[127.0.0.1] for service smtp
Nov 24 06:04:06 mail postfix/smtpd[194]: disconnect from localhost[127.0.0.1] ehlo=1 mail=3/7 rcpt=4/7 data=2 rset=1 quit=1 unknown=0/1 commands=12/20
Nov 24 06:04:07 mail postfix/smtpd[194]: NOQUEUE: lost connection after RCPT from localhost[127.0.0.1]
Nov 24 06:04:07 mail postfix/pickup[189]: 4jYXLv59CPz1b: uid=33 from=<root@x.test>
Nov 24 06:04:07 mail postfix/cleanup[200]: 4jYXLv59CPz1b: message-id=<4jYXLv59CPz1b@mail.test>
Nov 24 06:04:07 mail postfix/qmgr[190]: 4jYXLv59CPz1b: from=<root@x.test>, size=238, nrcpt=2 (queue active)
Nov 24 06:04:07 mail postfix/discard[206]: 4jYXLv59CPz1b: to=<bob@y.test>, relay=none, delay=0, dsn=2.0.0, status=sent (y.test)
Nov 24 06:04:07 mail postfix/qmgr[190]: 4jYXLv59CPz1b: removed
Nov 24 06:04:08 mail postfix-out/cleanup[200]: 4jYXLv59CPz1b: message-id=<x>
Nov 24 06:04:08 mail postfix-out/qmgr[190]: 4jYXLv59CPz1b: from=<>, size=9, nrcpt=1 (queue active)
Nov 24 06:04:08 mail postfix-out/smtp[1]: 4jYXLv59CPz1b: to=<z@y.test>, relay=none, status=sent (x)
Nov 24 06:04:09 mail postfix/qmgr[190]: 4jYXLq5nnzz1V: from=<alice@x.test>, size=260, nrcpt=1 (queue active)
"#;

#[test]
fn postfixs_lines_become_the_same_items() {
    let joined = join(POSTFIX);
    let expected = [
        "connect 127.0.0.1",
        "refused Rcpt 127.0.0.1 alice@x.test no@y.test 5: 554 5.7.1 <no@y.test>: Recipient address rejected: nope",
        "refused Rcpt 127.0.0.1 alice@x.test later@y.test 4 limited: 450 4.7.1 <later@y.test>: \
         Recipient address rejected: Over the limit of 100 recipients in 1h",
        r#"message alice@x.test 127.0.0.1 alice 260 ["bob@y.test", "two@y.test"]"#,
        "refused Mail 127.0.0.1 bad@x.test - 5: 554 5.7.1 <bad@x.test>: Sender address rejected: bad",
        "refused Mail 127.0.0.1 - - 4 limited: Message delivery request rate limit exceeded: 5 from localhost[127.0.0.1] for service smtp",
        "close 127.0.0.1",
        r#"message root@x.test - - 238 ["bob@y.test"]"#,
        r#"message  - - 9 ["z@y.test"]"#,
    ];
    assert_eq!(short(&joined), expected);
    assert!(joined.items[..7].iter().all(|item| process(item) == Some(194)));
    assert!(joined.items[..7].iter().all(|item| item.session == joined.items[0].session));
    assert_eq!(joined.items[7].session, None);
    let event = &joined.items[7].event;
    assert_eq!((event.local_account.as_deref(), event.client), (Some("33"), Origin::Program));
    assert_eq!(unused(&joined.counts, Reason::NotUnderstood), 0);
    // A client without an address is a client all the same, with a key.
    let unknown = POSTFIX.replace("client=localhost[127.0.0.1]", "client=unknown[unknown]");
    let joined_unknown = join(&unknown);
    assert_eq!(joined_unknown.items[3].event.client, Origin::of_postfix("unknown"));
    // The same with RFC 3339 stamps.
    let rfc =
        POSTFIX.replace("Nov 24 ", "2026-11-24T").replace(" mail postfix", ".5+00:00 mail postfix");
    assert_eq!(short(&join(&rfc)), expected);
}
