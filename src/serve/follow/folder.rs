//! The directory of what the follower remembers: its files are replaced whole, and no link is
//! followed, as the directory is not root's.

use std::ffi::CStr;
use std::fs::File;
use std::io::{self, ErrorKind, Read as _};
use std::path::Path;

use crate::sys::files::{
    Access, REGULAR, info, open_at, open_directory, remove_at, rename_at, sync, write_start,
};

/// No file is longer.
const SIZE_MAX: u64 = 1 << 30;

/// The directory.
#[derive(Debug)]
pub(super) struct Folder(File);

impl Folder {
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        open_directory(path).map(Self)
    }

    /// A file, which is created if it is not there.
    pub(super) fn file(&self, name: &CStr) -> io::Result<File> {
        let opened = match open_at(&self.0, name, Access::Write) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                open_at(&self.0, name, Access::Create)
            }
            opened => opened,
        };
        regular(opened?)
    }

    /// What is in a file, if it is there.
    pub(super) fn read(&self, name: &CStr) -> io::Result<Option<Vec<u8>>> {
        let file = match open_at(&self.0, name, Access::Read) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            opened => regular(opened?)?,
        };
        let mut bytes = Vec::new();
        file.take(SIZE_MAX).read_to_end(&mut bytes)?;
        Ok(Some(bytes))
    }

    /// Replaces a file, or creates it. If `lasts`, it is on disk afterwards.
    pub(super) fn replace(
        &self,
        name: &CStr,
        new: &CStr,
        bytes: &[u8],
        lasts: bool,
    ) -> io::Result<()> {
        remove_at(&self.0, new)?;
        let file = open_at(&self.0, new, Access::Create)?;
        write_start(&file, bytes)?;
        if lasts {
            sync(&file)?;
        }
        rename_at(&self.0, new, name)?;
        if lasts { sync(&self.0) } else { Ok(()) }
    }

    /// A file, to append to it.
    pub(super) fn appended(&self, name: &CStr) -> io::Result<File> {
        regular(open_at(&self.0, name, Access::Append)?)
    }
}

fn regular(file: File) -> io::Result<File> {
    match info(&file)?.kind {
        REGULAR => Ok(file),
        kind => Err(io::Error::other(format!("a {kind} is in the place of a file"))),
    }
}
