//! A list of overrides, ready for matching.

use crate::engine::{Forced, RecordKey};

use super::encoding::{self, Entry, ListFault};
use super::glob;
use super::target::{Override, names};

/// The overrides of a store, ready for matching.
#[derive(Debug, Default)]
pub struct Overrides {
    /// The encoded list; the entries point into it.
    bytes: Vec<u8>,
    /// Those of one identity, in the order of their keys in lower case.
    exact: Vec<Entry>,
    globs: Vec<Entry>,
}

/// The overrides that apply to one identity, of which time decides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Candidates {
    /// The latest ends of the exact ones that deny, and of those that allow.
    exact: Ends,
    /// Those of globs.
    globs: Ends,
}

/// When the last override of each sort ends; the earliest second if there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Ends {
    deny: i64,
    allow: i64,
}

impl Default for Ends {
    fn default() -> Self {
        Self { deny: i64::MIN, allow: i64::MIN }
    }
}

impl Ends {
    fn add(&mut self, forced: Forced, until: i64) {
        let end = match forced {
            Forced::Allow => &mut self.allow,
            Forced::Deny => &mut self.deny,
        };
        *end = until.max(*end);
    }

    fn at(self, second: i64) -> Option<Forced> {
        match second {
            _ if second < self.deny => Some(Forced::Deny),
            _ if second < self.allow => Some(Forced::Allow),
            _ => None,
        }
    }
}

impl Candidates {
    /// The override in force in this second, if any.
    #[must_use]
    pub fn at(&self, second: i64) -> Option<Forced> {
        self.exact.at(second).or_else(|| self.globs.at(second))
    }
}

impl Overrides {
    /// Whether there is none.
    #[must_use]
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.exact.is_empty() && self.globs.is_empty()
    }

    /// Those that apply to the identity of `key`.
    #[must_use]
    pub fn find(&self, key: &RecordKey<'_>) -> Candidates {
        let mut found = Candidates::default();
        names(key).for_each(|name| self.add(&name, &mut found));
        found
    }

    /// Adds those that are, or match, `name`.
    fn add(&self, name: &[u8], found: &mut Candidates) {
        let folded = |key: &[u8]| key.iter().map(u8::to_ascii_lowercase).cmp(fold(name));
        let first = self.exact.partition_point(|entry| folded(entry.key(&self.bytes)).is_lt());
        for entry in self.exact.get(first..).unwrap_or_default() {
            let key = entry.key(&self.bytes);
            if folded(key).is_ne() {
                break;
            }
            if entry.ignore_case || key == name {
                found.exact.add(entry.forced, entry.until);
            }
        }
        for entry in &self.globs {
            let mut alternatives = entry.patterns(&self.bytes);
            if alternatives.any(|steps| glob::matches(steps, name, entry.ignore_case)) {
                found.globs.add(entry.forced, entry.until);
            }
        }
    }
}

impl Overrides {
    /// Reads an encoded list. Nothing in it is believed before it has been checked.
    ///
    /// # Errors
    /// See [`ListFault`].
    pub fn decode(bytes: Vec<u8>) -> Result<Self, ListFault> {
        let mut list = Self { bytes: Vec::new(), exact: Vec::new(), globs: Vec::new() };
        encoding::read(&bytes, |entry| {
            let from = bytes.len() - entry.behind;
            let (sort, forced) = (entry.is_glob(), entry.forced);
            let kept = Entry {
                forced,
                until: entry.until,
                ignore_case: entry.ignore_case(),
                patterns: from..from + entry.patterns.len(),
            };
            if sort { list.globs.push(kept) } else { list.exact.push(kept) }
        })?;
        list.exact.sort_by(|a, b| fold(a.key(&bytes)).cmp(fold(b.key(&bytes))));
        list.bytes = bytes;
        Ok(list)
    }

    /// All of them, in the order in which they were set.
    #[must_use]
    pub fn list(&self) -> Vec<Override> {
        let mut all = Vec::new();
        if !self.bytes.is_empty() {
            // Checked when it was decoded.
            let _ = encoding::read(&self.bytes, |entry| all.push(entry.to_override()));
        }
        all
    }

    /// Encodes a list.
    ///
    /// # Errors
    /// A list or a text of it is too long; the error says which.
    pub fn encode(list: &[Override]) -> Result<Vec<u8>, String> {
        encoding::encode(list)
    }
}

/// `key` in lower case.
fn fold(key: &[u8]) -> impl Iterator<Item = u8> + '_ {
    key.iter().map(u8::to_ascii_lowercase)
}
