//! The shard of an identity, computed as specified in `src/spool/FORMAT.md`.

use std::path::Path;

use siphasher::sip128::{Hash128, SipHasher24};

/// The shards of a database.
pub(crate) struct Shards(SipHasher24);

impl Shards {
    /// The shards of the database in `folder`.
    pub(crate) fn of(folder: &Path) -> Self {
        let bytes = std::fs::read(folder.join("exirate/database")).unwrap();
        let key = bytes[16..32].try_into().unwrap();
        let Hash128 { h1, h2 } = SipHasher24::new_with_key(key).hash(b"exirate key");
        Self(SipHasher24::new_with_keys(h1, h2))
    }

    /// The number of the shard of `key`, the identity of a check.
    pub(crate) fn of_key(&self, key: &str) -> u8 {
        (self.0.hash(key.as_bytes()).h1 >> 56) as u8
    }

    /// `key` with the first suffix that puts it into a shard below `end`.
    pub(crate) fn key_below(&self, end: u8, key: &str) -> String {
        let mut candidate = String::new();
        for n in 0.. {
            candidate = format!("{key}, try {n}");
            if self.of_key(&candidate) < end {
                break;
            }
        }
        candidate
    }
}
