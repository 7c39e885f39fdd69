//! A segment: the messages of a full log, laid out for fast queries.
//!
//! It consists of a head, tables, words, envelopes, positions, the body with
//! the digests, and second copies of the tables and the head, on which
//! everything else depends. Everything except the first bytes of a head is
//! encrypted by its offset, and every part has a tag, so that any of them can be
//! read separately, and nothing is read that was changed.

mod authenticated;
mod bits;
mod blocks;
mod body;
mod build;
mod codes;
mod dictionary;
mod head;
mod huffman;
mod ids;
mod lookup;
mod many;
mod messages;
mod positions;
mod read;
mod rewrite;
mod rows;
mod sound;
#[cfg(test)]
mod tests;

use std::ffi::CStr;
use std::fs::File;
use std::ops::Range;
use std::time::Instant;

use crate::sys::files::Access;
use crate::sys::mapping::Mapping;
use crate::sys::secure_dir::{DirError, SecureDir};
use crate::trace::{Body, Settings, is_past};

use super::cipher::{Nonce, Stream, Tagger};
use super::codec::CRC_BYTES;
use super::key::DerivedKeys;
use super::log::{LogFault, either};
use super::names::Numbered;
pub(super) use authenticated::Authenticated;
use body::BodyBlocks;
pub(super) use build::{Origin, build};
use head::Parts;
use head::SegmentHead;
pub(super) use head::{HEAD_BYTES, SEGMENT_MAGIC};
pub(super) use lookup::Words;
pub(super) use read::Messages;
pub(super) use rows::Wanted;

/// An open sealed segment.
#[derive(Debug)]
pub(super) struct Segment {
    map: Mapping,
    /// The same file. If it is open, the body is read from it.
    file: Option<File>,
    pub(super) head: SegmentHead,
    pub(super) settings: Settings,
    nonce: Nonce,
    stream: Stream,
    tagger: Tagger,
    parts: Parts,
    body: BodyBlocks,
    /// Whether both copies of the head are sound.
    pub(super) whole: bool,
    /// After this time, nothing of it can be read.
    pub(super) deadline: Option<Instant>,
}

/// A segment, or why it cannot be read, and its file.
type Opened = (Result<Segment, LogFault>, File);

/// A block whose tag is right, and of which any part can be decrypted.
#[derive(Clone, Copy, Debug)]
struct SealedBlock<'a> {
    stream: &'a Stream,
    /// The offset in the file.
    start: u64,
    bytes: &'a [u8],
}

impl SealedBlock<'_> {
    /// A part of it, decrypted.
    fn plain(&self, range: Range<usize>) -> Option<Vec<u8>> {
        let start = range.start as u64;
        let mut plain = self.bytes.get(range)?.to_vec();
        self.stream.apply(self.start.checked_add(start)?, &mut plain);
        Some(plain)
    }
}

impl Segment {
    /// Opens the segment `name`; `None` if it does not exist.
    pub(super) fn open(
        dir: &SecureDir,
        key: &DerivedKeys,
        name: &CStr,
    ) -> Result<Option<Result<Self, LogFault>>, DirError> {
        Ok(Self::open_file(dir, key, name)?.map(|(opened, _)| opened))
    }

    /// The same, to search it: the file stays open, so that a little can be read of many places
    /// of its body.
    pub(super) fn open_to_search(
        dir: &SecureDir,
        key: &DerivedKeys,
        name: &CStr,
    ) -> Result<Option<Result<Self, LogFault>>, DirError> {
        let opened = Self::open_file(dir, key, name)?;
        let with =
            |(opened, file): Opened| opened.map(|segment| Self { file: Some(file), ..segment });
        Ok(opened.map(with))
    }

    /// Closes the file that stayed open. The body is then read from memory.
    pub(super) fn close(&mut self) {
        self.file = None;
    }

    fn open_file(
        dir: &SecureDir,
        key: &DerivedKeys,
        name: &CStr,
    ) -> Result<Option<Opened>, DirError> {
        let Some((file, info)) = dir.open_file(Access::Read, name)? else { return Ok(None) };
        if info.size < HEAD_BYTES as u64 {
            return Ok(Some((Err(LogFault::Damaged), file)));
        }
        let map = Mapping::of(&file, false).map_err(dir.failed("read", name))?;
        Ok(Some((Self::of(map, key), file)))
    }

    fn of(map: Mapping, key: &DerivedKeys) -> Result<Self, LogFault> {
        let size = map.len() as u64;
        let copy = |offset: usize| {
            let bytes = map.bytes(offset, HEAD_BYTES).unwrap_or(&[]);
            SegmentHead::read(bytes, key, offset as u64, size)
        };
        let second = map.len().saturating_sub(HEAD_BYTES + CRC_BYTES);
        let copies = [copy(0), copy(second)];
        let whole = copies.iter().all(Result::is_ok);
        let (head, nonce) = either(copies)?;
        let settings = Settings::decode(&head.settings).ok_or(LogFault::Damaged)?;
        let parts = head.parts().ok_or(LogFault::Damaged)?;
        let whole = whole && parts.bytes == map.len();
        let (stream, tagger) = (key.stream(&nonce), key.tagger(&nonce));
        let bytes = usize::try_from(head.body).map_err(|_| LogFault::Damaged)?;
        let body = BodyBlocks::new(&parts.body, bytes, stream.clone(), tagger.clone());
        let (deadline, file) = (None, None);
        Ok(Self { file, head, settings, nonce, stream, tagger, parts, body, whole, map, deadline })
    }

    /// The numbers of other files whose messages it contains, if this is its name.
    pub(super) fn replaces(&self, name: Numbered) -> Option<Range<u64>> {
        let SegmentHead { number, first, .. } = self.head;
        (number == name.number && first < number).then_some(first..number)
    }

    /// The size of the file.
    pub(super) fn bytes(&self) -> u64 {
        self.map.len() as u64
    }

    /// A range that ends with its tag, decrypted and without the tag; `None` if that is wrong,
    /// if it is beyond the end of the file, or the deadline has passed.
    fn plain(&self, range: Range<usize>) -> Option<Vec<u8>> {
        let sealed = self.sealed(range)?;
        sealed.plain(0..sealed.bytes.len())
    }

    /// The same, to be decrypted in part.
    fn sealed(&self, range: Range<usize>) -> Option<SealedBlock<'_>> {
        if is_past(self.deadline) {
            return None;
        }
        let (start, length) = (range.start as u64, range.end.checked_sub(range.start)?);
        let bytes = self.tagger.check(start, self.map.bytes(range.start, length)?)?;
        Some(SealedBlock { stream: &self.stream, start, bytes })
    }

    /// A block of a section, decrypted; its range includes its tag.
    fn block(&self, number: usize, range: Range<usize>) -> Option<Vec<u8>> {
        let block = self.sealed_block(number, range)?;
        block.plain(0..block.bytes.len())
    }

    /// A block of a section whose tag is right.
    fn sealed_block(&self, number: usize, range: Range<usize>) -> Option<SealedBlock<'_>> {
        let section = self.parts.sections.get(number)?;
        let start = section.start.checked_add(range.start)?;
        let end = section.start.checked_add(range.end)?;
        if end > section.end {
            return None;
        }
        self.sealed(start..end)
    }

    /// The first sound copy of a table.
    fn table(&self, number: usize) -> Option<Vec<u8>> {
        self.parts.tables.get(number)?.iter().find_map(|range| self.plain(range.clone()))
    }

    /// Lets `work` read the body.
    pub(super) fn with_body<T>(&self, work: impl FnOnce(&Body<'_>) -> T) -> T {
        let read = |offset: usize, into: &mut [u8]| {
            self.body.read(&self.map, self.file.as_ref(), offset, into)
        };
        work(&Body::stored(self.body.bytes(), &read).until(self.deadline))
    }

    /// All of the body, decrypted; `None` if a block of it is damaged.
    fn plain_body(&self) -> Option<Vec<u8>> {
        // Of a file that ends earlier, no memory is needed.
        let bytes = Some(self.body.bytes()).filter(|&bytes| bytes <= self.map.len())?;
        let mut body = vec![0; bytes];
        self.body.read(&self.map, None, 0, &mut body).ok()?;
        Some(body)
    }

    /// The offset in the file of the block at which reading the body failed, if it did since
    /// this was last asked.
    pub(super) fn take_wrong_block(&self) -> Option<usize> {
        self.body.take_wrong()
    }

    /// The offsets in the file of the blocks of the body that cannot be read.
    pub(super) fn wrong_blocks(&self) -> Vec<usize> {
        self.body.all_wrong(&self.map)
    }

    /// The number of blocks of the body.
    pub(super) fn body_blocks(&self) -> usize {
        self.body.count()
    }
}
