//! The messages of a group that may still be hits during a search.

use std::ops::Range as Span;

use super::matrix::ColumnCounts;
use super::octave::Group;

/// After how many elements it is checked whether any message can still be a
/// hit.
const CHECK_INTERVAL: u32 = 16;

/// The candidate messages of a group during a search.
pub(super) struct Candidates<'t> {
    pub(super) group: &'t Group,
    /// The remaining candidates, if all elements must be present.
    pub(super) all: Vec<u64>,
    /// Those of its words that have any.
    words: Span<usize>,
    /// How many elements are present, if not all must be.
    pub(super) counts: ColumnCounts,
    /// The number of distinct bits of the elements, and how many of them must
    /// be set.
    of: u32,
    pub(super) min: u32,
    /// The number of bits looked up, and the last of them.
    looked_up: u32,
    pub(super) last: Option<u32>,
}

impl<'t> Candidates<'t> {
    pub(super) fn new(group: &'t Group, of: u32, min: u32) -> Self {
        let words = group.words();
        let (all, counts) = (vec![u64::MAX; words], ColumnCounts::new(words));
        Self { group, all, words: 0..words, counts, of, min, looked_up: 0, last: None }
    }

    /// The messages that may be candidates, numbered from the first one of the group.
    pub(super) fn columns(&self) -> Span<u32> {
        // A group has at most as many messages as a segment.
        let [start, end] = [self.words.start, self.words.end].map(|word| word as u32 * 64);
        start..end.min(self.group.messages)
    }

    /// Applies a bit that must be set: the row of the messages in [`Candidates::columns`].
    /// Returns whether any candidate is left.
    pub(super) fn require(&mut self, row: impl Iterator<Item = u64>) -> bool {
        let all = self.all.get_mut(self.words.clone()).unwrap_or_default();
        all.iter_mut().zip(row).for_each(|(all, row)| *all &= row);
        let start = self.words.start;
        self.words = match all.iter().position(|&word| word != 0) {
            Some(first) => {
                let last = all.iter().rposition(|&word| word != 0).unwrap_or(first);
                start + first..start + last + 1
            }
            None => 0..0,
        };
        !self.words.is_empty()
    }

    /// Counts a bit that may be set. Returns whether any message can still be a
    /// hit.
    pub(super) fn count(&mut self, row: impl Iterator<Item = u64>) -> bool {
        self.counts.add(row);
        self.looked_up += 1;
        let needed = self.min.saturating_sub(self.of - self.looked_up.min(self.of));
        needed == 0
            || !self.looked_up.is_multiple_of(CHECK_INTERVAL)
            || self.counts.at_least(needed).iter().any(|&word| word != 0)
    }
}
