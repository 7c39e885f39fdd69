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
}

/// The names of encodings; case does not matter.
const NAMES: [(&[u8], Encoding); 6] = [
    (b"base64", Encoding::Base64),
    (b"quoted-printable", Encoding::QuotedPrintable),
    (b"uuencode", Encoding::Uuencode),
    (b"x-uuencode", Encoding::Uuencode),
    (b"uue", Encoding::Uuencode),
    (b"x-uue", Encoding::Uuencode),
];

impl Encoding {
    /// The encoding in the field `Content-Transfer-Encoding`; `None` if it is
    /// unknown.
    pub(super) fn named(field: &[u8]) -> Self {
        let field = field.trim_ascii();
        let end = field.iter().position(|byte| !matches!(byte, b'-' | b'0'..=b'9' | b'A'..=b'z'));
        let name = &field[..end.unwrap_or(field.len())];
        let known = NAMES.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
        known.map_or(Self::None, |(_, encoding)| *encoding)
    }

    /// Whether it carries each byte as it is: the others leave line ends to the path.
    pub(super) fn is_binary(self) -> bool {
        matches!(self, Self::Base64 | Self::Uuencode)
    }

    /// The decoded bytes, at most `limit`, and whether that is all of them.
    pub(super) fn decode(self, bytes: &[u8], limit: usize) -> (Cow<'_, [u8]>, bool) {
        let (decoded, whole) = match self {
            Self::None => (Cow::Borrowed(&bytes[..bytes.len().min(limit)]), bytes.len() <= limit),
            Self::Base64 => owned(base64(bytes, limit)),
            Self::QuotedPrintable => owned(quoted_printable(bytes, limit)),
            Self::Uuencode => match uuencoded(bytes) {
                Some((_, lines, _)) => owned(uudecode(lines, limit)),
                // It was declared, and not done.
                None => return Self::None.decode(bytes, limit),
            },
        };
        debug_assert!(decoded.len() <= limit);
        (decoded, whole)
    }

    /// The name in the first line of uuencode.
    pub(super) fn name(self, bytes: &[u8]) -> Option<&[u8]> {
        uuencoded(bytes).filter(|_| self == Self::Uuencode).map(|(name, _, _)| name)
    }

    /// The plain text after an encoded one: the lines from the first one that is not base64,
    /// or those after the end of uuencode. Mailing lists append their footer so.
    pub(super) fn appended(self, bytes: &[u8]) -> &[u8] {
        match self {
            Self::None | Self::QuotedPrintable => return &[],
            Self::Uuencode => return uuencoded(bytes).map_or(&[], |(_, _, after)| after),
            Self::Base64 => {}
        }
        let mut rest = bytes;
        while !rest.is_empty() {
            let (line, after) = first_line(rest);
            if line.trim_ascii().iter().any(|&byte| DIGITS[usize::from(byte)] == OTHER) {
                break;
            }
            rest = after;
        }
        rest
    }
}

fn owned((decoded, whole): (Vec<u8>, bool)) -> (Cow<'static, [u8]>, bool) {
    (Cow::Owned(decoded), whole)
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

/// Decodes base64. Bytes that are not digits are skipped, and decoding restarts
/// after a `=`.
fn base64(mut bytes: &[u8], limit: usize) -> (Vec<u8>, bool) {
    let mut out = Vec::with_capacity((bytes.len() / 4 * 3 + 3).min(limit));
    let (mut word, mut digits) = (0_u32, 0_u32);
    loop {
        if digits == 0 {
            bytes = quads(bytes, limit, &mut out);
        }
        let Some((byte, rest)) = bytes.split_first() else { break };
        bytes = rest;
        match DIGITS[usize::from(*byte)] {
            OTHER => {}
            END => {
                end(word, digits, &mut out);
                digits = 0;
            }
            digit => {
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
    (out, whole)
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

/// The parts of a uuencoded body (POSIX, `uuencode`): the name of the file, the encoded lines,
/// and the text after them. `None` if no line begins a file.
fn uuencoded(bytes: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let mut rest = bytes;
    let name = loop {
        let (line, after) = first_line(rest);
        rest = after;
        if let Some(name) = uu_begin(line.trim_ascii_end()) {
            break name;
        }
        if rest.is_empty() {
            return None;
        }
    };
    let lines = rest;
    while !rest.is_empty() {
        let (line, after) = first_line(rest);
        if line.trim_ascii_end() == b"end" {
            return Some((name, &lines[..lines.len() - rest.len()], after));
        }
        rest = after;
    }
    Some((name, lines, &[]))
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
        let (decoded, whole) = encoding.decode(bytes.as_bytes(), 1000);
        assert!(whole);
        decoded.escape_ascii().to_string()
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
            ("7bit", Encoding::None),
            ("base64x", Encoding::None),
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
        let encoded = "SGVsbG8g\r\nd29ybGQ=\r\n";
        for appended in ["", "-----\r\nSent to all\r\n", "Sent to all", "To all\nSGVsbG8g\n"] {
            let bytes = format!("{encoded}{appended}");
            assert_eq!(Encoding::Base64.appended(bytes.as_bytes()), appended.as_bytes());
            assert_eq!(Encoding::None.appended(bytes.as_bytes()), b"");
        }
        assert_eq!(Encoding::Base64.appended(b" SGVsbG8g \n"), b"");
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
        assert_eq!(Encoding::Uuencode.appended(footer.as_bytes()), b"Sent to all\r\n");
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
                let (all, whole) = encoding.decode(bytes, usize::MAX - 3);
                let (some, is_all) = encoding.decode(bytes, limit);
                whole && all.starts_with(&some) && is_all == (all.len() <= limit)
                    && some.len() == all.len().min(limit)
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
            Encoding::Base64.decode(&lines.join(&b"\r\n"[..]), usize::MAX).0 == bytes
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
            Encoding::Uuencode.decode(&encoded, usize::MAX).0 == bytes
        }
    }
}
