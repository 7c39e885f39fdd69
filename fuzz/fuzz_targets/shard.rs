//! Any bytes as a shard's file, in a database that is used by one process and
//! then by another.
#![no_main]

use arbitrary::Arbitrary;
use exirate_fuzz::ground::{self, SHARD};
use exirate_fuzz::image::Shard;
use exirate_fuzz::steps::{self, Step};
use libfuzzer_sys::fuzz_target;

/// Bytes that overwrite the contents, or are appended.
#[derive(Arbitrary, Debug)]
struct Patch {
    at: u16,
    bytes: Vec<u8>,
}

#[derive(Arbitrary, Debug)]
enum File {
    /// These bytes.
    Any(Vec<u8>),
    /// A sound shard with some keys and these changes.
    Patched {
        capacity: u8,
        keys: u8,
        filters: bool,
        patches: Vec<Patch>,
        /// Other numbers in the header.
        version: Option<u32>,
        stored_capacity: Option<u64>,
        stored_heap_start: Option<u64>,
        /// Whether the header's checksum is corrected after that.
        fix_checksum: bool,
        /// The file is truncated or extended.
        length: Option<u16>,
    },
}

#[derive(Arbitrary, Debug)]
struct Input {
    file: File,
    steps: Vec<Step>,
}

fn bytes(file: File) -> Vec<u8> {
    let File::Patched {
        capacity,
        keys,
        filters,
        patches,
        version,
        stored_capacity,
        stored_heap_start,
        fix_checksum,
        length,
    } = file
    else {
        let File::Any(bytes) = file else { unreachable!() };
        return bytes;
    };
    let mut shard = Shard::new(SHARD, 1 + usize::from(capacity));
    let keys = keys % capacity.max(1);
    for n in 0..keys {
        let bits = filters.then_some(&[0x55; 43][..]);
        shard.insert(&ground::key(n), f64::from(n), bits);
    }
    shard.set_totals(u64::from(keys));
    for Patch { at, bytes } in patches {
        let at = usize::from(at) % shard.bytes.len();
        for (place, byte) in shard.bytes[at..].iter_mut().zip(bytes) {
            *place = byte;
        }
    }
    if let Some(version) = version {
        shard.bytes[8..12].copy_from_slice(&version.to_le_bytes());
    }
    for (at, value) in [(32, stored_capacity), (40, stored_heap_start)] {
        if let Some(value) = value {
            shard.word(at, value);
        }
    }
    if fix_checksum {
        shard.fix_header_checksum();
    }
    if let Some(length) = length {
        shard.bytes.resize(usize::from(length), 0);
    }
    shard.bytes
}

fuzz_target!(|input: Input| {
    ground::lay(&bytes(input.file));
    steps::take(&input.steps);
});
