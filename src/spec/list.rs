//! The slash list: how Exim splits `m / p / options / key`.
//!
//! The rules are those of Exim's `string_nextinlist` with a fixed separator.

use std::borrow::Cow;

/// The maximum length of a spec in bytes.
pub const MAX_LEN: usize = 16 * 1024;

/// Whether `isspace` of the C locale is true.
pub(super) fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t'..=b'\r')
}

/// `text` without leading blanks.
pub(super) fn skip_blanks(text: &[u8]) -> &[u8] {
    let blanks = text.iter().take_while(|&&b| is_blank(b)).count();
    text.get(blanks..).unwrap_or_default()
}

/// The items of a slash list, in order.
///
/// Blanks around an item are dropped, a doubled slash stands for a slash in the
/// item, and only blanks (or nothing) after the last slash are not an item. One
/// oddity of Exim is kept: a blank directly after a backslash stays. Items are
/// borrowed unless they contain a doubled slash.
#[derive(Clone, Debug)]
pub(super) struct Items<'a> {
    rest: &'a [u8],
}

impl<'a> Items<'a> {
    /// The items of `text`.
    pub(super) fn new(text: &'a [u8]) -> Self {
        Self { rest: text }
    }

    /// The text after the last item, without the slash that ended it.
    pub(super) fn rest(&self) -> &'a [u8] {
        self.rest
    }
}

impl<'a> Iterator for Items<'a> {
    type Item = Cow<'a, [u8]>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let mut rest = skip_blanks(self.rest);
        if let [b'/', after @ ..] = rest {
            if after.first() != Some(&b'/') {
                self.rest = after;
                return Some(Cow::Borrowed(b""));
            }
            // The second slash is the first byte of the item.
            rest = after;
        }
        let (mut item, mut after) = chunk(rest)?;
        let mut joined: Option<Vec<u8>> = None;
        // A doubled slash continues this item.
        while let Some((piece, behind)) = after.strip_prefix(b"/").and_then(doubled) {
            joined.get_or_insert_with(|| item.to_vec()).extend_from_slice(piece);
            after = behind;
        }
        self.rest = after.strip_prefix(b"/").unwrap_or(after);
        if let Some(mut joined) = joined {
            joined.truncate(trim_end(&joined).len());
            return Some(Cow::Owned(joined));
        }
        item = trim_end(item);
        Some(Cow::Borrowed(item))
    }
}

/// The piece after the first slash of a doubled one, if it is doubled.
fn doubled(behind_slash: &[u8]) -> Option<(&[u8], &[u8])> {
    if behind_slash.first() == Some(&b'/') { chunk(behind_slash) } else { None }
}

/// `text` up to the next slash after its first byte, and the rest; `None` if it
/// is empty. The first byte is data, whatever it is.
#[inline]
fn chunk(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let (_, tail) = text.split_first()?;
    let length = 1 + tail.iter().position(|&b| b == b'/').unwrap_or(tail.len());
    text.split_at_checked(length)
}

/// `item` without trailing blanks, as Exim trims them.
#[inline]
fn trim_end(mut item: &[u8]) -> &[u8] {
    while let [before @ .., last] = item {
        if !is_blank(*last) || before.last() == Some(&b'\\') {
            break;
        }
        item = before;
    }
    item
}

#[cfg(test)]
mod tests {
    use super::Items;
    use kit::quickcheck;
    use quickcheck::{Arbitrary, Gen};

    fn items(text: &[u8]) -> Vec<Vec<u8>> {
        Items::new(text).map(Into::into).collect()
    }

    /// The same rules, written from the manual, one byte at a time.
    fn model(text: &[u8]) -> Vec<Vec<u8>> {
        let blank = |i: usize| i < text.len() && b" \t\n\x0b\x0c\r".contains(&text[i]);
        let slash = |i: usize| i < text.len() && text[i] == b'/';
        let mut found = Vec::new();
        let mut at = 0;
        loop {
            while blank(at) {
                at += 1;
            }
            if at >= text.len() {
                return found;
            }
            let mut item = Vec::new();
            while at < text.len() {
                if slash(at) {
                    at += 1;
                    if !slash(at) {
                        break;
                    }
                }
                item.push(text[at]);
                at += 1;
            }
            while let Some(last) = item.last() {
                let kept = item.len() > 1 && item[item.len() - 2] == b'\\';
                if !b" \t\n\x0b\x0c\r".contains(last) || kept {
                    break;
                }
                item.pop();
            }
            found.push(item);
        }
    }

    #[test]
    fn table() {
        let cases: &[(&[u8], &[&[u8]])] = &[
            (b"", &[]),
            (b" \t\r\n\x0b\x0c", &[]),
            (b"a", &[b"a"]),
            (b" a b /c", &[b"a b", b"c"]),
            (b"a/", &[b"a"]),
            (b"a/ ", &[b"a"]),
            (b"a / / b", &[b"a", b"", b"b"]),
            (b"/a", &[b"", b"a"]),
            (b"/", &[b""]),
            (b"//", &[b"/"]),
            (b"///", &[b"/"]),
            (b"////", &[b"//"]),
            (b"a//b", &[b"a/b"]),
            (b"a///b", &[b"a/", b"b"]),
            (b"a / //b", &[b"a", b"/b"]),
            (b"a////b", &[b"a//b"]),
            (b"a// /b", &[b"a/", b"b"]),
            (b"a\\ /b", &[b"a\\ ", b"b"]),
            (b"a\\  /b", &[b"a\\ ", b"b"]),
            (b"a\\b /c", &[b"a\\b", b"c"]),
            (b"\x85a\xa0/b", &[b"\x85a\xa0", b"b"]),
        ];
        for (text, expected) in cases {
            assert_eq!(items(text), *expected, "{}", text.escape_ascii());
            assert_eq!(model(text), *expected, "the model on {}", text.escape_ascii());
        }
    }

    /// Text in which slashes, blanks and backslashes are common.
    #[derive(Clone, Debug)]
    struct Slashy(Vec<u8>);

    impl Arbitrary for Slashy {
        fn arbitrary(g: &mut Gen) -> Self {
            Self((0..g.size() / 4).map(|_| *g.choose(b"////  \t\\\\ab\xff\0").unwrap()).collect())
        }

        fn shrink(&self) -> Box<dyn Iterator<Item = Self>> {
            Box::new(self.0.shrink().map(Self))
        }
    }

    quickcheck! {
        fn items_equal_the_model(text: Slashy) -> bool {
            items(&text.0) == model(&text.0)
        }

        fn items_written_out_are_read_back(wanted: Vec<Slashy>) -> bool {
            let wanted: Vec<Vec<u8>> = wanted
                .iter()
                .map(|s| super::trim_end(super::skip_blanks(&s.0)).to_vec())
                .collect();
            let mut text = Vec::new();
            for item in &wanted {
                text.push(b' ');
                text.extend(item.iter().flat_map(|&b| if b == b'/' { vec![b; 2] } else { vec![b] }));
                text.push(b'/');
            }
            items(&text) == wanted
        }
    }
}
