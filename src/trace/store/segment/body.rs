//! The body of a segment as it is in the file: in blocks, each followed by its tag.
//!
//! A query reads some hundred bytes at some hundred places of a body. The tag of each block that
//! it touches is checked once; only the bytes that it wants are decrypted.

use std::cell::{Cell, RefCell};
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;

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
    /// What was read from the file.
    buffer: RefCell<Vec<u8>>,
}

impl BodyBlocks {
    /// Those of a body of so many bytes, without tags, in this range of the file, with tags.
    pub(super) fn new(range: &Range<usize>, bytes: usize, stream: Stream, tagger: Tagger) -> Self {
        let (sound, wrong, buffer) = Default::default();
        Self { start: range.start, bytes, stream, tagger, sound, wrong, buffer }
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

    /// Checks a block that was read, with its tag, from this offset of the file, unless that was
    /// done before; returns it without its tag, encrypted.
    fn checked<'a>(
        &self,
        number: usize,
        start: usize,
        bytes: &'a [u8],
    ) -> Result<&'a [u8], Damage> {
        if self.is_known(number) {
            return Ok(bytes.split_last_chunk::<TAG_BYTES>().map_or(&[], |(block, _)| block));
        }
        let Some(block) = self.tagger.check(start as u64, bytes) else {
            self.wrong.set(Some(start));
            return Err(Damage("the tag of a block is wrong"));
        };
        self.set_known(number);
        Ok(block)
    }

    /// Reads at an offset of the body: from the file if it is given. To read a little at many
    /// places, that is faster than from memory, of which the kernel would map sixteen pages at
    /// each.
    pub(super) fn read(
        &self,
        map: &Mapping,
        file: Option<&File>,
        offset: usize,
        into: &mut [u8],
    ) -> Result<(), Damage> {
        let Some(last) = offset.checked_add(into.len()).and_then(|end| end.checked_sub(1)) else {
            return Ok(());
        };
        let beyond = Damage("an offset is beyond its end");
        let (first, last) = (offset / BLOCK, last / BLOCK);
        let start = self.range(first).ok_or(beyond)?.start;
        let end = self.range(last).ok_or(beyond)?.end + TAG_BYTES;
        let short = Damage("the file ends before it does");
        let mut buffer = self.buffer.borrow_mut();
        let bytes = match file {
            None => map.bytes(start, end - start).ok_or(short)?,
            Some(file) => {
                if buffer.len() < end - start {
                    buffer.resize(end - start, 0);
                }
                let buffer = buffer.get_mut(..end - start).unwrap_or_default();
                file.read_exact_at(buffer, start as u64).map_err(|_| short)?;
                buffer
            }
        };
        let (mut within, mut into) = (offset % BLOCK, into);
        let blocks = bytes.chunks(BLOCK + TAG_BYTES);
        for ((number, start), bytes) in
            (first..).zip((start..).step_by(BLOCK + TAG_BYTES)).zip(blocks)
        {
            let block = self.checked(number, start, bytes)?;
            let found = block.get(within..).unwrap_or_default();
            let (part, rest) = into.split_at_mut(found.len().min(into.len()));
            part.copy_from_slice(found.get(..part.len()).unwrap_or_default());
            self.stream.apply((start + within) as u64, part);
            (within, into) = (0, rest);
        }
        if into.is_empty() { Ok(()) } else { Err(beyond) }
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
        let ranges = (0..count).filter_map(|number| Some((number, self.range(number)?)));
        let wrong = ranges.filter(|(number, range)| {
            let bytes = map.bytes(range.start, range.len() + TAG_BYTES);
            bytes.is_none_or(|bytes| self.checked(*number, range.start, bytes).is_err())
        });
        wrong.map(|(_, range)| range.start).collect()
    }
}
