//! The protocol between the library in Exim and the agent: one request and one reply,
//! each of fixed layout, over a unix stream socket.
//!
//! Numbers are little-endian. A message begins with a header, and ends with the CRC-32 of
//! all bytes before it.
//!
//! | offset | size | field | content |
//! |---|---|---|---|
//! | 0 | 4 | `magic` | `EXRQ` for a request, `EXRP` for a reply |
//! | 4 | 4 | `bytes` | the size of the whole message |
//! | 8 | 2 | `version` | 1 |
//! | 10 | 2 | `kind` | of a request: 1 = decide; of a reply: its status |
//! | 12 | 4 | `deadline` | of a request: microseconds until the sender gives up |
//! | 16 | 16 | `event` | the number of the event; the reply repeats it, or has 0 where the agent refuses the process and not the request |
//! | 32 | 2 | `count` | the number of items that follow |
//! | 34 | 2 | `item_bytes` | the size of the fixed part of each item |
//!
//! The items of a request are checks:
//!
//! | offset | size | field | content |
//! |---|---|---|---|
//! | 0 | 1 | `record_kind` | 1 = spec, 2 = policy |
//! | 1 | 1 | `algorithm` | 1 = moving average, 2 = leaky bucket, 3 = calendar window, 4 = share |
//! | 2 | 1 | `update` | 1 = leaky, 2 = strict, 3 = read-only |
//! | 3 | 1 | `flags` | 1 = observed, 2 = has a unique event, 4 = allowed, 8 = denied, 16 = total, 32 = denied for good |
//! | 4 | 2 | `name_bytes` | the size of the record's name |
//! | 6 | 2 | `identity_start` | where in the name the identity begins |
//! | 8 | 2 | `unique_bytes` | the size of the text of the unique event |
//! | 10 | 4 | `start` | of a calendar window: the second since 1970 in which it begins; of a share: that in which what has failed was accepted, 0 of what goes out |
//! | 14 | 2 | `unused` | zeros |
//! | 16 | 8 | `limit` | of a bucket: the burst; of a share: u32 how many must have gone out, f32 the percentage |
//! | 24 | 8 | `period` | in seconds; of a bucket: what leaks out in a second; of a calendar window: its length |
//! | 32 | 8 | `event_count` | how much the event counts |
//! | 40 | 8 | `refuses` | the part of the limit from which the event is refused; 0 = all of it |
//! | 48 | 4 | `blocks` | for how many seconds a crossing blocks the identity; all ones = until it is lifted; 1 = it sets no block; 0 = nor is one known that is set |
//!
//! The name and the text of the unique event follow each of them. The items of a reply
//! with the status 0 are decisions:
//!
//! | offset | size | field | content |
//! |---|---|---|---|
//! | 0 | 4 | `outcome` | 1 = over, 2 = crossed, 4 = allowed, 8 = denied, 16 = there was a rate, 32 = the filter had expired, 64 = the unique event was new, 128 = it was known, 256 = counted, 512 = a rate is remembered, 1024 = denied for good |
//! | 4 | 4 | `crossings` | the number of the latest crossing |
//! | 8 | 8 | `rate` | the rate, the level or the count |
//! | 16 | 8 | `counted` | the size that the event was counted with; of a share: how many have failed |
//! | 24 | 8 | `at` | when it was decided: microseconds since 1970 |
//! | 32 | 8 | `kept_rate` | the rate that is remembered |
//! | 40 | 8 | `kept_at` | its time: microseconds since 1970 |
//! | 48 | 4 | `kept_start` | the second since 1970 in which the calendar window of the record begins; from which on a share is below its limit |
//! | 52 | 4 | `kept_length` | its length in seconds; of a share: how many went out |
//! | 56 | 4 | `blocked` | the block of the identity, as the record holds it; 0 = none |
//!
//! A reply with another status has no items, but a text of `count` bytes: the reason.
//!
//! A later version may append fields to an item: whoever reads it skips those beyond the
//! ones that it knows, and takes those that are missing as zero. So a library and an agent
//! of different releases work together. Where that is not sufficient, the version is
//! raised, and an agent replies [`ReplyStatus::OtherVersion`]. An agent that does not know an
//! algorithm replies [`ReplyStatus::BadRequest`], and the library decides as it does without an agent.

mod reply;
mod request;
#[cfg(test)]
mod tests;

use crate::store::ByteReader;
use crate::versions::{OtherVersion, Versions};

pub use reply::{
    DECISION_BYTES, Reply, ReplyStatus, read_decision, read_reply, write_decisions, write_refusal,
};
pub use request::{CHECK_BYTES, Request, event_of, read_request, write_request};

/// The version of the protocol.
pub const VERSION: u16 = 1;
/// The size of a header.
pub const HEADER_BYTES: usize = 36;
/// The size of the checksum at the end.
const CRC_BYTES: usize = 4;
/// The largest message. As many checks as there may be, with the longest names, would need
/// more, but no front end makes them.
pub const MESSAGE_BYTES_MAX: usize = 1 << 20;

const REQUEST_MAGIC: [u8; 4] = *b"EXRQ";
const REPLY_MAGIC: [u8; 4] = *b"EXRP";

/// Why a message is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireFault {
    /// It does not begin as a message does: the peer speaks another protocol.
    #[error("it is no message of exirate's protocol")]
    Magic,
    /// Its size is impossible.
    #[error("a message cannot have {0} bytes")]
    Size(u32),
    /// It has another version of the protocol.
    #[error("the message {0}: restart the agent, and what asks it")]
    Version(OtherVersion),
    /// Its checksum is wrong.
    #[error("wrong checksum")]
    Checksum,
    /// A request of this kind is not known.
    #[error("unknown kind of request {0}")]
    Kind(u16),
    /// A field has an impossible value.
    #[error("impossible value of '{0}'")]
    Field(&'static str),
    /// It is the reply to another request.
    #[error("it is the reply to another request")]
    OtherEvent,
}

/// The size of the whole message that begins with `start`; `None` if more bytes are needed
/// to know it.
///
/// # Errors
/// It is no message, or too large.
pub fn message_bytes(start: &[u8]) -> Result<Option<usize>, WireFault> {
    let magic = start.get(..4.min(start.len())).unwrap_or_default();
    if !REQUEST_MAGIC.starts_with(magic) && !REPLY_MAGIC.starts_with(magic) {
        return Err(WireFault::Magic);
    }
    let Some(bytes) = start.get(4..8).and_then(|bytes| bytes.try_into().ok()) else {
        return Ok(None);
    };
    let bytes = u32::from_le_bytes(bytes);
    match usize::try_from(bytes) {
        Ok(size) if (HEADER_BYTES + CRC_BYTES..=MESSAGE_BYTES_MAX).contains(&size) => {
            Ok(Some(size))
        }
        _ => Err(WireFault::Size(bytes)),
    }
}

/// What the header of every message says, but for its size and that of its items.
struct Header {
    kind: u16,
    deadline: u32,
    event: u128,
    count: u16,
}

impl Header {
    /// Appends it to `out`, and returns where it begins.
    fn write(&self, out: &mut Vec<u8>, magic: [u8; 4], item_bytes: u16) -> usize {
        let start = out.len();
        out.extend_from_slice(&magic);
        out.extend_from_slice(&[0; 4]); // the size: see `finish`
        out.extend_from_slice(&VERSION.to_le_bytes());
        out.extend_from_slice(&self.kind.to_le_bytes());
        out.extend_from_slice(&self.deadline.to_le_bytes());
        out.extend_from_slice(&self.event.to_le_bytes());
        out.extend_from_slice(&self.count.to_le_bytes());
        out.extend_from_slice(&item_bytes.to_le_bytes());
        start
    }

    /// Reads the header of a whole message; also returns the size of its items and what
    /// follows up to the checksum.
    fn read(message: &[u8], magic: [u8; 4]) -> Result<(Self, usize, ByteReader<'_>), WireFault> {
        let size = WireFault::Size(u32::try_from(message.len()).unwrap_or(u32::MAX));
        if message_bytes(message)? != Some(message.len()) {
            return Err(size);
        }
        let (covered, crc) = message.split_last_chunk::<CRC_BYTES>().ok_or(size)?;
        let mut reader = ByteReader { rest: covered };
        if reader.array() != Some(magic) {
            return Err(WireFault::Magic);
        }
        // The version comes first: another one may have another checksum.
        let (_, version) = (reader.u32(), reader.u16().ok_or(size)?);
        Versions::only(VERSION.into()).known().check(version.into()).map_err(WireFault::Version)?;
        if crc32fast::hash(covered) != u32::from_le_bytes(*crc) {
            return Err(WireFault::Checksum);
        }
        let (kind, deadline, event) = (reader.u16(), reader.u32(), reader.array());
        let (count, item_bytes) = (reader.u16(), reader.u16());
        let (Some(kind), Some(deadline), Some(event), Some(count), Some(item_bytes)) =
            (kind, deadline, event, count, item_bytes)
        else {
            return Err(size);
        };
        let header = Self { kind, deadline, event: u128::from_le_bytes(event), count };
        Ok((header, usize::from(item_bytes), reader))
    }
}

/// Writes the size and the checksum of the message that begins at `start`.
fn finish(out: &mut Vec<u8>, start: usize) -> Result<(), WireFault> {
    let bytes = out.len() - start + CRC_BYTES;
    let size = u32::try_from(bytes).unwrap_or(u32::MAX);
    if bytes > MESSAGE_BYTES_MAX {
        return Err(WireFault::Size(size));
    }
    if let Some(field) = out.get_mut(start + 4..start + 8) {
        field.copy_from_slice(&size.to_le_bytes());
    }
    let crc = crc32fast::hash(out.get(start..).unwrap_or_default());
    out.extend_from_slice(&crc.to_le_bytes());
    Ok(())
}

/// The fixed part of an item, of `item_bytes` bytes: what is missing is zero, what is more
/// is skipped.
fn item<const N: usize>(
    rest: &mut ByteReader<'_>,
    item_bytes: usize,
    field: &'static str,
) -> Result<[u8; N], WireFault> {
    let bytes = rest.take(item_bytes).ok_or(WireFault::Field(field))?;
    let known = bytes.get(..bytes.len().min(N)).unwrap_or_default();
    let mut fixed = [0; N];
    if let Some(part) = fixed.get_mut(..known.len()) {
        part.copy_from_slice(known);
    }
    Ok(fixed)
}
