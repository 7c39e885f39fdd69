//! The position of each message in the body.
//!
//! The scheme determines the order of messages in the body. It is mostly
//! ascending: it consists of runs, in each of which messages are ordered by
//! time. So it is sufficient to store the run of each message.

use std::ops::Range;

use super::SealedBlock;
use super::bits::BitReader;
use super::blocks::BlockItems;
use super::codes::{Decoders, Sink, SymbolKind, SymbolReader};

/// The number of messages in a block.
pub(super) const EACH: usize = 1024;

/// The number of bits of a count of messages, in a segment of so many.
pub(super) fn bits(messages: usize) -> u32 {
    usize::BITS - messages.leading_zeros()
}

/// The positions of a segment being built.
#[derive(Debug, Default)]
pub(super) struct Positions {
    /// The position in the body at which each run begins.
    pub(super) starts: Vec<u32>,
    /// The run of each message.
    runs: Vec<u32>,
}

impl Positions {
    /// For a body whose n-th message is `order[n]`; `None` if that is not a
    /// permutation.
    pub(super) fn of(order: &[u32]) -> Option<Self> {
        let mut starts = Vec::new();
        let mut runs = vec![None; order.len()];
        let mut before = None;
        for (position, &message) in (0..).zip(order) {
            if before.is_none_or(|before| before > message) {
                starts.push(position);
            }
            before = Some(message);
            let run = runs.get_mut(message as usize)?;
            if run.replace(starts.len() as u32 - 1).is_some() {
                return None;
            }
        }
        Some(Self { starts, runs: runs.into_iter().collect::<Option<_>>()? })
    }

    /// For each run, the number of its messages before `message`.
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

impl BlockItems for Positions {
    const EACH: usize = EACH;

    fn count(&self) -> usize {
        self.runs.len()
    }

    fn put(&self, range: Range<usize>, sink: &mut dyn Sink) {
        let bits = bits(self.runs.len());
        self.counts(range.start).iter().for_each(|&count| sink.bits(count.into(), bits));
        for &run in self.runs.get(range).unwrap_or(&[]) {
            sink.symbol(SymbolKind::Run, run);
        }
    }
}

/// A block for reading.
#[derive(Debug)]
pub(super) struct Block<'a> {
    /// For each run, the position of its next message.
    next: Vec<u32>,
    runs: SymbolReader<'a>,
}

/// The position of the next message of a run, which begins at `start`, from this block on, of a
/// segment of so many messages. Only a few bytes of the block are decrypted.
pub(super) fn next_of(
    block: &SealedBlock<'_>,
    run: usize,
    start: u32,
    messages: u32,
) -> Option<u32> {
    let bits = bits(messages as usize);
    let at = (bits as usize).checked_mul(run)?;
    let end = at.checked_add(bits as usize)?;
    let bytes = block.plain(at / 8..end.div_ceil(8))?;
    start.checked_add(BitReader::from(&bytes, at as u64 % 8).take(bits)? as u32)
}

impl<'a> Block<'a> {
    /// The block with these bytes, of a segment of so many messages; `None` if they are invalid.
    pub(super) fn of(
        decoders: &'a Decoders,
        bytes: &'a [u8],
        starts: &[u32],
        messages: u32,
    ) -> Option<Self> {
        let mut runs = SymbolReader::new(decoders, bytes);
        let bits = bits(messages as usize);
        let next = |&start: &u32| start.checked_add(runs.bits.take(bits)? as u32);
        let next = starts.iter().map(next).collect::<Option<_>>()?;
        Some(Self { next, runs })
    }

    /// The position of the first message of a run from this block on.
    pub(super) fn next(&self, run: usize) -> u32 {
        self.next.get(run).copied().unwrap_or(u32::MAX)
    }

    /// Which of the `count` messages of the block follows `before` others of its run in it.
    pub(super) fn place_of(mut self, run: u32, before: u32, count: usize) -> Option<usize> {
        let mut left = before;
        for place in 0..count {
            if self.runs.symbol(SymbolKind::Run)? == run {
                left = match left.checked_sub(1) {
                    Some(left) => left,
                    None => return Some(place),
                };
            }
        }
        None
    }

    /// The positions in the body of its `count` messages; `None` if they are
    /// invalid.
    pub(super) fn positions(mut self, count: usize) -> Option<Vec<u32>> {
        (0..count)
            .map(|_| {
                let next = self.next.get_mut(self.runs.symbol(SymbolKind::Run)? as usize)?;
                let position = *next;
                *next = next.checked_add(1)?;
                Some(position)
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_where_the_order_descends() {
        let positions = Positions::of(&[1, 4, 0, 2, 3]).unwrap();
        assert_eq!(positions.starts, [0, 2]);
        assert_eq!(positions.runs, [1, 0, 1, 1, 0]);
        assert_eq!(positions.counts(4), [1, 3]);
        assert!(Positions::of(&[]).unwrap().starts.is_empty());
        for wrong in [&[0, 0][..], &[1], &[0, 2]] {
            assert!(Positions::of(wrong).is_none());
        }
    }
}
