//! A store that forgets everything when it is dropped.

use std::collections::HashMap;
use std::convert::Infallible;
use std::hash::{BuildHasher, RandomState};

use crate::rate::Average;
use crate::rate::bloom::{self, Event};

use super::{Change, Filter, FilterChange, Remembered, Store};

/// A [`Store`] in this process's memory: for trying things out, and the plain
/// model that other stores are compared with.
#[derive(Debug, Default)]
pub struct Memory {
    records: HashMap<Vec<u8>, Record>,
    events: [RandomState; 2],
}

/// What is remembered of one key.
#[derive(Clone, Debug)]
struct Record {
    average: Average,
    limit: f64,
    over_since: u32,
    filter: Option<(i64, Vec<u8>)>,
}

impl Record {
    fn remembered(&self) -> Remembered<'_> {
        Remembered {
            average: self.average,
            limit: self.limit,
            over_since: self.over_since,
            filter: self.filter.as_ref().map(|(epoch, bits)| Filter { epoch: *epoch, bits }),
        }
    }
}

impl Memory {
    /// An empty store.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// How many keys are remembered.
    #[must_use]
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Whether nothing is remembered.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// Shows every key with what is remembered of it.
    pub fn for_each(&self, mut visit: impl FnMut(&[u8], Remembered<'_>)) {
        for (key, record) in &self.records {
            visit(key, record.remembered());
        }
    }
}

impl Store for Memory {
    type Error = Infallible;

    fn update<T>(
        &mut self,
        key: &[u8],
        event: Option<&[u8]>,
        decide: impl FnOnce(Option<Remembered<'_>>, Option<Event>) -> (T, Option<Change>),
    ) -> Result<T, Infallible> {
        let [low, high] = &self.events;
        let event = event.map(|text| {
            Event(u128::from(low.hash_one(text)) | u128::from(high.hash_one(text)) << 64)
        });
        let record = self.records.get(key);
        let (result, change) = decide(record.map(Record::remembered), event);
        if let Some(Change { average, limit, over_since, filter }) = change {
            let kept = self.records.remove(key).and_then(|record| record.filter);
            let filter = match filter {
                FilterChange::Keep => kept,
                FilterChange::Insert(event) => kept.map(|(epoch, mut bits)| {
                    bloom::insert(&mut bits, event);
                    (epoch, bits)
                }),
                FilterChange::Renew { bytes, epoch, event } => {
                    let mut bits = vec![0; bytes.min(bloom::MAX_BYTES)];
                    bloom::insert(&mut bits, event);
                    Some((epoch, bits))
                }
            };
            self.records.insert(key.to_vec(), Record { average, limit, over_since, filter });
        }
        Ok(result)
    }
}
