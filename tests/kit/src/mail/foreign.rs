//! Mail in languages other than English, in their usual charsets.

use super::entity::{Charset, Entity, Transfer, put, string};
use super::letters::thread;
use super::words::Words;
use super::{Draft, World};
use crate::random::{Random, mix};

/// A language and its encodings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tongue {
    German,
    French,
    Russian,
    Japanese,
    Chinese,
}

/// The encoding of a message.
fn manner(random: &mut Random) -> (Tongue, Charset, Transfer) {
    use encoding_rs as e;
    let of = Charset::Of;
    match random.below(20) {
        0..3 => (Tongue::German, of(e::WINDOWS_1252, "iso-8859-1"), Transfer::Quoted),
        3..6 => (Tongue::German, Charset::Utf8, Transfer::Quoted),
        6..8 => (Tongue::German, Charset::Utf8, Transfer::Plain),
        8 => (Tongue::French, of(e::WINDOWS_1252, "iso-8859-1"), Transfer::Plain),
        9..11 => (Tongue::French, Charset::Utf8, Transfer::Base64),
        11 => (Tongue::Russian, of(e::KOI8_R, "koi8-r"), Transfer::Base64),
        12 => (Tongue::Russian, of(e::WINDOWS_1251, "windows-1251"), Transfer::Quoted),
        13 => (Tongue::Russian, Charset::Utf8, Transfer::Base64),
        14 => (Tongue::Japanese, of(e::ISO_2022_JP, "iso-2022-jp"), Transfer::Plain),
        15 => (Tongue::Japanese, Charset::Utf8, Transfer::Base64),
        16 | 17 => (Tongue::Chinese, of(e::GBK, "gbk"), Transfer::Base64),
        18 => (Tongue::Chinese, Charset::Utf8, Transfer::Base64),
        _ => (Tongue::German, Charset::Utf16, Transfer::Base64),
    }
}

/// Message `n`: a letter in another language.
pub fn draft(world: &World, n: u64) -> Draft {
    let mut random = Random::of_state(mix(world.seed ^ 0x40, n));
    let (tongue, charset, transfer) = manner(&mut random);
    let thread = thread(world, n);
    let mut text = Vec::new();
    for _ in 0..random.within(1, 6) {
        paragraph(world, &mut random, tongue, thread.topic, &mut text);
    }
    let mut subject = Vec::new();
    sentence(world, &mut random, tongue, thread.topic, &mut subject);
    let people = world.people;
    let (first, last) = people.name(thread.from);
    Draft {
        from: format!("{first} {last}ö"),
        address: people.address(thread.from),
        sender: people.address(thread.from),
        authenticated: String::new(),
        client: people.client(thread.from, &mut random),
        recipients: vec![people.address(thread.to)],
        subject: string(subject).lines().collect::<Vec<_>>().join(" ").trim().to_owned(),
        headers: String::new(),
        entity: Entity::Text { text, subtype: "plain", charset, transfer },
    }
}

/// Writes some sentences, and an empty line.
pub fn paragraph(world: &World, random: &mut Random, tongue: Tongue, topic: u64, to: &mut Vec<u8>) {
    for _ in 0..random.within(1, 5) {
        sentence(world, random, tongue, topic, to);
    }
    put(to, &["\n\n"]);
}

fn sentence(world: &World, random: &mut Random, tongue: Tongue, topic: u64, to: &mut Vec<u8>) {
    let words = &world.words;
    let length = 4 + random.below(14);
    let spaced = !matches!(tongue, Tongue::Japanese | Tongue::Chinese);
    let mut column = 0;
    let mut previous = words.any(random.bits());
    for n in 0..length {
        let bits = random.bits();
        previous = match bits >> 12 & 0xff {
            0..120 => words.after(previous, bits),
            120..150 => words.of_topic(topic, bits),
            _ => words.any(bits),
        };
        let before = to.len();
        if n > 0 && spaced {
            to.push(if column > 62 { b'\n' } else { b' ' });
            column = if column > 62 { 0 } else { column };
        }
        word(words, previous, tongue, to);
        column += to.len() - before;
    }
    put(to, &[if spaced { ". " } else { "。" }]);
    if column > 40 {
        put(to, &["\n"]);
    }
}

/// The word with that number in a language.
fn word(words: &Words, word: usize, tongue: Tongue, to: &mut Vec<u8>) {
    let bits = mix(word as u64, tongue as u64 + 0x90);
    let mut push = |char: char| {
        to.extend_from_slice(char.encode_utf8(&mut [0; 4]).as_bytes());
    };
    match tongue {
        Tongue::German | Tongue::French => {
            let special = if tongue == Tongue::German {
                ['ä', 'ö', 'ü', 'ß']
            } else {
                ['é', 'è', 'à', 'ç']
            };
            let text = words.text(word);
            // About every fifth word has one of them.
            let at = (bits % 24) as usize;
            for (n, char) in text.chars().enumerate() {
                push(if n == at { special[(bits >> 32 & 3) as usize] } else { char });
            }
            if tongue == Tongue::German && bits >> 40 & 3 == 0 {
                "en".chars().for_each(push);
            }
        }
        Tongue::Russian => {
            for letter in words.text(word).bytes() {
                let n = u32::from(letter.wrapping_sub(b'a')) * 32 / 26 % 32;
                push(char::from_u32(0x430 + n).unwrap_or('а'));
            }
        }
        Tongue::Japanese => {
            // Common words are short.
            for n in 0..1 + u64::from(word > 50) + bits % 3 {
                let bits = mix(bits, n);
                push(match bits % 10 {
                    0..6 => char::from_u32(0x3042 + (bits >> 32) as u32 % 80).unwrap_or('の'),
                    6 | 7 => char::from_u32(0x30a2 + (bits >> 32) as u32 % 80).unwrap_or('ー'),
                    _ => KANJI[(bits >> 32) as usize % KANJI.len()],
                });
            }
        }
        Tongue::Chinese => {
            for n in 0..1 + u64::from(word > 50) {
                let bits = mix(bits, n) >> 32;
                push(char::from_u32(0x4e00 + (bits % 20_000) as u32).unwrap_or('的'));
            }
        }
    }
}

const KANJI: &[char] = &[
    '日', '本', '人', '大', '年', '一', '国', '会', '中', '出', '事', '者', '社', '月', '分', '生',
    '行', '手', '上', '自', '時', '学', '新', '場', '定', '小', '気', '実', '開', '前', '全', '方',
    '発', '文', '法', '間', '問', '金', '近', '動', '合', '取', '今', '元', '回', '表', '明', '下',
];
