//! Searching for a passage: the longest run of a text's elements that a message has.
//!
//! Of a long text, a message may contain any passage. Within it, all elements are present, one
//! after the other. Bits that are set by chance make runs as well, but long ones are rare: with a
//! probability `p` that an element is present in a message that shares nothing with the text, a
//! run of `r` elements begins at each of the text's `n` elements with the probability
//! `(1 - p) pʳ`. So it is known how long a run must be in a filter of a given fill. (Robidou and
//! Peterlongo, "findere: fast and precise approximate membership query", 2021, require runs of a
//! fixed length for the same reason.)
//!
//! All messages of one size are searched at once: a counter for each of them ([`LongRuns`]) has
//! its own length to reach. Only of those that reach it, the elements are looked up again, one
//! message at a time, to find the run.

use std::collections::{BTreeSet, HashSet};
use std::ops::Range as Span;

use crate::trace::{Body, Damage, filter};

use super::Winnow;
use super::class::Class;
use super::grams::Scratch;
use super::hashing::bit;
use super::matrix::{self, LongRuns};
use super::octave::{Group, Octave, Range};
use super::sealed::Fills;

/// A run is a hit only if fewer than one in so many messages that share nothing with the text
/// have one as long by chance; but a message that has all of the text always is.
const CHANCE_HITS: f64 = 1e6;
/// The share of a text's elements that messages contain which share no passage with it.
const COMMON: f64 = 0.05;
/// The maximum probability that an element is present.
const PRESENT_MAX: f64 = 0.999;

/// A text of which a message may contain any passage.
pub(super) struct Passages {
    /// The number of the query's part.
    pub(super) part: u32,
    /// In the order of the text. One that is repeated is where it is first: the next time it is
    /// no evidence.
    elements: Vec<Element>,
    /// How long a run must be in a filter of each fill, in 255ths.
    needed: [u32; 256],
}

/// An element, and where it is in the text.
struct Element {
    hash: u64,
    bytes: Span<u32>,
}

/// The longest run in a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Run {
    /// How many distinct bits of it are set.
    pub(super) present: u32,
    /// Where it is in the text.
    pub(super) bytes: Span<u32>,
}

impl Passages {
    pub(super) fn new(winnow: &Winnow, part: u32, text: &str) -> Self {
        let (mut elements, mut seen) = (Vec::new(), HashSet::new());
        winnow.text.select(text.as_bytes(), &mut Scratch::default(), |gram| {
            let hash = winnow.hashing.text.hash(gram);
            let start = gram.as_ptr().addr().wrapping_sub(text.as_ptr().addr());
            if seen.insert(hash) {
                let bytes = start as u32..(start + gram.len()) as u32;
                elements.push(Element { hash, bytes });
            }
        });
        let mut passages = Self { part, elements, needed: [0; 256] };
        passages.needed = std::array::from_fn(|level| passages.needed(level as f64 / 255.0));
        passages
    }

    /// How many elements the text has.
    pub(super) fn of(&self) -> u32 {
        self.elements.len() as u32
    }

    /// The hashes of the elements within these bytes of the text.
    pub(super) fn within(&self, bytes: &Span<u32>) -> Vec<u64> {
        let within = |element: &&Element| {
            bytes.start <= element.bytes.start && element.bytes.end <= bytes.end
        };
        self.elements.iter().filter(within).map(|element| element.hash).collect()
    }

    /// The probability that a message of this fill which shares nothing with the text has a run
    /// of so many bits.
    pub(super) fn chance(&self, present: u32, fill: f64) -> f64 {
        let (starts, each) = self.starts(fill);
        (starts * each.powf(present.into())).min(1.0)
    }

    /// At how many elements a run begins, and the probability that it continues.
    fn starts(&self, fill: f64) -> (f64, f64) {
        let each = (fill + (1.0 - fill) * COMMON).min(PRESENT_MAX);
        (1.0 + self.elements.len() as f64 * (1.0 - each), each)
    }

    /// How long a run must be in a filter of this fill.
    fn needed(&self, fill: f64) -> u32 {
        let (starts, each) = self.starts(fill);
        let length = (starts * CHANCE_HITS).ln() / -each.ln();
        (length.ceil() as u32).clamp(1, self.of().max(1))
    }

    fn needed_at(&self, level: u8) -> u32 {
        self.needed.get(usize::from(level)).copied().unwrap_or(u32::MAX)
    }

    /// The longest run in a filter, if it is a hit.
    pub(super) fn in_digest(&self, class: Class, set: &[u8]) -> Option<Run> {
        let level = (filter::fill(set) * 255.0).round() as u8;
        let bits = class.bits();
        let mut longest = Longest::new(self.needed_at(level), bits);
        for element in &self.elements {
            longest.add(self, filter::is_set(set, bit(element.hash, bits) as usize));
        }
        longest.end(self)
    }

    /// The messages of an octave that have a long run, with their fills in 255ths.
    pub(super) fn in_octave(
        &self,
        body: &Body<'_>,
        octave: &Octave,
    ) -> Result<Vec<(u32, u8, Run)>, Damage> {
        let all = Fills::new(body, octave);
        let mut searched = Vec::new();
        for group in &octave.groups {
            let fills = all.of(group)?;
            // A run needs its length in distinct bits, unless it is all of the text.
            let lengths: Vec<u32> = fills.iter().map(|&level| self.needed_at(level)).collect();
            searched.push((group, fills, LongRuns::new(&lengths)));
        }
        let mut range = Range::default();
        for element in &self.elements {
            let groups = searched.iter().map(|(group, ..)| *group);
            octave.read(body, element.hash, groups, &mut range)?;
            for (group, _, runs) in &mut searched {
                runs.add(row(octave, group, element, &range));
            }
        }
        let mut reached = Vec::new();
        for (group, fills, runs) in &searched {
            for column in matrix::ones(runs.reached().iter().copied()) {
                let level = fills.get(column).copied().unwrap_or(u8::MAX);
                let longest = Longest::new(self.needed_at(level), octave.rows(group));
                reached.push((*group, column, level, longest));
            }
        }
        if reached.is_empty() {
            return Ok(Vec::new());
        }
        for element in &self.elements {
            let groups = reached.iter().map(|(group, ..)| *group);
            octave.read(body, element.hash, groups, &mut range)?;
            for (group, column, _, longest) in &mut reached {
                let mut words = row(octave, group, element, &range);
                let word = words.nth(*column / 64).unwrap_or(0);
                longest.add(self, matrix::is_set(&[word], *column % 64));
            }
        }
        let found = reached.into_iter().filter_map(|(group, column, level, longest)| {
            Some((group.first + column as u32, level, longest.end(self)?))
        });
        Ok(found.collect())
    }
}

/// Follows the elements in one filter to find the longest run that is a hit.
struct Longest {
    /// How many distinct bits a run must have, unless it is all of the text.
    needed: u32,
    /// The size of the filter.
    bits: u32,
    /// The elements of the present run.
    run: Span<usize>,
    best: Option<Run>,
}

impl Longest {
    fn new(needed: u32, bits: u32) -> Self {
        Self { needed, bits, run: 0..0, best: None }
    }

    /// Adds the next element: whether it is present.
    fn add(&mut self, passages: &Passages, present: bool) {
        if !present {
            self.close(passages);
        }
        self.run.end += 1;
        if !present {
            self.run.start = self.run.end;
        }
    }

    /// The longest run, after the last element.
    fn end(mut self, passages: &Passages) -> Option<Run> {
        self.close(passages);
        self.best
    }

    /// Compares the run that ends with the best one.
    fn close(&mut self, passages: &Passages) {
        let needed = self.needed;
        let elements = passages.elements.get(self.run.clone()).unwrap_or_default();
        let (Some(first), Some(last)) = (elements.first(), elements.last()) else { return };
        if (elements.len() as u32) < needed {
            return;
        }
        // Several elements may have one bit.
        let places: BTreeSet<u32> =
            elements.iter().map(|element| bit(element.hash, self.bits)).collect();
        let present = places.len() as u32;
        let is_whole = elements.len() == passages.elements.len();
        if (present >= needed || is_whole)
            && self.best.as_ref().is_none_or(|best| best.present < present)
        {
            self.best = Some(Run { present, bytes: first.bytes.start..last.bytes.end });
        }
    }
}

/// The bits of an element in the filters of a group.
fn row(
    octave: &Octave,
    group: &Group,
    element: &Element,
    range: &Range,
) -> impl Iterator<Item = u64> {
    let place = octave.place(group, bit(element.hash, octave.rows(group)));
    range.words(place, group.messages)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::WinnowSettings;

    /// Numbers that look random.
    fn random(seed: u64) -> impl Iterator<Item = f64> {
        let mut random = kit::Random::new(seed);
        std::iter::repeat_with(move || random.unit())
    }

    fn passages(letters: usize) -> Passages {
        let text: String =
            random(3).take(letters).map(|n| char::from(b'a' + (n * 26.0) as u8)).collect();
        Passages::new(&Winnow::new(WinnowSettings::default(), &[7; 32]), 0, &text)
    }

    #[test]
    fn chances_are_those_of_runs() {
        let passages = passages(2000);
        let mut numbers = random(5);
        for (fill, present) in [(0.5, 14_u32), (0.6, 16), (0.6, 19), (0.8, 40)] {
            let (_, each) = passages.starts(fill);
            let seen = (0..4000).filter(|_| {
                let set: Vec<bool> =
                    numbers.by_ref().take(passages.elements.len()).map(|n| n < each).collect();
                let runs = set.chunk_by(|a, b| a == b).filter(|run| run[0]);
                runs.map(<[bool]>::len).max().unwrap_or(0) as u32 >= present
            });
            let (seen, said) = (seen.count() as f64, 4000.0 * passages.chance(present, fill));
            assert!(seen > 30.0 && (0.7..1.5).contains(&(said / seen)), "{said} {seen}");
        }
    }

    #[test]
    fn fuller_filters_need_longer_runs() {
        let passages = passages(2000);
        let needed = [0.3, 0.6, 0.8, 0.9].map(|fill| passages.needed(fill));
        assert!(needed.is_sorted() && needed[0] > 10 && needed[1] < 60, "{needed:?}");
        let most = passages.of();
        assert!((280..360).contains(&most), "{most}");
        assert_eq!(passages.needed(1.0), most, "all of it is always a hit");
        for (fill, needed) in [(0.3, needed[0]), (0.6, needed[1]), (0.8, needed[2])] {
            let [more, less] = [needed, needed - 1].map(|bits| passages.chance(bits, fill));
            assert!(more <= 1.0 / CHANCE_HITS && less > 1.0 / CHANCE_HITS, "{more} {less}");
        }
    }

    #[test]
    fn a_repeated_element_is_evidence_once() {
        let winnow = Winnow::new(WinnowSettings::default(), &[7; 32]);
        let once = "a sentence that somebody has copied again and again without a change; ";
        let [one, many] = [1, 9].map(|times| Passages::new(&winnow, 0, &once.repeat(times)));
        assert!(many.of() < one.of() + 6, "{} {}", one.of(), many.of());
    }
}
