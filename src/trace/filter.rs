//! Filters: bits in bytes, the first in the lowest bit of the first byte.

/// Sets a bit, if there is one.
#[inline]
pub(super) fn set(filter: &mut [u8], bit: usize) {
    if let Some(byte) = filter.get_mut(bit / 8) {
        *byte |= 1 << (bit % 8);
    }
}

/// A filter of so many bytes in which these bits are set, if they are there.
///
/// Each bit is a byte at first, which is only written to: where a filter is
/// small, setting its bits in place waits for the ones just set.
pub(super) fn with(bits: impl Iterator<Item = usize>, bytes: usize) -> Vec<u8> {
    let marks = marks(bits, bytes * 8);
    let (words, _) = marks.as_chunks::<8>();
    // Byte n of a word becomes bit n of the highest byte of the product.
    let packed = words.iter().map(|word| u64::from_le_bytes(*word).wrapping_mul(PACKING) >> 56);
    packed.map(|byte| byte as u8).collect()
}

const PACKING: u64 = 0x0102_0408_1020_4080;

/// How many of so many bits these are, each counted once.
pub(super) fn count(bits: impl Iterator<Item = usize>, of: usize) -> u64 {
    // So few at once that their sum is a small number, of which many are added
    // at once.
    let marks = marks(bits, of);
    marks.chunks(128).map(|some| u64::from(some.iter().sum::<u8>())).sum()
}

/// A byte for each of so many bits, 1 where it is one of these.
fn marks(bits: impl Iterator<Item = usize>, of: usize) -> Vec<u8> {
    let mut marks = vec![0; of];
    for bit in bits {
        if let Some(mark) = marks.get_mut(bit) {
            *mark = 1;
        }
    }
    marks
}

/// Whether a bit is set; one that is not there is not.
#[inline]
pub(super) fn is_set(filter: &[u8], bit: usize) -> bool {
    filter.get(bit / 8).is_some_and(|byte| byte >> (bit % 8) & 1 == 1)
}

/// The share of bits that are set; 0 where there are none.
pub(super) fn fill(filter: &[u8]) -> f32 {
    let (words, rest) = filter.as_chunks::<8>();
    let words: u64 = words.iter().map(|w| u64::from(u64::from_ne_bytes(*w).count_ones())).sum();
    let ones = words + rest.iter().map(|byte| u64::from(byte.count_ones())).sum::<u64>();
    (ones as f64 / (filter.len().max(1) as f64 * 8.0)) as f32
}

/// A filter of half the size: bits 2i and 2i + 1 become one. A last byte without
/// a pair is dropped.
pub(super) fn folded(filter: &[u8]) -> Vec<u8> {
    let (pairs, _) = filter.as_chunks::<2>();
    let joined = pairs.iter().map(|pair| {
        let mut bits = u16::from_le_bytes(*pair);
        bits = (bits | bits >> 1) & 0x5555;
        bits = (bits | bits >> 1) & 0x3333;
        bits = (bits | bits >> 2) & 0x0f0f;
        (bits | bits >> 4) as u8
    });
    joined.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use quickcheck::quickcheck;

    quickcheck! {
        fn folding_joins_neighbours(filter: Vec<u8>) -> bool {
            let half = folded(&filter);
            half.len() == filter.len() / 2 && (0..half.len() * 8).all(|bit| {
                is_set(&half, bit) == (is_set(&filter, 2 * bit) || is_set(&filter, 2 * bit + 1))
            })
        }

        fn all_ways_to_set_bits_are_one(bits: Vec<u8>) -> bool {
            let mut filter = vec![0; 31];
            bits.iter().for_each(|&bit| set(&mut filter, usize::from(bit)));
            let bits = || bits.iter().map(|&bit| usize::from(bit));
            let ones = (fill(&filter) * 248.0).round() as u64;
            with(bits(), 31) == filter && count(bits(), 248) == ones
        }

        fn what_is_set_counts(bits: Vec<u8>) -> bool {
            let mut filter = vec![0; 31];
            bits.iter().for_each(|&bit| set(&mut filter, usize::from(bit)));
            let different = (0..248).filter(|&bit| bits.contains(&bit)).count();
            (0..248).all(|bit| is_set(&filter, bit) == bits.contains(&(bit as u8)))
                && (fill(&filter) - different as f32 / 248.0).abs() < 1e-6
        }
    }

    #[test]
    fn there_may_be_no_bits() {
        set(&mut [], 7);
        assert!(!is_set(&[], 7));
        assert_eq!((fill(&[]), folded(&[1]).len()), (0.0, 0));
    }
}
