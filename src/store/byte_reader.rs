//! Reads what is stored as bytes, one field after the other.

/// The bytes that are not read yet. Each method takes a field from their start; `None` if
/// they end before it does. Numbers are little-endian.
pub(crate) struct ByteReader<'a> {
    pub(crate) rest: &'a [u8],
}

impl<'a> ByteReader<'a> {
    /// So many bytes.
    pub(crate) fn take(&mut self, bytes: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(bytes)?;
        self.rest = rest;
        Some(taken)
    }

    /// An array.
    pub(crate) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    /// A 2-byte number.
    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    /// A 4-byte number.
    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    /// An 8-byte number with a sign.
    pub(crate) fn i64(&mut self) -> Option<i64> {
        self.array().map(i64::from_le_bytes)
    }

    /// A text, after its length in 2 bytes.
    pub(crate) fn text(&mut self) -> Option<&'a [u8]> {
        let bytes = self.u16()?;
        self.take(usize::from(bytes))
    }
}
