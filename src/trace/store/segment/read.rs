//! The tables of the messages of a segment, and the messages at positions of its body.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::Range;

use super::authenticated::Authenticated;
use super::bits::BitReader;
use super::blocks::BlockTable;
use super::codes::{Decoders, MESSAGES, SymbolKind};
use super::dictionary::{LOCAL_PART, SENDER};
use super::many::{self, ManyCodes};
use super::messages::{EACH, EACH_SENDER};
use super::positions;
use super::{SealedBlock, Segment};

/// The numbers of the sections of envelopes, senders, authenticated ids, and positions.
pub(super) const ENVELOPES: usize = 6;
pub(super) const SENDERS: usize = 7;
pub(super) const NAMES: usize = 8;
const POSITIONS: usize = 9;
/// So often a block is searched for along a line, and then by halves.
const LINES: usize = 4;

/// The envelopes of a segment.
#[derive(Debug)]
pub(in super::super) struct Messages<'a> {
    pub(super) segment: &'a Segment,
    pub(super) decoders: Decoders,
    pub(super) codes: ManyCodes<'a>,
    pub(super) envelopes: BlockTable,
    pub(super) senders: BlockTable,
    pub(super) names: BlockTable,
    positions: BlockTable,
    /// The position in the body at which each run begins.
    starts: Vec<u32>,
}

/// The bytes of a block, and the numbers of the messages it should contain.
type BlockOf = (Vec<u8>, Range<usize>);

impl<'a> Messages<'a> {
    /// The messages of a segment; `None` if both copies of their table are
    /// damaged.
    pub(in super::super) fn of(segment: &'a Segment) -> Option<Self> {
        let bytes = segment.table(1)?;
        let mut bits = BitReader::new(&bytes);
        let head = &segment.head;
        let sizes = head.sizes();
        let lengths = BlockTable::read(u32::try_from(many::blocks(&sizes)).ok()?, 1, &mut bits)?;
        let envelopes = BlockTable::read(head.messages, EACH, &mut bits)?;
        let senders = BlockTable::read(head.messages, EACH_SENDER, &mut bits)?;
        let names = BlockTable::read(head.messages, EACH_SENDER, &mut bits)?;
        let positions = BlockTable::read(head.messages, positions::EACH, &mut bits)?;
        let starts = (0..head.runs).map(|_| Some(bits.take(32)? as u32)).collect::<Option<_>>()?;
        let codes = ManyCodes::read(segment, lengths, &mut bits)?;
        let at = bits.at();
        let decoders = Decoders::new(&MESSAGES, sizes, bytes, at);
        Some(Self { segment, decoders, codes, envelopes, senders, names, positions, starts })
    }

    /// The range of a block of lengths in its section.
    #[cfg(test)]
    pub(super) fn lengths_block(&self, number: usize) -> Option<Range<usize>> {
        self.codes.table.block(number)
    }

    /// The bytes of a block of positions, and the numbers of the messages it should contain.
    fn positions_block(&self, number: usize) -> Option<BlockOf> {
        let bytes = self.segment.block(POSITIONS, self.positions.block(number)?)?;
        Some((bytes, self.range_of(number, positions::EACH)?))
    }

    /// The numbers of the messages that a block should contain.
    pub(super) fn range_of(&self, number: usize, each: usize) -> Option<Range<usize>> {
        let start = number.checked_mul(each)?;
        let end = (self.segment.head.messages as usize).min(start.checked_add(each)?);
        Some(start..end)
    }

    /// Whether a block is damaged that was read to find an address, a client, or an
    /// authenticated id.
    pub(in super::super) fn is_damaged(&self) -> bool {
        self.codes.are_damaged()
    }

    /// Whether the tags of all blocks are right.
    pub(super) fn is_authentic(&self) -> bool {
        let sections = [
            (many::LENGTHS, &self.codes.table),
            (ENVELOPES, &self.envelopes),
            (SENDERS, &self.senders),
            (NAMES, &self.names),
            (POSITIONS, &self.positions),
        ];
        sections.iter().all(|(section, table)| table.is_authentic(self.segment, *section))
    }

    /// The messages at these positions of the body, which are in order; `None`
    /// for a position that is unknown because of damage.
    pub(in super::super) fn at_positions(&self, wanted: &[u32]) -> Vec<Option<u32>> {
        // Two or three blocks are read for one of a few positions, and all of them for many.
        let are_few = wanted.len() < self.positions.len();
        if let Some(found) = are_few.then(|| self.at_few_positions(wanted)).flatten() {
            return found;
        }
        let mut found = vec![None; wanted.len()];
        let bytes: Vec<_> =
            (0..self.positions.len()).map(|number| self.positions_block(number)).collect();
        let blocks = bytes.iter().map(|bytes| {
            let (bytes, range) = bytes.as_ref()?;
            let block = positions::Block::of(
                &self.decoders,
                bytes,
                &self.starts,
                self.segment.head.messages,
            )?;
            Some((block, range.clone()))
        });
        let mut blocks = blocks.peekable();
        while let Some(block) = blocks.next() {
            let Some((block, range)) = block else { continue };
            let after = blocks.peek().and_then(Option::as_ref).map(|(after, _)| after);
            // Only blocks that may contain one of the positions are read
            // completely.
            let has = |position: u32| {
                let run = self.starts.partition_point(|&start| start <= position).wrapping_sub(1);
                block.next(run) <= position && after.is_none_or(|after| position < after.next(run))
            };
            if !wanted.iter().any(|&position| has(position)) {
                continue;
            }
            for (position, message) in block.positions(range.len()).iter().flatten().zip(range) {
                if let Ok(n) = wanted.binary_search(position)
                    && let Some(found) = found.get_mut(n)
                {
                    *found = Some(message as u32);
                }
            }
        }
        found
    }

    /// The same for a few positions, each of which is searched for; `None` if a block that this
    /// reads is damaged.
    fn at_few_positions(&self, wanted: &[u32]) -> Option<Vec<Option<u32>>> {
        let mut blocks: BTreeMap<usize, SealedBlock<'_>> = BTreeMap::new();
        let mut block = |number: usize| match blocks.entry(number) {
            Entry::Occupied(known) => Some(*known.get()),
            Entry::Vacant(vacant) => {
                let range = self.positions.block(number)?;
                Some(*vacant.insert(self.segment.sealed_block(POSITIONS, range)?))
            }
        };
        let messages = self.segment.head.messages;
        let mut found = Vec::with_capacity(wanted.len());
        for &position in wanted {
            let run = self.starts.partition_point(|&start| start <= position).checked_sub(1)?;
            let start = *self.starts.get(run)?;
            // The last block from which on the next message of the run is not after it. Messages
            // of a run are mostly spread evenly, so that it is about where a line from the first
            // to the last would be.
            let end = self.starts.get(run + 1).copied().unwrap_or(messages);
            let (mut low, mut high) = ((0, start), (self.positions.len(), end));
            for tried in 0.. {
                let (blocks, positions) = (high.0 - low.0, high.1.checked_sub(low.1)?);
                if blocks <= 1 {
                    break;
                }
                let middle = if tried < LINES {
                    let part = u64::from(position.checked_sub(low.1)?) * blocks as u64;
                    (part / u64::from(positions.max(1))) as usize
                } else {
                    blocks / 2
                };
                let middle = low.0 + middle.clamp(1, blocks - 1);
                let next = positions::next_of(&block(middle)?, run, start, messages)?;
                *(if next <= position { &mut low } else { &mut high }) = (middle, next);
            }
            let (number, next) = low;
            let range = self.range_of(number, positions::EACH)?;
            let bytes = block(number)?;
            let bytes = bytes.plain(0..bytes.bytes.len())?;
            let block = positions::Block::of(&self.decoders, &bytes, &self.starts, messages)?;
            let before = position.checked_sub(next)?;
            let at = block.place_of(run as u32, before, range.len())?;
            found.push(Some((range.start + at) as u32));
        }
        Some(found)
    }

    /// Reads all positions; returns whether each message has one.
    pub(in super::super) fn check_positions(&self) -> bool {
        let all: Vec<_> = (0..self.segment.head.messages).collect();
        self.at_positions(&all).iter().all(Option::is_some)
    }

    /// Whether any message has one of these senders, unless that cannot be read.
    pub(in super::super) fn has_sender(&self, numbers: &[u32]) -> bool {
        self.has_any(SymbolKind::From, numbers)
    }

    /// Whether any message may have one of these authenticated ids.
    pub(in super::super) fn has_name(&self, auth: &Authenticated<'_>) -> bool {
        let is_sender = || auth.senders().is_none_or(|senders| self.has_sender(senders));
        self.has_any(SymbolKind::Authenticated, auth.names())
            || self.has_any(SymbolKind::Authenticated, &[SENDER]) && is_sender()
            || self.has_any(SymbolKind::Authenticated, &[LOCAL_PART])
    }

    /// Whether any message has one of these recipients.
    pub(in super::super) fn has_recipient(&self, numbers: &[u32]) -> bool {
        self.has_any(SymbolKind::To, numbers)
    }

    fn has_any(&self, what: SymbolKind, numbers: &[u32]) -> bool {
        let has = |&number: &u32| self.codes.ranks_of(what, &[number]) != Some(Vec::new());
        numbers.iter().any(has)
    }
}
