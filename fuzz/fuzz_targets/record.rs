//! Any bytes as the heap of an otherwise sound shard, with correct checksums:
//! false sizes and offsets.
#![no_main]

use arbitrary::Arbitrary;
use exirate_fuzz::ground::{self, SHARD};
use exirate_fuzz::image::{self, Shard};
use exirate_fuzz::steps::{self, Step};
use libfuzzer_sys::fuzz_target;

/// A record that is sound except for some changes.
#[derive(Arbitrary, Debug)]
struct Fragment {
    /// The number of its key.
    key: u8,
    /// The bits of the rate: any number, or NaN.
    rate: u64,
    at: i64,
    sequence: u32,
    /// The bytes of the filter, if any.
    filter: Option<u8>,
    /// Bytes of the record that are overwritten, by their offset.
    changes: Vec<(u8, u8)>,
    /// The second state is a copy of the first with this sequence number.
    second: Option<u32>,
    /// Whether the checksums of the head and the two states are corrected after
    /// that.
    fix_checksums: bool,
    states: [bool; 2],
    /// So many bytes are removed at its end.
    cut: u8,
    /// The entry in the index: none, the one for its key, or any entry, with
    /// any tag or the right one, so many bytes away.
    entries: Vec<Entry>,
}

#[derive(Arbitrary, Debug)]
enum Entry {
    Right,
    Off { by: i8 },
    Any { slot: u8, tag: Option<u32>, by: i8 },
}

#[derive(Arbitrary, Debug)]
struct Input {
    capacity: u8,
    pieces: Vec<Fragment>,
    /// The bytes after the records, which the file may contain or not.
    tail: Vec<u8>,
    /// The recorded end of the heap, as bytes before the file's end, and the
    /// two counts.
    end: Option<i16>,
    live: Option<u64>,
    dead: Option<u64>,
    /// The time of the last tidying, the counts, and the largest record.
    others: [Option<u64>; 6],
    flags: u8,
    steps: Vec<Step>,
}

impl Fragment {
    fn bytes(&self) -> Vec<u8> {
        let filter = self.filter.map(|bytes| vec![0xFF; usize::from(bytes)]);
        let state = image::State {
            at: self.at,
            rate: f64::from_bits(self.rate),
            limit: 1.0,
            period: ground::period(&ground::key(self.key)),
            over_since: 0,
            sequence: self.sequence,
        };
        let mut bytes = image::record(&ground::key(self.key), state, filter.as_deref());
        if let Some(sequence) = self.second {
            let [first, second] = image::STATES;
            bytes.copy_within(first..first + image::STATE_CRC, second);
            // The sequence is the last number of a state.
            let end = second + image::STATE_CRC;
            bytes[end - 4..end].copy_from_slice(&sequence.to_le_bytes());
        }
        for &(at, byte) in &self.changes {
            if let Some(place) = bytes.get_mut(usize::from(at)) {
                *place = byte;
            }
        }
        if self.fix_checksums {
            image::fix_record_checksums(&mut bytes, self.states);
        }
        bytes.truncate(bytes.len().saturating_sub(usize::from(self.cut)));
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        bytes
    }
}

impl Input {
    fn shard(&self) -> Shard {
        let mut shard = Shard::new(SHARD, 1 + usize::from(self.capacity));
        let mut live = 0;
        for piece in &self.pieces {
            let offset = shard.add(&piece.bytes());
            let key = ground::key(piece.key);
            for entry in &piece.entries {
                live += 1;
                let near = |by: i8| offset.saturating_add_signed(8 * isize::from(by));
                match *entry {
                    Entry::Right => {
                        shard.index_key(&key, offset);
                    }
                    Entry::Off { by } => {
                        shard.index_key(&key, near(by));
                    }
                    Entry::Any { slot, tag, by } => {
                        let tag = tag.unwrap_or(image::Position::of(&key).tag);
                        shard.point(usize::from(slot) % shard.capacity, tag, near(by));
                    }
                }
            }
        }
        shard.bytes.extend(&self.tail);
        shard.set_totals(live);
        let end = self.end.map(|by| shard.bytes.len().saturating_add_signed(8 * isize::from(by)));
        for (at, value) in [
            (image::HEAP_END, end.map(|end| end as u64 / 8 * 8)),
            (image::LIVE, self.live),
            (image::DEAD, self.dead),
        ]
        .into_iter()
        .chain(image::OTHERS.into_iter().zip(self.others))
        {
            if let Some(value) = value {
                shard.word(at, image::sealed(value));
            }
        }
        shard.bytes[image::FLAGS] = self.flags;
        shard
    }
}

fuzz_target!(|input: Input| {
    ground::lay(&input.shard().bytes);
    steps::take(&input.steps);
});
