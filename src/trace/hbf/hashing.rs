//! What the key decides: what blocks are called, and which bits they set.

use std::hash::Hasher;

use siphasher::sip::SipHasher13;
use siphasher::sip128::{Hash128, Hasher128, SipHasher13 as SipHasher128, SipHasher24};

use crate::trace::DigestKey;

/// How many hash functions there can be.
const MOST_PROBES: usize = 16;

/// What the second half of a hash is multiplied by for each hash function: the
/// powers of an odd number (2^64 over the golden ratio).
const MULTIPLES: [u64; MOST_PROBES] = {
    let mut multiples = [1_u64; MOST_PROBES];
    let mut i = 1;
    while i < MOST_PROBES {
        multiples[i] = multiples[i - 1].wrapping_mul(0x9e37_79b9_7f4a_7c15);
        i += 1;
    }
    multiples
};

/// Hashes under the store's key, each use with a key of its own.
#[derive(Clone, Debug)]
pub(super) struct Hashing {
    block: SipHasher13,
    pair: SipHasher13,
    file: SipHasher13,
    element: SipHasher128,
}

/// What decides which bits an element sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Element(Hash128);

impl Hashing {
    pub(super) fn new(key: &DigestKey) -> Self {
        let (root, rest) = key.split_first_chunk().unwrap_or((&[0; 16], &[]));
        let root = SipHasher24::new_with_key(root);
        let derived = |purpose: &[u8]| {
            let mut hasher = root;
            hasher.write(rest);
            hasher.write(purpose);
            let Hash128 { h1, h2 } = hasher.finish128();
            (h1, h2)
        };
        let short = |(k0, k1)| SipHasher13::new_with_keys(k0, k1);
        let (k0, k1) = derived(b"hbf element");
        Self {
            block: short(derived(b"hbf block")),
            pair: short(derived(b"hbf pair")),
            file: short(derived(b"hbf file")),
            element: SipHasher128::new_with_keys(k0, k1),
        }
    }

    /// What a block is called.
    pub(super) fn block(&self, block: &[u8]) -> u64 {
        self.block.hash(block)
    }

    /// What two neighbours, of the same number of blocks, are called together.
    pub(super) fn pair(&self, left: u64, right: u64) -> u64 {
        let mut hasher = self.pair;
        hasher.write_u64(left);
        hasher.write_u64(right);
        hasher.finish()
    }

    /// What a whole attachment is called.
    pub(super) fn file(&self, content: &[u8]) -> u64 {
        self.file.hash(content)
    }

    /// The paper's "(content offset)": blocks by what they are called, and their
    /// number among as many.
    pub(super) fn element(&self, content: u64, offset: u64) -> Element {
        let mut hasher = self.element;
        hasher.write_u64(content);
        hasher.write_u64(offset);
        Element(hasher.finish128())
    }

    /// A whole attachment has no offset.
    pub(super) fn file_element(&self, content: u64) -> Element {
        self.element(content, u64::MAX)
    }
}

impl Element {
    /// Which bits of a filter it sets.
    pub(super) fn bits(self, bits: u32, probes: u8) -> impl Iterator<Item = usize> {
        let Hash128 { h1, h2 } = self.0;
        MULTIPLES.into_iter().take(usize::from(probes)).map(move |multiple| {
            let hash = h1.wrapping_add(multiple.wrapping_mul(h2));
            ((u128::from(hash) * u128::from(bits)) >> 64) as usize
        })
    }
}
