//! The logs of a real Exim, made by real sessions with every kind of line that says who sends
//! how much: the items that are read of them, one by one, and the totals of `eximstats`.

use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;

use exirate::event::Origin;
use exirate::logs::exim::{self, Delivery, What};
use exirate::logs::files::LogFiles;
use exirate::logs::messages::{Item, ItemKind, JoinCounts, JoinSettings, Joiner, Stage, Text};
use exirate::logs::unused::Reason;

use kit::Setup;
use kit::exim::PrivateExim;
use kit::smtp::Client;

const RCPT: &str = "  deny local_parts = no
       message = no such user
  defer local_parts = limited
        logwrite = policy inbound: defer [$sender_host_address]: 1001.0 recipients, limit 1000/1h, key client:$sender_host_address (default)
        message = Limit reached
  defer local_parts = native
        message = Sender rate 12.3 / 1h
  discard local_parts = ignored
  accept";

fn private_exim(selector: &str) -> PrivateExim {
    let mut exim = Setup::new()
        .main(selector)
        .main("message_size_limit = 20K\nacl_smtp_vrfy = deny")
        .acl("acl_smtp_connect", "  deny hosts = 127.0.0.9\n       message = bad host\n  accept")
        .acl("acl_smtp_helo", "  deny condition = ${if eq{$sender_helo_name}{bad.helo}}\n  accept")
        .acl("acl_smtp_auth", "  defer condition = ${if eq{$sender_helo_name}{no.auth}}\n  accept")
        .acl("acl_smtp_mail", "  defer senders = bad@x.test\n        message = bad sender\n  accept")
        .acl("acl_smtp_rcpt", RCPT)
        .acl(
            "acl_smtp_data",
            "  deny condition = ${if match{$h_subject:}{refuse}}\n       message = bad content\n  \
             discard condition = ${if match{$h_subject:}{ignore}}\n  accept",
        )
        .acl("acl_not_smtp", "  deny senders = no@x.test\n       message = not you\n  accept")
        .auth()
        .router("fail:\n  driver = redirect\n  local_parts = fail\n  allow_fail\n  data = :fail: no such")
        .router("two:\n  driver = redirect\n  local_parts = two\n  data = one@y.test, other@y.test")
        .router("local:\n  driver = accept\n  transport = sink")
        .transport("sink:\n  driver = appendfile\n  file = PRIVATE/spool/sink\n  user = Debian-exim")
        .build();
    exim.start();
    exim
}

fn connected(exim: &PrivateExim, last: u8, hello: &str) -> Client {
    let mut client = exim.connect(Ipv4Addr::new(127, 0, 0, last));
    assert_eq!(client.expect().code, 220);
    client.command(format!("EHLO {hello}"));
    client
}

/// What the sessions do, and the items that each log has to show of it; `all:` is shown with
/// `log_selector = +all` only.
fn sessions(exim: &PrivateExim) -> Vec<&'static str> {
    let mut expected = Vec::new();
    let body = "Subject: A=plain:ceo H=[198.51.100.1] S=1 for x\n\nhello\n";

    let mut client = connected(exim, 2, "client.test");
    assert!(client.command("AUTH PLAIN AGFsaWNlAGdvb2Q=").is_ok());
    assert!(client.command("MAIL FROM:<alice@x.test>").is_ok());
    for recipient in ["bob@y.test", "no@y.test", "two@y.test", "bob@y.test"] {
        client.command(format!("RCPT TO:<{recipient}>"));
    }
    assert!(client.data(body).is_ok());
    assert!(client.message("", &["\"a b\"@y.test"], body).is_ok());
    client.quit();
    expected.extend([
        "all:connect 127.0.0.2",
        "refused Rcpt 127.0.0.2 client.test alice alice@x.test no@y.test 5: no such user",
        "all:message 127.0.0.2 client.test alice alice@x.test [bob@y.test, bob@y.test, two@y.test]",
        // From the deliveries.
        "default:message 127.0.0.2 client.test alice alice@x.test [bob@y.test, two@y.test]",
        "message 127.0.0.2 client.test alice  [\"a b\"@y.test]",
        "all:close 127.0.0.2",
    ]);

    assert_eq!(exim.connect(Ipv4Addr::new(127, 0, 0, 9)).expect().code, 550);
    exim.wait_for_log("bad host", 1);
    expected.extend(["all:connect 127.0.0.9", "refused Connect 127.0.0.9 - - - - 5: bad host"]);

    let mut client = connected(exim, 3, "bad.helo");
    client.command("EHLO [198.51.100.1]");
    // al ice with a wrong password.
    assert_eq!(client.command("AUTH PLAIN AGFsIGljZQB3cm9uZw==").code, 535);
    assert_eq!(client.command("MAIL FROM:<bad@x.test>").code, 451);
    assert_eq!(client.command("MAIL FROM:<unqualified>").code, 501);
    let sender = "\"x H=[198.51.100.1] A=plain:ceo S=5 rejected RCPT <z>\"@x.test";
    assert!(client.command(format!("MAIL FROM:<{sender}>")).is_ok());
    assert!(client.command("RCPT TO:<first@y.test>").is_ok());
    assert!(client.command("RSET").is_ok());
    client.command("MAIL FROM:<carol@x.test>");
    for recipient in ["ok@y.test", "limited@y.test", "native@y.test", "no@y.test", "unqualified"] {
        client.command(format!("RCPT TO:<{recipient}>"));
    }
    client.command("VRFY root@y.test");
    client.quit();
    expected.extend([
        "all:connect 127.0.0.3",
        "refused Helo 127.0.0.3 bad.helo - - - 5: ",
        "login 127.0.0.3 [198.51.100.1] al ice",
        "refused Mail 127.0.0.3 [198.51.100.1] - bad@x.test - 4: bad sender",
        "all:refused Mail 127.0.0.3 [198.51.100.1] - unqualified - 5: ",
        "all:incomplete 127.0.0.3 \"x H=[198.51.100.1] A=plain:ceo S=5 rejected RCPT <z>\"@x.test [first@y.test]",
        "refused Rcpt 127.0.0.3 [198.51.100.1] - carol@x.test limited@y.test 4 limited: Limit reached",
        "refused Rcpt 127.0.0.3 [198.51.100.1] - carol@x.test native@y.test 4 limited: Sender rate 12.3 / 1h",
        "refused Rcpt 127.0.0.3 [198.51.100.1] - carol@x.test no@y.test 5: no such user",
        "all:refused Rcpt 127.0.0.3 [198.51.100.1] - - unqualified 5: ",
        "refused Other 127.0.0.3 [198.51.100.1] - - - 5: ",
        "all:incomplete 127.0.0.3 carol@x.test [ok@y.test]",
        "all:close 127.0.0.3",
    ]);

    let mut client = connected(exim, 4, "no.auth");
    assert_eq!(client.command("AUTH PLAIN AGFsaWNlAGdvb2Q=").code, 451);
    assert!(client.message("dave@x.test", &["ignored@y.test", "bob@y.test"], body).is_ok());
    assert!(client.message("dave@x.test", &["bob@y.test"], "Subject: ignore\n\nx\n").is_ok());
    assert!(!client.message("dave@x.test", &["bob@y.test"], "Subject: refuse\n\nx\n").is_ok());
    let long = format!("Subject: x\n\n{}", "long line\n".repeat(3000));
    assert!(!client.message("dave@x.test", &["bob@y.test"], &long).is_ok());
    assert!(client.message("dave@x.test", &["fail@y.test"], body).is_ok());
    client.command("MAIL FROM:<dave@x.test>");
    client.command("RCPT TO:<lost@y.test>");
    drop(client);
    expected.extend([
        "all:connect 127.0.0.4",
        "refused Auth 127.0.0.4 no.auth - - - 4: ",
        "discarded Rcpt 127.0.0.4 no.auth - dave@x.test ignored@y.test 5: discarded by RCPT ACL",
        "message 127.0.0.4 no.auth - dave@x.test [bob@y.test]",
        "all:message 127.0.0.4 no.auth - dave@x.test [bob@y.test]",
        "default:message 127.0.0.4 no.auth - dave@x.test [] ?",
        "refused Data 127.0.0.4 no.auth - dave@x.test - 5: bad content",
        "refused Data 127.0.0.4 no.auth - dave@x.test - 5: message too big",
        "message 127.0.0.4 no.auth - dave@x.test [fail@y.test]",
        "all:incomplete 127.0.0.4 dave@x.test [lost@y.test]",
        "close 127.0.0.4",
    ]);
    exim.wait_for_log("unexpected disconnection", 1);

    let mut client = connected(exim, 5, "h");
    client.command("MAIL FROM:<erin@x.test>");
    client.command("RCPT TO:<lost@y.test>");
    assert_eq!(client.command("DATA").code, 354);
    client.send(b"Subject: x\r\n");
    drop(client);
    exim.wait_for_log("lost while reading message data", 1);
    expected.extend(["all:connect 127.0.0.5", "close 127.0.0.5"]);

    let sent = exim.run(&["-f", "frank@x.test", "bob@y.test"], b"Subject: x\n\nx\n");
    assert_eq!(sent.code, 0, "{}", sent.stderr);
    let refused = exim.run(&["-oem", "-f", "no@x.test", "bob@y.test"], b"Subject: x\n\nx\n");
    assert_ne!(refused.code, 0, "{}", refused.stderr);
    let (mut client, _) = exim.pipe(&["-bs"]);
    assert_eq!(client.expect().code, 220);
    assert!(client.command("EHLO inside").is_ok());
    client.command("MAIL FROM:<grace@x.test>");
    assert!(client.command("RCPT TO:<bob@y.test>").is_ok());
    assert!(!client.command("RCPT TO:<no@y.test>").is_ok());
    assert!(client.data(body).is_ok());
    client.quit();
    expected.extend([
        "message - - - frank@x.test [bob@y.test] by root",
        "refused Data - - - no@x.test - 5: not you",
        // What Exim itself sends.
        "message - - -  [no@x.test] by Debian-exim",
        "all:connect -",
        "refused Rcpt - - - grace@x.test no@y.test 5: no such user",
        "message - - - grace@x.test [bob@y.test] by root",
        "all:close -",
    ]);
    assert_eq!(exim.run(&["-qff"], b"").code, 0);
    // The bounce of the delivery that fails.
    assert_eq!(exim.run(&["-qff"], b"").code, 0);
    exim.wait_for_log(" Completed", 9);
    expected.push("failed 127.0.0.4 fail@y.test Other");
    expected.push("message - - -  [dave@x.test] by Debian-exim");
    expected
}

fn short(Item { event, what, .. }: &Item) -> String {
    let text = |text: &Option<Text>| text.as_deref().unwrap_or("-").to_owned();
    let list = |list: &[Text]| {
        let mut list = list.to_vec();
        list.sort();
        format!("[{}]", list.join(", "))
    };
    let client = event.client.address().map_or("-".into(), |client| client.to_string());
    let (helo, auth, sender) = (text(&event.helo), text(&event.auth), text(&event.sender));
    match what {
        ItemKind::Message(m) => {
            assert_eq!(event.client == Origin::Program, client == "-");
            assert!(m.size.is_some());
            let known = if m.recipients_known { "" } else { " ?" };
            let by =
                event.local_account.as_ref().map_or(String::new(), |user| format!(" by {user}"));
            format!("message {client} {helo} {auth} {sender} {}{known}{by}", list(&m.recipients))
        }
        ItemKind::Refusal(r) | ItemKind::Discarded(r) => {
            let word = if matches!(what, ItemKind::Refusal(_)) { "refused" } else { "discarded" };
            let code = if r.temporary { 4 } else { 5 };
            let limited = if r.limited { " limited" } else { "" };
            let reason = r.reason.split(": read=").next().unwrap_or_default();
            // 4.100 says at which size it stopped.
            format!(
                "{word} {:?} {client} {helo} {auth} {sender} {} {code}{limited}: {reason}",
                r.stage,
                text(&event.recipient)
            )
        }
        ItemKind::FailedLogin(f) => format!("login {client} {helo} {}", text(&f.user)),
        ItemKind::Incomplete { recipients } => {
            format!("incomplete {client} {sender} {}", list(recipients))
        }
        ItemKind::Failed(one) => {
            format!("failed {client} {} {:?}", text(&event.recipient), one.failure)
        }
        ItemKind::Connect => format!("connect {client}"),
        ItemKind::Close => format!("close {client}"),
    }
}

fn items(log: PathBuf) -> (Vec<Item>, JoinCounts) {
    let mut joiner = Joiner::new(JoinSettings::default());
    let mut items = Vec::new();
    let files = LogFiles::find(&[log]).unwrap();
    files.read(|line| joiner.line(&line, &mut |item| items.push(item)), |_| {}).unwrap();
    joiner.finish(&mut |item| items.push(item));
    (items, joiner.counts().clone())
}

#[test]
fn every_kind_of_line_is_what_the_sessions_did() {
    for (selector, kind) in [("log_selector = +all", "all:"), ("", "default:")] {
        let exim = private_exim(selector);
        let expected = sessions(&exim);
        let of_this_kind = |line: &&str| match line.split_once(':') {
            Some((which @ ("all" | "default"), rest)) => {
                kind.starts_with(which).then(|| rest.to_owned())
            }
            _ => Some((*line).to_owned()),
        };
        let expected: Vec<String> = expected.iter().filter_map(of_this_kind).collect();
        let (items, counts) = items(exim.folder().join("log/mainlog"));
        let found: Vec<String> = items.iter().map(short).collect();
        let log = exim.log("main");
        for (found, expected) in found.iter().zip(&expected) {
            assert_eq!(found, expected, "{log}");
        }
        assert_eq!(found.len(), expected.len(), "{found:#?}\n{log}");
        let unknown = counts.unused.of(Reason::NotUnderstood);
        assert_eq!((unknown.count, &unknown.examples), (0, &Vec::new()), "{log}");
        if kind == "all:" {
            sessions_are_told_apart(&items, &log);
        }
        equal_totals(&items, &log);
    }
}

/// All items of a client's session have its key, and no others do.
fn sessions_are_told_apart(items: &[Item], log: &str) {
    for last in 2..=5 {
        let address = IpAddr::from([127, 0, 0, last]);
        // What became of a message is of no session.
        let is_later = |item: &Item| matches!(item.what, ItemKind::Failed(_));
        let of_client =
            |item: &&Item| !is_later(item) && short(item).contains(&format!(" {address}"));
        let keys: Vec<_> = items.iter().filter(of_client).map(|item| item.session).collect();
        assert!(keys[0].is_some() && keys.iter().all(|key| *key == keys[0]), "{keys:?}\n{log}");
        let of_others = items.iter().filter(|item| !of_client(item));
        assert!(of_others.into_iter().all(|item| item.session != keys[0]), "{address}\n{log}");
    }
}

/// The totals are those of `eximstats` on the same log.
fn equal_totals(items: &[Item], log: &str) {
    // It takes the sender that imitates a refusal for one.
    let is_honest = |line: &&str| !line.contains("incomplete transaction");
    let honest: Vec<&str> = log.lines().filter(is_honest).collect();
    let text = kit::exim::eximstats(&(honest.join("\n") + "\n"));
    let numbers = |name: &str| -> Vec<f64> {
        let line = text.lines().find_map(|line| line.trim_start().strip_prefix(name));
        let words = line.unwrap_or_default().split_whitespace();
        words.map_while(|word| word.parse().ok()).collect()
    };
    let messages = || {
        items.iter().filter_map(|item| match &item.what {
            ItemKind::Message(message) => Some(message),
            _ => None,
        })
    };
    let bytes: u64 = messages().filter_map(|message| message.size).sum();
    let received = numbers("Received ");
    let expected = [bytes as f64, messages().count() as f64];
    assert_eq!(received.get(..2), Some(&expected[..]), "{text}\n{log}");

    // Deliveries, and lines that say what became of all recipients.
    let lines: Vec<_> = log.lines().map(|line| line.split_at(20).1).collect();
    let lines = || lines.iter().map(|rest| rest.split_once("] ").map_or(*rest, |(_, rest)| rest));
    let is_discarded = |rest: &&str| rest.contains(" => blackhole (");
    let is_delivery = |rest: &&str| {
        matches!(exim::line(rest).what, What::Recipient { result: Delivery::Done, .. })
    };
    let discarded = lines().filter(is_discarded).count() as f64;
    let delivered = lines().filter(is_delivery).count() as f64;
    let found = numbers("Delivered ");
    assert_eq!(found.get(2), Some(&(delivered + discarded)), "{text}\n{log}");

    // It takes a discarded message for a rejected one, too.
    let is_refused = |item: &&Item| matches!(&item.what, ItemKind::Refusal(_));
    let mut refused = items.iter().filter(is_refused).count() as f64 + discarded;
    // That of 4.100 counts failed logins as well.
    if log.contains("exim 4.1") {
        let is_login = |item: &&Item| matches!(&item.what, ItemKind::FailedLogin(_));
        refused += items.iter().filter(is_login).count() as f64;
    }
    let counted = numbers("Rejects ").first().unwrap_or(&0.0)
        + numbers("Temp Rejects ").first().unwrap_or(&0.0);
    assert_eq!(counted, refused, "{text}\n{log}");
    assert!(items.iter().any(|item| matches!(&item.what,
        ItemKind::Refusal(refusal) if refusal.stage == Stage::Data)
        && item.event.client != Origin::Program));
}
