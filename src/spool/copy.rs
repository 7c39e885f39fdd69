//! A copy of the database while it is in use, and a database made anew with a
//! key that is known.

use std::path::Path;

use crate::sys::files;

use super::database::{Database, shard_name};
use super::format::Superblock;
use super::{Options, Spool, SpoolError};

/// What [`Spool::copy_to`] did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Copied {
    /// Shards that were copied.
    pub shards: usize,
    /// Bytes in them.
    pub bytes: u64,
}

impl Spool {
    /// The database's key, on which the filters of all entries depend. Whoever
    /// knows it can choose addresses that look seen: it is a secret.
    #[must_use]
    pub fn key(&self) -> [u8; 16] {
        self.database.hashing.key
    }

    /// Makes a database in `spool_directory`, in its directory `exirate`, with
    /// this key; there may be none yet.
    ///
    /// # Errors
    /// There is one, or it cannot be made.
    pub fn create(
        spool_directory: &Path,
        key: [u8; 16],
        options: Options,
    ) -> Result<Self, SpoolError> {
        Database::create(spool_directory, &Superblock::new(key), options).map(Self::new)
    }

    /// Copies the database into `directory`, in its directory `exirate`, where
    /// there is none yet; `directory` can then be used as a spool directory.
    ///
    /// Each shard is locked while it is copied, so that every record is whole;
    /// checks of other keys go on meanwhile. `progress` is called after each
    /// shard with how many are done.
    ///
    /// # Errors
    /// Something could not be read or written; what has been copied stays.
    pub fn copy_to(
        &mut self,
        directory: &Path,
        mut progress: impl FnMut(usize),
    ) -> Result<Copied, SpoolError> {
        let target = self.with_files(|database| {
            Database::create(directory, &database.identity(), database.options)
        })?;
        let mut copied = Copied::default();
        for number in 0..=u8::MAX {
            let name = shard_name(number);
            let bytes = self.read_shard(number, |body| {
                body.map(|body| {
                    let end = body.heap_end().filter(|&end| end <= body.map.len())?;
                    // Writing it may take longer than anybody should wait.
                    body.map.bytes(0, end).map(<[u8]>::to_vec)
                })
            })?;
            let bytes = match bytes {
                None => None,
                Some(Some(bytes)) => Some(bytes),
                // It could be of any length.
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
    /// Makes a database that is not there yet.
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
        Ok(database)
    }
}
