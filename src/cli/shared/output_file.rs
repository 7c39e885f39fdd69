//! Files and directories that commands write: whole, or not at all, and never what another
//! user has put there, as anybody may in /tmp.

use std::fs::{self, DirBuilder, File, Metadata, OpenOptions};
use std::io::{self, BufWriter, ErrorKind, Write};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{
    DirBuilderExt as _, FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _,
};
use std::path::Path;

use crate::cli::Failure;
use crate::sys::small_file::with_suffix;

/// Writes a file by `write`, under the name `path.tmp` first and then renamed,
/// so that nobody ever reads a part of it. It gets these permissions, less
/// what the umask takes. What is no regular file, such as a pipe, is written to
/// as it is, unless it is a FIFO of another user or behind a link of one.
///
/// # Errors
/// It could not be written; what was there before still is.
pub(in crate::cli) fn replace(
    path: &Path,
    mode: u32,
    write: impl FnOnce(&mut dyn Write) -> Result<(), Failure>,
) -> Result<(), Failure> {
    replace_as(path, mode, None, write)
}

/// As [`replace`]; written by root, the file gets the owner and group of `like`.
///
/// # Errors
/// Those of [`replace`].
pub(in crate::cli) fn replace_as(
    path: &Path,
    mode: u32,
    like: Option<&Metadata>,
    write: impl FnOnce(&mut dyn Write) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let failed = |path: &Path, error: io::Error| {
        Failure::new(format!("cannot write {}: {error}", path.display()))
    };
    if fs::metadata(path).is_ok_and(|found| !found.is_file()) {
        let file = open_special(path).map_err(|why| match why {
            Special::Io(error) => failed(path, error),
            Special::Refused(why) => {
                let path = path.display();
                Failure::new(format!("{path} is {why}: nothing is written to it; name a file"))
            }
        })?;
        return fill(file, path, write).map(drop);
    }
    let temporary = with_suffix(path, ".tmp");
    // One that was left behind; and then only one that is new, so that no link
    // of a stranger is followed.
    let _ = fs::remove_file(&temporary);
    let file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(&temporary)
        .map_err(|error| failed(&temporary, error))?;
    let like = like.filter(|_| rustix::process::geteuid().is_root());
    let owned = like.map_or(Ok(()), |like| {
        std::os::unix::fs::fchown(&file, Some(like.uid()), Some(like.gid()))
    });
    let written = owned.map_err(|error| failed(&temporary, error)).and_then(|()| {
        let file = fill(file, &temporary, write)?;
        file.sync_data().map_err(|error| failed(&temporary, error))?;
        fs::rename(&temporary, path).map_err(|error| failed(path, error))
    });
    if written.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    written
}

/// Makes sure that the directory `path` exists: one that is new is for its owner only. One of
/// another user than this one, root or `owner` is refused.
///
/// # Errors
/// It could not be created, or cannot be trusted.
pub(in crate::cli) fn directory(path: &Path, owner: u32) -> Result<(), Failure> {
    let failed =
        |error: io::Error| Failure::new(format!("cannot create {}: {error}", path.display()));
    match DirBuilder::new().mode(0o700).create(path) {
        Ok(()) => return Ok(()),
        Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(failed(error)),
        Err(_) => {}
    }
    let trusted = |info: &Metadata| is_trusted(info) || info.uid() == owner;
    let [own, found] = [fs::symlink_metadata(path), fs::metadata(path)];
    if trusted(&own.map_err(failed)?) && trusted(&found.map_err(failed)?) {
        return Ok(());
    }
    Err(Failure::new(format!(
        "{} belongs to another user: name a new directory, or one of yours",
        path.display()
    )))
}

/// Why something that is no regular file is not written to.
enum Special {
    Io(io::Error),
    /// What it is.
    Refused(&'static str),
}

/// Whether it belongs to this user or root.
fn is_trusted(info: &Metadata) -> bool {
    info.uid() == 0 || info.uid() == rustix::process::geteuid().as_raw()
}

/// Opens what is no regular file: a terminal, a pipe.
fn open_special(path: &Path) -> Result<File, Special> {
    let flags = rustix::fs::OFlags::PATH.bits().cast_signed();
    let link = fs::symlink_metadata(path).map_err(Special::Io)?;
    if link.is_symlink() && !is_trusted(&link) {
        return Err(Special::Refused("a link of another user"));
    }
    // Only found, not opened: another process would notice that, and may wait for it.
    let found = OpenOptions::new().read(true).custom_flags(flags).open(path);
    let found = found.map_err(Special::Io)?;
    let info = found.metadata().map_err(Special::Io)?;
    if info.file_type().is_block_device() {
        return Err(Special::Refused("a disk"));
    }
    // A pipe that a shell has made, such as /dev/stdout, has no name.
    let has_name = || {
        let named = fs::canonicalize(path).and_then(fs::symlink_metadata);
        named.is_ok_and(|named| (named.dev(), named.ino()) == (info.dev(), info.ino()))
    };
    if info.file_type().is_fifo() && !is_trusted(&info) && has_name() {
        return Err(Special::Refused("a FIFO of another user"));
    }
    // The file that was found, and not what the name may lead to by now.
    let found = format!("/proc/self/fd/{}", found.as_raw_fd());
    OpenOptions::new().write(true).open(found).map_err(Special::Io)
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

    fn said(failure: Failure) -> String {
        match failure {
            Failure::Said(text) => text,
            Failure::Output(error) => error.to_string(),
        }
    }

    fn refused(path: &Path) -> String {
        said(replace(path, 0o600, |_| Err(Failure::new("it was opened"))).unwrap_err())
    }

    /// Only root can make files of another user.
    #[test]
    fn no_fifo_or_link_of_a_stranger_is_written_to() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let own =
            |path: &Path| std::os::unix::fs::lchown(path, Some(65_534), Some(65_534)).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let [fifo, link, ours] = ["fifo", "link", "ours"].map(|name| folder.path().join(name));
        for path in [&fifo, &ours] {
            rustix::fs::mkfifoat(rustix::fs::CWD, path, 0o666.into()).unwrap();
        }
        own(&fifo);
        assert!(refused(&fifo).contains("is a FIFO of another user: nothing is written to it"));
        std::os::unix::fs::symlink(&fifo, &link).unwrap();
        assert!(refused(&link).contains("is a FIFO of another user"));
        fs::remove_file(&link).unwrap();
        std::os::unix::fs::symlink("/dev/null", &link).unwrap();
        replace(&link, 0o600, |out| Ok(out.write_all(b"one")?)).unwrap();
        own(&link);
        assert!(refused(&link).contains("is a link of another user"));
        // A link to a regular file is replaced, and so is the file of another user.
        let other = folder.path().join("other");
        fs::write(&other, "mine").unwrap();
        fs::remove_file(&link).unwrap();
        std::os::unix::fs::symlink(&other, &link).unwrap();
        own(&link);
        replace(&link, 0o600, |out| Ok(out.write_all(b"one")?)).unwrap();
        assert_eq!(
            (fs::read(&other).unwrap(), fs::read(&link).unwrap()),
            (b"mine".into(), b"one".into())
        );
        own(&other);
        replace(&other, 0o600, |out| Ok(out.write_all(b"one")?)).unwrap();
        assert_eq!(fs::metadata(&other).unwrap().uid(), 0);
        // One's own FIFO, and a pipe without a name, whoever has made it.
        let reader = std::thread::spawn({
            let ours = ours.clone();
            move || fs::read(ours).unwrap()
        });
        replace(&ours, 0o600, |out| Ok(out.write_all(b"one")?)).unwrap();
        assert_eq!(reader.join().unwrap(), b"one");
        let (mut reader, writer) = io::pipe().unwrap();
        rustix::fs::fchown(&writer, Some(rustix::fs::Uid::from_raw(65_534)), None).unwrap();
        let path = std::path::PathBuf::from(format!("/proc/self/fd/{}", writer.as_raw_fd()));
        replace(&path, 0o600, |out| Ok(out.write_all(b"one")?)).unwrap();
        drop(writer);
        let mut got = String::new();
        io::Read::read_to_string(&mut reader, &mut got).unwrap();
        assert_eq!(got, "one");
        // Directories.
        let [new, theirs] = ["new", "theirs"].map(|name| folder.path().join(name));
        directory(&new, 0).unwrap();
        directory(&new, 0).unwrap();
        fs::create_dir(&theirs).unwrap();
        own(&theirs);
        assert!(said(directory(&theirs, 0).unwrap_err()).contains("belongs to another user"));
        directory(&theirs, 65_534).unwrap();
        std::os::unix::fs::symlink(&new, folder.path().join("to")).unwrap();
        own(&folder.path().join("to"));
        assert!(directory(&folder.path().join("to"), 0).is_err());
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
