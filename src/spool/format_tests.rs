//! `FORMAT.md` says what the code says.

use std::collections::BTreeMap;

use siphasher::sip128::{Hash128 as SipHash, SipHasher24};

use super::events::{EVENT_BYTES, WINDOW_BYTES};
use super::forget::forgettable;
use super::format::*;
use super::hashing::Hashing;
use super::slots::SLOT_BYTES;
use super::tests::{change, open};
use crate::engine::{FilterChange, RecordKey};
use crate::rate::Timestamp;
use crate::rate::bloom::{self, Event};
use crate::rate::habits::Habits;
use crate::store::LIST_HEADER_BYTES;
use kit::fields;

/// Every field in the tables of `FORMAT.md`: offset and size.
fn documented() -> BTreeMap<String, (usize, usize)> {
    fields::documented(include_str!("FORMAT.md"))
}

/// The fields of one table, in order.
fn table(name: &str) -> Vec<(String, usize, usize)> {
    let mut fields: Vec<_> = documented()
        .into_iter()
        .filter_map(|(field, (offset, size))| {
            Some((field.strip_prefix(name)?.strip_prefix('.')?.to_owned(), offset, size))
        })
        .collect();
    fields.sort_by_key(|field| field.1);
    fields
}

#[test]
fn tables_have_no_gaps_and_the_sizes_of_the_code() {
    let sizes = [
        ("database", DATABASE_FILE_BYTES),
        ("header", HEADER_BYTES),
        ("record", FILTER_KEY),
        ("state", STATE_BYTES),
        ("overrides", LIST_HEADER_BYTES),
        ("event", EVENT_BYTES),
        ("window", WINDOW_BYTES),
        ("slot", SLOT_BYTES),
    ];
    assert_eq!(documented().len(), 13 + 23 + 12 + 10 + 5 + 16 + 8 + 3);
    for (name, bytes) in sizes {
        let end = table(name).iter().fold(0, |end, (field, offset, size)| {
            assert_eq!(end, *offset, "{name}.{field}");
            end + size
        });
        assert_eq!(end, bytes, "{name}");
    }
}

#[test]
fn offsets_are_those_of_the_code() {
    let documented = documented();
    for (field, offset) in [
        ("database.crc", DATABASE_CRC),
        ("database.zeros", DATABASE_BYTES),
        ("database.word", DATABASE_WORD),
        ("database.crossings_bytes", DATABASE_EVENTS),
        ("database.events_crc", DATABASE_EVENTS + EVENT_LIMITS_BYTES - 4),
        ("header.crc", HEADER_CRC),
        ("header.flags", FLAGS),
        ("header.heap_end", HEAP_END),
        ("header.live", LIVE),
        ("header.dead", DEAD),
        ("header.tidied", TIDIED),
        ("header.forgotten", FORGOTTEN),
        ("header.evicted", EVICTED),
        ("header.dropped", DROPPED),
        ("header.waits", WAITS),
        ("header.largest", LARGEST),
        ("header.lost", LOST),
        ("header.decided", DECIDED),
        ("record.crc", HEAD_CRC),
        ("slot.sequence", Habits::BYTES),
        ("slot.check", SLOT_BYTES - 4),
        ("record.state_a", STATES[0]),
        ("record.state_b", STATES[1]),
        ("record.epoch", EPOCH),
        ("state.crc", STATE_CRC),
    ] {
        assert_eq!(documented[field].0, offset, "{field}");
    }
}

/// The bytes of a documented field.
fn field<'a>(bytes: &'a [u8], name: &str) -> &'a [u8] {
    let (offset, size) = documented()[name];
    &bytes[offset..offset + size]
}

#[test]
fn encoded_fields_are_where_they_are_documented() {
    let identity = Superblock::new([3; 16]);
    let bytes = identity.encode();
    assert_eq!(field(&bytes, "database.magic"), b"EXIRATED");
    assert_eq!(field(&bytes, "database.version"), 2u32.to_le_bytes());
    assert_eq!(field(&bytes, "database.shards"), 256u32.to_le_bytes());
    assert_eq!(field(&bytes, "database.key"), [3; 16]);
    assert_eq!(field(&bytes, "database.max_bytes"), (1u64 << 30).to_le_bytes());

    let header = Header {
        magic: SHARD_MAGIC,
        version: 2,
        shard: 2,
        key: [3; 16],
        capacity: 4,
        heap_start: 5,
        generation: 6,
        reserved: 7,
    };
    let bytes = header.encode();
    assert_eq!(field(&bytes, "header.magic"), b"EXIRATES");
    assert_eq!(field(&bytes, "header.version"), 2u32.to_le_bytes());
    assert_eq!(field(&bytes, "header.shard"), 2u32.to_le_bytes());
    assert_eq!(field(&bytes, "header.key"), [3; 16]);
    assert_eq!(field(&bytes, "header.capacity"), 4u64.to_le_bytes());
    assert_eq!(field(&bytes, "header.heap_start"), 5u64.to_le_bytes());
    assert_eq!(field(&bytes, "header.generation"), 6u64.to_le_bytes());
    assert_eq!(field(&bytes, "header.reserved"), 7u32.to_le_bytes());

    let head = RecordHead {
        bytes: 1,
        key_bytes: 2,
        flags: 3,
        filter_bytes: 4,
        identity_start: 5,
        kind: 6,
        algorithm: 7,
    };
    let bytes: [u8; HEAD_CRC] = encode(&head);
    assert_eq!(field(&bytes, "record.bytes"), 1u32.to_le_bytes());
    assert_eq!(field(&bytes, "record.key_bytes"), 2u16.to_le_bytes());
    assert_eq!(field(&bytes, "record.flags"), 3u16.to_le_bytes());
    assert_eq!(field(&bytes, "record.filter_bytes"), 4u32.to_le_bytes());
    assert_eq!(field(&bytes, "record.identity_start"), 5u16.to_le_bytes());
    assert_eq!(field(&bytes, "record.kind"), [6]);
    assert_eq!(field(&bytes, "record.algorithm"), [7]);

    let state = State {
        at: -1,
        rate: 2.5,
        limit: 3.5,
        period: 6,
        apart: 7.5,
        over_since: 4,
        last_over: 8,
        crossings: 9,
        sequence: 5,
    };
    let bytes: [u8; STATE_CRC] = encode(&state);
    assert_eq!(field(&bytes, "state.at"), (-1i64).to_le_bytes());
    assert_eq!(field(&bytes, "state.rate"), 2.5f64.to_le_bytes());
    assert_eq!(field(&bytes, "state.limit"), 3.5f64.to_le_bytes());
    assert_eq!(field(&bytes, "state.period"), 6u32.to_le_bytes());
    assert_eq!(field(&bytes, "state.apart"), 7.5f32.to_le_bytes());
    assert_eq!(field(&bytes, "state.last_over"), 8u32.to_le_bytes());
    assert_eq!(field(&bytes, "state.crossings"), 9u32.to_le_bytes());
    assert_eq!(field(&bytes, "state.over_since"), 4u32.to_le_bytes());
    assert_eq!(field(&bytes, "state.sequence"), 5u32.to_le_bytes());
}

/// The bits of a filter that stand for the hash `(h1, h2)`, in order.
fn documented_bits((h1, h2): (u64, u64), bits: u64) -> Vec<u64> {
    let formula = "`h1 + g^i·h2` modulo 2^64 for `i` in 0..8, with\n  `g = 0x9E3779B97F4A7C15`";
    assert!(include_str!("FORMAT.md").contains(formula));
    let two_to_64 = 1 << 64;
    let mut power = 1;
    let mut found = std::collections::BTreeSet::new();
    for _ in 0..8 {
        let hash = (u128::from(h1) + power * u128::from(h2) % two_to_64) % two_to_64;
        found.insert((hash * u128::from(bits) / two_to_64) as u64);
        power = power * 0x9E37_79B9_7F4A_7C15 % two_to_64;
    }
    found.into_iter().collect()
}

#[test]
fn an_event_has_the_bits_that_are_documented() {
    for (h1, h2) in [
        (0, 0),
        (u64::MAX, u64::MAX),
        (0xFEDC_BA98_7654_3210, 0xF123_4567_89AB_CDEE),
        (0x8000_0000_0000_0000, 0xFFFF_FFFF_0000_0001),
        (1, 0xC000_0000_0000_0000),
    ] {
        let mut filter = [0; 5_003];
        bloom::insert(&mut filter, Event(u128::from(h1) | u128::from(h2) << 64));
        let bits: Vec<_> = (0..filter.len() * 8)
            .filter(|&n| filter[n / 8] >> (n % 8) & 1 == 1)
            .map(|n| n as u64)
            .collect();
        assert_eq!(bits, documented_bits((h1, h2), 5_003 * 8), "{h1:x} {h2:x}");
    }
}

#[test]
fn records_are_forgotten_when_it_is_documented() {
    let text = include_str!("FORMAT.md");
    for words in ["is under `2^-55`", "of 1 is dropped after 38.2 periods", "of 1000\nafter 45.1."]
    {
        assert!(text.contains(words), "{words}");
    }
    // A period of 100 seconds; now is in tenths of it.
    let goes = |rate: f64, limit: f64, epoch: Option<i64>, tenths: i64| {
        let at = |seconds| Timestamp { seconds, micros: 0 };
        let state = State { at: 1_000_000_000_000, rate, limit, period: 100, ..State::blank(1) };
        forgettable(&state, super::format::MOVING_AVERAGE, epoch, at(1_000_000 + tenths * 10))
    };
    // ln 2^55 = 38.12, and ln 1000 = 6.91 more.
    assert!(!goes(1.0, 10.0, None, 381) && goes(1.0, 10.0, None, 382));
    assert!(!goes(1000.0, 10.0, None, 450) && goes(1000.0, 10.0, None, 451));
    let bound = 2f64.powi(-55);
    assert!(!goes(0.0, 10.0, None, 9) && goes(0.0, 10.0, None, 10));
    // At one period, e^-1 of the rate is left.
    let rate = bound * std::f64::consts::E;
    assert!(!goes(rate * 1.000_001, 10.0, None, 10) && goes(rate * 0.999_999, 10.0, None, 10));
    // Under the limit, unless there is none to be under.
    let limit = bound / 1024.0;
    assert!(!goes(1.0, limit, None, 450) && goes(1.0, limit, None, 451));
    assert!(goes(1.0, 0.0, None, 382) && goes(1.0, -1.0, None, 382));
    // A filter lives for a whole period, in whole seconds.
    let begun = Some(1_000_000 + 4_000);
    assert!(!goes(1.0, 10.0, begun, 410) && goes(1.0, 10.0, begun, 411));
    // The clock was set back.
    assert!(!goes(0.0, 10.0, None, -1_000_000));
}

#[test]
fn a_name_has_the_place_that_is_documented() {
    let text = "For each 8 bytes, read as a number `w`, the last filled up with zeros,\n  \
                `f` becomes `(f ^ w) · 0x9E3779B97F4A7C15` modulo 2^64, and then `f ^ (f >> 32)`.";
    assert!(include_str!("FORMAT.md").contains(text));
    let SipHash { h1, h2 } = SipHasher24::new_with_key(&[5; 16]).hash(b"exirate key");
    let SipHash { h1, h2 } = SipHasher24::new_with_keys(h1, h2).hash(b"alice");
    let hashing = Hashing::new([5; 16]);
    for (prefix, words) in [
        ("", vec![]),
        ("1h/", vec![*b"1h/\0\0\0\0\0"]),
        ("12345678", vec![*b"12345678"]),
        ("1h/per_rcpt/", vec![*b"1h/per_r", *b"cpt/\0\0\0\0"]),
    ] {
        let mut f = 0_u128;
        for word in words {
            f = (f ^ u128::from(u64::from_le_bytes(word))) * 0x9E37_79B9_7F4A_7C15 % (1 << 64);
            f ^= f >> 32;
        }
        let name = format!("{prefix}alice");
        let place =
            hashing.place(RecordKey { identity_start: prefix.len(), ..name.as_bytes().into() });
        let slot = h2 ^ f as u64;
        assert_eq!((place.shard, place.tag), ((h1 >> 56) as u8, (slot >> 32) as u32));
        let start = u128::from(slot % (1 << 32)) * 1000 / (1 << 32);
        assert_eq!(place.start(1000) as u128, start, "{prefix}");
    }
}

/// A reader that knows nothing but FORMAT.md finds a record in a real file.
#[test]
fn a_file_reads_as_documented() {
    let folder = tempfile::tempdir().unwrap();
    let mut spool = open(folder.path());
    spool
        .update(b"key", Some(b"event"), |_, event| {
            let event = event.unwrap();
            ((), Some(change(9, FilterChange::Renew { bytes: 43, epoch: 77, event })))
        })
        .unwrap();
    let directory = folder.path().join("exirate");
    let name = std::fs::read_dir(&directory)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .find(|name| name.ends_with(".shard"))
        .unwrap();
    let bytes = std::fs::read(directory.join(&name)).unwrap();
    let number = |bytes: &[u8]| bytes.iter().rev().fold(0u64, |sum, &b| sum << 8 | u64::from(b));
    assert_eq!(format!("{:02x}.shard", number(field(&bytes, "header.shard"))), name);
    let (capacity, start) =
        (number(field(&bytes, "header.capacity")), number(field(&bytes, "header.heap_start")));
    assert_eq!(start, 192 + 8 * capacity);
    let low40 = (1 << 40) - 1;
    assert_eq!(number(field(&bytes, "header.live")) & low40, 1);
    let entries: Vec<_> = (0..capacity as usize)
        .map(|slot| number(&bytes[192 + slot * 8..][..8]) ^ 0xA5A5_A5A5_FFFF_FFFF)
        .filter(|&entry| entry != 0)
        .collect();
    let [entry] = entries[..] else { panic!("{entries:?}") };
    let record = &bytes[(entry as u32 as usize) * 8..];
    assert_eq!(number(field(record, "record.bytes")), 136 + 8 + 48);
    assert_eq!(number(field(record, "record.filter_bytes")), 43);
    assert_eq!(number(field(record, "record.epoch")) & low40, 77);
    assert_eq!(&record[136..139], b"key");
    let state = field(record, "record.state_a");
    assert_eq!(field(state, "state.rate"), 9f64.to_le_bytes());
    assert_eq!(number(field(state, "state.sequence")), 1);
    let bits: Vec<_> = (0..43 * 8)
        .filter(|&n| record[144 + n / 8] >> (n % 8) & 1 == 1)
        .map(|n| n as u64)
        .collect();
    let key = field(&std::fs::read(directory.join("database")).unwrap(), "database.key").to_vec();
    let h = |h1_h2: (u64, u64), text: &[u8]| {
        let hash = SipHasher24::new_with_keys(h1_h2.0, h1_h2.1).hash(text);
        (hash.h1, hash.h2)
    };
    let root = (number(&key[..8]), number(&key[8..]));
    let (h1, h2) = h(h(root, b"exirate key"), b"key");
    assert_eq!(h1 >> 56, number(field(&bytes, "header.shard")));
    assert_eq!(h2 >> 32, entry >> 32);
    assert_eq!(bits, documented_bits(h(h(root, b"exirate event"), b"event"), 43 * 8));
    let end = number(field(&bytes, "header.heap_end")) & low40;
    assert_eq!(end, start + number(field(record, "record.bytes")));
}
