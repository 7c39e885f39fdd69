//! Searching digests and bodies.

use crate::trace::{
    Body, ContentQuery, Damage, Hit, Part, Search, TooShort, Unsearched, file_hash, filter,
};

use super::excerpt::Excerpt;
use super::hashing::Element;
use super::levels::{self, Group};
use super::sealed::{Position, Table};
use super::{Hbf, digest};

/// The number of offsets for which the elements of first blocks are cached: the
/// number of blocks that a filter may have.
const OFFSETS_MAX: usize = 4_096;

/// The share of an edited text that must be present if the query does not say.
const EDITED_SHARE: f64 = 0.7;

/// A search in progress.
pub(super) struct HbfSearch<'a> {
    hbf: &'a Hbf,
    /// The parts of each kind, in order.
    chains: [Vec<PreparedPart>; 2],
    files: Vec<u64>,
    min_share: f64,
    /// The number of filters or messages searched, and the total number of
    /// offsets.
    searched: u64,
    offsets: u64,
}

/// A part of the query.
struct PreparedPart {
    excerpt: Excerpt,
    /// The elements of the first block of each alignment, by offset.
    firsts: Vec<Vec<Element>>,
}

/// The result of searching a filter for the messages that are entirely in it.
#[derive(Clone, Copy)]
struct FilterResult {
    filter: u64,
    /// How many elements are present, and how many there are, if it matches.
    found: Option<(u32, u32)>,
    fill: f32,
}

impl<'a> HbfSearch<'a> {
    pub(super) fn new(hbf: &'a Hbf, content: &ContentQuery) -> Result<Self, TooShort> {
        let needed = 2 * usize::from(hbf.settings.block) - 1;
        let (mut chains, mut files) = ([Vec::new(), Vec::new()], Vec::new());
        for (part, content) in content.parts.iter().enumerate() {
            let (chain, bytes) = match content {
                Part::Text(text) | Part::Passage(text) => (0, text.as_bytes()),
                Part::Bytes(bytes) => (1, bytes.as_slice()),
                Part::File(content) => {
                    files.push(hbf.hashing.file(&file_hash(content)));
                    continue;
                }
                Part::FileHash(hash) => {
                    files.push(hbf.hashing.file(hash));
                    continue;
                }
            };
            if bytes.len() < needed {
                return Err(TooShort { part, bytes: bytes.len(), needed });
            }
            let excerpt = Excerpt::new(hbf, bytes);
            let firsts = excerpt.firsts().map(|_| Vec::new()).collect();
            if let Some(chain) = chains.get_mut(chain) {
                chain.push(PreparedPart { excerpt, firsts });
            }
        }
        let min_share = match content.min_share {
            0.0 => EDITED_SHARE,
            share => share.clamp(0.0, 1.0),
        };
        Ok(Self { hbf, chains, files, min_share, searched: 0, offsets: 0 })
    }

    fn is_empty(&self) -> bool {
        self.files.is_empty() && self.chains.iter().all(Vec::is_empty)
    }

    /// Prepares a search at so many offsets: counts them, and caches the
    /// elements of first blocks.
    fn prepare(&mut self, offsets: u64) {
        self.searched += 1;
        self.offsets += offsets;
        let hashing = &self.hbf.hashing;
        let offsets =
            usize::try_from(offsets).map_or(OFFSETS_MAX, |offsets| offsets.min(OFFSETS_MAX));
        for part in self.chains.iter_mut().flatten() {
            for (name, elements) in part.excerpt.firsts().zip(&mut part.firsts) {
                let new = (elements.len()..offsets).map(|n| hashing.element(name, n as u64));
                elements.extend(new);
            }
        }
    }

    /// Finds all parts in a text of so many blocks; returns how many of their
    /// elements are present, and how many there are. `has` tests a group,
    /// `first` the first block of an alignment, and `has_file` an attachment.
    fn find(
        &self,
        blocks: u64,
        first: impl Fn(&PreparedPart, usize, u64) -> bool,
        has: impl Fn(Group, u64) -> bool,
        has_file: impl Fn(u64) -> bool,
    ) -> Option<(u32, u32)> {
        let (mut present, mut of) = (0, 0);
        for &file in &self.files {
            present += u32::from(has_file(file).then_some(true)?);
            of += 1;
        }
        for chain in &self.chains {
            let mut from = 0;
            for part in chain {
                let first = |alignment, offset| first(part, alignment, offset);
                let found = part.excerpt.find(from, blocks, self.min_share, first, &has)?;
                from = found.end;
                present += found.present;
                of += found.of;
            }
        }
        Some((present, of))
    }

    /// Searches a filter for messages that have up to so many blocks.
    fn search_filter(&self, filter: &[u8], bits: u32, blocks: u64) -> Option<(u32, u32)> {
        let Hbf { settings, hashing } = self.hbf;
        let is_in = |element: Element| {
            element.bits(bits, settings.probes).all(|bit| filter::is_set(filter, bit))
        };
        let has = |group: Group, name| is_in(hashing.element(name, group.number));
        let first = |part: &PreparedPart, alignment: usize, offset: u64| {
            let cached = part.firsts.get(alignment).and_then(|cached| cached.get(offset as usize));
            // Without a cached element, the search of all groups decides.
            cached.is_none_or(|element| is_in(*element))
        };
        self.find(blocks, first, has, |file| is_in(hashing.file_element(file)))
    }

    /// Searches for a message that is in several filters: these, the first of
    /// which has the number `number`.
    fn search_filters(
        &self,
        position: &Position,
        filters: &[u8],
        number: u64,
        bits: u32,
    ) -> Option<(u32, u32)> {
        let Hbf { settings, hashing } = self.hbf;
        let is_in = |place: u64, element: Element| {
            let skipped = (place.saturating_sub(number)) as usize * (bits as usize / 8);
            let filter = filters.get(skipped..).unwrap_or_default();
            element.bits(bits, settings.probes).all(|bit| filter::is_set(filter, bit))
        };
        let has = |group: Group, name| {
            let place = position.filter_of(group, settings);
            place.is_some_and(|place| is_in(place, hashing.element(name, group.number)))
        };
        let has_file = |file| {
            let element = hashing.file_element(file);
            (0..position.files).any(|n| is_in(position.filter_of_file(n, settings), element))
        };
        let first = |part: &PreparedPart, alignment: usize, offset: u64| {
            let cached = part.firsts.get(alignment).and_then(|cached| cached.get(offset as usize));
            let place = position.filter_of(Group { level: 0, number: offset }, settings);
            cached.zip(place).is_none_or(|(element, place)| is_in(place, *element))
        };
        self.find(position.blocks.into(), first, has, has_file)
    }

    /// Searches a filter for the messages from the n-th on that are entirely in
    /// it; `None` if there are none.
    fn result_of(
        &mut self,
        body: &Body<'_>,
        table: &Table,
        n: usize,
        filter: u64,
    ) -> Result<Option<FilterResult>, Damage> {
        let settings = &self.hbf.settings;
        let others = table.messages.get(n..).unwrap_or_default().iter();
        let within = others.map_while(|position| match position.filters(settings) {
            Some(filters) => (filters == (filter, filter)).then_some(Some(position.blocks)),
            None => Some(None),
        });
        let Some(blocks) = within.flatten().max().map(u64::from) else { return Ok(None) };
        let mut bytes = Vec::new();
        table.read_filters(body, (filter, filter), &mut bytes)?;
        self.prepare(blocks);
        let found = self.search_filter(&bytes, table.bits, blocks);
        Ok(Some(FilterResult { filter, found, fill: filter::fill(&bytes) }))
    }

    /// Searches one message of a body.
    fn sealed_one(
        &mut self,
        body: &Body<'_>,
        table: &Table,
        number: usize,
        LastFilter { bytes, result }: &mut LastFilter,
    ) -> Result<Option<Hit>, Damage> {
        let position = table.messages.get(number);
        let Some(position) = position else { return Ok(None) };
        let Some((first, last)) = position.filters(&self.hbf.settings) else { return Ok(None) };
        let hit_in = |result: &Option<FilterResult>, filter: u64| {
            let result = result.filter(|result| result.filter == filter)?;
            Some((result.found?, result.fill))
        };
        let mut found = hit_in(result, first);
        if result.is_none_or(|result| result.filter != last) {
            // If the message begins in another filter, the messages that
            // are entirely in its last one follow it.
            let next = number + usize::from(first < last);
            *result = self.result_of(body, table, next, last)?;
            found = found.or_else(|| hit_in(result, last));
        }
        if first < last {
            table.read_filters(body, (first, last), bytes)?;
            self.prepare(position.blocks.into());
            let own = self.search_filters(position, bytes, first, table.bits);
            found = own.map(|own| (own, filter::fill(bytes))).or(found);
        }
        let hit = |((present, of), fill)| Hit {
            message: number as u32,
            present,
            of,
            fill,
            passage: None,
            within: None,
        };
        Ok(found.map(hit))
    }
}

/// What is kept from one message of a body to the next.
#[derive(Default)]
struct LastFilter {
    bytes: Vec<u8>,
    /// The result of the last filter.
    result: Option<FilterResult>,
}

impl Search for HbfSearch<'_> {
    fn digests(&mut self, digests: &[&[u8]], hit: &mut dyn FnMut(Hit)) {
        if self.is_empty() {
            return;
        }
        for (message, digest) in (0..).zip(digests) {
            let Some((blocks, files)) = digest::parse(digest) else { continue };
            let count = blocks.len() as u64;
            self.searched += 1;
            self.offsets += count;
            let names = levels::all(&self.hbf.hashing, blocks);
            let has = |group: Group, name: u64| {
                let place = (group.number as usize) << group.level;
                names.get(group.level as usize).and_then(|names| names.get(place)) == Some(&name)
            };
            let found = self.find(count, |_, _, _| true, has, |file| files.contains(&file));
            if let Some((present, of)) = found {
                hit(Hit { message, present, of, fill: 0.0, passage: None, within: None });
            }
        }
    }

    fn sealed(
        &mut self,
        body: &Body<'_>,
        messages: u32,
        hit: &mut dyn FnMut(Hit),
    ) -> Result<(), Unsearched> {
        let table = Table::read(self.hbf, body, messages)
            .map_err(|damage| Unsearched { messages, damage })?;
        if self.is_empty() {
            return Ok(());
        }
        let (mut state, mut unsearched) = (LastFilter::default(), None);
        for number in 0..table.messages.len() {
            match self.sealed_one(body, &table, number, &mut state) {
                Ok(found) => found.into_iter().for_each(&mut *hit),
                Err(damage) => Unsearched::add(&mut unsearched, 1, damage),
            }
        }
        unsearched.map_or(Ok(()), Err)
    }

    /// A filter mixes the blocks of many messages, and messages with a common phrase at one
    /// position are far more alike than the independent elements of [`Self::chance`]. So
    /// there is no number.
    fn expected(&self, _share: f64) -> Option<f64> {
        None
    }

    fn chance(&self, hit: &Hit) -> f64 {
        // Hashes of 64 bits may collide as well.
        let one = f64::from(hit.fill).powi(self.hbf.settings.probes.into()).max(0.5_f64.powi(64));
        let offsets = self.offsets as f64 / self.searched.max(1) as f64;
        if hit.present < hit.of {
            // As many elements, at any of the positions; at least that.
            let (present, of) = (f64::from(hit.present), f64::from(hit.of));
            let ways =
                (0..hit.of - hit.present).map(|n| ((of - f64::from(n)) / f64::from(n + 1)).ln());
            let trials = offsets * f64::from(self.hbf.settings.block);
            return (trials.ln() + ways.sum::<f64>() + present * one.ln()).exp().min(1.0);
        }
        let parts = self.chains.iter().flatten();
        let parts = parts.map(|part| -(-part.excerpt.expected(offsets, one)).exp_m1());
        parts.product::<f64>() * one.powi(self.files.len() as i32)
    }
}
