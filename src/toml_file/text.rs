//! The files that are read.

use std::io::Read;
use std::path::{Path, PathBuf};

/// The largest file that is read: several million users.
const LARGEST: u64 = 256 << 20;

/// Reads the file that another one names.
pub type Load<'a> = &'a dyn Fn(&Path) -> Result<String, String>;

/// The text of a file.
pub(crate) fn load(path: &Path) -> Result<String, String> {
    let name = path.display().to_string();
    let file = std::fs::File::open(path);
    read(&mut file.map_err(|error| format!("cannot read {name}: {error}"))?, &name)
}

/// The text of what is called `name`.
pub(crate) fn read(input: &mut impl Read, name: &str) -> Result<String, String> {
    let mut bytes = Vec::new();
    let read = input.take(LARGEST + 1).read_to_end(&mut bytes);
    read.map_err(|error| format!("cannot read {name}: {error}"))?;
    if bytes.len() as u64 > LARGEST {
        return Err(format!("{name} is larger than {} MiB", LARGEST >> 20));
    }
    String::from_utf8(bytes).map_err(|error| {
        let valid = error.utf8_error().valid_up_to();
        let line = error.as_bytes().iter().take(valid).filter(|&&byte| byte == b'\n').count() + 1;
        format!("{name} is not UTF-8 in line {line}")
    })
}

/// The path of a file that a file at `path` names as `name`.
pub(crate) fn beside(path: Option<&PathBuf>, name: &str) -> PathBuf {
    path.and_then(|path| path.parent()).unwrap_or(Path::new("")).join(name)
}
