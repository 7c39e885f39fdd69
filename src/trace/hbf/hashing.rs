//! Keyed hashing of blocks, and the bits they set.

use std::hash::Hasher;

use siphasher::sip::SipHasher13;
use siphasher::sip128::{Hash128, Hasher128, SipHasher13 as SipHasher128, SipHasher24};

use crate::trace::{DigestKey, FileHash};

/// The maximum number of hash functions.
const PROBES_MAX: usize = 16;

/// The factor of the second half of a hash for each hash function: the powers
/// of an odd number (2^64 divided by the golden ratio).
const MULTIPLES: [u64; PROBES_MAX] = {
    let mut multiples = [1_u64; PROBES_MAX];
    let mut i = 1;
    while i < PROBES_MAX {
        multiples[i] = multiples[i - 1].wrapping_mul(0x9e37_79b9_7f4a_7c15);
        i += 1;
    }
    multiples
};

/// Hashes with keys derived from the store's key, a different one for each
/// purpose.
#[derive(Clone, Debug)]
pub(super) struct Hashing {
    block: SipHasher13,
    pair: SipHasher13,
    file: SipHasher13,
    element: SipHasher128,
}

/// Determines the bits that an element sets.
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

    /// The hash of a block.
    pub(super) fn block(&self, block: &[u8]) -> u64 {
        self.block.hash(block)
    }

    /// The hash of two adjacent groups of the same size.
    pub(super) fn pair(&self, left: u64, right: u64) -> u64 {
        let mut hasher = self.pair;
        hasher.write_u64(left);
        hasher.write_u64(right);
        hasher.finish()
    }

    /// The hash of a whole attachment.
    pub(super) fn file(&self, hash: &FileHash) -> u64 {
        self.file.hash(hash)
    }

    /// The paper's "(content offset)": the hash of a group, and its number at
    /// its level.
    pub(super) fn element(&self, content: u64, offset: u64) -> Element {
        let mut hasher = self.element;
        hasher.write_u64(content);
        hasher.write_u64(offset);
        Element(hasher.finish128())
    }

    /// The element of a whole attachment, which has no offset.
    pub(super) fn file_element(&self, content: u64) -> Element {
        self.element(content, u64::MAX)
    }
}

impl Element {
    /// The bits of a filter that it sets.
    pub(super) fn bits(self, bits: u32, probes: u8) -> impl Iterator<Item = usize> {
        let Hash128 { h1, h2 } = self.0;
        MULTIPLES.into_iter().take(usize::from(probes)).map(move |multiple| {
            let hash = h1.wrapping_add(multiple.wrapping_mul(h2));
            ((u128::from(hash) * u128::from(bits)) >> 64) as usize
        })
    }
}
