//! A log: messages in the order in which they were recorded.
//!
//! It contains two copies of its head, its status, and its records, each part
//! in its own sectors. The status determines where the records end: a record
//! that a killed process left incomplete is overwritten.

use std::ffi::CStr;
use std::fs::File;
use std::path::PathBuf;
use std::time::Instant;

use bincode::{Decode, Encode};

use crate::sys::files::{self, Access, FileInfo};
use crate::sys::secure_dir::{DirError, SecureDir};
use crate::versions::OtherVersion;

use super::cipher::{NONCE_BYTES, Nonce, TAG_BYTES, Tagger, random};
use super::codec::{decode, encode};
use super::error::Problem;
use super::key::DerivedKeys;
use super::mirrored::SECOND;
use super::record::{PAYLOAD_BYTES_MAX, Records};
use super::{TraceError, VERSIONS};
use crate::trace::{Settings, is_past};

/// The magic of a log.
pub(super) const LOG_MAGIC: [u8; 8] = *b"EXIRATEL";
/// The size of the unencrypted start of a log or segment.
pub(super) const START_BYTES: usize = 48;
/// The size of a log's head, including its tag.
pub(super) const HEAD_BYTES: usize = 92;
/// The offset of the status.
pub(super) const STATUS: usize = 2 * SECOND;
/// The size of a status, including its nonce and tag.
pub(super) const STATUS_BYTES: usize = 44;
/// The offset of the first record.
pub(super) const RECORDS: usize = 3 * SECOND;

/// A log has at most so many messages.
pub(super) const MESSAGES_MAX: u32 = 16_384;
/// One to which no more is added has at least so many bytes.
pub(super) const LOG_BYTES_MAX: u64 = 8 << 20;
/// A segment has at most so many messages: a query takes about as long for each segment, whatever
/// its size, until it has some ten thousand messages.
pub(super) const MERGED_MAX: u32 = 65_536;
/// How often an invalid status is read again.
const ATTEMPTS: u32 = 3;
/// The maximum number of bytes read of a log.
const READ_MAX: u64 = LOG_BYTES_MAX + 2 * PAYLOAD_BYTES_MAX as u64;
/// The number of bytes read at once if there is a deadline.
const READ_CHUNK: usize = 256 << 10;

/// When a log is full, and how large segments become.
#[derive(Clone, Copy, Debug)]
pub(super) struct LogLimits {
    /// A log with so many messages is full.
    pub(super) messages: u32,
    /// A log of so many bytes is full.
    pub(super) bytes: u64,
    /// Segments are merged up to so many messages.
    pub(super) merged: u32,
    /// So many segments of about the same size are merged, at least 2.
    pub(super) together: u32,
}

impl Default for LogLimits {
    fn default() -> Self {
        Self { messages: 256, bytes: 512 << 10, merged: MERGED_MAX, together: 8 }
    }
}

impl LogLimits {
    /// Whether a log is full. One whose segments cannot be merged becomes larger.
    pub(super) fn reached(&self, status: LogExtent, settings: &Settings) -> bool {
        let LogExtent { end, messages } = status;
        match settings.keeps_messages_apart() {
            true => messages >= self.messages || end >= self.bytes,
            false => messages >= self.merged.min(MESSAGES_MAX) || end >= LOG_BYTES_MAX,
        }
    }
}

/// The unencrypted start of a log or segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub(super) struct Start {
    pub(super) magic: [u8; 8],
    pub(super) version: u32,
    pub(super) reserved: u32,
    /// The number of the key that encrypts the rest.
    pub(super) key: u64,
    pub(super) nonce: Nonce,
}

/// The head of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub(super) struct LogHead {
    /// Identifies this log.
    pub(super) id: u64,
    /// When it was created, in seconds since 1970.
    pub(super) created: i64,
    /// The digest settings of its messages.
    pub(super) settings: [u8; 16],
    /// The decoder version of its messages.
    pub(super) decode: u16,
    pub(super) reserved: u16,
}

/// The extent of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub(super) struct LogExtent {
    /// The end of the last record.
    pub(super) end: u64,
    /// The number of records.
    pub(super) messages: u32,
}

/// Why a file cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LogFault {
    /// A required part is damaged.
    Damaged,
    /// It was written with another key.
    OtherKey,
    /// It has this later version.
    Version(OtherVersion),
}

/// An open log.
#[derive(Debug)]
pub(super) struct Log {
    pub(super) file: File,
    /// Its path, for messages.
    path: PathBuf,
    pub(super) head: LogHead,
    pub(super) settings: Settings,
    /// Of its head's nonce.
    pub(super) tagger: Tagger,
    /// `None` if it is damaged.
    pub(super) status: Option<LogExtent>,
    /// The size of the file.
    pub(super) size: u64,
    /// Device and inode.
    pub(super) identity: (u64, u64),
    /// Whether both copies of the head are equal, and unused bytes are zero.
    pub(super) whole: bool,
    /// Whether the status is the one that this process wrote with its last record.
    is_own_status: bool,
}

/// What is before the records of a log.
struct Beginning {
    head: LogHead,
    settings: Settings,
    tagger: Tagger,
    status: Option<LogExtent>,
    whole: bool,
}

impl Beginning {
    fn read(bytes: &[u8; RECORDS], key: &DerivedKeys) -> Result<Self, LogFault> {
        let copies = [0, SECOND].map(|at| read_head(bytes.get(at..).unwrap_or(&[]), key, at));
        let zeros = |range| bytes.get::<std::ops::Range<_>>(range).is_some_and(is_zero);
        let whole = copies.iter().all(Result::is_ok)
            && zeros(HEAD_BYTES..SECOND)
            && zeros(SECOND + HEAD_BYTES..STATUS)
            && zeros(STATUS + STATUS_BYTES..RECORDS);
        let (head, nonce) = either(copies)?;
        let settings = Settings::decode(&head.settings).ok_or(LogFault::Damaged)?;
        let tagger = key.tagger(&nonce);
        let status = read_status(bytes.get(STATUS..).unwrap_or(&[]), key, &tagger);
        Ok(Self { head, settings, tagger, status, whole })
    }
}

impl Log {
    /// Opens the log `name`; `None` if it does not exist.
    pub(super) fn open(
        dir: &SecureDir,
        key: &DerivedKeys,
        name: &CStr,
        access: Access,
    ) -> Result<Option<Result<Self, LogFault>>, DirError> {
        let Some((file, _)) = dir.open_file(access, name)? else { return Ok(None) };
        let read = || {
            let mut bytes = [0; RECORDS];
            files::read_start(&file, &mut bytes)?;
            Ok(Beginning::read(&bytes, key))
        };
        let mut found = read().map_err(dir.failed("read", name))?;
        // Queries hold no lock, and may read a status while it is written.
        for _ in 1..ATTEMPTS {
            if found.as_ref().is_ok_and(|found| found.status.is_some()) {
                break;
            }
            found = read().map_err(dir.failed("read", name))?;
        }
        // Only now: the file may have grown since it was opened.
        let info = files::info(&file).map_err(dir.failed("read", name))?;
        Ok(Some(found.map(|found| Self::of((file, dir.path_of(name)), &info, found))))
    }

    /// Reads the status of the same log again; `None` if `name` is another file
    /// now, or the log cannot be read.
    ///
    /// If the file ends where the last record of this process does, nothing was appended since
    /// then: a record is written before the status.
    pub(super) fn refresh(self, dir: &SecureDir, key: &DerivedKeys, name: &CStr) -> Option<Self> {
        let info = files::info_at(dir.directory(), name).ok()?;
        let end = self.status.filter(|_| self.is_own_status).map(|status| status.end);
        if end == Some(info.size) && info.identity == self.identity {
            return Some(Self { size: info.size, ..self });
        }
        let mut bytes = [0; STATUS_BYTES];
        let read = files::read_at(&self.file, STATUS as u64, &mut bytes).ok()?;
        let is_same = info.identity == self.identity && read == STATUS_BYTES;
        let status = read_status(&bytes, key, &self.tagger);
        is_same.then_some(Self { status, size: info.size, is_own_status: false, ..self })
    }

    fn of((file, path): (File, PathBuf), info: &FileInfo, found: Beginning) -> Self {
        let Beginning { head, settings, tagger, status, whole } = found;
        let FileInfo { size, identity, .. } = *info;
        Self {
            file,
            path,
            head,
            settings,
            tagger,
            status,
            size,
            identity,
            whole,
            is_own_status: false,
        }
    }

    /// Appends a record, which was made for this place but for its tag, after the last one. The
    /// nonce must not be used for anything else.
    pub(super) fn append(
        &mut self,
        before: LogExtent,
        mut record: Vec<u8>,
        key: &DerivedKeys,
        nonce: Nonce,
    ) -> std::io::Result<()> {
        let end = before.end.saturating_add(record.len() as u64);
        let status = LogExtent { end, messages: before.messages.saturating_add(1) };
        self.tagger.set(before.end, &mut record);
        self.is_own_status = false;
        files::write_at(&self.file, before.end, &record)?;
        let bytes = write_status(&status, key, &self.tagger, nonce);
        files::overwrite_at(&self.file, STATUS as u64, &bytes)?;
        (self.status, self.is_own_status) = (Some(status), true);
        Ok(())
    }

    /// Creates an empty log with the name `new`.
    pub(super) fn create(
        dir: &SecureDir,
        key: &DerivedKeys,
        new: &CStr,
        settings: Settings,
        created: i64,
    ) -> Result<Self, TraceError> {
        let [nonce, id] = [random::<NONCE_BYTES>()?, random()?];
        let id = id.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        let head = LogHead {
            id,
            created,
            settings: settings.encode(),
            decode: crate::trace::decode::VERSION,
            reserved: 0,
        };
        let status = LogExtent { end: RECORDS as u64, messages: 0 };
        let mut bytes = [0; RECORDS];
        for at in [0, SECOND] {
            put(&mut bytes, at, &write_head(&head, key, nonce, at));
        }
        let tagger = key.tagger(&nonce);
        put(&mut bytes, STATUS, &write_status(&status, key, &tagger, random()?));
        let file = dir.create_file(new, super::FILE_MODE)?;
        // Without its head, nothing of a log could be read after a power
        // failure.
        let written = files::write_start(&file, &bytes).and_then(|()| files::sync(&file));
        written.map_err(dir.failed("write", new))?;
        let info = files::info(&file).map_err(dir.failed("read", new))?;
        let found = Beginning { head, settings, tagger, status: Some(status), whole: true };
        Ok(Self::of((file, dir.path_of(new)), &info, found))
    }

    /// Reads all records as they are on disk; up to the end of the file if the
    /// status is damaged.
    pub(super) fn read(&self) -> std::io::Result<Vec<u8>> {
        self.read_until(None)
    }

    /// The same, but stops at the deadline.
    pub(super) fn read_until(&self, deadline: Option<Instant>) -> std::io::Result<Vec<u8>> {
        let end = self.status.map_or(self.size, |status| status.end.min(self.size));
        let length = end.min(READ_MAX).saturating_sub(RECORDS as u64);
        // At most READ_MAX.
        let mut bytes = vec![0; usize::try_from(length).unwrap_or(0)];
        let mut done = 0;
        for chunk in bytes.chunks_mut(READ_CHUNK) {
            if is_past(deadline) {
                break;
            }
            let read = files::read_at(&self.file, (RECORDS + done) as u64, chunk)?;
            done += read;
            if read < chunk.len() {
                break;
            }
        }
        bytes.truncate(done);
        Ok(bytes)
    }

    /// The records in what was read.
    pub(super) fn records(&self, bytes: Vec<u8>, key: &DerivedKeys) -> Records {
        Records::of(bytes, RECORDS as u64, key, &self.tagger)
    }

    /// Whether the status is sound and the file has the length in it.
    pub(super) fn is_sound(&self) -> bool {
        self.status.is_some_and(|status| (RECORDS as u64..=self.size).contains(&status.end))
    }

    /// The damage that prevents some of its messages from being read, if any.
    pub(super) fn damage(&self, records: &Records) -> Option<Problem> {
        let what = if self.status.is_none() {
            "its status is damaged; its sound messages can still be queried"
        } else if !self.is_sound() {
            "it ends before its last message"
        } else if records.damaged > 0 || records.torn {
            "some of its records are damaged; all others can be queried"
        } else {
            return None;
        };
        Some(Problem { path: self.path.clone(), what: what.to_owned() })
    }
}

/// Whether there is nothing but zeros.
fn is_zero(bytes: &[u8]) -> bool {
    bytes.iter().all(|&byte| byte == 0)
}

/// Copies `bytes` to `at`.
fn put(to: &mut [u8], at: usize, bytes: &[u8]) {
    to.iter_mut().skip(at).zip(bytes).for_each(|(to, from)| *to = *from);
}

/// What two copies say. In one of them, a damaged byte may look like another key or version. If
/// both are sound and differ, one is that of another file.
pub(super) fn either<T: PartialEq>(copies: [Result<T, LogFault>; 2]) -> Result<T, LogFault> {
    match copies {
        [Ok(one), Ok(other)] => (one == other).then_some(one).ok_or(LogFault::Damaged),
        [Ok(one), Err(_)] | [Err(_), Ok(one)] => Ok(one),
        [Err(one), Err(other)] => Err(if one == other { one } else { LogFault::Damaged }),
    }
}

/// Reads the start of a log or segment.
pub(super) fn read_start(
    bytes: &[u8],
    magic: [u8; 8],
    key: &DerivedKeys,
) -> Result<Start, LogFault> {
    let start: Start = decode(bytes).ok_or(LogFault::Damaged)?;
    match start.version {
        _ if start.magic != magic => Err(LogFault::Damaged),
        version => match VERSIONS.known().check(version) {
            Ok(()) if start.key == key.number => Ok(start),
            Ok(()) => Err(LogFault::OtherKey),
            Err(other) if other.is_later() => Err(LogFault::Version(other)),
            // No release has written this.
            Err(_) => Err(LogFault::Damaged),
        },
    }
}

/// Encodes the copy of a head at `offset`.
fn write_head(head: &LogHead, key: &DerivedKeys, nonce: Nonce, offset: usize) -> [u8; HEAD_BYTES] {
    let start =
        Start { magic: LOG_MAGIC, version: key.version, reserved: 0, key: key.number, nonce };
    let mut bytes: [u8; HEAD_BYTES] = encode(&(start, *head));
    let encrypted = bytes.get_mut(START_BYTES..HEAD_BYTES - TAG_BYTES).unwrap_or(&mut []);
    key.stream(&nonce).apply(START_BYTES as u64, encrypted);
    key.tagger(&nonce).set(offset as u64, &mut bytes);
    bytes
}

/// Decodes the copy of a head at `offset`.
fn read_head(bytes: &[u8], key: &DerivedKeys, offset: usize) -> Result<(LogHead, Nonce), LogFault> {
    let start = read_start(bytes, LOG_MAGIC, key)?;
    let bytes = bytes.get(..HEAD_BYTES).ok_or(LogFault::Damaged)?;
    let head = key.tagger(&start.nonce).check(offset as u64, bytes).ok_or(LogFault::Damaged)?;
    let mut encrypted = head.get(START_BYTES..).unwrap_or(&[]).to_vec();
    key.stream(&start.nonce).apply(START_BYTES as u64, &mut encrypted);
    Ok((decode(&encrypted).ok_or(LogFault::Damaged)?, start.nonce))
}

/// Encodes a status. The nonce must not be used for anything else.
pub(super) fn write_status(
    status: &LogExtent,
    key: &DerivedKeys,
    tagger: &Tagger,
    nonce: Nonce,
) -> [u8; STATUS_BYTES] {
    let mut bytes: [u8; STATUS_BYTES] = encode(&(nonce, *status));
    let encrypted = bytes.get_mut(NONCE_BYTES..STATUS_BYTES - TAG_BYTES).unwrap_or(&mut []);
    key.stream(&nonce).apply(0, encrypted);
    tagger.set(STATUS as u64, &mut bytes);
    bytes
}

/// Decodes a status; `None` if it is damaged.
fn read_status(bytes: &[u8], key: &DerivedKeys, tagger: &Tagger) -> Option<LogExtent> {
    let bytes = tagger.check(STATUS as u64, bytes.get(..STATUS_BYTES)?)?;
    let (nonce, encrypted) = bytes.split_first_chunk::<NONCE_BYTES>()?;
    let mut plain = *encrypted.first_chunk::<{ STATUS_BYTES - NONCE_BYTES - TAG_BYTES }>()?;
    key.stream(nonce).apply(0, &mut plain);
    decode(&plain)
}

const _: () = {
    assert!(HEAD_BYTES <= SECOND && STATUS + STATUS_BYTES <= RECORDS);
    assert!(8 + 4 + 4 + 8 + NONCE_BYTES == START_BYTES);
    assert!(START_BYTES + 8 + 8 + 16 + 2 + 2 + TAG_BYTES == HEAD_BYTES);
    assert!(NONCE_BYTES + 8 + 4 + TAG_BYTES == STATUS_BYTES);
};
