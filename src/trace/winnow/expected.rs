//! How many false hits are expected: the sum of the chances of all messages searched.
//!
//! Where some segments are folded, filters are very unequally full. A nearly full one may be a
//! million times as likely to match as another, so the chance of the hits, which are mostly in
//! such filters, says nothing of the other messages.

use std::collections::BTreeMap;

use super::contained::{Contained, LnFactorials};

/// How many fills, in 255ths, are treated as equal.
const LIKE: usize = 4;

/// The messages searched, by the number of distinct bits of the query's elements in their
/// filters: how many of them have each fill, in 255ths.
#[derive(Default)]
pub(super) struct Searched(BTreeMap<u32, Vec<u32>>);

impl Searched {
    /// Adds messages with filters of these fills, in 255ths, in which the elements have `of` bits.
    pub(super) fn add(&mut self, of: u32, fills: &[u8]) {
        let levels = self.0.entry(of).or_insert_with(|| vec![0; 256]);
        for &fill in fills {
            if let Some(messages) = levels.get_mut(usize::from(fill)) {
                *messages = messages.saturating_add(1);
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
            for (first, levels) in (0..).step_by(LIKE).zip(levels.chunks(LIKE)) {
                let messages: f64 = levels.iter().map(|&messages| f64::from(messages)).sum();
                let fills = (first..).zip(levels).map(|(fill, &n)| f64::from(fill) * f64::from(n));
                let fill = fills.sum::<f64>() / 255.0 / messages;
                if messages > 0.0 {
                    sum += messages * contained.chance(fill, present, of, &factorials);
                }
            }
        }
        sum
    }
}
