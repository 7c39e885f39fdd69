//! What is known of the messages of one queue: of an instance of a mail server on a host.

use std::collections::HashMap;
use std::net::IpAddr;

use super::handed_on::HandedOn;
use super::item::{Item, SessionKey, Text};
use crate::event::{Event, Origin};
use crate::rate::Timestamp;

/// At most so many messages have begun and are not active yet.
const BEGUN_MAX: usize = 65_536;
/// At most so many messages were delivered (cutthrough) before their arrival.
const EARLY_MAX: usize = 1024;
/// At least so many messages that are in the queue are known.
const ACTIVE_MAX: usize = 131_072;

/// The messages of a queue, by id.
#[derive(Debug, Default)]
pub(super) struct Queue {
    /// The number of the host.
    pub(super) host: u32,
    /// When the log first shows something of it.
    pub(super) since: Option<Timestamp>,
    /// The numbers of messages that are not complete.
    pub(super) open: HashMap<Text, u64>,
    /// Recipients of messages that were delivered before their arrival was logged.
    early: HashMap<String, Vec<Text>>,
    /// Messages of Postfix that have not been received yet.
    begun: HashMap<String, Begun>,
    /// Messages of Postfix that have been, and are not removed; and those of Sendmail.
    active: Active,
    /// Messages of local programs that Sendmail hands on.
    pub(super) handed_on: HandedOn,
    /// What a milter has refused of messages of Sendmail, by id, until the log says whose they are.
    refused: HashMap<String, Vec<Item>>,
    /// Of messages of Sendmail: how many recipients have not had their end.
    left: HashMap<String, usize>,
}

/// What is known of a message that is not active yet.
#[derive(Clone, Debug, Default)]
pub(super) struct Begun {
    pub(super) session: Option<SessionKey>,
    pub(super) event: Event<Text>,
    /// It is one that is counted already.
    pub(super) is_again: bool,
    /// No line has said who handed it over.
    pub(super) is_nobodys: bool,
}

/// What is known of a message in the queue.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Known {
    /// Who handed it over.
    pub(super) client: Option<IpAddr>,
    /// It is one that is counted already.
    pub(super) is_again: bool,
    /// It has left the queue, and a line may still say that it is one that is counted already.
    pub(super) has_left: bool,
}

/// The messages in the queue. Those that are never removed are forgotten after many others.
#[derive(Debug, Default)]
struct Active {
    recent: HashMap<String, Known>,
    before: HashMap<String, Known>,
}

impl Begun {
    /// Whether it can be the mail server's own: nobody has handed it over.
    pub(super) fn is_servers(&self) -> bool {
        self.is_nobodys && self.event.client == Origin::Program
    }
}

impl Queue {
    /// A milter has refused something of this message; who sends it is not known yet.
    pub(super) fn refuse(&mut self, id: &str, item: Item) {
        if self.refused.len() >= EARLY_MAX {
            self.refused.clear();
        }
        let all = self.refused.entry(id.to_owned()).or_default();
        if all.len() < EARLY_MAX {
            all.push(item);
        }
    }

    /// What a milter has refused of this message.
    pub(super) fn take_refused(&mut self, id: &str) -> Vec<Item> {
        self.refused.remove(id).unwrap_or_default()
    }

    /// Whether a message of this id has begun.
    pub(super) fn begun(&self, id: &str) -> Option<&Begun> {
        self.begun.get(id)
    }

    pub(super) fn begun_mut(&mut self, id: &str) -> Option<&mut Begun> {
        self.begun.get_mut(id)
    }

    pub(super) fn begin(&mut self, id: &str, begun: Begun) {
        if self.begun.len() >= BEGUN_MAX {
            self.begun.clear();
        }
        self.begun.insert(id.to_owned(), begun);
    }

    pub(super) fn take_begun(&mut self, id: &str) -> Option<Begun> {
        self.begun.remove(id)
    }

    /// What is known of a message in the queue.
    pub(super) fn active(&self, id: &str) -> Option<Known> {
        self.active.recent.get(id).or_else(|| self.active.before.get(id)).copied()
    }

    pub(super) fn set_active(&mut self, id: &str, known: Known) {
        if self.active.recent.len() >= ACTIVE_MAX {
            self.active.before = std::mem::take(&mut self.active.recent);
        }
        self.active.recent.insert(id.to_owned(), known);
    }

    pub(super) fn remove_active(&mut self, id: &str) -> Option<Known> {
        let before = self.active.before.remove(id);
        self.active.recent.remove(id).or(before)
    }

    /// A message has so many recipients.
    pub(super) fn set_left(&mut self, id: &str, recipients: usize) {
        if self.left.len() >= ACTIVE_MAX {
            self.left.clear();
        }
        self.left.insert(id.to_owned(), recipients);
    }

    /// Whether this is the end of the last recipient of a message.
    pub(super) fn is_last(&mut self, id: &str) -> bool {
        let Some(left) = self.left.get_mut(id) else { return false };
        *left = left.saturating_sub(1);
        if *left > 0 {
            return false;
        }
        self.left.remove(id);
        true
    }

    /// A recipient was delivered to before the arrival was logged.
    pub(super) fn add_early(&mut self, id: &str, address: &str) {
        if self.early.len() >= EARLY_MAX {
            self.early.clear();
        }
        self.early.entry(id.to_owned()).or_default().push(address.into());
    }

    pub(super) fn take_early(&mut self, id: &str) -> Vec<Text> {
        if self.early.is_empty() { Vec::new() } else { self.early.remove(id).unwrap_or_default() }
    }
}
