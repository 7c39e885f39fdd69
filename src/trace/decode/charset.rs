//! Charsets: converts text to UTF-8.

use std::borrow::Cow;

use encoding_rs::{Encoding, REPLACEMENT, UTF_8, UTF_16BE, UTF_16LE, WINDOWS_1252};
use mail_parser::decoders::charsets::map::charset_decoder;

/// A charset that can be decoded.
#[derive(Clone, Copy)]
pub enum Charset {
    /// One of the charsets of the Encoding Standard.
    Standard(&'static Encoding),
    /// A charset used only in mail, such as UTF-7.
    Mail(fn(&[u8]) -> String),
}

impl Charset {
    /// The charset with this label, in any case; `None` if the label is
    /// unknown.
    #[must_use]
    pub fn of(label: &str) -> Option<Self> {
        let label = label.trim_matches(|c: char| c.is_whitespace() || "\"'".contains(c)).as_bytes();
        let known = Encoding::for_label_no_replacement(label).map(Self::Standard);
        if known.is_none() && is_undecodable(label) {
            return None;
        }
        known.or_else(|| charset_decoder(label).map(Self::Mail)).or_else(|| of_font(label))
    }

    /// Decodes `bytes`. Invalid sequences become U+FFFD.
    #[must_use]
    pub fn decode(self, bytes: &[u8]) -> Cow<'_, str> {
        match self {
            // A byte order mark overrides the byte order of the label.
            Self::Standard(encoding) if encoding == UTF_16LE || encoding == UTF_16BE => {
                encoding.decode(bytes).0
            }
            Self::Standard(encoding) => encoding.decode_without_bom_handling(bytes).0,
            Self::Mail(decode) => Cow::Owned(decode(bytes)),
        }
    }
}

/// Whether a charset is known, but not decoded by anybody who follows the Encoding Standard:
/// ISO-2022-KR, ISO-2022-CN, HZ. What is ASCII in such a text is ASCII.
fn is_undecodable(label: &[u8]) -> bool {
    let dashes: Vec<u8> = label.iter().map(|&b| if b == b'_' { b'-' } else { b }).collect();
    Encoding::for_label(&dashes) == Some(REPLACEMENT)
}

/// Whether the label says UTF-16 of what is ASCII.
fn is_wrongly_wide(charset: Charset, bytes: &[u8]) -> bool {
    let is_plain = |byte: &u8| byte.is_ascii() && *byte != 0;
    matches!(charset, Charset::Standard(encoding) if encoding == UTF_16LE || encoding == UTF_16BE)
        && bytes.iter().all(is_plain)
}

/// Whether a text in the charset with this label may be another than [`to_utf8`] makes of it.
#[expect(clippy::ptr_arg, reason = "only an owned text has replacements of ours")]
pub(super) fn is_doubtful(bytes: &[u8], label: Option<&str>, text: &Cow<'_, str>) -> bool {
    let has_replaced = || matches!(text, Cow::Owned(text) if text.contains('\u{fffd}'));
    let is_unknown = label.is_some_and(|label| {
        let label = label.trim();
        !label.is_empty() && !is_ascii_label(label) && Charset::of(label).is_none()
    });
    // Escape sequences of charsets that share ASCII.
    let is_plain = || {
        let shifts = |byte: &u8| !byte.is_ascii() || matches!(byte, 0x0e | 0x0f | 0x1b);
        !bytes.iter().any(shifts) && memchr::memmem::find(bytes, b"~{").is_none()
    };
    let is_wide = || {
        let charset = label.and_then(Charset::of);
        !bytes.is_empty() && charset.is_some_and(|charset| is_wrongly_wide(charset, bytes))
    };
    has_replaced() || is_unknown && !is_plain() || is_wide()
}

/// The charset of a font, by the name of its constant in Windows: some programs
/// use these as labels.
fn of_font(label: &[u8]) -> Option<Charset> {
    let label = std::str::from_utf8(label).ok()?.to_ascii_lowercase();
    let label = match label.strip_suffix("_charset").unwrap_or(&label) {
        "ansi" => "windows-1252",
        "arabic" => "windows-1256",
        "baltic" => "windows-1257",
        "chinesebig5" => "big5",
        "easteurope" => "windows-1250",
        "gb2312" => "gbk",
        "greek" => "windows-1253",
        "hangeul" | "hangul" => "euc-kr",
        "hebrew" => "windows-1255",
        "russian" => "windows-1251",
        "shiftjis" => "shift_jis",
        "thai" => "windows-874",
        "turkish" => "windows-1254",
        "vietnamese" => "windows-1258",
        _ => return None,
    };
    Encoding::for_label(label.as_bytes()).map(Charset::Standard)
}

/// Decodes `bytes` in the charset with this label. Invalid sequences become
/// U+FFFD.
///
/// Valid UTF-8 labelled ISO-8859-1 or Windows-1252 is decoded as UTF-8: that it
/// is valid by chance is much less likely than that the label is wrong.
///
/// Without a label, or with one that is unknown or means US-ASCII, the bytes are
/// decoded as UTF-8 if they are valid UTF-8, and as Windows-1252 otherwise.
pub(super) fn to_utf8<'a>(bytes: &'a [u8], label: Option<&str>) -> Cow<'a, str> {
    let charset = label.filter(|label| !is_ascii_label(label)).and_then(Charset::of);
    let charset = charset.filter(|charset| !is_wrongly_wide(*charset, bytes));
    let charset = charset.unwrap_or(Charset::Standard(WINDOWS_1252));
    let may_be_utf8 = matches!(
        charset,
        Charset::Standard(encoding) if encoding == UTF_8 || encoding == WINDOWS_1252
    );
    // For UTF-8, encoding_rs would first ask the processor what it can do, which takes a virtual
    // machine 0.05 ms in each process.
    if may_be_utf8 && let Ok(text) = std::str::from_utf8(bytes) {
        return Cow::Borrowed(text);
    }
    charset.decode(bytes)
}

/// Whether a label means US-ASCII. The Encoding Standard treats these labels as
/// Windows-1252, but mail with such a label is often UTF-8.
fn is_ascii_label(label: &str) -> bool {
    let begins = |start: &str| {
        label.get(..start.len()).is_some_and(|label| label.eq_ignore_ascii_case(start))
    };
    ["us-ascii", "ascii", "ansi_x3"].into_iter().any(begins)
}

/// The charset that HTML declares near its beginning.
pub(super) fn of_html(bytes: &[u8]) -> Option<&str> {
    let head = &bytes[..bytes.len().min(1024)];
    let label = b"charset=";
    let at = head.windows(label.len()).position(|window| window.eq_ignore_ascii_case(label))?;
    let value = head[at + label.len()..].trim_ascii_start();
    let value = value.strip_prefix(b"\"").or(value.strip_prefix(b"'")).unwrap_or(value);
    let end =
        value.iter().position(|byte| !(byte.is_ascii_alphanumeric() || b"-_.:".contains(byte)));
    std::str::from_utf8(&value[..end?]).ok().filter(|name| !name.is_empty())
}

/// The text of a file without a declared type; `None` if it is not text.
pub(super) fn text_of_file(bytes: &[u8]) -> Option<Cow<'_, str>> {
    match bytes {
        [0xff, 0xfe, ..] | [0xfe, 0xff, ..] => Some(Charset::Standard(UTF_16LE).decode(bytes)),
        _ if bytes.contains(&0) => None,
        _ => std::str::from_utf8(bytes).ok().map(Cow::Borrowed),
    }
}

/// Whether these bytes cannot be text in this charset, whatever type is
/// declared.
pub(super) fn is_binary(bytes: &[u8], charset: Option<&str>) -> bool {
    let is_utf_16 = matches!(
        charset.and_then(Charset::of),
        Some(Charset::Standard(encoding)) if encoding == UTF_16LE || encoding == UTF_16BE
    );
    !is_utf_16
        && bytes.contains(&0)
        && !bytes.starts_with(&[0xff, 0xfe])
        && !bytes.starts_with(&[0xfe, 0xff])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn charsets_by_example() {
        for (charset, bytes, expected) in [
            (Some("iso-8859-1"), &b"caf\xe9"[..], "café"),
            (Some("ISO-8859-15"), b"5 \xa4", "5 €"),
            (Some("iso-8859-1"), b"5 \x80 caf\xe9", "5 € café"),
            (Some(" 'windows-1251' "), b"\xcf\xf0\xe8\xe2\xe5\xf2", "Привет"),
            (Some("koi8-r"), b"\xf0\xd2\xc9\xd7\xc5\xd4", "Привет"),
            (Some("UTF-8"), "café".as_bytes(), "café"),
            (Some("utf8"), b"caf\xe9!", "caf\u{fffd}!"),
            (Some("gb2312"), b"\xc4\xe3\xba\xc3", "你好"),
            (Some("big5"), b"\xa7A\xa6n", "你好"),
            (Some("shift_jis"), b"\x83n\x83\x8d\x81[", "ハロー"),
            (Some("iso-2022-jp"), b"\x1b$B%O%m!<\x1b(B", "ハロー"),
            (Some("euc-kr"), b"\xbe\xc8\xb3\xe7", "안녕"),
            (Some("utf-16le"), b"h\0i\0", "hi"),
            (Some("utf-7"), b"Hi Mom -+Jjo--!", "Hi Mom -☺-!"),
            (None, "café".as_bytes(), "café"),
            (None, b"caf\xe9", "café"),
            (Some("us-ascii"), "café".as_bytes(), "café"),
            (Some("us-ascii"), b"caf\xe9", "café"),
            (Some("iso-8859-1"), "café".as_bytes(), "café"),
            (Some("windows-1252"), "Ã©".as_bytes(), "Ã©"),
            (Some("GB2312_CHARSET"), b"\xc4\xe3\xba\xc3", "你好"),
            (Some("CHINESEBIG5"), b"\xa7A\xa6n", "你好"),
            (Some("RUSSIAN_CHARSET"), b"\xcf\xf0\xe8\xe2\xe5\xf2", "Привет"),
            (Some("DEFAULT_CHARSET"), "café".as_bytes(), "café"),
            (Some("x-unknown"), "café".as_bytes(), "café"),
            (Some("x-unknown"), b"\x93caf\xe9\x94", "“café”"),
            (Some(""), b"caf\xe9", "café"),
            (Some("utf-16"), b"plain", "plain"),
            (Some("iso-2022-kr"), b"plain", "plain"),
            (Some("ISO_2022_KR"), b"plain", "plain"),
            (Some("iso-2022-cn"), b"plain", "plain"),
            (Some("iso-2022-cn-ext"), b"plain", "plain"),
            (Some("hz-gb-2312"), b"plain", "plain"),
        ] {
            assert_eq!(to_utf8(bytes, charset), expected, "{charset:?}");
        }
    }

    #[test]
    fn what_is_not_decoded_is_doubtful() {
        for (charset, bytes, is) in [
            (Some("iso-2022-kr"), &b"plain"[..], false),
            (Some("iso-2022-kr"), b"\x1b$)C\x0e0!\x0f", true),
            (Some("hz-gb-2312"), b"a ~{<:Ky2;~} b", true),
            (Some("x-unknown"), b"plain", false),
            (Some("x-unknown"), b"caf\xe9", true),
            (Some("utf-8"), b"caf\xe9", true),
            (Some("utf-8"), "café \u{fffd}".as_bytes(), false),
            (Some("us-ascii"), b"caf\xe9", false),
            (Some("iso-2022-jp"), b"\x1b$B%O%m!<\x1b(B", false),
            (None, b"caf\xe9", false),
            (Some("utf-16"), b"plain", true),
            (Some("utf-16le"), b"p\0l\0", false),
        ] {
            let text = to_utf8(bytes, charset);
            assert_eq!(is_doubtful(bytes, charset, &text), is, "{charset:?} {text}");
        }
    }

    #[test]
    fn html_names_its_charset() {
        for (html, charset) in [
            ("<meta charset=\"koi8-r\">", Some("koi8-r")),
            ("<META CHARSET=koi8-r>", Some("koi8-r")),
            ("<meta http-equiv=x content='text/html; charset=koi8-r'>", Some("koi8-r")),
            ("<meta charset=\"\">", None),
            ("<p>no charset</p>", None),
            ("<meta charset=", None),
        ] {
            assert_eq!(of_html(html.as_bytes()), charset, "{html}");
        }
    }

    #[test]
    fn text_files_are_recognised() {
        assert_eq!(text_of_file("café".as_bytes()).as_deref(), Some("café"));
        assert_eq!(text_of_file(b"\xff\xfeh\0i\0").as_deref(), Some("hi"));
        assert_eq!(text_of_file(b"caf\xe9"), None);
        assert_eq!(text_of_file(b"PK\x03\x04\0"), None);
        assert!(is_binary(b"%PDF\0", None) && is_binary(b"%PDF\0", Some("iso-8859-1")));
        assert!(!is_binary(b"h\0i\0", Some("utf-16le")) && !is_binary(b"\xff\xfeh\0", None));
        assert!(!is_binary(b"text", None));
    }

    /// Every charset that the crate supports, with every byte.
    #[test]
    fn every_byte_is_decoded_in_every_charset() {
        let bytes: Vec<u8> = (0..=255).chain((0..=255).rev()).collect();
        let pairs: Vec<u8> = (0..=u16::MAX).flat_map(u16::to_be_bytes).collect();
        for charset in [
            "utf-7",
            "utf-8",
            "utf-16",
            "utf-16le",
            "utf-16be",
            "iso-8859-1",
            "iso-8859-2",
            "iso-8859-3",
            "iso-8859-4",
            "iso-8859-5",
            "iso-8859-6",
            "iso-8859-7",
            "iso-8859-8",
            "iso-8859-9",
            "iso-8859-10",
            "iso-8859-11",
            "iso-8859-13",
            "iso-8859-14",
            "iso-8859-15",
            "iso-8859-16",
            "windows-1250",
            "windows-1251",
            "windows-1252",
            "windows-1253",
            "windows-1254",
            "windows-1255",
            "windows-1256",
            "windows-1257",
            "windows-1258",
            "windows-874",
            "tis-620",
            "koi8-r",
            "koi8-u",
            "macintosh",
            "x-mac-cyrillic",
            "ibm850",
            "ibm866",
            "shift_jis",
            "big5",
            "euc-jp",
            "euc-kr",
            "gbk",
            "gb18030",
            "iso-2022-jp",
            "iso-2022-kr",
            "hz-gb-2312",
            "x-user-defined",
            "nonsense",
            "",
        ] {
            for bytes in [&bytes[..], &bytes[1..], &pairs, &pairs[1..], b""] {
                to_utf8(bytes, Some(charset));
            }
        }
    }
}
