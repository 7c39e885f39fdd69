//! Where in the body each message is.
//!
//! The scheme chooses an order of its own, most of which is ascending: it
//! consists of runs, in each of which messages are in order of time. So it is
//! enough to know of each message in which run it is.

use std::ops::Range;

use super::blocks::Things;
use super::codes::{Decoders, Reader, Sink, What};

/// How many messages a block has.
pub(super) const EACH: usize = 1024;
/// The bits of a number of messages.
pub(super) const BITS: u32 = 15;

/// The places of a segment that is being made.
#[derive(Debug, Default)]
pub(super) struct Places {
    /// Where in the body each run begins.
    pub(super) starts: Vec<u32>,
    /// The run of each message.
    runs: Vec<u32>,
}

impl Places {
    /// Of a body whose n-th message is `order[n]`; `None` where that is no
    /// order of all messages.
    pub(super) fn of(order: &[u32]) -> Option<Self> {
        let mut starts = Vec::new();
        let mut runs = vec![None; order.len()];
        let mut before = None;
        for (place, &message) in (0..).zip(order) {
            if before.is_none_or(|before| before > message) {
                starts.push(place);
            }
            before = Some(message);
            let run = runs.get_mut(message as usize)?;
            if run.replace(starts.len() as u32 - 1).is_some() {
                return None;
            }
        }
        Some(Self { starts, runs: runs.into_iter().collect::<Option<_>>()? })
    }

    /// How many messages of each run are before `message`.
    fn counts(&self, message: usize) -> Vec<u32> {
        let mut counts = vec![0; self.starts.len()];
        for &run in self.runs.get(..message).unwrap_or(&[]) {
            if let Some(count) = counts.get_mut(run as usize) {
                *count += 1;
            }
        }
        counts
    }
}

impl Things for Places {
    const EACH: usize = EACH;

    fn count(&self) -> usize {
        self.runs.len()
    }

    fn put(&self, range: Range<usize>, sink: &mut dyn Sink) {
        self.counts(range.start).iter().for_each(|&count| sink.bits(count.into(), BITS));
        for &run in self.runs.get(range).unwrap_or(&[]) {
            sink.symbol(What::Run, run);
        }
    }
}

/// A block, ready to be read.
#[derive(Debug)]
pub(super) struct Block<'a> {
    /// Of each run, the place of the first message of it from here on.
    next: Vec<u32>,
    runs: Reader<'a>,
}

impl<'a> Block<'a> {
    /// The block with these bytes; `None` where they make none.
    pub(super) fn of(decoders: &'a Decoders, bytes: &'a [u8], starts: &[u32]) -> Option<Self> {
        let mut runs = Reader::new(decoders, bytes);
        let next = |&start: &u32| start.checked_add(runs.bits.take(BITS)? as u32);
        let next = starts.iter().map(next).collect::<Option<_>>()?;
        Some(Self { next, runs })
    }

    /// Where the first message of a run is from here on.
    pub(super) fn next(&self, run: usize) -> u32 {
        self.next.get(run).copied().unwrap_or(u32::MAX)
    }

    /// The places in the body of its messages, which are so many; `None` where
    /// it makes no sense.
    pub(super) fn places(mut self, count: usize) -> Option<Vec<u32>> {
        (0..count)
            .map(|_| {
                let next = self.next.get_mut(self.runs.symbol(What::Run)? as usize)?;
                let place = *next;
                *next = next.checked_add(1)?;
                Some(place)
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_where_the_order_descends() {
        let places = Places::of(&[1, 4, 0, 2, 3]).unwrap();
        assert_eq!(places.starts, [0, 2]);
        assert_eq!(places.runs, [1, 0, 1, 1, 0]);
        assert_eq!(places.counts(4), [1, 3]);
        assert!(Places::of(&[]).unwrap().starts.is_empty());
        for wrong in [&[0, 0][..], &[1], &[0, 2]] {
            assert!(Places::of(wrong).is_none());
        }
    }
}
