//! Logs as others write them: other loggers, filters, several servers.

use super::tests::{join, join_with, process, short};
use super::*;

/// A log of `tests/cli/logs_as_written`.
macro_rules! log {
    ($name:literal) => {
        include_str!(concat!("../../../tests/cli/logs_as_written/", $name, ".log"))
    };
}

/// The items but connections, with their logins.
fn items(log: &str) -> Vec<String> {
    let joined = join(log);
    let of = joined.items.iter().zip(short(&joined));
    let is_one = |item: &&Item| !matches!(item.what, ItemKind::Connect | ItemKind::Close);
    of.filter(|(item, _)| is_one(item))
        .map(|(item, text)| match (&item.what, &item.event.auth) {
            (ItemKind::Refusal(_) | ItemKind::Discarded(_), Some(auth)) => {
                format!("{text} by {auth}")
            }
            (_, _) if item.login == LoginShown::Nowhere => format!("{text} by ?"),
            _ => text,
        })
        .collect()
}

const ALICES: &str =
    r#"message alice@example.org 192.0.2.9 alice@example.org 3210 ["bob@example.net"]"#;

#[test]
fn lines_that_syslog_has_counted_count_as_often() {
    let found = items(log!("message-repeated"));
    let logins = found.iter().filter(|one| *one == "login 192.0.2.7 -").count();
    let refused = found.iter().filter(|one| one.starts_with("refused Rcpt 192.0.2.8 ")).count();
    assert_eq!((logins, refused, found.len()), (5, 3, 9), "{found:#?}");
    // Other loggers name no program.
    let solaris = log!("message-repeated")
        .lines()
        .map(|line| match line.split_once("postfix/smtpd[101]: message repeated") {
            Some((start, _)) => format!("{start}last message repeated 2 times\n"),
            None => format!("{line}\n"),
        })
        .collect::<String>();
    assert!(solaris.contains(" mx1 last message"), "{solaris}");
    assert_eq!(items(&solaris), found);
}

#[test]
fn messages_that_come_back_count_once() {
    for log in [log!("requeue"), log!("postsuper-requeue"), log!("content-filter")] {
        assert_eq!(items(log), [ALICES], "{log}");
    }
    // A filter that does not say which client it has the message from.
    let plain = log!("content-filter")
        .replace(", orig_queue_id=AB3116645B, orig_client=client.example.net[192.0.2.9]", "");
    assert_eq!(items(&plain), [ALICES]);
    for recipients in [true, false] {
        let found = join_with(JoinSettings { recipients, failures: false }, &plain);
        let is_message = |item: &&Item| matches!(item.what, ItemKind::Message(_));
        assert_eq!(found.items.iter().filter(is_message).count(), 1, "{recipients}");
    }
    // The scanner's line comes after that of the queue.
    let lines: Vec<&str> = log!("requeue").lines().collect();
    let order = [0, 1, 2, 3, 4, 6, 5, 7, 8];
    let late: String = order.iter().map(|at| format!("{}\n", lines[*at])).collect();
    assert_eq!(items(&late), [ALICES]);
    // Without it, the log does not show whose the message is.
    let unknown = log!("requeue").replace("Requeue: ", "Scanned: ");
    let joined = join(&unknown);
    assert_eq!(items(&unknown), [ALICES.replace("192.0.2.9 alice@example.org", "- -")]);
    assert_eq!(joined.counts.without_origin, 1);
}

/// As Sendmail 8.18 wrote it, with `LogLevel` as it is by default.
#[test]
fn sendmails_messages_and_failures_are_those_of_whoever_submitted_them() {
    let found = items(log!("sendmail"));
    let of = |start: &str| -> Vec<String> {
        found.iter().filter_map(|one| one.strip_prefix(start).map(str::to_owned)).collect()
    };
    let messages = of("message ");
    assert_eq!(messages.len(), 3, "{found:#?}");
    let alices = "alice@mail.test 192.0.2.1 alice@mail.test 14 [";
    assert!(messages[0].starts_with(alices), "{found:#?}");
    let other = r#""a, size=9, nrcpts=3"@x.test 192.0.2.1 - 14 ["gone4@x.test"]"#;
    assert_eq!(messages[1], other);
    // Neither what aliases make of a recipient, nor programs.
    let recipients = [
        "nobody@mail.test",
        "old@x.test",
        "full@x.test",
        "spam@x.test",
        "gone2@x.test",
        "gone1@x.test",
    ];
    assert!(recipients.iter().all(|one| messages[0].contains(one)), "{found:#?}");
    assert!(!messages[0].contains("gone-a@") && !messages[0].contains("/bin/"), "{found:#?}");
    // What a local program hands over counts once.
    assert_eq!(messages[2], r#"carol@mail.test - - 3 ["gone5@x.test"]"#);
    let expected = [
        "192.0.2.1 alice@mail.test old@x.test Unknown",
        "192.0.2.1 alice@mail.test spam@x.test Other",
        "192.0.2.1 alice@mail.test gone2@x.test Unknown",
        "192.0.2.1 alice@mail.test gone1@x.test Unknown",
        "192.0.2.1 - gone4@x.test Unknown",
        "- - gone5@x.test Unknown",
    ];
    assert_eq!(of("failed "), expected);
    let joined = join(log!("sendmail"));
    let last = joined.items.iter().rev().find(|one| matches!(one.what, ItemKind::Failed(_)));
    assert_eq!(last.unwrap().event.local_account.as_deref(), Some("carol"));
}

/// The messages and failures of a log, each by the account or the client that it counts for.
fn sendmails(lines: &[String]) -> Vec<String> {
    let log: String =
        lines.iter().flat_map(|line| ["Nov 20 10:00:00 mx1 ", line.as_str(), "\n"]).collect();
    let joined = join_with(JoinSettings { recipients: false, failures: true }, &log);
    let of = |item: &Item| {
        let client = || item.event.client.address().map(|one| one.to_string());
        item.event.local_account.as_deref().map(str::to_owned).or_else(client).unwrap_or_default()
    };
    let what = |item: &Item| match item.what {
        ItemKind::Message(_) => Some("message"),
        ItemKind::Failed(_) => Some("failed"),
        _ => None,
    };
    joined.items.iter().filter_map(|one| Some(format!("{} {}", what(one)?, of(one)))).collect()
}

/// Lines of a message with a `Message-ID` of its sender's choice: that of the program which hands
/// it on, that of its arrival, that it was handed on, and that it has failed.
fn handed_on(user: &str, number: u32, recipients: usize) -> [String; 4] {
    let (pid, end) = (2 * number, "class=0, nrcpts=");
    let (own_name, own) = ("sendmail", format!("6AQFcjS2{pid:06}"));
    let (name, id) = ("sm-mta", format!("6AQFcjT2{pid:06}"));
    let tried = "delay=00:00:01, xdelay=00:00:01, mailer=relay, pri=30003";
    [
        format!(
            "{own_name}[{pid}]: {own}: from={user}, size=3, {end}{recipients}, msgid=<const@x>, relay={user}@localhost"
        ),
        format!(
            "{name}[{pid}]: {id}: from=<{user}@mail.test>, size=251, {end}{recipients}, msgid=<const@x>, proto=ESMTP, daemon=MTA-v4, relay=localhost [127.0.0.1]"
        ),
        format!(
            "{own_name}[{pid}]: {own}: to=no@x.test, ctladdr={user} (1001/1001), {tried}, relay=[127.0.0.1] [127.0.0.1], dsn=2.0.0, stat=Sent ({id} Message accepted for delivery)"
        ),
        format!(
            "{name}[{pid}]: {id}: to=<no@x.test>, ctladdr=<{user}@mail.test> (1001/1001), {tried}, relay=y [192.0.2.9], dsn=5.1.1, reply=550 5.1.1 no such user, stat=User unknown"
        ),
    ]
}

#[test]
fn messages_with_one_message_id_are_those_of_whoever_submitted_them() {
    let all = [("alice", 1, 1), ("alice", 2, 1), ("bob", 3, 1), ("alice", 4, 2)]
        .map(|(user, number, recipients)| handed_on(user, number, recipients));
    let expected =
        |what: &str| ["alice", "alice", "bob", "alice"].map(|who| format!("{what} {who}"));
    let expected = [expected("message"), expected("failed")].concat();
    // All at once, whether or not the log has yet who has handed each on.
    for order in [[0, 1, 2, 3], [0, 1, 3, 2]] {
        let lines: Vec<String> =
            order.iter().flat_map(|line| all.iter().map(|one| one[*line].clone())).collect();
        assert_eq!(sendmails(&lines), expected, "{order:?}");
    }
}

#[test]
fn an_id_that_a_client_says_does_not_make_its_message_another_users() {
    let [[own, arrival, passed, failed], other] =
        [handed_on("bob", 1, 1), handed_on("mallory", 2, 1)];
    let more = other[1].replace("nrcpts=1", "nrcpts=2").replace("mallory", "bob");
    let theirs = ["message 127.0.0.1", "failed 127.0.0.1", "failed bob"];
    // Another sender; more recipients than his; and after all of his has come.
    for said in [&other[1], &more] {
        let lines = [&own, said, &arrival, &passed, &other[3], &failed].map(String::clone);
        assert_eq!(sendmails(&lines)[1..], theirs, "{said}");
    }
    let late = other[1].replace("mallory", "bob");
    let lines = [&own, &arrival, &passed, &late, &other[3], &failed].map(String::clone);
    assert_eq!(sendmails(&lines)[1..], theirs);
    // With all of that right, and first: what he has handed on is his nevertheless.
    let lines = [&own, &late, &arrival, &passed, &failed].map(String::clone);
    assert_eq!(sendmails(&lines)[2..], ["failed bob"]);
    // Another machine may say that it has taken it as anything.
    let elsewhere = passed.replace("[127.0.0.1] [127.0.0.1]", "[127.0.0.1].x.test [192.0.2.1]");
    let lines = [&own, &late, &arrival, &elsewhere, &failed].map(String::clone);
    assert_eq!(sendmails(&lines)[2..], ["failed 127.0.0.1"]);
}

#[test]
fn only_what_comes_back_is_left_out() {
    // An id that the log does not have: nobody's, as nobody can write the line but postsuper.
    let unknown = log!("postsuper-requeue").replace("orig_id=AB3116645B", "orig_id=EF3116645B");
    let joined = join(&unknown);
    let again = ALICES.replace("192.0.2.9 alice@example.org 3210", "- - 3300");
    assert_eq!(items(&unknown), [ALICES.to_owned(), again]);
    assert_eq!(joined.counts.without_origin, 1);
    // Another server, even of a private network, may say any id.
    let plain = log!("content-filter")
        .replace(", orig_queue_id=AB3116645B, orig_client=client.example.net[192.0.2.9]", "");
    assert_eq!(items(&plain).len(), 1);
    assert_eq!(items(&plain.replace("127.0.0.1", "10.0.0.9")).len(), 2);
}

#[test]
fn only_the_mail_servers_own_bounces_are_nobodys() {
    let failed = |log: &str| items(log).iter().filter(|one| one.starts_with("failed")).count();
    let exim = |fields: &str| {
        format!(
            "2026-11-24 05:19:18 1xViw2-0004je-0V <= <> {fields} P=local S=9\n\
             2026-11-24 05:19:18 1xViw2-0004je-0V ** no@x.test: Unrouteable address\n"
        )
    };
    assert_eq!(failed(&exim("R=1xViw2-0004jc-0P U=Debian-exim")), 0);
    for fields in ["U=alice", "R=1xViw2-0004jc-0P U=alice"] {
        assert_eq!(failed(&exim(fields)), 1, "{fields}");
    }
    let postfix = |pickup: &str| {
        let line = |program: &str, text: &str| {
            format!("Nov 20 10:00:00 mx1 postfix/{program}[60]: AB3116645B: {text}\n")
        };
        [
            pickup,
            &line("cleanup", "message-id=<x@y>"),
            &line("qmgr", "from=<>, size=9, nrcpt=1 (queue active)"),
            &line(
                "smtp",
                "to=<no@x.test>, relay=none, delay=1, dsn=5.4.4, status=bounced (no host)",
            ),
        ]
        .concat()
    };
    assert_eq!(failed(&postfix("")), 0);
    let pickup = "Nov 20 10:00:00 mx1 postfix/pickup[60]: AB3116645B: uid=1000 from=<>\n";
    assert_eq!(failed(&postfix(pickup)), 1);
}

/// What Postfix itself writes (bounces, what it tells the postmaster, probes of addresses) passes no
/// front end: it is not mail of 127.0.0.1, and no message of which the log does not show the client.
#[test]
fn what_postfix_writes_itself_is_the_systems() {
    let log = |notice: &str, sender: &str| {
        let line = |program: &str, text: &str| {
            format!("Nov 20 10:00:00 mx1 postfix/{program}[60]: {text}\n")
        };
        [
            line("cleanup", "AB3116645B: message-id=<x@mx1.test>"),
            line("bounce", notice),
            line("qmgr", &format!("AB3116645B: from=<{sender}>, size=9, nrcpt=1 (queue active)")),
            line("local", "AB3116645B: to=<root@mx1.test>, relay=local, delay=1, status=sent (ok)"),
            line("qmgr", "AB3116645B: removed"),
        ]
        .concat()
    };
    let found = |notice: &str, sender: &str| {
        let joined = join(&log(notice, sender));
        let systems = joined.items.iter().filter(|item| item.submitter().system).count();
        (joined.items.len(), systems, joined.counts.without_origin)
    };
    let named = "AC3116645C: postmaster non-delivery notification: AB3116645B";
    for (notice, sender) in [
        ("AC3116645C: sender non-delivery notification: AB3116645B", ""),
        ("", ""),
        (named, "errors@mx1.test"),
        ("", "double-bounce@mx1.test"),
    ] {
        assert_eq!(found(notice, sender), (1, 1, 0), "{notice} {sender}");
    }
    assert_eq!(found("", "errors@mx1.test"), (1, 0, 1));
    // Of what has a client, nobody can say so.
    let client = "Nov 20 10:00:00 mx1 postfix/smtpd[9]: AB3116645B: client=x[192.0.2.9]\n";
    let joined = join(&format!("{client}{}", log(named, "double-bounce@mx1.test")));
    assert_eq!((joined.items.len(), joined.items[0].submitter().system), (1, false));
}

#[test]
fn a_failure_says_whether_its_login_is_known() {
    let log = |user: &str| {
        format!(
            "2026-11-24 05:19:18 1xViw2-0004je-0V <= a@x H=(h) [192.0.2.7] {user} A=plain:al S=9\n\
             2026-11-24 05:19:18 1xViw2-0004je-0V ** no@x.test: Unrouteable address\n"
        )
    };
    for (user, hides) in [("P=esmtpa", false), ("U=x P=esmtp P=esmtpa", true)] {
        let joined = join(&log(user));
        let ItemKind::Failed(failed) = joined.items[1].what else { panic!("{:?}", joined.items) };
        assert_eq!((failed.hides_login, joined.items[1].event.auth.is_none()), (hides, hides));
    }
}

#[test]
fn what_was_received_before_the_log_is_not_counted() {
    let joined = join(log!("begins-in-the-middle"));
    let found = items(log!("begins-in-the-middle"));
    assert_eq!(found, [r#"message alice@example.org - - 200 ["bob@example.net"]"#]);
    assert_eq!((joined.counts.without_origin, joined.counts.before), (1, 1));
}

#[test]
fn a_filter_before_the_queue_has_the_login() {
    let expected = [
        ALICES.replace("3210", "3600"),
        "refused Data 192.0.2.9 alice@example.org carol@example.net 5: 554 5.7.0 Reject, id=1-1 - \
         spam by alice@example.org"
            .to_owned(),
    ];
    let log = log!("before-queue-filter");
    assert_eq!(items(log), expected);
    // Of a filter that does not name the new id, the only message of this sender.
    let unnamed = log.replace(": queued as CD3116645C", "");
    assert_eq!(items(&unnamed), expected);
    // The queue is another server's: the recipient is the last one.
    let front: String = log
        .lines()
        .filter(|line| !line.contains("CD3116645C: ") && !line.contains("[130]"))
        .flat_map(|line| [line, "\n"])
        .collect();
    let message = ALICES.replace("3210", "0") + " ?";
    assert_eq!(items(&front), [message, expected[1].clone()]);
}

#[test]
fn what_is_refused_after_data_keeps_its_login() {
    let found = items(log!("refused-after-data"));
    let alices = "by alice@example.org";
    for (found, (start, end)) in found.iter().zip([
        // The header imitates the fields, so that none of them is known.
        ("refused Data 192.0.2.9 - - 5: 5.7.1 no spam", alices),
        ("refused Data 192.0.2.9 alice@example.org bob@example.net 4: 4.7.1 Spam", alices),
        ("discarded Data 192.0.2.9 alice@example.org bob@example.net", alices),
        ("refused Rcpt 192.0.2.9 alice@example.org bob@example.net 5", "no"),
        ("refused Rcpt 192.0.2.9 alice@example.org bob@example.net 5", alices),
    ]) {
        assert!(found.starts_with(start) && found.ends_with(end), "{found}");
    }
    assert_eq!(found.len(), 5);
}

#[test]
fn each_server_has_its_own_queue_and_processes() {
    let expected = [
        r#"message alice@example.org 192.0.2.9 alice@example.org 1111 ["bob@example.net"]"#,
        r#"message s@example.com 203.0.113.5 - 2222 ["carol@example.org"]"#,
        "refused Rcpt 203.0.113.5 s@example.com x1@example.org 5: 550 5.1.1 <x1@example.org>: \
         Recipient address rejected: User unknown",
    ];
    assert_eq!(items(log!("two-servers")), expected);
    // Two instances on one host.
    let instances = log!("two-servers")
        .replace("mx2 postfix/", "mx1 postfix-in/")
        .replace("smtpd[100]: NOQUEUE", "smtpd[101]: NOQUEUE");
    assert_eq!(items(&instances)[..2], expected[..2]);
    let joined = join(log!("two-servers"));
    assert_eq!(process(&joined.items[0]), process(&joined.items[1]));
    assert_ne!(joined.items[0].session, joined.items[1].session);
}

#[test]
fn nothing_is_given_to_somebody_who_had_the_process_before() {
    let alices = ALICES.replace("3210", "1111");
    let refused = |address: &str| {
        format!(
            "refused Rcpt 203.0.113.5 s@example.com {address}@example.org 5: 550 5.1.1 \
             <{address}@example.org>: Recipient address rejected: User unknown by ?"
        )
    };
    let log = log!("no-connect-lines");
    let expected = [alices.clone(), refused("x1"), refused("x2"), "login 203.0.113.6 -".to_owned()];
    assert_eq!(items(log), expected);
    // The same client, whose login is not in the line.
    let same = log.replace("203.0.113.5", "192.0.2.9");
    let expected = expected.map(|one| one.replace("203.0.113.5", "192.0.2.9"));
    assert_eq!(items(&same), expected);
    assert_eq!(items(&same.replace("10:20:", "10:00:")), expected);
}

#[test]
fn postscreens_clients_are_sessions_of_their_own() {
    let joined = join(log!("postscreen"));
    let found = items(log!("postscreen"));
    assert!(
        found[0].starts_with("refused Rcpt 192.0.2.7 s@example.net bob@example.org 5: 550 5.7.1")
    );
    assert!(found[1].starts_with("refused Rcpt 192.0.2.8 t@example.net carol@example.org 4: 450"));
    let helo = |at: usize| joined.items[at].event.helo.as_deref();
    assert_eq!((helo(0), helo(1)), (Some("bad.example.net"), Some("other.example.net")));
    assert_ne!(joined.items[0].session, joined.items[1].session);
    assert_eq!(joined.items[0].session, joined.items[2].session);
}

#[test]
fn what_exim_discards_or_drops_is_counted() {
    let expected = [
        "discarded Rcpt 192.0.2.7 s@example.net trap@example.org 5: discarded by RCPT ACL",
        "discarded Rcpt 192.0.2.7 s@example.net trap2@example.org 5: discarded by RCPT ACL: spam trap",
        "discarded Rcpt 192.0.2.7 s@example.net bob@example.org 5: discarded by MAIL ACL",
        "refused Connect 192.0.2.101 - - 5: Country is banned",
        "refused Connect 192.0.2.102 - - 5: Country is banned",
    ];
    assert_eq!(items(log!("discard")), expected);
}

#[test]
fn exims_refusals_by_syslog_are_counted_once() {
    let refused = |pid: u32, second: u32, to: &str| {
        format!(
            "Nov 24 05:19:{second:02} mail exim[{pid}]: H=(h) [192.0.2.7] F=<a@x> rejected RCPT \
             <{to}@y>: no\n"
        )
    };
    let log = [refused(7, 1, "b"), refused(7, 1, "b"), refused(8, 1, "c"), refused(7, 2, "d")];
    let twice = log.concat() + &refused(8, 1, "c") + &refused(7, 2, "d");
    assert_eq!(items(&twice).len(), 3);
    let joined = join(&twice);
    assert_eq!(joined.counts.unused.of(Reason::Copy).count, 3);
    // With `syslog_duplication = false`, what is refused twice is refused twice.
    let once = refused(7, 1, "a") + &refused(7, 2, "b") + &refused(7, 2, "b");
    assert_eq!(items(&once).len(), 3);
}

#[test]
fn a_login_may_look_like_what_follows_it() {
    for (login, tail) in [
        ("al S=1 for v@v", "S=1000 for r@y"),
        ("al S=1 id=x for v@v", "S=1000 id=a@b for r@y"),
        ("al S=1 T=\"", "S=1000 id=a@b T=\" for v@v \" for r@y"),
        ("alice", "S=1000 id=a S=5 for b@c T=\"S=1\" for r@y"),
        ("alice", "S=1000 M8S=8 RT=0.1s id=a@b T=\"x\" from <a@x> for r@y"),
    ] {
        let line = format!(
            "2026-11-24 05:19:20 1xViw4-0004kV-1t <= a@x H=(h) [192.0.2.7] P=esmtpa A=plain:{login} {tail}\n"
        );
        assert_eq!(
            items(&line),
            [format!(r#"message a@x 192.0.2.7 {login} 1000 ["r@y"]"#)],
            "{line}"
        );
    }
}

/// What comes back from a filter ends, or bounces, before the line that says where it comes from.
#[test]
fn a_bounce_of_what_comes_back_is_of_whoever_sent_it() {
    let late = log!("filter-late-link");
    let bounced = late.replace(
        "dsn=2.0.0, status=sent (250 2.0.0 <bob@example.org> Saved)",
        "dsn=5.1.1, status=bounced (host mx said: 550 5.1.1 unknown)",
    );
    assert_ne!(bounced, late);
    // Nothing has said so in time.
    let lines: Vec<&str> = bounced.lines().filter(|line| !line.contains("queued as")).collect();
    let after = "2026-03-15T06:27:33+01:00 mx postfix/qmgr[1]: 4PbzRY4stSz3tG3: removed\n";
    let alone = format!("{}\n{after}", lines.join("\n"));
    for recipients in [true, false] {
        let settings = JoinSettings { recipients, failures: true };
        for (log, messages, login) in [(&bounced, 1, Some("alice@example.org")), (&alone, 2, None)]
        {
            let items = join_with(settings, log).items;
            let is_message = |item: &&Item| matches!(item.what, ItemKind::Message(_));
            assert_eq!(items.iter().filter(is_message).count(), messages, "{log}");
            let failed: Vec<_> =
                items.iter().filter(|item| matches!(item.what, ItemKind::Failed(_))).collect();
            let [failed] = failed[..] else { panic!("{failed:?}") };
            let event = failed.submitter();
            assert_eq!(event.auth.as_deref(), login, "{log}");
            assert_eq!(event.recipient.as_deref(), Some("bob@example.org"));
        }
    }
}

#[test]
fn what_a_milter_refuses_counts_for_whoever_it_refuses() {
    assert_eq!(
        items(log!("sendmail-milter")),
        [
            "refused Rcpt 192.0.2.1 - friend3@example.org 4 limited: 451 4.7.1 Over the limit of 2 unique \
             recipients in 1h; try again in 2m by carol@mail.test",
            r#"message carol@mail.test 192.0.2.1 carol@mail.test 25 ["friend1@example.org", "friend2@example.org"]"#,
            "refused Rcpt 192.0.2.9 a@example.org alice@mail.test 4 limited: 451 4.7.1 Over the limit",
            "refused Rcpt 192.0.2.9 a@example.org bob@mail.test 5: 550 5.7.1 <bob@mail.test>... not here",
        ]
    );
}
