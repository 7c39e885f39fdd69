//! An account whose recipients fail now and then, some seconds after the message.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashSet};

use exirate::rate::habits::{Habits, Sensitivity, Update};
use kit::habits::{Message, mix};

use super::python::Random;

/// Where the data's first day begins. It is a number of whole days, so that nothing depends on it.
const FIRST_DAY: i64 = 20_000 * 86_400;
/// A failure comes so many seconds after the message, at most.
const LATEST: usize = 30;

/// The habits of an account, and what has been sent.
#[derive(Clone)]
pub(crate) struct Account {
    pub(crate) habits: Habits,
    sensitivity: Sensitivity,
    /// Whoever has ever been written to.
    known: HashSet<u64>,
    /// Failures that have not come yet: when, and which.
    failing: BinaryHeap<Reverse<(i64, u64)>>,
    random: Random,
}

impl Account {
    pub(crate) fn new(account: u64, sensitivity: Sensitivity) -> Self {
        let random = Random::of_text(&format!("failures {account}"));
        let habits = Habits::default();
        Self { habits, sensitivity, known: HashSet::new(), failing: BinaryHeap::new(), random }
    }

    /// An account that has never sent.
    pub(crate) fn new_one(&self) -> Self {
        Self::new(0, self.sensitivity)
    }

    /// It has written to these before.
    pub(crate) fn has_written_to(&mut self, all: &[u64]) {
        self.known.extend(all);
    }

    /// Counts a message that says of itself that a program wrote it.
    pub(crate) fn learn_marked(&mut self, message: &Message) -> Update {
        let recipients = message.recipients.iter().copied();
        self.habits.marked_message(FIRST_DAY + message.at, recipients, self.sensitivity)
    }

    /// Counts what fails until `at`; how many alarms that raises.
    pub(crate) fn fail_until(&mut self, at: i64) -> u32 {
        let mut alarms = 0;
        while let Some(&Reverse((when, recipient))) = self.failing.peek()
            && when <= at
        {
            self.failing.pop();
            let update = self.habits.failed(FIRST_DAY + when, recipient, self.sensitivity);
            alarms += u32::from(update.alarm.is_some());
        }
        alarms
    }

    /// Learns a message; of the recipients that nobody has written to before, this share fails
    /// soon.
    pub(crate) fn learn(&mut self, message: &Message, share: f64) -> Update {
        if share > 0.0 {
            for &one in &message.recipients {
                if self.known.insert(one) && self.random.unit() < share {
                    let when = message.at + 1 + self.random.below(LATEST) as i64;
                    self.failing.push(Reverse((when, one)));
                }
            }
        }
        let network = (message.network != 0).then(|| mix(message.network));
        let recipients = message.recipients.iter().copied();
        self.habits.message(FIRST_DAY + message.at, network, recipients, self.sensitivity)
    }
}
