//! Canonical Huffman codes.
//!
//! A code is defined by the length of each symbol's word in bits, 0 for a
//! symbol that never occurs. Words of one length are consecutive numbers in the
//! order of their symbols; those of the next length continue after the last
//! one, doubled. A code with a single symbol needs no bits.

use std::cell::OnceCell;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::bits::{BitReader, BitWriter};

/// The maximum length of a word: enough for more symbols than a log can have
/// addresses.
pub(super) const LENGTH_MAX: u32 = 24;
/// The maximum length of a word in the code for the lengths.
const OUTER_MAX: u32 = 15;
/// The symbols of that code: all lengths.
pub(super) const OUTER: usize = LENGTH_MAX as usize + 1;
/// The number of bits for each of its own lengths.
const OUTER_BITS: u32 = 4;

/// A code for writing.
#[derive(Clone, Debug)]
pub(super) struct Code {
    /// The word of each symbol, and its length.
    words: Vec<(u32, u8)>,
    /// The lengths by which the code is defined.
    lengths: Vec<u8>,
}

impl Code {
    /// The optimal code for symbols with these frequencies.
    pub(super) fn of(counts: &[u32]) -> Self {
        Self::with(counts, LENGTH_MAX)
    }

    fn with(counts: &[u32], longest: u32) -> Self {
        let lengths = lengths(counts, longest);
        let mut words = vec![(0, 0); lengths.len()];
        let (mut next, mut before) = (0_u32, 0);
        let mut order: Vec<_> =
            lengths.iter().zip(0..).filter(|(length, _)| **length > 0).collect();
        order.sort_unstable();
        let lone = order.len() == 1;
        for (&length, symbol) in order {
            next <<= length - before;
            before = length;
            if let Some(word) = words.get_mut::<usize>(symbol) {
                *word = (next, if lone { 0 } else { length });
            }
            next += 1;
        }
        Self { words, lengths }
    }

    /// Writes a symbol.
    pub(super) fn put(&self, symbol: u32, writer: &mut BitWriter) {
        let (word, bits) = self.words.get(symbol as usize).copied().unwrap_or_default();
        writer.put(word.into(), bits.into());
    }

    /// The length of each symbol's word; 0 for a symbol that does not occur.
    pub(super) fn lengths(&self) -> &[u8] {
        &self.lengths
    }

    /// Writes the code itself, without the number of symbols.
    pub(super) fn write(&self, writer: &mut BitWriter) {
        let outer = Self::write_outer(&self.lengths, writer);
        self.lengths.iter().for_each(|&length| outer.put(length.into(), writer));
    }

    /// Writes the code for some lengths, and returns it.
    pub(super) fn write_outer(lengths: &[u8], writer: &mut BitWriter) -> Self {
        let mut outer_counts = [0; OUTER];
        for &length in lengths {
            if let Some(count) = outer_counts.get_mut(usize::from(length)) {
                *count += 1;
            }
        }
        let outer = Self::with(&outer_counts, OUTER_MAX);
        for &length in &outer.lengths {
            writer.put(length.into(), OUTER_BITS);
        }
        outer
    }
}

/// The length of each symbol's word; 0 if it never occurs.
fn lengths(counts: &[u32], longest: u32) -> Vec<u8> {
    let mut counts = counts.to_vec();
    loop {
        let lengths = unbounded_lengths(&counts);
        if lengths.iter().all(|&length| u32::from(length) <= longest) {
            return lengths;
        }
        if counts.iter().all(|&count| count <= 1) {
            // There are more symbols than words; such a code cannot be read.
            return lengths;
        }
        // More uniform counts reduce the maximum length.
        for count in counts.iter_mut().filter(|count| **count > 0) {
            *count = (*count / 2).max(1);
        }
    }
}

/// As [`lengths`], without a maximum.
fn unbounded_lengths(counts: &[u32]) -> Vec<u8> {
    let mut lengths = vec![0_u8; counts.len()];
    // Leaves are numbered by symbol, followed by the inner nodes.
    let mut heap: BinaryHeap<_> = counts
        .iter()
        .enumerate()
        .filter(|(_, count)| **count > 0)
        .map(|(symbol, &count)| Reverse((u64::from(count), symbol)))
        .collect();
    if heap.len() == 1
        && let Some(Reverse((_, symbol))) = heap.pop()
        && let Some(length) = lengths.get_mut(symbol)
    {
        *length = 1;
        return lengths;
    }
    let mut children = Vec::new();
    while let (Some(Reverse((one, a))), Some(Reverse((other, b)))) = (heap.pop(), heap.pop()) {
        heap.push(Reverse((one + other, counts.len() + children.len())));
        children.push((a, b));
        if heap.len() == 1 {
            break;
        }
    }
    let mut depths = vec![0_u8; children.len()];
    for (node, &(a, b)) in children.iter().enumerate().rev() {
        let depth = depths.get(node).map_or(0, |depth| depth.saturating_add(1));
        for child in [a, b] {
            let target = match child.checked_sub(counts.len()) {
                None => lengths.get_mut(child),
                Some(inner) => depths.get_mut(inner),
            };
            if let Some(target) = target {
                *target = depth;
            }
        }
    }
    lengths
}

/// A code for reading.
#[derive(Clone, Debug)]
pub(super) struct Decoder {
    /// For each value of the next [`Decoder::quick_bits`] bits: the symbol of
    /// the word at their start, times 32, plus the length of the word; 0 if the
    /// word is longer, or there is none.
    quick: Vec<u32>,
    quick_bits: u32,
    /// For each length, aligned to the longest word: the first value that does
    /// not begin with a word of this length or a shorter one.
    ends: [u32; OUTER],
    /// For each length: its first word, aligned, and the index of its symbol.
    firsts: [(u32, u32); OUTER],
    /// The symbols that occur, sorted by the length of their words.
    symbols: Vec<u32>,
}

/// The maximum number of bits for a table lookup.
const QUICK_BITS: u32 = 8;
/// From this number of symbols on, a table that decodes several at once is
/// worthwhile.
const SEVERAL_FROM: usize = 1024;
/// So many bits are looked up in that table.
const SEVERAL_BITS: u32 = 8;
/// The maximum number of symbols decoded at once.
const SEVERAL: usize = 8;

/// The symbols at the start of some bits.
#[derive(Clone, Copy, Debug, Default)]
struct Several {
    symbols: [u8; SEVERAL],
    count: u8,
    /// The total length of their words.
    bits: u32,
}

/// The code for the lengths of the words of another one.
#[derive(Clone, Debug)]
pub(super) struct Lengths {
    code: Decoder,
    /// For each value of the next [`SEVERAL_BITS`] bits: the lengths at their start.
    several: OnceCell<Vec<Several>>,
}

impl Lengths {
    /// Reads the code; `None` if it is invalid.
    pub(super) fn read(reader: &mut BitReader<'_>) -> Option<Self> {
        let mut outer = [0; OUTER];
        for length in &mut outer {
            *length = reader.take(OUTER_BITS)? as u8;
        }
        Some(Self { code: Decoder::of(&outer)?, several: OnceCell::new() })
    }

    /// Reads so many lengths; several at a time if there are many.
    pub(super) fn take(&self, count: usize, reader: &mut BitReader<'_>) -> Option<Vec<u8>> {
        let mut all = Vec::new();
        if count >= SEVERAL_FROM && self.code.symbols.len() > 1 {
            let several = self.several.get_or_init(|| {
                (0..1 << SEVERAL_BITS).map(|word| self.code.several(word)).collect()
            });
            while all.len() + SEVERAL <= count {
                let found = several.get(reader.peek(SEVERAL_BITS) as usize)?;
                if found.count == 0 {
                    all.push(self.code.take(reader)? as u8);
                    continue;
                }
                reader.skip(found.bits.into())?;
                // A copy of constant size is faster than one of the exact size.
                all.extend(found.symbols);
                all.truncate(all.len() - SEVERAL + usize::from(found.count));
            }
        }
        while all.len() < count {
            all.push(self.code.take(reader)? as u8);
        }
        Some(all)
    }
}

impl Decoder {
    /// Reads the lengths of the words of a code with so many symbols; `None` if they are
    /// invalid.
    pub(super) fn read_lengths(symbols: usize, reader: &mut BitReader<'_>) -> Option<Vec<u8>> {
        Lengths::read(reader)?.take(symbols, reader)
    }

    /// The symbols whose words are completely within some bits.
    fn several(&self, word: u32) -> Several {
        let mut several = Several::default();
        let word = word << (LENGTH_MAX - SEVERAL_BITS);
        for slot in &mut several.symbols {
            let rest = word << several.bits & ((1 << LENGTH_MAX) - 1);
            let found = self.short(rest).filter(|(_, bits)| several.bits + bits <= SEVERAL_BITS);
            let Some((symbol, bits)) = found else { break };
            *slot = symbol as u8;
            several.bits += bits;
            several.count += 1;
        }
        several
    }

    /// The code with these lengths; `None` if the lengths are not those of a
    /// prefix code.
    pub(super) fn of(lengths: &[u8]) -> Option<Self> {
        let counts = histogram(lengths)?;
        let (mut ends, mut firsts) = ([0; OUTER], [(0, 0); OUTER]);
        let (mut next, mut index) = (0_u64, 0_u32);
        let mut indices = [0_u32; OUTER];
        let (mut longest, mut lengths_used) = (0, counts.iter().zip(0..).skip(1));
        for (((end, first), start), (&count, length)) in
            ends.iter_mut().zip(&mut firsts).zip(&mut indices).skip(1).zip(&mut lengths_used)
        {
            (*first, *start) = ((next as u32, index), index);
            next += u64::from(count) << (LENGTH_MAX - length);
            if next > 1 << LENGTH_MAX {
                return None;
            }
            *end = next as u32;
            index += count;
            if count > 0 {
                longest = length;
            }
        }
        let quick_bits = longest.min(QUICK_BITS);
        // Without a branch: those that never occur are put after the others.
        *indices.first_mut()? = index;
        let mut symbols = vec![0; lengths.len()];
        for (symbol, &length) in (0..).zip(lengths) {
            let next = indices.get_mut(usize::from(length))?;
            *symbols.get_mut(*next as usize)? = symbol;
            *next += 1;
        }
        symbols.truncate(index as usize);
        let mut quick = Vec::with_capacity(1 << quick_bits);
        for ((bits, &count), (_, start)) in
            (1..=quick_bits).zip(counts.iter().skip(1)).zip(firsts.iter().skip(1))
        {
            let (start, count) = (*start as usize, count as usize);
            for &symbol in symbols.get(start..start + count)? {
                quick.extend(std::iter::repeat_n(symbol << 5 | bits, 1 << (quick_bits - bits)));
            }
        }
        quick.resize(1 << quick_bits, 0);
        Some(Self { quick, quick_bits, ends, firsts, symbols })
    }

    /// Reads a symbol; `None` if there is none.
    #[inline]
    pub(super) fn take(&self, reader: &mut BitReader<'_>) -> Option<u32> {
        if let [lone] = self.symbols[..] {
            return Some(lone);
        }
        let word = reader.peek(LENGTH_MAX);
        match self.short(word) {
            Some((symbol, bits)) => {
                reader.skip(bits.into())?;
                Some(symbol)
            }
            None => self.take_long(word, reader),
        }
    }

    /// The symbol whose word is at the start of these bits, which have the
    /// length of the longest word, and the word's length; `None` if it is too
    /// long for the table, or there is none.
    #[inline]
    fn short(&self, bits: u32) -> Option<(u32, u32)> {
        let found = *self.quick.get((bits >> (LENGTH_MAX - self.quick_bits)) as usize)?;
        (found > 0).then_some((found >> 5, found & 31))
    }

    /// As [`Decoder::take`], for a word that is too long for the table.
    fn take_long(&self, word: u32, reader: &mut BitReader<'_>) -> Option<u32> {
        // All shorter words are in the table.
        let first = self.quick_bits as usize + 1;
        let length = first + self.ends.iter().skip(first).position(|&end| word < end)?;
        let (first, index) = *self.firsts.get(length)?;
        reader.skip(length as u64)?;
        let number = (word - first) >> (LENGTH_MAX as usize - length);
        self.symbols.get((index + number) as usize).copied()
    }
}

/// How many of some lengths are equal to each possible one; `None` if one is too large.
fn histogram(lengths: &[u8]) -> Option<[u32; OUTER]> {
    // Consecutive lengths are often equal, and are counted separately: an addition would have to
    // wait for the one before.
    let mut counts = [[0_u32; OUTER]; 4];
    for lengths in lengths.chunks(4) {
        for (counts, &length) in counts.iter_mut().zip(lengths) {
            *counts.get_mut(usize::from(length))? += 1;
        }
    }
    let [a, b, c, d] = counts;
    Some(std::array::from_fn(|at| [a, b, c, d].iter().filter_map(|counts| counts.get(at)).sum()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trip(counts: &[u32], text: &[u32]) -> u64 {
        let mut writer = BitWriter::default();
        let code = Code::of(counts);
        code.write(&mut writer);
        let start = writer.len();
        text.iter().for_each(|&symbol| code.put(symbol, &mut writer));
        let bits = writer.len() - start;
        let bytes = writer.finish();
        let mut reader = BitReader::new(&bytes);
        let lengths = Decoder::read_lengths(counts.len(), &mut reader).unwrap();
        let decoder = Decoder::of(&lengths).unwrap();
        assert_eq!(reader.at(), start);
        for &symbol in text {
            assert_eq!(decoder.take(&mut reader), Some(symbol));
            assert!(lengths[symbol as usize] > 0);
        }
        assert_eq!(reader.at(), start + bits);
        bits
    }

    #[test]
    fn texts_round_trip() {
        fn holds(text: Vec<u8>) -> bool {
            let mut counts = [0; 256];
            text.iter().for_each(|&byte| counts[usize::from(byte)] += 1);
            let text: Vec<_> = text.into_iter().map(u32::from).collect();
            let bits = round_trip(&counts, &text);
            bits <= text.len() as u64 * 8
        }
        kit::quick_check().tests(500).quickcheck(holds as fn(Vec<u8>) -> bool);
        assert_eq!(round_trip(&[0, 7, 0], &[1, 1, 1]), 0);
        assert_eq!(round_trip(&[], &[]), 0);
        assert_eq!(round_trip(&[4, 2, 1, 1], &[0, 1, 2, 3]), 1 + 2 + 3 + 3);
    }

    #[test]
    fn word_lengths_are_limited() {
        // The least uniform counts: without a limit, one symbol has 40 bits.
        let counts: Vec<u32> = (0..41)
            .scan((1_u32, 1_u32), |(a, b), _| {
                (*a, *b) = (*b, a.saturating_add(*b));
                Some(*a)
            })
            .collect();
        assert_eq!(unbounded_lengths(&counts).iter().max(), Some(&40));
        assert!(lengths(&counts, LENGTH_MAX).iter().all(|&n| (1..=24).contains(&n)));
        round_trip(&counts, &(0..41).collect::<Vec<_>>());
        let all = vec![1; 100_000];
        round_trip(&all, &[0, 99_999, 5]);
        // Like the addresses of a segment: a few are frequent, many never
        // occur.
        let some: Vec<u32> = (0..30_000_u32)
            .map(|n| if n % 3 == 0 { 0 } else { 1 + 900_000 / (1 + n.wrapping_mul(7919) % 30_000) })
            .collect();
        round_trip(&some, &[1, 29_999, 100]);
    }

    #[test]
    fn random_bytes_do_not_panic() {
        fn holds(bytes: Vec<u8>, symbols: u16) -> bool {
            let mut reader = BitReader::new(&bytes);
            let lengths = Decoder::read_lengths(symbols.into(), &mut reader);
            if let Some(decoder) = lengths.and_then(|lengths| Decoder::of(&lengths)) {
                for _ in 0..100 {
                    decoder.take(&mut reader);
                }
            }
            true
        }
        kit::quick_check().tests(20_000).quickcheck(holds as fn(Vec<u8>, u16) -> bool);
        assert!(Decoder::of(&[1, 1, 1]).is_none());
        assert!(Decoder::of(&[1, 2, 2]).is_some());
        assert!(Decoder::of(&vec![20; 1 << 20]).is_some());
        assert!(Decoder::of(&vec![20; (1 << 20) + 1]).is_none());
        assert!(Decoder::of(&[25]).is_none());
    }
}
