//! The digest of a message: one filter, of a size that fits it.
//!
//! A digest is the number of its [`Class`] and the filter's bits, the first in
//! the lowest bit of the first byte.
//!
//! The size is the setting's share of a bit for each element, of which those
//! met before count half. If they counted in full, mail that repeats itself
//! would have filters larger than it needs; if they did not count, such mail
//! would be the smallest part of the store and the largest of its false hits,
//! as what is asked about repeats itself as well. Of a large message they count
//! up to three times what is different: beyond that, a filter is emptier than
//! most as it is, and a few bytes over and over would make it as large as any.

use crate::trace::{Digester, Fragment, filter};

use super::Winnow;
use super::class::Class;
use super::grams::Scratch;
use super::hashing::bit;

/// How many elements are remembered at most: half a mebibyte of memory. A
/// message of more than 300 KB of text or 8 MB of attachments has more.
const MOST: usize = 1 << 16;

/// A message being digested.
pub(super) struct WinnowDigester<'a> {
    winnow: &'a Winnow,
    elements: Elements,
    scratch: Scratch,
}

/// The elements of a message.
#[derive(Default)]
struct Elements {
    /// The latest, some more than once.
    latest: Vec<u64>,
    /// How many there were before.
    before: u64,
    /// The filter of those before, of the largest class.
    large: Option<Vec<u8>>,
}

impl<'a> WinnowDigester<'a> {
    pub(super) fn new(winnow: &'a Winnow) -> Self {
        // As many as most messages have.
        let elements = Elements { latest: Vec::with_capacity(1024), ..Elements::default() };
        Self { winnow, elements, scratch: Scratch::default() }
    }
}

impl Digester for WinnowDigester<'_> {
    fn add(&mut self, piece: Fragment<'_>) {
        let Self { winnow, elements, scratch } = self;
        match piece {
            Fragment::Text(text) => {
                winnow.text_elements(text.as_bytes(), scratch, |new| elements.add(new));
            }
            Fragment::Bytes(bytes) => {
                winnow.bytes_elements(bytes, scratch, |new| elements.add(new));
            }
            Fragment::File(content) => {
                winnow.hashing.file(content).for_each(|new| elements.add(new))
            }
        }
    }

    fn finish(mut self: Box<Self>) -> Vec<u8> {
        let (class, filter) = self.elements.filter(self.winnow.centibits);
        let mut digest = Vec::with_capacity(1 + filter.len());
        digest.push(class.number());
        digest.extend(filter);
        digest
    }
}

impl Elements {
    #[inline]
    fn add(&mut self, element: u64) {
        if self.latest.len() == MOST {
            self.settle();
        }
        self.latest.push(element);
    }

    /// Puts the latest into the large filter.
    fn settle(&mut self) -> &mut Vec<u8> {
        let large = self.large.get_or_insert_with(|| vec![0; Class::LARGEST.bytes()]);
        insert(&self.latest, large);
        self.before += self.latest.len() as u64;
        self.latest.clear();
        large
    }

    /// A filter of the size that fits.
    fn filter(&mut self, centibits: u16) -> (Class, Vec<u8>) {
        if self.large.is_some() {
            let mut filter = std::mem::take(self.settle());
            let different = in_filter(&filter).min(self.before);
            let counted = (counted(self.before, different) + different).div_ceil(2);
            let wanted = Class::of(counted, centibits).bits();
            let mut class = Class::LARGEST;
            // The nearer one by ratio, as there are no sizes in between here.
            while let Some(half) = class.half().filter(|half| {
                u64::from(wanted).pow(2) < u64::from(half.bits()) * u64::from(class.bits())
            }) {
                class = half;
                filter = filter::folded(&filter);
            }
            return (class, filter);
        }
        let count = self.latest.len() as u64;
        let class = Class::of((count + different(&self.latest)).div_ceil(2), centibits);
        let bits = self.latest.iter().map(|&element| bit(element, class.bits()) as usize);
        (class, filter::with(bits, class.bytes()))
    }
}

/// How many elements count of so many that are in the large filter, of which
/// about so many are different. No fewer than [`MOST`], however wrong that is:
/// so [`least_class`] holds.
fn counted(elements: u64, different: u64) -> u64 {
    elements.min(different.saturating_mul(4).max(MOST as u64))
}

/// The least class of messages that carry so many different elements, however
/// wrong the estimate of their number was.
pub(super) fn least_class(elements: u32, centibits: u16) -> Class {
    Class::of(u64::from(elements.min(MOST as u32 / 2)) / 2, centibits)
}

/// The class and the filter of a digest; `None` where it is damaged.
pub(super) fn parse(digest: &[u8]) -> Option<(Class, &[u8])> {
    let (&class, filter) = digest.split_first()?;
    let class = Class::numbered(class)?;
    (filter.len() == class.bytes()).then_some((class, filter))
}

fn insert(elements: &[u64], filter: &mut [u8]) {
    let bits = (filter.len() * 8) as u32;
    elements.iter().for_each(|&element| filter::set(filter, bit(element, bits) as usize));
}

/// About how many different elements there are: within two in a hundred,
/// mostly. To know it exactly takes several times as long.
fn different(elements: &[u64]) -> u64 {
    let cells = (4 * elements.len()).next_power_of_two().max(1024) as u32;
    let bits = elements.iter().map(|&element| bit(element, cells) as usize);
    estimate(filter::count(bits, cells as usize), cells.into()).min(elements.len() as u64)
}

/// About how many different elements are in a filter.
fn in_filter(filter: &[u8]) -> u64 {
    let bits = filter.len() as f64 * 8.0;
    estimate((f64::from(filter::fill(filter)) * bits).round() as u64, filter.len() as u64 * 8)
}

/// About how many different elements have set so many `of` the bits that are
/// there (Whang, Vander-Zanden and Taylor, "A linear-time probabilistic counting
/// algorithm", 1990).
fn estimate(set: u64, of: u64) -> u64 {
    let free = 1.0 - set as f64 / of as f64;
    // Without free bits it is as many as one likes; `as` takes the most.
    (-(of as f64) * free.ln()).round() as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use quickcheck::quickcheck;
    use std::collections::BTreeSet;

    /// A number as hashes are.
    fn hash(n: u64) -> u64 {
        let mix = |n: u64| (n ^ n >> 31).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        mix(mix(mix(n + 1)))
    }

    /// Some of them more than once.
    fn hashes(count: u64, different: u64) -> impl Iterator<Item = u64> {
        (0..count).map(move |n| hash(n % different))
    }

    quickcheck! {
        fn different_elements_are_estimated(elements: Vec<u8>) -> bool {
            let elements: Vec<u64> = elements.iter().map(|&n| hash(n.into())).collect();
            let exact = BTreeSet::from_iter(&elements).len() as u64;
            different(&elements).abs_diff(exact) <= 2 + exact / 8
        }

        fn folding_loses_nothing(elements: Vec<u64>) -> bool {
            let mut filter = vec![0; Class::of(300, 100).bytes()];
            insert(&elements, &mut filter);
            let half = filter::folded(&filter);
            let mut plain = vec![0; half.len()];
            insert(&elements, &mut plain);
            half == plain
        }
    }

    /// Even where the estimate of what is different is as wrong as can be.
    #[test]
    fn the_least_class_of_large_messages_is_the_least() {
        for centibits in [25, 106, 3200] {
            for (elements, different) in [(MOST as u64 + 1, 0), (9_000_000, 0), (u64::MAX, 7)] {
                let counted = (counted(elements, different) + different).div_ceil(2);
                let wanted = f64::from(Class::of(counted, centibits).bits());
                // The nearest of the sizes to which the large filter folds.
                let least = least_class(u32::MAX, centibits);
                assert!(f64::from(least.bits()) < wanted / 2_f64.sqrt());
            }
        }
    }

    #[test]
    fn filters_fit_however_many_elements_there_are() {
        for (count, distinct) in [
            (0, 1),
            (1, 1),
            (30, 30),
            (1000, 1000),
            (1000, 500),
            (65_536, 60_000),
            (65_537, 65_000),
            (150_000, 75_000),
            (1_000_000, 900_000),
            (1_000_000, 100_000),
            (2_000_000, 12),
        ] {
            let mut elements = Elements::default();
            hashes(count, distinct).for_each(|hash| elements.add(hash));
            let (class, filter) = elements.filter(106);
            let counted = count.min((4 * distinct).max(MOST as u64));
            let wanted = (counted + distinct.min(count)) as f64 / 2.0 * 1.06 + 12.0;
            let ratio = filter.len() as f64 * 8.0 / wanted;
            let most = if count > MOST as u64 { 1.42 } else { 1.3 };
            assert!(
                count == 0 || (1.0 / most..most).contains(&ratio),
                "{count} {distinct}: {ratio}"
            );
            assert!(class.bytes() == filter.len());
            assert!(class >= least_class(distinct.min(count) as u32, 106));
            assert!(
                hashes(count, distinct)
                    .all(|hash| filter::is_set(&filter, bit(hash, class.bits()) as usize))
            );
        }
    }
}
