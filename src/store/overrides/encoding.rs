//! The list of overrides as bytes: a header, then one entry after the other, as
//! `FORMAT.md` of the spool database describes it.

use std::ops::Range;

use crate::engine::Overridden;
use crate::identity::fold::Folding;
use crate::store::byte_reader::ByteReader;
use crate::versions::{OtherVersion, USE_THE_LATER, Versions};

use super::glob;
use super::target::{OVERRIDES_MAX, Override, TEXT_MAX, Target};

const MAGIC: &[u8; 8] = b"EXIRATEO";
/// The version of the format. In the lower one, which is written as long as that is enough, no denial
/// rejects.
const VERSION: u32 = 2;
const VERSIONS: Versions = Versions { oldest: 1, newest: VERSION };
/// The size of the header: magic, version, number of entries, size, checksum.
pub const HEADER_BYTES: usize = 24;
/// The offset of the checksum, which covers everything but itself.
const CRC: usize = 20;
/// The size limit of an encoded list.
pub const LIST_BYTES_MAX: usize = 16 << 20;

/// The kinds of targets.
const EXACT: u8 = 0;
const GLOB: u8 = 1;
/// Flag of a kind: keys of specs are folded; how, comes after the texts.
const FOLDED: u8 = 2;
/// Flags of a folding.
const CASE: u8 = 1;
const PLUS: u8 = 2;

/// Why bytes are no list of overrides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ListFault {
    /// They are damaged.
    #[error("it is damaged")]
    Damaged,
    /// They have a version that this exirate does not know.
    #[error("it {0}: {USE_THE_LATER}")]
    Version(OtherVersion),
}

/// What matching needs of an entry; the texts are ranges of the encoded list.
#[derive(Clone, Debug)]
pub(super) struct EncodedEntry {
    pub(super) overridden: Overridden,
    pub(super) until: i64,
    pub(super) patterns: Range<usize>,
}

impl EncodedEntry {
    /// The alternatives of a glob, or the name and what follows.
    pub(super) fn patterns<'a>(&self, bytes: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
        let mut reader = ByteReader { rest: bytes.get(self.patterns.clone()).unwrap_or_default() };
        std::iter::from_fn(move || reader.text())
    }

    /// The name.
    pub(super) fn key<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        self.patterns(bytes).next().unwrap_or_default()
    }
}

/// One entry, as it is encoded.
pub(super) struct Encoded<'a> {
    pub(super) overridden: Overridden,
    kind: u8,
    pub(super) until: i64,
    since: i64,
    argument: &'a str,
    reason: &'a str,
    who: &'a str,
    /// How keys of specs are folded.
    folding: Option<FoldingBytes<'a>>,
    /// Each pattern after its length.
    pub(super) patterns: &'a [u8],
    /// How many bytes of the list come after where they begin.
    pub(super) behind: usize,
}

impl<'a> Encoded<'a> {
    fn read_one(reader: &mut ByteReader<'a>) -> Option<Self> {
        let [overridden, kind] = reader.array()?;
        let overridden = match overridden {
            0 => Overridden::Allow,
            1 => Overridden::Deny,
            2 => Overridden::Reject,
            _ => return None,
        };
        let mut entry = Self {
            overridden,
            kind,
            until: reader.i64()?,
            since: reader.i64()?,
            argument: "",
            reason: "",
            who: "",
            folding: None,
            patterns: &[],
            behind: 0,
        };
        for text in [&mut entry.argument, &mut entry.reason, &mut entry.who] {
            *text = std::str::from_utf8(reader.text()?).ok()?;
        }
        if kind & FOLDED != 0 {
            entry.folding = Some(FoldingBytes::read(reader)?);
        }
        let count = usize::from(reader.u16()?);
        let start = reader.rest;
        let is_glob = entry.is_glob();
        let most = if is_glob { glob::ALTERNATIVES_MAX } else { 2 };
        if kind > GLOB | FOLDED || kind == GLOB || count == 0 || count > most {
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

    /// How keys of specs are folded; masks are for the command that sets an override.
    pub(super) fn folding(&self) -> Option<Folding> {
        self.folding.map(FoldingBytes::to_folding)
    }

    pub(super) fn is_glob(&self) -> bool {
        self.kind & GLOB != 0
    }

    /// Everything of it.
    pub(super) fn to_override(&self) -> Override {
        let mut reader = ByteReader { rest: self.patterns };
        let mut patterns = std::iter::from_fn(|| reader.text().map(<[u8]>::to_vec));
        let target = match (self.is_glob(), self.folding()) {
            (true, Some(folding)) => Target::Glob { alternatives: patterns.collect(), folding },
            (_, folding) => Target::Exact {
                key: patterns.next().unwrap_or_default(),
                counted_as: patterns.next(),
                folding,
            },
        };
        Override {
            overridden: self.overridden,
            target,
            argument: self.argument.to_owned(),
            until: self.until,
            since: self.since,
            reason: self.reason.to_owned(),
            who: self.who.to_owned(),
        }
    }
}

/// A folding, as it is encoded.
#[derive(Clone, Copy)]
struct FoldingBytes<'a> {
    flags: u8,
    qualify: &'a str,
    /// Each domain after its length.
    dots: &'a [u8],
}

impl<'a> FoldingBytes<'a> {
    fn read(reader: &mut ByteReader<'a>) -> Option<Self> {
        let [flags] = reader.array()?;
        let qualify = str::from_utf8(reader.text()?).ok()?;
        let count = reader.u16()?;
        let start = reader.rest;
        for _ in 0..count {
            str::from_utf8(reader.text()?).ok()?;
        }
        let dots = start.get(..start.len().checked_sub(reader.rest.len())?)?;
        (flags <= CASE | PLUS).then_some(Self { flags, qualify, dots })
    }

    fn to_folding(self) -> Folding {
        let mut reader = ByteReader { rest: self.dots };
        let dots = std::iter::from_fn(|| reader.text());
        let dots = dots.map(|domain| String::from_utf8_lossy(domain).into_owned());
        Folding {
            case: self.flags & CASE != 0,
            plus: self.flags & PLUS != 0,
            dots: dots.collect(),
            qualify: Some(self.qualify.to_owned()).filter(|domain| !domain.is_empty()),
            ..Folding::default().without_masks()
        }
    }
}

fn push_folding(bytes: &mut Vec<u8>, folding: &Folding) -> Result<(), String> {
    let Folding { case, plus, dots, qualify, v4: _, v6: _ } = folding;
    bytes.push(if *case { CASE } else { 0 } | if *plus { PLUS } else { 0 });
    push_text(bytes, qualify.as_deref().unwrap_or_default().as_bytes());
    let count = u16::try_from(dots.len());
    let count = count.map_err(|_| "the policies leave out dots in too many domains".to_owned())?;
    bytes.extend(count.to_le_bytes());
    dots.iter().for_each(|domain| push_text(bytes, domain.as_bytes()));
    Ok(())
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
        let (kind, patterns): (_, Vec<&[u8]>) = match &one.target {
            Target::Exact { key, counted_as, .. } => {
                (EXACT, std::iter::once(key).chain(counted_as).map(|name| &**name).collect())
            }
            Target::Glob { alternatives, .. } => {
                (GLOB, alternatives.iter().map(|steps| &**steps).collect())
            }
        };
        let folding = one.target.folding();
        bytes.push(match one.overridden {
            Overridden::Allow => 0,
            Overridden::Deny => 1,
            Overridden::Reject => 2,
        });
        bytes.push(kind | if folding.is_some() { FOLDED } else { 0 });
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
        if let Some(folding) = folding {
            push_folding(&mut bytes, folding)?;
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
    // What an exirate of the lower version can read, it shall.
    let rejects = list.iter().any(|one| one.overridden == Overridden::Reject);
    let version = if rejects { VERSIONS.newest } else { VERSIONS.oldest };
    let header = [
        &MAGIC[..],
        &version.to_le_bytes(),
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
    VERSIONS.known().check(version).map_err(ListFault::Version)?;
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
