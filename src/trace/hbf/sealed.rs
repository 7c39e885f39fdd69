//! The body of a sealed segment.
//!
//! Messages are in the order of the digests. Numbers are little-endian:
//!
//! | bytes | contents |
//! |---|---|
//! | 1 | how often the body has been folded |
//! | 4 | the number of messages |
//! | 6 each | for each message: the number of blocks (4 bytes) and of whole
//! attachments (2) |
//! | m/8 each | the filters; halved by each folding |
//!
//! The number of filters, and the filter of each element, follow from the
//! numbers of blocks and attachments. Folding joins the bits 2i and 2i + 1 of a
//! filter.

use crate::trace::settings::{Counted, HbfSettings};
use crate::trace::{Body, Damage, Sealed, filter};

use super::hashing::Element;
use super::levels::{self, Group};
use super::{Hbf, digest};

/// How often a body can be folded: filters have a multiple of 64 bits.
const FOLDS_MAX: u8 = 3;
const HEAD: usize = 5;
const ENTRY: usize = 6;

/// The position of a message's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Position {
    /// The number of counted insertions before it.
    before: u64,
    pub(super) blocks: u32,
    pub(super) files: u16,
}

impl Position {
    /// The number of its insertions that count.
    fn count(&self, settings: &HbfSettings) -> u64 {
        let blocks = u64::from(self.blocks);
        u64::from(self.files)
            + match settings.counted {
                Counted::Elements => levels::groups(blocks),
                Counted::Blocks => blocks,
            }
    }

    /// The first and the last filter with elements of it; `None` if it has no
    /// elements.
    pub(super) fn filters(&self, settings: &HbfSettings) -> Option<(u64, u64)> {
        let capacity = u64::from(settings.capacity);
        let last = self.before + self.count(settings).checked_sub(1)?;
        Some((self.before / capacity, last / capacity))
    }

    /// The filter of a group of its blocks; `None` if it has no such group.
    pub(super) fn filter_of(&self, group: Group, settings: &HbfSettings) -> Option<u64> {
        let block = group.last_block();
        let place = match settings.counted {
            Counted::Elements => group.place(),
            Counted::Blocks => block,
        };
        let capacity = u64::from(settings.capacity);
        (block < u64::from(self.blocks)).then(|| (self.before + place) / capacity)
    }

    /// The filter of one of its attachments.
    pub(super) fn filter_of_file(&self, number: u16, settings: &HbfSettings) -> u64 {
        let first = self.before + self.count(settings) - u64::from(self.files);
        (first + u64::from(number)) / u64::from(settings.capacity)
    }
}

/// The structure of a body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Table {
    folds: u8,
    pub(super) messages: Vec<Position>,
    filters: usize,
    /// The current number of bits of a filter.
    pub(super) bits: u32,
}

impl Table {
    /// Reads the table of a body.
    pub(super) fn read(hbf: &Hbf, body: &Body<'_>, messages: u32) -> Result<Self, Damage> {
        let mut head = [0; HEAD];
        body.read(0, &mut head)?;
        let [folds, count @ ..] = head;
        if folds > FOLDS_MAX {
            return Err(Damage("it is folded too often"));
        }
        let entries = (messages as usize).checked_mul(ENTRY).filter(|&n| n <= body.len());
        let entries = entries.filter(|_| u32::from_le_bytes(count) == messages);
        let entries = entries.ok_or(Damage("its number of messages is wrong"))?;
        let mut entries = vec![0; entries];
        body.read(HEAD, &mut entries)?;
        let filters = HEAD + entries.len();
        let (entries, _) = entries.as_chunks::<ENTRY>();
        let counts = entries.iter().map(|&[b0, b1, b2, b3, f0, f1]| {
            (u32::from_le_bytes([b0, b1, b2, b3]), u16::from_le_bytes([f0, f1]))
        });
        let (messages, count) = positions(&hbf.settings, counts);
        let bits = hbf.settings.bits >> folds;
        let table = Self { folds, messages, filters, bits };
        if u128::from(count) * table.bytes() as u128 + filters as u128 != body.len() as u128 {
            return Err(Damage("its length is wrong"));
        }
        Ok(table)
    }

    /// The size of a filter in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.bits as usize / 8
    }

    /// Reads the filters from `first` to `last`, inclusive.
    pub(super) fn read_filters(
        &self,
        body: &Body<'_>,
        (first, last): (u64, u64),
        into: &mut Vec<u8>,
    ) -> Result<(), Damage> {
        let beyond = Damage("a filter is beyond its end");
        let count = last.saturating_sub(first).saturating_add(1);
        let place = |number: u64| usize::try_from(number).ok()?.checked_mul(self.bytes());
        let bytes = place(count).filter(|&bytes| bytes <= body.len()).ok_or(beyond)?;
        let offset = place(first).and_then(|at| at.checked_add(self.filters)).ok_or(beyond)?;
        into.resize(bytes, 0);
        body.read(offset, into)
    }
}

/// The positions of messages with so many blocks and attachments, and the
/// number of filters.
fn positions(
    settings: &HbfSettings,
    counts: impl Iterator<Item = (u32, u16)>,
) -> (Vec<Position>, u64) {
    // This cannot overflow: a message counts for less than 2^34.
    let mut before = 0;
    let messages = counts.map(|(blocks, files)| {
        let position = Position { before, blocks, files };
        before += position.count(settings);
        position
    });
    let messages = messages.collect();
    (messages, before.div_ceil(u64::from(settings.capacity)))
}

/// Lays out digests; damaged ones are treated as those of empty messages.
pub(super) fn seal(hbf: &Hbf, digests: &[&[u8]]) -> Sealed {
    let Hbf { settings, hashing } = hbf;
    let parsed = digests.iter().map(|digest| digest::parse(digest).unwrap_or_default());
    let parsed: Vec<(Vec<u64>, Vec<u64>)> = parsed.collect();
    let counts = parsed.iter().map(|(blocks, files)| (blocks.len() as u32, files.len() as u16));
    let (positions, filters) = positions(settings, counts);
    let mut body = vec![0];
    body.extend((positions.len() as u32).to_le_bytes());
    for position in &positions {
        body.extend(position.blocks.to_le_bytes());
        body.extend(position.files.to_le_bytes());
    }
    let bytes = settings.bits as usize / 8;
    let mut all = vec![0; filters as usize * bytes];
    for ((blocks, files), position) in parsed.iter().zip(&positions) {
        let mut insert = |number: u64, element: Element| {
            let rest = all.get_mut(number as usize * bytes..).unwrap_or_default();
            element.bits(settings.bits, settings.probes).for_each(|bit| filter::set(rest, bit));
        };
        levels::each(hashing, blocks, |group, content| {
            if let Some(number) = position.filter_of(group, settings) {
                insert(number, hashing.element(content, group.number));
            }
        });
        for (number, &file) in (0..).zip(files) {
            insert(position.filter_of_file(number, settings), hashing.file_element(file));
        }
    }
    body.extend(all);
    Sealed { order: (0..).take(digests.len()).collect(), body }
}

/// Halves the filters.
pub(super) fn fold(hbf: &Hbf, body: &[u8]) -> Option<Vec<u8>> {
    let (head, _) = body.split_first_chunk::<HEAD>()?;
    let [_, count @ ..] = *head;
    let table = Table::read(hbf, &Body::plain(body), u32::from_le_bytes(count)).ok()?;
    let filters = body.get(table.filters..)?;
    if table.folds == FOLDS_MAX || filters.is_empty() {
        return None;
    }
    let mut folded = body.get(..table.filters)?.to_vec();
    *folded.first_mut()? += 1;
    // Each filter has an even number of bytes while it can be folded.
    folded.extend(filter::folded(filters));
    Some(folded)
}

/// Checks that a body is well formed.
pub(super) fn check(hbf: &Hbf, body: &[u8], messages: u32) -> Result<(), Damage> {
    Table::read(hbf, &Body::plain(body), messages).map(|_| ())
}
