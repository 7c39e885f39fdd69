//! Tables with very many entries, which are parsed a piece after the other.
//!
//! The parser makes a tree of all that a file says, in which each user takes a kilobyte. So
//! the entries of a long table are cut out of the text that it gets, and read in pieces of
//! whole lines. Its header stays, so that the parser sees whether the table may be there.
//! If anything at all is wrong, the file is read again as a whole: what is reported is what
//! the parser finds.

use std::ops::Range;

/// Tables whose entries are shorter than so many bytes are not cut out.
const LONG: usize = 256 << 10;
/// About how many bytes a piece has.
const PIECE: usize = 64 << 10;

/// The entries of a table that were cut out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Cut {
    /// Its header, in the text that is left.
    pub(super) header: Range<usize>,
    /// Its entries, in the whole text.
    pub(super) entries: Range<usize>,
    /// Whether they were read.
    pub(super) is_read: bool,
}

/// The text without the entries of long tables, and where these are; `None` if it has no such
/// table. `is_long` says which headers may belong to one: `policy.outbound.user`.
pub(super) fn cut(text: &str, is_long: impl Fn(&str) -> bool) -> Option<(String, Vec<Cut>)> {
    let (mut cuts, mut left) = (Vec::new(), String::new());
    let (mut at, mut kept) = (0, 0);
    let mut open: Option<Range<usize>> = None;
    let mut close = |header: Option<Range<usize>>, end: usize| {
        let Some(header) = header.filter(|header| end - header.end > LONG) else { return };
        left.push_str(text.get(kept..header.end).unwrap_or_default());
        let within = left.len() - header.len();
        cuts.push(Cut { header: within..left.len(), entries: header.end..end, is_read: false });
        kept = end;
    };
    for line in text.split_inclusive('\n') {
        if line.trim_start().starts_with('[') {
            close(open.take(), at);
            let header = line.split('#').next().unwrap_or_default().trim();
            let name = header.strip_prefix('[').and_then(|name| name.strip_suffix(']'));
            open = name.filter(|name| is_long(name)).map(|_| at..at + line.len());
        }
        at += line.len();
    }
    close(open, at);
    left.push_str(text.get(kept..).unwrap_or_default());
    (!cuts.is_empty()).then_some((left, cuts))
}

/// The pieces of entries, which end before lines that seem to begin one.
pub(super) fn pieces(text: &str, entries: Range<usize>) -> Vec<Range<usize>> {
    let mut pieces = Vec::new();
    let (mut start, mut at) = (entries.start, entries.start);
    for line in text.get(entries.clone()).unwrap_or_default().split_inclusive('\n') {
        let begins = !line.starts_with([' ', '\t', '#', ']', '}']) && line.contains('=');
        if begins && at - start >= PIECE {
            pieces.push(start..at);
            start = at;
        }
        at += line.len();
    }
    pieces.push(start..entries.end);
    pieces
}
