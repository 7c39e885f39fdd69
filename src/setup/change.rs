//! One change of this machine: each only adds, and can be taken back exactly.

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _, fchown};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::error::SetupError;
use super::files;
use super::files::Steps;
use super::policy_file::is_unchanged;
use super::service::Service;
use crate::policy::image;
use crate::policy::source;
use crate::sys::files::open_real_directory;
use crate::sys::users;

/// The line above text of several lines that setup has inserted.
pub(crate) const BEGIN: &str = "# begin exirate setup";
/// The line below it.
pub(crate) const END: &str = "# end exirate setup";

/// A change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Change {
    /// Inserts `text` in a file, `at` so many bytes from its start.
    Insert { file: PathBuf, at: usize, text: String },
    /// Creates a file of root's.
    Create { file: PathBuf, text: String, mode: u32 },
    /// Makes a directory, for the user and group with these names, or else for root.
    Directory { path: PathBuf, mode: u32, owner: Option<(String, String)> },
    /// Creates the policy file, unless `text` is `None`, and puts it in use.
    Policies { file: PathBuf, text: Option<String>, spool: PathBuf },
    /// Starts a daemon, now and at each boot.
    Start(Service),
}

/// What became of a change that was to be taken back.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Reverted {
    /// It is gone.
    Gone,
    /// It stays: what, and why.
    Stays(String),
}

impl Change {
    /// The file that it changes or creates.
    pub(super) fn file(&self) -> Option<&Path> {
        match self {
            Self::Insert { file, .. } | Self::Create { file, .. } => Some(file),
            Self::Policies { file, .. } => Some(file),
            Self::Directory { .. } | Self::Start(_) => None,
        }
    }

    /// Makes it, but for an insertion: all of a file are made at once.
    pub(super) fn apply(&self, steps: &Steps) -> Result<(), SetupError> {
        match self {
            Self::Insert { .. } => Ok(()),
            Self::Create { file, text, mode } => files::create(file, text.as_bytes(), *mode, steps),
            Self::Directory { path, mode, owner } => {
                make_directory(path, *mode, owner.as_ref())?;
                steps.step();
                Ok(())
            }
            Self::Policies { file, text, spool } => {
                if let Some(text) = text {
                    files::create(file, text.as_bytes(), 0o644, steps)?;
                }
                apply_policies(file, spool)?;
                steps.step();
                Ok(())
            }
            Self::Start(service) => {
                service.start()?;
                steps.step();
                Ok(())
            }
        }
    }

    /// Takes it back, but for an insertion.
    pub(super) fn revert(&self, steps: &Steps) -> Result<Reverted, SetupError> {
        match self {
            Self::Insert { .. } => {}
            Self::Create { file, text, .. } => {
                if !is_text(file, text)? {
                    return Ok(stays(file, "it was changed since"));
                }
                files::remove(file, steps)?;
            }
            Self::Directory { path, .. } => match fs::remove_dir(path) {
                Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => {
                    return Ok(stays(path, "there are files in it"));
                }
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(SetupError::file("remove", path)(error));
                }
                _ => steps.step(),
            },
            Self::Policies { file, text, spool } => {
                if let Some(text) = text
                    && files::read(file)?
                        .is_some_and(|now| !is_unchanged(&String::from_utf8_lossy(&now), text))
                {
                    return Ok(stays(file, "it was changed since, and its policies are in use"));
                }
                image::remove(spool).map_err(|error| SetupError::Unfit(error.to_string()))?;
                steps.step();
                if text.is_some() {
                    files::remove(file, steps)?;
                }
            }
            Self::Start(service) => {
                service.stop()?;
                steps.step();
            }
        }
        Ok(Reverted::Gone)
    }
}

/// Whether a file contains this text, or does not exist.
fn is_text(file: &Path, text: &str) -> Result<bool, SetupError> {
    Ok(files::read(file)?.is_none_or(|bytes| bytes == text.as_bytes()))
}

fn stays(path: &Path, why: &str) -> Reverted {
    Reverted::Stays(format!("{} stays: {why}", path.display()))
}

fn make_directory(
    path: &Path,
    mode: u32,
    owner: Option<&(String, String)>,
) -> Result<(), SetupError> {
    let made = || {
        match fs::DirBuilder::new().mode(0o700).create(path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        // The directory above may be that of a daemon's user, who must not be able to have root
        // give away what a link leads to.
        let directory = open_real_directory(path)?;
        if let Some((user, group)) = owner {
            let no_such = |what: &str| io::Error::other(format!("there is no {what}"));
            let uid = users::id_of(user.as_ref()).ok_or_else(|| no_such("such user"))?;
            let gid = users::group_id_of(group.as_ref()).ok_or_else(|| no_such("such group"))?;
            fchown(&directory, Some(uid), Some(gid))?;
        }
        directory.set_permissions(fs::Permissions::from_mode(mode))
    };
    made().map_err(SetupError::file("make the directory", path))
}

/// Compiles a policy file and puts it in use.
pub(super) fn apply_policies(file: &Path, spool: &Path) -> Result<(), SetupError> {
    let compiled = source::read(file).map_err(SetupError::Unfit)?;
    let Some(policies) = compiled.policies else {
        return Err(SetupError::Unfit(format!(
            "{} has errors: see `exirate policy lint`",
            file.display()
        )));
    };
    let image = image::build(&policies);
    image::install(spool, &image).map_err(|error| SetupError::Unfit(error.to_string()))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_not_made_through_a_link() {
        let place = tempfile::tempdir().unwrap();
        let (secret, link) = (place.path().join("secret"), place.path().join("link"));
        fs::create_dir(&secret).unwrap();
        fs::set_permissions(&secret, fs::Permissions::from_mode(0o700)).unwrap();
        std::os::unix::fs::symlink(&secret, &link).unwrap();
        let make = |path: &Path| {
            let change = Change::Directory { path: path.to_owned(), mode: 0o755, owner: None };
            change.apply(&Steps::new(None))
        };
        assert!(make(&link).is_err());
        let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o7777;
        assert_eq!(mode(&secret), 0o700);
        // Twice, as after a setup that was killed.
        let new = place.path().join("new");
        make(&new).unwrap();
        make(&new).unwrap();
        assert_eq!(mode(&new), 0o755);
    }
}
