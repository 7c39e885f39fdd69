//! The files of the trace store.
//!
//! A directory of logs and segments, shared by all processes. A message is
//! appended to the open log, under a lock; a log that is full is sealed into a
//! segment, in which messages take less and are found sooner. `FORMAT.md`
//! beside this folder lays down every byte, the order of all writes, and what
//! a process that is killed leaves behind.

mod access;
mod append;
mod ask;
mod best;
mod cipher;
mod codec;
mod copy;
mod error;
#[cfg(test)]
mod full_tests;
#[cfg(test)]
mod image_tests;
mod key;
#[cfg(test)]
mod kill_tests;
mod layout;
mod log;
mod mirrored;
#[cfg(test)]
mod mix;
#[cfg(test)]
mod model_tests;
mod names;
mod options;
mod query;
mod record;
mod repair;
#[cfg(test)]
mod repair_tests;
mod retain;
mod run_query;
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
mod wire;

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::sys::fork;
use crate::sys::secure_dir::SecureDir;

pub use best::Tally;
pub use copy::Copied;
pub use error::{Problem, TraceError};
pub use options::{KEEP_DEFAULT, KEEP_MIN, Options, TRACE_BYTES_DEFAULT, TRACE_BYTES_MIN};
pub use query::{Address, Answer, Match, Query, QuerySummary};
pub use repair::Repaired;
pub use retain::Tidied;
pub use stats::TraceStats;
pub use verify::Verified;

use super::decode;
use key::Key;
use layout::{FILE_MODE, LOCK_TIMEOUT, VERSION};
use log::Limits;

/// How many incidents are kept for [`TraceStore::take_incidents`].
const INCIDENTS_MAX: usize = 100;

/// How the store is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Asking only: nothing is made or changed.
    Read,
    /// Recording as well: what is missing is made.
    Write,
}

/// The trace store, open.
///
/// Opening it reads its key and its settings; logs and segments are opened
/// when they are needed. After a fork, the child may go on using it.
#[derive(Debug)]
pub struct TraceStore {
    dir: SecureDir,
    key: Key,
    /// The file that the key is in.
    key_file: Option<(u64, u64)>,
    options: Options,
    writable: bool,
    process: u32,
    limits: Limits,
    /// The log of the latest record: most often it takes the next one as well.
    latest: Option<log::Log>,
    /// What the administrator should know of.
    incidents: Vec<String>,
}

/// Where the trace store of a spool directory is: `exirate/trace` in it.
#[must_use]
pub fn trace_directory(spool: &Path) -> PathBuf {
    spool.join("exirate").join("trace")
}

impl TraceStore {
    /// Opens the store in `directory`, which is `exirate/trace` in Exim's spool
    /// directory (see [`trace_directory`]): all that is made belongs to the
    /// owner and group of the directory two levels above it.
    ///
    /// # Errors
    /// The directory, the key or the settings cannot be used.
    pub fn open(directory: &Path, access: Access) -> Result<Self, TraceError> {
        let writable = access == Access::Write;
        let absent = || TraceError::Absent { path: directory.to_path_buf() };
        let above = directory.parent().ok_or_else(absent)?;
        let spool = match above.parent().ok_or_else(absent)? {
            spool if spool.as_os_str().is_empty() => Path::new("."),
            spool => spool,
        };
        let names = [above, directory].map(|path| path.file_name().map(|name| name.as_bytes()));
        let [Some(above), Some(name)] = names else { return Err(absent()) };
        let names = [above, name].map(|name| CString::new(name).unwrap_or_default());
        let dir = SecureDir::open(spool, &names.each_ref().map(|name| name.as_c_str()), writable)?;
        let key = Key::open(&dir, writable)?;
        let key_file = key::identity(&dir);
        let options = Options::read(&dir)?;
        let process = fork::process();
        let (limits, latest, incidents) = (Limits::default(), None, Vec::new());
        Ok(Self { dir, key, key_file, options, writable, process, limits, latest, incidents })
    }

    /// The store's directory.
    #[must_use]
    pub fn directory(&self) -> &Path {
        self.dir.path()
    }

    /// Whether what has the store's name, and its key, are still what was opened:
    /// they may have been moved, removed or destroyed since.
    #[must_use]
    pub fn is_current(&self) -> bool {
        self.dir.is_current() && self.key_file == key::identity(&self.dir)
    }

    /// Refuses to change a store that is open for reading only.
    fn require_writable(&self) -> Result<(), TraceError> {
        if self.writable {
            return Ok(());
        }
        Err(TraceError::ReadOnly { path: self.directory().to_path_buf() })
    }

    /// Opens the directory anew in a child: a lock belongs to the open file
    /// that it shares with its parent, so both would hold it at once.
    fn after_fork(&mut self) -> Result<(), TraceError> {
        let process = fork::process();
        if process != self.process {
            self.dir.reopen()?;
            self.process = process;
        }
        Ok(())
    }

    /// Takes what the administrator should know of: damage that was found, and
    /// what could not be done besides recording. One sentence each.
    pub fn take_incidents(&mut self) -> Vec<String> {
        std::mem::take(&mut self.incidents)
    }

    /// Notes something that the administrator should know.
    fn report(&mut self, incident: String) {
        if self.incidents.len() < INCIDENTS_MAX {
            self.incidents.push(incident);
        }
    }

    /// The digest of a message, and whether all of it is in it.
    fn digest(&self, message: &[u8]) -> (Vec<u8>, bool) {
        let scheme = self.options.settings.scheme(&self.key.digest);
        let mut digester = scheme.digester();
        let whole =
            decode::decode(message, &decode::Limits::default(), &mut |piece| digester.add(piece));
        (digester.finish(), whole)
    }
}

impl TraceStore {
    /// What the administrator has chosen, as it was when the store was opened
    /// or last recorded to.
    #[must_use]
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Chooses from now on; messages that were recorded stay digested as they
    /// are. Times and sizes under their least become these.
    ///
    /// # Errors
    /// They cannot be written; then nothing has changed.
    pub fn set_options(&mut self, options: Options) -> Result<(), TraceError> {
        self.require_writable()?;
        self.after_fork()?;
        let options = options.bounded();
        let _guard = self.dir.lock_directory(LOCK_TIMEOUT)?;
        if !options.are_in(&self.dir)? {
            mirrored::write(
                &self.dir,
                options::SETTINGS,
                options::SETTINGS_NEW,
                FILE_MODE,
                &options.to_file(),
            )?;
        }
        self.options = options;
        Ok(())
    }
}
