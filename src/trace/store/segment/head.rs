//! The head of a segment: its contents and their positions.

use std::ops::Range;

use bincode::{Decode, Encode};

use super::super::cipher::{Nonce, TAG_BYTES};
use super::super::codec::{CRC_BYTES, decode, encode};
use super::super::key::DerivedKeys;
use super::super::log::{LogFault, MERGED_MAX, START_BYTES, Start, read_start};
use super::body;
use super::codes::Sizes;
use super::ids::{self, Form};

/// The magic of a segment.
pub(in super::super) const SEGMENT_MAGIC: [u8; 8] = *b"EXIRATEG";
/// The size of a head, including its tag.
pub(in super::super) const HEAD_BYTES: usize = 228;
/// The number of sections made of blocks.
pub(super) const SECTIONS: usize = 10;

/// The head of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub(in super::super) struct SegmentHead {
    /// The number in the name of the file.
    pub(in super::super) number: u64,
    /// It contains the messages of all files from this number on.
    pub(in super::super) first: u64,
    /// The id of the log it was made from, or of the last of them.
    pub(in super::super) log: u64,
    /// The digest settings of its messages.
    pub(in super::super) settings: [u8; 16],
    /// The decoder version of its messages.
    pub(in super::super) decode: u16,
    pub(in super::super) reserved: u16,
    pub(in super::super) messages: u32,
    /// How many of them are partial, that is, not completely digested.
    pub(in super::super) partial: u32,
    /// The number of damaged parts of the log, which are missing.
    pub(in super::super) lost: u32,
    /// The times of the first and the last message.
    pub(in super::super) times: [i64; 2],
    /// The first and the last second in Exim's ids.
    pub(in super::super) ids: [i64; 2],
    /// The number of messages with an id that is not one of Exim's.
    pub(in super::super) texts: u32,
    pub(super) domains: u32,
    pub(super) addresses: u32,
    pub(super) names: u32,
    pub(super) fours: u32,
    pub(super) sixes: u32,
    pub(super) runs: u32,
    /// The sizes of the tables: of words, and of messages. These and those of the sections
    /// include tags.
    pub(super) tables: [u32; 2],
    /// The sizes of the sections.
    pub(super) sections: [u32; SECTIONS],
    /// The size of the body, without tags.
    pub(in super::super) body: u64,
}

/// The parts of a file, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Parts {
    /// The tables, each twice.
    pub(super) tables: [[Range<usize>; 2]; 2],
    pub(super) sections: [Range<usize>; SECTIONS],
    pub(super) body: Range<usize>,
    /// The offset of the second head.
    pub(super) second: usize,
    /// The size of the whole file.
    pub(super) bytes: usize,
}

impl SegmentHead {
    /// The positions of all parts; `None` if they overflow.
    pub(super) fn parts(&self) -> Option<Parts> {
        let mut end = HEAD_BYTES;
        let mut next = |bytes: u64| {
            let start = end;
            end = start.checked_add(usize::try_from(bytes).ok()?)?;
            Some(start..end)
        };
        let [words, messages] = self.tables.map(u64::from);
        let first = [next(words)?, next(messages)?];
        let mut sections = [const { 0..0 }; SECTIONS];
        for (section, bytes) in sections.iter_mut().zip(self.sections) {
            *section = next(bytes.into())?;
        }
        let body = next(body::with_tags(self.body)?)?;
        let [again_words, again_messages] = [next(words)?, next(messages)?];
        let [first_words, first_messages] = first;
        let second = next(HEAD_BYTES as u64)?.start;
        let bytes = next(CRC_BYTES as u64)?.end;
        let tables = [[first_words, again_words], [first_messages, again_messages]];
        Some(Parts { tables, sections, body, second, bytes })
    }

    /// The size of one copy of both tables.
    #[cfg(test)]
    pub(in super::super) fn table_bytes(&self) -> u64 {
        self.tables.iter().map(|&bytes| u64::from(bytes)).sum()
    }

    /// Whether a message may have this id.
    pub(in super::super) fn may_have_id(&self, id: &str) -> bool {
        match ids::parse(id) {
            (Form::None, _) => true,
            (Form::Text, _) => self.texts > 0,
            (_, id) => (self.ids[0]..=self.ids[1]).contains(&id.time),
        }
    }

    /// The numbers of symbols of the codes.
    pub(super) fn sizes(&self) -> Sizes {
        Sizes {
            addresses: self.addresses as usize,
            clients: (self.fours as usize).saturating_add(self.sixes as usize),
            authenticated: self.names as usize,
            runs: self.runs as usize,
        }
    }

    /// Whether a file of so many bytes can have these counts.
    fn is_possible(&self, bytes: u64) -> bool {
        let max = bytes.saturating_mul(8);
        let words = [self.domains, self.addresses, self.names, self.fours, self.sixes];
        self.messages <= MERGED_MAX
            && self.partial <= self.messages
            && self.runs <= self.messages
            && words.iter().all(|&count| u64::from(count) <= max)
    }

    /// Encodes the copy of the head at `offset`.
    pub(super) fn write(&self, key: &DerivedKeys, nonce: Nonce, offset: u64) -> [u8; HEAD_BYTES] {
        let start = Start {
            magic: SEGMENT_MAGIC,
            version: key.version,
            reserved: 0,
            key: key.number,
            nonce,
        };
        let mut bytes: [u8; HEAD_BYTES] = encode(&(start, *self));
        let encrypted = bytes.get_mut(START_BYTES..HEAD_BYTES - TAG_BYTES).unwrap_or(&mut []);
        key.stream(&nonce).apply(offset + START_BYTES as u64, encrypted);
        key.tagger(&nonce).set(offset, &mut bytes);
        bytes
    }

    /// Decodes the copy at `offset` of a file of `size` bytes.
    pub(super) fn read(
        bytes: &[u8],
        key: &DerivedKeys,
        offset: u64,
        size: u64,
    ) -> Result<(Self, Nonce), LogFault> {
        let start = read_start(bytes, SEGMENT_MAGIC, key)?;
        let bytes = bytes.get(..HEAD_BYTES).ok_or(LogFault::Damaged)?;
        let head = key.tagger(&start.nonce).check(offset, bytes).ok_or(LogFault::Damaged)?;
        let mut plain = head.get(START_BYTES..).unwrap_or(&[]).to_vec();
        key.stream(&start.nonce).apply(offset.saturating_add(START_BYTES as u64), &mut plain);
        let head: Self = decode(&plain).ok_or(LogFault::Damaged)?;
        if head.is_possible(size) { Ok((head, start.nonce)) } else { Err(LogFault::Damaged) }
    }
}

const _: () = {
    let counts = 4 + 6 * 4 + 2 * 4 + 4 * SECTIONS + 8;
    let fields = 3 * 8 + 16 + 2 + 2 + 4 + 4 + 4 + 2 * 8 + 2 * 8 + counts;
    assert!(START_BYTES + fields + TAG_BYTES == HEAD_BYTES);
};
