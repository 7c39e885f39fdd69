//! Character references in HTML: `&eacute;`, `&#233;`, `&#xe9;`.

use super::charset;

/// The names and the code points of their characters, as in the standard
/// (WHATWG HTML, 13.5), one per line, such as `fjlig 66+6a`. It is one text
/// because a table of strings is a table of pointers, which the loader would
/// have to relocate each time the library is loaded.
static NAMES: [u8; include_bytes!("entities.txt").len()] = *include_bytes!("entities.txt");

/// The length of the longest name, `CounterClockwiseContourIntegral`.
const LONGEST: usize = 31;

/// The offsets in [`NAMES`] at which the lines begin: a hash table with linear
/// probing. Empty slots are 0, the offset of the first line, which never
/// matches there.
static SLOTS: [u16; 4096] = {
    let mut slots = [0; 4096];
    let mut start = 0;
    while start < NAMES.len() {
        let mut end = start;
        let mut hash = HASH_OF_NOTHING;
        while NAMES[end] != b' ' {
            hash = hash_more(hash, NAMES[end]);
            end += 1;
        }
        let mut slot = slot_of(hash);
        while slots[slot] != 0 {
            slot = (slot + 1) % slots.len();
        }
        slots[slot] = start as u16;
        while NAMES[end] != b'\n' {
            end += 1;
        }
        start = end + 1;
    }
    slots
};

/// FNV-1a.
const HASH_OF_NOTHING: u32 = 0x811c_9dc5;

const fn hash_more(hash: u32, byte: u8) -> u32 {
    (hash ^ byte as u32).wrapping_mul(0x0100_0193)
}

const fn slot_of(hash: u32) -> usize {
    (hash >> 16 ^ hash) as usize % 4096
}

/// Appends the characters of the entity `name`; returns whether it exists.
fn add_named(name: &[u8], out: &mut String) -> bool {
    let hash = name.iter().fold(HASH_OF_NOTHING, |hash, &byte| hash_more(hash, byte));
    let starts = (0..SLOTS.len()).map(|n| SLOTS[(slot_of(hash) + n) % SLOTS.len()]);
    for start in starts {
        let line = NAMES[usize::from(start)..].split(|&byte| byte == b'\n').next();
        let codes = line.and_then(|line| line.strip_prefix(name)?.strip_prefix(b" "));
        if let Some(codes) = codes {
            let codes = codes.split(|&byte| byte == b'+').filter_map(|code| {
                char::from_u32(u32::from_str_radix(std::str::from_utf8(code).ok()?, 16).ok()?)
            });
            out.extend(codes);
            return true;
        }
        if start == 0 {
            break;
        }
    }
    false
}

/// Appends `text` with its character references decoded.
pub(super) fn decode_all(text: &str, is_attribute: bool, out: &mut String) {
    let mut rest = text;
    while let Some(at) = rest.find('&') {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        rest = &rest[decode(rest, is_attribute, out)..];
    }
    out.push_str(rest);
}

/// Appends the character of the reference at the start of `rest`, which begins
/// with `&`. Returns the length of the reference; if there is none, appends `&`
/// and returns 1.
pub(super) fn decode(rest: &str, is_attribute: bool, out: &mut String) -> usize {
    if let Some(number) = rest.strip_prefix("&#")
        && let Some((c, length)) = numbered(number)
    {
        out.push(c);
        return 2 + length;
    }
    let name = &rest[1..];
    let length = name.bytes().take(LONGEST + 1).take_while(u8::is_ascii_alphanumeric).count();
    let name = &name[..length];
    if rest.as_bytes().get(length + 1) == Some(&b';') && add_named(name.as_bytes(), out) {
        return length + 2;
    }
    // Legacy names need no semicolon, but in an attribute they must not be
    // followed by `=` or an alphanumeric character.
    let mut ends = (2..=length.min(6)).rev().filter(|&end| is_legacy(&name.as_bytes()[..end]));
    let goes_on = |end: usize| {
        let next = rest.as_bytes().get(end + 1);
        next.is_some_and(|&next| next == b'=' || next.is_ascii_alphanumeric())
    };
    if let Some(end) = ends.next().filter(|&end| !(is_attribute && goes_on(end))) {
        add_named(&name.as_bytes()[..end], out);
        return end + 1;
    }
    out.push('&');
    1
}

/// The character whose number follows `&#`, and the length of the number.
fn numbered(number: &str) -> Option<(char, usize)> {
    let (radix, begin) = if number.starts_with(['x', 'X']) { (16, 1) } else { (10, 0) };
    let mut code = 0_u32;
    let mut length = begin;
    while let Some(digit) = number[length..].chars().next().and_then(|c| c.to_digit(radix)) {
        code = code.saturating_mul(radix).saturating_add(digit);
        length += 1;
    }
    if length == begin {
        return None;
    }
    let c = match code {
        // Numbers in this range are meant as bytes of Windows-1252.
        0x80..=0x9f => charset::to_utf8(&[code as u8], Some("windows-1252")).chars().next(),
        0 => None,
        _ => char::from_u32(code),
    };
    let end = usize::from(number[length..].starts_with(';'));
    Some((c.unwrap_or(char::REPLACEMENT_CHARACTER), length + end))
}

/// Whether the name is valid without a semicolon.
#[rustfmt::skip] // else a line for each
fn is_legacy(name: &[u8]) -> bool {
    matches!(
        name,
        b"AElig" | b"AMP" | b"Aacute" | b"Acirc" | b"Agrave" | b"Aring" | b"Atilde" | b"Auml"
        | b"COPY" | b"Ccedil" | b"ETH" | b"Eacute" | b"Ecirc" | b"Egrave" | b"Euml" | b"GT"
        | b"Iacute" | b"Icirc" | b"Igrave" | b"Iuml" | b"LT" | b"Ntilde" | b"Oacute" | b"Ocirc"
        | b"Ograve" | b"Oslash" | b"Otilde" | b"Ouml" | b"QUOT" | b"REG" | b"THORN" | b"Uacute"
        | b"Ucirc" | b"Ugrave" | b"Uuml" | b"Yacute" | b"aacute" | b"acirc" | b"acute" | b"aelig"
        | b"agrave" | b"amp" | b"aring" | b"atilde" | b"auml" | b"brvbar" | b"ccedil" | b"cedil"
        | b"cent" | b"copy" | b"curren" | b"deg" | b"divide" | b"eacute" | b"ecirc" | b"egrave"
        | b"eth" | b"euml" | b"frac12" | b"frac14" | b"frac34" | b"gt" | b"iacute" | b"icirc"
        | b"iexcl" | b"igrave" | b"iquest" | b"iuml" | b"laquo" | b"lt" | b"macr" | b"micro"
        | b"middot" | b"nbsp" | b"not" | b"ntilde" | b"oacute" | b"ocirc" | b"ograve" | b"ordf"
        | b"ordm" | b"oslash" | b"otilde" | b"ouml" | b"para" | b"plusmn" | b"pound" | b"quot"
        | b"raquo" | b"reg" | b"sect" | b"shy" | b"sup1" | b"sup2" | b"sup3" | b"szlig" | b"thorn"
        | b"times" | b"uacute" | b"ucirc" | b"ugrave" | b"uml" | b"uuml" | b"yacute" | b"yen"
        | b"yuml"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(text: &str, is_attribute: bool) -> String {
        let mut out = String::new();
        decode_all(text, is_attribute, &mut out);
        out
    }

    #[test]
    fn references_by_example() {
        for (text, expected) in [
            ("caf&eacute; &amp; th&#233; &#xE9; &#X65;", "café & thé é e"),
            ("&#118;iagra &#0000000000000000000000065;", "viagra A"),
            ("a&nbsp;b&shy;c&zwnj;d&ZeroWidthSpace;e", "a\u{a0}b\u{ad}c\u{200c}d\u{200b}e"),
            ("&aopf;&period;&colon;&sol;&fjlig;", "𝕒.:/fj"),
            ("&#147;quoted&#148; &#128;", "“quoted” €"),
            ("&#0;&#xd800;&#x110000;&#99999999999999999999;", "\u{fffd}\u{fffd}\u{fffd}\u{fffd}"),
            ("a & b &", "a & b &"),
            ("&; &# &#; &#x; &#xg;", "&; &# &#; &#x; &#xg;"),
            ("&unknown; &unknown", "&unknown; &unknown"),
            ("&eacute &eacutes &ltb&gt &notit; &notin;", "é és <b> ¬it; ∉"),
            ("&AMP;&AMP&QUOT", "&&\""),
            ("&CounterClockwiseContourIntegral;", "∳"),
            ("&amp;lt;", "&lt;"),
            ("&é;&amp", "&é;&"),
        ] {
            assert_eq!(decoded(text, false), expected, "{text}");
        }
        assert_eq!(decoded("?a=1&copy=2&copyx&copy;&copy", true), "?a=1&copy=2&copyx©©");
    }

    #[test]
    fn every_name_is_found() {
        let lines = std::str::from_utf8(&NAMES).unwrap().lines();
        let mut count = 0;
        for (name, codes) in lines.map(|line| line.split_once(' ').unwrap()) {
            assert!(name.len() <= LONGEST && name.bytes().all(|byte| byte.is_ascii_alphanumeric()));
            let codes = codes.split('+').map(|code| u32::from_str_radix(code, 16).unwrap());
            let text: String = codes.map(|code| char::from_u32(code).unwrap()).collect();
            assert_eq!(decoded(&format!("&{name};"), true), text, "{name}");
            count += 1;
        }
        assert_eq!(count, 2125);
    }

    #[test]
    fn legacy_names_are_names() {
        for name in ["AElig", "amp", "frac12", "yuml", "thorn"] {
            assert!(is_legacy(name.as_bytes()));
            assert_eq!(decoded(&format!("&{name}"), false), decoded(&format!("&{name};"), false));
        }
        assert!(!is_legacy(b"notin") && !is_legacy(b"apos") && !is_legacy(b""));
    }
}
