//! Sections made of blocks, each with a tag, so that it is read and checked separately, and
//! damage loses one block only.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;

use super::super::cipher::TAG_BYTES;
use super::Segment;
use super::bits::{BitReader, BitWriter};
use super::codes::{Codes, Sink, SymbolCounts, Writer};

/// The number of bits of the bit length of a block's size.
const SIZE_BITS: u32 = 6;

/// A section being built.
#[derive(Debug, Default)]
pub(super) struct Section {
    bytes: Vec<u8>,
    /// The size of each block.
    table: Vec<u32>,
}

impl Section {
    /// Appends a block.
    pub(super) fn push(&mut self, block: &[u8]) {
        // A block is never larger than the log it is made from.
        self.table.push(block.len() as u32);
        self.bytes.extend(block);
    }

    /// Writes the table of the blocks.
    pub(super) fn write_table(&self, bits: &mut BitWriter) {
        self.table.iter().for_each(|&size| bits.put_number(size.into(), SIZE_BITS));
    }

    /// The blocks, without tags.
    pub(super) fn blocks(&self) -> impl Iterator<Item = &[u8]> {
        let mut rest = self.bytes.as_slice();
        self.table.iter().map(move |&length| {
            let (block, after) = rest.split_at_checked(length as usize).unwrap_or((rest, &[]));
            rest = after;
            block
        })
    }
}

/// The ranges of blocks of `each` items, for `count` items.
fn ranges(count: usize, each: usize) -> impl Iterator<Item = Range<usize>> {
    (0..count).step_by(each).map(move |start| start..count.min(start + each))
}

/// Items of one kind, which are written in blocks.
pub(super) trait BlockItems {
    /// The total number of items.
    fn count(&self) -> usize;

    /// The number of items in a block.
    const EACH: usize;

    /// Puts the items of one block.
    fn put(&self, range: Range<usize>, sink: &mut dyn Sink);

    /// Counts the symbols of all items.
    fn count_symbols(&self, counts: &mut SymbolCounts) {
        ranges(self.count(), Self::EACH).for_each(|range| self.put(range, counts));
    }

    /// Writes all items.
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

/// Blocks that were read; `None` for one that is damaged.
#[derive(Debug)]
pub(super) struct Cache<T>(RefCell<BTreeMap<usize, Option<Rc<T>>>>);

impl<T> Default for Cache<T> {
    fn default() -> Self {
        Self(RefCell::default())
    }
}

impl<T> Cache<T> {
    /// A block, read by `read` the first time; `None` if it is damaged.
    pub(super) fn get(&self, number: usize, read: impl FnOnce() -> Option<T>) -> Option<Rc<T>> {
        if let Some(cached) = self.0.borrow().get(&number) {
            return cached.clone();
        }
        let found = read().map(Rc::new);
        self.0.borrow_mut().insert(number, found.clone());
        found
    }

    /// Whether a block that was read is damaged.
    pub(super) fn has_damaged(&self) -> bool {
        self.0.borrow().values().any(Option::is_none)
    }
}

/// The positions of the blocks of a section.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct BlockTable {
    /// The range of each block in the section, with its tag.
    blocks: Vec<Range<usize>>,
}

impl BlockTable {
    /// Reads the table of a section with `count` items, `each` in a block.
    pub(super) fn read(count: u32, each: usize, bits: &mut BitReader<'_>) -> Option<Self> {
        let (mut blocks, mut start) = (Vec::new(), 0_usize);
        // It stops at the end of the bits, whatever the count.
        for _ in 0..(count as usize).div_ceil(each) {
            let size = usize::try_from(bits.take_number(SIZE_BITS)?).ok()?;
            let end = start.checked_add(size)?.checked_add(TAG_BYTES)?;
            blocks.push(start..end);
            start = end;
        }
        Some(Self { blocks })
    }

    /// The number of blocks.
    pub(super) fn len(&self) -> usize {
        self.blocks.len()
    }

    /// Whether the tags of all blocks of a section, which has this table, are right.
    pub(super) fn is_authentic(&self, segment: &Segment, section: usize) -> bool {
        self.blocks.iter().all(|range| segment.block(section, range.clone()).is_some())
    }

    /// The range of a block, with its tag.
    pub(super) fn block(&self, number: usize) -> Option<Range<usize>> {
        self.blocks.get(number).cloned()
    }
}
