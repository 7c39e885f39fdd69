//! Files that commands write: whole, or not at all.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use super::Failure;

/// Writes a file by `write`, under the name `path.tmp` first and then renamed,
/// so that nobody ever reads a part of it. It gets these permissions, less
/// what the umask takes. What is no regular file, such as a pipe, is written to
/// as it is.
///
/// # Errors
/// It could not be written; what was there before still is.
pub(super) fn replace(
    path: &Path,
    mode: u32,
    write: impl FnOnce(&mut dyn Write) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let failed = |path: &Path, error: io::Error| {
        Failure::new(format!("cannot write {}: {error}", path.display()))
    };
    if fs::metadata(path).is_ok_and(|found| !found.is_file()) {
        let file = OpenOptions::new().write(true).open(path).map_err(|e| failed(path, e))?;
        // The file that was opened, and not what the name may lead to by now.
        let kind = file.metadata().map_err(|error| failed(path, error))?.file_type();
        if kind.is_block_device() {
            return Err(Failure::new(format!(
                "{} is a disk: nothing is written to it; name a file",
                path.display()
            )));
        }
        return fill(file, path, write).map(drop);
    }
    let temporary = suffixed(path, ".tmp");
    // One that was left behind; and then only one that is new, so that no link
    // of a stranger is followed.
    let _ = fs::remove_file(&temporary);
    let file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(&temporary)
        .map_err(|error| failed(&temporary, error))?;
    let written = fill(file, &temporary, write).and_then(|file| {
        file.sync_data().map_err(|error| failed(&temporary, error))?;
        fs::rename(&temporary, path).map_err(|error| failed(path, error))
    });
    if written.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    written
}

/// Has `write` fill the file.
fn fill(
    file: File,
    path: &Path,
    write: impl FnOnce(&mut dyn Write) -> Result<(), Failure>,
) -> Result<File, Failure> {
    let failed =
        |error: io::Error| Failure::new(format!("cannot write {}: {error}", path.display()));
    let mut out = BufWriter::new(file);
    write(&mut out).map_err(|failure| match failure {
        // Not standard output, which is what this would be taken for.
        Failure::Output(error) => failed(error),
        said @ Failure::Said(_) => said,
    })?;
    out.into_inner().map_err(|error| failed(error.into_error()))
}

fn suffixed(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_file_is_replaced_completely_or_left_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.prom");
        replace(&path, 0o600, |out| Ok(out.write_all(b"one")?)).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"one");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let failure = replace(&path, 0o600, |out| {
            out.write_all(b"half")?;
            Err(Failure::new("no"))
        });
        assert!(failure.is_err());
        assert_eq!(fs::read(&path).unwrap(), b"one");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn no_link_of_a_stranger_is_followed() {
        let folder = tempfile::tempdir().unwrap();
        let (path, other) = (folder.path().join("x"), folder.path().join("other"));
        fs::write(&other, "mine").unwrap();
        std::os::unix::fs::symlink(&other, folder.path().join("x.tmp")).unwrap();
        replace(&path, 0o600, |out| Ok(out.write_all(b"one")?)).unwrap();
        assert_eq!(fs::read(&other).unwrap(), b"mine");
        assert_eq!(fs::read(&path).unwrap(), b"one");
    }
}
