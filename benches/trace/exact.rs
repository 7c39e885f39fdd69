//! The exact results: all text is kept and searched.

use std::collections::{HashMap, HashSet};

use crate::corpus::Texts;
use crate::stores::processor_time;

/// The length of the prefix of an excerpt that is searched first.
const PREFIX: usize = 20;
/// The base of the rolling hash.
const BASE: u64 = 0x9e37_79b9_7f4a_7c15;

/// Searches excerpts by the algorithm of Rabin and Karp: a rolling hash over
/// all text, and a comparison where it matches the beginning of an excerpt. For
/// each excerpt, returns the messages that contain it, in order.
pub(crate) fn search(texts: &Texts, excerpts: &[&str]) -> Vec<Vec<u32>> {
    let mut by_hash: HashMap<u64, Vec<usize>> = HashMap::new();
    for (n, excerpt) in excerpts.iter().enumerate() {
        assert!(excerpt.len() >= PREFIX, "an excerpt is too short to be searched for");
        by_hash.entry(hash(&excerpt.as_bytes()[..PREFIX])).or_default().push(n);
    }
    // Most positions are excluded by one bit.
    let mut filter = vec![0_u64; 1 << 14];
    let bit = |hash: u64| ((hash >> 50) as usize, 1_u64 << (hash >> 44 & 63));
    for &hash in by_hash.keys() {
        let (word, mask) = bit(hash);
        filter[word] |= mask;
    }
    let mut found = vec![Vec::new(); excerpts.len()];
    let bytes = &texts.bytes;
    if bytes.len() < PREFIX {
        return found;
    }
    let leaving = BASE.wrapping_pow(PREFIX as u32);
    let mut rolling = hash(&bytes[..PREFIX]);
    for start in 0.. {
        let (word, mask) = bit(rolling);
        if filter[word] & mask != 0
            && let Some(candidates) = by_hash.get(&rolling)
        {
            for &n in
                candidates.iter().filter(|&&n| bytes[start..].starts_with(excerpts[n].as_bytes()))
            {
                let message = texts.at(start) as u32;
                if found[n].last() != Some(&message) {
                    found[n].push(message);
                }
            }
        }
        let Some(&next) = bytes.get(start + PREFIX) else { break };
        rolling = rolling.wrapping_mul(BASE).wrapping_add(value(next));
        rolling = rolling.wrapping_sub(leaving.wrapping_mul(value(bytes[start])));
    }
    found
}

fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |hash, &b| hash.wrapping_mul(BASE).wrapping_add(value(b)))
}

/// Never 0, so that leading ones matter.
fn value(byte: u8) -> u64 {
    u64::from(byte) + 1
}

/// The time of a plain search through all text for one excerpt, in seconds per
/// byte: the median for some excerpts.
pub(crate) fn plain_search(texts: &Texts, excerpts: &[String]) -> f64 {
    let time = |excerpt: &String| {
        let start = processor_time();
        std::hint::black_box(memchr::memmem::find(&texts.bytes, excerpt.as_bytes()));
        (processor_time() - start).as_secs_f64()
    };
    let mut times: Vec<f64> = excerpts.iter().take(9).map(time).collect();
    times.sort_by(f64::total_cmp);
    times.get(times.len() / 2).map_or(0.0, |median| median / texts.bytes.len().max(1) as f64)
}

/// The share of an excerpt's grams of 8 bytes that a message contains.
pub(crate) fn share(message: &[u8], excerpt: &str) -> f64 {
    let number = |gram: &[u8]| gram.iter().fold(0_u64, |n, &b| n << 8 | u64::from(b));
    let grams: HashSet<u64> = excerpt.as_bytes().windows(8).map(number).collect();
    // Most of the message's grams are excluded by one bit.
    let mut filter = [0_u64; 256];
    let bit = |gram: u64| {
        let hash = gram.wrapping_mul(BASE) >> 50;
        ((hash >> 6) as usize, 1_u64 << (hash & 63))
    };
    for &gram in &grams {
        let (word, mask) = bit(gram);
        filter[word] |= mask;
    }
    let mut there = HashSet::new();
    let mut gram = 0;
    for (n, &byte) in message.iter().enumerate() {
        gram = gram << 8 | u64::from(byte);
        let (word, mask) = bit(gram);
        if n >= 7 && filter[word] & mask != 0 && grams.contains(&gram) {
            there.insert(gram);
        }
    }
    there.len() as f64 / grams.len().max(1) as f64
}

/// Asserts that the search finds the same as a plain comparison. It is here
/// because a benchmark has no tests; it is called when the benchmark is run as
/// a test.
pub(crate) fn check() {
    let mut texts = Texts::default();
    let mut random = kit::Random::new(4);
    for _ in 0..200 {
        for _ in 0..random.within(0, 400) {
            texts.bytes.push(b"ab"[random.below(2)]);
        }
        texts.bytes.push(crate::corpus::BETWEEN);
        texts.ends.push(texts.bytes.len());
    }
    let whole = String::from_utf8(texts.bytes.clone()).unwrap();
    let mut excerpts: Vec<&str> = Vec::new();
    for _ in 0..400 {
        let start = random.below(whole.len() - 60);
        excerpts.push(&whole[start..start + random.within(PREFIX, 60)]);
    }
    let changed: Vec<String> = excerpts.iter().map(|e| e[1..].to_owned() + "a").collect();
    excerpts.extend(changed.iter().map(String::as_str));
    for (excerpt, found) in excerpts.iter().zip(search(&texts, &excerpts)) {
        let contains =
            |n: &usize| memchr::memmem::find(texts.message(*n), excerpt.as_bytes()).is_some();
        // An excerpt across messages is found where it begins.
        if !excerpt.contains('\0') {
            let naive: Vec<u32> = (0..texts.len()).filter(contains).map(|n| n as u32).collect();
            assert_eq!(found, naive, "{excerpt}");
        }
    }
    assert_eq!(share(b"abcdefghij", "abcdefghXYZ"), 0.25);
}
