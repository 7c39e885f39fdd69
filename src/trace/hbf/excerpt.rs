//! An excerpt, cut into blocks in all ways in which it may have been.

use super::Hbf;
use super::levels::{self, Group};

/// How many blocks are asked for at most.
const MOST: usize = 1024;

/// An excerpt.
pub(super) struct Excerpt {
    /// Its length, in bytes.
    length: u64,
    size: u64,
    cuts: Vec<Cut>,
}

/// What an excerpt is cut into, if its first whole block begins at some byte.
struct Cut {
    /// That byte.
    skipped: u64,
    /// What groups of its blocks are called, at each level, by their first block.
    levels: Vec<Vec<u64>>,
}

/// Where an excerpt was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Found {
    /// The byte of the message's text behind it.
    pub(super) end: u64,
    /// How many of its elements are there, of how many.
    pub(super) present: u32,
    pub(super) of: u32,
}

impl Excerpt {
    /// Cuts one.
    pub(super) fn new(hbf: &Hbf, bytes: &[u8]) -> Self {
        let size = usize::from(hbf.settings.block);
        let cuts = (0..size).map(|skipped| {
            let blocks = bytes.get(skipped..).unwrap_or_default().chunks_exact(size).take(MOST);
            let blocks = blocks.map(|block| hbf.hashing.block(block)).collect();
            Cut { skipped: skipped as u64, levels: levels::all(&hbf.hashing, blocks) }
        });
        // Those that begin first come last in a block.
        let mut cuts: Vec<Cut> = cuts.filter(|cut| cut.blocks() > 0).collect();
        cuts.reverse();
        Self { length: bytes.len() as u64, size: size as u64, cuts }
    }

    /// The names of the first blocks, by how it is cut.
    pub(super) fn firsts(&self) -> impl Iterator<Item = u64> {
        self.cuts.iter().map(|cut| {
            cut.levels.first().and_then(|blocks| blocks.first()).copied().unwrap_or_default()
        })
    }

    /// Finds it where it begins first, but not before byte `from` of a text of
    /// so many blocks.
    ///
    /// `first` tells whether the first block of the n-th cut may stand at an
    /// offset, and `present` whether a group may: the latter is asked from the
    /// bottom to the top. Only as many as `least` allows may be missing, a share
    /// of all its elements.
    pub(super) fn find(
        &self,
        from: u64,
        blocks: u64,
        least: f64,
        first: impl Fn(usize, u64) -> bool,
        present: impl Fn(Group, u64) -> bool,
    ) -> Option<Found> {
        for offset in from / self.size..blocks {
            for (number, cut) in self.cuts.iter().enumerate() {
                let begins = offset * self.size;
                if begins < from + cut.skipped || offset + cut.blocks() > blocks {
                    continue;
                }
                if least >= 1.0 && !first(number, offset) {
                    continue;
                }
                if let Some((present, of)) = cut.verify(offset, least, &present) {
                    let end = begins - cut.skipped + self.length;
                    return Some(Found { end, present, of });
                }
            }
        }
        None
    }

    /// How many elements there are and where, as a sum over all cuts and the
    /// given number of offsets: of the chance that all are there, where that of
    /// one is `chance`.
    pub(super) fn expected(&self, offsets: f64, chance: f64) -> f64 {
        let cuts = self.cuts.iter().map(|cut| {
            // How many there are repeats itself with the offset.
            let period = cut.blocks().next_power_of_two().min(64);
            let each = (0..period).map(|offset| chance.powf(cut.elements(offset) as f64));
            each.sum::<f64>() / period as f64 * (offsets - cut.blocks() as f64 + 1.0).max(0.0)
        });
        cuts.sum()
    }
}

impl Cut {
    fn blocks(&self) -> u64 {
        self.levels.first().map_or(0, |blocks| blocks.len() as u64)
    }

    /// The numbers of the groups of a level if it stands at an offset.
    fn numbers(&self, level: u32, offset: u64) -> std::ops::Range<u64> {
        let width = 1 << level;
        offset.div_ceil(width)..(offset + self.blocks()) / width
    }

    /// How many elements it has if it stands at an offset.
    fn elements(&self, offset: u64) -> u64 {
        let levels = (0..).zip(&self.levels).map(|(level, _)| self.numbers(level, offset));
        levels.map(|numbers| numbers.end.saturating_sub(numbers.start)).sum()
    }

    /// How many of its elements are there, of how many, if they are enough.
    fn verify(
        &self,
        offset: u64,
        least: f64,
        present: &impl Fn(Group, u64) -> bool,
    ) -> Option<(u32, u32)> {
        let of = self.elements(offset) as u32;
        let mut may_miss = of - ((least * f64::from(of)).ceil() as u32).clamp(1, of);
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
