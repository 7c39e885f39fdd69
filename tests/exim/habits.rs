//! Habits in a real Exim: what is known of an account, a theft, and what becomes of its mail.

use std::time::{SystemTime, UNIX_EPOCH};

use exirate::rate::habits::{Habits, Sensitivity};
use exirate::spool::habits::SentMessage;
use exirate::spool::{EventKind, EventReader, Options, Spool};
use exirate::store::{Store as _, habits_key};
use kit::{Client, PrivateExim, Setup};

use crate::acl_files::login;
use crate::policy::{apply, shipped_acl_before};

const ALICE: &[u8] = b"auth:alice";

fn now() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() as i64
}

/// An Exim with the shipped ACLs in which alice has written to one address for weeks.
fn exim(habits: &str) -> PrivateExim {
    exim_of(Setup::new(), habits)
}

fn exim_of(setup: Setup, habits: &str) -> PrivateExim {
    let mut exim = shipped_acl_before(setup, "  accept\n");
    apply(&exim, &format!("[policy.out]\nhabits = \"{habits}\"\n"));
    let mut spool = Spool::open(&exim.spool(), Options::default()).unwrap();
    let mut name = Vec::new();
    for n in (1..=60).rev() {
        let recipients = [&b"known@private.test"[..]];
        let message = SentMessage { at: now() - n * 20_000, client: None, recipients };
        let key = habits_key(ALICE, &mut name);
        spool.learn_habits(key, message, Sensitivity::Normal).unwrap();
    }
    exim.start();
    exim
}

fn habits(exim: &PrivateExim) -> Habits {
    let mut spool = Spool::open(&exim.spool(), Options::default()).unwrap();
    spool.habits(habits_key(ALICE, &mut Vec::new())).unwrap().unwrap()
}

/// How many of these recipients alice's habits do not take for known: they have a few bits of each,
/// which may be those of another.
fn strangers_of(exim: &PrivateExim, to: &[String]) -> u32 {
    let spool = Spool::open(&exim.spool(), Options::default()).unwrap();
    let hashes = to.iter().map(|to| spool.habits_hash(to.as_bytes()));
    habits(exim).message(now(), None, hashes, Sensitivity::Normal).strangers
}

/// The next two recipients that alice's habits do not take for known.
fn next_strangers(exim: &PrivateExim, names: &mut impl Iterator<Item = u32>) -> [String; 2] {
    loop {
        let to = [(); 2].map(|()| format!("s{}@private.test", names.next().unwrap()));
        if strangers_of(exim, &to) == 2 {
            return to;
        }
    }
}

/// A session of this account.
fn session(exim: &PrivateExim, auth: &str) -> Client {
    let mut client = exim.session();
    login(&mut client, auth);
    client
}

/// Sends a message; the code of the reply to its end.
fn send(client: &mut Client, to: &[&str], headers: &str) -> u16 {
    client.message("a@client.test", to, &format!("{headers}Subject: x\n\ntext\n")).code
}

fn frozen(exim: &PrivateExim) -> usize {
    exim.run(&["-bp"], b"").stdout.matches("*** frozen ***").count()
}

#[test]
fn a_stolen_account_is_held_and_nobody_else() {
    let exim = exim("hold");
    let mut alice = session(&exim, "alice");
    assert_eq!(send(&mut alice, &["known@private.test"], ""), 250);
    // The recipients that were accepted count, each once.
    assert_eq!(habits(&exim).messages(), 61);
    let (mut strangers, mut sent, mut names) = (0, 0, 0..);
    while frozen(&exim) == 0 {
        let to = next_strangers(&exim, &mut names);
        assert_eq!(send(&mut alice, &to.each_ref().map(|to| &**to), ""), 250);
        (strangers, sent) = (strangers + 2, sent + 1);
        assert!(strangers < 60, "{}", exim.log("main"));
    }
    assert!(strangers > 4, "{strangers}");
    // All is held from then on, for known people too. It is counted, and not learned.
    assert_eq!(send(&mut alice, &["known@private.test"], ""), 250);
    let known = habits(&exim);
    assert_eq!((frozen(&exim), known.messages(), known.held()), (2, 61 + sent, 1));
    assert_eq!(send(&mut session(&exim, "bob"), &["known@private.test"], ""), 250);
    assert_eq!(frozen(&exim), 2);
    let log = exim.log("main");
    let line = "policy out: hold [127.0.0.1]: ";
    assert_eq!(log.matches(line).count(), 2, "{log}");
    assert!(log.contains("hold [127.0.0.1]: this message raises an alarm: "), "{log}");
    assert!(log.contains(": an alarm was raised "), "{log}");
    assert!(log.contains(", key auth:alice (default)"), "{log}");
    let mut spool = Spool::open(&exim.spool(), Options::default()).unwrap();
    let mut reader = EventReader::new(EventKind::Crossings);
    let time = exirate::rate::Timestamp { seconds: now(), micros: 0 };
    let events = spool.read_events(&mut reader, time, true).unwrap();
    let [event] = &events[..] else { panic!("{events:?}") };
    assert!(event.is_alarm() && event.has_details);
    let texts = event.texts.map(|text| std::str::from_utf8(text).unwrap());
    assert_eq!((texts.policy, texts.unit, texts.login), ("out", "habits", "alice"));
    let begin = format!("{strangers} recipients that it has never written to, in {sent} messages");
    assert!(texts.evidence.starts_with(&begin), "{}", texts.evidence);
    assert_eq!(exim.log("panic"), "");
}

#[test]
fn a_stolen_account_is_deferred_and_what_says_it_is_a_list_is_not_compared() {
    let exim = exim("defer");
    let mut alice = session(&exim, "alice");
    for n in 0..10 {
        let headers = ["List-Id: <a.test>\n", "auto-submitted: auto-replied\n"][n % 2];
        assert_eq!(send(&mut alice, &[&format!("l{n}@private.test")], headers), 250);
    }
    assert_eq!(habits(&exim).messages(), 60);
    let mut sent = 0;
    while send(&mut alice, &[&format!("s{sent}@private.test")], "Auto-Submitted: no\n") == 250 {
        sent += 1;
        assert!(sent < 60, "{}", exim.log("main"));
    }
    // The message that raises the alarm is learned, and those that are refused then are not.
    let learned = habits(&exim).messages();
    assert_eq!(learned, 61 + sent);
    assert_eq!(send(&mut alice, &["known@private.test"], ""), 451);
    let known = habits(&exim);
    assert_eq!((known.messages(), known.held()), (learned, 1));
    assert_eq!(exim.log("panic"), "");
}

#[test]
fn recipients_that_are_refused_after_the_text_are_not_learned() {
    let setup = Setup::new().main("prdr_enable = true");
    let setup = setup.acl("acl_smtp_data_prdr", "  deny local_parts = ^r\n  accept\n");
    let exim = exim_of(setup, "observe");
    let two = (0..).map(|n| ["a", "r"].map(|name| format!("{name}{n}@private.test")));
    let to = two.into_iter().find(|to| strangers_of(&exim, to) == 2).unwrap();
    let mut alice = session(&exim, "alice");
    assert_eq!(alice.command("MAIL FROM:<a@client.test> PRDR").code, 250);
    for to in &to {
        assert_eq!(alice.command(format!("RCPT TO:<{to}>")).code, 250);
    }
    assert_eq!(alice.command("DATA").code, 354);
    let mut reply = alice.command("Subject: x\r\n\r\nx\r\n.");
    let mut refused = 0;
    // One for each recipient, and one for the message.
    while !reply.text.contains("id=") {
        refused += u32::from(reply.code == 550);
        reply = alice.expect();
    }
    assert_eq!(refused, 1, "{}", exim.log("main"));
    assert_eq!(habits(&exim).messages(), 61);
    assert_eq!(to.each_ref().map(|to| strangers_of(&exim, std::slice::from_ref(to))), [0, 1]);
}
