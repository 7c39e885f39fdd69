//! The decisions made before, and for how long they hold.
//!
//! Exim computes a rate once a connection, message or command, whatever the
//! mode asks for, and then uses it again from memory, against whatever limit
//! the later line has. So does this.

use super::Scope;
use crate::engine::{Decision, Kind, RecordKey};
use std::collections::HashMap;

/// The bytes that the decisions of a connection, and those of a message, may
/// take: over twenty thousand of common keys. A client that comes with more is
/// counted each time from there on.
const BYTES_MAX: usize = 8 << 20;

/// How many decisions of a command are remembered: more than any ACL has lines.
const COMMAND_MAX: usize = 1024;

/// What is remembered under a record's name.
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

    /// The decision, if it is of this record.
    fn of(&self, key: &RecordKey<'_>) -> Option<Decision> {
        (self.identity_start == key.identity_start && self.kind == key.kind)
            .then_some(self.decision)
    }
}

/// Decisions by the names of their records.
#[derive(Default)]
struct ByName {
    known: HashMap<Vec<u8>, Cached>,
    bytes: usize,
}

impl ByName {
    fn recall(&self, key: &RecordKey<'_>) -> Option<Decision> {
        self.known.get(key.name)?.of(key)
    }

    fn keep(&mut self, key: &RecordKey<'_>, decision: Decision) {
        // Twice, for the free room of the map.
        let bytes = 2 * size_of::<(Vec<u8>, Cached)>() + key.name.len();
        if self.bytes + bytes <= BYTES_MAX {
            self.bytes += bytes;
            self.known.insert(key.name.to_owned(), Cached::new(key, decision));
        }
    }

    fn clear(&mut self) {
        // A map that was large once takes long to be emptied each time.
        if !self.known.is_empty() {
            *self = Self::default();
        }
    }
}

/// The decisions of a command: an ACL has a handful of lines, so a linear
/// search is quickest. The buffers of the names are used again.
#[derive(Default)]
struct InOrder {
    known: Vec<(Vec<u8>, Cached)>,
    used: usize,
}

impl InOrder {
    fn recall(&self, key: &RecordKey<'_>) -> Option<Decision> {
        let known = self.known.iter().take(self.used);
        known.filter(|(name, _)| name == key.name).find_map(|(_, cached)| cached.of(key))
    }

    fn keep(&mut self, key: &RecordKey<'_>, decision: Decision) {
        if self.used >= COMMAND_MAX {
            return;
        }
        let cached = Cached::new(key, decision);
        match self.known.get_mut(self.used) {
            Some((name, old)) => {
                name.clear();
                name.extend_from_slice(key.name);
                *old = cached;
            }
            None => self.known.push((key.name.to_owned(), cached)),
        }
        self.used += 1;
    }

    fn clear(&mut self) {
        self.used = 0;
        // More than a usual command needs is given back.
        self.known.truncate(16);
    }
}

/// The decisions of this connection, of this message and of this command.
#[derive(Default)]
pub struct DecisionCache {
    connection: ByName,
    message: ByName,
    command: InOrder,
}

impl DecisionCache {
    /// Another connection: nothing holds any more.
    pub fn new_connection(&mut self) {
        self.connection.clear();
        self.new_message();
        self.new_command();
    }

    /// Another message.
    pub fn new_message(&mut self) {
        self.message.clear();
    }

    /// Another command, that is, another run of an ACL.
    pub fn new_command(&mut self) {
        self.command.clear();
    }

    /// The decision that still holds for this record.
    #[must_use]
    pub fn recall(&self, scope: Scope, key: &RecordKey<'_>) -> Option<Decision> {
        match scope {
            Scope::Connection => self.connection.recall(key),
            Scope::Message => self.message.recall(key),
            Scope::Command => self.command.recall(key),
            Scope::Evaluation => None,
        }
    }

    /// Remembers the decision for a record that has none yet in this scope.
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
    use crate::engine::Details;
    use crate::rate::Timestamp;

    const SCOPES: [Scope; 4] =
        [Scope::Connection, Scope::Message, Scope::Command, Scope::Evaluation];

    fn decision(rate: f64) -> Decision {
        Decision {
            rate,
            over: false,
            limit: 10.0,
            period: 60.0,
            count: 1.0,
            next_count: 1.0,
            at: Timestamp::default(),
            kept: None,
            details: Details::default(),
        }
    }

    fn rate(cache: &DecisionCache, scope: Scope, key: &str) -> Option<f64> {
        cache.recall(scope, &key.into()).map(|decision| decision.rate)
    }

    #[test]
    fn a_decision_holds_as_long_as_its_scope() {
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
    fn records_of_one_name_and_different_identities_are_kept_apart() {
        for scope in SCOPES {
            let mut cache = DecisionCache::default();
            let key: RecordKey<'_> = "1h/per_mail/unique/bob".into();
            let one = RecordKey { identity_start: 12, ..key };
            cache.keep(scope, &one, decision(1.0));
            for other in
                [RecordKey { identity_start: 19, ..one }, RecordKey { kind: Kind::Policy, ..one }]
            {
                assert_eq!(cache.recall(scope, &other), None);
            }
        }
    }

    #[test]
    fn what_is_remembered_is_bounded() {
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
