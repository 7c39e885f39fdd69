//! How many false hits are expected: the sum of the chances of all messages searched.
//!
//! Where some segments are folded, filters are very unequally full. A nearly full one may be a
//! million times as likely to match as another, so the chance of the hits, which are mostly in
//! such filters, says nothing of the other messages.

use std::collections::BTreeMap;

use super::contained::{Contained, LnFactorials};

/// Into how many levels fills are sorted.
const LEVELS: usize = 64;

/// The messages searched, by the number of distinct bits of the query's elements in their
/// filters and by their fills: how many there are, and the sum of the fills.
#[derive(Default)]
pub(super) struct Searched(BTreeMap<u32, [(u32, f64); LEVELS]>);

impl Searched {
    /// Adds messages with filters of these fills, in which the elements have `of` bits.
    pub(super) fn add(&mut self, of: u32, fills: impl IntoIterator<Item = f64>) {
        let levels = self.0.entry(of).or_insert([(0, 0.0); LEVELS]);
        for fill in fills {
            let level = ((fill * LEVELS as f64) as usize).min(LEVELS - 1);
            if let Some((messages, sum)) = levels.get_mut(level) {
                *messages = messages.saturating_add(1);
                *sum += fill;
            }
        }
    }

    /// How many of them are expected to have this share of the elements by chance, if messages
    /// contain so many of them.
    pub(super) fn expected(&self, contained: &Contained, share: f64) -> f64 {
        let most = self.0.last_key_value().map_or(0, |(of, _)| *of);
        let factorials = LnFactorials::up_to(most);
        let mut sum = 0.0;
        for (&of, levels) in &self.0 {
            let present = (share * f64::from(of)).ceil().max(1.0) as u32;
            for (messages, fills) in levels.iter().filter(|(messages, _)| *messages > 0) {
                let messages = f64::from(*messages);
                sum += messages * contained.chance(fills / messages, present, of, &factorials);
            }
        }
        sum
    }
}
