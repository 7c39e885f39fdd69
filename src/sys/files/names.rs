//! Directory entries: listing, renaming, linking, removing.

use std::ffi::{CStr, CString};
use std::fs::File;
use std::io;

use rustix::fs::{self, AtFlags, RenameFlags};

use super::retry;
#[cfg(test)]
use crate::sys::write_trace::{self, Write};

/// Up to `limit` names in a directory, unordered, without `.` and `..`.
///
/// # Errors
/// Those of `openat` and `getdents`.
pub fn names(directory: &File, limit: usize) -> io::Result<Vec<CString>> {
    let mut names = Vec::new();
    for entry in retry(|| fs::Dir::read_from(directory))? {
        let entry = entry?;
        let name = entry.file_name();
        if name != c"." && name != c".." && names.len() < limit {
            names.push(name.to_owned());
        }
    }
    Ok(names)
}

/// Renames within `directory`, atomically replacing an existing target.
///
/// # Errors
/// Those of `renameat`.
pub fn rename_at(directory: &File, from: &CStr, to: &CStr) -> io::Result<()> {
    retry(|| fs::renameat(directory, from, directory, to))?;
    #[cfg(test)]
    note_renamed(directory, from, to);
    Ok(())
}

/// Renames within `directory`, unless the new name is taken.
///
/// # Errors
/// Those of `renameat2`, mostly `AlreadyExists`.
pub fn rename_new_at(directory: &File, from: &CStr, to: &CStr) -> io::Result<()> {
    retry(|| fs::renameat_with(directory, from, directory, to, RenameFlags::NOREPLACE))?;
    #[cfg(test)]
    note_renamed(directory, from, to);
    Ok(())
}

#[cfg(test)]
fn note_renamed(directory: &File, from: &CStr, to: &CStr) {
    write_trace::note(|| Write::Renamed {
        directory: write_trace::id(directory),
        from: from.to_owned(),
        to: to.to_owned(),
    });
}

/// Gives a file a second name within `directory`.
///
/// # Errors
/// Those of `linkat`, mostly `AlreadyExists`.
pub fn link_at(directory: &File, from: &CStr, to: &CStr) -> io::Result<()> {
    retry(|| fs::linkat(directory, from, directory, to, AtFlags::empty()))?;
    #[cfg(test)]
    write_trace::note(|| Write::Linked {
        directory: write_trace::id(directory),
        from: from.to_owned(),
        to: to.to_owned(),
    });
    Ok(())
}

/// Removes a file; a missing file is not an error.
///
/// # Errors
/// Those of `unlinkat`.
pub fn remove_at(directory: &File, name: &CStr) -> io::Result<()> {
    absent_is_fine(retry(|| fs::unlinkat(directory, name, AtFlags::empty())))?;
    #[cfg(test)]
    write_trace::note(|| Write::Removed {
        directory: write_trace::id(directory),
        name: name.to_owned(),
    });
    Ok(())
}

/// Removes an empty directory; a missing one is not an error.
///
/// # Errors
/// Those of `unlinkat`.
pub fn remove_directory_at(directory: &File, name: &CStr) -> io::Result<()> {
    absent_is_fine(retry(|| fs::unlinkat(directory, name, AtFlags::REMOVEDIR)))?;
    #[cfg(test)]
    write_trace::note(|| Write::Removed {
        directory: write_trace::id(directory),
        name: name.to_owned(),
    });
    Ok(())
}

/// Turns `NotFound` into success.
fn absent_is_fine(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}
