//! The names of all identities, to be found by a part of them; and those identities that a name
//! means although they are written otherwise.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};

use memchr::memmem;

use crate::engine::{AlgorithmKind, Kind, RecordKey};
use crate::identity::Field;
use crate::identity::fold::{Folding, escaped, split_field};
use crate::standing::pattern::Pattern;

/// What ends each text: no UTF-8 contains it.
const END: u8 = 0xff;
/// So many that contain a text are compared with each other.
const COMPARED_MAX: usize = 200_000;

/// Texts, one after the other, in which a part is found.
#[derive(Debug, Default)]
struct Texts {
    text: Vec<u8>,
    /// Where each begins.
    starts: Vec<u32>,
    /// What those stand for that are written otherwise.
    stand_for: HashMap<u32, Box<[u8]>>,
}

impl Texts {
    /// Adds a text that stands for `name`, and returns its number; `None` if there is no more room.
    fn add(&mut self, text: &str, name: &[u8]) -> Option<u32> {
        let number = u32::try_from(self.starts.len()).ok()?;
        self.starts.push(u32::try_from(self.text.len()).ok()?);
        self.text.extend_from_slice(text.as_bytes());
        self.text.push(END);
        if text.as_bytes() != name {
            self.stand_for.insert(number, name.into());
        }
        Some(number)
    }

    fn text(&self, number: u32) -> &[u8] {
        let at = |number: usize| self.starts.get(number).map(|&start| start as usize);
        let start = at(number as usize).unwrap_or(self.text.len());
        let end = at(number as usize + 1).unwrap_or(self.text.len()).saturating_sub(1);
        self.text.get(start..end).unwrap_or_default()
    }

    /// What a text stands for.
    fn name(&self, number: u32) -> &[u8] {
        self.stand_for.get(&number).map(|name| &**name).unwrap_or_else(|| self.text(number))
    }

    /// The numbers of the texts that contain `part`, each once, and where it is first.
    fn containing<'t>(&'t self, part: &'t [u8]) -> impl Iterator<Item = (u32, usize)> + 't {
        let finder = memmem::Finder::new(part).into_owned();
        let mut from = 0;
        std::iter::from_fn(move || {
            let rest = self.text.get(from..).filter(|rest| !rest.is_empty())?;
            let at = from + finder.find(rest)?;
            let number =
                self.starts.partition_point(|&start| start as usize <= at).checked_sub(1)?;
            let start = *self.starts.get(number)? as usize;
            let next = self.starts.get(number + 1);
            from = next.map_or(self.text.len(), |&next| next as usize);
            Some((u32::try_from(number).ok()?, at - start))
        })
    }

    fn shrink(&mut self) {
        self.text.shrink_to_fit();
        self.starts.shrink_to_fit();
    }
}

/// What is known of a name.
#[derive(Clone, Copy, Debug, Default)]
struct Fact {
    /// How much of its limit is used, of all of its records.
    share: f32,
    /// Which identities there are of the name: a bit for the name itself, and one for each of
    /// [`Field::ALL`].
    forms: u16,
}

/// A name that a search has found.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct FoundName<'i> {
    pub(super) fit: Fit,
    pub(super) name: &'i [u8],
    forms: u16,
}

impl FoundName<'_> {
    /// The identities that there are of it.
    pub(super) fn identities(&self) -> impl Iterator<Item = Vec<u8>> {
        let own = (self.forms & 1 != 0).then(|| self.name.to_vec());
        let fields = Field::ALL.iter().enumerate();
        let fields = fields.filter(|(number, _)| self.forms & (2 << number) != 0);
        own.into_iter()
            .chain(fields.map(|(_, field)| [field.word().as_bytes(), b":", self.name].concat()))
    }
}

/// The names of all identities.
#[derive(Debug)]
pub(super) struct Index {
    folding: Folding,
    /// In lower case. What people call an identity: `alice` of `auth:alice`.
    names: Texts,
    /// What is known of each.
    facts: Vec<Fact>,
    /// Identities that [`Pattern::identities`] does not name: keys of specs that are not folded,
    /// by what they are folded; and identities of several fields.
    others: Texts,
    /// Which of these are keys of specs.
    of_specs: Vec<bool>,
    /// The numbers of the names by their hashes, while records are added.
    known: HashMap<u64, u32>,
    known_others: HashMap<u64, ()>,
    hasher: RandomState,
    scratch: String,
}

impl Index {
    pub(super) fn new(folding: Folding) -> Self {
        Self {
            folding: folding.without_masks(),
            names: Texts::default(),
            facts: Vec::new(),
            others: Texts::default(),
            of_specs: Vec::new(),
            known: HashMap::new(),
            known_others: HashMap::new(),
            hasher: RandomState::new(),
            scratch: String::new(),
        }
    }

    /// Adds a record, which has used this part of its limit.
    pub(super) fn add(&mut self, key: &RecordKey<'_>, share: f32) {
        let identity = key.identity();
        let (name, field) = bare_name(key);
        let number = Field::ALL.iter().position(|&one| Some(one) == field);
        self.add_name(name, Fact { share, forms: number.map_or(1, |number| 2 << number) });
        let is_spec = key.kind == Kind::Spec;
        let text = match is_spec {
            true => {
                let folded = self.folding.folded_bytes(identity, &mut self.scratch);
                (folded != identity).then_some(folded)
            }
            false => has_several_fields(identity).then_some(identity),
        };
        let Some(text) = text else { return };
        let hash = self.hasher.hash_one((is_spec, identity));
        if self.known_others.insert(hash, ()).is_none()
            && self.others.add(&String::from_utf8_lossy(text), identity).is_some()
        {
            self.of_specs.push(is_spec);
        }
    }

    fn add_name(&mut self, name: &[u8], fact: Fact) {
        let hash = self.hasher.hash_one(name);
        if let Some(&known) = self.known.get(&hash) {
            if let Some(known) = self.facts.get_mut(known as usize) {
                known.share = known.share.max(fact.share);
                known.forms |= fact.forms;
            }
            return;
        }
        let text = std::str::from_utf8(name);
        let is_lower = |text: &&str| text.bytes().all(|b| b.is_ascii() && !b.is_ascii_uppercase());
        let number = match text.ok().filter(is_lower) {
            Some(text) => self.names.add(text, name),
            None => self.names.add(&String::from_utf8_lossy(name).to_lowercase(), name),
        };
        if let Some(number) = number {
            self.known.insert(hash, number);
            self.facts.push(fact);
        }
    }

    /// All records have been added.
    pub(super) fn finish(&mut self) {
        self.known = HashMap::new();
        self.known_others = HashMap::new();
        self.facts.shrink_to_fit();
        self.names.shrink();
        self.others.shrink();
    }

    /// The identities that `pattern` means and that [`Pattern::identities`] does not name.
    pub(super) fn others(&self, pattern: &Pattern) -> Vec<Vec<u8>> {
        let mut all = Vec::new();
        for name in pattern.names() {
            let text = String::from_utf8_lossy(name);
            for part in [text.as_ref(), &escaped(&text)] {
                for (number, _) in self.others.containing(part.as_bytes()) {
                    let identity = self.others.name(number);
                    let (kind, prefix) = match self.of_specs.get(number as usize) {
                        Some(true) => (Kind::Spec, &b"1h/per_mail/"[..]),
                        _ => (Kind::Policy, &b""[..]),
                    };
                    let name = [prefix, identity].concat();
                    let (identity_start, algorithm) = (prefix.len(), AlgorithmKind::default());
                    let key = RecordKey { name: &name, identity_start, kind, algorithm };
                    if pattern.matches(&key) {
                        all.push(identity.to_vec());
                    }
                }
            }
        }
        all
    }

    /// The names that contain `part`, which is in lower case: those that are it, or begin with it,
    /// first, and of these the nearest to a limit. At most `limit`, and whether there are more.
    pub(super) fn search(&self, part: &str, limit: usize) -> (Vec<FoundName<'_>>, bool) {
        let mut all: Vec<(Fit, u32, u32)> = Vec::new();
        for (number, at) in self.names.containing(part.as_bytes()).take(COMPARED_MAX) {
            // In the order of the shares, the largest first.
            let order = !self.fact(number).share.max(0.0).to_bits();
            all.push((Fit::of(self.names.text(number), at, part.as_bytes()), order, number));
        }
        let more = all.len() > limit;
        if more {
            all.select_nth_unstable(limit);
            all.truncate(limit);
        }
        all.sort_unstable();
        let found = |&(fit, _, number): &(Fit, u32, u32)| FoundName {
            fit,
            name: self.names.name(number),
            forms: self.fact(number).forms,
        };
        (all.iter().map(found).collect(), more)
    }

    fn fact(&self, number: u32) -> Fact {
        self.facts.get(number as usize).copied().unwrap_or_default()
    }
}

/// How well a text fits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Fit {
    /// It is what is searched for.
    Whole,
    /// It begins with it.
    Begins,
    /// A word of it begins with it.
    Word,
    /// It contains it.
    Within,
}

impl Fit {
    /// Of a text that contains `part` first at this offset.
    pub(super) fn of(text: &[u8], at: usize, part: &[u8]) -> Self {
        let before = at.checked_sub(1).and_then(|before| text.get(before));
        match before {
            None if text.len() == part.len() => Self::Whole,
            None => Self::Begins,
            Some(before) if !before.is_ascii_alphanumeric() && before.is_ascii() => Self::Word,
            Some(_) => Self::Within,
        }
    }
}

/// What people call the identity of a record: the value of its only field, where that has names
/// without it; and that field.
fn bare_name<'k>(key: &RecordKey<'k>) -> (&'k [u8], Option<Field>) {
    let identity = key.identity();
    let value = || {
        let (field, value) = split_field(identity)?;
        let field = Field::of(field).filter(|field| field.has_bare_names())?;
        (!value.contains(&b',')).then_some((value, Some(field)))
    };
    if key.kind == Kind::Spec { (identity, None) } else { value().unwrap_or((identity, None)) }
}

/// Whether the identity of a policy's record has several fields, or a comma.
fn has_several_fields(identity: &[u8]) -> bool {
    identity.contains(&b',')
}

#[cfg(test)]
mod tests {
    use kit::quickcheck;
    use quickcheck::TestResult;

    use super::*;
    use crate::standing::key_text;
    use crate::standing::pattern::Syntax;

    fn key(name: &str) -> RecordKey<'_> {
        key_text::record_of(name.as_bytes())
    }

    fn index(names: &[(&str, f32)]) -> Index {
        let mut index = Index::new(Folding::default());
        names.iter().for_each(|(name, share)| index.add(&key(name), *share));
        index.finish();
        index
    }

    #[test]
    fn a_mailbox_is_found_as_it_is_typed() {
        let index = index(&[
            ("auth:alice@example.org", 0.1),
            ("alice@example.org", 0.5),
            ("auth:malice@example.org", 0.9),
            ("auth:alice@example.net", 0.2),
            ("auth:x.alice@example.com", 0.0),
            ("Alice", 0.0),
            ("client:192.0.2.7", 0.0),
            ("sender:alice@example.org", 0.0),
            ("auth:alice,client:192.0.2.7", 0.0),
        ]);
        let found = |part: &str, limit| {
            let (found, more) = index.search(part, limit);
            let found: Vec<_> = found.iter().map(|one| String::from_utf8_lossy(one.name)).collect();
            (found.join(" "), more)
        };
        let all = "Alice alice@example.org alice@example.net auth:alice,client:192.0.2.7 \
                   x.alice@example.com sender:alice@example.org malice@example.org";
        let (names, more) = found("alice", 50);
        let sorted = |text: &str| {
            let mut all: Vec<_> = text.split(' ').map(str::to_owned).collect();
            all.sort();
            all
        };
        assert_eq!((sorted(&names), more), (sorted(all), false));
        assert!(names.starts_with("Alice alice@example.org alice@example.net "), "{names}");
        assert!(names.ends_with(" malice@example.org"), "{names}");
        let (best, _) = index.search("alice@example.org", 1);
        let identities: Vec<_> = best[0].identities().collect();
        assert_eq!(identities, [&b"alice@example.org"[..], b"auth:alice@example.org"]);
        assert_eq!(found("alice", 1), ("Alice".to_owned(), true));
        assert_eq!(found("192.0", 9).0, "192.0.2.7 auth:alice,client:192.0.2.7");
        assert_eq!(found("nobody", 9), (String::new(), false));
    }

    #[test]
    fn names_of_any_bytes_stay_what_they_are() {
        let mut index = Index::new(Folding::default());
        let all: [&[u8]; 6] =
            [b"", b"\xff", b"\xff\xff", "ÄB".as_bytes(), b"a\nb\0", "\u{202e}x".as_bytes()];
        for name in all {
            index.add(&name.into(), 0.0);
        }
        index.finish();
        let (found, _) = index.search("", 50);
        assert_eq!(found.len(), all.len());
        for name in all {
            assert!(found.iter().any(|one| one.name == name), "{name:?}");
        }
        assert_eq!(index.search("äb", 9).0[0].name, "ÄB".as_bytes());
    }

    #[test]
    fn what_is_written_otherwise_is_known() {
        let index = index(&[
            ("PAULA@Example.ORG.", 0.0),
            ("paula@example.org", 0.0),
            ("auth:paula@example.org", 0.0),
            ("auth:paula@example.org,client:192.0.2.7", 0.0),
            ("auth:paula@example.org.evil,client:192.0.2.7", 0.0),
            ("auth:a,,b", 0.0),
        ]);
        let others = |argument: &str| {
            let pattern = Pattern::parse(argument.as_bytes(), Syntax::default()).unwrap();
            let mut all = index.others(&pattern);
            all.sort();
            all.dedup();
            all.into_iter().map(|one| String::from_utf8(one).unwrap()).collect::<Vec<_>>()
        };
        assert_eq!(
            others("Paula@example.org"),
            ["PAULA@Example.ORG.", "auth:paula@example.org,client:192.0.2.7"]
        );
        assert_eq!(others("paula"), [""; 0]);
        assert_eq!(others("a,b"), ["auth:a,,b"]);
    }

    quickcheck! {
        /// Whatever a key means is named by the key, or known to the index.
        fn nothing_that_is_meant_is_missed(argument: Vec<u8>, records: Vec<Vec<u8>>) -> TestResult {
            const PARTS: [&str; 24] = [
                "alice", "Alice", "bob", "@example.org", "@Example.ORG", ".", "+x", "auth:",
                "client:", "sender:", "local_account:", "customer:", ",", ",,", "192.0.2.7",
                "2001:db8::7", "1h/per_rcpt/", "out/recipients/1h/", "\\303\\244", "ä", " ", "/", "<", ">",
            ];
            let text = |bytes: &[u8]| -> String {
                bytes.iter().take(5).map(|b| PARTS[usize::from(*b) % PARTS.len()]).collect()
            };
            let argument = text(&argument);
            let Ok(pattern) = Pattern::parse(argument.as_bytes(), Syntax::default()) else {
                return TestResult::discard();
            };
            let mut index = Index::new(Folding::default());
            let records: Vec<String> = records.iter().map(|bytes| text(bytes)).collect();
            records.iter().for_each(|name| index.add(&key(name), 0.0));
            index.finish();
            let mut all = pattern.identities();
            all.extend(index.others(&pattern));
            let is_known = |key: RecordKey<'_>| all.contains(key.identity());
            let stored = records.iter().map(|name| key(name));
            // No record is called `//`, as if it had a period and a mode.
            let stored = stored.filter(|key| key_text::key_of(key) == key.identity());
            let mut meant = stored.filter(|key| pattern.matches(key));
            TestResult::from_bool(meant.all(is_known))
        }
    }
}
