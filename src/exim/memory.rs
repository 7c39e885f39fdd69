//! The answers given before, and for how long they hold.
//!
//! Exim computes a rate once a connection, message or command, whatever the
//! mode asks for, and then answers from memory, against whatever limit the
//! later line has. So does this.

use crate::engine::Decision;
use crate::spec::{Request, Scope};
use std::collections::HashMap;
use std::rc::Rc;

/// What the answers of a connection, and those of a message, may take in
/// bytes: over twenty thousand of common keys. A client who comes with more
/// is counted each time from there on.
const MOST_BYTES: usize = 8 << 20;

/// How many answers of a command are remembered: more than any ACL has lines.
const MOST_LINES: usize = 1024;

/// Answers by their keys.
#[derive(Default)]
struct Answers {
    known: HashMap<Vec<u8>, Decision>,
    bytes: usize,
}

impl Answers {
    fn keep(&mut self, key: &[u8], decision: Decision) {
        // Twice, for what the map keeps free.
        let bytes = 2 * size_of::<(Vec<u8>, Decision)>() + key.len();
        if self.bytes + bytes <= MOST_BYTES {
            self.bytes += bytes;
            self.known.insert(key.to_owned(), decision);
        }
    }

    fn forget(&mut self) {
        // A map that grew large once takes its time to be emptied each time.
        if !self.known.is_empty() {
            *self = Self::default();
        }
    }
}

/// The three memories.
#[derive(Default)]
pub(super) struct Memory {
    connection: Answers,
    message: Answers,
    /// An ACL has a handful of lines: looking through them is quickest.
    command: Vec<(Rc<Request>, Decision)>,
}

impl Memory {
    /// Another connection: nothing holds any more.
    pub(super) fn new_connection(&mut self) {
        self.connection.forget();
        self.new_message();
        self.new_command();
    }

    /// Another message.
    pub(super) fn new_message(&mut self) {
        self.message.forget();
    }

    /// Another run of an ACL.
    pub(super) fn new_command(&mut self) {
        self.command.clear();
    }

    /// The answer that still holds for the key of `request`.
    pub(super) fn recall(&self, request: &Request) -> Option<Decision> {
        let key = &request.key;
        match request.scope {
            Scope::Connection => self.connection.known.get(key).copied(),
            Scope::Message => self.message.known.get(key).copied(),
            Scope::Command => {
                let mut known = self.command.iter();
                known.find(|(known, _)| known.key == *key).map(|(_, decision)| *decision)
            }
            Scope::Evaluation => None,
        }
    }

    /// Remembers the answer to `request`, to whose key there is none yet.
    pub(super) fn keep(&mut self, request: Rc<Request>, decision: Decision) {
        match request.scope {
            Scope::Connection => self.connection.keep(&request.key, decision),
            Scope::Message => self.message.keep(&request.key, decision),
            Scope::Command if self.command.len() < MOST_LINES => {
                self.command.push((request, decision));
            }
            Scope::Command => {}
            Scope::Evaluation => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Details;
    use crate::rate::Timestamp;
    use crate::spec::{Mode, Update};

    fn answer(rate: f64) -> Decision {
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

    fn request(scope: Scope, key: &str) -> Request {
        Request {
            key: key.into(),
            key_start: 0,
            limit: 10.0,
            period: 60.0,
            mode: Mode::PerMail,
            update: Update::Strict,
            count: 1.0,
            unique: None,
            scope,
        }
    }

    #[test]
    fn an_answer_holds_as_long_as_its_scope() {
        let scopes = [Scope::Connection, Scope::Message, Scope::Command, Scope::Evaluation];
        let ends: [fn(&mut Memory); 3] =
            [Memory::new_connection, Memory::new_message, Memory::new_command];
        for (end, holds) in ends.iter().zip([
            [false, false, false, false],
            [true, false, true, false],
            [true, true, false, false],
        ]) {
            let mut memory = Memory::default();
            for (n, scope) in scopes.into_iter().enumerate() {
                assert_eq!(memory.recall(&request(scope, "k")), None);
                memory.keep(Rc::new(request(scope, "k")), answer(n as f64));
                assert_eq!(memory.recall(&request(scope, "l")), None);
            }
            end(&mut memory);
            for (n, scope) in scopes.into_iter().enumerate() {
                let recalled = memory.recall(&request(scope, "k"));
                assert_eq!(recalled.map(|d| d.rate), holds[n].then_some(n as f64), "{scope:?}");
            }
        }
    }

    #[test]
    fn there_is_an_end_to_what_is_remembered() {
        for scope in [Scope::Connection, Scope::Message, Scope::Command] {
            let mut memory = Memory::default();
            let key = |n: usize| format!("{n:01000}");
            for n in 0..10_000 {
                memory.keep(Rc::new(request(scope, &key(n))), answer(n as f64));
            }
            let recalled = |n: usize| memory.recall(&request(scope, &key(n))).map(|d| d.rate);
            let known = (0..10_000).filter_map(recalled).collect::<Vec<_>>();
            // The first of them, each its own.
            assert!((1000..8_000).contains(&known.len()), "{}", known.len());
            assert!(known.iter().enumerate().all(|(n, rate)| *rate == n as f64));
            memory.new_connection();
            assert_eq!(memory.recall(&request(scope, &key(0))), None);
            memory.keep(Rc::new(request(scope, &key(9_999))), answer(1.0));
            assert!(memory.recall(&request(scope, &key(9_999))).is_some());
        }
    }
}
