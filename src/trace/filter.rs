//! Bit filters: bit 0 is the lowest bit of the first byte.

/// Sets a bit, if it exists.
#[inline]
pub(super) fn set(filter: &mut [u8], bit: usize) {
    if let Some(byte) = filter.get_mut(bit / 8) {
        *byte |= 1 << (bit % 8);
    }
}

/// A filter of `bytes` bytes with these bits set; bits beyond its end are
/// ignored.
///
/// Each bit is first a whole byte, which is only written to: setting bits in a
/// small filter in place would wait for the previous store.
pub(super) fn with(bits: impl Iterator<Item = usize>, bytes: usize) -> Vec<u8> {
    let marks = marks(bits, bytes * 8);
    let (words, _) = marks.as_chunks::<8>();
    words.iter().map(packed).collect()
}

/// Bit n is the lowest bit of byte n; all other bits of these bytes must be zero.
#[inline(always)]
pub(super) fn packed(bytes: &[u8; 8]) -> u8 {
    // The product moves bit 0 of byte n to bit n of its highest byte.
    (u64::from_le_bytes(*bytes).wrapping_mul(0x0102_0408_1020_4080) >> 56) as u8
}

/// The number of distinct bits below `of` among these.
pub(super) fn count(bits: impl Iterator<Item = usize>, of: usize) -> u64 {
    memchr::memchr_iter(1, &marks(bits, of)).count() as u64
}

/// One byte for each bit below `of`: 1 if it is among these.
fn marks(bits: impl Iterator<Item = usize>, of: usize) -> Vec<u8> {
    let mut marks = vec![0; of];
    for bit in bits {
        if let Some(mark) = marks.get_mut(bit) {
            *mark = 1;
        }
    }
    marks
}

/// Whether a bit is set; false beyond the end.
#[inline]
pub(super) fn is_set(filter: &[u8], bit: usize) -> bool {
    filter.get(bit / 8).is_some_and(|byte| byte >> (bit % 8) & 1 == 1)
}

/// The number of bits that are set.
pub(super) fn ones(filter: &[u8]) -> u64 {
    let (words, rest) = filter.as_chunks::<8>();
    let words: u64 = words.iter().map(|w| u64::from(u64::from_ne_bytes(*w).count_ones())).sum();
    words + rest.iter().map(|byte| u64::from(byte.count_ones())).sum::<u64>()
}

/// The share of bits that are set; 0 for an empty filter.
pub(super) fn fill(filter: &[u8]) -> f32 {
    (ones(filter) as f64 / (filter.len().max(1) as f64 * 8.0)) as f32
}

/// A filter of half the size: bits 2i and 2i + 1 are joined. An odd last byte
/// is dropped.
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
    use kit::quickcheck;

    quickcheck! {
        fn folding_joins_adjacent_bits(filter: Vec<u8>) -> bool {
            let half = folded(&filter);
            half.len() == filter.len() / 2 && (0..half.len() * 8).all(|bit| {
                is_set(&half, bit) == (is_set(&filter, 2 * bit) || is_set(&filter, 2 * bit + 1))
            })
        }

        fn all_functions_that_set_bits_agree(bits: Vec<u8>) -> bool {
            let mut filter = vec![0; 31];
            bits.iter().for_each(|&bit| set(&mut filter, usize::from(bit)));
            let bits = || bits.iter().map(|&bit| usize::from(bit));
            let ones = (fill(&filter) * 248.0).round() as u64;
            with(bits(), 31) == filter && count(bits(), 248) == ones
        }

        fn set_bits_are_counted(bits: Vec<u8>) -> bool {
            let mut filter = vec![0; 31];
            bits.iter().for_each(|&bit| set(&mut filter, usize::from(bit)));
            let different = (0..248).filter(|&bit| bits.contains(&bit)).count();
            (0..248).all(|bit| is_set(&filter, bit) == bits.contains(&(bit as u8)))
                && (fill(&filter) - different as f32 / 248.0).abs() < 1e-6
        }
    }

    #[test]
    fn an_empty_filter_has_no_bits() {
        set(&mut [], 7);
        assert!(!is_set(&[], 7));
        assert_eq!((fill(&[]), folded(&[1]).len()), (0.0, 0));
    }
}
