//! Fixed-width, little-endian structures with checksums.

use bincode::config::{Configuration, Fixint, LittleEndian};
use bincode::{Decode, Encode};

/// Fixed width, little-endian.
const CODEC: Configuration<LittleEndian, Fixint> =
    bincode::config::standard().with_fixed_int_encoding().with_little_endian();

/// The size of a checksum.
pub(super) const CRC_BYTES: usize = 4;

/// The checksum (CRC-32, IEEE) of `bytes`, continuing the checksum `before`.
#[inline]
pub(super) fn checksum(before: u32, bytes: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new_with_initial(before);
    hasher.update(bytes);
    hasher.finalize()
}

/// Encodes `value` into `N` bytes, which must be its size.
pub(super) fn encode<const N: usize>(value: &impl Encode) -> [u8; N] {
    let mut bytes = [0; N];
    // This cannot fail: tests compare the sizes with FORMAT.md, and all fields
    // are numbers.
    let _ = bincode::encode_into_slice(value, &mut bytes, CODEC);
    bytes
}

/// Decodes the output of [`encode`]; ignores bytes after it.
pub(super) fn decode<T: Decode<()>>(bytes: &[u8]) -> Option<T> {
    bincode::decode_from_slice(bytes, CODEC).ok().map(|(value, _)| value)
}

/// Sets the last 4 bytes to the checksum of the bytes before them.
pub(super) fn set_checksum(bytes: &mut [u8]) {
    if let Some((covered, crc)) = bytes.split_last_chunk_mut::<CRC_BYTES>() {
        *crc = checksum(0, covered).to_le_bytes();
    }
}

/// Whether the last 4 bytes are the checksum of the bytes before them.
pub(super) fn checksum_fits(bytes: &[u8]) -> bool {
    bytes
        .split_last_chunk::<CRC_BYTES>()
        .is_some_and(|(covered, crc)| checksum(0, covered) == u32::from_le_bytes(*crc))
}
