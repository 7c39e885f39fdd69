//! A record of a log, which holds one message.

use std::ops::Range;

use super::TraceError;
use super::cipher::{NONCE_BYTES, Nonce, TAG_BYTES, Tagger};
use super::codec::{CRC_BYTES, checksum, decode, encode};
use super::key::DerivedKeys;

/// The maximum size of the envelope and digest of a message.
pub(super) const PAYLOAD_BYTES_MAX: usize = 64 << 20;
/// The size of a record is a multiple of this.
pub(super) const ALIGN: usize = 8;
/// The size of the part before the payload: nonce, two lengths, checksum.
pub(super) const HEAD_BYTES: usize = NONCE_BYTES + 4 + 4 + CRC_BYTES;

/// The size of a record with a payload of so many bytes: its head, the payload,
/// zeros, the tag.
const fn whole(payload: usize) -> usize {
    (HEAD_BYTES + payload + TAG_BYTES).next_multiple_of(ALIGN)
}

/// Encodes a record, without its tag: that depends on where it is written. The nonce must not be
/// used for anything else.
///
/// # Errors
/// It would be too large.
pub(super) fn make(
    key: &DerivedKeys,
    nonce: Nonce,
    envelope: &[u8],
    digest: &[u8],
) -> Result<Vec<u8>, TraceError> {
    let payload = envelope.len().saturating_add(digest.len());
    if payload > PAYLOAD_BYTES_MAX {
        let (bytes, limit) = (payload as u64, PAYLOAD_BYTES_MAX as u64);
        return Err(TraceError::TooLarge { bytes, limit });
    }
    // Neither is larger than the limit.
    let lengths: [u8; 8] = encode(&(envelope.len() as u32, digest.len() as u32));
    let mut bytes = Vec::with_capacity(whole(payload));
    bytes.extend(nonce);
    bytes.extend(lengths);
    let crc = checksum(0, &bytes);
    bytes.extend(crc.to_le_bytes());
    bytes.extend(envelope);
    bytes.extend(digest);
    let end = whole(payload);
    bytes.resize(end, 0);
    let encrypted = bytes.get_mut(NONCE_BYTES..end - TAG_BYTES).unwrap_or(&mut []);
    key.stream(&nonce).apply(0, encrypted);
    Ok(bytes)
}

/// The ranges of the parts of a sound record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) envelope: Range<usize>,
    pub(super) digest: Range<usize>,
}

/// The records of a log.
#[derive(Debug, Default)]
pub(super) struct Records {
    /// All records; the sound ones are decrypted.
    pub(super) bytes: Vec<u8>,
    pub(super) sound: Vec<Record>,
    /// How often a sound record was missing and another one followed.
    pub(super) damaged: u32,
    /// Whether bytes follow the last sound record that are not one.
    pub(super) torn: bool,
}

impl Records {
    /// Decrypts the bytes of a log from the first record on, which is at `first`. After a damaged record, the
    /// next one is searched for; the time is at most quadratic in the number of
    /// 8-byte steps.
    pub(super) fn of(mut bytes: Vec<u8>, first: u64, key: &DerivedKeys, tagger: &Tagger) -> Self {
        let (mut sound, mut damaged, mut torn) = (Vec::new(), 0, false);
        let mut at = 0;
        while at < bytes.len() {
            match decrypt(&mut bytes, at, first, key, tagger) {
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

    /// The envelope of a record, encoded.
    pub(super) fn envelope(&self, record: &Record) -> &[u8] {
        self.bytes.get(record.envelope.clone()).unwrap_or(&[])
    }

    /// The digest of a record.
    pub(super) fn digest(&self, record: &Record) -> &[u8] {
        self.bytes.get(record.digest.clone()).unwrap_or(&[])
    }
}

/// Decrypts the record at `at`; returns it, and its end. If there is none, the
/// bytes do not change.
fn decrypt(
    bytes: &mut [u8],
    at: usize,
    first: u64,
    key: &DerivedKeys,
    tagger: &Tagger,
) -> Option<(Record, usize)> {
    let rest = bytes.get_mut(at..)?;
    let mut head = *rest.first_chunk::<HEAD_BYTES>()?;
    let (nonce, encrypted) = head.split_first_chunk_mut::<NONCE_BYTES>()?;
    let stream = key.stream(nonce);
    stream.apply(0, encrypted);
    // Its size is needed to find its tag. If it is wrong, so is the tag.
    let (covered, crc) = head.split_last_chunk::<CRC_BYTES>()?;
    if checksum(0, covered) != u32::from_le_bytes(*crc) {
        return None;
    }
    let (envelope, digest): (u32, u32) = decode(covered.get(NONCE_BYTES..)?)?;
    let (envelope, digest) = (envelope as usize, digest as usize);
    let payload = envelope.checked_add(digest).filter(|&all| all <= PAYLOAD_BYTES_MAX)?;
    let record = rest.get_mut(..whole(payload))?;
    tagger.check(first + at as u64, record)?;
    let encrypted = record.get_mut(HEAD_BYTES..whole(payload) - TAG_BYTES)?;
    stream.apply((HEAD_BYTES - NONCE_BYTES) as u64, encrypted);
    let start = at + HEAD_BYTES;
    let record =
        Record { envelope: start..start + envelope, digest: start + envelope..start + payload };
    Some((record, at + whole(payload)))
}
