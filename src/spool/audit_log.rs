//! The log of changes made by administrators, in the database's directory.

use std::ffi::CStr;
use std::fs::File;
use std::io::Write as _;

use crate::sys::files::{self, Access};

use super::database::Database;
use super::{Spool, SpoolError};

/// The log.
pub(super) const LOG: &CStr = c"audit.log";
/// The previous one.
pub(super) const LOG_BEFORE: &CStr = c"audit.log.1";
/// Its largest size in bytes.
const LOG_BYTES: u64 = 1 << 20;

impl Spool {
    /// Appends a line to `audit.log` in the database's directory, in one write, so that
    /// lines of several processes do not mix. If the log exceeds 1 MiB, it is renamed to
    /// `audit.log.1` first.
    ///
    /// # Errors
    /// It could not be written; nothing else depends on it.
    pub fn log_change(&mut self, line: &str) -> Result<(), SpoolError> {
        let mut file = self.with_files(|database| open_log(database))?;
        let line = format!("{line}\n");
        file.write_all(line.as_bytes())
            .map_err(SpoolError::io("write", &self.database.path_of(LOG)))
    }
}

/// Opens the log, after renaming it if it is full.
fn open_log(database: &Database) -> Result<File, SpoolError> {
    database.require_writable()?;
    if let Some(file) = log_with_room(database)? {
        return Ok(file);
    }
    let _guard = database.lock_directory()?;
    // Another process may have been faster.
    if let Some(file) = log_with_room(database)? {
        return Ok(file);
    }
    let path = database.path_of(LOG);
    if files::info_at(database.dir.directory(), LOG).is_ok() {
        files::rename_at(database.dir.directory(), LOG, LOG_BEFORE)
            .map_err(SpoolError::io("rename", &path))?;
    }
    database.create_file(LOG)
}

fn log_with_room(database: &Database) -> Result<Option<File>, SpoolError> {
    let log = database.open_for(Access::Append, LOG)?;
    Ok(log.filter(|(_, facts)| facts.size < LOG_BYTES).map(|(file, _)| file))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt as _, symlink};

    use crate::spool::Options;

    use super::*;
    use crate::sys::secure_dir::DirError;

    #[test]
    fn a_long_log_is_started_again() {
        let folder = tempfile::tempdir().unwrap();
        let mut spool = Spool::open(folder.path(), Options::default()).unwrap();
        let path = spool.directory().join("audit.log");
        spool.log_change("one").unwrap();
        spool.log_change("two").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "one\ntwo\n");
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o7777, 0o640);
        spool.log_change(&"x".repeat(LOG_BYTES as usize)).unwrap();
        spool.log_change("three").unwrap();
        spool.log_change("four").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "three\nfour\n");
        let before = std::fs::read_to_string(path.with_extension("log.1")).unwrap();
        assert!(before.starts_with("one\ntwo\nxxx"));
    }

    #[test]
    fn nothing_is_written_through_a_link() {
        let folder = tempfile::tempdir().unwrap();
        let mut spool = Spool::open(folder.path(), Options::default()).unwrap();
        let other = folder.path().join("other");
        std::fs::write(&other, "mine").unwrap();
        symlink(&other, spool.directory().join("audit.log")).unwrap();
        assert!(matches!(
            spool.log_change("x"),
            Err(SpoolError::Directory(DirError::WrongKind { .. }))
        ));
        assert_eq!(std::fs::read_to_string(&other).unwrap(), "mine");
        let mut reader = Spool::open_existing(folder.path(), Options::default()).unwrap();
        assert!(matches!(reader.log_change("x"), Err(SpoolError::ReadOnly { .. })));
    }
}
