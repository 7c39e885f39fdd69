//! An excerpt, divided into blocks at every possible alignment.

use super::Hbf;
use super::levels::{self, Group};

/// The maximum number of blocks that are searched.
const BLOCKS_MAX: usize = 1024;

/// An excerpt.
pub(super) struct Excerpt {
    /// Its length in bytes.
    length: u64,
    size: u64,
    alignments: Vec<Alignment>,
}

/// The blocks of an excerpt at one alignment.
struct Alignment {
    /// The offset of the first whole block.
    skipped: u64,
    /// The hashes of groups of its blocks, at each level, by their first block.
    levels: Vec<Vec<u64>>,
}

/// The position of a match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MatchEnd {
    /// The offset in the message's text after it.
    pub(super) end: u64,
    /// How many of its elements are present, and how many there are.
    pub(super) present: u32,
    pub(super) of: u32,
}

impl Excerpt {
    /// Divides an excerpt.
    pub(super) fn new(hbf: &Hbf, bytes: &[u8]) -> Self {
        let size = usize::from(hbf.settings.block);
        let alignments = (0..size).map(|skipped| {
            let blocks =
                bytes.get(skipped..).unwrap_or_default().chunks_exact(size).take(BLOCKS_MAX);
            let blocks = blocks.map(|block| hbf.hashing.block(block)).collect();
            Alignment { skipped: skipped as u64, levels: levels::all(&hbf.hashing, blocks) }
        });
        // Those with the earliest first block are searched last within a block.
        let mut alignments: Vec<Alignment> = alignments.filter(|one| one.blocks() > 0).collect();
        alignments.reverse();
        Self { length: bytes.len() as u64, size: size as u64, alignments }
    }

    /// The hashes of the first blocks, by alignment.
    pub(super) fn firsts(&self) -> impl Iterator<Item = u64> {
        self.alignments.iter().map(|alignment| {
            alignment.levels.first().and_then(|blocks| blocks.first()).copied().unwrap_or_default()
        })
    }

    /// Finds the first match that does not begin before byte `from` of a text
    /// of so many blocks.
    ///
    /// `first` returns whether the first block of the n-th alignment may be at
    /// an offset, and `present` whether a group may be there; the latter is
    /// called from the lowest level to the highest. `min_share` is the share of
    /// all elements that must be present.
    pub(super) fn find(
        &self,
        from: u64,
        blocks: u64,
        min_share: f64,
        first: impl Fn(usize, u64) -> bool,
        present: impl Fn(Group, u64) -> bool,
    ) -> Option<MatchEnd> {
        for offset in from / self.size..blocks {
            for (number, alignment) in self.alignments.iter().enumerate() {
                let begins = offset * self.size;
                if begins < from + alignment.skipped || offset + alignment.blocks() > blocks {
                    continue;
                }
                if min_share >= 1.0 && !first(number, offset) {
                    continue;
                }
                if let Some((present, of)) = alignment.verify(offset, min_share, &present) {
                    let end = begins - alignment.skipped + self.length;
                    return Some(MatchEnd { end, present, of });
                }
            }
        }
        None
    }

    /// The expected number of false matches: the sum over all alignments and
    /// the given number of offsets of the probability that all elements are
    /// present, if that of one is `chance`.
    pub(super) fn expected(&self, offsets: f64, chance: f64) -> f64 {
        let alignments = self.alignments.iter().map(|alignment| {
            // The number of elements is periodic in the offset.
            let period = alignment.blocks().next_power_of_two().min(64);
            let each = (0..period).map(|offset| chance.powf(alignment.elements(offset) as f64));
            each.sum::<f64>() / period as f64 * (offsets - alignment.blocks() as f64 + 1.0).max(0.0)
        });
        alignments.sum()
    }
}

impl Alignment {
    fn blocks(&self) -> u64 {
        self.levels.first().map_or(0, |blocks| blocks.len() as u64)
    }

    /// The numbers of the groups of a level if the excerpt is at an offset.
    fn numbers(&self, level: u32, offset: u64) -> std::ops::Range<u64> {
        let width = 1 << level;
        offset.div_ceil(width)..(offset + self.blocks()) / width
    }

    /// The number of elements if the excerpt is at an offset.
    fn elements(&self, offset: u64) -> u64 {
        let levels = (0..).zip(&self.levels).map(|(level, _)| self.numbers(level, offset));
        levels.map(|numbers| numbers.end.saturating_sub(numbers.start)).sum()
    }

    /// How many of its elements are present, and how many there are, if they
    /// are enough.
    fn verify(
        &self,
        offset: u64,
        min_share: f64,
        present: &impl Fn(Group, u64) -> bool,
    ) -> Option<(u32, u32)> {
        let of = self.elements(offset) as u32;
        let mut may_miss = of - ((min_share * f64::from(of)).ceil() as u32).clamp(1, of);
        let mut found = of;
        for (level, names) in (0..).zip(&self.levels) {
            for number in self.numbers(level, offset) {
                let name = names.get(((number << level) - offset) as usize).copied();
                if !present(Group { level, number }, name.unwrap_or_default()) {
                    may_miss = may_miss.checked_sub(1)?;
                    found -= 1;
                }
            }
        }
        Some((found, of))
    }
}
