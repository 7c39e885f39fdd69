//! Keys that resemble one that was not found.

use crate::identity::Field;

/// How many are suggested.
const SUGGESTIONS: usize = 3;
/// How similar a key must be, 0 to 1.
const THRESHOLD: f64 = 0.85;
/// How similar a key is that has the wanted text in it, or differs from it by one letter that is
/// wrong, missing or too much, or by two that are exchanged.
const MEANT: f64 = 1.0;
/// How similar an address is to its local part.
const SAME_LOCAL_PART: f64 = 0.99;
/// Longer keys are not compared.
const LONGEST: usize = 256;

/// The keys most similar to a wanted one, among those added.
pub(super) struct Similar {
    wanted: String,
    /// The most similar first; no key twice.
    found: Vec<(f64, Vec<u8>)>,
}

impl Similar {
    pub(super) fn to(wanted: &[u8]) -> Self {
        Self { wanted: lower(wanted), found: Vec::new() }
    }

    /// Considers this key.
    pub(super) fn add(&mut self, key: &[u8]) {
        let similarity = self.similarity(key);
        let lowest = match self.found.get(SUGGESTIONS - 1) {
            Some(&(lowest, _)) => lowest,
            None => THRESHOLD,
        };
        if similarity < lowest || self.found.iter().any(|(_, known)| known == key) {
            return;
        }
        let at = self.found.partition_point(|&(other, _)| other >= similarity);
        self.found.insert(at, (similarity, key.to_vec()));
        self.found.truncate(SUGGESTIONS);
    }

    pub(super) fn keys(&self) -> Vec<&[u8]> {
        self.found.iter().map(|(_, key)| &**key).collect()
    }

    /// The only one, if it is surely meant.
    pub(super) fn only(&self) -> Option<&[u8]> {
        match &self.found[..] {
            [(similarity, key)] if *similarity >= MEANT => Some(key),
            _ => None,
        }
    }

    fn similarity(&self, key: &[u8]) -> f64 {
        if self.wanted.is_empty() || key.is_empty() || key.len() > LONGEST {
            return 0.0;
        }
        let key = lower(key);
        // Within a number it is another user or client.
        let digit = |letter: Option<char>| letter.is_some_and(|one| one.is_ascii_digit());
        let splits = |before: &str, after: &str| {
            digit(before.chars().next_back()) && digit(after.chars().next())
        };
        let is_there = key.match_indices(&self.wanted).any(|(at, wanted)| {
            let (before, from) = key.split_at(at);
            let after = from.strip_prefix(wanted).unwrap_or_default();
            !splits(before, wanted) && !splits(wanted, after)
        });
        if is_there {
            return MEANT;
        }
        // `alise` is meant as the login of `auth:alice@example.org`.
        let value = match key.split_once(':') {
            Some((field, value)) if Field::of(field.as_bytes()).is_some() => value,
            _ => &*key,
        };
        // `alice@example.org` is nearest to the login `alice`, and may be another.
        let (local_part, domain) = self.wanted.split_once('@').unwrap_or((&self.wanted, ""));
        if !domain.is_empty() && local_part == value {
            return SAME_LOCAL_PART;
        }
        let whole = self.wanted.contains('@');
        let of_part = |text: &str| match text.split_once('@') {
            Some((local_part, _)) if !whole => of_texts(&self.wanted, local_part),
            _ => of_texts(&self.wanted, text),
        };
        of_part(&key).max(if value.len() < key.len() { of_part(value) } else { 0.0 })
    }
}

/// How similar two texts are.
fn of_texts(wanted: &str, text: &str) -> f64 {
    // Another number is another user or client. A letter may have four bytes.
    let digits = |text: &str| text.chars().filter(char::is_ascii_digit).collect::<String>();
    let is_slip = wanted.len() > 2
        && wanted.len().abs_diff(text.len()) <= 4
        && strsim::osa_distance(wanted, text) == 1
        && digits(wanted) == digits(text);
    strsim::jaro_winkler(wanted, text).max(if is_slip { MEANT } else { 0.0 })
}

fn lower(text: &[u8]) -> String {
    String::from_utf8_lossy(text).to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_similar_keys_are_suggested() {
        let mut similar = Similar::to(b"alcie@example.org");
        let keys = [
            "bob@example.net",
            "alice@example.org",
            "alice@example.com",
            "x",
            "alicia@example.org",
        ];
        for key in keys {
            similar.add(key.as_bytes());
            similar.add(key.as_bytes());
        }
        let found = similar.keys();
        assert_eq!(found.first(), Some(&&b"alice@example.org"[..]));
        assert!(found.len() <= SUGGESTIONS && !found.contains(&&b"x"[..]));
        assert_eq!(found.iter().filter(|key| **key == b"alice@example.org").count(), 1);
    }

    #[test]
    fn a_part_of_a_key_is_similar() {
        let mut similar = Similar::to(b"example.org");
        similar.add(b"someone.with.a.long.name@example.org");
        assert_eq!(similar.keys().len(), 1);
        assert_eq!(similar.only(), Some(&b"someone.with.a.long.name@example.org"[..]));
        let mut similar = Similar::to(b"");
        similar.add(b"alice");
        similar.add(b"");
        assert!(similar.keys().is_empty());
    }

    #[test]
    fn a_login_is_found_by_its_local_part_with_a_slip() {
        for wanted in ["alise", "Alic", "alicee", "laice", "auth:alise", "alise@example.org"] {
            let mut similar = Similar::to(wanted.as_bytes());
            for key in ["auth:alice@example.org", "auth:bob@example.org", "client:192.0.2.7"] {
                similar.add(key.as_bytes());
            }
            assert_eq!(similar.only(), Some(&b"auth:alice@example.org"[..]), "{wanted}");
        }
        let mut similar = Similar::to(b"carol");
        similar.add(b"carla");
        similar.add(b"dave");
        assert_eq!(similar.only(), None);
        let mut similar = Similar::to(b"user12");
        similar.add(b"user11");
        assert_eq!(similar.only(), None);
    }
}
