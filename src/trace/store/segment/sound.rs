//! Whether a segment is as it was written, and restoring it from its copies.

use crate::trace::Scheme;

use super::super::cipher::TAG_BYTES;
use super::super::codec::{CRC_BYTES, checksum_fits, set_checksum};
use super::super::key::DerivedKeys;
use super::Segment;
use super::lookup::Words;
use super::read::Messages;

impl Segment {
    /// Whether both copies of the tables are sound.
    pub(in super::super) fn tables_are_whole(&self) -> bool {
        self.parts.tables.as_flattened().iter().all(|range| self.plain(range.clone()).is_some())
    }

    /// Whether the checksum of the whole file is right, which can be found without the key.
    pub(in super::super) fn has_right_checksum(&self) -> bool {
        self.map.bytes(0, self.map.len()).is_some_and(checksum_fits)
    }

    /// Whether everything is authentic, apart from second copies.
    pub(in super::super) fn is_authentic(&self) -> bool {
        Words::of(self).is_some_and(|words| words.is_authentic())
            && Messages::of(self).is_some_and(|messages| messages.is_authentic())
            && self.wrong_blocks().is_empty()
    }

    /// Whether the file is exactly as it was written.
    pub(in super::super) fn is_sound(&self) -> bool {
        self.whole && self.has_right_checksum() && self.tables_are_whole() && self.is_authentic()
    }

    /// Checks the body with the scheme.
    pub(in super::super) fn check_body(&self, scheme: &dyn Scheme) -> Result<(), &'static str> {
        let body = self.plain_body().ok_or("some of them cannot be read")?;
        scheme.check(&body, self.head.messages).map_err(|damage| damage.0)
    }

    /// The file as it was written, if only copies of heads and tables, or its checksum, are
    /// damaged; `None` otherwise.
    pub(in super::super) fn restored(&self, key: &DerivedKeys) -> Option<Vec<u8>> {
        if !self.is_authentic() {
            return None;
        }
        let mut file = self.map.bytes(0, self.parts.second)?.to_vec();
        let mut put = |offset: usize, bytes: &[u8]| {
            let place = offset.checked_add(bytes.len()).and_then(|end| file.get_mut(offset..end));
            place.map(|place| place.copy_from_slice(bytes))
        };
        // With the same nonce: the same bytes are encrypted again.
        put(0, &self.head.write(key, self.nonce, 0))?;
        for (number, copies) in self.parts.tables.iter().enumerate() {
            let plain = self.table(number)?;
            for range in copies {
                let (mut table, offset) = (plain.clone(), range.start as u64);
                self.stream.apply(offset, &mut table);
                table.resize(table.len() + TAG_BYTES, 0);
                self.tagger.set(offset, &mut table);
                put(range.start, &table)?;
            }
        }
        file.extend(self.head.write(key, self.nonce, self.parts.second as u64));
        file.extend([0; CRC_BYTES]);
        set_checksum(&mut file);
        Some(file)
    }
}
