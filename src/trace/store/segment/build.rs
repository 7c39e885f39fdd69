//! Building a segment from the messages of a log, or from another segment.

use crate::trace::{Envelope, Scheme};

use super::super::TraceError;
use super::super::cipher::{Nonce, random};
use super::super::codec::{CRC_BYTES, checksum, set_checksum};
use super::super::key::Key;
use super::bits::BitWriter;
use super::blocks::{BlockItems, Section};
use super::codes::{Counts, MESSAGES, Sizes, WORDS, What};
use super::head::{Head, SECTIONS};
use super::ids::{self, Form};
use super::messages::Messages;
use super::positions::Positions;
use super::words::Words;

/// All of a segment except its head, unencrypted.
#[derive(Debug)]
pub(super) struct Plain {
    pub(super) tables: [Vec<u8>; 2],
    pub(super) sections: [Vec<u8>; SECTIONS],
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
    key: &Key,
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
) -> (Head, Plain) {
    let words = Words::of(envelopes);
    let times = [envelopes.first(), envelopes.last()].map(|e| e.map_or(0, |e| e.time));
    let rows = Messages { envelopes, words: &words, oldest: times[0] };
    let sizes = Sizes {
        addresses: words.addresses.count(),
        clients: words.fours.count() + words.sixes.count(),
        authenticated: words.names.count(),
        runs: positions.starts.len(),
    };
    let mut counts = Counts::new(&sizes);
    words.domains.count_symbols(&mut counts);
    words.addresses.count_symbols(&mut counts);
    words.names.count_symbols(&mut counts);
    words.fours.count_symbols(&mut counts);
    words.sixes.count_symbols(&mut counts);
    rows.count_symbols(&mut counts);
    positions.count_symbols(&mut counts);
    let codes = counts.codes();
    let sections = [
        words.domains.write(&codes),
        words.addresses.write(&codes),
        words.names.write(&codes),
        words.fours.write(&codes),
        words.sixes.write(&codes),
        rows.write(&codes),
        positions.write(&codes),
    ];
    let (first, last) = sections.split_at(SECTIONS - 2);
    let tables =
        [table(first, &counts, &WORDS, &[]), table(last, &counts, &MESSAGES, &positions.starts)];
    let (ids, texts) = seconds(envelopes);
    let head = Head {
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
    (head, Plain { tables, sections: sections.map(|s| s.bytes), body })
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

/// The table of some sections and of their codes.
fn table(sections: &[Section], counts: &Counts, which: &[What], starts: &[u32]) -> Vec<u8> {
    let mut bits = BitWriter::default();
    sections.iter().for_each(|section| section.write_table(&mut bits));
    starts.iter().for_each(|&start| bits.put(start.into(), 32));
    counts.write(which, &mut bits);
    let mut bytes = bits.finish();
    bytes.extend([0; CRC_BYTES]);
    set_checksum(&mut bytes);
    bytes
}

/// Assembles a file and encrypts it with `nonce`, which must not be used for
/// anything else.
pub(super) fn assemble(mut head: Head, plain: &Plain, key: &Key, nonce: Nonce) -> Vec<u8> {
    // The contents of a log are far below 4 GiB.
    head.tables = plain.tables.each_ref().map(|table| table.len() as u32);
    head.sections = plain.sections.each_ref().map(|section| section.len() as u32);
    head.body = plain.body.len() as u64;
    let mut bytes = Vec::new();
    bytes.extend(head.write(key, nonce, 0));
    let start = bytes.len();
    plain.tables.iter().for_each(|table| bytes.extend(table));
    plain.sections.iter().for_each(|section| bytes.extend(section));
    bytes.extend(&plain.body);
    plain.tables.iter().for_each(|table| bytes.extend(table));
    key.stream(&nonce).apply(start as u64, bytes.get_mut(start..).unwrap_or(&mut []));
    bytes.extend(head.write(key, nonce, bytes.len() as u64));
    bytes.extend(checksum(0, &bytes).to_le_bytes());
    bytes
}
