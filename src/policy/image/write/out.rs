//! Writes rows and tables. [`container`](super::super::container) reads them.

use siphasher::sip::SipHasher13;

use super::super::container::{hasher, seed};
use super::super::fields::Row;
use super::super::layout::{
    ALIGN, HEADER_BYTES, HEADER_CRC, HEADER_DIRECTORY, HEADER_FLAGS, HEADER_IDENTITY, HEADER_KEY,
    HEADER_LENGTH, HEADER_ON_CROSSING, HEADER_VERSION, HEADER_ZONE, MAGIC, SLOT_BYTES, Table,
    checksum, row_checksum, slot_checksum,
};

/// An image that is written.
#[derive(Debug)]
pub(super) struct Writer {
    bytes: Vec<u8>,
    key: [u8; 16],
    hasher: SipHasher13,
    seed: u32,
}

impl Writer {
    pub(super) fn new(key: [u8; 16]) -> Self {
        Self { bytes: vec![0; HEADER_BYTES], key, hasher: hasher(key), seed: seed(key) }
    }

    /// The position of what is written next.
    fn position(&mut self) -> u32 {
        self.bytes.resize(self.bytes.len().next_multiple_of(ALIGN), 0);
        u32::try_from(self.bytes.len() / ALIGN).unwrap_or(u32::MAX)
    }

    /// Writes a row; its position.
    pub(super) fn row(&mut self, contents: &[u8]) -> u32 {
        let at = self.position();
        let length = u32::try_from(contents.len()).unwrap_or(u32::MAX);
        let crc = row_checksum(self.seed, at, contents);
        self.bytes.extend_from_slice(&length.to_le_bytes());
        self.bytes.extend_from_slice(&crc.to_le_bytes());
        self.bytes.extend_from_slice(contents);
        at
    }

    /// Writes a table of names and values: as many slots as entries, and the entries of
    /// each slot in one row. `write` writes a value.
    pub(super) fn table<'n, T>(
        &mut self,
        entries: impl ExactSizeIterator<Item = (&'n [u8], T)>,
        write: impl Fn(&T, &mut Row),
    ) -> Table {
        let slots = u32::try_from(entries.len()).unwrap_or(u32::MAX);
        let shape = Table { start: 0, slots };
        let mut placed: Vec<(u32, &[u8], T)> = entries
            .map(|(name, value)| (shape.slot(self.hasher.hash(name)), name, value))
            .collect();
        // Equal slots stay in the order of the names.
        placed.sort_by_key(|(slot, ..)| *slot);
        let start = self.position();
        self.bytes.resize(self.bytes.len() + slots as usize * SLOT_BYTES, 0);
        let mut left = placed.chunk_by(|(one, ..), (other, ..)| one == other).peekable();
        let (mut contents, mut value) = (Row::default(), Row::default());
        for slot in 0..slots {
            contents.0.clear();
            if let Some(entries) =
                left.next_if(|entries| entries.first().is_some_and(|(at, ..)| *at == slot))
            {
                for (_, name, one) in entries {
                    value.0.clear();
                    write(one, &mut value);
                    contents.length(name.len());
                    contents.length(value.0.len());
                    contents.0.extend_from_slice(name);
                    contents.0.extend_from_slice(&value.0);
                }
            }
            let row = if contents.0.is_empty() { 0 } else { self.row(&contents.0) };
            let at = start.saturating_add(slot);
            self.put(at as usize * ALIGN, &row.to_le_bytes());
            let crc = slot_checksum(self.seed, at, row);
            self.put(at as usize * ALIGN + 4, &crc.to_le_bytes());
        }
        Table { start, slots }
    }

    /// Puts `bytes` where there is room for them.
    fn put(&mut self, offset: usize, bytes: &[u8]) {
        let place = self.bytes.get_mut(offset..).unwrap_or_default();
        place.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
    }

    /// The image of this version, with its flags and the positions of its first rows.
    pub(super) fn finish(
        mut self,
        [version, flags]: [u32; 2],
        [directory, identity, on_crossing, zone]: [u32; 4],
    ) -> Vec<u8> {
        let length = self.bytes.len() as u64;
        self.put(0, &MAGIC);
        self.put(HEADER_VERSION, &version.to_le_bytes());
        self.put(HEADER_FLAGS, &flags.to_le_bytes());
        let key = self.key;
        self.put(HEADER_KEY, &key);
        self.put(HEADER_LENGTH, &length.to_le_bytes());
        self.put(HEADER_DIRECTORY, &directory.to_le_bytes());
        self.put(HEADER_IDENTITY, &identity.to_le_bytes());
        self.put(HEADER_ON_CROSSING, &on_crossing.to_le_bytes());
        self.put(HEADER_ZONE, &zone.to_le_bytes());
        let crc = checksum(0, self.bytes.get(..HEADER_CRC).unwrap_or_default());
        self.put(HEADER_CRC, &crc.to_le_bytes());
        self.bytes
    }
}
