//! Text of bytes that clients choose.

use std::borrow::Cow;
use std::fmt::Write as _;

/// What a client has written, as text: bytes that are not UTF-8 as Exim has them in its log, `\377`,
/// so that two that differ are two. Beside such bytes, a backslash is `\134`.
#[must_use]
pub fn written(bytes: Cow<'_, [u8]>) -> Cow<'_, str> {
    match bytes {
        // As a rule it is UTF-8, which is quicker to check than to correct.
        Cow::Borrowed(bytes) => {
            str::from_utf8(bytes).map_or_else(|_| in_octal(bytes).into(), Cow::Borrowed)
        }
        Cow::Owned(bytes) => match String::from_utf8(bytes) {
            Ok(text) => text.into(),
            Err(error) => in_octal(error.as_bytes()).into(),
        },
    }
}

#[cold]
fn in_octal(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() + 3);
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '\\' => text.push_str("\\134"),
                c => text.push(c),
            }
        }
        for byte in chunk.invalid() {
            // Writing to a String cannot fail.
            let _ = write!(text, "\\{byte:03o}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_differs_is_written_differently() {
        for (bytes, text) in [
            (&b"alice@x"[..], "alice@x"),
            ("jürgen\\".as_bytes(), "jürgen\\"),
            (b"\xff@x", "\\377@x"),
            (b"\xfe@x", "\\376@x"),
            (b"\xff\\376@x", "\\377\\134376@x"),
            (b"\xc3\xbc\xc3", "ü\\303"),
            (b"", ""),
        ] {
            assert_eq!(written(bytes.into()), text);
            assert_eq!(written(bytes.to_vec().into()), text);
        }
    }
}
