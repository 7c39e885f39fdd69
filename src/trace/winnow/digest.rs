//! The digest of a message: one filter of a suitable size.
//!
//! A digest is the number of its [`Class`], that of its [`Composition`], and the filter; bit 0
//! is the lowest bit of the first byte.
//!
//! The size depends on the number of distinct elements ([`Class::of`]); repeated elements count a
//! quarter. If they counted in full, repetitive mail, such as a text that is sent both plain and
//! as HTML, would have filters larger than necessary; when they counted half, the store was a
//! tenth larger at equal numbers of false hits. If they did not count, it would be no smaller at
//! equal numbers, but such mail would cause most of them.

use crate::trace::{Digester, Fragment, MessagePart, file_hash, filter};

use super::Winnow;
use super::buffers::Buffers;
use super::class::Class;
use super::grams::Scratch;
use super::hashing::bit;
use super::marks::{Composition, Material};

/// The maximum number of elements kept in memory: half a mebibyte. A message of
/// more than 300 KB of text or 8 MB of attachments has more.
const ELEMENTS_MAX: usize = 1 << 16;

/// A message with more elements than that gets a filter for at least so many distinct ones. Without
/// this minimum, the smallest of the few sizes of such filters would have to be searched for every
/// short text.
const LARGE_COUNTED_MIN: u64 = ELEMENTS_MAX as u64 / 4;

/// A message being digested.
pub(super) struct WinnowDigester<'a> {
    winnow: &'a Winnow,
    elements: Elements,
    scratch: Scratch,
    composition: Composition,
    /// The part that the next fragment belongs to.
    part: MessagePart,
}

/// The elements of a message.
#[derive(Default)]
struct Elements {
    /// The elements added last, with duplicates.
    recent: Vec<u64>,
    /// The number of elements before those.
    before: u64,
    /// The filter of those, of the largest class.
    large: Option<Vec<u8>>,
}

impl<'a> WinnowDigester<'a> {
    pub(super) fn new(winnow: &'a Winnow) -> Self {
        let Buffers { mut recent, scratch } = winnow.spare.take();
        // Enough for a text of some 40 KB. What is not used of it takes no memory.
        recent.reserve(8192);
        let elements = Elements { recent, ..Elements::default() };
        let composition = Composition::default();
        Self { winnow, elements, scratch, composition, part: MessagePart::Text }
    }
}

impl Digester for WinnowDigester<'_> {
    fn begin(&mut self, part: MessagePart) {
        self.part = part;
    }

    fn add(&mut self, piece: Fragment<'_>) {
        let Self { winnow, elements, scratch, composition, part } = self;
        composition.add(*part);
        let material = match piece {
            Fragment::Text(_) => Material::Text,
            Fragment::Bytes(_) | Fragment::File(_) => Material::Bytes,
        };
        let marker = winnow.marker(*part, material);
        let add = |new| {
            elements.add(new);
            if let Some(mark) = marker.and_then(|marker| marker.mark(new)) {
                elements.add(mark);
            }
        };
        match piece {
            Fragment::Text(text) => winnow.text_elements(text.as_bytes(), scratch, add),
            Fragment::Bytes(bytes) => winnow.bytes_elements(bytes, scratch, add),
            Fragment::File(content) => winnow.hashing.file(&file_hash(content)).for_each(add),
        }
    }

    fn finish(mut self: Box<Self>) -> Vec<u8> {
        let (class, filter) = self.elements.filter(self.winnow.centibits);
        let mut digest = vec![class.number(), self.composition.number()];
        digest.extend(filter);
        let Self { winnow, elements: Elements { recent, .. }, scratch, .. } = *self;
        winnow.spare.keep(Buffers { recent, scratch });
        digest
    }
}

impl Elements {
    #[inline]
    fn add(&mut self, element: u64) {
        if self.recent.len() == ELEMENTS_MAX {
            self.flush();
        }
        self.recent.push(element);
    }

    /// Moves the recent elements into the large filter.
    fn flush(&mut self) -> &mut Vec<u8> {
        let large = self.large.get_or_insert_with(|| vec![0; Class::LARGEST.bytes()]);
        insert(&self.recent, large);
        self.before += self.recent.len() as u64;
        self.recent.clear();
        large
    }

    /// Builds a filter of a suitable size.
    fn filter(&mut self, centibits: u16) -> (Class, Vec<u8>) {
        if self.large.is_some() {
            let mut filter = std::mem::take(self.flush());
            let distinct = in_filter(&filter).min(self.before);
            let counted = counted(self.before, distinct).max(LARGE_COUNTED_MIN);
            let wanted = Class::folded(counted, centibits);
            let mut class = Class::LARGEST;
            while let Some(half) = class.half().filter(|half| *half >= wanted) {
                class = half;
                filter = filter::folded(&filter);
            }
            return (class, filter);
        }
        let counted = counted(self.recent.len() as u64, distinct(&self.recent));
        let class = Class::of(counted, centibits);
        let bits = self.recent.iter().map(|&element| bit(element, class.bits()) as usize);
        (class, filter::with(bits, class.bytes()))
    }
}

/// How many distinct elements count as much as so many elements, of which so many are distinct.
/// In a message of few elements that are repeated very often, repetitions count as much as if each
/// were there four times.
fn counted(elements: u64, distinct: u64) -> u64 {
    distinct + (elements.min(distinct.saturating_mul(4)).saturating_sub(distinct)) / 4
}

/// The smallest possible class of messages with at least `needed` of these distinct elements.
///
/// It is exact, not an estimate of the estimate: a filter is sized by the cells that the elements
/// of its message set in [`distinct`]. Elements that are known set cells that are known, and
/// others can only add to them.
pub(super) fn min_class(elements: &[u64], needed: u32, centibits: u16) -> Class {
    let others = (elements.len() as u64).saturating_sub(needed.into());
    let needed = u64::from(needed);
    let estimated = |size: u32| {
        let places = elements.iter().map(|&element| bit(element, size) as usize);
        let set = filter::count(places, size as usize).saturating_sub(others);
        estimate(set, size.into())
    };
    // The number of cells depends on the number of elements, so all numbers of cells count.
    let sizes = std::iter::successors(Some(CELLS_MIN), |size| Some(size * 2));
    let sizes = sizes.take_while(|size| *size <= cells(ELEMENTS_MAX));
    let small = sizes.filter_map(|size| {
        let fewest = if size == CELLS_MIN { 0 } else { u64::from(size) / 8 + 1 };
        let (fewest, most) = (needed.max(fewest), u64::from(size) / 4);
        let possible = fewest <= most;
        possible.then(|| Class::of(counted(fewest, estimated(size).min(fewest)), centibits))
    });
    // Messages with more elements than are kept in memory are counted in the largest filter.
    let largest = Class::LARGEST.bits();
    let mut places: Vec<u32> = elements.iter().map(|&element| bit(element, largest)).collect();
    places.sort_unstable();
    places.dedup();
    let set = (places.len() as u64).saturating_sub(others);
    let fewest = needed.max(ELEMENTS_MAX as u64 + 1);
    let distinct = estimate(set, largest.into()).min(fewest);
    let counted = counted(fewest, distinct).max(LARGE_COUNTED_MIN);
    let large = Class::folded(counted, centibits);
    small.min().map_or(large, |small| small.min(large))
}

/// A digest.
#[derive(Clone, Copy)]
pub(super) struct Parsed<'a> {
    pub(super) class: Class,
    pub(super) composition: Composition,
    pub(super) filter: &'a [u8],
}

/// The contents of a digest; `None` if it is damaged.
pub(super) fn parse(digest: &[u8]) -> Option<Parsed<'_>> {
    let (&[class, composition], filter) = digest.split_first_chunk()?;
    let (class, composition) = (Class::numbered(class)?, Composition::numbered(composition)?);
    (filter.len() == class.bytes()).then_some(Parsed { class, composition, filter })
}

fn insert(elements: &[u64], filter: &mut [u8]) {
    let bits = (filter.len() * 8) as u32;
    elements.iter().for_each(|&element| filter::set(filter, bit(element, bits) as usize));
}

/// Estimates the number of distinct elements, mostly within 2 %. An exact count
/// would take several times as long.
fn distinct(elements: &[u64]) -> u64 {
    let cells = cells(elements.len());
    let bits = elements.iter().map(|&element| bit(element, cells) as usize);
    estimate(filter::count(bits, cells as usize), cells.into()).min(elements.len() as u64)
}

/// The minimum number of [`cells`].
const CELLS_MIN: u32 = 1024;

/// How many cells are used to count so many elements.
fn cells(elements: usize) -> u32 {
    ((4 * elements).next_power_of_two() as u32).max(CELLS_MIN)
}

/// Estimates the number of distinct elements in a filter.
fn in_filter(filter: &[u8]) -> u64 {
    estimate(filter::ones(filter), filter.len() as u64 * 8)
}

/// Estimates the number of distinct elements that set `set` of `of` bits
/// (Whang, Vander-Zanden and Taylor, "A linear-time probabilistic counting
/// algorithm", 1990).
fn estimate(set: u64, of: u64) -> u64 {
    let free = 1.0 - set as f64 / of as f64;
    // Not `ln` of the C library: it may differ in the last bit between machines, and the first call
    // takes 0.02 ms of each process. If no bit is free, the estimate is infinite; `as` saturates.
    (-(of as f64) * libm::log(free)).round() as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use kit::quickcheck;
    use std::collections::BTreeSet;

    /// A number distributed like a hash.
    fn hash(n: u64) -> u64 {
        let mix = |n: u64| (n ^ n >> 31).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        mix(mix(mix(n.wrapping_add(1))))
    }

    /// Hashes with duplicates.
    fn hashes(count: u64, distinct: u64) -> impl Iterator<Item = u64> {
        (0..count).map(move |n| hash(n % distinct))
    }

    quickcheck! {
        fn distinct_elements_are_estimated(elements: Vec<u8>) -> bool {
            let elements: Vec<u64> = elements.iter().map(|&n| hash(n.into())).collect();
            let exact = BTreeSet::from_iter(&elements).len() as u64;
            distinct(&elements).abs_diff(exact) <= 2 + exact / 8
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

    #[test]
    fn min_class_is_a_lower_bound_for_large_messages() {
        for centibits in [25, 106, 3200] {
            for (of, needed) in [(10, 10), (300, 5), (5_000, 5_000), (90_000, 90_000), (90_000, 7)]
            {
                let elements: Vec<u64> = (0..of).map(hash).collect();
                let min = min_class(&elements, needed as u32, centibits);
                let mut message = Elements::default();
                let added = needed.max(ELEMENTS_MAX as u64 + 2);
                (0..added).for_each(|n| message.add(hash(n % needed)));
                assert!(message.filter(centibits).0 >= min, "{of} {needed}");
            }
        }
    }

    #[test]
    fn messages_that_are_too_small_for_a_text_are_known_by_their_size() {
        for needed in [1, 5, 14, 57, 100, 256, 257, 400, 5000] {
            let elements: Vec<u64> = (0..needed).map(hash).collect();
            let min = min_class(&elements, needed as u32, 106);
            // No smaller than necessary.
            assert!(min >= Class::of(needed * 9 / 10, 106), "{needed}");
            // With all of them, however many others and repetitions there are.
            for others in (0..64).chain([250, 1000, 2_000, 40_000]) {
                for times in [1, 2] {
                    let mut message = Elements::default();
                    for _ in 0..times {
                        (0..needed + others).for_each(|n| message.add(hash(n)));
                    }
                    assert!(message.filter(106).0 >= min, "{needed} {others} {times}");
                }
            }
        }
    }

    quickcheck! {
        fn no_message_with_enough_elements_is_too_small(elements: Vec<u64>, others: u8, needed: u8) -> bool {
            let distinct: Vec<u64> = BTreeSet::from_iter(elements.iter().copied().map(hash)).into_iter().collect();
            let needed = usize::from(needed) % (distinct.len() + 1);
            let min = min_class(&distinct, needed as u32, 106);
            let mut message = Elements::default();
            distinct.iter().rev().take(needed).for_each(|&element| message.add(element));
            (0..u64::from(others)).for_each(|n| message.add(hash(n + 1_000_000)));
            message.filter(106).0 >= min
        }
    }

    #[test]
    fn filters_have_a_suitable_size_for_any_number_of_elements() {
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
            let is_large = count > ELEMENTS_MAX as u64;
            let wanted = counted(count, distinct.min(count));
            let wanted = wanted.max(if is_large { LARGE_COUNTED_MIN } else { 0 });
            let wanted = wanted as f64;
            let wanted = wanted * 1.06 / (wanted / 256.0).powf(1.0 / 16.0) + 12.0;
            let ratio = filter.len() as f64 * 8.0 / wanted;
            let max = if is_large { 1.42 } else { 1.3 };
            assert!(count == 0 || (1.0 / max..max).contains(&ratio), "{count} {distinct}: {ratio}");
            assert!(class.bytes() == filter.len());
            let all: Vec<u64> = (0..distinct.min(count)).map(hash).collect();
            assert!(class >= min_class(&all, all.len() as u32, 106), "{count} {distinct}");
            assert!(
                hashes(count, distinct)
                    .all(|hash| filter::is_set(&filter, bit(hash, class.bits()) as usize))
            );
        }
    }
}
