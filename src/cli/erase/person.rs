//! Whether a text names a person.

use std::ops::Range;

/// An address or a login, found in texts whatever the case of its letters.
#[derive(Debug)]
pub(super) struct Person {
    /// In lower case.
    name: Vec<u8>,
}

impl Person {
    /// The person with this address or login.
    ///
    /// # Errors
    /// It is neither.
    pub(super) fn of(text: &str) -> Result<Self, String> {
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
            _ => Ok(Self { name: text.to_ascii_lowercase().into_bytes() }),
        }
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
        let length = self.name.len();
        (from..=text.len().checked_sub(length)?).map(|start| start..start + length).find(|place| {
            text.get(place.clone()).is_some_and(|part| part.eq_ignore_ascii_case(&self.name))
                && !text
                    .get(..place.start)
                    .and_then(<[u8]>::last)
                    .is_some_and(|b| goes_on_before(*b))
                && !self.goes_on_after(text.get(place.end..).unwrap_or_default())
        })
    }

    /// Whether a domain, or a login, goes on here.
    fn goes_on_after(&self, rest: &[u8]) -> bool {
        let is_word = |b: &u8| b.is_ascii_alphanumeric() || !b.is_ascii();
        match rest {
            [b'.', after, ..] => is_word(after),
            [b'@' | b'+' | b'_', ..] if !self.name.contains(&b'@') => true,
            [b, ..] => is_word(b) || matches!(b, b'-'),
            [] => false,
        }
    }
}

/// Whether a local part may go on to the left of this byte. `/`, `=` and `'`, which it may
/// contain as well, separate names in keys and in logs.
fn goes_on_before(b: u8) -> bool {
    b.is_ascii_alphanumeric() || !b.is_ascii() || b"!#$%&*+-?^_`{|}~.@".contains(&b)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_whole_address_counts() {
        let alice = Person::of("Alice@Example.org").unwrap();
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
    fn a_login_is_no_part_of_an_address() {
        let login = Person::of("alice").unwrap();
        assert!(login.is_in(b"auth:alice") && login.is_in(b"key=ALICE who=x"));
        for text in ["alice@example.org", "alice_b", "alice+x@y", "malice", "x@alice", "alice2"] {
            assert!(!login.is_in(text.as_bytes()), "{text}");
        }
    }

    #[test]
    fn what_is_no_address_is_refused() {
        for text in ["", "a", "@example.org", "alice@", "a@b@c", "*@example.org", "a b@c", "<a@b>"]
        {
            let error = Person::of(text).unwrap_err();
            assert!(error.ends_with("expected an address or a login"), "{error}");
        }
    }
}
