//! Codes of many symbols: of addresses, clients, and authenticated ids.
//!
//! Mostly, a few symbols are searched for, or a few messages are shown. So the words are read as
//! **ranks**, the places of their symbols in the order of words: to tell them takes no more than
//! the number of words of each length, and two symbols are equal if their ranks are. The lengths
//! of the words of all symbols are in blocks, with the number of words of each length that are in
//! earlier ones; so one block is read to find the symbol of a rank, or the rank of a symbol.

use std::ops::RangeInclusive;
use std::rc::Rc;

use super::Segment;
use super::bits::{self, BitReader, BitWriter};
use super::blocks::{BlockTable, Cache, Section};
use super::codes::{Codes, MANY, Sizes, SymbolKind};
use super::huffman::{Code, LENGTH_MAX, Lengths, OUTER};

/// The number of symbols in a block of lengths.
pub(super) const EACH: usize = 2048;
/// The number of the section of these blocks.
pub(super) const LENGTHS: usize = 5;
/// The number of bits of the shortest and of the longest length.
const LENGTH_BITS: u32 = 5;
/// The number of bits of the bit length of a number of words.
const COUNT_BITS: u32 = 4;
/// The number of bits by which the search for the length of a word begins.
const START_BITS: u32 = 8;

/// How many of some lengths are equal to one.
fn count(lengths: &[u8], length: u8) -> u32 {
    memchr::memchr_iter(length, lengths).count() as u32
}

/// The lengths of the words of the codes of a segment being built.
#[derive(Debug)]
pub(super) struct Many<'a>([&'a [u8]; MANY.len()]);

impl<'a> Many<'a> {
    pub(super) fn of(codes: &'a Codes) -> Self {
        Self(MANY.map(|what| codes.lengths(what)))
    }

    /// Writes the lengths.
    pub(super) fn write(&self) -> Section {
        let mut section = Section::default();
        for lengths in &self.0 {
            let outer = Code::write_outer(lengths, &mut BitWriter::default());
            for lengths in lengths.chunks(EACH) {
                let mut bits = BitWriter::default();
                lengths.iter().for_each(|&length| outer.put(length.into(), &mut bits));
                section.push(&bits.finish());
            }
        }
        section
    }

    /// Writes what the table contains of the codes.
    pub(super) fn write_table(&self, bits: &mut BitWriter) {
        for lengths in &self.0 {
            Code::write_outer(lengths, bits);
            let used = || lengths.iter().copied().filter(|&length| length > 0);
            let [first, last] = [used().min().unwrap_or(1), used().max().unwrap_or(0)];
            bits.put(first.into(), LENGTH_BITS);
            bits.put(last.into(), LENGTH_BITS);
            for lengths in lengths.chunks(EACH) {
                for length in first..=last {
                    bits.put_number(count(lengths, length).into(), COUNT_BITS);
                }
            }
        }
    }
}

/// The number of blocks of the lengths of all codes.
pub(super) fn blocks(sizes: &Sizes) -> usize {
    MANY.into_iter().map(|what| what.symbols(sizes).div_ceil(EACH)).sum()
}

/// A code for reading.
#[derive(Debug)]
pub(super) struct ManyCode<'a> {
    segment: &'a Segment,
    /// The number of symbols.
    symbols: usize,
    lengths: Lengths,
    words: CodeWords,
    /// The number of the first block in the section.
    first: usize,
    /// For each block, how many words of each length are in earlier ones.
    before: Vec<[u32; OUTER]>,
    read: Cache<Vec<u8>>,
}

/// The codes of a segment.
#[derive(Debug)]
pub(super) struct ManyCodes<'a> {
    codes: [ManyCode<'a>; MANY.len()],
    pub(super) table: BlockTable,
}

impl<'a> ManyCodes<'a> {
    /// Reads the codes of a segment whose blocks are in this table; `None` if they are invalid.
    pub(super) fn read(
        segment: &'a Segment,
        table: BlockTable,
        bits: &mut BitReader<'_>,
    ) -> Option<Self> {
        let sizes = segment.head.sizes();
        let mut first = 0;
        let mut next = |what: SymbolKind| {
            let code = ManyCode::read(segment, what.symbols(&sizes), first, bits)?;
            first += code.before.len();
            Some(code)
        };
        let [a, b, c, d] = MANY;
        Some(Self { codes: [next(a)?, next(b)?, next(c)?, next(d)?], table })
    }

    /// The ranks of some symbols, in order, without those that do not occur; `None` if they
    /// cannot be read.
    pub(super) fn ranks_of(&self, what: SymbolKind, symbols: &[u32]) -> Option<Vec<u32>> {
        let code = self.of(what)?;
        let mut ranks = Vec::new();
        for &symbol in symbols {
            ranks.extend(code.rank_of(symbol, &self.table)?);
        }
        ranks.sort_unstable();
        Some(ranks)
    }

    /// The symbol with this rank; `None` if it cannot be read, or there is none.
    pub(super) fn symbol_of(&self, what: SymbolKind, rank: u32) -> Option<u32> {
        self.of(what)?.symbol_of(rank, &self.table)
    }

    /// Whether a block that was read is damaged.
    pub(super) fn are_damaged(&self) -> bool {
        self.codes.iter().any(|code| code.read.has_damaged())
    }

    /// The code for a kind of symbols.
    pub(super) fn of(&self, what: SymbolKind) -> Option<&ManyCode<'a>> {
        let place = MANY.iter().position(|&one| one == what)?;
        self.codes.get(place)
    }
}

impl<'a> ManyCode<'a> {
    fn read(
        segment: &'a Segment,
        symbols: usize,
        first: usize,
        bits: &mut BitReader<'_>,
    ) -> Option<Self> {
        let lengths = Lengths::read(bits)?;
        let [shortest, longest] = [bits.take(LENGTH_BITS)?, bits.take(LENGTH_BITS)?];
        let used = shortest.max(1) as usize..=longest as usize;
        if *used.end() >= OUTER {
            return None;
        }
        let (mut before, mut sums) = (Vec::new(), [0_u32; OUTER]);
        for _ in 0..symbols.div_ceil(EACH) {
            before.push(sums);
            for sum in sums.get_mut(used.clone()).unwrap_or_default() {
                let count = u32::try_from(bits.take_number(COUNT_BITS)?).ok()?;
                *sum = sum.checked_add(count)?;
            }
        }
        let (words, read) = (CodeWords::of(&sums, &used)?, Cache::default());
        Some(Self { segment, symbols, lengths, words, first, before, read })
    }

    /// Reads ranks, and appends them, up to so many in all.
    pub(super) fn take(
        &self,
        bits: &mut BitReader<'_>,
        up_to: usize,
        into: &mut Vec<u32>,
    ) -> Option<()> {
        let mut left = up_to.saturating_sub(into.len());
        if self.words.count == 1 {
            into.resize(into.len() + left, 0);
            return Some(());
        }
        while left > 0 {
            let (next, mut read) = (bits.peek_many(), 0);
            while left > 0 && read + LENGTH_MAX <= bits::AT_ONCE {
                let word = (next << read >> (u64::BITS - LENGTH_MAX)) as u32;
                let (length, rank) = self.words.first(word)?;
                into.push(rank);
                read += length;
                left -= 1;
            }
            bits.skip(read.into())?;
        }
        Some(())
    }

    /// The lengths of the words in a block; `None` if it is damaged.
    fn block(&self, number: usize, table: &BlockTable) -> Option<Rc<Vec<u8>>> {
        self.read.get(number, || {
            let range = table.block(self.first.checked_add(number)?)?;
            let bytes = self.segment.block(LENGTHS, range)?;
            let count = self.symbols.checked_sub(number.checked_mul(EACH)?)?.min(EACH);
            self.lengths.take(count, &mut BitReader::new(&bytes))
        })
    }

    /// The rank of a symbol, if it occurs; `None` if it cannot be read.
    fn rank_of(&self, symbol: u32, table: &BlockTable) -> Option<Option<u32>> {
        let (number, at) = (symbol as usize / EACH, symbol as usize % EACH);
        let lengths = self.block(number, table)?;
        let (before, rest) = lengths.split_at_checked(at)?;
        let length = *rest.first()?;
        if length == 0 {
            return Some(None);
        }
        let (_, first) = *self.words.firsts.get(usize::from(length))?;
        let earlier = *self.before.get(number)?.get(usize::from(length))?;
        Some(Some(first.checked_add(earlier)?.checked_add(count(before, length))?))
    }

    /// The symbol with this rank; `None` if it cannot be read, or there is none.
    fn symbol_of(&self, rank: u32, table: &BlockTable) -> Option<u32> {
        let length = self.words.length_of(rank)?;
        let (_, first) = *self.words.firsts.get(length)?;
        let mut left = rank - first;
        let earlier = |before: &[u32; OUTER]| before.get(length).copied().unwrap_or(u32::MAX);
        // The last block that does not begin after it.
        let number =
            self.before.partition_point(|before| earlier(before) <= left).checked_sub(1)?;
        left -= earlier(self.before.get(number)?);
        let (lengths, length) = (self.block(number, table)?, length as u8);
        let at = memchr::memchr_iter(length, &lengths).nth(left as usize)?;
        Some((number * EACH + at) as u32)
    }
}

/// The words of a code.
#[derive(Clone, Debug)]
struct CodeWords {
    /// For each value of the first bits: the length of the shortest word that begins with them.
    shortest: [u8; 1 << START_BITS],
    /// For each length, aligned to the longest word: the first value that does not begin with a
    /// word of this length or a shorter one.
    ends: [u32; OUTER],
    /// For each length: its first word, aligned, and the rank of its symbol.
    firsts: [(u32, u32); OUTER],
    /// The number of words.
    count: u32,
}

impl CodeWords {
    /// The code with so many words of each length; `None` if there is none.
    fn of(counts: &[u32; OUTER], used: &RangeInclusive<usize>) -> Option<Self> {
        let (mut ends, mut firsts) = ([0; OUTER], [(0, 0); OUTER]);
        let (mut next, mut rank) = (0_u64, 0_u32);
        let each = ends.iter_mut().zip(&mut firsts).zip(counts).zip(0..);
        for (((end, first), &count), length) in each.skip(1) {
            *first = (next as u32, rank);
            next += u64::from(count) << (LENGTH_MAX - length);
            if next > 1 << LENGTH_MAX {
                return None;
            }
            *end = next as u32;
            rank = rank.checked_add(count)?;
        }
        let mut shortest = [0; 1 << START_BITS];
        let mut length = *used.start() as u8;
        for (start, shortest) in (0..).zip(&mut shortest) {
            let word = start << (LENGTH_MAX - START_BITS);
            while ends.get(usize::from(length)).is_some_and(|&end| word >= end) {
                length += 1;
            }
            *shortest = length;
        }
        Some(Self { shortest, ends, firsts, count: rank })
    }

    /// The length of the word at the start of these bits, which have the length of the longest
    /// one, and the rank of its symbol; `None` if there is none.
    #[inline]
    fn first(&self, bits: u32) -> Option<(u32, u32)> {
        let start = *self.shortest.get((bits >> (LENGTH_MAX - START_BITS)) as usize)?;
        let mut length = usize::from(start);
        while bits >= *self.ends.get(length)? {
            length += 1;
        }
        let (first, rank) = *self.firsts.get(length)?;
        Some((length as u32, rank + ((bits - first) >> (LENGTH_MAX as usize - length))))
    }

    /// The length of the word with this rank; `None` if there is none.
    fn length_of(&self, rank: u32) -> Option<usize> {
        // Lengths without words have the same first rank as the next one.
        let before = self.firsts.iter().skip(1).take_while(|(_, first)| *first <= rank).count();
        (rank < self.count).then_some(before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_the_places_of_words() {
        fn holds(counts: Vec<u16>, text: Vec<u16>) -> bool {
            let counts: Vec<u32> = counts.into_iter().map(|n| u32::from(n % 300)).collect();
            let code = Code::of(&counts);
            let lengths = code.lengths();
            let mut order: Vec<(u8, u32)> =
                lengths.iter().copied().zip(0..).filter(|(length, _)| *length > 0).collect();
            order.sort_unstable();
            if order.is_empty() {
                return true;
            }
            let text: Vec<usize> = text.into_iter().map(|n| usize::from(n) % order.len()).collect();
            let mut writer = BitWriter::default();
            text.iter().for_each(|&rank| code.put(order[rank].1, &mut writer));
            let bytes = writer.finish();
            let mut sums = [0; OUTER];
            lengths.iter().filter(|length| **length > 0).for_each(|&n| sums[usize::from(n)] += 1);
            let used = usize::from(order[0].0)..=usize::from(order[order.len() - 1].0);
            let words = CodeWords::of(&sums, &used).unwrap();
            let mut bits = BitReader::new(&bytes);
            text.iter().all(|&rank| {
                let length = u32::from(order[rank].0);
                let found = words.first(bits.peek(LENGTH_MAX));
                let lone = order.len() == 1;
                bits.skip(if lone { 0 } else { length.into() }).unwrap();
                (lone || found == Some((length, rank as u32)))
                    && words.length_of(rank as u32) == Some(length as usize)
            }) && words.length_of(order.len() as u32).is_none()
        }
        kit::quick_check().tests(1_000).quickcheck(holds as fn(Vec<u16>, Vec<u16>) -> bool);
        assert!(holds((0..3_000).collect(), (0..3_000).map(|n| n * 7 % 3_000).collect()));
    }

    #[test]
    fn random_words_do_not_panic() {
        fn holds(counts: Vec<u8>, words: Vec<u32>) -> bool {
            let mut sums = [0; OUTER];
            sums.iter_mut().skip(1).zip(counts).for_each(|(sum, count)| *sum = count.into());
            if let Some(code) = CodeWords::of(&sums, &(1..=LENGTH_MAX as usize)) {
                for word in words {
                    code.first(word >> (32 - LENGTH_MAX));
                    code.length_of(word);
                }
            }
            true
        }
        kit::quick_check().tests(2_000).quickcheck(holds as fn(Vec<u8>, Vec<u32>) -> bool);
        assert_eq!(CodeWords::of(&[0; OUTER], &(1..=1)).unwrap().first(7), None);
    }
}
