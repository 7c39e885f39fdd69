//! Newsletters, mail merges, phishing and single messages, recorded and told apart.

use std::fmt::Write as _;
use std::path::Path;

use super::*;
use crate::trace::{Access, HbfSettings, Options, Settings, WinnowSettings, trace_directory};

const START: i64 = 1_795_171_000;

fn store(folder: &Path, settings: Settings) -> TraceStore {
    let mut store = TraceStore::open(&trace_directory(folder), Access::Write).unwrap();
    store.set_options(Options { keep: None, settings, ..Options::default() }).unwrap();
    store
}

fn winnow() -> Settings {
    Settings::Winnow(WinnowSettings::default())
}

fn hbf() -> Settings {
    Settings::Hbf(HbfSettings::default())
}

/// A text of so many words, another one for each seed.
fn words(seed: u64, count: usize) -> String {
    let mut random = kit::Random::new(seed);
    let mut text = String::new();
    for n in 0..count {
        (0..random.within(3, 9)).for_each(|_| text.push(random.letter()));
        text.push(if n % 12 == 11 { '\n' } else { ' ' });
    }
    text
}

fn envelope(n: u64) -> Envelope {
    Envelope {
        time: START + n as i64,
        id: format!("id-{n}"),
        sender: "news@example.org".to_owned(),
        recipients: vec![format!("r{n}@d{}.test", n % 40)],
        client: Some("192.0.2.7".parse().unwrap()),
        authenticated: "news".to_owned(),
        partial: false,
    }
}

fn message(subject: &str, body: &str) -> String {
    format!("From: news@example.org\nSubject: {subject}\n\n{body}\n")
}

fn read(store: &TraceStore) -> Crossing {
    let login = Sender::Login("NEWS".to_owned());
    Crossing::read(store, &login, START - 10, START + 100_000).unwrap()
}

/// Records so many messages; of half of them, the segment is sealed if wanted.
fn record(
    settings: Settings,
    count: u64,
    of: impl Fn(u64) -> (Envelope, String),
) -> (tempfile::TempDir, TraceStore) {
    let folder = tempfile::tempdir().unwrap();
    let mut store = store(folder.path(), settings);
    for n in 0..count {
        let (envelope, text) = of(n);
        store.record(&envelope, text.as_bytes()).unwrap();
    }
    (folder, store)
}

#[test]
fn a_newsletter_is_one_text() {
    for settings in [winnow(), hbf()] {
        let text = message("Our offers", &words(1, 300));
        let (_folder, store) = record(settings, 60, |n| (envelope(n), text.clone()));
        let crossing = read(&store);
        assert_eq!((crossing.messages, crossing.pattern), (60, Pattern::SameText));
        let alike = crossing.alike.clone().unwrap();
        assert_eq!((alike.likeness, alike.texts, alike.largest, alike.compared), (1.0, 1, 1.0, 60));
        assert_eq!(
            crossing.judgement(),
            "one text, sent again and again: 60 messages, to 60 recipients in 40 domains, from 1 \
             client network"
        );
        assert_eq!(crossing.unknown, [""; 0]);
    }
}

/// A text with a name, a number and a link of its own in each copy.
fn merged(n: u64) -> (Envelope, String) {
    let body = format!(
        "Dear {},\n\n{}\nYour number is {}. https://x.test/{:x}\n{}",
        words(900 + n, 2),
        words(1, 150),
        n * 7919,
        n * 104_729,
        words(2, 150)
    );
    (envelope(n), message("Your account", &body))
}

#[test]
fn a_mail_merge_is_one_text_with_changes() {
    let (_folder, store) = record(winnow(), 60, merged);
    let crossing = read(&store);
    let alike = crossing.alike.clone().unwrap();
    assert_eq!(crossing.pattern, Pattern::Variants, "{alike:?}");
    assert!((0.75..0.995).contains(&alike.within) && alike.texts == 1, "{alike:?}");
    assert!(crossing.judgement().starts_with("one text with changes: 60 messages, "));
    // Blocks at fixed places cannot show it.
    let (_folder, store) = record(hbf(), 60, merged);
    assert_eq!(read(&store).pattern, Pattern::DifferentTexts);
}

#[test]
fn a_thousand_different_mails_are_different() {
    let phish = |n: u64| {
        let client = format!("198.51.{}.{}", n % 37, n % 250 + 1).parse().ok();
        let body = words(10_000 + n, 60 + (n % 9) as usize * 25);
        (
            Envelope { client, ..envelope(n) },
            message(&words(50_000 + n, 4).replace('\n', " "), &body),
        )
    };
    for (settings, count) in [(winnow(), 1000), (hbf(), 100)] {
        let (_folder, store) = record(settings, count, phish);
        let crossing = read(&store);
        let alike = crossing.alike.clone().unwrap();
        assert_eq!(crossing.pattern, Pattern::DifferentTexts, "{alike:?}");
        assert!(alike.likeness < 0.1 && alike.largest < 0.05, "{alike:?}");
        assert_eq!((crossing.client_networks, crossing.networks.len()), (37, 10));
        assert_eq!(alike.compared, COMPARED_MAX.min(count as usize));
        let line = crossing.judgement();
        assert!(line.starts_with(&format!("different texts: {count} messages, ")), "{line}");
        assert!(line.ends_with(" in 40 domains, from 37 client networks"), "{line}");
    }
}

#[test]
fn several_newsletters_are_several_texts() {
    let (_folder, store) =
        record(winnow(), 60, |n| (envelope(n), message("News", &words(n % 4, 200))));
    let crossing = read(&store);
    let alike = crossing.alike.clone().unwrap();
    assert_eq!((crossing.pattern, alike.texts), (Pattern::SeveralTexts, 4), "{alike:?}");
    assert_eq!(alike.within, 1.0);
}

#[test]
fn one_message_may_have_many_recipients() {
    let (_folder, store) = record(winnow(), 1, |n| {
        let recipients = (0..500).map(|n| format!("R{n}@d{}.test", n % 7)).collect();
        (Envelope { recipients, ..envelope(n) }, message("Meeting", "See you there."))
    });
    let crossing = read(&store);
    assert_eq!(
        crossing.judgement(),
        "one message, to 500 recipients in 7 domains, from 1 client network"
    );
    assert_eq!((crossing.recipients, crossing.alike), (500, None));
}

#[test]
fn sealed_segments_are_compared_as_logs_are() {
    for (settings, told) in [(winnow(), true), (hbf(), false)] {
        let folder = tempfile::tempdir().unwrap();
        let mut store = store(folder.path(), settings);
        for n in 0..300 {
            let (envelope, text) =
                if n % 2 == 0 { merged(n) } else { (envelope(n), message("x", &words(n + 9, 80))) };
            store.record(&envelope, text.as_bytes()).unwrap();
        }
        let before = read(&store);
        store.seal().unwrap();
        let after = read(&store);
        assert_eq!((before.messages, after.messages), (300, 300));
        let alike = after.alike.clone();
        match told {
            true => assert_eq!(alike, before.alike),
            false => {
                assert_eq!((alike, after.pattern), (None, Pattern::NotCompared));
                assert!(after.unknown[0].starts_with("256 of the messages are in sealed segments"));
                assert!(after.judgement().starts_with("300 messages, to 300 recipients in 40"));
            }
        }
    }
}

#[test]
fn other_settings_are_not_compared() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = store(folder.path(), hbf());
    let text = message("x", &words(1, 100));
    (0..5).for_each(|n| store.record(&envelope(n), text.as_bytes()).unwrap());
    store.seal().unwrap();
    store.set_options(Options { keep: None, settings: winnow(), ..Options::default() }).unwrap();
    (5..9).for_each(|n| store.record(&envelope(n), text.as_bytes()).unwrap());
    let crossing = read(&store);
    assert_eq!(crossing.alike.clone().unwrap().compared, 4);
    assert!(crossing.unknown[0].starts_with("5 of the messages were recorded with other settings"));
}

#[test]
fn senders_are_told_apart() {
    let (_folder, store) = record(winnow(), 20, |n| {
        let (sender, authenticated) = match n % 4 {
            0 => ("a@one.test", "a@one.test"),
            1 => ("b@One.test", ""),
            2 => ("", ""),
            _ => ("c@two.test", "c"),
        };
        let client = (n % 4 == 1).then(|| "2001:db8::9".parse().unwrap());
        let (sender, authenticated) = (sender.to_owned(), authenticated.to_owned());
        let recipients = vec![format!("R{}@x.test", n % 2)];
        (Envelope { sender, authenticated, client, recipients, ..envelope(n) }, String::new())
    });
    let count = |sender: Sender, until: i64| {
        Crossing::read(&store, &sender, START, until).unwrap().messages
    };
    let all = START + 100;
    for (sender, messages) in [
        (Sender::Login("A@ONE.test".into()), 5),
        (Sender::Login("c".into()), 5),
        (Sender::Address("B@one.test".into()), 5),
        (Sender::Address(String::new()), 5),
        (Sender::Domain("one.test".into()), 10),
        (Sender::Client(Cidr::parse("2001:db8::/64").unwrap()), 5),
        (Sender::Recipient("r1@x.test".into()), 10),
        (Sender::Login("nobody".into()), 0),
    ] {
        assert_eq!(count(sender.clone(), all), messages, "{sender:?}");
    }
    assert_eq!(count(Sender::Login("c".into()), START + 7), 2);
    let crossing = Crossing::read(&store, &Sender::Domain("one.test".into()), START, all).unwrap();
    assert_eq!(
        crossing.networks.iter().map(|one| &*one.name).collect::<Vec<_>>(),
        ["2001:db8::/64", "local"]
    );
    assert_eq!(crossing.pattern, Pattern::NotCompared);
    let mut text = String::new();
    crossing.unknown.iter().for_each(|line| writeln!(text, "{line}").unwrap());
    assert_eq!(
        text,
        "10 of the messages have no text, or are very large: they were not compared\n"
    );
    let none = Crossing::read(&store, &Sender::Login("nobody".into()), START, all).unwrap();
    assert_eq!(none.judgement(), "no message is recorded in this time");
}
