//! The normal form of text, in which messages and queries are compared.
//!
//! An excerpt copied by a reader differs from what was sent in many invisible
//! ways. The normal form removes them:
//! - characters are in lower case and in their compatibility form (NFKC),
//!   quotation marks and dashes are plain, and invisible characters are
//!   dropped: see [`chars`];
//! - white space is one space, and dropped at the ends;
//! - `>` and `|` after white space are white space: quote marks of a reply are dropped,
//!   however lines are wrapped and wherever an excerpt begins;
//! - of a run of one character three are kept.
//!
//! Adjacent characters hardly affect each other, so that excerpts behave like
//! the whole text:
//! - the normal form of a normal form is the same text;
//! - the normal form of an excerpt is a substring of that of the text, if the
//!   excerpt begins and ends where a reader's selection can: not between a
//!   letter and its accents, nor within a Korean syllable written as separate
//!   letters. [`excerpt`] handles other cuts.

use unicode_normalization::{IsNormalized, UnicodeNormalization, is_nfc_quick};

use super::chars::{self, Becomes};
use crate::sys::vectors::{self, Work};
use crate::trace::filter::packed;

/// How many of a run of one character are kept.
pub(super) const RUN: usize = 3;

/// The normal form of `text`.
#[must_use]
pub fn normalise(text: &str) -> String {
    normalise_up_to(text, usize::MAX, usize::MAX).out
}

/// The normal form of an excerpt that may have been cut anywhere, without the
/// uncertain characters at its ends.
///
/// Characters at the start that combine with a preceding letter are dropped. If
/// the excerpt contains separate accents, its last letter is dropped too,
/// because it may have lost some. The rest is a substring of the normal form of
/// the text, with one exception: an excerpt without separate accents that ends
/// between a letter and its accent keeps that last letter without the accent.
#[must_use]
pub fn excerpt(text: &str) -> String {
    let joined = |c| matches!(chars::becomes(c), Becomes::Joined);
    let uncertain = |c| matches!(chars::becomes(c), Becomes::Joined | Becomes::Nothing);
    let start = text.trim_start_matches(uncertain);
    if !start.contains(joined) {
        return normalise(start);
    }
    let mut letters = start.trim_end_matches(uncertain).chars();
    letters.next_back();
    normalise(letters.as_str())
}

/// A normal form.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Normalised {
    pub(super) out: String,
    /// Whether it is that of the whole text.
    pub(super) is_whole: bool,
    /// How many characters were decomposed to, to be composed again.
    pub(super) composed: usize,
}

/// The normal form of `text`, or about the first `limit` bytes of it: some
/// characters expand to many. After about `compose` characters to be composed,
/// which takes much longer than anything else, all but the usual characters are
/// left out.
pub(super) fn normalise_up_to(text: &str, limit: usize, compose: usize) -> Normalised {
    let bytes = text.as_bytes();
    let mut normal =
        Normal { out: Vec::with_capacity(text.len()), parts: Vec::new(), compose, is_whole: true };
    let mut at = 0;
    while at < bytes.len() && normal.out.len() <= limit {
        let end = at + ascii_length(&bytes[at..]);
        if end == bytes.len() {
            normal.ascii(&bytes[at..]);
            at = end;
        } else {
            // The following character may combine with the last visible one.
            let visible = |&byte: &u8| ASCII[usize::from(byte & 0x7f)] != 0;
            let last = bytes[at..end].iter().rposition(visible).map_or(at, |last| at + last);
            normal.ascii(&bytes[at..last]);
            at = last + normal.others(&text[last..], limit);
        }
    }
    if normal.out.last() == Some(&b' ') {
        normal.out.pop();
    }
    let is_whole = normal.is_whole && at == bytes.len();
    let composed = compose - normal.compose;
    // Only whole characters are appended, so that the other case is unreachable.
    let out = String::from_utf8(normal.out)
        .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned());
    Normalised { out, is_whole, composed }
}

/// The number of ASCII characters at the start of `bytes`.
fn ascii_length(bytes: &[u8]) -> usize {
    let (blocks, rest) = bytes.as_chunks::<32>();
    let plain = blocks.iter().take_while(|block| block.is_ascii()).count() * 32;
    let tail = if plain < blocks.len() * 32 { &bytes[plain..] } else { rest };
    plain + tail.iter().position(|byte| !byte.is_ascii()).unwrap_or(tail.len())
}

/// The normal form of an ASCII byte: lower case, a space for white space, 0 for
/// dropped ones.
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

/// How many ASCII characters are processed at once.
const BLOCK: usize = 16;

/// A normal form under construction.
struct Normal {
    out: Vec<u8>,
    /// A letter and what combines with it; reused to save allocations.
    parts: Vec<char>,
    /// How many more characters may be composed.
    compose: usize,
    /// Whether none was left out for that.
    is_whole: bool,
}

impl Normal {
    /// Appends ASCII characters that nothing combines with.
    fn ascii(&mut self, bytes: &[u8]) {
        vectors::wide(Ascii { normal: self, bytes });
    }

    #[inline(always)]
    fn ascii_blocks(&mut self, bytes: &[u8]) {
        let (mut at, mut block, mut runs) = (RUN.min(bytes.len()), [0; BLOCK], [0; BLOCK]);
        self.ascii_slowly(&bytes[..at]);
        while let Some(window) = bytes[at - RUN.min(at)..].first_chunk() {
            match usual(window, &mut block, &mut runs) {
                Usual::Kept => self.out.extend_from_slice(&block),
                Usual::Shorter => self.shorter(&block, &runs),
                Usual::Odd => self.ascii_slowly(&window[RUN..]),
            }
            at += BLOCK;
        }
        self.ascii_slowly(&bytes[at..]);
    }

    /// Appends a block of which only white space, quote marks and the ends of runs, marked with 1,
    /// may be dropped.
    #[inline(always)]
    fn shorter(&mut self, block: &[u8; BLOCK], runs: &[u8; BLOCK]) {
        let (mut spaces, mut both) = ([0; BLOCK], [0; BLOCK]);
        for ((&byte, space), either) in block.iter().zip(&mut spaces).zip(&mut both) {
            *space = u8::from(byte == b' ');
            *either = u8::from((byte == b' ') | (byte == b'>') | (byte == b'|'));
        }
        let [spaces, both, runs] = [&spaces, &both, runs].map(|marks| {
            let (eights, _) = marks.as_chunks::<8>();
            eights.iter().rev().fold(0_u32, |bits, eight| bits << 8 | u32::from(packed(eight)))
        });
        // As an addition carries: a space sets the carry, a quote mark keeps it, and whatever is
        // one of them is dropped where it is set.
        let is_after_space = matches!(self.out.last(), None | Some(b' '));
        let after_space = (both + spaces + u32::from(is_after_space)) ^ both ^ spaces;
        let mut dropped = both & after_space | runs;
        let (mut kept, mut count) = ([0; BLOCK], 0);
        for &byte in block {
            kept[count % BLOCK] = byte;
            count += (dropped & 1 ^ 1) as usize;
            dropped >>= 1;
        }
        self.out.extend_from_slice(&kept[..count]);
    }

    /// The same for each byte, as [`Self::add_bytes`] does, but branch-free:
    /// dropped characters are too irregular to predict.
    fn ascii_slowly(&mut self, bytes: &[u8]) {
        for bytes in bytes.chunks(BLOCK) {
            let (mut a, mut b, mut c) = match *self.out.as_slice() {
                [.., c, b, a] => (a, b, c),
                [b, a] => (a, b, 0),
                [a] => (a, 0, 0),
                // At the start, as after a space.
                [] => (b' ', 0, 0),
            };
            let (mut kept, mut count) = ([0; BLOCK], 0);
            for &byte in bytes {
                let new = ASCII[usize::from(byte & 0x7f)];
                let is_space = (a == b' ') & ((new == b' ') | (new == b'>') | (new == b'|'));
                let is_run = (new == a) & (a == b) & (b == c);
                let is_kept = !((new == 0) | is_space | is_run);
                kept[count % BLOCK] = new;
                count += usize::from(is_kept);
                (a, b, c) = if is_kept { (new, a, b) } else { (a, b, c) };
            }
            self.out.extend_from_slice(&kept[..count]);
        }
    }

    /// Appends characters from the start of `text`, up to the first ASCII
    /// character that is followed by another one or by the end, or until the
    /// output exceeds `limit` bytes, or no more characters may be composed. Returns how many
    /// bytes of `text` were consumed.
    fn others(&mut self, text: &str, limit: usize) -> usize {
        let is_over = self.compose == 0;
        let becomes = if is_over { chars::becomes_usual } else { chars::becomes };
        let mut rest = text.char_indices().map(|(at, c)| (at, c, becomes(c)));
        let mut next = rest.next();
        while let Some((at, c, becomes)) = next {
            next = rest.next();
            let is_end = c.is_ascii() && next.is_none_or(|(_, c, _)| c.is_ascii());
            if at > 0 && (is_end || self.out.len() > limit || is_over != (self.compose == 0)) {
                return at;
            }
            let is_alone = !matches!(next, Some((_, _, Becomes::Joined | Becomes::Nothing)));
            match becomes {
                Becomes::One(one) if is_alone => self.add(one),
                Becomes::Nothing if is_alone => {}
                _ if is_over => self.is_whole = false,
                _ => {
                    let parts = &mut self.parts;
                    chars::spread(c, &mut |part| parts.push(part));
                    while let Some((_, c, Becomes::Joined | Becomes::Nothing)) = next
                        && parts.len() < self.compose
                    {
                        chars::spread(c, &mut |part| parts.push(part));
                        next = rest.next();
                    }
                    self.compose();
                }
            }
        }
        text.len()
    }

    /// Appends the collected parts, composed.
    fn compose(&mut self) {
        let mut parts = std::mem::take(&mut self.parts);
        self.compose = self.compose.saturating_sub(parts.len());
        if is_nfc_quick(parts.iter().copied()) == IsNormalized::Yes {
            parts.drain(..).for_each(|part| self.add(part));
        } else {
            parts.drain(..).nfc().for_each(|part| self.add(part));
        }
        self.parts = parts;
    }

    /// Appends a character of the normal form.
    fn add(&mut self, c: char) {
        let mut bytes = [0; 4];
        match c.encode_utf8(&mut bytes).len() {
            1 => self.add_bytes([bytes[0]]),
            2 => self.add_bytes([bytes[0], bytes[1]]),
            3 => self.add_bytes([bytes[0], bytes[1], bytes[2]]),
            _ => self.add_bytes(bytes),
        }
    }

    /// Appends the bytes of one character, unless the rules drop it.
    #[inline]
    fn add_bytes<const N: usize>(&mut self, c: [u8; N]) {
        let is_left_out = match c.as_slice() {
            b" " | b">" | b"|" if matches!(self.out.last(), None | Some(b' ')) => true,
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

/// ASCII characters that are appended.
struct Ascii<'a> {
    normal: &'a mut Normal,
    bytes: &'a [u8],
}

impl Work for Ascii<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        self.normal.ascii_blocks(self.bytes);
    }
}

/// What a block of ASCII characters becomes.
enum Usual {
    /// All of them are kept.
    Kept,
    /// Some may be dropped: after white space, and of runs.
    Shorter,
    /// It needs a closer look.
    Odd,
}

/// The normal form of each of a block of ASCII characters, and for each a 1 if it is one too many
/// of a run, else 0. `window` begins with the characters before the block, some of which may have
/// been dropped.
///
/// Uses only steps that vectorise.
#[inline(always)]
fn usual(window: &[u8; RUN + BLOCK], block: &mut [u8; BLOCK], runs: &mut [u8; BLOCK]) -> Usual {
    let is_space = |byte: u8| (byte == b' ') | (byte.wrapping_sub(b'\t') < 5);
    let is_quote = |byte: u8| (byte == b'>') | (byte == b'|');
    let (mut is_odd, mut is_shorter) = (false, false);
    // After such a character, the preceding ones in `window` are not those in the output.
    for &byte in window {
        is_odd |= ((byte < b' ') & !is_space(byte)) | (byte == 0x7f);
    }
    for (at, (to, run)) in block.iter_mut().zip(runs).enumerate() {
        let [c, b, a, byte] = [window[at], window[at + 1], window[at + 2], window[at + 3]];
        is_shorter |= (is_space(a) | is_quote(a)) & is_space(byte) | is_quote(byte);
        // Of a run of white space, all after the first is dropped in any case. Where those before
        // were dropped because they follow white space, this one is as well.
        let is_same = (byte == a) & (a == b) & (b == c);
        let [c, b, a, low] = [c | 0x20, b | 0x20, a | 0x20, byte | 0x20];
        let is_letter = low.wrapping_sub(b'a') < 26;
        let is_run = is_same | is_letter & (low == a) & (a == b) & (b == c);
        is_shorter |= is_run;
        let byte = if byte.is_ascii_uppercase() { low } else { byte };
        (*to, *run) = (if is_space(byte) { b' ' } else { byte }, u8::from(is_run));
    }
    match (is_odd, is_shorter) {
        (true, _) => Usual::Odd,
        (_, true) => Usual::Shorter,
        _ => Usual::Kept,
    }
}
