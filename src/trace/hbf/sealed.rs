//! The body of a sealed segment.
//!
//! Messages are in the order of the digests. Numbers are little-endian:
//!
//! | bytes | what |
//! |---|---|
//! | 1 | how many times the body has been folded |
//! | 4 | how many messages there are |
//! | 6 each | of each message, how many blocks (4 bytes) and whole attachments (2) it has |
//! | m/8 each | the filters; half as long for each time it has been folded |
//!
//! How many filters there are, and in which an element is, follows from the
//! numbers of blocks and attachments. Folding joins the bits 2i and 2i + 1 of a
//! filter.

use crate::trace::settings::{Counted, HbfSettings};
use crate::trace::{Body, Damage, Sealed, filter};

use super::hashing::Element;
use super::levels::{self, Group};
use super::{Hbf, digest};

/// How often a body can be folded: filters have multiples of 64 bits.
const MOST_FOLDS: u8 = 3;
const HEAD: usize = 5;
const ENTRY: usize = 6;

/// Where the elements of a message are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Placed {
    /// How many insertions were counted before.
    before: u64,
    pub(super) blocks: u32,
    pub(super) files: u16,
}

impl Placed {
    /// How many of its insertions are counted.
    fn count(&self, settings: &HbfSettings) -> u64 {
        let blocks = u64::from(self.blocks);
        u64::from(self.files)
            + match settings.counted {
                Counted::Elements => levels::groups(blocks),
                Counted::Blocks => blocks,
            }
    }

    /// The first and the last filter that has elements of it; `None` if it has
    /// no elements.
    pub(super) fn filters(&self, settings: &HbfSettings) -> Option<(u64, u64)> {
        let capacity = u64::from(settings.capacity);
        let last = self.before + self.count(settings).checked_sub(1)?;
        Some((self.before / capacity, last / capacity))
    }

    /// In which filter a group of its blocks is; `None` if it has no such.
    pub(super) fn filter_of(&self, group: Group, settings: &HbfSettings) -> Option<u64> {
        let block = group.last_block();
        let place = match settings.counted {
            Counted::Elements => group.place(),
            Counted::Blocks => block,
        };
        let capacity = u64::from(settings.capacity);
        (block < u64::from(self.blocks)).then(|| (self.before + place) / capacity)
    }

    /// In which filter an attachment of it is.
    pub(super) fn filter_of_file(&self, number: u16, settings: &HbfSettings) -> u64 {
        let first = self.before + self.count(settings) - u64::from(self.files);
        (first + u64::from(number)) / u64::from(settings.capacity)
    }
}

/// What a body consists of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Table {
    folds: u8,
    pub(super) messages: Vec<Placed>,
    filters: usize,
    /// How many bits a filter has now.
    pub(super) bits: u32,
}

impl Table {
    /// Reads it.
    pub(super) fn read(hbf: &Hbf, body: &Body<'_>, messages: u32) -> Result<Self, Damage> {
        let mut head = [0; HEAD];
        body.read(0, &mut head)?;
        let [folds, count @ ..] = head;
        if folds > MOST_FOLDS {
            return Err(Damage("it is folded too often"));
        }
        let entries = (messages as usize).checked_mul(ENTRY).filter(|&n| n <= body.len());
        let entries = entries.filter(|_| u32::from_le_bytes(count) == messages);
        let entries = entries.ok_or(Damage("it is of another number of messages"))?;
        let mut entries = vec![0; entries];
        body.read(HEAD, &mut entries)?;
        let filters = HEAD + entries.len();
        let (entries, _) = entries.as_chunks::<ENTRY>();
        let counts = entries.iter().map(|&[b0, b1, b2, b3, f0, f1]| {
            (u32::from_le_bytes([b0, b1, b2, b3]), u16::from_le_bytes([f0, f1]))
        });
        let (messages, count) = placed(&hbf.settings, counts);
        let bits = hbf.settings.bits >> folds;
        let table = Self { folds, messages, filters, bits };
        if u128::from(count) * table.bytes() as u128 + filters as u128 != body.len() as u128 {
            return Err(Damage("it is of another length"));
        }
        Ok(table)
    }

    /// The length of a filter, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.bits as usize / 8
    }

    /// Reads filters, from the first up to and with the last.
    pub(super) fn read_filters(
        &self,
        body: &Body<'_>,
        (first, last): (u64, u64),
        into: &mut Vec<u8>,
    ) -> Result<(), Damage> {
        let beyond = Damage("a filter beyond its end is named");
        let count = last.saturating_sub(first).saturating_add(1);
        let place = |number: u64| usize::try_from(number).ok()?.checked_mul(self.bytes());
        let bytes = place(count).filter(|&bytes| bytes <= body.len()).ok_or(beyond)?;
        let offset = place(first).and_then(|at| at.checked_add(self.filters)).ok_or(beyond)?;
        into.resize(bytes, 0);
        body.read(offset, into)
    }
}

/// Where messages with so many blocks and attachments are, and how many filters
/// there are.
fn placed(settings: &HbfSettings, counts: impl Iterator<Item = (u32, u16)>) -> (Vec<Placed>, u64) {
    // Does not overflow: a message counts for less than 2^34.
    let mut before = 0;
    let messages = counts.map(|(blocks, files)| {
        let placed = Placed { before, blocks, files };
        before += placed.count(settings);
        placed
    });
    let messages = messages.collect();
    (messages, before.div_ceil(u64::from(settings.capacity)))
}

/// Lays out digests; those that are damaged as if their messages were empty.
pub(super) fn seal(hbf: &Hbf, digests: &[&[u8]]) -> Sealed {
    let Hbf { settings, hashing } = hbf;
    let parsed = digests.iter().map(|digest| digest::parse(digest).unwrap_or_default());
    let parsed: Vec<(Vec<u64>, Vec<u64>)> = parsed.collect();
    let counts = parsed.iter().map(|(blocks, files)| (blocks.len() as u32, files.len() as u16));
    let (placed, filters) = placed(settings, counts);
    let mut body = vec![0];
    body.extend((placed.len() as u32).to_le_bytes());
    for placed in &placed {
        body.extend(placed.blocks.to_le_bytes());
        body.extend(placed.files.to_le_bytes());
    }
    let bytes = settings.bits as usize / 8;
    let mut all = vec![0; filters as usize * bytes];
    for ((blocks, files), placed) in parsed.iter().zip(&placed) {
        let mut insert = |number: u64, element: Element| {
            let rest = all.get_mut(number as usize * bytes..).unwrap_or_default();
            element.bits(settings.bits, settings.probes).for_each(|bit| filter::set(rest, bit));
        };
        levels::each(hashing, blocks, |group, content| {
            if let Some(number) = placed.filter_of(group, settings) {
                insert(number, hashing.element(content, group.number));
            }
        });
        for (number, &file) in (0..).zip(files) {
            insert(placed.filter_of_file(number, settings), hashing.file_element(file));
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
    if table.folds == MOST_FOLDS || filters.is_empty() {
        return None;
    }
    let mut folded = body.get(..table.filters)?.to_vec();
    *folded.first_mut()? += 1;
    // Each filter has an even number of bytes as long as it can be folded.
    folded.extend(filter::folded(filters));
    Some(folded)
}

/// Whether a body is one of ours.
pub(super) fn check(hbf: &Hbf, body: &[u8], messages: u32) -> Result<(), Damage> {
    Table::read(hbf, &Body::plain(body), messages).map(|_| ())
}
