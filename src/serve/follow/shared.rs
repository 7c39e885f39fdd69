//! What the thread that reads the log shares with the one that has the signals.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::serve::config;

/// What the thread that reads shares with others.
#[derive(Debug, Default)]
pub(super) struct Shared {
    state: Mutex<SharedState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct SharedState {
    stop: bool,
    /// The configuration has changed.
    new: Option<config::Follow>,
    /// What the reader does, in words.
    status: String,
}

impl SharedState {
    fn is_over(&self) -> bool {
        self.stop || self.new.is_some()
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, SharedState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The reader is to end.
    pub(super) fn stop(&self) {
        self.lock().stop = true;
        self.changed.notify_all();
    }

    pub(super) fn stops(&self) -> bool {
        self.lock().stop
    }

    /// The reader is to go on with another configuration.
    pub(super) fn set(&self, new: config::Follow) {
        self.lock().new = Some(new);
        self.changed.notify_all();
    }

    /// Whether the reader is to end, or to go on with another configuration.
    pub(super) fn is_over(&self) -> bool {
        self.lock().is_over()
    }

    pub(super) fn take_new(&self) -> Option<config::Follow> {
        self.lock().new.take()
    }

    pub(super) fn status(&self) -> String {
        self.lock().status.clone()
    }

    pub(super) fn show(&self, status: String) {
        self.lock().status = status;
    }

    /// Waits, unless the reader is to end, or to go on with another configuration.
    pub(super) fn wait(&self, time: Duration) {
        let _ = self.changed.wait_timeout_while(self.lock(), time, |state| !state.is_over());
    }
}
