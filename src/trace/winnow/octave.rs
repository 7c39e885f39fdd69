//! The layout of filters that differ in size by less than a factor of two.
//!
//! A hash falls on one bit of a filter of any size. As fractions of the filter,
//! all those bits begin just below the hash. So the bits of filters of several
//! sizes are sorted by the fraction at which they begin. Then those for one
//! hash, of all messages, are in a short range that is read at once.
//!
//! The filters of an octave have the same number of buckets, and the order is
//! the same in each bucket. Within a bucket, bit q of all filters of one size
//! is a row, with one bit for each message. Rows follow each other without
//! gaps; bit 0 is the lowest bit of the first byte.

use std::ops::Range as Span;

use crate::trace::{Body, Damage};

use super::class::Class;
use super::hashing::bit;
use super::matrix::{self, RowWriter};

/// So many buckets are written at once: a multiple of 64 rows of each size.
const TOGETHER: u32 = 64;

/// Where the words of a row are: those of the first bucket, and how far apart those of two buckets
/// are.
struct RowInBuckets {
    first: usize,
    width: usize,
    each: usize,
    /// The number of messages.
    bits: u32,
}

/// The messages whose filters have one size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Group {
    /// The size that the filters had before folding.
    pub(super) class: Class,
    /// The number of the first message.
    pub(super) first: u32,
    /// The number of messages.
    pub(super) messages: u32,
    /// The bit offsets of the rows in a bucket.
    starts: Vec<u64>,
}

/// The messages whose filters have sizes of one octave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Octave {
    /// The current number of buckets.
    buckets: u32,
    /// The length of a bucket in bits.
    bucket: u64,
    /// The groups, by size.
    pub(super) groups: Vec<Group>,
    /// The byte offset in the body of the filters.
    pub(super) offset: usize,
    /// That of their fills.
    pub(super) fills: usize,
}

impl Group {
    /// The group of these messages; its octave computes where its rows are.
    pub(super) fn new(class: Class, first: u32, messages: u32) -> Self {
        Self { class, first, messages, starts: Vec::new() }
    }

    /// The number of words of 64 messages each.
    pub(super) fn words(&self) -> usize {
        (self.messages as usize).div_ceil(64)
    }
}

impl Octave {
    /// The octave of some groups, at least one, sorted by size, and folded so
    /// often.
    pub(super) fn new(mut groups: Vec<Group>, folds: u8, offset: usize) -> Self {
        let sizes: Vec<(u64, u64)> = groups
            .iter()
            .map(|group| (u64::from(group.class.units()), u64::from(group.messages)))
            .collect();
        for (this, group) in groups.iter_mut().enumerate() {
            let units = u64::from(group.class.units());
            let start = |row: u64| {
                // The number of rows of another size that begin before this
                // one's fraction, or at the same fraction if they are smaller.
                let before = |(other, &(others, messages)): (usize, &(u64, u64))| {
                    let rows = row * others;
                    messages * if other < this { rows / units + 1 } else { rows.div_ceil(units) }
                };
                sizes.iter().enumerate().map(before).sum()
            };
            group.starts = (0..units).map(start).collect();
        }
        let bucket = sizes.iter().map(|(units, messages)| units * messages).sum();
        let buckets = groups.first().map_or(0, |group| group.class.buckets()) >> folds;
        Self { buckets, bucket, groups, offset, fills: 0 }
    }

    /// Its length in bytes.
    pub(super) fn bytes(&self) -> u64 {
        // Below 2^61: at most 2^19 buckets of eight times 15 times 2^32 bits.
        (u64::from(self.buckets) * self.bucket).div_ceil(8)
    }

    /// The number of bits used in its last byte; 0 if all are.
    pub(super) fn rest(&self) -> u64 {
        u64::from(self.buckets) * self.bucket % 8
    }

    /// The number of its messages.
    pub(super) fn messages(&self) -> u32 {
        self.groups.iter().map(|group| group.messages).sum()
    }

    /// The number of rows of a group: the current number of bits of its
    /// filters.
    pub(super) fn rows(&self, group: &Group) -> u32 {
        group.class.units() * self.buckets
    }

    /// The bit offset of a row of a group.
    pub(super) fn place(&self, group: &Group, row: u32) -> u64 {
        let units = group.class.units().max(1);
        let start = group.starts.get((row % units) as usize).copied().unwrap_or(0);
        u64::from(row / units) * self.bucket + start
    }

    /// The bit offsets of all rows of a group, in order.
    pub(super) fn places(&self, group: &Group) -> Vec<u64> {
        let mut places = Vec::with_capacity(self.rows(group) as usize);
        for number in 0..u64::from(self.buckets) {
            places.extend(group.starts.iter().map(|start| number * self.bucket + start));
        }
        places
    }

    /// Writes the rows of columns, which are the filters of all groups, one after the other.
    pub(super) fn write(&self, columns: &[&[u8]]) -> Vec<u8> {
        let mut bits = RowWriter::of(self.bytes() as usize);
        // The rows of some buckets, of one group after the other, in words of 64 messages.
        let mut words = Vec::new();
        let together = self.buckets.min(TOGETHER);
        let mut order = Vec::new();
        for group in &self.groups {
            let (units, width) = (group.class.units() as usize, group.words());
            let after = words.len() + together as usize * units * width;
            let rows = group.starts.iter().zip((words.len()..).step_by(width.max(1)));
            order.extend(rows.map(|(&start, first)| {
                (start, RowInBuckets { first, width, each: units * width, bits: group.messages })
            }));
            words.resize(after, 0);
        }
        // As they follow each other in a bucket.
        order.sort_unstable_by_key(|(start, _)| *start);
        for first in (0..self.buckets).step_by(TOGETHER as usize) {
            let end = self.buckets.min(first + TOGETHER);
            let (mut rest, mut before) = (columns, 0);
            for group in &self.groups {
                let (units, width) = (group.class.units(), group.words());
                let these;
                (these, rest) = rest.split_at(rest.len().min(group.messages as usize));
                let first = first * units;
                matrix::transpose(these, first..end * units, |row, column, word| {
                    let at = before + (row - first) as usize * width + column / 64;
                    if let Some(to) = words.get_mut(at) {
                        *to = word;
                    }
                });
                before += together as usize * units as usize * width;
            }
            for bucket in 0..(end - first) as usize {
                for (_, row) in &order {
                    let first = row.first + bucket * row.each;
                    let mut left = row.bits;
                    for &word in words.get(first..first + row.width).unwrap_or_default() {
                        bits.put(word, left.min(64));
                        left = left.saturating_sub(64);
                    }
                }
            }
        }
        bits.finish()
    }

    /// Reads the rows of an element for some of the groups. Returns the error
    /// if they are beyond the body.
    pub(super) fn read<'g>(
        &self,
        body: &Body<'_>,
        element: u64,
        groups: impl Iterator<Item = &'g Group>,
        into: &mut Range,
    ) -> Result<(), Damage> {
        let groups = groups.map(|group| (group, 0..group.messages));
        self.read_columns(body, element, groups, into)
    }

    /// The same for some messages of each group, numbered from its first one.
    pub(super) fn read_columns<'g>(
        &self,
        body: &Body<'_>,
        element: u64,
        groups: impl Iterator<Item = (&'g Group, Span<u32>)>,
        into: &mut Range,
    ) -> Result<(), Damage> {
        let bytes = self.bytes();
        if bytes <= WHOLE_MAX {
            if into.whole != Some(self.offset) {
                into.fill(body, self.offset, 0, bytes * 8)?;
                into.whole = Some(self.offset);
            }
            return Ok(());
        }
        self.read_rows(body, element, groups, into)
    }

    /// The same, and nothing but these rows and what is between them.
    fn read_rows<'g>(
        &self,
        body: &Body<'_>,
        element: u64,
        groups: impl Iterator<Item = (&'g Group, Span<u32>)>,
        into: &mut Range,
    ) -> Result<(), Damage> {
        let places = groups.map(|(group, columns)| {
            let place = self.place(group, bit(element, self.rows(group)));
            (place + u64::from(columns.start), place + u64::from(columns.end))
        });
        let (first, end) =
            places.fold((u64::MAX, 0), |(first, end), (from, to)| (first.min(from), end.max(to)));
        into.fill(body, self.offset, first.min(end), end)
    }
}

/// An octave of up to so many bytes is read as a whole: that takes no longer than to read the
/// rows of some elements.
const WHOLE_MAX: u64 = 12 << 10;

/// A range of an octave that was read.
#[derive(Default)]
pub(super) struct Range {
    bytes: Vec<u8>,
    /// The bit of the octave at which it begins.
    first: u64,
    /// The offset of the octave, if all of it was read.
    whole: Option<usize>,
}

impl Range {
    /// Reads the bits from `first` up to `end`.
    pub(super) fn fill(
        &mut self,
        body: &Body<'_>,
        offset: usize,
        first: u64,
        end: u64,
    ) -> Result<(), Damage> {
        self.whole = None;
        self.first = first / 8 * 8;
        let length = (end.div_ceil(8) - first / 8) as usize;
        if length > body.len() {
            return Err(Damage("an offset is beyond its end"));
        }
        // Two more words, so that each word has a successor.
        self.bytes.resize(length + 16, 0);
        let (bytes, beyond) = self.bytes.split_at_mut(length);
        beyond.fill(0);
        body.read(offset + (first / 8) as usize, bytes)
    }

    /// The bits at `place` as words. Those beyond the last bit are zero.
    pub(super) fn words(&self, place: u64, bits: u32) -> impl Iterator<Item = u64> {
        let skipped = place.saturating_sub(self.first);
        let rest = self.bytes.get((skipped / 8) as usize..).unwrap_or_default();
        let (chunks, _) = rest.as_chunks::<8>();
        let pairs = chunks.iter().zip(chunks.get(1..).unwrap_or_default());
        let count = bits.div_ceil(64) as usize;
        let mask = u64::MAX >> (count as u64 * 64 - u64::from(bits));
        pairs.take(count).enumerate().map(move |(number, (low, high))| {
            let (low, high) = (u64::from_le_bytes(*low), u64::from_le_bytes(*high));
            let word = low >> (skipped % 8) | high << 1 << (63 - skipped % 8);
            if number + 1 == count { word & mask } else { word }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::filter;
    use kit::quickcheck;

    /// An octave with some of its sizes, and some messages of each.
    fn octave(number: u8, messages: &[u8], folds: u8) -> Option<Octave> {
        let mut first = 0;
        let groups = (0..8).zip(messages).filter(|(_, messages)| **messages > 0);
        let groups = groups.filter_map(|(size, &messages)| {
            let class = Class::numbered(number * 8 + size).filter(|class| class.bits() > 0)?;
            first += u32::from(messages);
            Some(Group::new(class, first - u32::from(messages), u32::from(messages)))
        });
        let groups: Vec<Group> = groups.collect();
        (!groups.is_empty()).then(|| Octave::new(groups, folds, 0))
    }

    quickcheck! {
        fn rows_are_adjacent(number: u8, messages: Vec<u8>, folds: u8) -> bool {
            let Some(octave) = octave(number % 5, &messages, folds % 4) else { return true };
            let mut rows: Vec<(u64, u64)> = octave.groups.iter().flat_map(|group| {
                let octave = &octave;
                (0..octave.rows(group)).map(move |row| {
                    let place = octave.place(group, row);
                    (place, place + u64::from(group.messages))
                })
            }).collect();
            rows.sort_unstable();
            let bits = octave.bytes() * 8 - (8 - octave.rest()) % 8;
            rows.first().is_some_and(|row| row.0 == 0)
                && rows.last().is_some_and(|row| row.1 == bits)
                && rows.windows(2).all(|pair| pair[0].1 == pair[1].0)
        }

        fn rows_are_written_where_they_are_read(number: u8, messages: Vec<u8>) -> bool {
            let Some(octave) = octave(number % 5, &messages, 0) else { return true };
            let mut columns: Vec<Vec<u8>> = Vec::new();
            for group in &octave.groups {
                for message in 0..group.messages {
                    let byte = |n: usize| ((n * n * (message as usize + 3)) >> 4) as u8;
                    columns.push((0..group.class.bytes()).map(byte).collect());
                }
            }
            let bits = octave.write(&columns.iter().map(Vec::as_slice).collect::<Vec<_>>());
            let mut rest = columns.as_slice();
            bits.len() as u64 == octave.bytes() && octave.groups.iter().all(|group| {
                let these;
                (these, rest) = rest.split_at(group.messages as usize);
                octave.places(group).iter().zip(0..).all(|(place, row)| {
                    these.iter().zip(*place as usize..).all(|(column, bit)| {
                        filter::is_set(&bits, bit) == filter::is_set(column, row)
                    }) && *place == octave.place(group, row as u32)
                })
            })
        }

        fn the_rows_of_an_element_are_read(number: u8, messages: Vec<u8>, element: u64, few: bool) -> bool {
            let Some(octave) = octave(number % 5, &messages, 0) else { return true };
            let bytes: Vec<u8> = (0..octave.bytes()).map(|n| (n.wrapping_mul(n) >> 3) as u8).collect();
            let (mut range, mut all) = (Range::default(), Range::default());
            let groups = octave.groups.iter().skip(usize::from(few));
            let rows = groups.clone().map(|group| (group, 0..group.messages));
            octave.read_rows(&Body::plain(&bytes), element, rows, &mut range).unwrap();
            octave.read(&Body::plain(&bytes), element, groups.clone(), &mut all).unwrap();
            // An eighth of a bucket, and the two rows at its ends.
            let max = octave.bucket / octave.groups[0].class.units().max(1) as u64;
            let short = range.bytes.len() as u64 <= max / 8 * 2 + 2 * 256 / 8 + 18;
            short && groups.clone().all(|group| {
                let place = octave.place(group, bit(element, octave.rows(group)));
                let ones: Vec<usize> = matrix::ones(range.words(place, group.messages)).collect();
                let plain = (0..group.messages as usize).filter(|column| {
                    let bit = place as usize + column;
                    bytes[bit / 8] >> (bit % 8) & 1 == 1
                });
                let of_all = matrix::ones(all.words(place, group.messages));
                ones == plain.collect::<Vec<_>>() && of_all.eq(ones)
            })
        }
    }
}
