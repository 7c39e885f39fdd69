//! Any bytes as a log or a segment of the trace store, with correct checksums and
//! tags, and encrypted according to the document, so that they pass the detection
//! of damage. Then the store is verified, queried and used.
#![no_main]

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use arbitrary::Arbitrary;
use exirate::trace::{
    Access, Address, ContentQuery, Envelope, Options, Part, Query, TraceStore, trace_directory,
};
use exirate_fuzz::trace_format::{self as format, Key, Log, Segment};
use libfuzzer_sys::fuzz_target;

/// Bytes that overwrite the contents, or are appended.
#[derive(Arbitrary, Debug)]
struct Patch {
    at: u16,
    bytes: Vec<u8>,
    /// The contents are truncated to this.
    cut: bool,
}

#[derive(Arbitrary, Debug)]
enum File {
    /// These bytes.
    AnySegment(Vec<u8>),
    AnyLog(Vec<u8>),
    /// A sound segment with these changes to its plaintext head, tables,
    /// sections and body.
    Segment(Vec<(u8, Patch)>),
    /// A log with these changes to envelopes and digests, and to its head.
    Log(Vec<(u8, Patch)>, Option<Patch>),
}

/// A store, and its original contents.
struct Ground {
    spool: PathBuf,
    key: Key,
    log: Vec<u8>,
    segment: Vec<u8>,
}

const TEXT: &str = "a text that is long enough to be looked for in any of them";

fn envelope(n: i64) -> Envelope {
    Envelope {
        time: 1_700_000_000 + n,
        id: format!("1rABCD-0000000000{n}-3YzQ"),
        sender: format!("sender{n}@example.org"),
        recipients: vec!["r@example.net".to_owned(); n as usize % 3],
        client: Some([192, 0, 2, n as u8].into()),
        authenticated: format!("name{n}"),
        partial: false,
    }
}

static GROUND: LazyLock<Ground> = LazyLock::new(|| {
    let spool = std::env::temp_dir().join(format!("trace-{}", std::process::id()));
    let directory = trace_directory(&spool);
    std::fs::create_dir_all(&directory).unwrap();
    let mut key = [b"EXIRATEK", &[format::VERSION, 0, 0, 0, 0, 0, 0, 0][..], &[7; 32]].concat();
    key.extend(crc32fast::hash(&key).to_le_bytes());
    key.resize(512, 0);
    let key = [&key[..], &key].concat();
    std::fs::write(directory.join("key"), &key).unwrap();
    let mut trace = TraceStore::open(&directory, Access::Write).unwrap();
    trace.set_options(Options { keep: None, ..Options::default() }).unwrap();
    for n in 0..5 {
        let text = format!("Subject: {n}\n\n{TEXT}, {n} {}\n", "and more".repeat(n as usize));
        trace.record(&envelope(n), text.as_bytes()).unwrap();
    }
    let log = std::fs::read(directory.join("open.log")).unwrap();
    trace.seal().unwrap();
    let segment = std::fs::read(directory.join("00000001.segment")).unwrap();
    Ground { spool, key: Key::of(&key), log, segment }
});

fn change(bytes: &mut Vec<u8>, patch: &Patch) {
    let at = usize::from(patch.at) % (bytes.len() + 1);
    let end = (at + patch.bytes.len()).max(if patch.cut { 0 } else { bytes.len() });
    bytes.resize(end, 0);
    bytes[at..at + patch.bytes.len()].copy_from_slice(&patch.bytes);
}

/// As [`change`], without changing the size.
fn change_within(bytes: &mut [u8], patch: &Patch) {
    if !bytes.is_empty() {
        let at = usize::from(patch.at) % bytes.len();
        bytes[at..].iter_mut().zip(&patch.bytes).for_each(|(to, from)| *to = *from);
    }
}

fn segment(changes: &[(u8, Patch)]) -> Vec<u8> {
    let mut segment = Segment::read(&GROUND.segment, &GROUND.key);
    for (part, patch) in changes {
        match part % 17 {
            // Except the magic, the version and the key.
            0 => change_within(&mut segment.head[24..], patch),
            n @ 1..3 => change(&mut segment.tables[usize::from(n) - 1], patch),
            // Lengths have four, and all other sections one.
            n @ 3..16 => {
                let mut blocks = segment.sections.iter_mut().flatten();
                if let Some(block) = blocks.nth(usize::from(n) - 3) {
                    change(block, patch);
                }
            }
            _ => change(&mut segment.body, patch),
        }
    }
    fix_blocks(&mut segment, &Segment::read(&GROUND.segment, &GROUND.key));
    segment.write(&GROUND.key)
}

/// Sets the sizes of the blocks of each section, which was made from a sound segment.
fn fix_blocks(segment: &mut Segment, sound: &Segment) {
    for (table, sections) in [(0, 0..5), (1, 5..10)] {
        let sizes = |segment: &Segment| {
            let blocks = segment.sections[sections.clone()].iter().flatten();
            blocks.flat_map(|block| size(block.len())).collect::<Vec<bool>>()
        };
        let (before, mut bits) = (sizes(sound).len(), sizes(segment));
        let table = &mut segment.tables[table];
        bits.extend(
            table
                .iter()
                .flat_map(|byte| (0..8).rev().map(move |n| byte >> n & 1 == 1))
                .skip(before),
        );
        let byte = |bits: &[bool]| {
            (0..8).fold(0, |sum, n| sum << 1 | u8::from(bits.get(n) == Some(&true)))
        };
        *table = bits.chunks(8).map(byte).collect();
    }
}

/// A size in a table, as bits.
fn size(size: usize) -> impl Iterator<Item = bool> {
    let length = (usize::BITS - size.leading_zeros()) as usize;
    let bits = |number: usize, count: usize| (0..count).rev().map(move |n| number >> n & 1 == 1);
    bits(length, 6).chain(bits(size, length.saturating_sub(1)))
}

fn log(changes: &[(u8, Patch)], head: Option<&Patch>) -> Vec<u8> {
    let mut log = Log::read(&GROUND.log, &GROUND.key);
    if let Some(patch) = head {
        change_within(&mut log.head[48..], patch);
    }
    for (part, patch) in changes {
        let count = log.records.len();
        let (envelope, digest) = &mut log.records[usize::from(part / 2) % count];
        change(if part % 2 == 0 { envelope } else { digest }, patch);
    }
    log.write(&GROUND.key)
}

/// Queries everything in every way.
fn ask(trace: &TraceStore) {
    trace.stats().unwrap();
    trace.verify(&mut |_, _| {}, &mut |_| {}).unwrap();
    let question = ContentQuery { parts: vec![Part::Text(TEXT.to_owned())], min_share: 0.5 };
    let queries = [
        Query::default(),
        Query { content: Some(question), ..Query::default() },
        Query { from: Some(Address::Is("sender3@example.org".into())), ..Query::default() },
        Query { to: Some(Address::Test(Box::new(|to| to.ends_with('t')))), ..Query::default() },
        Query { ids: vec![envelope(2).id], since: Some(5), ..Query::default() },
    ];
    for query in &queries {
        trace.query(query, &mut |_, _| {}, &mut |_| {}).unwrap();
    }
}

fn lay(directory: &Path, name: &str, bytes: &[u8]) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|end| end == "log" || end == "segment") {
            std::fs::remove_file(path).unwrap();
        }
    }
    std::fs::write(directory.join(name), bytes).unwrap();
}

fuzz_target!(|file: File| {
    let directory = trace_directory(&GROUND.spool);
    let (name, bytes) = match file {
        File::AnySegment(bytes) => ("00000001.segment", bytes),
        File::AnyLog(bytes) => ("open.log", bytes),
        File::Segment(changes) => ("00000001.segment", segment(&changes)),
        File::Log(changes, head) => ("open.log", log(&changes, head.as_ref())),
    };
    lay(&directory, name, &bytes);
    ask(&TraceStore::open(&directory, Access::Read).unwrap());
    let mut trace = TraceStore::open(&directory, Access::Write).unwrap();
    let later = "Subject: later\n\nanother text that is to be found whatever there was before\n";
    // A log of a later version does not change.
    if trace.record(&envelope(9), later.as_bytes()).is_ok() {
        trace.seal().unwrap();
        trace.tidy(0).unwrap();
        let question =
            ContentQuery { parts: vec![Part::Text(later[16..60].to_owned())], min_share: 1.0 };
        let query = Query { content: Some(question), ..Query::default() };
        let mut found = false;
        let mut see = |envelope: Envelope| found |= envelope == self::envelope(9);
        trace.query(&query, &mut |_, _| {}, &mut |result| see(result.envelope)).unwrap();
        assert!(found);
        ask(&trace);
    }
});
