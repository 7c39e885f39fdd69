//! The rate of hits by chance, on text similar to mail.

use std::collections::BTreeSet;

use super::tests::{KEY, hits};
use super::*;
use crate::trace::WinnowSettings;
use crate::trace::{Fragment, Hit, Part, filter};

/// Pseudo-random numbers.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((u128::from(self.0 ^ self.0 >> 31) * end as u128) >> 64) as usize
    }

    /// Text of so many words, some of which are much more frequent than others,
    /// with occasional phrases.
    fn text(&mut self, words: usize) -> String {
        let mut text = String::new();
        for _ in 0..words {
            // The n-th word has a frequency of 1/n.
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

/// The digests of messages of one text each, and their sealed body.
fn sealed(winnow: &Winnow, texts: &[String]) -> (Vec<Vec<u8>>, Sealed) {
    let digest = |text: &String| {
        let mut digester = winnow.digester();
        digester.add(Fragment::Text(text));
        digester.finish()
    };
    let digests: Vec<Vec<u8>> = texts.iter().map(digest).collect();
    let sealed = winnow.seal(&digests.iter().map(Vec::as_slice).collect::<Vec<_>>());
    (digests, sealed)
}

/// Whether a text has more than half of the grams of 8 bytes of each excerpt: then it is not found
/// by chance.
fn related(text: &str, excerpts: &[String]) -> Vec<bool> {
    let grams: BTreeSet<&[u8]> = text.as_bytes().windows(8).collect();
    let is_related = |excerpt: &String| {
        let all = excerpt.as_bytes().windows(8);
        let count = all.len();
        all.filter(|gram| grams.contains(gram)).count() * 2 > count
    };
    excerpts.iter().map(is_related).collect()
}

#[test]
fn computed_chances_match_the_observed_rates() {
    let (texts, excerpts) = mail(&mut Random(1), 700, 250, 60);
    let winnow = Winnow::new(WinnowSettings::default(), &KEY);
    let (digests, Sealed { order, body }) = sealed(&winnow, &texts);
    let related: Vec<Vec<bool>> = texts.iter().map(|text| related(text, &excerpts)).collect();
    let mut body = Some(body);
    let mut rates = Vec::new();
    for folds in 0..3 {
        let Some(folded) = body.take() else { break };
        let (mut found, mut expected, mut pairs) = (0_u32, 0.0, 0_u32);
        for (number, excerpt) in excerpts.iter().enumerate() {
            let question =
                ContentQuery { parts: vec![Part::Text(excerpt.clone())], min_share: 1.0 };
            let mut search = winnow.search(&question).unwrap();
            let hits = hits(&mut *search, &folded, order.len() as u32);
            let is_unrelated = |message: u32| !related[order[message as usize] as usize][number];
            found += hits.iter().filter(|hit| is_unrelated(hit.message)).count() as u32;
            pairs += order.len() as u32;
            let of = hits.iter().map(|hit| hit.of).max().unwrap_or(10);
            // The chance that each message would be assigned as a hit.
            let unrelated = digests.iter().zip(&related).filter(|(_, related)| !related[number]);
            for digest in unrelated.filter_map(|(digest, _)| digest::parse(digest)) {
                let free = (1.0 - filter::fill(digest.filter)).powi(1 << folds);
                expected += search.chance(&Hit {
                    message: 0,
                    present: of,
                    of,
                    fill: 1.0 - free,
                    passage: None,
                    within: None,
                });
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
    // Four of five bits are set after folding, and then nineteen of twenty.
    assert!(rates[0] < 0.06 && rates[1] < 0.27 && rates[2] < 0.85, "{rates:?}");
    assert!(rates[0] * 4.0 < rates[1] && rates[1] * 2.0 < rates[2], "{rates:?}");
}

#[test]
fn edited_text_is_found_by_a_share_of_its_elements() {
    let (texts, _) = mail(&mut Random(2), 400, 0, 0);
    let winnow = Winnow::new(WinnowSettings::default(), &KEY);
    let (_, Sealed { order, body }) = sealed(&winnow, &texts);
    let (mut asked, mut found, mut wrong) = (0, 0, 0);
    for (number, text) in texts.iter().enumerate().filter(|(_, text)| text.len() > 900) {
        // Three letters of 800 bytes are changed: at most a fifth of the grams
        // is lost.
        let mut edited = text[text.len() - 850..][..800].to_owned();
        for at in [100, 400, 650] {
            edited.replace_range(at..at + 1, "?");
        }
        let question = ContentQuery { parts: vec![Part::Text(edited)], min_share: 0.8 };
        let mut search = winnow.search(&question).unwrap();
        asked += 1;
        for hit in hits(&mut *search, &body, order.len() as u32) {
            if order[hit.message as usize] as usize == number {
                found += 1;
                let share = f64::from(hit.present) / f64::from(hit.of);
                let chance = search.chance(&hit);
                assert!((0.8..=1.0).contains(&share) && chance < 1e-7, "{hit:?}: {chance}");
            } else {
                wrong += 1;
            }
        }
    }
    assert!(asked > 150 && found == asked, "{found} of {asked}");
    assert!(wrong < 5, "{wrong} of {}", asked * texts.len());
}

/// By chance, it has a part of the others. It is not left out as too small.
#[test]
fn a_short_message_with_less_than_seven_tenths_of_a_text_may_have_them() {
    let mut random = Random(3);
    let (texts, _) = mail(&mut random, 400, 0, 0);
    let winnow = Winnow::new(WinnowSettings::default(), &KEY);
    let (_, Sealed { order, body }) = sealed(&winnow, &texts);
    let (mut asked, mut found) = (0, 0);
    for (number, text) in
        texts.iter().enumerate().filter(|(_, text)| (800..1200).contains(&text.len()))
    {
        let mut other = random.text(text.len() / 4);
        other.truncate(text.len() * 6 / 11);
        let parts = vec![Part::Text(format!("{text}{other}"))];
        let mut search = winnow.search(&ContentQuery { parts, min_share: 0.7 }).unwrap();
        let hits = hits(&mut *search, &body, order.len() as u32);
        asked += 1;
        found += u32::from(hits.iter().any(|hit| order[hit.message as usize] as usize == number));
    }
    assert!(asked > 20 && found > asked / 4, "{found} of {asked}");
}
