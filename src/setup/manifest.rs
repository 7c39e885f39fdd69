//! What setup has added to this machine: `manifest.json`, written before the first change.

use std::fs::{self, File};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::change::Change;
use super::error::SetupError;
use super::files;
use super::files::Steps;
use crate::sys::lock::{self, LockKind};
use crate::versions::{OtherVersion, Versions};

/// The directory of the manifest. It is root's alone: what stands there is removed by `--undo`.
pub(crate) const DIRECTORY: &str = "/var/lib/exirate-setup";
const FILE: &str = "manifest.json";
const VERSION: u32 = 1;

/// A change that was made, or was about to be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ManifestEntry {
    /// It is one of the mail server's configuration.
    pub(super) configuration: bool,
    pub(super) change: Change,
}

/// What setup has added.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Manifest {
    version: u32,
    /// All of it is in force: setup was not killed on the way.
    pub(super) finished: bool,
    /// In the order in which it was made.
    pub(super) entries: Vec<ManifestEntry>,
}

/// What a manifest of any version has.
#[derive(Deserialize)]
struct Start {
    version: u32,
}

impl Default for Manifest {
    fn default() -> Self {
        Self { version: VERSION, finished: true, entries: Vec::new() }
    }
}

/// The directory of the manifest, which only one setup uses at a time.
#[derive(Debug)]
pub(super) struct Directory {
    path: PathBuf,
    file: File,
}

impl Directory {
    /// Makes it.
    pub(super) fn make(path: &Path) -> Result<Self, SetupError> {
        match fs::DirBuilder::new().mode(0o700).create(path) {
            Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
                return Err(SetupError::file("make the directory", path)(error));
            }
            _ => {}
        }
        let file = File::open(path).map_err(SetupError::file("open", path))?;
        Ok(Self { path: path.to_owned(), file })
    }

    /// Has no other setup change anything until the guard is dropped.
    pub(super) fn lock(&self) -> Result<lock::Guard<'_>, SetupError> {
        lock::try_lock(&self.file, LockKind::Exclusive)
            .map_err(SetupError::file("lock", &self.path))?
            .ok_or_else(|| SetupError::Unfit("another `exirate setup` is running".to_owned()))
    }

    /// Writes the manifest. One that names nothing is removed, and the directory with it.
    pub(super) fn write(&self, manifest: &Manifest, steps: &Steps) -> Result<(), SetupError> {
        let path = self.path.join(FILE);
        if manifest.entries.is_empty() {
            files::remove(&path, steps)?;
            return match fs::remove_dir(&self.path) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    Err(SetupError::file("remove", &self.path)(error))
                }
                _ => Ok(()),
            };
        }
        let text = serde_json::to_vec_pretty(manifest)
            .map_err(|error| SetupError::file("write", &path)(error.into()))?;
        files::create(&path, &text, 0o600, steps)
    }
}

/// Removes the directory, where a run that was killed has left it without a manifest.
pub(crate) fn clean(directory: &Path) {
    files::clean(&directory.join(FILE));
    let _ = fs::remove_dir(directory);
}

impl Manifest {
    /// Reads that of the directory; `None` if setup has added nothing.
    ///
    /// # Errors
    /// It cannot be read, or is not one of this release's.
    pub(crate) fn read(directory: &Path) -> Result<Option<Self>, SetupError> {
        let path = directory.join(FILE);
        let Some(bytes) = files::read(&path)? else { return Ok(None) };
        let unfit = |why: String| SetupError::Unfit(format!("{}: {why}", path.display()));
        let wrong = |error: serde_json::Error| unfit(error.to_string());
        let Start { version } = serde_json::from_slice(&bytes).map_err(wrong)?;
        let remedy = "use `exirate setup --undo` of the later exirate that wrote it";
        let other = |other: OtherVersion| unfit(format!("it {other}: {remedy}"));
        Versions::only(VERSION).known().check(version).map_err(other)?;
        Ok(Some(serde_json::from_slice(&bytes).map_err(wrong)?))
    }

    /// Whether all of it is in force.
    pub(crate) fn is_finished(&self) -> bool {
        self.finished
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_each_release_has_written_is_read() {
        let path = PathBuf::from;
        let owner = Some(("exirate-mail".to_owned(), "adm".to_owned()));
        let service = r#"{"name": "exirate-mail", "socket": "/run/exirate-mail/postfix.sock",
                          "was_enabled": false, "was_active": true}"#;
        for release in kit::formats::RELEASES {
            let folder = tempfile::tempdir().unwrap();
            let mut changes = vec![
                Change::Insert { file: path("/etc/exim4/x"), at: 7, text: "warn\n".to_owned() },
                Change::Create { file: path("/etc/a"), text: "b".to_owned(), mode: 0o600 },
                Change::Directory { path: path("/run/x"), mode: 0o710, owner: owner.clone() },
                Change::Directory { path: path("/run/y"), mode: 0o755, owner: None },
                Change::Policies { file: path("/p"), text: None, spool: path("/s") },
            ];
            if release != "0.1.0" {
                changes.push(Change::Start(serde_json::from_str(service).unwrap()));
            }
            let entry = |change| ManifestEntry { configuration: true, change };
            let entries = changes.into_iter().map(entry).collect();
            let manifest = Manifest { finished: false, entries, ..Manifest::default() };
            let written = |_: &str| serde_json::to_vec_pretty(&manifest).unwrap();
            kit::formats::kept_files(release, "", &[FILE], folder.path(), written);
            let read = Manifest::read(folder.path()).map_err(|error| error.to_string());
            assert_eq!(read, Ok(Some(manifest)));
        }
    }

    #[test]
    fn a_manifest_of_another_version_is_refused_in_words() {
        let folder = tempfile::tempdir().unwrap();
        let said = |text: &str| {
            fs::write(folder.path().join(FILE), text).unwrap();
            Manifest::read(folder.path()).map_err(|error| error.to_string())
        };
        // What it has besides may be of any form.
        for (version, bound) in [("2", "above"), ("4294967295", "above"), ("0", "below")] {
            let text = format!(r#"{{"version": {version}, "finished": "yes", "steps": []}}"#);
            let error = said(&text).unwrap_err();
            let expected = format!(
                "is of format version {version}, and this exirate knows no version {bound} 1"
            );
            assert!(error.contains(&expected), "{error}");
            assert!(error.contains("use `exirate setup --undo` of the later exirate"), "{error}");
        }
        let whole = r#"{"version": 1, "finished": true, "entries": [], "of a later one": 1}"#;
        assert_eq!(said(whole), Ok(Some(Manifest::default())));
    }
}
