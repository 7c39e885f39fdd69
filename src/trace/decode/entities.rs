//! Character references in HTML: `&eacute;`, `&#233;`, `&#xe9;`.

use super::charset;

/// The names and the code points of their characters, as the standard has them
/// (WHATWG HTML, 13.5): one a line, such as `fjlig 66+6a`. One text, since a table
/// of texts is a table of pointers, which the loader would fill in each time the
/// library is loaded.
static NAMES: [u8; include_bytes!("entities.txt").len()] = *include_bytes!("entities.txt");

/// No name is longer: `CounterClockwiseContourIntegral`.
const LONGEST: usize = 31;

/// Where in [`NAMES`] the lines begin: a hash table with linear probing. The
/// first line, which begins at 0, is looked at in vain at empty places.
static PLACES: [u16; 4096] = {
    let mut places = [0; 4096];
    let mut start = 0;
    while start < NAMES.len() {
        let mut end = start;
        let mut hash = HASH_OF_NOTHING;
        while NAMES[end] != b' ' {
            hash = hash_more(hash, NAMES[end]);
            end += 1;
        }
        let mut place = place_of(hash);
        while places[place] != 0 {
            place = (place + 1) % places.len();
        }
        places[place] = start as u16;
        while NAMES[end] != b'\n' {
            end += 1;
        }
        start = end + 1;
    }
    places
};

/// FNV-1a.
const HASH_OF_NOTHING: u32 = 0x811c_9dc5;

const fn hash_more(hash: u32, byte: u8) -> u32 {
    (hash ^ byte as u32).wrapping_mul(0x0100_0193)
}

const fn place_of(hash: u32) -> usize {
    (hash >> 16 ^ hash) as usize % 4096
}

/// Adds what `name` stands for. Whether it does.
fn add_named(name: &[u8], out: &mut String) -> bool {
    let hash = name.iter().fold(HASH_OF_NOTHING, |hash, &byte| hash_more(hash, byte));
    let places = (0..PLACES.len()).map(|n| PLACES[(place_of(hash) + n) % PLACES.len()]);
    for start in places {
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

/// Adds `text` with its references decoded.
pub(super) fn decode_all(text: &str, is_attribute: bool, out: &mut String) {
    let mut rest = text;
    while let Some(at) = rest.find('&') {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        rest = &rest[decode(rest, is_attribute, out)..];
    }
    out.push_str(rest);
}

/// Adds what the reference stands for that `rest`, which begins with a `&`, may
/// begin with. Returns its length, or 1 where it is a `&` and no more.
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
    // Old names need no semicolon, but in attributes they may begin a word.
    let mut ends = (2..=length.min(6)).rev().filter(|&end| is_old(&name.as_bytes()[..end]));
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

/// The character whose number stands behind `&#`, and the length of that.
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
        // As the bytes of Windows-1252, which is what was meant.
        0x80..=0x9f => charset::to_utf8(&[code as u8], Some("windows-1252")).chars().next(),
        0 => None,
        _ => char::from_u32(code),
    };
    let end = usize::from(number[length..].starts_with(';'));
    Some((c.unwrap_or(char::REPLACEMENT_CHARACTER), length + end))
}

/// Whether a name is known without its semicolon.
fn is_old(name: &[u8]) -> bool {
    matches!(
        name,
        b"AElig"
            | b"AMP"
            | b"Aacute"
            | b"Acirc"
            | b"Agrave"
            | b"Aring"
            | b"Atilde"
            | b"Auml"
            | b"COPY"
            | b"Ccedil"
            | b"ETH"
            | b"Eacute"
            | b"Ecirc"
            | b"Egrave"
            | b"Euml"
            | b"GT"
            | b"Iacute"
            | b"Icirc"
            | b"Igrave"
            | b"Iuml"
            | b"LT"
            | b"Ntilde"
            | b"Oacute"
            | b"Ocirc"
            | b"Ograve"
            | b"Oslash"
            | b"Otilde"
            | b"Ouml"
            | b"QUOT"
            | b"REG"
            | b"THORN"
            | b"Uacute"
            | b"Ucirc"
            | b"Ugrave"
            | b"Uuml"
            | b"Yacute"
            | b"aacute"
            | b"acirc"
            | b"acute"
            | b"aelig"
            | b"agrave"
            | b"amp"
            | b"aring"
            | b"atilde"
            | b"auml"
            | b"brvbar"
            | b"ccedil"
            | b"cedil"
            | b"cent"
            | b"copy"
            | b"curren"
            | b"deg"
            | b"divide"
            | b"eacute"
            | b"ecirc"
            | b"egrave"
            | b"eth"
            | b"euml"
            | b"frac12"
            | b"frac14"
            | b"frac34"
            | b"gt"
            | b"iacute"
            | b"icirc"
            | b"iexcl"
            | b"igrave"
            | b"iquest"
            | b"iuml"
            | b"laquo"
            | b"lt"
            | b"macr"
            | b"micro"
            | b"middot"
            | b"nbsp"
            | b"not"
            | b"ntilde"
            | b"oacute"
            | b"ocirc"
            | b"ograve"
            | b"ordf"
            | b"ordm"
            | b"oslash"
            | b"otilde"
            | b"ouml"
            | b"para"
            | b"plusmn"
            | b"pound"
            | b"quot"
            | b"raquo"
            | b"reg"
            | b"sect"
            | b"shy"
            | b"sup1"
            | b"sup2"
            | b"sup3"
            | b"szlig"
            | b"thorn"
            | b"times"
            | b"uacute"
            | b"ucirc"
            | b"ugrave"
            | b"uml"
            | b"uuml"
            | b"yacute"
            | b"yen"
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
    fn old_names_are_names() {
        for name in ["AElig", "amp", "frac12", "yuml", "thorn"] {
            assert!(is_old(name.as_bytes()));
            assert_eq!(decoded(&format!("&{name}"), false), decoded(&format!("&{name};"), false));
        }
        assert!(!is_old(b"notin") && !is_old(b"apos") && !is_old(b""));
    }
}
