//! Sentences and paragraphs.

use super::english::PHRASES;
use super::words::{Words, made_up};
use crate::random::{Random, mix};

/// A subject matter; texts with the same one share words.
pub type Topic = u64;

/// Writes a sentence.
pub fn sentence(words: &Words, random: &mut Random, topic: Topic, to: &mut Vec<u8>) {
    let start = to.len();
    let mut length = 4 + random.below(12) + random.below(10);
    if random.chance(8) {
        to.extend_from_slice(random.pick(PHRASES).as_bytes());
        to.push(b' ');
        length /= 2;
    }
    clause(words, random, topic, length, to);
    to[start] = to[start].to_ascii_uppercase();
    to.push(b"......?!"[random.below(8)]);
}

/// Writes so many words.
pub fn clause(words: &Words, random: &mut Random, topic: Topic, length: usize, to: &mut Vec<u8>) {
    let mut previous = words.any(random.bits());
    words.spell(previous, to);
    for _ in 1..length {
        let bits = random.bits();
        let kind = bits >> 12 & 0xff;
        to.push(b' ');
        previous = match kind {
            // A word that often follows the last one.
            0..120 => words.after(previous, bits),
            120..150 => words.of_topic(topic, bits),
            // A rare word.
            150..154 => {
                rarity(random, to);
                continue;
            }
            154..162 => {
                to.pop();
                to.extend_from_slice(b", ");
                words.any(bits)
            }
            _ => words.any(bits),
        };
        words.spell(previous, to);
    }
}

/// Writes a number, a date, a name or a unique word.
fn rarity(random: &mut Random, to: &mut Vec<u8>) {
    match random.below(6) {
        0 => number(random.below(100) as u64, to),
        1 => number(random.bits() % 10_000, to),
        2 => {
            number(random.within(1, 12) as u64, to);
            to.push(b':');
            number(random.within(10, 59) as u64, to);
        }
        3 => {
            to.push(b'$');
            number(random.within(1, 99) as u64, to);
            to.push(b',');
            number(random.within(100, 999) as u64, to);
        }
        _ => {
            let start = to.len();
            to.extend_from_slice(made_up(random, 5_000).as_bytes());
            to[start] = to[start].to_ascii_uppercase();
        }
    }
}

/// Writes a number in decimal digits.
pub fn number(mut number: u64, to: &mut Vec<u8>) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break to.extend_from_slice(&digits[at..]);
        }
    }
}

/// Writes a title: a few words on the topic, without a full stop.
pub fn title(words: &Words, random: &mut Random, topic: Topic, to: &mut Vec<u8>) {
    let start = to.len();
    for n in 0..random.within(2, 7) {
        if n > 0 {
            to.push(b' ');
        }
        let bits = random.bits();
        let word = if bits >> 63 == 0 { words.of_topic(topic, bits) } else { words.any(bits) };
        words.spell(word, to);
    }
    to[start] = to[start].to_ascii_uppercase();
}

/// Writes paragraphs of about `bytes` in total, one per line.
pub fn paragraphs(
    words: &Words,
    random: &mut Random,
    topic: Topic,
    bytes: usize,
    to: &mut Vec<u8>,
) {
    let end = to.len() + bytes;
    loop {
        let paragraph = to.len() + random.spread(260.0, 0.6).min(1_500);
        sentence(words, random, topic, to);
        while to.len() < paragraph.min(end) {
            to.push(b' ');
            sentence(words, random, topic, to);
        }
        if to.len() >= end {
            break;
        }
        to.push(b'\n');
    }
}

/// The topic with this number; low numbers are frequent.
pub fn topic(number: usize) -> Topic {
    mix(number as u64, 0x70_61)
}

/// Writes paragraphs wrapped at 72 columns, each line after `mark`, with an
/// empty line between paragraphs.
pub fn wrap(paragraphs: &[u8], mark: &[u8], to: &mut Vec<u8>) {
    let width = 72 - mark.len().min(40);
    for (n, mut rest) in paragraphs.split(|&b| b == b'\n').enumerate() {
        if n > 0 {
            to.extend_from_slice(mark.trim_ascii_end());
            to.push(b'\n');
        }
        while rest.len() > width {
            let space = rest[..=width].iter().rposition(|&b| b == b' ');
            let space = space.or_else(|| rest.iter().position(|&b| b == b' '));
            let Some(space) = space else { break };
            to.extend_from_slice(mark);
            to.extend_from_slice(&rest[..space]);
            to.push(b'\n');
            rest = &rest[space + 1..];
        }
        to.extend_from_slice(mark);
        to.extend_from_slice(rest);
        to.push(b'\n');
    }
}
