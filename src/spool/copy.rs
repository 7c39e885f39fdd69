//! Copies the database while it is in use, and creates one with a given key.

use std::path::Path;

use crate::sys::files;

use super::database::{Database, shard_name};
use super::format::Superblock;
use super::{Options, Spool, SpoolError};

/// The result of [`Spool::copy_to`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Copied {
    /// Shards that were copied.
    pub shards: usize,
    /// Bytes in them.
    pub bytes: u64,
}

impl Spool {
    /// The database's key, on which the filters of all entries depend. It is a secret:
    /// with it, an attacker can choose addresses that a filter takes for known ones.
    #[must_use]
    pub fn key(&self) -> [u8; 16] {
        self.database.hashing.key
    }

    /// Creates a database in the directory `exirate` of `spool_directory`, with this key.
    ///
    /// # Errors
    /// There is one already, or it cannot be created.
    pub fn create(
        spool_directory: &Path,
        key: [u8; 16],
        options: Options,
    ) -> Result<Self, SpoolError> {
        Database::create(spool_directory, &Superblock::new(key), options).map(Self::new)
    }

    /// Copies the database into a new directory `exirate` in `directory`, which can then
    /// be used as a spool directory.
    ///
    /// Each shard is locked while it is copied, so that every record is complete; checks
    /// of other keys go on. A list of overrides that is damaged is left out:
    /// [`Spool::take_incidents`] says so. `progress` is called after each shard with how many are done.
    ///
    /// # Errors
    /// Something could not be read or written; the files copied so far stay.
    pub fn copy_to(
        &mut self,
        directory: &Path,
        mut progress: impl FnMut(usize),
    ) -> Result<Copied, SpoolError> {
        let mut target = self.with_files(|database| {
            Database::create(directory, &database.identity(), database.options)
        })?;
        let overrides = self.with_files(|database| database.read_overrides())?;
        match overrides {
            Ok(overrides) => target.put_overrides(&overrides.list())?,
            Err(fault) => {
                let error = self.database.override_fault(fault);
                self.database.report(format!("the copy has no overrides: {error}"));
            }
        }
        let limits = self.with_files(|database| database.stored_event_limits())?;
        target.set_event_limits(limits)?;
        self.with_files(|database| database.copy_events(&target))?;
        let mut copied = Copied::default();
        for number in 0..=u8::MAX {
            let name = shard_name(number);
            let bytes = self.read_shard(number, |body| {
                body.map(|body| {
                    let end = body.heap_end().filter(|&end| end <= body.map.len())?;
                    // Written after unlocking, so that checks do not wait for it.
                    body.map.bytes(0, end).map(<[u8]>::to_vec)
                })
            })?;
            let bytes = match bytes {
                None => None,
                Some(Some(bytes)) => Some(bytes),
                // Its length is not known.
                Some(None) => {
                    let path = self.database.path_of(&name);
                    return Err(SpoolError::Damaged {
                        path,
                        what: "the end of its heap is damaged",
                    });
                }
            };
            if let Some(bytes) = bytes {
                let file = self.with_files(|_| target.create_file(&name))?;
                let written = files::write_start(&file, &bytes).and_then(|()| files::sync(&file));
                written.map_err(SpoolError::io("write", &target.path_of(&name)))?;
                copied.shards += 1;
                copied.bytes += bytes.len() as u64;
            }
            progress(usize::from(number) + 1);
        }
        Ok(copied)
    }
}

impl Database {
    /// Creates a database where there is none.
    fn create(spool: &Path, identity: &Superblock, options: Options) -> Result<Self, SpoolError> {
        let mut database = Self::open_directory(spool, options, true)?;
        {
            let _guard = database.lock_directory()?;
            let mut files = std::fs::read_dir(database.dir.path())
                .map_err(SpoolError::io("read", database.dir.path()))?;
            if files.next().is_some() {
                return Err(SpoolError::Present { path: database.dir.path().to_path_buf() });
            }
            database.write_identity(identity)?;
        }
        database.take_identity(identity);
        database.map_word();
        Ok(database)
    }
}
