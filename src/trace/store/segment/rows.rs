//! Reading the messages that are selected.

use std::ops::Range;

use crate::trace::Envelope;

use super::SealedBlock;
use super::authenticated::Authenticated;
use super::blocks::BlockTable;
use super::codes::SymbolKind;
use super::dictionary::{LOCAL_PART, SENDER};
use super::ids::{self, Form, Id};
use super::lookup::Words;
use super::many::ManyCodes;
use super::messages::{Block, Column, EACH, EACH_SENDER, Recipients, Rest};
use super::read::{ENVELOPES, Messages, NAMES, SENDERS};

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

impl Messages<'_> {
    /// Passes the selected messages to `row`, in order; returns which it did not. Where damage
    /// hides which addresses are selected, messages with others are passed too.
    pub(in super::super) fn read(
        &self,
        words: &Words<'_>,
        wanted: &Wanted<'_>,
        row: &mut dyn FnMut(Row),
    ) -> Unread {
        let mut unread = Unread::default();
        let mut reading = Reading::new(self, words, wanted);
        for number in 0..self.envelopes.len() {
            let start = (number * EACH) as u32;
            let end = self.segment.head.messages.min(start.saturating_add(EACH as u32));
            if let Some(messages) = wanted.messages {
                let first = messages.partition_point(|&message| message < start);
                if messages.get(first).is_none_or(|&message| message >= end) {
                    continue;
                }
            }
            match reading.block(number, row) {
                Some(others) => unread.others += others as u64,
                None => unread.damaged.push(start..end),
            }
        }
        unread
    }
}

/// Messages being read.
struct Reading<'r, 's> {
    messages: &'r Messages<'s>,
    words: &'r Words<'s>,
    wanted: &'r Wanted<'r>,
    ids: Vec<(&'r str, (Form, Id))>,
    /// The ranks of the senders and recipients that are selected.
    from: Option<Vec<u32>>,
    to: Option<Vec<u32>>,
    auth: Option<Auth<'r>>,
    senders: Cursor<'r>,
    names: Cursor<'r>,
    /// At most so many messages are still read.
    left: usize,
}

/// The ranks of the authenticated ids that are selected.
struct Auth<'r> {
    by: &'r Authenticated<'r>,
    /// Those that are stored, or of none.
    names: Vec<u32>,
    /// That of the sender.
    sender: Option<u32>,
    /// That of the sender's local part.
    local_part: Option<u32>,
    /// The senders that are selected, if they are known.
    senders: Option<Vec<u32>>,
}

impl<'r> Auth<'r> {
    /// The ranks of these authenticated ids; `None` if they cannot be read.
    fn of(by: &'r Authenticated<'r>, codes: &ManyCodes<'_>) -> Option<Self> {
        let rank =
            |name| Some(codes.ranks_of(SymbolKind::Authenticated, &[name])?.first().copied());
        let senders = match by.senders() {
            Some(senders) => Some(codes.ranks_of(SymbolKind::From, senders)?),
            None => None,
        };
        Some(Self {
            by,
            names: codes.ranks_of(SymbolKind::Authenticated, by.names())?,
            sender: rank(SENDER)?,
            local_part: rank(LOCAL_PART)?,
            senders,
        })
    }
}

/// The block of a column that was read last.
struct Cursor<'r> {
    what: SymbolKind,
    section: usize,
    table: &'r BlockTable,
    read: Option<(usize, Column)>,
}

impl Cursor<'_> {
    /// The ranks of the symbols of some messages of a segment, all in one block.
    fn ranks(&mut self, messages: &Messages<'_>, range: Range<usize>) -> Option<&[u32]> {
        let number = range.start / EACH_SENDER;
        if self.read.as_ref().is_none_or(|(read, _)| *read != number) {
            let bytes = messages.segment.block(self.section, self.table.block(number)?)?;
            self.read = Some((number, Column::new(self.what, bytes)));
        }
        let start = range.start % EACH_SENDER;
        let (_, column) = self.read.as_mut()?;
        column.ranks(&messages.codes, start..start + range.len())
    }

    /// Of some messages of a block that begins with the first of `range`, keeps those with one of
    /// the symbols with these ranks.
    fn keep(
        &mut self,
        messages: &Messages<'_>,
        range: &Range<usize>,
        wanted: &[u32],
        these: &mut Vec<usize>,
    ) -> Option<()> {
        let Some(last) = these.last() else { return Some(()) };
        let ranks = self.ranks(messages, range.start..range.start + last + 1)?;
        match wanted {
            [one] => these.retain(|&n| ranks.get(n) == Some(one)),
            _ => these.retain(|&n| ranks.get(n).is_some_and(|&rank| has(wanted, rank))),
        }
        Some(())
    }
}

/// Whether one of some ranks, in order, is this one.
#[inline]
fn has(ranks: &[u32], rank: u32) -> bool {
    match ranks {
        [] => false,
        [one] => *one == rank,
        _ => ranks.binary_search(&rank).is_ok(),
    }
}

impl<'r, 's> Reading<'r, 's> {
    /// Selects messages. A condition whose ranks cannot be read matches all.
    fn new(messages: &'r Messages<'s>, words: &'r Words<'s>, wanted: &'r Wanted<'r>) -> Self {
        let codes = &messages.codes;
        let from = wanted.from.and_then(|from| codes.ranks_of(SymbolKind::From, from));
        let to = wanted.to.and_then(|to| codes.ranks_of(SymbolKind::To, to));
        let auth = wanted.auth.and_then(|by| Auth::of(by, codes));
        let is_exact = wanted.from.is_some() == from.is_some()
            && wanted.to.is_some() == to.is_some()
            && wanted.auth.is_some() == auth.is_some();
        let first = wanted.first.filter(|_| is_exact && wanted.ids.is_empty());
        let cursor = |what, section, table| Cursor { what, section, table, read: None };
        Self {
            messages,
            words,
            wanted,
            ids: wanted.ids.iter().map(|id| (id.as_str(), ids::parse(id))).collect(),
            from,
            to,
            auth,
            senders: cursor(SymbolKind::From, SENDERS, &messages.senders),
            names: cursor(SymbolKind::Authenticated, NAMES, &messages.names),
            left: first.unwrap_or(usize::MAX),
        }
    }

    /// Passes the selected messages of a block to `row`; returns how many others there are, or
    /// `None` if it is damaged.
    fn block(&mut self, number: usize, row: &mut dyn FnMut(Row)) -> Option<usize> {
        let range = self.messages.range_of(number, EACH)?;
        let mut fits: Vec<usize> = match self.wanted.messages {
            None => (0..range.len()).collect(),
            Some(messages) => {
                let from = |n: usize| messages.partition_point(|&one| (one as usize) < n);
                let these = messages.get(from(range.start)..from(range.end)).unwrap_or_default();
                these.iter().map(|&message| message as usize - range.start).collect()
            }
        };
        self.keep_names(&range, &mut fits)?;
        if let Some(from) = &self.from {
            self.senders.keep(self.messages, &range, from, &mut fits)?;
        }
        if fits.is_empty() {
            return Some(0);
        }
        let bytes = self.messages.envelopes.block(number)?;
        let bytes = self.messages.segment.sealed_block(ENVELOPES, bytes)?;
        self.rows(bytes, range.start, fits, row)
    }

    /// Keeps the messages with one of the authenticated ids.
    fn keep_names(&mut self, range: &Range<usize>, fits: &mut Vec<usize>) -> Option<()> {
        let Some(auth) = &self.auth else { return Some(()) };
        if let Some(senders) = &auth.senders
            && auth.names.is_empty()
            && auth.local_part.is_none()
        {
            // Few messages have the sender.
            self.senders.keep(self.messages, range, senders, fits)?;
        }
        let Some(end) = fits.last().map(|last| range.start + last + 1) else { return Some(()) };
        let names = self.names.ranks(self.messages, range.start..end)?;
        let is_stored = |name: u32| has(&auth.names, name);
        let is_derived = |name| [auth.sender, auth.local_part].contains(&Some(name));
        fits.retain(|&n| names.get(n).is_some_and(|&name| is_stored(name) || is_derived(name)));
        if !fits.iter().any(|&n| names.get(n).is_some_and(|&name| !is_stored(name))) {
            return Some(());
        }
        let senders = self.senders.ranks(self.messages, range.start..end)?;
        let fits_sender = |name: u32, sender: u32| {
            if is_stored(name) {
                return true;
            }
            let is_address = Some(name) == auth.sender;
            match auth.senders.as_ref().filter(|_| is_address) {
                Some(senders) => has(senders, sender),
                None => {
                    let number = self.messages.codes.symbol_of(SymbolKind::From, sender);
                    number.is_none_or(|number| auth.by.has_sender(number, is_address))
                }
            }
        };
        fits.retain(|&n| match (names.get(n), senders.get(n)) {
            (Some(&name), Some(&sender)) => fits_sender(name, sender),
            _ => false,
        });
        Some(())
    }

    /// As [`Reading::block`], for messages of the block with these bytes, of which the first is
    /// that with the number `start`.
    fn rows(
        &mut self,
        bytes: SealedBlock<'_>,
        start: usize,
        mut fits: Vec<usize>,
        row: &mut dyn FnMut(Row),
    ) -> Option<usize> {
        // Messages after the last selected one need not be read.
        let count = |fits: &[usize]| fits.last().map_or(0, |last| last + 1);
        let codes = &self.messages.codes;
        let oldest = self.messages.segment.head.times[0];
        let mut block = Block::of((&self.messages.decoders, codes), bytes, count(&fits))?;
        let mut times = Vec::new();
        if let Some((since, until)) = self.wanted.times {
            times = block.times(oldest)?;
            fits.retain(|&n| times.get(n).is_some_and(|time| (since..=until).contains(time)));
        }
        let mut recipients = Recipients::default();
        if let Some(to) = self.to.as_ref().filter(|_| !fits.is_empty()) {
            recipients = block.recipients()?;
            fits.retain(|&n| recipients.of(n).iter().any(|&one| has(to, one)));
        }
        let others = fits.len().saturating_sub(self.left);
        fits.truncate(self.left);
        if fits.is_empty() {
            return Some(others);
        }
        block.keep(count(&fits));
        if self.to.is_none() {
            recipients = block.recipients()?;
        }
        if self.wanted.times.is_none() {
            times = block.times(oldest)?;
        }
        let rest = block.rest(times.get(..count(&fits))?)?;
        let range = start..start + count(&fits);
        let senders = self.senders.ranks(self.messages, range.clone())?;
        let names = self.names.ranks(self.messages, range)?;
        self.left -= fits.len();
        for n in fits {
            let fits_id = |rest: &&Rest| {
                self.ids.is_empty() || self.ids.iter().any(|(id, parsed)| rest.has_id(id, *parsed))
            };
            let Some(rest) = rest.get(n).filter(fits_id) else { continue };
            let mut damaged = false;
            let mut address = |what, rank| {
                let number = codes.symbol_of(what, rank);
                number.and_then(|number| self.words.address(number)).unwrap_or_else(|| {
                    damaged = true;
                    String::new()
                })
            };
            let sender = address(SymbolKind::From, *senders.get(n)?);
            let recipients =
                recipients.of(n).iter().map(|&rank| address(SymbolKind::To, rank)).collect();
            let name = codes.symbol_of(SymbolKind::Authenticated, *names.get(n)?);
            let name = name.and_then(|name| self.words.name(name, &sender));
            let client = codes.symbol_of(SymbolKind::Client, rest.client);
            let client = client.and_then(|client| self.words.client(client));
            damaged |= client.is_none() || name.is_none();
            let envelope = Envelope {
                time: times.get(n).copied().unwrap_or_default(),
                id: rest.id(),
                sender,
                recipients,
                client: client.flatten(),
                authenticated: name.unwrap_or_default(),
                partial: rest.partial,
            };
            row(Row { message: (start + n) as u32, envelope, damaged });
        }
        Some(others)
    }
}
