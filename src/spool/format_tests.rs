//! `FORMAT.md` says what the code says.

use std::collections::BTreeMap;

use super::format::*;
use super::tests::{change, open};
use crate::store::{FilterChange, Store};

/// Every field in the tables of `FORMAT.md`: offset and size.
fn documented() -> BTreeMap<String, (usize, usize)> {
    let mut fields = BTreeMap::new();
    for line in include_str!("FORMAT.md").lines() {
        let cells: Vec<_> = line.split('|').map(str::trim).collect();
        let [_, offset, size, field, _, _] = cells[..] else { continue };
        let (Ok(offset), Ok(size)) = (offset.parse(), size.parse()) else { continue };
        let field = field.trim_matches('`').to_owned();
        assert_eq!(fields.insert(field.clone(), (offset, size)), None, "{field} twice");
    }
    fields
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
        ("database", DATABASE_BYTES),
        ("header", HEADER_BYTES),
        ("record", FILTER_KEY),
        ("state", STATE_BYTES),
    ];
    assert_eq!(documented().len(), 5 + 15 + 8 + 6);
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
        ("header.crc", HEADER_CRC),
        ("header.flags", FLAGS),
        ("header.heap_end", HEAP_END),
        ("header.live", LIVE),
        ("header.dead", DEAD),
        ("record.crc", HEAD_CRC),
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
    let identity = Identity { magic: DATABASE_MAGIC, version: 1, shards: 256, key: [3; 16] };
    let bytes = identity.encode();
    assert_eq!(field(&bytes, "database.magic"), b"EXIRATED");
    assert_eq!(field(&bytes, "database.version"), 1u32.to_le_bytes());
    assert_eq!(field(&bytes, "database.shards"), 256u32.to_le_bytes());
    assert_eq!(field(&bytes, "database.key"), [3; 16]);

    let header = Header {
        magic: SHARD_MAGIC,
        version: 1,
        shard: 2,
        key: [3; 16],
        capacity: 4,
        heap_start: 5,
        generation: 6,
        reserved: 7,
    };
    let bytes = header.encode();
    assert_eq!(field(&bytes, "header.magic"), b"EXIRATES");
    assert_eq!(field(&bytes, "header.version"), 1u32.to_le_bytes());
    assert_eq!(field(&bytes, "header.shard"), 2u32.to_le_bytes());
    assert_eq!(field(&bytes, "header.key"), [3; 16]);
    assert_eq!(field(&bytes, "header.capacity"), 4u64.to_le_bytes());
    assert_eq!(field(&bytes, "header.heap_start"), 5u64.to_le_bytes());
    assert_eq!(field(&bytes, "header.generation"), 6u64.to_le_bytes());
    assert_eq!(field(&bytes, "header.reserved"), 7u32.to_le_bytes());

    let head = Head { bytes: 1, key_bytes: 2, flags: 3, filter_bytes: 4 };
    let bytes: [u8; HEAD_CRC] = encode(&head);
    assert_eq!(field(&bytes, "record.bytes"), 1u32.to_le_bytes());
    assert_eq!(field(&bytes, "record.key_bytes"), 2u16.to_le_bytes());
    assert_eq!(field(&bytes, "record.flags"), 3u16.to_le_bytes());
    assert_eq!(field(&bytes, "record.filter_bytes"), 4u32.to_le_bytes());

    let state = State { at: -1, rate: 2.5, limit: 3.5, over_since: 4, sequence: 5 };
    let bytes: [u8; STATE_CRC] = encode(&state);
    assert_eq!(field(&bytes, "state.at"), (-1i64).to_le_bytes());
    assert_eq!(field(&bytes, "state.rate"), 2.5f64.to_le_bytes());
    assert_eq!(field(&bytes, "state.limit"), 3.5f64.to_le_bytes());
    assert_eq!(field(&bytes, "state.over_since"), 4u32.to_le_bytes());
    assert_eq!(field(&bytes, "state.sequence"), 5u32.to_le_bytes());
}

/// A reader that knows nothing but FORMAT.md finds a record in a real file.
#[test]
fn a_file_reads_as_documented() {
    let folder = tempfile::tempdir().unwrap();
    let mut spool = open(folder.path());
    let filter = FilterChange::Renew { bytes: 43, epoch: 77, event: crate::rate::bloom::Event(0) };
    spool.update(b"key", None, |_, _| ((), Some(change(9, filter)))).unwrap();
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
    assert_eq!(start, 128 + 8 * capacity);
    let low40 = (1 << 40) - 1;
    assert_eq!(number(field(&bytes, "header.live")) & low40, 1);
    let entries: Vec<_> = (0..capacity as usize)
        .map(|slot| number(&bytes[128 + slot * 8..][..8]) ^ 0xA5A5_A5A5_FFFF_FFFF)
        .filter(|&entry| entry != 0)
        .collect();
    let [entry] = entries[..] else { panic!("{entries:?}") };
    let record = &bytes[(entry as u32 as usize) * 8..];
    assert_eq!(number(field(record, "record.bytes")), 96 + 8 + 48);
    assert_eq!(number(field(record, "record.filter_bytes")), 43);
    assert_eq!(number(field(record, "record.epoch")) & low40, 77);
    assert_eq!(&record[96..99], b"key");
    let state = field(record, "record.state_a");
    assert_eq!(field(state, "state.rate"), 9f64.to_le_bytes());
    assert_eq!(number(field(state, "state.sequence")), 1);
    let end = number(field(&bytes, "header.heap_end")) & low40;
    assert_eq!(end, start + number(field(record, "record.bytes")));
}
