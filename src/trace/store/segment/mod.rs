//! A segment: the messages of a full log, laid out for fast queries.
//!
//! It consists of a head, tables, words, envelopes, positions, the body with
//! the digests, and second copies of the tables and the head, on which
//! everything else depends. Everything except the first bytes of a head is
//! encrypted by its offset, so that any part can be read separately.

mod authenticated;
mod bits;
mod blocks;
mod build;
mod codes;
mod head;
mod huffman;
mod ids;
mod lookup;
mod messages;
mod positions;
mod read;
mod rewrite;
#[cfg(test)]
mod tests;
mod words;

use std::ffi::CStr;
use std::ops::Range;
use std::time::Instant;

use crate::sys::files::Access;
use crate::sys::mapping::Mapping;
use crate::sys::secure_dir::{DirError, SecureDir};
use crate::trace::{Body, Scheme, Settings, is_past};

use super::cipher::{Nonce, Stream};
use super::codec::{CRC_BYTES, checksum_fits, set_checksum};
use super::key::Key;
use super::log::{Fault, worse};
use super::names::Numbered;
pub(super) use authenticated::Authenticated;
pub(super) use build::{Origin, build};
use build::{Plain, assemble};
pub(super) use head::HEAD_BYTES;
use head::Head;
use head::Parts;
pub(super) use lookup::Words;
pub(super) use read::{Messages, Wanted};

/// An open sealed segment.
#[derive(Debug)]
pub(super) struct Segment {
    map: Mapping,
    pub(super) head: Head,
    pub(super) settings: Settings,
    nonce: Nonce,
    stream: Stream,
    parts: Parts,
    /// Whether both copies of the head are sound.
    pub(super) whole: bool,
    /// After this time, nothing of it can be read.
    pub(super) deadline: Option<Instant>,
}

impl Segment {
    /// Opens the segment `name`; `None` if it does not exist.
    pub(super) fn open(
        dir: &SecureDir,
        key: &Key,
        name: &CStr,
    ) -> Result<Option<Result<Self, Fault>>, DirError> {
        let Some((file, info)) = dir.open_file(Access::Read, name)? else { return Ok(None) };
        if info.size < HEAD_BYTES as u64 {
            return Ok(Some(Err(Fault::Damaged)));
        }
        let map = Mapping::of(&file, false).map_err(dir.failed("read", name))?;
        Ok(Some(Self::of(map, key)))
    }

    fn of(map: Mapping, key: &Key) -> Result<Self, Fault> {
        let size = map.len() as u64;
        let copy = |offset: usize| {
            let bytes = map.bytes(offset, HEAD_BYTES).unwrap_or(&[]);
            Head::read(bytes, key, offset as u64, size)
        };
        let second = map.len().saturating_sub(HEAD_BYTES + CRC_BYTES);
        let copies = [copy(0), copy(second)];
        let whole = matches!(copies, [Ok(one), Ok(other)] if one == other);
        let (head, nonce) = copies[0].or(copies[1]).map_err(|fault| worse(fault, copies[1]))?;
        let settings = Settings::decode(&head.settings).ok_or(Fault::Damaged)?;
        let parts = head.parts().ok_or(Fault::Damaged)?;
        let whole = whole && parts.bytes == map.len();
        let stream = key.stream(&nonce);
        Ok(Self { head, settings, nonce, stream, parts, whole, map, deadline: None })
    }

    /// The numbers of other files whose messages it contains, if this is its name.
    pub(super) fn replaces(&self, name: Numbered) -> Option<Range<u64>> {
        let Head { number, first, .. } = self.head;
        (number == name.number && first < number).then_some(first..number)
    }

    /// The size of the file.
    pub(super) fn bytes(&self) -> u64 {
        self.map.len() as u64
    }

    /// A decrypted range; `None` if it is beyond the end of the file, or the
    /// deadline has passed.
    fn plain(&self, range: Range<usize>) -> Option<Vec<u8>> {
        if is_past(self.deadline) {
            return None;
        }
        let length = range.end.checked_sub(range.start)?;
        let mut bytes = self.map.bytes(range.start, length)?.to_vec();
        self.stream.apply(range.start as u64, &mut bytes);
        Some(bytes)
    }

    /// A decrypted range of a section.
    fn section(&self, number: usize, range: Range<usize>) -> Option<Vec<u8>> {
        let section = self.parts.sections.get(number)?;
        let start = section.start.checked_add(range.start)?;
        let end = section.start.checked_add(range.end)?;
        if end > section.end {
            return None;
        }
        self.plain(start..end)
    }

    /// The first sound copy of a table, without its checksum.
    fn table(&self, number: usize) -> Option<Vec<u8>> {
        self.parts.tables.get(number)?.iter().find_map(|range| {
            let mut bytes = self.plain(range.clone())?;
            checksum_fits(&bytes).then(|| bytes.truncate(bytes.len() - CRC_BYTES))?;
            Some(bytes)
        })
    }

    /// Whether both copies of the tables are sound.
    pub(super) fn tables_are_whole(&self) -> bool {
        let sound =
            |range: &Range<usize>| self.plain(range.clone()).is_some_and(|b| checksum_fits(&b));
        self.parts.tables.as_flattened().iter().all(sound)
    }

    /// Lets `work` read the body.
    pub(super) fn with_body<T>(&self, work: impl FnOnce(&Body<'_>) -> T) -> T {
        let Range { start, end } = self.parts.body;
        // The part that is in the file.
        let end = end.min(self.map.len());
        let bytes = self.map.bytes(start, end.saturating_sub(start)).unwrap_or(&[]);
        let decrypt = |offset: u64, bytes: &mut [u8]| {
            self.stream.apply((start as u64).saturating_add(offset), bytes);
        };
        work(&Body::encrypted(bytes, &decrypt).until(self.deadline))
    }

    /// Whether the file is exactly as it was written.
    pub(super) fn is_sound(&self) -> bool {
        self.whole && self.map.bytes(0, self.map.len()).is_some_and(checksum_fits)
    }

    /// Checks the body with the scheme.
    pub(super) fn check_body(&self, scheme: &dyn Scheme) -> Result<(), &'static str> {
        let body = self.plain(self.parts.body.clone()).ok_or("the file is too short for them")?;
        scheme.check(&body, self.head.messages).map_err(|damage| damage.0)
    }

    /// The file as it was written, if only copies of heads and tables are
    /// damaged, which its last checksum shows; `None` otherwise.
    pub(super) fn restored(&self, key: &Key) -> Option<Vec<u8>> {
        let mut tables = [const { Vec::new() }; 2];
        for (number, table) in tables.iter_mut().enumerate() {
            *table = self.table(number)?;
            table.extend([0; CRC_BYTES]);
            set_checksum(table);
        }
        let plain = Plain {
            tables,
            sections: self.plain_sections()?,
            body: self.plain(self.parts.body.clone())?,
        };
        // With the same nonce: the same bytes are encrypted again.
        let bytes = assemble(self.head, &plain, key, self.nonce);
        let written = self.map.bytes(self.parts.bytes.checked_sub(CRC_BYTES)?, CRC_BYTES)?;
        bytes.ends_with(written).then_some(bytes)
    }

    /// All sections, decrypted.
    fn plain_sections(&self) -> Option<[Vec<u8>; head::SECTIONS]> {
        let mut sections = [const { Vec::new() }; head::SECTIONS];
        for (section, range) in sections.iter_mut().zip(&self.parts.sections) {
            *section = self.plain(range.clone())?;
        }
        Some(sections)
    }
}
