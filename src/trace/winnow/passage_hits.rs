//! The hits of a query for passages of one or several texts.

use std::collections::BTreeMap;

use crate::trace::{Body, Damage, Hit, Passage, filter};

use super::class::Class;
use super::octave::Octave;
use super::passage::{Passages, Run};

/// The texts of which passages are searched for, each by itself.
#[derive(Default)]
pub(super) struct AllPassages(pub(super) Vec<Passages>);

impl AllPassages {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The text of the part with this number.
    pub(super) fn of_part(&self, part: u32) -> Option<&Passages> {
        self.0.iter().find(|passages| passages.part == part)
    }

    /// The messages of an octave that have a passage of each text, with their hits: those of
    /// `others` if there are other parts as well.
    pub(super) fn in_octave(
        &self,
        body: &Body<'_>,
        octave: &Octave,
        mut others: Option<Vec<Hit>>,
    ) -> Result<Vec<Hit>, Damage> {
        for passages in &self.0 {
            if others.as_ref().is_some_and(Vec::is_empty) {
                break;
            }
            let runs = passages.in_octave(body, octave)?;
            let hits = runs.into_iter().map(|(message, fill, run)| {
                (message, hit_of(passages, message, f32::from(fill) / 255.0, &run))
            });
            others = Some(match others {
                None => hits.map(|(_, hit)| hit).collect(),
                Some(others) => {
                    let hits: BTreeMap<u32, Hit> = hits.collect();
                    let both = others
                        .into_iter()
                        .filter_map(|other| Some(longer(other, *hits.get(&other.message)?)));
                    both.collect()
                }
            });
        }
        Ok(others.unwrap_or_default())
    }

    /// The hit of a digest that has a passage of each text.
    pub(super) fn in_digest(&self, message: u32, class: Class, filter: &[u8]) -> Option<Hit> {
        let mut found: Option<Hit> = None;
        for passages in &self.0 {
            let run = passages.in_digest(class, filter)?;
            let hit = hit_of(passages, message, filter::fill(filter), &run);
            found = Some(found.map_or(hit, |other| longer(other, hit)));
        }
        found
    }
}

/// The hit of a message with a passage.
fn hit_of(passages: &Passages, message: u32, fill: f32, run: &Run) -> Hit {
    let passage = Passage { part: passages.part, start: run.bytes.start, end: run.bytes.end };
    Hit {
        message,
        present: run.present,
        of: passages.of(),
        fill,
        passage: Some(passage),
        within: None,
    }
}

/// The hit with the longer passage, if one has any.
pub(super) fn longer(one: Hit, other: Hit) -> Hit {
    let length = |hit: &Hit| hit.passage.map_or(0, |passage| passage.end - passage.start);
    if length(&one) >= length(&other) && one.passage.is_some() { one } else { other }
}
