//! Reading symbols of a code as their ranks: their places in the order of the words.
//!
//! A code of many symbols, such as the addresses of a segment, is mostly read to find a few of
//! them, or to show a few messages. A table of all symbols takes longer to make than that. The
//! rank of a symbol can be told from its word alone, and two symbols are equal if their ranks
//! are.

use std::cell::{Cell, OnceCell};

use super::bits::BitReader;
use super::huffman::{LENGTH_MAX, OUTER, histogram};

/// The number of bits by which the search for the length of a word begins.
const START_BITS: u32 = 8;
/// From so many symbols on that are looked up by their ranks, a table of all of them is made.
const TABLE_FROM: u32 = 64;
/// So many lengths are compared before it is checked how many of them were equal: few enough
/// that a byte can count them.
const AT_ONCE: usize = 128;

/// A code for reading ranks.
#[derive(Clone, Debug)]
pub(super) struct Ranks {
    /// For each value of the first bits: the length of the shortest word that begins with them.
    shortest: [u8; 1 << START_BITS],
    /// For each length, aligned to the longest word: the first value that does not begin with a
    /// word of this length or a shorter one.
    ends: [u32; OUTER],
    /// For each length: its first word, aligned, and the rank of its symbol.
    firsts: [(u32, u32); OUTER],
    /// The number of symbols that occur.
    count: u32,
    /// How many symbols were looked up.
    asked: Cell<u32>,
    /// The symbols by rank.
    symbols: OnceCell<Vec<u32>>,
}

impl Ranks {
    /// The code with these lengths of words; `None` if they are not those of a prefix code.
    pub(super) fn of(lengths: &[u8]) -> Option<Self> {
        let counts = histogram(lengths)?;
        let (mut ends, mut firsts) = ([0; OUTER], [(0, 0); OUTER]);
        let (mut next, mut rank) = (0_u64, 0_u32);
        let each = ends.iter_mut().zip(&mut firsts).zip(&counts).zip(0..);
        for (((end, first), &count), length) in each.skip(1) {
            *first = (next as u32, rank);
            next += u64::from(count) << (LENGTH_MAX - length);
            if next > 1 << LENGTH_MAX {
                return None;
            }
            *end = next as u32;
            rank += count;
        }
        let mut shortest = [0; 1 << START_BITS];
        let mut length = 1_u8;
        for (start, shortest) in (0..).zip(&mut shortest) {
            let word = start << (LENGTH_MAX - START_BITS);
            while ends.get(usize::from(length)).is_some_and(|&end| word >= end) {
                length += 1;
            }
            *shortest = length;
        }
        let (asked, symbols) = Default::default();
        Some(Self { shortest, ends, firsts, count: rank, asked, symbols })
    }

    /// Reads a rank; `None` if there is none.
    #[inline]
    pub(super) fn take(&self, reader: &mut BitReader<'_>) -> Option<u32> {
        if self.count == 1 {
            return Some(0);
        }
        let word = reader.peek(LENGTH_MAX);
        let start = *self.shortest.get((word >> (LENGTH_MAX - START_BITS)) as usize)?;
        let mut length = usize::from(start);
        while word >= *self.ends.get(length)? {
            length += 1;
        }
        let (first, rank) = *self.firsts.get(length)?;
        reader.skip(length as u64)?;
        Some(rank + ((word - first) >> (LENGTH_MAX as usize - length)))
    }

    /// The rank of a symbol of the code with these lengths; `None` if it does not occur.
    pub(super) fn of_symbol(&self, lengths: &[u8], symbol: u32) -> Option<u32> {
        let (before, rest) = lengths.split_at_checked(symbol as usize)?;
        let length = *rest.first().filter(|&&length| length > 0)?;
        let (_, first) = *self.firsts.get(usize::from(length))?;
        let equal = before.chunks(AT_ONCE).map(|chunk| u32::from(equal(chunk, length)));
        Some(first + equal.sum::<u32>())
    }

    /// The ranks of some symbols of the code with these lengths, in order, without those that
    /// do not occur.
    pub(super) fn of_symbols(&self, lengths: &[u8], symbols: &[u32]) -> Vec<u32> {
        let mut ranks: Vec<u32> = if symbols.len() < TABLE_FROM as usize {
            symbols.iter().filter_map(|&symbol| self.of_symbol(lengths, symbol)).collect()
        } else {
            let all = (0..).zip(self.table(lengths));
            let wanted = all.filter(|(_, symbol)| symbols.binary_search(symbol).is_ok());
            wanted.map(|(rank, _)| rank).collect()
        };
        ranks.sort_unstable();
        ranks
    }

    /// The symbol with this rank of the code with these lengths; `None` if there is none.
    pub(super) fn symbol(&self, lengths: &[u8], rank: u32) -> Option<u32> {
        if self.asked.get() >= TABLE_FROM {
            return self.table(lengths).get(rank as usize).copied();
        }
        self.asked.set(self.asked.get() + 1);
        // The last length whose first rank is not after it is one that has words: those without
        // any have the same first rank as the next.
        let (length, (_, first)) = (1..)
            .zip(self.firsts.iter().skip(1))
            .take_while(|(_, (_, first))| *first <= rank)
            .last()?;
        let mut left = rank - first;
        for (chunk, before) in lengths.chunks(AT_ONCE).zip((0..).step_by(AT_ONCE)) {
            let found = u32::from(equal(chunk, length));
            if left >= found {
                left -= found;
                continue;
            }
            let mut these = (before..).zip(chunk).filter(|(_, one)| **one == length);
            return these.nth(left as usize).map(|(symbol, _)| symbol);
        }
        None
    }

    /// The symbols by rank.
    fn table(&self, lengths: &[u8]) -> &[u32] {
        self.symbols.get_or_init(|| {
            let mut next = self.firsts.map(|(_, rank)| rank);
            // Those that never occur come after the others, so that nothing depends on that.
            next[0] = self.count;
            let mut symbols = vec![0; lengths.len()];
            for (symbol, &length) in (0..).zip(lengths) {
                let Some(next) = next.get_mut(usize::from(length)) else { continue };
                if let Some(place) = symbols.get_mut(*next as usize) {
                    *place = symbol;
                }
                *next += 1;
            }
            symbols.truncate(self.count as usize);
            symbols
        })
    }
}

/// How many of at most 255 lengths are equal to one.
fn equal(lengths: &[u8], length: u8) -> u8 {
    lengths.iter().map(|&one| u8::from(one == length)).sum()
}

#[cfg(test)]
mod tests {
    use super::super::bits::BitWriter;
    use super::super::huffman::{Code, Decoder};
    use super::*;

    #[test]
    fn ranks_are_those_of_the_symbols() {
        fn holds(counts: Vec<u16>, text: Vec<u16>) -> bool {
            let counts: Vec<u32> = counts.into_iter().map(|n| u32::from(n % 300)).collect();
            let occur: Vec<u32> =
                (0..).zip(&counts).filter(|(_, n)| **n > 0).map(|(n, _)| n).collect();
            if occur.is_empty() {
                return true;
            }
            let text: Vec<u32> =
                text.into_iter().map(|n| occur[usize::from(n) % occur.len()]).collect();
            let (code, mut writer, mut table) =
                (Code::of(&counts), BitWriter::default(), BitWriter::default());
            Code::write(&counts, &mut table);
            let table = table.finish();
            let lengths = Decoder::read_lengths(counts.len(), &mut BitReader::new(&table)).unwrap();
            text.iter().for_each(|&symbol| code.put(symbol, &mut writer));
            let bytes = writer.finish();
            let (ranks, mut reader) = (Ranks::of(&lengths).unwrap(), BitReader::new(&bytes));
            let all = ranks.of_symbols(&lengths, &occur);
            let fits = text.iter().all(|&symbol| {
                let rank = ranks.take(&mut reader).unwrap();
                ranks.of_symbol(&lengths, symbol) == Some(rank)
                    && ranks.symbol(&lengths, rank) == Some(symbol)
            });
            fits && all == (0..occur.len() as u32).collect::<Vec<_>>()
                && ranks.symbol(&lengths, occur.len() as u32).is_none()
                && (0..counts.len())
                    .all(|n| counts[n] > 0 || ranks.of_symbol(&lengths, n as u32).is_none())
        }
        quickcheck::QuickCheck::new()
            .tests(1_000)
            .quickcheck(holds as fn(Vec<u16>, Vec<u16>) -> bool);
        assert!(holds((0..3_000).collect(), (0..3_000).map(|n| n * 7 % 3_000).collect()));
    }

    #[test]
    fn random_lengths_do_not_panic() {
        fn holds(lengths: Vec<u8>, bytes: Vec<u8>, ranks: Vec<u32>) -> bool {
            let lengths: Vec<u8> = lengths.into_iter().map(|length| length % 26).collect();
            if let Some(code) = Ranks::of(&lengths) {
                let mut reader = BitReader::new(&bytes);
                while code.take(&mut reader).is_some_and(|_| code.count > 1) {}
                for rank in ranks.into_iter().chain(0..200) {
                    code.symbol(&lengths, rank);
                    code.of_symbol(&lengths, rank);
                }
            }
            true
        }
        quickcheck::QuickCheck::new()
            .tests(2_000)
            .quickcheck(holds as fn(Vec<u8>, Vec<u8>, Vec<u32>) -> bool);
        assert!(Ranks::of(&[]).unwrap().take(&mut BitReader::new(&[7; 8])).is_none());
    }
}
