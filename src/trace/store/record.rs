//! A record of a log: what is kept of one message.

use std::ops::Range;

use super::TraceError;
use super::cipher::{NONCE_BYTES, Nonce};
use super::codec::{CRC_BYTES, checksum, decode, encode};
use super::key::Key;

/// The most bytes that envelope and digest of a message may take.
pub(super) const PAYLOAD_BYTES_MAX: usize = 64 << 20;
/// Records are a multiple of this long.
pub(super) const ALIGN: usize = 8;
/// The size of what is before the payload: nonce, two lengths, checksum.
pub(super) const HEAD_BYTES: usize = NONCE_BYTES + 4 + 4 + CRC_BYTES;

/// The size of a record with a payload of so many bytes: its head, the payload,
/// zeros, the checksum.
const fn whole(payload: usize) -> usize {
    (HEAD_BYTES + payload + CRC_BYTES).next_multiple_of(ALIGN)
}

/// Makes a record. The nonce is used for nothing else.
///
/// # Errors
/// It would be too large.
pub(super) fn make(
    key: &Key,
    nonce: Nonce,
    envelope: &[u8],
    digest: &[u8],
) -> Result<Vec<u8>, TraceError> {
    let payload = envelope.len().saturating_add(digest.len());
    if payload > PAYLOAD_BYTES_MAX {
        let (bytes, limit) = (payload as u64, PAYLOAD_BYTES_MAX as u64);
        return Err(TraceError::TooLarge { bytes, limit });
    }
    // Neither is larger than the bound.
    let lengths: [u8; 8] = encode(&(envelope.len() as u32, digest.len() as u32));
    let mut bytes = Vec::with_capacity(whole(payload));
    bytes.extend(nonce);
    bytes.extend(lengths);
    let crc = checksum(0, &bytes);
    bytes.extend(crc.to_le_bytes());
    bytes.extend(envelope);
    bytes.extend(digest);
    bytes.resize(whole(payload) - CRC_BYTES, 0);
    let crc = checksum(crc, bytes.get(HEAD_BYTES..).unwrap_or(&[]));
    bytes.extend(crc.to_le_bytes());
    key.stream(&nonce).apply(0, bytes.get_mut(NONCE_BYTES..).unwrap_or(&mut []));
    Ok(bytes)
}

/// Where the parts of a sound record are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) envelope: Range<usize>,
    pub(super) digest: Range<usize>,
}

/// The records of a log.
#[derive(Debug, Default)]
pub(super) struct Records {
    /// All records, those that are sound deciphered.
    pub(super) bytes: Vec<u8>,
    pub(super) sound: Vec<Record>,
    /// How often there was no sound record where one should be, and something
    /// followed.
    pub(super) damaged: u32,
    /// What follows the last sound record is none.
    pub(super) torn: bool,
}

impl Records {
    /// Deciphers what was read from the first record on. Where there is no
    /// sound record, the next is looked for; no byte is looked at more often
    /// than there are bytes in 8.
    pub(super) fn of(mut bytes: Vec<u8>, key: &Key) -> Self {
        let (mut sound, mut damaged, mut torn) = (Vec::new(), 0, false);
        let mut at = 0;
        while at < bytes.len() {
            match decipher(&mut bytes, at, key) {
                Some((record, end)) => {
                    damaged += u32::from(std::mem::take(&mut torn));
                    sound.push(record);
                    at = end;
                }
                None => {
                    torn = true;
                    at += ALIGN;
                }
            }
        }
        Self { bytes, sound, damaged, torn }
    }

    /// The envelope of a record, as bytes.
    pub(super) fn envelope(&self, record: &Record) -> &[u8] {
        self.bytes.get(record.envelope.clone()).unwrap_or(&[])
    }

    /// The digest of a record.
    pub(super) fn digest(&self, record: &Record) -> &[u8] {
        self.bytes.get(record.digest.clone()).unwrap_or(&[])
    }
}

/// Deciphers the record at `at`; it, and where it ends. Where there is none,
/// nothing has changed.
fn decipher(bytes: &mut [u8], at: usize, key: &Key) -> Option<(Record, usize)> {
    let rest = bytes.get_mut(at..)?;
    let mut head = *rest.first_chunk::<HEAD_BYTES>()?;
    let (nonce, enciphered) = head.split_first_chunk_mut::<NONCE_BYTES>()?;
    let stream = key.stream(nonce);
    stream.apply(0, enciphered);
    let (covered, crc) = head.split_last_chunk::<CRC_BYTES>()?;
    let crc = u32::from_le_bytes(*crc);
    if checksum(0, covered) != crc {
        return None;
    }
    let (envelope, digest): (u32, u32) = decode(covered.get(NONCE_BYTES..)?)?;
    let (envelope, digest) = (envelope as usize, digest as usize);
    let payload = envelope.checked_add(digest).filter(|&all| all <= PAYLOAD_BYTES_MAX)?;
    let record = rest.get_mut(..whole(payload))?.get_mut(HEAD_BYTES..)?;
    let offset = (HEAD_BYTES - NONCE_BYTES) as u64;
    stream.apply(offset, record);
    let (covered, after) = record.split_last_chunk::<CRC_BYTES>()?;
    if checksum(crc, covered) != u32::from_le_bytes(*after) {
        stream.apply(offset, record);
        return None;
    }
    let start = at + HEAD_BYTES;
    let record =
        Record { envelope: start..start + envelope, digest: start + envelope..start + payload };
    Some((record, at + whole(payload)))
}
