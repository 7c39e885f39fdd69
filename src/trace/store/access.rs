//! The owner and mode of the store's files.

use std::ffi::{CStr, CString};

use crate::sys::files;
use crate::sys::secure_dir::{DirError, SecureDir};

use super::error::Problem;
use super::key::{KEY, KEY_MODE, KEY_NEW};
use super::names::{self, OPEN, OPEN_NEW};
use super::options::{SETTINGS, SETTINGS_NEW};
use super::seal::{SEALING, SEGMENT_NEW};
use super::{FILE_MODE, TraceStore};

/// Files being written, which only their writer uses.
pub(super) const FILES_NEW: [&CStr; 4] = [KEY_NEW, SETTINGS_NEW, OPEN_NEW, SEGMENT_NEW];

/// The names of all files of the store, except those being written, and the
/// mode that each should have.
pub(super) fn files_of(dir: &SecureDir) -> Result<Vec<(CString, u32)>, DirError> {
    let numbered = names::list_all(dir)?.into_iter().map(|numbered| numbered.name());
    let all = [SETTINGS, SEALING, OPEN].map(CStr::to_owned).into_iter().chain(numbered);
    let all = all.map(|name| (name, FILE_MODE));
    Ok([(KEY.to_owned(), KEY_MODE)].into_iter().chain(all).collect())
}

impl TraceStore {
    /// What is wrong with the owner or mode of a file; `None` if nothing is, or
    /// the file does not exist.
    pub(super) fn access_fault(&self, name: &CStr, mode: u32) -> Option<String> {
        let info = files::info_at(self.dir.directory(), name).ok()?;
        if info.kind != files::REGULAR {
            return None;
        }
        // The key decrypts all other files.
        if mode == KEY_MODE && info.mode & 0o077 != 0 {
            let (found, right) = (info.mode, KEY_MODE);
            return Some(format!(
                "users other than its owner can read it (mode {found:04o}): it should have mode \
                 {right:04o}"
            ));
        }
        self.dir.access_fault(&info, mode)
    }

    /// What is wrong with the owners and modes of the directory and its files.
    pub(super) fn access_faults(&self) -> Result<Vec<Problem>, DirError> {
        let directory = self.dir.directory_fault();
        let path = self.directory().to_path_buf();
        let mut problems: Vec<_> =
            directory.into_iter().map(|what| Problem { path: path.clone(), what }).collect();
        for (name, mode) in files_of(&self.dir)? {
            let fault = self.access_fault(&name, mode);
            problems.extend(fault.map(|what| Problem { path: self.dir.path_of(&name), what }));
        }
        Ok(problems)
    }
}
