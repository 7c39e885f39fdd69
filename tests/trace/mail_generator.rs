//! The generated mail has the properties that it claims.

use std::collections::{HashMap, HashSet};

use exirate::trace::Fragment;
use exirate::trace::decode::{self, Extent, Limits};
use kit::mail::{Kind, Mail, SHARES, Truth, World};
use mail_parser::decoders::html::html_to_text;
use mail_parser::{MessageParser, MimeHeaders, PartType};

/// The contents of a message according to a parser: the same kinds as in
/// [`Truth`].
#[derive(Default, Debug)]
struct Found {
    texts: Vec<String>,
    htmls: Vec<String>,
    files: Vec<(String, Vec<u8>)>,
}

fn look(message: &mail_parser::Message<'_>, found: &mut Found) {
    for part in &message.parts {
        // The parts of a delivery report are not claimed as contents.
        if part.is_content_type("message", "delivery-status") {
            continue;
        }
        let name = part.attachment_name().map(str::to_owned);
        match (&part.body, name) {
            (PartType::Text(text), Some(name)) => found.files.push((name, text.as_bytes().into())),
            (PartType::Text(text), None) => found.texts.push(text.trim_end().to_owned()),
            (PartType::Html(html), _) => found.htmls.push(html.trim_end().to_owned()),
            (PartType::Binary(bytes) | PartType::InlineBinary(bytes), name) => {
                found.files.push((name.unwrap_or_default(), bytes.to_vec()));
            }
            (PartType::Message(message), _) => look(message, found),
            (PartType::Multipart(_), _) => {}
        }
    }
}

/// Asserts that a parser finds the claimed contents in the message.
fn assert_true(mail: &Mail) {
    let message = MessageParser::default().parse(&mail.raw).unwrap();
    let mut found = Found::default();
    look(&message, &mut found);
    let mut said = Found::default();
    for truth in &mail.truths {
        match truth {
            Truth::Text(text) => said.texts.push(text.trim_end().to_owned()),
            Truth::Html { source, spoken, links } => {
                let seen = squeeze(&html_to_text(source));
                for line in spoken.lines() {
                    assert!(seen.contains(&squeeze(line)), "{line:?} is not seen in {seen}");
                }
                assert!(links.iter().all(|link| source.contains(link.as_str())));
                said.htmls.push(source.trim_end().to_owned());
            }
            Truth::File { name, bytes } => said.files.push((name.clone(), bytes.clone())),
            Truth::Subject(_) | Truth::Name(_) => {}
        }
    }
    assert_eq!(found.texts, said.texts, "{:?}", mail.kind);
    assert_eq!(found.htmls, said.htmls, "{:?}", mail.kind);
    assert_eq!(found.files.len(), said.files.len());
    for (found, said) in found.files.iter().zip(&said.files) {
        assert_eq!(found.0, said.0);
        // Not printed if they differ: they may be long.
        assert!(found.1 == said.1, "{} of {:?} differs", said.0, mail.kind);
    }
    assert_eq!(mail.truths[0], Truth::Subject(message.subject().unwrap().to_owned()));
    let from = message.from().unwrap().first().unwrap();
    assert_eq!(mail.truths[1], Truth::Name(from.name().unwrap().to_owned()));
    assert_eq!(message.date().unwrap().to_timestamp(), mail.envelope.time);
}

fn squeeze(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn a_parser_finds_the_claimed_contents() {
    let world = World::new(3);
    let kinds = SHARES.iter().flat_map(|&(kind, _)| (5_000..5_060).map(move |n| (kind, n)));
    let made = kinds.map(|(kind, n)| world.of_kind(kind, n));
    // Parsers differ in what they make of broken mail.
    for mail in made.chain((5_000..6_000).map(|n| world.mail(n))) {
        if mail.kind != Kind::Broken {
            assert_true(&mail);
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_bytes() {
    let (one, same, other) = (World::new(5), World::new(5), World::new(6));
    let mut differ = 0;
    // In another order too: a message does not depend on earlier ones.
    for n in (0..400).rev() {
        let (a, b) = (one.mail(n), same.mail(399 - n));
        assert_eq!(b.raw, one.mail(399 - n).raw);
        let again = same.mail(n);
        assert_eq!((&a.raw, &a.envelope), (&again.raw, &again.envelope));
        assert_eq!(a.truths, again.truths);
        differ += u32::from(other.mail(n).raw != a.raw);
    }
    assert_eq!(differ, 400);
}

#[test]
fn kinds_and_sizes_are_as_documented() {
    let world = World::new(7);
    let (mut kinds, mut texts, mut raws) = (HashMap::<Kind, usize>::new(), vec![], vec![]);
    const COUNT: usize = 6_000;
    for n in 0..COUNT as u64 {
        let mail = world.mail(n);
        *kinds.entry(mail.kind).or_default() += 1;
        raws.push(mail.raw.len());
        texts.push(mail.truths.iter().map(text_bytes).sum::<usize>());
    }
    assert_eq!(SHARES.iter().map(|(_, share)| share).sum::<u64>(), 1_000);
    for (kind, share) in SHARES {
        let (found, expected) = (kinds[kind] as f64, *share as f64 * COUNT as f64 / 1_000.0);
        // Five standard deviations.
        assert!((found - expected).abs() < 5.0 * expected.sqrt(), "{kind:?}: {found}");
    }
    texts.sort_unstable();
    raws.sort_unstable();
    let mean = texts.iter().sum::<usize>() / COUNT;
    assert!((3_500..7_000).contains(&mean), "mean text {mean}");
    assert!((1_500..3_500).contains(&texts[COUNT / 2]), "median text {}", texts[COUNT / 2]);
    assert!((4_000..7_000).contains(&raws[COUNT / 2]), "median raw {}", raws[COUNT / 2]);
    // A long tail: the largest tenth has more than a third of all bytes.
    let tail: usize = texts[COUNT * 9 / 10..].iter().sum();
    assert!(tail * 3 > texts.iter().sum::<usize>(), "{tail}");
}

fn text_bytes(truth: &Truth) -> usize {
    match truth {
        Truth::Text(text) => text.len(),
        Truth::Html { spoken, links, .. } => {
            spoken.len() + links.iter().map(String::len).sum::<usize>()
        }
        _ => 0,
    }
}

/// Compared with what [`kit::mail::words::Words`] states about real mail.
/// Repeated words determine the rate of false hits.
#[test]
fn words_are_distributed_about_as_in_real_mail() {
    let world = World::new(8);
    let mut counts = HashMap::<String, usize>::new();
    let (mut letters, mut total) = (0, 0);
    let mut grams: Vec<HashSet<[u8; 8]>> = Vec::new();
    for n in 0..3_000 {
        let mail = world.of_kind(Kind::List, n);
        let Some(Truth::Text(text)) = mail.truths.get(2) else { panic!("no text in {n}") };
        let text = squeeze(text).to_lowercase();
        for word in text.split(|c: char| !c.is_ascii_lowercase() && c != '\'') {
            if !word.is_empty() {
                *counts.entry(word.to_owned()).or_default() += 1;
                letters += word.len();
                total += 1;
            }
        }
        if text.len() > 1_000 {
            let first = &text.as_bytes()[200..1_000];
            grams.push(first.windows(8).map(|gram| gram.try_into().unwrap()).collect());
        }
    }
    let length = letters as f64 / f64::from(total);
    assert!((4.4..5.2).contains(&length), "{length} letters a word");
    let mut counts: Vec<usize> = counts.into_values().collect();
    counts.sort_unstable_by(|a, b| b.cmp(a));
    for (words, least, most) in [(10, 0.12, 0.22), (100, 0.34, 0.46), (1_000, 0.6, 0.75)] {
        let share = counts[..words].iter().sum::<usize>() as f64 / f64::from(total);
        assert!((least..most).contains(&share), "the first {words} make up {share}");
    }
    // How many of the 8-grams of 800 bytes are in another 800?
    let mut found = 0;
    let mut summary = 0;
    for (n, of) in grams.iter().enumerate() {
        let other = &grams[(n + 1) % grams.len()];
        found += of.intersection(other).count();
        summary += of.len();
    }
    let share = found as f64 / summary as f64;
    assert!((0.004..0.012).contains(&share), "{share} of the 8-grams are shared");
}

#[test]
fn envelopes_are_like_those_of_exim() {
    let world = World::new(9);
    let mut last = 0;
    let (mut senders, mut bounces) = (HashSet::new(), 0);
    for n in 0..2_000 {
        let envelope = world.mail(n).envelope;
        assert!(envelope.time >= last, "time runs back at {n}");
        last = envelope.time;
        let parts: Vec<&str> = envelope.id.split('-').collect();
        assert_eq!(parts.iter().map(|part| part.len()).collect::<Vec<_>>(), [6, 11, 4]);
        assert!(parts.iter().all(|part| part.bytes().all(|b| b.is_ascii_alphanumeric())));
        assert!(!envelope.recipients.is_empty());
        assert!(envelope.recipients.iter().all(|to| to.contains('@') && to.len() < 120));
        bounces += u32::from(envelope.sender.is_empty());
        senders.insert(envelope.sender);
    }
    // Some senders are frequent, many occur once; delivery reports have no
    // sender.
    assert!((500..1_600).contains(&senders.len()), "{} senders", senders.len());
    assert!((10..60).contains(&bounces), "{bounces} bounces");
}

/// The decoded text is the claimed one, so that it can be found.
#[test]
fn decoding_gives_the_claimed_contents() {
    let world = World::new(4);
    let kinds = SHARES.iter().flat_map(|&(kind, _)| (7_000..7_030).map(move |n| (kind, n)));
    for mail in kinds.map(|(kind, n)| world.of_kind(kind, n)) {
        let (mut text, mut files) = (String::new(), Vec::new());
        let extent = decode::decode(&mail.raw, &Limits::default(), &mut |piece| match piece {
            Fragment::Text(piece) => {
                text.push_str(piece);
                text.push('\n');
            }
            Fragment::File(file) => files.push(file.to_vec()),
            Fragment::Bytes(_) => {}
        });
        // A reader may see another text of a charset that nobody knows.
        let raw = String::from_utf8_lossy(&mail.raw);
        let is_doubtful = raw.contains("charset=\"x-unknown\"");
        assert_eq!(extent, Extent { is_doubtful, is_cut: false }, "{:?}: {raw}", mail.kind);
        let has = |said: &str| {
            let said = decode::excerpt(said);
            assert!(text.contains(&said), "{:?}: {said:?} is not in {text}", mail.kind);
        };
        for truth in &mail.truths {
            match truth {
                Truth::Subject(said) | Truth::Name(said) | Truth::Text(said) => has(said),
                Truth::Html { spoken, links, .. } => {
                    spoken.lines().for_each(has);
                    links.iter().for_each(|link| has(link));
                }
                Truth::File { name, bytes } => {
                    has(name);
                    assert!(files.contains(bytes), "{:?}: {name} is missing", mail.kind);
                }
            }
        }
    }
}
