//! Encoded words (RFC 2047) in header fields, prepared for the parser of
//! mail-parser.

use super::charset::to_utf8;

/// Inserted between the `=` and the `?` of a text that is not an encoded word.
/// Normalisation drops it.
pub(super) const APART: char = '\u{200b}';

/// White space in fields.
const BLANK: [char; 4] = [' ', '\t', '\r', '\n'];

/// The value of a field as mail-parser can parse it.
///
/// - Adjacent words in the same charset are joined, since many senders split
///   characters between words.
/// - A `=?` that does not begin a word gets [`APART`] in the middle: the parser
///   would otherwise search for the end of such a word up to the end of the
///   value, for each one.
/// - Bytes beyond ASCII are converted to UTF-8, and a line end is appended.
pub(super) fn prepare(value: &[u8]) -> String {
    let value = to_utf8(value, None);
    let mut out = String::with_capacity(value.len() + 8);
    let mut rest = value.as_ref();
    while let Some(at) = rest.find("=?") {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        let Some(mut word) = EncodedWord::read(rest) else {
            out.push('=');
            out.push(APART);
            rest = &rest[1..];
            continue;
        };
        let (charset, encoding) = (word.charset, word.encoding);
        out.push_str(&rest[..word.start]);
        loop {
            out.push_str(word.data);
            rest = &rest[word.length..];
            let gap = rest.len() - rest.trim_start_matches(BLANK).len();
            match EncodedWord::read(&rest[gap..]) {
                Some(next)
                    if next.charset.eq_ignore_ascii_case(charset)
                        && next.encoding.eq_ignore_ascii_case(encoding) =>
                {
                    rest = &rest[gap..];
                    word = next;
                }
                _ => break,
            }
        }
        out.push_str("?=");
    }
    out.push_str(rest);
    out.truncate(out.trim_end_matches(['\r', '\n']).len());
    out.push('\n');
    out
}

/// Splits a prepared value into chunks, each a little longer than `size` bytes,
/// at white space. With each chunk comes whether it continues the previous one
/// without the space between them, as white space between two encoded words is
/// ignored (RFC 2047). Words are never split.
pub(super) fn chunks(value: &str, size: usize) -> impl Iterator<Item = (&str, bool)> {
    let (mut rest, mut continues) = (value, false);
    std::iter::from_fn(move || {
        let chunk = Some(rest).filter(|rest| !rest.is_empty())?;
        let (end, is_between_words) = end_of_chunk(chunk, size);
        rest = &chunk[end..];
        Some((&chunk[..end], std::mem::replace(&mut continues, is_between_words)))
    })
}

/// The offset of the first white space after `size` bytes that is not in an
/// encoded word, and whether it is between two such words.
fn end_of_chunk(value: &str, size: usize) -> (usize, bool) {
    let (mut at, mut is_after_word) = (0, false);
    while at < value.len() {
        let text = value[at..].trim_start_matches(BLANK);
        let start = value.len() - text.len();
        let word = EncodedWord::read(text);
        if at >= size && start > at {
            return (at, is_after_word && word.is_some());
        }
        is_after_word = word.is_some();
        at = start + word.map_or_else(|| plain(text), |word| word.length);
    }
    (value.len(), false)
}

/// The length of the text before white space or a possible word, at least one
/// character.
fn plain(text: &str) -> usize {
    let mut after = text.char_indices().skip(1);
    let end = after.find(|&(at, c)| BLANK.contains(&c) || text[at..].starts_with("=?"));
    end.map_or(text.len(), |(at, _)| at)
}

/// `=?charset?encoding?data?=`
#[derive(Clone, Copy)]
struct EncodedWord<'a> {
    charset: &'a str,
    encoding: &'a str,
    data: &'a str,
    /// Where the data begins.
    start: usize,
    /// The total length.
    length: usize,
}

impl<'a> EncodedWord<'a> {
    /// The word at the start of `text`, if there is one.
    fn read(text: &'a str) -> Option<Self> {
        let (charset, rest) = text.strip_prefix("=?")?.split_once('?')?;
        let (encoding, rest) = rest.split_once('?')?;
        let (data, rest) = rest.split_once('?')?;
        let rest = rest.strip_prefix('=')?;
        let is_token = |part: &str| part.bytes().all(|byte| byte.is_ascii_graphic());
        let is_word =
            charset.len() >= 2 && is_token(charset) && matches!(encoding, "b" | "B" | "q" | "Q");
        let start = 2 + charset.len() + 1 + encoding.len() + 1;
        is_word.then_some(Self { charset, encoding, data, start, length: text.len() - rest.len() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adjacent_words_are_joined_and_other_text_is_marked() {
        for (value, expected) in [
            ("", "\n"),
            (" Hello\r\n", " Hello\n"),
            ("a =?utf-8?q?b?= c", "a =?utf-8?q?b?= c\n"),
            ("=?utf-8?B?w6?=\r\n =?UTF-8?b?k=?=", "=?utf-8?B?w6k=?=\n"),
            ("=?utf-8?q?a?= =?utf-8?q?b?= =?utf-8?q?c?= d", "=?utf-8?q?abc?= d\n"),
            ("=?utf-8?q?a?= =?utf-8?b?b?=", "=?utf-8?q?a?= =?utf-8?b?b?=\n"),
            ("=?utf-8?q?a?= =?koi8-r?q?b?=", "=?utf-8?q?a?= =?koi8-r?q?b?=\n"),
            ("=?utf-8?q?a?=, =?utf-8?q?b?=", "=?utf-8?q?a?=, =?utf-8?q?b?=\n"),
            ("=?", "=\u{200b}?\n"),
            ("a=?b?c", "a=\u{200b}?b?c\n"),
            ("=?utf-8?x?a?=", "=\u{200b}?utf-8?x?a?=\n"),
            ("=?u f?q?a?=", "=\u{200b}?u f?q?a?=\n"),
            ("=?utf-8?q?a?b", "=\u{200b}?utf-8?q?a?b\n"),
            ("=?utf-8?q?=?utf-8?q?a?=", "=\u{200b}?utf-8?q?=?utf-8?q?a?=\n"),
        ] {
            assert_eq!(prepare(value.as_bytes()), expected, "{value}");
        }
    }

    #[test]
    fn values_are_split_between_words() {
        for (value, expected) in [
            ("", &[][..]),
            ("abcdef", &[("abcdef", false)]),
            (
                "ab cd  ef\n gh\n",
                &[("ab cd", false), ("  ef", false), ("\n gh", false), ("\n", false)],
            ),
            (
                "=?aa?q?b b?= =?aa?b?b?= a b=?aa?q?c c?=d e",
                &[
                    ("=?aa?q?b b?=", false),
                    (" =?aa?b?b?=", true),
                    (" a b=?aa?q?c c?=d", false),
                    (" e", false),
                ],
            ),
        ] {
            assert_eq!(chunks(value, 4).collect::<Vec<_>>(), expected, "{value}");
        }
    }

    #[test]
    fn bytes_beyond_ascii() {
        assert_eq!(prepare("café\r\n".as_bytes()), "café\n");
        assert_eq!(prepare(b"caf\xe9\n"), "café\n");
    }
}
