//! JSON that a terminal can show: what is not printable is escaped, which is the same JSON.

use std::io::{self, Write};

use serde::Serialize;
use serde_json::Serializer;
use serde_json::ser::Formatter;

/// `value` in one line.
pub(crate) fn json(value: &impl Serialize) -> serde_json::Result<String> {
    let mut bytes = Vec::with_capacity(128);
    write_json(&mut bytes, value)?;
    // Only what is not UTF-8 would fail, of which JSON has nothing.
    String::from_utf8(bytes).map_err(|error| serde_json::Error::io(io::Error::other(error)))
}

/// Writes `value` in one line, without its end.
pub(crate) fn write_json(out: &mut impl Write, value: &impl Serialize) -> serde_json::Result<()> {
    value.serialize(&mut Serializer::with_formatter(out, Printable))
}

/// Escapes what JSON itself leaves as it is: control characters from U+007F on, and those that turn a
/// line around or are not seen.
struct Printable;

impl Formatter for Printable {
    fn write_string_fragment<W: ?Sized + Write>(
        &mut self,
        writer: &mut W,
        fragment: &str,
    ) -> io::Result<()> {
        // As a rule; nothing below 0x20 is in it.
        if fragment.bytes().all(|byte| byte < 0x7f) {
            return writer.write_all(fragment.as_bytes());
        }
        let is_plain = |c: char| c == '\'' || c.escape_debug().len() == 1;
        let mut rest = fragment;
        while let Some((at, c)) = rest.char_indices().find(|(_, c)| !is_plain(*c)) {
            let (plain, from) = rest.split_at(at);
            writer.write_all(plain.as_bytes())?;
            for unit in c.encode_utf16(&mut [0; 2]) {
                write!(writer, "\\u{unit:04x}")?;
            }
            rest = from.get(c.len_utf8()..).unwrap_or_default();
        }
        writer.write_all(rest.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_cannot_drive_a_terminal() {
        let text = "it's ä\n\"\\ \u{9b}31m\u{202e}\u{7f}\x1b\u{e0001}";
        let written = json(&text).unwrap();
        let expected = r#""it's ä\n\"\\ \u009b31m\u202e\u007f\u001b\udb40\udc01""#;
        assert_eq!(written, expected);
        assert_eq!(serde_json::from_str::<String>(&written).unwrap(), text);
        assert_eq!(json(&"a\x1fb").unwrap(), r#""a\u001fb""#);
    }
}
