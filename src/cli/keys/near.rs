//! Keys that look like one that is not there.

use crate::spec::StoredKey;

/// How many are told.
const MOST: usize = 3;
/// How alike a key must be, 0 to 1.
const ALIKE: f64 = 0.85;
/// Longer keys are not compared.
const LONGEST: usize = 256;

/// The keys most like a wanted one, among those seen.
pub(super) struct Near {
    wanted: String,
    /// The most alike first; no key twice.
    found: Vec<(f64, Vec<u8>)>,
}

impl Near {
    pub(super) fn to(wanted: &[u8]) -> Self {
        Self { wanted: lower(wanted), found: Vec::new() }
    }

    /// Considers the key of a stored key.
    pub(super) fn see(&mut self, stored: &[u8]) {
        let key = StoredKey::parse(stored).map_or(stored, |filed| filed.key);
        let alike = self.likeness(key);
        let least = match self.found.get(MOST - 1) {
            Some(&(least, _)) => least,
            None => ALIKE,
        };
        if alike < least || self.found.iter().any(|(_, known)| known == key) {
            return;
        }
        let at = self.found.partition_point(|&(other, _)| other >= alike);
        self.found.insert(at, (alike, key.to_vec()));
        self.found.truncate(MOST);
    }

    pub(super) fn keys(&self) -> Vec<&[u8]> {
        self.found.iter().map(|(_, key)| &**key).collect()
    }

    fn likeness(&self, key: &[u8]) -> f64 {
        if self.wanted.is_empty() || key.is_empty() || key.len() > LONGEST {
            return 0.0;
        }
        let key = lower(key);
        if key.contains(&self.wanted) {
            return 1.0;
        }
        strsim::jaro_winkler(&self.wanted, &key)
    }
}

fn lower(text: &[u8]) -> String {
    String::from_utf8_lossy(text).to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_alike_are_told() {
        let mut near = Near::to(b"alcie@example.org");
        let keys = [
            "bob@example.net",
            "alice@example.org",
            "alice@example.com",
            "x",
            "alicia@example.org",
        ];
        for key in keys {
            near.see(format!("1h/per_mail/{key}").as_bytes());
            near.see(format!("1d/per_rcpt/{key}").as_bytes());
        }
        let found = near.keys();
        assert_eq!(found.first(), Some(&&b"alice@example.org"[..]));
        assert!(found.len() <= MOST && !found.contains(&&b"x"[..]));
        assert_eq!(found.iter().filter(|key| **key == b"alice@example.org").count(), 1);
    }

    #[test]
    fn a_part_of_a_key_is_alike() {
        let mut near = Near::to(b"example.org");
        near.see(b"1h/per_mail/someone.with.a.long.name@example.org");
        assert_eq!(near.keys().len(), 1);
        let mut near = Near::to(b"");
        near.see(b"1h/per_mail/alice");
        near.see(b"1h/per_mail/");
        assert!(near.keys().is_empty());
    }
}
