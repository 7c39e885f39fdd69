//! Bit matrices, processed 64 bits at a time.

use std::ops::Range;

use crate::sys::vectors::{self, Work};

/// Transposes some rows of columns, from a multiple of 64 on. Bit n of a column, of which bit 0 is
/// the lowest of the first byte, is in row n. Calls `part` with parts of rows: the row, the first
/// column, and the bits of 64 columns from there.
pub(super) fn transpose(
    columns: &[&[u8]],
    rows: Range<u32>,
    mut part: impl FnMut(u32, usize, u64),
) {
    for (block, columns) in columns.chunks(64).enumerate() {
        for first in rows.clone().step_by(64) {
            let mut words = [0; 64];
            for (word, column) in words.iter_mut().zip(columns) {
                *word = word_at(column, first as usize / 8);
            }
            vectors::wide(Transpose(&mut words));
            for (row, word) in (first..rows.end).zip(words) {
                part(row, block * 64, word);
            }
        }
    }
}

/// The 8 bytes at an offset, zero beyond the end.
fn word_at(bytes: &[u8], at: usize) -> u64 {
    let rest = bytes.get(at..).unwrap_or_default();
    rest.first_chunk().map_or_else(
        || rest.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte)),
        |word| u64::from_le_bytes(*word),
    )
}

/// The reverse of [`transpose`]: reads rows, which begin at these bits, of `columns` bits each.
/// Calls `part` with parts of columns: the column, the first row, and the bits of 64 rows from
/// there.
pub(super) fn untranspose(
    bits: &[u8],
    rows: &[u64],
    columns: usize,
    mut part: impl FnMut(usize, usize, u64),
) {
    for first_column in (0..columns).step_by(64) {
        let count = (columns - first_column).min(64);
        for (block, rows) in rows.chunks(64).enumerate() {
            let mut words = [0; 64];
            for (word, row) in words.iter_mut().zip(rows) {
                *word = take(bits, row + first_column as u64);
            }
            // The bits of other rows that follow come out as columns that are not passed on.
            vectors::wide(Transpose(&mut words));
            for (column, word) in words.into_iter().take(count).enumerate() {
                part(first_column + column, block * 64, word);
            }
        }
    }
}

/// The 64 bits from bit `place` on, zero beyond the end.
fn take(bits: &[u8], place: u64) -> u64 {
    let (at, shift) = ((place / 8) as usize, place % 8);
    let bytes = bits.get(at..).unwrap_or_default();
    match bytes.first_chunk::<9>() {
        Some([low @ .., high]) => {
            u64::from_le_bytes(*low) >> shift | u64::from(*high) << 1 << (63 - shift)
        }
        None => word_at(bytes, 0) >> shift,
    }
}

/// Sets the bits of a word, the lowest at bit `place`.
pub(super) fn put(bits: &mut [u8], place: u64, word: u64) {
    let (at, shift) = ((place / 8) as usize, place % 8);
    let bytes = bits.get_mut(at..).unwrap_or_default();
    if let Some([low @ .., high]) = bytes.first_chunk_mut::<9>() {
        *low = (u64::from_le_bytes(*low) | word << shift).to_le_bytes();
        *high |= (word >> 1 >> (63 - shift)) as u8;
        return;
    }
    let wide = u128::from(word) << shift;
    bytes.iter_mut().zip(wide.to_le_bytes()).for_each(|(to, from)| *to |= from);
}

/// Writes words of bits one after the other, the lowest bit first.
pub(super) struct RowWriter {
    bytes: Vec<u8>,
    /// The last bits, fewer than 64, and their number.
    last: u64,
    count: u32,
}

impl RowWriter {
    /// Writes so many bytes.
    pub(super) fn of(bytes: usize) -> Self {
        Self { bytes: Vec::with_capacity(bytes + 8), last: 0, count: 0 }
    }

    /// Appends the lowest bits of a word, at most 64; the others are 0.
    #[inline]
    pub(super) fn put(&mut self, word: u64, bits: u32) {
        self.last |= word << self.count;
        let count = self.count + bits;
        if count >= 64 {
            self.bytes.extend(self.last.to_le_bytes());
            self.last = word.checked_shr(64 - self.count).unwrap_or(0);
        }
        self.count = count % 64;
    }

    /// All of them; unused bits of the last byte are 0.
    pub(super) fn finish(mut self) -> Vec<u8> {
        let last = self.last.to_le_bytes();
        self.bytes.extend(last.iter().take(self.count.div_ceil(8) as usize));
        self.bytes
    }
}

/// Transposes 64 times 64 bits (Warren, "Hacker's Delight", 7-3): swaps the
/// off-diagonal blocks, at each step of half the size.
struct Transpose<'a>(&'a mut [u64; 64]);

impl Work for Transpose<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let Self(words) = self;
        let mut width = 32;
        let mut mask = u64::MAX >> 32;
        while width > 0 {
            for pair in words.chunks_exact_mut(2 * width) {
                let (ones, others) = pair.split_at_mut(width);
                for (one, other) in ones.iter_mut().zip(others) {
                    let swapped = (*one >> width ^ *other) & mask;
                    *one ^= swapped << width;
                    *other ^= swapped;
                }
            }
            width /= 2;
            mask ^= mask << width;
        }
    }
}

/// The indices of the set bits.
pub(super) fn ones(words: impl IntoIterator<Item = u64>) -> impl Iterator<Item = usize> {
    words.into_iter().enumerate().flat_map(|(at, mut word)| {
        std::iter::from_fn(move || {
            let bit = (word != 0).then(|| word.trailing_zeros() as usize)?;
            word &= word - 1;
            Some(at * 64 + bit)
        })
    })
}

/// Whether a bit is set.
pub(super) fn is_set(words: &[u64], bit: usize) -> bool {
    words.get(bit / 64).is_some_and(|word| word >> (bit % 64) & 1 == 1)
}

/// Clears a bit.
pub(super) fn clear(words: &mut [u64], bit: usize) {
    if let Some(word) = words.get_mut(bit / 64) {
        *word &= !(1 << (bit % 64));
    }
}

/// A counter for each column, to which rows of bits are added. The counters are
/// stored as bit planes: the lowest bits of all counters, then the next ones.
pub(super) struct ColumnCounts {
    planes: Vec<Vec<u64>>,
    /// The next plane, if one is needed.
    next: Vec<u64>,
}

impl ColumnCounts {
    /// Zeros, for so many words of columns.
    pub(super) fn new(words: usize) -> Self {
        Self { planes: Vec::new(), next: vec![0; words] }
    }

    /// Adds 1 to the columns whose bit is set.
    pub(super) fn add(&mut self, row: impl IntoIterator<Item = u64>) {
        let mut any = 0;
        for ((at, bits), next) in row.into_iter().enumerate().zip(&mut self.next) {
            let mut carry = bits;
            for word in self.planes.iter_mut().filter_map(|plane| plane.get_mut(at)) {
                (*word, carry) = (*word ^ carry, *word & carry);
                if carry == 0 {
                    break;
                }
            }
            *next = carry;
            any |= carry;
        }
        if any != 0 {
            let words = self.next.len();
            self.planes.push(std::mem::replace(&mut self.next, vec![0; words]));
        }
    }

    /// The columns whose counters are at least `min`.
    pub(super) fn at_least(&self, min: u32) -> Vec<u64> {
        let words = self.next.len();
        let (mut more, mut equal) = (vec![0; words], vec![u64::MAX; words]);
        if min.checked_shr(self.planes.len() as u32).unwrap_or(0) != 0 {
            return more;
        }
        for (bit, plane) in self.planes.iter().enumerate().rev() {
            let wanted = min >> bit & 1 == 1;
            for ((more, equal), word) in more.iter_mut().zip(&mut equal).zip(plane) {
                if wanted {
                    *equal &= word;
                } else {
                    *more |= *equal & word;
                    *equal &= !word;
                }
            }
        }
        more.iter_mut().zip(equal).for_each(|(more, equal)| *more |= equal);
        more
    }

    /// The counter of a column.
    pub(super) fn at(&self, column: usize) -> u32 {
        let bit =
            |plane: &Vec<u64>| plane.get(column / 64).map_or(0, |word| word >> (column % 64) & 1);
        self.planes.iter().rev().fold(0, |sum, plane| sum << 1 | bit(plane) as u32)
    }
}

/// For each column, whether it has had a run of set bits as long as required, of rows that are
/// added one after the other. Each column has its own length. The counters are stored as bit
/// planes: one that reaches its length overflows.
pub(super) struct LongRuns {
    planes: Vec<Vec<u64>>,
    /// What the counters are set to by a bit that is not set.
    starts: Vec<Vec<u64>>,
    carry: Vec<u64>,
    row: Vec<u64>,
    reached: Vec<u64>,
}

impl LongRuns {
    /// Columns that must have runs of these lengths, each at least 1.
    pub(super) fn new(lengths: &[u32]) -> Self {
        let words = lengths.len().div_ceil(64);
        let bits = u32::BITS - lengths.iter().copied().max().unwrap_or(0).leading_zeros();
        let starts: Vec<Vec<u64>> = (0..bits)
            .map(|plane| {
                let mut start = vec![0; words];
                for (column, length) in lengths.iter().enumerate() {
                    let value = (1_u64 << bits) - u64::from(*length);
                    if let Some(word) = start.get_mut(column / 64) {
                        *word |= (value >> plane & 1) << (column % 64);
                    }
                }
                start
            })
            .collect();
        let zeros = vec![0; words];
        let (carry, row, reached) = (zeros.clone(), zeros.clone(), zeros);
        Self { planes: starts.clone(), starts, carry, row, reached }
    }

    /// Adds a row.
    pub(super) fn add(&mut self, row: impl Iterator<Item = u64>) {
        let Self { planes, starts, carry, row: words, reached } = self;
        words.iter_mut().zip(row).for_each(|(to, from)| *to = from);
        carry.copy_from_slice(words);
        for (plane, start) in planes.iter_mut().zip(starts) {
            let words = plane.iter_mut().zip(&*start).zip(&mut *carry).zip(&*words);
            for (((count, start), carry), row) in words {
                let sum = *count ^ *carry;
                *carry &= *count;
                *count = sum & row | start & !row;
            }
        }
        reached.iter_mut().zip(carry).for_each(|(reached, carry)| *reached |= *carry);
    }

    /// The columns that have had a run of their length.
    pub(super) fn reached(&self) -> &[u64] {
        &self.reached
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kit::quickcheck;

    quickcheck! {
        fn runs_are_those_of_each_column(rows: Vec<Vec<bool>>, lengths: Vec<u8>, dense: bool) -> bool {
            let lengths: Vec<u32> = lengths.into_iter().map(|length| u32::from(length % 9) + 1).collect();
            let is_set = |row: &Vec<bool>, column: usize| {
                row.get(column % row.len().max(1)).is_some_and(|set| *set) || dense && !column.is_multiple_of(3)
            };
            let mut runs = LongRuns::new(&lengths);
            for row in &rows {
                let mut words = vec![0_u64; lengths.len().div_ceil(64)];
                for column in (0..lengths.len()).filter(|&column| is_set(row, column)) {
                    words[column / 64] |= 1 << (column % 64);
                }
                runs.add(words.into_iter());
            }
            let reached: Vec<usize> = ones(runs.reached().iter().copied()).collect();
            let plain = (0..lengths.len()).filter(|&column| {
                let column_of: Vec<bool> = rows.iter().map(|row| is_set(row, column)).collect();
                column_of.chunk_by(|a, b| a == b).any(|run| run[0] && run.len() as u32 >= lengths[column])
            });
            reached == plain.collect::<Vec<_>>()
        }

        fn columns_are_transposed_to_rows(columns: Vec<u64>, copies: u8, bytes_of_each: u8) -> bool {
            let bytes_of_each = usize::from(bytes_of_each % 40);
            let count = columns.len() * usize::from(copies % 8);
            let columns: Vec<Vec<u8>> = columns.iter().cycle().take(count).zip(1_u64..).map(|(seed, n)| {
                (0..bytes_of_each).map(|byte| (seed.wrapping_mul(n | 1) >> (byte % 57)) as u8).collect()
            }).collect();
            let columns: Vec<&[u8]> = columns.iter().map(Vec::as_slice).collect();
            let rows = bytes_of_each * 8;
            // With one bit between rows, so that overlapping writes are
            // detected.
            let mut bits = vec![0; (rows * (count + 1)).div_ceil(8)];
            transpose(&columns, 0..rows as u32, |row, column, word| {
                put(&mut bits, (row as usize * (count + 1) + column) as u64, word);
            });
            let places: Vec<u64> = (0..rows).map(|row| (row * (count + 1)) as u64).collect();
            let mut back = vec![vec![0; bytes_of_each]; count];
            untranspose(&bits, &places, count, |column, row, word| {
                back[column][row / 8..].iter_mut().zip(word.to_le_bytes()).for_each(|(to, from)| *to = from);
            });
            back == columns && (0..rows * (count + 1)).all(|bit| {
                let (row, column) = (bit / (count + 1), bit % (count + 1));
                let set = bits[bit / 8] >> (bit % 8) & 1 == 1;
                set == columns.get(column).is_some_and(|column| column[row / 8] >> (row % 8) & 1 == 1)
            })
        }

        fn counters_count(rows: Vec<(u64, u64)>, min: u8) -> bool {
            let mut counts = ColumnCounts::new(2);
            let rows: Vec<[u64; 2]> = rows.iter().cycle().take(rows.len() * 4).map(|row| [row.0 | row.1 >> 3, row.1]).collect();
            rows.iter().for_each(|row| counts.add(*row));
            let plain = |column: usize| rows.iter().filter(|row| row[column / 64] >> (column % 64) & 1 == 1).count() as u32;
            let enough: Vec<usize> = ones(counts.at_least(u32::from(min))).collect();
            (0..128).all(|column| counts.at(column) == plain(column) && enough.contains(&column) == (plain(column) >= u32::from(min)))
        }
    }
}
