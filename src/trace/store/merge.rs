//! Merging: small segments become a larger one.
//!
//! A log is sealed while it is small, so that most messages are in segments at any moment. So
//! that queries open few files, segments of about the same size are merged: each message is
//! written again once for each power of [`LogLimits::together`]. The result has the name of its newest
//! source and replaces all of them: its head says from which number on.

use std::ops::Range;

use super::log::LogLimits;
use super::names::{self, FileKind, Numbered};
use super::segment::{Origin, Segment, build};
use super::{TraceError, TraceStore};

/// Segments are not merged to more than so many bytes.
const MERGED_BYTES_MAX: u64 = 32 << 20;
/// Only so many of the newest files are considered by a recording process. There are fewer
/// that are small, unless something keeps them from being merged.
pub(super) const NEWEST: usize = 64;

/// How much is merged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Merging {
    /// As many as [`LogLimits::together`] segments of about the same size.
    Some,
    /// All that fit into one.
    All,
}

/// The properties of a segment that matter here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Size {
    messages: u32,
    bytes: u64,
    /// The times of its first and last message.
    times: [i64; 2],
}

impl Size {
    /// That of all of them together.
    fn with(self, other: Self) -> Self {
        Self {
            messages: self.messages.saturating_add(other.messages),
            bytes: self.bytes.saturating_add(other.bytes),
            times: [self.times[0].min(other.times[0]), self.times[1].max(other.times[1])],
        }
    }

    /// Segments of one tier differ in size by less than a factor of `together`.
    fn tier(self, together: u32) -> u32 {
        self.messages.max(1).ilog(together)
    }
}

/// What a segment may have at most.
#[derive(Clone, Copy, Debug)]
struct Most {
    messages: u32,
    bytes: u64,
    /// The seconds between its first and last message: all are removed together.
    span: u64,
    /// So many of about the same size are merged.
    together: u32,
}

impl Most {
    fn allows(self, size: Size) -> bool {
        size.messages <= self.messages
            && size.bytes <= self.bytes
            && size.times[1].saturating_sub(size.times[0]).unsigned_abs() <= self.span
    }

    /// How many of the first segments fit into one.
    fn fitting(self, sizes: &[Size]) -> usize {
        let sums = sizes.iter().scan(None, |sum: &mut Option<Size>, &size| {
            let all = sum.map_or(size, |sum| sum.with(size));
            *sum = Some(all);
            Some(all)
        });
        sums.take_while(|&sum| self.allows(sum)).count()
    }

    /// The segments to be merged next, if these are all, oldest first: of the newest ones that
    /// are at most of some tier, if there are enough of them, those that fit into one.
    fn next(self, sizes: &[Size], merging: Merging) -> Option<Range<usize>> {
        let enough = match merging {
            Merging::Some => self.together as usize,
            Merging::All => 2,
        };
        let tiers = match merging {
            Merging::Some => 0..=self.messages.max(1).ilog(self.together),
            Merging::All => u32::BITS..=u32::BITS,
        };
        for tier in tiers {
            let larger = sizes.iter().rposition(|size| size.tier(self.together) > tier);
            let mut start = larger.map_or(0, |larger| larger + 1);
            while start + enough <= sizes.len() {
                let fitting = self.fitting(sizes.get(start..).unwrap_or_default());
                if fitting >= 2 {
                    return Some(start..start + fitting);
                }
                start += 1;
            }
        }
        None
    }

    /// The same, together with what would be merged after that: so nothing is written twice.
    fn plan(self, sizes: &[Size], merging: Merging) -> Option<Range<usize>> {
        let mut merged: Vec<(Size, Range<usize>)> =
            sizes.iter().enumerate().map(|(at, &size)| (size, at..at + 1)).collect();
        loop {
            let left: Vec<Size> = merged.iter().map(|(size, _)| *size).collect();
            let Some(next) = self.next(&left, merging) else { break };
            let parts: Vec<_> = merged.drain(next.clone()).collect();
            let (first, last) = (parts.first()?.1.start, parts.last()?.1.end);
            let size = parts.into_iter().map(|(size, _)| size).reduce(Size::with)?;
            merged.insert(next.start, (size, first..last));
        }
        merged.into_iter().map(|(_, range)| range).find(|range| range.len() > 1)
    }
}

impl TraceStore {
    /// Merges the newest segments; returns whether there may be more to merge. The lock on
    /// `sealing` is held.
    pub(super) fn merge(&mut self, merging: Merging) -> Result<bool, TraceError> {
        let mut segments = self.mergeable(merging)?;
        let span = self.options.keep.map_or(u64::MAX, |keep| keep / super::append::KEEP_PARTS);
        let LogLimits { merged: messages, together, .. } = self.limits;
        let bytes = MERGED_BYTES_MAX.min(self.options.max_bytes / super::append::KEEP_PARTS);
        let most = Most { messages, bytes, span, together };
        loop {
            let sizes: Vec<Size> = segments.iter().map(|(_, segment)| size_of(segment)).collect();
            let Some(range) = most.plan(&sizes, merging) else { return Ok(false) };
            let start = range.start;
            match self.merge_these(segments.get(range).unwrap_or_default())? {
                None => return Ok(true),
                // What is damaged stays as it is, and so does what is older.
                Some(damaged) => drop(segments.drain(..=start + damaged)),
            }
        }
    }

    /// The newest segments that can be merged with each other, oldest first.
    fn mergeable(&self, merging: Merging) -> Result<Vec<(Numbered, Segment)>, TraceError> {
        let mut found: Vec<(Numbered, Segment)> = Vec::new();
        for numbered in names::list_all(&self.dir)?.into_iter().rev().take(NEWEST) {
            if numbered.kind != FileKind::Segment {
                break;
            }
            let opened = Segment::open(&self.dir, &self.key, &numbered.name());
            let Ok(Some(Ok(segment))) = opened else { break };
            if merging == Merging::Some && segment.head.messages >= self.limits.merged {
                // What is older is as large, or does not fit together.
                break;
            }
            let alike = found.last().is_none_or(|(_, newer)| {
                (newer.head.settings, newer.head.decode)
                    == (segment.head.settings, segment.head.decode)
            });
            if !alike || !segment.settings.keeps_messages_apart() {
                break;
            }
            found.push((numbered, segment));
        }
        found.reverse();
        Ok(found)
    }

    /// Merges these; returns the first of them that is damaged, and then changes nothing.
    fn merge_these(&self, sources: &[(Numbered, Segment)]) -> Result<Option<usize>, TraceError> {
        let (Some((_, first)), Some((numbered, last))) = (sources.first(), sources.last()) else {
            return Ok(None);
        };
        let scheme = last.settings.scheme(&self.key.digest);
        let (mut envelopes, mut digests) = (Vec::new(), Vec::new());
        for (at, (_, segment)) in sources.iter().enumerate() {
            match segment.messages(scheme.as_ref()) {
                Some(these) => {
                    envelopes.extend(these.0);
                    digests.extend(these.1);
                }
                None => return Ok(Some(at)),
            }
        }
        let origin = Origin {
            first: first.head.first,
            number: numbered.number,
            log: last.head.log,
            settings: last.head.settings,
            decode: last.head.decode,
            lost: sources.iter().fold(0, |sum, (_, one)| sum.saturating_add(one.head.lost)),
        };
        let messages = envelopes.into_iter().zip(digests.iter().map(Vec::as_slice));
        let built = build(messages.collect(), origin, scheme.as_ref(), &self.key)?;
        let Some(bytes) = built else { return Ok(Some(sources.len() - 1)) };
        self.write_segment(&bytes, &numbered.name())?;
        for (replaced, _) in sources.iter().rev().skip(1) {
            self.remove(&replaced.name())?;
        }
        Ok(None)
    }

    /// Removes the segments and logs of which a killed process has merged the messages into
    /// another segment, among so many of the newest files. The lock on `sealing` is held.
    pub(super) fn remove_replaced(&self, newest: usize) -> Result<(), TraceError> {
        let mut before = None;
        let mut files = names::list(&self.dir)?.into_iter().rev().take(newest).peekable();
        while let Some(numbered) = files.next() {
            if before.as_ref().is_some_and(|range: &Range<u64>| range.contains(&numbered.number)) {
                self.remove(&numbered.name())?;
            } else if numbered.kind == FileKind::Segment
                && let Ok(Some(Ok(segment))) = Segment::open(&self.dir, &self.key, &numbered.name())
                && let Some(range) = segment.replaces(numbered)
                // To check that all of it is sound takes much longer than to open it.
                && files.peek().is_some_and(|older| range.contains(&older.number))
                && segment.is_sound()
            {
                before = Some(range);
            }
        }
        Ok(())
    }
}

fn size_of(segment: &Segment) -> Size {
    let head = &segment.head;
    Size { messages: head.messages, bytes: segment.bytes(), times: head.times }
}
