//! What holds for any settings, any text and any excerpt.

use quickcheck::{Arbitrary, Gen, quickcheck};

use super::*;
use crate::trace::{Body, Hit, Part, Piece, filter};

const KEY: DigestKey = [7; 32];

/// Settings anywhere within their ranges.
#[derive(Clone, Debug)]
struct Any(WinnowSettings);

impl Arbitrary for Any {
    fn arbitrary(g: &mut Gen) -> Self {
        let mut byte = |least: u8, most: u8| {
            (u16::from(least) + u16::arbitrary(g) % (u16::from(most - least) + 1)) as u8
        };
        let (gram, window, bytes_gram, bytes_window) =
            (byte(4, 32), byte(1, 64), byte(4, 32), byte(1, 255));
        let centibits = 25 + u16::arbitrary(g) % 3176;
        Self(WinnowSettings { gram, window, bytes_gram, bytes_window, centibits })
    }
}

/// A message: texts and attachments, longer than quickcheck makes them.
#[derive(Clone, Debug)]
struct Message {
    texts: Vec<String>,
    attachments: Vec<Vec<u8>>,
}

impl Arbitrary for Message {
    fn arbitrary(g: &mut Gen) -> Self {
        let word = |g: &mut Gen| g.choose(&["a ", "the ", "é", "message ", "x", "12 "]).copied();
        let text = |g: &mut Gen| (0..usize::arbitrary(g) % 400).filter_map(|_| word(g)).collect();
        let texts = (0..usize::arbitrary(g) % 4).map(|_| text(g)).collect();
        let attachments = Vec::<(Vec<u8>, u8)>::arbitrary(g);
        let attachments = attachments.into_iter().take(3);
        let attachments =
            attachments.map(|(bytes, times)| bytes.repeat(usize::from(times))).collect();
        Self { texts, attachments }
    }
}

impl Message {
    fn digest(&self, winnow: &Winnow) -> Vec<u8> {
        let mut digester = winnow.digester();
        self.texts.iter().for_each(|text| digester.add(Piece::Text(text)));
        for bytes in &self.attachments {
            digester.add(Piece::File(bytes));
            digester.add(Piece::Bytes(bytes));
        }
        digester.finish()
    }

    /// Something that the message carried, chosen by some numbers.
    fn part(&self, winnow: &Winnow, [kind, which, from, length]: [usize; 4]) -> Option<Part> {
        let within = |length_of: usize, least: usize| {
            let from = from % (length_of.checked_sub(least)? + 1);
            Some((from, from + least + length % (length_of - from - least + 1)))
        };
        let bytes = || self.attachments.get(which % self.attachments.len().max(1));
        Some(match kind % 3 {
            0 => {
                let text = self.texts.get(which % self.texts.len().max(1))?;
                let (mut from, mut end) = within(text.len(), winnow.text.shortest())?;
                while !text.is_char_boundary(from) {
                    from -= 1;
                }
                while !text.is_char_boundary(end) {
                    end += 1;
                }
                Part::Text(text[from..end].to_owned())
            }
            1 => {
                let (from, end) = within(bytes()?.len(), winnow.bytes.shortest())?;
                Part::Bytes(bytes()?[from..end].to_vec())
            }
            _ => Part::File(bytes()?.clone()),
        })
    }
}

fn hits(search: &mut dyn Search, body: &[u8], messages: u32) -> Vec<Hit> {
    let mut hits = Vec::new();
    search.sealed(&Body::plain(body), messages, &mut |hit| hits.push(hit)).unwrap();
    hits
}

quickcheck! {
    fn what_was_carried_is_found(settings: Any, messages: Vec<Message>, parts: Vec<[usize; 4]>, which: usize, least: u8) -> bool {
        let winnow = Winnow::new(settings.0, &KEY);
        let Some(message) = messages.get(which % messages.len().max(1)) else { return true };
        let parts: Vec<Part> = parts.iter().filter_map(|part| message.part(&winnow, *part)).collect();
        if parts.is_empty() {
            return true;
        }
        let digests: Vec<Vec<u8>> = messages.iter().map(|message| message.digest(&winnow)).collect();
        let digests: Vec<&[u8]> = digests.iter().map(Vec::as_slice).collect();
        let question = Question { parts, least: (f64::from(least) + 1.0) / 256.0 };
        let mut search = winnow.search(&question).unwrap();
        let number = (which % messages.len()) as u32;
        let mut found = false;
        search.digests(&digests, &mut |hit| found |= hit.message == number && hit.present == hit.of);
        let Sealed { order, body } = winnow.seal(&digests);
        let mut bodies = vec![body];
        while let Some(folded) = bodies.last().and_then(|body| winnow.fold(body)) {
            bodies.push(folded);
        }
        found && bodies.iter().all(|body| {
            winnow.check(body, order.len() as u32).unwrap();
            hits(&mut *search, body, order.len() as u32).iter().any(|hit| {
                order[hit.message as usize] == number && hit.present == hit.of
            })
        })
    }
}

/// What is wrong, of two ways to ask the same.
fn differences(of_digests: &[Hit], of_body: &[Hit], order: &[u32]) -> Vec<Hit> {
    let mut of_body: Vec<Hit> =
        of_body.iter().map(|hit| Hit { message: order[hit.message as usize], ..*hit }).collect();
    of_body.sort_by_key(|hit| hit.message);
    let same = |(a, b): &(&Hit, &Hit)| {
        (a.message, a.present, a.of) == (b.message, b.present, b.of)
            && (a.fill - b.fill).abs() < 0.003
    };
    if of_digests.len() == of_body.len() && of_digests.iter().zip(&of_body).all(|pair| same(&pair))
    {
        return Vec::new();
    }
    of_digests.iter().chain(&of_body).copied().collect()
}

quickcheck! {
    fn a_sealed_body_answers_as_digests_do(settings: Any, messages: Vec<Message>, text: Message, least: u8, key: u8) -> bool {
        let winnow = Winnow::new(settings.0, &KEY);
        let mut parts: Vec<Part> = text.texts.into_iter().map(Part::Text).collect();
        parts.retain(|part| matches!(part, Part::Text(text) if text.len() >= winnow.shortest()));
        parts.extend(text.attachments.into_iter().take(1).map(Part::File));
        let least = if least < 128 { 1.0 } else { f64::from(least) / 256.0 };
        let question = Question { parts, least };
        let digests: Vec<Vec<u8>> = messages.iter().map(|message| message.digest(&winnow)).collect();
        let digests: Vec<&[u8]> = digests.iter().map(Vec::as_slice).collect();
        let Sealed { order, body } = winnow.seal(&digests);
        let mut sorted = order.clone();
        sorted.sort_unstable();
        assert!(sorted.into_iter().eq(0..digests.len() as u32));
        // What is known of commonness decides on graded hits: each asks anew.
        let mut of_digests = Vec::new();
        winnow.search(&question).unwrap().digests(&digests, &mut |hit| of_digests.push(hit));
        let strict = |hits: &mut Vec<Hit>| hits.retain(|hit| hit.present == hit.of);
        let mut of_body = hits(&mut *winnow.search(&question).unwrap(), &body, order.len() as u32);
        strict(&mut of_digests);
        strict(&mut of_body);
        // Read through a cipher, it is the same.
        let enciphered: Vec<u8> = (0_u64..).zip(&body).map(|(at, byte)| byte ^ key ^ at as u8).collect();
        let decipher = |offset: u64, bytes: &mut [u8]| {
            (offset..).zip(bytes).for_each(|(at, byte)| *byte ^= key ^ at as u8);
        };
        let mut read = Vec::new();
        let enciphered = Body::enciphered(&enciphered, &decipher);
        winnow.search(&question).unwrap().sealed(&enciphered, order.len() as u32, &mut |hit| read.push(hit)).unwrap();
        strict(&mut read);
        read == of_body && differences(&of_digests, &of_body, &order).is_empty()
    }

    fn damage_is_noticed_or_does_no_harm(settings: Any, messages: Vec<Message>, changes: Vec<(u16, u8)>, cut: u8, count: u8) -> bool {
        let winnow = Winnow::new(settings.0, &KEY);
        let digests: Vec<Vec<u8>> = messages.iter().map(|message| message.digest(&winnow)).collect();
        let mut damaged = digests.clone();
        for (at, byte) in &changes {
            if let Some(digest) = damaged.get_mut(usize::from(*at) % digests.len().max(1)) {
                let at = usize::from(at >> 4) % digest.len().max(1);
                digest.truncate(digest.len() - usize::from(cut) % digest.len().max(1));
                if let Some(place) = digest.get_mut(at) {
                    *place = *byte;
                }
            }
        }
        let damaged: Vec<&[u8]> = damaged.iter().map(Vec::as_slice).collect();
        let question = Question { parts: vec![Part::File(vec![1, 2, 3])], least: f64::from(cut) / 255.0 };
        let mut search = winnow.search(&question).unwrap();
        search.digests(&damaged, &mut |_| {});
        let Sealed { order, mut body } = winnow.seal(&damaged);
        winnow.check(&body, order.len() as u32).unwrap();
        for (at, byte) in changes {
            // Most of them where the table is.
            let at = if at < 1 << 12 { usize::from(at) % 40 } else { usize::from(at) } % body.len();
            body[at] = byte;
        }
        body.truncate(body.len() - usize::from(cut / 16) % body.len());
        let messages = if count < 200 { order.len() as u32 } else { u32::from(count) };
        let sound = winnow.check(&body, messages);
        let asked = search.sealed(&Body::plain(&body), messages, &mut |_| {});
        assert!(sound.is_err() || asked.is_ok());
        winnow.fold(&body).is_none_or(|folded| folded.len() < body.len() && winnow.check(&folded, messages).is_ok() == asked.is_ok())
    }

    fn any_bytes_are_no_harm(body: Vec<u8>, messages: u8, digests: Vec<Vec<u8>>) -> bool {
        let winnow = Winnow::new(WinnowSettings::default(), &KEY);
        let mut search = winnow.search(&Question { parts: vec![Part::File(vec![])], least: 1.0 }).unwrap();
        let digests: Vec<&[u8]> = digests.iter().map(Vec::as_slice).collect();
        search.digests(&digests, &mut |_| {});
        let _ = winnow.check(&winnow.seal(&digests).body, digests.len() as u32);
        let _ = search.sealed(&Body::plain(&body), u32::from(messages), &mut |_| {});
        let _ = winnow.fold(&body);
        winnow.check(&body, u32::from(messages)).is_err() || body.len() < 3
    }
}

#[test]
fn what_is_too_short_is_refused() {
    let winnow = Winnow::new(WinnowSettings::default(), &KEY);
    let asked = |parts| winnow.search(&Question { parts, least: 1.0 }).err();
    let text = |length| Part::Text("x".repeat(length));
    assert_eq!(winnow.shortest(), 15);
    assert_eq!(asked(vec![text(15), text(14)]), Some(TooShort { part: 1, bytes: 14, least: 15 }));
    assert_eq!(asked(vec![Part::File(vec![]), text(15), Part::Bytes(vec![0; 270])]), None);
    let bytes = Some(TooShort { part: 0, bytes: 269, least: 270 });
    assert_eq!(asked(vec![Part::Bytes(vec![0; 269])]), bytes);
}

#[test]
fn each_sort_of_piece_is_found_as_such_only() {
    let winnow = Winnow::new(WinnowSettings::default(), &KEY);
    let text: String =
        (0..40).map(|n| format!("line {n} is the same, whatever it is taken for; ")).collect();
    let text = text.as_str();
    let digest = |piece| {
        let mut digester = winnow.digester();
        digester.add(piece);
        digester.finish()
    };
    let digests = [Piece::Text(text), Piece::Bytes(text.as_bytes()), Piece::File(text.as_bytes())];
    let digests = digests.map(digest);
    let digests: Vec<&[u8]> = digests.iter().map(Vec::as_slice).collect();
    let found = |part| {
        let mut found = Vec::new();
        let question = Question { parts: vec![part], least: 1.0 };
        winnow.search(&question).unwrap().digests(&digests, &mut |hit| found.push(hit.message));
        found
    };
    assert_eq!(found(Part::Text(text[20..120].to_owned())), [0]);
    assert_eq!(found(Part::Bytes(text.as_bytes()[20..1500].to_vec())), [1]);
    assert_eq!(found(Part::File(text.as_bytes().to_vec())), [2]);
    assert!(found(Part::File(text.as_bytes()[1..].to_vec())).is_empty());
}

/// Numbers that look random.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((u128::from(self.0 ^ self.0 >> 31) * end as u128) >> 64) as usize
    }

    /// Text of so many words, of which some are much more frequent than others;
    /// here and there a whole phrase.
    fn text(&mut self, words: usize) -> String {
        let mut text = String::new();
        for _ in 0..words {
            // The n-th word as often as 1/n.
            let number = (2000_f64.powf(self.below(1 << 20) as f64 / f64::from(1 << 20))) as usize;
            if self.below(60) == 0 {
                text.push_str("please do not hesitate to call me should there be anything else ");
            }
            let mut letters = Random(number as u64 * 7919);
            for _ in 0..2 + number.ilog2() as usize / 2 + letters.below(4) {
                text.push(char::from(b'a' + letters.below(26) as u8));
            }
            text.push(' ');
        }
        text
    }
}

/// Messages, and excerpts that are in none of them.
fn mail(
    random: &mut Random,
    messages: usize,
    excerpts: usize,
    bytes: usize,
) -> (Vec<String>, Vec<String>) {
    let texts: Vec<String> = (0..messages)
        .map(|_| {
            let words = 40 + random.below(300) * random.below(8);
            random.text(words)
        })
        .collect();
    let excerpts = (0..excerpts).map(|_| {
        let text = random.text(bytes);
        text[text.len() / 3..][..bytes].to_owned()
    });
    let absent =
        excerpts.filter(|excerpt| !texts.iter().any(|text| text.contains(excerpt.as_str())));
    let absent = absent.collect();
    (texts, absent)
}

#[test]
fn chances_are_what_they_are_said_to_be() {
    let (texts, excerpts) = mail(&mut Random(1), 1500, 400, 60);
    let winnow = Winnow::new(WinnowSettings::default(), &KEY);
    let digests: Vec<Vec<u8>> = texts
        .iter()
        .map(|text| {
            let mut digester = winnow.digester();
            digester.add(Piece::Text(text));
            digester.finish()
        })
        .collect();
    let digests: Vec<&[u8]> = digests.iter().map(Vec::as_slice).collect();
    let Sealed { order, body } = winnow.seal(&digests);
    let mut body = Some(body);
    let mut rates = Vec::new();
    for folds in 0..3 {
        let Some(folded) = body.take() else { break };
        let (mut found, mut expected, mut pairs) = (0_u32, 0.0, 0_u32);
        for excerpt in &excerpts {
            let question = Question { parts: vec![Part::Text(excerpt.clone())], least: 1.0 };
            let mut search = winnow.search(&question).unwrap();
            let hits = hits(&mut *search, &folded, order.len() as u32);
            found += hits.len() as u32;
            pairs += order.len() as u32;
            let of = hits.iter().map(|hit| hit.of).max().unwrap_or(10);
            // What each message would be told to be worth, were it a hit.
            for (_, filter) in digests.iter().filter_map(|digest| digest::parse(digest)) {
                let free = (1.0 - filter::fill(filter)).powi(1 << folds);
                expected += search.chance(&Hit { message: 0, present: of, of, fill: 1.0 - free });
            }
        }
        rates.push(f64::from(found) / f64::from(pairs));
        let ratio = expected / f64::from(found);
        assert!(
            (0.5..4.0).contains(&ratio),
            "folded {folds} times: {found} found, {expected} expected"
        );
        body = winnow.fold(&folded);
    }
    // Three bits of four are set after folding, and fifteen of sixteen.
    assert!(rates[0] < 0.03 && rates[1] < 0.2 && rates[2] < 0.9, "{rates:?}");
    assert!(rates[0] * 5.0 < rates[1] && rates[1] * 2.0 < rates[2], "{rates:?}");
}

#[test]
fn edited_text_is_found_by_most_of_it() {
    let (texts, _) = mail(&mut Random(2), 800, 0, 0);
    let winnow = Winnow::new(WinnowSettings::default(), &KEY);
    let digests: Vec<Vec<u8>> = texts
        .iter()
        .map(|text| {
            let mut digester = winnow.digester();
            digester.add(Piece::Text(text));
            digester.finish()
        })
        .collect();
    let digests: Vec<&[u8]> = digests.iter().map(Vec::as_slice).collect();
    let Sealed { order, body } = winnow.seal(&digests);
    let (mut asked, mut found, mut wrong) = (0, 0, 0);
    for (number, text) in texts.iter().enumerate().filter(|(_, text)| text.len() > 900) {
        // Three letters of 800 bytes are others: a fifth of the grams is lost at
        // most.
        let mut edited = text[text.len() - 850..][..800].to_owned();
        for at in [100, 400, 650] {
            edited.replace_range(at..at + 1, "?");
        }
        let question = Question { parts: vec![Part::Text(edited)], least: 0.8 };
        let mut search = winnow.search(&question).unwrap();
        asked += 1;
        for hit in hits(&mut *search, &body, order.len() as u32) {
            if order[hit.message as usize] as usize == number {
                found += 1;
                let share = f64::from(hit.present) / f64::from(hit.of);
                let chance = search.chance(&hit);
                assert!((0.8..=1.0).contains(&share) && chance < 1e-8, "{hit:?}: {chance}");
            } else {
                wrong += 1;
            }
        }
    }
    assert!(asked > 300 && found == asked, "{found} of {asked}");
    assert!(wrong < 5, "{wrong} of {}", asked * texts.len());
}

#[test]
fn text_that_repeats_itself_has_no_large_digest() {
    let winnow = Winnow::new(WinnowSettings::default(), &KEY);
    // What U+FDFA becomes.
    let text = "صلى الله عليه وسلم".repeat(300_000);
    let mut digester = winnow.digester();
    digester.add(Piece::Text(&text));
    let digest = digester.finish();
    assert!(digest.len() < 8192, "{}", digest.len());
    let part = text.chars().skip(7).take(40).collect();
    let question = Question { parts: vec![Part::Text(part)], least: 1.0 };
    let Sealed { body, .. } = winnow.seal(&[&digest]);
    assert_eq!(hits(&mut *winnow.search(&question).unwrap(), &body, 1).len(), 1);
}
