//! Transfer encodings: base64, quoted-printable and uuencode, as tolerant as mail
//! programs are.

use std::borrow::Cow;

/// How a body was encoded for transport.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Encoding {
    /// Not encoded.
    #[default]
    None,
    Base64,
    QuotedPrintable,
    /// Not in MIME, but declared by some programs, and decoded by most.
    Uuencode,
    /// Of a name that is not known.
    Unknown,
}

/// A body without its encoding.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Decoded<'a> {
    pub(super) bytes: Cow<'a, [u8]>,
    /// Whether that is all of it.
    pub(super) is_whole: bool,
    /// Whether something else may be around or behind what was encoded: see
    /// [`Encoding::around`].
    pub(super) is_mixed: bool,
    /// Whether programs read it in several ways: base64 goes on after a `=` that pads nothing.
    pub(super) is_doubtful: bool,
}

/// The names of encodings; case does not matter.
const NAMES: [(&[u8], Encoding); 13] = [
    (b"", Encoding::None),
    (b"7bit", Encoding::None),
    (b"7-bit", Encoding::None),
    (b"8bit", Encoding::None),
    (b"8-bit", Encoding::None),
    (b"binary", Encoding::None),
    (b"none", Encoding::None),
    (b"base64", Encoding::Base64),
    (b"quoted-printable", Encoding::QuotedPrintable),
    (b"uuencode", Encoding::Uuencode),
    (b"x-uuencode", Encoding::Uuencode),
    (b"uue", Encoding::Uuencode),
    (b"x-uue", Encoding::Uuencode),
];

impl Encoding {
    /// The encoding in the field `Content-Transfer-Encoding`.
    pub(super) fn named(field: &[u8]) -> Self {
        let mut field = field.trim_ascii_start();
        while field.first() == Some(&b'(')
            && let Some(end) = memchr::memchr(b')', field)
        {
            field = field[end + 1..].trim_ascii_start();
        }
        let end = field.iter().position(|byte| !matches!(byte, b'-' | b'0'..=b'9' | b'A'..=b'z'));
        let name = &field[..end.unwrap_or(field.len())];
        let known = NAMES.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
        match known {
            Some((b"", _)) if !field.is_empty() => Self::Unknown,
            known => known.map_or(Self::Unknown, |(_, encoding)| *encoding),
        }
    }

    /// Whether it carries each byte as it is: the others leave line ends to the path.
    pub(super) fn is_binary(self) -> bool {
        matches!(self, Self::Base64 | Self::Uuencode)
    }

    /// The decoded bytes, at most `limit`.
    pub(super) fn decode(self, bytes: &[u8], limit: usize) -> Decoded<'_> {
        let owned = |(bytes, is_whole), is_mixed, is_doubtful| Decoded {
            bytes: Cow::<[u8]>::Owned(bytes),
            is_whole,
            is_mixed,
            is_doubtful,
        };
        let decoded = match self {
            Self::None | Self::Unknown => Decoded {
                bytes: Cow::Borrowed(&bytes[..bytes.len().min(limit)]),
                is_whole: bytes.len() <= limit,
                is_mixed: false,
                is_doubtful: false,
            },
            Self::Base64 => {
                let (bytes, is_whole, Found { is_mixed, is_doubtful }) = base64(bytes, limit);
                owned((bytes, is_whole), is_mixed, is_doubtful)
            }
            Self::QuotedPrintable => owned(quoted_printable(bytes, limit), false, false),
            Self::Uuencode => match uuencoded(bytes) {
                Some(file) => owned(uudecode(file.lines, limit), true, false),
                // It was declared, and not done.
                None => return Self::None.decode(bytes, limit),
            },
        };
        debug_assert!(decoded.bytes.len() <= limit);
        decoded
    }

    /// The name in the first line of uuencode.
    pub(super) fn name(self, bytes: &[u8]) -> Option<&[u8]> {
        uuencoded(bytes).filter(|_| self == Self::Uuencode).map(|file| file.name)
    }

    /// What is encoded in a body, and the plain text before and after it: base64 ends with its
    /// padding, or before the first line that is not base64. Mailing lists append their footer so;
    /// what a reader sees of it differs.
    pub(super) fn around(self, bytes: &[u8]) -> [&[u8]; 3] {
        match self {
            Self::None | Self::Unknown | Self::QuotedPrintable => return [&[], bytes, &[]],
            Self::Uuencode => {
                let whole = [&[][..], bytes, &[]];
                return uuencoded(bytes)
                    .map_or(whole, |file| [file.before, file.lines, file.after]);
            }
            Self::Base64 => {}
        }
        let mut rest = bytes;
        while !rest.is_empty() {
            let (line, after) = first_line(rest);
            let is_other = |&byte: &u8| DIGITS[usize::from(byte)] == OTHER;
            if line.trim_ascii().iter().any(is_other) {
                break;
            }
            rest = after;
            if let Some(at) = line.iter().position(|&byte| byte == b'=') {
                let padding = line[at..].iter().take_while(|&&byte| byte == b'=').count();
                rest = &bytes[bytes.len() - rest.len() - (line.len() - at - padding)..];
                break;
            }
        }
        let (encoded, after) = bytes.split_at(bytes.len() - rest.len());
        [&[], encoded, if after.trim_ascii().is_empty() { &[] } else { after }]
    }
}

/// The value of each byte in base64: digits are below 64.
static DIGITS: [u8; 256] = {
    let mut table = [OTHER; 256];
    let digits = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut value = 0;
    while value < digits.len() {
        table[digits[value] as usize] = value as u8;
        value += 1;
    }
    table[b'=' as usize] = END;
    table
};
const END: u8 = 64;
const OTHER: u8 = 65;

/// What is among base64: see [`Decoded`].
#[derive(Default)]
struct Found {
    is_mixed: bool,
    is_doubtful: bool,
}

/// Decodes base64: the bytes, whether these are all, and what is among the digits, or follows a
/// `=`. Bytes that are not digits are skipped, and decoding restarts after a `=`.
fn base64(mut bytes: &[u8], limit: usize) -> (Vec<u8>, bool, Found) {
    let mut out = Vec::with_capacity((bytes.len() / 4 * 3 + 3).min(limit));
    let (mut word, mut digits) = (0_u32, 0_u32);
    let mut found = Found::default();
    // Of each `=` that the last group lacks, one.
    let mut padding: Option<u32> = None;
    loop {
        if digits == 0 {
            let before = bytes.len();
            bytes = quads(bytes, limit, &mut out);
            if bytes.len() < before
                && let Some(lacking) = padding
            {
                found.is_mixed = true;
                found.is_doubtful |= lacking > 0;
            }
        }
        let Some((byte, rest)) = bytes.split_first() else { break };
        bytes = rest;
        match DIGITS[usize::from(*byte)] {
            OTHER => found.is_mixed |= !matches!(byte, b'\r' | b'\n'),
            END => {
                padding = match (digits, padding) {
                    (0, padding) => padding.map(|lacking| lacking.saturating_sub(1)),
                    (digits, _) => Some(3 - digits),
                };
                end(word, digits, &mut out);
                digits = 0;
            }
            digit => {
                if let Some(lacking) = padding {
                    found.is_mixed = true;
                    found.is_doubtful |= lacking > 0;
                }
                word = (word << 6) | u32::from(digit);
                digits += 1;
                if digits == 4 {
                    out.extend_from_slice(&word.to_be_bytes()[1..]);
                    digits = 0;
                }
            }
        }
        if out.len() > limit {
            break;
        }
    }
    if bytes.is_empty() {
        end(word, digits, &mut out);
    }
    let whole = bytes.is_empty() && out.len() <= limit;
    out.truncate(limit);
    (out, whole, found)
}

/// Decodes groups of four digits, up to the first other byte or more than
/// `limit` bytes of output; returns the rest.
fn quads<'a>(mut bytes: &'a [u8], limit: usize, out: &mut Vec<u8>) -> &'a [u8] {
    let digit = |byte| u32::from(DIGITS[usize::from(byte)]);
    while let Some((&[a, b, c, d], rest)) = bytes.split_first_chunk()
        && out.len() <= limit
    {
        let (a, b, c, d) = (digit(a), digit(b), digit(c), digit(d));
        if (a | b | c | d) >= 64 {
            break;
        }
        let word = (a << 18) | (b << 12) | (c << 6) | d;
        out.extend_from_slice(&[(word >> 16) as u8, (word >> 8) as u8, word as u8]);
        bytes = rest;
    }
    bytes
}

/// Appends the bytes of a last group of 0 to 3 digits.
fn end(word: u32, digits: u32, out: &mut Vec<u8>) {
    let word = word << (6 * (4 - digits) % 24);
    let bytes = [(word >> 16) as u8, (word >> 8) as u8];
    out.extend_from_slice(&bytes[..digits.saturating_sub(1) as usize]);
}

/// Decodes quoted-printable. An invalid `=` is kept; white space at the end of
/// a line is dropped.
fn quoted_printable(bytes: &[u8], limit: usize) -> (Vec<u8>, bool) {
    let mut out = Vec::with_capacity(bytes.len().min(limit));
    let mut rest = bytes;
    while !rest.is_empty() {
        let line;
        (line, rest) = first_line(rest);
        let content = line.trim_ascii_end();
        match content.strip_suffix(b"=") {
            Some(soft) => quoted_line(soft, &mut out),
            None => {
                quoted_line(content, &mut out);
                let end: &[u8] = match line {
                    [.., b'\r', b'\n'] => b"\r\n",
                    [.., b'\n'] => b"\n",
                    _ => b"",
                };
                out.extend_from_slice(end);
            }
        }
        if out.len() > limit {
            out.truncate(limit);
            return (out, false);
        }
    }
    (out, true)
}

fn quoted_line(mut line: &[u8], out: &mut Vec<u8>) {
    while let Some(at) = memchr::memchr(b'=', line) {
        out.extend_from_slice(&line[..at]);
        match line[at + 1..].first_chunk().and_then(|&pair| hex(pair)) {
            Some(byte) => {
                out.push(byte);
                line = &line[at + 3..];
            }
            None => {
                out.push(b'=');
                line = &line[at + 1..];
            }
        }
    }
    out.extend_from_slice(line);
}

/// The first line, with its end, and the rest.
fn first_line(bytes: &[u8]) -> (&[u8], &[u8]) {
    bytes.split_at(memchr::memchr(b'\n', bytes).map_or(bytes.len(), |end| end + 1))
}

/// A body with a uuencoded file (POSIX, `uuencode`).
struct Uuencoded<'a> {
    /// The text before it.
    before: &'a [u8],
    name: &'a [u8],
    /// The encoded lines.
    lines: &'a [u8],
    /// The text after it.
    after: &'a [u8],
}

/// The first uuencoded file of a body; `None` if no line begins one.
fn uuencoded(bytes: &[u8]) -> Option<Uuencoded<'_>> {
    let mut rest = bytes;
    let (before, name) = loop {
        let (line, after) = first_line(rest);
        if let Some(name) = uu_begin(line.trim_ascii_end()) {
            let before = &bytes[..bytes.len() - rest.len()];
            rest = after;
            break (before, name);
        }
        rest = after;
        if rest.is_empty() {
            return None;
        }
    };
    let lines = rest;
    while !rest.is_empty() {
        let (line, after) = first_line(rest);
        if line.trim_ascii_end() == b"end" {
            let lines = &lines[..lines.len() - rest.len()];
            return Some(Uuencoded { before, name, lines, after });
        }
        rest = after;
    }
    Some(Uuencoded { before, name, lines, after: &[] })
}

/// Whether a text has a uuencoded file, which mail programs show as an attachment though nothing
/// declares it.
pub(super) fn has_uuencoded(bytes: &[u8]) -> bool {
    let begins = bytes.starts_with(b"begin ") || memchr::memmem::find(bytes, b"\nbegin ").is_some();
    begins && uuencoded(bytes).is_some_and(|file| !file.name.is_empty() && !file.lines.is_empty())
}

/// The name in a line such as `begin 644 notes.txt`.
fn uu_begin(line: &[u8]) -> Option<&[u8]> {
    let rest = line.strip_prefix(b"begin ")?.trim_ascii_start();
    let digits = rest.iter().take_while(|byte| matches!(byte, b'0'..=b'7')).count();
    let name = rest.get(digits..)?;
    let is_mode = (3..=4).contains(&digits) && (name.is_empty() || name.starts_with(b" "));
    is_mode.then(|| name.trim_ascii())
}

/// Decodes lines of uuencode. Each begins with the number of its bytes; what a mail program has
/// cut from its end is blanks, which encode zeros.
fn uudecode(mut lines: &[u8], limit: usize) -> (Vec<u8>, bool) {
    let mut out = Vec::with_capacity((lines.len() / 4 * 3 + 3).min(limit));
    let value = |byte: u8| u32::from(byte.wrapping_sub(b' ') & 63);
    while !lines.is_empty() {
        let line;
        (line, lines) = first_line(lines);
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        // A line of another kind, such as a blank one, encodes nothing.
        let Some((&count @ b' '..=b'`', digits)) = line.split_first() else { continue };
        let end = out.len() + value(count) as usize;
        let mut quads = digits.chunks(4);
        while out.len() < end {
            let quad = quads.next().unwrap_or_default();
            let digit = |at: usize| quad.get(at).map_or(0, |&byte| value(byte));
            let word = (digit(0) << 18) | (digit(1) << 12) | (digit(2) << 6) | digit(3);
            out.extend_from_slice(&word.to_be_bytes()[1..]);
        }
        out.truncate(end);
        if out.len() > limit {
            out.truncate(limit);
            return (out, false);
        }
    }
    (out, true)
}

/// The value of each hexadecimal digit; 255 for other bytes.
static HEX: [u8; 256] = {
    let mut table = [u8::MAX; 256];
    let mut value = 0;
    while value < 16 {
        table[b"0123456789abcdef"[value] as usize] = value as u8;
        table[b"0123456789ABCDEF"[value] as usize] = value as u8;
        value += 1;
    }
    table
};

/// The byte of two hexadecimal digits.
fn hex([high, low]: [u8; 2]) -> Option<u8> {
    let [high, low] = [high, low].map(|byte| HEX[usize::from(byte)]);
    // The value of another byte has all bits set.
    ((high | low) < 16).then_some(high << 4 | low)
}

#[cfg(test)]
mod tests {
    use kit::quickcheck;

    use super::*;

    fn decoded(encoding: Encoding, bytes: &str) -> String {
        let decoded = encoding.decode(bytes.as_bytes(), 1000);
        assert!(decoded.is_whole);
        decoded.bytes.escape_ascii().to_string()
    }

    #[test]
    fn encodings_by_name() {
        for (field, encoding) in [
            ("base64", Encoding::Base64),
            (" BASE64 (really)\r\n", Encoding::Base64),
            ("Quoted-Printable", Encoding::QuotedPrintable),
            ("quoted-printable;", Encoding::QuotedPrintable),
            ("X-UUencode", Encoding::Uuencode),
            ("uuencode", Encoding::Uuencode),
            ("x-uue", Encoding::Uuencode),
            ("(really) base64", Encoding::Base64),
            ("7bit", Encoding::None),
            ("(x)", Encoding::None),
            ("base64x", Encoding::Unknown),
            ("\"base64\"", Encoding::Unknown),
            ("", Encoding::None),
        ] {
            assert_eq!(Encoding::named(field.as_bytes()), encoding, "{field}");
        }
    }

    #[test]
    fn base64_by_example() {
        for (encoded, expected) in [
            ("", ""),
            ("SGVsbG8gd29ybGQ=", "Hello world"),
            ("SGVs\r\nbG8g\r\nd29y\r\nbGQ=\r\n", "Hello world"),
            ("SGVsbG8gd29ybGQ", "Hello world"),
            ("SGVsbG8=IHdvcmxk", "Hello world"),
            ("SGV sb.G8-gd2*9ybGQ=", "Hello world"),
            // A single digit encodes nothing.
            ("Q===Q", ""),
            ("QQ==", "A"),
            ("====", ""),
        ] {
            assert_eq!(decoded(Encoding::Base64, encoded), expected, "{encoded}");
        }
    }

    #[test]
    fn text_appended_to_base64() {
        for (encoded, after) in [
            ("SGVsbG8g\r\nd29ybGQ=\r\n", "-----\r\nSent to all\r\n"),
            ("SGVsbG8g\r\nd29ybGQ=\r\n", "Sent to all"),
            ("SGVsbG8g\r\nd29ybGQ=\r\n", "To all\nSGVsbG8g\n"),
            // Words that could be base64.
            ("SGVsbG8g\r\nd29ybGQ=", "\r\nword\r\nword\r\n"),
            ("QQ==", "word\n"),
            ("SGVsbG8g\n", "Sent to all\nword\n"),
        ] {
            let bytes = format!("{encoded}{after}");
            let found = Encoding::Base64.around(bytes.as_bytes());
            let [_, first, rest] = found.map(|part| part.escape_ascii().to_string());
            assert_eq!(first + &rest, bytes.as_bytes().escape_ascii().to_string());
            assert_eq!(
                rest.replace("\\r\\n", "").trim(),
                after.as_bytes().escape_ascii().to_string().replace("\\r\\n", "").trim()
            );
            assert!(Encoding::Base64.decode(bytes.as_bytes(), 1000).is_mixed, "{bytes}");
            assert_eq!(Encoding::None.around(bytes.as_bytes()), [b"", bytes.as_bytes(), b""]);
            let whole = Encoding::Base64.decode(encoded.as_bytes(), 1000);
            assert!(!whole.is_mixed, "{encoded}");
        }
        for (encoded, is) in [
            ("QQ==QQ==", false),
            ("QUE=QQ", false),
            ("QQ=Q", true),
            ("Q=QQ=", true),
            ("QUJDQ=UJD", true),
            ("QQ=", false),
            ("=QUJD", false),
            ("QUJD=QUJD", false),
        ] {
            let found = Encoding::Base64.decode(encoded.as_bytes(), 100).is_doubtful;
            assert_eq!(found, is, "{encoded}");
        }
        assert_eq!(Encoding::Base64.around(b" SGVsbG8g \n"), [&b""[..], b" SGVsbG8g \n", b""]);
    }

    #[test]
    fn quoted_printable_by_example() {
        for (encoded, expected) in [
            ("", ""),
            ("caf=C3=a9", "caf\\xc3\\xa9"),
            ("one=\r\ntwo=  \r\nthree=\nfour=", "onetwothreefour"),
            ("one  \t\r\ntwo \nthree  ", "one\\r\\ntwo\\nthree"),
            ("one=20\r\ntwo", "one \\r\\ntwo"),
            ("1 + 1 = 2, =zz, =4", "1 + 1 = 2, =zz, =4"),
            ("==41=", "=A"),
        ] {
            assert_eq!(decoded(Encoding::QuotedPrintable, encoded), expected, "{encoded}");
        }
    }

    #[test]
    fn uuencode_by_example() {
        let whole = "begin 644 a b.txt\r\n#0V%T\r\n`\r\nend\r\n";
        for (encoded, expected) in [
            (whole, "Cat"),
            // Text before it, a blank instead of a grave accent, blanks cut off, no end.
            ("see below\nbegin 0644 x\n#0V%T\n \nend\n", "Cat"),
            ("begin 644 x\n$0V%T\n", "Cat\\x00"),
            ("begin 644 x\n#0V%Txx\n\nend\nSent to all\n", "Cat"),
            ("begin 644 x\nend", ""),
            ("begin at the beginning\n", "begin at the beginning\\n"),
            ("", ""),
        ] {
            assert_eq!(decoded(Encoding::Uuencode, encoded), expected, "{encoded}");
        }
        assert_eq!(Encoding::Uuencode.name(whole.as_bytes()), Some(&b"a b.txt"[..]));
        assert_eq!(Encoding::Base64.name(whole.as_bytes()), None);
        let footer = format!("{whole}Sent to all\r\n");
        let [before, _, after] = Encoding::Uuencode.around(footer.as_bytes());
        assert_eq!((before, after), (&b""[..], &b"Sent to all\r\n"[..]));
        let [before, ..] = Encoding::Uuencode.around(b"see below\nbegin 644 x\n#0V%T\n");
        assert_eq!(before, b"see below\n");
        assert!(has_uuencoded(whole.as_bytes()) && has_uuencoded(b"x\nbegin 644 x\n#0V%T\n"));
        assert!(!has_uuencoded(b"begin at the beginning\nx") && !has_uuencoded(b"begin 644 x\n"));
    }

    const ALL: [Encoding; 4] =
        [Encoding::None, Encoding::Base64, Encoding::QuotedPrintable, Encoding::Uuencode];

    quickcheck! {
        fn output_never_exceeds_the_limit(bytes: Vec<u8>, limit: u8, times: u8) -> bool {
            let bytes = bytes.repeat(1 + usize::from(times % 4));
            let limit = usize::from(limit);
            let uuencoded = [b"begin 644 x\n", &bytes[..]].concat();
            ALL.iter().all(|encoding| {
                let bytes = if *encoding == Encoding::Uuencode { &uuencoded } else { &bytes };
                let all = encoding.decode(bytes, usize::MAX - 3);
                let some = encoding.decode(bytes, limit);
                all.is_whole && all.bytes.starts_with(&some.bytes)
                    && some.is_whole == (all.bytes.len() <= limit)
                    && some.bytes.len() == all.bytes.len().min(limit)
            })
        }

        fn base64_round_trip(bytes: Vec<u8>, line: u8) -> bool {
            let mut encoded = Vec::new();
            let digit = |value: u8| DIGITS.iter().position(|&digit| digit == value).unwrap() as u8;
            for three in bytes.chunks(3) {
                let word = three.iter().fold(0_u32, |word, &byte| word << 8 | u32::from(byte));
                let bits = 8 * three.len();
                let word = word << (24 - bits);
                let digits = bits.div_ceil(6);
                encoded.extend((0..digits).map(|n| digit((word >> (18 - 6 * n)) as u8 & 63)));
                encoded.extend(&b"==="[..4 - digits]);
            }
            let lines: Vec<&[u8]> = encoded.chunks(1 + usize::from(line)).collect();
            Encoding::Base64.decode(&lines.join(&b"\r\n"[..]), usize::MAX).bytes == bytes
        }

        fn uuencode_round_trip(bytes: Vec<u8>, grave: bool) -> bool {
            let digit = |value: u32| match value & 63 {
                0 if grave => b'`',
                value => b' ' + value as u8,
            };
            let mut encoded = b"begin 600 x\n".to_vec();
            for line in bytes.chunks(45) {
                encoded.push(digit(line.len() as u32));
                for three in line.chunks(3) {
                    let word = three.iter().fold(0_u32, |word, &byte| word << 8 | u32::from(byte));
                    let word = word << (24 - 8 * three.len());
                    encoded.extend([18, 12, 6, 0].map(|shift| digit(word >> shift)));
                }
                // As some mail programs cut it.
                while encoded.ends_with(b" ") {
                    encoded.pop();
                }
                encoded.push(b'\n');
            }
            encoded.extend(b"`\nend\n");
            Encoding::Uuencode.decode(&encoded, usize::MAX).bytes == bytes
        }
    }
}
