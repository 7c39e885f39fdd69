//! The messages of a group that may still be hits during a search.

use super::matrix::Counts;
use super::octave::Group;

/// After how many elements it is checked whether any message can still be a
/// hit.
const CHECK_INTERVAL: u32 = 16;

/// The candidate messages of a group during a search.
pub(super) struct Candidates<'t> {
    pub(super) group: &'t Group,
    /// The remaining candidates, if all elements must be present.
    pub(super) all: Vec<u64>,
    /// How many elements are present, if not all must be.
    pub(super) counts: Counts,
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
        let (all, counts) = (vec![u64::MAX; words], Counts::new(words));
        Self { group, all, counts, of, min, looked_up: 0, last: None }
    }

    /// Applies a bit that must be set. Returns whether any candidate is left.
    pub(super) fn require(&mut self, row: impl Iterator<Item = u64>) -> bool {
        let mut any = 0;
        for (all, row) in self.all.iter_mut().zip(row) {
            *all &= row;
            any |= *all;
        }
        any != 0
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
