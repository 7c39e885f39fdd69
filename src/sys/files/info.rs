//! File metadata.

use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::path::Path;

use rustix::fs::{self, AtFlags, FileType, Stat};

use super::retry;

/// Metadata of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileInfo {
    /// Device and inode, which identify the file whatever its name.
    pub identity: (u64, u64),
    /// `regular file`, `directory`, `symbolic link`, `FIFO`, …
    pub kind: &'static str,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Permission bits.
    pub mode: u32,
    /// Number of hard links.
    pub links: u64,
    /// Length in bytes.
    pub size: u64,
    /// Bytes allocated on disk.
    pub disk: u64,
    /// Time of the last change of its contents, in seconds since 1970.
    pub modified: i64,
}

/// `kind` of a regular file.
pub const REGULAR: &str = "regular file";
/// `kind` of a directory.
pub const DIRECTORY: &str = "directory";

impl From<Stat> for FileInfo {
    // The fields of `Stat` have other types on other machines.
    #[allow(clippy::useless_conversion, clippy::unnecessary_cast)]
    fn from(stat: Stat) -> Self {
        let kind = match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => REGULAR,
            FileType::Directory => DIRECTORY,
            FileType::Symlink => "symbolic link",
            FileType::Fifo => "FIFO",
            FileType::Socket => "socket",
            FileType::CharacterDevice | FileType::BlockDevice => "device",
            FileType::Unknown => "file of an unknown kind",
        };
        Self {
            identity: (stat.st_dev as u64, stat.st_ino as u64),
            kind,
            uid: stat.st_uid,
            gid: stat.st_gid,
            mode: stat.st_mode as u32 & 0o7777,
            links: stat.st_nlink as u64,
            size: u64::try_from(stat.st_size).unwrap_or(0),
            disk: u64::try_from(stat.st_blocks).unwrap_or(0).saturating_mul(512),
            modified: stat.st_mtime as i64,
        }
    }
}

/// Metadata of an open file.
///
/// # Errors
/// Those of `fstat`.
pub fn info(file: &File) -> io::Result<FileInfo> {
    retry(|| fs::fstat(file)).map(FileInfo::from)
}

/// Metadata of the entry with this name in `directory`; a symbolic link is not
/// followed.
///
/// # Errors
/// Those of `fstatat`, mostly `NotFound`.
pub fn info_at(directory: &File, name: &CStr) -> io::Result<FileInfo> {
    retry(|| fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)).map(FileInfo::from)
}

/// Metadata of a path; symbolic links are followed.
///
/// # Errors
/// Those of `stat`.
pub fn info_of(path: &Path) -> io::Result<FileInfo> {
    retry(|| fs::stat(path)).map(FileInfo::from)
}
