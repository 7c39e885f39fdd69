//! Keys that resemble one that was not found.

/// How many are suggested.
const SUGGESTIONS: usize = 3;
/// How similar a key must be, 0 to 1.
const THRESHOLD: f64 = 0.85;
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

    fn similarity(&self, key: &[u8]) -> f64 {
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
        let mut similar = Similar::to(b"");
        similar.add(b"alice");
        similar.add(b"");
        assert!(similar.keys().is_empty());
    }
}
