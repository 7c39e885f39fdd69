//! The answers given before, and for how long they hold.
//!
//! Exim computes a rate once a connection, message or command, whatever the
//! mode asks for, and then answers from memory, against whatever limit the
//! later line has. So does this.

use crate::engine::Decision;
use crate::spec::{Request, Scope};
use std::collections::HashMap;
use std::rc::Rc;

/// The three memories.
#[derive(Default)]
pub(super) struct Memory {
    connection: HashMap<Vec<u8>, Decision>,
    message: HashMap<Vec<u8>, Decision>,
    /// An ACL has a handful of lines: looking through them is quickest.
    command: Vec<(Rc<Request>, Decision)>,
}

impl Memory {
    /// Another connection: nothing holds any more.
    pub(super) fn new_connection(&mut self) {
        self.connection.clear();
        self.new_message();
        self.new_command();
    }

    /// Another message.
    pub(super) fn new_message(&mut self) {
        self.message.clear();
    }

    /// Another run of an ACL.
    pub(super) fn new_command(&mut self) {
        self.command.clear();
    }

    /// The answer that still holds for the key of `request`.
    pub(super) fn recall(&self, request: &Request) -> Option<Decision> {
        let key = &request.key;
        match request.scope {
            Scope::Connection => self.connection.get(key).copied(),
            Scope::Message => self.message.get(key).copied(),
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
            Scope::Connection => drop(self.connection.insert(request.key.clone(), decision)),
            Scope::Message => drop(self.message.insert(request.key.clone(), decision)),
            Scope::Command => self.command.push((request, decision)),
            Scope::Evaluation => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Trace;
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
            trace: Trace::default(),
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
}
