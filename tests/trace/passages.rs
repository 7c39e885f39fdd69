//! Passages of a longer text, and edited texts, are found in realistic mail.

use crate::expected::{decoded, excerpt};
use exirate::trace::{Body, ContentQuery, Hit, Part, Scheme, Sealed, Search, Settings};
use kit::Random;
use kit::mail::World;

const MESSAGES: usize = 4000;
const QUERIES: usize = 100;
/// The length of a page in bytes.
const PAGE: usize = 2000;
/// How many of the results are looked through.
const LOOKED_THROUGH: usize = 100;

struct Store {
    scheme: Box<dyn Scheme>,
    digests: Vec<Vec<u8>>,
    sealed: Sealed,
    texts: Vec<String>,
    /// Mail that is not in the store.
    other: World,
}

impl Store {
    fn new() -> Self {
        let (world, scheme) = (World::new(11), Settings::default().scheme(&[3; 32]));
        let (mut digests, mut texts) = (Vec::new(), Vec::new());
        for n in 0..MESSAGES {
            let mut digester = scheme.digester();
            let text = decoded(&world.mail(n as u64).raw, &mut |part, piece| {
                digester.begin(part);
                digester.add(piece);
            });
            digests.push(digester.finish());
            texts.push(String::from_utf8(text).unwrap());
        }
        let slices: Vec<&[u8]> = digests.iter().map(Vec::as_slice).collect();
        let sealed = scheme.seal(&slices);
        Self { scheme, digests, sealed, texts, other: World::new(12) }
    }

    /// A message, and an excerpt of so many bytes of one of its texts.
    fn source(&self, length: usize, random: &mut Random) -> (usize, &str) {
        loop {
            let message = random.below(MESSAGES);
            let text = self.texts[message].split('\0').max_by_key(|text| text.len()).unwrap();
            if text.len() > length {
                let start = text.ceil_char_boundary(random.below(text.len() - length));
                return (message, &text[start..text.floor_char_boundary(start + length)]);
            }
        }
    }

    /// The hits of a part in the sealed segment, the best first, and the search.
    fn ask(&self, part: Part, min_share: f64) -> (Box<dyn Search + '_>, Vec<Hit>) {
        let mut search =
            self.scheme.search(&ContentQuery { parts: vec![part], min_share }).unwrap();
        let mut hits = Vec::new();
        let mut add = |hit: Hit| {
            hits.push(Hit { message: self.sealed.order[hit.message as usize], ..hit });
        };
        search.sealed(&Body::plain(&self.sealed.body), MESSAGES as u32, &mut add).unwrap();
        hits.sort_by(|a, b| search.chance(a).total_cmp(&search.chance(b)));
        (search, hits)
    }

    /// Whether a message is among the best hits.
    fn finds(&self, message: usize, part: Part, min_share: f64) -> Option<Hit> {
        let (_, hits) = self.ask(part, min_share);
        hits.into_iter().take(LOOKED_THROUGH).find(|hit| hit.message as usize == message)
    }
}

/// A page of which `passage` is a part, and where that is; the rest is of other mail.
fn page(world: &World, passage: &str, random: &mut Random) -> (String, usize) {
    let rest = PAGE - passage.len();
    let before = random.below(rest);
    let mut other = |length: usize| {
        let mut text = String::new();
        while text.len() < length {
            text += &excerpt(world, length.clamp(60, 300), random);
            text.push(' ');
        }
        text.truncate(text.floor_char_boundary(length));
        text
    };
    let before = other(before);
    let start = before.len();
    (format!("{before}{passage}{}", other(rest - start.min(rest))), start)
}

#[test]
fn a_passage_of_a_page_is_found() {
    let (store, mut random) = (Store::new(), Random::new(21));
    for (length, bar) in [(1000, 98), (500, 90)] {
        let mut found = 0;
        for _ in 0..QUERIES {
            let (message, passage) = store.source(length, &mut random);
            let (page, start) = page(&store.other, passage, &mut random);
            let Some(hit) = store.finds(message, Part::Passage(page), 1.0) else { continue };
            // It is this passage, but for what is selected by what is beside it, and for what is
            // there by chance or may have been there before.
            let shown = hit.passage.unwrap();
            let (from, to) = (shown.start as usize, shown.end as usize);
            let inside = to.min(start + length).saturating_sub(from.max(start));
            found += usize::from(inside >= length * 8 / 10);
        }
        println!("{length} of {PAGE} bytes: {found} of {QUERIES} found");
        assert!(found >= bar, "{length}: {found}");
    }
}

#[test]
fn a_text_that_shares_nothing_with_mail_is_hardly_ever_found() {
    let (store, mut random, mut found) = (Store::new(), Random::new(22), 0);
    for _ in 0..QUERIES {
        let letters = (0..PAGE).map(|_| char::from(b"abcdefghijklmnop"[random.below(16)]));
        let (search, hits) = store.ask(Part::Passage(letters.collect()), 1.0);
        found += hits.len();
        assert_eq!(search.expected(1.0), None);
    }
    // Up to one in a million is there by chance, so of these less than half a message.
    assert!(found <= 2, "{found} of {}", QUERIES * MESSAGES);
}

/// A text with a share of its words replaced by other words.
fn edited(world: &World, text: &str, percent: usize, random: &mut Random) -> String {
    let other = excerpt(world, 300, random);
    let others: Vec<&str> = other.split(' ').filter(|word| word.len() > 1).collect();
    let words = text.split(' ').map(|word| match random.below(100) < percent {
        true => others[random.below(others.len())],
        false => word,
    });
    words.collect::<Vec<_>>().join(" ")
}

#[test]
fn an_edited_text_is_found() {
    let (store, mut random) = (Store::new(), Random::new(23));
    for (percent, bar) in [(20, 90), (30, 0)] {
        let mut found = 0;
        for _ in 0..QUERIES {
            let (message, text) = store.source(500, &mut random);
            let text = edited(&store.other, text, percent, &mut random);
            found += usize::from(store.finds(message, Part::Text(text), 0.0).is_some());
        }
        println!("{percent} % of the words changed: {found} of {QUERIES} found");
        assert!(found >= bar, "{percent}: {found}");
    }
}

#[test]
fn passages_are_found_in_a_log_as_in_a_segment() {
    let (store, mut random) = (Store::new(), Random::new(24));
    let digests: Vec<&[u8]> = store.digests.iter().map(Vec::as_slice).collect();
    for length in [400, 900] {
        for _ in 0..10 {
            let (_, passage) = store.source(length, &mut random);
            let (page, _) = page(&store.other, passage, &mut random);
            for (part, min_share) in
                [(Part::Passage(page.clone()), 1.0), (Part::Text(passage.to_owned()), 0.0)]
            {
                let (_, mut sealed) = store.ask(part.clone(), min_share);
                sealed.sort_by_key(|hit| hit.message);
                let question = ContentQuery { parts: vec![part], min_share };
                let mut search = store.scheme.search(&question).unwrap();
                let mut logged = Vec::new();
                search.digests(&digests, &mut |hit| logged.push(hit));
                let key = |hit: &Hit| (hit.message, hit.present, hit.of, hit.passage);
                // How common the elements are is learnt in another order.
                let evident = |hit: &&Hit| hit.passage.is_some() || hit.present == hit.of;
                let keys = |hits: &[Hit]| hits.iter().filter(evident).map(key).collect::<Vec<_>>();
                assert_eq!(keys(&logged), keys(&sealed));
            }
        }
    }
}
