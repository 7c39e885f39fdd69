//! Keyed hashing: the order of grams, and the bits they set.

use std::hash::Hasher;

use siphasher::sip::SipHasher13;
use siphasher::sip128::{Hash128, Hasher128, SipHasher13 as SipHasher128, SipHasher24};

use crate::trace::{DigestKey, FileHash, MessagePart};

use super::integers;

/// The number of elements of a whole attachment.
pub(super) const FILE_ELEMENTS: u64 = 40;

/// Hashes with keys derived from the store's key, a different one for each
/// purpose.
#[derive(Clone, Debug)]
pub(super) struct Hashing {
    /// For grams of text.
    pub(super) text: Grams,
    /// For grams of an attachment's bytes.
    pub(super) bytes: Grams,
    file: SipHasher128,
    file_element: SipHasher13,
    /// For the marks of the parts of a message.
    marks: [(u64, u64); MessagePart::NUMBERS],
    /// Multipliers for the order of grams.
    pub(super) order: [u64; 5],
}

impl Hashing {
    pub(super) fn new(key: &DigestKey) -> Self {
        let (root, rest) = key.split_first_chunk().unwrap_or((&[0; 16], &[]));
        let root = SipHasher24::new_with_key(root);
        let derived = |purpose: &[u8], number: u64| {
            let mut hasher = root;
            hasher.write(rest);
            hasher.write(purpose);
            hasher.write_u64(number);
            let Hash128 { h1, h2 } = hasher.finish128();
            (h1, h2)
        };
        let (f0, f1) = derived(b"winnow file", 0);
        let (e0, e1) = derived(b"winnow file element", 0);
        Self {
            text: Grams(std::array::from_fn(|n| derived(b"winnow text", n as u64))),
            bytes: Grams(std::array::from_fn(|n| derived(b"winnow bytes", n as u64))),
            file: SipHasher128::new_with_keys(f0, f1),
            file_element: SipHasher13::new_with_keys(e0, e1),
            marks: std::array::from_fn(|n| derived(b"winnow mark", n as u64)),
            order: std::array::from_fn(|n| derived(b"winnow order", n as u64).0),
        }
    }

    /// The numbers from which the marks of a part of a message are made.
    pub(super) fn marks_of(&self, part: MessagePart) -> (u64, u64) {
        self.marks.get(part.number() as usize).copied().unwrap_or_default()
    }

    /// The elements of a whole attachment.
    pub(super) fn file(&self, hash: &FileHash) -> impl Iterator<Item = u64> {
        let Hash128 { h1, h2 } = self.file.hash(hash);
        (0..FILE_ELEMENTS).map(move |number| {
            let mut hasher = self.file_element;
            hasher.write_u64(h1);
            hasher.write_u64(h2);
            hasher.write_u64(number);
            hasher.finish()
        })
    }
}

/// Hashes grams by two or more rounds of multiplication with secret numbers.
///
/// Without these numbers nobody can tell which grams fall on the same bit. No
/// more is required, because hashes are never visible: what is stored is
/// encrypted. With SipHash, digesting a message would take half as long again.
#[derive(Clone, Debug)]
pub(super) struct Grams([(u64, u64); 5]);

impl Grams {
    /// The hash of a gram of 4 to 32 bytes.
    #[inline]
    pub(super) fn hash(&self, gram: &[u8]) -> u64 {
        let [a, b, c, d, last] = &self.0;
        let mixed = match gram.len() {
            8 => folded(integers::u64_at(gram, 0), a),
            ..8 => folded(integers::short(gram), a),
            9..=16 => {
                let [one, two] = integers::medium(gram);
                folded(one, a) ^ folded(two, b)
            }
            _ => {
                let [one, two, three, four] = integers::long(gram);
                folded(one, a) ^ folded(two, b) ^ folded(three, c) ^ folded(four, d)
            }
        };
        folded(mixed, last)
    }
}

/// A product of 128 bits, with its halves combined.
#[inline]
pub(super) fn folded(word: u64, (add, multiplier): &(u64, u64)) -> u64 {
    let product = u128::from(word ^ add) * u128::from(multiplier | 1);
    product as u64 ^ (product >> 64) as u64
}

/// The bit of a filter for an element.
#[inline]
pub(super) fn bit(element: u64, bits: u32) -> u32 {
    ((u128::from(element) * u128::from(bits)) >> 64) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// Grams as similar to each other as possible, of each length.
    fn grams() -> impl Iterator<Item = Vec<Vec<u8>>> {
        (4..=32).flat_map(|length| {
            let numbers = (0..2000).map(move |n| format!("{n:0length$}").into_bytes());
            let letters = (0..2000_u32).map(move |n| {
                let mut gram = vec![b'a'; length];
                gram.iter_mut().zip(0..11).for_each(|(byte, bit)| *byte += (n >> bit & 1) as u8);
                gram
            });
            let first = (0..200_u8).map(move |n| {
                let mut gram = vec![b' '; length];
                gram[usize::from(n) % length] = n;
                gram
            });
            [
                numbers.collect(),
                letters.collect::<BTreeSet<_>>().into_iter().collect(),
                first.collect(),
            ]
        })
    }

    #[test]
    fn grams_are_distributed_evenly_over_bits() {
        let (mut expected, mut found) = (0.0, 0.0);
        for (key, grams) in grams().enumerate() {
            let hashing = Hashing::new(&[key as u8; 32]);
            let bits = grams.len() as u32;
            let grams: BTreeSet<Vec<u8>> = grams.into_iter().collect();
            let set: BTreeSet<u32> =
                grams.iter().map(|gram| bit(hashing.text.hash(gram), bits)).collect();
            let free = (1.0 - 1.0 / f64::from(bits)).powf(grams.len() as f64);
            expected += f64::from(bits) * (1.0 - free);
            found += set.len() as f64;
            let ratio = set.len() as f64 / (f64::from(bits) * (1.0 - free));
            assert!((0.8..1.2).contains(&ratio), "{ratio} of {:?}", grams.first());
        }
        let ratio: f64 = found / expected;
        assert!((0.99..1.01).contains(&ratio), "{ratio}");
    }

    #[test]
    fn each_purpose_and_each_key_has_different_hashes() {
        let hashing = Hashing::new(&[0; 32]);
        let mut other = [0; 32];
        other[31] = 1;
        let other = Hashing::new(&other);
        let hashes = [&hashing.text, &hashing.bytes, &other.text, &other.bytes];
        let hashes: BTreeSet<u64> = hashes.iter().map(|grams| grams.hash(b"abcdefgh")).collect();
        assert_eq!(hashes.len(), 4);
        let files: BTreeSet<u64> = hashing.file(&[0; 32]).chain(hashing.file(&[1; 32])).collect();
        assert_eq!(files.len() as u64, 2 * FILE_ELEMENTS);
        assert_ne!(hashing.order, other.order);
    }
}
