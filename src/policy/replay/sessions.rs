//! The sessions that events belong to.

use std::collections::HashMap;

use crate::policy::event::Counted;
use crate::stage::DecisionCache;

/// How many sessions are remembered; the one that was used least recently goes first.
const SESSIONS_MAX: usize = 1000;

/// An SMTP connection.
#[derive(Default)]
pub(super) struct Session {
    cache: DecisionCache,
    /// By policy.
    counted: HashMap<String, Counted>,
    /// Recipients of the message that were accepted.
    pub(super) accepted: u32,
}

impl Session {
    pub(super) fn new_message(&mut self) {
        self.cache.new_message();
        self.counted.values_mut().for_each(Counted::new_message);
        self.accepted = 0;
    }

    pub(super) fn new_command(&mut self) {
        self.cache.new_command();
        self.counted.values_mut().for_each(Counted::new_command);
    }

    /// What is remembered for a policy.
    pub(super) fn of(&mut self, policy: &str) -> (&mut DecisionCache, &mut Counted) {
        if !self.counted.contains_key(policy) {
            self.counted.insert(policy.to_owned(), Counted::default());
        }
        (&mut self.cache, self.counted.entry(policy.to_owned()).or_default())
    }
}

/// Sessions by name.
#[derive(Default)]
pub(super) struct Sessions {
    known: HashMap<String, (u64, Session)>,
    used: u64,
}

impl Sessions {
    /// The session of this name, which is new if it is not known.
    pub(super) fn get(&mut self, name: &str) -> &mut Session {
        self.used += 1;
        if self.known.len() >= SESSIONS_MAX && !self.known.contains_key(name) {
            let oldest = self.known.iter().min_by_key(|(_, (used, _))| *used);
            if let Some(oldest) = oldest.map(|(name, _)| name.clone()) {
                self.known.remove(&oldest);
            }
        }
        let (used, session) = self.known.entry(name.to_owned()).or_default();
        *used = self.used;
        session
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_session_that_was_used_least_recently_goes_first() {
        let mut sessions = Sessions::default();
        for n in 0..SESSIONS_MAX {
            sessions.get(&n.to_string()).accepted = 1;
        }
        assert_eq!(sessions.get("0").accepted, 1);
        sessions.get("one more").accepted = 1;
        assert_eq!(sessions.known.len(), SESSIONS_MAX);
        assert_eq!(["0", "1", "one more"].map(|name| sessions.get(name).accepted), [1, 0, 1]);
    }
}
