//! A sample of the messages of a body, in which all elements of a query are looked up.

use crate::trace::Hit;

use super::chance;
use super::matrix::{self, ColumnCounts};
use super::octave::Group;

/// Which messages are sampled: one of so many words of 64 messages each, whatever their group.
pub(super) struct Selection {
    every: usize,
    /// The number of words before the next one that is sampled.
    before: usize,
}

impl Selection {
    /// A sample of a body with so many words: somewhat more than are needed, as hits do not
    /// count.
    pub(super) fn of(words: usize) -> Self {
        let wanted = (chance::SAMPLE as usize + chance::SAMPLE as usize / 4).div_ceil(64);
        Self { every: (words / wanted).max(1), before: 0 }
    }
}

/// The messages of a group that are sampled.
pub(super) struct Sampled<'g> {
    pub(super) group: &'g Group,
    /// Its first word that is sampled, and the distance to the next one.
    first: usize,
    every: usize,
    /// Those that are not hits.
    others: Vec<u64>,
    /// How many elements are present.
    elements: ColumnCounts,
    /// How many distinct bits of them are set, of how many, and the last one.
    bits: ColumnCounts,
    pub(super) of: u32,
    last: Option<u32>,
}

impl<'g> Sampled<'g> {
    /// Those of a group; `None` if there are none.
    pub(super) fn new(group: &'g Group, selection: &mut Selection, hits: &[Hit]) -> Option<Self> {
        let (words, first, every) = (group.words(), selection.before, selection.every);
        let sampled = words.saturating_sub(first).div_ceil(every);
        selection.before = first + sampled * every - words;
        if sampled == 0 {
            return None;
        }
        let mut others = vec![u64::MAX; sampled];
        let messages = group.first..group.first + group.messages;
        for hit in hits.iter().filter(|hit| messages.contains(&hit.message)) {
            let column = (hit.message - group.first) as usize;
            if let Some(word) = (column / 64).checked_sub(first)
                && word.is_multiple_of(every)
            {
                matrix::clear(&mut others, word / every * 64 + column % 64);
            }
        }
        let [elements, bits] = [ColumnCounts::new(sampled), ColumnCounts::new(sampled)];
        Some(Self { group, first, every, others, elements, bits, of: 0, last: None })
    }

    /// Adds an element by its row; returns how many of the messages have it.
    pub(super) fn add(&mut self, row: u32, words: impl Iterator<Item = u64>) -> u64 {
        let words: Vec<u64> = words.skip(self.first).step_by(self.every).collect();
        if self.last.replace(row) != Some(row) {
            self.bits.add(words.iter().copied());
            self.of += 1;
        }
        let mut sum = 0;
        let others = words.iter().zip(&self.others).map(|(word, others)| word & others);
        self.elements.add(others.inspect(|word| sum += u64::from(word.count_ones())));
        sum
    }

    /// Passes the fill of each message, how many elements are present in it, and how many
    /// distinct bits. `fills` are those of the group.
    pub(super) fn each(&self, fills: &[u8], mut each: impl FnMut(u8, u32, u32)) {
        for at in matrix::ones(self.others.iter().copied()) {
            let column = (self.first + at / 64 * self.every) * 64 + at % 64;
            if let Some(&fill) = fills.get(column) {
                each(fill, self.elements.at(at), self.bits.at(at));
            }
        }
    }
}
