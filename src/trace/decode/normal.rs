//! The normal form of text, in which messages and questions meet.
//!
//! An excerpt that a reader copies differs from what was sent in many ways
//! that nobody sees. The normal form has none of them:
//! - characters are lower case, compatible ones are one (NFKC), quote marks and
//!   dashes are plain ones, and what is not seen is not there: see [`chars`];
//! - white space is one space, and none at the ends;
//! - `>` behind white space is white space: the marks of a reply go, however
//!   the lines are broken anew and wherever an excerpt begins;
//! - of a run of one character three are left.
//!
//! The rules are such that neighbours hardly matter, so that what is true of a
//! text is true of every excerpt:
//! - the normal form of a normal form is itself;
//! - the normal form of an excerpt is a substring of that of the text, if the
//!   excerpt begins and ends where a reader's selection can, which is not
//!   between a letter and its accents, nor within a Korean syllable spelt by
//!   its letters. [`excerpt`] takes care of cuts elsewhere.

use unicode_normalization::{IsNormalized, UnicodeNormalization, is_nfc_quick};

use super::chars::{self, Becomes};

/// So many of a run of one character are left.
pub(super) const RUN: usize = 3;

/// The normal form of `text`.
#[must_use]
pub fn normalise(text: &str) -> String {
    normalise_most(text, usize::MAX).0
}

/// The normal form of an excerpt that may have been cut anywhere, without what
/// is in doubt at its ends.
///
/// What joins a letter before the excerpt goes, and if the excerpt has letters
/// with accents of their own, so does its last letter, which may have lost some.
/// The rest is a substring of the normal form of the text, but for one
/// case: an excerpt with no such accent that ends between a letter and its
/// accent keeps that last letter, without that accent.
#[must_use]
pub fn excerpt(text: &str) -> String {
    let joined = |c| matches!(chars::becomes(c), Becomes::Joined);
    let doubtful = |c| matches!(chars::becomes(c), Becomes::Joined | Becomes::Nothing);
    let begun = text.trim_start_matches(doubtful);
    if !begun.contains(joined) {
        return normalise(begun);
    }
    let mut letters = begun.trim_end_matches(doubtful).chars();
    letters.next_back();
    normalise(letters.as_str())
}

/// The normal form of `text`, or about the first `most` bytes of it, and
/// whether it is all: some characters stand for many.
pub(super) fn normalise_most(text: &str, most: usize) -> (String, bool) {
    let bytes = text.as_bytes();
    let mut normal = Normal { out: Vec::with_capacity(text.len()), parts: Vec::new() };
    let mut at = 0;
    while at < bytes.len() && normal.out.len() <= most {
        let end = at + ascii_length(&bytes[at..]);
        if end == bytes.len() {
            normal.ascii(&bytes[at..]);
            at = end;
        } else {
            // What follows may join the last of them that is seen.
            let seen = |&byte: &u8| ASCII[usize::from(byte & 0x7f)] != 0;
            let last = bytes[at..end].iter().rposition(seen).map_or(at, |last| at + last);
            normal.ascii(&bytes[at..last]);
            at = last + normal.others(&text[last..], most);
        }
    }
    if normal.out.last() == Some(&b' ') {
        normal.out.pop();
    }
    let whole = at == bytes.len();
    match String::from_utf8(normal.out) {
        Ok(out) => (out, whole),
        // Never: only whole characters are put in.
        Err(error) => (String::from_utf8_lossy(error.as_bytes()).into_owned(), whole),
    }
}

/// How many ASCII characters `bytes` begin with.
fn ascii_length(bytes: &[u8]) -> usize {
    let (blocks, rest) = bytes.as_chunks::<32>();
    let plain = blocks.iter().take_while(|block| block.is_ascii()).count() * 32;
    let tail = if plain < blocks.len() * 32 { &bytes[plain..] } else { rest };
    plain + tail.iter().position(|byte| !byte.is_ascii()).unwrap_or(tail.len())
}

/// What an ASCII byte becomes: lower case, a space for white space, 0 for
/// nothing.
const ASCII: [u8; 128] = {
    let mut table = [0; 128];
    let mut byte = 0;
    while byte < 128 {
        table[byte as usize] = match byte {
            b'\t'..=b'\r' => b' ',
            b' '..=b'~' => byte.to_ascii_lowercase(),
            _ => 0,
        };
        byte += 1;
    }
    table
};

/// So many ASCII characters are looked at at once.
const BLOCK: usize = 16;

/// A normal form in the making.
struct Normal {
    out: Vec<u8>,
    /// A letter and what joins it; kept for its memory.
    parts: Vec<char>,
}

impl Normal {
    /// Adds ASCII characters that nothing joins.
    fn ascii(&mut self, bytes: &[u8]) {
        let mut at = RUN.min(bytes.len());
        self.ascii_slowly(&bytes[..at]);
        while let Some(window) = bytes[at - RUN.min(at)..].first_chunk() {
            match usual(window) {
                Some(block) => self.out.extend_from_slice(&block),
                None => self.ascii_slowly(&window[RUN..]),
            }
            at += BLOCK;
        }
        self.ascii_slowly(&bytes[at..]);
    }

    /// The same one by one, as [`Self::add_bytes`] would, but without a branch:
    /// what is left out comes too irregularly.
    fn ascii_slowly(&mut self, bytes: &[u8]) {
        for bytes in bytes.chunks(BLOCK) {
            let (mut a, mut b, mut c) = match *self.out.as_slice() {
                [.., c, b, a] => (a, b, c),
                [b, a] => (a, b, 0),
                [a] => (a, 0, 0),
                // It is as behind a space.
                [] => (b' ', 0, 0),
            };
            let (mut kept, mut count) = ([0; BLOCK], 0);
            for &byte in bytes {
                let new = ASCII[usize::from(byte & 0x7f)];
                let is_space = (a == b' ') & ((new == b' ') | (new == b'>'));
                let is_run = (new == a) & (a == b) & (b == c);
                let is_kept = !((new == 0) | is_space | is_run);
                kept[count % BLOCK] = new;
                count += usize::from(is_kept);
                (a, b, c) = if is_kept { (new, a, b) } else { (a, b, c) };
            }
            self.out.extend_from_slice(&kept[..count]);
        }
    }

    /// Adds characters from the start of `text` on, up to the first ASCII
    /// character that another one or nothing follows, or until there are more
    /// than `most` bytes. Returns how many bytes of `text` that was.
    fn others(&mut self, text: &str, most: usize) -> usize {
        let mut rest = text.char_indices().map(|(at, c)| (at, c, chars::becomes(c)));
        let mut next = rest.next();
        while let Some((at, c, becomes)) = next {
            next = rest.next();
            let is_end = c.is_ascii() && next.is_none_or(|(_, c, _)| c.is_ascii());
            if at > 0 && (is_end || self.out.len() > most) {
                return at;
            }
            let is_alone = !matches!(next, Some((_, _, Becomes::Joined | Becomes::Nothing)));
            match becomes {
                Becomes::One(one) if is_alone => self.add(one),
                Becomes::Nothing if is_alone => {}
                _ => {
                    let parts = &mut self.parts;
                    chars::spread(c, &mut |part| parts.push(part));
                    while let Some((_, c, Becomes::Joined | Becomes::Nothing)) = next {
                        chars::spread(c, &mut |part| parts.push(part));
                        next = rest.next();
                    }
                    self.compose();
                }
            }
        }
        text.len()
    }

    /// Adds the parts, composed.
    fn compose(&mut self) {
        let mut parts = std::mem::take(&mut self.parts);
        if is_nfc_quick(parts.iter().copied()) == IsNormalized::Yes {
            parts.drain(..).for_each(|part| self.add(part));
        } else {
            parts.drain(..).nfc().for_each(|part| self.add(part));
        }
        self.parts = parts;
    }

    /// Adds a character that has become what it is.
    fn add(&mut self, c: char) {
        let mut bytes = [0; 4];
        match c.encode_utf8(&mut bytes).len() {
            1 => self.add_bytes([bytes[0]]),
            2 => self.add_bytes([bytes[0], bytes[1]]),
            3 => self.add_bytes([bytes[0], bytes[1], bytes[2]]),
            _ => self.add_bytes(bytes),
        }
    }

    /// Adds the bytes of one character, unless it is to be left out.
    #[inline]
    fn add_bytes<const N: usize>(&mut self, c: [u8; N]) {
        let is_left_out = match c.as_slice() {
            b" " | b">" if matches!(self.out.last(), None | Some(b' ')) => true,
            _ if self.out.last_chunk() != Some(&c) => false,
            _ => {
                self.out.as_rchunks().1.iter().rev().take(RUN).filter(|&&one| one == c).count()
                    == RUN
            }
        };
        if !is_left_out {
            self.out.extend_from_slice(&c);
        }
    }
}

/// What ASCII characters become, if none of them is left out. Those before them,
/// of which some may have been, come first in `window`. `None` also where some
/// would have to be looked at more closely.
///
/// Made of steps that take all characters at once.
fn usual(window: &[u8; RUN + BLOCK]) -> Option<[u8; BLOCK]> {
    let is_space = |byte: u8| (byte == b' ') | (byte.wrapping_sub(b'\t') < 5);
    let mut is_odd = false;
    // What stands behind one of these that was left out is not what it seems.
    for &byte in window {
        is_odd |= ((byte < b' ') & !is_space(byte)) | (byte == b'>') | (byte == 0x7f);
    }
    let mut block = [0; BLOCK];
    for (at, to) in block.iter_mut().enumerate() {
        let [c, b, a, byte] = [window[at], window[at + 1], window[at + 2], window[at + 3]];
        is_odd |= is_space(a) & is_space(byte);
        // In lower case if they are letters.
        let [c, b, a, low] = [c | 0x20, b | 0x20, a | 0x20, byte | 0x20];
        is_odd |= (low == a) & (a == b) & (b == c);
        let byte = if byte.is_ascii_uppercase() { low } else { byte };
        *to = if is_space(byte) { b' ' } else { byte };
    }
    if is_odd { None } else { Some(block) }
}
