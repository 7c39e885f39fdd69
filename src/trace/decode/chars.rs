//! Maps single characters to their normalised form.
//!
//! A character becomes the lower case of its compatibility decomposition
//! (NFKD), with `ss` for `ß`, whose upper case that is, with plain quotation
//! marks and dashes, and without invisible characters. That depends on the character alone; only the composition (NFC)
//! that follows depends on adjacent characters.

use std::iter;

use unicode_normalization::char::{canonical_combining_class, decompose_compatible};
use unicode_normalization::{IsNormalized, is_nfc_quick, is_nfkc_quick};

/// What a character becomes, and whether it can combine with the previous one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Becomes {
    /// This character, which does not combine with the previous one.
    One(char),
    /// Nothing.
    Nothing,
    /// The characters that [`spread`] gives, which do not combine with the
    /// previous one.
    Several,
    /// The characters that [`spread`] gives, which may combine with the
    /// previous one: an accent, the end of a Korean syllable.
    Joined,
}

/// The normalised form of `c`.
pub(super) fn becomes(c: char) -> Becomes {
    if let Some(one) = common(c) {
        return Becomes::One(one);
    }
    if let Some(plain) = plain(c) {
        return Becomes::One(plain);
    }
    if is_invisible(c) {
        return Becomes::Nothing;
    }
    let mut lower = c.to_lowercase();
    if let (Some(one), None) = (lower.next(), lower.next())
        && is_nfkc_quick(iter::once(one)) == IsNormalized::Yes
        && canonical_combining_class(one) == 0
        && !matches!(one, 'ς' | 'ß')
    {
        return Becomes::One(one);
    }
    let mut first = None;
    spread(c, &mut |part| first = first.or(Some(part)));
    match first {
        None => Becomes::Nothing,
        Some(first) if joins(first) => Becomes::Joined,
        Some(_) => Becomes::Several,
    }
}

/// The same, but [`Becomes::Several`] for all but usual characters.
pub(super) fn becomes_usual(c: char) -> Becomes {
    common(c).map_or(Becomes::Several, Becomes::One)
}

/// Passes the decomposed form of `c` to `give`.
pub(super) fn spread(c: char, give: &mut impl FnMut(char)) {
    if let Some(plain) = plain(c) {
        give(plain);
    } else if !is_invisible(c) {
        decompose_compatible(c, |part| {
            if let Some(plain) = plain(part) {
                give(plain);
            } else if !is_invisible(part) {
                part.to_lowercase().for_each(|part| match part {
                    'ς' => give('σ'),
                    'ß' => ['s', 's'].into_iter().for_each(&mut *give),
                    _ => give(part),
                });
            }
        });
    }
}

/// Whether a decomposed character may combine with the previous one, or be
/// reordered with it.
fn joins(part: char) -> bool {
    canonical_combining_class(part) != 0 || is_nfc_quick(iter::once(part)) != IsNormalized::Yes
}

/// A fast path for frequent letters, with the same results as the rest of
/// [`becomes`].
fn common(c: char) -> Option<char> {
    let code = u32::from(c);
    if let Some(&lower) = LOW.get(code as usize) {
        return if lower == 0 { None } else { char::from_u32(u32::from(lower)) };
    }
    match c {
        // Arabic, Hindi, Thai
        '\u{621}'..='\u{64a}' | '\u{905}'..='\u{928}' | '\u{93e}'..='\u{94c}' => Some(c),
        '\u{e01}'..='\u{e30}' => Some(c),
        // Chinese, Japanese, Korean
        '、'..='〃' | 'ぁ'..='ゖ' | 'ァ'..='ヺ' | 'ー' => Some(c),
        '㐀'..='䶿' | '一'..='鿿' | '가'..='힣' => Some(c),
        // Vietnamese: pairs of upper and lower case
        'Ạ'..='ỹ' => char::from_u32(code | 1),
        _ => None,
    }
}

/// [`common`] for the first characters; 0 where it returns `None`.
static LOW: [u16; 0x600] = {
    let mut table = [0; 0x600];
    let mut code = 0;
    while code < 0x600 {
        table[code as usize] = low(code);
        code += 1;
    }
    table
};

/// The entries of [`LOW`].
const fn low(code: u16) -> u16 {
    match code {
        // ASCII
        0x41..=0x5a => code + 0x20,
        0x20..=0x7e => code,
        // Western Europe: À to Þ, à to ÿ
        0xd7 | 0xdf | 0xf7 => 0,
        0xc0..=0xde => code + 0x20,
        0xe0..=0xff => code,
        // The rest of Europe, and Vietnamese: pairs of upper and lower case
        0x100..=0x12f | 0x134..=0x137 | 0x14a..=0x177 | 0x1a0..=0x1a1 => code | 1,
        0x139..=0x13e | 0x141..=0x148 | 0x179..=0x17e | 0x1af..=0x1b0 => (code + 1) & !1,
        // Greek, except ς
        0x3c2 | 0x3a2 => 0,
        0x391..=0x3a9 => code + 0x20,
        0x3ac..=0x3ce => code,
        // Cyrillic
        0x400..=0x40f => code + 0x50,
        0x410..=0x42f => code + 0x20,
        0x430..=0x45f => code,
        // Hebrew
        0x5d0..=0x5ea => code,
        _ => 0,
    }
}

/// The plain character for a quotation mark, a dash or white space.
fn plain(c: char) -> Option<char> {
    Some(match c {
        '\u{b4}' | '‘'..='‛' | '′' | '‵' | '‹' | '›' | 'ʹ' | 'ʻ' | 'ʼ' | '՚' => {
            '\''
        }
        '«' | '»' | '“'..='‟' | '〝'..='〟' => '"',
        '‐'..='―' | '−' | '⁃' | '﹘' => '-',
        _ if c.is_whitespace() => ' ',
        _ => return None,
    })
}

/// Whether `c` is invisible: control characters, Unicode's default ignorable
/// characters (soft hyphens, zero-width characters, directional marks,
/// variation selectors), and replacement characters.
fn is_invisible(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}'..='\u{1160}' | '\u{17b4}'..='\u{17b5}'
            | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}'
            | '\u{ffa0}' | '\u{fff0}'..='\u{fffd}' | '\u{1bca0}'..='\u{1bca3}'
            | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
}

#[cfg(test)]
mod tests {
    use unicode_normalization::UnicodeNormalization;

    use super::*;

    fn all() -> impl Iterator<Item = char> {
        '\0'..=char::MAX
    }

    /// The normalised form of `c` without the fast path.
    fn decomposed(c: char) -> String {
        let mut parts = String::new();
        spread(c, &mut |part| parts.push(part));
        parts.nfc().collect()
    }

    #[test]
    fn the_fast_paths_agree_with_decomposition() {
        for c in all() {
            let decomposed = decomposed(c);
            match becomes(c) {
                Becomes::One(one) => assert_eq!(decomposed, one.to_string(), "{c:?}"),
                Becomes::Nothing => assert_eq!(decomposed, "", "{c:?}"),
                Becomes::Several | Becomes::Joined => assert_ne!(decomposed, "", "{c:?}"),
            }
        }
    }

    #[test]
    fn normalised_characters_do_not_change_again() {
        for c in all() {
            let once = decomposed(c);
            let twice: String = once.chars().map(decomposed).collect();
            assert_eq!(twice.nfc().collect::<String>(), once, "{c:?}");
            for part in once.chars() {
                assert!(!is_invisible(part), "{c:?}");
                assert_eq!(part.to_lowercase().to_string(), part.to_string(), "{c:?}");
            }
        }
    }

    #[test]
    fn single_characters_do_not_combine() {
        for c in all() {
            if let Becomes::One(one) = becomes(c) {
                assert!(!joins(one), "{c:?}");
            }
        }
    }

    #[test]
    fn compatible_characters_lower_case_and_plain_punctuation() {
        for (c, expected) in [
            ('Ä', "ä"),
            ('Ⅳ', "iv"),
            ('ﬁ', "fi"),
            ('…', "..."),
            ('𝕍', "v"),
            ('Ａ', "a"),
            ('ｶ', "カ"),
            ('ς', "σ"),
            ('’', "'"),
            ('„', "\""),
            ('—', "-"),
            ('\u{a0}', " "),
            ('\u{3000}', " "),
            ('\u{ad}', ""),
            ('\u{200b}', ""),
            ('\u{202e}', ""),
            ('\u{7}', ""),
            ('\u{fffd}', ""),
        ] {
            assert_eq!(decomposed(c), expected, "{c:?}");
        }
    }
}
