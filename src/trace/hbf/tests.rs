//! Properties for any settings, text and excerpt, and the figures of the paper.

use kit::quickcheck;
use quickcheck::{Arbitrary, Gen};

use super::*;
use crate::trace::damage_tests::loses_only_what_it_says;
use crate::trace::settings::Counted;
use crate::trace::{Body, Fragment, Hit, Part, file_hash, filter};
use crate::trace::{DigestKey, HbfSettings};

const KEY: DigestKey = [7; 32];

/// Settings with which messages are in one filter, and in several.
#[derive(Clone, Copy, Debug)]
struct Any(HbfSettings);

impl Arbitrary for Any {
    fn arbitrary(g: &mut Gen) -> Self {
        let bits = *g.choose(&[64, 128, 1024, 8192, 65_536]).unwrap();
        let capacity = bits / g.choose(&[2, 15, 64]).unwrap();
        let block = *g.choose(&[4, 5, 8, 32, 33]).unwrap();
        let probes = 1 + u8::arbitrary(g) % 16;
        let counted = *g.choose(&[Counted::Elements, Counted::Blocks]).unwrap();
        Self(HbfSettings { block, bits, probes, capacity, counted })
    }
}

/// A message: texts and attachments.
#[derive(Clone, Debug)]
struct Message(Vec<(bool, Vec<u8>)>);

impl Arbitrary for Message {
    fn arbitrary(g: &mut Gen) -> Self {
        let piece = |g: &mut Gen| {
            let seed = u64::arbitrary(g) | 1;
            let bytes = (0..u64::arbitrary(g) % 700)
                .map(|n| b'a' + (seed.wrapping_mul(n * n) >> 33) as u8 % 20);
            (bool::arbitrary(g), bytes.collect())
        };
        Self((0..usize::arbitrary(g) % 4).map(|_| piece(g)).collect())
    }
}

impl Message {
    fn digest(&self, hbf: &Hbf) -> Vec<u8> {
        let mut digester = hbf.digester();
        for (text, bytes) in &self.0 {
            if *text {
                digester.add(Fragment::Text(std::str::from_utf8(bytes).unwrap()));
            } else {
                digester.add(Fragment::File(bytes));
                digester.add(Fragment::Bytes(bytes));
            }
        }
        digester.finish()
    }

    /// Non-overlapping excerpts of fragments in their order, each at min one
    /// whole block; the end of the message belongs to no block.
    fn parts(&self, hbf: &Hbf, choices: &[(u16, u8, bool)]) -> Vec<Part> {
        let block = usize::from(hbf.settings.block);
        let whole: usize =
            self.0.iter().map(|(_, bytes)| bytes.len()).sum::<usize>() / block * block;
        let mut choices = choices.iter();
        let (mut parts, mut before) = (Vec::new(), 0);
        for (text, bytes) in &self.0 {
            let end = bytes.len().min(whole.saturating_sub(before));
            let mut from = 0;
            for &(skipped, length, file) in choices.by_ref() {
                from += usize::from(skipped) % 80;
                let to = from + hbf.shortest() + usize::from(length);
                if file && !text {
                    // The hash alone is as good.
                    parts.push(match length % 2 {
                        0 => Part::File(bytes.clone()),
                        _ => Part::FileHash(file_hash(bytes)),
                    });
                } else if to <= end {
                    let excerpt = bytes[from..to].to_vec();
                    parts.push(if *text {
                        Part::Text(String::from_utf8(excerpt).unwrap())
                    } else {
                        Part::Bytes(excerpt)
                    });
                } else {
                    break;
                }
                from = to;
            }
            before += bytes.len();
        }
        parts
    }
}

fn digests(hbf: &Hbf, messages: &[Message]) -> Vec<Vec<u8>> {
    messages.iter().map(|message| message.digest(hbf)).collect()
}

quickcheck! {
    fn contained_parts_are_found(settings: Any, messages: Vec<Message>, which: usize, choices: Vec<(u16, u8, bool)>, min: u8) -> bool {
        let hbf = Hbf::new(settings.0, &KEY);
        let Some(message) = messages.get(which % messages.len().max(1)) else { return true };
        let parts = message.parts(&hbf, &choices);
        if parts.is_empty() {
            return true;
        }
        let number = (which % messages.len()) as u32;
        let digests = digests(&hbf, &messages);
        let digests: Vec<&[u8]> = digests.iter().map(Vec::as_slice).collect();
        let question = ContentQuery { parts, min_share: (f64::from(min) + 1.0) / 256.0 };
        let mut search = hbf.search(&question).unwrap();
        let mut found = false;
        search.digests(&digests, &mut |hit| found |= hit.message == number);
        let Sealed { order, body } = hbf.seal(&digests);
        assert!(order.into_iter().eq(0..messages.len() as u32));
        let mut bodies = vec![body];
        while let Some(folded) = bodies.last().and_then(|body| hbf.fold(body)) {
            bodies.push(folded);
        }
        found && bodies.iter().all(|body| {
            hbf.check(body, messages.len() as u32).unwrap();
            let mut hits: Vec<Hit> = Vec::new();
            search.sealed(&Body::plain(body), messages.len() as u32, &mut |hit| hits.push(hit)).unwrap();
            assert!(hits.iter().all(|hit| hit.present <= hit.of && (0.0..=1.0).contains(&search.chance(hit))));
            hits.iter().any(|hit| hit.message == number)
        })
    }

    fn filters_have_the_expected_fill(settings: Any, messages: Vec<Message>) -> bool {
        let hbf = Hbf::new(settings.0, &KEY);
        let digests = digests(&hbf, &messages);
        let parsed: Vec<_> = digests.iter().map(|digest| digest::parse(digest).unwrap()).collect();
        let counted: usize = parsed.iter().map(|(blocks, files)| files.len() + match settings.0.counted {
            Counted::Elements => levels::groups(blocks.len() as u64) as usize,
            Counted::Blocks => blocks.len(),
        }).sum();
        let digests: Vec<&[u8]> = digests.iter().map(Vec::as_slice).collect();
        let filters = counted.div_ceil(settings.0.capacity as usize);
        hbf.seal(&digests).body.len() == 5 + 6 * messages.len() + filters * settings.0.bits as usize / 8
    }

    fn damage_is_detected_or_harmless(settings: Any, messages: Vec<Message>, changes: Vec<(u16, u8)>, cut: u8, count: u8) -> bool {
        let hbf = Hbf::new(settings.0, &KEY);
        let mut damaged = digests(&hbf, &messages);
        for (at, byte) in &changes {
            let which = usize::from(*at) % damaged.len().max(1);
            if let Some(digest) = damaged.get_mut(which) {
                digest.truncate(digest.len() - usize::from(cut) % digest.len());
                let at = usize::from(at >> 8) % digest.len();
                digest[at] = *byte;
            }
        }
        let damaged: Vec<&[u8]> = damaged.iter().map(Vec::as_slice).collect();
        let question = ContentQuery { parts: vec![Part::Text("x".repeat(70)), Part::File(vec![])], min_share: f64::from(cut) / 255.0 };
        let mut search = hbf.search(&question).unwrap();
        search.digests(&damaged, &mut |_| {});
        let Sealed { order, mut body } = hbf.seal(&damaged);
        hbf.check(&body, order.len() as u32).unwrap();
        for (at, byte) in changes {
            let at = if at < 1 << 12 { usize::from(at) % 40 } else { usize::from(at) } % body.len();
            body[at] = byte;
        }
        body.truncate(body.len() - usize::from(cut / 16) % body.len());
        let messages = if count < 200 { order.len() as u32 } else { u32::from(count) };
        let sound = hbf.check(&body, messages);
        let asked = search.sealed(&Body::plain(&body), messages, &mut |_| {});
        hbf.fold(&body).is_none_or(|folded| folded.len() <= body.len()) && sound.is_err() == asked.is_err()
    }

    fn damaged_parts_lose_only_what_needs_them(settings: Any, messages: Vec<Message>, which: usize, choices: Vec<(u16, u8, bool)>, from: u16, length: u8) -> bool {
        let hbf = Hbf::new(settings.0, &KEY);
        let Some(message) = messages.get(which % messages.len().max(1)) else { return true };
        let parts = message.parts(&hbf, &choices);
        if parts.is_empty() {
            return true;
        }
        let digests = digests(&hbf, &messages);
        loses_only_what_it_says(&hbf, &digests, parts, from, length)
    }

    fn random_bytes_are_harmless(body: Vec<u8>, messages: u8, digests: Vec<Vec<u8>>) -> bool {
        let hbf = Hbf::new(HbfSettings::default(), &KEY);
        let mut search = hbf.search(&ContentQuery { parts: vec![Part::File(vec![])], min_share: 1.0 }).unwrap();
        let digests: Vec<&[u8]> = digests.iter().map(Vec::as_slice).collect();
        search.digests(&digests, &mut |_| {});
        let _ = search.sealed(&Body::plain(&body), u32::from(messages), &mut |_| {});
        let _ = hbf.fold(&body);
        hbf.check(&hbf.seal(&digests).body, digests.len() as u32).is_ok()
    }
}

#[test]
fn parts_must_be_in_order() {
    let hbf = Hbf::new(HbfSettings { block: 4, ..Default::default() }, &KEY);
    let (one, two) = ("the first part of it", "and another one, later");
    let digest = |text: String| {
        let mut digester = hbf.digester();
        digester.add(Fragment::Text(&text));
        digester.finish()
    };
    let digests = [
        digest(format!("{one} with something between {two} and an end")),
        digest(format!("{two} with something between {one} and an end")),
        digest(format!("{one}{two} and an end")),
        digest(format!("{one} and an end")),
    ];
    let digests: Vec<&[u8]> = digests.iter().map(Vec::as_slice).collect();
    let body = hbf.seal(&digests).body;
    let found = |parts: &[&str]| {
        let parts = parts.iter().map(|part| Part::Text((*part).to_owned())).collect();
        let mut search = hbf.search(&ContentQuery { parts, min_share: 1.0 }).unwrap();
        let (mut of_digests, mut of_body) = (Vec::new(), Vec::new());
        search.digests(&digests, &mut |hit| of_digests.push(hit.message));
        search.sealed(&Body::plain(&body), 4, &mut |hit| of_body.push(hit.message)).unwrap();
        // They are all in one filter.
        assert!(of_digests.is_empty() || of_body == [0, 1, 2, 3]);
        (of_digests, of_body.len())
    };
    assert_eq!(found(&[one]), (vec![0, 1, 2, 3], 4));
    assert_eq!(found(&[one, two]), (vec![0, 2], 4));
    assert_eq!(found(&[two, one]), (vec![1], 4));
    // Two messages together contain this, which a filter cannot distinguish.
    assert_eq!(found(&[one, one]), (vec![], 4));
    assert_eq!(found(&[one, "what was in none of them"]), (vec![], 0));
}

#[test]
fn short_parts_are_refused() {
    let hbf = Hbf::new(HbfSettings::default(), &KEY);
    let parts = vec![Part::Text("x".repeat(63)), Part::Bytes(vec![0; 62])];
    assert_eq!(hbf.shortest(), 63);
    let short = hbf.search(&ContentQuery { parts, min_share: 1.0 }).err();
    assert_eq!(short, Some(TooShort { part: 1, bytes: 62, needed: 63 }));
}

/// The paper's table without its second column: m/n, and the ratios for k from
/// 1 on.
const RATIOS: &[&str] = &[
    "2 0.393 0.400",
    "3 0.283 0.237 0.253",
    "4 0.221 0.155 0.147 0.160",
    "5 0.181 0.109 0.092 0.092 0.101",
    "6 0.154 0.0804 0.0609 0.0561 0.0578 0.0638",
    "7 0.133 0.0618 0.0423 0.0359 0.0347 0.0364",
    "8 0.118 0.0489 0.0306 0.024 0.0217 0.0216 0.0229",
    "9 0.105 0.0397 0.0228 0.0166 0.0141 0.0133 0.0135 0.0145",
    "10 0.0952 0.0329 0.0174 0.0118 0.00943 0.00844 0.00819 0.00846",
    "11 0.0869 0.0276 0.0136 0.00864 0.0065 0.00552 0.00513 0.00509",
    "12 0.08 0.0236 0.0108 0.00646 0.00459 0.00371 0.00329 0.00314",
    "13 0.074 0.0203 0.00875 0.00492 0.00332 0.00255 0.00217 0.00199",
    "14 0.0689 0.0177 0.00718 0.00381 0.00244 0.00179 0.00146 0.00129",
    "15 0.0645 0.0156 0.00596 0.003 0.00183 0.00128 0.001 0.000852",
    "16 0.0606 0.0138 0.005 0.00239 0.00139 0.000935 0.000702 0.000574",
    "17 0.0571 0.0123 0.00423 0.00193 0.00107 0.000692 0.000499 0.000394",
];

/// The paper's formula.
fn false_positive(m_of_n: f64, k: i32) -> f64 {
    (1.0 - (-f64::from(k) / m_of_n).exp()).powi(k)
}

#[test]
fn the_papers_table_of_false_positives() {
    assert_eq!(RATIOS.len(), 16);
    for row in RATIOS {
        let mut cells = row.split(' ');
        let m_of_n: f64 = cells.next().unwrap().parse().unwrap();
        for (k, cell) in (1..).zip(cells) {
            let (ratio, computed): (f64, f64) = (cell.parse().unwrap(), false_positive(m_of_n, k));
            let digit = 0.1_f64.powi(cell.len() as i32 - 2);
            // All digits of the table.
            assert!((computed - ratio).abs() < 0.5001 * digit, "{m_of_n} {k}: {computed}, {cell}");
        }
    }
    let settings = HbfSettings::default();
    let chosen = f64::from(settings.bits) / f64::from(settings.capacity);
    assert_eq!((settings.bits / 15, settings.capacity), (4369, 4369));
    assert_eq!((false_positive(chosen, 4) * 1000.0).round(), 3.0);
}

#[test]
fn a_saturated_filter_has_the_fill_of_the_formula() {
    let hbf = Hbf::new(HbfSettings::default(), &KEY);
    for (counted, elements) in [(Counted::Elements, 4369.0), (Counted::Blocks, 2.0 * 4369.0)] {
        let hbf = Hbf { settings: HbfSettings { counted, ..hbf.settings }, ..hbf.clone() };
        let message = Message(
            (0..400_u64)
                .map(|seed| {
                    let bytes = (0..700).map(|n: u64| {
                        b'a' + ((seed * 1000 + n).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 45) as u8
                            % 20
                    });
                    (true, bytes.collect())
                })
                .collect(),
        );
        let body = hbf.seal(&[&message.digest(&hbf)]).body;
        let fill = f64::from(filter::fill(&body[11..11 + 8192]));
        let expected = 1.0 - (-4.0 * elements / 65_536_f64).exp();
        assert!((fill - expected).abs() < 0.01, "{counted:?}: {fill}, not {expected}");
    }
}

#[test]
fn computed_chances_match_the_observed_rates() {
    let mut random = kit::Random::new(1);
    let mut text = |length: usize| -> String { (0..length).map(|_| random.letter()).collect() };
    let texts: Vec<String> = (0..600).map(|n| text(500 + n * 20)).collect();
    for (length, capacity) in [(70, 4_369), (100, 4_369), (130, 20_000)] {
        let hbf = Hbf::new(HbfSettings { capacity, ..Default::default() }, &KEY);
        let digest = |text: &String| {
            let mut digester = hbf.digester();
            digester.add(Fragment::Text(text));
            digester.finish()
        };
        let digests: Vec<Vec<u8>> = texts.iter().map(digest).collect();
        let digests: Vec<&[u8]> = digests.iter().map(Vec::as_slice).collect();
        let body = hbf.seal(&digests).body;
        let fill = filter::fill(&body[5 + 6 * 600..]);
        let (mut found, mut expected) = (0.0, 0.0);
        for _ in 0..60 {
            let question = ContentQuery { parts: vec![Part::Text(text(length))], min_share: 1.0 };
            let mut search = hbf.search(&question).unwrap();
            search.sealed(&Body::plain(&body), 600, &mut |_| found += 1.0).unwrap();
            expected += 600.0
                * search.chance(&Hit {
                    message: 0,
                    present: 1,
                    of: 1,
                    fill,
                    passage: None,
                    within: None,
                });
        }
        let ratio: f64 = expected / found;
        assert!((0.4..2.5).contains(&ratio), "{length}: {found} found, {expected} expected");
    }
}
