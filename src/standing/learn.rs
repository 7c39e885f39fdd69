//! Learns the habits of accounts from their mail.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use schemars::JsonSchema;
use serde::Serialize;

use super::key_text;
use crate::history::habits::Sent;
use crate::rate::Timestamp;
use crate::rate::habits::{Alarm, Sensitivity};
use crate::spool::habits::SentMessage;
use crate::spool::{Spool, SpoolError};
use crate::store::{
    Learn, Memory, Sending, SendingStage, Store as _, habits_key, habits_network_hash,
};
use crate::text::time::now;

/// Of an account, one alarm in so many seconds is shown; a time that is so far ahead is of a clock
/// that was wrong.
const DAY: i64 = 86_400;
/// Where habits are learned.
pub(crate) enum LearnedIn {
    Spool(Box<Spool>),
    Memory(Box<Memory>),
}

impl LearnedIn {
    /// When the account sent last, if it is known.
    fn last(&mut self, account: &str) -> Result<Option<i64>, SpoolError> {
        match self {
            Self::Spool(spool) => {
                let mut name = Vec::new();
                let known = spool.habits(habits_key(account.as_bytes(), &mut name))?;
                Ok(known.map(|habits| habits.at()))
            }
            Self::Memory(_) => Ok(None),
        }
    }

    /// Learns a message; the alarm that it raises.
    fn learn(
        &mut self,
        sent: &Sent,
        sensitivity: Sensitivity,
    ) -> Result<Option<Alarm>, SpoolError> {
        let mut name = Vec::new();
        let key = habits_key(sent.account.as_bytes(), &mut name);
        let recipients = sent.recipients.iter().map(String::as_bytes);
        match self {
            Self::Spool(spool) => {
                let message = SentMessage { at: sent.at, client: sent.client, recipients };
                Ok(spool.learn_habits(key, message, sensitivity)?.alarm)
            }
            Self::Memory(memory) => {
                let hash = |text: &[u8]| memory.habits_hash(text);
                let network = sent.client.and_then(|client| habits_network_hash(client, hash));
                let recipients: Vec<u64> = recipients.map(hash).collect();
                let (stage, learn) = (SendingStage::Sent, Learn::Always);
                let sending =
                    Sending { key, network, recipients: &recipients, sensitivity, stage, learn };
                let at = Timestamp { seconds: sent.at, micros: 0 };
                let Ok(judged) = memory.learn(&sending, || at);
                Ok(judged.alarm)
            }
        }
    }
}

/// An account that was met in the logs.
pub(crate) struct Met {
    /// Messages up to this second were learned before.
    known_until: Option<i64>,
    /// The place of its last alarm.
    alarm: Option<usize>,
}

/// An alarm, in JSON.
#[derive(Serialize, JsonSchema)]
pub(crate) struct NamedAlarm {
    pub(crate) key: String,
    /// In seconds since 1970.
    pub(crate) at: i64,
    pub(crate) evidence: String,
    /// The alarms of the same account on the same day.
    pub(crate) more: u64,
}

/// What was learned, in JSON.
#[derive(Default, Serialize, JsonSchema)]
pub(crate) struct Learned {
    pub(crate) messages: u64,
    pub(crate) accounts: usize,
    /// Messages no later than the last one known.
    pub(crate) known: u64,
    /// Dated more than a day from now.
    pub(crate) ahead: u64,
    pub(crate) without_recipients: u64,
    /// Left for the next run.
    pub(crate) waiting: u64,
    pub(crate) alarms: Vec<NamedAlarm>,
}

/// Learns messages.
pub(crate) struct Learner {
    pub(crate) store: LearnedIn,
    sensitivity: Sensitivity,
    pub(crate) met: HashMap<String, Met>,
    pub(crate) learned: Learned,
    pub(crate) failure: Option<SpoolError>,
}

impl Learner {
    pub(crate) fn new(store: LearnedIn, sensitivity: Sensitivity) -> Self {
        let (met, learned) = (HashMap::new(), Learned::default());
        Self { store, sensitivity, met, learned, failure: None }
    }

    /// Learns a message, unless that has failed before.
    pub(crate) fn add(&mut self, sent: &Sent) {
        if self.failure.is_none()
            && !sent.is_bounce
            && let Err(error) = self.learn(sent)
        {
            self.failure = Some(error);
        }
    }

    fn learn(&mut self, sent: &Sent) -> Result<(), SpoolError> {
        let latest = now().seconds + DAY;
        if sent.at > latest {
            self.learned.ahead += 1;
            return Ok(());
        }
        let met = match self.met.entry(sent.account.clone()) {
            Entry::Occupied(met) => met.into_mut(),
            Entry::Vacant(place) => {
                let known_until = self.store.last(&sent.account)?.filter(|last| *last <= latest);
                place.insert(Met { known_until, alarm: None })
            }
        };
        if met.known_until.is_some_and(|last| sent.at <= last) {
            self.learned.known += 1;
            return Ok(());
        }
        let alarm = self.store.learn(sent, self.sensitivity)?;
        self.learned.messages += 1;
        let Some(alarm) = alarm else { return Ok(()) };
        let alarms = &mut self.learned.alarms;
        let last = met.alarm.and_then(|place| alarms.get_mut(place));
        match last.filter(|last| sent.at / DAY == last.at / DAY) {
            Some(last) => last.more += 1,
            None => {
                met.alarm = Some(alarms.len());
                let (key, evidence) = (key_text::key(sent.account.as_bytes()), alarm.to_string());
                alarms.push(NamedAlarm { key, at: sent.at, evidence, more: 0 });
            }
        }
        Ok(())
    }
}
