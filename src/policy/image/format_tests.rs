//! `IMAGE.md` says what the code says.

use std::collections::BTreeMap;
use std::path::Path;

use super::build_with;
use super::layout::*;
use crate::engine::BlockTime;
use crate::policy::source::compile;
use kit::fields;

/// Every field in the tables of `IMAGE.md`: offset and size.
fn documented() -> BTreeMap<String, (usize, usize)> {
    fields::documented(include_str!("IMAGE.md"))
}

/// The bytes of a documented field of what begins at `start`.
fn field<'a>(bytes: &'a [u8], start: usize, name: &str) -> &'a [u8] {
    let (offset, size) = documented()[name];
    &bytes[start + offset..start + offset + size]
}

fn number(bytes: &[u8], start: usize, name: &str) -> u32 {
    u32::from_le_bytes(field(bytes, start, name).try_into().unwrap())
}

#[test]
fn tables_have_no_gaps_and_the_sizes_of_the_code() {
    let mut documented: Vec<_> = documented().into_iter().collect();
    documented
        .sort_by_key(|(name, (offset, _))| (name.split('.').next().map(str::to_owned), *offset));
    let mut ends = BTreeMap::new();
    for (name, (offset, size)) in &documented {
        let end = ends.entry(name.split('.').next().unwrap()).or_insert(0);
        assert_eq!(end, offset, "{name}");
        *end += size;
    }
    let sizes = [
        ("amount", 1 + 1 + 4),
        ("header", HEADER_BYTES),
        ("item", ITEM_BYTES),
        ("row", ROW_HEAD_BYTES),
        ("slot", SLOT_BYTES),
        ("window", 1 + 8 + 8 + 4),
    ];
    assert_eq!(ends.into_iter().collect::<Vec<_>>(), sizes);
}

#[test]
fn offsets_are_those_of_the_code() {
    let documented = documented();
    for (field, offset) in [
        ("header.version", HEADER_VERSION),
        ("header.key", HEADER_KEY),
        ("header.length", HEADER_LENGTH),
        ("header.directory", HEADER_DIRECTORY),
        ("header.identity", HEADER_IDENTITY),
        ("header.on_crossing", HEADER_ON_CROSSING),
        ("header.crc", HEADER_CRC),
        ("header.superseded", HEADER_SUPERSEDED),
    ] {
        assert_eq!(documented[field].0, offset, "{field}");
    }
}

#[test]
fn codes_are_those_of_the_document() {
    use crate::policy::word::Unit;
    let document = include_str!("IMAGE.md").split_whitespace().collect::<Vec<_>>().join(" ");
    for &unit in Unit::ALL {
        let code = format!("{} `{}`", unit_code(unit), unit.word());
        assert!(document.contains(&code), "{code}");
    }
}

/// Reads an image by the words of the document alone.
#[test]
fn an_image_is_as_documented() {
    let text = "version = 1\n[policy.p.default]\nmessages = \"100/1h\"\n[policy.p.user.alice]\n\
                bytes = \"1k/1m\"\nhabits = \"hold\"\n[policy.p.customer.acme]\nusers = [\"alice\"]\n\
                total.bytes = \"2k/1m\"\n[[policy.p.exempt]]\nmatch = \"bob\"\n\
                until = 1970-01-01T00:01:40Z\n";
    let none = |_: &Path| Err(String::new());
    let policies = compile(Path::new("p"), text, &none).policies.unwrap();
    let image = build_with(&policies, [7; 16]);

    assert_eq!(field(&image, 0, "header.magic"), b"EXIRATEP");
    assert_eq!(number(&image, 0, "header.version"), 4);
    let mut blocking = policies.clone();
    blocking.on_crossing.deny = Some(BlockTime::UntilLifted);
    assert_eq!(number(&build_with(&blocking, [7; 16]), 0, "header.version"), 5);
    assert_eq!(field(&image, 0, "header.key"), [7; 16]);
    assert_eq!(field(&image, 0, "header.length"), (image.len() as u64).to_le_bytes());
    let crc = |seed: u32, bytes: &[u8]| {
        let mut hasher = crc32fast::Hasher::new_with_initial(seed);
        hasher.update(bytes);
        hasher.finalize()
    };
    assert_eq!(number(&image, 0, "header.crc"), crc(0, &image[..56]));
    assert_eq!(field(&image, 0, "header.superseded"), [0; 8]);

    let seed = crc(0, &[7; 16]);
    let row = |position: u32| {
        let start = position as usize * 8;
        let length = number(&image, start, "row.length") as usize;
        let contents = &image[start + 8..start + 8 + length];
        let length = field(&image, start, "row.length");
        assert_eq!(
            number(&image, start, "row.crc"),
            crc(seed ^ position, &[length, contents].concat())
        );
        contents
    };
    let word = |bytes: &[u8], at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    let directory = row(number(&image, 0, "header.directory"));
    assert_eq!(directory[..9], [&[1, 0, 0, 0], &[1, 0, 0, 0], &b"p"[..]].concat());
    row(number(&image, 0, "header.identity"));
    row(number(&image, 0, "header.on_crossing"));

    // The limits and tables of the policy follow its longest delay, 30 s, and the flag of habits.
    let policy = row(word(directory, 9));
    let delay = 30f64.to_le_bytes();
    let start = policy.windows(8).position(|bytes| bytes == delay).unwrap() + 9;
    assert_eq!(policy[start - 1], 1);
    let default = &policy[start + 4..start + 4 + word(policy, start) as usize];
    assert_eq!(field(default, 0, "amount.kind"), [0]);
    assert_eq!(field(default, 0, "amount.unit"), [0]);
    assert_eq!(number(default, 0, "amount.length") as usize, default.len() - 6);
    assert_eq!(field(default, 6, "window.unit"), [0]);
    assert_eq!(field(default, 6, "window.limit"), 100f64.to_le_bytes());
    assert_eq!(field(default, 6, "window.period"), 3600f64.to_le_bytes());
    assert_eq!(default[6 + 21..], *b"100/1h");

    // The value of the only entry of a table with one slot.
    let value = |table: usize, name: &[u8]| {
        assert_eq!(word(policy, table + 4), 1);
        let slot = word(policy, table);
        let found = number(&image, slot as usize * 8, "slot.row");
        assert_eq!(
            number(&image, slot as usize * 8, "slot.crc"),
            crc(seed ^ slot, &found.to_le_bytes())
        );
        let entry = row(found);
        assert_eq!(entry[8..8 + word(entry, 0) as usize], *name);
        assert_eq!(word(entry, 4) as usize, entry.len() - 8 - name.len());
        &entry[8 + name.len()..]
    };
    let tables = start + 4 + default.len();
    let acme = word(value(tables + 8, b"acme"), 0);
    assert_eq!(row(acme)[..12], [&[4, 0, 0, 0][..], b"acme", &[0; 4]].concat());
    assert_eq!(field(row(acme), 12, "amount.kind"), [1]);
    assert_eq!(field(row(acme), 18, "window.limit"), 2048f64.to_le_bytes());
    let alice = value(tables + 24, b"alice");
    assert_eq!((word(alice, 0), word(alice, 4)), (0, acme));
    assert_eq!(field(alice, 8, "amount.unit"), [5]);
    assert_eq!(field(alice, 14, "window.limit"), 1024f64.to_le_bytes());
    let habits = 14 + 21 + number(alice, 14, "window.length") as usize;
    assert_eq!(field(alice, habits, "amount.kind"), [3]);
    assert_eq!(field(alice, habits, "amount.unit"), [0]);
    assert_eq!(number(alice, habits, "amount.length"), 10);
    assert_eq!(alice[habits + 6..], [&[1, 4, 0, 0, 0][..], b"hold", &[0]].concat());
    let bob = value(tables + 32, b"bob");
    assert_eq!(word(bob, 0) as usize, ITEM_BYTES);
    assert_eq!(field(bob, 4, "item.until"), 100i64.to_le_bytes());
    assert_eq!(number(bob, 4, "item.number"), 0);
    assert_eq!(number(bob, 4, "item.flags"), 1);
    let entry = row(number(bob, 4, "item.row"));
    assert_eq!(entry[..10], [&[1][..], &100i64.to_le_bytes(), &[0]].concat());
    assert_eq!(row(word(entry, 10)), [&[1, 0, 0, 0, 0, 3, 0, 0, 0][..], b"bob"].concat());
    assert_eq!(row(word(entry, 14)), [0; 4]);
}
