//! `src/trace/FORMAT.md` says what the code does: a reader that knows nothing
//! but that document finds in a store's files what was recorded.
#![allow(clippy::unwrap_used, clippy::panic)]

mod codes;
mod envelopes;
#[path = "../trace_common/format.rs"]
mod format;

use std::net::IpAddr;

use exirate::trace::{Access, Envelope, Options, Trace, TraceError, trace_directory};
use format::{DOCUMENT, Key, Log, Segment, crc, documented, field, value, values};

/// More than a block of places has.
const MESSAGES: u32 = 1_500;

#[test]
fn tables_have_no_gaps() {
    let all = documented();
    let sizes = [
        ("key", 0, 52),
        ("settings", 0, 52),
        ("start", 0, 48),
        ("log", 48, 88),
        ("status", 0, 40),
        ("record", 0, 36),
        ("segment", 48, 192),
    ];
    let mut fields = 0;
    for (name, start, size) in sizes {
        let mut table: Vec<_> =
            all.iter().filter(|(field, _)| field.split('.').next() == Some(name)).collect();
        table.sort_by_key(|(_, place)| **place);
        let end = table.iter().fold(start, |end, (field, (offset, size))| {
            assert_eq!(end, *offset, "{field}");
            end + size
        });
        assert_eq!(end, size, "{name}");
        fields += table.len();
    }
    assert_eq!(all.len(), fields);
    // What the document says in words.
    for words in [
        "| head | 192 |",
        "| head once more | 192 |",
        "A head at 0 and a copy of it, byte by byte, at 512; the status at 1,024; records\nfrom 1,536 on.",
        "With `K(nonce)` for the\nfirst 32 bytes of the XChaCha20 keystream",
        "so many zeros that the whole is a multiple of 8\nbytes long",
    ] {
        assert!(DOCUMENT.contains(words), "{words}");
    }
}

/// Envelopes of all kinds.
fn envelope(n: u32) -> Envelope {
    let mixed = n.wrapping_mul(2_654_435_761) >> 7;
    let sender = match mixed % 5 {
        0 => String::new(),
        1 => format!("Person{}@Example.ORG", n % 90),
        2 => "nobody".to_owned(),
        _ => format!("person{}@host{}.example", n % 90, n % 70),
    };
    let id = match n % 4 {
        0 => String::new(),
        1 => format!("1r{:04}-0001x{}-3Y", n % 9000, n % 10),
        2 => format!("1r{:04}-0000000{:04}-3YzQ", n % 9000, mixed % 9999),
        _ => format!("<{mixed}.{n}@example.org>"),
    };
    let client = match n % 3 {
        0 => None,
        1 => Some(IpAddr::from([192, 0, (mixed % 3) as u8, (mixed % 250) as u8])),
        _ => Some(IpAddr::from([0x2001, 0xdb8, 0, (n % 5) as u16, 0, 0, 0, mixed as u16])),
    };
    let authenticated = match mixed % 4 {
        0 => String::new(),
        1 => sender.clone(),
        2 => sender.rsplit_once('@').map_or(&*sender, |(local, _)| local).to_owned(),
        // In the order of their bytes, and not of their letters.
        _ => format!("{}{}", ["user", "User"][n as usize % 2], mixed % 100),
    };
    Envelope {
        time: 1_700_000_000 + i64::from(n / 3 * (mixed % 3)),
        id,
        sender,
        recipients: (0..mixed % 4).map(|k| format!("r{}.{k}@example.net", mixed % 200)).collect(),
        client,
        authenticated,
        partial: false,
    }
}

fn store(folder: &std::path::Path) -> Result<Trace, TraceError> {
    let mut trace = Trace::open(&trace_directory(folder), Access::Write)?;
    trace.set_options(Options { keep: None, ..Options::default() })?;
    for n in 0..MESSAGES {
        let text =
            format!("Subject: {n}\n\n{}\n", format!("words of {n}, ").repeat(1 + n as usize % 50));
        trace.record(&envelope(n), text.as_bytes())?;
    }
    Ok(trace)
}

#[test]
fn a_store_reads_as_documented() {
    let folder = tempfile::tempdir().unwrap();
    let mut trace = store(folder.path()).unwrap();
    let file = |name: &str| std::fs::read(trace_directory(folder.path()).join(name)).unwrap();
    let key = Key::of(&file("key"));
    let settings = file("settings");
    assert_eq!(field(&settings, "settings.magic"), b"EXIRATEO");
    assert_eq!(value(&settings, "settings.keep"), u64::MAX);
    assert_eq!(value(&settings, "settings.max_bytes"), 1 << 30);
    assert_eq!(value(&settings, "settings.crc"), crc(&settings[..48]));

    let log = Log::read(&file("open.log"), &key);
    assert_eq!(field(&log.head, "log.settings"), field(&settings, "settings.settings"));
    assert_eq!(value(&log.head, "log.decode"), u64::from(exirate::trace::decode::VERSION));
    let recorded: Vec<_> = (0..MESSAGES).map(envelope).collect();
    // What is written by the document is read.
    std::fs::write(trace_directory(folder.path()).join("open.log"), log.write(&key)).unwrap();
    assert_eq!(trace.stats().unwrap().messages, u64::from(MESSAGES));
    let read: Vec<_> = log.records.iter().map(|(bytes, _)| envelopes::of_log(bytes)).collect();
    assert_eq!(read, recorded);

    trace.seal().unwrap();
    assert!(!trace_directory(folder.path()).join("open.log").exists());
    let bytes = file("00000001.segment");
    let segment = Segment::read(&bytes, &key);
    for same in ["id", "settings", "decode"] {
        let of =
            |name: &str| if same == "id" && name == "segment" { "log" } else { same }.to_owned();
        let there = field(&segment.head, &format!("segment.{}", of("segment"))).to_vec();
        assert_eq!(there, field(&log.head, &format!("log.{same}")), "{same}");
    }
    let number = |name| value(&segment.head, name);
    assert_eq!((number("segment.folds"), number("segment.lost")), (0, 0));
    assert_eq!(number("segment.messages"), u64::from(MESSAGES));
    let mut sorted = recorded;
    sorted.sort_by_key(|envelope| envelope.time);
    let times = [sorted[0].time, sorted[sorted.len() - 1].time];
    assert_eq!(values(&segment.head, "segment.times", 8), times.map(i64::cast_unsigned));
    let read = envelopes::of_segment(&segment);
    assert_eq!(read, sorted);
    envelopes::check_places(&segment);
    // Written again by the document, it is the same file.
    assert!(segment.write(&key) == bytes);
}
