//! Grams as words, as all work on them goes.

/// The 8 bytes at a place of a gram.
#[inline]
pub(super) fn word(gram: &[u8], at: usize) -> u64 {
    gram.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |word| u64::from_le_bytes(*word))
}

/// The 4 bytes at a place of a gram.
#[inline]
fn half(gram: &[u8], at: usize) -> u64 {
    let half = gram.get(at..).and_then(|rest| rest.first_chunk());
    half.map_or(0, |half| u64::from(u32::from_le_bytes(*half)))
}

/// A gram of 4 to 8 bytes: its first 4 and its last 4.
#[inline]
pub(super) fn short(gram: &[u8]) -> u64 {
    half(gram, 0) | half(gram, gram.len() - 4) << 32
}

/// A gram of 9 to 16 bytes: its first 8 and its last 8.
#[inline]
pub(super) fn medium(gram: &[u8]) -> [u64; 2] {
    [word(gram, 0), word(gram, gram.len() - 8)]
}

/// A gram of 17 to 32 bytes: its first 16 and its last 16.
#[inline]
pub(super) fn long(gram: &[u8]) -> [u64; 4] {
    [0, 8, gram.len() - 16, gram.len() - 8].map(|at| word(gram, at))
}
