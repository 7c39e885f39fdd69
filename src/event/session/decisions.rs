//! Earlier decisions, and how long they stay valid.
//!
//! Exim computes a rate once for each connection, message or command, depending
//! on the mode, and then reuses it, compared with the limit of the later line.
//! This cache does the same.

use crate::engine::{Decision, Kind, RecordKey};
use crate::event::Scope;
use crate::hash::FastMap;

/// The maximum memory for the decisions of a connection, and for those of a
/// message: more than twenty thousand with keys of common length. Beyond it,
/// every evaluation counts.
const BYTES_MAX: usize = 8 << 20;

/// The maximum number of decisions for a command: more than any ACL has lines.
const COMMAND_MAX: usize = 1024;

/// The entry under a record's name.
#[derive(Clone, Copy)]
struct Cached {
    identity_start: usize,
    kind: Kind,
    decision: Decision,
}

impl Cached {
    fn new(key: &RecordKey<'_>, decision: Decision) -> Self {
        Self { identity_start: key.identity_start, kind: key.kind, decision }
    }

    /// The decision, if it belongs to this record.
    fn of(&self, key: &RecordKey<'_>) -> Option<Decision> {
        (self.identity_start == key.identity_start
            && self.kind == key.kind
            && self.decision.algorithm == key.algorithm)
            .then_some(self.decision)
    }
}

/// Decisions by the names of their records.
#[derive(Clone, Default)]
struct ByName {
    entries: FastMap<Vec<u8>, Cached>,
    bytes: usize,
}

impl ByName {
    fn recall(&self, key: &RecordKey<'_>) -> Option<Decision> {
        self.entries.get(key.name)?.of(key)
    }

    fn keep(&mut self, key: &RecordKey<'_>, decision: Decision) {
        // Doubled, for the spare capacity of the map.
        let bytes = 2 * size_of::<(Vec<u8>, Cached)>() + key.name.len();
        if self.bytes + bytes <= BYTES_MAX {
            self.bytes += bytes;
            self.entries.insert(key.name.to_owned(), Cached::new(key, decision));
        }
    }

    fn clear(&mut self) {
        // Clearing a map that was once large takes long each time.
        if !self.entries.is_empty() {
            *self = Self::default();
        }
    }
}

/// The decisions of a command: an ACL has few lines, so a linear search is
/// fastest. The buffers for the names are reused.
#[derive(Clone, Default)]
struct InOrder {
    entries: Vec<(Vec<u8>, Cached)>,
    used: usize,
}

impl InOrder {
    fn recall(&self, key: &RecordKey<'_>) -> Option<Decision> {
        let entries = self.entries.iter().take(self.used);
        entries.filter(|(name, _)| name == key.name).find_map(|(_, cached)| cached.of(key))
    }

    fn keep(&mut self, key: &RecordKey<'_>, decision: Decision) {
        if self.used >= COMMAND_MAX {
            return;
        }
        let cached = Cached::new(key, decision);
        match self.entries.get_mut(self.used) {
            Some((name, old)) => {
                name.clear();
                name.extend_from_slice(key.name);
                *old = cached;
            }
            None => self.entries.push((key.name.to_owned(), cached)),
        }
        self.used += 1;
    }

    fn clear(&mut self) {
        self.used = 0;
        // Free what an ordinary command does not need.
        self.entries.truncate(16);
    }
}

/// The decisions of the current connection, message and command.
#[derive(Clone, Default)]
pub struct DecisionCache {
    connection: ByName,
    message: ByName,
    command: InOrder,
    /// The key of one field that was decided last in this step; empty, if there is none.
    key: String,
}

impl DecisionCache {
    /// Keeps a key of one field that was decided.
    #[inline]
    pub fn keep_key(&mut self, key: String) {
        self.key = key;
    }

    /// The key of one field that was decided last; empty, if there is none.
    #[inline]
    #[must_use]
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Forgets the key that was decided last.
    #[inline]
    pub fn forget_key(&mut self) {
        self.key.clear();
    }

    /// Starts a new connection: no earlier decision is valid.
    pub fn new_connection(&mut self) {
        self.connection.clear();
        self.new_message();
        self.new_command();
    }

    /// Starts a new message.
    pub fn new_message(&mut self) {
        self.message.clear();
    }

    /// Starts a new command, that is, another run of an ACL.
    pub fn new_command(&mut self) {
        self.command.clear();
    }

    /// How much memory the decisions of the connection and the message take, and the key, about.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.connection.bytes + self.message.bytes + self.key.capacity()
    }

    /// The valid decision for this record, if any.
    #[must_use]
    pub fn recall(&self, scope: Scope, key: &RecordKey<'_>) -> Option<Decision> {
        match scope {
            Scope::Connection => self.connection.recall(key),
            Scope::Message => self.message.recall(key),
            Scope::Command => self.command.recall(key),
            Scope::Evaluation => None,
        }
    }

    /// Caches the decision for a record that has none in this scope.
    pub fn keep(&mut self, scope: Scope, key: &RecordKey<'_>, decision: Decision) {
        match scope {
            Scope::Connection => self.connection.keep(key, decision),
            Scope::Message => self.message.keep(key, decision),
            Scope::Command => self.command.keep(key, decision),
            Scope::Evaluation => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{AlgorithmKind, Details};
    use crate::rate::Timestamp;

    const SCOPES: [Scope; 4] =
        [Scope::Connection, Scope::Message, Scope::Command, Scope::Evaluation];

    fn decision(rate: f64) -> Decision {
        Decision {
            rate,
            over: false,
            algorithm: AlgorithmKind::MovingAverage,
            leak: 0.0,
            limit: 10.0,
            period: 60.0,
            start: 0,
            restarts: 0,
            share: crate::rate::share::Counted::default(),
            count: 1.0,
            next_count: 1.0,
            at: Timestamp::default(),
            kept: None,
            crossed: false,
            overridden: None,
            blocked: None,
            crossings: 0,
            details: Details::default(),
        }
    }

    fn rate(cache: &DecisionCache, scope: Scope, key: &str) -> Option<f64> {
        cache.recall(scope, &key.into()).map(|decision| decision.rate)
    }

    #[test]
    fn a_decision_is_valid_within_its_scope() {
        let ends: [fn(&mut DecisionCache); 3] =
            [DecisionCache::new_connection, DecisionCache::new_message, DecisionCache::new_command];
        for (end, holds) in ends.iter().zip([
            [false, false, false, false],
            [true, false, true, false],
            [true, true, false, false],
        ]) {
            let mut cache = DecisionCache::default();
            for round in 0..3 {
                for (n, scope) in SCOPES.into_iter().enumerate() {
                    cache.new_connection();
                    assert_eq!(rate(&cache, scope, "k"), None, "{round}");
                    cache.keep(scope, &"k".into(), decision(n as f64));
                    assert_eq!(rate(&cache, scope, "l"), None);
                    end(&mut cache);
                    let recalled = rate(&cache, scope, "k");
                    assert_eq!(recalled, holds[n].then_some(n as f64), "{scope:?}");
                }
            }
        }
    }

    #[test]
    fn records_with_one_name_and_different_identities_are_distinct() {
        for scope in SCOPES {
            let mut cache = DecisionCache::default();
            let key: RecordKey<'_> = "1h/per_mail/unique/bob".into();
            let one = RecordKey { identity_start: 12, ..key };
            cache.keep(scope, &one, decision(1.0));
            for other in [
                RecordKey { identity_start: 19, ..one },
                RecordKey { kind: Kind::Policy, ..one },
                RecordKey { algorithm: AlgorithmKind::Bucket, ..one },
            ] {
                assert_eq!(cache.recall(scope, &other), None);
            }
        }
    }

    #[test]
    fn the_cache_is_limited() {
        for scope in [Scope::Connection, Scope::Message, Scope::Command] {
            let mut cache = DecisionCache::default();
            let key = |n: usize| format!("{n:01000}");
            for n in 0..10_000 {
                cache.keep(scope, &(&key(n)).into(), decision(n as f64));
            }
            let known: Vec<_> = (0..10_000).filter_map(|n| rate(&cache, scope, &key(n))).collect();
            // The first of them, each its own.
            assert!((1000..8_000).contains(&known.len()), "{}", known.len());
            assert!(known.iter().enumerate().all(|(n, rate)| *rate == n as f64));
            cache.new_connection();
            assert_eq!(rate(&cache, scope, &key(0)), None);
            cache.keep(scope, &(&key(9_999)).into(), decision(1.0));
            assert!(rate(&cache, scope, &key(9_999)).is_some());
        }
    }
}
