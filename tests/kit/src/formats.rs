//! What 0.1.0 has written, in `tests/formats/0.1.0`: see `tests/cli/formats.rs`.

use std::path::Path;

/// The file `name` there. Where `WRITE_FORMATS` is set, it is written first.
pub fn kept(name: &str, write: impl FnOnce() -> Vec<u8>) -> Vec<u8> {
    let path = crate::repository().join("tests/formats/0.1.0").join(name);
    if std::env::var_os("WRITE_FORMATS").is_some() {
        std::fs::write(&path, write()).expect("the folder is there");
    }
    std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Puts the files `names` of the folder `of` into `to`. Where `WRITE_FORMATS` is set, they are taken
/// from `from` first.
pub fn kept_files(of: &str, names: &[&str], to: &Path, from: impl Fn(&str) -> Vec<u8>) {
    for name in names {
        let bytes = kept(&format!("{of}{name}"), || from(name));
        std::fs::write(to.join(name), bytes).expect("a folder of the test");
    }
}
