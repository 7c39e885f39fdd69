//! Maintenance of the whole database: tidy, compact, repair, and its size limit. None
//! of it is required, and all of it can run while Exim runs.

use crate::engine::RecordKey;
use crate::rate::Timestamp;
use crate::sys::files;
use crate::sys::lock::LockKind;
use crate::sys::secure_dir::DirError;

use super::database::{ATTEMPTS, shard_name, shard_name_new};
use super::live_records::LiveRecords;
use super::new_shard::NewShard;
use super::rebuild::{Outcome, Reason};
use super::shard::{Body, Condition, Shard};
use super::verify::check;
use super::{MAX_BYTES_MIN, Spool, SpoolError};

/// What [`Spool::tidy`], [`Spool::compact`] and [`Spool::repair`] did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tidied {
    /// Shards that were rebuilt.
    pub rebuilt: u64,
    /// Bytes of disk before.
    pub disk_before: u64,
    /// Bytes of disk after.
    pub disk_after: u64,
}

/// What is done to each shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Care {
    Tidy,
    Compact,
    Repair,
}

impl Spool {
    /// Does now what checks do by themselves every six hours: rebuilds the
    /// shards a quarter of which is of no use any more.
    ///
    /// `progress` is called after each shard with how many are done.
    ///
    /// # Errors
    /// A shard could not be used: the first such error. The other shards have been
    /// tidied, unless the error is that the directory could not be locked.
    pub fn tidy(
        &mut self,
        now: Timestamp,
        progress: impl FnMut(usize),
    ) -> Result<Tidied, SpoolError> {
        self.look_after(Care::Tidy, now, progress)
    }

    /// Rebuilds every shard as small as possible, which also applies a lowered size
    /// limit.
    ///
    /// # Errors
    /// As for [`Spool::tidy`].
    pub fn compact(
        &mut self,
        now: Timestamp,
        progress: impl FnMut(usize),
    ) -> Result<Tidied, SpoolError> {
        self.look_after(Care::Compact, now, progress)
    }

    /// Rebuilds every shard in which [`Spool::verify`] would find damage, from what can
    /// be saved; corrects the owner and mode of files; removes unfinished files of
    /// killed processes. [`Spool::take_incidents`] returns what was done.
    ///
    /// # Errors
    /// As for [`Spool::tidy`].
    pub fn repair(
        &mut self,
        now: Timestamp,
        progress: impl FnMut(usize),
    ) -> Result<Tidied, SpoolError> {
        self.look_after(Care::Repair, now, progress)
    }

    /// The size limit of the database, in bytes.
    #[must_use]
    pub fn max_bytes(&self) -> u64 {
        self.database.max_bytes
    }

    /// Sets the size limit of the database, in bytes, at least [`MAX_BYTES_MIN`].
    /// Processes that open the database from now on apply it when a shard next grows.
    ///
    /// # Errors
    /// The setting could not be written, and has not changed.
    pub fn set_max_bytes(&mut self, max_bytes: u64) -> Result<(), SpoolError> {
        self.with_files(|database| database.set_max_bytes(max_bytes.max(MAX_BYTES_MIN)))?;
        // Shards that are open have the old limit.
        self.close_shards();
        Ok(())
    }

    /// How many records would be evicted now if the database might take only
    /// `max_bytes`.
    ///
    /// # Errors
    /// A shard could not be read.
    pub fn would_evict(&mut self, max_bytes: u64, now: Timestamp) -> Result<u64, SpoolError> {
        self.after_fork()?;
        let of_shard = |body: Option<&Body>| {
            let fitted = |body| LiveRecords::indexed(body, now).fit(&body.map, max_bytes, now);
            body.map_or(0, |body| fitted(body).evicted)
        };
        let mut evicted = 0;
        for number in 0..=u8::MAX {
            evicted += self.read_shard(number, of_shard)?;
        }
        Ok(evicted)
    }

    /// Drops the overrides that have ended, and completes a change that a killed process
    /// has begun; repairs the list.
    fn look_after_overrides(&mut self, care: Care, now: Timestamp) -> Result<(), SpoolError> {
        if care == Care::Repair {
            self.database.repair_overrides()?;
        }
        if self.has_unsettled_overrides() || self.has_ended_overrides(now) {
            self.change_overrides(|list| list.retain(|one| one.is_active(now.seconds)))?;
        }
        Ok(())
    }

    fn look_after(
        &mut self,
        care: Care,
        now: Timestamp,
        mut progress: impl FnMut(usize),
    ) -> Result<Tidied, SpoolError> {
        self.database.require_writable()?;
        self.after_fork()?;
        if care == Care::Repair {
            self.database.repair_access();
        }
        let mut tidied = Tidied::default();
        let mut failure = self.look_after_overrides(care, now).err();
        if let Some(error) = failure.take_if(|error| self.is_of_directory(error)) {
            return Err(error);
        }
        failure = failure.or(self.tidy_events(now).err());
        for number in 0..=u8::MAX {
            tidied.disk_before += self.disk(number);
            match self.look_after_number(number, care, now) {
                Ok(replaced) => tidied.rebuilt += u64::from(replaced),
                // Every other shard would wait just as long.
                Err(error) if self.is_of_directory(&error) => return Err(error),
                Err(error) => failure = failure.or(Some(error)),
            }
            tidied.disk_after += self.disk(number);
            progress(usize::from(number) + 1);
        }
        failure.map_or(Ok(tidied), Err)
    }

    /// Whether another process holds the lock that every shard needs.
    fn is_of_directory(&self, error: &SpoolError) -> bool {
        matches!(error, SpoolError::Directory(DirError::Busy { path, .. }) if *path == self.database.dir.path())
    }

    /// Whether the shard of this number was replaced.
    fn look_after_number(
        &mut self,
        number: u8,
        care: Care,
        now: Timestamp,
    ) -> Result<bool, SpoolError> {
        if care == Care::Repair {
            self.remove_unfinished(number)?;
        }
        Ok(self.exists(number) && self.look_after_one(number, care, now)?)
    }

    /// Whether the shard of `key` exists. A read-only check must not create it.
    #[must_use]
    pub fn has_shard_of(&self, key: RecordKey<'_>) -> bool {
        self.exists(self.database.hashing.place(key).shard)
    }

    /// Whether a file with the shard's name exists.
    pub(super) fn exists(&self, number: u8) -> bool {
        files::info_at(self.database.dir.directory(), &shard_name(number)).is_ok()
    }

    /// Removes the unfinished file of a shard that a killed process left.
    fn remove_unfinished(&mut self, number: u8) -> Result<(), SpoolError> {
        let name = shard_name_new(number);
        if files::info_at(self.database.dir.directory(), &name).is_err() {
            return Ok(());
        }
        // A process that is still writing it holds its lock.
        let Some(unfinished) = NewShard::claim(&self.database, number, true)? else {
            return Ok(());
        };
        let left_behind = unfinished.left_behind;
        unfinished.abandon(&self.database)?;
        if left_behind {
            let path = self.database.path_of(&name);
            self.database.report(format!("removed {}, which was never finished", path.display()));
        }
        Ok(())
    }

    /// Whether the shard has been replaced.
    fn look_after_one(
        &mut self,
        number: u8,
        care: Care,
        now: Timestamp,
    ) -> Result<bool, SpoolError> {
        // Opening a shard also rebuilds it if its header is damaged.
        let before = self.database.incidents.len();
        for _ in 0..ATTEMPTS {
            let Some(mut shard) = self.take_shard(number)? else { break };
            let Shard { file, body } = &mut *shard;
            let guard = self
                .database
                .lock(file, LockKind::Exclusive, || self.database.path_of(&shard_name(number)))?;
            // Not a real second, so that the name is checked again.
            let condition = body
                .condition(file, &self.database, i64::MIN)
                .map_err(|source| self.shard_error("examine", number, source))?;
            let outcome = match condition {
                Condition::Stale => continue,
                Condition::Damaged(what) => self.rebuild(body, Reason::Damage(what), now, true)?,
                Condition::Ready => self.care_for(body, care, now)?,
            };
            drop(guard);
            if outcome != Outcome::Replaced {
                self.put_shard(shard);
            }
            return Ok(outcome == Outcome::Replaced || self.database.incidents.len() > before);
        }
        Err(self.unsettled(number))
    }

    fn care_for(
        &mut self,
        body: &mut Body,
        care: Care,
        now: Timestamp,
    ) -> Result<Outcome, SpoolError> {
        match care {
            Care::Tidy => self.tidy_shard(body, now, true),
            Care::Compact => self.rebuild(body, Reason::Growth, now, true),
            Care::Repair => {
                let hashing = &self.database.hashing;
                if check(body, hashing).problems.is_empty() {
                    return Ok(Outcome::Unneeded);
                }
                self.rebuild(body, Reason::Damage("verify finds it so"), now, true)
            }
        }
    }
}
