//! Filters: bits in bytes, the first in the lowest bit of the first byte.

/// Sets a bit, if there is one.
#[inline]
pub(super) fn set(filter: &mut [u8], bit: usize) {
    if let Some(byte) = filter.get_mut(bit / 8) {
        *byte |= 1 << (bit % 8);
    }
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
