//! Whether a text names a person.

use std::ops::Range;

use schemars::JsonSchema;
use serde::Serialize;

use crate::identity::fold::Folding;
use crate::store::{Override, Target};
use crate::text::counted_or_no;

/// An address or a login, found in texts whatever the case of its letters.
#[derive(Debug)]
pub(super) struct Person {
    /// What texts may have: as given and folded, in lower case, and these as Exim writes what
    /// is not ASCII.
    names: Vec<Vec<u8>>,
}

impl Person {
    /// The person with this address or login.
    ///
    /// # Errors
    /// It is neither.
    pub(super) fn of(text: &str, folding: &Folding) -> Result<Self, String> {
        let wrong = |what: &str| Err(format!("{text:?} {what}: expected an address or a login"));
        if text.len() < 2 {
            return wrong("is too short");
        }
        if text.chars().any(|c| c.is_whitespace() || c.is_control() || "*?[]{}\"<>".contains(c)) {
            return wrong("has a character that no address has");
        }
        match text.split_once('@') {
            Some(("", _) | (_, "")) => wrong("is a part of an address"),
            Some((_, domain)) if domain.contains('@') => wrong("has two `@`"),
            _ => Ok(Self::named(text, folding)),
        }
    }

    fn named(text: &str, folding: &Folding) -> Self {
        let mut texts = vec![text.to_ascii_lowercase(), text.to_lowercase(), text.to_uppercase()];
        texts.extend(folding.identity(text));
        let escaped = texts.iter().map(|text| {
            let octal = |byte: u8| match byte {
                128.. => format!("\\{byte:03o}"),
                _ => char::from(byte).to_string(),
            };
            text.bytes().map(octal).collect()
        });
        texts.extend(escaped.collect::<Vec<String>>());
        let mut names: Vec<Vec<u8>> = Vec::new();
        for name in texts.iter().map(|text| text.to_ascii_lowercase().into_bytes()) {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        Self { names }
    }

    /// Whether `text` names the person.
    pub(super) fn is_in(&self, text: &[u8]) -> bool {
        self.next(text, 0).is_some()
    }

    /// Where `text` names the person: the whole address, not the end or the start of a longer
    /// one.
    pub(super) fn places(&self, text: &[u8]) -> Vec<Range<usize>> {
        let mut places = Vec::new();
        while let Some(place) = self.next(text, places.last().map_or(0, |last: &Range<_>| last.end))
        {
            places.push(place);
        }
        places
    }

    fn next(&self, text: &[u8], from: usize) -> Option<Range<usize>> {
        let places = self.names.iter().filter_map(|name| next(name, text, from));
        places.min_by_key(|place| place.start)
    }
}

/// Where `text` has this name next.
fn next(name: &[u8], text: &[u8], from: usize) -> Option<Range<usize>> {
    let length = name.len();
    (from..=text.len().checked_sub(length)?).map(|start| start..start + length).find(|place| {
        text.get(place.clone()).is_some_and(|part| part.eq_ignore_ascii_case(name))
            && !text.get(..place.start).and_then(<[u8]>::last).is_some_and(|b| goes_on_before(*b))
            && !goes_on_after(name, text.get(place.end..).unwrap_or_default())
    })
}

/// Whether a domain, or a login, goes on after `name`.
fn goes_on_after(name: &[u8], rest: &[u8]) -> bool {
    let is_word = |b: &u8| b.is_ascii_alphanumeric() || !b.is_ascii();
    match rest {
        [b'.', after, ..] => is_word(after),
        [b'@' | b'+' | b'_', ..] if !name.contains(&b'@') => true,
        [b, ..] => is_word(b) || matches!(b, b'-'),
        [] => false,
    }
}

/// Whether a local part may go on to the left of this byte. `/`, `=` and `'`, which it may
/// contain as well, separate names in keys and in logs.
fn goes_on_before(b: u8) -> bool {
    b.is_ascii_alphanumeric() || !b.is_ascii() || b"!#$%&*+-?^_`{|}~.@".contains(&b)
}

/// What names the person.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub(super) struct TracesOfPerson {
    /// How many rates named PERSON.
    pub(super) rates: u64,
    pub(super) crossings: u64,
    pub(super) refusals: u64,
    /// Events of others.
    pub(super) mentions: u64,
    pub(super) overrides: u64,
    pub(super) audit_lines: u64,
    pub(super) held_notes: u64,
    pub(super) messages: u64,
    /// Whether they were erased.
    pub(super) erased: bool,
    /// What could not be searched, or is not removed.
    pub(super) left: Vec<String>,
}

impl TracesOfPerson {
    /// The counts that are not 0, in words.
    pub(super) fn parts(&self) -> Vec<String> {
        let all = [
            (self.rates, "record", "records"),
            (self.crossings, "crossing", "crossings"),
            (self.refusals, "refusal", "refusals"),
            (self.mentions, "name in an event of others", "names in events of others"),
            (self.overrides, "override", "overrides"),
            (self.audit_lines, "line of the audit log", "lines of the audit log"),
            (self.held_notes, "note of a held message", "notes of held messages"),
            (self.messages, "recorded message", "recorded messages"),
        ];
        let all = all.into_iter().filter(|(count, ..)| *count > 0);
        all.map(|(count, one, several)| counted_or_no(count as usize, one, several)).collect()
    }

    pub(super) fn is_any(&self) -> bool {
        !self.parts().is_empty()
    }
}

/// Whether an override is for the person alone, or names them in its reason.
pub(super) fn concerns(person: &Person, one: &Override) -> bool {
    let is_exact = matches!(one.target, Target::Exact { .. });
    is_exact && person.is_in(one.argument.as_bytes()) || person.is_in(one.reason.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_whole_address_counts() {
        let alice = Person::of("Alice@Example.org", &Folding::default()).unwrap();
        for text in [
            "alice@example.org",
            "ALICE@EXAMPLE.ORG",
            "p/recipients/1h/auth:alice@example.org",
            "1h/per_rcpt/alice@example.org:192.0.2.7",
            "reset key=alice@example.org.",
            "deny 'alice@example.org' for alice@example.org.uk",
            "<alice@example.org>",
        ] {
            assert!(alice.is_in(text.as_bytes()), "{text}");
        }
        for text in [
            "",
            "alice",
            "malice@example.org",
            "x.alice@example.org",
            "bob+alice@example.org",
            "alice@example.org.uk",
            "alice@example.organic",
            "alice@example.org-x",
            "élice@example.org",
        ] {
            assert!(!alice.is_in(text.as_bytes()), "{text}");
        }
        assert!(!alice.is_in("éalice@example.org".as_bytes()));
        let places = alice.places(b"alice@example.org, malice@example.org alice@example.org");
        assert_eq!(places, [0..17, 38..55]);
    }

    #[test]
    fn names_are_folded_and_found_as_exim_writes_them() {
        let folding = Folding { qualify: Some("x.org".into()), plus: true, ..Folding::default() };
        let person = Person::of("Älice+x", &folding).unwrap();
        for text in ["auth:älice@x.org", r"\303\204LICE+x", r"\303\244lice@x.org", "ÄLICE+X"] {
            assert!(person.is_in(text.as_bytes()), "{text}");
        }
        assert!(!person.is_in(r"\303\244lice@y.org".as_bytes()));
    }

    #[test]
    fn a_login_is_no_part_of_an_address() {
        let login = Person::of("alice", &Folding::default()).unwrap();
        assert!(login.is_in(b"auth:alice") && login.is_in(b"key=ALICE who=x"));
        for text in ["alice@example.org", "alice_b", "alice+x@y", "malice", "x@alice", "alice2"] {
            assert!(!login.is_in(text.as_bytes()), "{text}");
        }
    }

    #[test]
    fn what_is_no_address_is_refused() {
        for text in ["", "a", "@example.org", "alice@", "a@b@c", "*@example.org", "a b@c", "<a@b>"]
        {
            let error = Person::of(text, &Folding::default()).unwrap_err();
            assert!(error.ends_with("expected an address or a login"), "{error}");
        }
    }
}
