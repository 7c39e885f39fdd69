//! Changes by someone who can write to the files and has no key: bits, parts in the place of
//! others, parts of other files and of other versions of the same file, always with the right
//! checksum at the end.

use std::collections::BTreeSet;
use std::ops::Range;
use std::path::Path;

use super::store::{Image, Observed, envelope, memory_folder, open, path, read, secret};
use exirate::trace::{Options, trace_directory};
use kit::trace_format::{HEAD, Key, Log, RECORDS, STATUS, Segment, TAG, field, values};

/// The messages of the first and of the second segment, and of the two logs.
const SEGMENTS: [(&str, Range<u32>); 2] =
    [("00000001.segment", 0..40), ("00000002.segment", 40..80)];
const LOGS: [(&str, Range<u32>); 2] = [("00000003.log", 80..84), ("open.log", 84..88)];
/// How many bytes of a segment are skipped between two changes: without a common factor with 8.
const STEP: usize = if cfg!(debug_assertions) { 101 } else { 7 };

/// A store with two segments whose bodies have many blocks, and two logs; and the first segment
/// sealed a second time.
fn world() -> (Image, Vec<u8>) {
    let folder = memory_folder();
    let options = Options { keep: None, ..Options::default() };
    open(folder.path()).unwrap().set_options(options).unwrap();
    let record = |numbers: Range<u32>| {
        let mut trace = open(folder.path()).unwrap();
        for n in numbers {
            let words =
                (0..300).map(|k| format!("w{:x} ", (n * 300 + k).wrapping_mul(2_654_435_761)));
            let text = format!("Subject: {n}\n\n{}\n{}\n", secret(n), words.collect::<String>());
            trace.record(&envelope(n), text.as_bytes()).unwrap();
        }
    };
    let log = |name: &str| path(folder.path(), name);
    let mut again = Vec::new();
    for (name, numbers) in SEGMENTS {
        record(numbers);
        let recorded = Image::of(folder.path());
        open(folder.path()).unwrap().seal().unwrap();
        if again.is_empty() {
            again = std::fs::read(log(name)).unwrap();
            recorded.lay_out(folder.path());
            open(folder.path()).unwrap().seal().unwrap();
        }
    }
    record(LOGS[0].1.clone());
    std::fs::rename(log("open.log"), log(LOGS[0].0)).unwrap();
    record(LOGS[1].1.clone());
    (Image::of(folder.path()), again)
}

/// Sets the checksum at the end of a segment.
fn with_checksum(mut bytes: Vec<u8>) -> Vec<u8> {
    let end = bytes.len() - 4;
    let crc = crc32fast::hash(&bytes[..end]);
    bytes[end..].copy_from_slice(&crc.to_le_bytes());
    bytes
}

/// Asserts that a change of a file is found, and that it has no effect that is not reported.
fn look(folder: &Path, image: &Image, name: &str, changed: Vec<u8>, what: &str) {
    assert!(image.get(name) != changed, "{what}: nothing was changed");
    image.with(name, changed).lay_out(folder);
    let names_it = |text: &String| text.contains(path(folder, name).to_str().unwrap());
    let files = SEGMENTS.into_iter().chain(LOGS);
    let (own, others): (Vec<_>, Vec<_>) = files.partition(|(file, _)| *file == name);
    let numbers = |files: Vec<(&str, Range<u32>)>| -> BTreeSet<u32> {
        files.into_iter().flat_map(|(_, numbers)| numbers).collect()
    };
    let (own, others) = (numbers(own), numbers(others));
    let asked = own.iter().step_by(3).chain(others.iter().step_by(29)).copied();
    let observed = Observed::of(&read(folder).unwrap(), asked.clone(), what);
    assert!(observed.verified.iter().any(names_it), "{what}: {:?}", observed.verified);
    let missed: Vec<u32> = asked.filter(|n| !observed.found.contains(n)).collect();
    let unlisted: Vec<u32> =
        own.union(&others).filter(|n| !observed.listed.contains(n)).copied().collect();
    for n in missed.iter().chain(&unlisted) {
        assert!(own.contains(n), "{what}: {n} of another file is lost");
    }
    let is_silent = !observed.reported.iter().any(names_it);
    let is_whole = missed.is_empty() && unlisted.is_empty();
    assert!(!is_silent || is_whole, "{what}: {missed:?} {unlisted:?}");
}

/// The parts of a segment that have a tag, in order.
fn parts(bytes: &[u8], key: &Key) -> Vec<Range<usize>> {
    let segment = Segment::read(bytes, key);
    let tables = || segment.tables.iter().map(|table| table.len() + TAG);
    let blocks = segment.sections.iter().flatten().map(|block| block.len() + TAG);
    let body = segment.body.chunks(1024).map(|block| block.len() + TAG);
    let sizes = [HEAD].into_iter().chain(tables()).chain(blocks).chain(body).chain(tables());
    let mut end = 0;
    let parts = sizes.chain([HEAD]).map(|size| {
        end += size;
        end - size..end
    });
    let parts = parts.collect();
    assert_eq!(end, bytes.len() - 4);
    parts
}

/// The bytes of `into` with those of `from` at a place.
fn with(into: &[u8], place: &Range<usize>, from: &[u8]) -> Vec<u8> {
    let mut bytes = into.to_vec();
    bytes[place.clone()].copy_from_slice(from);
    bytes
}

#[test]
fn a_segment_is_not_changed_without_the_key() {
    let ((image, again), folder) = (world(), memory_folder());
    let key = Key::of(image.get("key"));
    let [(name, _), (other, _)] = SEGMENTS;
    let (bytes, other) = (image.get(name), image.get(other));
    let own = parts(bytes, &key);
    let theirs = parts(other, &key);
    assert!(own.len() >= 12, "{}", own.len());
    let look = |changed, what: &str| {
        look(folder.path(), &image, name, with_checksum(changed), what);
    };
    for at in (0..bytes.len() - 4).step_by(STEP) {
        let mut changed = bytes.to_vec();
        changed[at] ^= 1 << (at % 8);
        look(changed, &format!("bit {} of byte {at}", at % 8));
    }
    let mut swapped = 0;
    for (n, one) in own.iter().enumerate() {
        // In the place of another part of this file.
        for two in own[n + 1..].iter().filter(|two| two.len() == one.len()).take(2) {
            let changed = with(&with(bytes, one, &bytes[two.clone()]), two, &bytes[one.clone()]);
            look(changed, &format!("{one:?} and {two:?} are swapped"));
            swapped += 1;
        }
        // Of another file, and of another version of this one.
        for (from, parts) in [(other, &theirs), (&again, &own)] {
            let same = parts.iter().filter(|part| part.len() == one.len() && part.end < from.len());
            let same = same.filter(|part| **part == *one || part.start > 1500).take(2);
            for part in same {
                let changed = with(bytes, one, &from[part.clone()]);
                look(changed, &format!("{part:?} of another file at {one:?}"));
                swapped += 1;
            }
        }
        // Its tag for other bytes.
        let (content, tag) = bytes[one.clone()].split_at(one.len() - TAG);
        let mut inverted: Vec<u8> = content.iter().map(|byte| !byte).collect();
        inverted.extend(tag);
        look(with(bytes, one, &inverted), &format!("inverted at {one:?}"));
    }
    assert!(swapped > 20, "{swapped}");
    // Both heads of another version: then nothing else fits.
    let [first, last] = [&own[0], &own[own.len() - 1]];
    let heads = with(&with(bytes, first, &again[first.clone()]), last, &again[last.clone()]);
    look(heads, "both heads of another version");
}

/// Where the records of a log are.
fn records(bytes: &[u8], key: &Key) -> Vec<Range<usize>> {
    let mut end = RECORDS;
    let log = Log::read(bytes, key);
    let ranges = log.records.iter().map(|(envelope, digest)| {
        let start = end;
        end += (36 + envelope.len() + digest.len() + TAG).next_multiple_of(8);
        start..end
    });
    ranges.collect()
}

#[test]
fn a_log_is_not_changed_without_the_key() {
    let ((image, _), folder) = (world(), memory_folder());
    let key = Key::of(image.get("key"));
    let [(full, _), (name, _)] = LOGS;
    let (bytes, other) = (image.get(name), image.get(full));
    let [own, theirs] = [bytes, other].map(|bytes| records(bytes, &key));
    let look_at = look;
    let look = |changed, what: &str| look(folder.path(), &image, name, changed, what);
    for at in (0..bytes.len()).step_by(STEP) {
        let mut changed = bytes.to_vec();
        changed[at] ^= 1 << (at % 8);
        look(changed, &format!("bit {} of byte {at}", at % 8));
    }
    let mut moved = 0;
    for (n, one) in own.iter().enumerate() {
        for two in own[n + 1..].iter().filter(|two| two.len() == one.len()) {
            let changed = with(&with(bytes, one, &bytes[two.clone()]), two, &bytes[one.clone()]);
            look(changed, &format!("the records {one:?} and {two:?} are swapped"));
            moved += 1;
        }
        let twice = own.iter().filter(|two| *two != one && two.len() == one.len()).take(1);
        for two in twice {
            look(with(bytes, one, &bytes[two.clone()]), &format!("the record {two:?} twice"));
            moved += 1;
        }
        for two in theirs.iter().filter(|two| two.len() == one.len()) {
            look(with(bytes, one, &other[two.clone()]), &format!("{two:?} of another log"));
            moved += 1;
        }
        // Without a record, and what follows closes up.
        let gone = [&bytes[..one.start], &bytes[one.end..]].concat();
        look(gone, &format!("without the record {one:?}"));
    }
    assert!(moved > 3, "{moved}");
    let status = STATUS..STATUS + 52;
    look(with(bytes, &status, &other[status.clone()]), "the status of another log");
    let head = 0..100;
    look(with(bytes, &head, &other[head.clone()]), "one head of another log");
    // Both: of a log that comes before it, and of one that comes after it.
    let copy = 512..612;
    let both = |bytes: &[u8], other: &[u8]| {
        with(&with(bytes, &head, &other[head.clone()]), &copy, &other[copy.clone()])
    };
    look(both(bytes, other), "both heads of another log");
    look_at(folder.path(), &image, full, both(other, bytes), "both heads of a later log");
}

#[test]
fn a_query_says_which_block_is_damaged_and_answers_from_the_others() {
    let ((image, _), folder) = (world(), memory_folder());
    let key = Key::of(image.get("key"));
    let (name, numbers) = SEGMENTS[0].clone();
    let bytes = image.get(name);
    let segment = Segment::read(bytes, &key);
    let sizes = ["segment.tables", "segment.sections"].map(|name| values(&segment.head, name, 4));
    let body = HEAD + sizes.iter().flatten().sum::<u64>() as usize;
    assert_eq!(field(bytes, "start.magic"), b"EXIRATEG");
    let mut damaged = bytes.to_vec();
    // In the last block.
    let block = body + segment.body.len() / 1024 * (1024 + TAG);
    damaged[block + 7] ^= 1;
    image.with(name, damaged).lay_out(folder.path());
    let trace = read(folder.path()).unwrap();
    let (mut unreadable, mut found) = (0, 0);
    let all = SEGMENTS.into_iter().chain(LOGS).flat_map(|(_, numbers)| numbers);
    for n in all {
        let (results, summary) = super::store::ask(&trace, &super::store::question(n));
        let is_found = results.iter().any(|one| one.envelope == envelope(n));
        let said: Vec<String> = summary.damaged.iter().map(ToString::to_string).collect();
        if summary.unreadable > 0 {
            let what = format!(
                "{}: its block at byte {block} is damaged, so {} of its messages were not searched",
                trace_directory(folder.path()).join(name).display(),
                summary.unreadable
            );
            assert_eq!(said, [what]);
            assert!(summary.unreadable <= numbers.len() as u64);
            unreadable += 1;
        } else {
            assert!(said.is_empty() && is_found, "{n}: {said:?}");
        }
        assert!(is_found || numbers.contains(&n), "{n} is in a sound file");
        found += u32::from(is_found);
    }
    assert!(unreadable > 0 && found >= 48, "{unreadable} {found}");
}
