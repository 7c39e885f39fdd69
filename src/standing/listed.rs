//! Lists of keys: their order, and what is said of each.

use clap::ValueEnum;
use schemars::JsonSchema;
use serde::Serialize;

use super::in_force::InForce;
use super::key_state::{KeyState, KeyStateJson};
use crate::rate::Timestamp;

/// What keys are sorted by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Sort {
    /// The rate, highest first
    Rate,
    /// The share of the limit, largest first
    Share,
    /// The latest event
    Seen,
    /// The key, alphabetically
    Key,
}

impl Sort {
    /// What `record` is sorted by at `now`, highest first; 0 where that is its
    /// key.
    fn rank(self, record: &KeyState, now: Timestamp) -> f64 {
        match self {
            Self::Rate => record.rate(now),
            Self::Share => record.share(now),
            Self::Seen => record.average.at.as_seconds(),
            Self::Key => 0.0,
        }
    }
}

/// The first records in the order of `sort`, of those that are added.
pub(crate) struct First {
    sort: Sort,
    now: Timestamp,
    limit: usize,
    /// With their ranks, which are slow to compute for each comparison; what is sorted is small.
    records: Vec<(f64, Box<KeyState>)>,
}

impl First {
    pub(crate) fn new(sort: Sort, now: Timestamp, limit: usize) -> Self {
        Self { sort, now, limit, records: Vec::new() }
    }

    pub(crate) fn add(&mut self, record: KeyState) {
        self.records.push((self.sort.rank(&record, self.now), Box::new(record)));
        // Rarely, as sorting is slow.
        if self.records.len() >= self.limit.saturating_mul(2).saturating_add(1000) {
            self.cut();
        }
    }

    fn cut(&mut self) {
        let now = self.now;
        self.records.sort_unstable_by(|(rank_a, a), (rank_b, b)| {
            rank_b
                .total_cmp(rank_a)
                .then_with(|| a.key().cmp(b.key()))
                .then_with(|| b.rate(now).total_cmp(&a.rate(now)))
                .then_with(|| a.stored.cmp(&b.stored))
        });
        self.records.truncate(self.limit);
    }

    /// The records in order.
    pub(crate) fn take(mut self) -> impl ExactSizeIterator<Item = KeyState> {
        self.cut();
        self.records.into_iter().map(|(_, record)| *record)
    }
}

/// A record, in JSON.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Listed {
    #[serde(flatten)]
    facts: KeyStateJson,
    /// allow or deny.
    #[serde(rename = "override")]
    overridden: Option<&'static str>,
}

impl Listed {
    pub(crate) fn of(record: &KeyState, in_force: &InForce) -> Self {
        let next = in_force.next(record);
        let overridden = next.overridden().map(|one| one.overridden.word());
        Self { facts: in_force.json(record), overridden }
    }
}
