//! How refused clients try again.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::rc::Rc;

use serde::Serialize;

use crate::event::Event;
use crate::logs::item::Text;
use crate::rate::Timestamp;

/// The most messages that wait for a retry at a time.
const WAITING_MAX: usize = 1_000_000;

/// When other mail servers send again what they were asked to send later: the waits in
/// seconds before each retry. Then they give up.
#[derive(Clone, Debug, PartialEq)]
pub struct Schedule(Vec<f64>);

/// Messages that wait for a retry.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    queue: BinaryHeap<Reverse<(Timestamp, u64)>>,
    messages: std::collections::HashMap<u64, Retry>,
    next: u64,
}

/// A message that is tried again.
#[derive(Clone, Debug)]
pub(super) struct Retry {
    pub(super) event: Rc<Event<Text>>,
    /// The recipients that were refused.
    pub(super) recipients: Vec<Text>,
    pub(super) size: Option<u64>,
    /// How many retries there were, this one included.
    pub(super) number: u32,
    /// When it was refused first.
    pub(super) refused: Timestamp,
}

/// What came of the modelled retries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Retries {
    /// Messages that were tried again.
    pub messages: u64,
    /// Retries.
    pub tries: u64,
    /// Messages of which a retry was accepted.
    pub accepted: u64,
    /// The longest time from a message's first refusal to its acceptance, in seconds.
    pub longest: f64,
    /// Messages that were given up: the schedule was at its end, or a retry was refused for
    /// good.
    pub given_up: u64,
    /// Messages that waited for a retry when the log ended.
    pub waiting: u64,
    /// Messages that could not be remembered, as too many waited.
    pub forgotten: u64,
}

impl Schedule {
    /// Waits of so many seconds each. Without any, nobody tries again.
    #[must_use]
    pub fn new(waits: Vec<f64>) -> Self {
        Self(waits)
    }

    /// The waits in seconds.
    #[must_use]
    pub fn waits(&self) -> &[f64] {
        &self.0
    }

    /// When a message that was refused at `at` is tried for the `number`th time.
    fn next(&self, number: u32, at: Timestamp) -> Option<Timestamp> {
        let wait = self.0.get(number.checked_sub(1)? as usize)?;
        let seconds = at.seconds.saturating_add(wait.ceil() as i64); // saturates
        Some(Timestamp { seconds, ..at })
    }
}

impl Default for Schedule {
    /// As Exim retries: every 15 minutes for 2 hours, then at growing intervals until 16
    /// hours have passed.
    fn default() -> Self {
        let mut waits = vec![900.0; 8];
        waits.extend([3600.0, 5400.0, 8100.0, 12_150.0, 18_225.0]);
        Self(waits)
    }
}

impl Waiting {
    /// Adds a message that was refused at `at`; `false` if it is not tried again.
    pub(super) fn add(&mut self, schedule: &Schedule, at: Timestamp, retry: Retry) -> Added {
        let Some(due) = schedule.next(retry.number, at) else { return Added::GivenUp };
        if self.messages.len() >= WAITING_MAX {
            return Added::TooMany;
        }
        self.next += 1;
        self.queue.push(Reverse((due, self.next)));
        self.messages.insert(self.next, retry);
        Added::Waits
    }

    /// The next message that is due at `now`.
    pub(super) fn due(&mut self, now: Timestamp) -> Option<(Timestamp, Retry)> {
        let Reverse((due, _)) = self.queue.peek()?;
        if *due > now {
            return None;
        }
        let Reverse((due, number)) = self.queue.pop()?;
        Some((due, self.messages.remove(&number)?))
    }

    /// How many messages wait.
    pub(super) fn len(&self) -> usize {
        self.messages.len()
    }
}

/// Whether a message waits for a retry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Added {
    Waits,
    GivenUp,
    TooMany,
}
