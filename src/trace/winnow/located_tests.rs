//! In which parts of a message a query is found.

use super::tests::KEY;
use super::*;
use crate::trace::{Fragment, MessagePart, Part, WinnowSettings};

/// A text of words that occur once.
fn text(seed: u64, words: usize) -> String {
    let mut random = kit::Random::new(seed);
    (0..words).map(|_| format!("{:x} ", random.bits() >> 36)).collect()
}

/// A message with these fragments.
fn digest(winnow: &Winnow, pieces: &[(MessagePart, Fragment<'_>)]) -> Vec<u8> {
    let mut digester = winnow.digester();
    for (part, piece) in pieces {
        digester.begin(*part);
        digester.add(*piece);
    }
    digester.finish()
}

/// The parts in which the only message has these parts of a query, as its digest, a segment and
/// a folded one have it: each shows no part less than the one before.
fn parts(winnow: &Winnow, digest: &[u8], wanted: &[Part], min_share: f64) -> Vec<String> {
    let query = ContentQuery { parts: wanted.to_vec(), min_share };
    let mut search = winnow.search(&query).unwrap();
    let mut found = Vec::new();
    search.digests(&[digest], &mut |hit| assert_eq!(hit.within, None));
    search.locate();
    search.digests(&[digest], &mut |hit| found.push(hit.within.unwrap()));
    let sealed = winnow.seal(&[digest]);
    let body = Body::plain(&sealed.body);
    search.sealed(&body, 1, &mut |hit| found.push(hit.within.unwrap())).unwrap();
    assert!(found.len() == 2 && found[0] == found[1], "{found:?}");
    let folded = winnow.fold(&sealed.body).unwrap();
    search.sealed(&Body::plain(&folded), 1, &mut |hit| found.push(hit.within.unwrap())).unwrap();
    if let [all, _, folded] = *found {
        assert!(all.iter().all(|part| folded.iter().any(|other| other == part)), "{found:?}");
    }
    found[0].iter().map(|part| part.to_string()).collect()
}

#[test]
fn each_part_of_a_message_is_told_apart() {
    let winnow = Winnow::new(WinnowSettings::default(), &KEY);
    let texts: Vec<String> = (0..6).map(|seed| text(seed, 200)).collect();
    let (first, second) = (texts[4].clone().into_bytes(), texts[5].repeat(20).into_bytes());
    let subject = &texts[0][..90];
    let all = [
        (MessagePart::Subject, Fragment::Text(subject)),
        (MessagePart::Text, Fragment::Text(&texts[1])),
        (MessagePart::Attachment(1), Fragment::Bytes(&first)),
        (MessagePart::Attachment(1), Fragment::File(&first)),
        (MessagePart::Attachment(2), Fragment::Text(&texts[2])),
        (MessagePart::Attachment(3), Fragment::Bytes(&second)),
        (MessagePart::Attachment(3), Fragment::File(&second)),
    ];
    let digest = digest(&winnow, &all);
    let is = |wanted: &[Part], min_share: f64, expected: &[&str]| {
        assert_eq!(parts(&winnow, &digest, wanted, min_share), expected);
    };
    // With so few marks, others are there by chance.
    let has = |wanted: &[Part], min_share: f64, expected: &[&str]| {
        let found = parts(&winnow, &digest, wanted, min_share);
        let is_there = |part: &&str| found.iter().any(|found| found == part);
        assert!(expected.iter().all(is_there), "{expected:?}: {found:?}");
    };
    let part = |text: &str| Part::Text(text.to_owned());
    is(&[part(subject)], 1.0, &["subject"]);
    is(&[part(&texts[1])], 1.0, &["text"]);
    is(&[part(&texts[1][100..700])], 1.0, &["text"]);
    is(&[part(&texts[2])], 1.0, &["attachment 2"]);
    // Of two parts of a query, each is in one of these.
    is(&[part(subject), part(&texts[2])], 1.0, &["subject", "attachment 2"]);
    has(&[Part::File(first.clone())], 1.0, &["attachment 1"]);
    has(&[Part::File(second.clone())], 1.0, &["attachment 3"]);
    has(&[Part::Bytes(second.clone())], 1.0, &["attachment 3"]);
    has(&[Part::Bytes(first.clone())], 1.0, &["attachment 1"]);
    // A part of the text was edited.
    let edited = format!("{}{}", &texts[2][..1000], text(99, 60));
    has(&[part(&edited)], 0.0, &["attachment 2"]);
    let edited = format!("{}{}", &texts[1][..1000], text(99, 60));
    has(&[part(&edited)], 0.5, &["text"]);
    // A passage of a longer text.
    let page = |passage: &str| Part::Passage(format!("{}{passage}{}", text(77, 90), text(78, 90)));
    has(&[page(&texts[2])], 1.0, &["attachment 2"]);
    has(&[page(&texts[1])], 1.0, &["text"]);
}

#[test]
fn a_text_and_its_copy_in_html_are_not_told_apart() {
    let winnow = Winnow::new(WinnowSettings::default(), &KEY);
    let [one, other] = [1, 2].map(|seed| text(seed, 60));
    let wanted = Part::Text(one.clone());
    for (pieces, expected) in [
        (vec![(MessagePart::Text, &one)], vec!["text"]),
        (vec![(MessagePart::Html, &one)], vec!["HTML"]),
        (vec![(MessagePart::Text, &one), (MessagePart::Html, &one)], vec!["text", "HTML"]),
        (vec![(MessagePart::Text, &other), (MessagePart::Html, &one)], vec!["text", "HTML"]),
        // It is in the text too, which is not known.
        (vec![(MessagePart::Text, &one), (MessagePart::Subject, &one)], vec!["subject"]),
        // Of a display name it is known that it is in nothing else.
        (vec![(MessagePart::Name, &one)], vec![]),
    ] {
        let pieces: Vec<_> =
            pieces.into_iter().map(|(part, text)| (part, Fragment::Text(text))).collect();
        let digest = digest(&winnow, &pieces);
        assert_eq!(parts(&winnow, &digest, std::slice::from_ref(&wanted), 1.0), expected);
    }
}

#[test]
fn a_short_text_may_be_in_several_parts() {
    let winnow = Winnow::new(WinnowSettings::default(), &KEY);
    let [one, other] = [1, 2].map(|seed| text(seed, 60));
    let pieces = [
        (MessagePart::Text, Fragment::Text(&one)),
        (MessagePart::Subject, Fragment::Text(&other[..40])),
    ];
    let digest = digest(&winnow, &pieces);
    // Three or four elements are all there by chance in one message of ten.
    let found = parts(&winnow, &digest, &[Part::Text(other[..16].to_owned())], 1.0);
    assert_eq!(found, ["subject", "text"]);
}
