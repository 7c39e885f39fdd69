//! Bytes as text that is safe to show, or to paste.

use std::fmt::Write as _;

/// `bytes` as text that cannot drive a terminal: what is not printable, and
/// what is not UTF-8, is escaped as in a Rust string (`\n`, `\u{202e}`,
/// `\xff`); a backslash is doubled.
pub(crate) fn printable(bytes: &[u8]) -> String {
    escape(bytes, "")
}

/// As [`printable`], with a backslash before each of `also` as well.
pub(crate) fn escape(bytes: &[u8], also: &str) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                _ if also.contains(c) => text.extend(['\\', c]),
                '"' | '\'' => text.push(c),
                _ => text.extend(c.escape_debug()),
            }
        }
        for byte in chunk.invalid() {
            // Writing to a String cannot fail.
            let _ = write!(text, "\\x{byte:02x}");
        }
    }
    text
}

/// `bytes` in lower-case hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// `word` as a shell reads it back.
pub(crate) fn shell(word: &str) -> String {
    // Only a zero byte cannot be quoted, which no argument contains.
    shlex::try_quote(word).map_or_else(|_| word.to_owned(), std::borrow::Cow::into_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_cannot_drive_the_terminal() {
        assert_eq!(printable(b"alice@example.org"), "alice@example.org");
        assert_eq!(printable("jürgen".as_bytes()), "jürgen");
        assert_eq!(printable(b"a\x1b[2Jb\r\n\x07"), r"a\u{1b}[2Jb\r\n\u{7}");
        assert_eq!(printable(b"\xff\x9b1m"), r"\xff\x9b1m");
        assert_eq!(printable("\u{202e}gpj\u{9b}\u{200b}".as_bytes()), r"\u{202e}gpj\u{9b}\u{200b}");
        assert_eq!(printable(br#"it's "a\b""#), r#"it's "a\\b""#);
    }

    #[test]
    fn bytes_become_hexadecimal_digits() {
        assert_eq!(hex(&[0, 0x1f, 0xff]), "001fff");
    }
}
