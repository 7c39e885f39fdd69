//! What each release has written, in `tests/formats/RELEASE`: see `tests/cli/formats.rs`.

use std::path::{Path, PathBuf};

/// The releases whose files are kept, the oldest first. A later one is added if it has another format,
/// or another version of one.
pub const RELEASES: [&str; 2] = ["0.1.0", "0.2.0"];

/// The directory of a release.
#[must_use]
pub fn folder(release: &str) -> PathBuf {
    crate::repository().join("tests/formats").join(release)
}

/// Whether the files of this release are to be written: those of the last one, where `WRITE_FORMATS` is
/// set.
#[must_use]
pub fn is_written(release: &str) -> bool {
    std::env::var_os("WRITE_FORMATS").is_some() && Some(&release) == RELEASES.last()
}

/// The file `name` of a release, which is written first if [`is_written`].
pub fn kept(release: &str, name: &str, write: impl FnOnce() -> Vec<u8>) -> Vec<u8> {
    let path = folder(release).join(name);
    if is_written(release) {
        std::fs::create_dir_all(folder(release)).expect("the folder can be made");
        std::fs::write(&path, write()).expect("the folder is there");
    }
    std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Puts the files `names` of a release, which are called `of` and that name there, into `to`. They are
/// taken from `from` first if [`is_written`].
pub fn kept_files(
    release: &str,
    of: &str,
    names: &[&str],
    to: &Path,
    from: impl Fn(&str) -> Vec<u8>,
) {
    for name in names {
        let bytes = kept(release, &format!("{of}{name}"), || from(name));
        std::fs::write(to.join(name), bytes).expect("a folder of the test");
    }
}
