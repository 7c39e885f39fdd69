//! Sequences of numbers with any count of bits, highest bit first.

/// Writes bits.
#[derive(Debug, Default)]
pub(super) struct BitWriter {
    bytes: Vec<u8>,
    /// The bits of an incomplete byte, the last one lowest.
    pending: u64,
    count: u32,
}

impl BitWriter {
    /// Appends the lowest `bits` bits of `value`, at most 64.
    pub(super) fn put(&mut self, value: u64, bits: u32) {
        if bits > 32 {
            self.put_few(value >> 32, bits - 32);
        }
        self.put_few(value, bits.min(32));
    }

    /// As [`BitWriter::put`], for at most 32 bits.
    fn put_few(&mut self, value: u64, bits: u32) {
        let value = value & ((1 << bits) - 1);
        self.pending = self.pending << bits | value;
        self.count += bits;
        while self.count >= 8 {
            self.count -= 8;
            self.bytes.push((self.pending >> self.count) as u8);
        }
    }

    /// Appends the bit length of a number, in so many bits, and all its bits except the first.
    pub(super) fn put_number(&mut self, number: u64, length_bits: u32) {
        let length = u64::BITS - number.leading_zeros();
        self.put(length.into(), length_bits);
        self.put(number, length.saturating_sub(1));
    }

    /// The number of bits written.
    #[cfg(test)]
    pub(super) fn len(&self) -> u64 {
        self.bytes.len() as u64 * 8 + u64::from(self.count)
    }

    /// All bytes; the last one is padded with zeros.
    pub(super) fn finish(mut self) -> Vec<u8> {
        self.put_few(0, (8 - self.count) % 8);
        self.bytes
    }
}

/// The number of bits that can be looked at together.
pub(super) const AT_ONCE: u32 = 57;

/// Reads bits.
#[derive(Clone, Debug)]
pub(super) struct BitReader<'a> {
    bytes: &'a [u8],
    at: u64,
}

impl<'a> BitReader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// From this bit on.
    pub(super) fn from(bytes: &'a [u8], at: u64) -> Self {
        Self { bytes, at }
    }

    /// The number of bits read, or before the first one.
    pub(super) fn at(&self) -> u64 {
        self.at
    }

    /// The next `bits` bits, at most 32, without consuming them; zeros after
    /// the end.
    #[inline]
    pub(super) fn peek(&self, bits: u32) -> u32 {
        (self.peek_many() >> 32 >> (32 - bits.min(32))) as u32
    }

    /// The next [`AT_ONCE`] bits, the first one highest, and perhaps some more, without consuming
    /// them; zeros after the end.
    #[inline]
    pub(super) fn peek_many(&self) -> u64 {
        let start = usize::try_from(self.at / 8).unwrap_or(usize::MAX);
        let rest = self.bytes.get(start..).unwrap_or(&[]);
        let word = match rest.first_chunk::<8>() {
            Some(bytes) => u64::from_be_bytes(*bytes),
            None => {
                rest.iter()
                    .fold((0, 56), |(word, shift), &byte| {
                        (word | u64::from(byte) << shift, shift - 8)
                    })
                    .0
            }
        };
        // Of 64 bits, at most 7 are consumed.
        word << (self.at % 8)
    }

    /// Skips `bits` bits; `None` if there are fewer.
    #[inline]
    pub(super) fn skip(&mut self, bits: u64) -> Option<()> {
        let at = self.at.checked_add(bits)?;
        (at <= self.bytes.len() as u64 * 8).then(|| self.at = at)
    }

    /// Reads a number that [`BitWriter::put_number`] wrote, of at most 64 bits.
    #[inline]
    pub(super) fn take_number(&mut self, length_bits: u32) -> Option<u64> {
        match self.take(length_bits)? as u32 {
            0 => Some(0),
            length if length <= u64::BITS => Some(1 << (length - 1) | self.take(length - 1)?),
            _ => None,
        }
    }

    /// Reads the next `bits` bits, at most 64; `None` if there are fewer.
    #[inline]
    pub(super) fn take(&mut self, bits: u32) -> Option<u64> {
        let high = match bits.saturating_sub(32) {
            0 => 0,
            more => {
                let high = u64::from(self.peek(more));
                self.skip(more.into())?;
                high << 32
            }
        };
        let bits = bits.min(32);
        let low = u64::from(self.peek(bits));
        self.skip(bits.into())?;
        Some(high | low)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_round_trip() {
        fn holds(numbers: Vec<(u64, u8)>) -> bool {
            let mut writer = BitWriter::default();
            let cut = |(value, bits): &(u64, u8)| {
                let bits = u32::from(bits % 65);
                (if bits == 64 { *value } else { value & ((1 << bits) - 1) }, bits)
            };
            numbers.iter().map(cut).for_each(|(value, bits)| writer.put(value, bits));
            let length = writer.len();
            let bytes = writer.finish();
            let mut reader = BitReader::new(&bytes);
            numbers.iter().map(cut).all(|(value, bits)| reader.take(bits) == Some(value))
                && reader.at() == length
                && bytes.len() as u64 == length.div_ceil(8)
                && reader.take(8).is_none()
        }
        kit::quick_check().tests(2000).quickcheck(holds as fn(Vec<(u64, u8)>) -> bool);
    }
}
