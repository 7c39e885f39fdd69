//! The spool database as a store that can be inspected.

use std::collections::HashSet;

use crate::engine::RecordKey;
use crate::rate::bloom;
use crate::rate::usage::Usage;
use crate::store::{
    Edit, Edited, Entry, Inspect, InspectError, Override, OwnedKey, Restored, Statistics, Unread,
    Visit, usage_key,
};

use super::{LeftOut, Spool};

impl From<LeftOut> for Unread {
    fn from(left_out: LeftOut) -> Self {
        let parts = left_out.shards.into_iter().map(InspectError::from).collect();
        Self { damaged: left_out.damaged, parts }
    }
}

impl Inspect for Spool {
    fn for_each(&mut self, visit: &mut dyn FnMut(Entry)) -> Result<Unread, InspectError> {
        Ok(Spool::for_each(self, visit)?.into())
    }

    fn survey(&mut self, visit: Visit<'_>) -> Result<Unread, InspectError> {
        Ok(Spool::survey(self, visit)?.into())
    }

    fn for_each_of(
        &mut self,
        identities: &HashSet<Vec<u8>>,
        visit: &mut dyn FnMut(Entry),
    ) -> Result<Unread, InspectError> {
        Ok(Spool::for_each_of(self, identities, visit)?.into())
    }

    fn for_each_habits_key(
        &mut self,
        visit: &mut dyn FnMut(OwnedKey),
    ) -> Result<Unread, InspectError> {
        Ok(self.for_each_habits(|key, _| visit(key))?.into())
    }

    fn for_each_usage(
        &mut self,
        at: i64,
        day: i64,
        visit: &mut dyn FnMut(&[u8], &Usage),
    ) -> Result<Unread, InspectError> {
        Ok(Spool::for_each_usage(self, at, day, |key, usage| visit(key.key().identity(), &usage))?
            .into())
    }

    fn usage(&mut self, identity: &[u8], at: i64, day: i64) -> Result<Option<Usage>, InspectError> {
        Ok(Spool::usage(self, usage_key(identity, &mut Vec::new()), at, day)?)
    }

    fn get(&mut self, key: RecordKey<'_>) -> Result<Option<Entry>, InspectError> {
        Ok(Spool::get(self, key)?)
    }

    fn has_event(&mut self, key: RecordKey<'_>, event: &[u8]) -> Result<bool, InspectError> {
        Ok(self.peek(key, Some(event), |remembered, event| {
            let filter = remembered.and_then(|remembered| remembered.filter);
            filter.zip(event).is_some_and(|(filter, event)| bloom::contains(filter.bits, event))
        })?)
    }

    fn remove(&mut self, key: RecordKey<'_>) -> Result<Option<Entry>, InspectError> {
        Ok(self.forget(key)?)
    }

    fn set(&mut self, key: RecordKey<'_>, edit: &Edit<'_>) -> Result<Option<Edited>, InspectError> {
        Ok(self.update(key, edit.event, |remembered, event| {
            edit.apply(&key, remembered, event).unzip()
        })?)
    }

    fn restore(&mut self, entry: &Entry) -> Result<Restored, InspectError> {
        Ok(Spool::restore(self, entry)?)
    }

    fn statistics(&mut self) -> Result<Statistics, InspectError> {
        let stats = self.stats_of_readable()?;
        Ok(Statistics { records: stats.records, bytes: stats.disk })
    }

    fn filter_key(&self) -> [u8; 16] {
        self.key()
    }

    fn location(&self) -> String {
        self.directory().display().to_string()
    }

    fn log_change(&mut self, line: &str) -> Result<(), InspectError> {
        Ok(Spool::log_change(self, line)?)
    }

    fn overrides(&mut self) -> Result<Vec<Override>, InspectError> {
        Ok(Spool::overrides(self)?)
    }

    fn change_overrides(
        &mut self,
        change: &mut dyn FnMut(&mut Vec<Override>),
    ) -> Result<(), InspectError> {
        Ok(Spool::change_overrides(self, change)?)
    }

    fn take_incidents(&mut self) -> Vec<String> {
        Spool::take_incidents(self)
    }
}
