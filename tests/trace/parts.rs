//! A query shows in which part of a message its text is.

use std::collections::BTreeMap;

use exirate::trace::decode::{self, Limits};
use exirate::trace::{
    Body, ContentQuery, Fragment, Hit, MessagePart, MessageParts, Part, Scheme, Sealed, Settings,
};
use kit::Random;
use kit::mail::World;

const MESSAGES: usize = 1500;

/// A piece of a message.
#[derive(Clone, Debug, PartialEq)]
enum Piece {
    Text(String),
    File(Vec<u8>),
    Bytes(Vec<u8>),
}

struct Store {
    scheme: Box<dyn Scheme>,
    digests: Vec<Vec<u8>>,
    sealed: Sealed,
    pieces: Vec<Vec<(MessagePart, Piece)>>,
}

/// The answers to queries for what is in one kind of part.
#[derive(Clone, Copy, Debug, Default)]
struct Answers {
    /// Only parts that have it.
    right: u32,
    /// Parts that have it, and others.
    undecided: u32,
    /// Only parts that do not have it.
    wrong: u32,
}

impl Store {
    fn new() -> Self {
        let (world, scheme) = (World::new(11), Settings::default().scheme(&[3; 32]));
        let (mut digests, mut pieces) = (Vec::new(), Vec::new());
        for n in 0..MESSAGES {
            let (mut digester, mut all) = (scheme.digester(), Vec::new());
            decode::decode_parts(
                &world.mail(n as u64).raw,
                &Limits::default(),
                &mut |part, piece| {
                    digester.begin(part);
                    digester.add(piece);
                    let piece = match piece {
                        Fragment::Text(text) => Piece::Text(text.to_owned()),
                        Fragment::File(bytes) => Piece::File(bytes.to_vec()),
                        Fragment::Bytes(bytes) => Piece::Bytes(bytes.to_vec()),
                    };
                    // A file is there with LF and with CR LF: it is asked for once.
                    let before = all.last().filter(|(before, _)| *before == part);
                    let is_other_form = matches!(before, Some((_, Piece::File(_))));
                    if !(is_other_form && matches!(piece, Piece::File(_))) {
                        all.push((part, piece));
                    }
                },
            );
            digests.push(digester.finish());
            pieces.push(all);
        }
        let slices: Vec<&[u8]> = digests.iter().map(Vec::as_slice).collect();
        let sealed = scheme.seal(&slices);
        Self { scheme, digests, sealed, pieces }
    }

    /// In which parts of a message a query finds it: by its digest, and in the segment.
    fn within(&self, message: usize, part: Part, min_share: f64) -> Option<MessageParts> {
        let query = ContentQuery { parts: vec![part], min_share };
        let mut search = self.scheme.search(&query).ok()?;
        search.locate();
        let (mut of_digest, mut of_segment) = (None, None);
        search.digests(&[&self.digests[message]], &mut |hit: Hit| of_digest = hit.within);
        let order = &self.sealed.order;
        let mut add = |hit: Hit| {
            if order[hit.message as usize] as usize == message {
                of_segment = hit.within;
            }
        };
        search.sealed(&Body::plain(&self.sealed.body), MESSAGES as u32, &mut add).unwrap();
        if min_share == 1.0 {
            assert!(of_digest.is_some() && of_digest == of_segment, "{of_digest:?} {of_segment:?}");
        }
        of_segment
    }

    /// The parts of a message that contain something.
    fn truth(&self, message: usize, wanted: &Piece) -> Vec<MessagePart> {
        let has = |(_, piece): &&(MessagePart, Piece)| match (piece, wanted) {
            (Piece::Text(text), Piece::Text(wanted)) => text.contains(wanted.as_str()),
            (Piece::Bytes(bytes), Piece::Bytes(wanted)) => {
                memchr::memmem::find(bytes, wanted).is_some()
            }
            (piece, wanted) => piece == wanted,
        };
        self.pieces[message].iter().filter(has).map(|(part, _)| *part).collect()
    }
}

/// An excerpt of a piece of so many bytes, or all of a file.
fn excerpt(piece: &Piece, length: usize, random: &mut Random) -> Option<Piece> {
    match piece {
        Piece::Text(text) => {
            let start = random.below(text.len().checked_sub(length)? + 1);
            let (start, end) = (text.floor_char_boundary(start), start + length);
            Some(Piece::Text(text[start..text.floor_char_boundary(end)].to_owned()))
        }
        Piece::Bytes(bytes) => {
            let start = random.below(bytes.len().checked_sub(length)? + 1);
            Some(Piece::Bytes(bytes[start..start + length].to_vec()))
        }
        Piece::File(bytes) => Some(Piece::File(bytes.clone())),
    }
}

fn part_of(piece: &Piece) -> Part {
    match piece.clone() {
        Piece::Text(text) => Part::Text(text),
        Piece::Bytes(bytes) => Part::Bytes(bytes),
        Piece::File(bytes) => Part::File(bytes),
    }
}

fn kind(part: MessagePart, piece: &Piece) -> &'static str {
    match (part, piece) {
        (MessagePart::Subject, _) => "subject",
        (MessagePart::Name, _) => "name",
        (MessagePart::Text, _) => "text",
        (MessagePart::Html, _) => "HTML",
        (MessagePart::Attachment(_), Piece::Text(_)) => "text of an attachment",
        (MessagePart::Attachment(_), Piece::Bytes(_)) => "bytes of an attachment",
        (MessagePart::Attachment(_), Piece::File(_)) => "whole attachment",
    }
}

impl Answers {
    fn all(self) -> u32 {
        self.right + self.undecided + self.wrong
    }
}

#[test]
fn the_part_that_has_a_text_is_shown() {
    let (store, mut random) = (Store::new(), Random::new(8));
    let mut all: BTreeMap<(&str, usize), Answers> = BTreeMap::new();
    for length in [30, 100, 400, 4000, 40] {
        for message in 0..MESSAGES {
            let pieces = &store.pieces[message];
            let (part, piece) = &pieces[random.below(pieces.len())];
            let Some(excerpt) = excerpt(piece, length, &mut random) else { continue };
            let Some(found) = store.within(message, part_of(&excerpt), 1.0) else { continue };
            let truth = store.truth(message, &excerpt);
            assert!(truth.contains(part));
            let answers = all.entry((kind(*part, piece), length)).or_default();
            if found.iter().all(|part| truth.contains(&part)) && !found.is_empty() {
                answers.right += 1;
            } else if found.iter().any(|part| truth.contains(&part)) {
                answers.undecided += 1;
            } else {
                answers.wrong += 1;
            }
        }
    }
    // Of up to 40 bytes and of more: how many there are, and how many of them are wrong.
    let (mut short, mut long) = ([0; 2], [0; 2]);
    for ((kind, length), answers) in &all {
        println!("{kind}, {length} bytes: {answers:?}");
        // A display name is taken for a text.
        if *kind != "name" {
            let [sum, wrong] = if *length <= 40 { &mut short } else { &mut long };
            *sum += answers.all();
            *wrong += answers.wrong;
        }
    }
    // All the marks of a short text can be there by chance.
    for ([sum, wrong], most) in [(short, 0.04), (long, 0.005)] {
        assert!(sum > 700, "{sum}");
        assert!(f64::from(wrong) <= most * f64::from(sum), "{wrong} of {sum} are wrong");
    }
    let right = |kind: &str, length: usize| {
        let answers = all.get(&(kind, length)).copied().unwrap_or_default();
        assert!(answers.all() >= 8, "{kind}, {length}: {answers:?}");
        f64::from(answers.right) / f64::from(answers.all())
    };
    for (kind, length, bar) in [
        ("subject", 40, 0.6),
        ("text", 100, 0.5),
        ("text", 400, 0.5),
        ("text of an attachment", 400, 0.5),
        ("bytes of an attachment", 4000, 0.8),
        ("whole attachment", 4000, 0.8),
    ] {
        let share = right(kind, length);
        assert!(share >= bar, "{kind}, {length} bytes: {share}");
    }
}
