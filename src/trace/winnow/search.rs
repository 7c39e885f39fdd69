//! Searching digests and bodies.

use std::cell::RefCell;
use std::collections::BTreeMap;

use crate::trace::{
    Body, ContentQuery, Damage, Hit, Part, Search, TooShort, Unsearched, file_hash, filter,
};

use super::Winnow;
use super::candidates::Candidates;
use super::chance::ElementFrequencies;
use super::class::Class;
use super::contained::{Examined, LnFactorials};
use super::digest;
use super::expected::Searched;
use super::grams::Scratch;
use super::hashing::bit;
use super::located::{Elements, Locator};
use super::marks::Material;
use super::matrix;
use super::octave::{Group, Octave, Range};
use super::passage::Passages;
use super::passage_hits::{AllPassages, longer};
use super::sampling::{Sampled, Selection};
use super::sealed::{Fills, Table};

/// The maximum number of elements that are searched: of a longer query a
/// selection, equally many of each part. So many are never present by chance.
const ELEMENTS_MAX: usize = 512;
/// If not all elements must be present, a message is a hit only if fewer than
/// one in so many messages has as many by chance.
const CHANCE_HITS: f64 = 10_000.0;
/// If the scheme chooses how many elements must be present, a message is a hit only if fewer than
/// one in so many have as many by chance in a filter as full as its own: an edited text of a
/// page is hardly ever less evident.
const CHANCE_EDITED: f64 = 1_000.0;
/// A message with less than this share of the elements is not an edited version of the text.
const EDITED_SHARE: f64 = 0.25;

/// A search in progress.
pub(super) struct WinnowSearch {
    /// In ascending order.
    elements: Vec<u64>,
    /// The same elements, the rarest first once that is known.
    rarest: Vec<u64>,
    /// The minimum share of elements that must be present; 0 if it is chosen for each message.
    min_share: f64,
    passages: AllPassages,
    factorials: LnFactorials,
    /// Messages with smaller filters cannot contain enough elements.
    smallest: Class,
    frequencies: ElementFrequencies,
    examined: Examined,
    searched: Searched,
    /// How many distinct bits the elements have in filters of so many bits.
    distinct: RefCell<BTreeMap<u32, u32>>,
    /// Finds out in which parts of their messages hits are.
    locator: Locator,
    /// The elements of each part by itself.
    of_parts: Vec<Elements>,
    /// Whether that is wanted.
    locates: bool,
}

impl WinnowSearch {
    pub(super) fn new(winnow: &Winnow, content: &ContentQuery) -> Result<Self, TooShort> {
        let (mut all, mut passages, mut of_parts) = (Vec::new(), Vec::new(), Vec::new());
        // All elements, not only those that are selected.
        let mut every = Vec::new();
        for (number, part) in content.parts.iter().enumerate() {
            let mut elements = elements(winnow, number, part)?;
            if let Part::Passage(text) = part {
                passages.push(Passages::new(winnow, number as u32, text));
                continue;
            }
            // Sorted by other bits than those that determine the position, to
            // select at random.
            elements.sort_unstable_by_key(|&element| element.rotate_left(32));
            elements.dedup();
            every.extend_from_slice(&elements);
            elements.truncate((ELEMENTS_MAX / content.parts.len()).max(1));
            all.extend_from_slice(&elements);
            let material =
                if matches!(part, Part::Text(_)) { Material::Text } else { Material::Bytes };
            of_parts.push(Elements { material, all: elements });
        }
        all.sort_unstable();
        all.dedup();
        let min_share = content.min_share.clamp(0.0, 1.0);
        every.sort_unstable();
        every.dedup();
        let smallest = if min_share >= 1.0 {
            digest::min_class(&every, every.len() as u32, winnow.centibits)
        } else {
            // Many of the elements that count are there by chance.
            let share = if min_share > 0.0 { min_share.min(EDITED_SHARE) } else { EDITED_SHARE };
            digest::min_class(&all, share_of(share, all.len()), winnow.centibits)
        };
        let frequencies = ElementFrequencies::new(all.len());
        Ok(Self {
            frequencies,
            rarest: all.clone(),
            elements: all,
            min_share,
            passages: AllPassages(passages),
            factorials: LnFactorials::up_to(ELEMENTS_MAX as u32 + content.parts.len() as u32),
            smallest,
            examined: Examined::default(),
            searched: Searched::default(),
            distinct: RefCell::default(),
            locator: Locator::new(winnow, min_share >= 1.0),
            of_parts,
            locates: false,
        })
    }

    /// Whether messages with filters of this class may contain enough elements.
    fn may_match(&self, class: Class) -> bool {
        class >= self.smallest && !self.elements.is_empty()
    }

    /// Whether all elements must be present.
    fn strict(&self) -> bool {
        self.min_share >= 1.0
    }

    /// Whether it is chosen for each message how many must be.
    fn chooses(&self) -> bool {
        self.min_share <= 0.0
    }

    /// The distinct bits of the elements in a filter of this size.
    fn bits_of(&self, bits: u32) -> impl Iterator<Item = u32> {
        let mut last = None;
        let positions = self.elements.iter().map(move |&element| bit(element, bits));
        positions.filter(move |&position| last.replace(position) != Some(position))
    }

    /// The number of distinct bits, and how many of them must be set.
    fn required(&self, bits: u32) -> (u32, u32) {
        let mut distinct = self.distinct.borrow_mut();
        let of = *distinct.entry(bits).or_insert_with(|| self.bits_of(bits).count() as u32);
        (of, share_of(self.min_share, of as usize))
    }

    /// Whether all elements are present, or more than by chance.
    fn is_hit(&self, hit: &Hit) -> bool {
        let least = if self.chooses() { CHANCE_EDITED } else { CHANCE_HITS };
        hit.present == hit.of || self.chance(hit) < 1.0 / least
    }

    /// How many of `of` bits must be set in a filter of this fill for a message to be a hit, at
    /// least, if that is chosen.
    fn evident(&self, of: u32, fill: f64) -> u32 {
        let fill = fill.clamp(1e-3, 1.0 - 1e-3);
        let is_common = |min| self.factorials.tail(of, min, fill) >= 1.0 / CHANCE_EDITED;
        let (mut common, mut rare) = (0, of);
        while common + 1 < rare {
            let min = common.midpoint(rare);
            *(if is_common(min) { &mut common } else { &mut rare }) = min;
        }
        rare
    }

    /// Looks up the elements in an octave until no candidate is left.
    fn candidates<'t>(
        &self,
        body: &Body<'_>,
        fills: &Fills<'_>,
        octave: &'t Octave,
    ) -> Result<Vec<Candidates<'t>>, Damage> {
        let groups = octave.groups.iter().filter(|group| self.may_match(group.class));
        let mut remaining: Vec<Candidates<'_>> = groups
            .map(|group| {
                // Not needed if all must be set.
                let (of, mut min) =
                    if self.strict() { (0, 0) } else { self.required(octave.rows(group)) };
                if self.chooses() {
                    let least = fills.of(group)?.iter().min().copied().unwrap_or(0);
                    min = self.evident(of, share(least));
                }
                Ok(Candidates::new(group, of, min))
            })
            .collect::<Result<_, Damage>>()?;
        let mut range = Range::default();
        // If all must be set, the rarest elements exclude most candidates. If
        // they are counted, elements on one bit must be adjacent.
        let order = if self.strict() { &self.rarest } else { &self.elements };
        for &element in order {
            if remaining.is_empty() {
                break;
            }
            let groups =
                remaining.iter().map(|candidates| (candidates.group, candidates.columns()));
            octave.read_columns(body, element, groups, &mut range)?;
            remaining.retain_mut(|candidates| {
                let row = bit(element, octave.rows(candidates.group));
                // A bit shared by several elements counts once.
                candidates.last.replace(row) == Some(row) || {
                    let columns = candidates.columns();
                    let place = octave.place(candidates.group, row) + u64::from(columns.start);
                    let words = range.words(place, columns.end - columns.start);
                    if self.strict() { candidates.require(words) } else { candidates.count(words) }
                }
            });
        }
        Ok(remaining)
    }

    /// Counts which elements are present in some messages of an octave that may match, without
    /// hits.
    fn sample(
        &mut self,
        body: &Body<'_>,
        fills: &Fills<'_>,
        octave: &Octave,
        hits: &[Hit],
        selection: &mut Selection,
    ) -> Result<(), Damage> {
        let groups = octave.groups.iter().filter(|group| self.may_match(group.class));
        let mut sampled: Vec<Sampled<'_>> =
            groups.filter_map(|group| Sampled::new(group, selection, hits)).collect();
        if sampled.is_empty() {
            return Ok(());
        }
        let mut range = Range::default();
        let mut present = Vec::with_capacity(self.elements.len());
        for &element in &self.elements {
            octave.read(body, element, sampled.iter().map(|one| one.group), &mut range)?;
            let mut sum = 0;
            for one in &mut sampled {
                let row = bit(element, octave.rows(one.group));
                let words = range.words(octave.place(one.group, row), one.group.messages);
                sum += one.add(row, words);
            }
            present.push(sum);
        }
        for one in &sampled {
            one.each(fills.of(one.group)?, |fill, elements, bits| {
                self.frequencies.add(share(fill), elements);
                self.examined.add(one.of, bits, share(fill));
            });
        }
        self.frequencies.add_present(present);
        Ok(())
    }

    /// Finds out in which parts of their messages the hits in an octave are, if that is wanted.
    fn locate_in_octave(
        &self,
        body: &Body<'_>,
        table: &Table,
        octave: &Octave,
        hits: &mut [Hit],
    ) -> Result<(), Damage> {
        if !self.locates || hits.is_empty() {
            return Ok(());
        }
        let passages = |part| self.passages.of_part(part);
        self.locator.in_octave((&self.of_parts, &passages), (body, table, octave), hits)
    }

    /// The same for the hit of a digest.
    fn located(&self, hit: Hit, digest: &digest::Parsed<'_>) -> Hit {
        if !self.locates {
            return hit;
        }
        let passages = hit.passage.and_then(|passage| self.passages.of_part(passage.part));
        self.locator.in_digest((&self.of_parts, passages), hit, digest)
    }

    /// The hits in an octave, also of passages.
    fn all_of_octave(
        &mut self,
        body: &Body<'_>,
        octave: &Octave,
        selection: Option<&mut Selection>,
    ) -> Result<Vec<Hit>, Damage> {
        let mut hits = None;
        if !self.elements.is_empty() {
            let may_match = octave.groups.iter().any(|group| self.may_match(group.class));
            let mut found = Vec::new();
            if may_match {
                let fills = Fills::new(body, octave);
                found = self.octave(body, &fills, octave)?;
                if let Some(selection) = selection {
                    self.sample(body, &fills, octave, &found, selection)?;
                }
                found.retain(|hit| self.is_hit(hit));
                for group in &octave.groups {
                    if !self.may_match(group.class) {
                        continue;
                    }
                    let rows = octave.rows(group);
                    let (of, _) = self.required(rows);
                    let kind = (group.class, rows, group.messages);
                    self.searched.add_group(of, kind, || fills.of(group))?;
                }
            }
            hits = Some(found);
        }
        self.passages.in_octave(body, octave, hits)
    }

    /// Searches the messages of an octave.
    fn octave(
        &self,
        body: &Body<'_>,
        fills: &Fills<'_>,
        octave: &Octave,
    ) -> Result<Vec<Hit>, Damage> {
        let mut hits = Vec::new();
        for Candidates { group, all, counts, min, .. } in self.candidates(body, fills, octave)? {
            let (of, _) = self.required(octave.rows(group));
            let columns = if self.strict() { all } else { counts.at_least(min) };
            let columns: Vec<usize> = matrix::ones(columns)
                .take_while(|&column| column < group.messages as usize)
                .collect();
            let (Some(&start), Some(&last)) = (columns.first(), columns.last()) else { continue };
            let fills = fills.some_of(group, start..last + 1)?;
            for (column, &fill) in
                columns.into_iter().filter_map(|at| Some((at, fills.get(at - start)?)))
            {
                let message = group.first + column as u32;
                let present = if self.strict() { of } else { counts.at(column) };
                let fill = share(fill) as f32;
                hits.push(Hit { message, present, of, fill, passage: None, within: None });
            }
        }
        hits.retain(|hit| self.is_hit(hit));
        Ok(hits)
    }
}

/// A share of a number, at least 1.
fn share_of(share: f64, of: usize) -> u32 {
    ((share * of as f64).ceil() as u32).max(1)
}

/// A share from 255ths.
fn share(level: u8) -> f64 {
    f64::from(level) / 255.0
}

/// The elements of a part, with duplicates.
fn elements(winnow: &Winnow, number: usize, part: &Part) -> Result<Vec<u64>, TooShort> {
    let mut elements = Vec::new();
    let long_enough = |bytes: usize, needed: usize| {
        if bytes < needed { Err(TooShort { part: number, bytes, needed }) } else { Ok(()) }
    };
    match part {
        Part::Text(text) | Part::Passage(text) => {
            long_enough(text.len(), winnow.text.shortest())?;
            winnow.text_elements(text.as_bytes(), &mut Scratch::default(), |element| {
                elements.push(element)
            });
        }
        Part::Bytes(bytes) => {
            long_enough(bytes.len(), winnow.bytes.shortest())?;
            winnow.bytes_elements(bytes, &mut Scratch::default(), |element| elements.push(element));
        }
        Part::File(content) => elements.extend(winnow.hashing.file(&file_hash(content))),
        Part::FileHash(hash) => elements.extend(winnow.hashing.file(hash)),
    }
    Ok(elements)
}

impl Search for WinnowSearch {
    fn locate(&mut self) {
        self.locates = true;
    }

    fn digests(&mut self, digests: &[&[u8]], hit: &mut dyn FnMut(Hit)) {
        let (mut required, mut evident) = (BTreeMap::new(), BTreeMap::new());
        for (message, digest) in (0..).zip(digests) {
            let Some(digest) = digest::parse(digest) else { continue };
            let (class, filter) = (digest.class, digest.filter);
            if self.elements.is_empty() {
                if let Some(found) = self.passages.in_digest(message, class, filter) {
                    hit(self.located(found, &digest));
                }
                continue;
            }
            if !self.may_match(class) {
                continue;
            }
            let (of, mut min) =
                *required.entry(class).or_insert_with(|| self.required(class.bits()));
            let fill = filter::fill(filter);
            if self.chooses() {
                let level = (fill * 255.0) as u8;
                let least = evident.entry((of, level));
                min = *least.or_insert_with(|| self.evident(of, share(level)));
            }
            self.searched.add(of, (fill * 255.0).round() as u8);
            let mut free = 0;
            let is_candidate = self.bits_of(class.bits()).all(|position| {
                free += u32::from(!filter::is_set(filter, position as usize));
                free <= of - min.min(of)
            });
            let sampling = self.frequencies.needs_more();
            if !is_candidate && !sampling {
                continue;
            }
            let present = of - free.min(of);
            let found = Hit { message, present, of, fill, passage: None, within: None };
            if is_candidate && self.is_hit(&found) {
                if self.passages.is_empty() {
                    hit(self.located(found, &digest));
                } else if let Some(passage) = self.passages.in_digest(message, class, filter) {
                    hit(self.located(longer(found, passage), &digest));
                }
            } else if sampling {
                let places = self.elements.iter().map(|&element| bit(element, class.bits()));
                let present: Vec<u64> =
                    places.map(|place| u64::from(filter::is_set(filter, place as usize))).collect();
                self.frequencies.add(f64::from(fill), present.iter().sum::<u64>() as u32);
                self.frequencies.add_present(present);
                let set = self.bits_of(class.bits());
                let set = set.filter(|&bit| filter::is_set(filter, bit as usize)).count();
                self.examined.add(of, set as u32, f64::from(fill));
            }
        }
    }

    fn sealed(
        &mut self,
        body: &Body<'_>,
        messages: u32,
        hit: &mut dyn FnMut(Hit),
    ) -> Result<(), Unsearched> {
        let table =
            Table::read(body, messages).map_err(|damage| Unsearched { messages, damage })?;
        let sampling = self.frequencies.needs_more();
        let groups = table.octaves.iter().flat_map(|octave| &octave.groups);
        let groups = groups.filter(|group| self.may_match(group.class));
        let words = groups.map(Group::words).sum();
        let mut selection = sampling.then(|| Selection::of(words));
        let mut unsearched = None;
        for octave in &table.octaves {
            match self.all_of_octave(body, octave, selection.as_mut()) {
                Ok(mut found) => {
                    // Of damage, only where they are is unknown.
                    let located = self.locate_in_octave(body, &table, octave, &mut found);
                    found.into_iter().for_each(&mut *hit);
                    if let Err(damage) = located {
                        Unsearched::add(&mut unsearched, octave.messages(), damage);
                    }
                }
                Err(damage) => Unsearched::add(&mut unsearched, octave.messages(), damage),
            }
        }
        if sampling {
            let mut rarest: Vec<_> =
                self.frequencies.present().iter().zip(&self.elements).collect();
            rarest.sort_unstable();
            self.rarest = rarest.into_iter().map(|(_, element)| *element).collect();
        }
        unsearched.map_or(Ok(()), Err)
    }

    fn chance(&self, hit: &Hit) -> f64 {
        let fill = f64::from(hit.fill);
        let of_passage = hit.passage.and_then(|passage| self.passages.of_part(passage.part));
        match of_passage {
            Some(passages) => passages.chance(hit.present, fill),
            None if self.chooses() => self.frequencies.chance_in(hit.present, hit.of, fill),
            None => self.frequencies.chance(hit.present, hit.of, fill),
        }
    }

    fn expected(&self, share: f64) -> Option<f64> {
        let is_known = self.passages.is_empty() && !self.chooses();
        is_known.then(|| self.searched.expected(&self.examined.distribution(), share))
    }
}
