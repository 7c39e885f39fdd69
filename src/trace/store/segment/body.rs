//! The body of a segment as it is in the file: in blocks, each followed by its tag.
//!
//! A query reads some hundred bytes at some hundred places of a body. The tag of each block that
//! it touches is checked once; only the bytes that it wants are decrypted.

use std::cell::{Cell, RefCell};
use std::ops::Range;

use crate::sys::mapping::Mapping;
use crate::trace::Damage;

use super::super::cipher::{Stream, TAG_BYTES, Tagger};

/// The number of bytes in a block, without its tag.
pub(super) const BLOCK: usize = 1024;

/// The size of a body of so many bytes with its tags; `None` if it overflows.
pub(super) fn with_tags(body: u64) -> Option<u64> {
    body.div_ceil(BLOCK as u64).checked_mul(TAG_BYTES as u64)?.checked_add(body)
}

/// The blocks of a body.
#[derive(Debug)]
pub(super) struct BodyBlocks {
    /// The offset in the file.
    start: usize,
    /// The size of the body, without tags.
    bytes: usize,
    stream: Stream,
    tagger: Tagger,
    /// One bit for each block whose tag was checked, and right.
    sound: RefCell<Vec<u64>>,
    /// The last block whose tag was wrong, since it was asked for.
    wrong: Cell<Option<usize>>,
}

impl BodyBlocks {
    /// Those of a body of so many bytes, without tags, in this range of the file, with tags.
    pub(super) fn new(range: &Range<usize>, bytes: usize, stream: Stream, tagger: Tagger) -> Self {
        let (sound, wrong) = Default::default();
        Self { start: range.start, bytes, stream, tagger, sound, wrong }
    }

    /// The size of the body, without tags.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The number of blocks.
    pub(super) fn count(&self) -> usize {
        self.bytes.div_ceil(BLOCK)
    }

    fn is_known(&self, number: usize) -> bool {
        self.sound.borrow().get(number / 64).is_some_and(|word| word >> (number % 64) & 1 == 1)
    }

    fn set_known(&self, number: usize) {
        let mut sound = self.sound.borrow_mut();
        if sound.len() <= number / 64 {
            sound.resize(number / 64 + 1, 0);
        }
        if let Some(word) = sound.get_mut(number / 64) {
            *word |= 1 << (number % 64);
        }
    }

    /// Where a block is in the file, without its tag.
    fn range(&self, number: usize) -> Option<Range<usize>> {
        let length = self.bytes.checked_sub(number.checked_mul(BLOCK)?)?.min(BLOCK);
        let start = number.checked_mul(BLOCK + TAG_BYTES)?.checked_add(self.start)?;
        Some(start..start.checked_add(length)?)
    }

    /// A sound block, encrypted, and its offset in the file.
    fn block<'a>(&self, map: &'a Mapping, number: usize) -> Result<(&'a [u8], usize), Damage> {
        let range = self.range(number).ok_or(Damage("an offset is beyond its end"))?;
        let bytes = map.bytes(range.start, range.len() + TAG_BYTES);
        let bytes = bytes.ok_or(Damage("the file ends before it does"))?;
        if self.is_known(number) {
            return Ok((bytes.get(..range.len()).unwrap_or_default(), range.start));
        }
        let Some(block) = self.tagger.check(range.start as u64, bytes) else {
            self.wrong.set(Some(range.start));
            return Err(Damage("the tag of a block is wrong"));
        };
        self.set_known(number);
        Ok((block, range.start))
    }

    /// Reads at an offset of the body.
    pub(super) fn read(
        &self,
        map: &Mapping,
        mut offset: usize,
        mut into: &mut [u8],
    ) -> Result<(), Damage> {
        while !into.is_empty() {
            let (block, start) = self.block(map, offset / BLOCK)?;
            let within = offset % BLOCK;
            let found = block.get(within..).unwrap_or_default();
            let length = found.len().min(into.len());
            if length == 0 {
                return Err(Damage("an offset is beyond its end"));
            }
            let (part, rest) = into.split_at_mut(length);
            part.copy_from_slice(found.get(..length).unwrap_or_default());
            self.stream.apply((start + within) as u64, part);
            (offset, into) = (offset + length, rest);
        }
        Ok(())
    }

    /// The offset in the file of the block at which reading failed, if it did since this was
    /// last asked.
    pub(super) fn take_wrong(&self) -> Option<usize> {
        self.wrong.take()
    }

    /// The offsets in the file of the blocks that cannot be read.
    pub(super) fn all_wrong(&self, map: &Mapping) -> Vec<usize> {
        // A file that ends earlier has no more.
        let count = self.count().min(map.len().div_ceil(BLOCK));
        let wrong = (0..count).filter(|&number| self.block(map, number).is_err());
        wrong.filter_map(|number| Some(self.range(number)?.start)).collect()
    }
}
