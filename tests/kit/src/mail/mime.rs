//! Writing MIME.

use std::sync::LazyLock;

/// Writes bytes in base64, in lines of 76.
pub fn base64(bytes: &[u8], to: &mut Vec<u8>) {
    // Twelve bits at a time, because a lot of base64 is generated.
    static PAIRS: LazyLock<Vec<[u8; 2]>> = LazyLock::new(|| {
        const DIGITS: &[u8; 64] =
            b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        (0..4_096).map(|n| [DIGITS[n >> 6], DIGITS[n & 63]]).collect()
    });
    let pairs = &*PAIRS;
    for line in bytes.chunks(57) {
        let mut text = [0; 77];
        let mut length = 0;
        for three in line.chunks(3) {
            let byte = |n: usize| usize::from(three.get(n).copied().unwrap_or(0));
            let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
            text[length..length + 2].copy_from_slice(&pairs[bits >> 12]);
            text[length + 2..length + 4].copy_from_slice(&pairs[bits & 0xfff]);
            length += 4;
            for pad in three.len()..3 {
                text[length - 3 + pad] = b'=';
            }
        }
        text[length] = b'\n';
        to.extend_from_slice(&text[..=length]);
    }
}

/// Writes text in quoted-printable, in lines of up to 76.
pub fn quoted_printable(text: &[u8], to: &mut Vec<u8>) {
    for line in text.split_inclusive(|&b| b == b'\n') {
        let (mut line, end) = match line.split_last() {
            Some((b'\n', line)) => (line, "\n"),
            _ => (line, ""),
        };
        // White space at the end of a line would be lost.
        let blank = line.last().copied().filter(|b| matches!(b, b' ' | b'\t'));
        if blank.is_some() {
            line = &line[..line.len() - 1];
        }
        let mut column = 0;
        let mut room = |wanted: usize, to: &mut Vec<u8>| {
            if column + wanted > 75 {
                to.extend_from_slice(b"=\n");
                column = 0;
            }
            column += wanted;
            75 - column
        };
        while !line.is_empty() {
            let most = line.len().min(60);
            let plain = line[..most].iter().position(|&b| !is_plain(b)).unwrap_or(most);
            if plain == 0 {
                room(3, to);
                escape(line[0], to);
                line = &line[1..];
                continue;
            }
            let most = room(1, to) + 1;
            let run = plain.min(most);
            room(run - 1, to);
            to.extend_from_slice(&line[..run]);
            line = &line[run..];
        }
        if let Some(blank) = blank {
            room(3, to);
            escape(blank, to);
        }
        to.extend_from_slice(end.as_bytes());
    }
}

/// Writes text in what resembles quoted-printable: digits in lower case, spaces after the `=`
/// that joins lines, and `=` for itself.
pub fn malformed(text: &[u8], to: &mut Vec<u8>) {
    let mut correct = Vec::with_capacity(text.len() * 2);
    quoted_printable(text, &mut correct);
    let mut rest = &correct[..];
    while let Some(at) = memchr::memchr(b'=', rest) {
        to.extend_from_slice(&rest[..at]);
        rest = &rest[at..];
        let taken = match rest {
            [b'=', b'\n', ..] => {
                to.extend_from_slice(b"=  \n");
                2
            }
            [b'=', b'3', b'D', b' ', ..] => {
                to.push(b'=');
                3
            }
            _ => {
                to.extend(rest[..3].to_ascii_lowercase());
                3
            }
        };
        rest = &rest[taken..];
    }
    to.extend_from_slice(rest);
}

fn is_plain(byte: u8) -> bool {
    matches!(byte, b' '..=b'~' | b'\t') && byte != b'='
}

fn escape(byte: u8, to: &mut Vec<u8>) {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    let (high, low) = (HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]);
    to.extend_from_slice(&[b'=', high, low]);
}

/// Writes text for a header: literally, or in encoded words of UTF-8.
pub fn header_text(text: &str, to: &mut Vec<u8>) {
    if text.is_ascii() {
        return to.extend_from_slice(text.as_bytes());
    }
    // Each word contains whole characters and has up to 75 bytes (RFC 2047).
    let mut word = String::new();
    let mut first = true;
    let mut flush = |word: &mut String| {
        if !first {
            to.extend_from_slice(b"\n ");
        }
        first = false;
        to.extend_from_slice(b"=?UTF-8?B?");
        base64(word.as_bytes(), to);
        to.pop();
        to.extend_from_slice(b"?=");
        word.clear();
    };
    for char in text.chars() {
        if word.len() + char.len_utf8() > 42 {
            flush(&mut word);
        }
        word.push(char);
    }
    flush(&mut word);
}

/// Writes text for HTML.
pub fn html_text(mut text: &[u8], to: &mut Vec<u8>) {
    while let Some(at) = memchr::memchr3(b'&', b'<', b'\'', text) {
        to.extend_from_slice(&text[..at]);
        to.extend_from_slice(match text[at] {
            b'&' => b"&amp;",
            b'<' => b"&lt;",
            _ => b"&#39;",
        });
        text = &text[at + 1..];
    }
    to.extend_from_slice(text);
}
