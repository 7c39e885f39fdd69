//! Sections that consist of blocks, each read and checked by itself: damage
//! loses one of them.

use std::ops::Range;

use super::super::codec::checksum;
use super::bits::{BitReader, BitWriter};
use super::codes::{Codes, Counts, Sink, Writer};

/// A section that is being made.
#[derive(Debug, Default)]
pub(super) struct Section {
    pub(super) bytes: Vec<u8>,
    /// Of each block: its bytes, and their checksum.
    table: Vec<(u32, u32)>,
}

impl Section {
    /// Appends a block.
    pub(super) fn push(&mut self, block: &[u8]) {
        // No block is larger than the log it is made from.
        self.table.push((block.len() as u32, checksum(0, block)));
        self.bytes.extend(block);
    }

    /// Writes the table of its blocks.
    pub(super) fn write_table(&self, bits: &mut BitWriter) {
        for &(length, crc) in &self.table {
            bits.put(length.into(), 32);
            bits.put(crc.into(), 32);
        }
    }
}

/// The ranges of blocks of `each` things, of `count`.
fn ranges(count: usize, each: usize) -> impl Iterator<Item = Range<usize>> {
    (0..count).step_by(each).map(move |start| start..count.min(start + each))
}

/// Things of one kind, to be written in blocks.
pub(super) trait Things {
    /// How many there are.
    fn count(&self) -> usize;

    /// How many are in a block.
    const EACH: usize;

    /// Puts some of them, which make a block.
    fn put(&self, range: Range<usize>, sink: &mut dyn Sink);

    /// Counts the symbols of all.
    fn count_symbols(&self, counts: &mut Counts) {
        ranges(self.count(), Self::EACH).for_each(|range| self.put(range, counts));
    }

    /// Writes all.
    fn write(&self, codes: &Codes) -> Section {
        let mut section = Section::default();
        for range in ranges(self.count(), Self::EACH) {
            let mut writer = Writer::new(codes);
            self.put(range, &mut writer);
            section.push(&writer.bits.finish());
        }
        section
    }
}

/// Where the blocks of a section are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Table {
    /// Of each block: where it is in the section, and its checksum.
    blocks: Vec<(Range<usize>, u32)>,
}

impl Table {
    /// Reads the table of a section with `count` things, `each` a block.
    pub(super) fn read(count: u32, each: usize, bits: &mut BitReader<'_>) -> Option<Self> {
        let (mut blocks, mut start) = (Vec::new(), 0_usize);
        // It ends with the bits, whatever the count.
        for _ in 0..(count as usize).div_ceil(each) {
            let end = start.checked_add(bits.take(32)? as usize)?;
            blocks.push((start..end, bits.take(32)? as u32));
            start = end;
        }
        Some(Self { blocks })
    }

    /// How many blocks there are.
    pub(super) fn len(&self) -> usize {
        self.blocks.len()
    }

    /// The range of a block, and its checksum.
    pub(super) fn block(&self, number: usize) -> Option<(Range<usize>, u32)> {
        self.blocks.get(number).cloned()
    }
}
