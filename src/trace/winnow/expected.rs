//! How many false hits are expected: the sum of the chances of all messages searched.
//!
//! Where some segments are folded, filters are very unequally full. A nearly full one may be a
//! million times as likely to match as another, so the chance of the hits, which are mostly in
//! such filters, says nothing of the other messages.

use std::collections::BTreeMap;

use crate::trace::Damage;

use super::class::Class;
use super::contained::{Contained, LnFactorials};

/// How many fills, in 255ths, are treated as equal.
const LIKE: usize = 4;

/// Of a group of messages with filters of one size, folded equally often, the fills are read in
/// the first segments only, until they are those of so many messages.
const TYPICAL: u32 = 256;

/// The messages searched, by the number of distinct bits of the query's elements in their
/// filters: how many of them have each fill, in 255ths.
#[derive(Default)]
pub(super) struct Searched {
    levels: BTreeMap<u32, Vec<f64>>,
    /// By the size of filters before and after folding.
    typical: BTreeMap<(Class, u32), Typical>,
}

/// How many messages have each fill, in 255ths.
struct Typical {
    messages: u32,
    levels: Vec<u32>,
}

impl Searched {
    /// Adds a message with a filter of this fill, in 255ths, in which the elements have `of`
    /// bits.
    pub(super) fn add(&mut self, of: u32, fill: u8) {
        if let Some(messages) = levels(&mut self.levels, of).get_mut(usize::from(fill)) {
            *messages += 1.0;
        }
    }

    /// Adds a group of so many messages, with filters of one size, now of so many bits. Their
    /// fills, in 255ths, are read by `read` only if it is not known which ones they typically
    /// have.
    pub(super) fn add_group<'f>(
        &mut self,
        of: u32,
        (class, bits, messages): (Class, u32, u32),
        read: impl FnOnce() -> Result<&'f [u8], Damage>,
    ) -> Result<(), Damage> {
        let typical = self.typical.entry((class, bits));
        let typical = typical.or_insert_with(|| Typical { messages: 0, levels: vec![0; 256] });
        let sums = levels(&mut self.levels, of);
        if typical.messages >= TYPICAL {
            let scale = f64::from(messages) / f64::from(typical.messages);
            let each = sums.iter_mut().zip(&typical.levels);
            each.for_each(|(sum, messages)| *sum += f64::from(*messages) * scale);
            return Ok(());
        }
        for &fill in read()? {
            if let Some(sum) = sums.get_mut(usize::from(fill)) {
                *sum += 1.0;
            }
            if let Some(messages) = typical.levels.get_mut(usize::from(fill)) {
                *messages += 1;
            }
        }
        typical.messages = typical.messages.saturating_add(messages);
        Ok(())
    }

    /// How many of them are expected to have this share of the elements by chance, if messages
    /// contain so many of them.
    pub(super) fn expected(&self, contained: &Contained, share: f64) -> f64 {
        let most = self.levels.last_key_value().map_or(0, |(of, _)| *of);
        let factorials = LnFactorials::up_to(most);
        let mut sum = 0.0;
        for (&of, levels) in &self.levels {
            let present = (share * f64::from(of)).ceil().max(1.0) as u32;
            for (first, levels) in (0..).step_by(LIKE).zip(levels.chunks(LIKE)) {
                let messages: f64 = levels.iter().sum();
                let fills = (first..).zip(levels).map(|(fill, &n)| f64::from(fill) * n);
                let fill = fills.sum::<f64>() / 255.0 / messages;
                if messages > 0.0 {
                    sum += messages * contained.chance(fill, present, of, &factorials);
                }
            }
        }
        sum
    }
}

/// The numbers of messages by fill for this number of bits.
fn levels(all: &mut BTreeMap<u32, Vec<f64>>, of: u32) -> &mut Vec<f64> {
    all.entry(of).or_insert_with(|| vec![0.0; 256])
}
