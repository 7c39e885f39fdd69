//! The body of a sealed segment.
//!
//! Messages are sorted by the size of their filters; within a size they keep
//! the order of the digests. Numbers are little-endian:
//!
//! | bytes | contents |
//! |---|---|
//! | 1 | how often the body has been folded |
//! | 1 | the number of sizes, c |
//! | 5·c | for each size: the number of its [`Class`] (1 byte), ascending, and
//! the number of messages (4), not 0 |
//! | 1 each | for each message: the share of set bits in its filter, in 255ths
//! |
//! | … | the filters of each [`Octave`] |
//!
//! An octave begins at a byte boundary; unused bits of its last byte are zero.
//! Folding joins the bits 2i and 2i + 1 of a filter, which halves the number of
//! buckets.

use crate::trace::likeness::Bits;
use crate::trace::{Body, Damage, Sealed, filter};

use super::class::Class;
use super::digest;
use super::matrix::{self, Counts};
use super::octave::{Group, Octave, Range};

/// How often a body can be folded: all filters have at least two to this power
/// of buckets.
const FOLDS_MAX: u8 = 3;
const HEAD: usize = 2;
const ENTRY: usize = 5;

/// The structure of a body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Table {
    folds: u8,
    pub(super) octaves: Vec<Octave>,
    fills: usize,
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
        let mut octaves = Vec::new();
        let filters = groups.iter().position(|group| group.class > Class::EMPTY);
        let groups = filters.and_then(|first| groups.get(first..)).unwrap_or_default();
        for groups in groups.chunk_by(|a, b| a.class.octave() == b.class.octave()) {
            let offset = usize::try_from(end).map_err(|_| Damage("it is too large"))?;
            let octave = Octave::new(groups.to_vec(), folds, offset);
            end = end.checked_add(octave.bytes()).ok_or(wrong)?;
            octaves.push(octave);
        }
        Ok(Self { folds, octaves, fills, end })
    }

    /// The share of set bits in the filter of each message of a group, in
    /// 255ths.
    pub(super) fn fills(&self, body: &Body<'_>, group: &Group) -> Result<Vec<u8>, Damage> {
        let mut fills = vec![0; group.messages as usize];
        body.read(self.fills + group.first as usize, &mut fills)?;
        Ok(fills)
    }
}

/// Lays out digests; damaged ones are treated as those of empty messages.
pub(super) fn seal(digests: &[&[u8]]) -> Sealed {
    let parsed = digests.iter().map(|digest| digest::parse(digest).unwrap_or((Class::EMPTY, &[])));
    let mut messages: Vec<(u32, Class, &[u8])> =
        (0..).zip(parsed).map(|(number, (class, filter))| (number, class, filter)).collect();
    messages.sort_by_key(|(_, class, _)| *class);
    let order: Vec<u32> = messages.iter().map(|(number, _, _)| *number).collect();
    let filters: Vec<&[u8]> = messages.iter().map(|(_, _, filter)| *filter).collect();
    let groups = messages.chunk_by(|(_, a, _), (_, b, _)| a == b);
    let sizes = groups.filter_map(|group| Some((group.first()?.1, group.len() as u32)));
    let sizes: Vec<(Class, u32)> = sizes.collect();
    // There are fewer classes than fit a byte.
    let mut body = vec![0, sizes.len() as u8];
    for (class, count) in &sizes {
        body.push(class.number());
        body.extend(count.to_le_bytes());
    }
    body.extend(filters.iter().map(|filter| level(filter::fill(filter))));
    // The sizes are sorted and counted correctly, so this cannot fail.
    let octaves = Table::of(&sizes, 0).map_or_else(|_| Vec::new(), |table| table.octaves);
    for octave in &octaves {
        let mut bits = vec![0; octave.bytes() as usize];
        for group in &octave.groups {
            let (first, rows) = (group.first as usize, octave.rows(group));
            let columns = filters.get(first..first + group.messages as usize).unwrap_or_default();
            matrix::transpose(columns, rows, |row, column, word| {
                matrix::put(&mut bits, octave.place(group, row) + column as u64, word);
            });
        }
        body.extend(bits);
    }
    Sealed { order, body }
}

/// The digests of a body, in its order; `None` if it is folded or damaged.
pub(super) fn unseal(body: &[u8]) -> Option<Vec<Vec<u8>>> {
    let plain = Body::plain(body);
    let messages = messages(body)?;
    let table = Table::read(&plain, messages).ok().filter(|table| table.folds == 0)?;
    let mut digests = vec![vec![Class::EMPTY.number()]; messages as usize];
    let mut range = Range::default();
    for octave in &table.octaves {
        for group in &octave.groups {
            let end = group.first.checked_add(group.messages)?;
            let these = digests.get_mut(group.first as usize..end as usize)?;
            for digest in &mut *these {
                *digest = vec![0; 1 + group.class.bytes()];
                *digest.first_mut()? = group.class.number();
            }
            let mut rows = Vec::new();
            for row in 0..octave.rows(group) {
                let place = octave.place(group, row);
                range.fill(&plain, octave.offset, place, place + u64::from(group.messages)).ok()?;
                let words = range.words(place, group.messages);
                rows.push(words.flat_map(u64::to_le_bytes).collect::<Vec<u8>>());
            }
            let rows: Vec<&[u8]> = rows.iter().map(Vec::as_slice).collect();
            matrix::transpose(&rows, group.messages, |message, first, word| {
                let digest = these.get_mut(message as usize);
                let filter = digest.and_then(|digest| digest.get_mut(1 + first / 8..));
                let filter = filter.unwrap_or_default();
                filter.iter_mut().zip(word.to_le_bytes()).for_each(|(to, from)| *to = from);
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
        bits.clear();
        bits.resize(half.bytes() as usize, 0);
        for group in &half.groups {
            let rows = half.rows(group);
            let mut counts = Counts::new(group.words());
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
            let fills = folded.get_mut(table.fills + group.first as usize..)?;
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
    for octave in table.octaves.iter().filter(|octave| octave.rest() > 0) {
        let last = octave.offset + octave.bytes() as usize - 1;
        if body.get(last).is_some_and(|byte| byte >> octave.rest() != 0) {
            return Err(Damage("there are set bits after its filters"));
        }
    }
    Ok(())
}
