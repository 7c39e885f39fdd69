//! One look at the database: its busiest keys, and how many there are.

use serde::Serialize;

use super::super::database::{Common, now};
use super::super::keys::Selection;
use super::super::list::{First, Sort};
use super::super::record::{Facts, Record};
use super::super::{Failure, text};
use crate::rate::Timestamp;

/// What was there at one moment.
pub(super) struct Look {
    pub(super) at: Timestamp,
    /// How many keys were asked for and are remembered.
    pub(super) keys: u64,
    /// Of how many one more event would be refused.
    pub(super) over: u64,
    /// How many had an event counted since the last look.
    pub(super) active: u64,
    /// Shards that could not be read, and damaged records.
    pub(super) unread: u64,
    /// The first of them.
    pub(super) records: Vec<Record>,
}

/// What is to be looked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted {
    pub(super) sort: Sort,
    /// Only keys that are over their limits are shown; all are counted.
    pub(super) over: bool,
    /// How many are shown at most.
    pub(super) most: usize,
    /// The moment of the last look.
    pub(super) last: Timestamp,
}

impl Look {
    /// Looks at the database. It is opened anew each time, so that nothing is
    /// missed if it was replaced.
    pub(super) fn take(
        common: &Common,
        selection: &mut Selection,
        wanted: Wanted,
    ) -> Result<Self, Failure> {
        let mut spool = common.open()?;
        let at = now();
        let mut first = First::new(wanted.sort, at, wanted.most);
        let (mut keys, mut over, mut active) = (0, 0, 0);
        let left_out = spool.for_each(|entry| {
            if !selection.contains(&entry.key) {
                return;
            }
            let record = Record::from(entry);
            let is_over = record.is_over(at);
            keys += 1;
            over += u64::from(is_over);
            active += u64::from(record.average.at > wanted.last);
            if is_over || !wanted.over {
                first.add(record);
            }
        })?;
        let unread = left_out.damaged + left_out.shards.len() as u64;
        Ok(Self { at, keys, over, active, unread, records: first.take() })
    }

    /// The look as JSON has it.
    pub(super) fn facts(&self) -> LookFacts {
        LookFacts {
            at: text::iso(self.at),
            keys: self.keys,
            over: self.over,
            active: self.active,
            unread: self.unread,
            records: self.records.iter().map(|record| record.facts(self.at)).collect(),
        }
    }
}

/// A [`Look`] as JSON has it.
#[derive(Serialize)]
pub(super) struct LookFacts {
    at: String,
    keys: u64,
    over: u64,
    active: u64,
    unread: u64,
    records: Vec<Facts>,
}
