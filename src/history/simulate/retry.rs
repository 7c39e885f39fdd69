//! How refused clients try again.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::rc::Rc;

use serde::Serialize;

use crate::event::{AclStage, Event};
use crate::logs::item::Text;
use crate::rate::Timestamp;
use crate::spec::typed_period;

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

/// The stages that a log can show, as arguments name them.
const STAGES: [(&str, AclStage); 7] = [
    ("connect", AclStage::Connect),
    ("auth", AclStage::Auth),
    ("mail", AclStage::Mail),
    ("rcpt", AclStage::Rcpt),
    ("predata", AclStage::Predata),
    ("data", AclStage::Data),
    ("not-smtp", AclStage::NotSmtp),
];
/// The longest wait in seconds: longer than any mail server keeps a message.
const WAIT_MAX: f64 = 4.0 * 7.0 * 86_400.0;
/// The most waits.
const WAITS_MAX: usize = 100;

/// The stages at which policies are evaluated.
#[derive(Clone, Debug)]
pub struct Stages(
    /// Each.
    pub Vec<AclStage>,
);

impl Stages {
    /// The stages with these names, separated by commas.
    ///
    /// # Errors
    /// What would be right.
    pub fn parse(text: &str) -> Result<Self, String> {
        let one = |name: &str| {
            let found = STAGES.iter().find(|(known, _)| *known == name.trim());
            found.map(|(_, stage)| *stage).ok_or_else(|| {
                let names = STAGES.map(|(name, _)| name).join(", ");
                format!("{:?} is not a stage that a log shows: these are {names}", name.trim())
            })
        };
        text.split(',').map(one).collect::<Result<_, String>>().map(Self)
    }
}

/// How other mail servers try again.
#[derive(Clone, Debug)]
pub struct AssumedRetries {
    /// As it was given.
    pub text: String,
    /// When.
    pub schedule: Schedule,
}

impl AssumedRetries {
    /// Of `exim`, `never`, or the waits before each retry.
    ///
    /// # Errors
    /// What would be right.
    pub fn parse(text: &str) -> Result<Self, String> {
        let schedule = match text.trim() {
            "exim" => Schedule::default(),
            "never" => Schedule::new(Vec::new()),
            waits => {
                let waits: Result<Vec<f64>, String> =
                    waits.split(',').map(|wait| typed_period(wait.trim())).collect();
                let waits = waits.map_err(|error| {
                    format!("{error}; expected exim, never, or waits such as 5m,15m,1h")
                })?;
                if waits.len() > WAITS_MAX || waits.iter().any(|wait| *wait > WAIT_MAX) {
                    return Err(format!("at most {WAITS_MAX} waits, of 4w each"));
                }
                Schedule::new(waits)
            }
        };
        Ok(Self { text: text.trim().to_owned(), schedule })
    }

    /// What is assumed of other servers, in words.
    pub fn describe(&self) -> String {
        match (self.text.as_str(), self.schedule.waits().len()) {
            ("exim", _) => "after 15 minutes, eight times, and then at growing intervals until \
                            16 hours have passed"
                .to_owned(),
            (_, 0) => "never".to_owned(),
            (waits, _) => format!("after {}", waits.replace(',', ", ")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stages_and_waits_are_read_or_explained() {
        assert_eq!(Stages::parse("rcpt, data").unwrap().0, [AclStage::Rcpt, AclStage::Data]);
        let error = Stages::parse("rcpt,helo").unwrap_err();
        assert!(error.contains("\"helo\" is not a stage that a log shows"), "{error}");
        assert_eq!(AssumedRetries::parse("5m, 1h").unwrap().schedule.waits(), [300.0, 3600.0]);
        assert_eq!(AssumedRetries::parse("never").unwrap().schedule.waits().len(), 0);
        assert_eq!(AssumedRetries::parse("exim").unwrap().schedule, Schedule::default());
        assert!(
            AssumedRetries::parse("soon").unwrap_err().contains("expected exim, never, or waits")
        );
        assert!(AssumedRetries::parse("5w").is_err());
        assert!(AssumedRetries::parse(&vec!["1s"; 101].join(",")).is_err());
    }
}
