//! Tests of the normal form against its rules and guarantees.

use quickcheck::{Arbitrary, Gen};

use super::chars::{self, Becomes};
use super::normal::*;
use crate::sys::clock::{HANGS, thread_time};
use unicode_normalization::UnicodeNormalization;

/// Text in which the rules often interact.
#[derive(Clone, Debug)]
struct Text(String);

const PARTS: &[&str] = &[
    "a",
    "A",
    "a",
    "e",
    "I",
    " ",
    "\n",
    "\r\n",
    "\t",
    ">",
    ">",
    "> ",
    "|",
    "<",
    "=",
    "-",
    "--",
    ".",
    "...",
    "\u{7}",
    "\u{0}",
    "\u{200b}",
    "\u{ad}",
    "\u{200d}",
    "\u{fe0f}",
    "\u{34f}",
    "\u{301}",
    "\u{308}",
    "\u{323}",
    "\u{338}",
    "\u{345}",
    "\u{307}",
    "é",
    "E\u{301}",
    "ệ",
    "İ",
    "ß",
    "ẞ",
    "Σ",
    "ς",
    "ǆ",
    "Ǆ",
    "ﬁ",
    "…",
    "½",
    "´",
    "¨",
    "\u{a0}",
    "\u{3000}",
    "\u{2028}",
    "’",
    "“",
    "—",
    "−",
    "ｶ",
    "ﾞ",
    "カ",
    "\u{3099}",
    "か",
    "한",
    "\u{1112}",
    "\u{1161}",
    "\u{11ab}",
    "ㅎ",
    "ㅏ",
    "ﾡ",
    "ﾲ",
    "漢",
    "字",
    "。",
    "🙂",
    "👩\u{200d}🚀",
    "\u{fdfa}",
    "\u{fffd}",
    "ё",
    "\u{430}\u{306}",
    "क\u{94d}\u{937}",
    "\u{9c7}\u{9be}",
    "\u{1b35}",
    "\u{110a5}\u{110ba}",
    "\u{1d15e}",
    "ກ\u{eb3}",
    "𝕍",
    "Ａ",
];

impl Arbitrary for Text {
    fn arbitrary(g: &mut Gen) -> Self {
        let parts = 0..u8::arbitrary(g) % 40;
        Self(parts.map(|_| part(g)).collect())
    }

    fn shrink(&self) -> Box<dyn Iterator<Item = Self>> {
        let chars: Vec<char> = self.0.chars().collect();
        Box::new((0..chars.len()).map(move |without| {
            Self([&chars[..without], &chars[without + 1..]].concat().into_iter().collect())
        }))
    }
}

fn part(g: &mut Gen) -> String {
    match u8::arbitrary(g) % 10 {
        0 => char::arbitrary(g).to_string(),
        1 => char::from_u32(u32::arbitrary(g) % 0x3100).unwrap_or('x').to_string(),
        2 => g.choose(PARTS).unwrap().repeat(usize::arbitrary(g) % 6),
        _ => String::from(*g.choose(PARTS).unwrap()),
    }
}

fn check(tests: u64, property: fn(Text) -> bool) {
    kit::quick_check().tests(tests).quickcheck(property);
}

/// The same rules, each applied to the whole text before the next one.
fn step_by_step(text: &str) -> String {
    let mut spread = String::new();
    text.chars().for_each(|c| chars::spread(c, &mut |part| spread.push(part)));
    let mut spaced = String::new();
    for c in spread.nfc() {
        if !(matches!(c, ' ' | '>' | '|') && (spaced.is_empty() || spaced.ends_with(' '))) {
            spaced.push(c);
        }
    }
    let mut out: Vec<char> = Vec::new();
    for c in spaced.trim_end_matches(' ').chars() {
        if !out.ends_with(&[c; RUN]) {
            out.push(c);
        }
    }
    out.into_iter().collect()
}

#[test]
fn the_normal_form_follows_the_rules() {
    check(20_000, |Text(text)| {
        assert_eq!(normalise(&text), step_by_step(&text));
        true
    });
}

#[test]
fn normalising_twice_changes_nothing() {
    check(20_000, |Text(text)| {
        let once = normalise(&text);
        assert_eq!(normalise(&once), once);
        assert_eq!(once.trim(), once);
        true
    });
}

/// Whether a selection can begin or end here: the next character combines with
/// nothing.
fn is_between_letters(text: &str, at: usize) -> bool {
    let mut seen = text[at..].chars().map(chars::becomes).filter(|b| *b != Becomes::Nothing);
    text.is_char_boundary(at) && seen.next() != Some(Becomes::Joined)
}

#[test]
fn selected_excerpts_are_found() {
    check(1_000, |Text(text)| {
        let whole = normalise(&text);
        let cuts = (0..=text.len()).filter(|&at| text.is_char_boundary(at));
        let cuts: Vec<usize> = cuts.filter(|&at| is_between_letters(&text, at)).collect();
        for (n, &from) in cuts.iter().enumerate() {
            for &to in &cuts[n..] {
                let copied = &text[from..to];
                assert!(whole.contains(&normalise(copied)), "{copied:?}");
                assert!(whole.contains(&excerpt(copied)), "{copied:?}");
            }
        }
        true
    });
}

#[test]
fn excerpts_cut_anywhere_are_found_except_a_lost_last_accent() {
    check(1_000, |Text(text)| {
        let whole = normalise(&text);
        let cuts: Vec<usize> = (0..=text.len()).filter(|&at| text.is_char_boundary(at)).collect();
        for (n, &from) in cuts.iter().enumerate() {
            for &to in &cuts[n..] {
                let cut = &text[from..to];
                let mut found = whole.contains(&excerpt(cut));
                if !found && !is_between_letters(&text, to) {
                    let joined = |c| chars::becomes(c) == Becomes::Joined;
                    let excerpt = excerpt(cut);
                    let mut letters = excerpt.trim_end_matches(joined).chars();
                    letters.next_back();
                    found = whole.contains(letters.as_str());
                }
                assert!(found, "{cut:?}");
            }
        }
        true
    });
}

#[test]
fn the_rules_by_example() {
    for (text, expected) in [
        ("", ""),
        (" \r\n\t", ""),
        ("  Dear   Sir,\r\n\r\nI am ", "dear sir, i am"),
        ("> > quoted\n>again\n>>\n> and again", "quoted again and again"),
        ("a -> b >= c", "a -> b = c"),
        ("x>y", "x>y"),
        ("========== cut ----------", "=== cut ---"),
        ("Hallooooo", "hallooo"),
        ("V\u{200b}i\u{200d}a\u{ad}gra", "viagra"),
        ("‘It’s’ – “so”", "'it's' - \"so\""),
        ("Cafe\u{301} CAFÉ", "café café"),
        ("ＦＵＬＬ　ｗｉｄｔｈ", "full width"),
        ("e\u{7}\u{301}", "é"),
        ("ΟΔΟΣ οδός", "οδοσ οδόσ"),
        ("ÄÖÜ ПРИВЕТ", "äöü привет"),
    ] {
        assert_eq!(normalise(text), expected, "{text:?}");
    }
}

#[test]
fn an_excerpt_drops_uncertain_characters() {
    for (text, expected) in [
        ("\u{301}t au lait", "t au lait"),
        ("\u{200b}\u{301}t au lait", "t au lait"),
        ("cafe\u{301} cre\u{300}me", "café crèm"),
        ("cafe\u{301} cre\u{300}", "café cr"),
        ("café crème", "café crème"),
        ("\u{1161}\u{11ab}국", "국"),
    ] {
        assert_eq!(excerpt(text), expected, "{text:?}");
    }
}

#[test]
fn growth_beyond_the_limit_is_cut_off() {
    let Normalised { out, is_whole, .. } =
        normalise_up_to(&"\u{fdfa}".repeat(1000), 1000, usize::MAX);
    assert!(!is_whole);
    assert!((1001..1100).contains(&out.len()));
    assert!(normalise("\u{fdfa}\u{fdfa}").starts_with(&out[..33]));
    let whole = Normalised { out: String::from("abc"), is_whole: true, composed: 0 };
    assert_eq!(normalise_up_to("abc", 3, 1), whole);
}

#[test]
fn the_work_of_composing_is_limited() {
    // The last is one letter with all the accents.
    for text in ["\u{fdfa}", "e\u{301}", "e\u{301}\u{200b}x", "\u{301}"] {
        let text = text.repeat(1000);
        let all = normalise_up_to(&text, usize::MAX, usize::MAX);
        assert!(all.is_whole && all.composed >= 1000, "{}", all.composed);
        let some = normalise_up_to(&text, usize::MAX, 500);
        assert!(!some.is_whole);
        assert_eq!(some.composed, 500);
        // Usual text is not left out.
        let some = some.out.replace('x', "");
        assert!(all.out.replace('x', "").starts_with(some.trim_end_matches('e')), "{some}");
        let after = normalise_up_to(&(text + "Usual text."), usize::MAX, 500);
        assert!(after.out.ends_with("usual text."), "{}", after.out);
    }
    // What needs no composition is not work.
    for text in ["Some text.", "Über", "Привет", "你好", "안녕"] {
        assert_eq!(normalise_up_to(&text.repeat(100), usize::MAX, 1).composed, 0);
    }
}

#[test]
fn upper_and_lower_case_are_equal() {
    for (upper, lower) in [("STRASSE", "Straße"), ("STRAẞE", "straße"), ("ΟΔΟΣ", "οδος")]
    {
        assert_eq!(normalise(upper), normalise(lower));
    }
}

#[test]
fn quote_marks_are_dropped() {
    let plain = normalise("one two three four");
    for quoted in
        ["> one two\n> three four", "| one two\n| three four", ">|> one\n>|>two three four"]
    {
        assert_eq!(normalise(quoted), plain);
    }
    assert_eq!(normalise("a|b c>d"), "a|b c>d");
}

#[test]
fn many_accents_take_linear_time() {
    let accents = "e\u{301}\u{323}".repeat(10) + &"\u{301}\u{323}\u{200b}".repeat(300_000);
    let started = thread_time();
    let out = normalise(&accents);
    assert!(out.starts_with("ẹ\u{301}ẹ\u{301}ẹ\u{301}"));
    let took = thread_time() - started;
    assert!(took < HANGS, "{took:?}");
}

/// If this fails, the character tables have changed (a later Unicode version,
/// or our own rules). Earlier digests then no longer match, and
/// [`super::VERSION`] must be incremented.
#[test]
fn the_version_matches_the_character_tables() {
    let blocks = [
        '\0'..='\u{24f}',
        'Ͱ'..='ӿ',
        'Ḁ'..='\u{206f}',
        '\u{2100}'..='\u{21ff}',
        '、'..='㏿',
        '！'..='\u{ffef}',
    ];
    let mut sum = crc32fast::Hasher::new();
    for c in blocks.into_iter().flatten() {
        sum.update(normalise(&format!("x{c}x")).as_bytes());
    }
    assert_eq!((super::VERSION, sum.finalize()), (4, 1_509_038_776));
}
