//! Reading the envelopes of a segment.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::Range;
use std::rc::Rc;

use crate::trace::Envelope;

use super::Segment;
use super::authenticated::Authenticated;
use super::bits::BitReader;
use super::blocks::Table;
use super::codes::{Decoders, MESSAGES, What};
use super::ids;
use super::lookup::Words;
use super::messages::{Block, EACH, Recipients, Rest};
use super::positions;
use super::words::{LOCAL_PART, SENDER};

/// The numbers of the sections of envelopes and of positions.
const ENVELOPES: usize = 5;
const POSITIONS: usize = 6;
/// If fewer positions are wanted than one of so many blocks, each is searched for.
const FEW_OF: usize = 4;

/// The envelopes of a segment.
#[derive(Debug)]
pub(in super::super) struct Messages<'a> {
    segment: &'a Segment,
    decoders: Decoders,
    envelopes: Table,
    positions: Table,
    /// The position in the body at which each run begins.
    starts: Vec<u32>,
}

/// Selects messages. A condition that is `None` matches all.
#[derive(Clone, Copy, Debug, Default)]
pub(in super::super) struct Wanted<'a> {
    /// Received within these seconds.
    pub(in super::super) times: Option<(i64, i64)>,
    /// From one of these senders' numbers, in order.
    pub(in super::super) from: Option<&'a [u32]>,
    /// Authenticated as one of these.
    pub(in super::super) auth: Option<&'a Authenticated<'a>>,
    /// To one of these recipients' numbers, in order.
    pub(in super::super) to: Option<&'a [u32]>,
    /// With this id.
    pub(in super::super) ids: &'a [String],
    /// Only these, in order.
    pub(in super::super) messages: Option<&'a [u32]>,
    /// Only the first so many; the others are counted, unless ids are given.
    pub(in super::super) first: Option<usize>,
}

/// The bytes of a block, and the numbers of the messages it should contain.
type BlockOf = (Vec<u8>, Range<usize>);

/// What was not read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in super::super) struct Unread {
    /// The numbers of those that cannot be read.
    pub(in super::super) damaged: Vec<Range<u32>>,
    /// How many others there are that were wanted.
    pub(in super::super) others: u64,
}

/// A message that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) struct Row {
    /// Its number.
    pub(in super::super) message: u32,
    pub(in super::super) envelope: Envelope,
    /// Whether a part could not be read, and is empty.
    pub(in super::super) damaged: bool,
}

impl<'a> Messages<'a> {
    /// The messages of a segment; `None` if both copies of their table are
    /// damaged.
    pub(in super::super) fn of(segment: &'a Segment) -> Option<Self> {
        let bytes = segment.table(1)?;
        let mut bits = BitReader::new(&bytes);
        let head = &segment.head;
        let envelopes = Table::read(head.messages, EACH, &mut bits)?;
        let positions = Table::read(head.messages, positions::EACH, &mut bits)?;
        let starts = (0..head.runs).map(|_| Some(bits.take(32)? as u32)).collect::<Option<_>>()?;
        let decoders = Decoders::read(&MESSAGES, &head.sizes(), &mut bits)?;
        Some(Self { segment, decoders, envelopes, positions, starts })
    }

    /// The bytes of a block, and the numbers of the messages it should contain.
    fn block(&self, section: usize, table: &Table, number: usize, each: usize) -> Option<BlockOf> {
        let bytes = self.segment.block(section, table.block(number)?)?;
        Some((bytes, self.range_of(number, each)?))
    }

    /// The numbers of the messages that a block should contain.
    fn range_of(&self, number: usize, each: usize) -> Option<Range<usize>> {
        let start = number.checked_mul(each)?;
        let end = (self.segment.head.messages as usize).min(start.checked_add(each)?);
        Some(start..end)
    }

    /// Whether the tags of all blocks are right.
    pub(super) fn is_authentic(&self) -> bool {
        let sections = [(ENVELOPES, &self.envelopes), (POSITIONS, &self.positions)];
        sections.iter().all(|(section, table)| table.is_authentic(self.segment, *section))
    }

    /// The messages at these positions of the body, which are in order; `None`
    /// for a position that is unknown because of damage.
    pub(in super::super) fn at_positions(&self, wanted: &[u32]) -> Vec<Option<u32>> {
        let are_few = wanted.len() < self.positions.len() / FEW_OF;
        if let Some(found) = are_few.then(|| self.at_few_positions(wanted)).flatten() {
            return found;
        }
        let mut found = vec![None; wanted.len()];
        let bytes: Vec<_> = (0..self.positions.len())
            .map(|number| self.block(POSITIONS, &self.positions, number, positions::EACH))
            .collect();
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
        let mut blocks: BTreeMap<usize, Rc<BlockOf>> = BTreeMap::new();
        let mut block = |number: usize| {
            if let Entry::Vacant(vacant) = blocks.entry(number) {
                let block = self.block(POSITIONS, &self.positions, number, positions::EACH)?;
                vacant.insert(Rc::new(block));
            }
            blocks.get(&number).map(Rc::clone)
        };
        let messages = self.segment.head.messages;
        let mut read: Option<(usize, Vec<u32>)> = None;
        let mut found = Vec::with_capacity(wanted.len());
        for &position in wanted {
            let run = self.starts.partition_point(|&start| start <= position).checked_sub(1)?;
            let start = *self.starts.get(run)?;
            // The last block from which on the next message of the run is not after it.
            let (mut low, mut high) = (0, self.positions.len());
            while low + 1 < high {
                let middle = low.midpoint(high);
                let next = positions::next_of(&block(middle)?.0, run, start, messages)?;
                *(if next <= position { &mut low } else { &mut high }) = middle;
            }
            let block = block(low)?;
            let (bytes, range) = &*block;
            if read.as_ref().is_none_or(|(number, _)| *number != low) {
                let block = positions::Block::of(&self.decoders, bytes, &self.starts, messages)?;
                read = Some((low, block.positions(range.len())?));
            }
            let at = read.as_ref()?.1.iter().position(|&one| one == position)?;
            found.push(Some((range.start + at) as u32));
        }
        Some(found)
    }

    /// Reads all positions; returns whether each message has one.
    pub(in super::super) fn check_positions(&self) -> bool {
        let all: Vec<_> = (0..self.segment.head.messages).collect();
        self.at_positions(&all).iter().all(Option::is_some)
    }

    /// Whether any message has one of these senders.
    pub(in super::super) fn has_sender(&self, numbers: &[u32]) -> bool {
        numbers.iter().any(|&number| self.decoders.has(What::From, number))
    }

    /// Whether any message may have one of these authenticated ids.
    pub(in super::super) fn has_name(&self, auth: &Authenticated<'_>) -> bool {
        let has = |number: u32| self.decoders.has(What::Authenticated, number);
        auth.names().iter().any(|&number| has(number)) || has(SENDER) || has(LOCAL_PART)
    }

    /// Whether any message has one of these recipients.
    pub(in super::super) fn has_recipient(&self, numbers: &[u32]) -> bool {
        numbers.iter().any(|&number| self.decoders.has(What::To, number))
    }

    /// Passes the selected messages to `row`, in order; returns which it did not.
    pub(in super::super) fn read(
        &self,
        words: &Words<'_>,
        wanted: &Wanted<'_>,
        row: &mut dyn FnMut(Row),
    ) -> Unread {
        let mut unread = Unread::default();
        let mut left = wanted.first.filter(|_| wanted.ids.is_empty()).unwrap_or(usize::MAX);
        for number in 0..self.envelopes.len() {
            let start = (number * EACH) as u32;
            let end = self.segment.head.messages.min(start.saturating_add(EACH as u32));
            if let Some(messages) = wanted.messages {
                let first = messages.partition_point(|&message| message < start);
                if messages.get(first).is_none_or(|&message| message >= end) {
                    continue;
                }
            }
            match self.read_block(number, words, wanted, &mut left, row) {
                Some(others) => unread.others += others as u64,
                None => unread.damaged.push(start..end),
            }
        }
        unread
    }

    /// As [`Messages::read`], for one block, and at most `left` messages; returns how many
    /// others there are, or `None` if it is damaged.
    fn read_block(
        &self,
        number: usize,
        words: &Words<'_>,
        wanted: &Wanted<'_>,
        left: &mut usize,
        row: &mut dyn FnMut(Row),
    ) -> Option<usize> {
        let bytes = self.segment.sealed_block(ENVELOPES, self.envelopes.block(number)?)?;
        let range = self.range_of(number, EACH)?;
        let oldest = self.segment.head.times[0];
        let number_of = |n: usize| (range.start + n) as u32;
        let mut fits: Vec<usize> = match wanted.messages {
            None => (0..range.len()).collect(),
            Some(messages) => {
                let from = |n: usize| messages.partition_point(|&message| message < number_of(n));
                let these = messages.get(from(0)..from(range.len())).unwrap_or_default();
                these.iter().map(|&message| message as usize - range.start).collect()
            }
        };
        // Messages after the last selected one need not be read.
        let block = Block::of(&self.decoders, bytes, fits.last().map_or(0, |last| last + 1))?;
        let mut times = Vec::new();
        if let Some((since, until)) = wanted.times {
            times = block.times(oldest)?;
            fits.retain(|&n| times.get(n).is_some_and(|time| (since..=until).contains(time)));
        }
        if fits.is_empty() {
            return Some(0);
        }
        let (mut senders, mut names) = (Vec::new(), Vec::new());
        if let Some(auth) = wanted.auth {
            names = block.names()?;
            fits.retain(|&n| names.get(n).is_some_and(|&name| auth.may_have(name)));
            if fits.is_empty() {
                return Some(0);
            }
        }
        if wanted.from.is_some() || wanted.auth.is_some() {
            senders = block.senders()?;
        }
        if let Some(from) = wanted.from {
            fits.retain(|&n| senders.get(n).is_some_and(|one| from.binary_search(one).is_ok()));
        }
        if fits.is_empty() {
            return Some(0);
        }
        if let Some(auth) = wanted.auth {
            let has = |n: usize| Some(auth.has(*names.get(n)?, *senders.get(n)?));
            fits.retain(|&n| has(n) == Some(true));
        }
        if fits.is_empty() {
            return Some(0);
        }
        let mut recipients = Recipients::default();
        if let Some(to) = wanted.to {
            recipients = block.recipients()?;
            fits.retain(|&n| recipients.of(n).iter().any(|one| to.binary_search(one).is_ok()));
        }
        let others = fits.len().saturating_sub(*left);
        fits.truncate(*left);
        if fits.is_empty() {
            return Some(others);
        }
        *left -= fits.len();
        if wanted.to.is_none() {
            recipients = block.recipients()?;
        }
        if wanted.times.is_none() {
            times = block.times(oldest)?;
        }
        if wanted.from.is_none() && wanted.auth.is_none() {
            senders = block.senders()?;
        }
        if wanted.auth.is_none() {
            names = block.names()?;
        }
        let time = |n: usize| times.get(n).copied().unwrap_or_default();
        let number = |of: &[u32], n: usize| of.get(n).copied().unwrap_or_default();
        let last = fits.last().map_or(0, |last| last + 1);
        let rest = block.rest(times.get(..last)?)?;
        let ids: Vec<_> = wanted.ids.iter().map(|id| (id, ids::parse(id))).collect();
        for n in fits {
            let fits_id = |rest: &&Rest| {
                ids.is_empty() || ids.iter().any(|(id, parsed)| rest.has_id(id, *parsed))
            };
            let Some(rest) = rest.get(n).filter(fits_id) else { continue };
            let mut damaged = false;
            let mut address = |number| {
                words.address(number).unwrap_or_else(|| {
                    damaged = true;
                    String::new()
                })
            };
            let sender = address(number(&senders, n));
            let recipients = recipients.of(n).iter().map(|&number| address(number)).collect();
            let (client, name) =
                (words.client(rest.client), words.name(number(&names, n), &sender));
            damaged |= client.is_none() || name.is_none();
            let envelope = Envelope {
                time: time(n),
                id: rest.id(),
                sender,
                recipients,
                client: client.flatten(),
                authenticated: name.unwrap_or_default(),
                partial: rest.partial,
            };
            row(Row { message: number_of(n), envelope, damaged });
        }
        Some(others)
    }
}
