//! Transfer encodings: base64 and quoted-printable, as tolerant as mail
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
}

impl Encoding {
    /// The encoding in the field `Content-Transfer-Encoding`; `None` if it is
    /// unknown.
    pub(super) fn named(field: &[u8]) -> Self {
        let field = field.trim_ascii();
        let end = field.iter().position(|byte| !matches!(byte, b'-' | b'0'..=b'9' | b'A'..=b'z'));
        let name = &field[..end.unwrap_or(field.len())];
        if name.eq_ignore_ascii_case(b"base64") {
            Self::Base64
        } else if name.eq_ignore_ascii_case(b"quoted-printable") {
            Self::QuotedPrintable
        } else {
            Self::None
        }
    }

    /// The decoded bytes, at most `limit`, and whether that is all of them.
    pub(super) fn decode(self, bytes: &[u8], limit: usize) -> (Cow<'_, [u8]>, bool) {
        let (decoded, whole) = match self {
            Self::None => (Cow::Borrowed(&bytes[..bytes.len().min(limit)]), bytes.len() <= limit),
            Self::Base64 => owned(base64(bytes, limit)),
            Self::QuotedPrintable => owned(quoted_printable(bytes, limit)),
        };
        debug_assert!(decoded.len() <= limit);
        (decoded, whole)
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
        let end = memchr::memchr(b'\n', rest).map_or(rest.len(), |end| end + 1);
        let line;
        (line, rest) = rest.split_at(end);
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
    use quickcheck::quickcheck;

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

    quickcheck! {
        fn output_never_exceeds_the_limit(bytes: Vec<u8>, limit: u8, times: u8) -> bool {
            let bytes = bytes.repeat(1 + usize::from(times % 4));
            let limit = usize::from(limit);
            [Encoding::None, Encoding::Base64, Encoding::QuotedPrintable].iter().all(|encoding| {
                let (all, whole) = encoding.decode(&bytes, usize::MAX - 3);
                let (some, is_all) = encoding.decode(&bytes, limit);
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
    }
}
