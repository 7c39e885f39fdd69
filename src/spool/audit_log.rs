//! The log of changes made by administrators, in the database's directory.

use std::ffi::CStr;
use std::fs::File;
use std::io::Write as _;
use std::ops::Range;

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

impl Spool {
    /// Calls `find` with each line of the log and of the previous one, and counts those in
    /// which it finds something. With `overwrite`, the bytes that it finds are replaced by
    /// `*`, so that lines keep their places while other processes append.
    ///
    /// # Errors
    /// A log could not be read or written.
    pub fn find_in_audit_log(
        &mut self,
        find: &dyn Fn(&[u8]) -> Vec<Range<usize>>,
        overwrite: bool,
    ) -> Result<u64, SpoolError> {
        self.with_files(|database| {
            if overwrite {
                database.require_writable()?;
            }
            // No log is renamed meanwhile.
            let _guard = database.lock_directory()?;
            let access = if overwrite { Access::Write } else { Access::Read };
            let mut lines = 0;
            for name in [LOG_BEFORE, LOG] {
                let Some((file, facts)) = database.open_for(access, name)? else { continue };
                let path = database.path_of(name);
                let mut bytes = vec![0; usize::try_from(facts.size).unwrap_or(usize::MAX)];
                let read = files::read_at(&file, 0, &mut bytes);
                bytes.truncate(read.map_err(SpoolError::io("read", &path))?);
                let mut start = 0;
                for line in bytes.split_inclusive(|b| *b == b'\n') {
                    let found = find(line);
                    lines += u64::from(!found.is_empty());
                    for place in found.into_iter().filter(|_| overwrite) {
                        let stars = vec![b'*'; place.len()];
                        files::write_at(&file, (start + place.start) as u64, &stars)
                            .map_err(SpoolError::io("write", &path))?;
                    }
                    start += line.len();
                }
            }
            Ok(lines)
        })
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

    #[test]
    fn what_is_found_in_both_logs_is_overwritten_in_place() {
        let folder = tempfile::tempdir().unwrap();
        let mut spool = Spool::open(folder.path(), Options::default()).unwrap();
        spool.log_change(&format!("one secret{}", "x".repeat(LOG_BYTES as usize))).unwrap();
        spool.log_change("two secret, secret").unwrap();
        spool.log_change("three").unwrap();
        let find = |line: &[u8]| {
            let at = line.windows(6).enumerate().filter(|(_, part)| part == b"secret");
            at.map(|(at, _)| at..at + 6).collect::<Vec<_>>()
        };
        assert_eq!(spool.find_in_audit_log(&find, false).unwrap(), 2);
        assert_eq!(spool.find_in_audit_log(&find, true).unwrap(), 2);
        assert_eq!(spool.find_in_audit_log(&find, true).unwrap(), 0);
        let path = spool.directory().join("audit.log");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "two ******, ******\nthree\n");
        let before = std::fs::read_to_string(path.with_extension("log.1")).unwrap();
        assert!(before.starts_with("one ******x"));
        let mut reader = Spool::open_existing(folder.path(), Options::default()).unwrap();
        assert!(matches!(reader.find_in_audit_log(&find, true), Err(SpoolError::ReadOnly { .. })));
    }
}
