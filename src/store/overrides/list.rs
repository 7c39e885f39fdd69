//! A list of overrides, ready for matching.

use crate::engine::{Overridden, RecordKey};
use crate::identity::fold::Folding;
use crate::store::byte_reader::ByteReader;

use super::encoding::{self, EncodedEntry, ListFault};
use super::target::{Override, Sort, each_name, matches};

/// The overrides of a store, ready for matching.
#[derive(Debug, Default)]
pub struct Overrides {
    /// The encoded list; the entries point into it.
    bytes: Vec<u8>,
    /// One group, unless some were set byte for byte.
    groups: Vec<NameGroup>,
}

/// Those that compare names alike.
#[derive(Debug)]
struct NameGroup {
    /// How keys of specs are folded; `None` if they are not.
    folding: Option<Folding>,
    /// Those of one identity, in the order of their names.
    exact: Vec<EncodedEntry>,
    globs: Vec<EncodedEntry>,
}

/// The overrides that apply to one identity, of which time decides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Candidates {
    /// The latest ends of the exact ones that deny, and of those that allow.
    exact: Ends,
    /// Those of globs.
    globs: Ends,
}

/// When the last override of each sort, the strongest first, ends; the earliest second if there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Ends {
    reject: i64,
    deny: i64,
    allow: i64,
}

impl Default for Ends {
    fn default() -> Self {
        Self { reject: i64::MIN, deny: i64::MIN, allow: i64::MIN }
    }
}

impl Ends {
    fn add(&mut self, overridden: Overridden, until: i64) {
        let end = match overridden {
            Overridden::Allow => &mut self.allow,
            Overridden::Deny => &mut self.deny,
            Overridden::Reject => &mut self.reject,
        };
        *end = until.max(*end);
    }

    fn at(self, second: i64) -> Option<Overridden> {
        match second {
            _ if second < self.reject => Some(Overridden::Reject),
            _ if second < self.deny => Some(Overridden::Deny),
            _ if second < self.allow => Some(Overridden::Allow),
            _ => None,
        }
    }
}

impl Candidates {
    /// The override in force in this second, if any.
    #[must_use]
    pub fn at(&self, second: i64) -> Option<Overridden> {
        self.exact.at(second).or_else(|| self.globs.at(second))
    }
}

impl Overrides {
    /// Whether there is none.
    #[must_use]
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    /// Those that apply to the identity of `key`. `scratch` is used again, so that nothing
    /// is allocated.
    #[must_use]
    pub fn find(&self, key: &RecordKey<'_>, scratch: &mut String) -> Candidates {
        let mut found = Candidates::default();
        for group in &self.groups {
            each_name(key, group.folding.as_ref(), scratch, |name, sort| {
                if sort != Sort::Other {
                    group.add(&self.bytes, name, sort, &mut found);
                }
            });
        }
        found
    }
}

impl NameGroup {
    /// Adds those that are, or match, `name`.
    fn add(&self, bytes: &[u8], name: &[u8], sort: Sort, found: &mut Candidates) {
        let first = self.exact.partition_point(|entry| entry.key(bytes) < name);
        let exact = self.exact.get(first..).unwrap_or_default();
        for entry in exact.iter().take_while(|entry| entry.key(bytes) == name) {
            found.exact.add(entry.overridden, entry.until);
        }
        for entry in &self.globs {
            if entry.patterns(bytes).any(|steps| matches(steps, name, sort)) {
                found.globs.add(entry.overridden, entry.until);
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
        let mut groups: Vec<NameGroup> = Vec::new();
        encoding::read(&bytes, |entry| {
            let folding = entry.folding();
            let at =
                groups.iter().position(|group| group.folding == folding).unwrap_or_else(|| {
                    groups.push(NameGroup { folding, exact: Vec::new(), globs: Vec::new() });
                    groups.len() - 1
                });
            let Some(group) = groups.get_mut(at) else { return };
            let from = bytes.len() - entry.behind;
            let kept = |patterns: &[u8], skipped: usize| {
                let from = from + skipped;
                let patterns = from..from + patterns.len();
                EncodedEntry { overridden: entry.overridden, until: entry.until, patterns }
            };
            if entry.is_glob() {
                group.globs.push(kept(entry.patterns, 0));
                return;
            }
            // Each name of it.
            let mut rest = entry.patterns;
            while !rest.is_empty() {
                let skipped = entry.patterns.len() - rest.len();
                group.exact.push(kept(rest, skipped));
                let mut reader = ByteReader { rest };
                rest = reader.text().map_or(&[][..], |_| reader.rest);
            }
        })?;
        for group in &mut groups {
            group.exact.sort_by(|a, b| a.key(&bytes).cmp(b.key(&bytes)));
        }
        Ok(Self { bytes, groups })
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
