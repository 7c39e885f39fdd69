//! The code conforms to `src/trace/FORMAT.md`: a reader based only on that
//! document finds all recorded data in a store's files.

mod codes;
mod envelopes;

use std::net::IpAddr;

use exirate::trace::{
    Access, ContentQuery, Envelope, Options, Part, Query, QuerySummary, TraceError, TraceStore,
    trace_directory,
};
use kit::trace_format::{DOCUMENT, Key, Log, Segment, crc, documented, field, value, values};

/// More than a block of positions has.
const MESSAGES: u32 = 1_500;
/// Fewer than a log is full with.
const IN_LOG: u32 = 200;

#[test]
fn tables_have_no_gaps() {
    let all = documented();
    let sizes = [
        ("key", 0, 52),
        ("settings", 0, 52),
        ("start", 0, 48),
        ("log", 48, 84),
        ("status", 0, 36),
        ("record", 0, 36),
        ("segment", 48, 220),
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
    // Facts that are stated in prose.
    let document = DOCUMENT.split_whitespace().collect::<Vec<_>>().join(" ");
    for words in [
        "| head | 228 |",
        "| second copy of the head | 228 |",
        "With its tag, a head of a segment has 228 bytes, one of a log 92, and a status 44.",
        "A head at 0 and a copy at 512, which differs only in its tag; the status at 1,024; records \
         from 1,536 on.",
        "Let `K(nonce)` be the first 32 bytes of the XChaCha20 keystream",
        "makes the size of the record a multiple of 8.",
    ] {
        assert!(document.contains(words), "{words}");
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
        // Sorted by bytes, and not by letters.
        _ => format!("{}{}", ["user", "User"][n as usize % 2], mixed % 100),
    };
    Envelope {
        time: 1_700_000_000 + i64::from(n / 3 * (mixed % 3)),
        id,
        sender,
        recipients: (0..mixed % 4).map(|k| format!("r{}.{k}@example.net", mixed % 200)).collect(),
        client,
        authenticated,
        partial: n % 9 == 4,
    }
}

fn store(folder: &std::path::Path, messages: u32) -> Result<TraceStore, TraceError> {
    let mut trace = TraceStore::open(&trace_directory(folder), Access::Write)?;
    trace.set_options(Options { keep: None, ..Options::default() })?;
    (0..messages).try_for_each(|n| record(&mut trace, n))?;
    Ok(trace)
}

fn record(trace: &mut TraceStore, n: u32) -> Result<(), TraceError> {
    let words: String = (0..1 + n % 50).map(|word| format!("words of {n}, {word}, ")).collect();
    trace.record(&envelope(n), format!("Subject: {n}\n\n{words}\n").as_bytes())
}

#[test]
fn a_store_reads_as_documented() {
    let folder = tempfile::tempdir().unwrap();
    let mut trace = store(folder.path(), IN_LOG).unwrap();
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
    let recorded: Vec<_> = (0..IN_LOG).map(envelope).collect();
    // Files written according to the document can be read.
    std::fs::write(trace_directory(folder.path()).join("open.log"), log.write(&key)).unwrap();
    assert_eq!(trace.stats().unwrap().messages, u64::from(IN_LOG));
    let read: Vec<_> = log.records.iter().map(|(bytes, _)| envelopes::of_log(bytes)).collect();
    assert_eq!(read, recorded);

    trace.seal().unwrap();
    assert!(!trace_directory(folder.path()).join("open.log").exists());
    let sealed = Segment::read(&file("00000001.segment"), &key);
    assert_eq!(field(&sealed.head, "segment.log"), field(&log.head, "log.id"));
    // Merged, the messages of all logs are in one.
    (IN_LOG..MESSAGES).for_each(|n| record(&mut trace, n).unwrap());
    trace.tidy(0).unwrap();
    let recorded: Vec<_> = (0..MESSAGES).map(envelope).collect();
    let segments = std::fs::read_dir(trace_directory(folder.path())).unwrap();
    let names = segments.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let names: Vec<_> = names.filter(|name| name.ends_with(".segment")).collect();
    let [name] = &names[..] else { panic!("{names:?}") };
    let bytes = file(name);
    let segment = Segment::read(&bytes, &key);
    for same in ["settings", "decode"] {
        let there = field(&segment.head, &format!("segment.{same}"));
        assert_eq!(there, field(&log.head, &format!("log.{same}")), "{same}");
    }
    let of_name = name.strip_suffix(".segment").unwrap().parse::<u64>().unwrap();
    let numbers = ["segment.number", "segment.first"].map(|name| value(&segment.head, name));
    assert!(numbers == [of_name, 1] && of_name > 4, "{numbers:?} {name}");
    let number = |name| value(&segment.head, name);
    assert_eq!((number("segment.reserved"), number("segment.lost")), (0, 0));
    assert_eq!(number("segment.messages"), u64::from(MESSAGES));
    let partial = recorded.iter().filter(|envelope| envelope.partial).count() as u64;
    assert!(partial > 0);
    assert_eq!(number("segment.partial"), partial);
    let mut sorted = recorded;
    sorted.sort_by_key(|envelope| envelope.time);
    let times = [sorted[0].time, sorted[sorted.len() - 1].time];
    assert_eq!(values(&segment.head, "segment.times", 8), times.map(i64::cast_unsigned));
    let read = envelopes::of_segment(&segment);
    assert_eq!(read, sorted);
    envelopes::check_positions(&segment);
    // Written again according to the document, the file is the same.
    assert!(segment.write(&key) == bytes);
}

/// Queries by a text, and by a time alone.
fn ask(trace: &TraceStore) -> [QuerySummary; 2] {
    let parts = vec![Part::Text("words of 77, words of 77, words of 77".to_owned())];
    let content = Some(ContentQuery { parts, min_share: 1.0 });
    let queries = [Query { content, ..Query::default() }, Query::default()];
    queries.map(|query| trace.query(&query, &mut |_, _| {}, &mut |_| {}).unwrap())
}

#[test]
fn messages_of_another_decoder_are_found_by_envelope_only() {
    let folder = tempfile::tempdir().unwrap();
    let mut trace = store(folder.path(), IN_LOG).unwrap();
    let path = |name: &str| trace_directory(folder.path()).join(name);
    let key = Key::of(&std::fs::read(path("key")).unwrap());
    let all = u64::from(IN_LOG);
    let partial = (0..IN_LOG).filter(|&n| envelope(n).partial).count() as u64;
    let check = |trace: &TraceStore, is_other: bool| {
        let [text, envelopes] = ask(trace);
        let unanswered = if is_other { all } else { 0 };
        assert_eq!((text.messages, text.unanswered), (all, unanswered));
        assert_eq!((text.decoded_otherwise, text.matches > 0), (unanswered, !is_other));
        assert_eq!(text.partial, if is_other { 0 } else { partial });
        assert_eq!((envelopes.unanswered, envelopes.matches, envelopes.partial), (0, all, 0));
    };
    check(&trace, false);
    let own = std::fs::read(path("open.log")).unwrap();
    let mut log = Log::read(&own, &key);
    let (offset, _) = documented()["log.decode"];
    for version in [0, exirate::trace::decode::VERSION + 1] {
        log.head[offset..offset + 2].copy_from_slice(&version.to_le_bytes());
        std::fs::write(path("open.log"), log.write(&key)).unwrap();
        check(&trace, true);
    }
    std::fs::write(path("open.log"), own).unwrap();
    trace.seal().unwrap();
    check(&trace, false);
    let segment = std::fs::read(path("00000001.segment")).unwrap();
    let mut segment = Segment::read(&segment, &key);
    let (offset, _) = documented()["segment.decode"];
    for version in [0, exirate::trace::decode::VERSION + 1] {
        segment.head[offset..offset + 2].copy_from_slice(&version.to_le_bytes());
        std::fs::write(path("00000001.segment"), segment.write(&key)).unwrap();
        check(&trace, true);
    }
}
