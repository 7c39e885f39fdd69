//! What is remembered by a name that a mail server sends: the most recent, within limits.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

/// How many are remembered; the one that was asked about least recently goes first.
pub(super) const ENTRIES_MAX: usize = 20_000;
/// How much memory they may take together, about.
pub(super) const BYTES_MAX: usize = 128 << 20;
/// For how long one is remembered after the last request.
const AGE_MAX: Duration = Duration::from_hours(1);

struct RecentEntry<V> {
    value: V,
    used: u64,
    at: Instant,
    bytes: usize,
}

/// Values by name.
pub(super) struct Recent<V> {
    entries: RefCell<HashMap<String, RecentEntry<V>>>,
    /// By the time of their last request.
    order: RefCell<BTreeMap<u64, String>>,
    next: Cell<u64>,
    bytes: Cell<usize>,
}

impl<V> Default for Recent<V> {
    fn default() -> Self {
        Self {
            entries: RefCell::default(),
            order: RefCell::default(),
            next: Cell::default(),
            bytes: Cell::default(),
        }
    }
}

impl<V: Clone> Recent<V> {
    /// How many there are, and about how many bytes they take.
    #[cfg(test)]
    pub(super) fn size(&self) -> (usize, usize) {
        assert_eq!(self.order.borrow().len(), self.entries.borrow().len());
        (self.entries.borrow().len(), self.bytes.get())
    }

    /// The value of this name, which is then the most recent.
    pub(super) fn touch(&self, name: &str) -> Option<V> {
        let mut entries = self.entries.borrow_mut();
        let entry = entries.get_mut(name)?;
        let mut order = self.order.borrow_mut();
        let name = order.remove(&entry.used)?;
        entry.used = self.ticket();
        entry.at = Instant::now();
        order.insert(entry.used, name);
        Some(entry.value.clone())
    }

    /// Adds a value, where there is none of this name.
    pub(super) fn insert(&self, name: &str, value: V) {
        let used = self.ticket();
        let entry = RecentEntry { value, used, at: Instant::now(), bytes: 0 };
        self.order.borrow_mut().insert(used, name.to_owned());
        self.entries.borrow_mut().insert(name.to_owned(), entry);
    }

    /// Updates how much memory a value takes.
    pub(super) fn measure(&self, name: &str, bytes: usize) {
        if let Some(entry) = self.entries.borrow_mut().get_mut(name) {
            let bytes = bytes + 2 * name.len();
            self.bytes.set((self.bytes.get() + bytes).saturating_sub(entry.bytes));
            entry.bytes = bytes;
        }
    }

    /// Forgets the value of this name.
    pub(super) fn remove(&self, name: &str) -> Option<V> {
        let entry = self.entries.borrow_mut().remove(name)?;
        self.order.borrow_mut().remove(&entry.used);
        self.bytes.set(self.bytes.get().saturating_sub(entry.bytes));
        Some(entry.value)
    }

    /// Forgets the oldest.
    pub(super) fn remove_oldest(&self) -> Option<(String, V)> {
        let oldest = self.order.borrow().first_key_value().map(|(_, name)| name.clone())?;
        let value = self.remove(&oldest)?;
        Some((oldest, value))
    }

    /// Forgets the oldest if there are too many, they take too much memory, or it is too old;
    /// to be called until there is none.
    pub(super) fn remove_surplus(&self) -> Option<(String, V)> {
        let is_old = || {
            let order = self.order.borrow();
            let oldest = order.first_key_value().map(|(_, name)| name);
            let entries = self.entries.borrow();
            let oldest = oldest.and_then(|name| entries.get(name));
            oldest.is_some_and(|entry| entry.at.elapsed() >= AGE_MAX)
        };
        let is_too_much =
            self.entries.borrow().len() > ENTRIES_MAX || self.bytes.get() > BYTES_MAX || is_old();
        is_too_much.then(|| self.remove_oldest()).flatten()
    }

    fn ticket(&self) -> u64 {
        self.next.replace(self.next.get() + 1)
    }
}
