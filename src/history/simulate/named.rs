//! Accounts that their habits would have named.

use serde::{Serialize, Serializer};

use super::decided::exact;
use crate::hash::FastMap;
use crate::rate::Timestamp;
use crate::rate::habits::Alarm;

/// So many accounts are remembered.
const ACCOUNTS_MAX: usize = 10_000;

/// An account that its habits would have named.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NamedAccount {
    /// Its key: `auth:alice@example.org`.
    pub key: Box<str>,
    /// When, the first time.
    #[serde(serialize_with = "exact")]
    pub at: Timestamp,
    /// The evidence of that.
    #[serde(flatten, serialize_with = "evidence")]
    pub alarm: Alarm,
    /// How many alarms there were in all.
    pub alarms: u64,
}

/// What an alarm says, as JSON has it.
fn evidence<S: Serializer>(alarm: &Alarm, serializer: S) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct Evidence {
        strangers: u32,
        messages: u32,
        evidence: String,
    }
    let Alarm { strangers, messages, .. } = *alarm;
    Evidence { strangers, messages, evidence: alarm.to_string() }.serialize(serializer)
}

/// All of them.
#[derive(Debug, Default)]
pub struct NamedAccounts {
    all: Vec<NamedAccount>,
    places: FastMap<Box<str>, usize>,
    /// How many messages were compared with habits.
    pub compared: u64,
    /// Alarms of further accounts.
    pub omitted: u64,
}

impl NamedAccounts {
    /// In the order of time.
    #[must_use]
    pub fn all(&self) -> &[NamedAccount] {
        &self.all
    }

    /// An alarm was raised.
    pub(super) fn add(&mut self, key: &str, at: Timestamp, alarm: Alarm) {
        if let Some(named) = self.places.get(key).and_then(|place| self.all.get_mut(*place)) {
            named.alarms += 1;
        } else if self.all.len() < ACCOUNTS_MAX {
            self.places.insert(key.into(), self.all.len());
            self.all.push(NamedAccount { key: key.into(), at, alarm, alarms: 1 });
        } else {
            self.omitted += 1;
        }
    }
}
