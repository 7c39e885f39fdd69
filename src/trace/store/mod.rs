//! The files of the trace store.
//!
//! A directory of logs and segments, shared by all processes. A message is
//! appended to the open log, under a lock; a full log is sealed into a segment,
//! in which messages take less space and are found faster. `FORMAT.md` in the
//! folder above specifies every byte, the order of all writes, and what a
//! killed process leaves behind.

mod access;
mod append;
mod best_results;
mod cipher;
mod codec;
mod copy;
mod erase;
mod error;
#[cfg(test)]
mod full_tests;
#[cfg(test)]
mod image_tests;
mod key;
mod keyless;
#[cfg(test)]
mod kill_tests;
mod layout;
mod log;
mod merge;
mod mirrored;
#[cfg(test)]
mod model_tests;
mod names;
mod options;
mod query;
mod query_file;
mod record;
mod repair;
#[cfg(test)]
mod repair_tests;
mod retain;
mod run_query;
mod sample;
#[cfg(test)]
mod sample_envelopes;
mod seal;
mod segment;
#[cfg(test)]
mod sigkill_tests;
#[cfg(test)]
mod sigkill_work;
mod sources;
mod stats;
#[cfg(test)]
mod tests;
mod verify;
#[cfg(test)]
mod version_tests;
mod wire;

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process;

use crate::sys::secure_dir::{DirError, SecureDir};

pub use copy::Copied;
pub use erase::{ERASED, ErasedEnvelopes};
pub use error::{Problem, TraceError};
pub use options::{KEEP_DEFAULT, KEEP_MIN, Options, TRACE_BYTES_DEFAULT, TRACE_BYTES_MIN};
pub use query::{Accepts, Address, Match, Query, QueryResult, QuerySummary};
pub use repair::Repaired;
pub use retain::Tidied;
pub use sample::Sample;
pub use stats::TraceStats;
pub use verify::Verified;

use super::{DigestKey, Scheme, Settings, decode};
use key::DerivedKeys;
use layout::{FILE_MODE, LOCK_TIMEOUT, VERSIONS};
use log::LogLimits;

/// How many incidents are kept for [`TraceStore::take_incidents`].
const INCIDENTS_MAX: usize = 100;

/// How the store is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// For queries only: nothing is created or changed.
    Read,
    /// For recording as well: missing files are created.
    Write,
}

/// An open trace store.
///
/// Opening it reads its key and its settings; logs and segments are opened when
/// they are needed. After a fork, the child process can continue to use it.
#[derive(Debug)]
pub struct TraceStore {
    dir: SecureDir,
    key: DerivedKeys,
    /// Identifies the key file.
    key_file: Option<(u64, u64)>,
    options: Options,
    writable: bool,
    process: u32,
    limits: LogLimits,
    /// The log of the last record, which usually takes the next one too.
    open_log: Option<log::Log>,
    /// What digested the last message.
    digesting: Option<Digesting>,
    /// Messages for the administrator.
    incidents: Vec<String>,
}

/// The trace store of a spool directory: `exirate/trace` in it.
#[must_use]
pub fn trace_directory(spool: &Path) -> PathBuf {
    spool.join("exirate").join("trace")
}

impl TraceStore {
    /// Opens that of the spool directory `spool`, if there is one.
    ///
    /// # Errors
    /// It cannot be used.
    pub fn open_if_any(spool: &Path, access: Access) -> Result<Option<Self>, TraceError> {
        let directory = trace_directory(spool);
        // Read first: opening it for writing would create it.
        match Self::open(&directory, Access::Read) {
            Ok(store) if access == Access::Read => Ok(Some(store)),
            Ok(_) => Ok(Some(Self::open(&directory, access)?)),
            Err(TraceError::Absent { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Opens the store in `directory`, which is `exirate/trace` in Exim's spool
    /// directory (see [`trace_directory`]). New files belong to the owner and
    /// group of the directory two levels above it.
    ///
    /// # Errors
    /// The directory, the key or the settings cannot be used.
    pub fn open(directory: &Path, access: Access) -> Result<Self, TraceError> {
        let writable = access == Access::Write;
        let dir = Self::open_directory(directory, writable)?;
        let key = DerivedKeys::open(&dir, writable)?;
        let key_file = key::identity(&dir);
        let options = Options::read(&dir)?;
        let (limits, open_log, digesting, incidents) =
            (LogLimits::default(), None, None, Vec::new());
        Ok(Self {
            dir,
            key,
            key_file,
            options,
            writable,
            process: process::id(),
            limits,
            open_log,
            digesting,
            incidents,
        })
    }

    fn open_directory(directory: &Path, writable: bool) -> Result<SecureDir, TraceError> {
        let absent = || TraceError::Absent { path: directory.to_path_buf() };
        let above = directory.parent().ok_or_else(absent)?;
        let spool = match above.parent().ok_or_else(absent)? {
            spool if spool.as_os_str().is_empty() => Path::new("."),
            spool => spool,
        };
        let names = [above, directory].map(|path| path.file_name().map(|name| name.as_bytes()));
        let [Some(above), Some(name)] = names else { return Err(absent()) };
        let names = [above, name].map(|name| CString::new(name).unwrap_or_default());
        let names = names.each_ref().map(|name| name.as_c_str());
        SecureDir::open(spool, &names, writable).map_err(|error| match error {
            // It may be the directory above that is missing.
            DirError::Absent { .. } => absent(),
            error => error.into(),
        })
    }

    /// The store's directory.
    #[must_use]
    pub fn directory(&self) -> &Path {
        self.dir.path()
    }

    /// Whether the directory and the key file are still those that were opened,
    /// and not moved, removed or replaced.
    #[must_use]
    pub fn is_current(&self) -> bool {
        self.dir.is_current() && self.key_file == key::identity(&self.dir)
    }

    /// Returns an error if the store is open for reading only.
    fn require_writable(&self) -> Result<(), TraceError> {
        if self.writable {
            return Ok(());
        }
        Err(TraceError::ReadOnly { path: self.directory().to_path_buf() })
    }

    /// Opens the directory again in a child process: a lock belongs to the open
    /// file that parent and child share, so both would hold it at once.
    fn after_fork(&mut self) -> Result<(), TraceError> {
        let process = process::id();
        if process != self.process {
            self.dir.reopen()?;
            self.process = process;
        }
        Ok(())
    }

    /// Takes the messages for the administrator: damage that was found, and
    /// failures other than of recording. One sentence each.
    pub fn take_incidents(&mut self) -> Vec<String> {
        std::mem::take(&mut self.incidents)
    }

    /// Adds a message for the administrator.
    fn report(&mut self, incident: String) {
        if self.incidents.len() < INCIDENTS_MAX {
            self.incidents.push(incident);
        }
    }

    /// The digest of a message, and whether it is complete.
    fn digest(&mut self, message: &[u8]) -> (Vec<u8>, bool) {
        let digesting = self.digesting.take().filter(|digesting| {
            (digesting.settings, digesting.key) == (self.options.settings, self.key.digest)
        });
        let digesting =
            digesting.unwrap_or_else(|| Digesting::new(self.options.settings, self.key.digest));
        let mut digester = digesting.scheme.digester();
        let extent =
            decode::decode_parts(message, &decode::Limits::default(), &mut |part, piece| {
                digester.begin(part);
                digester.add(piece);
            });
        let digest = digester.finish();
        self.digesting = Some(digesting);
        (digest, extent.is_whole())
    }
}

/// A scheme, which is prepared once for many messages.
struct Digesting {
    settings: Settings,
    key: DigestKey,
    scheme: Box<dyn Scheme>,
}

impl Digesting {
    fn new(settings: Settings, key: DigestKey) -> Self {
        Self { settings, key, scheme: settings.scheme(&key) }
    }
}

impl std::fmt::Debug for Digesting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Digesting {{ settings: {:?}, .. }}", self.settings)
    }
}

impl TraceStore {
    /// The administrator's settings, as they were when the store was opened or
    /// last recorded to.
    #[must_use]
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Changes the settings for new messages; recorded messages keep their
    /// digests. Values below the minimum are raised to it.
    ///
    /// # Errors
    /// They cannot be written; nothing has changed.
    pub fn set_options(&mut self, options: Options) -> Result<(), TraceError> {
        self.require_writable()?;
        self.after_fork()?;
        let options = options.bounded();
        let _guard = self.dir.lock_directory(LOCK_TIMEOUT)?;
        if !options.are_in(&self.dir, self.key.version)? {
            mirrored::write(
                &self.dir,
                options::SETTINGS,
                options::SETTINGS_NEW,
                FILE_MODE,
                &options.to_file(self.key.version),
            )?;
        }
        self.options = options;
        Ok(())
    }
}
