//! Properties for any settings, text and excerpt.

use kit::quickcheck;
use quickcheck::{Arbitrary, Gen};

use super::*;
use crate::trace::damage_tests::loses_only_what_it_says;
use crate::trace::{Body, Fragment, Hit, Part, file_hash};
use crate::trace::{DigestKey, GramOrder, WinnowSettings};

pub(super) const KEY: DigestKey = [7; 32];

/// Settings anywhere within their ranges.
#[derive(Clone, Debug)]
struct Any(WinnowSettings);

impl Arbitrary for Any {
    fn arbitrary(g: &mut Gen) -> Self {
        let mut byte = |min: u8, most: u8| {
            (u16::from(min) + u16::arbitrary(g) % (u16::from(most - min) + 1)) as u8
        };
        let (gram, window, bytes_gram, bytes_window) =
            (byte(4, 32), byte(1, 64), byte(4, 32), byte(1, 255));
        let centibits = 25 + u16::arbitrary(g) % 3176;
        let order = *g.choose(&[GramOrder::Random, GramOrder::OpenClosed]).unwrap();
        Self(WinnowSettings { gram, window, bytes_gram, bytes_window, centibits, order })
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
        let text = |g: &mut Gen| (0..usize::arbitrary(g) % 200).filter_map(|_| word(g)).collect();
        let texts = (0..usize::arbitrary(g) % 3).map(|_| text(g)).collect();
        let attachments = Vec::<(Vec<u8>, u8)>::arbitrary(g);
        let attachments = attachments.into_iter().take(3);
        let attachments =
            attachments.map(|(bytes, times)| bytes.repeat(usize::from(times % 32))).collect();
        Self { texts, attachments }
    }
}

impl Message {
    fn digest(&self, winnow: &Winnow) -> Vec<u8> {
        let mut digester = winnow.digester();
        self.texts.iter().for_each(|text| digester.add(Fragment::Text(text)));
        for bytes in &self.attachments {
            digester.add(Fragment::File(bytes));
            digester.add(Fragment::Bytes(bytes));
        }
        digester.finish()
    }

    /// A part of the message, chosen by some numbers.
    fn part(&self, winnow: &Winnow, [kind, which, from, length]: [usize; 4]) -> Option<Part> {
        let within = |length_of: usize, min: usize| {
            let from = from % (length_of.checked_sub(min)? + 1);
            Some((from, from + min + length % (length_of - from - min + 1)))
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

pub(super) fn hits(search: &mut dyn Search, body: &[u8], messages: u32) -> Vec<Hit> {
    let mut hits = Vec::new();
    search.sealed(&Body::plain(body), messages, &mut |hit| hits.push(hit)).unwrap();
    hits
}

quickcheck! {
    fn contained_parts_are_found(settings: Any, messages: Vec<Message>, parts: Vec<[usize; 4]>, which: usize, min: u8) -> bool {
        let winnow = Winnow::new(settings.0, &KEY);
        let Some(message) = messages.get(which % messages.len().max(1)) else { return true };
        let parts: Vec<Part> = parts.iter().filter_map(|part| message.part(&winnow, *part)).collect();
        if parts.is_empty() {
            return true;
        }
        let digests: Vec<Vec<u8>> = messages.iter().map(|message| message.digest(&winnow)).collect();
        let digests: Vec<&[u8]> = digests.iter().map(Vec::as_slice).collect();
        // In half of the cases, all of it is required.
        let question = ContentQuery { parts, min_share: ((f64::from(min) + 1.0) / 128.0).min(1.0) };
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

/// The differences between two ways to run the same search.
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
    fn a_sealed_body_has_the_same_hits_as_digests(settings: Any, messages: Vec<Message>, text: Message, min: u8, key: u8) -> bool {
        let winnow = Winnow::new(settings.0, &KEY);
        let mut parts: Vec<Part> = text.texts.into_iter().map(Part::Text).collect();
        parts.retain(|part| matches!(part, Part::Text(text) if text.len() >= winnow.shortest()));
        parts.extend(text.attachments.into_iter().take(1).map(Part::File));
        let min = if min < 128 { 1.0 } else { f64::from(min) / 256.0 };
        let question = ContentQuery { parts, min_share: min };
        let digests: Vec<Vec<u8>> = messages.iter().map(|message| message.digest(&winnow)).collect();
        let digests: Vec<&[u8]> = digests.iter().map(Vec::as_slice).collect();
        let Sealed { order, body } = winnow.seal(&digests);
        let mut sorted = order.clone();
        sorted.sort_unstable();
        assert!(sorted.into_iter().eq(0..digests.len() as u32));
        // The sampled frequencies affect graded hits, so each uses a new
        // search.
        let mut of_digests = Vec::new();
        winnow.search(&question).unwrap().digests(&digests, &mut |hit| of_digests.push(hit));
        let strict = |hits: &mut Vec<Hit>| hits.retain(|hit| hit.present == hit.of);
        let mut of_body = hits(&mut *winnow.search(&question).unwrap(), &body, order.len() as u32);
        strict(&mut of_digests);
        strict(&mut of_body);
        // The same through a cipher.
        let enciphered: Vec<u8> = (0_usize..).zip(&body).map(|(at, byte)| byte ^ key ^ at as u8).collect();
        let decipher = |offset: usize, bytes: &mut [u8]| {
            let part = (offset..).zip(&enciphered[offset..]);
            bytes.iter_mut().zip(part).for_each(|(to, (at, byte))| *to = byte ^ key ^ at as u8);
            Ok(())
        };
        let mut read = Vec::new();
        let enciphered = Body::stored(enciphered.len(), &decipher);
        winnow.search(&question).unwrap().sealed(&enciphered, order.len() as u32, &mut |hit| read.push(hit)).unwrap();
        strict(&mut read);
        read == of_body && differences(&of_digests, &of_body, &order).is_empty()
    }

    fn damage_is_detected_or_harmless(settings: Any, messages: Vec<Message>, changes: Vec<(u16, u8)>, cut: u8, count: u8) -> bool {
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
        let question = ContentQuery { parts: vec![Part::File(vec![1, 2, 3])], min_share: f64::from(cut) / 255.0 };
        let mut search = winnow.search(&question).unwrap();
        search.digests(&damaged, &mut |_| {});
        let Sealed { order, mut body } = winnow.seal(&damaged);
        winnow.check(&body, order.len() as u32).unwrap();
        for (at, byte) in changes {
            // Most changes are in the table.
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

    fn damaged_parts_lose_only_what_needs_them(settings: Any, messages: Vec<Message>, which: usize, part: [usize; 4], from: u16, length: u8) -> bool {
        let winnow = Winnow::new(settings.0, &KEY);
        let Some(message) = messages.get(which % messages.len().max(1)) else { return true };
        let parts: Vec<Part> = message.part(&winnow, part).into_iter().collect();
        if parts.is_empty() {
            return true;
        }
        let digests: Vec<Vec<u8>> = messages.iter().map(|message| message.digest(&winnow)).collect();
        loses_only_what_it_says(&winnow, &digests, parts, from, length)
    }

    fn random_bytes_are_harmless(body: Vec<u8>, messages: u8, digests: Vec<Vec<u8>>) -> bool {
        let winnow = Winnow::new(WinnowSettings::default(), &KEY);
        let mut search = winnow.search(&ContentQuery { parts: vec![Part::File(vec![])], min_share: 1.0 }).unwrap();
        let digests: Vec<&[u8]> = digests.iter().map(Vec::as_slice).collect();
        search.digests(&digests, &mut |_| {});
        let _ = winnow.check(&winnow.seal(&digests).body, digests.len() as u32);
        let _ = search.sealed(&Body::plain(&body), u32::from(messages), &mut |_| {});
        let _ = winnow.fold(&body);
        winnow.check(&body, u32::from(messages)).is_err() || body.len() < 3
    }
}

#[test]
fn short_parts_are_refused() {
    let winnow = Winnow::new(WinnowSettings::default(), &KEY);
    let asked = |parts| winnow.search(&ContentQuery { parts, min_share: 1.0 }).err();
    let text = |length| Part::Text("x".repeat(length));
    assert_eq!(winnow.shortest(), 15);
    assert_eq!(asked(vec![text(15), text(14)]), Some(TooShort { part: 1, bytes: 14, needed: 15 }));
    assert_eq!(asked(vec![Part::File(vec![]), text(15), Part::Bytes(vec![0; 270])]), None);
    let bytes = Some(TooShort { part: 0, bytes: 269, needed: 270 });
    assert_eq!(asked(vec![Part::Bytes(vec![0; 269])]), bytes);
}

#[test]
fn each_kind_of_fragment_matches_only_its_own_kind() {
    let winnow = Winnow::new(WinnowSettings::default(), &KEY);
    let text: String =
        (0..40).map(|n| format!("line {n} is the same, whatever it is taken for; ")).collect();
    let text = text.as_str();
    let digest = |piece| {
        let mut digester = winnow.digester();
        digester.add(piece);
        digester.finish()
    };
    let digests =
        [Fragment::Text(text), Fragment::Bytes(text.as_bytes()), Fragment::File(text.as_bytes())];
    let digests = digests.map(digest);
    let digests: Vec<&[u8]> = digests.iter().map(Vec::as_slice).collect();
    let found = |part| {
        let mut found = Vec::new();
        let question = ContentQuery { parts: vec![part], min_share: 1.0 };
        winnow.search(&question).unwrap().digests(&digests, &mut |hit| found.push(hit.message));
        found
    };
    assert_eq!(found(Part::Text(text[20..120].to_owned())), [0]);
    assert_eq!(found(Part::Bytes(text.as_bytes()[20..1500].to_vec())), [1]);
    assert_eq!(found(Part::File(text.as_bytes().to_vec())), [2]);
    assert_eq!(found(Part::FileHash(file_hash(text.as_bytes()))), [2]);
    assert!(found(Part::File(text.as_bytes()[1..].to_vec())).is_empty());
}

#[test]
fn repetitive_text_has_a_small_digest() {
    let winnow = Winnow::new(WinnowSettings::default(), &KEY);
    // The normal form of U+FDFA.
    let text = "صلى الله عليه وسلم".repeat(300_000);
    let mut digester = winnow.digester();
    digester.add(Fragment::Text(&text));
    let digest = digester.finish();
    assert!(digest.len() < 8192, "{}", digest.len());
    let part = text.chars().skip(7).take(40).collect();
    let question = ContentQuery { parts: vec![Part::Text(part)], min_share: 1.0 };
    let Sealed { body, .. } = winnow.seal(&[&digest]);
    assert_eq!(hits(&mut *winnow.search(&question).unwrap(), &body, 1).len(), 1);
}
