//! Removes entries in place: each is replaced by an entry that is blank and has the same
//! size, so that other processes can append meanwhile, and readers keep their place.

use std::fs::File;
use std::io;

use crate::rate::Timestamp;
use crate::store::{Enforcement, EventDetails};
use crate::sys::files;

use super::entry::{
    ENTRY_BYTES_MAX, Entry, EntryFault, EntryKind, RecordId, has_another, next_magic, texts,
};

/// How many bytes are read to remove some entries.
const SOME_BYTES: usize = 8 * ENTRY_BYTES_MAX;

/// How much of a file is examined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Extent {
    /// The first entries that are not blank.
    Some,
    /// All.
    All,
}

/// What [`expire`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Expired {
    /// Whether the whole file was examined, and nothing is left in it.
    pub(super) is_empty: bool,
}

/// A blank entry of `size` bytes. The first one of a file says how many bytes from the
/// start of the file on are blank.
pub(super) fn blank(size: usize, seed: u32, skip: u64) -> Vec<u8> {
    let entry = Entry {
        what: EntryKind::Blank,
        record: RecordId { hash: skip, kind: 0, algorithm: 0 },
        number: 0,
        at: Timestamp { seconds: 0, micros: 0 },
        sequence: 0,
        update: 0,
        identity_start: 0,
        enforcement: Enforcement::Enforced,
        windows: Vec::new(),
        texts: texts(b"", &EventDetails::default()),
    };
    entry.encode_to(seed, size)
}

/// One part of a file's bytes.
pub(super) enum Part {
    /// An entry.
    Entry(Box<Entry>),
    /// An entry of a kind or version that is not known.
    Unknown,
    /// Bytes that are no entry.
    Damaged,
}

/// The part at the start of `bytes`, and its size; `None` at the end, and where an entry
/// may still be being written.
pub(super) fn part(bytes: &[u8], seed: u32) -> Option<(Part, usize)> {
    if bytes.is_empty() {
        return None;
    }
    match Entry::decode(bytes, seed) {
        Ok((entry, size)) => Some((Part::Entry(Box::new(entry)), size)),
        Err(EntryFault::Unknown(size)) => Some((Part::Unknown, size)),
        Err(EntryFault::Cut) if bytes.len() < ENTRY_BYTES_MAX && !has_another(bytes) => None,
        Err(EntryFault::Cut | EntryFault::Damaged) => Some((Part::Damaged, next_magic(bytes))),
    }
}

/// Whether the first entry that is not blank is older than `oldest`.
pub(super) fn is_due(file: &File, seed: u32, oldest: i64) -> bool {
    let first = |offset: u64| {
        let mut bytes = [0; ENTRY_BYTES_MAX];
        let read = files::read_at(file, offset, &mut bytes).ok()?;
        Entry::decode(bytes.get(..read)?, seed).ok().map(|(entry, _)| entry)
    };
    let entry = match first(0) {
        Some(entry) if entry.what == EntryKind::Blank => first(entry.record.hash),
        entry => entry,
    };
    entry.is_some_and(|entry| entry.what != EntryKind::Blank && entry.at.seconds < oldest)
}

/// Replaces the entries that are older than `oldest` by blank ones, and bytes before them
/// that are no entry by zeros. The caller has locked the directory.
pub(super) fn expire(
    file: &File,
    size: u64,
    seed: u32,
    oldest: i64,
    extent: Extent,
) -> io::Result<Expired> {
    let mut head = [0; ENTRY_BYTES_MAX];
    let read = files::read_start(file, &mut head)?;
    let first = Entry::decode(head.get(..read).unwrap_or(&[]), seed).ok();
    // Blank entries at the start of the file.
    let skip = match (&first, extent) {
        (Some((entry, _)), Extent::Some) if entry.what == EntryKind::Blank => {
            entry.record.hash.min(size)
        }
        _ => 0,
    };
    let most = if extent == Extent::All { usize::MAX } else { SOME_BYTES };
    let mut bytes = vec![0; usize::try_from(size - skip).unwrap_or(0).min(most)];
    let read = files::read_at(file, skip, &mut bytes)?;
    bytes.truncate(read);
    let (mut at, mut prefix, mut damaged) = (0, 0, 0);
    let mut is_prefix = true;
    while let Some((part, length)) = bytes.get(at..).and_then(|rest| part(rest, seed)) {
        let place = skip + at as u64;
        at += length;
        match part {
            Part::Entry(entry) if entry.what == EntryKind::Blank => damaged = 0,
            Part::Entry(entry) if entry.at.seconds < oldest => {
                if damaged > 0 {
                    files::write_at(file, place - damaged, &vec![0; damaged as usize])?;
                }
                files::write_at(file, place, &blank(length, seed, 0))?;
                damaged = 0;
            }
            Part::Damaged => {
                damaged += length as u64;
                continue;
            }
            Part::Entry(_) | Part::Unknown if extent == Extent::Some => {
                is_prefix = false;
                break;
            }
            Part::Entry(_) | Part::Unknown => {
                (is_prefix, damaged) = (false, 0);
                continue;
            }
        }
        if is_prefix {
            prefix = at;
        }
    }
    let blank_bytes = skip + prefix as u64;
    if let Some((_, length)) = first
        && blank_bytes > skip
    {
        files::write_start(file, &blank(length, seed, blank_bytes))?;
    }
    Ok(Expired { is_empty: is_prefix && blank_bytes == size })
}
