//! Randomly changed shards, mostly with correct checksums: no panic, no hang,
//! no nonexistent key is listed, written values are read back, and a repair
//! leaves a sound database.

use crate::common::crafted::{SHARD, keys, lay, list, rate, write};
use crate::common::{assert_sound, now, open};
use exirate::spool::{Options, Spool};
use kit::spool_image::{self as image, Shard, State};
use kit::{Random, counts};

const IMAGES: u64 = 1_000;

/// A number that may cause trouble, near `true_one` or unrelated to it.
fn number(random: &mut Random, true_one: u64) -> u64 {
    match random.below(6) {
        0 => true_one.wrapping_add_signed(random.below(33) as i64 - 16),
        1 => [0, 1, 7, 8, 124, 136, 0xFFFF, 2_000_000, u64::from(u32::MAX)][random.below(9)],
        2 => u64::MAX - random.below(256) as u64,
        3 => 1 << random.below(64),
        4 => true_one << random.below(8),
        _ => true_one ^ 1 << random.below(40),
    }
}

/// A record and its known properties.
struct Part {
    key: Vec<u8>,
    offset: usize,
    length: usize,
}

/// A shard that is sound except for some changes.
fn hostile(random: &mut Random, keys: &[Vec<u8>]) -> Shard {
    let mut shard = Shard::new(SHARD, [1, 8, 16, 31, 64, 496][random.below(6)]);
    let known = random.below(keys.len().min(shard.capacity) + 1);
    let mut parts = Vec::new();
    for (n, key) in keys[..known].iter().enumerate() {
        let bits = [None, Some(&[0xC3; 40][..]), Some(&[0xFF; 43]), Some(&[])][random.below(4)];
        let record = image::record(key, State::of(n as f64), bits);
        let offset = shard.add(&record);
        shard.index_key(key, offset);
        parts.push(Part { key: key.clone(), offset, length: record.len() });
    }
    shard.set_totals(known as u64);
    for _ in 0..=random.below(6) {
        change(random, &mut shard, &parts);
    }
    shard
}

fn change(random: &mut Random, shard: &mut Shard, parts: &[Part]) {
    let length = shard.bytes.len();
    let part = (!parts.is_empty()).then(|| &parts[random.below(parts.len())]);
    match (random.below(9), part) {
        // A field of a head.
        (0 | 1, Some(part)) if part.offset + part.length <= length => {
            let record = &mut shard.bytes[part.offset..];
            let (at, size) =
                [(0, 4), (4, 2), (6, 2), (8, 4), (12, 2), (14, 1), (15, 1)][random.below(7)];
            let mut field = [0; 8];
            field[..size].copy_from_slice(&record[at..at + size]);
            let lie = number(random, u64::from_le_bytes(field)).to_le_bytes();
            record[at..at + size].copy_from_slice(&lie[..size]);
            if random.chance(80) {
                image::fix_record_checksums(record, [random.chance(80), random.chance(50)]);
            }
        }
        // An entry with another offset.
        (2 | 3, Some(part)) => {
            let tag = image::Position::of(&part.key).tag;
            let to = number(random, part.offset as u64) as usize % (1 << 35);
            shard.point(random.below(shard.capacity), tag, to);
        }
        // A copy of a record, anywhere.
        (4, Some(part)) if part.offset + part.length <= length => {
            let copy = shard.bytes[part.offset..part.offset + part.length].to_vec();
            let at = shard.heap_start() + random.below(length) / 8 * 8;
            shard.bytes.resize(length.max(at + copy.len()), 0);
            shard.bytes[at..at + copy.len()].copy_from_slice(&copy);
            shard.index_key(&part.key, at);
        }
        // A checked word of the header.
        (5, _) => {
            let words = [image::HEAP_END, image::LIVE, image::DEAD];
            let at = words.into_iter().chain(image::OTHERS).nth(random.below(9)).unwrap();
            let lie = number(random, length as u64);
            shard.word(at, if random.chance(80) { image::sealed(lie) } else { lie });
        }
        // A field of the header, or the flags; not the version, as a later one
        // is simply refused.
        (6, _) if length >= image::INDEX => {
            let at = [12, 32, 40, 48, 56, image::FLAGS][random.below(6)];
            let lie = number(random, 8).to_le_bytes();
            shard.bytes[at..at + 4].copy_from_slice(&lie[..4]);
            shard.fix_header_checksum();
        }
        // Bytes anywhere.
        (7, _) if length > 0 => {
            let at = random.below(length);
            let fill = [0, 0xFF, b'x', random.byte()][random.below(4)];
            let end = length.min(at + [1, 8, 64, 512, 4096][random.below(5)]);
            shard.bytes[at..end].fill(fill);
        }
        // Another length.
        _ => shard.bytes.resize(number(random, length as u64) as usize % (1 << 16), 0),
    }
}

#[test]
fn random_changes_are_survived() {
    let keys = keys(40);
    for seed in 0..IMAGES {
        let random = &mut Random::new(seed);
        let shard = hostile(random, &keys);
        // The image, in case this fails: the output of tests is hidden
        // otherwise.
        println!("image {seed}");
        let folder = lay(&shard);
        let mut reader = Spool::open_existing(folder.path(), Options::default()).unwrap();
        let _ = reader.verify().unwrap();
        list(&mut reader, &folder);
        let mut spool = open(folder.path());
        if random.chance(50) {
            list(&mut spool, &folder);
        }
        for (n, key) in keys.iter().enumerate() {
            if random.chance(50) {
                write(&mut spool, key, n as f64).unwrap();
                assert_eq!(rate(&mut spool, key), Some(n as f64));
            }
        }
        list(&mut spool, &folder);
        spool.repair(now(), |_| ()).unwrap();
        assert_sound(&mut spool);
        for (n, key) in keys.iter().enumerate() {
            write(&mut spool, key, n as f64).unwrap();
        }
        for (n, key) in keys.iter().enumerate() {
            assert_eq!(rate(&mut spool, key), Some(n as f64));
        }
        assert_sound(&mut spool);
    }
    counts::record("hostile images tried", IMAGES);
}
