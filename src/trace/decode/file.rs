//! The contents by whose hash a whole file is found.

use std::borrow::Cow;

/// The contents that a file may have where it came from, if a message carried it as `bytes`
/// without a binary encoding: mail programs write the lines of such a part with the line ends
/// of the path. One with LF, one with CR LF, and `bytes` if that is neither.
///
/// A part in base64 or uuencode has one content, the decoded bytes.
pub(super) fn contents(bytes: &[u8]) -> impl Iterator<Item = Cow<'_, [u8]>> {
    let ends = memchr::memchr_iter(b'\n', bytes).count();
    let long = memchr::memmem::find_iter(bytes, b"\r\n").count();
    // Made one after the other, as a file may be large.
    [false, true]
        .into_iter()
        .filter_map(move |is_long| match is_long {
            false if long == 0 => Some(Cow::Borrowed(bytes)),
            false => Some(Cow::Owned(with_line_ends(bytes, b"\n", bytes.len()))),
            true if ends == 0 => None,
            true if long == ends => Some(Cow::Borrowed(bytes)),
            true => Some(Cow::Owned(with_line_ends(bytes, b"\r\n", bytes.len() + ends))),
        })
        .chain((0 < long && long < ends).then_some(Cow::Borrowed(bytes)))
}

/// `bytes` with `end` at the end of each line, which takes at most `size` bytes.
fn with_line_ends(bytes: &[u8], end: &[u8], size: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(size);
    for line in bytes.split_inclusive(|&byte| byte == b'\n') {
        match line.strip_suffix(b"\n") {
            Some(content) => {
                out.extend_from_slice(content.strip_suffix(b"\r").unwrap_or(content));
                out.extend_from_slice(end);
            }
            None => out.extend_from_slice(line),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use kit::quickcheck;

    use super::*;

    fn all(bytes: &[u8]) -> Vec<Vec<u8>> {
        contents(bytes).map(Cow::into_owned).collect()
    }

    #[test]
    fn each_content_once() {
        assert_eq!(all(b"one\ntwo\n"), [&b"one\ntwo\n"[..], b"one\r\ntwo\r\n"]);
        assert_eq!(all(b"one\r\ntwo"), [&b"one\ntwo"[..], b"one\r\ntwo"]);
        assert_eq!(all(b"a\r\nb\nc\rd"), [&b"a\nb\nc\rd"[..], b"a\r\nb\r\nc\rd", b"a\r\nb\nc\rd"]);
        assert_eq!(all(b"no line end"), [&b"no line end"[..]]);
    }

    quickcheck! {
        fn the_path_changes_nothing(pieces: Vec<u8>) -> bool {
            let piece = |&byte: &u8| ["\n", "\r\n", "\ra", "b"][usize::from(byte % 4)];
            let bytes = pieces.iter().map(piece).collect::<String>().into_bytes();
            let contents = all(&bytes);
            // Received with LF or with CR LF, it is found by the same two.
            contents.contains(&bytes)
                && contents.iter().all(|one| all(one).iter().all(|form| contents.contains(form)))
        }
    }
}
