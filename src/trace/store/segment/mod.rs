//! A segment: the messages of a full log, laid out to be asked quickly.
//!
//! A head, tables, words, envelopes, places, the body with the digests, and
//! once more the tables and the head: what all else depends on is there twice.
//! Everything but the first bytes of a head is enciphered where it lies, so
//! that any part can be read by itself.

mod bits;
mod blocks;
mod build;
mod codes;
mod head;
mod huffman;
mod ids;
mod lookup;
mod messages;
mod places;
mod read;
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

use super::TraceError;
use super::cipher::{Nonce, Stream, random};
use super::codec::{CRC_BYTES, checksum_fits, set_checksum};
use super::key::Key;
use super::log::{Fault, worse};
pub(super) use build::{Origin, build};
use build::{Plain, assemble};
pub(super) use head::HEAD_BYTES;
use head::Head;
use head::Parts;
pub(super) use lookup::Words;
pub(super) use read::{Messages, Wanted};

/// A sealed segment, open.
#[derive(Debug)]
pub(super) struct Segment {
    map: Mapping,
    pub(super) head: Head,
    pub(super) settings: Settings,
    nonce: Nonce,
    stream: Stream,
    parts: Parts,
    /// Both copies of the head are sound.
    pub(super) whole: bool,
    /// After this, nothing of it can be read any more.
    pub(super) deadline: Option<Instant>,
}

impl Segment {
    /// Opens the segment `name`; `None` where there is none of that name.
    pub(super) fn open(
        dir: &SecureDir,
        key: &Key,
        name: &CStr,
    ) -> Result<Option<Result<Self, Fault>>, DirError> {
        let Some((file, facts)) = dir.open_file(Access::Read, name)? else { return Ok(None) };
        if facts.size < HEAD_BYTES as u64 {
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

    /// The bytes of the file.
    pub(super) fn bytes(&self) -> u64 {
        self.map.len() as u64
    }

    /// Some of it, deciphered; `None` where the file ends before, or after the
    /// deadline.
    fn plain(&self, range: Range<usize>) -> Option<Vec<u8>> {
        if is_past(self.deadline) {
            return None;
        }
        let length = range.end.checked_sub(range.start)?;
        let mut bytes = self.map.bytes(range.start, length)?.to_vec();
        self.stream.apply(range.start as u64, &mut bytes);
        Some(bytes)
    }

    /// Some of a section, deciphered.
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

    /// Has the body read by `work`.
    pub(super) fn with_body<T>(&self, work: impl FnOnce(&Body<'_>) -> T) -> T {
        let Range { start, end } = self.parts.body;
        // What the file has of it.
        let end = end.min(self.map.len());
        let bytes = self.map.bytes(start, end.saturating_sub(start)).unwrap_or(&[]);
        let decipher = |offset: u64, bytes: &mut [u8]| {
            self.stream.apply((start as u64).saturating_add(offset), bytes);
        };
        work(&Body::encrypted(bytes, &decipher).until(self.deadline))
    }

    /// Whether the file is what was written.
    pub(super) fn is_sound(&self) -> bool {
        self.whole && self.map.bytes(0, self.map.len()).is_some_and(checksum_fits)
    }

    /// Whether the scheme finds its body in order.
    pub(super) fn check_body(&self, scheme: &dyn Scheme) -> Result<(), &'static str> {
        let body = self.plain(self.parts.body.clone()).ok_or("it ends before its last byte")?;
        scheme.check(&body, self.head.messages).map_err(|damage| damage.0)
    }

    /// The file of this segment folded once more; `None` where that would not
    /// make it smaller, or it is damaged.
    ///
    /// # Errors
    /// There are no random numbers.
    pub(super) fn fold(
        &self,
        scheme: &dyn Scheme,
        key: &Key,
    ) -> Result<Option<Vec<u8>>, TraceError> {
        if !self.is_sound() {
            return Ok(None);
        }
        let Some((head, plain)) = self.folded(scheme) else { return Ok(None) };
        let bytes = assemble(head, &plain, key, random()?);
        Ok((bytes.len() < self.map.len()).then_some(bytes))
    }

    /// The file as it was written, where nothing is damaged but copies of heads and
    /// tables, as its last checksum shows; `None` otherwise.
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
        // With the nonce that it had: the same bytes are enciphered once more.
        let bytes = assemble(self.head, &plain, key, self.nonce);
        let written = self.map.bytes(self.parts.bytes.checked_sub(CRC_BYTES)?, CRC_BYTES)?;
        bytes.ends_with(written).then_some(bytes)
    }

    /// All sections, deciphered.
    fn plain_sections(&self) -> Option<[Vec<u8>; head::SECTIONS]> {
        let mut sections = [const { Vec::new() }; head::SECTIONS];
        for (section, range) in sections.iter_mut().zip(&self.parts.sections) {
            *section = self.plain(range.clone())?;
        }
        Some(sections)
    }

    fn folded(&self, scheme: &dyn Scheme) -> Option<(Head, Plain)> {
        let body = self.plain(self.parts.body.clone())?;
        scheme.check(&body, self.head.messages).ok()?;
        let body = scheme.fold(&body)?;
        let [words, messages] = self.parts.tables.each_ref().map(|[first, _]| first.clone());
        let tables = [self.plain(words)?, self.plain(messages)?];
        let sections = self.plain_sections()?;
        let folds = self.head.folds.checked_add(1)?;
        Some((Head { folds, ..self.head }, Plain { tables, sections, body }))
    }
}
