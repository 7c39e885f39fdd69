//! The codes of a segment, one for each kind of symbol.

use std::cell::{Cell, OnceCell};

use super::super::wire::TEXT_BYTES_MAX;
use super::bits::{BitReader, BitWriter};
use super::huffman::{Code, Decoder};

/// The kinds of symbols, each with its own code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SymbolKind {
    /// A byte of a text.
    Byte,
    /// The number of bytes that a text shares with the previous one.
    Shared,
    /// The number of bytes after these.
    Rest,
    /// The difference of an address's domain number from the previous one.
    Domain,
    /// The difference of an IPv4 address from the previous one.
    Four,
    /// The difference of the upper half of an IPv6 address from the previous
    /// one.
    Six,
    /// The lower half of an IPv6 address.
    Low,
    /// The seconds since the previous message.
    Time,
    /// The number of recipients.
    Count,
    /// The form of the id, and whether the message is partial.
    Form,
    /// How many seconds the id is before the message.
    IdTime,
    /// The difference of the id's process from that of the previous id.
    IdProcess,
    /// The id's fraction of a second.
    IdFraction,
    /// A byte of an id that is not one of Exim's.
    IdByte,
    /// The number of bytes that it shares with the previous one.
    IdShared,
    /// The number of bytes after these.
    IdRest,
    /// The run of the body that contains a message.
    Run,
    /// The address of the sender.
    From,
    /// The address of a recipient.
    To,
    /// The client.
    Client,
    /// The client's authenticated id.
    Authenticated,
}

/// The number of kinds.
const KINDS: usize = 21;
/// The kinds needed to look up an address.
pub(super) const WORDS: [SymbolKind; 7] = [
    SymbolKind::Byte,
    SymbolKind::Shared,
    SymbolKind::Rest,
    SymbolKind::Domain,
    SymbolKind::Four,
    SymbolKind::Six,
    SymbolKind::Low,
];
/// The kinds needed to read messages, except those of many symbols.
pub(super) const MESSAGES: [SymbolKind; 10] = [
    SymbolKind::Time,
    SymbolKind::Count,
    SymbolKind::Form,
    SymbolKind::IdTime,
    SymbolKind::IdProcess,
    SymbolKind::IdFraction,
    SymbolKind::IdByte,
    SymbolKind::IdShared,
    SymbolKind::IdRest,
    SymbolKind::Run,
];
/// The kinds of many symbols.
pub(super) const MANY: [SymbolKind; 4] =
    [SymbolKind::Authenticated, SymbolKind::Client, SymbolKind::From, SymbolKind::To];
/// The number of symbols for a number: its bit lengths.
const NUMBER: usize = 65;
/// The number of symbols of [`SymbolKind::Form`].
const FORMS: usize = 8;

/// The numbers of symbols that depend on the segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sizes {
    pub(super) addresses: usize,
    pub(super) clients: usize,
    pub(super) authenticated: usize,
    pub(super) runs: usize,
}

impl SymbolKind {
    /// The number of symbols of the code.
    pub(super) fn symbols(self, sizes: &Sizes) -> usize {
        match self {
            Self::Byte | Self::IdByte => 256,
            Self::Form => FORMS,
            Self::Run => sizes.runs,
            Self::From | Self::To => sizes.addresses,
            // One more for no client; three more for no name, the sender, its
            // local part.
            Self::Client => sizes.clients + 1,
            Self::Authenticated => sizes.authenticated + 3,
            _ => NUMBER,
        }
    }
}

/// Receives symbols: first to count them, then to write them.
pub(super) trait Sink {
    /// Receives a symbol.
    fn symbol(&mut self, what: SymbolKind, symbol: u32);

    /// Receives plain bits.
    fn bits(&mut self, value: u64, bits: u32);

    /// Receives a text that follows `before`. `what` are the kinds of its
    /// bytes, of the shared length, and of the remaining length.
    fn text(&mut self, what: [SymbolKind; 3], before: &[u8], text: &[u8]) {
        let [byte, shared, rest] = what;
        let common = before.iter().zip(text).take_while(|(a, b)| a == b).count();
        let follow = text.get(common..).unwrap_or(&[]);
        self.number(shared, common as u64);
        self.number(rest, follow.len() as u64);
        follow.iter().for_each(|&b| self.symbol(byte, b.into()));
    }

    /// Receives a number: its bit length, and all bits except the first.
    fn number(&mut self, what: SymbolKind, number: u64) {
        let bits = u64::BITS - number.leading_zeros();
        self.symbol(what, bits);
        self.bits(number, bits.saturating_sub(1));
    }

    /// Receives a signed number; small absolute values stay small.
    fn signed(&mut self, what: SymbolKind, number: i64) {
        self.number(what, (number << 1 ^ number >> 63).cast_unsigned());
    }
}

/// Counts symbols.
#[derive(Debug)]
pub(super) struct SymbolCounts {
    counts: [Vec<u32>; KINDS],
}

impl SymbolCounts {
    pub(super) fn new(sizes: &Sizes) -> Self {
        let mut counts = [const { Vec::new() }; KINDS];
        for what in WORDS.into_iter().chain(MESSAGES).chain(MANY) {
            if let Some(counts) = counts.get_mut(what as usize) {
                counts.resize(what.symbols(sizes), 0);
            }
        }
        Self { counts }
    }

    /// The optimal codes.
    pub(super) fn codes(&self) -> Codes {
        Codes { codes: self.counts.each_ref().map(|counts| Code::of(counts)) }
    }
}

impl Sink for SymbolCounts {
    fn symbol(&mut self, what: SymbolKind, symbol: u32) {
        let counts = self.counts.get_mut(what as usize);
        if let Some(count) = counts.and_then(|counts| counts.get_mut(symbol as usize)) {
            *count = count.saturating_add(1);
        }
    }

    fn bits(&mut self, _value: u64, _bits: u32) {}
}

/// Codes for writing.
#[derive(Debug)]
pub(super) struct Codes {
    codes: [Code; KINDS],
}

impl Codes {
    /// The length of each symbol's word.
    pub(super) fn lengths(&self, what: SymbolKind) -> &[u8] {
        self.codes.get(what as usize).map_or(&[], Code::lengths)
    }

    /// Writes some of these codes.
    pub(super) fn write(&self, which: &[SymbolKind], writer: &mut BitWriter) {
        let codes = which.iter().filter_map(|&what| self.codes.get(what as usize));
        codes.for_each(|code| code.write(writer));
    }
}

/// Writes symbols with their codes.
#[derive(Debug)]
pub(super) struct Writer<'a> {
    codes: &'a Codes,
    pub(super) bits: BitWriter,
}

impl<'a> Writer<'a> {
    pub(super) fn new(codes: &'a Codes) -> Self {
        Self { codes, bits: BitWriter::default() }
    }
}

impl Sink for Writer<'_> {
    fn symbol(&mut self, what: SymbolKind, symbol: u32) {
        if let Some(code) = self.codes.codes.get(what as usize) {
            code.put(symbol, &mut self.bits);
        }
    }

    fn bits(&mut self, value: u64, bits: u32) {
        self.bits.put(value, bits);
    }
}

/// Codes for reading.
///
/// Each is read when it is needed, with those before it, and its tables are made when they are
/// needed: many queries need a few.
#[derive(Debug)]
pub(super) struct Decoders {
    /// The table that contains them.
    table: Vec<u8>,
    which: &'static [SymbolKind],
    sizes: Sizes,
    /// How many of them were read, and the bit at which the next one begins.
    read: Cell<usize>,
    at: Cell<u64>,
    /// One for each kind; `None` if it is invalid. They are on the heap because Exim may have
    /// little stack left.
    codes: Vec<OnceCell<Option<Lazy>>>,
}

/// A code that was read.
#[derive(Debug)]
struct Lazy {
    lengths: Vec<u8>,
    decoder: OnceCell<Option<Decoder>>,
}

impl Decoders {
    /// Some codes, of which the first begins at a bit of a table.
    pub(super) fn new(which: &'static [SymbolKind], sizes: Sizes, table: Vec<u8>, at: u64) -> Self {
        let codes = std::iter::repeat_with(OnceCell::new).take(KINDS).collect();
        Self { table, which, sizes, read: Cell::new(0), at: Cell::new(at), codes }
    }

    #[inline]
    fn code(&self, what: SymbolKind) -> Option<&Lazy> {
        let code = self.codes.get(what as usize)?;
        if code.get().is_none() {
            self.read_up_to(what);
        }
        code.get()?.as_ref()
    }

    /// Reads codes until this one was read.
    #[cold]
    fn read_up_to(&self, what: SymbolKind) {
        let place = self.which.iter().position(|&one| one == what);
        let end = place.map_or(0, |place| place + 1);
        let next = self.which.get(self.read.get()..end).unwrap_or_default();
        for &what in next {
            let mut reader = BitReader::from(&self.table, self.at.get());
            let lengths = Decoder::read_lengths(what.symbols(&self.sizes), &mut reader);
            // After an invalid one, none can be found.
            self.at.set(if lengths.is_some() { reader.at() } else { u64::MAX });
            let code = lengths.map(|lengths| Lazy { lengths, decoder: OnceCell::new() });
            if let Some(place) = self.codes.get(what as usize) {
                place.get_or_init(|| code);
            }
            self.read.set(self.read.get() + 1);
        }
    }

    #[inline]
    fn get(&self, what: SymbolKind) -> Option<&Decoder> {
        let code = self.code(what)?;
        code.decoder.get_or_init(|| Decoder::of(&code.lengths)).as_ref()
    }
}

/// Reads symbols.
#[derive(Clone, Debug)]
pub(super) struct SymbolReader<'a> {
    decoders: &'a Decoders,
    pub(super) bits: BitReader<'a>,
}

impl<'a> SymbolReader<'a> {
    pub(super) fn new(decoders: &'a Decoders, bytes: &'a [u8]) -> Self {
        Self { decoders, bits: BitReader::new(bytes) }
    }

    /// Reads a symbol.
    #[inline]
    pub(super) fn symbol(&mut self, what: SymbolKind) -> Option<u32> {
        self.decoders.get(what)?.take(&mut self.bits)
    }

    /// Reads a number.
    #[inline]
    pub(super) fn number(&mut self, what: SymbolKind) -> Option<u64> {
        Some(match self.symbol(what)? {
            0 => 0,
            bits => 1 << (bits - 1) | self.bits.take(bits - 1)?,
        })
    }

    /// Reads a text into `text`, which contains the previous one.
    pub(super) fn text(&mut self, what: [SymbolKind; 3], text: &mut Vec<u8>) -> Option<()> {
        let [byte, shared, rest] = what;
        let shared = usize::try_from(self.number(shared)?).ok()?;
        let rest = usize::try_from(self.number(rest)?).ok()?;
        if shared > text.len() || rest > TEXT_BYTES_MAX {
            return None;
        }
        text.truncate(shared);
        let byte = self.decoders.get(byte)?;
        for _ in 0..rest {
            text.push(byte.take(&mut self.bits)? as u8);
        }
        (text.len() <= TEXT_BYTES_MAX).then_some(())
    }

    /// Reads a signed number.
    #[inline]
    pub(super) fn signed(&mut self, what: SymbolKind) -> Option<i64> {
        let number = self.number(what)?;
        Some((number >> 1).cast_signed() ^ -((number & 1).cast_signed()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_round_trip() {
        let sizes = Sizes { addresses: 3, clients: 0, authenticated: 0, runs: 1 };
        let numbers = [0, 1, 2, 3, 7, 8, 1000, u64::MAX >> 1, u64::MAX];
        let signed = [0, 1, -1, 63, -64, i64::MAX, i64::MIN];
        let put = |sink: &mut dyn Sink| {
            numbers.iter().for_each(|&number| sink.number(SymbolKind::Time, number));
            signed.iter().for_each(|&number| sink.signed(SymbolKind::IdTime, number));
            sink.symbol(SymbolKind::Form, 2);
            sink.bits(5, 3);
        };
        let mut counts = SymbolCounts::new(&sizes);
        put(&mut counts);
        let codes = counts.codes();
        let mut writer = Writer::new(&codes);
        put(&mut writer);
        let bytes = writer.bits.finish();
        let mut table = BitWriter::default();
        codes.write(&MESSAGES, &mut table);
        let table = table.finish();
        let decoders = Decoders::new(&MESSAGES, sizes, table, 0);
        let mut reader = SymbolReader::new(&decoders, &bytes);
        numbers.iter().for_each(|&n| assert_eq!(reader.number(SymbolKind::Time), Some(n)));
        signed.iter().for_each(|&n| assert_eq!(reader.signed(SymbolKind::IdTime), Some(n)));
        assert_eq!(reader.symbol(SymbolKind::Form), Some(2));
        assert_eq!(reader.bits.take(3), Some(5));
        assert_eq!(reader.symbol(SymbolKind::Byte), None);
    }
}
