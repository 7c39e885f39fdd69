//! Changes made by an administrator while checks are running.

use crate::engine::{Change, FilterChange, RecordKey, Remembered};
use crate::rate::bloom::Event;
use crate::store::{Entry, Restored};

use super::apply::{AddFailure, NewFilter};
use super::events::count_lost;
use super::locked::Locked;
use super::record::Fill;
use super::{Spool, SpoolError};

impl Spool {
    /// Runs `change` on what is remembered of a record, which is locked
    /// meanwhile, and makes the change that it returns, all or nothing.
    ///
    /// `event` is the text of a unique event; `change` gets its hash under the
    /// database's key. It runs exactly once if the database can be used, and
    /// not otherwise.
    ///
    /// # Errors
    /// The database could not be used; then nothing was changed.
    pub fn update<'k, T>(
        &mut self,
        key: impl Into<RecordKey<'k>>,
        event: Option<&[u8]>,
        change: impl FnOnce(Option<Remembered<'_>>, Option<Event>) -> (T, Option<Change>),
    ) -> Result<T, SpoolError> {
        let event = event.map(|text| self.database.hashing.event(text));
        self.locked(key.into(), event.is_some(), |locked| {
            let (result, change) = change(locked.remembered(), event);
            if let Some(change) = change {
                locked.apply(&change)?;
            }
            Ok(result)
        })
    }

    /// Resets a key: its next check is decided as that of a new key. Returns the previous
    /// record, if there was one.
    ///
    /// # Errors
    /// The database could not be used; then nothing is forgotten.
    pub fn forget<'k>(
        &mut self,
        key: impl Into<RecordKey<'k>>,
    ) -> Result<Option<Entry>, SpoolError> {
        let key = key.into();
        self.locked(key, false, |locked| {
            let remembered = locked.remembered();
            let entry = remembered.and_then(|remembered| Entry::of(&key, remembered));
            let known = remembered.is_some();
            // One that only remembers a crossing is forgotten as well.
            let Some(record) = locked.lookup.record.filter(|_| known) else { return Ok(None) };
            // First: a filter must not outlive its state.
            if record.filter_bytes.is_some() {
                record.void_filter(&mut locked.body.map).ok_or_else(AddFailure::lost)?;
            }
            let crossed = record.current.is_some_and(|current| current.state.crossings > 0);
            if crossed && Self::journal_reset(locked.database, &key, locked.key_slot).is_err() {
                count_lost(locked.body);
            }
            record.write_blank(&mut locked.body.map).ok_or_else(AddFailure::lost)?;
            Ok(entry)
        })
    }

    /// Remembers `entry` as it is, its filter included, unless what is
    /// remembered of its key is as new.
    ///
    /// The filter only means something if the entry comes from a database with
    /// the same [`Spool::key`]. One that is empty or larger than a filter can be
    /// is left out.
    ///
    /// # Errors
    /// The database could not be used; then nothing is changed.
    pub fn restore(&mut self, entry: &Entry) -> Result<Restored, SpoolError> {
        self.locked(entry.record_key(), true, |locked| {
            let known = locked.remembered().and_then(|remembered| remembered.state.average);
            let restored = entry.restored_over(known);
            if restored == Restored::Kept {
                return Ok(restored);
            }
            let change = Change { state: entry.state(), filter: FilterChange::Keep };
            let filter = entry.filter_to_restore().map(|filter| NewFilter {
                bytes: filter.bits.len(),
                epoch: filter.epoch,
                fill: Fill::Bits(&filter.bits),
            });
            let Locked { file, body, key_slot, key, lookup, .. } = locked;
            body.append(file, *key_slot, key, lookup, &change, filter)?;
            Ok(restored)
        })
    }
}
