//! Files that are read and replaced as a whole, by their paths.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

/// A link is refused, and a FIFO is not waited for.
const FLAGS: i32 = libc::O_NOFOLLOW | libc::O_NONBLOCK;

/// `path` with `suffix` behind its last name.
#[must_use]
pub fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// Opens a file for reading; it may be anything but a symbolic link.
///
/// # Errors
/// Those of `open`.
pub fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags(FLAGS).open(path)
}

/// Opens a file that is there to be locked, and makes it if there is none.
///
/// # Errors
/// Those of `open`.
pub fn open_lock(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    options.custom_flags(FLAGS).open(path)
}

/// Replaces the file, or makes one, with this mode whatever the umask is. It is on disk before it
/// is found if `synced`. One process at a time may do this.
///
/// # Errors
/// It is not written; the old one is unchanged.
pub fn replace(path: &Path, mode: u32, bytes: &[u8], synced: bool) -> io::Result<()> {
    let new = with_suffix(path, ".new");
    match fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
    let written = file
        .write_all(bytes)
        .and_then(|()| file.set_permissions(Permissions::from_mode(mode)))
        .and_then(|()| if synced { file.sync_all() } else { Ok(()) })
        .and_then(|()| fs::rename(&new, path));
    if written.is_err() {
        let _ = fs::remove_file(&new);
    }
    written
}
