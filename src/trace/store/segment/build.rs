//! Building a segment from the messages of a log, or from another segment.

use crate::trace::{Envelope, Scheme};

use super::super::TraceError;
use super::super::cipher::{Nonce, Stream, TAG_BYTES, Tagger, random};
use super::super::codec::{CRC_BYTES, set_checksum};
use super::super::key::DerivedKeys;
use super::bits::BitWriter;
use super::blocks::{BlockItems, Section};
use super::body;
use super::codes::{MESSAGES, Sizes, SymbolCounts, WORDS};
use super::dictionary::Words;
use super::head::{HEAD_BYTES, SECTIONS, SegmentHead};
use super::ids::{self, Form};
use super::many::Many;
use super::messages::{Messages, NameColumn, Senders};
use super::positions::Positions;

/// All of a segment except its head, unencrypted.
#[derive(Debug)]
pub(super) struct Plain {
    pub(super) tables: [Vec<u8>; 2],
    pub(super) sections: [Section; SECTIONS],
    pub(super) body: Vec<u8>,
}

/// The properties that a segment takes over from its log.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct Origin {
    /// The number of the log.
    pub(in super::super) number: u64,
    /// The number of the first log, if there are several.
    pub(in super::super) first: u64,
    /// The id of the last log.
    pub(in super::super) log: u64,
    pub(in super::super) settings: [u8; 16],
    pub(in super::super) decode: u16,
    /// The number of damaged parts of the log.
    pub(in super::super) lost: u32,
}

/// Builds the file of a segment with these messages; `None` if the scheme has
/// lost a message.
///
/// # Errors
/// There are no random numbers.
pub(in super::super) fn build(
    mut messages: Vec<(Envelope, &[u8])>,
    origin: Origin,
    scheme: &dyn Scheme,
    key: &DerivedKeys,
) -> Result<Option<Vec<u8>>, TraceError> {
    messages.sort_by_key(|(envelope, _)| envelope.time);
    let digests: Vec<_> = messages.iter().map(|(_, digest)| *digest).collect();
    let sealed = scheme.seal(&digests);
    drop(digests);
    let envelopes: Vec<_> = messages.into_iter().map(|(envelope, _)| envelope).collect();
    let positions = Positions::of(&sealed.order).filter(|_| sealed.order.len() == envelopes.len());
    let Some(positions) = positions else { return Ok(None) };
    let (head, plain) = encode(&envelopes, &positions, origin, sealed.body);
    Ok(Some(assemble(head, &plain, key, random()?)))
}

/// The head and the rest of a segment, with these envelopes in the order of time.
pub(super) fn encode(
    envelopes: &[Envelope],
    positions: &Positions,
    origin: Origin,
    body: Vec<u8>,
) -> (SegmentHead, Plain) {
    let words = Words::of(envelopes);
    let times = [envelopes.first(), envelopes.last()].map(|e| e.map_or(0, |e| e.time));
    let rows = Messages { envelopes, words: &words, oldest: times[0] };
    let sizes = Sizes {
        addresses: words.addresses.count(),
        clients: words.fours.count() + words.sixes.count(),
        authenticated: words.names.count(),
        runs: positions.starts.len(),
    };
    let mut counts = SymbolCounts::new(&sizes);
    words.domains.count_symbols(&mut counts);
    words.addresses.count_symbols(&mut counts);
    words.names.count_symbols(&mut counts);
    words.fours.count_symbols(&mut counts);
    words.sixes.count_symbols(&mut counts);
    let (senders, names) = (Senders(&rows), NameColumn(&rows));
    rows.count_symbols(&mut counts);
    senders.count_symbols(&mut counts);
    names.count_symbols(&mut counts);
    positions.count_symbols(&mut counts);
    let codes = counts.codes();
    let many = Many::of(&codes);
    let sections = [
        words.domains.write(&codes),
        words.addresses.write(&codes),
        words.names.write(&codes),
        words.fours.write(&codes),
        words.sixes.write(&codes),
        many.write(),
        rows.write(&codes),
        senders.write(&codes),
        names.write(&codes),
        positions.write(&codes),
    ];
    let (first, last) = sections.split_at(SECTIONS - 5);
    let words_table = table(first, |bits| codes.write(&WORDS, bits));
    let messages_table = table(last, |bits| {
        positions.starts.iter().for_each(|&start| bits.put(start.into(), 32));
        many.write_table(bits);
        codes.write(&MESSAGES, bits);
    });
    let tables = [words_table, messages_table];
    let (ids, texts) = seconds(envelopes);
    let head = SegmentHead {
        number: origin.number,
        first: origin.first,
        log: origin.log,
        settings: origin.settings,
        decode: origin.decode,
        reserved: 0,
        messages: envelopes.len() as u32,
        partial: envelopes.iter().filter(|envelope| envelope.partial).count() as u32,
        lost: origin.lost,
        times,
        ids,
        texts,
        domains: words.domains.count() as u32,
        addresses: words.addresses.count() as u32,
        names: words.names.count() as u32,
        fours: words.fours.count() as u32,
        sixes: words.sixes.count() as u32,
        runs: positions.starts.len() as u32,
        tables: [0; 2],
        sections: [0; SECTIONS],
        body: 0,
    };
    (head, Plain { tables, sections, body })
}

/// The first and the last second in Exim's ids, and the number of other ids.
fn seconds(envelopes: &[Envelope]) -> ([i64; 2], u32) {
    let (mut seconds, mut texts) = ([i64::MAX, i64::MIN], 0);
    for envelope in envelopes {
        match ids::parse(&envelope.id) {
            (Form::None, _) => {}
            (Form::Text, _) => texts += 1,
            (_, id) => {
                let [first, last] = seconds;
                seconds = [first.min(id.time), last.max(id.time)];
            }
        }
    }
    (seconds, texts)
}

/// The table of some sections; `put` writes what follows their blocks.
fn table(sections: &[Section], put: impl FnOnce(&mut BitWriter)) -> Vec<u8> {
    let mut bits = BitWriter::default();
    sections.iter().for_each(|section| section.write_table(&mut bits));
    put(&mut bits);
    bits.finish()
}

/// A file being written.
struct Writing {
    stream: Stream,
    tagger: Tagger,
    bytes: Vec<u8>,
}

impl Writing {
    /// Appends a part, encrypted, and its tag. Returns their size.
    fn push(&mut self, plain: &[u8]) -> u32 {
        let (start, length) = (self.bytes.len(), plain.len() + TAG_BYTES);
        self.bytes.extend_from_slice(plain);
        let part = self.bytes.get_mut(start..).unwrap_or(&mut []);
        self.stream.apply(start as u64, part);
        self.bytes.resize(start + length, 0);
        let part = self.bytes.get_mut(start..).unwrap_or(&mut []);
        self.tagger.set(start as u64, part);
        // The contents of a log are far below 4 GiB.
        length as u32
    }
}

/// Assembles a file and encrypts it with `nonce`, which must not be used for
/// anything else.
pub(super) fn assemble(
    mut head: SegmentHead,
    plain: &Plain,
    key: &DerivedKeys,
    nonce: Nonce,
) -> Vec<u8> {
    let mut file = Writing {
        stream: key.stream(&nonce),
        tagger: key.tagger(&nonce),
        bytes: vec![0; HEAD_BYTES],
    };
    head.tables = plain.tables.each_ref().map(|table| file.push(table));
    head.sections = plain
        .sections
        .each_ref()
        .map(|section| section.blocks().map(|block| file.push(block)).sum());
    head.body = plain.body.len() as u64;
    for part in plain.body.chunks(body::BLOCK).chain(plain.tables.iter().map(Vec::as_slice)) {
        file.push(part);
    }
    let mut bytes = file.bytes;
    if let Some(first) = bytes.first_chunk_mut() {
        *first = head.write(key, nonce, 0);
    }
    bytes.extend(head.write(key, nonce, bytes.len() as u64));
    bytes.extend([0; CRC_BYTES]);
    set_checksum(&mut bytes);
    bytes
}
