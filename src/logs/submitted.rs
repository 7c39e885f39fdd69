//! The messages that are in queues, and who submitted them.

use std::collections::{HashMap, VecDeque};
use std::rc::Rc;

use super::failure::Failure;
use super::item::{Item, ItemKind, LoginShown, Server, Text, Undelivered};
use crate::event::Event;
use crate::rate::Timestamp;

/// At most so many messages are remembered.
const MESSAGES_MAX: usize = 200_000;
/// No mail server tries for longer, in seconds.
const OLDEST: i64 = 8 * 86_400;
/// So long after its end, in seconds, a line may still say that a message has another id now.
const AFTER_END: i64 = 60;

/// The messages in queues, by the number of the queue and the id.
#[derive(Debug, Default)]
pub(super) struct Submitted {
    known: HashMap<(u32, Text), Rc<Submission>>,
    ended: VecDeque<(i64, u32, Text)>,
    /// How many were forgotten before their end.
    pub(super) forgotten: u64,
}

/// A message that was submitted.
#[derive(Debug)]
pub(super) struct Submission {
    /// When.
    pub(super) at: Timestamp,
    /// Who submitted it.
    pub(super) event: Event<Text>,
    /// The log does not show who has logged in.
    pub(super) hides_login: bool,
    /// The mail server that has it.
    pub(super) server: Server,
}

impl Submission {
    /// A recipient of it could not be delivered to.
    pub(super) fn failure(&self, recipient: Text, failure: Failure, at: Timestamp) -> Item {
        let event = Event { recipient: Some(recipient), ..self.event.clone() };
        let Self { at: received, hides_login, server, .. } = *self;
        let what = ItemKind::Failed(Undelivered { failure, received, hides_login });
        Item { at, session: None, login: LoginShown::InLine, server, event, what }
    }
}

impl Submitted {
    /// A message was received.
    pub(super) fn add(&mut self, queue: u32, id: &str, one: Submission) {
        self.forget_ended(one.at.seconds);
        if self.known.len() >= MESSAGES_MAX {
            self.forget_half();
        }
        self.known.insert((queue, id.into()), Rc::new(one));
    }

    /// The message of this id.
    pub(super) fn get(&self, queue: u32, id: &str) -> Option<&Rc<Submission>> {
        self.known.get(&(queue, id.into()))
    }

    /// A message has another id as well, as it has come back. Whether it is known.
    pub(super) fn also(&mut self, from: (u32, &str), to: (u32, &str)) -> bool {
        let Some(one) = self.get(from.0, from.1).cloned() else { return false };
        self.known.insert((to.0, to.1.into()), one);
        true
    }

    /// A message has left its queue.
    pub(super) fn end(&mut self, queue: u32, id: &str, at: Timestamp) {
        // Nothing is remembered where nobody asks what became of mail.
        if self.known.is_empty() {
            return;
        }
        self.ended.push_back((at.seconds, queue, id.into()));
        self.forget_ended(at.seconds);
    }

    /// When the first of those that are in a queue was received.
    pub(super) fn oldest(&mut self, now: Timestamp) -> Option<Timestamp> {
        self.forget_ended(now.seconds);
        self.known.retain(|_, one| now.seconds.saturating_sub(one.at.seconds) < OLDEST);
        self.known.values().map(|one| one.at).min()
    }

    fn forget_ended(&mut self, now: i64) {
        while let Some((at, ..)) = self.ended.front()
            && now.saturating_sub(*at) > AFTER_END
        {
            let Some((at, queue, id)) = self.ended.pop_front() else { return };
            let key = (queue, id);
            // The id may be another message's now.
            if self.known.get(&key).is_some_and(|one| one.at.seconds <= at) {
                self.known.remove(&key);
            }
        }
    }

    fn forget_half(&mut self) {
        let mut times: Vec<Timestamp> = self.known.values().map(|one| one.at).collect();
        let middle = times.len() / 2;
        let (_, middle, _) = times.select_nth_unstable(middle);
        let middle = *middle;
        let before = self.known.len();
        self.known.retain(|_, one| one.at > middle);
        self.forgotten += (before - self.known.len()) as u64;
        self.ended.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_remembered_is_bounded_and_ends() {
        let at = |seconds| Timestamp { seconds, micros: 0 };
        let one = |n| Submission {
            at: at(n),
            event: Event::default(),
            hides_login: false,
            server: Server::default(),
        };
        let mut all = Submitted::default();
        for n in 0..MESSAGES_MAX as i64 + 9 {
            all.add(1, &n.to_string(), one(n));
        }
        assert!(all.known.len() <= MESSAGES_MAX);
        assert_eq!(all.forgotten as usize + all.known.len(), MESSAGES_MAX + 9);
        let last = MESSAGES_MAX as i64 + 8;
        let id = last.to_string();
        assert!(all.get(1, &id).is_some() && all.get(2, &id).is_none());
        all.end(1, &id, at(last + 1));
        all.also((1, &id), (2, "again"));
        assert!(all.get(1, &id).is_some(), "a line may come late");
        all.add(1, "x", one(last + 2 + AFTER_END));
        assert!(all.get(1, &id).is_none() && all.get(2, "again").is_some());
        assert_eq!(all.oldest(at(last + OLDEST)), Some(at(last + 2 + AFTER_END)));
    }
}
