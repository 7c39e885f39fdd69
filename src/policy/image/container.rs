//! The bytes of an image as rows and hashed tables. Each row and each slot is verified
//! when it is read.

use std::fs::File;
use std::io::ErrorKind;

use siphasher::sip::SipHasher13;

use super::error::Fault;
use super::fields::Fields;
use super::layout::{
    ALIGN, HEADER_BYTES, HEADER_CRC, HEADER_DIRECTORY, HEADER_FLAGS, HEADER_IDENTITY, HEADER_KEY,
    HEADER_LENGTH, HEADER_ON_CROSSING, HEADER_SUPERSEDED, HEADER_VERSION, HEADER_ZONE, MAGIC,
    NO_USAGE, ROW_HEAD_BYTES, SLOT_BYTES, Table, VERSIONS, checksum, row_checksum, slot_checksum,
};
use crate::sys::mapping::Mapping;

/// Where the bytes are.
#[derive(Debug)]
enum ImageBytes {
    Mapped(Mapping),
    Owned(Vec<u8>),
}

impl ImageBytes {
    #[inline]
    fn bytes(&self, offset: usize, length: usize) -> Option<&[u8]> {
        match self {
            Self::Mapped(map) => map.bytes(offset, length),
            Self::Owned(bytes) => bytes.get(offset..offset.checked_add(length)?),
        }
    }

    fn len(&self) -> usize {
        match self {
            Self::Mapped(map) => map.len(),
            Self::Owned(bytes) => bytes.len(),
        }
    }
}

/// The bytes of an image, whose header is sound.
#[derive(Debug)]
pub(super) struct Container {
    source: ImageBytes,
    hasher: SipHasher13,
    seed: u32,
    /// The position of the directory.
    pub(super) directory: u32,
    /// The position of `[identity]`.
    pub(super) identity: u32,
    /// The version of the format.
    pub(super) version: u32,
    /// The position of `[on.crossing]`.
    pub(super) on_crossing: u32,
    /// The position of the time zone; 0 if there is none.
    pub(super) zone: u32,
    /// Whether what accounts send is counted.
    pub(super) counts_usage: bool,
}

/// The hash under the key of an image.
pub(super) fn hasher(key: [u8; 16]) -> SipHasher13 {
    SipHasher13::new_with_key(&key)
}

/// The start value of the checksums of an image: rows of other images do not pass.
pub(super) fn seed(key: [u8; 16]) -> u32 {
    checksum(0, &key)
}

impl Container {
    /// Maps a file; `None` if it cannot be mapped.
    pub(super) fn map(file: &File, size: u64) -> std::io::Result<Result<Self, Fault>> {
        match Mapping::of_size(file, size, false) {
            Ok(mapping) => Ok(Self::new(ImageBytes::Mapped(mapping))),
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => {
                Ok(Err(Fault::Damaged(0, "it is empty")))
            }
            Err(error) => Err(error),
        }
    }

    /// Takes these bytes.
    pub(super) fn of(bytes: Vec<u8>) -> Result<Self, Fault> {
        Self::new(ImageBytes::Owned(bytes))
    }

    /// Checks the header.
    fn new(source: ImageBytes) -> Result<Self, Fault> {
        let damaged = |offset: usize, what| Fault::Damaged(offset as u64, what);
        let header = source.bytes(0, HEADER_CRC + 4).ok_or(damaged(0, "the header is cut off"))?;
        let at = |offset: usize| Fields(header.get(offset..).unwrap_or_default());
        let u32 = |offset: usize| at(offset).u32().map_err(|what| damaged(offset, what));
        if !header.starts_with(&MAGIC) {
            return Err(damaged(0, "it does not begin as a policy image does"));
        }
        let covered = header.get(..HEADER_CRC).unwrap_or_default();
        if u32(HEADER_CRC)? != checksum(0, covered) {
            return Err(damaged(0, "the checksum of the header is wrong"));
        }
        let version = u32(HEADER_VERSION)?;
        if version == 0 {
            return Err(damaged(HEADER_VERSION, "no exirate has written version 0"));
        }
        VERSIONS.known().check(version).map_err(Fault::Version)?;
        let length = at(HEADER_LENGTH).i64().map_err(|what| damaged(HEADER_LENGTH, what))?;
        if u64::try_from(length) != Ok(source.len() as u64) || source.len() < HEADER_BYTES {
            return Err(damaged(
                HEADER_LENGTH,
                "the file does not have the length that it should have",
            ));
        }
        let key = at(HEADER_KEY).bytes(16).map_err(|what| damaged(HEADER_KEY, what))?;
        let key = key.try_into().unwrap_or_default();
        Ok(Self {
            hasher: hasher(key),
            seed: seed(key),
            directory: u32(HEADER_DIRECTORY)?,
            identity: u32(HEADER_IDENTITY)?,
            version,
            on_crossing: u32(HEADER_ON_CROSSING)?,
            zone: u32(HEADER_ZONE)?,
            counts_usage: u32(HEADER_FLAGS)? & NO_USAGE == 0,
            source,
        })
    }

    /// Whether another image has its name, or will have it soon.
    #[inline]
    pub(super) fn is_superseded(&self) -> bool {
        match &self.source {
            ImageBytes::Mapped(map) => map.u64(HEADER_SUPERSEDED) != Some(0),
            ImageBytes::Owned(_) => false,
        }
    }

    /// Its bytes, which are in memory as they were written; `None` if they are mapped.
    #[cfg(feature = "cli")]
    pub(super) fn written(&self) -> Option<&[u8]> {
        match &self.source {
            ImageBytes::Mapped(_) => None,
            ImageBytes::Owned(bytes) => Some(bytes),
        }
    }

    /// A copy of its bytes; the word is 0, as in a new image.
    #[cfg(feature = "cli")]
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let part = |from, to: usize| self.source.bytes(from, to.saturating_sub(from));
        let parts = [
            part(0, HEADER_SUPERSEDED),
            Some(&[0; HEADER_BYTES - HEADER_SUPERSEDED]),
            part(HEADER_BYTES, self.source.len()),
        ];
        parts.into_iter().flatten().flatten().copied().collect()
    }

    /// The contents of the row at a position.
    #[inline]
    pub(super) fn row(&self, at: u32) -> Result<&[u8], Fault> {
        let offset = (at as usize).saturating_mul(ALIGN);
        let damaged = |what| fault_at(at, what);
        let head = self.source.bytes(offset, ROW_HEAD_BYTES);
        let mut head = Fields(head.ok_or(damaged("a row is beyond the end"))?);
        let length = head.u32().map_err(damaged)?;
        let crc = head.u32().map_err(damaged)?;
        let start = offset.saturating_add(ROW_HEAD_BYTES);
        let contents = self.source.bytes(start, length as usize);
        let contents = contents.ok_or(damaged("a row is beyond the end"))?;
        if crc != row_checksum(self.seed, at, contents) {
            return Err(damaged("the checksum of a row is wrong"));
        }
        Ok(contents)
    }

    /// Reads the row at a position.
    pub(super) fn read<'a, T>(
        &'a self,
        at: u32,
        read: impl FnOnce(&mut Fields<'a>) -> Result<T, &'static str>,
    ) -> Result<T, Fault> {
        let mut fields = Fields(self.row(at)?);
        let value = read(&mut fields).and_then(|value| fields.end().map(|()| value));
        value.map_err(|what| fault_at(at, what))
    }

    /// What a table has under `name`, and the position of the row that it is in.
    #[inline]
    pub(super) fn find(&self, table: Table, name: &[u8]) -> Result<Option<Found<'_>>, Fault> {
        if table.slots == 0 {
            return Ok(None);
        }
        let row = self.slot(table, table.slot(self.hasher.hash(name)))?;
        if row == 0 {
            return Ok(None);
        }
        let mut entries = Fields(self.row(row)?);
        while !entries.is_empty() {
            let (found, value) = entry(&mut entries).map_err(|what| fault_at(row, what))?;
            if found == name {
                return Ok(Some(Found { value, row }));
            }
        }
        Ok(None)
    }

    /// The row in a slot of a table; 0 if there is none.
    #[inline]
    pub(super) fn slot(&self, table: Table, index: u32) -> Result<u32, Fault> {
        if table.slots == 0 {
            return Ok(0);
        }
        let at = u64::from(table.start) + u64::from(index);
        let damaged = |what| Fault::Damaged(at * ALIGN as u64, what);
        let at = u32::try_from(at).map_err(|_| damaged("a table is beyond the end"))?;
        let bytes = self.source.bytes((at as usize).saturating_mul(ALIGN), SLOT_BYTES);
        let mut slot = Fields(bytes.ok_or(damaged("a table is beyond the end"))?);
        let row = slot.u32().map_err(damaged)?;
        let crc = slot.u32().map_err(damaged)?;
        if crc != slot_checksum(self.seed, at, row) {
            return Err(damaged("the checksum of a slot is wrong"));
        }
        Ok(row)
    }
}

/// What was found in a table.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found<'a> {
    /// What is there.
    pub(super) value: &'a [u8],
    /// The position of its row.
    pub(super) row: u32,
}

/// The next entry of a table's row: its name and its value.
#[inline]
pub(super) fn entry<'a>(entries: &mut Fields<'a>) -> Result<(&'a [u8], &'a [u8]), &'static str> {
    let (name, value) = (entries.u32()?, entries.u32()?);
    Ok((entries.bytes(name)?, entries.bytes(value)?))
}

/// What is wrong with the row at this position.
#[cold]
pub(super) fn fault_at(at: u32, what: &'static str) -> Fault {
    Fault::Damaged(u64::from(at) * ALIGN as u64, what)
}
