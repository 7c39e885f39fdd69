//! The file `database`: which database this is, its version, key, size limit, and the
//! limits of its event logs.
//! One process chooses the key for all; a lost file is rebuilt from the shards.

use std::ffi::CStr;
use std::path::Path;

use rand::TryRng;
use rand::rngs::SysRng;

use crate::sys::files::{self, Access};
use crate::versions::Versions;

use super::SpoolError;
use super::database::{Database, Options, shard_name};
use super::events::EventLimits;
use super::format::{
    DATABASE_BYTES, DATABASE_EVENTS, DATABASE_FILE_BYTES, DATABASE_MAGIC, DATABASE_WORD,
    EVENT_LIMITS_BYTES, HEADER_CRC, Header, HeaderFault, SHARDS, Superblock, VERSION, VERSIONS,
};
use super::hashing::Hashing;
use super::sizes::MAX_BYTES_DEFAULT;

/// The file that holds the key.
pub(super) const DATABASE: &CStr = c"database";
/// That file while it is written.
const DATABASE_NEW: &CStr = c"database.new";

impl Database {
    /// Opens the database under `spool`; creates it if it is missing and `writable`.
    pub(super) fn open(spool: &Path, options: Options, writable: bool) -> Result<Self, SpoolError> {
        Self::open_as(spool, options, writable, VERSIONS)
    }

    /// As [`Database::open`], as a library that knows these format versions.
    pub(super) fn open_as(
        spool: &Path,
        options: Options,
        writable: bool,
        versions: Versions,
    ) -> Result<Self, SpoolError> {
        let mut database = Self::open_directory(spool, options, writable)?;
        (database.versions, database.version) = (versions, versions.newest);
        let identity = match database.read_identity()? {
            Ok(identity) => identity,
            Err(HeaderFault::Version(found)) => {
                return Err(database.unknown_version(DATABASE, found));
            }
            Err(HeaderFault::Damaged) => database.settle_identity()?,
        };
        database.take_identity(&identity);
        database.map_word();
        Ok(database)
    }

    /// Takes key, version and size limit from `identity`.
    pub(super) fn take_identity(&mut self, identity: &Superblock) {
        self.hashing = Hashing::new(identity.key);
        self.version = identity.version;
        self.max_bytes = identity.max_bytes;
    }

    /// Reads the file `database`; a missing one counts as damaged.
    pub(super) fn read_identity(&self) -> Result<Result<Superblock, HeaderFault>, SpoolError> {
        let Some((file, _)) = self.open_for(Access::Read, DATABASE)? else {
            return Ok(Err(HeaderFault::Damaged));
        };
        let mut bytes = [0; DATABASE_BYTES];
        let length = files::read_start(&file, &mut bytes)
            .map_err(SpoolError::io("read", &self.path_of(DATABASE)))?;
        Ok(Superblock::decode(bytes.get(..length).unwrap_or(&[]), self.versions))
    }

    /// Finds the key where the file `database` is missing or damaged, and writes that
    /// file again.
    pub(super) fn settle_identity(&mut self) -> Result<Superblock, SpoolError> {
        if !self.writable {
            let absent = || SpoolError::Absent { path: self.dir.path().to_path_buf() };
            return self.superblock_of_shards()?.ok_or_else(absent);
        }
        let (identity, incident) = {
            let _guard = self.lock_directory()?;
            match self.read_identity()? {
                Ok(identity) => return Ok(identity),
                Err(HeaderFault::Version(found)) => {
                    return Err(self.unknown_version(DATABASE, found));
                }
                Err(HeaderFault::Damaged) => {}
            }
            let present = match files::info_at(self.dir.directory(), DATABASE) {
                Ok(facts) => {
                    self.dir.regular(DATABASE, &facts)?;
                    true
                }
                Err(_) => false,
            };
            let found = self.superblock_of_shards()?;
            let identity = match found {
                Some(superblock) => superblock,
                None => {
                    Superblock { version: self.versions.newest, ..Superblock::new(random_key()?) }
                }
            };
            let kept = if present { Some(self.keep_damaged(DATABASE)?) } else { None };
            self.write_identity(&identity)?;
            let path = self.path_of(DATABASE);
            let incident = match (&kept, found) {
                (None, None) => None,
                (None, Some(_)) => Some(format!(
                    "{} was lost and has been rebuilt; its settings are the defaults again",
                    path.display()
                )),
                (Some(kept), _) => Some(format!(
                    "{} was damaged and has been {}; its size limit is the default again; \
                     the damaged one is kept as {}",
                    path.display(),
                    if found.is_some() { "rebuilt" } else { "started again, empty" },
                    kept.to_string_lossy()
                )),
            };
            (identity, incident)
        };
        if let Some(incident) = incident {
            self.report(incident);
        }
        Ok(identity)
    }

    /// The contents of the file `database`.
    pub(super) fn identity(&self) -> Superblock {
        Superblock {
            version: self.version,
            max_bytes: self.max_bytes,
            ..Superblock::new(self.hashing.key)
        }
    }

    /// Sets the size limit of the database.
    pub(super) fn set_max_bytes(&mut self, max_bytes: u64) -> Result<(), SpoolError> {
        {
            let _guard = self.lock_directory()?;
            let identity = self.current_identity()?;
            self.write_identity(&Superblock { max_bytes, ..identity })?;
        }
        self.max_bytes = max_bytes;
        self.map_word();
        Ok(())
    }

    /// The limits of the event logs in the file `database`; the defaults where it has none
    /// that are sound.
    pub(super) fn stored_event_limits(&self) -> Result<EventLimits, SpoolError> {
        let Some((file, _)) = self.open_for(Access::Read, DATABASE)? else {
            return Ok(EventLimits::default());
        };
        let mut bytes = [0; DATABASE_FILE_BYTES];
        let length = files::read_start(&file, &mut bytes)
            .map_err(SpoolError::io("read", &self.path_of(DATABASE)))?;
        Ok(EventLimits::decode(bytes.get(DATABASE_EVENTS..length).unwrap_or(&[])))
    }

    /// The limits of the event logs in the file `database` as it is mapped: as they were
    /// at the latest check.
    pub(super) fn event_limits(&self) -> EventLimits {
        let map = self.word.as_ref().map(|word| &word.map);
        let bytes = map.and_then(|map| map.bytes(DATABASE_EVENTS, EVENT_LIMITS_BYTES));
        EventLimits::decode(bytes.unwrap_or(&[]))
    }

    /// Sets the limits of the event logs.
    pub(super) fn set_event_limits(&mut self, limits: EventLimits) -> Result<(), SpoolError> {
        {
            let _guard = self.lock_directory()?;
            self.write_database(&self.current_identity()?, limits)?;
        }
        self.map_word();
        Ok(())
    }

    /// Writes the file `database` again as it is. The caller has locked the directory.
    pub(super) fn rewrite_identity(&self) -> Result<(), SpoolError> {
        self.write_identity(&self.current_identity()?)
    }

    /// The contents of the file `database`, whose version may have been raised since it
    /// was opened.
    fn current_identity(&self) -> Result<Superblock, SpoolError> {
        match self.read_identity()? {
            Ok(identity) => Ok(identity),
            Err(HeaderFault::Version(found)) => Err(self.unknown_version(DATABASE, found)),
            Err(HeaderFault::Damaged) => Ok(self.identity()),
        }
    }

    /// Replaces the file `database` atomically. The caller has locked the directory.
    pub(super) fn write_identity(&self, identity: &Superblock) -> Result<(), SpoolError> {
        self.write_database(identity, self.stored_event_limits()?)
    }

    /// As [`Database::write_identity`], with other limits of the event logs.
    fn write_database(&self, identity: &Superblock, limits: EventLimits) -> Result<(), SpoolError> {
        self.replace_database(|word| {
            let mut bytes = [0; DATABASE_FILE_BYTES];
            let mut put = |offset: usize, part: &[u8]| {
                let places = bytes.iter_mut().skip(offset).zip(part);
                places.for_each(|(place, byte)| *place = *byte);
            };
            put(0, &identity.encode());
            put(DATABASE_WORD, &word.to_le_bytes());
            put(DATABASE_EVENTS, &limits.stored().encode());
            let file = self.create_file(DATABASE_NEW)?;
            let written = files::write_start(&file, &bytes)
                .and_then(|()| files::sync(&file))
                .and_then(|()| files::rename_at(self.dir.directory(), DATABASE_NEW, DATABASE));
            written.map_err(SpoolError::io("write", &self.path_of(DATABASE)))
        })
    }

    /// The superblock rebuilt from the headers of sound shards, if there are any: they
    /// repeat the key, and the highest of their versions is the one in use. A shard
    /// that cannot be opened is an error, since it may be the only sound one.
    fn superblock_of_shards(&self) -> Result<Option<Superblock>, SpoolError> {
        let mut found: Option<Superblock> = None;
        for number in 0..=u8::MAX {
            let name = shard_name(number);
            let mut bytes = [0; HEADER_CRC + 4];
            let Some((file, _)) = self.open_for(Access::Read, &name)? else { continue };
            let header = files::read_start(&file, &mut bytes)
                .map_or(Err(HeaderFault::Damaged), |_| Header::decode(&bytes, self.versions));
            match header {
                Ok(header) if header.shard == u32::from(number) => {
                    let first = found.unwrap_or(Superblock {
                        version: header.version,
                        ..Superblock::new(header.key)
                    });
                    let version = first.version.max(header.version);
                    found = Some(Superblock { version, ..first });
                }
                // The key is in that shard, in a form that this library cannot read.
                Err(HeaderFault::Version(found)) => return Err(self.unknown_version(&name, found)),
                _ => {}
            }
        }
        Ok(found)
    }
}

impl Superblock {
    /// That of a database with this key and the default size limit.
    pub(super) fn new(key: [u8; 16]) -> Self {
        Self {
            magic: DATABASE_MAGIC,
            version: VERSION,
            shards: SHARDS as u32,
            key,
            max_bytes: MAX_BYTES_DEFAULT,
        }
    }
}

/// 16 bytes from the system's random generator.
fn random_key() -> Result<[u8; 16], SpoolError> {
    let mut key = [0; 16];
    SysRng.try_fill_bytes(&mut key).map_err(|source| SpoolError::Random { source })?;
    Ok(key)
}
