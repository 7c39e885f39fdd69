//! The sessions that events belong to.

use std::collections::HashMap;

use crate::policy::evaluator::PolicySession;

/// How many sessions are remembered; the one that was used least recently goes first.
const SESSIONS_MAX: usize = 1000;

/// Sessions by name.
#[derive(Default)]
pub(super) struct Sessions {
    known: HashMap<String, (u64, PolicySession)>,
    used: u64,
}

impl Sessions {
    /// The session of this name, which is new if it is not known.
    pub(super) fn get(&mut self, name: &str) -> &mut PolicySession {
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
            sessions.get(&n.to_string()).accept_recipient();
        }
        assert_eq!(sessions.get("0").accepted(), 1);
        sessions.get("one more").accept_recipient();
        assert_eq!(sessions.known.len(), SESSIONS_MAX);
        assert_eq!(["0", "1", "one more"].map(|name| sessions.get(name).accepted()), [1, 0, 1]);
    }
}
