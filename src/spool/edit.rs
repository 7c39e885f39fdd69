//! What an administrator changes by hand, in the midst of running checks.

use crate::rate::bloom;
use crate::store::{Change, FilterChange};

use super::apply::{Failure, NewFilter};
use super::iterate::Entry;
use super::record::Fill;
use super::update::Locked;
use super::{Spool, SpoolError};

/// What [`Spool::restore`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Restored {
    /// The key was not known, and is now.
    Added,
    /// What was remembered was older, and has been replaced.
    Replaced,
    /// What is remembered is as old, or newer, and stays.
    Kept,
}

impl Spool {
    /// Forgets a key: its next check gets what a key gets that was never seen.
    /// What was remembered of it, where anything was.
    ///
    /// # Errors
    /// The database could not be used; then nothing is forgotten.
    pub fn forget(&mut self, key: &[u8]) -> Result<Option<Entry>, SpoolError> {
        self.locked(key, false, |locked| {
            let entry = locked.remembered().map(|remembered| Entry::of(key, remembered));
            let Some((entry, record)) = entry.zip(locked.lookup.record) else { return Ok(None) };
            // First: a filter must not outlive its state.
            if record.filter_bytes.is_some() {
                record.void_filter(&mut locked.body.map).ok_or_else(Failure::lost)?;
            }
            record.write_blank(&mut locked.body.map).ok_or_else(Failure::lost)?;
            Ok(Some(entry))
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
        self.locked(&entry.key, true, |locked| {
            let restored = match locked.remembered() {
                Some(known) if known.average.at >= entry.average.at => return Ok(Restored::Kept),
                Some(_) => Restored::Replaced,
                None => Restored::Added,
            };
            let change = Change {
                average: entry.average,
                limit: entry.limit,
                over_since: entry.over_since,
                filter: FilterChange::Keep,
            };
            let filter = entry.filter.as_ref().map(|filter| NewFilter {
                bytes: filter.bits.len(),
                epoch: filter.epoch,
                fill: Fill::Bits(&filter.bits),
            });
            let filter = filter.filter(|new| (1..=bloom::MAX_BYTES).contains(&new.bytes));
            let Locked { file, body, key_slot, key, lookup } = locked;
            body.append(file, *key_slot, key, lookup, &change, filter)?;
            Ok(restored)
        })
    }
}
