//! Asking.

use std::collections::BTreeMap;

use crate::trace::{Body, ContentQuery, Damage, Hit, Part, Search, TooShort, filter};

use super::Winnow;
use super::chance::Commonness;
use super::class::Class;
use super::digest;
use super::grams::Scratch;
use super::hashing::bit;
use super::matrix::{self, Counts};
use super::octave::{Group, Octave, Range};
use super::sealed::Table;

/// How many elements are asked for at most: of a longer question some of them,
/// as many of each part. So many are not present by chance in any case.
const MOST: usize = 512;
/// Where not all elements must be present, a message is a hit only if as many
/// are present by chance in fewer than one of so many messages.
const CHANCE_HITS: f64 = 10_000.0;
/// After how many elements it is looked whether any message can still be a hit.
const LOOK: u32 = 16;

/// A question under way.
pub(super) struct WinnowSearch {
    /// Ascending.
    elements: Vec<u64>,
    /// The same, the rarest first as soon as it is known which these are.
    rarest: Vec<u64>,
    /// The least share of them that must be present.
    least: f64,
    /// Messages with smaller filters cannot have carried as many.
    smallest: Class,
    common: Commonness,
}

/// The messages of a group, while the elements are looked up.
struct Standing<'t> {
    group: &'t Group,
    /// Which may still be hits, where all elements must be present.
    all: Vec<u64>,
    /// How many are present, where not all must be.
    counts: Counts,
    /// On how many different bits the elements fall, and how many of these must
    /// be set.
    of: u32,
    least: u32,
    /// How many have been looked up, and the last of them.
    asked: u32,
    last: Option<u32>,
}

impl WinnowSearch {
    pub(super) fn new(winnow: &Winnow, content: &ContentQuery) -> Result<Self, TooShort> {
        let mut all = Vec::new();
        for (number, part) in content.parts.iter().enumerate() {
            let mut elements = elements(winnow, number, part)?;
            // By some of their bits that do not tell where they fall.
            elements.sort_unstable_by_key(|&element| element.rotate_left(32));
            elements.dedup();
            all.extend(elements.into_iter().take((MOST / content.parts.len()).max(1)));
        }
        all.sort_unstable();
        all.dedup();
        let least = content.min_share.clamp(0.0, 1.0);
        let smallest = digest::least_class(share_of(least, all.len()), winnow.centibits);
        let common = Commonness::new(all.len());
        Ok(Self { common, rarest: all.clone(), elements: all, least, smallest })
    }

    /// Whether messages with filters of a class may have carried what is asked.
    fn asks(&self, class: Class) -> bool {
        class >= self.smallest && !self.elements.is_empty()
    }

    /// Whether all elements must be present.
    fn strict(&self) -> bool {
        self.least >= 1.0
    }

    /// On which bits of a filter of a size the elements fall, each once.
    fn places(&self, bits: u32) -> impl Iterator<Item = u32> {
        let mut last = None;
        let places = self.elements.iter().map(move |&element| bit(element, bits));
        places.filter(move |&place| last.replace(place) != Some(place))
    }

    /// How many these are, and how many of them must be set.
    fn of(&self, bits: u32) -> (u32, u32) {
        let of = self.places(bits).count();
        (of as u32, share_of(self.least, of))
    }

    /// Whether what is present is all, or more than chance.
    fn is_hit(&self, hit: &Hit) -> bool {
        hit.present == hit.of || self.chance(hit) < 1.0 / CHANCE_HITS
    }

    /// Looks up the elements in an octave until no message is left.
    fn ask<'t>(&self, body: &Body<'_>, octave: &'t Octave) -> Result<Vec<Standing<'t>>, Damage> {
        let groups = octave.groups.iter().filter(|group| self.asks(group.class));
        let mut standing: Vec<Standing<'_>> = groups
            .map(|group| {
                // Not yet of interest where all must be set.
                let (of, least) = if self.strict() { (0, 0) } else { self.of(octave.rows(group)) };
                Standing::new(group, of, least)
            })
            .collect();
        let mut range = Range::default();
        // Where all must be set, the rarest leave the fewest messages standing.
        // Where they are counted, those on one bit must follow each other.
        let order = if self.strict() { &self.rarest } else { &self.elements };
        for &element in order {
            if standing.is_empty() {
                break;
            }
            let groups = standing.iter().map(|standing| standing.group);
            octave.read(body, element, groups, &mut range)?;
            standing.retain_mut(|standing| {
                let row = bit(element, octave.rows(standing.group));
                // A bit on which several elements fall counts once.
                standing.last.replace(row) == Some(row) || {
                    let words =
                        range.words(octave.place(standing.group, row), standing.group.messages);
                    if self.strict() { standing.must_be(words) } else { standing.may_be(words) }
                }
            });
        }
        Ok(standing)
    }

    /// Counts which elements are present in the messages of an octave that are
    /// asked, but for some.
    fn look(
        &mut self,
        body: &Body<'_>,
        table: &Table,
        octave: &Octave,
        hits: &[Hit],
    ) -> Result<(), Damage> {
        let groups = octave.groups.iter().filter(|group| self.asks(group.class));
        let mut looked_at: Vec<_> = groups
            .map(|group| {
                let mut others = vec![u64::MAX; group.words()];
                let messages = group.first..group.first + group.messages;
                let hits = hits.iter().filter(|hit| messages.contains(&hit.message));
                hits.for_each(|hit| {
                    matrix::clear(&mut others, (hit.message - group.first) as usize)
                });
                (group, others, Counts::new(group.words()))
            })
            .collect();
        let mut range = Range::default();
        let mut present = Vec::with_capacity(self.elements.len());
        for &element in &self.elements {
            let groups = looked_at.iter().map(|(group, ..)| *group);
            octave.read(body, element, groups, &mut range)?;
            let mut sum = 0;
            for (group, others, counts) in &mut looked_at {
                let place = octave.place(group, bit(element, octave.rows(group)));
                let row = range.words(place, group.messages);
                let row = row.zip(&*others).map(|(row, others)| row & others);
                counts.add(row.inspect(|word| sum += u64::from(word.count_ones())));
            }
            present.push(sum);
        }
        for (group, others, counts) in &looked_at {
            for (column, fill) in table.fills(body, group)?.into_iter().enumerate() {
                if matrix::is_set(others, column) {
                    self.common.add(share(fill), counts.at(column));
                }
            }
        }
        self.common.add_present(present);
        Ok(())
    }

    /// Asks the messages of an octave.
    fn octave(
        &mut self,
        body: &Body<'_>,
        table: &Table,
        octave: &Octave,
    ) -> Result<Vec<Hit>, Damage> {
        let mut hits = Vec::new();
        for Standing { group, all, counts, least, .. } in self.ask(body, octave)? {
            let (of, _) = self.of(octave.rows(group));
            let columns = if self.strict() { all } else { counts.at_least(least) };
            if columns.iter().all(|&word| word == 0) {
                continue;
            }
            // All of them: it takes no longer than to decipher one.
            let fills = table.fills(body, group)?;
            for (column, &fill) in matrix::ones(columns).filter_map(|at| Some((at, fills.get(at)?)))
            {
                let message = group.first + column as u32;
                let present = if self.strict() { of } else { counts.at(column) };
                let fill = share(fill) as f32;
                hits.push(Hit { message, present, of, fill });
            }
        }
        hits.retain(|hit| self.is_hit(hit));
        Ok(hits)
    }
}

impl<'t> Standing<'t> {
    fn new(group: &'t Group, of: u32, least: u32) -> Self {
        let words = group.words();
        let (all, counts) = (vec![u64::MAX; words], Counts::new(words));
        Self { group, all, counts, of, least, asked: 0, last: None }
    }

    /// Takes in a bit that must be set. Whether any message is left.
    fn must_be(&mut self, row: impl Iterator<Item = u64>) -> bool {
        let mut any = 0;
        for (all, row) in self.all.iter_mut().zip(row) {
            *all &= row;
            any |= *all;
        }
        any != 0
    }

    /// Takes in one that may be set. Whether any message can still be a hit.
    fn may_be(&mut self, row: impl Iterator<Item = u64>) -> bool {
        self.counts.add(row);
        self.asked += 1;
        let needed = self.least.saturating_sub(self.of - self.asked.min(self.of));
        needed == 0
            || !self.asked.is_multiple_of(LOOK)
            || self.counts.at_least(needed).iter().any(|&word| word != 0)
    }
}

/// A share of a number, not none of it.
fn share_of(share: f64, of: usize) -> u32 {
    ((share * of as f64).ceil() as u32).max(1)
}

/// Of 255ths.
fn share(level: u8) -> f64 {
    f64::from(level) / 255.0
}

/// The elements of a part, some more than once.
fn elements(winnow: &Winnow, number: usize, part: &Part) -> Result<Vec<u64>, TooShort> {
    let mut elements = Vec::new();
    let long_enough = |bytes: usize, needed: usize| {
        if bytes < needed { Err(TooShort { part: number, bytes, needed }) } else { Ok(()) }
    };
    match part {
        Part::Text(text) => {
            long_enough(text.len(), winnow.text.shortest())?;
            winnow.text_elements(text.as_bytes(), &mut Scratch::default(), |element| {
                elements.push(element)
            });
        }
        Part::Bytes(bytes) => {
            long_enough(bytes.len(), winnow.bytes.shortest())?;
            winnow.bytes_elements(bytes, &mut Scratch::default(), |element| elements.push(element));
        }
        Part::File(content) => elements.extend(winnow.hashing.file(content)),
    }
    Ok(elements)
}

impl Search for WinnowSearch {
    fn digests(&mut self, digests: &[&[u8]], hit: &mut dyn FnMut(Hit)) {
        let mut known = BTreeMap::new();
        for (message, digest) in (0..).zip(digests) {
            let Some((class, filter)) = digest::parse(digest) else { continue };
            if !self.asks(class) {
                continue;
            }
            let (of, least) = *known.entry(class).or_insert_with(|| self.of(class.bits()));
            let mut free = 0;
            let stands = self.places(class.bits()).all(|place| {
                free += u32::from(!filter::is_set(filter, place as usize));
                free <= of - least.min(of)
            });
            let looking = self.common.is_wanting();
            if !stands && !looking {
                continue;
            }
            let fill = filter::fill(filter);
            let found = Hit { message, present: of - free.min(of), of, fill };
            if stands && self.is_hit(&found) {
                hit(found);
            } else if looking {
                let places = self.elements.iter().map(|&element| bit(element, class.bits()));
                let present: Vec<u64> =
                    places.map(|place| u64::from(filter::is_set(filter, place as usize))).collect();
                self.common.add(f64::from(fill), present.iter().sum::<u64>() as u32);
                self.common.add_present(present);
            }
        }
    }

    fn sealed(
        &mut self,
        body: &Body<'_>,
        messages: u32,
        hit: &mut dyn FnMut(Hit),
    ) -> Result<(), Damage> {
        let table = Table::read(body, messages)?;
        let looking = self.common.is_wanting();
        for octave in &table.octaves {
            let hits = self.octave(body, &table, octave)?;
            if looking {
                self.look(body, &table, octave, &hits)?;
            }
            hits.into_iter().filter(|hit| self.is_hit(hit)).for_each(&mut *hit);
        }
        if looking {
            let mut rarest: Vec<_> = self.common.present().iter().zip(&self.elements).collect();
            rarest.sort_unstable();
            self.rarest = rarest.into_iter().map(|(_, element)| *element).collect();
        }
        Ok(())
    }

    fn chance(&self, hit: &Hit) -> f64 {
        self.common.chance(hit.present, hit.of, f64::from(hit.fill))
    }
}
