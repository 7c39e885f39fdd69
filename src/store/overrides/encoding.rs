//! The list of overrides as bytes: a header, then one entry after the other, as
//! `FORMAT.md` of the spool database describes it.

use std::fmt;
use std::ops::Range;

use crate::engine::Forced;
use crate::store::byte_reader::ByteReader;

use super::glob;
use super::target::{OVERRIDES_MAX, Override, TEXT_MAX, Target};

const MAGIC: &[u8; 8] = b"EXIRATEO";
const VERSION: u32 = 1;
/// The size of the header: magic, version, number of entries, size, checksum.
pub const HEADER_BYTES: usize = 24;
/// The offset of the checksum, which covers everything but itself.
const CRC: usize = 20;
/// The size limit of an encoded list.
pub const LIST_BYTES_MAX: usize = 16 << 20;

/// The kinds of targets.
const EXACT: u8 = 0;
const GLOB: u8 = 1;
/// Flag of a kind: case is ignored.
const IGNORE_CASE: u8 = 2;

/// Why bytes are no list of overrides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListFault {
    /// They are damaged.
    Damaged,
    /// They have a version that this exirate does not know.
    Version(u32),
}

impl fmt::Display for ListFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Damaged => f.write_str("it is damaged"),
            Self::Version(found) => write!(
                f,
                "it has version {found}, and this exirate knows version {VERSION}: use the newer one"
            ),
        }
    }
}

/// What matching needs of an entry; the texts are ranges of the encoded list.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) forced: Forced,
    pub(super) until: i64,
    pub(super) ignore_case: bool,
    pub(super) patterns: Range<usize>,
}

impl Entry {
    /// The alternatives of a glob, or the exact key.
    pub(super) fn patterns<'a>(&self, bytes: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
        let mut reader = ByteReader { rest: bytes.get(self.patterns.clone()).unwrap_or_default() };
        std::iter::from_fn(move || reader.text())
    }

    /// The exact key.
    pub(super) fn key<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        self.patterns(bytes).next().unwrap_or_default()
    }
}

/// One entry, as it is encoded.
pub(super) struct Encoded<'a> {
    pub(super) forced: Forced,
    kind: u8,
    pub(super) until: i64,
    since: i64,
    argument: &'a str,
    reason: &'a str,
    who: &'a str,
    /// Each pattern after its length.
    pub(super) patterns: &'a [u8],
    /// How many bytes of the list come after where they begin.
    pub(super) behind: usize,
}

impl<'a> Encoded<'a> {
    fn read_one(reader: &mut ByteReader<'a>) -> Option<Self> {
        let [forced, kind] = reader.array()?;
        let forced = match forced {
            0 => Forced::Allow,
            1 => Forced::Deny,
            _ => return None,
        };
        let mut entry = Self {
            forced,
            kind,
            until: reader.i64()?,
            since: reader.i64()?,
            argument: "",
            reason: "",
            who: "",
            patterns: &[],
            behind: 0,
        };
        for text in [&mut entry.argument, &mut entry.reason, &mut entry.who] {
            *text = std::str::from_utf8(reader.text()?).ok()?;
        }
        let count = usize::from(reader.u16()?);
        let start = reader.rest;
        let is_glob = kind & !IGNORE_CASE == GLOB;
        let most = if is_glob { glob::ALTERNATIVES_MAX } else { 1 };
        if kind > GLOB | IGNORE_CASE || count == 0 || count > most {
            return None;
        }
        for _ in 0..count {
            let pattern = reader.text()?;
            if is_glob && !glob::is_valid(pattern) {
                return None;
            }
        }
        entry.behind = start.len();
        entry.patterns = start.get(..start.len().checked_sub(reader.rest.len())?)?;
        Some(entry)
    }

    pub(super) fn ignore_case(&self) -> bool {
        self.kind & IGNORE_CASE != 0
    }

    pub(super) fn is_glob(&self) -> bool {
        self.kind & GLOB != 0
    }

    /// Everything of it.
    pub(super) fn to_override(&self) -> Override {
        let mut reader = ByteReader { rest: self.patterns };
        let mut patterns = std::iter::from_fn(|| reader.text().map(<[u8]>::to_vec));
        let ignore_case = self.ignore_case();
        let target = match self.is_glob() {
            true => Target::Glob { alternatives: patterns.collect(), ignore_case },
            false => Target::Exact { key: patterns.next().unwrap_or_default(), ignore_case },
        };
        Override {
            forced: self.forced,
            target,
            argument: self.argument.to_owned(),
            until: self.until,
            since: self.since,
            reason: self.reason.to_owned(),
            who: self.who.to_owned(),
        }
    }
}

/// Encodes a list.
///
/// # Errors
/// A list or a text of it is too long; the error says which.
pub(super) fn encode(list: &[Override]) -> Result<Vec<u8>, String> {
    if list.len() > OVERRIDES_MAX {
        return Err(format!(
            "there may be at most {OVERRIDES_MAX} overrides: remove some, or use a glob"
        ));
    }
    let mut bytes = vec![0; HEADER_BYTES];
    for one in list {
        let (kind, ignore_case, patterns) = match &one.target {
            Target::Exact { key, ignore_case } => (EXACT, ignore_case, std::slice::from_ref(key)),
            Target::Glob { alternatives, ignore_case } => (GLOB, ignore_case, &**alternatives),
        };
        bytes.push(u8::from(one.forced == Forced::Deny));
        bytes.push(kind | if *ignore_case { IGNORE_CASE } else { 0 });
        bytes.extend(one.until.to_le_bytes());
        bytes.extend(one.since.to_le_bytes());
        for (what, text) in
            [("KEY", &one.argument), ("the reason", &one.reason), ("the user's name", &one.who)]
        {
            if text.len() > TEXT_MAX {
                return Err(format!("{what} is longer than {TEXT_MAX} bytes"));
            }
            push_text(&mut bytes, text.as_bytes());
        }
        bytes.extend((patterns.len() as u16).to_le_bytes()); // at most ALTERNATIVES_MAX
        for pattern in patterns {
            if matches!(one.target, Target::Exact { .. }) && pattern.len() > TEXT_MAX {
                return Err(format!("KEY is longer than {TEXT_MAX} bytes"));
            }
            push_text(&mut bytes, pattern);
        }
    }
    if bytes.len() > LIST_BYTES_MAX {
        return Err(format!("the overrides would take more than {LIST_BYTES_MAX} bytes"));
    }
    let size = bytes.len() as u32; // at most LIST_BYTES_MAX
    let header = [
        &MAGIC[..],
        &VERSION.to_le_bytes(),
        &(list.len() as u32).to_le_bytes(),
        &size.to_le_bytes(),
    ]
    .concat();
    for (place, byte) in bytes.iter_mut().zip(header) {
        *place = byte;
    }
    let crc = checksum(&bytes);
    for (place, byte) in bytes.iter_mut().skip(CRC).zip(crc.to_le_bytes()) {
        *place = byte;
    }
    Ok(bytes)
}

fn push_text(bytes: &mut Vec<u8>, text: &[u8]) {
    let length = u16::try_from(text.len()).unwrap_or(u16::MAX);
    bytes.extend(length.to_le_bytes());
    bytes.extend(text.iter().take(usize::from(length)));
}

/// Reads a list, and calls `see` with each entry.
pub(super) fn read<'a>(bytes: &'a [u8], mut see: impl FnMut(Encoded<'a>)) -> Result<(), ListFault> {
    let mut reader = ByteReader { rest: bytes };
    let header = reader.take(CRC).zip(reader.array());
    let (header, crc) = header.ok_or(ListFault::Damaged)?;
    let mut header = ByteReader { rest: header };
    let magic: Option<[u8; 8]> = header.array();
    let mut number = || header.array().map(u32::from_le_bytes).ok_or(ListFault::Damaged);
    let (version, count, size) = (number()?, number()?, number()?);
    if magic != Some(*MAGIC) || u32::from_le_bytes(crc) != checksum(bytes) || version == 0 {
        return Err(ListFault::Damaged);
    }
    if version != VERSION {
        return Err(ListFault::Version(version));
    }
    if size as usize != bytes.len() || count as usize > OVERRIDES_MAX {
        return Err(ListFault::Damaged);
    }
    for _ in 0..count {
        see(Encoded::read_one(&mut reader).ok_or(ListFault::Damaged)?);
    }
    if reader.rest.is_empty() { Ok(()) } else { Err(ListFault::Damaged) }
}

/// The checksum of all but itself.
fn checksum(bytes: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(bytes.get(..CRC).unwrap_or_default());
    hasher.update(bytes.get(HEADER_BYTES..).unwrap_or_default());
    hasher.finalize()
}
