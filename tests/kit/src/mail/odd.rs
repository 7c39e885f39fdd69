//! What real mail is full of besides letters: serial letters, one-line replies, and mail
//! that programs write wrongly.

use super::english::{CLOSINGS, GREETINGS, PHRASES};
use super::entity::{Charset, Entity, Transfer, plain, put};
use super::foreign::{self, Tongue};
use super::letters::{self, thread};
use super::mime::html_text;
use super::people::base62;
use super::prose::{self, number};
use super::{Draft, World, bulk};
use crate::random::{Random, mix};

/// In so many messages there are so many serial letters.
const NEIGHBOURS: u64 = 600;
const SERIES: usize = 3;

/// A serial letter: those of a series differ in the reader's name, or only in a digit of a
/// number.
pub fn merge(world: &World, n: u64) -> Draft {
    let mut random = Random::of_state(mix(world.seed ^ 0x80, n));
    let series = n / NEIGHBOURS * SERIES as u64 + random.zipf(SERIES) as u64;
    let mut shared = Random::of_state(mix(world.seed ^ 0x81, series));
    let sender = world.people.elsewhere(&mut shared);
    let reader = world.people.here(&mut random);
    let topic = prose::topic(40_000 + (sender.company() % 3_000) as usize);
    let (name, _) = world.people.name(reader);
    let is_personal = shared.chance(60);

    let mut subject = Vec::new();
    prose::title(&world.words, &mut shared, topic, &mut subject);
    let mut text = Vec::new();
    put(&mut text, &[shared.pick(GREETINGS), if is_personal { " " } else { "" }]);
    put(&mut text, &[if is_personal { &name } else { "" }, ",\n\n"]);
    let mut own = Vec::new();
    let bytes = shared.spread(900.0, 0.7).clamp(150, 8_000);
    prose::paragraphs(&world.words, &mut shared, topic, bytes, &mut own);
    prose::wrap(&own, b"", &mut text);
    if !is_personal {
        put(&mut text, &["\nYour reference: ", &base62(shared.bits(), 8), "-"]);
        number(random.below(10) as u64, &mut text);
        put(&mut text, &["\n"]);
    }
    put(&mut text, &["\n", shared.pick(CLOSINGS), ",\n", &world.people.company(sender), "\n"]);
    let entity = plain(text, &mut random);
    let headers = "Precedence: bulk\n".to_owned();
    let subject = super::entity::string(subject);
    bulk::draft(world, sender, reader, subject, headers, entity, &mut random)
}

/// A reply of one line that quotes nothing.
pub fn one_line(world: &World, n: u64) -> Draft {
    let mut random = Random::of_state(mix(world.seed ^ 0x82, n));
    let mut draft = letters::draft(world, n);
    if !draft.subject.starts_with("Re: ") {
        draft.subject.insert_str(0, "Re: ");
    }
    let mut text = Vec::new();
    match random.below(4) {
        0 => put(&mut text, &[random.pick(&["ok", "Thanks!", "Yes.", "Done", "+1", "No idea."])]),
        1 => put(&mut text, &[random.pick(PHRASES), "."]),
        _ => {
            let topic = thread(world, n).topic;
            let words = random.within(2, 12);
            prose::clause(&world.words, &mut random, topic, words, &mut text);
        }
    }
    put(&mut text, &["\n"]);
    if random.chance(30) {
        put(&mut text, &["\nSent from my iPhone\n"]);
    }
    draft.entity = plain(text, &mut random);
    draft
}

/// Mail that breaks a standard: a wrong charset, malformed quoted-printable, or tags that are
/// wrongly nested. Its contents are what a reader sees.
pub fn broken(world: &World, n: u64) -> Draft {
    let mut random = Random::of_state(mix(world.seed ^ 0x83, n));
    let mut draft = letters::draft(world, n);
    draft.entity = match random.below(4) {
        0 | 1 => mislabelled(world, n, &mut random),
        2 => malformed(world, n, &mut random),
        _ => nested(world, n, &mut random),
    };
    draft
}

/// Text in another charset than its label says, or with a label that no standard has.
fn mislabelled(world: &World, n: u64, random: &mut Random) -> Entity {
    use encoding_rs as e;
    let (tongue, encoding, label) = match random.below(7) {
        0 | 1 => (Tongue::German, e::UTF_8, "iso-8859-1"),
        2 => (Tongue::French, e::WINDOWS_1252, "us-ascii"),
        3 => (Tongue::German, e::WINDOWS_1252, "x-unknown"),
        4 => (Tongue::Chinese, e::GBK, "GB2312_CHARSET"),
        5 => (Tongue::Russian, e::WINDOWS_1251, "RUSSIAN_CHARSET"),
        _ => (Tongue::French, e::UTF_8, "us-ascii"),
    };
    let topic = thread(world, n).topic;
    let mut text = Vec::new();
    for _ in 0..random.within(1, 4) {
        foreign::paragraph(world, random, tongue, topic, &mut text);
    }
    let transfer = if random.chance(50) { Transfer::Quoted } else { Transfer::Base64 };
    Entity::Text { text, subtype: "plain", charset: Charset::Of(encoding, label), transfer }
}

/// A text with numbers in quoted-printable that is not quite quoted-printable.
fn malformed(world: &World, n: u64, random: &mut Random) -> Entity {
    let topic = thread(world, n).topic;
    let mut text = Vec::new();
    for _ in 0..random.within(2, 9) {
        prose::title(&world.words, random, topic, &mut text);
        put(&mut text, &[random.pick(&[" = ", ": €", " – "])]);
        number(random.bits() % 100_000, &mut text);
        put(&mut text, &[". "]);
        prose::sentence(&world.words, random, topic, &mut text);
        put(&mut text, &["\n"]);
    }
    let transfer = Transfer::Malformed;
    Entity::Text { text, subtype: "plain", charset: Charset::Utf8, transfer }
}

/// A table whose tags are not closed, or in the wrong order.
fn nested(world: &World, n: u64, random: &mut Random) -> Entity {
    let topic = thread(world, n).topic;
    let (mut source, mut spoken) = (Vec::new(), Vec::new());
    put(&mut source, &["<html><body><font face=\"Arial\"><table border=0><tr><td><b>\n"]);
    for _ in 0..random.within(2, 12) {
        let mut text = Vec::new();
        prose::sentence(&world.words, random, topic, &mut text);
        put(&mut source, &[random.pick(&["<tr><td>", "<td><i>", "<p><tr><td><b>", "<table><td>"])]);
        html_text(&text, &mut source);
        put(
            &mut source,
            &[random.pick(&["</td></tr>\n", "</i></b></td>\n", "</table>\n", "<td>"])],
        );
        spoken.extend_from_slice(&text);
        spoken.push(b'\n');
    }
    put(&mut source, &["</b></font></tr></body></table>\n"]);
    Entity::Html { source, spoken, links: vec![], transfer: Transfer::Quoted }
}
