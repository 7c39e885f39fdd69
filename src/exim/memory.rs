//! The answers given before, and for how long they hold.
//!
//! Exim computes a rate once a connection, message or command, whatever the
//! mode asks for, and then answers from memory, against whatever limit the
//! later line has. So does this.

use crate::engine::Decision;
use crate::spec::Scope;
use std::collections::HashMap;

/// The three memories.
#[derive(Default)]
pub(super) struct Memory {
    connection: HashMap<Vec<u8>, Decision>,
    message: HashMap<Vec<u8>, Decision>,
    command: HashMap<Vec<u8>, Decision>,
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

    /// The answer that still holds for `key`.
    pub(super) fn recall(&self, scope: Scope, key: &[u8]) -> Option<Decision> {
        match scope {
            Scope::Connection => self.connection.get(key),
            Scope::Message => self.message.get(key),
            Scope::Command => self.command.get(key),
            Scope::Evaluation => None,
        }
        .copied()
    }

    /// Remembers the answer for `key`.
    pub(super) fn keep(&mut self, scope: Scope, key: Vec<u8>, decision: Decision) {
        let memory = match scope {
            Scope::Connection => &mut self.connection,
            Scope::Message => &mut self.message,
            Scope::Command => &mut self.command,
            Scope::Evaluation => return,
        };
        memory.insert(key, decision);
    }
}
