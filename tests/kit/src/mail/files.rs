//! Attachments.

use super::World;
use super::entity::{Entity, put};
use super::people::base62;
use super::prose::{self, Topic, number};
use crate::random::{Random, mix};

/// Bytes like those of a compressed file.
fn compressed(random: &mut Random, length: usize, to: &mut Vec<u8>) {
    let end = to.len() + length;
    while to.len() < end {
        to.extend_from_slice(&random.bits().to_le_bytes());
    }
    to.truncate(end);
}

/// A company's picture, always the same for one `company`.
pub fn logo(company: u64) -> Entity {
    let mut random = Random::of_state(mix(company, 0x60));
    let mut bytes = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\x01\x40\0\0\0\x50\x08\x06\0\0\0".to_vec();
    let length = random.within(3_000, 15_000);
    compressed(&mut random, length, &mut bytes);
    let name = format!("image{:03}.png", company % 1_000);
    Entity::File { name, media: "image/png", bytes, inline: true }
}

/// A file of so many bytes.
pub fn large(bytes: usize) -> Entity {
    let bytes = pdf(&mut Random::of_state(bytes as u64), bytes);
    Entity::File { name: "large.pdf".to_owned(), media: "application/pdf", bytes, inline: false }
}

/// An attachment of some kind; half of those that are no text have more than 45 KB.
pub fn attachment(world: &World, random: &mut Random, topic: Topic) -> Entity {
    let bytes = random.spread(45_000.0, 1.1).clamp(1_000, 4_000_000);
    let mut name = Vec::new();
    prose::title(&world.words, random, topic, &mut name);
    let name = String::from_utf8(name).unwrap().replace(' ', "_");
    let (ending, media, bytes) = match random.below(20) {
        0..7 => (".pdf", "application/pdf", pdf(random, bytes)),
        7..12 => (".docx", DOCX, docx(random, bytes)),
        12..16 => (".jpg", "image/jpeg", jpeg(random, bytes)),
        16 => (".csv", "text/csv", csv(world, random, topic, bytes / 4)),
        17 => (".json", "application/json", json(world, random, topic, bytes / 4)),
        18 if random.chance(50) => (".xml", "text/xml", xml(world, random, topic, bytes / 4)),
        18 => (".rtf", "application/rtf", rtf(world, random, topic, bytes / 4)),
        _ => {
            let mut text = Vec::new();
            prose::paragraphs(&world.words, random, topic, bytes / 4, &mut text);
            text.push(b'\n');
            (".txt", "text/plain", text)
        }
    };
    Entity::File { name: name + ending, media, bytes, inline: false }
}

const DOCX: &str = "application/vnd.openxmlformats-officedocument.wordprocessingml.document";

fn pdf(random: &mut Random, length: usize) -> Vec<u8> {
    let mut bytes = b"%PDF-1.5\n%\xe2\xe3\xcf\xd3\n".to_vec();
    for object in 1..=length.div_ceil(30_000) {
        number(object as u64, &mut bytes);
        bytes.extend_from_slice(b" 0 obj\n<< /Filter /FlateDecode /Length ");
        let stream = length.min(30_000);
        number(stream as u64, &mut bytes);
        bytes.extend_from_slice(b" >>\nstream\n");
        compressed(random, stream, &mut bytes);
        bytes.extend_from_slice(b"\nendstream\nendobj\n");
    }
    bytes.extend_from_slice(b"trailer\n<< /Root 1 0 R >>\n%%EOF\n");
    bytes
}

fn docx(random: &mut Random, length: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    for name in ["[Content_Types].xml", "_rels/.rels", "word/document.xml", "word/styles.xml"] {
        bytes.extend_from_slice(b"PK\x03\x04\x14\0\x06\0\x08\0\0\0\x21\0");
        compressed(random, 12, &mut bytes);
        bytes.extend_from_slice(&[name.len() as u8, 0, 0, 0]);
        bytes.extend_from_slice(name.as_bytes());
        let share = if name.starts_with("word/d") { length } else { 600 };
        compressed(random, share, &mut bytes);
    }
    bytes
}

fn jpeg(random: &mut Random, length: usize) -> Vec<u8> {
    let mut bytes = b"\xff\xd8\xff\xe0\0\x10JFIF\0\x01\x01\0\0\x48\0\x48\0\0".to_vec();
    compressed(random, length, &mut bytes);
    bytes.extend_from_slice(b"\xff\xd9");
    bytes
}

/// A list of records.
fn json(world: &World, random: &mut Random, topic: Topic, length: usize) -> Vec<u8> {
    let mut text = b"[".to_vec();
    while text.len() < length {
        let between = if text.len() > 1 { ",\n" } else { "\n" };
        put(&mut text, &[between, "  {\"id\": "]);
        number(random.bits() % 1_000_000, &mut text);
        put(&mut text, &[", \"name\": \""]);
        prose::title(&world.words, random, topic, &mut text);
        put(&mut text, &["\", \"active\": ", random.pick(&["true", "false"]), "}"]);
    }
    put(&mut text, &["\n]\n"]);
    text
}

fn xml(world: &World, random: &mut Random, topic: Topic, length: usize) -> Vec<u8> {
    let mut text = b"<?xml version=\"1.0\"?>\n<items>\n".to_vec();
    while text.len() < length {
        put(&mut text, &["  <item id=\""]);
        number(random.bits() % 1_000_000, &mut text);
        put(&mut text, &["\">"]);
        prose::title(&world.words, random, topic, &mut text);
        put(&mut text, &["</item>\n"]);
    }
    put(&mut text, &["</items>\n"]);
    text
}

fn rtf(world: &World, random: &mut Random, topic: Topic, length: usize) -> Vec<u8> {
    let mut text = b"{\\rtf1\\ansi\\deff0 {\\fonttbl {\\f0 Arial;}}\n".to_vec();
    while text.len() < length {
        put(&mut text, &["\\pard\\f0\\fs24 "]);
        prose::sentence(&world.words, random, topic, &mut text);
        put(&mut text, &["\\par\n"]);
    }
    put(&mut text, &["}\n"]);
    text
}

fn csv(world: &World, random: &mut Random, topic: Topic, length: usize) -> Vec<u8> {
    let mut text = b"date,name,reference,amount,comment\n".to_vec();
    while text.len() < length {
        text.extend_from_slice(b"2026-");
        number(random.within(10, 12) as u64, &mut text);
        text.extend_from_slice(b"-");
        number(random.within(10, 28) as u64, &mut text);
        text.push(b',');
        world.words.spell(world.words.of_topic(topic, random.bits()), &mut text);
        text.push(b',');
        text.extend_from_slice(base62(random.bits(), 8).as_bytes());
        text.push(b',');
        number(random.bits() % 100_000, &mut text);
        text.push(b',');
        prose::clause(&world.words, random, topic, 3, &mut text);
        text.push(b'\n');
    }
    text
}
