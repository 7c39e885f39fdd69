//! The body of a sealed segment.
//!
//! Messages are sorted by the size of their filters; within a size they keep
//! the order of the digests. Numbers are little-endian:
//!
//! | bytes | contents |
//! |---|---|
//! | 1 | how often the body has been folded |
//! | 1 | the number of sizes, c |
//! | 5·c | for each size: the number of its [`Class`] (1 byte), ascending, and the number of
//! messages (4), not 0 |
//! | 1 each | for each message: its fill, the share of set bits in its filter, in 255ths |
//! | ½ each | for each message: the number of its [`Composition`], in 4 bits, the lower ones of a
//! byte first; unused bits of the last byte are zero |
//! | … | the filters of each [`Octave`] |
//!
//! An octave begins at a byte boundary; unused bits of its last byte are zero.
//! Folding joins the bits 2i and 2i + 1 of a filter, which halves the number of
//! buckets.

use std::cell::OnceCell;
use std::ops::Range as Span;

use crate::trace::likeness::Bits;
use crate::trace::{Body, Damage, Sealed, filter};

use super::class::Class;
use super::digest::{self, Parsed};
use super::marks::Composition;
use super::matrix::{self, ColumnCounts};
use super::octave::{Group, Octave, Range};

/// How often a body can be folded: all filters have at least two to this power
/// of buckets.
const FOLDS_MAX: u8 = 3;
const HEAD: usize = 2;
const ENTRY: usize = 5;
/// Where the filter of a digest begins.
const FILTER: usize = 2;

/// The structure of a body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Table {
    folds: u8,
    pub(super) octaves: Vec<Octave>,
    compositions: usize,
    /// The offset after the last octave.
    end: u64,
}

impl Table {
    /// Reads the table of a body.
    pub(super) fn read(body: &Body<'_>, messages: u32) -> Result<Self, Damage> {
        let mut head = [0; HEAD];
        body.read(0, &mut head)?;
        let [folds, count] = head;
        if folds > FOLDS_MAX {
            return Err(Damage("it is folded too often"));
        }
        let mut entries = [[0; ENTRY]; u8::MAX as usize];
        let entries = entries.get_mut(..usize::from(count)).unwrap_or_default();
        body.read(HEAD, entries.as_flattened_mut())?;
        let mut sizes = Vec::with_capacity(entries.len());
        for [class, count @ ..] in entries {
            let class =
                Class::numbered(*class).ok_or(Damage("its table contains an invalid size"))?;
            sizes.push((class, u32::from_le_bytes(*count)));
        }
        let table = Self::of(&sizes, folds)?;
        let last = table.octaves.iter().flat_map(|octave| &octave.groups).last();
        let empty = sizes.first().filter(|(class, _)| *class == Class::EMPTY);
        let found =
            last.map_or(empty.map_or(0, |(_, count)| *count), |last| last.first + last.messages);
        if found != messages {
            return Err(Damage("its number of messages is wrong"));
        }
        if table.end != body.len() as u64 {
            return Err(Damage("its length is wrong"));
        }
        Ok(table)
    }

    /// The structure for so many messages of each size.
    fn of(sizes: &[(Class, u32)], folds: u8) -> Result<Self, Damage> {
        let wrong = Damage("its table is inconsistent");
        let mut groups = Vec::with_capacity(sizes.len());
        let mut messages = 0_u32;
        for &(class, count) in sizes {
            groups.push(Group::new(class, messages, count));
            messages = messages.checked_add(count).filter(|_| count > 0).ok_or(wrong)?;
        }
        if !groups.is_sorted_by(|a, b| a.class < b.class) {
            return Err(wrong);
        }
        let fills = HEAD + groups.len() * ENTRY;
        let mut end = fills as u64 + u64::from(messages);
        let compositions = usize::try_from(end).map_err(|_| Damage("it is too large"))?;
        end += u64::from(messages.div_ceil(2));
        let mut octaves = Vec::new();
        let filters = groups.iter().position(|group| group.class > Class::EMPTY);
        let groups = filters.and_then(|first| groups.get(first..)).unwrap_or_default();
        for groups in groups.chunk_by(|a, b| a.class.octave() == b.class.octave()) {
            let offset = usize::try_from(end).map_err(|_| Damage("it is too large"))?;
            let mut octave = Octave::new(groups.to_vec(), folds, offset);
            octave.fills = fills + groups.first().map_or(0, |group| group.first as usize);
            end = end.checked_add(octave.bytes()).ok_or(wrong)?;
            octaves.push(octave);
        }
        Ok(Self { folds, octaves, compositions, end })
    }

    /// Which parts a message has.
    pub(super) fn composition(&self, body: &Body<'_>, message: u32) -> Result<Composition, Damage> {
        let mut both = [0];
        body.read(self.compositions + message as usize / 2, &mut both)?;
        let [both] = both;
        let number = if message.is_multiple_of(2) { both & 15 } else { both >> 4 };
        Composition::numbered(number).ok_or(Damage("the parts of a message are invalid"))
    }
}

/// The fills of the filters of an octave, which are read when they are needed.
pub(super) struct Fills<'a> {
    body: &'a Body<'a>,
    octave: &'a Octave,
    levels: OnceCell<Vec<u8>>,
}

impl<'a> Fills<'a> {
    pub(super) fn new(body: &'a Body<'a>, octave: &'a Octave) -> Self {
        Self { body, octave, levels: OnceCell::new() }
    }

    /// Those of a group of the octave.
    pub(super) fn of(&self, group: &Group) -> Result<&[u8], Damage> {
        let levels = match self.levels.get() {
            Some(levels) => levels,
            None => {
                let levels = self.read()?;
                self.levels.get_or_init(|| levels)
            }
        };
        let before = group.first - self.octave.groups.first().map_or(0, |first| first.first);
        let levels = levels.get(before as usize..).unwrap_or_default();
        Ok(levels.get(..group.messages as usize).unwrap_or_default())
    }

    /// Those of some messages of a group, numbered from its first one: only they are read, unless
    /// all are known.
    pub(super) fn some_of(&self, group: &Group, columns: Span<usize>) -> Result<Vec<u8>, Damage> {
        if self.levels.get().is_some() {
            return Ok(self.of(group)?.get(columns).unwrap_or_default().to_vec());
        }
        let before = group.first - self.octave.groups.first().map_or(0, |first| first.first);
        let mut levels = vec![0; columns.len()];
        self.body.read(self.octave.fills + before as usize + columns.start, &mut levels)?;
        Ok(levels)
    }

    fn read(&self) -> Result<Vec<u8>, Damage> {
        let messages = self.octave.groups.iter().map(|group| group.messages as usize).sum();
        let mut levels = vec![0; messages];
        self.body.read(self.octave.fills, &mut levels)?;
        Ok(levels)
    }
}

/// Lays out digests; damaged ones are treated as those of empty messages.
pub(super) fn seal(digests: &[&[u8]]) -> Sealed {
    let empty = Parsed { class: Class::EMPTY, composition: Composition::default(), filter: &[] };
    let parsed = digests.iter().map(|digest| digest::parse(digest).unwrap_or(empty));
    let mut messages: Vec<(u32, Parsed<'_>)> = (0..).zip(parsed).collect();
    messages.sort_by_key(|(_, message)| message.class);
    let order: Vec<u32> = messages.iter().map(|(number, _)| *number).collect();
    let filters: Vec<&[u8]> = messages.iter().map(|(_, message)| message.filter).collect();
    let groups = messages.chunk_by(|(_, a), (_, b)| a.class == b.class);
    let sizes = groups.filter_map(|group| Some((group.first()?.1.class, group.len() as u32)));
    let sizes: Vec<(Class, u32)> = sizes.collect();
    // There are fewer classes than fit a byte.
    let mut body = vec![0, sizes.len() as u8];
    for (class, count) in &sizes {
        body.push(class.number());
        body.extend(count.to_le_bytes());
    }
    body.extend(filters.iter().map(|filter| level(filter::fill(filter))));
    body.extend(messages.chunks(2).map(|two| {
        let numbers = two.iter().map(|(_, message)| message.composition.number());
        numbers.rev().fold(0, |byte, number| byte << 4 | number)
    }));
    // The sizes are sorted and counted correctly, so this cannot fail.
    let octaves = Table::of(&sizes, 0).map_or_else(|_| Vec::new(), |table| table.octaves);
    for octave in &octaves {
        let first = octave.groups.first().map_or(0, |group| group.first as usize);
        let end = first + octave.messages() as usize;
        body.extend(octave.write(filters.get(first..end).unwrap_or_default()));
    }
    Sealed { order, body }
}

/// The digests of a body, in its order; `None` if it is folded or damaged.
pub(super) fn unseal(body: &[u8]) -> Option<Vec<Vec<u8>>> {
    let plain = Body::plain(body);
    let messages = messages(body)?;
    let table = Table::read(&plain, messages).ok().filter(|table| table.folds == 0)?;
    let mut digests = Vec::new();
    for message in 0..messages {
        let composition = table.composition(&plain, message).ok()?;
        digests.push(vec![Class::EMPTY.number(), composition.number()]);
    }
    for octave in &table.octaves {
        let bits = body.get(octave.offset..)?;
        for group in &octave.groups {
            let end = group.first.checked_add(group.messages)?;
            let these = digests.get_mut(group.first as usize..end as usize)?;
            for digest in &mut *these {
                digest.resize(FILTER + group.class.bytes(), 0);
                *digest.first_mut()? = group.class.number();
            }
            let places = octave.places(group);
            matrix::untranspose(bits, &places, these.len(), |message, first, word| {
                let digest = these.get_mut(message);
                let filter = digest.and_then(|digest| digest.get_mut(FILTER + first / 8..));
                let filter = filter.unwrap_or_default();
                match filter.first_chunk_mut() {
                    Some(eight) => *eight = word.to_le_bytes(),
                    None => {
                        filter.iter_mut().zip(word.to_le_bytes()).for_each(|(to, from)| *to = from)
                    }
                }
            });
        }
    }
    Some(digests)
}

/// Passes the filters of some messages to `each`; `wanted` are their numbers, in order.
/// Filters of too many bits are left out.
pub(super) fn filters(
    body: &Body<'_>,
    messages: u32,
    wanted: &[u32],
    each: &mut dyn FnMut(u32, Bits),
) -> Result<(), Damage> {
    let table = Table::read(body, messages)?;
    let mut range = Range::default();
    for octave in &table.octaves {
        for group in &octave.groups {
            let end = group.first.saturating_add(group.messages);
            let from = wanted.partition_point(|&message| message < group.first);
            let to = wanted.partition_point(|&message| message < end);
            let these = wanted.get(from..to).unwrap_or_default();
            let rows = octave.rows(group);
            let Some(none) = Bits::empty(rows).filter(|_| !these.is_empty()) else { continue };
            let mut filters = vec![none; these.len()];
            for row in 0..rows {
                let place = octave.place(group, row);
                let after = place + u64::from(group.messages);
                range.fill(body, octave.offset, place, after)?;
                let words: Vec<u64> = range.words(place, group.messages).collect();
                for (filter, &message) in filters.iter_mut().zip(these) {
                    if matrix::is_set(&words, (message - group.first) as usize) {
                        filter.set(row);
                    }
                }
            }
            these.iter().zip(filters).for_each(|(&message, bits)| each(message, bits));
        }
    }
    Ok(())
}

/// A share in 255ths.
fn level(share: f32) -> u8 {
    (share * 255.0).round() as u8
}

/// Halves the number of buckets.
pub(super) fn fold(body: &[u8]) -> Option<Vec<u8>> {
    let plain = Body::plain(body);
    let table = Table::read(&plain, messages(body)?).ok()?;
    if table.folds == FOLDS_MAX || table.octaves.is_empty() {
        return None;
    }
    let mut folded = body.get(..table.octaves.first()?.offset)?.to_vec();
    *folded.first_mut()? += 1;
    let (mut bits, mut range) = (Vec::new(), Range::default());
    for octave in &table.octaves {
        let half = Octave::new(octave.groups.clone(), table.folds + 1, 0);
        let first = half.groups.first()?.first;
        bits.clear();
        bits.resize(half.bytes() as usize, 0);
        for group in &half.groups {
            let rows = half.rows(group);
            let mut counts = ColumnCounts::new(group.words());
            let mut joined = vec![0; group.words()];
            for row in 0..rows {
                joined.fill(0);
                for row in [2 * row, 2 * row + 1] {
                    let place = octave.place(group, row);
                    let end = place + u64::from(group.messages);
                    range.fill(&plain, octave.offset, place, end).ok()?;
                    let words = range.words(place, group.messages);
                    joined.iter_mut().zip(words).for_each(|(joined, word)| *joined |= word);
                }
                counts.add(joined.iter().copied());
                let places = (half.place(group, row)..).step_by(64);
                places.zip(&joined).for_each(|(place, word)| matrix::put(&mut bits, place, *word));
            }
            let fills = folded.get_mut(octave.fills + (group.first - first) as usize..)?;
            for (column, fill) in fills.iter_mut().take(group.messages as usize).enumerate() {
                *fill = level(counts.at(column) as f32 / rows as f32);
            }
        }
        folded.extend_from_slice(&bits);
    }
    Some(folded)
}

/// The number of messages that a body declares.
fn messages(body: &[u8]) -> Option<u32> {
    let count = usize::from(*body.get(1)?);
    let (entries, _) = body.get(HEAD..HEAD + count * ENTRY)?.as_chunks::<ENTRY>();
    let mut counts = entries.iter().map(|[_, count @ ..]| u32::from_le_bytes(*count));
    counts.try_fold(0_u32, u32::checked_add)
}

/// Checks that a body is well formed.
pub(super) fn check(body: &[u8], messages: u32) -> Result<(), Damage> {
    let table = Table::read(&Body::plain(body), messages)?;
    let last = table.compositions + messages as usize / 2;
    if !messages.is_multiple_of(2) && body.get(last).is_some_and(|byte| byte >> 4 != 0) {
        return Err(Damage("there is a set bit after the parts of its messages"));
    }
    for octave in table.octaves.iter().filter(|octave| octave.rest() > 0) {
        let last = octave.offset + octave.bytes() as usize - 1;
        if body.get(last).is_some_and(|byte| byte >> octave.rest() != 0) {
            return Err(Damage("there are set bits after its filters"));
        }
    }
    Ok(())
}
