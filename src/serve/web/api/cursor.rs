//! Where a page ends: lists are in an order of numbers, the highest first, and then of bytes.

use std::fmt;

use crate::text;

/// The last of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::serve::web) struct Cursor {
    /// At which time, in microseconds since 1970, the numbers were as they are, where they change
    /// with time: they are the same for all pages.
    pub(in crate::serve::web) at: u64,
    pub(in crate::serve::web) rank: u64,
    pub(in crate::serve::web) key: Vec<u8>,
}

/// A page of a list.
pub(in crate::serve::web) struct Page<T> {
    pub(in crate::serve::web) items: Vec<T>,
    /// The cursor of the next one.
    pub(in crate::serve::web) next: Option<String>,
}

impl Cursor {
    /// Reads what [`Cursor`] is written as.
    pub(in crate::serve::web) fn parse(text: &str) -> Option<Self> {
        if !text.bytes().all(|b| b.is_ascii_hexdigit()) || !text.len().is_multiple_of(2) {
            return None;
        }
        let (at, rest) = text.split_at_checked(16)?;
        let (rank, key) = rest.split_at_checked(16)?;
        let byte = |at| u8::from_str_radix(key.get(at..at + 2)?, 16).ok();
        let bytes: Option<Vec<u8>> = (0..key.len()).step_by(2).map(byte).collect();
        let number = |text| u64::from_str_radix(text, 16).ok();
        Some(Self { at: number(at)?, rank: number(rank)?, key: bytes? })
    }

    /// Whether one of this rank and these bytes comes after it.
    pub(in crate::serve::web) fn is_before(&self, rank: u64, key: &[u8]) -> bool {
        rank < self.rank || rank == self.rank && key > &*self.key
    }
}

/// In hexadecimal: the time, the rank, and the bytes.
impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}{:016x}{}", self.at, self.rank, text::hex(&self.key))
    }
}

impl<T> Page<T> {
    /// The first `limit` items.
    pub(in crate::serve::web) fn of(
        all: impl IntoIterator<Item = T>,
        limit: usize,
        cursor: impl Fn(&T) -> Cursor,
    ) -> Self {
        let mut all = all.into_iter();
        let items: Vec<T> = all.by_ref().take(limit).collect();
        let next =
            items.last().filter(|_| all.next().is_some()).map(|last| cursor(last).to_string());
        Self { items, next }
    }
}

#[cfg(test)]
mod tests {
    use kit::quickcheck;

    use super::*;

    quickcheck! {
        fn a_cursor_is_read_back(at: u64, rank: u64, key: Vec<u8>) -> bool {
            let cursor = Cursor { at, rank, key };
            Cursor::parse(&cursor.to_string()) == Some(cursor)
        }

        fn no_text_panics(text: String) -> bool {
            let _ = Cursor::parse(&text);
            true
        }

        fn pages_have_each_item_once(ranks: Vec<u8>, limit: u8) -> bool {
            let mut all: Vec<(u64, Vec<u8>)> =
                ranks.iter().enumerate().map(|(n, rank)| (u64::from(*rank % 4), vec![n as u8])).collect();
            all.sort_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(&b.1)));
            let (mut seen, mut after) = (Vec::new(), None::<Cursor>);
            loop {
                let rest = all.iter().filter(|(rank, key)| {
                    after.as_ref().is_none_or(|after| after.is_before(*rank, key))
                });
                let cursor = |one: &&(u64, Vec<u8>)| Cursor { at: 0, rank: one.0, key: one.1.clone() };
                let page = Page::of(rest, usize::from(limit).max(1), cursor);
                seen.extend(page.items.into_iter().cloned());
                let Some(next) = page.next else { break };
                after = Cursor::parse(&next);
            }
            seen == all
        }
    }
}
