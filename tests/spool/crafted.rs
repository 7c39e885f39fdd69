//! Files with false sizes, offsets and counts but correct checksums. Exim's own
//! ratelimit once trusted such a size (CVE-2025-67896).

use crate::common::crafted::{SHARD, keys, lay, list, path, rate, sound, use_all, write};
use crate::common::{assert_sound, open};
use kit::counts;
use kit::spool_image::{self as image, Shard, State};

#[test]
fn an_image_equals_a_file_written_by_the_code() {
    for bits in [None, Some(&[0xA5; 43][..])] {
        let keys = keys(20);
        let folder = lay(&sound(&keys, 64, bits).0);
        let mut spool = open(folder.path());
        assert_sound(&mut spool);
        assert_eq!(list(&mut spool, &folder), keys.len());
        for (n, key) in keys.iter().enumerate() {
            let entry = spool.get(key).unwrap().unwrap();
            assert_eq!(entry.average.rate, n as f64);
            assert_eq!(entry.filter.as_ref().map(|filter| &*filter.bits), bits);
        }
        assert_eq!(spool.damaged(), 0);
        assert!(spool.take_incidents().is_empty());
    }
}

#[test]
fn false_sizes_lose_only_their_own_record() {
    let keys = keys(9);
    let mut tried = 0;
    for bits in [None, Some(&[0xFF; 43][..])] {
        let (sound, offsets) = sound(&keys, 64, bits);
        let victim = offsets[4];
        let length = (offsets[5] - victim) as u64;
        let lies = [0, 1, 7, 8, 15, 16, 123, 124, 125, 136, 0x7FFF, 0x8000, 0xFFFF, 0x1_0000]
            .into_iter()
            .chain([length - 8, length - 1, length + 1, length + 8, 2 * length, 3 * length])
            .chain([1_999_999, 2_000_000, 2_000_001, 0x7FFF_FFFF, 0x8000_0000])
            .chain([0xFFFF_FF00, 0xFFFF_FFF8, 0xFFFF_FFFF]);
        // `bytes`, `key_bytes`, `flags`, `filter_bytes`: each alone, and with a
        // total size that agrees with the others.
        for ((at, size), lie) in [(0, 4), (4, 2), (6, 2), (8, 4)]
            .into_iter()
            .flat_map(|f| lies.clone().map(move |l| (f, l)))
        {
            for agrees in [false, true] {
                let mut shard = sound.clone();
                let record = &mut shard.bytes[victim..];
                record[at..at + size].copy_from_slice(&lie.to_le_bytes()[..size]);
                if agrees {
                    let number =
                        |bytes: &[u8]| bytes.iter().rfold(0, |n, &b| n << 8 | u64::from(b));
                    let (key, filter) = (number(&record[4..6]), number(&record[8..12]));
                    let head =
                        if record[6] == 1 { image::FILTER_KEY } else { image::PLAIN_KEY } as u64;
                    let whole = (head + key).next_multiple_of(8) + filter.next_multiple_of(8);
                    record[..4].copy_from_slice(&(whole as u32).to_le_bytes());
                }
                image::fix_record_checksums(record, [true, true]);
                let lost = use_all(&lay(&shard), &keys);
                assert!(lost.is_empty() || lost == [4], "{lost:?}, {lie:#x} at {at}");
                tried += 1;
            }
        }
    }
    counts::record("hostile images tried", tried);
}

#[test]
fn a_header_with_a_false_index_is_rebuilt() {
    let keys = keys(20);
    let (sound, _) = sound(&keys, 64, None);
    let length = sound.bytes.len() as u64;
    let start = sound.heap_start() as u64;
    let lies = [
        (0, start),
        (0, image::INDEX as u64),
        (63, start),
        (65, start),
        // A huge index in a short file, with the size the file would have.
        (1 << 20, start),
        (1 << 20, image::INDEX as u64 + (8 << 20)),
        (length / 8, image::INDEX as u64 + length),
        (0xFFFF_FFFF, image::INDEX as u64 + (0xFFFF_FFFF << 3)),
        // Sums and products that overflow.
        (1 << 61, image::INDEX as u64),
        ((1 << 61) + 64, start),
        (u64::MAX, image::INDEX as u64 - 8),
        (u64::MAX / 8, image::INDEX as u64 - 8),
        (64, start + 8),
        (64, 0),
        (64, u64::MAX),
    ];
    for (capacity, heap_start) in lies {
        let mut shard = sound.clone();
        shard.header(32, &capacity.to_le_bytes());
        shard.header(40, &heap_start.to_le_bytes());
        let folder = lay(&shard);
        assert!(use_all(&folder, &keys).is_empty(), "{capacity} entries, heap at {heap_start}");
        assert_sound(&mut open(folder.path()));
        let kept = path(&folder).with_extension("shard.damaged-1");
        assert!(kept.exists());
    }
    // An index that extends into the heap, whose records look like entries, or
    // a heap that extends into the index.
    for (capacity, lost_at_most) in [(32, 20), (72, 20), (1, 20)] {
        let mut shard = sound.clone();
        shard.header(32, &u64::to_le_bytes(capacity));
        shard.header(40, &(image::INDEX as u64 + 8 * capacity).to_le_bytes());
        let folder = lay(&shard);
        assert!(use_all(&folder, &keys).len() <= lost_at_most);
    }
}

#[test]
fn an_impossible_version_or_number_of_shards_is_damage() {
    let keys = keys(5);
    let (sound, _) = sound(&keys, 64, None);
    let mut shard = sound.clone();
    shard.header(8, &0_u32.to_le_bytes());
    let folder = lay(&shard);
    assert!(use_all(&folder, &keys).is_empty());
    assert_sound(&mut open(folder.path()));
    for (at, number) in [(8, 0_u32), (12, 0), (12, 255), (12, u32::MAX)] {
        let folder = lay(&sound);
        let mut bytes = image::database();
        bytes[at..at + 4].copy_from_slice(&number.to_le_bytes());
        let end = bytes.len() - 4;
        let sum = image::checksum(0, &bytes[..end]);
        bytes[end..].copy_from_slice(&sum.to_le_bytes());
        std::fs::write(path(&folder).with_file_name("database"), bytes).unwrap();
        // The key is recovered from the shard.
        assert!(use_all(&folder, &keys).is_empty());
        assert_sound(&mut open(folder.path()));
    }
}

#[test]
fn a_false_end_of_the_heap_never_leads_out_of_the_file() {
    let keys = keys(20);
    let (sound, offsets) = sound(&keys, 64, None);
    let (start, length) = (sound.heap_start() as u64, sound.bytes.len() as u64);
    for end in [
        0,
        1,
        8,
        64,
        start - 8,
        start,
        start + 4,
        start + 8,
        offsets[9] as u64,
        offsets[9] as u64 + 40,
        length - 8,
        length + 1,
        length + 8,
        length + 4096,
        0xFFFF_FFFF,
        1 << 35,
        (1 << 40) - 8,
        (1 << 40) - 1,
    ] {
        let mut shard = sound.clone();
        shard.word(image::HEAP_END, image::sealed(end));
        let folder = lay(&shard);
        // If the end is within the heap, the records after it are overwritten.
        let lost = use_all(&folder, &keys);
        let within = (start..length).contains(&end) && end % 8 == 0;
        assert!(lost.is_empty() || within, "{lost:?} lost with {end}");
        if !within {
            assert_sound(&mut open(folder.path()));
        }
    }
}

#[test]
fn false_counts_are_corrected_by_growth() {
    let keys = keys(600);
    for live in [0, 1, 19, 21, 51, 1 << 20, (1 << 40) - 1] {
        for dead in [0, 8, 65_536, 65_544, (1 << 40) - 1] {
            let (mut shard, _) = sound(&keys[..20], 64, None);
            shard.word(image::LIVE, image::sealed(live));
            shard.word(image::DEAD, image::sealed(dead));
            let folder = lay(&shard);
            let mut spool = open(folder.path());
            for (n, key) in keys.iter().enumerate().skip(20) {
                write(&mut spool, key, n as f64).unwrap();
            }
            for (n, key) in keys.iter().enumerate() {
                assert_eq!(rate(&mut spool, key), Some(n as f64), "{live} live, {dead} dead");
            }
            assert_sound(&mut spool);
        }
    }
}

#[test]
fn an_index_without_a_free_entry_is_rebuilt_whatever_its_counts() {
    let keys = keys(40);
    for live in [0, 8, 16] {
        let (mut shard, _) = sound(&keys[..16], 16, None);
        shard.word(image::LIVE, image::sealed(live));
        let folder = lay(&shard);
        assert!(use_all(&folder, &keys[..16]).is_empty());
        let mut spool = open(folder.path());
        for (n, key) in keys.iter().enumerate().skip(16) {
            assert_eq!(rate(&mut spool, key), None);
            write(&mut spool, key, n as f64).unwrap();
        }
        assert_sound(&mut spool);
    }
}

#[test]
fn entries_that_all_point_at_one_record_are_one_record() {
    // Copied for each entry, it would take 600 MB of memory to list, and of
    // disk to rebuild.
    let keys = keys(3);
    let bits = vec![0x11; 2_000_000];
    let (mut shard, offsets) = sound(&keys[..1], 496, Some(&bits));
    let tag = image::Position::of(&keys[0]).tag;
    for slot in 0..300 {
        shard.point(slot, tag, offsets[0]);
    }
    shard.set_totals(480);
    let folder = lay(&shard);
    let mut spool = open(folder.path());
    assert_eq!(list(&mut spool, &folder), 1);
    // Growth is due.
    write(&mut spool, &keys[1], 1.0).unwrap();
    assert!(std::fs::metadata(path(&folder)).unwrap().len() < 5_000_000);
    assert_eq!(rate(&mut spool, &keys[0]), Some(0.0));
    assert_eq!(rate(&mut spool, &keys[1]), Some(1.0));
    assert_eq!(list(&mut spool, &folder), 2);
    assert_sound(&mut spool);
}

#[test]
fn nested_records_do_not_multiply() {
    // The filter of each extends to the end of the file, over all later ones.
    let keys = keys(303);
    let mut shard = Shard::new(SHARD, 496);
    let start = shard.heap_start();
    let length = 2_000_000;
    let mut heap = vec![0; length];
    for (n, key) in keys[..300].iter().enumerate() {
        let at = n * 160;
        let mut record = image::record(key, State::of(n as f64), Some(&[]));
        let bytes = (length - at) as u32;
        let filter = bytes - record.len() as u32;
        record[..4].copy_from_slice(&bytes.to_le_bytes());
        record[8..12].copy_from_slice(&filter.to_le_bytes());
        image::fix_record_checksums(&mut record, [true, false]);
        heap[at..at + record.len()].copy_from_slice(&record);
    }
    shard.add(&heap);
    for (n, key) in keys[..300].iter().enumerate() {
        shard.index_key(key, start + n * 160);
    }
    shard.set_totals(480);
    let folder = lay(&shard);
    let mut spool = open(folder.path());
    assert!(spool.verify().unwrap().problems().count() > 0);
    assert_eq!(list(&mut spool, &folder), 1);
    for key in &keys[300..] {
        write(&mut spool, key, 1.0).unwrap();
    }
    assert!(std::fs::metadata(path(&folder)).unwrap().len() < 5_000_000);
    assert_eq!(rate(&mut spool, &keys[0]), Some(0.0));
    assert_sound(&mut spool);
}

#[test]
fn entries_with_false_offsets_are_ignored() {
    let keys = keys(12);
    let (sound, offsets) = sound(&keys, 32, None);
    let tag = image::Position::of(&keys[3]).tag;
    let victim = (0..32)
        .find(|slot| {
            let at = image::INDEX + 8 * slot;
            let entry = (u64::from(tag) << 32 | (offsets[3] / 8) as u64) ^ image::EMPTY;
            sound.bytes[at..at + 8] == entry.to_le_bytes()
        })
        .unwrap();
    let length = sound.bytes.len();
    for to in [
        0,
        64,
        image::INDEX,
        image::INDEX + 8 * victim,
        sound.heap_start() - 8,
        // The middle of its own record and of others, another key's record.
        offsets[3] + 8,
        offsets[3] + 16,
        offsets[3] + 48,
        offsets[3] + image::PLAIN_KEY,
        offsets[2] + 8,
        offsets[4],
        offsets[0],
        length - 8,
        length,
        length + 8,
        0xFFFF_FFFE * 8,
    ] {
        for tag in [tag, !tag, image::Position::of(&keys[4]).tag] {
            let mut shard = sound.clone();
            shard.point(victim, tag, to);
            let folder = lay(&shard);
            let lost = use_all(&folder, &keys);
            assert!(lost.is_empty() || lost == [3], "{lost:?} lost with {to}");
        }
    }
    // Every entry is used, with the tag of the key being looked up and another
    // record: a search without end.
    let mut shard = sound.clone();
    for slot in 0..32 {
        shard.point(slot, tag, offsets[slot % 3]);
    }
    let folder = lay(&shard);
    assert!(use_all(&folder, &keys).len() <= keys.len());
    assert_sound(&mut open(folder.path()));
}

#[test]
fn scanning_an_index_takes_linear_time() {
    // If each of half a million entries is looked up, each lookup passes half a
    // million others.
    let keys = keys(2);
    let capacity = 1_000_000;
    let (mut shard, offsets) = sound(&keys, capacity, None);
    let tag = image::Position::of(&keys[1]).tag;
    for slot in 0..capacity / 2 {
        shard.point(slot, !tag, offsets[0]);
    }
    for slot in capacity / 2..capacity {
        shard.point(slot, tag, offsets[1]);
    }
    shard.set_totals(2);
    let folder = lay(&shard);
    let mut spool = open(folder.path());
    let report = spool.verify().unwrap();
    assert!((100..200).contains(&report.problems().count()));
    // A key that is looked up after as many others.
    for slot in 0..capacity {
        shard.point(slot, tag, offsets[0]);
    }
    let folder = lay(&shard);
    use_all(&folder, &keys);
    assert_sound(&mut open(folder.path()));
}

#[test]
fn a_damaged_sparse_file_is_repaired() {
    let keys = keys(20);
    for damaged in [false, true] {
        let (mut shard, _) = sound(&keys, 64, None);
        if damaged {
            shard.word(image::HEAP_END, 1);
        }
        let folder = lay(&shard);
        let file = std::fs::File::options().write(true).open(path(&folder)).unwrap();
        file.set_len(200 << 20).unwrap();
        drop(file);
        assert!(use_all(&folder, &keys).is_empty());
        let disk =
            std::os::unix::fs::MetadataExt::blocks(&std::fs::metadata(path(&folder)).unwrap());
        assert!(disk * 512 < 1 << 20, "{disk} blocks for twenty keys");
        assert_sound(&mut open(folder.path()));
    }
}

#[test]
fn files_of_other_formats_are_quarantined_unchanged() {
    let page = |start: &[u8]| {
        let mut bytes = start.to_vec();
        bytes.resize(8192, 0);
        bytes
    };
    // The first pages of a Berkeley DB hash (like Exim's own hints), of an
    // SQLite database, and of a GNU dbm.
    let berkeley = [
        &[0; 12][..],
        &0x0006_1561_u32.to_le_bytes(),
        &9_u32.to_le_bytes(),
        &4096_u32.to_le_bytes(),
    ];
    let sqlite = b"SQLite format 3\0\x10\0\x01\x01\0\x40\x20\x20\0\0\0\x02";
    let others = [
        page(&berkeley.concat()),
        page(sqlite),
        page(&0x13_57_9a_ce_u32.to_le_bytes()),
        b"100 / 1h / per_rcpt / strict / alice\n".repeat(500),
        b"EXIRATES".repeat(1000),
        b"EXIRATED".to_vec(),
    ];
    let keys = keys(20);
    for bytes in others {
        let folder = lay(&sound(&keys, 64, None).0);
        std::fs::write(path(&folder), &bytes).unwrap();
        assert_eq!(use_all(&folder, &keys).len(), keys.len());
        assert_sound(&mut open(folder.path()));
        let kept = path(&folder).with_extension("shard.damaged-1");
        // The flag of a superseded shard may be set in a file with our magic
        // and version.
        assert_eq!(std::fs::read(kept).unwrap(), bytes);

        let folder = lay(&sound(&keys, 64, None).0);
        let database = path(&folder).with_file_name("database");
        std::fs::write(&database, &bytes).unwrap();
        assert!(use_all(&folder, &keys).is_empty());
        assert_sound(&mut open(folder.path()));
        assert_eq!(std::fs::read(database.with_extension("damaged-1")).unwrap(), bytes);
    }
}
