//! Grams as integers.

/// The 8 bytes at offset `at` of a gram.
#[inline]
pub(super) fn u64_at(gram: &[u8], at: usize) -> u64 {
    gram.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |word| u64::from_le_bytes(*word))
}

/// The 4 bytes at offset `at` of a gram.
#[inline]
fn u32_at(gram: &[u8], at: usize) -> u64 {
    let bytes = gram.get(at..).and_then(|rest| rest.first_chunk());
    bytes.map_or(0, |bytes| u64::from(u32::from_le_bytes(*bytes)))
}

/// A gram of 4 to 8 bytes: its first 4 and last 4.
#[inline]
pub(super) fn short(gram: &[u8]) -> u64 {
    u32_at(gram, 0) | u32_at(gram, gram.len() - 4) << 32
}

/// A gram of 9 to 16 bytes: its first 8 and last 8.
#[inline]
pub(super) fn medium(gram: &[u8]) -> [u64; 2] {
    [u64_at(gram, 0), u64_at(gram, gram.len() - 8)]
}

/// A gram of 17 to 32 bytes: its first 16 and last 16.
#[inline]
pub(super) fn long(gram: &[u8]) -> [u64; 4] {
    [0, 8, gram.len() - 16, gram.len() - 8].map(|at| u64_at(gram, at))
}
