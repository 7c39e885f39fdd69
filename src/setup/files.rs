//! Files of the configuration, and their lines: each change of a file is a rename, and a step at
//! which a setup may be killed.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{
    DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, fchown,
};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rustix::process::{Signal, getpid, kill_process};

use super::error::SetupError;

/// A failpoint: counts the steps that another process can see.
#[derive(Debug)]
pub(crate) struct Steps {
    left: Cell<Option<u32>>,
}

impl Steps {
    /// The process kills itself after so many steps; with `None`, never.
    pub(crate) fn new(left: Option<u32>) -> Self {
        Self { left: Cell::new(left) }
    }

    /// Makes one step.
    pub(super) fn step(&self) {
        match self.left.get() {
            // As `kill -9` does: nothing is tidied up.
            Some(0) => drop(kill_process(getpid(), Signal::KILL)),
            left => self.left.set(left.map(|left| left - 1)),
        }
    }
}

/// Each line with its end.
pub(super) fn lines_of(text: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    let mut end = 0;
    text.split_inclusive(|&byte| byte == b'\n').map(move |line| {
        let start = end;
        end += line.len();
        (start, line)
    })
}

/// Where the first line begins that `is_it`.
pub(super) fn line_at(text: &[u8], is_it: impl Fn(&[u8]) -> bool) -> Option<usize> {
    lines_of(text).find(|(_, line)| is_it(line)).map(|(start, _)| start)
}

/// A directory for a configuration beside the one in use; it is removed when this is dropped.
#[derive(Debug)]
pub(super) struct Temporary(PathBuf);

impl Temporary {
    /// Makes one, which only root can write to.
    pub(super) fn make(mode: u32) -> Result<Self, SetupError> {
        let name = format!("exirate-setup-{:016x}", rand::random::<u64>());
        let path = std::env::temp_dir().join(name);
        let made = fs::DirBuilder::new().mode(mode).create(&path);
        made.map_err(SetupError::file("make the directory", &path))?;
        Ok(Self(path))
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    /// Copies a file into it, as it would be with these changes.
    pub(super) fn copy(&self, from: &Path, changed: &Contents) -> Result<PathBuf, SetupError> {
        let bytes = match changed.get(from) {
            Some(Some(bytes)) => bytes.clone(),
            _ => fs::read(from).map_err(SetupError::file("read", from))?,
        };
        let to = self.0.join(from.file_name().unwrap_or_default());
        let written = || {
            let mut file = File::create(&to)?;
            file.write_all(&bytes)?;
            is_complete(&file)
        };
        written().map_err(SetupError::file("write", &to))?;
        Ok(to)
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The bytes that files are to have; `None` where a file is to be gone.
pub(crate) type Contents = BTreeMap<PathBuf, Option<Vec<u8>>>;

/// The file beside `path` that is renamed to it. Nothing reads it: Debian's Exim passes over
/// names with a dot in them.
fn beside(path: &Path) -> PathBuf {
    let mut name = OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(".exirate-setup");
    path.with_file_name(name)
}

/// Postfix waits until its main.cf is two seconds old, in each process that starts: an editor
/// may still be writing it. Here nobody is.
fn is_complete(file: &File) -> io::Result<()> {
    file.set_modified(SystemTime::now() - Duration::from_secs(3))
}

/// Where `path` leads to.
fn real(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}

/// What is in the file; `None` if there is none.
///
/// # Errors
/// It cannot be read.
pub(crate) fn read(path: &Path) -> Result<Option<Vec<u8>>, SetupError> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(SetupError::file("read", path)(error)),
    }
}

/// Puts `bytes` in the place of what the file contains, in one step; its owner and mode stay.
pub(super) fn replace(path: &Path, bytes: &[u8], steps: &Steps) -> Result<(), SetupError> {
    let path = real(path);
    let facts = path.metadata().map_err(SetupError::file("read", &path))?;
    put(&path, bytes, facts.mode() & 0o7777, Some((facts.uid(), facts.gid())), steps)
}

/// Creates the file, in one step.
pub(super) fn create(
    path: &Path,
    bytes: &[u8],
    mode: u32,
    steps: &Steps,
) -> Result<(), SetupError> {
    put(path, bytes, mode, None, steps)
}

fn put(
    path: &Path,
    bytes: &[u8],
    mode: u32,
    owner: Option<(u32, u32)>,
    steps: &Steps,
) -> Result<(), SetupError> {
    let new = beside(path);
    let written = || {
        match fs::remove_file(&new) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
        steps.step();
        file.write_all(bytes)?;
        if let Some((uid, gid)) = owner {
            fchown(&file, Some(uid), Some(gid))?;
        }
        file.set_permissions(fs::Permissions::from_mode(mode))?;
        is_complete(&file)?;
        file.sync_all()?;
        steps.step();
        fs::rename(&new, path)
    };
    written().map_err(|error| {
        let _ = fs::remove_file(&new);
        SetupError::file("write", path)(error)
    })?;
    steps.step();
    sync_directory(path);
    Ok(())
}

/// Removes a file, and what a killed process has left beside it.
pub(super) fn remove(path: &Path, steps: &Steps) -> Result<(), SetupError> {
    clean(path);
    // On a file system that is read-only, removing what is not there is an error.
    if matches!(path.symlink_metadata(), Err(error) if error.kind() == io::ErrorKind::NotFound) {
        return Ok(());
    }
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(SetupError::file("remove", path)(error))
        }
        _ => {
            steps.step();
            sync_directory(path);
            Ok(())
        }
    }
}

/// Removes what a killed process has left beside a file.
pub(super) fn clean(path: &Path) {
    let _ = fs::remove_file(beside(&real(path)));
}

/// Has the name survive a power failure, where the file system can do that.
fn sync_directory(path: &Path) {
    if let Some(Ok(directory)) = path.parent().map(File::open) {
        let _ = directory.sync_all();
    }
}
