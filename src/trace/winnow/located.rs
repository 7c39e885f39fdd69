//! Finds out in which parts of their messages hits are, by their [`marks`](super::marks).

use std::collections::BTreeMap;
use std::ops::Range as Span;

use crate::trace::message_part::ATTACHMENTS_MAX;
use crate::trace::{Body, Damage, Hit, MessagePart, MessageParts, filter};

use super::Winnow;
use super::contained::LnFactorials;
use super::digest::Parsed;
use super::hashing::bit;
use super::marks::{Composition, Marker, Material};
use super::matrix;
use super::octave::{Octave, Range};
use super::passage::Passages;
use super::sealed::Table;

/// If all elements must be present, so many marks of each part are enough.
const MARKS_MAX: usize = 24;
/// The maximum number of elements whose marks are looked up.
const ELEMENTS_MAX: usize = 512;
/// A part is only excluded for another one if fewer than one in so many messages have the marks
/// of the other one by chance.
const CHANCE: f64 = 16.0;

/// The elements of a part of the query.
pub(super) struct Elements {
    pub(super) material: Material,
    pub(super) all: Vec<u64>,
}

/// Finds out in which parts of their messages hits are.
pub(super) struct Locator {
    /// The markers of texts, and of bytes and whole files.
    texts: Vec<(MessagePart, Marker)>,
    bytes: Vec<(MessagePart, Marker)>,
    /// Whether all elements must be present.
    strict: bool,
    factorials: LnFactorials,
}

impl Locator {
    pub(super) fn new(winnow: &Winnow, strict: bool) -> Self {
        let parts: Vec<MessagePart> = std::iter::once(MessagePart::Subject)
            .chain((1..=ATTACHMENTS_MAX).map(MessagePart::Attachment))
            .collect();
        let elements_of = |material| {
            let markers = parts.iter().copied();
            markers.filter_map(|part| Some((part, winnow.marker(part, material)?))).collect()
        };
        let factorials = LnFactorials::up_to(ELEMENTS_MAX as u32);
        Self {
            texts: elements_of(Material::Text),
            bytes: elements_of(Material::Bytes),
            strict,
            factorials,
        }
    }

    /// In which parts of its message a hit is; `is_set` says whether an element is in its filter.
    fn parts(
        &self,
        (elements, passages): (&[Elements], Option<&Passages>),
        hit: &Hit,
        composition: Composition,
        is_set: &mut dyn FnMut(u64) -> Result<bool, Damage>,
    ) -> Result<MessageParts, Damage> {
        if let (Some(passage), Some(passages)) = (hit.passage, passages) {
            let all = passages.within(&(passage.start..passage.end));
            let elements = Elements { material: Material::Text, all };
            // Some elements at its ends are there by chance.
            return self.parts_of(&elements, Needed::Share(1.0), hit, composition, is_set);
        }
        let needed = if self.strict { Needed::All } else { Needed::Share(hit.share()) };
        let mut parts = MessageParts::default();
        for elements in elements {
            parts = parts.and(self.parts_of(elements, needed, hit, composition, is_set)?);
        }
        Ok(parts)
    }

    /// In which parts of a message these elements are.
    fn parts_of(
        &self,
        elements: &Elements,
        needed: Needed,
        hit: &Hit,
        composition: Composition,
        is_set: &mut dyn FnMut(u64) -> Result<bool, Damage>,
    ) -> Result<MessageParts, Damage> {
        let attachments = composition.attachments(ATTACHMENTS_MAX);
        let (markers, others): (_, MessageParts) = match elements.material {
            Material::Text => (&self.texts, composition.texts().collect()),
            // The first attachment has no marks of this kind.
            Material::Bytes => {
                (&self.bytes, (1..=attachments.min(1)).map(MessagePart::Attachment).collect())
            }
        };
        let is_there = |part| match part {
            MessagePart::Attachment(number) => number <= attachments,
            _ => true,
        };
        let markers = || markers.iter().filter(|(part, _)| is_there(*part));
        // As precisely as in a segment.
        let fill = (f64::from(hit.fill) * 255.0).round() / 255.0;
        let fill = fill.clamp(1e-3, 1.0 - 1e-3);
        let (mut certain, mut possible) = (MessageParts::default(), MessageParts::default());
        for (part, marker) in markers() {
            let marks = elements.all.iter().filter_map(|&element| marker.mark(element));
            let marks: Vec<u64> = match needed {
                Needed::All => marks.take(MARKS_MAX).collect(),
                Needed::Share(_) => marks.take(ELEMENTS_MAX).collect(),
            };
            let of = marks.len() as u32;
            let least = match needed {
                Needed::All => of,
                // Halfway between what is there by chance and as many as of the elements.
                Needed::Share(share) => {
                    (f64::from(of) * (share + fill.min(share)) / 2.0).ceil() as u32
                }
            };
            let (mut set, mut missing) = (0, 0);
            for mark in marks {
                if missing > of - least {
                    break;
                }
                let found = is_set(mark)?;
                set += u32::from(found);
                missing += u32::from(!found);
            }
            if set < least {
                continue;
            }
            let tests = if *part == MessagePart::Subject { 1 } else { attachments };
            if self.factorials.tail(of, set, fill) * f64::from(tests) < 1.0 / CHANCE {
                certain.insert(*part);
            } else {
                possible.insert(*part);
            }
        }
        Ok(if certain.is_empty() { possible.and(others) } else { certain })
    }

    /// Finds out in which parts the hit of a digest is.
    pub(super) fn in_digest(
        &self,
        query: (&[Elements], Option<&Passages>),
        hit: Hit,
        digest: &Parsed<'_>,
    ) -> Hit {
        let bits = digest.class.bits();
        let mut is_set = |element| Ok(filter::is_set(digest.filter, bit(element, bits) as usize));
        Hit { within: self.parts(query, &hit, digest.composition, &mut is_set).ok(), ..hit }
    }

    /// Finds out in which parts the hits in an octave are. Each row is read once.
    pub(super) fn in_octave<'p>(
        &self,
        query: (&[Elements], &dyn Fn(u32) -> Option<&'p Passages>),
        (body, table, octave): (&Body<'_>, &Table, &Octave),
        hits: &mut [Hit],
    ) -> Result<(), Damage> {
        let mut range = Range::default();
        for group in &octave.groups {
            let messages: Span<u32> = group.first..group.first.saturating_add(group.messages);
            let mut rows: BTreeMap<u32, Vec<u64>> = BTreeMap::new();
            for hit in hits.iter_mut().filter(|hit| messages.contains(&hit.message)) {
                let composition = table.composition(body, hit.message)?;
                let column = (hit.message - group.first) as usize;
                let mut is_set = |element| {
                    let row = bit(element, octave.rows(group));
                    if let Some(words) = rows.get(&row) {
                        return Ok(matrix::is_set(words, column));
                    }
                    octave.read(body, element, std::iter::once(group), &mut range)?;
                    let words = range.words(octave.place(group, row), group.messages);
                    let words = rows.entry(row).or_insert(words.collect());
                    Ok(matrix::is_set(words, column))
                };
                let (elements, passages) = query;
                let passages = hit.passage.and_then(|passage| passages(passage.part));
                let parts = self.parts((elements, passages), hit, composition, &mut is_set)?;
                hit.within = Some(parts);
            }
        }
        Ok(())
    }
}

/// How many of the marks must be present.
#[derive(Clone, Copy)]
enum Needed {
    All,
    /// More than by chance, if this share of the elements is present.
    Share(f64),
}
