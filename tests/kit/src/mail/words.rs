//! A vocabulary with word frequencies.

use std::collections::HashSet;

use super::english::COMMON;
use crate::random::{Random, mix};

/// The number of words: a power of two.
pub const COUNT: usize = 1 << 15;
/// The maximum length of a word.
const LONGEST: usize = 15;
/// How many words are often followed by other than the common ones.
const NARROW_FROM: usize = 60;

/// English-like words with a Zipf distribution and with frequent successors.
///
/// In real mail (the public corpus of SpamAssassin, ham, 1.2 million words) a
/// word has 4.7 letters on average, and the 10, 100, 1,000 and 10,000 most
/// common words are 17, 41, 70 and 94 % of the text; here it is 5.0 letters and
/// 15, 38, 67 and 93 %. Of the 8-grams of 800 bytes of a message, 0.72 % are in
/// 800 bytes of another one there, and 0.70 % here.
pub struct Words {
    /// The bytes of each word, and its length in the last byte.
    spellings: Vec<[u8; LONGEST + 1]>,
    /// Walker's alias method: below `0`, the word is the entry's own; else `1`.
    alias: Vec<(u32, u16)>,
    /// Precomputed small numbers: which frequent successor of a word is next;
    /// there are few for most words, and many for "the" and similar words.
    narrow: Vec<u8>,
    wide: Vec<u16>,
    seed: u64,
}

impl Words {
    /// Always the same for a seed.
    pub fn new(seed: u64) -> Self {
        let mut random = Random::of_state(mix(seed, 0x77));
        let mut spellings: Vec<String> = Vec::with_capacity(COUNT);
        let mut known = HashSet::new();
        for word in COMMON.split_whitespace() {
            if known.insert(word.to_owned()) {
                spellings.push(word.to_owned());
            }
        }
        while spellings.len() < COUNT {
            let word = made_up(&mut random, spellings.len());
            if word.len() <= LONGEST && known.insert(word.clone()) {
                spellings.push(word);
            }
        }
        let narrow = (0..4_096).map(|_| random.zipf(40) as u8).collect();
        let wide = (0..4_096).map(|_| random.zipf(3_000) as u16).collect();
        let spellings = spellings.iter().map(|word| slot(word)).collect();
        Self { spellings, alias: alias(&weights()), narrow, wide, seed }
    }

    /// A word from 64 random bits.
    pub fn any(&self, bits: u64) -> usize {
        let n = (bits >> 49) as usize;
        let (own, other) = self.alias[n];
        if (bits as u32) < own { n } else { usize::from(other) }
    }

    /// A word that often follows `previous`, from random bits.
    pub fn after(&self, previous: usize, bits: u64) -> usize {
        let n = (bits & 0xfff) as usize;
        let favourite = if previous < NARROW_FROM {
            u64::from(self.wide[n])
        } else {
            u64::from(self.narrow[n])
        };
        self.any(mix(self.seed ^ favourite << 32, previous as u64))
    }

    /// A word of a topic, from random bits: not one of the most common.
    pub fn of_topic(&self, topic: u64, bits: u64) -> usize {
        let n = u64::from(self.wide[(bits & 0xfff) as usize] >> 2);
        let first = self.any(mix(topic, n));
        if first >= 200 { first } else { 200 + (mix(topic, !n) % (COUNT as u64 - 200)) as usize }
    }

    /// Writes a word.
    pub fn spell(&self, word: usize, to: &mut Vec<u8>) {
        let slot = &self.spellings[word];
        // A copy of a fixed length is much faster than one of the word's
        // length.
        let end = to.len() + usize::from(slot[LONGEST]);
        to.extend_from_slice(slot);
        to.truncate(end);
    }

    /// A word without an apostrophe, for a name.
    pub fn name(&self, bits: u64) -> &str {
        let word = self.any(bits);
        let text = self.text(word);
        if text.contains('\'') { self.text(word + COUNT / 2) } else { text }
    }

    /// A word, as it is spelled.
    pub fn text(&self, word: usize) -> &str {
        let slot = &self.spellings[word];
        std::str::from_utf8(&slot[..usize::from(slot[LONGEST])]).unwrap()
    }
}

fn slot(word: &str) -> [u8; LONGEST + 1] {
    let mut slot = [0; LONGEST + 1];
    slot[..word.len()].copy_from_slice(word.as_bytes());
    slot[LONGEST] = word.len() as u8;
    slot
}

/// The frequency of each word: the law of Zipf and Mandelbrot, falling more
/// steeply from the 4,000th on, as in texts on one subject.
fn weights() -> Vec<f64> {
    (0..COUNT)
        .map(|rank| {
            let rank = rank as f64;
            1.0 / (rank + 3.0) * (4_000.0 / rank.max(4_000.0)).powf(0.6)
        })
        .collect()
}

/// Walker's alias table (Vose 1991) for drawing by those weights.
fn alias(weights: &[f64]) -> Vec<(u32, u16)> {
    let sum: f64 = weights.iter().sum();
    let mut left: Vec<f64> = weights.iter().map(|w| w / sum * weights.len() as f64).collect();
    let mut table = vec![(u32::MAX, 0); weights.len()];
    let (mut small, mut large): (Vec<usize>, Vec<usize>) =
        (0..left.len()).partition(|&n| left[n] < 1.0);
    while let (Some(&few), Some(&many)) = (small.last(), large.last()) {
        small.pop();
        table[few] = ((left[few] * f64::from(u32::MAX)) as u32, many as u16);
        left[many] -= 1.0 - left[few];
        if left[many] < 1.0 {
            large.pop();
            small.push(many);
        }
    }
    table
}

const ONSETS: &[&str] = &[
    "b", "c", "d", "f", "g", "h", "l", "m", "n", "p", "r", "s", "t", "v", "w", "st", "tr", "pr",
    "br", "cl", "cr", "gr", "fl", "pl", "sp", "ch", "sh", "th", "", "", "con", "re", "de", "in",
    "ex", "com", "dis", "s", "t", "p", "m", "qu", "str",
];
const VOWELS: &[&str] =
    &["a", "e", "i", "o", "u", "a", "e", "i", "o", "e", "ea", "ou", "ai", "ee", "io", "oo"];
const CODAS: &[&str] = &[
    "n", "r", "t", "l", "s", "nt", "nd", "st", "m", "ck", "", "", "", "ss", "rt", "ll", "p", "d",
    "c", "v", "g", "ct", "rm", "b",
];
const ENDINGS: &[&str] = &[
    "s", "ed", "ing", "er", "ly", "e", "tion", "al", "y", "ment", "able", "s", "ing", "ed", "ity",
    "ence", "es", "ers", "ive", "ness",
];

/// An invented word for this rank.
pub fn made_up(random: &mut Random, rank: usize) -> String {
    let longer = match rank {
        0..1_000 => 20,
        1_000..4_000 => 40,
        _ => 70,
    };
    let mut word = String::new();
    let syllables = 1 + usize::from(random.chance(longer)) + usize::from(random.chance(longer / 5));
    for _ in 0..syllables {
        word.push_str(random.pick(ONSETS));
        word.push_str(random.pick(VOWELS));
        if random.chance(50) {
            word.push_str(random.pick(CODAS));
        }
    }
    if random.chance(longer / 4) {
        word.push_str(random.pick(ENDINGS));
    }
    word
}
