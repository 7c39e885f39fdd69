//! Hashes for the maps of one process: under a random key, and several times as fast for
//! short names as those of the standard library. Nothing that is stored depends on them.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::OnceLock;

/// A map from short names or numbers.
#[cfg(feature = "rates")]
pub(crate) type FastMap<K, V> = std::collections::HashMap<K, V, FastHash>;

/// Hashes by multiplications of 64 by 64 bits whose halves are added, as wyhash does. Nobody
/// who does not know the key can choose names with equal hashes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FastHash {
    key: [u64; 2],
}

impl Default for FastHash {
    /// Under the key of this process.
    fn default() -> Self {
        static KEY: OnceLock<[u64; 2]> = OnceLock::new();
        let random = || [0, 1].map(|number| RandomState::new().hash_one(number));
        Self { key: *KEY.get_or_init(random) }
    }
}

impl BuildHasher for FastHash {
    type Hasher = FastHasher;

    #[inline]
    fn build_hasher(&self) -> FastHasher {
        let [state, key] = self.key;
        FastHasher { state, key }
    }
}

/// Hashes one value: see [`FastHash`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct FastHasher {
    state: u64,
    key: u64,
}

/// Both halves of the product.
#[inline]
fn folded(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

impl FastHasher {
    #[inline]
    fn add(&mut self, one: u64, other: u64) {
        self.state = folded(self.state ^ one, self.key ^ other);
    }
}

impl Hasher for FastHasher {
    #[inline]
    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        let mut last = [0; 8];
        last.iter_mut().zip(rest).for_each(|(to, from)| *to = *from);
        let (pairs, single) = words.as_chunks::<2>();
        for [one, other] in pairs {
            self.add(u64::from_le_bytes(*one), u64::from_le_bytes(*other));
        }
        let single = single.first().map_or(0, |word| u64::from_le_bytes(*word));
        // The length, so that what follows cannot be taken for a part of it.
        self.state = self.state.wrapping_add(bytes.len() as u64);
        self.add(single, u64::from_le_bytes(last));
    }

    #[inline]
    fn write_u8(&mut self, number: u8) {
        self.write_u64(number.into());
    }

    #[inline]
    fn write_u16(&mut self, number: u16) {
        self.write_u64(number.into());
    }

    #[inline]
    fn write_u32(&mut self, number: u32) {
        self.write_u64(number.into());
    }

    #[inline]
    fn write_u64(&mut self, number: u64) {
        self.add(number, 0);
    }

    #[inline]
    fn write_usize(&mut self, number: usize) {
        self.write_u64(number as u64);
    }

    #[inline]
    fn finish(&self) -> u64 {
        folded(self.state, self.key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn hashes_differ_where_values_do() {
        let fast = FastHash::default();
        let mut all = HashSet::new();
        let mut low = HashSet::new();
        for n in 0..100_000_u32 {
            let hash = fast.hash_one(format!("outbound/recipients/1h/auth:user{n}@example.org"));
            assert!(all.insert(hash), "{n}");
            low.insert(hash % 65_536);
            assert!(all.insert(fast.hash_one(n)), "{n}");
        }
        // About (1 - 1/e^1.5) of them.
        assert!((49_000..53_000).contains(&low.len()), "{}", low.len());
        // Zeros count by their number.
        let zeros: HashSet<u64> = (0..100).map(|n| fast.hash_one(vec![0_u8; n])).collect();
        assert_eq!(zeros.len(), 100);
        assert_ne!(fast.hash_one(("ab", "c")), fast.hash_one(("a", "bc")));
        assert_eq!(fast.hash_one("ab"), FastHash::default().hash_one("ab"));
    }
}
