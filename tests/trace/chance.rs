//! The computed chance of a hit matches the rate of false hits on realistic
//! mail.

use exirate::trace::decode::{self, Limits};
use exirate::trace::{Body, ContentQuery, Fragment, Part, Scheme, Sealed, Settings};
use kit::Random;
use kit::mail::World;
use memchr::memmem;

const MESSAGES: usize = 12_000;
const EXCERPTS: usize = 90;
const LENGTHS: [usize; 7] = [36, 45, 55, 70, 85, 100, 120];
/// A message with a larger share of an excerpt's grams is related to it.
pub(crate) const NEAR: f64 = 0.5;
/// All of this many false hits of one excerpt are examined, and every 32nd of
/// the others.
const EXAMINED: u64 = 100;

struct Store {
    scheme: Box<dyn Scheme>,
    sealed: Sealed,
    texts: Vec<Vec<u8>>,
}

impl Store {
    fn new() -> Self {
        let (world, scheme) = (World::new(11), Settings::default().scheme(&[3; 32]));
        let (mut digests, mut texts) = (Vec::new(), Vec::new());
        for n in 0..MESSAGES {
            let (mut digester, mut all) = (scheme.digester(), Vec::new());
            decode::decode_parts(
                &world.mail(n as u64).raw,
                &Limits::default(),
                &mut |part, piece| {
                    digester.begin(part);
                    digester.add(piece);
                    if let Fragment::Text(text) = piece {
                        all.extend_from_slice(text.as_bytes());
                        all.push(0);
                    }
                },
            );
            digests.push(digester.finish());
            texts.push(all);
        }
        let digests: Vec<&[u8]> = digests.iter().map(Vec::as_slice).collect();
        let sealed = scheme.seal(&digests);
        drop(digests);
        Self { sealed, scheme, texts }
    }

    /// An excerpt and the message it is from; long messages give more of them.
    fn excerpt(&self, length: usize, random: &mut Random) -> (usize, &str) {
        loop {
            let message = random.below(MESSAGES);
            let text = &self.texts[message];
            if text.len() <= length || random.below(20_000) > text.len() {
                continue;
            }
            let start = random.below(text.len() - length);
            let excerpt = std::str::from_utf8(&text[start..start + length]);
            let whole = |text: &&str| text.trim() == *text && !text.contains('\0');
            if let Some(excerpt) = excerpt.ok().filter(whole) {
                return (message, excerpt);
            }
        }
    }

    /// The chance of the message that an excerpt is from, and the number of
    /// hits that are unrelated to it.
    fn ask(&self, (from, excerpt): (usize, &str)) -> (f64, u64) {
        let question = ContentQuery { parts: vec![Part::Text(excerpt.to_owned())], min_share: 1.0 };
        let mut search = self.scheme.search(&question).unwrap();
        let mut hits = Vec::new();
        let body = Body::plain(&self.sealed.body);
        search.sealed(&body, MESSAGES as u32, &mut |hit| hits.push(hit)).unwrap();
        let (mut chance, mut others, mut unrelated) = (None, 0, 0);
        for hit in hits {
            let message = self.sealed.order[hit.message as usize] as usize;
            if message == from {
                chance = Some(search.chance(&hit));
                continue;
            }
            others += 1;
            let counts_for = match others {
                0..=EXAMINED => 1,
                n if n % 32 == 0 => 32,
                _ => continue,
            };
            if !is_related(&self.texts[message], excerpt, NEAR) {
                unrelated += counts_for;
            }
        }
        (chance.expect("an excerpt is found"), unrelated)
    }
}

/// Whether a text has more than this share of an excerpt's grams.
pub(crate) fn is_related(text: &[u8], excerpt: &str, share: f64) -> bool {
    let grams = excerpt.as_bytes().windows(8);
    let count = grams.len() as f64;
    let there = grams.filter(|gram| memmem::find(text, gram).is_some()).count();
    there as f64 > share * count
}

#[test]
fn chances_are_those_of_false_hits() {
    let (store, mut random) = (Store::new(), Random::new(4));
    let mut summary: Vec<(f64, u64)> = LENGTHS
        .iter()
        .flat_map(|&length| std::iter::repeat_n(length, EXCERPTS))
        .map(|length| store.ask(store.excerpt(length, &mut random)))
        .collect();
    summary.sort_by(|(a, _), (b, _)| b.total_cmp(a));
    let mut measured = 0;
    for decade in 1..=6 {
        let (high, low) = (10_f64.powi(1 - decade), 10_f64.powi(-decade));
        let within = summary.iter().filter(|(chance, _)| (low..high).contains(chance));
        let (mut count, mut expected, mut found) = (0, 0.0, 0.0);
        for (chance, unrelated) in within {
            count += 1;
            expected += chance * MESSAGES as f64;
            found += *unrelated as f64;
        }
        println!("{low:e} to {high:e}: {count} excerpts, {expected:.1} expected, {found} found");
        // Too low by at most a factor of three, apart from statistical error;
        // and not much too high if there are enough excerpts and hits to tell: the chance is that
        // of a message whose filter is as full as the one of the message that has the excerpt.
        assert!(found <= 3.0 * expected + 6.0, "{low:e}: {found} found, {expected} expected");
        if count >= 5 && found >= 30.0 {
            measured += 1;
            assert!(expected <= 4.0 * found, "{low:e}: {found} found, {expected} expected");
        }
    }
    assert!(measured >= 3, "{measured} decades have enough false hits to compare");
}
