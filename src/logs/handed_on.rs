//! The messages of local programs that a Sendmail of their own hands on to the server's.

use std::collections::HashMap;

/// At most so many are known.
const MAX: usize = 65_536;

/// The messages that are handed on, each until the server has it.
#[derive(Debug, Default)]
pub(super) struct HandedOn {
    /// Of each key: the ids, and how many recipients are to come, the oldest first.
    waiting: HashMap<HandOver, Vec<(String, usize)>>,
    keys: HashMap<String, HandOver>,
}

/// The `Message-ID`, and the local part of the sender: the server's line may have another domain.
type HandOver = (String, String);

fn key(message_id: &str, sender: &str) -> HandOver {
    let local = sender.rsplit_once('@').map_or(sender, |(local, _)| local);
    (message_id.to_owned(), local.to_ascii_lowercase())
}

impl HandedOn {
    /// A local program has submitted a message to so many recipients.
    pub(super) fn add(&mut self, id: &str, message_id: &str, sender: &str, recipients: usize) {
        if self.keys.len() >= MAX {
            *self = Self::default();
        }
        let key = key(message_id, sender);
        self.end(id);
        self.waiting.entry(key.clone()).or_default().push((id.to_owned(), recipients));
        self.keys.insert(id.to_owned(), key);
    }

    /// The message that the server has received for so many recipients. One with more than a
    /// hundred comes in parts; of others, the server may have refused some.
    pub(super) fn take(
        &mut self,
        message_id: &str,
        sender: &str,
        recipients: usize,
    ) -> Option<String> {
        if self.keys.is_empty() {
            return None;
        }
        let all = self.waiting.get_mut(&key(message_id, sender))?;
        let exact = all.iter().position(|(_, left)| *left == recipients);
        let place = exact.or_else(|| all.iter().position(|(_, left)| *left > recipients))?;
        let (id, left) = all.get_mut(place)?;
        *left -= recipients;
        let (id, left) = (id.clone(), *left);
        if left == 0 {
            self.end(&id);
        }
        Some(id)
    }

    /// Nothing more comes of a message.
    pub(super) fn end(&mut self, id: &str) {
        let Some(key) = self.keys.remove(id) else { return };
        let Some(all) = self.waiting.get_mut(&key) else { return };
        all.retain(|(one, _)| one != id);
        if all.is_empty() {
            self.waiting.remove(&key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_message_is_taken_once_by_what_fits() {
        let mut all = HandedOn::default();
        all.add("a", "<c>", "al", 150);
        all.add("b", "<c>", "al@x.test", 1);
        all.add("c", "<c>", "al@x.test", 1);
        let mut take = |id, sender, recipients| all.take(id, sender, recipients);
        assert_eq!(take("<d>", "al@x.test", 1), None);
        assert_eq!(take("<c>", "bob@x.test", 1), None);
        assert_eq!(take("<c>", "al@x.test", 151), None);
        for (recipients, expected) in [(1, "b"), (1, "c"), (100, "a"), (50, "a")] {
            assert_eq!(take("<c>", "al@y.test", recipients).as_deref(), Some(expected));
        }
        assert_eq!(take("<c>", "al@x.test", 1), None);
        assert!(all.waiting.is_empty() && all.keys.is_empty());
        all.add("a", "<c>", "al", 2);
        all.end("a");
        assert_eq!(all.take("<c>", "al", 1), None);
        for n in 0..MAX + 9 {
            all.add(&n.to_string(), &n.to_string(), "al", 1);
        }
        assert!(all.keys.len() <= MAX && all.waiting.len() <= MAX);
    }
}
