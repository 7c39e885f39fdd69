//! The busiest keys at one moment, and how many there are.

use schemars::JsonSchema;
use serde::Serialize;

use crate::cli::Failure;
use crate::cli::senders::list::{First, Listed, Sort};
use crate::cli::shared::keys::Selection;
use crate::cli::shared::rates::Rates;
use crate::rate::Timestamp;
use crate::standing::in_force::InForce;
use crate::standing::key_state::KeyState;
use crate::text;

/// The keys at one moment.
pub(super) struct Snapshot {
    pub(super) at: Timestamp,
    /// How many keys are selected.
    pub(super) keys: u64,
    /// How many of them are blocked: their next event would be refused.
    pub(super) over: u64,
    /// How many had an event counted since the last snapshot.
    pub(super) active: u64,
    /// Shards that could not be read, damaged records, and overrides and policies that could
    /// not be read.
    pub(super) unread: u64,
    /// The first of them.
    pub(super) records: Vec<KeyState>,
    pub(super) in_force: InForce,
}

/// What a snapshot shows.
#[derive(Clone, Copy, Debug)]
pub(super) struct View {
    pub(super) sort: Sort,
    /// Only keys that are blocked are shown; all are counted.
    pub(super) over: bool,
    /// How many are shown at most.
    pub(super) limit: usize,
    /// When the last snapshot was taken.
    pub(super) last: Timestamp,
}

impl Snapshot {
    /// Reads the database. It is opened again each time, in case it was
    /// replaced.
    pub(super) fn take(
        common: &Rates,
        selection: &mut Selection,
        view: View,
    ) -> Result<Self, Failure> {
        let mut store = common.open()?;
        let (in_force, problems) = InForce::of(&mut *store, &common.directory()?);
        let at = in_force.now;
        let mut first = First::new(view.sort, at, view.limit);
        let (mut keys, mut over, mut active) = (0, 0, 0);
        let left_out = store.for_each(&mut |entry| {
            if !selection.contains(&entry.record_key()) {
                return;
            }
            let record = KeyState::from(entry);
            let is_over = in_force.refuses(&record);
            keys += 1;
            over += u64::from(is_over);
            active += u64::from(record.average.at > view.last);
            if is_over || !view.over {
                first.add(record);
            }
        })?;
        let unread = left_out.damaged + left_out.parts.len() as u64 + problems.len() as u64;
        let records = first.take().collect();
        Ok(Self { at, keys, over, active, unread, records, in_force })
    }

    /// The snapshot in JSON.
    pub(super) fn json(&self) -> SnapshotJson {
        SnapshotJson {
            at: text::iso(self.at),
            keys: self.keys,
            over: self.over,
            active: self.active,
            unread: self.unread,
            records: self.records.iter().map(|record| Listed::of(record, &self.in_force)).collect(),
        }
    }
}

/// A [`Snapshot`] in JSON.
#[derive(Serialize, JsonSchema)]
pub(super) struct SnapshotJson {
    at: String,
    keys: u64,
    over: u64,
    active: u64,
    /// Damaged records, and files that could not be read.
    unread: u64,
    records: Vec<Listed>,
}
