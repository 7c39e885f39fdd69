//! The envelopes, ordered by time, in blocks that can be read separately.
//!
//! Senders and authenticated ids are in sections of their own, so that a search for them reads
//! nothing else. A block of the rest has three columns: times, recipients, and everything else.
//! It begins with the lengths of the first two in bytes, each in groups of 7 bits, the lowest
//! first; the highest bit of a byte is set if another group follows.

use std::borrow::Cow;
use std::ops::Range;

use crate::trace::Envelope;

use super::SealedBlock;
use super::bits::BitReader;
use super::blocks::{BlockItems, Section};
use super::codes::{Codes, Decoders, Sink, SymbolKind, SymbolReader, Writer};
use super::dictionary::Words;
use super::ids::{self, Form, Id};
use super::many::ManyCodes;

/// The number of messages in a block.
pub(super) const EACH: usize = 128;
/// The number of messages in a block of senders or of authenticated ids.
pub(super) const EACH_SENDER: usize = 1024;
/// The kinds of symbols of an id's text.
const ID: [SymbolKind; 3] = [SymbolKind::IdByte, SymbolKind::IdShared, SymbolKind::IdRest];
/// Added to the number of an id's form if the message is partial.
const PARTIAL: u32 = 4;
/// The number of columns.
const COLUMNS: usize = 3;

/// So many bytes of a block are decrypted at once: the lengths of the columns take at most 10.
const FIRST: usize = 256;

/// The envelopes of a segment being built.
#[derive(Debug)]
pub(super) struct Messages<'a> {
    pub(super) envelopes: &'a [Envelope],
    pub(super) words: &'a Words,
    /// The earliest time.
    pub(super) oldest: i64,
}

/// Writes a column of some messages.
type Put<T> = fn(&T, &[Envelope], &mut dyn Sink);

impl Messages<'_> {
    fn put_times(&self, envelopes: &[Envelope], sink: &mut dyn Sink) {
        let mut before = self.oldest;
        for envelope in envelopes {
            sink.number(SymbolKind::Time, envelope.time.wrapping_sub(before).cast_unsigned());
            before = envelope.time;
        }
    }

    fn put_recipients(&self, envelopes: &[Envelope], sink: &mut dyn Sink) {
        for envelope in envelopes {
            sink.number(SymbolKind::Count, envelope.recipients.len() as u64);
            for recipient in &envelope.recipients {
                sink.symbol(SymbolKind::To, self.words.address(recipient));
            }
        }
    }

    fn put_rest(&self, envelopes: &[Envelope], sink: &mut dyn Sink) {
        let (mut process, mut text) = (0, "");
        for envelope in envelopes {
            let (form, id) = ids::parse(&envelope.id);
            sink.symbol(
                SymbolKind::Form,
                form.number() + if envelope.partial { PARTIAL } else { 0 },
            );
            match form {
                Form::None => {}
                Form::Text => {
                    sink.text(ID, text.as_bytes(), envelope.id.as_bytes());
                    text = &envelope.id;
                }
                Form::Short | Form::Long => {
                    sink.signed(SymbolKind::IdTime, envelope.time.wrapping_sub(id.time));
                    sink.signed(SymbolKind::IdProcess, id.process.wrapping_sub(process));
                    sink.number(SymbolKind::IdFraction, id.fraction);
                    process = id.process;
                }
            }
            sink.symbol(SymbolKind::Client, self.words.client(envelope.client));
        }
    }
}

impl BlockItems for Messages<'_> {
    const EACH: usize = EACH;

    fn count(&self) -> usize {
        self.envelopes.len()
    }

    fn put(&self, range: Range<usize>, sink: &mut dyn Sink) {
        let envelopes = self.envelopes.get(range).unwrap_or(&[]);
        self.put_times(envelopes, sink);
        self.put_recipients(envelopes, sink);
        self.put_rest(envelopes, sink);
    }

    fn write(&self, codes: &Codes) -> Section {
        let mut section = Section::default();
        for envelopes in self.envelopes.chunks(EACH) {
            let puts: [Put<Self>; COLUMNS] =
                [Self::put_times, Self::put_recipients, Self::put_rest];
            let columns = puts.map(|put| {
                let mut writer = Writer::new(codes);
                put(self, envelopes, &mut writer);
                writer.bits.finish()
            });
            let mut block = Vec::new();
            for column in columns.iter().take(COLUMNS - 1) {
                put_length(column.len(), &mut block);
            }
            section.push(&[block, columns.concat()].concat());
        }
        section
    }
}

/// The senders of a segment being built.
#[derive(Debug)]
pub(super) struct Senders<'a>(pub(super) &'a Messages<'a>);

impl BlockItems for Senders<'_> {
    const EACH: usize = EACH_SENDER;

    fn count(&self) -> usize {
        self.0.count()
    }

    fn put(&self, range: Range<usize>, sink: &mut dyn Sink) {
        for envelope in self.0.envelopes.get(range).unwrap_or_default() {
            sink.symbol(SymbolKind::From, self.0.words.address(&envelope.sender));
        }
    }
}

/// The authenticated ids of a segment being built.
#[derive(Debug)]
pub(super) struct NameColumn<'a>(pub(super) &'a Messages<'a>);

impl BlockItems for NameColumn<'_> {
    const EACH: usize = EACH_SENDER;

    fn count(&self) -> usize {
        self.0.count()
    }

    fn put(&self, range: Range<usize>, sink: &mut dyn Sink) {
        for envelope in self.0.envelopes.get(range).unwrap_or_default() {
            sink.symbol(SymbolKind::Authenticated, self.0.words.name(envelope));
        }
    }
}

/// Appends a length, in groups of 7 bits.
fn put_length(mut length: usize, block: &mut Vec<u8>) {
    while length >= 0x80 {
        block.push(length as u8 | 0x80);
        length >>= 7;
    }
    block.push(length as u8);
}

/// Reads a length.
fn take_length(block: &mut &[u8]) -> Option<usize> {
    let mut length = 0;
    // At most 35 bits.
    for shift in (0..35).step_by(7) {
        let (&byte, rest) = block.split_first()?;
        *block = rest;
        length |= usize::from(byte & 0x7F) << shift;
        if byte < 0x80 {
            return Some(length);
        }
    }
    None
}

/// A block of senders or of authenticated ids, which is read as far as it is needed.
#[derive(Debug)]
pub(super) struct Column {
    what: SymbolKind,
    bytes: Vec<u8>,
    /// The bit after the last symbol that was read.
    at: u64,
    /// The ranks of the symbols that were read.
    ranks: Vec<u32>,
}

impl Column {
    /// The block with these bytes.
    pub(super) fn new(what: SymbolKind, bytes: Vec<u8>) -> Self {
        Self { what, bytes, at: 0, ranks: Vec::with_capacity(EACH_SENDER) }
    }

    /// The ranks of some symbols of the block, or of the first of them.
    pub(super) fn ranks(&mut self, codes: &ManyCodes<'_>, range: Range<usize>) -> Option<&[u32]> {
        let mut bits = BitReader::from(&self.bytes, self.at);
        let before = self.ranks.len();
        if codes.of(self.what)?.take(&mut bits, range.end, &mut self.ranks).is_none() {
            self.ranks.truncate(before);
            return None;
        }
        self.at = bits.at();
        self.ranks.get(range)
    }
}

/// A block for reading.
#[derive(Clone, Debug)]
pub(super) struct Block<'a> {
    decoders: &'a Decoders,
    codes: &'a ManyCodes<'a>,
    bytes: SealedBlock<'a>,
    /// Its first bytes, decrypted: mostly all of the times.
    first: Vec<u8>,
    /// Where each column is.
    columns: [Range<usize>; COLUMNS],
    /// Only this many messages are read, from the first on.
    count: usize,
}

/// An envelope without its words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Rest {
    form: Form,
    numbers: Id,
    text: String,
    pub(super) partial: bool,
    /// The rank of the client.
    pub(super) client: u32,
}

impl Rest {
    /// The message's id.
    pub(super) fn id(&self) -> String {
        match self.form {
            Form::None | Form::Text => self.text.clone(),
            Form::Short | Form::Long => ids::write(self.form, self.numbers),
        }
    }

    /// Whether the message has this id, given both as text and parsed
    /// ([`ids::parse`]).
    pub(super) fn has_id(&self, id: &str, parsed: (Form, Id)) -> bool {
        parsed == (self.form, self.numbers) && (self.form != Form::Text || self.text == id)
    }
}

/// The recipients of the messages of a block.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Recipients {
    all: Vec<u32>,
    ends: Vec<usize>,
}

impl Recipients {
    /// The recipients of one message.
    pub(super) fn of(&self, message: usize) -> &[u32] {
        let before = message.checked_sub(1).and_then(|before| self.ends.get(before));
        let start = before.copied().unwrap_or(0);
        let end = self.ends.get(message).copied().unwrap_or(start);
        self.all.get(start..end).unwrap_or(&[])
    }
}

impl<'a> Block<'a> {
    /// The first `count` messages of the block with these bytes; `None` if they
    /// are invalid.
    pub(super) fn of(
        (decoders, codes): (&'a Decoders, &'a ManyCodes<'a>),
        bytes: SealedBlock<'a>,
        count: usize,
    ) -> Option<Self> {
        let all = bytes.bytes.len();
        let first = bytes.plain(0..all.min(FIRST))?;
        let (mut rest, mut lengths) = (first.as_slice(), [0; COLUMNS - 1]);
        for length in &mut lengths {
            *length = take_length(&mut rest)?;
        }
        let mut start = first.len() - rest.len();
        let mut columns = [const { 0..0 }; COLUMNS];
        for (column, length) in columns.iter_mut().zip(lengths) {
            let end = start.checked_add(length).filter(|&end| end <= all)?;
            *column = start..end;
            start = end;
        }
        *columns.last_mut()? = start..all;
        Some(Self { decoders, codes, bytes, first, columns, count })
    }

    /// Leaves out all messages but the first `count`.
    pub(super) fn keep(&mut self, count: usize) {
        self.count = self.count.min(count);
    }

    /// A column, decrypted.
    fn column(&self, number: usize) -> Option<Cow<'_, [u8]>> {
        let range = self.columns.get(number)?.clone();
        match self.first.get(range.clone()) {
            Some(column) => Some(Cow::Borrowed(column)),
            None => self.bytes.plain(range).map(Cow::Owned),
        }
    }

    /// The time of each message.
    pub(super) fn times(&self, oldest: i64) -> Option<Vec<i64>> {
        let column = self.column(0)?;
        let mut reader = SymbolReader::new(self.decoders, &column);
        let (mut time, mut times) = (oldest, Vec::with_capacity(self.count));
        for _ in 0..self.count {
            time = time.wrapping_add(reader.number(SymbolKind::Time)?.cast_signed());
            times.push(time);
        }
        Some(times)
    }

    /// The recipients of each message: their ranks.
    pub(super) fn recipients(&self) -> Option<Recipients> {
        let (column, to) = (self.column(1)?, self.codes.of(SymbolKind::To)?);
        let mut reader = SymbolReader::new(self.decoders, &column);
        // A code with one symbol takes no bits, so the number is limited by
        // what a log can contain.
        let mut left = super::super::record::PAYLOAD_BYTES_MAX as u64 / 2;
        let mut found = Recipients {
            all: Vec::with_capacity(2 * self.count),
            ends: Vec::with_capacity(self.count),
        };
        for _ in 0..self.count {
            let count = reader.number(SymbolKind::Count)?;
            left = left.checked_sub(count)?;
            let end = found.all.len().checked_add(usize::try_from(count).ok()?)?;
            to.take(&mut reader.bits, end, &mut found.all)?;
            found.ends.push(found.all.len());
        }
        Some(found)
    }

    /// Everything else, for the first messages, which have these times.
    pub(super) fn rest(&self, times: &[i64]) -> Option<Vec<Rest>> {
        let column = self.column(2)?;
        let mut reader = SymbolReader::new(self.decoders, &column);
        let clients = self.codes.of(SymbolKind::Client)?;
        let (mut process, mut text, mut client) = (0_i64, Vec::new(), Vec::new());
        (times.iter().take(self.count))
            .map(|&time| {
                let form = reader.symbol(SymbolKind::Form)?;
                let partial = form & PARTIAL != 0;
                let form = Form::numbered(form & !PARTIAL);
                let mut numbers = Id::default();
                match form {
                    Form::None => {}
                    Form::Text => reader.text(ID, &mut text)?,
                    Form::Short | Form::Long => {
                        numbers.time = time.wrapping_sub(reader.signed(SymbolKind::IdTime)?);
                        process = process.wrapping_add(reader.signed(SymbolKind::IdProcess)?);
                        numbers.process = process;
                        numbers.fraction = reader.number(SymbolKind::IdFraction)?;
                    }
                }
                let text = if form == Form::Text { text.clone() } else { Vec::new() };
                let text = String::from_utf8(text).ok()?;
                client.clear();
                clients.take(&mut reader.bits, 1, &mut client)?;
                Some(Rest { form, numbers, text, partial, client: *client.first()? })
            })
            .collect()
    }
}
