//! Bits, codes, numbers and texts, decoded as specified in FORMAT.md.

/// Bits, the highest of a byte first.
pub(crate) struct Bits<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Bits<'a> {
    pub(crate) fn of(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    pub(crate) fn take(&mut self, bits: u64) -> u64 {
        (0..bits).fold(0, |sum, _| {
            let bit = self.bytes[self.at / 8] >> (7 - self.at % 8) & 1;
            self.at += 1;
            sum << 1 | u64::from(bit)
        })
    }

    /// Takes a number: its bit length, in so many bits, and all its bits except the first.
    pub(crate) fn number(&mut self, length_bits: u64) -> u64 {
        match self.take(length_bits) {
            0 => 0,
            count => 1 << (count - 1) | self.take(count - 1),
        }
    }

    /// Asserts that only the zeros that pad the last byte are left.
    pub(crate) fn end(mut self) {
        let left = self.bytes.len() * 8 - self.at;
        assert!(left < 8 && self.take(left as u64) == 0, "{left} bits are left");
    }
}

/// A canonical Huffman code: the length of each word, the word, and its symbol.
pub(crate) struct Code(Vec<(u64, u64, u64)>);

impl Code {
    pub(crate) fn of(lengths: &[u64]) -> Self {
        let mut order: Vec<_> =
            lengths.iter().zip(0..).filter(|(length, _)| **length > 0).collect();
        order.sort_unstable();
        if let [(_, symbol)] = order[..] {
            return Self(vec![(0, 0, symbol)]);
        }
        let (mut next, mut before, mut words) = (0, 0, Vec::new());
        for (&length, symbol) in order {
            next <<= length - before;
            before = length;
            words.push((length, next, symbol));
            next += 1;
        }
        Self(words)
    }

    /// Reads the code for the lengths of another one.
    fn outer(bits: &mut Bits<'_>) -> Self {
        let outer: Vec<_> = (0..25).map(|_| bits.take(4)).collect();
        Self::of(&outer)
    }

    /// Reads a code of many symbols, whose lengths are in some blocks.
    pub(crate) fn read_many<'a>(
        symbols: u64,
        blocks: &mut impl Iterator<Item = &'a [u8]>,
        bits: &mut Bits<'_>,
    ) -> Self {
        let outer = Self::outer(bits);
        let (shortest, longest) = (bits.take(5), bits.take(5));
        let mut lengths = Vec::new();
        for start in (0..symbols).step_by(2048) {
            let mut block = Bits::of(blocks.next().unwrap());
            let count = 2048.min(symbols - start);
            let these: Vec<_> = (0..count).map(|_| outer.symbol(&mut block)).collect();
            block.end();
            assert!(these.iter().all(|&one| one == 0 || (shortest..=longest).contains(&one)));
            for length in shortest..=longest {
                let count = these.iter().filter(|one| **one == length).count() as u64;
                assert_eq!(bits.number(4), count);
            }
            lengths.extend(these);
        }
        let used = || lengths.iter().copied().filter(|&length| length > 0);
        assert_eq!((used().min().unwrap_or(1), used().max().unwrap_or(0)), (shortest, longest));
        Self::of(&lengths)
    }

    pub(crate) fn read(symbols: u64, bits: &mut Bits<'_>) -> Self {
        let outer = Self::outer(bits);
        let lengths: Vec<_> = (0..symbols).map(|_| outer.symbol(bits)).collect();
        Self::of(&lengths)
    }

    pub(crate) fn symbol(&self, bits: &mut Bits<'_>) -> u64 {
        let (mut word, mut length) = (0, 0);
        loop {
            if let Some(found) = self.0.iter().find(|one| (one.0, one.1) == (length, word)) {
                return found.2;
            }
            word = word << 1 | bits.take(1);
            length += 1;
        }
    }

    pub(crate) fn number(&self, bits: &mut Bits<'_>) -> u64 {
        match self.symbol(bits) {
            0 => 0,
            count => 1 << (count - 1) | bits.take(count - 1),
        }
    }

    pub(crate) fn signed(&self, bits: &mut Bits<'_>) -> i64 {
        let number = self.number(bits).cast_signed();
        if number % 2 == 0 { number / 2 } else { -(number + 1) / 2 }
    }
}

/// A text that follows another.
pub(crate) fn text([byte, shared, rest]: [&Code; 3], before: &mut Vec<u8>, bits: &mut Bits<'_>) {
    let (shared, rest) = (shared.number(bits), rest.number(bits));
    before.truncate(shared as usize);
    for _ in 0..rest {
        before.push(byte.symbol(bits) as u8);
    }
}
